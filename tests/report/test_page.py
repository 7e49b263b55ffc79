"""The page as text, and the command that writes it."""

import base64
import html
import json
import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pytest
from report.runs import MARKED, NAMES
from training.processes import torchlace
from training.rewriting import rewrite_settings

from torchlace._reporter import Reporter
from torchlace.report import write_report
from torchlace.report.page.drawing import UNIT
from torchlace.training import Run, RunError


class Outline(HTMLParser):
    """Elements that are opened and closed in order, and what they refer to."""

    void = frozenset({"meta", "link", "input", "br", "img"})

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.references, self.faults = [], [], [], []

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if "id" in values:
            self.ids.append(values["id"])
        self.references += [values[k] for k in ("aria-labelledby",) if k in values]
        if values.get("href", "").startswith("#"):
            self.references.append(values["href"][1:])
        elif "src" in values or values.get("href", "data:,") != "data:,":
            self.faults.append((tag, values))
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(tag)


def numbers(text, kind):
    return np.frombuffer(base64.b64decode(text), kind)


def payload(text):
    return json.loads(re.search(r'id="payload">(.*?)</script>', text, re.S).group(1))


def test_is_well_formed_and_refers_to_itself_only(made):
    outline = Outline()
    outline.feed(made.html)
    assert outline.faults == []
    assert outline.open == []
    assert len(outline.ids) == len(set(outline.ids))
    assert set(outline.references) <= set(outline.ids)


def test_plotly_is_there_once(made):
    assert made.html.count("plotly.js v") == 1


def test_shows_runs_and_says_why_others_are_not_shown(made):
    text = html.unescape(made.html)
    assert "3 runs are not shown" in text
    assert re.search(r"<b>unfinished</b>: .*unfinished is not finished", text)
    assert re.search(r"<b>other version</b>: .*of another version.*unheard_of", text)
    assert re.search(r"<b>nothing</b>: .*nothing holds no run", text)
    names = [run["name"] for part in payload(made.html) for run in part["runs"]]
    assert sorted(names) == sorted(["lace-0", "lace-1", "softmax-0", MARKED])


def test_figures_are_those_of_the_runs(made):
    digits, marked = payload(made.html)
    assert marked["classes"] == NAMES
    for drawn in digits["runs"]:
        run = Run(made.runs[drawn["name"]])
        result = run.result()
        assert drawn["chosen"] == result["best_epoch"]
        counts = np.zeros(100, int)
        cells, values = (numbers(drawn["confusion"][name], "<u4") for name in ("cells", "counts"))
        counts[cells] = values
        assert counts.sum() == 359
        right = np.trace(counts.reshape(10, 10))
        assert right / 3.59 == pytest.approx(result["test_accuracy"])
        assert len(drawn["history"]["epoch"]) == 3
    lace = next(bar for bar in digits["bars"] if bar["name"] == "lace")
    accuracies = [Run(made.runs[f"lace-{n}"]).result()["test_accuracy"] for n in (0, 1)]
    assert lace["mean"] == pytest.approx(np.mean(accuracies))
    assert lace["deviation"] == pytest.approx(np.std(accuracies, ddof=1))
    spread = f"{np.mean(accuracies):.2f}\xa0±\xa0{np.std(accuracies, ddof=1):.2f}"
    assert spread in made.html


def test_classes_have_other_colours_than_runs_and_both_two_for_light_and_dark(made):
    for part in payload(made.html):
        runs = {tuple(run["colour"]) for run in part["runs"]}
        classes = {tuple(colour) for colour in part["colours"]}
        for scheme in (0, 1):
            of_runs, of_classes = ({each[scheme] for each in some} for some in (runs, classes))
            assert not of_runs & of_classes
            assert len(of_classes) == len(part["classes"])


def test_a_comparison_has_two_runs(made):
    digits, _, marked = made.html.partition('id="d1-compare"')
    assert "<h3>Comparison</h3>" in digits
    assert marked.lstrip("> \n").startswith("<h3>Result</h3>")


def test_homogeneity_is_said_to_be_of_what(made):
    tables = re.split(r'id="d0-t-(\w+)"', made.html.partition('id="d1"')[0])
    found = dict(zip(tables[1::2], map(html.unescape, tables[2::2]), strict=True))
    assert "k-means homogeneity" in found["clusters"]
    assert "k-means completeness" in found["clusters"]


def test_runs_are_where_the_page_says_as_seen_from_it(made, tmp_path):
    page = tmp_path / "far" / "away" / "report.html"
    page.parent.mkdir(parents=True)
    write_report([made.runs["lace-0"]], page, method="pca")
    table = page.read_text().partition('id="d0-t-environment"')[2]
    where = html.unescape(re.findall(r'data-value="([^"]*)"', table)[1])
    assert (page.parent / where).resolve() == made.runs["lace-0"].resolve()


def test_no_name_is_markup(made):
    before_payload = made.html.partition('id="payload"')[0]
    assert "<script>window" not in before_payload
    assert "<i>marked" not in made.html
    assert "&lt;i&gt;marked&lt;i&gt;" in before_payload
    assert made.html.count("<script") == 3 + made.html.count("<script>window")


def test_a_page_is_replaced_whole_or_not_at_all(made, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("before")
    monkeypatch.setattr("torchlace.report.page._render", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_report([made.runs["lace-0"]], path, method="pca")
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
    assert path.read_text() == "before"


@pytest.mark.parametrize(
    ("runs", "where", "options", "said"),
    [
        ([], "report.html", {}, "at least one run"),
        (["x"], ".", {}, "is a folder"),
        (["x"], "none/report.html", {}, "no folder"),
        (["x"], "report.html", {"samples": 3}, "samples"),
        (["x"], "report.html", {"method": "lda"}, "tsne"),
    ],
)
def test_what_can_be_known_before_is_said_before(tmp_path, runs, where, options, said):
    with pytest.raises((ValueError, FileNotFoundError), match=said):
        write_report(runs, tmp_path / where, **options)


def test_features_too_narrow_for_a_sphere_still_make_a_page(tmp_path):
    from torchlace.training import TrainConfig, train

    train(TrainConfig(epochs=1, embedding=2, device="cpu"), tmp_path / "narrow")
    report = write_report([tmp_path / "narrow"], tmp_path / "report.html", device="cpu")
    assert report.shown == ["narrow"]
    assert 'data-plot="sphere"' not in report.path.read_text()


def test_pictures_are_left_out_where_the_data_are_gone(made, tmp_path):
    run = tmp_path / "gone"
    shutil.copytree(made.folder / MARKED, run)
    rewrite_settings(run / "config.yaml", lambda values: values.update(data="/gone.npz"))
    said = []

    class Lines(Reporter):
        def message(self, text):
            said.append(text)

    report = write_report([run], tmp_path / "report.html", method="pca", reporter=Lines())
    assert report.shown == ["gone"]
    assert any("no pictures" in line for line in said)
    assert "data:image/webp" not in report.path.read_text()


def test_the_command_writes_prints_and_keeps_its_output_apart(made, tmp_path):
    path = tmp_path / "out.html"
    arguments = ("report", made.runs["lace-0"], made.runs["unfinished"], "-o", path)
    done = torchlace(*arguments, "--samples", "60", folder=tmp_path)
    assert done.code == 0
    assert done.out == f"{path}\n"
    assert "unfinished: not shown: " in done.err
    digits = payload(path.read_text())[0]
    labels = numbers(digits["sample"]["labels"], "<u2")
    assert len(labels) == pytest.approx(60, abs=5)
    assert len(set(labels)) == 10
    points = numbers(digits["runs"][0]["spheres"]["whitened"]["points"], "<i2").reshape(-1, 3)
    np.testing.assert_allclose(np.linalg.norm(points / UNIT, axis=1), 1, atol=1e-4)


def test_nothing_to_show_is_a_sentence_and_no_page(made, tmp_path):
    done = torchlace("report", made.runs["unfinished"], "missing", folder=tmp_path)
    assert done.code == 1
    assert "unfinished is not finished" in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "report.html").exists()


def test_bad_options_are_a_line(made, tmp_path):
    done = torchlace("report", made.runs["lace-0"], "--method", "lda", folder=tmp_path)
    assert done.code == 1
    assert done.err.startswith("error: unknown method 'lda'")
    done = torchlace("report", made.runs["lace-0"], "-o", "no/where.html", folder=tmp_path)
    assert done.code == 1
    assert done.err.startswith("error: there is no folder no")


def test_open_hands_the_page_to_the_browser(made, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from torchlace.cli import app

    handed = []
    monkeypatch.setattr("typer.launch", handed.append)
    path = tmp_path / "report.html"
    options = ["-o", str(path), "--method", "pca", "--open"]
    done = CliRunner().invoke(app, ["report", str(made.runs["lace-0"]), *options])
    assert done.exit_code == 0
    assert handed == [path.as_uri()]


def test_whatever_is_wrong_with_a_run_the_others_are_shown(made, tmp_path, monkeypatch):
    from torchlace import evaluation

    real = evaluation.inspect
    reasons = iter([ValueError("odd"), PermissionError("kept out")])

    def inspect(path, **options):
        if path.name.startswith("bad"):
            raise next(reasons)
        return real(path, **options)

    monkeypatch.setattr(evaluation, "inspect", inspect)
    runs = [tmp_path / "bad1", made.runs["lace-0"], tmp_path / "bad2"]
    report = write_report(runs, tmp_path / "report.html", method="pca")
    assert report.shown == ["lace-0"]
    assert [each.reason for each in report.failed] == ["odd", "kept out"]


@pytest.mark.parametrize("rows", ["epoch,train_loss\n1,0.5\n", "epoch,train_loss,val_loss\n"])
def test_curves_of_another_version_are_said_to_be(made, tmp_path, rows):
    run = tmp_path / "old"
    shutil.copytree(made.runs["lace-0"], run)
    (run / "metrics.csv").write_text(rows)
    with pytest.raises(RunError, match=r"metrics\.csv"):
        write_report([run], tmp_path / "report.html", method="pca")
