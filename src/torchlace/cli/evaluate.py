"""``torchlace evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchlace.cli.common import number, plain_errors, print_json, print_table, say
from torchlace.cli.progress import reporting

_APART = {"auroc": "AUROC", "fpr_at_95_recall": "accepted at 95 % recall", "aupr": "AUPR"}


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    root: Annotated[Path | None, typer.Option(help="Where packs of data lie.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto")] = "auto",
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Compute anew what an earlier evaluation kept.")
    ] = False,
    unknown: Annotated[
        list[str] | None,
        typer.Option(
            "--unknown", help="A data set of other classes: how well it is told apart; repeatable."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Examine a trained run on its test images, and keep the figures beside it."""
    with plain_errors():
        from torchlace.evaluation import inspect, measures, unknown_scores
        from torchlace.evaluation.measures import CLUSTERS, SPACES, TRAINING
        from torchlace.evaluation.scores import distinct_names
        from torchlace.evaluation.verdict import verdict

        with reporting() as watcher:
            found = inspect(run, device=device, reporter=watcher, refresh=refresh, root=root)
            apart = (
                unknown_scores(run, unknown, device=device, reporter=watcher, root=root)
                if unknown
                else {}
            )
    scores = {**found.scores, **({"unknown": apart} if apart else {})}
    names = distinct_names(found.class_names)
    classes = dict(zip(names, scores["class_accuracy"], strict=True))
    if as_json:
        print_json({"run": str(run), **scores, "classes": classes})
        return
    for sentence in verdict(scores, found.class_names):
        say(sentence)
    title = f"{run}: {len(found.labels):,} test images of {Path(found.config.data).name}"
    single = [each for each in measures() if not each.name.startswith("clusters.")]
    single += [each for each in TRAINING if each.name == "temperature"]
    values = [(each, each.value(found.figures)) for each in single]
    rows = [[m.heading, number(value, m.digits)] for m, value in values if value is not None]
    print_table(title, ["", "value"], rows)
    spaces = scores["clusters"]
    if spaces:
        rows = [
            [each.label, *(number(each.value(space), each.digits) for space in spaces.values())]
            for each in CLUSTERS
        ]
        columns = [SPACES[name] for name in spaces]
        print_table("clusters of the true classes", ["", *columns], rows)
    rows = [[name, number(value, 2)] for name, value in classes.items()]
    print_table("accuracy of each class", ["class", "%"], rows)
    for source in unknown or ():
        rows = [
            [name, *(number(100 * figures[source][key], 2) for key in _APART)]
            for name, figures in sorted(apart.items(), key=lambda each: -each[1][source]["auroc"])
        ]
        print_table(f"told from {source}, %: 50 is chance", ["score", *_APART.values()], rows)
