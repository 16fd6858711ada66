"""Where compiled code is kept, and what it was compiled for. Nothing here imports numba."""

from __future__ import annotations

import json
import os
import platform
import sys
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from throughputs.files import write_text

__all__ = ["folder", "note", "noted"]

_HERE = Path(__file__).parent
_SOURCES = ("blocks", "compiler", "factors", "mixes", "newton", "steps")
_NOTE = "complete.json"


def folder() -> Path:
    """The folder for code compiled from these very files, for what is here: Python, numba, the processor."""
    name = f"loops-{sha256(json.dumps(_circumstances()).encode()).hexdigest()[:16]}"
    folders = [place / name for place in _places()]
    complete = [path for path in folders if (path / _NOTE).is_file()]
    writable = [path for path in folders if _can_write(path)]
    return [*complete, *writable, *folders][0]


def noted() -> bool:
    """Whether all was compiled already."""
    return (folder() / _NOTE).is_file()


def note() -> Path:
    """Note that all is compiled; returns the note. OSError where it cannot be written."""
    path = folder() / _NOTE
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(_circumstances(), indent=1) + "\n")
    return path


def _places() -> list[Path]:
    """The folder that numba was told to use, or one beside the code, or the user's caches."""
    told = os.environ.get("NUMBA_CACHE_DIR")
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return [Path(told)] if told else [_HERE / "__pycache__", caches / "cluster-allocator"]


def _can_write(path: Path) -> bool:
    existing = next(parent for parent in (path, *path.parents) if parent.is_dir())
    return os.access(existing, os.W_OK)


def _circumstances() -> dict[str, object]:
    """All that compiled code depends on."""
    numba = find_spec("numba")
    made_of = [_HERE / f"{module}.py" for module in _SOURCES]
    if numba is not None and numba.origin is not None:
        made_of.append(Path(numba.origin))
    return {
        "python": sys.version,
        "processor": _processor(),
        "sources": [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in made_of],
        "settings": sorted(item for item in os.environ.items() if item[0].startswith("NUMBA_")),
    }


def _processor() -> str:
    """Model and abilities of the processor."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            first = lines.read(8192).split("\n\n")[0].splitlines()
        told = [line.partition(":")[2].strip() for line in first if line.startswith(("model", "flags", "Features"))]
    except OSError:
        told = [platform.processor()]
    return " ".join([platform.machine(), *told])
