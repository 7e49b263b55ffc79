"""What every figure of merit asks of labels, and names for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from torch import Tensor

from torchlace._checks import check_target_shape


def check_labels(rows: Tensor, labels: Tensor) -> Tensor:
    """Labels as int64; raises unless ``rows`` is (N, C) and each label is one of its C classes.

    Labels of another shape would otherwise be stretched to fit, and one that no class has would
    count as a mistake.

    Example:
        >>> import torch
        >>> check_labels(torch.eye(3), torch.tensor([0, 2, 1], dtype=torch.uint8)).dtype
        torch.int64
    """
    if rows.dim() != 2 or not len(rows):
        raise ValueError(
            "expected a row of numbers for each of one or more samples, a column for each class, "
            f"got shape {tuple(rows.shape)}"
        )
    check_target_shape(labels, len(rows))
    classes = rows.shape[1]
    wrong = labels[(labels < 0) | (labels >= classes)]
    if len(wrong):
        raise ValueError(
            f"labels must lie in 0..{classes - 1}, a column each, got "
            f"{wrong.unique().tolist()[:5]}; do labels start at 0?"
        )
    return labels.long()


def distinct_names(names: Sequence[str]) -> list[str]:
    """Names of classes with the label behind those that several have, so that none hides another.

    Example:
        >>> distinct_names(["crane", "gull", "crane"])
        ['crane (0)', 'gull', 'crane (2)']
    """
    found = list(names)
    while len(counts := Counter(found)) < len(found):
        found = [
            f"{name} ({label})" if counts[name] > 1 else name for label, name in enumerate(found)
        ]
    return found
