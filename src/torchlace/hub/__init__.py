"""Trained classifiers as folders for the Hugging Face Hub: weights, settings and a model card.

A folder holds ``model.safetensors``, ``config.json`` and ``README.md``. Loading one reads numbers
and names: nothing in it is executed, and there are no pickles.
"""

from torchlace.hub.card import Pretrained
from torchlace.hub.folders import from_pretrained, push_to_hub, save_pretrained

__all__ = ["Pretrained", "from_pretrained", "push_to_hub", "save_pretrained"]
