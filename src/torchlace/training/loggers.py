"""Curves for TensorBoard, and for Weights & Biases or MLflow where asked for."""

from __future__ import annotations

import uuid
from types import TracebackType
from typing import Any, Literal, Self

from torchlace._reporter import Reporter
from torchlace._text import setting
from torchlace.runs import Run, RunError, TrainConfig
from torchlace.training.stopping import InterruptedRun

Row = dict[str, Any]
Status = Literal["finished", "failed", "stopped"]


class Loggers:
    """Everything that follows a run beyond its own files.

    A logger that fails to begin is an error; one that fails later is told of once and given the
    epochs it missed when it is back.
    """

    def __init__(
        self,
        run: Run,
        config: TrainConfig,
        done: list[Row],
        reporter: Reporter,
        *,
        enabled: bool,
    ) -> None:
        self.reporter = reporter
        self.targets: list[Any] = []
        self.waiting: dict[str, list[Row]] = {}
        self.warned: set[str] = set()
        if not enabled:
            return
        kinds: dict[str, Any] = {"wandb": _WandB, "mlflow": _MLflow}
        self.targets.append(_TensorBoard(run, len(done)))
        try:
            for name in config.loggers:
                self.targets.append(kinds[name](run, config))
        except BaseException:
            self.close("failed")
            raise
        for target in self.targets:
            # A record that goes on has it all, unless a kill came before its last epoch.
            self.waiting[target.name] = done[-1:] if target.goes_on else list(done)
        self._send()

    def log(self, row: Row) -> None:
        """Send the row of an epoch."""
        for rows in self.waiting.values():
            rows.append(row)
        self._send()

    def close(self, status: Status) -> None:
        """End the records: the run is finished, failed or stopped."""
        for target in self.targets:
            try:
                target.close(status)
            except Exception as error:
                self._warn(target, error)
        self.targets = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        stopped = isinstance(error, (KeyboardInterrupt, InterruptedRun))
        self.close("finished" if error is None else "stopped" if stopped else "failed")

    def _send(self) -> None:
        for target in self.targets:
            rows = self.waiting[target.name]
            try:
                while rows:
                    values = {name: value for name, value in rows[0].items() if name != "epoch"}
                    target.log(values, rows[0]["epoch"])
                    del rows[0]
            # Whatever goes wrong there, the training is worth more than its curves.
            except Exception as error:
                self._warn(target, error)

    def _warn(self, target: Any, error: Exception) -> None:
        if target.name not in self.warned:
            self.warned.add(target.name)
            reason = str(error).partition("\n")[0]
            self.reporter.message(
                f"warning: {target.name} fails ({type(error).__name__}: {reason}); training goes "
                "on, and what it misses is sent when it answers again"
            )


class _TensorBoard:
    name = "TensorBoard"

    def __init__(self, run: Run, done: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.goes_on = done > 0
        self.writer = SummaryWriter(str(run.path), purge_step=done or None)

    def log(self, values: dict[str, float], epoch: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, epoch)
        self.writer.flush()

    def close(self, status: Status) -> None:
        self.writer.close()


class _WandB:
    name = "Weights & Biases"

    def __init__(self, run: Run, config: TrainConfig) -> None:
        try:
            import wandb
        except ImportError as error:
            asked = setting("loggers", "wandb")
            raise ImportError(f"{asked} needs Weights & Biases: pip install wandb") from error
        known = _records(run).get("wandb")
        self.goes_on = known is not None
        identity = known or uuid.uuid4().hex[:16]
        try:
            self.run = wandb.init(
                project="torchlace",
                id=identity,
                resume="allow",
                name=run.path.name,
                dir=str(run.path),
                config=config.as_dict(),
            )
        except wandb.Error as error:
            raise RunError(
                f"Weights & Biases can't be reached ({error}): run `wandb login`, set "
                f"WANDB_MODE=offline, or leave out {setting('loggers', 'wandb')}"
            ) from error
        _remember(run, "wandb", identity)

    def log(self, values: dict[str, float], epoch: int) -> None:
        self.run.log(values, step=epoch)

    def close(self, status: Status) -> None:
        # 255 is what Weights & Biases itself says for Ctrl-C.
        self.run.finish(exit_code={"finished": 0, "failed": 1, "stopped": 255}[status])


class _MLflow:
    name = "MLflow"

    def __init__(self, run: Run, config: TrainConfig) -> None:
        try:
            import mlflow
        except ImportError as error:
            asked = setting("loggers", "mlflow")
            raise ImportError(f"{asked} needs MLflow: pip install mlflow") from error
        self.mlflow = mlflow
        known = _records(run).get("mlflow")
        self.goes_on = known is not None
        try:
            if known is not None:
                mlflow.start_run(run_id=known)
            else:
                record = mlflow.start_run(run_name=run.path.name)
                mlflow.log_params(config.as_dict())
                _remember(run, "mlflow", record.info.run_id)
        except mlflow.MlflowException as error:
            raise RunError(
                f"MLflow can't be used ({error}): set MLFLOW_TRACKING_URI to a server or database, "
                f"or leave out {setting('loggers', 'mlflow')}"
            ) from error

    def log(self, values: dict[str, float], epoch: int) -> None:
        self.mlflow.log_metrics(values, step=epoch)

    def close(self, status: Status) -> None:
        self.mlflow.end_run(
            {"finished": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}[status]
        )


def _records(run: Run) -> dict[str, str]:
    """Where the curves of this run go, by logger; a run that is trained anew has none."""
    if not run.records_path.exists():
        return {}
    return run.read_json(run.records_path)


def _remember(run: Run, name: str, identity: str) -> None:
    run.write_json(run.records_path, {**_records(run), name: identity})
