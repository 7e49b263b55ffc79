"""A background estimated from the features, which the paper leaves as future work."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from torchlace._checks import check_choice, check_count, check_number
from torchlace._transforms import transforming
from torchlace.backgrounds.running import Running, constant_when_compiled
from torchlace.functional import (
    Moments,
    cholesky_whitening,
    empty_moments,
    ledoit_wolf,
    newton_schulz_whitening,
    shrink,
    update_moments,
    whitened_dimensions,
)

Shrinkage = float | Literal["ledoit-wolf"]
Method = Literal["cholesky", "newton-schulz"]

# Ledoit and Wolf may find that no shrinkage is needed; a trace of it keeps fp32 factors finite.
_LEAST_SHRINKAGE = 1e-4
# Of a shrinkage that follows the dimensions, which starts half-way.
_MOST_SHRINKAGE, _FIRST_SHRINKAGE = 0.999, 0.5

_STATISTICS = tuple(f"running_{name}" for name in Moments._fields)


class Whitener:
    """How a running covariance becomes a whitening: shrinkage, then Cholesky or Newton–Schulz."""

    def __init__(self, shrinkage: Shrinkage, method: Method) -> None:
        if isinstance(shrinkage, str):
            check_choice("shrinkage", shrinkage, ("ledoit-wolf",))
        else:
            shrinkage = check_number("shrinkage", shrinkage, _LEAST_SHRINKAGE, 1, closed=True)
        self.shrinkage = shrinkage
        self.method = check_choice("method", method, ("cholesky", "newton-schulz"))

    @property
    def adaptive(self) -> bool:
        """Whether the amount of shrinkage follows the samples."""
        return isinstance(self.shrinkage, str)

    def shrunk(self, moments: Moments, amount: Tensor | None = None) -> Tensor:
        """The covariance in units of ``moments.unit`` squared, shrunk, (G, d, d)."""
        covariance = moments.covariance
        if amount is not None:
            return shrink(covariance, amount)
        if not self.adaptive:
            return shrink(covariance, self.least())
        amount = ledoit_wolf(covariance, moments.fourth, moments.spread)
        return shrink(covariance, amount.clamp_min(_LEAST_SHRINKAGE))

    def whitening(self, moments: Moments) -> Tensor:
        """W with WᵀW the inverse of the shrunk covariance, (G, d, d)."""
        return self.factor(self.shrunk(moments)) / moments.unit

    def factor(self, covariance: Tensor) -> Tensor:
        """W with W Σ Wᵀ = I for a covariance that is shrunk already."""
        if self.method == "cholesky":
            return cholesky_whitening(covariance)
        return newton_schulz_whitening(covariance, condition=covariance.shape[-1] / self.least())

    @constant_when_compiled
    def least(self) -> float:
        """The smallest shrinkage there can be; a constant to the compiler."""
        return self.shrinkage if isinstance(self.shrinkage, float) else _LEAST_SHRINKAGE

    def __repr__(self) -> str:
        return f"shrinkage={self.shrinkage}, method={self.method!r}"

    def limited(self, moments: Moments, amount: Tensor, dimensions: int) -> tuple[Tensor, Tensor]:
        """A whitening shrunk by ``amount``, and what to shrink the next by.

        Where more than ``dimensions`` are whitened, the odds of the shrinkage grow by the ratio;
        they fall likewise, down to :meth:`least`. The number falls more slowly than the odds rise,
        so this closes in from either side and never overshoots.
        """
        covariance = moments.covariance
        factor = self.factor(self.shrunk(moments, amount))
        used = whitened_dimensions(covariance, amount, factor).clamp_min(0)
        seen = covariance.diagonal(dim1=-2, dim2=-1).sum(-1) > 0
        odds = amount / (1 - amount) * torch.where(seen, used / dimensions, 1)
        following = (odds / (1 + odds)).clamp(min(self.least(), _MOST_SHRINKAGE), _MOST_SHRINKAGE)
        return factor / moments.unit, following


class MomentsBackground(Running):
    """Running moments of one or more groups of samples, and a whitening of each."""

    _derived: tuple[str, ...] = ("whitening",)
    whitener: Whitener
    running_mean: Tensor
    running_covariance: Tensor
    whitening: Tensor

    def _register(
        self, groups: int, device: torch.device | str | None, dtype: torch.dtype | None
    ) -> None:
        place = torch.empty(0, device=device, dtype=dtype)
        dtype = torch.promote_types(place.dtype, torch.float32)
        empty = empty_moments(groups, self.in_features, place.device, dtype)
        for name, value in empty._asdict().items():
            self.register_buffer(f"running_{name}", value)

    def _forget(self) -> None:
        for value in self.moments:
            value.zero_()
        self.moments.unit.fill_(1)

    @property
    def moments(self) -> Moments:
        """The running statistics."""
        return Moments(*(getattr(self, name) for name in _STATISTICS))

    def _learn(self, features: Tensor, weights: Tensor | None) -> None:
        old = self.moments
        merged = update_moments(
            old,
            features,
            weights,
            self.decay,
            self._reduction(),
            covariance=self.has_covariance,
            fourth=self.has_covariance and self.whitener.adaptive,
            rescale=self._rescales(),
            # A fresh d × d matrix costs as much as the product; the compiler needs no telling, and
            # torch.func forbids it.
            inplace=not (torch.compiler.is_compiling() or transforming()),
        )
        for before, after in zip(old, merged, strict=True):
            if after is not before:
                before.copy_(after)


class Estimated(MomentsBackground):
    """Running mean and covariance of the features, shrunk and inverted every few steps.

    Args:
        in_features: width of the features.
        shrinkage: towards the mean variance: a number in [1e-4, 1], or ``"ledoit-wolf"``.
        dimensions: whiten about so many at most, or ``"classes"``: as many as tell the classes
            apart, ``num_classes`` - 1. Where the features vary in more, noise is what whitening
            lifts: there the covariance is shrunk further, by ``amount``, which every refresh brings
            nearer to what is needed; ``shrinkage`` is then the least.
        decay: what a batch still counts one step later.
        refresh_every: training steps between two whitenings; the mean moves every step.
        method: ``"cholesky"``, or ``"newton-schulz"``, which needs matrix products only and gives
            the symmetric whitening that turns features least.
        samples: ``"all"``, or ``"nontarget"``: the average over classes of the background that each
            class sees, the samples of the others, so that frequent classes weigh less. Learning
            then needs the labels, and ``num_classes``. Samples of a negative label never count.
        num_classes: number of classes, for ``samples="nontarget"`` and ``dimensions="classes"``.
        mean: subtract the mean.
        covariance: whiten.
        sync: sum statistics over all processes of the default group, where there is one.
        device: as in torch layers.
        dtype: as in torch layers; half precision is kept in fp32.

    Example:
        >>> background = Estimated(2, shrinkage=1e-4)
        >>> x = torch.randn(1000, 2) * torch.tensor([10.0, 1.0]) + 5
        >>> background(x).T.cov().round(decimals=1).abs()
        tensor([[1., 0.],
                [0., 1.]])
    """

    amount: Tensor

    def __init__(
        self,
        in_features: int,
        *,
        shrinkage: Shrinkage = 0.01,
        dimensions: int | Literal["classes"] | None = None,
        decay: float = 0.99,
        refresh_every: int = 10,
        method: Method = "cholesky",
        samples: Literal["all", "nontarget"] = "all",
        num_classes: int | None = None,
        mean: bool = True,
        covariance: bool = True,
        sync: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, mean=mean, covariance=covariance)
        self._configure(decay, refresh_every, sync)
        self.whitener = Whitener(shrinkage, method)
        self.samples = check_choice("samples", samples, ("all", "nontarget"))
        self.needs_targets = samples == "nontarget"
        if num_classes is None and (self.needs_targets or dimensions == "classes"):
            what = 'samples="nontarget"' if self.needs_targets else 'dimensions="classes"'
            raise ValueError(f"{what} needs num_classes, the number of classes")
        self.num_classes = None if num_classes is None else check_count("num_classes", num_classes)
        self.dimensions = _dimensions(dimensions, self.num_classes)
        self._register(1, device, dtype)
        self.register_buffer("whitening", torch.empty_like(self.running_covariance[0]))
        if self.dimensions is not None:
            if self.whitener.adaptive:
                raise ValueError(
                    f"dimensions={dimensions!r} sets the shrinkage, and so does {shrinkage!r}: "
                    "give the least shrinkage as a number, or leave out dimensions"
                )
            self.register_buffer("amount", torch.empty_like(self.moments.mass))
            self._derived = ("whitening", "amount")
        if not covariance:
            self._derived = ()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Forget everything: zero mean, identity whitening."""
        with torch.no_grad():
            self._forget()
            self.whitening.zero_().fill_diagonal_(1)
            self._clock.zero_()
            if self.dimensions is not None:
                self.amount.fill_(_FIRST_SHRINKAGE)

    @property
    def mean(self) -> Tensor:
        """μ, (d,); zero where it is switched off."""
        mean = self.running_mean[0]
        return mean if self.has_mean else torch.zeros_like(mean)

    def transform(self, vectors: Tensor) -> Tensor:
        """Wv for every row."""
        if not self.has_covariance:
            return vectors
        return vectors @ self._in_use("whitening", vectors.dtype).mT

    def _update(self, features: Tensor, targets: Tensor | None) -> None:
        self._learn(features, self._weights(features, targets))

    def _derive(self) -> tuple[Tensor, ...]:
        if self.dimensions is None:
            return (self.whitener.whitening(self.moments)[0],)
        factors, amount = self.whitener.limited(self.moments, self.amount, self.dimensions)
        return factors[0], amount

    def _weights(self, features: Tensor, targets: Tensor | None) -> Tensor | None:
        if targets is None:
            return None
        if self.num_classes is None or self.samples == "all":
            return (targets >= 0).unsqueeze(0)
        members = one_hot(targets, self.num_classes, features.dtype)
        counts, reduction = members.sum(1), self._reduction()
        counts = counts if reduction is None else reduction(counts)
        rest = counts.sum() - counts
        shares = torch.where(rest > 0, 1 / torch.where(rest > 0, rest, 1), 0)
        weights = (shares.sum() - shares @ members) * members.sum(0)
        return (weights * (counts.sum() / (rest > 0).sum().clamp_min(1)))[None]

    def extra_repr(self) -> str:
        """What matters: width, shrinkage, method, decay, refresh."""
        parts = [super().extra_repr(), str(self.whitener), f"decay={self.decay}"]
        parts.append(f"refresh_every={self.refresh_every}")
        if self.dimensions is not None:
            parts.append(f"dimensions={self.dimensions}")
        return ", ".join([*parts, *(["samples='nontarget'"] if self.needs_targets else [])])


def _dimensions(dimensions: int | Literal["classes"] | None, num_classes: int | None) -> int | None:
    if isinstance(dimensions, str):
        check_choice("dimensions", dimensions, ("classes",))
        return max(1, (num_classes or 0) - 1)
    return None if dimensions is None else check_count("dimensions", dimensions)


def one_hot(targets: Tensor, classes: int, dtype: torch.dtype) -> Tensor:
    """Membership of every sample in every class, (C, N); a negative label belongs to none."""
    return (torch.arange(classes, device=targets.device)[:, None] == targets).to(dtype)
