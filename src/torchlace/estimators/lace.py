"""LACE on features that no network will adapt to it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from torchlace._checks import check_choice, check_number
from torchlace.backgrounds import Background
from torchlace.estimators.head import AdamClassifier
from torchlace.estimators.samples import ClassMoments, Samples, Spectrum, empty_moments
from torchlace.estimators.search import (
    LEAST_SHRINKAGE,
    Choice,
    choose,
    class_directions,
    fit_signatures,
)
from torchlace.functional import unit
from torchlace.heads import LACE, Head
from torchlace.heads.cosine import Scale


@dataclass(kw_only=True, eq=False, repr=False)
class LACEClassifier(AdamClassifier):
    """Cosines to class signatures in the space whitened by the background, on given features.

    The background is what varies within classes: mean and pooled covariance are computed in closed
    form, in units of the features' deviations, and shrunk. Signatures follow by L-BFGS. How much to
    shrink and the scale of the cosines are chosen on samples held out, whose cross-entropy at the
    best temperature decides; then everything is fitted to all samples.

    Behind hidden layers the embedding adapts to the head: there it is :class:`torchlace.LACE` with
    its own defaults, trained by Adam as in :class:`HeadClassifier`.

    Args:
        shrinkage: of the covariance towards its mean variance: ``"auto"`` (chosen, from what Ledoit
            and Wolf say), ``"ledoit-wolf"``, or a number in [1e-6, 1].
        scale: what cosines are multiplied by: ``"auto"`` (chosen) or a number.
        fit_intercept: give the whitened features a constant last coordinate, as long as they
            usually are. Without it a class near the mean of all has no direction of its own; then
            scores are ACE's.
        class_weight: as in :class:`HeadClassifier`. It counts in the loss, not in the background.
        max_iter: iterations of L-BFGS at most; epochs with ``hidden``.
        tol: the largest entry of the gradient at which L-BFGS has converged; with ``hidden`` what
            counts as an improvement of the loss.
        validation_fraction: share of each class to hold out: a half, a third, a quarter …,
            whichever is next to it. Small sets are held out in up to five parts in turn, until a
            thousand samples were.
        learning_rate, alpha, batch_size: as in :class:`HeadClassifier`, with ``hidden`` and in
            :meth:`partial_fit`.
        hidden, activation, early_stopping, n_iter_no_change, warm_start, random_state, device,
            verbose: as in :class:`HeadClassifier`.

    Attributes:
        head_: the :class:`torchlace.LACE`; ``head_.fold()`` gives plain layers.
        shrinkage_: the shrinkage in use (without ``hidden``).
        scale_: the scale in use.
        n_iter_: iterations of the last fit.

    The other attributes are those of :class:`HeadClassifier`.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> X, y = load_digits(return_X_y=True)
        >>> model = LACEClassifier(random_state=0).fit(X[:1500], y[:1500])
        >>> model.score(X[1500:], y[1500:]) > 0.9, model.transform(X).shape
        (True, (1797, 64))
    """

    shrinkage: float | Literal["auto", "ledoit-wolf"] = "auto"
    scale: float | Literal["auto"] = "auto"
    fit_intercept: bool = True
    validation_fraction: float = 0.2
    head_: LACE = field(init=False)

    @property
    def scale_(self) -> float:
        """What cosines are multiplied by."""
        return float(self.head_.scale)

    def _train(self, samples: Samples) -> None:
        if self.hidden is not None:
            return super()._train(samples)
        self._check()
        self._moments = empty_moments(len(self.classes_), samples.features).merge(samples)
        width, classes = samples.features.shape[1], len(self.classes_)
        scale = math.sqrt(width) if self.scale == "auto" else self.scale
        choice = choose(
            samples,
            classes,
            self._constant(width),
            Choice(self._amount(), scale, 1.0),
            shrinkage=self.shrinkage == "auto",
            scale=self.scale == "auto",
            fraction=self.validation_fraction,
            report=self._say,
        )
        start = None
        if self.warm_start and self._fits(samples):
            start = self.head_.weight.detach().to(samples.features)
        self._build_fixed(samples, choice.scale)
        self._whiten_by(choice.shrinkage)
        vectors = self._vectors(samples)
        found = fit_signatures(
            vectors,
            samples,
            class_directions(vectors, samples, classes) if start is None else start,
            choice.scale,
            max_iter=self.max_iter,
            tol=self.tol,
            report=self._say,
        )
        self.head_.weight.data.copy_(found.signatures)
        self.head_.temperature.fill_(choice.temperature)
        self.n_iter_ = max(found.iterations, 1)
        if not found.converged:
            self._warn("L-BFGS had not converged", "iterations", "or tol")
        return None

    def _advance(self, samples: Samples) -> None:
        if self.hidden is not None:
            return super()._advance(samples)
        self._check()
        if not hasattr(self, "head_"):
            self._moments = empty_moments(len(self.classes_), samples.features)
            self._build_fixed(samples, "learned" if self.scale == "auto" else self.scale)
        self._check_built(samples)
        self._moments = self._moments.merge(samples)
        self._whiten_by(self._amount())
        new = class_directions(self._vectors(samples), samples, len(self.classes_))
        weight = self.head_.weight.data
        weight.copy_(torch.where(weight.any(dim=1, keepdim=True), weight, new))
        return self._pass_over(samples)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if "_moments" in state:
            state["_moments"] = ClassMoments(*(part.cpu() for part in state["_moments"]))
        return state

    @property
    def _n_features_out(self) -> int:
        return self.head_.in_features - isinstance(self.embedding_, Homogeneous)

    def _check(self) -> None:
        super()._check()
        if isinstance(self.shrinkage, str):
            check_choice("shrinkage", self.shrinkage, ("auto", "ledoit-wolf"))
        else:
            check_number("shrinkage", self.shrinkage, LEAST_SHRINKAGE, 1, closed=True)
        if isinstance(self.scale, str):
            check_choice("scale", self.scale, ("auto",))
        else:
            check_number("scale", self.scale, 0)

    def _make_head(self, width: int) -> Head:
        # Small sets have few steps, so the statistics must follow the embedding in fewer.
        options: dict[str, Any] = {"decay": 0.95, "refresh_every": 5}
        scale = 2 * math.sqrt(width) if self.scale == "auto" else self.scale
        background = "within"
        if self.shrinkage != "auto":
            background, options["shrinkage"] = "total", self.shrinkage
        named: dict[str, Any] = {"background": background, "background_options": options}
        return LACE(width, len(self.classes_), scale=scale, **named)

    def _amount(self) -> float:
        """The shrinkage that was given, or what Ledoit and Wolf advise."""
        if isinstance(self.shrinkage, str):
            return max(self._moments.shrinkage, LEAST_SHRINKAGE)
        return self.shrinkage

    def _constant(self, width: int) -> float | None:
        return math.sqrt(width) if self.fit_intercept else None

    def _build_fixed(self, samples: Samples, scale: Scale) -> None:
        """A head that knows nothing yet, on a background that is set."""
        width = samples.features.shape[1]
        mean = samples.features.new_zeros(width)
        background = Fixed(mean, mean.new_zeros(width, width), self._constant(width))
        with self._seeded():
            head = LACE(
                background.in_features,
                len(self.classes_),
                background=background,
                scale=scale,
                signature_space="whitened",
                bias=False,
            )
        head.weight.data.zero_()
        if head.log_scale is not None:
            head.log_scale.data.fill_(math.log(2 * math.sqrt(width)))
        self._place(samples, Homogeneous() if self.fit_intercept else nn.Identity(), head)

    def _whiten_by(self, shrinkage: float) -> None:
        spectrum, background = Spectrum(self._moments), self.head_.background
        assert isinstance(background, Fixed)
        background.set(spectrum.mean, spectrum.whitening(shrinkage))
        self.shrinkage_ = shrinkage

    def _vectors(self, samples: Samples) -> Tensor:
        """The samples in the whitened space, of length one."""
        with torch.no_grad():
            return unit(self.head_.whiten(self.embedding_(samples.features)))


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

    def set(self, mean: Tensor, whitening: Tensor) -> None:
        """Another mean and whitening of the same width."""
        width = len(mean)
        self.fixed_mean[:width] = mean
        self.whitening[:width, :width] = whitening

    @property
    def mean(self) -> Tensor:
        """μ, (d,)."""
        return self.fixed_mean

    def transform(self, vectors: Tensor) -> Tensor:
        """Wv for every row."""
        return vectors @ self.whitening.to(vectors.dtype).mT
