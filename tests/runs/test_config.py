import typing

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from training.processes import outcome, torchlace

from torchlace.training import Run, TrainConfig, train

SETTINGS = {
    "head": "arcface",
    "head_options": {"margin": 0.2},
    "optimizer": "adamw",
    "lr": 0.002,
    "weight_decay": 0.01,
    "schedule": "cosine",
    "epochs": 3,
    "batch_size": 100,
    "validation": 0.2,
    "clip": 2.0,
    "label_smoothing": 0.05,
    "class_weights": "balanced",
    "ema": 0.9,
    "embedding": 24,
    "seed": 5,
}


def test_the_configuration_of_a_run_runs_it_again(tmp_path):
    train(TrainConfig(**SETTINGS), tmp_path / "first")
    assert Run(tmp_path / "first").config() == TrainConfig(**SETTINGS)
    done = torchlace("train", "--config", "first/config.yaml", "--run", "second", folder=tmp_path)
    assert done.code == 0, done.err
    assert outcome(tmp_path / "second") == outcome(tmp_path / "first")
    configs = [(tmp_path / name / "config.yaml").read_text() for name in ("first", "second")]
    assert configs[0] == configs[1]


def test_options_win_over_the_file(tmp_path):
    (tmp_path / "a.yaml").write_text("epochs: 3\nseed: 7\n")
    command = ("train", "--config", "a.yaml", "--epochs", 1, "--head-option", "scale=4.5")
    result = torchlace(*command, "--json", folder=tmp_path).json()
    assert result["run"] == "runs/digits-lace-7"
    config = Run(tmp_path / result["run"]).config()
    assert (config.epochs, config.seed, config.head_options) == (1, 7, {"scale": 4.5})


def test_options_of_the_head_win_one_by_one(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("head: arcface\nhead_options: {margin: 0.2, scale: 30}\n")
    given = {"head_options": {"scale": 16}}
    merged = TrainConfig.from_yaml(path, **given)
    assert merged.head_options == {"margin": 0.2, "scale": 16}
    assert TrainConfig.from_yaml(path, head="arcface", **given) == merged
    # Those of one head say nothing of another.
    assert TrainConfig.from_yaml(path, head="lace", **given).head_options == {"scale": 16}
    assert TrainConfig.from_yaml(path, head="lace").head_options == {}
    path.write_text("head_options: {scale: 3, background: learned}\n")
    assert len(TrainConfig.from_yaml(path, head="lace", **given).head_options) == 2


def test_options_of_the_head_on_the_command_line_leave_the_others(tmp_path):
    (tmp_path / "a.yaml").write_text("head: arcface\nhead_options: {margin: 0.2, scale: 30}\n")
    command = ("train", "--config", "a.yaml", "--epochs", 1, "--json")
    one = torchlace(*command, "--head-option", "scale=16", "--run", "one", folder=tmp_path)
    assert one.code == 0, one.err
    assert Run(tmp_path / "one").config().head_options == {"margin": 0.2, "scale": 16}
    other = torchlace(*command, "--head", "softmax", "--run", "other", folder=tmp_path)
    assert other.code == 0, other.err
    assert Run(tmp_path / "other").config().head_options == {}


def test_files_of_mixed_sizes_are_not_shrunk_below_what_the_protocol_resizes_to():
    assert TrainConfig().mixed_size is None
    assert TrainConfig(protocol="paper").mixed_size == (256, 256)


def written(text, tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(text)
    return TrainConfig.from_yaml(path)


def test_numbers_as_people_write_them(tmp_path):
    assert written("lr: 1e-3", tmp_path).lr == 1e-3
    assert written("lr: 1", tmp_path).lr == 1.0
    assert written("clip: 1e2", tmp_path).clip == 100.0
    assert written("clip: null", tmp_path).clip is None
    assert written("loggers: [wandb]", tmp_path).loggers == ("wandb",)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("hed: lace", "'hed': did you mean 'head'"),
        ("batchsize: 3", "'batchsize': did you mean 'batch_size'"),
        ("epochs: 2.5", "epochs in .*a.yaml must be int, got 2.5"),
        ("epochs: true", "epochs in .* must be int, got True"),
        ("epochs: null", "epochs in .* must be int, got None"),
        ("lr: fast", "lr in .* must be float, got 'fast'"),
        ("lr: true", "lr in .* must be float, got True"),
        ("lr: .nan", "lr must lie in"),
        ("data: 3", "data in .* must be str, got 3"),
        ("pretrained: 1", "pretrained in .* must be bool, got 1"),
        ("head_options: [1]", r"head_options in .* must be dict, got \[1\]"),
        ("embedding: wide", "embedding in .* must be int, got 'wide'"),
        ("optimizer: adma", "unknown optimizer 'adma': did you mean 'adam'"),
        ("", "must hold `name: value` lines"),
    ],
)
def test_what_is_wrong_is_named(text, error, tmp_path):
    with pytest.raises((TypeError, ValueError), match=error):
        written(text, tmp_path)


def values_of(kind):
    plain = {
        str: st.text(max_size=9),
        int: st.integers(1, 10**9),
        float: st.floats(1e-30, 1e30),
        bool: st.booleans(),
    }
    if kind in plain:
        return plain[kind]
    inner = [each for each in typing.get_args(kind) if each in plain]
    return st.none() | plain[inner[0]]


HINTS = typing.get_type_hints(TrainConfig)
FREE = ("data", "root", "head", "backbone", "lr", "clip", "epochs", "embedding", "pretrained")


@given(st.fixed_dictionaries({name: values_of(HINTS[name]) for name in FREE}))
def test_yaml_gives_back_what_was_put_in(values):
    config = TrainConfig(**values)
    text = yaml.safe_dump(config.as_dict())
    assert TrainConfig.from_dict(yaml.safe_load(text)) == config


def test_only_where_and_how_may_differ_on_resuming():
    mine = TrainConfig()
    assert mine.differences(TrainConfig(device="cpu", devices=4, graph=False, workers=0)) == {}
    assert mine.differences(TrainConfig(lr=0.1, seed=1)) == {"lr": (1e-3, 0.1), "seed": (0, 1)}
