import signal

import pytest
from training.processes import Command, metrics, outcome, torchlace

COMMAND = ("train", "--epochs", "25", "--patience", "100", "--batch-size", "128", "--run")


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calm")
    assert torchlace(*COMMAND, "run", folder=folder).code == 0
    return outcome(folder / "run")


def test_the_epoch_is_finished_and_the_same_command_goes_on(calm, tmp_path):
    started = Command(*COMMAND, "run", folder=tmp_path)
    started.wait_for_epochs(3)
    started.send(signal.SIGINT)
    stopped = started.done()
    assert stopped.code == 130
    assert "\nstopping after this epoch; once more stops at once\n" in stopped.err
    reached = len(metrics(tmp_path / "run"))
    assert 3 <= reached < 25
    assert stopped.err.splitlines()[-1] == (
        f"stopped after epoch {reached}; the same command goes on from there"
    )
    assert not (tmp_path / "run" / "result.json").exists()
    resumed = torchlace(*COMMAND, "run", folder=tmp_path)
    assert resumed.code == 0
    assert resumed.err.startswith(f"resuming run after epoch {reached}\nepoch {reached + 1}/25")
    assert outcome(tmp_path / "run") == calm


def test_a_finished_run_is_left_alone_unless_asked(tmp_path):
    command = ("train", "--epochs", "2", "--run", "run")
    first = torchlace(*command, folder=tmp_path)
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    again = torchlace(*command, folder=tmp_path)
    assert again.code == 0
    assert again.err == "run is finished already; --overwrite trains it anew\n"
    assert again.out == first.out
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before

    other = (*command, "--head", "softmax", "--lr", "0.002")
    refused = torchlace(*other, folder=tmp_path)
    assert refused.code == 1
    assert refused.err == (
        "error: run was started with other settings (head: 'lace' → 'softmax', lr: 0.001 → 0.002); "
        "choose another --run, or replace it with --overwrite\n"
    )
    elsewhere = torchlace(*command, "--device", "cpu", "--workers", 0, folder=tmp_path)
    assert elsewhere.err == again.err

    (tmp_path / "run" / "notes.txt").write_text("mine")
    (tmp_path / "run" / "model.onnx").write_text("what export made of the run")
    anew = torchlace(*other, "--overwrite", folder=tmp_path)
    assert anew.code == 0
    assert len(anew.told.splitlines()) == 2
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"
    assert not (tmp_path / "run" / "model.onnx").exists()
    assert len(list((tmp_path / "run").glob("events*"))) == 1
    assert "head: softmax" in (tmp_path / "run" / "config.yaml").read_text()
