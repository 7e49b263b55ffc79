import json
import shutil

import pytest
from cli.inside import torchlace
from evaluation.runs import copied
from training import processes


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    for name in ("lace", "softmax"):
        copied(name, folder)
    (folder / "young").mkdir()
    shutil.copy(folder / "lace" / "config.yaml", folder / "young")
    shutil.copytree(folder / "softmax", folder / "broken")
    (folder / "broken" / "best.safetensors").write_bytes(b"nothing")
    return folder


def test_a_row_for_every_run(place):
    done = torchlace("compare", "lace", "softmax", "--json", folder=place)
    assert (done.code, done.err) == (0, "")
    rows = done.json()
    assert [row["run"] for row in rows] == ["lace", "softmax"]
    for row in rows:
        scores = json.loads((place / row["run"] / "evaluation.json").read_text())
        result = json.loads((place / row["run"] / "result.json").read_text())
        names = ("accuracy", "top5_accuracy", "calibrated_loss", "calibrated_brier")
        whitened = scores["clusters"].get("whitened", {}).get("silhouette")
        assert row == {
            "run": row["run"],
            **{name: scores[name] for name in (*names, "calibrated_ece")},
            "clusters.raw.silhouette": scores["clusters"]["raw"]["silhouette"],
            "clusters.whitened.silhouette": whitened,
            **{name: result[name] for name in ("epochs", "seconds", "parameters")},
        }
    assert rows[0]["clusters.whitened.silhouette"] is not None
    assert rows[1]["clusters.whitened.silhouette"] is None


def test_the_table_shows_the_same(place):
    rows = torchlace("compare", "lace", "softmax", "--json", folder=place).json()
    lines = torchlace("compare", "lace", "softmax", folder=place).out.splitlines()
    for row in rows:
        (line,) = (line for line in lines if f"│ {row['run']} " in line)
        assert f"{row['accuracy']:.2f}" in line
        assert f"{row['calibrated_loss']:.3f}" in line
        assert f"{100 * row['calibrated_ece']:.1f}" in line
        assert f"{row['clusters.raw.silhouette']:.3f}" in line
        assert f"{row['parameters']:,}" in line


def test_on_a_narrow_terminal_it_turns_instead_of_breaking_words(place):
    columns = {"COLUMNS": "80"}
    rows = torchlace("compare", "lace", "softmax", "--json", folder=place).json()
    shutil.copytree(place / "lace", place / "runs" / "a rather long name of a run with lace")
    shutil.copytree(place / "softmax", place / "runs" / "a-rather-long-name-of-a-softmax-run")
    shutil.copytree(place / "softmax", place / "runs" / "other-softmax-run-with-a-name-as-long")
    shown = torchlace("compare", "lace", "softmax", "runs", folder=place, environment=columns).out
    assert max(map(len, shown.splitlines())) <= 80
    for word in ("lace", "softmax", "top-5", "seconds", "params"):
        assert f" {word} " in shown
    assert "runs/other-softmax-run-with-a-name-as-long" in shown
    assert shown.count(f"{rows[0]['parameters']:,}") >= 2


def test_runs_that_can_t_be_examined_are_rows_that_say_so(place):
    runs = ("young", "lace", "broken", "nowhere")
    done = torchlace("compare", *runs, "--json", folder=place)
    assert done.code == 0
    young, lace, broken, nowhere = done.json()
    assert "accuracy" in lace
    assert young == {
        "run": "young",
        "error": "young is not finished: the command that trains it goes on with it",
    }
    assert broken["error"].startswith("broken/best.safetensors is damaged")
    assert nowhere["error"] == "nowhere holds no run: there is no config.yaml"
    table = torchlace("compare", *runs, folder=place)
    assert (table.code, table.err) == (0, "")
    for number, row in enumerate((young, broken, nowhere), start=1):
        assert f"│ {row['run']} ({number}) " in table.out
        assert f"\n({number}) {row['error']}\n" in table.out


def test_nothing_to_compare_is_a_failure(place):
    done = processes.torchlace("compare", "young", "nowhere", folder=place)
    assert done.code == 1
    assert "(2) nowhere holds no run" in done.out
    assert processes.torchlace("compare", folder=place).code == 2


def test_numbers_are_whole_on_a_narrow_terminal(place, monkeypatch):
    """Eighty columns are too few for lines between the cells."""
    from typer.testing import CliRunner

    from torchlace.cli import app

    monkeypatch.chdir(place)
    runner = CliRunner()
    out = runner.invoke(app, ["compare", "lace", "softmax"], env={"COLUMNS": "80"}).output
    rows = json.loads(runner.invoke(app, ["compare", "lace", "softmax", "--json"]).output)
    assert "│" not in out
    assert max(map(len, out.splitlines())) <= 80
    for row in rows:
        (line,) = (line for line in out.splitlines() if line.startswith(row["run"]))
        assert line.split()[1] == f"{row['accuracy']:.2f}"
        assert line.split()[-1] == f"{row['parameters']:,}"
