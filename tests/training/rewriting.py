"""Files of runs changed by hand, as somebody would who also mends their digests."""

import json
import re
from pathlib import Path

import yaml
from safetensors.torch import load_file, save_file

from torchlace.runs.seals import BLANK, sealed_text

# What a run finds out at its start, where a test does not care.
FACTS = {
    **{"class_names": ["a", "b"], "channels": 1, "size": [8, 8], "mean": [0.5], "std": [0.2]},
    "data_digest": "d",
}


def rewrite_settings(path, change):
    """Change what config.yaml says by a function of its values."""
    values = yaml.safe_load(Path(path).read_text())
    change(values)
    values["run"]["digest"] = BLANK
    Path(path).write_bytes(sealed_text(yaml.safe_dump(values, sort_keys=False)))


def rewrite_json(path, **changes):
    """Change or add values of a JSON file."""
    values = json.loads(Path(path).read_text()) | changes
    values.pop("digest", None)
    Path(path).write_bytes(sealed_text(json.dumps({**values, "digest": BLANK})))


def without_digests(run):
    """Make a run one from before files carried digests."""
    patterns = {
        "config.yaml": r"  format: \d\n|  digest: .*\n",
        "metrics.csv": r",(digest|sha256:.*|)$",
        "result.json": r',\n "digest": ".*"',
        "evaluation.json": r',\n "digest": ".*"',
    }
    for name, pattern in patterns.items():
        path = Path(run) / name
        if path.exists():
            path.write_text(re.sub(pattern, "", path.read_text(), flags=re.MULTILINE))
    weights = Path(run) / "best.safetensors"
    save_file(load_file(weights), weights)
    checkpoint = Path(run) / "last.ckpt"
    if checkpoint.exists():
        checkpoint.write_bytes(checkpoint.read_bytes()[: -len(BLANK)])
