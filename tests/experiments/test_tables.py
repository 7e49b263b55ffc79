import csv
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from experiments.grids import GRID, line, records
from scipy import stats

from torchlace.experiments import (
    FORMATS,
    Record,
    collect_curves,
    experiment_names,
    load_experiment,
    make_table,
    read_lines,
    render,
)
from torchlace.experiments.rendering import summary_sheet
from torchlace.experiments.tables import holm, mean_interval

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture
def experiment(tmp_path):
    def make(text=GRID):
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        return load_experiment(path)

    return make


def scatter(row, column, seed):
    base = {"softmax": 88.0, "arcface": 88.4, "lace": 90.1}.get(row, 80.0)
    return base + [0.3, -0.4, 0.2][seed] * (1 if row == "lace" else 2) + (row == "arcface") * seed


def test_means_deviations_and_tests_are_those_of_scipy():
    table = load_experiment("table1")
    found = make_table(table, records(table, scatter))
    base = [scatter("softmax", "", seed) for seed in range(3)]
    # The others scatter just as softmax does, which leaves nothing to test by.
    tested = ["arcface", "lace"]
    values = {row: [scatter(row, "", seed) for seed in range(3)] for row in tested}
    corrected = holm([stats.ttest_rel(values[row], base).pvalue for row in tested])
    for column in table.columns:
        for row, p in zip(tested, corrected, strict=True):
            entry = found.entries[row, column.name]
            assert entry.mean == pytest.approx(np.mean(values[row]))
            assert entry.deviation == pytest.approx(np.std(values[row], ddof=1))
            assert entry.gain == pytest.approx(np.mean(values[row]) - np.mean(base))
            assert (entry.test.p, entry.test.pairs) == (pytest.approx(p, rel=1e-6), 3)
        assert found.entries["amc", column.name].test is None
    lace = found.entries["lace", "svhn"]
    assert lace.published is None
    assert found.entries["softmax", "svhn"].from_published == pytest.approx(np.mean(base) - 94.68)


def test_intervals_come_from_the_images_and_pair_methods():
    table = load_experiment("table1").select(
        datasets=["svhn"], methods=["softmax", "lace"], seeds=2
    )
    random = np.random.default_rng(0)
    right, found = {}, {}
    for cell in table.cells():
        config = cell.task.config
        bits = random.random(400) < (0.9 if cell.row == "lace" else 0.8)
        right[cell.row, config.seed] = bits
        found[cell.task.name] = Record(line(config, bits), "x")
    made = make_table(table, found)
    mean = {row: (right[row, 0] / 2 + right[row, 1] / 2) for row in ("softmax", "lace")}
    entry = made.entries["lace", "svhn"]
    assert entry.interval == pytest.approx(mean_interval(100 * mean["lace"]))
    expected = mean_interval(100 * (mean["lace"] - mean["softmax"]))
    assert entry.gain_interval == pytest.approx(expected)

    # Other images can't be paired; the means still can.
    name = next(name for name in found if "-lace-" in name)
    found[name].line["data_digest"] = "other"
    again = make_table(table, found).entries["lace", "svhn"]
    assert again.gain_interval is None
    assert again.gain == pytest.approx(entry.gain)


def test_ranks_follow_what_is_shown(experiment):
    table = load_experiment("table1").select(datasets=["svhn"], seeds=1)
    values = {"lace": 95.004, "amc": 94.996, "softmax": 94.5, "center": 94.501}
    found = make_table(table, records(table, lambda r, c, s: values.get(r), images=100_000))
    ranks = {entry.row: entry.rank for entry in found.column("svhn")}
    assert ranks == {
        **dict.fromkeys(ranks),
        **{"lace": 1, "amc": 1, "softmax": 2, "center": 2},
    }
    lowest = experiment(GRID.replace("label: Accuracy", "best: lowest"))
    found = make_table(lowest, records(lowest, scatter))
    assert [entry.rank for entry in found.column("accuracy")] == [1, 2]
    none = experiment(GRID.replace("label: Accuracy", "best: none"))
    found = make_table(none, records(none, scatter))
    assert [entry.rank for entry in found.column("accuracy")] == [None, None]


def test_few_and_failed_seeds_are_said(experiment):
    grid = experiment()
    found = records(grid, scatter)
    name = next(name for name in found if name.endswith("s1") and "-lace-" in name)
    config = found[name].line["config"]
    found[name] = Record({"status": "failed", "error": "no", "config": config}, f"runs/{name}")
    table = make_table(grid, found)
    lace = table.entries["lace", "accuracy"]
    assert (len(lace.values), lace.wanted, lace.deviation, lace.test) == (1, 2, None, None)
    assert lace.unfinished == (f"runs/{name} (failed)",)
    for form in ("terminal", "markdown", "html"):
        text = render(table, form, width=200)
        assert "(n = 1)" in text
        assert "1 run failed or cut: listed, but not counted." in text
    assert f"runs/{name} (failed)" in render(table, "markdown")


def test_a_row_that_asks_for_fewer_seeds_says_so():
    controls = load_experiment("controls").select(datasets=["cifar10"])
    table = make_table(controls, records(controls, lambda row, column, seed: 90.0 + seed))
    assert table.entries["lace-one-vs-all", "cifar10"].wanted == 1
    shown = {row[0].main: row[1].main for row in summary_sheet(table).rows}
    assert shown["LACE, a background for each class, shrinkage .1"] == "90.00 (n = 1)"
    assert shown["LACE"] == "91.00 ± 1.00"


def test_curves_are_those_of_the_finished_runs_by_column_and_row():
    table = load_experiment("table1").select(
        datasets=["svhn", "cifar10"], methods=["softmax", "lace"], seeds=2
    )
    found = records(table, lambda row, column, seed: 90.0 if column == "svhn" else None)
    for name, record in found.items():
        record.line["validation"] = {"loss": [1.0], "accuracy": [len(name)]}
    cut = next(name for name in found if "-lace-" in name)
    found[cut].line["status"] = "cut"
    left = {name: [len(name)] for name in found}
    assert collect_curves(table, found) == {
        "SVHN": {
            "Softmax": [left[name] for name in found if "-softmax-" in name],
            "LACE": [left[name] for name in found if "-lace-" in name and name != cut],
        }
    }
    with pytest.raises(ValueError, match="there is no finished run of table1 to draw"):
        collect_curves(table, {})
    # All columns of Table 2 are of the same runs, and so are its rows before and after whitening.
    table = load_experiment("table2")
    found = records(table, lambda row, column, seed: 90.0)
    for record in found.values():
        record.line["validation"] = {"loss": [1.0], "accuracy": [50.0]}
    assert list(collect_curves(table, found)) == ["fashion_mnist"]
    assert list(collect_curves(table, found)["fashion_mnist"]) == [
        *("Softmax", "ArcFace", "CosFace", "SphereFace", "AMC", "Center loss"),
        *("LACE as published", "LACE, learned background", "LACE, total covariance", "LACE"),
    ]


def test_curves_without_a_name_of_their_own_are_an_error(experiment):
    grid = experiment(GRID.replace("label: LACE", "label: Softmax"))
    found = records(grid, scatter)
    with pytest.raises(ValueError, match=r"the line of .* has no validation curve to draw"):
        collect_curves(grid, found)
    for record in found.values():
        record.line["validation"] = {"loss": [1.0], "accuracy": [50.0]}
    with pytest.raises(ValueError, match="rows 'Softmax': give them labels of their own"):
        collect_curves(grid, found)


def test_scores_go_deeper_and_rows_choose_their_space():
    table = load_experiment("table2").select(methods=["lace", "lace-whitened"], seeds=1)
    cell = table.cells()[0]
    spaces = {"raw_sphere": {"silhouette": 0.5}, "whitened_sphere": {"silhouette": 0.25}}
    found = {cell.task.name: Record(line(cell.task.config, [1], clusters=spaces), "x")}
    made = make_table(table, found)
    assert made.entries["lace", "silhouette"].mean == 0.5
    assert made.entries["lace-whitened", "silhouette"].mean == 0.25
    assert made.entries["lace", "homogeneity"].mean is None
    assert made.entries["lace", "silhouette"].interval is None


def test_csv_holds_every_number_unrounded(experiment):
    grid = experiment()
    table = make_table(grid, records(grid, scatter))
    rows = list(csv.DictReader(io.StringIO(render(table, "csv"))))
    assert [(row["row"], row["column"]) for row in rows] == [
        *(("softmax", "accuracy"), ("lace", "accuracy"))
    ]
    for row in rows:
        entry = table.entries[row["row"], row["column"]]
        assert float(row["mean"]) == entry.mean
        assert list(map(float, row["values"].split())) == list(entry.values.values())
        assert row["runs"].split() == list(entry.sources)
    assert (rows[0]["published"], rows[0]["published_deviation"]) == ("90.5", "0.5")
    assert rows[1]["published"] == ""


NASTY = GRID.replace("label: LACE", r"label: 'a|b <i>&_*$%\x#~^{'")


def test_every_format_shows_the_numbers_and_escapes_the_rest(experiment):
    grid = experiment(NASTY)
    table = make_table(grid, records(grid, scatter))
    texts = {form: render(table, form, width=200) for form in FORMATS}
    for form in ("terminal", "markdown", "latex", "html"):
        assert texts[form].count("90.05 ± 0.49" if form != "latex" else r"90.05 $\pm$ 0.49") == 2
    assert "published 90.50 ± 0.50" in texts["terminal"]
    assert r"a|b <i>&_*$%\x#~^{" in texts["terminal"]
    assert "**90.05 ± 0.49**" in texts["markdown"]
    assert "<u>87.90 ± 0.99</u><br>published 90.50 ± 0.50" in texts["markdown"]
    assert r"\textbf{90.05 $\pm$ 0.49}" in texts["latex"]
    rows = texts["latex"].partition(r"\midrule")[2].splitlines()
    place = rows.index(r"Softmax & \underline{87.90 $\pm$ 0.99} \\")
    assert rows[place + 1 : place + 3] == [
        r" & {\scriptsize published 90.50 $\pm$ 0.50} \\",
        r"\addlinespace",
    ]
    assert "$-$2.60" in texts["latex"]
    assert (
        r"a$|$b $<$i$>$\&\_*\$\%\textbackslash{}x\#\textasciitilde{}\textasciicircum{}\{"
        in (texts["latex"])
    )
    for sheet in texts["latex"].split(r"\midrule")[1:]:
        body = sheet.partition(r"\bottomrule")[0].strip().splitlines()
        body = [row for row in body if row != r"\addlinespace"]
        assert all(row.endswith(r" \\") for row in body)
        assert len({row.replace(r"\&", "").count("&") for row in body}) == 1
    for sheet in texts["markdown"].split("\n\n"):
        if sheet.startswith("|"):
            bars = {row.replace("\\|", "").count("|") for row in sheet.splitlines()}
            assert len(bars) == 1


def test_brackets_are_neither_markup_nor_lengths(experiment):
    text = GRID.replace("label: LACE", "label: '[bold]L'").replace("Accuracy", "'[/x]'")
    grid = experiment(text.replace("title: Two", "source: 'a|b_<i>'\ntitle: A*B*"))
    table = make_table(grid, records(grid, scatter))
    texts = {form: render(table, form, width=200) for form in FORMATS}
    assert texts["terminal"].count("[/x]") == 3
    assert texts["terminal"].count("[bold]L") == 2
    # After a line's end LaTeX takes a bracket for a length.
    assert "\n{[}bold]L & " in texts["latex"]
    assert r"<br>a\|b\_\<i> 90.50" in texts["markdown"]
    assert texts["markdown"].startswith(r"**A\*B\* heads**")


def test_a_score_that_no_run_has_is_said(experiment):
    wrong = GRID.replace("label: Accuracy", "label: Accuracy, score: clusters.raw.fisher")
    grid = experiment(wrong)
    said = "Accuracy: none of its finished runs has a clusters.raw.fisher."
    assert said in make_table(grid, records(grid, scatter)).notes
    assert said not in make_table(grid, {}).notes
    plain = experiment(GRID)
    assert not any("none of" in note for note in make_table(plain, records(plain, scatter)).notes)


def test_runs_at_work_are_neither_failed_nor_cut(experiment):
    grid = experiment()
    found = records(grid, scatter)
    working, cut, *_ = found
    found[working].line["status"] = "running"
    table = make_table(grid, found)
    assert table.notes[-1] == "1 run at work: not counted yet."
    assert not any("failed or cut" in note for note in table.notes)
    found[cut].line["status"] = "cut"
    both = make_table(grid, found)
    assert both.notes[-2:] == (
        "1 run failed or cut: listed, but not counted.",
        "1 run at work: not counted yet.",
    )
    shown = render(both, "csv")
    assert f"{cut} (cut)" in shown
    assert working not in shown


def test_cells_that_were_not_chosen_are_left_empty(experiment):
    grid = experiment(
        "settings: {data: svhn, epochs: 2}\nseeds: 1\n"
        "columns: {own: {}, digits: {settings: {data: digits}}}\n"
        "rows: {digits: {settings: {data: digits}}, any: {}}\n"
    ).select(datasets=["digits"])
    cells = {(cell.row, cell.column): cell.task.config.data for cell in grid.cells()}
    assert set(cells) == {("digits", "own"), ("digits", "digits"), ("any", "digits")}
    assert set(cells.values()) == {"digits"}
    table = make_table(grid, records(grid, lambda row, column, seed: 50.0))
    means = [[table.entries[r.name, c.name].mean for c in grid.columns] for r in grid.rows]
    assert means == [[50.0, 50.0], [None, 50.0]]


class Balanced(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.open, self.text, self.links = [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        if tag != "br":
            self.open.append(tag)
        self.links += [value for name, value in attributes if name == "href"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_html_is_balanced_escaped_and_links_to_the_runs(experiment):
    grid = experiment(NASTY)
    found = records(grid, scatter)
    page = Balanced(render(make_table(grid, found), "html"))
    assert r"a|b <i>&_*$%\x#~^{" in page.text
    assert len(page.links) == 2
    assert set(page.links) <= {record.source for record in found.values()}
    assert any(text.endswith("-s0,1") for text in page.text)


def test_the_terminal_is_bold_and_underlined_where_it_can_be(experiment):
    grid = experiment()
    table = make_table(grid, records(grid, scatter))
    styled, plain = render(table, styled=True, width=200), render(table, width=200)
    assert "\x1b[1m" in styled
    assert "\x1b[4m" in styled
    assert "\x1b" not in plain
    assert max(map(len, render(table, width=60).splitlines())) <= 60


def test_an_unknown_format_names_the_nearest(experiment):
    with pytest.raises(ValueError, match="unknown format 'markdwn': did you mean 'markdown'"):
        render(make_table(experiment(), {}), "markdwn")


def test_an_empty_table_shows_what_was_published():
    text = render(make_table(load_experiment("table1"), {}), "markdown")
    assert "–<br>paper 70.03 ± 0.90" in text
    assert json.dumps(text)


def test_a_grid_names_the_source_of_what_was_published(experiment):
    grid = experiment("source: an earlier report\n" + GRID)
    text = render(make_table(grid, records(grid, scatter)), "markdown")
    assert "<br>an earlier report 90.50 ± 0.50" in text
    assert "| an earlier report | difference |" in text
    for name in experiment_names():
        shipped = load_experiment(name)
        if any(row.published for row in shipped.rows):
            assert shipped.source in ("paper", "elsewhere")


def test_latex_says_what_it_needs_and_nothing_breaks_its_comments(experiment):
    grid = experiment(GRID.replace("title: Two heads", "title: |\n  Two\n  heads"))
    text = render(make_table(grid, records(grid, scatter)), "latex")
    head = text.partition(r"\begin")[0]
    assert all(line.startswith("%") for line in head.split("\n") if line)
    assert "% Two heads\n" in head
    assert r"\usepackage{booktabs}" in head


def test_links_lead_from_the_folder_of_the_page(experiment):
    grid = experiment()
    found = records(grid, scatter)
    here = Balanced(render(make_table(grid, found), "html"))
    there = Balanced(render(make_table(grid, found), "html", folder="pages/mine"))
    assert there.links == [f"../../{link}" for link in here.links]


def test_a_run_of_several_columns_that_failed_is_one_run(experiment):
    grid = experiment(GRID.replace("{label: Accuracy}", "{label: A}\n  loss: {score: test_loss}"))
    found = records(grid, scatter)
    name = next(iter(found))
    found[name] = Record({"status": "cut", "config": found[name].line["config"]}, f"runs/{name}")
    assert "1 run failed or cut" in render(make_table(grid, found), "markdown")


@pytest.mark.parametrize("width", [80, 100, 240])
@pytest.mark.parametrize("name", ["table1", "robust", "strong"])
def test_every_part_of_a_wide_table_names_its_rows_and_cuts_no_heading(name, width):
    experiment = load_experiment(name)
    table = make_table(experiment, read_lines(RESULTS))
    summary = render(table, "terminal", width=width).partition(" method ")[0]
    lines = summary.splitlines()
    parts = [n for n, line in enumerate(lines) if line.startswith(" ──")]
    for start in parts:
        assert lines[start + 1].startswith(" Softmax ")
    words = set(summary.split())
    for column in experiment.columns:
        assert {*column.label.split()} <= words


def test_a_narrow_terminal_gets_whole_numbers_in_several_tables():
    table = make_table(load_experiment("table1"), read_lines(RESULTS / "table1.jsonl"))
    said = render(table, "terminal", width=80)
    assert max(map(len, said.splitlines())) <= 80
    assert not [line for line in said.splitlines() if line.rstrip().endswith(("±", "[", ","))]
    for number in ("88.77 ± 1.03", "paper 66.86 ± 0.76", "[88.27, 89.27]", "+3.29 [2.75, 3.83]"):
        assert number in said
    assert " p over " in said


def test_latex_has_a_minus_in_brackets_too():
    table = make_table(load_experiment("table1"), read_lines(RESULTS / "table1.jsonl"))
    text = render(table, "latex")
    assert "+0.18 {[}$-$0.17, 0.54]" in text
    assert not re.search(r"[\s[}]-\d", text)
