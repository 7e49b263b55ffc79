"""Swap the head in a training loop of one's own.

    python examples/own_loop.py          # ten seconds on a CPU

Handwritten digits of scikit-learn, a quarter held out, and a small network; the loop is the same
for every head. Two lines differ from a linear layer with cross-entropy: the loss is the head's,
and it is calibrated before its probabilities are used. It prints about

    softmax: accuracy 97.33 %, log loss 0.104
    arcface: accuracy 97.11 %, log loss 0.114
    lace: accuracy 98.44 %, log loss 0.074
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn.functional import nll_loss

import torchlace as tl


def trained(head: tl.heads.Head, images: Tensor, labels: Tensor) -> tl.Classifier:
    """A network of one's own, trained with this head."""
    network = nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(256, 64)),
    )
    model = tl.Classifier(network, head)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(10):
        for batch in torch.randperm(len(images)).split(64):
            optimizer.zero_grad()
            model.loss(images[batch], labels[batch]).backward()  # not cross_entropy of its logits
            optimizer.step()
    return model.eval()


def main() -> None:
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 8 - 1
    labels = torch.tensor(digits.target)
    rest, test = train_test_split(range(len(labels)), stratify=labels, random_state=0)
    train, held_out = rest[:1100], rest[1100:]
    for name in ("softmax", "arcface", "lace"):
        torch.manual_seed(0)
        model = trained(tl.heads.create(name, 64, 10), images[train], labels[train])
        model.calibrate(images[held_out], labels[held_out])
        with torch.no_grad():
            probabilities = model.probabilities(images[test])
        accuracy = 100 * (probabilities.argmax(1) == labels[test]).float().mean()
        loss = nll_loss(probabilities.log(), labels[test])
        print(f"{name}: accuracy {accuracy:.2f} %, log loss {loss:.3f}")


if __name__ == "__main__":
    main()
