"""One self-contained page about some runs: they are examined, rendered as HTML and written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import torchlace
from torchlace._checks import check_count
from torchlace._registry import required
from torchlace._reporter import Reporter
from torchlace.evaluation.pictures import Method, check_method
from torchlace.report.page import tables
from torchlace.report.page.drawing import collection_payload
from torchlace.report.page.examples import UNSURE, Sheet, find_examples, make_sheet
from torchlace.report.page.gather import Collection, Failed, Group, gather, group_runs
from torchlace.report.page.hero import is_baseline, listed, make_hero
from torchlace.runs import RunError, find_runs, write_whole

__all__ = ["Report", "write_report"]

_SCRIPTS = (
    *("base.js", "edges.js", "tables.js", "hover.js", "plots.js", "sphere.js", "still.js"),
    *("gallery.js", "save.js", "page.js", "print.js"),
)
_STYLES = ("page.css", "parts.css", "print.css")
_SHOWN_AT_FIRST = 4


@dataclass(frozen=True)
class Report:
    """A page that was written.

    Attributes:
        path: where it is.
        shown: names of the runs it shows.
        failed: runs that can't be shown, with the reason.
    """

    path: Path
    shown: list[str]
    failed: list[Failed]


def write_report(
    runs: Iterable[Path | str],
    path: Path | str = "report.html",
    *,
    samples: int = 5000,
    method: Method = "tsne",
    device: str = "auto",
    root: Path | None = None,
    reporter: Reporter | None = None,
) -> Report:
    """Write one self-contained page about finished runs.

    A run that is unfinished, broken or of another version is listed with the reason; the others are
    shown all the same. If none can be shown, it is an error, and nothing is written.

    Args:
        runs: run directories, or folders that hold some.
        path: where the page goes; what was there is replaced once the page is whole.
        samples: test images on the spheres, the same for every run on the same data.
        method: ``"tsne"``, ``"pca"`` or ``"umap"``.
        device: where features are computed: ``"cpu"``, ``"cuda"`` or ``"auto"``.
        root: where packs of data lie, if not where a run's settings say.
        reporter: told of progress.
    """
    # What can be wrong is found out now rather than after minutes of work.
    for name in ("jinja2", "plotly"):
        _required(name)
    check_count("samples", samples, 5)
    paths, path = find_runs(runs), Path(path)
    check_method(method, paths)
    if not paths:
        raise ValueError("a report needs at least one run")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file, such as {path}/report.html")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} to")
    reporter = reporter or Reporter()
    collections, failed = gather(
        paths, reporter, samples=samples, method=method, device=device, root=root
    )
    if not collections:
        reasons = "; ".join(each.reason for each in failed)
        raise RunError(f"none of these runs can be shown, so {path} is not written: {reasons}")
    reporter.message("writing the page")
    # Paths of runs and data can hold bytes that are not text.
    content = _render(collections, failed, path.parent).encode(errors="backslashreplace")
    write_whole(path, lambda file: file.write(content))
    return Report(path, [run.name for each in collections for run in each.runs], failed)


def _render(collections: Sequence[Collection], failed: Sequence[Failed], folder: Path) -> str:
    """The page as HTML, complete, to lie in ``folder``."""
    jinja = _required("jinja2")
    environment = jinja.Environment(
        loader=jinja.FunctionLoader(_asset),
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
        css="\n".join(map(_asset, _STYLES)),
        # With <, >, & and ' escaped, no name can end the script that holds it.
        payload=jinja.utils.htmlsafe_json_dumps(payload, allow_nan=False),
        plotly=_required("plotly.offline").get_plotlyjs(),
        script="\n".join(map(_asset, _SCRIPTS)),
        version=torchlace.__version__,
        written=f"{now.day} {now:%B %Y, %H:%M}",
    )
    return page


def _part(number: int, collection: Collection, folder: Path) -> dict[str, Any]:
    """What the template needs to know of the runs on one set of data."""
    runs, groups = collection.runs, group_runs(collection.runs)
    found = {run.name: find_examples(run.inspection) for run in runs}
    sample = _sheet(collection, collection.sample)
    payload = collection_payload(number, collection, groups, sample)
    first = _first(groups)
    cards = [
        {
            **{"id": drawn["id"], "colour": drawn["colour"], "run": run},
            **{"shown": run.name in first, "examples": found[run.name]},
        }
        for run, drawn in zip(runs, payload["runs"], strict=True)
    ]
    differing, common = tables.settings_tables(runs)
    return {
        "id": f"d{number}",
        "collection": collection,
        "groups": groups,
        "hero": make_hero(collection, groups, payload["colours"]),
        "cards": sorted(cards, key=lambda card: (not card["shown"], not is_baseline(card["run"]))),
        "sample": sample,
        "worth": _sheet(collection, sorted({i for each in found.values() for i in each.indices})),
        "colours": payload["colours"],
        "whitened": any("whitened" in run.spheres for run in runs),
        "result": "Comparison" if len(runs) > 1 else "Result",
        "comparison": tables.comparison_table(collection, groups),
        "every_run": tables.runs_table(groups, runs),
        "clusters": tables.clusters_table(runs),
        "unknown": tables.unknown_table(runs),
        "classes": tables.classes_table(collection),
        "differing": differing,
        "common": common,
        "environment": tables.environment_table(runs, folder),
        "unsure": UNSURE,
        "cut": payload["barsFrom"],
        "payload": payload,
    }


def _first(groups: Sequence[Group]) -> set[str]:
    """Names of the runs whose figures are open at first.

    The best of the baseline and of all, of each setting of LACE, of each other, and then others.
    """
    best, *rest = (max(group.runs, key=lambda run: run.accuracy) for group in groups)
    rest.sort(key=lambda run: not run.config.head.startswith("lace"))
    others = [run for group in groups for run in group.runs if run not in (best, *rest)]
    baseline = next((run for run in (best, *rest) if is_baseline(run)), best)
    ranked = dict.fromkeys(run.name for run in (baseline, best, *rest, *others))
    return set(list(ranked)[:_SHOWN_AT_FIRST])


def _sheet(collection: Collection, indices: Sequence[int]) -> Sheet | None:
    if collection.images is None or not indices:
        return None
    return make_sheet(collection.images, indices)


def _title(parts: Sequence[dict[str, Any]]) -> str:
    """The settings that are compared, for each set of data."""
    titles = []
    for part in parts:
        labels = [group.label for group in part["groups"]]
        what = f"{len(labels)} settings" if len(labels) > 3 else listed(labels)
        titles.append(f"{what} on {part['collection'].data}")
    return "; ".join(titles)


def _asset(name: str) -> str:
    """The text of a file that comes with the package."""
    return files("torchlace.report.page").joinpath("assets", name).read_text(encoding="utf-8")


def _required(module: str) -> Any:
    advice = f"the page needs {module.partition('.')[0]}: pip install 'torchlace[report]'"
    return required(module, advice)
