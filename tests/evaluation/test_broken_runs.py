import pytest
from evaluation.runs import copied
from training.rewriting import rewrite_json, rewrite_settings

from torchlace.evaluation import inspect
from torchlace.runs import load_run
from torchlace.runs.seals import BLANK, sealed, sealed_text
from torchlace.training import Run, RunError


@pytest.fixture
def run(tmp_path):
    return copied("softmax", tmp_path)


def rewrite(change):
    return lambda path: rewrite_settings(path, change)


def patch(**changes):
    return lambda path: rewrite_json(path, **changes)


def sealed_as(text):
    return lambda path: path.write_bytes(sealed_text(text + BLANK))


def facts(**changes):
    return rewrite(lambda values: values["run"].update(changes))


def folder(path):
    path.unlink()
    path.mkdir()


def endless(path):
    path.write_text("epoch,train_loss,val_loss,val_accuracy\ninf,1,1,1\n")


def cut(path):
    path.write_bytes(path.read_bytes()[:-20])


DEEP = b"".join(sealed(b'{"digest": "', b'", "a": ' + 5000 * b"[" + 5000 * b"]" + b"}"))

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
        facts(mean=None),
        "mean under run: must be a list of numbers, got None",
    ),
    "two means": (
        "config.yaml",
        facts(mean=[0.1, 0.2]),
        "mean and std under run: must be as long as each other",
    ),
    "no YAML": ("config.yaml", sealed_as("head: [ # "), "is not valid YAML"),
    "no facts": (
        "config.yaml",
        rewrite(lambda values: values.update(run={})),
        "it lacks class",
    ),
    "endless channels": ("config.yaml", facts(channels=10**9), "and as channels"),
    "endless images": ("config.yaml", facts(size=[8, 10**9]), "must be a height and a width"),
    "one class": ("config.yaml", facts(class_names=["a"]), "must be two texts or more"),
    "numbered classes": ("config.yaml", facts(class_names=[0, 1]), "must be two texts or more"),
    "endless layer": (
        "config.yaml",
        rewrite(lambda values: values.update(embedding=10**12)),
        "embedding must be at most",
    ),
    "deep result": ("result.json", lambda path: path.write_bytes(DEEP), "it is nested too deep"),
    "lost digest of the config": (
        "config.yaml",
        lambda path: path.write_text(path.read_text().partition("  digest:")[0]),
        r"config\.yaml is damaged .*its digest is gone. If you edited it, end it with the line",
    ),
    "lost digest": (
        "result.json",
        lambda path: path.write_text(path.read_text().replace("sha256:", "sha255:")),
        r"result\.json is damaged .*its digest is gone\. Bring back",
    ),
    "an epoch less": (
        "metrics.csv",
        lambda path: Run(path.parent).write_metrics(Run(path.parent).history()[:-1]),
        "it has 1 of the 2 epochs of the run",
    ),
    "an epoch lost": (
        "metrics.csv",
        lambda path: Run(path.parent).write_metrics(Run(path.parent).history()[1:]),
        "it lacks epoch 1",
    ),
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
    rewrite_settings(run / "config.yaml", lambda values: values["run"]["class_names"].pop())
    with pytest.raises(RunError, match=r"best\.safetensors is damaged or of another version"):
        inspect(run, device="cpu")


def test_unknown_devices_are_a_sentence(run):
    with pytest.raises(ValueError, match="unknown device 'abacus': use"):
        inspect(run, device="abacus")


def test_an_unfinished_run_can_be_loaded_but_not_inspected(run):
    (run / "result.json").unlink()
    assert load_run(run, "cpu").model.num_classes == 10
    with pytest.raises(RunError, match="is not finished"):
        inspect(run, device="cpu")


def test_a_run_object_is_as_good_as_a_path(run):
    scores = inspect(Run(run), device="cpu").scores
    assert scores == Run(run).read_json(run / "evaluation.json")
