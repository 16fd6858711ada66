"""The command line: ``allocator solve``, ``simulate``, ``compare``, ``sweep`` and the others in `allocator.cli.app`."""

from __future__ import annotations

import os
import sys
import warnings
from importlib import import_module
from io import TextIOWrapper
from typing import NoReturn

from allocator.cli.app import app
from allocator.cli.screen import open_streams
from throughputs import InputError
from throughputs.shown import visible

__all__ = ["app", "main"]

EXIT_BAD_INPUT = 2
EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


def main() -> None:
    """Run the command line; errors end with one line on standard error: status 2 for bad input, 1 otherwise.

    Of an error in a policy of one's own, its traceback from there on is shown.
    """
    if sys.flags.optimize > 1:
        _end("options are told by docstrings, which Python leaves out with -OO or PYTHONOPTIMIZE=2", EXIT_FAILED)
    open_streams()
    warnings.formatwarning = _in_one_line
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # a terminal that has not all characters is no reason to end in the middle
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except InputError as error:
        _end(error, EXIT_BAD_INPUT)
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None
    except MemoryError:
        _end("there is not enough memory for this", EXIT_FAILED)
    except BrokenPipeError:
        _drop_output()
        raise SystemExit(EXIT_FAILED) from None
    except OSError as error:
        _drop_output()
        where = f"{error.filename}: " if error.filename else ""
        _end(f"{where}{error.strerror or error}", EXIT_BAD_INPUT)
    except UnicodeEncodeError as error:
        # such as the name of the working folder: that of a file is looked at before anything else
        expected = f"text in {error.encoding.upper()}, also in the names of folders above"
        _end(InputError("name", found=error.object, expected=expected), EXIT_BAD_INPUT)
    except Exception as error:
        failures = import_module("allocator.cli.failures")
        if isinstance(error, failures.EXPECTED):
            _end(error, EXIT_FAILED)
        told = failures.told_of_policy(error)
        if told is None:
            raise
        print(visible(told), end="", file=sys.stderr)
        raise SystemExit(EXIT_FAILED) from None


def _end(error: object, status: int) -> NoReturn:
    """One line, and the end."""
    print(f"error: {visible(' '.join(str(error).splitlines()))}", file=sys.stderr)
    raise SystemExit(status) from None


def _drop_output() -> None:
    """Drop what standard output cannot take, which Python would try again, and complain about, at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _in_one_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    del category, filename, lineno, line
    return f"warning: {visible(str(message))}\n"
