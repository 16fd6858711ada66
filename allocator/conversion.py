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
import types
import typing
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from throughputs.errors import InputError, did_you_mean, one_of
from throughputs.limits import LARGEST_WHOLE_NUMBER, LATEST_TIME
from throughputs.limits import Range as Range  # re-exported


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
Seconds = Annotated[float, Range(0, LATEST_TIME)]
PositiveSeconds = Annotated[float, Range(0, LATEST_TIME, above=True)]
Part = Annotated[float, Range(0, 1)]
NotNegativeWhole = Annotated[int, Range()]
AtLeastOne = Annotated[int, Range(1)]

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
    return _told(value, kind, source, field, text=False)


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
    return _told(text.strip(), kind, source, field, text=True)


def is_number(value: object) -> bool:
    """Whether the value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and _is_finite(value)


def _is_finite(number: Any) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:
        return False


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
        value, *otherwise = expectation(arguments[0]).partition(", or ")
        ranges = [str(extra) for extra in arguments[1:] if isinstance(extra, Range)]
        return " ".join([value, *ranges]) + "".join(otherwise)
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
        return f"a mapping from {_plural(names)} to {_plural(values)}"
    return f"an object of type {getattr(kind, '__name__', kind)}"


@cache
def _kinds(owner: type, *, with_extras: bool) -> Mapping[str, Any]:
    """Declared types by name; `Any` where a plugin names types that exist for type checkers only."""
    try:
        hints = typing.get_type_hints(owner, include_extras=with_extras)
    except (NameError, TypeError, AttributeError):
        hints = {}
    return {field.name: hints.get(field.name, Any) for field in fields(owner) if field.init}


def kinds_of(owner: type) -> Mapping[str, Any]:
    """Declared types of the fields that a dataclass is made with, by name; `Any` where they cannot be told.

    Any other class is made with nothing.
    """
    return _kinds(owner, with_extras=False) if is_dataclass(owner) else {}


def declared_kinds(owner: type) -> Mapping[str, Any]:
    """The same of a dataclass with all that stands behind a type in `Annotated`: ranges, `Reads`."""
    return _kinds(owner, with_extras=True)


def required_fields(owner: type) -> Set[str]:
    """Names of the fields that a dataclass cannot be made without; nothing of any other class."""
    known = fields(owner) if is_dataclass(owner) else ()
    return {each.name for each in known if each.init and each.default is each.default_factory is MISSING}


def check_fields(value: Any, source: object) -> None:
    """Raise InputError unless every field of a dataclass is of its declared type and in the range behind that."""
    for name, kind in declared_kinds(type(value)).items():
        convert(getattr(value, name), kind, source=source, field=name)


def _written(kind: Any) -> str:
    """How several values are written as one text; "" for one value."""
    arguments = get_args(kind)
    if get_origin(kind) is Annotated or get_origin(kind) in _UNIONS:
        return next(filter(None, map(_written, arguments)), "")
    if get_origin(kind) is tuple and arguments[1:] == (...,) and not _is_row(arguments[0]):
        return ", with commas between"
    return ", as in NAME:VALUE,NAME:VALUE" if _is_mapping(kind) else ""


def _told(given: Any, kind: Any, source: object, field: str, *, text: bool) -> Any:
    try:
        return _read(given, kind, text)
    except _RefusedError as refused:
        found = refused.args[0]
        hint = did_you_mean(found, _choices(kind)) if isinstance(found, str) else ""
        expected = expectation(kind) + (_written(kind) if text else "")
        expected = f"a known value{hint}: {expected}" if hint else expected
        raise InputError(source, field=field, found=found, expected=expected) from None


def _read(given: Any, kind: Any, text: bool) -> Any:
    """The value, or what a `text` stands for, as the type has it."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        value = _read(given, arguments[0], text)
        number = isinstance(value, int | float)
        if number and any(isinstance(extra, Range) and value not in extra for extra in arguments[1:]):
            raise _RefusedError(value)
        return value
    if origin in _UNIONS:
        return _first(given, arguments, text)
    if origin is tuple:
        return _list(given, kind) if text else _values(given, arguments)
    if _is_mapping(kind):
        pairs = _pairs(given) if text else given
        if not isinstance(pairs, Mapping):
            raise _RefusedError(given)
        # pairs of JSON are values already
        text = text and not given.startswith("{")
        names, values = arguments or (Any, Any)
        return {_read(name, names, text): _read(item, values, text) for name, item in pairs.items()}
    return _single(_meant(given, kind) if text else given, kind)


def _first(given: Any, alternatives: Sequence[Any], text: bool) -> Any:
    """What the first of the alternatives makes of it; any text is text, so that comes last."""
    blamed = given
    for kind in sorted(alternatives, key=lambda kind: (kind is not types.NoneType, kind is str)):
        try:
            return _read(given, kind, text)
        except _RefusedError as refused:
            # inside a list or mapping the part to blame says more than the whole
            blamed = refused.args[0] if get_origin(kind) is not None else blamed
    raise _RefusedError(blamed)


def _values(given: Any, kinds: tuple[Any, ...], text: bool = False) -> tuple[Any, ...]:
    """Each part of a list as its type has it."""
    if not isinstance(given, list | tuple):
        raise _RefusedError(given)
    each = kinds[:1] * len(given) if kinds[1:] == (...,) else kinds
    if len(given) != len(each):
        raise _RefusedError(given)
    return tuple(_read(part, kind, text) for part, kind in zip(given, each, strict=True))


def _list(text: str, kind: Any) -> Any:
    """Values with commas between, or a list of JSON; one that consists of several itself has colons between them."""
    bracketed = text.startswith("[") and text.endswith("]")
    if bracketed:
        try:
            return _read(_json(text), kind, False)
        except ValueError:
            text = text[1:-1].strip()
    kinds = get_args(kind)
    parts: list[Any] = [part.strip() for part in text.split(",")] if text or not bracketed else []
    if not _is_row(kinds[0]):
        return _values(parts, kinds, text=True)
    return tuple(_row(part, get_args(kinds[0])) for part in parts)


def _row(text: str, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    pieces = [piece.strip() for piece in text.rsplit(":", len(kinds) - 1)]
    if len(pieces) != len(kinds) or not all(pieces):
        raise _RefusedError(text)
    return _values(pieces, kinds, text=True)


def _pairs(text: str) -> Any:
    """What ``name:value,name:value`` or an object of JSON holds."""
    if text.startswith("{"):
        try:
            return _json(text)
        except ValueError:
            raise _RefusedError(text) from None
    parts = [[piece.strip() for piece in part.partition(":")] for part in text.split(",")]
    if not all(name and colon for name, colon, _ in parts):
        raise _RefusedError(text)
    return {name: item for name, _, item in parts}


def _json(text: str) -> Any:
    """What JSON holds; ValueError where it cannot be read."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _meant(text: str, kind: Any) -> Any:
    """The value that a text stands for, if it stands for one of the type."""
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        if kind is types.NoneType:
            return {"none": None, "null": None}[text.lower()]
        if kind is int:
            return int(text) if _WHOLE.fullmatch(text) else text
        if kind is float:
            return float(text) if _is_finite(float(text)) else text
        if kind is Any:
            return _json(text)
    except (KeyError, ValueError):
        return text
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


def _single(value: Any, kind: Any) -> Any:
    """A value that does not consist of others."""
    flag = type(value).__name__ in ("bool", "bool_")  # NumPy's are bool_, or bool
    if kind is Any:
        return value
    if get_origin(kind) is Literal:
        good = isinstance(value, str) and value in get_args(kind)
    elif kind is int:
        good = isinstance(value, Integral) and not flag and abs(int(value)) <= LARGEST_WHOLE_NUMBER
    elif kind is float:
        good = isinstance(value, Real) and not flag and _is_finite(value)
    else:
        good = flag if kind is bool else not isinstance(kind, type) or isinstance(value, kind)
    if not good:
        raise _RefusedError(value)
    return kind(value) if kind in (bool, int, float) else value


def _choices(kind: Any) -> list[str]:
    """Names that a value of the type may have, at any depth of it."""
    if get_origin(kind) is Literal:
        return [str(choice) for choice in get_args(kind)]
    return [choice for inner in get_args(kind) for choice in _choices(inner)]


def _list_expectation(kinds: tuple[Any, ...]) -> str:
    if kinds[1:] == (...,) and _is_row(kinds[0]):
        return f"a list of {':'.join(_WORDS.get(inner, 'VALUE') for inner in get_args(kinds[0]))}, with commas between"
    if kinds[1:] == (...,):
        return f"a list of {_plural(kinds[0])}"
    return f"a list of {len(kinds)} values: {', '.join(map(expectation, kinds))}"


def _plural(kind: Any) -> str:
    if get_origin(kind) is Annotated:
        plain, *extras = get_args(kind)
        return " ".join([_plural(plain), *(str(extra) for extra in extras if isinstance(extra, Range))])
    if get_origin(kind) is Literal:
        return f"names among {', '.join(map(str, get_args(kind)))}"
    return {str: "names", float: "numbers", int: "whole numbers", bool: "flags"}.get(kind, "values")


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
