"""``torchlace data``: list, fetch, import, check and show the sets of images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from torchlace._text import counted
from torchlace.cli.common import (
    DATA,
    Command,
    Json,
    among,
    importing,
    number,
    plain_errors,
    print_json,
    print_table,
    say,
)

app = typer.Typer(
    name="data",
    help="List, fetch, import, check and show sets of images.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Root = Annotated[
    Path | None,
    typer.Option(help="Where packs live", show_default="$TORCHLACE_DATA or ~/.cache/torchlace"),
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Go on without image files that can't be read.")
]
Name = Annotated[
    str,
    typer.Argument(
        help="A known or registered name, a pack, a folder, a CSV or a .npz.",
        autocompletion=among(*DATA),
    ),
]


@app.command("list", cls=Command)
@importing
def list_sets(root: Root = None, as_json: Json = False) -> None:
    """List the sets that are known and those that are here."""
    from torchlace.data import data_root, list_data

    place, sets = data_root(root), list_data(root)
    if as_json:
        print_json({"root": str(place), "sets": sets}, indent=1)
        return
    columns = ["name", "images", "classes", "what", "here"]
    for each in sets:
        each.update(images=number(each["images"], 0), classes=number(each["classes"], 0))
    rows = [[each[column] for column in columns] for each in sets]
    print_table(f"Sets of images (packs in {place})", columns, rows)


@app.command(cls=Command)
def fetch(
    name: Annotated[
        str,
        typer.Argument(
            help="fashion_mnist, cifar10, svhn or cifar100.",
            autocompletion=among("fashion_mnist", "cifar10", "svhn", "cifar100"),
        ),
    ],
    root: Root = None,
) -> None:
    """Download a set through torchvision, checksums verified, and write its pack."""
    from torchlace.data import KNOWN, data_root, fetch_data

    with plain_errors():
        known = KNOWN.get(name)
        there = known is not None and (data_root(root) / f"{known.pack}.npz").is_file()
        path = fetch_data(name, root)
        say(f"{path} is here already" if there else f"wrote {path}")


@app.command("import", cls=Command)
def import_set(
    source: Annotated[
        Path, typer.Argument(help="CIFAR, SVHN or IDX files, class folders, a CSV or a .npz.")
    ],
    name: Annotated[str | None, typer.Option(help="What to call it.")] = None,
    root: Root = None,
    size: Annotated[int | None, typer.Option(help="Side that image files are brought to.")] = None,
    skip_bad: SkipBad = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a pack of that name.")
    ] = False,
) -> None:
    """Write a pack from files that you have."""
    from torchlace.data import import_data

    with plain_errors():
        path = import_data(source, name, root, size=size, skip_bad=skip_bad, overwrite=overwrite)
        say(f"wrote {path}; look at it by: torchlace data check {path}")


@app.command(cls=Command)
@importing
def check(name: Name, root: Root = None, skip_bad: SkipBad = False, as_json: Json = False) -> None:
    """Verify counts, shapes, labels, duplicates and the digest; say what is wrong."""
    from torchlace.data import check_data

    with plain_errors():
        report = check_data(name, root, skip_bad=skip_bad)
    if as_json:
        print_json(report.to_dict(), indent=1)
    else:
        if report.train:
            _print_summary(report.to_dict())
        for note in report.notes:
            say(f"note: {note}")
        for problem in report.problems:
            say(f"problem: {problem}", err=True)
        say(f"{report.name}: {'all is well' if report.ok else 'something is wrong'}")
    raise typer.Exit(0 if report.ok else 1)


@app.command(cls=Command)
@importing
def show(
    name: Name,
    out: Annotated[
        Path | None, typer.Option(help="The contact sheet, a PNG", show_default="NAME.png")
    ] = None,
    root: Root = None,
    skip_bad: SkipBad = False,
    as_json: Json = False,
) -> None:
    """Print a summary and write a contact sheet."""
    from torchlace.data import contact_sheet, load_data

    with plain_errors():
        data = load_data(name, root, skip_bad=skip_bad)
        path = contact_sheet(data, out or Path(f"{data.name}.png"))
    facts = data.summary()
    if as_json:
        more = {"mirror": data.mirror, "skipped": data.skipped, "sheet": str(path)}
        print_json({**facts, **more}, indent=1)
        return
    _print_summary(facts)
    if data.skipped:
        say(f"left out {counted(len(data.skipped), 'file')} that can't be read:")
    for each in data.skipped:
        say(f"  {each}")
    say(f"wrote {path}")


def _print_summary(facts: dict[str, Any]) -> None:
    channels, height, width = facts["shape"]
    low, high = min(facts["train_counts"]), max(facts["train_counts"])
    each = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    rows = [
        ["images", f"{facts['train']:,} for training, {facts['test']:,} for testing"],
        ["shape", f"{width} × {height}, {counted(channels, 'channel')}"],
        ["classes", f"{len(facts['class_names'])}, each with {each} training images"],
        ["digest", facts["digest"]],
    ]
    if facts.get("identity"):
        rows.append(["known as", facts["identity"]])
    print_table(facts["name"], ["", ""], rows)
