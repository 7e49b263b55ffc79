"""From examined runs to HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

import torchlace
from torchlace.report.page import alternatives, tables
from torchlace.report.page.examples import UNSURE, Examples, examples
from torchlace.report.page.gather import Collection, Failed, Shown
from torchlace.report.page.grouping import Group, group_runs
from torchlace.report.page.payload import collection_payload
from torchlace.report.page.sprites import Sheet, make_sheet
from torchlace.report.page.summary import summarise

SCRIPTS = (
    *("base.js", "edges.js", "tables.js", "hover.js", "plots.js", "sphere.js", "still.js"),
    *("page.js", "print.js"),
)
_SHOWN_AT_FIRST = 4


@dataclass(frozen=True)
class Card:
    """A run as the template sees it."""

    id: str
    run: Shown
    colour: str
    shown: bool
    examples: Examples


def require_all() -> None:
    """Raise where a package that the page needs is missing, before any work is done."""
    for name in ("jinja2", "plotly"):
        _required(name)


def render(collections: Sequence[Collection], failed: Sequence[Failed], folder: Path) -> str:
    """The page, complete, to lie in ``folder``."""
    jinja = _required("jinja2")
    environment = jinja.Environment(
        loader=jinja.FunctionLoader(asset),
        autoescape=True,
        undefined=jinja.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    now = datetime.now()
    parts = [_part(number, each, folder) for number, each in enumerate(collections)]
    payload = [part.pop("payload") for part in parts]
    page: str = environment.get_template("page.html").render(
        title=_title(parts),
        parts=parts,
        failed=failed,
        css=asset("page.css"),
        # With <, >, & and ' escaped, no name can end the script that holds it.
        payload=jinja.utils.htmlsafe_json_dumps(payload, allow_nan=False) if payload else "[]",
        plotly=_required("plotly.offline").get_plotlyjs(),
        script="\n".join(map(asset, SCRIPTS)),
        version=torchlace.__version__,
        written=f"{now.day} {now:%B %Y, %H:%M}",
    )
    return page


def asset(name: str) -> str:
    """The text of a file that comes with the package."""
    return files("torchlace.report.page").joinpath("assets", name).read_text(encoding="utf-8")


def _part(number: int, collection: Collection, folder: Path) -> dict[str, Any]:
    """What the template needs to know of the runs on one set of data."""
    runs, groups = collection.runs, group_runs(collection.runs)
    found = {run.name: examples(run.inspection) for run in runs}
    sample = _sheet(collection, collection.sample)
    worth = _sheet(collection, sorted(set().union(*(each.indices for each in found.values()))))
    payload = collection_payload(number, collection, groups, sample)
    first = _first(groups)
    labels = {run.name: group.label for group in groups for run in group.runs}
    cards = [
        Card(drawn["id"], run, drawn["colour"], run.name in first, found[run.name])
        for run, drawn in zip(runs, payload["runs"], strict=True)
    ]
    return {
        "id": f"d{number}",
        "collection": collection,
        "groups": groups,
        "sentences": summarise(collection, groups),
        "cards": sorted(cards, key=lambda card: not card.shown),
        "sample": sample,
        "worth": worth,
        "colours": payload["colours"],
        "whitened": any("whitened" in run.spheres for run in runs),
        "comparison": tables.comparison_table(collection, groups),
        "every_run": tables.runs_table(runs, labels),
        "clusters": tables.clusters_table(runs),
        "classes": tables.classes_table(collection),
        "differing": tables.settings_table(runs, differing=True),
        "common": tables.settings_table(runs, differing=False),
        "environment": tables.environment_table(runs, folder),
        "say": alternatives,
        "unsure": UNSURE,
        "cut": payload["barsFrom"],
        "payload": payload,
    }


def _first(groups: Sequence[Group]) -> set[str]:
    """Names of the runs whose figures are open at first.

    The best run, the best of each setting of LACE, the best of each other setting, and then others.
    """
    best, *rest = (max(group.runs, key=lambda run: run.accuracy) for group in groups)
    rest.sort(key=lambda run: not run.config.head.startswith("lace"))
    others = [run for group in groups for run in group.runs if run not in (best, *rest)]
    return {run.name for run in [best, *rest, *others][:_SHOWN_AT_FIRST]}


def _sheet(collection: Collection, indices: Sequence[int]) -> Sheet | None:
    if collection.images is None or not indices:
        return None
    return make_sheet(collection.images, indices)


def _title(parts: Sequence[dict[str, Any]]) -> str:
    if not parts:
        return "No run to show"
    titles = []
    for part in parts:
        labels = [group.label for group in part["groups"]]
        if len(labels) > 3:
            what = f"{len(labels)} settings"
        else:
            what = " and ".join([", ".join(labels[:-1]), labels[-1]] if labels[1:] else labels)
        titles.append(f"{what} on {part['collection'].data}")
    return "; ".join(titles)


def _required(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"the page needs {module.partition('.')[0]}: pip install 'torchlace[report]'"
        ) from error
