"""Published rules for features that are given, from their formulas.

All take (N, d) features and integer labels as arrays, and learn one part after the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

Array = np.ndarray[Any, Any]


class Rule:
    """Learns samples of new classes; predicts the class of the highest score."""

    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        self.known: list[int] = []
        self.means: list[Tensor] = []

    def partial_fit(self, X: Array, y: Array) -> Rule:
        """Learn the samples of classes not seen before."""
        x, labels = self._tensor(X), torch.from_numpy(y).to(self.device)
        self._learn(x, labels)
        return self

    def predict(self, X: Array) -> Array:
        """The label of each sample."""
        with torch.no_grad():
            parts = [self._scores(part).argmax(1).cpu() for part in self._tensor(X).split(5000)]
        found: Array = np.array(self.known)[torch.cat(parts).numpy()]
        return found

    def _tensor(self, X: Array) -> Tensor:
        return torch.from_numpy(np.asarray(X, dtype=np.float64)).to(self.device)

    def _learn(self, x: Tensor, y: Tensor) -> None:
        raise NotImplementedError

    def _scores(self, x: Tensor) -> Tensor:
        raise NotImplementedError


class NearestMean(Rule):
    """The class whose mean is nearest."""

    def _learn(self, x: Tensor, y: Tensor) -> None:
        for label in y.unique().tolist():
            self.known.append(label)
            self.means.append(x[y == label].mean(0))

    def _scores(self, x: Tensor) -> Tensor:
        return -torch.cdist(x, torch.stack(self.means))


class KubokawaSrivastava(NearestMean):
    """A Gaussian discriminant with one covariance, whose inverse is d((n - 1)S + tr(S)I)⁻¹.

    Kubokawa and Srivastava (2008), as Wang et al. (ICLR 2024, "A hard-to-beat baseline for
    training-free CLIP-based adaptation") use it. Where each class has one sample, S is zero, and
    the inverse the identity.
    """

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        self.scatter: Tensor | None = None
        self.count = 0

    def _learn(self, x: Tensor, y: Tensor) -> None:
        super()._learn(x, y)
        own = torch.stack([self.means[self.known.index(label)] for label in y.tolist()])
        scatter = (x - own).mT @ (x - own)
        self.scatter = scatter if self.scatter is None else self.scatter + scatter
        self.count += len(x)

    def _scores(self, x: Tensor) -> Tensor:
        assert self.scatter is not None
        means, width = torch.stack(self.means), x.shape[1]
        covariance = self.scatter / max(self.count - 1, 1)
        trace = covariance.diagonal().sum()
        identity = torch.eye(width, dtype=x.dtype, device=x.device)
        weights = means
        if trace > 0:
            ridged = (self.count - 1) * covariance + trace * identity
            weights = width * torch.linalg.solve(ridged, means.mT).mT
        return x @ weights.mT - (weights * means).sum(1) / 2


class FeCAM(Rule):
    """Mahalanobis distances with a covariance of each class's own, shrunk and normalised.

    Goswami et al. (NeurIPS 2023): features to the power of a half (Tukey), a covariance of these
    for each class, to whose diagonal its mean is added and to the rest the mean of the rest, twice,
    and which is then brought to a diagonal of ones; distances are taken between vectors of length
    one. Features with entries below zero, as a linear last layer gives, stay as they are; of one
    sample there is no covariance: there it is the identity.
    """

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        self.factors: list[Tensor] = []
        self.power = 0.5

    def _learn(self, x: Tensor, y: Tensor) -> None:
        if not self.known and x.min() < 0:
            self.power = 1.0
        for label in y.unique().tolist():
            own = x[y == label]
            self.known.append(label)
            self.means.append(F.normalize(own.mean(0) ** self.power, dim=0))
            self.factors.append(self._factor(own**self.power))

    def _scores(self, x: Tensor) -> Tensor:
        x = F.normalize(F.normalize(x, dim=1) ** self.power, dim=1)
        pairs = zip(self.means, self.factors, strict=True)
        return torch.stack([-((x - m) @ factor).square().sum(1) for m, factor in pairs], dim=1)

    @staticmethod
    def _factor(x: Tensor) -> Tensor:
        """L with LLᵀ the inverse covariance."""
        width = x.shape[1]
        identity = torch.eye(width, dtype=x.dtype, device=x.device)
        covariance = x.mT.cov() if len(x) > 1 else torch.zeros_like(identity)
        if not covariance.diagonal().mean() > 0:
            return identity
        for _ in range(2):
            level = covariance.diagonal().mean()
            rest = (covariance.sum() - covariance.diagonal().sum()) / (width * (width - 1))
            covariance = covariance + level * identity + rest * (1 - identity)
        deviations = covariance.diagonal().sqrt()
        correlation = covariance / deviations[:, None] / deviations
        factor: Tensor = torch.linalg.cholesky(torch.linalg.pinv(correlation, hermitian=True))
        return factor


class RanPAC(Rule):
    """Ridge regression on the classes from random ReLU features.

    McDonnell et al. (NeurIPS 2023): 10,000 random projections, whose products are summed over all
    parts; the ridge is that of 10⁻⁸ to 10⁸ with the lowest squared error on a fifth of the newest
    part.
    """

    def __init__(self, device: str = "cpu", projections: int = 10_000, seed: int = 0) -> None:
        super().__init__(device)
        self.projections, self.seed = projections, seed
        self.products: Tensor | None = None
        self.sums: Tensor | None = None

    def _learn(self, x: Tensor, y: Tensor) -> None:
        if self.products is None:
            generator = torch.Generator().manual_seed(self.seed)
            random = torch.randn(x.shape[1], self.projections, generator=generator)
            self.random = random.to(x)
            self.products = x.new_zeros(self.projections, self.projections)
            self.sums = x.new_zeros(self.projections, 0)
        assert self.sums is not None
        self.known += y.unique().tolist()
        places = torch.tensor([self.known.index(label) for label in y.tolist()], device=x.device)
        h, targets = self._lifted(x), F.one_hot(places, len(self.known)).to(x)
        more = len(self.known) - self.sums.shape[1]
        self.sums = F.pad(self.sums, (0, more)) + h.mT @ targets
        self.products += h.mT @ h
        self.weights = self._solve(self.products, self.sums, self._ridge(h, targets))

    def _scores(self, x: Tensor) -> Tensor:
        return self._lifted(x) @ self.weights

    def _lifted(self, x: Tensor) -> Tensor:
        return F.relu(x @ self.random)

    def _ridge(self, h: Tensor, targets: Tensor) -> float:
        """The one with the lowest squared error on a fifth of these samples."""
        order = torch.randperm(len(h), generator=torch.Generator().manual_seed(self.seed))
        cut = max(int(0.8 * len(h)), 1)
        fit, held = order[:cut].to(h.device), order[cut:].to(h.device)
        if not len(held):
            return 1.0
        h_fit, h_held = h[fit], h[held]
        few = len(fit) < h.shape[1]  # the smaller of the two Gram matrices has the same spectrum
        values, vectors = torch.linalg.eigh(h_fit @ h_fit.mT if few else h_fit.mT @ h_fit)
        left = h_held @ (h_fit.mT @ vectors if few else vectors)
        right = vectors.mT @ (targets[fit] if few else h_fit.mT @ targets[fit])
        losses = {}
        for power in range(-8, 9):
            ridge = 10.0**power
            predicted = left @ (right / (values.clamp_min(0) + ridge)[:, None])
            losses[ridge] = float((predicted - targets[held]).square().mean())
        return min(losses, key=losses.__getitem__)

    @staticmethod
    def _solve(products: Tensor, sums: Tensor, ridge: float) -> Tensor:
        ridged = products.clone()
        while True:
            ridged.diagonal().copy_(products.diagonal() + ridge)
            factor, failed = torch.linalg.cholesky_ex(ridged)
            if not failed:
                return torch.cholesky_solve(sums, factor)
            ridge *= 10  # rounding is larger
