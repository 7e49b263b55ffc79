"""How the colours of figures were chosen; run as a script, it prints the table of style.py.

Each colour is the one farthest from those before it, for full colour vision and without any one
kind of cone.
"""

import numpy as np

# From linear sRGB to what is seen without one kind of cone (Machado et al. 2009, severity 1).
VISIONS = np.array(
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
WEIGHTS = np.array([0.5, 1.0, 1.0, 2.0])[:, None]
# From linear sRGB to the responses of the cones, and from their cube roots to OKLab.
CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
OKLAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
# Where the search starts, what luminance a colour may have so that it stands out 3 to 1 from each
# ground of the page (WCAG 2), and how fine it looks for the first 20 colours and for the others.
LIGHT = ("#0072b2", "#d55e00"), (0.03, 0.2585), (16, 22)
DARK = ("#56b4e9", "#ee7733", "#00b080", "#e28fc0"), (0.171, 0.85), (14, 22)


def linear(colours):
    """Colours as linear sRGB, (N, 3)."""
    values = np.array([list(bytes.fromhex(colour[1:])) for colour in colours]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def luminance(colours):
    """Relative luminance as WCAG 2 defines it, (N,)."""
    return linear(colours) @ np.array([0.2126, 0.7152, 0.0722])


def contrast(one, other):
    """How far two colours stand out from each other, 1 to 21 (WCAG 2)."""
    low, high = sorted(luminance([one, other]))
    return (high + 0.05) / (low + 0.05)


def as_seen(colours):
    """Colours in OKLab as each of four kinds of colour vision sees them, (4, N, 3)."""
    seen = np.clip(np.einsum("vij,nj->vni", VISIONS, linear(colours)), 0, 1)
    return np.cbrt(seen @ CONES.T) @ OKLAB.T


def farthest(first, bounds, levels):
    """Fifty colours, each the farthest from those before it."""
    chosen = list(first)
    for steps, count in zip(levels, (20, 50), strict=True):
        values = np.rint(np.linspace(0, 255, steps)).astype(int)
        every = [f"#{r:02x}{g:02x}{b:02x}" for r in values for g in values for b in values]
        inside = (luminance(every) >= bounds[0]) & (luminance(every) <= bounds[1])
        codes = [code for code, good in zip(every, inside, strict=True) if good]
        candidates, nearest = as_seen(codes), np.full(len(codes), np.inf)
        for place in range(count):
            if place >= len(chosen):
                chosen.append(codes[int(nearest.argmax())])
            distance = np.linalg.norm(candidates - as_seen([chosen[place]]), axis=-1) * WEIGHTS
            nearest = np.minimum(nearest, distance.min(axis=0))
    return chosen


if __name__ == "__main__":
    for search in (LIGHT, DARK):
        print(" ".join(colour[1:] for colour in farthest(*search)))
