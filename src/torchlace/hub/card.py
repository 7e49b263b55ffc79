"""The model card of a trained classifier: what the Hub reads, and what people do."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torchlace import heads

if TYPE_CHECKING:
    from torchlace.hub import Pretrained


def model_card(given: Pretrained, made: Mapping[str, Any], name: str, license: str | None) -> str:
    """The card of a classifier that is ``made`` as its config.json says."""
    task = "image-classification"
    about: dict[str, Any] = {"library_name": "torchlace", "pipeline_tag": task}
    about["tags"] = ["torchlace", task, made["head"]]
    about |= {"license": license} if license is not None else {}
    # A JSON value is a YAML value too.
    front = "".join(f"{key}: {json.dumps(value)}\n" for key, value in about.items())
    images = "prepared images" if given.prepare is None else "uint8 images"
    if given.size is not None:
        images += f" of {given.size[0]} × {given.size[1]} pixels"
    # Grey images are repeated to as many channels as the mean has.
    channels = made.get("channels", 3)
    several = "" if given.prepare is None or channels == 1 else "1 or "
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
        f"It takes {images}, (N, {several}{channels}, height, width).",
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
        known = (figure(figures, name) for name in (each.name, each.line))
        value = each.shown(next((found for found in known if found is not None), None))
        # Of five classes every one is among the first five.
        said = each.short and (each.name != "top5_accuracy" or made["num_classes"] > 5)
        if value is not None and said:
            lines.append(f"| {each.heading} | {value:,.{each.digits}f} | {each.about} |")
    return "\n".join(lines)


def plain(text: str) -> str:
    """A name without what Markdown would act upon."""
    return re.sub(r"[^\w /.+-]", "", text)
