"""The look that all figures share, and how they are written."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

from torchlace._text import shown

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

    from torchlace.runs import write_whole

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
    """A name cut to ``longest`` characters, with what can't be drawn written out.

    Example:
        >>> shorten("a rather long name", 10)
        'a rather …'
    """
    name = shown(name)
    return name if len(name) <= longest else name[: longest - 1] + "…"


def grid(axes: Axes, axis: Any = "y") -> None:
    """Faint lines to read values from."""
    axes.grid(True, axis=axis)
    axes.tick_params(length=2.5, width=0.6)
