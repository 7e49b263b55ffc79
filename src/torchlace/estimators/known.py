"""What a classifier in closed form remembers: labels, sums, and which scales suited them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.utils.multiclass import unique_labels

from torchlace._sklearn import Array
from torchlace.estimators.scales import Scales
from torchlace.estimators.sums import Sums

# What rounding leaves of sums, relative to the largest.
_SAME = 1e-9


class Known(NamedTuple):
    """Labels, and for each its sums and the losses at several scales; all of constant size."""

    classes: Array
    """The labels, sorted, (C,)."""
    sums: Sums
    scales: Scales

    def among(self, classes: Array) -> Known:
        """The same among these labels, which hold all there are."""
        places = torch.from_numpy(np.searchsorted(classes, self.classes))
        places = places.to(self.sums.mass.device)

        def at_places(part: torch.Tensor) -> torch.Tensor:
            return part.new_zeros(len(classes), *part.shape[1:]).index_copy(0, places, part)

        return Known(
            classes,
            self.sums.each(at_places),
            Scales(*(at_places(part) for part in self.scales)),
        )

    def join(self, other: Known) -> Known:
        """What both know."""
        classes = joined_labels(self.classes, other.classes)
        mine, theirs = self.among(classes), other.among(classes).to(self.sums.mass.device)
        return Known(classes, mine.sums.join(theirs.sums), mine.scales.add(theirs.scales))

    def forget(self, label: Any, sums: Sums | None) -> Known:
        """What is left without a class; its part of the scatter goes where its ``sums`` are given.

        Raises:
            ValueError: if there is no such class, or if the sums are not those of all its samples.
        """
        gone = self.classes == label
        if not gone.any():
            raise ValueError(f"{label!r} is none of the classes {self.classes}")
        kept = torch.from_numpy(~gone).to(self.sums.mass.device)
        left = self.sums.each(lambda part: part[kept])
        if sums is not None:
            sums = Sums(*(part.to(kept.device) for part in sums))
            own = self.sums.each(lambda part: part[~kept])
            for found, expected in ((sums.mass, own.mass), (sums.means, own.means)):
                if not torch.allclose(found, expected, rtol=_SAME, atol=_SAME):
                    raise ValueError(
                        f"these are not the samples of {label!r} that were learned: they count "
                        f"{sums.mass.item():g}, those {own.mass.item():g}, or have another mean; "
                        "give all of them with the same weights, or none"
                    )
            left = left._replace(
                scatter=left.scatter - sums.scatter, spread=left.spread - sums.spread
            )
        return Known(self.classes[~gone], left, Scales(*(part[kept] for part in self.scales)))

    def to(self, device: torch.device | str) -> Known:
        """The same on another device."""
        scales = Scales(*(part.to(device) for part in self.scales))
        return Known(self.classes, Sums(*(part.to(device) for part in self.sums)), scales)


def joined_labels(*labels: Array) -> Array:
    """All labels, sorted.

    Example:
        >>> joined_labels(np.array(["b"]), np.array(["a", "b"])).tolist()
        ['a', 'b']
    """
    unique_labels(*labels)  # raises for words among numbers
    found: Array = np.unique(np.concatenate(labels))
    return found
