import re

import numpy as np
import pytest

from torchlace.report.style import as_seen, linear, palette


def separation(colours):
    """Smallest distance in OKLab of any two colours, for the eye that sees them closest."""
    seen = as_seen(linear(colours))
    between = np.linalg.norm(seen[:, :, None] - seen[:, None, :], axis=-1).min(axis=0)
    return between[np.triu_indices(len(colours), 1)].min()


@pytest.mark.parametrize("count", [1, 2, 8, 20, 100, 300])
def test_as_many_different_colours_as_asked_for(count):
    colours = palette(count)
    assert len(set(colours)) == count
    assert all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in colours)


def test_more_colours_begin_with_the_fewer():
    assert palette(100)[:20] == palette(20)
    assert palette(20)[:10] == palette(10)


# Two colours are told apart side by side from about 0.02 in OKLab on.
@pytest.mark.parametrize(("count", "least"), [(6, 0.07), (10, 0.07), (20, 0.04), (50, 0.02)])
def test_apart_for_every_kind_of_eye(count, least):
    assert separation(palette(count)) > least


def test_separation_sees_what_the_blind_do_not():
    # A red and a green that deuteranopes confuse, though they lie far apart for others.
    assert separation(["#b36a00", "#7f7f00"]) < 0.06
    assert separation(["#0072b2", "#e69f00"]) > 0.2
    assert separation(["#000000", "#ffffff"]) > 0.9


def test_visible_on_white_and_on_dark():
    for colour in palette(100)[6:]:
        red, green, blue = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
        linear = [
            v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in (red, green, blue)
        ]
        luminance = sum(a * b for a, b in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))
        assert 1.05 / (luminance + 0.05) > 1.7
        assert (luminance + 0.05) / (0.0075 + 0.05) > 1.7


def test_no_colours_are_an_error():
    with pytest.raises(ValueError, match="count"):
        palette(0)
