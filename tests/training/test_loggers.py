"""Weights & Biases and MLflow for real, without a server."""

import pytest
from training.processes import fresh, metrics

SHORT = ("train", "--backbone", "small-cnn", "--head", "softmax", "--epochs", "2", "--run", "run")


def test_mlflow_goes_on_in_the_same_record(tmp_path):
    mlflow = pytest.importorskip("mlflow")
    place = {"MLFLOW_TRACKING_URI": (tmp_path / "kept").as_uri(), "MLFLOW_ALLOW_FILE_STORE": "true"}
    for _ in range(2):
        done = fresh(*SHORT, "--log", "mlflow", "--overwrite", folder=tmp_path, **place)
        assert done.code == 0, done.err
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        client = mlflow.MlflowClient(place["MLFLOW_TRACKING_URI"])
        (record,) = client.search_runs(["0"])
        assert record.data.params["head"] == "softmax"
        told = client.get_metric_history(record.info.run_id, "val_loss")
    losses = [float(row["val_loss"]) for row in metrics(tmp_path / "run")]
    assert [each.value for each in told if each.step == 2][-1] == pytest.approx(losses[1])
    assert {each.step for each in told} == {1, 2}


def test_mlflow_without_a_store_is_an_error_in_a_line(tmp_path):
    pytest.importorskip("mlflow")
    done = fresh(*SHORT, "--log", "mlflow", folder=tmp_path, MLFLOW_TRACKING_URI="nowhere://at.all")
    assert done.code == 1
    assert "MLflow can't be used" in done.err
    assert "Traceback" not in done.err


def test_wandb_keeps_an_offline_record(tmp_path):
    pytest.importorskip("wandb")
    done = fresh(*SHORT, "--log", "wandb", folder=tmp_path, WANDB_MODE="offline")
    assert done.code == 0, done.err
    (record,) = (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")
    content = record.read_bytes()
    assert b"val_loss" in content
    assert b"softmax" in content


def test_wandb_without_a_key_is_an_error_in_a_line(tmp_path):
    pytest.importorskip("wandb")
    place = {"WANDB_MODE": "online", "WANDB_BASE_URL": "http://127.0.0.1:9", "HOME": str(tmp_path)}
    done = fresh(*SHORT, "--log", "wandb", folder=tmp_path, WANDB_API_KEY="", **place)
    assert done.code == 1
    assert "WANDB_MODE=offline" in done.err
    assert "Traceback" not in done.err
