"""Any head of the registry as a scikit-learn classifier."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import nn

from torchlace import heads
from torchlace._checks import check_count, check_number
from torchlace.estimators.calibration import calibrate
from torchlace.estimators.embedding import Hidden, Standardize, make_embedding
from torchlace.estimators.face import FeatureClassifier
from torchlace.estimators.minibatch import Settings, Trainer
from torchlace.estimators.samples import Samples, hold_out
from torchlace.heads import Head

_STRUCTURE = ("head", "head_options", "hidden", "activation", "fit_intercept")


class HeadClassifier(FeatureClassifier):
    """A head on features, trained by Adam: linear, or behind a small network.

    Features are standardised first. With ``early_stopping`` some samples are held out: their loss
    decides when to stop and which weights stay, and on them the probabilities are calibrated.

    Args:
        head: a name of :func:`torchlace.heads.names`.
        head_options: passed to the head.
        hidden: width of a hidden layer in front of the head, or a tuple of widths; none if omitted.
        activation: of the hidden layers: ``"relu"``, ``"tanh"``, or ``"identity"`` for a linear
            embedding.
        class_weight: None, ``"balanced"``, or a dictionary from labels to weights.
        learning_rate: of Adam.
        alpha: weight decay.
        batch_size: samples in a step; ``"auto"``: a fiftieth of them, 32 to 512.
        max_iter: epochs at most.
        tol: what counts as an improvement of the loss.
        early_stopping: hold samples out.
        validation_fraction: how many of each class: a half, a third, a quarter …, whichever is
            next to it; copies of a sample stay together.
        n_iter_no_change: stop after so many epochs without an improvement.
        warm_start: let :meth:`fit` go on from where the last one ended.
        random_state: seed of initialisation, order and split.
        device: ``"auto"`` (CUDA where there is one), or a torch device.
        verbose: print a line for each epoch.

    Attributes:
        classes_: the labels, sorted.
        embedding_: the torch module in front of the head.
        head_: the torch head; ``head_.fold()`` gives plain layers.
        n_iter_: epochs trained.
        n_features_in_: width of the features.
        feature_names_in_: their names, where they had any.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> X, y = load_digits(return_X_y=True)
        >>> model = HeadClassifier("arcface", hidden=128, max_iter=30, random_state=0)
        >>> model.fit(X[:1500], y[:1500]).score(X[1500:], y[1500:]) > 0.9
        True
    """

    _optimizer_state: dict[str, Any] | None

    def __init__(
        self,
        head: str = "softmax",
        *,
        head_options: Mapping[str, Any] | None = None,
        hidden: Hidden = None,
        activation: str = "relu",
        class_weight: Any = None,
        learning_rate: float = 3e-3,
        alpha: float = 1e-4,
        batch_size: int | str = "auto",
        max_iter: int = 200,
        tol: float = 1e-4,
        early_stopping: bool = True,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        warm_start: bool = False,
        random_state: Any = None,
        device: str | torch.device = "auto",
        verbose: bool = False,
    ) -> None:
        self.head = head
        self.head_options = head_options
        self.hidden = hidden
        self.activation = activation
        self.class_weight = class_weight
        self.learning_rate = learning_rate
        self.alpha = alpha
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.warm_start = warm_start
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def _train(self, samples: Samples) -> None:
        settings, held = self._settings(samples), None
        if self.early_stopping:
            samples, held = hold_out(samples, self._fraction())
        if self.warm_start and self._fits(samples):
            self._to_device()
        else:
            self._build(samples)
        self._standardize.reset()
        self._standardize.observe(samples)
        self.head_.temperature.fill_(1)
        trainer = Trainer(self.embedding_, self.head_, settings, self._generator())
        held = held if held is not None and held.weights.any() else None
        self.n_iter_, converged = trainer.fit(samples, held, self._say)
        self._optimizer_state = trainer.state()
        if not converged:
            self._warn("the loss was still falling", "epochs", "or learning_rate")
        if held is not None:
            found = calibrate(trainer.logits(held), held.targets, held.weights, held.size())
            self.head_.temperature.fill_(found.temperature)

    def _advance(self, samples: Samples) -> None:
        if not hasattr(self, "head_"):
            self._build(samples)
        self._check_built(samples)
        self._standardize.observe(samples)
        self._pass_over(samples)

    def _pass_over(self, samples: Samples) -> None:
        """One pass of Adam, which goes on from the last."""
        trainer = Trainer(self.embedding_, self.head_, self._settings(samples), self._generator())
        trainer.restore(self._optimizer_state)
        loss = trainer.epoch(samples)
        self._optimizer_state = trainer.state()
        self.n_iter_ += 1
        self._say(f"pass {self.n_iter_}: training loss {loss:.4f}")

    def _build(self, samples: Samples) -> None:
        with self._seeded():
            embedding, width = make_embedding(
                samples.features.shape[1], self.hidden, self.activation
            )
            self._place(samples, embedding, self._make_head(width))

    def _place(self, samples: Samples, embedding: nn.Module, head: Head) -> None:
        self.embedding_, self.head_ = embedding.to(samples.features), head.to(samples.features)
        self._built_for = self._structure(samples)
        self._optimizer_state = None
        self.n_iter_ = 0

    def _make_head(self, width: int) -> Head:
        return heads.create(self.head, width, len(self.classes_), **(self.head_options or {}))

    def _check_built(self, samples: Samples) -> None:
        """Raise if parameters changed that what was built can't follow."""
        if not self._fits(samples):
            raise ValueError(
                f"partial_fit goes on with what was built, and one of {', '.join(_STRUCTURE)} has "
                "changed since: call fit, or clone the estimator and begin again"
            )

    def _fits(self, samples: Samples) -> bool:
        """Whether what was fitted before takes these samples."""
        return getattr(self, "_built_for", None) == self._structure(samples)

    def _structure(self, samples: Samples) -> list[Any]:
        """All that decides which modules are built."""
        parameters = self.get_params()
        named = [parameters.get(name) for name in _STRUCTURE]
        return [self.classes_.tolist(), samples.features.shape[1], samples.features.dtype, *named]

    @property
    def _standardize(self) -> Standardize:
        layer = self.embedding_.get_submodule("0")
        assert isinstance(layer, Standardize)
        return layer

    @contextmanager
    def _seeded(self) -> Iterator[None]:
        """Inside, what torch draws follows from the seed; outside, nothing has moved."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed)
            yield

    def _generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self._seed + self.n_iter_)

    def _fraction(self) -> float:
        return check_number("validation_fraction", self.validation_fraction, 0, 1)

    def _settings(self, samples: Samples) -> Settings:
        size: Any = self.batch_size
        if size == "auto":
            size = min(max(len(samples.features) // 50, 32), 512)
        return Settings(
            learning_rate=check_number("learning_rate", self.learning_rate, 0),
            alpha=check_number("alpha", self.alpha, 0, closed=True),
            batch_size=check_count("batch_size", size),
            max_iter=check_count("max_iter", self.max_iter),
            tol=check_number("tol", self.tol, 0, closed=True),
            patience=check_count("n_iter_no_change", self.n_iter_no_change),
        )

    def _warn(self, what: str, steps: str, or_what: str) -> None:
        text = f"{what} after max_iter={self.max_iter} {steps}; raise max_iter {or_what}"
        warnings.warn(text, ConvergenceWarning, stacklevel=7)
