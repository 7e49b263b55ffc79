"""The look that all figures share: style, colours, and how a figure is saved."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np
from numpy.typing import NDArray

from torchlace._checks import check_count
from torchlace._text import shown
from torchlace.runs import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

P = ParamSpec("P")
Floats = NDArray[np.float64]

# Inches: a column and the full width of a printed page.
COLUMN, PAGE = 3.5, 7.0
INK, FAINT, RED = "#1d232b", "#d5dae0", "#e0002b"
STYLE: Any = {
    "figure.dpi": 150,
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
    "savefig.dpi": 300,
    "svg.hashsalt": "torchlace",
    # Shipped with matplotlib: figures look the same on every machine.
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 8,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.4,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "text.color": INK,
    # Names of classes and runs are text, also those with dollar signs.
    "text.parse_math": False,
}

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


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draw in the shared style, whatever the user's own settings of matplotlib are."""

    @wraps(draw)
    def drawing(*args: P.args, **kwargs: P.kwargs) -> Figure:
        import matplotlib

        with matplotlib.rc_context():
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(STYLE)
            figure = draw(*args, **kwargs)
            # Ticks take their style when they are made, which is otherwise at the first drawing.
            figure.draw_without_rendering()
            return figure

    return drawing


def blank(width: float, height: float) -> Figure:
    """An empty figure of this many inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


def save(figure: Figure, path: Path | str) -> Path:
    """Write a figure as PNG or SVG, by the ending of ``path``.

    Example:
        >>> import tempfile
        >>> from torchlace.report import whitening_spectrum
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(whitening_spectrum({"lace": [3.0, 2.0, 0.1]}), f"{folder}/spectrum.svg").name
        'spectrum.svg'
    """
    import matplotlib

    path = Path(path)
    kind = path.suffix.lower().removeprefix(".")
    if kind not in ("png", "svg"):
        raise ValueError(f"figures are written as .png or .svg, got {path.name!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    # A date would make every file differ from the last.
    metadata: dict[str, Any] = {"Date": None} if kind == "svg" else {}
    with matplotlib.rc_context(STYLE):
        write_whole(path, lambda file: figure.savefig(file, format=kind, metadata=metadata))
    return path


def shorten(name: str, longest: int = 24) -> str:
    """A name cut to ``longest`` characters, with what can't be drawn written out."""
    name = shown(name)
    return name if len(name) <= longest else name[: longest - 1] + "…"


def grid(axes: Axes, axis: Any = "y") -> None:
    """Draw faint lines to read values from."""
    axes.grid(True, axis=axis)
    axes.tick_params(length=2.5, width=0.6)


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


@lru_cache(maxsize=8)
def _chain(count: int) -> tuple[str, ...]:
    """The first ``count`` colours, each the farthest from those before it."""
    levels = np.rint(np.linspace(0, 255, _STEPS)).astype(int)
    codes = [f"#{r:02x}{g:02x}{b:02x}" for r in levels for g in levels for b in levels]
    rgb = linear(codes)
    luminance = rgb @ np.array([0.2126, 0.7152, 0.0722])
    visible = (luminance >= _LUMINANCE[0]) & (luminance <= _LUMINANCE[1])
    codes = [code for code, seen in zip(codes, visible, strict=True) if seen]
    candidates = as_seen(rgb[visible])
    chosen = list(_FIRST)
    nearest = np.full(len(codes), np.inf)
    for place in range(count):
        if place >= len(chosen):
            chosen.append(codes[int(nearest.argmax())])
        own = as_seen(linear(chosen[place : place + 1]))
        distance = np.linalg.norm(candidates - own, axis=-1) * _WEIGHTS
        nearest = np.minimum(nearest, distance.min(axis=0))
    return tuple(chosen)


def linear(codes: list[str]) -> Floats:
    """Colours as linear sRGB, (N, 3)."""
    bytes_ = [[int(code[place : place + 2], 16) for place in (1, 3, 5)] for code in codes]
    value = np.array(bytes_, dtype=np.float64) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def as_seen(rgb: Floats) -> Floats:
    """Colours in OKLab as each of four kinds of colour vision sees them, (4, N, 3)."""
    seen = np.clip(np.einsum("vij,nj->vni", _VISIONS, rgb), 0, 1)
    return np.asarray(np.cbrt(seen @ _CONES.T) @ _OKLAB.T)
