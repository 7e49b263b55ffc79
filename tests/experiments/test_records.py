import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from experiments.grids import line
from training.rewriting import FACTS

from torchlace.experiments import (
    collect_records,
    grid_status,
    load_experiment,
    make_table,
    read_lines,
    to_lines,
    unique_tasks,
)
from torchlace.experiments.cells import Task
from torchlace.runs import Lock
from torchlace.runs.files import LOCK
from torchlace.training import Run, RunError, TrainConfig

RESULTS = Path(__file__).parents[2] / "results"
CONFIG = TrainConfig(backbone="small-cnn", epochs=2)
RESULT = {
    **{"test_accuracy": 75.0, "val_accuracy": 80.0, "epochs": 2, "best_epoch": 2, "seconds": 3.0},
    **{"device": "cpu", "versions": {}, "data_digest": "d", "test_images": 4, "test_right": "4A=="},
}


def write(file, *lines):
    file.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return file


def start(folder, config=CONFIG, epochs=2):
    run = Run(folder / Task(config).name)
    run.path.mkdir(parents=True)
    run.start(config, FACTS)
    row = {"val_loss": 1 / 3, "val_accuracy": 80.0, "seconds": 1.5, "images_per_second": 512.0}
    run.write_metrics([{"epoch": epoch, **row} for epoch in range(1, epochs + 1)])
    return run


def plain(line):
    """Whether nothing but data, head and seed differs from Table 1."""
    wanted = {"protocol": "native", "label_smoothing": 0, "batch_size": 256, "schedule": "constant"}
    found = {name: line["config"][name] for name in wanted}
    return found == wanted and (line["backbone"], line["config"]["epochs"]) == ("resnet18", 300)


def row_of(line):
    """The row of Table 1 that a line is of, by its head and the options of it."""
    total = {"background": "total", "scale": "adacos", "bias": False}
    options = line["config"]["head_options"]
    rows = {
        "lace": {"lace": {}, "lace-total": total},
        "lace-learned": {"lace-learned": {"scale": "adacos"}},
    }
    known = rows.get(line["head"], {line["head"]: {}})
    return next((row for row, expected in known.items() if expected == options), None)


def test_committed_results_fill_their_table():
    committed = read_lines(RESULTS)
    listed = [
        json.loads(text)
        for file in RESULTS.glob("*.jsonl")
        for text in file.read_text().split("\n")
        if text
    ]
    table = load_experiment("table1")
    found = collect_records(unique_tasks(table.cells()), "table1", None, committed)
    made = make_table(table, found)
    for column in table.columns:
        for entry in made.column(column.name):
            expected = {
                each["seed"]: each["test_accuracy"]
                for each in listed
                if (each["dataset"], row_of(each)) == (column.name, entry.row)
                and each["status"] == "finished"
                and plain(each)
            }
            assert entry.values == expected
            for source in entry.sources:
                file, _, number = source.rpartition(":")
                assert json.loads(Path(file).read_text().splitlines()[int(number) - 1])


def test_every_run_that_was_started_has_a_line(tmp_path):
    configs = [dataclasses.replace(CONFIG, seed=seed, root="/data") for seed in range(4)]
    start(tmp_path, configs[0]).finish(RESULT)
    start(tmp_path, configs[1]).failure_path.write_text("RunError: the loss became nan\n")
    start(tmp_path, configs[2], epochs=1)
    found = collect_records([Task(config) for config in configs], "mine", tmp_path)
    text = to_lines(found.values())
    lines = [json.loads(each) for each in text.splitlines()]
    assert [each["status"] for each in lines] == ["finished", "failed", "cut"]
    assert [each["seed"] for each in lines] == [0, 1, 2]
    assert all(each["config"]["root"] is None for each in lines)
    assert lines[0]["test_accuracy"] == 75.0
    assert lines[0]["step_ms"] == 1000 * 256 / 512
    assert lines[0]["validation"] == {"loss": [0.333333] * 2, "accuracy": [80.0] * 2}
    assert lines[1]["error"] == "RunError: the loss became nan"
    assert (lines[2]["epochs"], lines[2]["seconds"]) == (1, 1.5)
    assert "test_accuracy" not in lines[2]

    committed = tmp_path / "mine.jsonl"
    committed.write_text(text)
    again = read_lines(committed)
    assert {name: record.line for name, record in again.items()} == {
        name: record.line for name, record in found.items()
    }
    assert to_lines(again.values()) == text


def test_a_run_at_work_has_no_line_and_is_not_cut(tmp_path):
    other = dataclasses.replace(CONFIG, seed=1)
    lock = Lock(start(tmp_path, CONFIG).path, LOCK)
    start(tmp_path, other)
    tasks = [Task(CONFIG), Task(other)]
    assert lock.acquire()
    found = collect_records(tasks, "mine", tmp_path)
    assert [record.line["status"] for record in found.values()] == ["running", "cut"]
    assert [json.loads(each)["seed"] for each in to_lines(found.values()).splitlines()] == [1]
    lock.release()
    found = collect_records(tasks, "mine", tmp_path)
    assert [record.line["status"] for record in found.values()] == ["cut", "cut"]


def test_a_line_stands_for_a_run_that_is_not_here(tmp_path):
    other = dataclasses.replace(CONFIG, seed=1)
    tasks = [Task(CONFIG), Task(other)]
    results = read_lines(write(tmp_path / "a.jsonl", line(CONFIG, [1, 0]), line(other, [1, 0])))
    start(tmp_path / "runs", CONFIG).finish(RESULT)
    start(tmp_path / "runs", other)
    found = collect_records(tasks, "mine", tmp_path / "runs", results)
    # The finished run here wins; a run that is not finished does not hide a finished line.
    assert [record.line["test_accuracy"] for record in found.values()] == [75.0, 50.0]


def test_old_lines_without_a_backbones_name_are_known(tmp_path):
    config = TrainConfig(data="cifar10", head="lace")
    assert config.backbone == "auto"
    found = read_lines(write(tmp_path / "a.jsonl", line(config, [1])))
    assert list(found) == ["cifar10-resnet18-lace-native-s0"]


def test_the_same_run_in_two_files_counts_once_and_two_results_are_an_error(tmp_path):
    clusters = {"raw": {"silhouette": 0.5}}
    write(tmp_path / "a.jsonl", line(CONFIG, [1, 0]))
    write(tmp_path / "b.jsonl", line(CONFIG, [1, 0], clusters=clusters))
    write(tmp_path / "c.jsonl", {**line(CONFIG, [1, 0]), "status": "cut"})
    (record,) = read_lines(tmp_path).values()
    assert record.score("clusters.raw.silhouette") == 0.5
    assert record.score("clusters.raw.silhouette.deeper") is None
    write(tmp_path / "b.jsonl", line(CONFIG, [1, 1]))
    with pytest.raises(ValueError, match=r"a.jsonl:1 and \S*b.jsonl:1 are different results"):
        read_lines(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"a.jsonl:1 is not a line of results"),
        ("{}\n", r"a.jsonl:1 is not a line of results: it has no config"),
        ("3\n", r"a.jsonl:1 is not a line of results"),
        ('{"config": {"hed": 1}, "status": "cut"}\n', "unknown setting in .*a.jsonl:1 'hed'"),
        ('{"config": {"epochs": 0}, "status": "cut"}\n', "a.jsonl:1: epochs must be at least 1"),
    ],
)
def test_a_wrong_line_is_named(text, message, tmp_path):
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_lines(tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"test_accuracy": 51.0}, "test_accuracy is 51.0, but 50.0 by test_right"),
        ({"test_accuracy": float("nan")}, "test_accuracy is nan, but 50.0 by test_right"),
        ({"test_accuracy": "50"}, "test_accuracy must be a number, got '50'"),
        ({"seconds": "1"}, "seconds must be a number, got '1'"),
        ({"seconds": None, "data_digest": None}, "it is finished and lacks data_digest, seconds"),
        ({"test_right": "!!!!"}, "is not a line of results"),
        ({"test_right": 3}, "is not a line of results"),
        ({"test_images": 9}, "test_right has 8 bits for 9 test images"),
        ({"test_images": 0}, "test_right has 8 bits for 0 test images"),
        ({"status": "finishd"}, "unknown status 'finishd': did you mean 'finished'"),
        ({"config": None}, "config must hold settings, got None"),
        ({"data_digest": [1]}, r"data_digest must be a text, got \[1\]"),
        ({"validation": 3}, "validation must hold names and values, got 3"),
        ({"validation": {"accuracy": 3}}, "accuracy of validation must be a list of numbers"),
        ({"validation": {"accuracy": ["a"]}}, "accuracy of validation must be a list of numbers"),
        ({"embeddings": 3}, "embeddings must hold names and values, got 3"),
    ],
)
def test_a_line_that_contradicts_itself_is_not_believed(change, message, tmp_path):
    write(tmp_path / "a.jsonl", line(CONFIG, [1, 0]), {**line(CONFIG, [1, 0]), **change})
    with pytest.raises(ValueError, match=f"a.jsonl:2 .*{message}"):
        read_lines(tmp_path / "a.jsonl")


def test_a_line_of_other_bytes_is_named(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(json.dumps(line(CONFIG, [1])).encode() + b"\n\xff\xfe\n")
    with pytest.raises(ValueError, match=r"a.jsonl:2 is not a line of results"):
        read_lines(tmp_path / "a.jsonl")


def test_no_results_are_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="there are no results in"):
        read_lines(tmp_path)
    with pytest.raises(FileNotFoundError, match="there are no results in"):
        read_lines(tmp_path / "nowhere.jsonl")


def test_a_damaged_result_is_named(tmp_path):
    run = start(tmp_path)
    run.result_path.write_text("{")
    with pytest.raises(RunError, match=r"result.json is damaged.* a grid once .* is removed"):
        collect_records([Task(CONFIG)], "mine", tmp_path)
    run.finish({"test_accuracy": 75.0, "epochs": 2})
    for look in (
        lambda: grid_status([Task(CONFIG)], tmp_path),
        lambda: collect_records([Task(CONFIG)], "mine", tmp_path),
    ):
        with pytest.raises(RunError, match=r"result.json .*it lacks .*seconds"):
            look()


def test_a_damaged_curve_is_named(tmp_path):
    run = start(tmp_path)
    run.finish(RESULT)
    run.metrics_path.write_text(run.metrics_path.read_text()[:-10])
    with pytest.raises(RunError, match=r"metrics.csv is damaged.* a grid once .* is removed"):
        collect_records([Task(CONFIG)], "mine", tmp_path)


def test_accuracies_follow_from_the_bits():
    for record in read_lines(RESULTS).values():
        if record.finished:
            right = record.right()
            assert set(np.unique(right)) <= {0.0, 1.0}
            assert 100 * right.mean() == pytest.approx(record.line["test_accuracy"], abs=1e-9)
