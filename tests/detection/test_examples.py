"""Figure 1 of the paper: the cosines rise from panel to panel."""

import runpy
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "examples" / "whitening_toy.py"


def test_the_target_comes_nearer_to_its_signature_and_the_background_does_not():
    toy = runpy.run_path(str(SCRIPT))
    cosines = [toy["similarities"](*panel) for panel in toy["spaces"](*toy["samples"]())]
    raw, centred, whitened = (target.mean().item() for _, target in cosines)
    assert raw < 0.5 < centred - 0.1
    assert centred + 0.05 < whitened
    assert abs(cosines[2][0].mean().item()) < 0.05 < cosines[0][0].mean().item()


def test_the_picture_is_drawn(tmp_path, monkeypatch, capsys):
    path = tmp_path / "new" / "toy.png"
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), str(path)])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert str(path) in capsys.readouterr().out
