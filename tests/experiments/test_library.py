import dataclasses
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from experiments.grids import GRID

from torchlace.evaluation import cluster_scores
from torchlace.evaluation.measures import line_names
from torchlace.experiments import experiment_names, load_experiment, unique_tasks
from torchlace.experiments.cells import run_name
from torchlace.experiments.engines import require_data
from torchlace.experiments.experiment import require_backbones
from torchlace.runs.config import EXECUTION
from torchlace.training import TrainConfig


@pytest.fixture
def grid(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(GRID)
    return path


@cache
def cells(experiment):
    return load_experiment(experiment).cells()


@cache
def names(experiment):
    return {task.name for task in unique_tasks(cells(experiment))}


def test_the_papers_experiments_have_their_size():
    sizes = {name: len(names(name)) for name in experiment_names()}
    assert sizes == {
        **{"table1": 10 * 5 * 3, "table2": 10 * 3, "table3": 11 * 5 * 3, "table4": 13 * 3},
        **{"strong": 11 * 6 * 3, "unknown": 4 * 2 * 3, "angular": 3 * 6 * 2},
        **{"figure2": 8, "figure3": 2, "cost": 7 * 2, "quick": 11 * 3},
        **{"controls": 3 * (5 * 3 + 2), "settings": 12 * 5 * 2, "limits": 8 * 3 * 2},
        **{"robust": 14 * 18 * 3, "incremental": 3 * 2 * 3},
    }


@pytest.mark.parametrize(("name", "runs"), [("ridge", 10 * 8), ("wide", 5 * 2 * 6)])
def test_the_examples_of_grids_of_ones_own_are_some(name, runs):
    assert len(names(Path(__file__).parents[2] / "examples" / f"{name}.yaml")) == runs


def test_tables_share_their_runs():
    table1 = names("table1")
    assert names("table2") < table1
    assert names("figure2") < table1
    assert names("figure3") < table1
    assert len(names("table4") & table1) == 12
    assert len(names("controls") & table1) == 3 * 3 * 3
    assert len(names("settings") & table1) == 5 * 2
    assert not (names("cost") | names("robust")) & table1


def test_a_run_that_several_cells_show_is_examined_if_any_needs_it():
    tasks = {task.name: task for task in unique_tasks(cells("figure3"))}
    assert all(task.inspect and len(task.embeddings) == 2 for task in tasks.values())
    table = unique_tasks(cells("table1"))
    assert {task.config.data for task in table if task.inspect} == {"fashion_mnist"}


def test_seeds_come_one_after_the_other():
    seeds = [cell.task.config.seed for cell in cells("table1")]
    assert seeds == sorted(seeds)


def test_seeds_begin_where_the_file_says(grid):
    assert {cell.task.config.seed for cell in cells("figure2")} == {1}
    assert {cell.task.config.seed for cell in cells("figure3")} == {2}
    grid.write_text(GRID + "first_seed: 5\n")
    experiment = load_experiment(grid)
    assert [cell.task.config.seed for cell in experiment.cells()] == [5, 5, 6, 6]
    more = experiment.select(seeds=3).cells()
    assert [cell.task.config.seed for cell in more] == [5, 5, 6, 6, 7, 7]


def test_all_rows_of_a_table_train_alike():
    same = ("protocol", "epochs", "patience", "batch_size", "optimizer", "lr")
    for name in experiment_names():
        trained = {}
        for cell in cells(name):
            settings = tuple(getattr(cell.task.config, setting) for setting in same)
            trained.setdefault(cell.column, set()).add(settings)
        assert {len(each) for each in trained.values()} == {1}


CHANGED = {
    **{"data": "svhn", "head": "softmax", "backbone": "resnet50", "protocol": "paper", "seed": 3},
    **{"head_options": {"mean": False}, "stem": "standard", "pretrained": True, "embedding": 64},
    **{"image_size": 32, "optimizer": "sgd", "lr": 0.1, "weight_decay": 0.1, "schedule": "cosine"},
    **{"epochs": 3, "patience": 3, "batch_size": 64, "validation": 0.2, "clip": 1.0, "ema": 0.9},
    **{"label_smoothing": 0.1, "class_weights": "balanced", "skip_bad": True},
}


def test_the_name_of_a_run_says_what_is_trained_and_nothing_else():
    base = TrainConfig(data="cifar10")
    fields = {field.name for field in dataclasses.fields(TrainConfig)}
    assert {*CHANGED, *EXECUTION} <= fields
    found = {run_name(dataclasses.replace(base, **{k: v})) for k, v in CHANGED.items()}
    assert len(found | {run_name(base)}) == len(CHANGED) + 1
    elsewhere = {"root": "/data", "device": "cpu", "precision": "32-true", "graph": False}
    elsewhere["compile"] = True
    assert run_name(dataclasses.replace(base, **elsewhere)) == run_name(base)
    assert all(set(name) <= set("-._") | set(map(chr, range(48, 123))) for name in found)


def test_seeds_of_one_setting_differ_in_the_last_number_only():
    config = TrainConfig(data="a/b c.csv", label_smoothing=0.1)
    first, second = (run_name(dataclasses.replace(config, seed=seed)) for seed in (0, 11))
    assert first.removesuffix("0") == second.removesuffix("11")
    assert run_name(dataclasses.replace(config, data="d/b c.csv")) != first


def test_a_selection(grid):
    table = load_experiment("table1")
    small = table.select(datasets=["svhn", "cifar10"], methods=["lace", "amc"], seeds=2)
    configs = [cell.task.config for cell in small.cells()]
    assert len(configs) == 8
    assert {config.head for config in configs} == {"lace", "amc"}
    assert {config.data for config in configs} == {"svhn", "cifar10"}
    assert {config.seed for config in configs} == {0, 1}
    quick = load_experiment("cost").select(epochs=1, protocol="paper")
    assert {(c.task.config.epochs, c.task.config.protocol) for c in quick.cells()} == {(1, "paper")}
    by_head = load_experiment("table4").select(methods=["lace"])
    parts = ("none", "covariance", "mean", "both")
    assert [row.name for row in by_head.rows] == [
        f"{method}-{part}" for method in ("lace-total", "lace") for part in parts
    ]
    one = load_experiment("controls")
    assert {row.name: row.seeds for row in one.rows}["lace-one-vs-all"] == 1
    assert len(one.select(methods=["lace-one-vs-all"], seeds=2).cells()) == 6
    assert len(load_experiment(grid).select(datasets=["digits"]).cells()) == 4
    larger = load_experiment("table3").select(backbones=["resnet50"], methods=["lace"], seeds=1)
    assert [cell.task.config.backbone for cell in larger.cells()] == ["resnet50"]


MIXED = """
settings: {data: digits, epochs: 2}
seeds: 1
columns:
  own: {}
  fashion: {settings: {data: fashion_mnist}}
rows:
  plain: {}
  large: {settings: {backbone: resnet50}}
"""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"datasets": ["digits"]}, {("plain", "own"), ("large", "own")}),
        ({"datasets": ["fashion_mnist"]}, {("plain", "fashion"), ("large", "fashion")}),
        ({"backbones": ["small-cnn"]}, {("plain", "own")}),
        ({"backbones": ["resnet18"]}, {("plain", "fashion")}),
        ({"backbones": ["resnet50"]}, {("large", "own"), ("large", "fashion")}),
        ({"datasets": ["digits"], "backbones": ["resnet50"]}, {("large", "own")}),
    ],
)
def test_a_selection_goes_by_what_is_trained_wherever_that_is_said(options, expected, grid):
    grid.write_text(MIXED)
    chosen = load_experiment(grid).select(**options)
    assert {(cell.row, cell.column) for cell in chosen.cells()} == expected
    assert {row.name for row in chosen.rows} == {row for row, _ in expected}
    assert {column.name for column in chosen.columns} == {column for _, column in expected}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"datasets": ["digits"], "backbones": ["resnet18"]},
            "no run of mine has data set digits and backbone resnet18: leave out one",
        ),
        (
            {"backbones": ["small-cnn", "resnet18"], "methods": ["large"]},
            "no run of mine has backbone small-cnn or resnet18 and method large: leave out one",
        ),
    ],
)
def test_a_selection_of_nothing_is_an_error(options, message, grid):
    grid.write_text(MIXED)
    with pytest.raises(ValueError, match=message):
        load_experiment(grid).select(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"datasets": ["svnh"]}, "unknown data set of table1 'svnh': did you mean 'svhn'"),
        ({"backbones": ["resnet81"]}, "unknown backbone of table1 'resnet81': did you mean"),
        ({"methods": ["arcfce"]}, "unknown method of table1 'arcfce': did you mean 'arcface'"),
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
        ({"epochs": 0}, "^epochs must be at least 1, got 0"),
        ({"protocol": "papers"}, "unknown protocol 'papers': did you mean 'paper'"),
    ],
)
def test_a_wrong_selection_names_what_there_is(options, message):
    with pytest.raises(ValueError, match=message):
        load_experiment("table1").select(**options).cells()


def test_an_unknown_experiment_names_the_nearest():
    with pytest.raises(ValueError, match="unknown experiment 'tabel2': did you mean 'table2'"):
        load_experiment("tabel2")
    with pytest.raises(FileNotFoundError, match=r"there is no file nowhere\.yaml"):
        load_experiment("nowhere.yaml")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title: Two", "titel: Two", r"unknown key in \S*mine.yaml 'titel': did you mean 'title'"),
        ("label: LACE", "lable: LACE", r"key in row lace of \S*mine.yaml 'lable': did you mean"),
        ("label: Accuracy", "digit: 1", r"column accuracy of \S*mine.yaml 'digit': did you mean"),
        ("label: Accuracy", "digits: -1", "digits in column accuracy .* must be at least 0"),
        ("label: Accuracy", "best: biggest", "unknown best in column accuracy"),
        ("head: lace}", "head: lacy}", r"unknown head in mine \(lace, accuracy\) 'lacy': did you"),
        ("head: lace}", "hed: lace}", r"setting in mine \(lace, accuracy\) 'hed': did you mean"),
        ("head: lace}", "lr: fast}", r"lr in mine \(lace, accuracy\) must be float, got 'fast'"),
        ("head: lace}", "seed: 1}", "name a seed: say how many under `seeds:` instead"),
        ("head: lace}", "head_options: {men: 1}}", r"head_options in mine \(lace, accuracy\).*men"),
        ("data: digits", "data: digit", r"data set in mine \(.*\) 'digit': did you mean 'digits'"),
        ("baseline: softmax", "baseline: soft", "unknown baseline in .* 'soft': did you mean"),
        ("{accuracy: 90.5 ± 0.5}", "{accuracy: high}", "must read like 88.69 ± 0.21, got 'high'"),
        ("{accuracy: 90.5 ± 0.5}", "{acuracy: 1}", "unknown column published in row softmax"),
        (
            "{accuracy: 90.5 ± 0.5}",
            "high",
            "published in row softmax .* must hold `name: value`",
        ),
        ("seeds: 2", "seeds: many", "seeds in .*mine.yaml must be an integer, got 'many'"),
        ("seeds: 2", "first_seed: -1", "first_seed in .*mine.yaml must be at least 0, got -1"),
        ("seeds: 2", "first_seed: one", "first_seed in .*mine.yaml must be an integer, got 'one'"),
        ("seeds: 2", "embeddings: [tsne]", "must read like raw-tsne-3d, got 'tsne'"),
        (
            "seeds: 2",
            "embeddings: raw-tsne-3d",
            r"must be a list like \[raw-tsne-3d\], got 'raw-tsne-3d'",
        ),
        ("seeds: 2", "alone: 'no'", "alone in .*mine.yaml must be true or false, got 'no'"),
        ("label: Accuracy", "inspect: 1", "inspect in column accuracy .* true or false, got 1"),
        ("label: Accuracy", "score: 'a.{spce}'", "may hold {space} and no other braces, got 'a"),
        ("label: Accuracy", "score: 'a.{'", "may hold {space} and no other braces, got 'a.{'"),
        ("90.5 ± 0.5", "9.0.5 ± 0.5", "must read like 88.69 ± 0.21, got '9.0.5 ± 0.5'"),
        ("90.5 ± 0.5", "90.5 ± .", "must read like 88.69 ± 0.21, got '90.5 ± .'"),
        (
            "label: Accuracy",
            "score: test_acuracy",
            "score in column accuracy of .* 'test_accuracy'",
        ),
        (
            "label: Accuracy}",
            "score: 'clusters.{space}.fisher'}\n  none: {score: seeds}",
            "unknown score in column none of .* 'seeds': did you mean 'seconds'",
        ),
        ("head: lace}", "batch_size: -3}", r"mine \(lace, accuracy\): batch_size must be at least"),
        ("head: lace}", "optimizer: lion}", r"mine \(lace, accuracy\): unknown optimizer 'lion'"),
        ("  lace: {", "  softmax: {", r"mine.yaml has the key 'softmax' twice, in lines 9 and 10"),
        ("columns:", "rows: {a: {}}\ncolumns:", "has the key 'rows' twice, in lines 6 and 9"),
        ("head: lace}", "head: lace, head: amc}", "has the key 'head' twice, in lines 10 and 10"),
        ("  accuracy: {", "  on: {}\n  yes: {", "has the key 'True' twice, in lines 7 and 8"),
        ("title: Two heads", "title: [", "mine.yaml is not valid YAML"),
    ],
)
def test_a_wrong_file_is_an_error_that_says_where(old, new, message, grid):
    assert old in GRID
    grid.write_text(GRID.replace(old, new))
    with pytest.raises((ValueError, TypeError), match=message):
        load_experiment(grid).cells()


def test_the_space_of_a_row_is_part_of_its_scores(grid):
    score = 'label: Accuracy, score: "clusters.{space}.fisher"'
    text = GRID.replace("label: Accuracy", score)
    for space in ("raw", "whitened_sphere"):
        grid.write_text(text.replace("label: LACE", f"label: LACE, space: {space}"))
        load_experiment(grid)
    grid.write_text(text.replace("label: LACE", "label: LACE, space: whited"))
    with pytest.raises(ValueError, match=r"for row lace 'clusters\.whited\.fisher': did you mean"):
        load_experiment(grid)


def test_scores_of_clusters_are_those_that_an_examination_has():
    found = cluster_scores(torch.randn(12, 3), torch.arange(12) % 3)
    for space in ("raw", "raw_sphere", "whitened", "whitened_sphere"):
        listed = {each for each in line_names() if each.startswith(f"clusters.{space}.")}
        assert listed == {f"clusters.{space}.{name}" for name in found}


def test_keys_that_are_merged_may_be_there_already(grid):
    grid.write_text(
        GRID.replace("settings: {data", "settings: &all {data").replace(
            "head: lace}", "<<: *all, head: lace, epochs: 3}"
        )
    )
    rows = {cell.row: cell.task.config for cell in load_experiment(grid).cells()}
    assert (rows["lace"].epochs, rows["softmax"].epochs) == (3, 2)


def test_a_file_of_other_bytes_is_named(grid):
    grid.write_bytes(GRID.encode("utf-16"))
    with pytest.raises(ValueError, match=r"mine\.yaml is not UTF-8 text .*: save it as UTF-8"):
        load_experiment(grid)


def test_unknown_backbones_are_named_with_the_near_ones(grid):
    grid.write_text(GRID.replace("head: lace}", "head: lace, backbone: resnt18}"))
    message = r"unknown backbone in mine \(lace, accuracy\) 'resnt18': did you mean 'resnet18'"
    with pytest.raises(ValueError, match=message):
        require_backbones(load_experiment(grid))
    for known in ("resnet18", "small-cnn", "auto"):
        grid.write_text(GRID.replace("head: lace}", f"head: lace, backbone: {known}}}"))
        require_backbones(load_experiment(grid))
    for name in experiment_names():
        require_backbones(load_experiment(name))


def test_backbones_of_a_library_that_is_not_here_are_left_to_their_runs(grid, monkeypatch):
    grid.write_text(GRID.replace("head: lace}", "head: lace, backbone: timm/resnt18}"))
    monkeypatch.setitem(sys.modules, "timm", None)
    require_backbones(load_experiment(grid))
    monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(list_models=lambda: ["resnet18"]))
    with pytest.raises(ValueError, match="'timm/resnt18': did you mean 'timm/resnet18'"):
        require_backbones(load_experiment(grid))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n", "must hold `name: value` lines, got list"),
        ("columns: {a: {}}\n", "has no rows: name at least one"),
        ("rows: {a: {}}\n", "has no columns: name at least one"),
        ("rows: {a: }\ncolumns: {b: {}}\n", "row a of .* must hold `name: value` lines"),
    ],
)
def test_a_file_without_a_grid(text, message, grid):
    grid.write_text(text)
    with pytest.raises(ValueError, match=message):
        load_experiment(grid)


def test_names_that_yaml_reads_as_something_else_are_names(grid):
    text = GRID.replace("  softmax: {", "  2024: {").replace("baseline: softmax", "baseline: 2024")
    text = text.replace("  lace: {", "  on: {").replace("accuracy:", "100:")
    grid.write_text(text.replace("seeds: 2", "embeddings:"))
    experiment = load_experiment(grid)
    assert [row.name for row in experiment.rows] == ["2024", "True"]
    assert (experiment.baseline, experiment.embeddings) == ("2024", ())
    assert experiment.rows[0].published["100"].mean == 90.5
    assert len(experiment.select(methods=["2024"]).cells()) == 3


def test_settings_of_a_row_win_over_those_of_a_column(grid):
    grid.write_text(
        "settings: {data: digits, epochs: 5, lr: 0.1}\nseeds: 1\n"
        "columns: {a: {settings: {epochs: 4, patience: 7}}}\n"
        "rows: {b: {settings: {epochs: 3}}, c: {}}\n"
    )
    rows = {cell.row: cell.task.config for cell in load_experiment(grid).cells()}
    assert [(c.epochs, c.patience, c.lr) for c in rows.values()] == [(3, 7, 0.1), (4, 7, 0.1)]
    fewer = load_experiment(grid).select(epochs=2)
    assert {cell.task.config.epochs for cell in fewer.cells()} == {2}


def test_packs_of_ones_own_are_found_where_the_root_says(grid, tmp_path):
    (tmp_path / "packs").mkdir()
    (tmp_path / "packs" / "photos.npz").touch()
    grid.write_text(GRID.replace("data: digits", "data: photos"))
    with pytest.raises(ValueError, match="unknown data set in mine"):
        load_experiment(grid).select(datasets=["photos"]).cells()
    found = load_experiment(grid).select(datasets=["photos"], root=str(tmp_path / "packs"))
    assert {cell.task.config.data for cell in found.cells()} == {"photos"}
    require_data(unique_tasks(found.cells()))
    missing = load_experiment("table1").select(root=str(tmp_path), seeds=1)
    with pytest.raises(FileNotFoundError, match="torchlace data fetch cifar10"):
        require_data(unique_tasks(missing.cells()))
