"""The figures of merit that tables show, and what they mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Column:
    """The head of a column.

    Attributes:
        name: its heading.
        about: what the figure means.
        better: 1 where more is better, -1 where less is, 0 where neither.
        words: whether it holds words.
    """

    name: str
    about: str = ""
    better: int = 0
    words: bool = False


def percent(number: str) -> str:
    """A number with its sign, which no line separates from it.

    Example:
        >>> percent("98.9").split()
        ['98.9', '%']
    """
    return f"{number}\u00a0%"


@dataclass(frozen=True)
class Measure:
    """A figure of merit: where it is in the scores and how it is shown."""

    column: Column
    path: tuple[str, ...]
    digits: int
    factor: float = 1.0

    def of(self, scores: dict[str, Any]) -> float | None:
        """Its value, or None where the run has none."""
        value: Any = scores
        for key in self.path:
            value = value.get(key) if isinstance(value, dict) else None
        return None if value is None else self.factor * float(value)


QUALITY = [
    Measure(
        Column("Accuracy,\u00a0%", "Test images that are classified rightly.", 1), ("accuracy",), 2
    ),
    Measure(
        Column("Top 5,\u00a0%", "Images whose class is among the five likeliest.", 1),
        ("top5_accuracy",),
        2,
    ),
    Measure(
        Column(
            "Log loss", "Mean of −log of the true class's probability, after the temperature.", -1
        ),
        ("calibrated_loss",),
        3,
    ),
    Measure(
        Column("Brier", "Squared error of the probabilities, after the temperature.", -1),
        ("calibrated_brier",),
        3,
    ),
    Measure(
        Column("ECE,\u00a0%", "How far confidence is from accuracy, after the temperature.", -1),
        ("calibrated_ece",),
        1,
        100,
    ),
    Measure(
        Column("Silhouette", "How far apart the classes are among the features, −1 to 1.", 1),
        ("clusters", "raw", "silhouette"),
        3,
    ),
    Measure(
        Column("whitened", "Silhouette of the whitened features.", 1),
        ("clusters", "whitened", "silhouette"),
        3,
    ),
]
SPACES = {
    "raw": "features",
    "raw_sphere": "features, sphere",
    "whitened": "whitened",
    "whitened_sphere": "whitened, sphere",
}
CLUSTERS = [
    Measure(Column("Silhouette", "Euclidean, −1 to 1.", 1), ("silhouette",), 3),
    Measure(Column("cosine", "Silhouette by angles.", 1), ("silhouette_cosine",), 3),
    Measure(
        Column("Davies–Bouldin", "Scatter within classes over distance between.", -1),
        ("davies_bouldin",),
        3,
    ),
    Measure(
        Column("Calinski–Harabasz", "Variance between classes over that within.", 1),
        ("calinski_harabasz",),
        0,
    ),
    Measure(
        Column("k-means homogeneity", "Clusters of k-means hold one class only.", 1),
        ("kmeans_homogeneity",),
        3,
    ),
    Measure(
        Column("k-means completeness", "Classes lie in one cluster of k-means.", 1),
        ("kmeans_completeness",),
        3,
    ),
    Measure(Column("Fisher", "Scatter between classes over that within.", 1), ("fisher",), 2),
    Measure(
        Column("Effective rank", "Directions that carry the variance."), ("effective_rank",), 1
    ),
]
