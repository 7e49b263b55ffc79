"""NVIDIA's MPS daemon, under which processes share a GPU without taking turns."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

CONTROL = "nvidia-cuda-mps-control"
_PIPE, _LOG = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"


class Mps:
    """Starts the daemon where it is installed and none runs, and stops the one it started.

    Attributes:
        environment: what processes need to find it.
    """

    def __init__(self, *, enabled: bool = True) -> None:
        self.enabled = enabled and shutil.which(CONTROL) is not None
        self.environment: dict[str, str] = {}
        self.folder: Path | None = None

    def start(self) -> None:
        """Start it; without success, processes take turns, which is slower and nothing else."""
        if not self.enabled or self._answers(dict(os.environ)):
            return
        self.folder = Path(tempfile.mkdtemp(prefix="torchlace-mps-"))
        self.environment = {_PIPE: str(self.folder), _LOG: str(self.folder)}
        # It sees all devices; processes choose among them.
        environment = {**os.environ, **self.environment}
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        started = subprocess.run([CONTROL, "-d"], env=environment, capture_output=True, check=False)
        if started.returncode != 0 or not self._answers(environment):
            self.stop()

    def stop(self) -> None:
        """Stop it, if it was started here."""
        if self.folder is None:
            return
        self._ask("quit", {**os.environ, **self.environment})
        shutil.rmtree(self.folder, ignore_errors=True)
        self.environment, self.folder = {}, None

    def _answers(self, environment: dict[str, str]) -> bool:
        return self._ask("get_server_list", environment)

    def _ask(self, question: str, environment: dict[str, str]) -> bool:
        try:
            asked = subprocess.run(
                [CONTROL],
                input=f"{question}\n",
                env=environment,
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False
        return asked.returncode == 0
