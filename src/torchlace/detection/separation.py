"""How well scores tell samples of known classes from others, and where to draw the line."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor

from torchlace._checks import check_choice, check_number
from torchlace.detection.scores import SCORES

Samples = tuple[Tensor, Tensor]
"""Features, (N, d), and logits, (N, C)."""


def separation(known: npt.ArrayLike, unknown: npt.ArrayLike) -> dict[str, float]:
    """How well scores, high for known samples, tell these from unknown ones.

    Returns:
        ``auroc``, ``fpr_at_95_recall`` and ``aupr``, as :func:`auroc`, :func:`fpr_at_recall` and
        :func:`aupr` say; ``aupr_unknown``, the same with the unknown ones as those to find.

    Example:
        >>> separation([0.9, 0.8, 0.7], [0.1, 0.85])["fpr_at_95_recall"]
        0.5
    """
    return {
        "auroc": auroc(known, unknown),
        "fpr_at_95_recall": fpr_at_recall(known, unknown),
        "aupr": aupr(known, unknown),
        "aupr_unknown": aupr(-np.asarray(unknown), -np.asarray(known)),
    }


def auroc(known: npt.ArrayLike, unknown: npt.ArrayLike) -> float:
    """The chance that a known sample scores above an unknown one; half of it where they tie.

    Example:
        >>> auroc([0.9, 0.8, 0.7], [0.1, 0.85])
        0.6666666666666666
    """
    return float(roc_auc_score(*_labelled(known, unknown)))


def fpr_at_recall(known: npt.ArrayLike, unknown: npt.ArrayLike, recall: float = 0.95) -> float:
    """The share of unknown samples accepted where this share of the known ones is.

    Example:
        >>> fpr_at_recall([0.9, 0.8, 0.7], [0.1, 0.85])
        0.5
    """
    check_number("recall", recall, 0, 1)
    inside, outside = _checked(known, unknown)
    accepted = math.ceil(recall * len(inside) * (1 - 1e-12))
    return float((outside >= np.sort(inside)[-accepted]).mean())


def aupr(known: npt.ArrayLike, unknown: npt.ArrayLike) -> float:
    """The area under precision over recall, with the known samples as those to find.

    Example:
        >>> round(aupr([0.9, 0.8, 0.7], [0.1, 0.85]), 4)
        0.8056
    """
    return float(average_precision_score(*_labelled(known, unknown)))


def separations(
    train: Samples,
    classes: Tensor,
    known: Samples,
    unknown: Mapping[str, Samples],
    scores: Iterable[str] = SCORES,
) -> dict[str, dict[str, dict[str, float]]]:
    """What every score makes of a trained model: :func:`separation` by score and unknown set.

    Args:
        train: features and logits of training samples, which the scores learn from.
        classes: their class indices, (N,).
        known: features and logits of new samples of these classes.
        unknown: features and logits of samples of other classes, by the name of their set.
        scores: names of ``torchlace.detection.SCORES``.

    Example:
        >>> import torch
        >>> x, y = torch.eye(3).repeat(20, 1), torch.arange(60) % 3
        >>> found = separations((x, 9 * x), y, (x, 9 * x), {"none": (0 * x, 0 * x)}, ["energy"])
        >>> found["energy"]["none"]["auroc"]
        1.0
    """
    learned: dict[Callable[..., Any], Any] = {}
    found = {}
    for name in scores:
        score = SCORES[check_choice("score", name, SCORES)]
        if score.learn not in learned:
            learned[score.learn] = score.learn(train[0].double(), train[1].double(), classes)
        inside = _judged(name, known, learned[score.learn])
        found[name] = {
            place: separation(inside, _judged(name, samples, learned[score.learn]))
            for place, samples in unknown.items()
        }
    return found


def conformal_threshold(scores: npt.ArrayLike, rate: float) -> float:
    """The score that a new one of the same kind falls below with a chance of at most ``rate``.

    It is the ⌊(n + 1)·rate⌋-th of n from below: a new score is as likely to fall into each of the
    n + 1 gaps between them, whatever the distribution (split conformal prediction).

    Example:
        >>> conformal_threshold([0.3, 0.1, 0.2, 0.4], rate=0.4)
        0.2
    """
    values = np.sort(np.asarray(scores, dtype=np.float64))
    rank = _rank(len(values), rate)
    if rank < 1:
        raise ValueError(
            f"a rate of {rate:g} needs {samples_needed(rate)} scores or more, got {len(values)}"
        )
    return float(values[rank - 1])


def samples_needed(rate: float) -> int:
    """How many samples a promise of this rate takes.

    Example:
        >>> samples_needed(0.05)
        19
    """
    count = max(math.ceil(1 / check_number("rate", rate, 0, 1)) - 2, 1)
    return count if _rank(count, rate) else count + 1


def _rank(count: int, rate: float) -> int:
    # A hair more, so that 0.07 of 100 is 7.
    return math.floor((count + 1) * rate * (1 + 1e-12))


def _judged(name: str, samples: Samples, learned: Any) -> npt.NDArray[np.float64]:
    found: npt.NDArray[np.float64] = (
        SCORES[name].judge(samples[0].double(), samples[1].double(), learned).numpy(force=True)
    )
    return found


def _checked(known: npt.ArrayLike, unknown: npt.ArrayLike) -> tuple[Any, Any]:
    inside, outside = (np.asarray(scores, dtype=np.float64) for scores in (known, unknown))
    if not len(inside) or not len(outside):
        raise ValueError("there must be scores of known and of unknown samples, one or more each")
    return inside, outside


def _labelled(known: npt.ArrayLike, unknown: npt.ArrayLike) -> tuple[Any, Any]:
    inside, outside = _checked(known, unknown)
    return np.repeat([1, 0], [len(inside), len(outside)]), np.concatenate([inside, outside])
