"""Target spectra from files."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from torchlace._sklearn import Array
from torchlace.detection.cubes import map_npy


def read_targets(path: Path | str, bands: int) -> Array:
    """Target spectra from a .csv file, one for each line, or from a .npy array.

    Numbers are separated by commas, semicolons, tabs or spaces, all as in the first line of them;
    between semicolons or tabs they may have decimal commas. A first line of names, without any
    number, is left out.
    A single spectrum may also stand in a column, one number for each line.

    Returns:
        (bands,) for one spectrum, (K, bands) for several.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    table = np.atleast_2d(map_npy(path)) if path.suffix.lower() == ".npy" else _read_text(path)
    if table.shape == (bands, 1):
        table = table.T
    if table.ndim != 2 or table.shape[1] != bands:
        hint = ""
        if table.ndim == 2 and len(table) == bands:
            hint = "; it looks transposed: spectra go in lines, without a column of wavelengths"
            if table.shape[1] == 2 and path.suffix.lower() != ".npy":
                hint += "; or, if its commas are decimal ones, end its lines in semicolons"
        raise ValueError(
            f"{path} holds an array of {' × '.join(map(str, table.shape))} numbers; expected one "
            f"line of {bands} numbers, as many as the cube has bands, for each target{hint}"
        )
    return table[0] if len(table) == 1 else table


def _read_text(path: Path) -> Array:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file: spectra come as .csv or .npy") from error
    lines = {
        number: line for number, line in enumerate(text.splitlines(), 1) if line.strip(" \t,;")
    }
    first = min(lines, default=0)
    if lines and not any(map(_is_number, re.split(r"[,;\s]+", lines[first]))):
        del lines[first]
    if not lines:
        raise ValueError(f"{path} holds no numbers")
    first = min(lines)
    split = _splitter(lines[first], f"{path}, line {first}")
    cells = {number: split(line) for number, line in lines.items()}
    _check_decimals(cells, path)
    rows = {number: _numbers(row, f"{path}, line {number}") for number, row in cells.items()}
    for number, row in rows.items():
        if len(row) != len(rows[first]):
            raise ValueError(
                f"{path}: lines differ in length ({len(rows[first])} numbers in line {first}, "
                f"{len(row)} in line {number})"
            )
    return np.array(list(rows.values()))


def _splitter(line: str, place: str) -> Callable[[str], list[str]]:
    """How to split lines like this one, the first that holds numbers."""
    if ";" in line:
        return lambda line: [cell.strip() for cell in line.strip(" \t;").split(";")]
    if "\t" in line.strip():
        return lambda line: [cell.rstrip(",") for cell in line.split()]
    if re.search(r"\d,\d", line) and re.search(r"[\d.] +[-+.\d]", line):
        raise ValueError(
            f"{place}: {line.strip()[:40]!r} holds commas and spaces between digits, so either may "
            "separate numbers: write semicolons between numbers, or decimal points in them"
        )
    return lambda line: re.split(r"\s*,\s*|\s+", line.strip(" \t,"))


def _check_decimals(cells: dict[int, list[str]], path: Path) -> None:
    """Raise where a comma may be a decimal comma or stand between thousands."""
    first = [
        next((number for number, row in cells.items() if mark in "".join(row)), 0) for mark in ",."
    ]
    if all(first):
        raise ValueError(
            f"{path}, line {max(first)}: numbers hold commas as well as points; write all with "
            "decimal commas or all with decimal points, and thousands without either"
        )


def _numbers(row: list[str], place: str) -> list[float]:
    row = [cell.replace(",", ".") if cell.count(",") == 1 else cell for cell in row]
    try:
        return [float(cell) for cell in row]
    except ValueError as error:
        raise ValueError(f"{place}: not all are numbers ({error})") from None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
