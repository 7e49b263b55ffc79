"""What several seeds and many test images allow one to say."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Paired:
    """Of a paired t-test: the p-value, two-sided, and the number of pairs."""

    p: float
    pairs: int


def deviation(values: Sequence[float]) -> float | None:
    """The sample standard deviation; None of fewer than two values.

    Example:
        >>> deviation([1.0, 3.0]), deviation([1.0])
        (1.4142135623730951, None)
    """
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def paired_test(values: Sequence[float], baseline: Sequence[float]) -> Paired | None:
    """Paired t-test of the hypothesis that both have the same mean; None below two pairs.

    Differences that are all the same have no scatter to compare with: None, unless all are zero.

    Example:
        >>> round(paired_test([91.0, 90.6, 90.9], [89.9, 88.1, 89.0]).p, 4)
        0.0456
    """
    if len(values) != len(baseline):
        raise ValueError(f"pairs need as many values: {len(values)} against {len(baseline)}")
    differences = np.subtract(values, baseline)
    if len(differences) < 2:
        return None
    if np.ptp(differences) <= 1e-12 * np.abs(np.concatenate([values, baseline])).max():
        return None if differences.any() else Paired(1.0, len(differences))
    from scipy import stats

    return Paired(float(stats.ttest_rel(values, baseline).pvalue), len(differences))


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for how many they are, by Holm's step-down method.

    Example:
        >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
        [0.03, 0.06, 0.06]
    """
    count, least = len(p_values), 0.0
    corrected = [0.0] * count
    for rank, place in enumerate(np.argsort(p_values, kind="stable").tolist()):
        least = max(least, min(1.0, (count - rank) * p_values[place]))
        corrected[place] = least
    return corrected


def mean_interval(
    scores: npt.ArrayLike, *, level: float = 0.95, draws: int = 10_000, seed: int = 0
) -> tuple[float, float]:
    """Bootstrap confidence interval of the mean over samples, by percentiles.

    Give a score for each test image: whether it was right, or how often over seeds. Give the
    difference of two methods' scores to compare them on the same images.

    Samples with the same score are drawn together: how often each distinct score is drawn is
    multinomial, so that a draw costs as many numbers as there are distinct scores.

    Args:
        scores: (N,) a score for each sample.
        level: of confidence.
        draws: of samples of size N, with replacement.
        seed: of the draws.

    Example:
        >>> [round(end, 3) for end in mean_interval([1] * 900 + [0] * 100)]
        [0.881, 0.918]
    """
    flat: Array = np.asarray(scores, dtype=np.float64).ravel()
    if not len(flat):
        raise ValueError("an interval needs at least one score")
    distinct, counts = np.unique(flat, return_counts=True)
    generator = np.random.default_rng(seed)
    drawn = generator.multinomial(len(flat), counts / len(flat), size=draws)
    means = drawn @ distinct / len(flat)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def unpack_right(line: dict[str, Any]) -> Array:
    """Which test images were right, from a line of results.

    Raises:
        ValueError: if it does not tell of every test image.

    Example:
        >>> unpack_right({"test_images": 3, "test_right": "wA=="})
        array([1., 1., 0.])
    """
    packed, images = base64.b64decode(line["test_right"], validate=True), int(line["test_images"])
    if images < 1 or len(packed) != (images + 7) // 8:
        raise ValueError(f"test_right has {8 * len(packed)} bits for {images} test images")
    return np.unpackbits(np.frombuffer(packed, np.uint8))[:images].astype(np.float64)
