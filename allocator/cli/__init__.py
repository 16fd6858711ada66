"""The command line: ``allocator solve | simulate | compare | trace | throughputs | policies``."""

from __future__ import annotations

import sys

from allocator.cli.app import app
from throughputs import InputError

__all__ = ["app", "main"]

EXIT_BAD_INPUT = 2


def main() -> None:
    """Run the command line; bad input ends with one line on standard error and exit status 2."""
    try:
        app()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(EXIT_BAD_INPUT) from None
    except OSError as error:
        print(f"error: {error.filename or ''}: {error.strerror or error}", file=sys.stderr)
        raise SystemExit(EXIT_BAD_INPUT) from None
    except BrokenPipeError:
        raise SystemExit(1) from None
