"""How often background alone exceeds a threshold: the exact null distributions of the detectors.

The background is n independent pixels of a Gaussian in d bands, with mean m and covariance S
(divided by n - 1), and t is a target that does not depend on them. The scores of a pixel are
distributed as follows, whatever the Gaussian and the target are, which makes the detectors CFAR.
Independent are b ~ Beta((n - d + 1)/2, (d - 1)/2), the loss by estimating the covariance, and
G ~ χ²₁/χ²₍ₙ₋d₎; docs/detection.md derives it all::

                   a new pixel                         a fitted one, which is one of the n
    ACE²           r²/(1 - r²) = G/(1 - b)             Beta(1/2, (d - 1)/2)
    SMF²·tᵀS⁻¹t    (n - 1/n)·G/b                       (n - 1)²/n·Beta(1/2, (n - 2)/2)
    RX             (n - 1/n)·d/(n - d)·F(d, n - d)     (n - 1)²/n·Beta(d/2, (n - d - 1)/2)

A target from which m was subtracted depends on m. For fitted pixels that changes nothing, since
they are independent of m; for new ones the formulas are then exact but for the error of m, which
both share: it vanishes as n/d grows and as the target moves away from the mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy import optimize, special, stats

from torchlace._checks import check_count, check_number
from torchlace._text import setting

Array = npt.NDArray[np.float64]
Tail = Callable[[Array], Array]


def ace_false_alarm(
    scores: npt.ArrayLike, bands: int, samples: int, *, fitted: bool = False, squared: bool = True
) -> Array:
    """The chance that a background pixel's ACE exceeds each of ``scores``.

    Args:
        scores: squared cosines in [0, 1], or cosines in [-1, 1].
        bands: d.
        samples: n, the pixels that the background was estimated from, more than ``bands``.
        fitted: the pixel is one of them, rather than a new one.
        squared: whether ``scores`` are squares; cosines are tested on one side.

    Example:
        >>> ace_false_alarm([0.0, 0.5], bands=10, samples=100).round(4)
        array([1.    , 0.0194])
        >>> ace_false_alarm([0.0, 0.5], bands=10, samples=100, fitted=True).round(4)
        array([1.   , 0.015])
    """
    _check_sizes(bands, samples, 2)
    values = np.asarray(scores, dtype=np.float64)
    squares = values if squared else values**2
    if fitted:
        chances = np.asarray(stats.beta.sf(squares, 0.5, (bands - 1) / 2))
    else:
        below = np.where(squares < 1, squares, 0)
        chances = np.where(squares < 1, _ace_tail(bands, samples)(below / (1 - below)), 0)
    if squared:
        return chances
    return np.where(values >= 0, chances / 2, 1 - chances / 2)


def ace_threshold(
    false_alarm: float, bands: int, samples: int, *, fitted: bool = False, squared: bool = True
) -> float:
    """The ACE that a background pixel exceeds with the chance ``false_alarm``.

    Arguments as in :func:`ace_false_alarm`.

    Example:
        >>> round(ace_threshold(1e-3, bands=10, samples=100), 3)
        0.739
    """
    _check_sizes(bands, samples, 2)
    chance = _check_false_alarm(false_alarm, 1 if squared else 2)
    if fitted:
        square = float(stats.beta.isf(chance, 0.5, (bands - 1) / 2))
    else:
        odds = _solve(_ace_tail(bands, samples), chance)
        square = odds / (1 + odds)
    return square if squared else square**0.5


def smf_threshold(
    false_alarm: float, bands: int, samples: int, *, fitted: bool = False, length: float = 1.0
) -> float:
    """The matched filter's output that a background pixel exceeds with the chance ``false_alarm``.

    The output is 1 at the target, so its noise depends on the target's ``length``, √(tᵀS⁻¹t).

    Example:
        >>> round(smf_threshold(1e-3, bands=10, samples=100, length=5.0), 3)
        0.705
    """
    _check_sizes(bands, samples, 1)
    chance = _check_false_alarm(false_alarm, 2)
    n = samples
    if fitted:
        square = (n - 1) ** 2 / n * float(stats.beta.isf(chance, 0.5, (n - 2) / 2))
        return float(square**0.5 / length)
    losses, _, weights = _losses(bands, n)
    square = _solve(lambda v: _ratio_tail(losses * v[..., None], n - bands) @ weights, chance)
    return float((square * (n - 1 / n)) ** 0.5 / length)


def rx_threshold(false_alarm: float, bands: int, samples: int, *, fitted: bool = False) -> float:
    """The RX distance that a background pixel exceeds with the chance ``false_alarm``.

    Example:
        >>> round(rx_threshold(1e-3, bands=10, samples=100), 2)
        37.06
    """
    _check_sizes(bands, samples, 1)
    chance = _check_false_alarm(false_alarm, 1)
    d, n = bands, samples
    if fitted:
        if n == d + 1:
            return float((n - 1) ** 2 / n)
        return float((n - 1) ** 2 / n * stats.beta.isf(chance, d / 2, (n - d - 1) / 2))
    return float((n - 1 / n) * d / (n - d) * stats.f.isf(chance, d, n - d))


def _ace_tail(bands: int, samples: int) -> Tail:
    """The chance that r²/(1 - r²) of a new pixel exceeds a value."""
    _, kept, weights = _losses(bands, samples)
    return lambda odds: _ratio_tail(kept * odds[..., None], samples - bands) @ weights


def _ratio_tail(values: Array, dof: int) -> Array:
    """P(χ²₁ / χ²_dof > value)."""
    return np.asarray(special.betainc(dof / 2, 0.5, 1 / (1 + values)))


def _losses(bands: int, samples: int) -> tuple[Array, Array, Array]:
    """Nodes of b, of 1 - b, and weights of the mean over b, fine where rare alarms come from."""
    if bands == 1:
        return np.ones(1), np.zeros(1), np.ones(1)
    steps = 10.0 ** np.arange(-18, 0)
    edges = np.concatenate([[0], steps, [0.5], 1 - steps[::-1][:16], [1]])
    nodes, weights = np.polynomial.legendre.leggauss(16)
    widths = np.diff(edges)[:, None]
    chances = (edges[:-1, None] + widths * (nodes + 1) / 2).ravel()
    shape = ((samples - bands + 1) / 2, (bands - 1) / 2)
    # Both from quantiles: 1 - b would lose its digits where b is almost 1.
    b, rest = special.betainccinv(*shape, chances), special.betaincinv(*shape[::-1], chances)
    return b, rest, (widths * weights / 2).ravel()


def _solve(tail: Tail, chance: float) -> float:
    """The positive number whose tail is ``chance``."""

    def miss(logarithm: float) -> float:
        found = float(tail(np.exp(np.asarray(logarithm))))
        return math.log(max(found, 1e-300) / chance)

    return float(np.exp(optimize.brentq(miss, -80, 80, xtol=1e-12)))


def _check_sizes(bands: int, samples: int, least: int) -> None:
    check_count("bands", bands)
    if bands < least:
        raise ValueError("ACE needs two bands or more: the cosine of single numbers is ±1 always")
    check_count("samples", samples)
    if samples <= bands:
        raise ValueError(
            f"{samples} samples in {bands} bands have no invertible covariance, so no false-alarm "
            f"rate follows from theory: give more, or use {setting('threshold', 'empirical')}"
        )


def _check_false_alarm(value: float, sides: int) -> float:
    """The chance of an alarm on any side."""
    return sides * check_number("false_alarm", value, 0, 1 / sides)
