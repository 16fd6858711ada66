"""The values of settings: one conversion by declared type, for the command line, TOML files and Python alike.

>>> convert_text("none", float | None, source="--set", field="overtime_factor") is None
True
>>> convert_text("v100, k80", tuple[str, ...], source="--set", field="accelerator_order")
('v100', 'k80')
>>> convert(3, float, source="settings", field="round_seconds")
3.0

Types are those that fields of settings are declared with: bool, int, float, str, ``Literal``, tuples, mappings, unions
of them with None, and classes, whose instances pass as they are.
"""

from __future__ import annotations

import json
import math
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from itertools import repeat
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from throughputs.errors import InputError, did_you_mean, one_of
from throughputs.limits import LARGEST_WHOLE_NUMBER
from throughputs.limits import Range as Range  # re-exported


@dataclass(frozen=True)
class Said:
    """What a field is called on the command line, stands behind its type in `Annotated`.

    Attributes
    ----------
    option, about : its option, and what that does.
    word : what stands for its value.
    """

    option: str
    about: str
    word: str | None = None


@dataclass(frozen=True)
class Reads:
    """How a value that is more than its type is read, stands behind the type of a field in `Annotated`.

    Attributes
    ----------
    read : takes the value, the place of the field, the source, and the folder that files are relative to.
    """

    read: Callable[[Any, str, object, Path], Any]


NotNegative = Annotated[float, Range()]
Positive = Annotated[float, Range(above=True)]
Part = Annotated[float, Range(0, 1)]
NotNegativeWhole = Annotated[int, Range()]
AtLeastOne = Annotated[int, Range(1)]

_NONE_WORDS = frozenset({"none", "null"})
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}")


class _RefusedError(Exception):
    """The value is not of the type; the argument is the part of it that is to blame."""


def convert(value: Any, kind: Any, *, source: object, field: str) -> Any:
    """`value` as the declared type `kind` has it.

    Whole numbers pass for floats and lists for tuples; nothing else passes for what it is not: true and false are no
    numbers, 2.0 is no whole number, and text is never read.

    Raises
    ------
    InputError
        Another type, a number that is not finite, or a name that is not among those known.
    """
    return _told(_value, value, kind, source, field)


def read_field(value: Any, kind: Any, *, source: object, field: str, folder: Path) -> Any:
    """The same of a field with all that stands behind its type, `Reads` among them; files are relative to `folder`."""
    for how in getattr(kind, "__metadata__", ()):
        if isinstance(how, Reads) and value is not None:
            return how.read(value, field, source, folder)
    return convert(value, kind, source=source, field=field)


def convert_text(text: str, kind: Any, *, source: object, field: str) -> Any:
    """What `text` stands for where the declared type is `kind`.

    ``true`` and ``false``, ``none``, numbers; lists as ``a,b`` or ``[a, b]``; mappings and lists of pairs as
    ``name:value,name:value`` or as JSON. Text in double quotes is taken as it stands between them.

    Raises
    ------
    InputError
        The text stands for nothing of this type.
    """
    return _told(_text, text.strip(), kind, source, field)


def is_number(value: object) -> bool:
    """Whether the value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def convert_all(
    given: Mapping[str, Any], kinds: Mapping[str, Any], source: object, *, read: Any = convert, of: str = ""
) -> dict[str, Any]:
    """Settings by name, each as its declared type has it; `of` stands before names in errors.

    Raises
    ------
    InputError
        No type is declared for a name, or a value is not of its type. `read` is `convert`, or `convert_text` for texts.
    """
    typed = {}
    for name, value in given.items():
        if name not in kinds:
            whose = of and f"a setting of {of.strip(':')}: "
            expected = whose + one_of(name, kinds) if kinds else "no settings"
            raise InputError(source, field=of + name, found=value, expected=expected)
        typed[name] = read(value, kinds[name], source=source, field=of + name)
    return typed


def made_of(owner: type, given: Mapping[str, Any], source: object) -> Any:
    """A dataclass with these fields; raises `InputError` as `convert_all` does, and where a field has no value."""
    typed = convert_all(given, kinds_of(owner), source)
    if missing := required_fields(owner) - typed.keys():
        raise InputError(source, field=min(missing), expected="a value: it has none of its own")
    return owner(**typed)


def expectation(kind: Any) -> str:
    """What a setting of the declared type takes, in words."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return " ".join(
            [expectation(arguments[0]), *(str(extra) for extra in arguments[1:] if isinstance(extra, Range))]
        )
    if kind in _NAMES:
        return _NAMES[kind]
    if origin in _UNIONS:
        named = [inner for inner in arguments if inner in _NAMES or get_origin(inner)] or arguments
        return ", or ".join(dict.fromkeys(map(expectation, sorted(named, key=lambda inner: inner is types.NoneType))))
    if origin is Literal:
        return " or ".join(arguments) if len(arguments) == 2 else f"one of {', '.join(arguments)}"
    if origin is tuple:
        return _list_expectation(arguments)
    if _is_mapping(kind):
        names, values = arguments or (Any, Any)
        return f"a mapping from {_plural(names)} to {_plural(values)}, as in NAME:VALUE,NAME:VALUE"
    return f"an object of type {getattr(kind, '__name__', kind)}"


@cache
def kinds_of(owner: type) -> Mapping[str, Any]:
    """Declared types of the fields that a dataclass is made with, by name; `Any` where they cannot be told.

    Any other class is made with nothing.
    """
    if not is_dataclass(owner):
        return {}
    hints = _hints(owner)
    return {field.name: hints.get(field.name, Any) for field in fields(owner) if field.init}


def required_fields(owner: type) -> Set[str]:
    """Names of the fields that a dataclass cannot be made without; nothing of any other class."""
    known = fields(owner) if is_dataclass(owner) else ()
    return {each.name for each in known if each.init and each.default is each.default_factory is MISSING}


@cache
def declared_kinds(owner: type) -> Mapping[str, Any]:
    """The same with all that stands behind a type in `Annotated`: ranges, `Reads`, `Said`."""
    hints = _hints(owner, with_ranges=True)
    return {field.name: hints.get(field.name, Any) for field in fields(owner) if field.init}


def _hints(owner: type, *, with_ranges: bool = False) -> dict[str, Any]:
    """Declared types by name; nothing where a plugin names types that exist for type checkers only."""
    try:
        return typing.get_type_hints(owner, include_extras=with_ranges)
    except (NameError, TypeError, AttributeError):
        return {}


def check_fields(value: Any, source: object) -> None:
    """Raise InputError unless every field of a dataclass is of its declared type and in the range behind that."""
    owner: type = type(value)
    for name, (kind, ranges) in _declared(owner).items():
        given = convert(getattr(value, name), kind, source=source, field=name)
        if isinstance(given, int | float) and any(given not in allowed for allowed in ranges):
            raise InputError(source, field=name, found=given, expected=" or ".join(map(str, ranges)))


@cache
def _declared(owner: type) -> Mapping[str, tuple[Any, tuple[Range, ...]]]:
    """The type of each field, and the ranges that its numbers have to be in."""
    hints = _hints(owner, with_ranges=True)
    return {name: (kind, tuple(_ranges(hints.get(name)))) for name, kind in kinds_of(owner).items()}


def _ranges(kind: Any) -> Iterator[Range]:
    yield from (extra for extra in getattr(kind, "__metadata__", ()) if isinstance(extra, Range))
    if get_origin(kind) in _UNIONS:
        for inner in get_args(kind):
            yield from _ranges(inner)


def _told(read: Callable[[Any, Any], Any], given: Any, kind: Any, source: object, field: str) -> Any:
    try:
        return read(given, kind)
    except _RefusedError as refused:
        found = refused.args[0]
        hint = did_you_mean(found, _choices(kind)) if isinstance(found, str) else ""
        expected = f"a known value{hint}: {expectation(kind)}" if hint else expectation(kind)
        raise InputError(source, field=field, found=found, expected=expected) from None


def _value(value: Any, kind: Any) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _in_range(_value(value, arguments[0]), arguments[1:])
    if origin in _UNIONS:
        return _first(_value, value, arguments)
    if origin is Literal:
        if isinstance(value, str) and value in arguments:
            return value
        raise _RefusedError(value)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise _RefusedError(value)
        return tuple(_value(part, inner) for part, inner in _parts(value, arguments))
    if _is_mapping(kind):
        if not isinstance(value, Mapping):
            raise _RefusedError(value)
        names, values = arguments or (Any, Any)
        return {_value(name, names): _value(item, values) for name, item in value.items()}
    if kind in _READ_VALUE:
        return _READ_VALUE[kind](value)
    if isinstance(kind, type) and not isinstance(value, kind):
        raise _RefusedError(value)
    return value


def _text(text: str, kind: Any) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _in_range(_text(text, arguments[0]), arguments[1:])
    if origin in _UNIONS:
        if types.NoneType in arguments and text.lower() in _NONE_WORDS:
            return None
        # any text is text: that alternative comes last
        return _first(_text, text, sorted(arguments, key=lambda inner: inner is str))
    if origin is Literal:
        return _value(_unquoted(text), kind)
    if origin is tuple:
        return _list(text, kind, arguments)
    if _is_mapping(kind):
        return _mapping(text, kind, arguments or (Any, Any))
    if kind in _READ_TEXT:
        return _READ_TEXT[kind](text)
    raise _RefusedError(text)


def _in_range(value: Any, extras: tuple[Any, ...]) -> Any:
    if isinstance(value, int | float) and any(isinstance(e, Range) and value not in e for e in extras):
        raise _RefusedError(value)
    return value


def _first(read: Callable[[Any, Any], Any], given: Any, alternatives: Sequence[Any]) -> Any:
    """What the first of the alternatives makes of it."""
    blamed = given
    for kind in alternatives:
        try:
            return read(given, kind)
        except _RefusedError as refused:
            # inside a list or mapping the part to blame says more than the whole
            blamed = refused.args[0] if get_origin(kind) is not None else blamed
    raise _RefusedError(blamed)


def _parts(values: Sequence[Any], kinds: tuple[Any, ...]) -> list[tuple[Any, Any]]:
    """Parts of a tuple, each with its declared type."""
    if kinds[1:] == (...,):
        return list(zip(values, repeat(kinds[0])))
    if len(values) != len(kinds):
        raise _RefusedError(values)
    return list(zip(values, kinds, strict=True))


def _list(text: str, kind: Any, kinds: tuple[Any, ...]) -> Any:
    bracketed = text.startswith("[") and text.endswith("]")
    if bracketed:
        try:
            return _value(_json(text), kind)
        except ValueError:
            text = text[1:-1].strip()
    parts = [] if bracketed and not text else [part.strip() for part in text.split(",")]
    return tuple(_part(part, inner) for part, inner in _parts(parts, kinds))


def _part(text: str, kind: Any) -> Any:
    """One value of a list; one that consists of several itself has colons between them."""
    if not _is_row(kind):
        return _text(text, kind)
    kinds = get_args(kind)
    pieces = [piece.strip() for piece in text.rsplit(":", len(kinds) - 1)]
    if len(pieces) != len(kinds) or not all(pieces):
        raise _RefusedError(text)
    return tuple(_text(piece, inner) for piece, inner in zip(pieces, kinds, strict=True))


def _mapping(text: str, kind: Any, kinds: tuple[Any, ...]) -> Any:
    if text.startswith("{"):
        try:
            return _value(_json(text), kind)
        except ValueError:
            raise _RefusedError(text) from None
    found = {}
    for part in text.split(","):
        name, colon, item = (piece.strip() for piece in part.partition(":"))
        if not (name and colon):
            raise _RefusedError(text)
        found[_text(name, kinds[0])] = _text(item, kinds[1])
    return found


def _json(text: str) -> Any:
    """What JSON holds; ValueError where it cannot be read."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


def _nothing(value: Any) -> None:
    if value is not None:
        raise _RefusedError(value)


def _flag(value: Any) -> bool:
    if type(value).__name__ not in ("bool", "bool_"):  # NumPy's are bool_, or bool
        raise _RefusedError(value)
    return bool(value)


def _whole_number(value: Any) -> int:
    if type(value).__name__ in ("bool", "bool_") or not isinstance(value, Integral):
        raise _RefusedError(value)
    number = int(value)
    if abs(number) > LARGEST_WHOLE_NUMBER:
        raise _RefusedError(value)
    return number


def _number(value: Any) -> float:
    if type(value).__name__ in ("bool", "bool_") or not isinstance(value, Real):
        raise _RefusedError(value)
    try:
        number = float(value)
    except OverflowError:
        raise _RefusedError(value) from None
    if not math.isfinite(number):
        raise _RefusedError(value)
    return number


def _plain_text(value: Any) -> str:
    if not isinstance(value, str):
        raise _RefusedError(value)
    return value


def _flag_text(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise _RefusedError(text)
    return text.lower() == "true"


def _number_text(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise _RefusedError(text) from None
    if not math.isfinite(number):
        raise _RefusedError(text)
    return number


def _whole_number_text(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise _RefusedError(text)
    return _whole_number(int(text))


def _anything_text(text: str) -> Any:
    try:
        return _json(text)
    except ValueError:
        return text


def _nothing_text(text: str) -> None:
    if text.lower() not in _NONE_WORDS:
        raise _RefusedError(text)


def _choices(kind: Any) -> list[str]:
    """Names that a value of the type may have, at any depth of it."""
    if get_origin(kind) is Literal:
        return [str(choice) for choice in get_args(kind)]
    return [choice for inner in get_args(kind) for choice in _choices(inner)]


def _list_expectation(kinds: tuple[Any, ...]) -> str:
    if kinds[1:] == (...,) and _is_row(kinds[0]):
        return f"a list of {':'.join(_WORDS.get(inner, 'VALUE') for inner in get_args(kinds[0]))}, with commas between"
    if kinds[1:] == (...,):
        return f"a list of {_plural(kinds[0])}, as in {_example(kinds[0])}"
    return f"a list of {len(kinds)} values: {', '.join(map(expectation, kinds))}"


def _plural(kind: Any) -> str:
    if get_origin(kind) is Annotated:
        plain, *extras = get_args(kind)
        return " ".join([_plural(plain), *(str(extra) for extra in extras if isinstance(extra, Range))])
    if get_origin(kind) is Literal:
        return f"names among {', '.join(map(str, get_args(kind)))}"
    return {str: "names", float: "numbers", int: "whole numbers", bool: "flags"}.get(kind, "values")


def _example(kind: Any) -> str:
    kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if get_origin(kind) is Literal:
        return ",".join(map(str, get_args(kind)[:2]))
    return {float: "0,0.5,1", int: "1,2,4", str: "v100,k80"}.get(kind, "a,b")


def _is_row(kind: Any) -> bool:
    """Whether a type is that of so many values in a fixed order."""
    return get_origin(kind) is tuple and get_args(kind)[1:] != (...,)


def _is_mapping(kind: Any) -> bool:
    origin = get_origin(kind) or kind
    return isinstance(origin, type) and issubclass(origin, Mapping)


_UNIONS = (Union, types.UnionType)

_NAMES = {
    Any: "a value",
    types.NoneType: "none",
    bool: "true or false",
    int: "a whole number",
    float: "a finite number",
    str: "text",
}

_WORDS = {int: "WHOLE NUMBER", float: "NUMBER", str: "NAME"}
"""What stands for a value of such a type where several have a colon between them."""

_READ_VALUE: dict[Any, Callable[[Any], Any]] = {
    types.NoneType: _nothing,
    bool: _flag,
    int: _whole_number,
    float: _number,
    str: _plain_text,
    Any: lambda value: value,
}

_READ_TEXT: dict[Any, Callable[[str], Any]] = {
    types.NoneType: _nothing_text,
    bool: _flag_text,
    int: _whole_number_text,
    float: _number_text,
    str: _unquoted,
    Any: _anything_text,
}
