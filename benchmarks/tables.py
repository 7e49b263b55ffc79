"""The CSVs of benchmarks/results as the Markdown tables of docs/benchmarks.md.

python benchmarks/tables.py
"""

from __future__ import annotations

import csv
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    for path in sorted(RESULTS.glob("heads-*.csv")):
        rows = read(path)
        for shape in dict.fromkeys((r["batch"], r["width"], r["classes"]) for r in rows):
            print(f"\n{path.name}: batch {shape[0]}, {shape[1]} features, {shape[2]} classes\n")
            mine = [r for r in rows if (r["batch"], r["width"], r["classes"]) == shape]
            modes = list(dict.fromkeys(r["mode"] for r in mine))
            wanted = [("median_ms", "ms"), ("x_linear", "× linear"), ("x_mean", "mean ×")]
            wanted.append(("peak_mib", "MiB"))
            table(["head", *(f"{mode}: {label}" for mode in modes for _, label in wanted)])
            for head in dict.fromkeys(r["head"] for r in mine):
                found = {r["mode"]: r for r in mine if r["head"] == head}
                cells = [shown(found.get(m, {}).get(n, ""), n) for m in modes for n, _ in wanted]
                print("|", head, "|", " | ".join(cells), "|")
    for kind in ("inference", "classes", "training"):
        for path in sorted(RESULTS.glob(f"{kind}-*.csv")):
            print(f"\n{path.name}\n")
            rows = read(path)
            table(list(rows[0]))
            for row in rows:
                print("|", " | ".join(shown(value, name) for name, value in row.items()), "|")


def read(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def table(columns: list[str]) -> None:
    print("|", " | ".join(columns), "|")
    print("|", " | ".join("---" for _ in columns), "|")


def shown(value: str, name: str) -> str:
    if name in ("x_linear", "x_mean") and value:
        return f"{float(value):.2f}"
    if name.endswith("mib") and value:
        return f"{float(value):,.0f}"
    return f"{float(value):.3g}" if name.endswith("ms") and value else value


if __name__ == "__main__":
    main()
