"""The catalogue of measures: complete, as documented, and open to measures of one's own."""

import json
import re
from pathlib import Path

import pytest
from evaluation.runs import copied, trained
from typer.testing import CliRunner

from torchlace.cli import app
from torchlace.evaluation import Measure, inspect, measures, register
from torchlace.evaluation.measures import CLUSTERS, TRAINING, figure, line_names, line_scores
from torchlace.experiments import load_experiment
from torchlace.report import write_report
from torchlace.training import Run

DOCUMENTED = Path(__file__).parents[2] / "docs" / "evaluation.md"
REGISTRY = register.__globals__["_REGISTRY"]
# What the scores hold for figures and tables beside measures.
DETAILS = r"confusion|class_accuracy|reliability|made_from|.*(histogram|spectrum)|angles.*std"


@pytest.fixture
def margin():
    calls = []

    @register("margin", better=1, digits=1)
    def margin(run):
        """Mean distance of the two largest logits."""
        calls.append(run.path)
        first, second = run.logits.topk(2).values.unbind(1)
        return (first - second).mean()

    yield calls
    REGISTRY.forget("margin")


def leaves(value, path=""):
    if isinstance(value, dict):
        return {name for key, each in value.items() for name in leaves(each, f"{path}.{key}")}
    return {path[1:]}


def test_it_says_what_every_figure_of_a_run_is():
    found = inspect(trained("lace"), device="cpu")
    figures = {name for name in leaves(found.scores) if not re.fullmatch(f"({DETAILS}).*", name)}
    assert figures == {each.name for each in measures()}
    assert all(each.value(found.figures) is not None for each in measures())
    result = {each.name for each in TRAINING} - {"step_ms", "last_val_accuracy", "peak_memory_mib"}
    assert result <= set(found.result)


def test_the_documentation_shows_the_catalogue():
    text = DOCUMENTED.read_text()
    inside = {f"clusters.raw.{each.name}" for each in CLUSTERS}
    single = [m for m in measures() if not m.name.startswith("clusters.")]
    assert inside <= {each.name for each in measures()}
    for each in (*single, *CLUSTERS, *TRAINING):
        better = {1: "more", -1: "less", 0: "–"}[each.better]
        row = f"| `{each.name}` | {each.heading} | {each.about} | {better} |".replace("\u00a0", " ")
        assert row in text.replace("\u00a0", " "), row


def test_lines_of_results_hold_what_tables_may_show():
    scores = inspect(trained("lace"), device="cpu").scores
    line = line_scores(scores)
    assert line["clusters"] == scores["clusters"]
    assert line["calibrated_ece"] == scores["calibrated_ece"]
    assert "accuracy" not in line  # there it is test_accuracy
    assert {"test_accuracy", "clusters.raw_sphere.fisher", "last_val_accuracy"} <= {*line_names()}
    assert leaves(line) <= {*line_names()}


def test_one_s_own_measure_is_everywhere(margin, tmp_path, monkeypatch):
    run = copied("lace", tmp_path)
    found = inspect(run, device="cpu")
    value = found.scores["margin"]
    assert value > 0
    assert Run(run).read_json(run / "evaluation.json")["margin"] == value
    inspect(run, device="cpu")
    assert margin == [run]

    monkeypatch.setenv("COLUMNS", "200")
    runner = CliRunner()
    shown = runner.invoke(app, ["evaluate", str(run)]).output
    assert re.search(rf"Margin *│ +{value:.1f}", shown)
    (row,) = json.loads(runner.invoke(app, ["compare", str(run), "--json"]).output)
    assert row["margin"] == value
    assert "Margin" in runner.invoke(app, ["compare", str(run)]).output
    write_report([run], tmp_path / "page.html", method="pca")
    page = (tmp_path / "page.html").read_text().partition('id="payload"')[0]
    assert "Mean distance of the two largest logits." in page

    grid = tmp_path / "mine.yaml"
    grid.write_text("rows: {lace: {}}\ncolumns: {digits: {score: margin}}\n")
    assert load_experiment(grid).columns[0].score == "margin"
    assert line_scores(found.scores)["margin"] == value


def test_a_measure_that_is_added_later_is_computed_alone(tmp_path, margin):
    REGISTRY.forget("margin")
    run = copied("softmax", tmp_path)
    before = inspect(run, device="cpu").scores
    register("always", lambda run: None, label="Always", unit="%")
    try:
        after = inspect(run, device="cpu").scores
        assert after.pop("always") is None
        assert after == before
        assert measures()[-1] == Measure(
            "always", "Always", unit="%", short="Always", compute=measures()[-1].compute
        )
    finally:
        REGISTRY.forget("always")


def test_a_package_may_offer_a_measure_with_all_that_belongs_to_it():
    REGISTRY.register("mine", Measure("", "Mine", "What it is", -1, compute=lambda run: 3))
    try:
        assert (measures()[-1].name, measures()[-1].label) == ("mine", "Mine")
        assert inspect(trained("softmax"), device="cpu").scores["mine"] == 3
    finally:
        REGISTRY.forget("mine")
        inspect(trained("softmax"), device="cpu", refresh=True)


@pytest.mark.parametrize("name", ["accuracy", "clusters", "test_loss", "seed", "a.b", "two words"])
def test_names_that_results_use_are_refused(name):
    with pytest.raises(ValueError, match="a word that results don't use yet, got"):
        register(name, lambda run: 0.0)


def test_dots_go_deeper_and_nowhere_is_none():
    assert figure({"a": {"b": 1}}, "a.b") == 1
    for name in ("a", "a.b.c", "c", "a.c"):
        assert figure({"a": {"b": 1}}, name) is None
