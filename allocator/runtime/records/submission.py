"""What the fields of a submission may hold: each check returns the value, or says what was expected."""

from __future__ import annotations

import os
import unicodedata
from typing import Annotated, Any

from allocator.conversion import Range, Reads
from throughputs import InputError

_LONGEST_TEXT = 1 << 16
_MOST_ARGUMENTS = 4096

NUMBER = Range(1e-6, 1e15)
"""Programs over numbers of other sizes have no good solution, for any of the jobs."""


def checked(name: str, value: Any, good: object, expected: str) -> Any:
    """The value of a field of a request, where it is as `expected`."""
    if not good:
        raise InputError("request", field=name, found=value, expected=expected)
    return value


def _text(value: Any, name: str) -> str:
    """Text that a program can be given; bytes that are no UTF-8 come as the surrogates that Python has for them."""
    try:
        plain = isinstance(value, str) and len(os.fsencode(value)) <= _LONGEST_TEXT and "\0" not in value
    except UnicodeEncodeError:
        plain = False
    return str(checked(name, value, plain, f"text of at most {_LONGEST_TEXT} bytes"))


def _line(value: Any, name: str, *_: object) -> str:
    """Text for people, on one line."""
    plain = all(unicodedata.category(character) != "Cc" for character in _text(value, name))
    return str(checked(name, value, plain, "one line, without control characters"))


def _command(value: Any, name: str, *_: object) -> list[str]:
    words = isinstance(value, list) and 1 <= len(value) <= _MOST_ARGUMENTS and value[0] != ""
    return [_text(word, name) for word in checked(name, value, words, "a list of arguments, the program first")]


def _folder(value: Any, name: str, *_: object) -> str:
    return str(checked(name, value, os.path.isabs(_text(value, name)), "an absolute path"))


def _environment(value: Any, name: str, *_: object) -> dict[str, str]:
    for key, text in checked(name, value, isinstance(value, dict), "variables by name").items():
        _text(checked(name, key, key and "=" not in key, "names of variables"), name)
        _text(text, f"{name} {key}")
    return dict(value)


Command = Annotated[tuple[str, ...], Reads(_command)]
Folder = Annotated[str, Reads(_folder)]
Environment = Annotated[dict[str, str], Reads(_environment)]
Line = Annotated[str, Reads(_line)]
