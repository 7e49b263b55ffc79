"""Pixels to detect in: random ones, and an image with structure."""

import numpy as np


def correlated(rng, count, bands, offset=5.0):
    return rng.normal(size=(count, bands)) @ rng.normal(size=(bands, bands)) + offset


def scene(seed=0, height=23, width=31, bands=8):
    """Smooth mixtures of few spectra with a little noise, and a target mixed into two pixels."""
    rng = np.random.default_rng(seed)
    wave = np.linspace(0, 1, bands)
    bump = np.exp(-((wave - 0.6) ** 2))
    spectra = np.stack([0.3 + 0.3 * wave, 0.5 - 0.2 * np.cos(6 * wave), bump])
    rows, columns = np.mgrid[:height, :width] / 10
    parts = np.stack([np.exp(-((rows - 1) ** 2 + (columns - a) ** 2)) for a in (0, 1, 2)], axis=-1)
    parts += 0.1
    image = parts / parts.sum(-1, keepdims=True) @ spectra
    image += 0.003 * rng.normal(size=image.shape)
    target = 0.4 + 0.3 * np.sin(9 * wave)
    for place in ((5, 6), (height - 3, width - 1)):
        image[place] = 0.6 * image[place] + 0.4 * target
    return image, target
