"""A background estimated from the features, which the paper leaves as future work."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from torchlace._checks import check_choice, check_classes, check_count, check_number
from torchlace.backgrounds.running import Running, constant_when_compiled
from torchlace.functional import (
    Moments,
    cholesky_whitening,
    empty_moments,
    ledoit_wolf,
    newton_schulz_whitening,
    shrink,
    unit,
    update_moments,
    whitened_dimensions,
)
from torchlace.functional.moments import Decay

Shrinkage = float | Literal["ledoit-wolf"]
Method = Literal["cholesky", "newton-schulz"]

# Ledoit and Wolf may find that no shrinkage is needed; a trace of it keeps fp32 factors finite.
_LEAST_SHRINKAGE = 1e-4
# Of a shrinkage that follows the dimensions or the cohesion, which starts half-way.
_MOST_SHRINKAGE, _FIRST_SHRINKAGE = 0.999, 0.5
# What its odds change by at one refresh, at most, where samples are still to show the effect.
_LARGEST_STEP = 1.25
# Of one number, unlike of a covariance, a hundred batches say enough.
_DECAY_OF_COSINES = 0.99

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

    def following(self, amount: Tensor, growth: Tensor) -> Tensor:
        """The shrinkage after ``amount`` if its odds grow so much, down to :meth:`least`."""
        odds = amount / (1 - amount) * growth
        least = min(self.least(), _MOST_SHRINKAGE)
        return (odds / (1 + odds)).clamp(least, _MOST_SHRINKAGE)


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
        found = update_moments(
            self.moments,
            features,
            weights,
            self.decay,
            self._reduction(),
            covariance=self.has_covariance,
            fourth=self.has_covariance and self.whitener.adaptive,
            rescale=self._rescales(),
            inplace=self._overwrites(),
        )
        self._keep(zip(_STATISTICS, found, strict=True))


class Estimated(MomentsBackground):
    """Running mean and covariance of the features, shrunk and inverted every few steps.

    Args:
        in_features: width of the features.
        shrinkage: towards the mean variance: a number in [1e-4, 1], or ``"ledoit-wolf"``.
        dimensions: whiten about so many at most, or ``"classes"``: as many as tell the classes
            apart, ``num_classes`` - 1. Where the features vary in more, noise is what whitening
            lifts: there the covariance is shrunk further, by ``amount``, which every refresh brings
            nearer to what is needed; ``shrinkage`` is then the least.
        cohesion: whiten no further than leaves two samples of one class this cosine on average, a
            number in (0, 1). A network that can't keep them together is whitened little, by
            ``amount`` again, and one that does all the way to ``shrinkage``. Learning then needs
            the labels, and ``num_classes``.
        decay: what a batch still counts one step later; ``"auto"``: .99, or more where a hundred
            batches hold fewer than 50 samples for each feature.
        refresh_every: training steps between two whitenings; the mean moves every step.
        method: ``"cholesky"``, or ``"newton-schulz"``, which needs matrix products only and gives
            the symmetric whitening that turns features least.
        samples: ``"all"``, or ``"nontarget"``: the average over classes of the background that each
            class sees, the samples of the others, so that frequent classes weigh less. Learning
            then needs the labels, and ``num_classes``. Samples of a negative label never count.
        num_classes: number of classes, for ``samples="nontarget"``, ``dimensions="classes"`` and
            ``cohesion``.
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
    cosines: Tensor

    def __init__(
        self,
        in_features: int,
        *,
        shrinkage: Shrinkage = 0.01,
        dimensions: int | Literal["classes"] | None = None,
        cohesion: float | None = None,
        decay: Decay = 0.99,
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
        self.needs_targets = samples == "nontarget" or cohesion is not None
        counting = {
            'samples="nontarget"': samples == "nontarget",
            'dimensions="classes"': dimensions == "classes",
            f"cohesion={cohesion}": cohesion is not None,
        }
        if num_classes is None and any(counting.values()):
            what = next(name for name, asked in counting.items() if asked)
            raise ValueError(f"{what} needs num_classes, the number of classes")
        self.num_classes = None if num_classes is None else check_classes(num_classes)
        self.dimensions = _dimensions(dimensions, self.num_classes)
        self.cohesion = None if cohesion is None else check_number("cohesion", cohesion, 0, 1)
        self._register(1, device, dtype)
        self.register_buffer("whitening", torch.empty_like(self.running_covariance[0]))
        _check_one_limit(dimensions=dimensions, cohesion=cohesion, shrinkage=shrinkage)
        if self.limited:
            self.register_buffer("amount", torch.empty_like(self.moments.mass))
            self._derived = ("whitening", "amount")
        if self.cohesion is not None:
            self.register_buffer("cosines", self.moments.mass.new_empty(2))
        if not covariance:
            self._derived = ()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Forget everything: zero mean, identity whitening."""
        with torch.no_grad():
            self._forget()
            self.whitening.zero_().fill_diagonal_(1)
            self._clock.zero_()
            if self.limited:
                self.amount.fill_(_FIRST_SHRINKAGE)
            if self.cohesion is not None:
                self.cosines.zero_()

    @property
    def limited(self) -> bool:
        """Whether something limits how far it whitens, so that the shrinkage follows."""
        return self.dimensions is not None or self.cohesion is not None

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
        if self.cohesion is not None and self.has_covariance and targets is not None:
            self._compare(features, targets)

    def _compare(self, features: Tensor, targets: Tensor) -> None:
        """Follow the cosines between whitened samples of one class: their sum, and the pairs."""
        counted = (targets >= 0).unsqueeze(1)
        vectors = unit(torch.where(counted, self.whiten(features), 0))
        members = one_hot(targets, self.num_classes or 0, vectors.dtype)
        own = vectors.square().sum().reshape(1)
        parts = torch.cat([own, members.sum(1), (members @ vectors).flatten()])
        reduction = self._reduction()
        parts = parts if reduction is None else reduction(parts)
        own, counts, sums = parts.split([1, len(members), len(parts) - 1 - len(members)])
        # A sum's square is that of all pairs, of each sample with itself too.
        found = torch.cat([sums.square().sum() - own, (counts * (counts - 1)).sum().reshape(1)])
        finite = found.abs().sum() < torch.inf
        pace = 1 - (_DECAY_OF_COSINES if isinstance(self.decay, str) else self.decay)
        self.cosines.copy_(torch.where(finite, self.cosines.lerp(found, pace), self.cosines))

    def _derive(self) -> tuple[Tensor, ...]:
        if not self.limited:
            return (self.whitener.whitening(self.moments)[0],)
        moments = self.moments
        factor = self.whitener.factor(self.whitener.shrunk(moments, self.amount))
        growth = self._growth(moments.covariance, factor)
        return (factor / moments.unit)[0], self.whitener.following(self.amount, growth)

    def _growth(self, covariance: Tensor, factor: Tensor) -> Tensor:
        """What the odds of the shrinkage are to be multiplied by.

        The number of whitened dimensions falls more slowly than the odds rise, so growing by its
        ratio closes in from either side and never overshoots. The cosines show an effect only after
        some steps of training: there they change little at a time.
        """
        if self.cohesion is not None:
            cosines, pairs = self.cosines.unbind()
            growth = self.cohesion * pairs / cosines.clamp_min(torch.finfo(cosines.dtype).tiny)
            return torch.where(pairs > 0, growth, 1).clamp(1 / _LARGEST_STEP, _LARGEST_STEP)
        used = whitened_dimensions(covariance, self.amount, factor).clamp_min(0)
        seen = covariance.diagonal(dim1=-2, dim2=-1).sum(-1) > 0
        return torch.where(seen, used / (self.dimensions or 1), 1)

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
        if self.cohesion is not None:
            parts.append(f"cohesion={self.cohesion}")
        nontarget = self.samples == "nontarget"
        return ", ".join([*parts, *(["samples='nontarget'"] if nontarget else [])])


def _dimensions(dimensions: int | Literal["classes"] | None, num_classes: int | None) -> int | None:
    if isinstance(dimensions, str):
        check_choice("dimensions", dimensions, ("classes",))
        return (num_classes or 2) - 1
    return None if dimensions is None else check_count("dimensions", dimensions)


def _check_one_limit(**given: float | str | None) -> None:
    """Raise where more than one setting says how far to shrink; a number is only the least."""
    if not isinstance(given["shrinkage"], str):
        del given["shrinkage"]
    limits = [f"{name}={value!r}" for name, value in given.items() if value is not None]
    if len(limits) > 1:
        raise ValueError(
            f"{' and '.join(limits)} each set the shrinkage: keep one, beside the least shrinkage "
            "as a number"
        )


def one_hot(targets: Tensor, classes: int, dtype: torch.dtype) -> Tensor:
    """Membership of every sample in every class, (C, N); a negative label belongs to none."""
    return (torch.arange(classes, device=targets.device)[:, None] == targets).to(dtype)
