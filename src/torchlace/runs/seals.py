r"""Files that carry the digest of their own content, so that a changed bit is noticed on reading.

A sealed file holds ``sha256:`` and 64 digits: the SHA-256 of the whole file with these digits as
zeros. It is one file, so a kill can't part the digest from what it covers. Each format keeps it
where other readers don't mind: YAML and JSON as their last entry, CSV in the last cell,
safetensors among the metadata, archives (checkpoints, .npz) behind their end.

    >>> content = sealed_text(f"data: digits\ndigest: {BLANK}\n")
    >>> read_seal(content).intact, read_seal(content.replace(b"digits", b"digit5")).intact
    (True, False)
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass

Buffer = bytes | memoryview

_MARK = "sha256:"
# What stands in for the digest until it is known.
BLANK = _MARK + 64 * "0"
# It lies in the first bytes or in the last ones: nothing else is looked through.
_HEAD, _TAIL = 1 << 16, 1 << 10
_SEAL = re.compile(_MARK.encode() + b"[0-9a-f]{64}")
# Runs whose settings name one, under ``run:``, have sealed files only. From the third on settings
# mean what they mean today (torchlace.runs.readers translates earlier ones).
FORMAT = 3
_PROMISE = re.compile(rb"^ +format: *\d", re.MULTILINE)


@dataclass(frozen=True)
class Seal:
    """What a file says of itself.

    Attributes:
        digest: the digest it carries; empty if it carries none.
        right: the digest of what it holds.
    """

    digest: str
    right: str

    @property
    def intact(self) -> bool:
        """Whether the content is what was sealed."""
        return bool(self.digest) and self.digest == self.right


def sealed_text(text: str) -> bytes:
    """A text with its digest in the place of its last blank."""
    before, _, after = text.rpartition(BLANK)
    return b"".join(sealed(before.encode(), after.encode()))


def sealed_tensors(content: bytes) -> tuple[Buffer, ...]:
    """Bytes of a safetensors file with a blank among the metadata, in pieces with its digest."""
    blank = BLANK.encode()
    at = content.index(blank)
    return sealed(content[:at], memoryview(content)[at + len(blank) :])


def tensor_metadata(content: bytes) -> dict[str, str]:
    """The metadata of a safetensors file."""
    length = int.from_bytes(content[:8], "little")
    metadata: dict[str, str] = json.loads(content[8 : 8 + length]).get("__metadata__", {})
    return metadata


def sealed(before: Buffer, after: Buffer = b"") -> tuple[Buffer, ...]:
    """What stands before and behind a digest, in pieces with it: nothing large is copied."""
    return before, _digest(before, after).encode(), after


def read_seal(content: bytes) -> Seal:
    """Look for the digest in a file, and at what it should be."""
    found = _find(content)
    if found is None:
        return Seal("", "")
    start, end = found
    view = memoryview(content)
    return Seal(content[start:end].decode(), _digest(view[:start], view[end:]))


def promised(config: bytes) -> bool:
    """Whether a config.yaml is of a run whose files are all sealed."""
    return bool(_PROMISE.search(config)) or _find(config) is not None


def _find(content: bytes) -> tuple[int, int] | None:
    """Where the digest lies: the last one near the end, or else the first one near the start."""
    tail = max(len(content) - _TAIL, 0)
    *_, last = [None, *_SEAL.finditer(content, tail)]
    found = last or _SEAL.search(content, 0, _HEAD)
    return None if found is None else found.span()


def _digest(before: Buffer, after: Buffer) -> str:
    hasher = hashlib.sha256(before)
    hasher.update(BLANK.encode())
    hasher.update(after)
    return _MARK + hasher.hexdigest()
