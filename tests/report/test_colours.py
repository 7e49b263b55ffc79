import re

import numpy as np
import pytest
from report.colours import DARK, LIGHT, as_seen, contrast, farthest
from report.test_contrast import schemes

from torchlace.report.style import palette


def separation(colours):
    """Smallest distance in OKLab of any two colours, for the eye that sees them closest."""
    seen = as_seen(colours)
    between = np.linalg.norm(seen[:, :, None] - seen[:, None, :], axis=-1).min(axis=0)
    return between[np.triu_indices(len(colours), 1)].min()


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("count", [1, 2, 8, 20, 100, 300])
def test_as_many_different_colours_as_asked_for(count, dark):
    colours = palette(count, dark)
    assert len(set(colours)) == count
    assert all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in colours)


def test_more_colours_begin_with_the_fewer():
    assert palette(100)[:20] == palette(20)
    assert palette(20)[:10] == palette(10)


# Two colours are told apart side by side from about 0.02 in OKLab on.
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(("count", "least"), [(6, 0.06), (10, 0.06), (20, 0.04), (50, 0.02)])
def test_apart_for_every_kind_of_eye(count, least, dark):
    assert separation(palette(count, dark)) > least


def test_the_tables_are_what_the_search_finds():
    assert palette(50) == farthest(*LIGHT)
    assert palette(50, dark=True) == farthest(*DARK)


def test_separation_sees_what_the_blind_do_not():
    # A red and a green that deuteranopes confuse, though they lie far apart for others.
    assert separation(["#b36a00", "#7f7f00"]) < 0.06
    assert separation(["#0072b2", "#e69f00"]) > 0.2
    assert separation(["#000000", "#ffffff"]) > 0.9


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_colour_stands_out_3_to_1_from_all_that_it_is_drawn_on(scheme):
    grounds = [schemes()[scheme][name] for name in ("page", "surface", "raised", "ball")]
    colours = palette(300, scheme == "dark")
    assert min(contrast(one, ground) for one in colours for ground in grounds) >= 3


def test_no_colours_are_an_error():
    with pytest.raises(ValueError, match="count"):
        palette(0)
