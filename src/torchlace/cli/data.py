"""``torchlace data``: list, fetch, import, check and show the sets of images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from torchlace._text import counted
from torchlace.cli.common import Command, number, plain_errors, print_json, print_table, say
from torchlace.cli.completion import DATA, among

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
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
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
def list_sets(root: Root = None, as_json: Json = False) -> None:
    """List the sets that are known and those that are here."""
    from torchlace.data import data_root

    place = data_root(root)
    columns = ["name", "images", "classes", "what", "here"]
    rows = _sets(place)
    if as_json:
        sets = [dict(zip(columns, row, strict=True)) for row in rows]
        print_json({"root": str(place), "sets": sets}, indent=1)
        return
    cells = [
        [name, number(images, 0), number(classes, 0), what, here]
        for name, images, classes, what, here in rows
    ]
    print_table(f"Sets of images (packs in {place})", columns, cells)


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


def _sets(place: Path) -> list[tuple[str, int | None, int | None, str, str]]:
    """Names, numbers of images and of classes, what they are, and whether they are here."""
    from torchlace.data import KNOWN, data_names

    rows: list[tuple[str, int | None, int | None, str, str]] = []
    for name, known in KNOWN.items():
        here = "embedded"
        if known.pack is not None:
            path = place / f"{known.pack}.npz"
            here = _size(path) if path.is_file() else f"torchlace data fetch {known.pack}"
        count, classes = known.train + known.test, len(known.class_names)
        rows.append((name, count, classes, known.title, here))
    own = [name for name in data_names() if name not in KNOWN]
    rows += [(name, None, None, "registered", "its loader brings it") for name in own]
    for path in sorted(place.glob("*.npz")):
        if path.stem not in data_names() and not path.name.startswith("."):
            rows.append((path.stem, None, None, "imported", _size(path)))
    return rows


def _size(path: Path) -> str:
    return f"{path.stat().st_size / 2**20:,.0f} MiB"


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
