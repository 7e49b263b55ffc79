"""LACE on features that no network will adapt to it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from torchlace._checks import check_choice, check_number
from torchlace._torch import find_device
from torchlace.estimators.closed import LEAST_SHRINKAGE, Homogeneous, Rule, Spectrum, fixed_head
from torchlace.estimators.increments import Incremental
from torchlace.estimators.known import Known
from torchlace.estimators.samples import Samples, stacked
from torchlace.estimators.scales import Scales, log_shares
from torchlace.estimators.search import Choice, choose, fit_signatures
from torchlace.estimators.sums import sums_of
from torchlace.heads import LACE, Head

# Samples that tell the scale: of more, some.
_MOST = 5_000


@dataclass(kw_only=True, eq=False, repr=False)
class LACEClassifier(Incremental):
    """Cosines to class signatures in the space whitened by the background, on given features.

    All of it follows from sums over the samples. The background is what varies within classes, in
    units of the features' deviations, with the ridge that generalised cross-validation advises;
    signatures are the whitened class means; the scale makes labels likeliest, of each sample by all
    others. So samples, of new classes too, can be added (:meth:`partial_fit`, :meth:`merge`) and
    classes taken away (:meth:`forget`) as if they had always, or never, been there. :meth:`fit`
    then refines the signatures by L-BFGS, where samples held out say that this is better.

    Behind hidden layers the embedding adapts to the head: there it is :class:`torchlace.LACE` with
    its own defaults, trained by Adam as in :class:`HeadClassifier`.

    Args:
        refine: whether :meth:`fit` refines the closed form; ``"auto"``: where that is better.
        shrinkage: of the covariance towards its mean variance: ``"auto"`` or a number in [1e-6, 1].
        scale: what cosines are multiplied by: ``"auto"`` or a number.
        fit_intercept: give the whitened features a constant last coordinate, as long as they
            usually are, and classes a bias by their sizes. Without it a class near the mean of all
            has no direction of its own; then scores are ACE's.
        class_weight: as in :class:`HeadClassifier`. It counts in the loss, not in the background.
        max_iter: iterations of L-BFGS at most; epochs with ``hidden``.
        tol: the largest entry of the gradient at the end; with ``hidden`` the least improvement.
        validation_fraction: share of each class to hold out, as a half, a third, a quarter …;
            small sets in up to five parts in turn, until a thousand samples were.
        hidden, random_state, device, verbose: as in :class:`HeadClassifier`; the other parameters
            too, which count with ``hidden`` only.

    Attributes:
        head_: the :class:`torchlace.LACE`; ``head_.fold()`` gives plain layers.
        known_: labels, counts, class means, scatter: all that the closed form needs.
        refined_: whether the signatures were refined.
        shrinkage_: the shrinkage in use.
        scale_: the scale in use.
        n_iter_: iterations of the last fit.

    The other attributes are those of :class:`HeadClassifier`; with ``hidden`` the second to fourth
    are missing.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> X, y = load_digits(return_X_y=True)
        >>> model = LACEClassifier(random_state=0).fit(X[:1500], y[:1500])
        >>> model.score(X[1500:], y[1500:]) > 0.9, model.transform(X).shape
        (True, (1797, 64))
    """

    refine: bool | Literal["auto"] = "auto"
    shrinkage: float | Literal["auto"] = "auto"
    scale: float | Literal["auto"] = "auto"
    fit_intercept: bool = True
    validation_fraction: float = 0.2
    head_: LACE = field(init=False)
    known_: Known = field(init=False)

    @property
    def scale_(self) -> float:
        """What cosines are multiplied by."""
        return float(self.head_.scale)

    def _train(self, samples: Samples) -> None:
        if self.hidden is not None:
            return super()._train(samples)
        self._check()
        self.__dict__.pop("known_", None)  # what a warm start kept
        rule = self._learn(samples)
        assert rule is not None  # fit has seen to it that there are two classes
        if self.refine is False or not self._refine(samples, rule):
            self._close(rule)
        return None

    def _advance(self, samples: Samples) -> None:
        if self.hidden is not None:
            return super()._advance(samples)
        self._check()
        if hasattr(self, "head_") and not hasattr(self, "known_"):
            self._check_built(samples)
        rule = self._learn(samples)
        if rule is not None:
            self._close(rule)
        return None

    def _learn(self, samples: Samples) -> Rule | None:
        """Add to what is known; the closed form of it, where there are classes to tell apart."""
        classes, like = len(self.classes_), samples.features
        added = Known(self.classes_, sums_of(samples, classes), Scales.silent(classes, like))
        fresh = not hasattr(self, "known_")
        self.known_ = added if fresh else self.known_.to(like.device).join(added)
        self._dtype = like.dtype
        if classes < 2:
            return None
        rule, sums = self._rule(), self.known_.sums
        told = samples.thinned(_MOST)
        told = told.take(sums.mass[told.targets] > told.counts)
        heard = Scales.of(rule.left_out(told), told, self._log_shares())
        # What was heard of fewer samples than there are now is the less true of these.
        before = self.known_.scales.fade(1 - added.sums.mass.sum() / sums.mass.sum())
        self.known_ = self.known_._replace(scales=before.add(heard))
        return rule

    def _rule(self) -> Rule:
        return Rule(Spectrum(self.known_.sums), _given(self.shrinkage), self.fit_intercept)

    def _weights(self) -> Tensor:
        """The weight of each class in the loss, (C,)."""
        mass = self.known_.sums.mass
        return torch.from_numpy(self._class_weights(mass.cpu().numpy())).to(mass)

    def _log_shares(self) -> Tensor:
        """What classes are likelier by before anything is seen of a sample, (C,)."""
        shares = log_shares(self.known_.sums.mass * self._weights())
        return shares if self.fit_intercept else torch.zeros_like(shares)

    def _likeliest(self, rule: Rule) -> float:
        size, guess = self.known_.sums.size, rule.gaussian_scale()
        return self.known_.scales.likeliest(self._weights(), guess, size)

    def _renew(self) -> None:
        self._close(self._rule())

    def _close(self, rule: Rule) -> None:
        """The head in closed form, at the likeliest scale."""
        likeliest = self._likeliest(rule)
        scale = _given(self.scale) or likeliest
        choice = Choice(rule.shrinkage, scale, temperature=scale / likeliest)
        self._set(rule, rule.signatures(), choice, choice.temperature * self._log_shares())
        self.refined_, self.n_iter_ = False, 1

    def _refine(self, samples: Samples, rule: Rule) -> bool:
        """Signatures by gradient descent, where that is better; whether it was."""
        likeliest, bias = self._likeliest(rule), self._log_shares()
        choice = choose(
            samples,
            rule,
            likeliest,
            bias,
            shrinkage=_given(self.shrinkage),
            scale=_given(self.scale),
            always=self.refine is True,
            fraction=self.validation_fraction,
            report=self._say,
        )
        if choice is None:
            return False
        bias = bias * choice.scale / likeliest
        rule = Rule(rule.spectrum, choice.shrinkage, self.fit_intercept)
        vectors = rule.vectors(rule.spectrum.axes(samples.features))
        found = fit_signatures(
            vectors[None],
            stacked([samples]),
            rule.signatures().to(vectors)[None],
            choice.scale,
            bias,
            max_iter=self.max_iter,
            tol=self.tol,
            report=self._say,
        )
        self._set(rule, found.signatures[0], choice, bias)
        self.refined_, self.n_iter_ = True, max(found.iterations, 1)
        if not found.converged:
            self._warn("L-BFGS had not converged", "iterations", "or tol")
        return True

    def _set(self, rule: Rule, signatures: Tensor, choice: Choice, bias: Tensor) -> None:
        """A head of these signatures, and what goes before it."""
        head = fixed_head(rule, signatures, choice.scale, bias)
        head.temperature.fill_(choice.temperature)
        self.embedding_ = Homogeneous() if self.fit_intercept else nn.Identity()
        self.head_ = head.to(device=find_device(self.device), dtype=self._dtype)
        self.shrinkage_, self._built_for = rule.shrinkage, None

    @property
    def _n_features_out(self) -> int:
        return self.head_.in_features - isinstance(self.embedding_, Homogeneous)

    def _check(self) -> None:
        super()._check()
        for name, low, high in (("shrinkage", LEAST_SHRINKAGE, 1.0), ("scale", 0.0, math.inf)):
            value = getattr(self, name)
            if isinstance(value, str):
                check_choice(name, value, ("auto",))
            else:
                check_number(name, value, low, high, closed=high == 1)
        if not isinstance(self.refine, bool):
            check_choice("refine", self.refine, ("auto",))

    def _make_head(self, width: int) -> Head:
        # Small sets have few steps, so the statistics must follow the embedding in fewer.
        options: dict[str, Any] = {"decay": 0.95, "refresh_every": 5}
        scale = 2 * math.sqrt(width) if self.scale == "auto" else self.scale
        background = "within"
        if self.shrinkage != "auto":
            background, options["shrinkage"] = "total", self.shrinkage
        named: dict[str, Any] = {"background": background, "background_options": options}
        return LACE(width, len(self.classes_), scale=scale, **named)


def _given(setting: float | str) -> float | None:
    return None if isinstance(setting, str) else setting
