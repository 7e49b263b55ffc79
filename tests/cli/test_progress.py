"""The bar of a training on terminals of several widths, and the times it tells."""

import io
import re
from types import SimpleNamespace

import pytest
from rich.console import Console
from training.processes import watched

from torchlace.cli import progress as bars

ROW = {
    "train_loss": 12.3456,
    "val_loss": 10.9876,
    "val_accuracy": 98.76,
    "images_per_second": 54321.0,
    "seconds": 123456.7,
}


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(bars, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def shown(bar, width):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(bar.bars.make_tasks_table(bar.bars.tasks))
    return console.file.getvalue()


def test_times_left_are_those_of_the_epoch_and_of_all_epochs(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    bar = bars.Bars(epochs=4)
    for step in range(1, 11):
        clock.now += 2
        bar.step(1, step, 10)
    assert "left 0:00:00 (run ≤ 0:01:00)" in shown(bar, 200)  # by the steps, 20 s an epoch
    clock.now += 7  # validation
    bar.epoch({**ROW, "epoch": 1}, 4)
    clock.now += 3
    bar.step(2, 1, 10)
    # 9 steps of 3 s, and two epochs of 25 s: what passed since the first step was done.
    assert "1/10 left 0:00:27 (run ≤ 0:01:17)" in shown(bar, 200)
    clock.now += 1
    bar.step(2, 2, 10)
    assert "2/10 left 0:00:16 (run ≤ 0:01:06)" in shown(bar, 200)
    bar.epoch({**ROW, "epoch": 3}, 4)
    clock.now += 5
    bar.step(4, 5, 10)
    assert "5/10 left 0:00:05 (run ≤ 0:00:05)" in shown(bar, 200)
    bar.close()


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_nothing_wraps_or_is_cut(width, clock, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    bar = bars.Bars(epochs=300)
    for epoch in (123, 124):
        bar.epoch({**ROW, "epoch": epoch}, 300)
        for step in (300, 390):
            clock.now += 100
            bar.step(epoch + 1, step, 391)
        (line,) = shown(bar, width).splitlines()
        assert line.startswith(f"epoch {epoch + 1}/300")
        assert re.search(r" 390/391 left 0:00:01 \(run ≤ 9:\d\d:\d\d\)$", line.rstrip())
    bar.close()
    lines = capsys.readouterr().err.splitlines()
    told = [line for line in lines if line.startswith("epoch 12") and "validation" in line]
    assert len(told) == 2
    assert all(len(line) <= width and "accuracy 98.76 %" in line for line in told)
    assert ("images/s" in told[0], " s" in told[0]) == (width > 80, width > 80)


def test_on_a_narrow_terminal_for_real(tmp_path):
    command = ("train", "--epochs", "2", "--batch-size", "16", "--run", "run")
    code, _, seen = watched(*command, folder=tmp_path, columns=60)
    assert code == 0, seen
    plain = re.sub(r"\x1b\[[0-9;?]*\w", "", seen.decode())
    lines = [line.rstrip() for line in re.split(r"[\r\n]+", plain)]
    assert max(map(len, lines)) <= 60
    assert any(
        re.fullmatch(r"epoch 2/2 .* left 0:\d\d:\d\d \(run ≤ 0:\d\d:\d\d\)", x) for x in lines
    )
    assert "…" not in plain


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--data", "nowhere"), b"no data 'nowhere'"),
        (("--lr", "1e30"), b"the training loss became"),
    ],
)
def test_an_error_takes_the_bar_away_and_gives_the_cursor_back(arguments, said, tmp_path):
    code, _, seen = watched("train", *arguments, folder=tmp_path)
    assert code == 1
    assert seen.rindex(b"\x1b[?25l") < seen.rindex(b"\x1b[?25h") < seen.rindex(b"error: " + said)
