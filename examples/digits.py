"""Every head on the handwritten digits of scikit-learn: what `make demo` runs.

    python examples/digits.py [FOLDER]      # runs/demo by default; a minute on two CPU cores

Each head is a run directory of its own, as `torchlace train` makes it: interrupted, the same
command goes on; finished runs are not trained again. Ends with one table: accuracy on the held-out
fifth of the 1,797 images, calibrated negative log-likelihood, how well the features separate the
classes (Silhouette, cosine distance), epochs and time.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import torch
from sklearn.metrics import silhouette_score

import torchlace as tl
from torchlace.cli.common import load_run, print_table
from torchlace.data import load_data
from torchlace.training import TrainConfig, train


def separation(run: Path) -> float:
    """Silhouette of the test images' features, by the cosine distance."""
    _, model, _, prepare = load_run(run, "cpu")
    test = load_data("digits").test
    with torch.inference_mode():
        features = model.embed(prepare(test.batch(torch.arange(len(test)))))
    return float(silhouette_score(features.numpy(), test.labels.numpy(), metric="cosine"))


def main() -> None:
    warnings.filterwarnings("ignore")
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/demo")
    rows = []
    for name in tl.heads.names():
        print(f"training {name} in {folder / name}", flush=True)
        config = TrainConfig(data="digits", head=name, epochs=50, batch_size=64, device="cpu")
        result = train(config, folder / name)
        rows.append(
            [
                name,
                f"{result['test_accuracy']:.2f}",
                f"{result['test_calibrated_loss']:.3f}",
                f"{separation(folder / name):.3f}",
                f"{result['epochs']}",
                f"{result['seconds']:.1f}",
            ]
        )
    columns = ["head", "accuracy %", "calibrated NLL", "Silhouette", "epochs", "seconds"]
    print_table("handwritten digits, 359 test images", columns, rows)
    print(f"look closer: torchlace evaluate {folder / 'lace'}")


if __name__ == "__main__":
    main()
