"""Small grids, and lines of results as runs write them."""

import base64
import dataclasses

import numpy as np

from torchlace.experiments import Record
from torchlace.experiments.cells import run_name

GRID = """
title: Two heads
seeds: 2
baseline: softmax
settings: {data: digits, epochs: 2, batch_size: 256, device: cpu}
columns:
  accuracy: {label: Accuracy}
rows:
  softmax: {label: Softmax, settings: {head: softmax}, published: {accuracy: 90.5 ± 0.5}}
  lace: {label: LACE, settings: {head: lace}}
"""


def line(config, right, **more):
    """The line of a finished run that had these test images right."""
    right = np.asarray(right, bool)
    return {
        "experiment": "some",
        "run": run_name(config),
        "dataset": config.data,
        "head": config.head,
        "seed": config.seed,
        "status": "finished",
        "test_accuracy": 100 * right.mean(),
        "data_digest": "d",
        "seconds": 1.0,
        "test_images": len(right),
        "test_right": base64.b64encode(np.packbits(right).tobytes()).decode(),
        "config": dataclasses.replace(config, root=None).as_dict(),
        **more,
    }


def records(experiment, accuracy, images=1000):
    """A record for every cell; accuracy(row, column, seed) in percent, the first images right."""
    found = {}
    for cell in experiment.cells():
        config = cell.task.config
        share = accuracy(cell.row, cell.column, config.seed)
        if share is not None:
            right = np.arange(images) < round(images * share / 100)
            found[cell.task.name] = Record(line(config, right), f"runs/{cell.task.name}")
    return found
