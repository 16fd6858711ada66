"""HTML files of ours: one file each, and a policy by which a browser runs what is in it and nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files

_POLICY = (
    "default-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'; connect-src 'self'; "
    "img-src data:; require-trusted-types-for 'script'; trusted-types 'none'"
)


@dataclass(frozen=True)
class Document:
    """A file, and its Content-Security-Policy: scripts and styles are allowed by their SHA-256."""

    text: str
    policy: str


def document(name: str) -> Document:
    """A file of this folder."""
    text = files("allocator.runtime.page").joinpath(name).read_text(encoding="utf-8")
    allowed = (f"{tag}-src {' '.join(_hashes(tag, text))}" for tag in ("script", "style"))
    return Document(text, "; ".join([_POLICY, *allowed]))


def _hashes(tag: str, text: str) -> list[str]:
    inside = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    return [f"'sha256-{base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()}'" for one in inside]
