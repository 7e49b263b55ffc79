"""The catalogue of figures of merit: what each is called, what it means and how it is shown."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torchlace._registry import Registry

if TYPE_CHECKING:
    from torchlace.evaluation.inspection import Inspection

# What result.json says of the test images, as test_NAME.
AT_THE_END = ("accuracy", "top5_accuracy", "loss", "calibrated_loss")

Compute = Callable[["Inspection"], float | None]


@dataclass(frozen=True)
class Measure:
    """A figure of merit of a run.

    Attributes:
        name: where it stands in evaluation.json or result.json; dots go deeper.
        label: what people read.
        about: what it means, in a line.
        better: 1 where more is better, -1 where less is, 0 where neither.
        digits: after the point.
        unit: of what is shown.
        factor: what the value is multiplied by to be shown.
        short: its label where runs are compared; without one it is not shown there.
        compute: makes it of an inspection; None where it is among the scores anyway.

    Example:
        >>> Measure("ece", "Calibration error", unit="%", factor=100).value({"ece": 0.02})
        2.0
    """

    name: str
    label: str
    about: str = ""
    better: int = 0
    digits: int = 3
    unit: str = ""
    factor: float = 1.0
    short: str = ""
    compute: Compute | None = None

    @property
    def heading(self) -> str:
        """The label with its unit, which no line separates."""
        return f"{self.label},\u00a0{self.unit}" if self.unit else self.label

    @property
    def line(self) -> str:
        """Its name in result.json and in lines of results."""
        return f"test_{self.name}" if self.name in AT_THE_END else self.name

    def value(self, figures: Mapping[str, Any]) -> float | None:
        """The figure as it is shown; None where there is none."""
        return self.shown(figure(figures, self.name))

    def shown(self, value: float | None) -> float | None:
        """A value in the unit in which it is shown."""
        return None if value is None else self.factor * value


def _table(text: str) -> tuple[Measure, ...]:
    head, *rows = ([cell.strip() for cell in row.split("|")] for row in text.strip().splitlines())
    kinds: dict[str, Callable[[str], Any]] = {"better": int, "digits": int, "factor": float}
    given = ({n: kinds.get(n, str)(v) for n, v in zip(head, row, strict=True) if v} for row in rows)
    return tuple(Measure(**each) for each in given)


SPACES = {
    "raw": "features",
    "raw_sphere": "features, sphere",
    "whitened": "whitened",
    "whitened_sphere": "whitened, sphere",
}
"""The sets of points in which classes form clusters, and what they are called."""

CLUSTERS = _table("""
name                | label                | better | digits | about
silhouette          | Silhouette           | 1  |   | Compact and apart, −1 to 1
silhouette_cosine   | Silhouette by angles | 1  |   | The same with 1 − cosine as distance
davies_bouldin      | Davies–Bouldin       | -1 |   | Scatter within classes over distance between
calinski_harabasz   | Calinski–Harabasz    | 1  | 0 | Variance between classes over that within
kmeans_homogeneity  | k-means homogeneity  | 1  |   | Clusters of k-means hold one class only
kmeans_completeness | k-means completeness | 1  |   | Classes lie in one cluster of k-means
fisher              | Fisher               | 1  | 2 | tr(S_w⁺ S_b), scatter between over within
effective_rank      | Effective rank       |    | 1 | How many directions carry the variance
""")
"""What is said of the points of one space; in the scores under ``clusters.SPACE``."""

_DECISIONS = _table("""
name             | better | digits | unit | factor | short | label | about
accuracy         |  1 | 2 | % |     | acc. % | Accuracy | Test images that are classified rightly
top5_accuracy    |  1 | 2 | % |     | top-5 | Top-5 accuracy | Their class is among the first five
calibrated_loss  | -1 |   |   |     | NLL | Log loss | Mean of −log p of the true class, in nats
calibrated_brier | -1 |   |   |     | Brier | Brier score | Squared error of the probabilities
calibrated_ece   | -1 | 1 | % | 100 | ECE % | Calibration error | Confidence against accuracy
loss             | -1 |   |   |     |  | Log loss, raw | Before the temperature
brier            | -1 |   |   |     |  | Brier score, raw | Before the temperature
ece              | -1 | 1 | % | 100 |  | Calibration error, raw | Before the temperature
""")
_SPACE = _table("""
name                             | better | digits | unit | label | about
angles.true.mean                 | -1 | 1 | ° | Angle to the true signature | Mean over images
angles.nearest_wrong.mean        |  1 | 1 | ° | Angle to the nearest other one | Mean over images
predicted_homogeneity            |  1 |   |   | Predictions, homogeneity | Each holds one class only
predicted_completeness           |  1 |   |   | Predictions, completeness | Each class has one only
whitening.condition              |    | 1 |   | Background, condition | Ratio of extreme eigenvalues
whitening.effective_dimension    |    | 1 |   | Background, dimension | (Σλ)² / Σλ² of eigenvalues
whitening.white_mean_norm        | -1 |   |   | Whitened features, mean | Its length, 0 at best
whitening.white_covariance_error | -1 |   |   | Whitened features, error | Their covariance from I
""")
TRAINING = _table("""
name              | label                    | better | digits | unit | short | about
val_accuracy      | Validation accuracy      | 1  | 2 | %   |         | At the chosen epoch
last_val_accuracy | Last validation accuracy | 1  | 2 | %   |         | At the last epoch
temperature       | Temperature              |    | 3 |     |         | Fitted on validation images
epochs            | Epochs                   |    | 0 |     | epochs  | Until training stopped
best_epoch        | Chosen epoch             |    | 0 |     |         | Its weights are kept
seconds           | Seconds                  |    | 1 |     | seconds | Of training
step_ms           | Step                     | -1 | 1 | ms  |         | In the median epoch
parameters        | Parameters               |    | 0 |     | params  | All that are trained
peak_memory_mib   | Peak memory              | -1 | 1 | MiB |         | On the GPU
test_images       | Test images              |    | 0 |     |         | In the test split
""")
"""What a run's training says, in result.json and lines of results."""

_SHORT = {"clusters.raw.silhouette": "sil. raw", "clusters.whitened.silhouette": "sil. white"}
_SCORES = (
    *(*_DECISIONS, *_SPACE),
    *(
        replace(
            each,
            name=(name := f"clusters.{space}.{each.name}"),
            label=f"{each.label}, {place}",
            short=_SHORT.get(name, ""),
        )
        for space, place in SPACES.items()
        for each in CLUSTERS
    ),
)

# Other names at the top of evaluation.json and of lines of results.
_TAKEN = {
    *("class_accuracy", "confusion", "reliability", "made_from", "digest", "classes", "experiment"),
    *("run", "dataset", "head", "backbone", "protocol", "seed", "status", "config", "validation"),
    *("embeddings", "device", "versions", "data_digest", "graph", "test_right", "error"),
    *(part for each in (*_SCORES, *TRAINING) for part in (each.name.split(".")[0], each.line)),
}
_REGISTRY: Registry[Any] = Registry("measure", {})


def measures() -> list[Measure]:
    """What is said of a run's test images: the built-in measures, then those that were added.

    Example:
        >>> [each.name for each in measures()][:2]
        ['accuracy', 'top5_accuracy']
    """
    return [*_SCORES, *own()]


def register(name: str, compute: Compute | None = None, **options: Any) -> Any:
    """Add a measure of your own: ``compute(inspection)`` gives a number, or None where it can't.

    The :class:`~torchlace.evaluation.Inspection` holds what the network says of the test images:
    features, logits, labels, the head and more. Without a function it is a decorator.

    Args:
        name: a word, by which scores, tables and grids know it.
        compute: the function; the first line of its docstring says what it means.
        **options: ``label``, ``about``, ``better``, ``digits``, ``unit``, ``factor``, ``short``,
            as in :class:`Measure`.

    Example:
        >>> @register("margin", better=1)
        ... def margin(run):
        ...     '''Mean distance of the two largest logits.'''
        ...     first, second = run.logits.topk(2).values.unbind(1)
        ...     return (first - second).mean()
        >>> measures()[-1].label, measures()[-1].about
        ('Margin', 'Mean distance of the two largest logits')
        >>> _REGISTRY.forget("margin")
    """
    if compute is None:
        return functools.partial(register, name, **options)
    _REGISTRY.register(name, _described(name, compute, **options))
    return compute


def own() -> list[Measure]:
    """The measures that users registered or installed packages offer."""
    return [_described(name, _REGISTRY[name]) for name in _REGISTRY]


def figure(figures: Mapping[str, Any], name: str) -> float | None:
    """A number by its name, dots going deeper; None where there is none.

    Example:
        >>> figure({"clusters": {"raw": {"fisher": 2.5}}}, "clusters.raw.fisher")
        2.5
    """
    found: Any = figures
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found if isinstance(found, (int, float)) else None


def line_names() -> list[str]:
    """The names of all figures that lines of results hold, which tables can show."""
    return [each.line for each in (*measures(), *TRAINING)]


def line_scores(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Of the scores in evaluation.json, what lines of results hold beside result.json."""
    line: dict[str, Any] = {}
    for each in measures():
        found = figure(scores, each.name)
        if each.name not in AT_THE_END and found is not None:
            *above, last = each.name.split(".")
            place = line
            for part in above:
                place = place.setdefault(part, {})
            place[last] = found
    return line


def _described(name: str, given: Measure | Compute, **options: Any) -> Measure:
    if not name.isidentifier() or name in _TAKEN:
        raise ValueError(
            f"the name of a measure must be a word that results don't use yet, got {name!r}"
        )
    if isinstance(given, Measure):
        return replace(given, name=name)
    label = options.pop("label", name.replace("_", " ").capitalize())
    about = options.pop("about", (inspect.getdoc(given) or "").partition("\n")[0])
    about = about.removesuffix(".")
    return Measure(name, label, about, **{"short": label, "compute": given, **options})
