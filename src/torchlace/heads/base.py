"""What every head is: logits from features, and a loss that takes what cross-entropy takes."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, Self

import torch
from torch import Tensor, nn

from torchlace._checks import (
    check_choice,
    check_class_weight,
    check_classes,
    check_count,
    check_features,
    check_number,
    check_targets,
)
from torchlace._precision import (
    FullPrecisionBuffers,
    compute_dtype,
    evaluating,
    full_precision,
    widened,
)
from torchlace._values import check_options
from torchlace.functional import fit_temperature
from torchlace.functional.targets import Mixed, Targets, check_labels, in_rows, is_dense
from torchlace.heads.fold import Folded

Chunk = int | Literal["auto"] | None

# N × C logits of 2²⁷ entries are half a gigabyte in fp32, and a step holds several such tensors.
_DENSE_LIMIT = 2**27
_CHUNK_LIMIT = 2**25


class LossOptions(NamedTuple):
    """What :meth:`Head.loss` takes beside features and targets."""

    weight: Tensor | None
    label_smoothing: float
    ignore_index: int
    reduction: Literal["mean", "sum", "none"]

    def named(self) -> dict[str, Any]:
        """By name; torch 2.8 can't compile ``_asdict``."""
        return dict(zip(LossOptions._fields, self, strict=True))


class Head(FullPrecisionBuffers):
    """A classification head: replaces the last linear layer of a network.

    Subclasses define :meth:`_logits` and :meth:`_loss`.

    Example:
        >>> from torchlace.heads import NormFace
        >>> head = NormFace(8, 3)
        >>> isinstance(head, Head), head(torch.zeros(2, 8)).shape
        (True, torch.Size([2, 3]))

    Attributes:
        in_features: width of the features.
        num_classes: number of classes C.
        weight: the learned class vectors, (C, d).
        temperature: what :meth:`probabilities` divides the logits by; 1 until :meth:`calibrate`.
        chunk: classes computed at a time in the loss: ``"auto"`` (all, unless N × C is huge), a
            number, or None for all.
    """

    temperature: Tensor
    weight: nn.Parameter
    # Features are taken up to the largest number of the type to this power, so that sums of logits
    # times class weights fit as well.
    _reach, _because = 0.6, ""

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        chunk: Chunk = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **unknown: Any,
    ) -> None:
        check_options(type(self), unknown)
        super().__init__()
        self.in_features = check_count("in_features", in_features)
        self.num_classes = check_classes(num_classes)
        self.chunk: Chunk = chunk
        if chunk != "auto" and chunk is not None:
            check_count("chunk", chunk)
        self.weight = nn.Parameter(
            torch.empty(num_classes, in_features, device=device, dtype=dtype)
        )
        one = torch.ones((), device=device, dtype=compute_dtype(self.weight))
        self.register_buffer("temperature", one)
        Head.reset_parameters(self)  # what subclasses add is not there yet

    def reset_parameters(self) -> None:
        """Start again, as fresh as constructed: parameters, temperature, all that training moves.

        After ``to_empty``, this gives a head that was built on the meta device its first values.
        Subclasses with parameters or state of their own extend it.
        """
        bound = 1 / math.sqrt(self.in_features)
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.ones_(self.temperature)

    def forward(self, features: Tensor) -> Tensor:
        """Logits, (N, C), in fp32 or better, of features (N, d). Labels are never needed.

        N may be several dimensions here and everywhere, as in ``nn.Linear``: the head takes
        (..., d) and gives (..., C), as if the samples had come one below the other.
        """
        self._check_features(features)
        lifted = self._lift(rows_of(features))
        with full_precision(features):
            logits = self._logits(lifted)
        return placed(logits, features)

    def loss(
        self,
        features: Tensor,
        targets: Targets,
        *,
        weight: Tensor | None = None,
        label_smoothing: float = 0.0,
        ignore_index: int = -100,
        reduction: Literal["mean", "sum", "none"] = "mean",
    ) -> Tensor:
        """The training loss, with margins and auxiliary terms.

        What can't be computed is an error where values are looked at, see :func:`torchlace.checks`,
        and elsewhere a loss of infinity or NaN: features near the largest number of the type (from
        5e34 on in fp32, where they are multiplied without being normalised from 1e23, in the centre
        loss, which squares them, from 4e11). Next to nothing (2e-22) counts as zero. Gradients too
        large for fp16 are cut to its largest number, each row in its direction; inside autocast
        they become infinite, which a gradient scaler looks for.

        Args:
            features: (N, d), or (..., d).
            targets: class indices, (N,), or (...); class probabilities, (N, C); or two labels and a
                weight, :class:`Mixed`, as mixup and CutMix make them. The loss of a soft target is
                the mean of the losses of its labels, each with the margin on its own class, weighed
                by their shares.
            weight: class weights, (C,), as in :func:`torch.nn.functional.cross_entropy`; at most
                3.6e11 in fp32.
            label_smoothing: in [0, 1], likewise.
            ignore_index: label of samples that don't count, likewise; a mixed sample doesn't
                where one of its labels is this.
            reduction: ``"mean"``, ``"sum"`` or ``"none"``, likewise (with class weights, the mean
                of class probabilities divides by N); where no sample counts the mean is 0.
        """
        self._check_features(features)
        check_labels(targets, features.shape[:-1], self.num_classes, ignore_index)
        if is_dense(targets) and isinstance(self.chunk, int):
            raise ValueError(
                f"class probabilities have no form in chunks: leave out chunk={self.chunk}, or "
                "give two labels and a weight, Mixed(first, second, weight)"
            )
        check_number("label_smoothing", label_smoothing, 0, 1, closed=True)
        check_choice("reduction", reduction, ("mean", "sum", "none"))
        shared = label_smoothing > 0 and reduction == "mean"
        check_class_weight(weight, self.num_classes, self._most(features, 0.3), shared=shared)
        lifted = self._lift(rows_of(features))
        with full_precision(features):
            weight = None if weight is None else weight.to(lifted)
            options = LossOptions(weight, label_smoothing, ignore_index, reduction)
            loss = self._loss(lifted, in_rows(targets, lifted.dtype, ignore_index), options)
        return placed(loss, features) if reduction == "none" else loss

    def predict(self, features: Tensor) -> Tensor:
        """The class of every sample, (N,)."""
        logits: Tensor = self(features)
        return logits.argmax(dim=-1)

    def probabilities(self, features: Tensor) -> Tensor:
        """Class probabilities at the fitted temperature, (N, C)."""
        return torch.softmax(self(features) / self.temperature, dim=-1)

    def calibrate(self, features: Tensor, targets: Tensor, *, ignore_index: int = -100) -> Self:
        """Fit the temperature of :meth:`probabilities` on held-out samples; decisions don't change.

        Nothing but :attr:`temperature` moves, whatever mode the head is in.
        """
        self._check_features(features)
        check_targets(targets, features.shape[:-1], self.num_classes, ignore_index)
        with evaluating(self), torch.no_grad():
            logits = self(rows_of(features))
        self.temperature.copy_(fit_temperature(logits, targets.flatten().long(), ignore_index))
        return self

    def fold(self) -> Folded:
        """Plain layers with the same scores, for export and serving.

        The layers give scores, as the head does; ``fold().probabilities(features)`` gives
        probabilities, the softmax of scores divided by the ``temperature`` that goes with them.

        Raises:
            ValueError: where no plain form exists.
        """
        raise ValueError(f"{type(self).__name__} has no form in plain layers")

    def describe(self) -> str:
        """A sentence on what this head does; warns where its settings can't work.

        Example:
            >>> from torchlace.heads import Softmax
            >>> Softmax(8, 3).describe()
            'Softmax: 8 features, 3 classes; probabilities are softmax(scores), not calibrated yet'
        """
        return f"{self._account()}; probabilities are {self._probabilities_text()}"

    @property
    def signatures(self) -> Tensor:
        """The class vectors, (C, d)."""
        return self.weight

    def _account(self) -> str:
        """What :meth:`describe` says of the scores."""
        return f"{type(self).__name__}: {self.in_features} features, {self.num_classes} classes"

    def _probabilities_text(self) -> str:
        # Nothing is known of a head on the meta device.
        if self.temperature.is_meta or self.temperature == 1:
            return "softmax(scores), not calibrated yet"
        return f"softmax(scores / {float(self.temperature):.4g}), the fitted temperature"

    def _logits(self, features: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} must define _logits")

    def _loss(self, features: Tensor, targets: Targets, options: LossOptions) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} must define _loss")

    def _check_features(self, features: Tensor) -> None:
        kind = str(self._dtype(features)).removeprefix("torch.")
        why = f" that {type(self).__name__} can compute with in {kind}{self._because}"
        check_features(features, self.in_features, self._most(features, self._reach), why)

    def _most(self, features: Tensor, power: float) -> float:
        """The largest number of the type that is computed in, to this power."""
        most: float = torch.finfo(self._dtype(features)).max
        return math.pow(most, power)

    def _dtype(self, features: Tensor) -> torch.dtype:
        """What is computed in."""
        return compute_dtype(self.weight)

    def _lift(self, features: Tensor) -> Tensor:
        return widened(features, self._dtype(features))

    def _chunk_for(self, targets: Targets) -> int | None:
        """Classes in a slice of the loss, or None for all at once."""
        if is_dense(targets):
            return None
        rows = len(targets.first if isinstance(targets, Mixed) else targets)
        if self.chunk != "auto":
            return self.chunk
        if rows * self.num_classes <= _DENSE_LIMIT:
            return None
        return max(256, _CHUNK_LIMIT // rows)

    def extra_repr(self) -> str:
        """Width and number of classes."""
        return f"{self.in_features}, {self.num_classes}"


def rows_of(features: Tensor) -> Tensor:
    """Features one below the other, (N, d)."""
    return features if features.dim() == 2 else features.flatten(0, -2)


def placed(values: Tensor, features: Tensor) -> Tensor:
    """What was computed of each row of features, (N, ...), where the row stood."""
    if features.dim() == 2:
        return values
    return values.reshape(*features.shape[:-1], *values.shape[1:])
