import yaml
from cli.pictures import write
from training.processes import torchlace

from torchlace.training import TrainConfig

SHORT = ("train", "--epochs", "2", "--batch-size", "64", "--run", "run")


def test_a_line_for_every_epoch_and_one_for_the_result(tmp_path):
    done = torchlace(*SHORT, folder=tmp_path)
    first, second = done.err.splitlines()
    assert first.startswith("epoch 1/2  loss ")
    assert second.startswith("epoch 2/2  loss ")
    assert all(word in first for word in ("validation loss", "accuracy", "images/s"))
    assert done.out.startswith("run: test accuracy ")
    assert done.out.count("\n") == 1


def test_quiet_prints_the_result_alone(tmp_path):
    done = torchlace(*SHORT, "--quiet", folder=tmp_path)
    assert done.code == 0
    assert done.err == ""
    assert done.out.startswith("run: test accuracy ")
    assert done.out.count("\n") == 1


def test_json_is_the_result_and_where_it_is(tmp_path):
    done = torchlace(*SHORT, "--json", folder=tmp_path)
    result = done.json()
    assert done.err == ""
    assert result.pop("run") == "run"
    assert result == yaml.safe_load((tmp_path / "run" / "result.json").read_text())


def test_evaluate_prints_the_same_figures_as_a_table(tmp_path):
    torchlace(*SHORT, folder=tmp_path)
    scores = torchlace("evaluate", "run", "--json", folder=tmp_path).json()
    table = torchlace("evaluate", "run", folder=tmp_path).out
    assert f"{scores['accuracy']:.3f}" in table
    assert f"{scores['calibrated_loss']:.3f}" in table
    assert all(f"{value:.2f}" in table for value in scores["classes"].values())


def test_config_prints_all_settings_and_train_takes_them(tmp_path):
    printed = torchlace("config", folder=tmp_path).out
    assert TrainConfig.from_dict(yaml.safe_load(printed)) == TrainConfig()
    (tmp_path / "all.yaml").write_text(printed)
    done = torchlace(*SHORT, "--config", "all.yaml", folder=tmp_path)
    assert done.code == 0, done.err
    of_run = yaml.safe_load(torchlace("config", "run", folder=tmp_path).out)
    assert TrainConfig.from_dict(of_run) == TrainConfig(epochs=2, batch_size=64)


def test_the_default_name_of_a_run_is_that_of_the_folder(tmp_path):
    write(tmp_path / "pictures.v2")
    command = ("train", "--backbone", "small-cnn", "--epochs", "1", "--json")
    result = torchlace(*command, "--data", "pictures.v2/", folder=tmp_path).json()
    assert result["run"] == "runs/pictures.v2-lace-0"
