"""Any head of the registry as a scikit-learn classifier, trained by Adam."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import Any

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn
from torch.nn import functional as F

from torchlace import heads
from torchlace._checks import check_choice, check_count, check_number
from torchlace._precision import evaluating
from torchlace.estimators.face import FeatureClassifier
from torchlace.estimators.samples import Samples, Standardize, hold_out
from torchlace.estimators.scales import sharpest
from torchlace.heads import Head

_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "identity": nn.Identity,
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
}
_STRUCTURE = ("head", "head_options", "hidden", "activation", "fit_intercept")


@dataclass(kw_only=True, eq=False, repr=False)
class AdamClassifier(FeatureClassifier):
    """A classifier whose embedding and head Adam trains, in :meth:`partial_fit` at least."""

    hidden: int | tuple[int, ...] | None = None
    activation: str = "relu"
    class_weight: Any = None
    learning_rate: float = 3e-3
    alpha: float = 1e-4
    batch_size: int | str = "auto"
    max_iter: int = 200
    tol: float = 1e-4
    early_stopping: bool = True
    validation_fraction: float = 0.1
    n_iter_no_change: int = 10
    warm_start: bool = False
    random_state: Any = None
    device: str | torch.device = "auto"
    verbose: bool = False

    def _train(self, samples: Samples) -> None:
        self._check()
        count, held = len(samples.features), None
        if self.early_stopping:
            samples, held = hold_out(samples, self.validation_fraction)
        if self.warm_start and self._fits(samples):
            self._to_device()
        else:
            self._build(samples)
        self._standardize.reset()
        self._standardize.observe(samples)
        self.head_.temperature.fill_(1)
        trainer = Trainer(self, count)
        held = held if held is not None and held.weights.any() else None
        self.n_iter_, converged = trainer.fit(samples, held)
        self._optimizer_state: dict[str, Any] | None = trainer.state()
        if not converged:
            self._warn("the loss was still falling", "epochs", "or learning_rate")
        if held is not None:
            sharpness = sharpest(trainer.logits(held).mT, held, 1.0)
            self.head_.temperature.fill_(1 / sharpness)

    def _advance(self, samples: Samples) -> None:
        self._check()
        if not hasattr(self, "head_"):
            self._build(samples)
        self._check_built(samples)
        self._standardize.observe(samples)
        self._pass_over(samples)

    def _pass_over(self, samples: Samples) -> None:
        """One pass of Adam, which goes on from the last."""
        trainer = Trainer(self, len(samples.features))
        trainer.restore(self._optimizer_state)
        loss = trainer.epoch(samples)
        self._optimizer_state = trainer.state()
        self.n_iter_ += 1
        self._say(f"pass {self.n_iter_}: training loss {loss:.4f}")

    def _check(self) -> None:
        """Raise if a setting can't be used."""
        check_number("learning_rate", self.learning_rate, 0)
        check_number("alpha", self.alpha, 0, closed=True)
        check_number("tol", self.tol, 0, closed=True)
        if self.batch_size != "auto":
            check_count("batch_size", self.batch_size)  # type: ignore[arg-type]
        check_count("max_iter", self.max_iter)
        check_count("n_iter_no_change", self.n_iter_no_change)

    def _build(self, samples: Samples) -> None:
        kind = _ACTIVATIONS[check_choice("activation", self.activation, _ACTIVATIONS)]
        hidden = () if self.hidden is None else self.hidden
        sizes = hidden if isinstance(hidden, tuple | list) else (hidden,)
        widths = [samples.features.shape[1], *(check_count("hidden", size) for size in sizes)]
        with self._seeded():
            layers: list[nn.Module] = [Standardize(widths[0])]
            for before, after in pairwise(widths):
                layers += [nn.Linear(before, after), kind()]
            self._place(samples, nn.Sequential(*layers), self._make_head(widths[-1]))

    def _place(self, samples: Samples, embedding: nn.Module, head: Head) -> None:
        self.embedding_, self.head_ = embedding.to(samples.features), head.to(samples.features)
        self._built_for: list[Any] | None = self._structure(samples)
        self._optimizer_state = None
        self.n_iter_ = 0

    def _make_head(self, width: int) -> Head:
        raise NotImplementedError(f"{type(self).__name__} must define _make_head")

    def _structure(self, samples: Samples) -> list[Any]:
        """All that decides which modules are built."""
        parameters = self.get_params()
        named = [parameters.get(name) for name in _STRUCTURE]
        return [self.classes_.tolist(), samples.features.shape[1], samples.features.dtype, *named]

    def _fits(self, samples: Samples) -> bool:
        """Whether what was fitted before takes these samples."""
        return getattr(self, "_built_for", None) == self._structure(samples)

    def _check_built(self, samples: Samples) -> None:
        """Raise if parameters changed that what was built can't follow."""
        if not self._fits(samples):
            raise ValueError(
                f"partial_fit goes on with what was built, and one of {', '.join(_STRUCTURE)} has "
                "changed since: call fit, or clone the estimator and begin again"
            )

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

    def _warn(self, what: str, steps: str, or_what: str) -> None:
        text = f"{what} after max_iter={self.max_iter} {steps}; raise max_iter {or_what}"
        warnings.warn(text, ConvergenceWarning, stacklevel=7)


@dataclass(eq=False, repr=False)
class HeadClassifier(AdamClassifier):
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

    head: str = "softmax"
    _: KW_ONLY
    head_options: Mapping[str, Any] | None = None

    def _make_head(self, width: int) -> Head:
        return heads.create(self.head, width, len(self.classes_), **(self.head_options or {}))


class Trainer:
    """Trains the embedding and head of a classifier by Adam, on ``count`` samples or fewer."""

    def __init__(self, model: AdamClassifier, count: int) -> None:
        self.model = model
        self.parts = nn.ModuleList([model.embedding_, model.head_])
        self.generator = torch.Generator().manual_seed(model._seed + model.n_iter_)
        self.optimizer = torch.optim.AdamW(
            self.parts.parameters(), lr=model.learning_rate, weight_decay=model.alpha
        )
        size: Any = model.batch_size
        self.batch_size = min(max(count // 50, 32), 512) if size == "auto" else size

    def fit(self, samples: Samples, held: Samples | None) -> tuple[int, bool]:
        """Train until the loss stops falling; the epochs that took, and whether it did.

        Where there are samples held out, their loss decides, and the weights with which it was
        lowest stay.
        """
        best, since, weights = math.inf, 0, self.parts.state_dict()
        for epoch in range(1, self.model.max_iter + 1):
            loss = self.epoch(samples)
            text = f"epoch {epoch}: training loss {loss:.4f}"
            if held is not None:
                loss = self.validation_loss(held)
                text += f", validation loss {loss:.4f}"
            self.model._say(text)
            if not math.isfinite(loss):
                raise ValueError(
                    f"the loss is {loss} after epoch {epoch}: training diverged; lower "
                    "learning_rate, or look at the features"
                )
            since = 0 if loss < best - self.model.tol else since + 1
            if loss < best:
                best = loss
                if held is not None:
                    weights = copy.deepcopy(self.parts.state_dict())
            if since >= self.model.n_iter_no_change:
                break
        if held is not None:
            self.parts.load_state_dict(weights)
        return epoch, since >= self.model.n_iter_no_change

    def epoch(self, samples: Samples) -> float:
        """One pass over the samples in random order; their mean loss."""
        self.parts.train()
        embedding, head = self.model.embedding_, self.model.head_
        device = samples.features.device
        order = torch.randperm(len(samples.features), generator=self.generator).to(device)
        level, total = samples.weights.mean(), samples.features.new_zeros(())
        for rows in order.tensor_split(math.ceil(len(order) / self.batch_size)):
            batch = samples.take(rows)
            losses = head.loss(embedding(batch.features), batch.targets, reduction="none")
            loss = (losses * batch.weights).mean() / level
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            total += loss.detach() * len(rows)
        return float(total / len(order))

    def validation_loss(self, held: Samples) -> float:
        """The cross-entropy of the logits, without margins or auxiliary terms."""
        losses = F.cross_entropy(self.logits(held), held.targets, reduction="none")
        return float((losses * held.weights).sum() / held.weights.sum())

    def logits(self, samples: Samples) -> Tensor:
        """What the samples score, (N, C)."""
        with evaluating(self.parts), torch.no_grad():
            logits: Tensor = self.model.head_(self.model.embedding_(samples.features))
        return logits

    def state(self) -> dict[str, Any]:
        """The optimiser's state, on the CPU."""
        state = self.optimizer.state_dict()
        state["state"] = {
            index: {name: value.cpu() for name, value in parameter.items()}
            for index, parameter in state["state"].items()
        }
        return state

    def restore(self, state: dict[str, Any] | None) -> None:
        """Go on from :meth:`state`, with the settings of now."""
        if state is not None:
            groups = self.optimizer.state_dict()["param_groups"]
            # Adam changes what it is given, which is still that of the model before.
            own = copy.deepcopy(state["state"])
            self.optimizer.load_state_dict({"state": own, "param_groups": groups})
