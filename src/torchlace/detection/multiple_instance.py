"""Target signatures from bags: somewhere in a positive bag there is the target, nobody knows where.

After Zare, Jiao and Glenn, "Discriminative Multiple Instance Hyperspectral Target Characterization"
(TPAMI 2018), the work that LACE cites as its motivation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, get_args

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from torchlace._checks import check_choice, check_count
from torchlace._sklearn import Array, as_array, as_tensor, fit_anew
from torchlace._torch import find_device
from torchlace.detection.background import Covariance, Moments, estimate, whitening
from torchlace.detection.detectors import ACEDetector, SMFDetector
from torchlace.detection.pixels import Pixels
from torchlace.functional import unit

# Numbers in the block of cosines between candidate and positive instances.
_BLOCK = 1 << 24


@dataclass(kw_only=True, eq=False, repr=False)
class _MultipleInstance(BaseEstimator):  # type: ignore[misc]
    """The alternation that both statistics share."""

    covariance: Covariance = "sample"
    max_iter: int = 100
    false_alarm: float = 1e-3
    device: str = "auto"
    _detector: ClassVar[type[ACEDetector] | type[SMFDetector]]

    def fit(self, bags: Sequence[Any], bag_labels: npt.ArrayLike) -> Self:
        """Learn the signature.

        Args:
            bags: pixels of each bag, (N, bands); bags may differ in size.
            bag_labels: of each bag: 1 or True if it holds the target somewhere, 0, -1 or False if
                nowhere.
        """
        return fit_anew(self, lambda model: model._fit(bags, bag_labels))

    def _fit(self, bags: Sequence[Any], bag_labels: npt.ArrayLike) -> None:
        check_choice("covariance", self.covariance, get_args(Covariance))
        check_count("max_iter", self.max_iter)
        positives, others = _split_bags(bags, bag_labels)
        negatives, device = np.concatenate(others), find_device(self.device)
        moments = Moments([slice(0, 1)], len(negatives), device)
        background = estimate(Pixels(negatives), self.covariance, moments).strip(0)
        matrix = torch.from_numpy(whitening(background)).to(device)
        mean = torch.from_numpy(background.mean).to(device)

        def whiten(bag: Array) -> Tensor:
            white = (as_tensor(bag).to(device) - mean) @ matrix.mT
            return unit(white) if self._detector is ACEDetector else white

        direction, self.instances_, self.n_iter_ = _alternate(
            [whiten(bag) for bag in positives],
            torch.stack([whiten(bag).mean(0) for bag in others]).mean(0),
            self.max_iter,
        )
        found = torch.linalg.solve_triangular(matrix, direction[:, None], upper=False)[:, 0]
        self.signature_ = found.cpu().numpy()
        self.n_features_in_ = len(self.signature_)
        self.detector_ = self._detector(
            self.signature_,
            convention="paper",
            covariance=self.covariance,
            false_alarm=self.false_alarm,
            device=self.device,
        ).fit(negatives)

    def score_samples(self, X: Any) -> Array:
        """The statistic of every pixel of (N, bands) or (H, W, bands) for the signature."""
        check_is_fitted(self)
        return self.detector_.score_samples(X)

    def decision_function(self, X: Any) -> Array:
        """The statistic less the threshold for ``false_alarm``."""
        check_is_fitted(self)
        return self.detector_.decision_function(X)

    def predict(self, X: Any) -> Array:
        """True for pixels that hold the target."""
        check_is_fitted(self)
        return self.detector_.predict(X)


class MIACE(_MultipleInstance):
    """Learns the signature that ACE finds in every positive bag and in no negative one.

    It maximises the mean over positive bags of the largest ACE in the bag, less the mean over
    negative bags of the mean ACE in the bag. The best positive instance is the start; then, in
    turn, each positive bag is represented by its best instance, and the signature becomes the mean
    direction of those less the mean direction of the negatives, until nothing changes.

    Args:
        covariance: of the background, which the negative bags make up: as in
            :class:`ACEDetector`.
        max_iter: at most so many turns.
        false_alarm: of :meth:`predict`.
        device: ``"cpu"``, ``"cuda"`` or ``"auto"``.

    Attributes:
        signature_: the learned target, (bands,), as a difference from the background mean, of
            length one after whitening: the target of an :class:`ACEDetector` in the convention
            ``"paper"``, which ``detector_`` is.
        instances_: the index of the instance that stands for each positive bag.
        n_iter_: turns taken.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> bags = [rng.normal(size=(20, 15)) for _ in range(10)]
        >>> for bag in bags[:5]:
        ...     bag[7, :2] += 9
        >>> model = MIACE().fit(bags, [1] * 5 + [0] * 5)
        >>> model.instances_, model.signature_[:3].round(1)
        (array([7, 7, 7, 7, 7]), array([0.6, 0.6, 0.1]))
    """

    _detector = ACEDetector


class MISMF(_MultipleInstance):
    """Learns a signature as :class:`MIACE` does, for the spectral matched filter.

    Instances count by their length as well as by their direction.

    Args:
        covariance, max_iter, false_alarm, device: as in :class:`MIACE`.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> bags = [rng.normal(size=(20, 4)) for _ in range(10)]
        >>> for bag in bags[:5]:
        ...     bag[7] += [9, 9, 0, 0]
        >>> MISMF().fit(bags, [1] * 5 + [0] * 5).instances_
        array([7, 7, 7, 7, 7])
    """

    _detector = SMFDetector


def _alternate(
    bags: list[Tensor], background: Tensor, turns: int
) -> tuple[Tensor, npt.NDArray[np.int64], int]:
    """The best unit vector, the instance of each bag that stands for it, and the turns taken."""
    direction, chosen = _start(bags, background), None
    for turn in range(1, turns + 1):
        best = torch.stack([(bag @ direction).argmax() for bag in bags])
        if chosen is not None and torch.equal(best, chosen):
            return direction, chosen.cpu().numpy(), turn - 1
        chosen = best
        stand_ins = torch.stack([bag[i] for bag, i in zip(bags, chosen, strict=True)])
        direction = unit(stand_ins.mean(0) - background)
    assert chosen is not None
    return direction, chosen.cpu().numpy(), turns


def _start(bags: list[Tensor], background: Tensor) -> Tensor:
    """The direction of the positive instance that is the best signature by itself."""
    instances = torch.cat(bags)
    candidates = unit(instances)
    bag = torch.repeat_interleave(
        torch.arange(len(bags), device=instances.device),
        torch.tensor([len(b) for b in bags], device=instances.device),
    )
    values = []
    for block in candidates.split(max(1, _BLOCK // len(instances))):
        scores = block @ instances.mT
        largest = scores.new_full((len(block), len(bags)), -torch.inf)
        largest.scatter_reduce_(1, bag.expand_as(scores), scores, "amax")
        values.append(largest.mean(1) - block @ background)
    return candidates[torch.cat(values).argmax()]


def _split_bags(bags: Sequence[Any], labels: npt.ArrayLike) -> tuple[list[Array], list[Array]]:
    """The positive and the negative bags, checked."""
    given = (np.asarray(as_array(bag, f"bag {n}"), dtype=np.float64) for n, bag in enumerate(bags))
    arrays = [bag.reshape(-1, bag.shape[-1]) if bag.ndim == 3 else bag for bag in given]
    if not arrays:
        raise ValueError("there are no bags")
    marks = np.asarray(as_array(labels, "bag_labels"))
    if marks.shape != (len(arrays),):
        raise ValueError(
            f"bag_labels must have shape ({len(arrays)},), one for each bag, got {marks.shape}"
        )
    if not set(np.unique(marks).tolist()) <= {-1, 0, 1}:
        raise ValueError(
            f"bag_labels must be 1 (the target is in the bag) or 0 or -1 (it is not), got "
            f"{np.unique(marks)[:5].tolist()}"
        )
    positive = marks > 0
    if positive.all() or not positive.any():
        raise ValueError(
            f"all {len(arrays)} bags are {'positive' if positive.all() else 'negative'}: the "
            "target is learned from positive bags, the background from negative ones; give both"
        )
    bands = arrays[0].shape[-1]
    for number, array in enumerate(arrays):
        if array.ndim != 2 or not len(array) or array.shape[1] != bands:
            raise ValueError(
                f"bag {number} must have shape (N, {bands}) with N at least 1, like the first, got "
                f"{array.shape}"
            )
        Pixels(array).check_finite(f"pixels of bag {number}")
    marked = list(zip(arrays, positive, strict=True))
    return [bag for bag, there in marked if there], [bag for bag, there in marked if not there]
