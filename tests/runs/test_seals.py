"""Files of runs carry the digest of their content, and whoever reads them looks at it."""

import hashlib
import io
import json
import re
import shutil

import pytest
import torch
from damage import survey
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, save
from training.processes import metrics, outcome, torchlace
from training.rewriting import without_digests
from training.stopping import StopAfter, StoppedError

from torchlace.evaluation import inspect
from torchlace.runs.seals import BLANK, read_seal, sealed, sealed_tensors, sealed_text
from torchlace.training import Run, RunError, TrainConfig, train
from torchlace.training.checkpoint import load_checkpoint, write_checkpoint
from torchlace.training.stopping import Progress

CONFIG = TrainConfig(head="softmax", epochs=2, device="cpu")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("sealed") / "run"
    train(CONFIG, path)
    inspect(path, device="cpu")
    return path


@pytest.fixture
def run(finished, tmp_path):
    return Run(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture
def half_done(tmp_path):
    with pytest.raises(StoppedError):
        train(CONFIG, tmp_path / "run", reporter=StopAfter(1))
    return Run(tmp_path / "run")


@given(st.binary(max_size=300), st.binary(max_size=300), st.data())
def test_any_other_content_is_noticed(before, after, data):
    content = b"".join(sealed(before, after))
    seal = read_seal(content)
    assert seal.intact
    blank = re.sub(re.escape(seal.digest.encode()), BLANK.encode(), content)
    assert seal.digest == "sha256:" + hashlib.sha256(blank).hexdigest()
    at = data.draw(st.integers(0, len(content) - 1))
    other = data.draw(st.integers(1, 255))
    changed = content[:at] + bytes([content[at] ^ other]) + content[at + 1 :]
    assert not read_seal(changed).intact
    assert not read_seal(content[:at]).intact
    assert not read_seal(content[:at] + content[at + 1 :]).intact


@given(st.text(max_size=200))
def test_what_a_text_says_is_not_taken_for_its_digest(text):
    other = "sha256:" + 64 * "a"
    content = sealed_text(f"{other}{text}{BLANK}{text}{other}\n{BLANK}\n")
    assert read_seal(content).intact
    assert read_seal(content).digest != other


def test_every_file_of_a_run_is_sealed_and_others_can_read_it(finished):
    names = {path.name for path in finished.iterdir()}
    names -= {".lock", *(name for name in names if "tfevents" in name)}
    assert names == {
        *("config.yaml", "metrics.csv", "last.ckpt", "best.safetensors", "result.json"),
        *("features.safetensors", "evaluation.json"),
    }
    for name in names:
        assert read_seal((finished / name).read_bytes()).intact, name
    torch.load(finished / "last.ckpt", weights_only=True)
    assert load((finished / "best.safetensors").read_bytes())
    assert json.loads((finished / "result.json").read_text())["epochs"] == 2
    assert [row["epoch"] for row in metrics(finished)] == ["1", "2"]


def test_tensors_whose_bytes_look_like_a_digest():
    bait = torch.frombuffer(bytearray(BLANK.encode()), dtype=torch.uint8)
    content = b"".join(sealed_tensors(save({"bait": bait}, {"digest": BLANK})))
    assert torch.equal(load(content)["bait"], bait)


def test_edited_settings_say_how_to_accept_them(half_done, tmp_path):
    edited = half_done.config_path.read_text().replace("patience: 10", "patience: 11")
    half_done.config_path.write_text(edited)
    command = ("train", "--head", "softmax", "--epochs", 2, "--device", "cpu", "--run", "run")
    refused = torchlace(*command, "--patience", 11, folder=tmp_path)
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    right, wrong = re.findall("sha256:[0-9a-f]{64}", refused.err)
    assert f"If you edited it, write {right} in the place of {wrong}." in refused.err
    half_done.config_path.write_text(edited.replace(wrong, right))
    assert torchlace(*command, "--patience", 11, folder=tmp_path).code == 0

    half_done.config_path.write_text(edited.replace(f"  digest: {wrong}\n", ""))
    with pytest.raises(RunError, match="end it with the line '  digest: sha256:") as raised:
        half_done.settings()
    (line,) = re.findall("with the line '(.*)'", str(raised.value))
    half_done.config_path.write_text(f"{half_done.config_path.read_text()}{line}\n")
    assert half_done.config().patience == 11


def test_a_run_from_before_is_read_with_a_warning_and_goes_on(half_done, finished):
    without_digests(half_done.path)
    assert b"sha256" not in half_done.config_path.read_bytes()
    with pytest.warns(UserWarning, match="before files of runs carried digests"):
        train(CONFIG, half_done.path)
    assert outcome(half_done.path) == outcome(finished)
    scores = inspect(half_done, device="cpu").scores
    assert scores["accuracy"] == half_done.result()["test_accuracy"]


def test_a_run_from_before_is_told_of_once(run, tmp_path):
    without_digests(run.path)
    done = torchlace("compare", "run", "--json", folder=tmp_path)
    assert done.code == 0
    assert done.err.count("was made before files of runs carried digests") == 1
    assert "Warning" not in done.err


@pytest.mark.parametrize("name", ["metrics.csv", "last.ckpt", "best.safetensors", "result.json"])
def test_a_digest_that_is_lost_is_an_error(name, run):
    content = (run.path / name).read_bytes()
    digest = read_seal(content).digest.encode()
    (run.path / name).write_bytes(content.replace(digest, digest[:-1]))
    with pytest.raises(RunError, match=f"{name} is damaged or of another version: its digest is"):
        run.read(run.path / name)


def test_weights_that_are_cut_short_under_a_complete_checkpoint(run):
    run.result_path.unlink()
    best = run.result_path.parent / "best.safetensors"
    best.write_bytes(best.read_bytes()[:-4])
    history = Progress(**torch.load(run.checkpoint_path, weights_only=True)["progress"])
    if history.best_epoch == history.epoch:  # they are in the checkpoint too
        train(CONFIG, run.path)
    else:
        with pytest.raises(RunError, match=r"best\.safetensors is damaged"):
            train(CONFIG, run.path)


@pytest.mark.parametrize(
    "change",
    [
        lambda progress: progress["history"].clear(),
        lambda progress: progress.update(history=3),
        lambda progress: progress["history"].pop(0),
        lambda progress: progress.update(best_epoch=7),
        lambda progress: progress.pop("seconds"),
        lambda progress: progress.update(stop=True),
    ],
)
def test_a_checkpoint_whose_history_can_not_be(change, run):
    state = torch.load(run.checkpoint_path, weights_only=True)
    change(state["progress"])
    write_checkpoint(run, state)
    run.result_path.unlink()
    with pytest.raises(RunError, match=r"last\.ckpt can't be read as a checkpoint of this run"):
        train(CONFIG, run.path)


def test_a_checkpoint_is_read_through_its_digest(run):
    packed = io.BytesIO(run.checkpoint_path.read_bytes())
    packed.seek(1000)
    packed.write(b"\0")
    run.checkpoint_path.write_bytes(packed.getvalue())
    with pytest.raises(RunError, match="its content is not what was written"):
        load_checkpoint(run, {})


def test_evaluate_says_when_the_accuracy_is_another_one(run):
    result = run.result()
    said = []

    class Watcher:
        message = staticmethod(said.append)
        progress = staticmethod(lambda *_: None)

    inspect(run, device="cpu", reporter=Watcher())
    assert said == []
    run.finish({**result, "test_accuracy": result["test_accuracy"] - 1})
    inspect(run, device="cpu", reporter=Watcher())
    (note,) = said
    assert f"{result['test_accuracy']:.4f} % here" in note
    assert f"{result['test_accuracy'] - 1:.4f} % in result.json" in note


def test_no_damage_changes_a_figure_in_silence(tmp_path):
    """A short form of `python tests/damage.py`."""
    faults, seen = survey(72, seed=1, place=tmp_path)
    assert faults == []
    assert seen["an error"] > 50
    assert seen["the same"] > 50
    assert seen["the same, with a note"] > 5
