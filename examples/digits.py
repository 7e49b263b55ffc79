"""Every head on the handwritten digits of scikit-learn, with a small convolutional network.

    python examples/digits.py        # about a minute on two CPU cores

Prints one table: accuracy and calibrated negative log-likelihood on the held-out fifth of the 1,797
images, how well the features separate the classes (Silhouette with cosine distance), and the time.
The temperature is fitted on a validation split; the test images are used for the table alone.
"""

from __future__ import annotations

import time

import torch
from sklearn.datasets import load_digits
from sklearn.metrics import silhouette_score
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional as F

import torchlace as tl

EPOCHS, BATCH, WIDTH = 30, 128, 64


def backbone() -> nn.Module:
    """Two convolutions on 8 × 8 images."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, WIDTH, 3, padding=1, bias=False),
        nn.BatchNorm2d(WIDTH),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(4 * WIDTH, WIDTH),
    )


def train(name: str, images: Tensor, labels: Tensor) -> tuple[nn.Module, tl.heads.Head]:
    torch.manual_seed(0)
    network, head = backbone(), tl.heads.create(name, WIDTH, 10)
    parameters = [*network.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=2e-3)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(images)).split(BATCH):
            optimizer.zero_grad()
            head.loss(network(images[batch]), labels[batch]).backward()
            optimizer.step()
    return network.eval(), head.eval()


def main() -> None:
    data, target = load_digits(return_X_y=True)
    images = torch.tensor(data, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    labels = torch.tensor(target)
    every = range(len(labels))
    rest, test = train_test_split(every, test_size=0.2, stratify=target, random_state=0)
    fit, held = train_test_split(rest, test_size=0.1, stratify=target[rest], random_state=0)
    print(
        f"{len(fit)} training, {len(held)} validation, {len(test)} test images, {EPOCHS} epochs\n"
    )
    print(f"{'head':<16}{'accuracy %':>12}{'NLL':>8}{'Silhouette':>12}{'seconds':>9}")
    for name in tl.heads.names():
        start = time.perf_counter()
        network, head = train(name, images[fit], labels[fit])
        seconds = time.perf_counter() - start
        with torch.inference_mode():
            head.calibrate(network(images[held]), labels[held])
            features = network(images[test])
            probabilities = head.probabilities(features)
        accuracy = (probabilities.argmax(1) == labels[test]).float().mean().item()
        loss = F.nll_loss(probabilities.log(), labels[test]).item()
        separation = silhouette_score(features.numpy(), target[test], metric="cosine")
        print(f"{name:<16}{100 * accuracy:>12.2f}{loss:>8.3f}{separation:>12.3f}{seconds:>9.1f}")


if __name__ == "__main__":
    main()
