"""Try a wheel: each extra in a clean environment, where what it is for must work.

    python tests/release.py dist

Takes minutes and gigabytes, so it belongs to `make release` and not to `make test`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

HEAD = "import torch, torchlace as tl; tl.LACE(4, 2).loss(torch.randn(8, 4), torch.arange(8) % 2)"
TRAIN = "from torchlace.training import TrainConfig, train; train(TrainConfig(epochs=1), 'run')"
COMMAND = "import subprocess; subprocess.run(['bin/torchlace', '{}', 'run'], check=True)".format
WORKS = {
    "": HEAD,
    "train": TRAIN,
    "estimators": "from torchlace.estimators import LACEClassifier; LACEClassifier()",
    "estimators,dask": "import dask.array as da; from torchlace.detection import RXDetector as R; "
    "x = da.random.normal(size=(50, 3)); R().fit(x).score_samples(x).compute()",
    "hub": "import torchlace as tl; tl.hub.save_pretrained(tl.Classifier('small-cnn', "
    "num_classes=2), 'pets'); tl.hub.from_pretrained('pets')",
    "train,report": f"{TRAIN}; {COMMAND('report')}",
    "train,onnx": f"{TRAIN}; {COMMAND('export')}",
    "train,timm": "import torchlace as tl; tl.Classifier('timm/resnet10t', num_classes=2)",
    "train,ray": "import ray, torchlace.experiments as e; e.load_experiment('table1')",
}


def main(folder: Path) -> None:
    """Install the wheel of a folder with each extra, and run what needs it."""
    (wheel,) = folder.resolve().glob("*.whl")
    for extra, code in WORKS.items():
        with tempfile.TemporaryDirectory() as place:
            venv.create(place, with_pip=True)
            wanted = f"{wheel}[{extra}]" if extra else str(wheel)
            python = f"{place}/bin/python"
            subprocess.run([python, "-m", "pip", "install", "--quiet", wanted], check=True)
            subprocess.run([python, "-c", code], cwd=place, check=True, stdout=subprocess.DEVNULL)
        print(f"torchlace[{extra}] works" if extra else "torchlace works", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
