import re

import yaml
from cli.inside import torchlace, trained
from cli.pictures import write
from training.processes import watched
from training.rewriting import rewrite_settings
from typer.main import get_command

from torchlace import heads
from torchlace.cli import app
from torchlace.cli.common import print_table
from torchlace.training import Run, TrainConfig

SHORT = ("train", "--epochs", "2", "--batch-size", "64", "--run", "run")


def test_a_line_for_every_epoch_and_one_for_the_result(tmp_path):
    done = torchlace(*SHORT, folder=tmp_path)
    begins, *_, first, second = done.err.splitlines()
    assert begins == "training with"
    assert first.startswith("epoch 1/2  loss ")
    assert second.startswith("epoch 2/2  loss ")
    assert all(word in first for word in ("validation loss", "accuracy", "images/s"))
    assert done.out.startswith("run: test accuracy ")
    assert done.out.count("\n") == 1


def test_on_a_terminal_the_bar_and_the_epochs_leave_the_output_alone(tmp_path):
    code, out, seen = watched(*SHORT, folder=tmp_path)
    assert code == 0, seen
    assert out.startswith(b"run: test accuracy ")
    assert out.count(b"\n") == 1
    shown = re.sub(rb"\x1b\[[0-9;?]*\w", b"", seen)
    assert b"epoch 2/2  loss " in shown


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
    assert result == Run(tmp_path / "run").result()


def test_evaluate_prints_the_same_figures_as_a_table(tmp_path):
    trained(tmp_path, *SHORT[1:5])
    scores = torchlace("evaluate", "run", "--json", folder=tmp_path).json()
    table = torchlace("evaluate", "run", folder=tmp_path).out
    assert f"{scores['accuracy']:.2f}" in table
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


def test_a_run_on_a_relative_path_is_used_from_anywhere(tmp_path):
    write(tmp_path / "here" / "pictures")
    (tmp_path / "there").mkdir()
    command = ("--backbone", "small-cnn", "--epochs", "1")
    given = ("train", *command, "--data", "pictures", "--run", "run")
    result = torchlace(*given, "--json", folder=tmp_path / "here").json()
    stored = yaml.safe_load((tmp_path / "here" / "run" / "config.yaml").read_text())
    assert stored["data"] == str(tmp_path / "here" / "pictures")
    scores = torchlace("evaluate", "../here/run", "--json", folder=tmp_path / "there").json()
    assert scores["accuracy"] == result["test_accuracy"]
    again = torchlace(
        "train", "--config", "../here/run/config.yaml", "--run", "run", "--json",
        folder=tmp_path / "there",
    ).json()  # fmt: skip
    assert again["test_right"] == result["test_right"]
    # The same command is the same run, whichever way its data are written.
    done = torchlace(*given, folder=tmp_path / "here")
    assert (done.code, done.err) == (0, "run is finished already; --overwrite trains it anew\n")
    # A run of earlier versions has its path as it was given.
    rewrite_settings(
        tmp_path / "here" / "run" / "config.yaml", lambda values: values.update(data="pictures")
    )
    assert torchlace(*given, folder=tmp_path / "here").code == 0


def test_the_help_shows_the_defaults(tmp_path):
    values = TrainConfig().as_dict()
    told = {"root", "image_size", "mirror"}  # in words
    told |= {"head_options", "loggers", "imports"}  # read by YAML or repeated, and empty
    shown = {
        option.name: option.show_default
        for option in get_command(app).commands["train"].params
        if option.name in values and option.name not in told
    }
    assert values.keys() - shown.keys() == told
    for name, text in shown.items():
        value = values[name]
        if isinstance(value, bool):
            assert text == name.replace("_", "-") if value else text.startswith("no-"), name
        else:
            expected = "none" if value is None else value
            assert type(expected)(text.partition(":")[0]) == expected, name
    for command in (("train",), ("reproduce",), ("data", "list"), ("data", "show")):
        assert "[default: (" in torchlace(*command, "--help", folder=tmp_path).out


def test_heads_says_what_each_is(tmp_path):
    lines = torchlace("heads", folder=tmp_path).out.splitlines()
    said = {}
    for name in heads.names():
        (line,) = (line for line in lines if line.startswith(f"│ {name} "))
        said[name] = line.split("│")[2].strip()
    assert len(set(said.values())) == len(said)
    assert "paper" in said["lace-published"]


def test_one_bad_image_is_one_image(tmp_path):
    write(tmp_path / "pictures")
    (tmp_path / "pictures" / "digit 0" / "bad.png").write_bytes(b"none")
    command = ("train", "--data", "pictures", "--epochs", "1", "--backbone", "small-cnn")
    strict = torchlace(*command, folder=tmp_path)
    assert strict.err.startswith("error: 1 image can't be used; repair or remove it, or go on")
    tolerant = torchlace(*command, "--skip-bad", folder=tmp_path)
    assert tolerant.err.startswith("left out 1 unreadable image:\n")
    shown = torchlace("data", "show", "pictures", "--skip-bad", folder=tmp_path)
    assert "left out 1 file that can't be read:" in shown.out
    checked = torchlace("data", "check", "pictures", "--skip-bad", folder=tmp_path)
    bad = "pictures/digit 0/bad.png: not an image that Pillow can read; convert it to JPEG or PNG\n"
    assert f"note: 1 image file can't be read, the first: {bad}" in checked.out


def test_a_table_whose_names_are_longer_than_the_terminal_shows_every_figure(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    names = [f"runs/photos/{'long-' * 20}{number}" for number in range(3)]
    figures = [f"{12.345 + number:.3f}" for number in range(36)]
    rows = [[name, *figures[12 * n : 12 * n + 12]] for n, name in enumerate(names)]
    print_table("runs", ["run", *(f"figure {n}" for n in range(12))], rows, turn=True)
    said = capsys.readouterr().out
    assert {*figures} <= {*said.split()}
    assert max(map(len, said.splitlines())) <= 80
