"""What is kept beside a run is used while it is current, and never when it is not."""

import errno
import os
import shutil
from pathlib import Path

import pytest
import torch
from evaluation.runs import copied
from safetensors.torch import load_file
from training.rewriting import rewrite_json

from torchlace.data import MissingDataError
from torchlace.evaluation import inspect, kept, picture
from torchlace.runs.seals import BLANK, read_seal, sealed_text
from torchlace.training import Run, RunError


class Notes:
    def __init__(self):
        self.lines, self.steps = [], []

    def message(self, text):
        self.lines.append(text)

    def progress(self, what, done, total):
        self.steps.append((what, done, total))


@pytest.fixture
def run(tmp_path):
    return copied("lace", tmp_path)


@pytest.fixture
def passes(monkeypatch):
    """Counts the passes through the network."""
    real, calls = kept._pass_through, []

    def counted(*arguments):
        calls.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(kept, "_pass_through", counted)
    return calls


def contents(run):
    return {path.name: path.read_bytes() for path in run.iterdir()}


def test_two_files_are_added_and_nothing_else_changes(run):
    before = contents(run)
    inspect(run, device="cpu")
    after = contents(run)
    assert set(after) - set(before) == {"features.safetensors", "evaluation.json"}
    assert {name: after[name] for name in before} == before


def test_the_second_time_nothing_is_computed(run, passes):
    first = inspect(run, device="cpu")
    before, notes = contents(run), Notes()
    second = inspect(run, device="cpu", reporter=notes)
    assert len(passes) == 1
    assert contents(run) == before
    assert notes.steps == notes.lines == []
    assert second.scores == first.scores
    for name in ("features", "logits", "labels", "whitened", "signatures", "raw_signatures"):
        assert torch.equal(getattr(first, name), getattr(second, name))


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_run_that_may_only_be_read_is_examined_all_the_same(run, number, monkeypatch):
    whole = Path.open

    def refuse(path, mode="r", **options):
        if "w" in mode and path.is_relative_to(run):
            raise OSError(number, os.strerror(number), str(path))
        return whole(path, mode, **options)

    before = contents(run)
    monkeypatch.setattr(Path, "open", refuse)
    notes = Notes()
    found = inspect(run, device="cpu", reporter=notes)
    picture(found, method="pca", reporter=notes)
    assert contents(run) == before
    names = ("features.safetensors", "evaluation.json", "embedding-raw-pca-2d.npz")
    for name, line in zip(names, notes.lines, strict=True):
        reason = os.strerror(number)
        assert line == f"note: {run / name} can't be kept ({reason}), so it is made anew next time"
    monkeypatch.undo()
    assert inspect(run, device="cpu").scores == found.scores


def test_a_full_disk_is_an_error(run, monkeypatch):
    def refuse(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(RunError, match="could not be written"):
        inspect(run, device="cpu")


def test_progress_is_told(run):
    notes = Notes()
    inspect(run, device="cpu", reporter=notes)
    assert notes.lines == []
    assert ("features", 359, 359) in notes.steps
    assert [step for step in notes.steps if step[0] == "clusters"][-1] == ("clusters", 4, 4)


def test_refresh_computes_anew(run, passes):
    inspect(run, device="cpu")
    scores = Run(run).read_json(run / "evaluation.json")
    rewrite_json(run / "evaluation.json", accuracy=-1)
    assert inspect(run, device="cpu").scores["accuracy"] == -1
    assert inspect(run, device="cpu", refresh=True).scores == scores
    assert len(passes) == 2


def test_other_weights_are_examined_anew(run, passes):
    first = inspect(run, device="cpu")
    weights = load_file(run / "best.safetensors")
    for name in ("head.weight", "head.bias", "head.background.class_anchors"):
        weights[name] = weights[name].flip(0)
    Run(run).write_weights(weights)
    second = inspect(run, device="cpu")
    assert len(passes) == 2
    assert torch.allclose(second.logits, first.logits.flip(1), atol=1e-5)
    assert second.scores["accuracy"] != first.scores["accuracy"]


@pytest.mark.parametrize("name", ["features.safetensors", "evaluation.json"])
@pytest.mark.parametrize("damage", ["cut", "empty", "other", "strange"])
def test_damaged_files_are_made_anew(run, name, damage):
    expected = inspect(run, device="cpu").scores
    whole = (run / name).read_bytes()
    strange = sealed_text(f'{{"made_from": 3, "digest": "{BLANK}"}}')
    contents = {"cut": whole[:-20], "empty": b"", "other": b"[1, 2]", "strange": strange}
    (run / name).write_bytes(contents[damage])
    notes = Notes()
    assert inspect(run, device="cpu", reporter=notes).scores == expected
    found = read_seal((run / name).read_bytes())
    assert found.intact
    # The order of entries in a safetensors header is not fixed.
    assert name == "features.safetensors" or found == read_seal(whole)
    told = [f"note: {run / name} is damaged or of another version: its ", "; it is made anew"]
    assert damage == "strange" or all(part in notes.lines[0] for part in told)


def test_other_data_are_noted_and_examined_anew(run, passes, monkeypatch):
    inspect(run, device="cpu")
    real = kept.read_data

    def changed(loaded, root):
        data = real(loaded, root)
        return type(data)(
            data.name, data.train, data.train, data.class_names, data.mirror, "another digest"
        )

    monkeypatch.setattr(kept, "read_data", changed)
    notes = Notes()
    found = inspect(run, device="cpu", reporter=notes)
    assert notes.lines == ["note: the data differ from those the run was trained on"]
    assert len(passes) == 2
    assert len(found.labels) == 1438


def test_without_the_data_what_was_kept_is_used(run, monkeypatch):
    def missing(loaded, root):
        raise MissingDataError("there are no digits")

    first = inspect(run, device="cpu")
    monkeypatch.setattr(kept, "read_data", missing)
    notes = Notes()
    assert inspect(run, device="cpu", reporter=notes).scores == first.scores
    assert notes.lines == [
        "note: the data are not here (there are no digits); features kept earlier are used"
    ]
    with pytest.raises(RunError, match="there are no digits"):
        inspect(run, device="cpu", refresh=True)


def test_a_network_that_diverged_is_said(run):
    weights = load_file(run / "best.safetensors")
    first = next(name for name, value in weights.items() if name.startswith("backbone"))
    weights[first] = torch.full_like(weights[first], torch.nan)
    Run(run).write_weights(weights)
    with pytest.raises(RunError, match="NaN or infinite features"):
        inspect(run, device="cpu")
    assert not (run / "features.safetensors").exists()


def test_a_moved_run_keeps_what_was_kept(run, passes, tmp_path):
    first = inspect(run, device="cpu")
    shutil.move(run, tmp_path / "elsewhere")
    second = inspect(tmp_path / "elsewhere", device="cpu")
    assert (len(passes), second.scores) == (1, first.scores)
