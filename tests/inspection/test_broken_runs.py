import json

import pytest
import yaml
from inspection.runs import copied

from torchlace.inspection import inspect, load_run
from torchlace.training import Run, RunError


@pytest.fixture
def run(tmp_path):
    return copied("softmax", tmp_path)


def rewrite(change):
    def apply(path):
        values = yaml.safe_load(path.read_text())
        change(values)
        path.write_text(yaml.safe_dump(values))

    return apply


def patch(**changes):
    def apply(path):
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return apply


def folder(path):
    path.unlink()
    path.mkdir()


def endless(path):
    path.write_text("epoch,train_loss,val_loss,val_accuracy\ninf,1,1,1\n")


def cut(path):
    path.write_bytes(path.read_bytes()[:-20])


BREAKS = {
    "no config": ("config.yaml", lambda path: path.unlink(), "holds no run"),
    "no result": ("result.json", lambda path: path.unlink(), "is not finished"),
    "cut result": ("result.json", cut, "result.json is damaged"),
    "other result": ("result.json", lambda path: path.write_text("[]"), "of another version"),
    "no weights": ("best.safetensors", lambda path: path.unlink(), "has no weights yet"),
    "cut weights": ("best.safetensors", cut, "best.safetensors is damaged"),
    "no metrics": ("metrics.csv", lambda path: path.unlink(), "there is no metrics.csv"),
    "cut metrics": ("metrics.csv", cut, "metrics.csv is damaged"),
    "folder of metrics": ("metrics.csv", folder, "metrics.csv is damaged"),
    "epoch inf": ("metrics.csv", endless, "metrics.csv is damaged"),
    "long metrics": (
        "metrics.csv",
        lambda path: path.write_text("epoch\n" + "1" * 200_000),
        "metrics.csv is damaged",
    ),
    "folder of results": ("result.json", folder, "result.json is damaged"),
    "no versions": ("result.json", patch(versions=None), "can't be that versions is None"),
    "no number": (
        "result.json",
        patch(seconds="few", best_epoch="last"),
        "can't be that best_epoch is 'last', seconds is 'few'",
    ),
    "no mean": (
        "config.yaml",
        rewrite(lambda values: values["run"].update(mean=None)),
        "can't be made here",
    ),
    "two means": (
        "config.yaml",
        rewrite(lambda values: values["run"].update(mean=[0.1, 0.2])),
        "mean and std must be as long as each other",
    ),
    "no YAML": ("config.yaml", lambda path: path.write_text("head: ["), "of another version"),
    "no facts": ("config.yaml", rewrite(lambda values: values.pop("run")), "it lacks class_names"),
    "unknown setting": (
        "config.yaml",
        rewrite(lambda values: values.update(warp=9)),
        "of another version: unknown setting",
    ),
    "unknown head": (
        "config.yaml",
        rewrite(lambda values: values.update(head="hydra")),
        "can't be made here: unknown head 'hydra'",
    ),
    "other head": (
        "config.yaml",
        rewrite(lambda values: values.update(head="center")),
        "best.safetensors is damaged or of another version",
    ),
    "other data": (
        "config.yaml",
        rewrite(lambda values: values.update(data="nowhere", backbone="small-cnn")),
        "nowhere",
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_run_is_a_sentence(run, name):
    file, damage, message = BREAKS[name]
    damage(run / file)
    with pytest.raises(RunError, match=message):
        inspect(run, device="cpu")
    assert not (run / "evaluation.json").exists()


def test_data_of_another_shape_are_a_sentence(run):
    facts = yaml.safe_load((run / "config.yaml").read_text())
    facts["run"]["class_names"] = facts["run"]["class_names"][:9]
    (run / "config.yaml").write_text(yaml.safe_dump(facts))
    with pytest.raises(RunError, match=r"best\.safetensors is damaged or of another version"):
        inspect(run, device="cpu")


def test_unknown_devices_are_a_sentence(run):
    with pytest.raises(RunError, match="use cpu, cuda or auto"):
        inspect(run, device="abacus")


def test_an_unfinished_run_can_be_loaded_but_not_inspected(run):
    (run / "result.json").unlink()
    assert load_run(run, "cpu").model.num_classes == 10
    with pytest.raises(RunError, match="is not finished"):
        inspect(run, device="cpu")


def test_a_run_object_is_as_good_as_a_path(run):
    scores = inspect(Run(run), device="cpu").scores
    assert scores == json.loads((run / "evaluation.json").read_text())
