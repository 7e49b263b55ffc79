"""What is known of a trained classifier, and the model card that says so."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchlace import heads
from torchlace.data import Prepare
from torchlace.models import Classifier


@dataclass(frozen=True)
class Pretrained:
    """A trained classifier with what its users have to know.

    Attributes:
        model: the classifier.
        class_names: a name for each class.
        prepare: the transform from uint8 images to what the model takes.
        size: height and width that images are brought to before.
        about: what the model card says of it, in Markdown.
        figures: figures of merit for the card's table of results, by the names of measures.
    """

    model: Classifier
    class_names: tuple[str, ...] = ()
    prepare: Prepare | None = None
    size: tuple[int, int] | None = None
    about: str = ""
    figures: Mapping[str, Any] | None = None


def model_card(given: Pretrained, made: Mapping[str, Any], name: str, license: str | None) -> str:
    """The model card: what the Hub reads, and what people do."""
    shape = given.size
    about: dict[str, Any] = {"library_name": "torchlace", "pipeline_tag": "image-classification"}
    about["tags"] = ["torchlace", "image-classification", made["head"]]
    if license is not None:
        about["license"] = license
    # A JSON value is a YAML value too.
    front = "".join(f"{key}: {json.dumps(value)}\n" for key, value in about.items())
    images = "prepared images" if given.prepare is None else "uint8 images"
    if shape is not None:
        images += f" of {shape[0]} × {shape[1]} pixels"
    prepared = "images" if given.prepare is None else "loaded.prepare(images)"
    parts = [
        f"---\n{front}---",
        f"# {plain(name)}",
        f"An image classifier: the network `{made['backbone']}` with the head `{made['head']}` of "
        f"torchlace. {heads.summary(made['head'])}\nIt tells {made['num_classes']} classes apart; "
        f"`config.json` has their names and the options of network and head.",
        "## Use",
        "```python\nimport torchlace as tl\n\n"
        f'loaded = tl.hub.from_pretrained("{plain(name)}")\n'
        f"probabilities = loaded.model.probabilities({prepared})\n```",
        f"It takes {images}, (N, {_channels(given, made)}, height, width).",
    ]
    if given.figures:
        parts += ["## Results", "On the test images:", _results(given.figures, made)]
    if given.about:
        parts += ["## Training", given.about.rstrip()]
    return "\n\n".join(parts) + "\n"


def _results(figures: Mapping[str, Any], made: Mapping[str, Any]) -> str:
    """The measures that runs are compared by, as a table."""
    from torchlace.evaluation.measures import TRAINING, figure, measures

    lines = ["| measure | value | |", "| --- | ---: | --- |"]
    for each in (*measures(), *TRAINING):
        found = figure(figures, each.name)
        value = each.shown(figure(figures, each.line) if found is None else found)
        # Of five classes every one is among the first five.
        said = each.short and (each.name != "top5_accuracy" or made["num_classes"] > 5)
        if value is not None and said:
            lines.append(f"| {each.heading} | {value:,.{each.digits}f} | {each.about} |")
    return "\n".join(lines)


def _channels(given: Pretrained, made: Mapping[str, Any]) -> str:
    channels: int = made.get("channels", 3)
    # Grey images are repeated to as many channels as the mean has.
    return str(channels) if given.prepare is None or channels == 1 else f"1 or {channels}"


def plain(text: str) -> str:
    """A name without what Markdown would act upon."""
    return re.sub(r"[^\w /.+-]", "", text)
