"""The command line: ``allocator solve``, ``simulate``, ``compare``, ``sweep`` and the others in `allocator.cli.app`."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from io import TextIOWrapper

from allocator.cli.app import app
from throughputs import InputError

__all__ = ["app", "main"]

EXIT_BAD_INPUT = 2
EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


def main() -> None:
    """Run the command line; errors end with one line on standard error: status 2 for bad input, 1 otherwise."""
    warnings.formatwarning = _in_one_line
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # a terminal that has not all characters is no reason to end in the middle
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(EXIT_BAD_INPUT) from None
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None
    except BrokenPipeError:
        raise SystemExit(EXIT_FAILED) from None
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"error: {where}{error.strerror or error}", file=sys.stderr)
        raise SystemExit(EXIT_BAD_INPUT) from None
    except RuntimeError as error:
        if not isinstance(error, import_module("allocator.cli.failures").EXPECTED):
            raise
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(EXIT_FAILED) from None


def _in_one_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    del category, filename, lineno, line
    return f"warning: {message}\n"
