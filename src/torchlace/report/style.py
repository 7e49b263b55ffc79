"""The look that all figures share: style, colours, and how a figure is saved."""

from __future__ import annotations

from collections.abc import Callable
from colorsys import hls_to_rgb
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np

from torchlace._checks import check_count
from torchlace._text import shown
from torchlace.runs import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

P = ParamSpec("P")

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

# Each stands out 3 to 1 from its page and is the farthest from those before it, for every kind of
# colour vision: `python tests/report/colours.py` finds them.
_LIGHT = """
0072b2 d55e00 552200 cc00ff 440088 aa1166 339966 0000dd 115544 9977dd 885500 8800aa ff3366 dd00aa
003355 664488 cc6699 882222 5544dd 995588 610049 ce0018 496d3d 6d8686 555561 b649c2 86863d 313d86
aa4949 556de7 0049c2 86006d 3d00ff 3d3d3d 1800aa aa249e 6d0c24 7986c2 3d0cc2 553d00 316d79 b661ff
b67961 613155 f300db c23179 796d9e 246d00 ce61c2 550c6d"""
_DARK = """
56b4e9 ee7733 00b080 e28fc0 c4ff00 9d3bff 89ffff d8149d ffc489 3b76c4 76764e b1c400 eb0027 9d89ff
c4c4ff 27ebb1 89c49d 9d89b1 b16276 ebebd8 ceaa61 b6ffaa e7db49 0c8600 ff6186 ce49db 929e55 ffc2db
ff86ff 49aa00 9261aa f361c2 ceb6c2 f3006d 6ddb61 00866d 6d79e7 79aa9e c279db b67949 b661ff ce5592
86ff79 aadbf3 ce4955 aa610c 92c2db 00ce79 e761ff ff9e92"""


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


def palette(count: int, dark: bool = False) -> list[str]:
    """Colours for ``count`` classes or runs, as ``#rrggbb``.

    Each stands out 3 to 1 from a light page, or with ``dark`` from a dark one. The first fifty are
    as far apart as can be for full colour vision and without any one kind of cone. Beyond about
    twenty no colours are far apart: shapes and labels must help.

    Example:
        >>> palette(3)
        ['#0072b2', '#d55e00', '#552200']
    """
    check_count("count", count)
    table = (_DARK if dark else _LIGHT).split()
    return [
        f"#{table[place]}" if place < len(table) else _further(place, dark)
        for place in range(count)
    ]


def _further(place: int, dark: bool) -> str:
    """A colour beyond the tables: the next hue by the golden section, as bright as is allowed."""
    rgb = np.array(hls_to_rgb(0.618034 * place % 1, 0.5, 1 - place % 4 / 5)) ** 2.2
    low, high = (0.2, 0.8) if dark else (0.02, 0.24)
    wanted, own = low + (high - low) * (place % 7) / 6, float(rgb @ [0.2126, 0.7152, 0.0722])
    share = max(0.0, (wanted - own) / (1 - own))
    mixed = (rgb * min(1.0, wanted / own) * (1 - share) + share) ** (1 / 2.2)
    return "#" + "".join(f"{round(255 * value):02x}" for value in mixed)
