"""Curves for TensorBoard, and for Weights & Biases or MLflow where asked for."""

from __future__ import annotations

import hashlib
from typing import Any

from torchlace._checks import check_choice
from torchlace.training.config import TrainConfig
from torchlace.training.rundir import Run, RunError


class Loggers:
    """Everything that follows a run beyond its own files."""

    def __init__(
        self, run: Run, config: TrainConfig, done: list[dict[str, Any]], *, enabled: bool
    ) -> None:
        self.targets: list[Any] = []
        if not enabled:
            return
        self.targets.append(_TensorBoard(run, len(done)))
        kinds = {"wandb": _WandB, "mlflow": _MLflow}
        for name in config.loggers:
            self.targets.append(kinds[check_choice("logger", name, kinds)](run, config))
        if done:
            # A kill may have come between the checkpoint and the curves.
            self.log(done[-1])

    def log(self, row: dict[str, Any]) -> None:
        """One epoch."""
        values = {name: value for name, value in row.items() if name != "epoch"}
        for target in self.targets:
            target.log(values, row["epoch"])

    def close(self) -> None:
        """The run is over."""
        for target in self.targets:
            target.close()


class _TensorBoard:
    def __init__(self, run: Run, done: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(run.path), purge_step=done or None)

    def log(self, values: dict[str, float], epoch: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, epoch)
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


class _WandB:
    def __init__(self, run: Run, config: TrainConfig) -> None:
        try:
            import wandb
        except ImportError as error:
            raise ImportError("--log wandb needs Weights & Biases: pip install wandb") from error
        try:
            self.run = wandb.init(
                project="torchlace",
                id=_identity(run),
                resume="allow",
                name=run.path.name,
                dir=str(run.path),
                config=config.as_dict(),
            )
        except wandb.Error as error:
            raise RunError(
                f"Weights & Biases can't be reached ({error}): run `wandb login`, set "
                "WANDB_MODE=offline, or leave --log wandb out"
            ) from error

    def log(self, values: dict[str, float], epoch: int) -> None:
        self.run.log(values, step=epoch)

    def close(self) -> None:
        self.run.finish()


class _MLflow:
    def __init__(self, run: Run, config: TrainConfig) -> None:
        try:
            import mlflow
        except ImportError as error:
            raise ImportError("--log mlflow needs MLflow: pip install mlflow") from error
        self.mlflow = mlflow
        tag = _identity(run)
        try:
            # A resumed run goes on in the same record.
            known = mlflow.search_runs(
                filter_string=f"tags.torchlace = '{tag}'", output_format="list"
            )
            if known:
                mlflow.start_run(run_id=known[0].info.run_id)
            else:
                mlflow.start_run(run_name=run.path.name, tags={"torchlace": tag})
                mlflow.log_params(config.as_dict())
        except mlflow.MlflowException as error:
            raise RunError(
                f"MLflow can't be used ({error}): set MLFLOW_TRACKING_URI to a server or database, "
                "or leave --log mlflow out"
            ) from error

    def log(self, values: dict[str, float], epoch: int) -> None:
        self.mlflow.log_metrics(values, step=epoch)

    def close(self) -> None:
        self.mlflow.end_run()


def _identity(run: Run) -> str:
    """The same for a run that goes on, another for one in another place."""
    return hashlib.sha256(str(run.path.resolve()).encode()).hexdigest()[:16]
