"""Figure 1 of the paper: what the background's mean and covariance do to a cosine.

    python examples/whitening_toy.py [PICTURE]      # whitening_toy.png by default; two seconds

A target class around the origin and a long, narrow background beside it, in two features. Panels:
as they are, the background mean removed, whitened by the background. The signature is the mean of
the target samples in each space. Below each panel stands the cosine between signature and samples:
of the target on average, of the one marked target sample, and of the background on average. The
first rises from panel to panel, and the marked sample turns from opposite to alike.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from torchlace.functional import cholesky_whitening, cosine

PICTURE = Path("whitening_toy.png")
TITLES = ("raw", "background mean removed", "whitened")


def samples() -> tuple[Tensor, Tensor]:
    """Background and target samples, (N, 2)."""
    generator = torch.Generator().manual_seed(2)
    along, across = torch.tensor([0.8, 0.6]), torch.tensor([0.6, -0.8])
    shape = torch.stack([1.3 * along, 0.35 * across])
    background = torch.randn(400, 2, generator=generator) @ shape + 1.7 * across
    target = 0.8 * torch.randn(150, 2, generator=generator) @ shape + 0.16 * across
    return background, target


def spaces(background: Tensor, target: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Background and target as they are, centred, and whitened."""
    mean, whitening = background.mean(0), cholesky_whitening(background.T.cov())
    centred = (background - mean, target - mean)
    whitened = (centred[0] @ whitening.T, centred[1] @ whitening.T)
    return [(background, target), centred, whitened]


def similarities(background: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines of background and of target samples to the mean of the target."""
    signature = target.mean(0, keepdim=True)
    return cosine(background, signature)[:, 0], cosine(target, signature)[:, 0]


def draw_panel(axes: Axes, background: Tensor, target: Tensor, marked: int) -> None:
    """One space, with the signature and one sample as arrows from the origin."""
    axes.scatter(*background.T, s=6, color="tab:blue", alpha=0.5, label="background")
    axes.scatter(*target.T, s=6, color="tab:orange", label="target")
    arrows = [(target.mean(0), "black", "signature"), (target[marked], "tab:red", "one target")]
    for tip, colour, name in arrows:
        axes.annotate(
            "", tip.tolist(), (0, 0), arrowprops={"arrowstyle": "->", "color": colour, "lw": 1.8}
        )
        axes.plot([], [], color=colour, label=name)
    axes.plot(0, 0, "+", color="black", markersize=9)
    of_background, of_target = similarities(background, target)
    text = (
        "cosine to the signature\n"
        f"target, mean {of_target.mean():+.2f}\n"
        f"one target {of_target[marked]:+.2f}\n"
        f"background, mean {of_background.mean():+.2f}"
    )
    axes.set_xlabel(text.replace("-0.00", "+0.00").replace("-", "−"))
    axes.set_aspect("equal", adjustable="datalim")


def main() -> None:
    background, target = samples()
    panels = spaces(background, target)
    cosines = [similarities(*panel)[1] for panel in panels]
    # Of those opposite to the signature at first, the one that is most like the others then.
    opposite = (cosines[0] < -0.9).nonzero().flatten()
    marked = int(opposite[(cosines[1][opposite] - cosines[1].mean()).abs().argmin()])
    figure = Figure(figsize=(10, 4.2), dpi=100)
    figure.set_layout_engine("constrained")
    for number, (panel, title) in enumerate(zip(panels, TITLES, strict=True), start=1):
        axes = figure.add_subplot(1, 3, number)
        draw_panel(axes, *panel, marked)
        axes.set_title(title)
        of_background, of_target = similarities(*panel)
        print(
            f"{title:24} target {of_target.mean():+.2f}, marked {of_target[marked]:+.2f}, "
            f"background {of_background.mean():+.2f}"
        )
    handles = figure.axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=4, frameon=False)
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    print(path)


if __name__ == "__main__":
    main()
