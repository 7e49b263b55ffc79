"""What the settings of earlier versions meant, said in today's words."""

from __future__ import annotations

from typing import Any

from torchlace.runs.seals import FORMAT

_NAMES = {"estimated": "total", "low-rank": "low-rank-total"}


def is_earlier(facts: Any) -> bool:
    """Whether a run with these facts was made before settings meant what they mean today.

    Example:
        >>> is_earlier({"format": 2}), is_earlier({"format": FORMAT})
        (True, False)
    """
    number = facts.get("format", 1) if isinstance(facts, dict) else 1
    return isinstance(number, int) and number < FORMAT


def translated(values: dict[str, Any]) -> dict[str, Any]:
    """Settings of a run from before LACE whitened within classes, as they are written today.

    Then the covariance was that of all samples, scores had no bias, signatures no anchor, and the
    automatic scale was AdaCos'.

    Example:
        >>> translated({"head": "lace", "head_options": {"mean": False}})["head_options"]
        {'background': 'total', 'scale': 'adacos', 'bias': False, 'mean': False}
        >>> translated({"head": "softmax"})
        {'head': 'softmax'}
    """
    head, options = values.get("head", "lace"), dict(values.get("head_options") or {})
    if head not in ("lace", "lace-learned", "normface"):
        return values
    if options.get("scale", "auto") == "auto":
        options["scale"] = "adacos"
    if head == "lace":
        options = _lace(options)
    return {**values, "head_options": options}


def _lace(options: dict[str, Any]) -> dict[str, Any]:
    background = options.pop("background", "estimated")
    scale = options.pop("scale")
    if background == "within":  # which knew of anchors for a while, if asked
        found = {name: options.pop(name, False) for name in ("anchored", "bias")}
        return {"scale": scale, **found, **options}
    if background == "one-vs-all":
        options["background_options"] = {"shrinkage": 0.1, **options.get("background_options", {})}
    background = _NAMES.get(background, background)
    return {"background": background, "scale": scale, "bias": False, **options}
