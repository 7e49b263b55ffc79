"""The Learnable Adaptive Cosine Estimator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from torchlace import backgrounds
from torchlace._checks import check_choice
from torchlace._precision import full_precision, widened
from torchlace._values import option_names
from torchlace.backgrounds import Background
from torchlace.functional import unit
from torchlace.functional.targets import Targets
from torchlace.heads.base import placed, rows_of
from torchlace.heads.cosine import CosineHead, Scale
from torchlace.heads.fold import Folded, Normalize, linear

Space = Literal["whitened", "features"]


class LACE(CosineHead):
    """Scaled cosines to class signatures, in the space that the background whitens.

    With the defaults there is nothing to tune: the background is what varies within classes, the
    scale follows from their number, and signatures start where the classes lie.

    Paper: Peeples et al., "Learnable Adaptive Cosine Estimator (LACE) for Image
    Classification", WACV 2022.

    Args:
        in_features: width of the features.
        num_classes: number of classes.
        background: a name of :func:`torchlace.backgrounds.names`, or a background.
        scale: a number; ``"auto"``, which lets all classes reach probability .99, or another share
            such as ``"95%"``; ``"learned"``, from there; ``"adacos"``, √2·ln(C - 1).
        signature_space: where the signatures live: ``"whitened"``, or ``"features"`` as Eq. 3
            writes. By default whitened for estimated backgrounds and features for learned ones.
        nonnegative: keep all entries of the signatures at zero or above; by default they then live
            in feature space, where that means something.
        mean: subtract the background mean.
        covariance: whiten by the background covariance.
        anchored: signatures are what training adds to where the classes lie, for backgrounds that
            know it and signatures in the whitened space; by default where that is so.
        bias: add a learned number to the scores of each class, as ``nn.Linear`` does.
        background_options: passed on where ``background`` is a name.
        **options: ``chunk``, ``device``, ``dtype`` as for every head.

    Example:
        >>> head = LACE(512, num_classes=100)
        >>> features, targets = torch.randn(32, 512), torch.randint(100, (32,))
        >>> loss = head.loss(features, targets)  # in training mode, the background learns here
        >>> head.eval()(features).shape
        torch.Size([32, 100])
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        background: str | Background = "within",
        scale: Scale = "auto",
        signature_space: Space | None = None,
        nonnegative: bool = False,
        mean: bool = True,
        covariance: bool = True,
        anchored: bool | None = None,
        bias: bool = True,
        background_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        if isinstance(background, str):
            _check_placed(background, options)
        super().__init__(in_features, num_classes, scale=scale, **options)
        if isinstance(background, str):
            place = {key: value for key, value in options.items() if key in ("device", "dtype")}
            parts: dict[str, Any] = {
                "mean": mean,
                "covariance": covariance,
                **place,
                **(background_options or {}),
            }
            background = backgrounds.create(background, in_features, num_classes, **parts)
        elif not isinstance(background, Background):
            raise TypeError(
                "background must be a name of torchlace.backgrounds.names() or a Background, got "
                f"{background!r}"
            )
        elif background_options or not (mean and covariance):
            raise TypeError(
                "mean, covariance and background_options belong to the background: set them on the "
                f"{type(background).__name__} that was passed"
            )
        _check_fits(background, in_features, num_classes)
        if background.per_class and isinstance(self.chunk, int):
            raise ValueError(
                f"{type(background).__name__} compares each class in its own space, whose loss has "
                f"no form in chunks: leave out chunk={self.chunk}"
            )
        self.background = background
        if nonnegative and signature_space is None:
            signature_space = "features"
        if signature_space is not None:
            check_choice("signature_space", signature_space, ("whitened", "features"))
        self.signature_space = background.space(signature_space)
        self.nonnegative = nonnegative
        if self.signature_space == "whitened" and background.out_features != in_features:
            bound = in_features**-0.5
            weight = self.weight.new_empty(num_classes, background.out_features)
            self.weight = torch.nn.Parameter(weight.uniform_(-bound, bound))
        can_anchor = background.anchors is not None and self.signature_space == "whitened"
        if anchored and not can_anchor:
            raise ValueError(
                "anchored signatures need a background that learns where the classes lie, such as "
                '"within", and live in the whitened space: leave out anchored=True'
            )
        self.anchored = can_anchor if anchored is None else anchored
        if bias:
            self.bias = torch.nn.Parameter(self.weight.new_zeros(num_classes))

    def reset_parameters(self) -> None:
        """Start again, the background too."""
        super().reset_parameters()
        self.background.reset_parameters()

    @classmethod
    def published(cls, in_features: int, num_classes: int, **options: Any) -> LACE:
        """The paper's: learned mean and covariance from its random start, scale 1.

        With scale 1 no probability can exceed .252 for 10 classes and .027 for 100, which is why it
        fails on many classes; :meth:`describe` says so.

        Example:
            >>> LACE.published(512, num_classes=10).scale
            1.0
        """
        return cls._learned(in_features, num_classes, "matrix", 1.0, options)

    @classmethod
    def learned(cls, in_features: int, num_classes: int, **options: Any) -> LACE:
        """Mean and whitening learned from zero and the identity, with the automatic scale.

        Scores have no bias, as in the paper.

        Example:
            >>> LACE.learned(8, num_classes=10).background
            Learned(8, form='factor')
        """
        return cls._learned(in_features, num_classes, "factor", "auto", options)

    @classmethod
    def _learned(
        cls, in_features: int, num_classes: int, form: str, scale: Scale, options: dict[str, Any]
    ) -> LACE:
        options = {"background": "learned", "scale": scale, "bias": False, **options}
        if options["background"] == "learned":
            options["background_options"] = {
                "form": form,
                **(options.get("background_options") or {}),
            }
        return cls(in_features, num_classes, **options)

    @property
    def signatures(self) -> Tensor:
        """The class signatures in the space they live in, (C, d)."""
        weight: Tensor = self.weight.abs() if self.nonnegative else self.weight
        anchors = self.background.anchors if self.anchored else None
        return weight if anchors is None else widened(weight, anchors.dtype) + anchors

    def whiten(self, features: Tensor) -> Tensor:
        """Features in the whitened space, for looking at; nothing is learned from them."""
        self._check_features(features)
        lifted = self._lift(rows_of(features))
        with full_precision(features):
            return placed(self.background.whiten(lifted), features)

    def whitened_signatures(self) -> Tensor:
        """The class signatures in the whitened space, (C, k)."""
        if self.signature_space == "whitened":
            return self._lift(self.signatures)
        with full_precision(self.weight):
            return self.background.transform(self._lift(self.signatures))

    def fold(self) -> Folded:
        """Linear → Normalize → Linear, for one background common to all classes."""
        background = self.background
        layers: dict[str, torch.nn.Module] = {}
        with full_precision(self.weight):
            scores = unit(self.whitened_signatures()) * self.scale
            affine = background.affine(scores)
            if background.has_mean or background.has_covariance:
                layers["whiten"] = linear(*affine)
        bias = None if self.bias is None else self._lift(self.bias)
        return Folded(
            self.temperature, **layers, normalize=Normalize(), scores=linear(scores, bias)
        )

    def _watched(self, features: Tensor, targets: Targets | None) -> Tensor:
        """The signatures, after the background has learned from a batch in training."""
        self.background.observe(features, targets)
        self.background.check_scale(features)
        return widened(self.signatures, features.dtype)

    def _vectors(self, features: Tensor, targets: Targets | None) -> tuple[Tensor, Tensor]:
        signatures = self._watched(features, targets)
        return self.background.compared(features, signatures, self.signature_space)

    def _dense(self, features: Tensor, targets: Targets | None) -> Tensor:
        signatures = self._watched(features, targets)
        return self.background.scores(features, signatures, self.scale, self.signature_space)

    def _least(self, dtype: torch.dtype) -> float:
        return self.background.least(dtype)

    def _floor(self, scale: float) -> float:
        return self.background.loss_floor(self.num_classes, scale)

    def _chunk_for(self, targets: Targets) -> int | None:
        return None if self.background.per_class else super()._chunk_for(targets)

    def extra_repr(self) -> str:
        """With the space of the signatures."""
        signed = ", nonnegative=True" if self.nonnegative else ""
        return f"{super().extra_repr()}, signature_space={self.signature_space!r}{signed}"


def _check_placed(background: str, options: Mapping[str, Any]) -> None:
    theirs = set(backgrounds.option_names(background)) - set(option_names(LACE))
    for name in theirs & set(options):
        raise TypeError(
            f"{name} is an option of the background: background_options={{{name!r}: ...}}, or "
            f"--head-option 'background_options={{{name}: ...}}'"
        )


def _check_fits(background: Background, in_features: int, num_classes: int) -> None:
    if background.in_features != in_features:
        raise ValueError(
            f"the background has {background.in_features} features, the head {in_features}: make "
            "both the same"
        )
    if background.num_classes not in (None, num_classes):
        raise ValueError(
            f"the background has {background.num_classes} classes, the head {num_classes}: make "
            "both the same"
        )
