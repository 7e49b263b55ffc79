"""Text stands out from what it stands on, in both schemes (WCAG 2 AA: 4.5 to 1)."""

import re

import pytest

from torchlace.report.page import _asset

ON = {
    "ink": ("page", "surface", "raised", "notice"),
    "muted": ("page", "surface", "raised"),
    "accent": ("surface", "raised", "page"),
    "wrong": ("surface",),
}


def schemes():
    found = re.findall(r"\{([^{}]*--page:[^{}]*)\}", _asset("page.css"))
    light, dark, chosen_dark = (dict(re.findall(r"--([\w-]+): (#\w{6})", block)) for block in found)
    assert dark == chosen_dark
    assert light.keys() == dark.keys()
    return {"light": light, "dark": dark}


def luminance(colour):
    values = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    linear = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values)
    return sum(a * b for a, b in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out(scheme):
    colours = schemes()[scheme]
    for text, grounds in ON.items():
        for ground in grounds:
            low, high = sorted((luminance(colours[text]), luminance(colours[ground])))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (text, ground)
