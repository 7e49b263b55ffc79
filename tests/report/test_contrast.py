"""Text stands out from what it stands on, in both schemes (WCAG 2 AA: 4.5 to 1)."""

import re

import pytest
from report.colours import contrast

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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out(scheme):
    colours = schemes()[scheme]
    for text, grounds in ON.items():
        for ground in grounds:
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
