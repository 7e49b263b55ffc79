"""Colours that stay apart for every kind of colour vision, for any number of classes."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from torchlace._checks import check_count

Floats = NDArray[np.float64]

# Okabe and Ito's colours without black and yellow, which vanish on a dark and on a white page.
_FIRST = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_LUMINANCE = (0.08, 0.55)
_STEPS = 14

# From linear sRGB to what is seen without one kind of cone (Machado et al. 2009, severity 1).
_VISIONS = np.array(
    [
        [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ],
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ],
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ],
    ]
)
# Distances count half with full vision, which has a further dimension to use, and double with
# tritanopia, which is rare.
_WEIGHTS = np.array([0.5, 1.0, 1.0, 2.0])[:, None]
# From linear sRGB to the responses of the cones, and from their cube roots to OKLab.
_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_OKLAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def palette(count: int) -> list[str]:
    """Colours for ``count`` classes or runs, as ``#rrggbb``.

    Okabe and Ito's come first; each further one is the colour that is farthest from those before
    it, for full colour vision and without any one kind of cone. Beyond about twenty no colours are
    far apart: shapes and labels must help.

    Example:
        >>> palette(3)
        ['#0072b2', '#d55e00', '#009e73']
    """
    check_count("count", count)
    return list(_chain(max(20, count))[:count])


def separation(colours: list[str]) -> float:
    """Smallest distance in OKLab of any two colours, for the eye that sees them closest.

    Example:
        >>> separation(["#000000", "#ffffff"]) > 0.9
        True
    """
    seen = _seen(_linear(colours))
    between = np.linalg.norm(seen[:, :, None] - seen[:, None, :], axis=-1).min(axis=0)
    return float(between[np.triu_indices(len(colours), 1)].min())


@lru_cache(maxsize=8)
def _chain(count: int) -> tuple[str, ...]:
    levels = np.rint(np.linspace(0, 255, _STEPS)).astype(int)
    codes = [f"#{r:02x}{g:02x}{b:02x}" for r in levels for g in levels for b in levels]
    rgb = _linear(codes)
    luminance = rgb @ np.array([0.2126, 0.7152, 0.0722])
    visible = (luminance >= _LUMINANCE[0]) & (luminance <= _LUMINANCE[1])
    codes = [code for code, seen in zip(codes, visible, strict=True) if seen]
    candidates = _seen(rgb[visible])
    chosen = list(_FIRST)
    nearest = np.full(len(codes), np.inf)
    for place in range(count):
        if place >= len(chosen):
            chosen.append(codes[int(nearest.argmax())])
        own = _seen(_linear(chosen[place : place + 1]))
        distance = np.linalg.norm(candidates - own, axis=-1) * _WEIGHTS
        nearest = np.minimum(nearest, distance.min(axis=0))
    return tuple(chosen)


def _linear(codes: list[str]) -> Floats:
    """Linear sRGB, (N, 3)."""
    bytes_ = [[int(code[place : place + 2], 16) for place in (1, 3, 5)] for code in codes]
    value = np.array(bytes_, dtype=np.float64) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def _seen(rgb: Floats) -> Floats:
    """OKLab as every kind of eye sees it, (4, N, 3)."""
    seen = np.clip(np.einsum("vij,nj->vni", _VISIONS, rgb), 0, 1)
    return np.asarray(np.cbrt(seen @ _CONES.T) @ _OKLAB.T)
