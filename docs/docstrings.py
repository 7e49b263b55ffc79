"""Docstrings as the reference shows them."""

import re

import griffe


class Plain(griffe.Extension):
    """Examples become code, and Sphinx's roles plain code."""

    def on_instance(self, *, obj, **kwargs):
        """Rewrite the docstring of an object."""
        if obj.docstring:
            text = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = re.sub(r":\w+:`~?(?:\w+\.)*(\w+)`", r"`\1`", text)
