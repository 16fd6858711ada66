"""Command lines, carried out in this process."""

from __future__ import annotations

import io
import json
import os
import shlex
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple
from unittest import mock

from allocator.cli import main


class Done(NamedTuple):
    """Exit code and both streams."""

    code: int
    out: str
    err: str


def run(line: str, *more: object, given: bytes = b"") -> Done:
    """A command line without the word `allocator`, and further words as they are."""
    words = ["allocator", *shlex.split(line), *map(str, more)]
    read, out, err = (io.TextIOWrapper(io.BytesIO(each), "utf-8", write_through=True) for each in (given, b"", b""))
    with (
        redirect_stdout(out),
        redirect_stderr(err),
        mock.patch.multiple(sys, argv=words, stdin=read),
        mock.patch.dict(os.environ, COLUMNS="200"),
        mock.patch.object(warnings, "formatwarning"),
    ):
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
    return Done(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))


def ran(line: str, *more: object, given: bytes = b"") -> Done:
    """A command that succeeds."""
    done = run(line, *more, given=given)
    assert done.code == 0, done.err
    return done


def told(line: str, *more: object, given: bytes = b"") -> Any:
    """What a command says as JSON."""
    return json.loads(ran(line, *more, "--json", given=given).out)


def refused(line: str, *more: object, given: bytes = b"") -> str:
    """The line with which a command ends where it does not take what it is given; notes may stand before it."""
    done = run(line, *more, given=given)
    assert (done.code, done.out) == (2, ""), done
    *notes, message = done.err.splitlines()
    assert [text.startswith("error: ") for text in (*notes, message)] == [*[False] * len(notes), True]
    return message
