"""LACE of fixed features without an optimiser: background and signatures by formulas."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchlace.backgrounds import Background
from torchlace.estimators.samples import Samples
from torchlace.estimators.sums import Sums, advised_odds
from torchlace.functional import auto_scale
from torchlace.heads import LACE

LEAST_SHRINKAGE = 1e-6


class Spectrum:
    """The covariance within classes, decomposed once so that any shrinkage of it is cheap.

    Of several sets of samples all has one dimension more, in front.
    """

    def __init__(self, sums: Sums) -> None:
        self.sums, self.mean, self.units = sums, sums.mean, sums.units
        values, vectors = torch.linalg.eigh(sums.within)
        self.values: Tensor = values.clamp_min(0)
        self.vectors: Tensor = vectors
        self.centres: Tensor = sums.offsets @ vectors

    def axes(self, features: Tensor) -> Tensor:
        """Features along the principal axes, (N, d)."""
        rotation = (self.units[..., None] * self.vectors).to(features.dtype)
        return (features - self.mean[..., None, :].to(features.dtype)) @ rotation

    def lengths(self, shrinkage: float) -> Tensor:
        """What whitening multiplies each principal axis by, (d,)."""
        level = self.values.mean(-1, keepdim=True)
        ridged = (1 - shrinkage) * self.values + shrinkage * level
        return torch.where(level > 0, ridged, 1).rsqrt()

    def whitening(self, shrinkage: float) -> Tensor:
        """W with WᵀW = Σ⁻¹, (d, d): the one that leaves each feature closest to itself."""
        rotated = self.vectors * self.lengths(shrinkage)
        return torch.mul(rotated @ self.vectors.mT, self.units)

    def squares(self, shrinkage: float) -> Tensor:
        """The mean square length of whitened samples, ()."""
        means = self.values + self.sums.over_classes(self.centres.square())
        return (self.lengths(shrinkage).square() * means).sum(-1)


class Rule:
    """Signatures where the classes lie, for one shrinkage, along the principal axes.

    Args:
        spectrum: of the covariance within classes.
        shrinkage: of it towards its mean variance; None: what the sums advise.
        intercept: give all a constant last coordinate, as long as whitened samples are.
    """

    def __init__(self, spectrum: Spectrum, shrinkage: float | None, intercept: bool) -> None:
        if shrinkage is None:
            odds = advised_odds(spectrum.sums)
            shrinkage = max(odds / (1 + odds), LEAST_SHRINKAGE)
        self.spectrum, self.shrinkage = spectrum, shrinkage
        square = spectrum.squares(shrinkage)
        self.square = torch.where(square > 0, square, 1)
        self.constant = self.square.sqrt() if intercept else None
        self.lengths = spectrum.lengths(shrinkage)
        self.centres: Tensor = spectrum.centres * self.lengths[..., None, :]

    def vectors(self, axes: Tensor) -> Tensor:
        """Samples along the principal axes, whitened and of length one, (N, k)."""
        whitened = axes * self.lengths[..., None, :].to(axes.dtype)
        return F.normalize(self._lifted(whitened), dim=-1)

    def signatures(self) -> Tensor:
        """Along the principal axes, of length one, (C, k).

        A class that was never seen lies opposite to the constant.
        """
        found = self._lifted(self.centres)
        if self.constant is not None:
            found[..., -1] *= 2 * (self.spectrum.sums.mass > 0).double() - 1
        return F.normalize(found, dim=-1)

    def turned(self, signatures: Tensor) -> Tensor:
        """Such signatures as the symmetric whitening has them."""
        width = len(self.lengths)
        turned = signatures[:, :width] @ self.spectrum.vectors.mT.to(signatures.dtype)
        return torch.cat([turned, signatures[:, width:]], dim=1)

    def gaussian_scale(self) -> float:
        """The likeliest scale if samples were Gaussian about their class means.

        It is the mean square length over the variance that samples of a class have along the class
        means, once it is corrected for these being means of the same samples. Where nothing is
        known of that variance it is what :class:`torchlace.LACE` begins with.
        """
        sums = self.spectrum.sums
        seen = int((sums.mass > 0).sum())
        weights = sums.mass[:, None] * self.centres.square()
        along = (weights @ (self.lengths.square() * self.spectrum.values)).sum() / weights.sum()
        free = (1 + seen / sums.size) / (1 - seen / sums.size) if sums.size > seen else 0.0
        noise = float(along) * free
        return float(self.square) / noise if noise > 0 else auto_scale(len(sums.mass))

    def left_out(self, samples: Samples) -> Tensor:
        """Cosines of samples if each of them had not been among those that were summed, (N, C).

        Taking one out moves the mean of its class and takes a product of one vector from the
        scatter; the inverse follows by Sherman and Morrison's formula. The units, the shrinkage and
        the mean of all would hardly move, and stay.
        """
        sums, own = self.spectrum.sums, samples.targets
        count, mass = samples.counts.double(), sums.mass[own]
        rest = mass - count
        z = self.spectrum.axes(samples.features.double()) * self.lengths
        about = z - self.centres[own]
        square = about.square().sum(1)
        taken = (1 - self.shrinkage) * count * mass / rest / sums.spread
        gain = (taken / (1 - taken * square).clamp_min(1e-3))[:, None]
        along, across = (z * about).sum(1, keepdim=True), about @ self.centres.mT
        products = z @ self.centres.mT + gain * along * across
        sizes = self.centres.square().sum(1) + gain * across.square()
        length = z.square().sum(1, keepdim=True) + gain * along.square()
        row, shift, grown = (
            torch.arange(len(own), device=own.device),
            -count / rest,
            1 + gain[:, 0] * square,
        )
        products[row, own] += shift * along[:, 0] * grown
        sizes[row, own] += shift * (2 * across[row, own] + shift * square) * grown
        if self.constant is not None:
            products += self.square * (2 * (sums.mass > 0).double() - 1)
            sizes, length = sizes + self.square, length + self.square
        found: Tensor = products * (sizes * length).clamp_min(1e-300).rsqrt()
        return found

    def _lifted(self, whitened: Tensor) -> Tensor:
        """With the last coordinate."""
        if self.constant is None:
            return whitened
        last = self.constant[..., None, None].to(whitened.dtype)
        return torch.cat([whitened, last.expand(*whitened.shape[:-1], 1)], dim=-1)


def fixed_head(rule: Rule, signatures: Tensor, scale: float, bias: Tensor) -> LACE:
    """The head of signatures along the principal axes, (C, k), with a bias for each class, (C,)."""
    whitening = rule.spectrum.whitening(rule.shrinkage)
    constant = None if rule.constant is None else float(rule.constant)
    background = Fixed(rule.spectrum.mean, whitening, constant)
    with torch.random.fork_rng(devices=[]):
        head = LACE(
            background.in_features,
            len(signatures),
            background=background,
            scale=scale,
            signature_space="whitened",
            bias=rule.constant is not None,
        )
    head.weight.data = rule.turned(signatures)
    if head.bias is not None:
        head.bias.data = bias
    return head


class Homogeneous(nn.Module):
    """Appends a constant one to the features."""

    def forward(self, features: Tensor) -> Tensor:
        """Features, (N, d + 1)."""
        return torch.cat([features, torch.ones_like(features[:, :1])], dim=1)


class Fixed(Background):
    """A background of given mean and whitening, and perhaps a last coordinate both leave alone.

    Args:
        mean: μ, (d,).
        whitening: W, (d, d).
        constant: what a last, additional coordinate is multiplied by; None: there is none.
    """

    fixed_mean: Tensor
    whitening: Tensor

    def __init__(self, mean: Tensor, whitening: Tensor, constant: float | None = None) -> None:
        if constant is not None:
            mean = torch.cat([mean, mean.new_zeros(1)])
            whitening = torch.block_diag(whitening, whitening.new_full((1, 1), constant))
        super().__init__(len(mean))
        self.register_buffer("fixed_mean", mean)
        self.register_buffer("whitening", whitening)

    @property
    def mean(self) -> Tensor:
        """μ, (d,)."""
        return self.fixed_mean

    def transform(self, vectors: Tensor) -> Tensor:
        """Wv for every row."""
        return vectors @ self.whitening.to(vectors.dtype).mT
