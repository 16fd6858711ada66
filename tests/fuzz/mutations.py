"""Damage to files: seeded mutations of bytes, of tokens and lines of text, of values of JSON, of columns of tables."""

from __future__ import annotations

import copy
import datetime
import decimal
import json
import random
import re

import pandas as pd

HUGE = 10**400
DEEP = 20_000
"""Levels of nesting, more than any parser goes down."""

WRONG_VALUES = (
    None, True, False, 0, -1, 1.5, -0.0, 1e308, float("nan"), float("inf"), 2**31, 2**53 + 1, 2**63, 2**64, HUGE, -HUGE,
    "", "x", "none", "nan", "9" * 5000, "\0", "\ud800", "é", [], {}, [[]], [1, 2], {"a": 1}, {"": {}}, [None], ["v100"],
)  # fmt: skip
"""What JSON may hold where something else is expected."""

WRONG_TOKENS = (
    "-1", "1.5", "nan", "inf", "1e999", "99999999999999999999", "9" * 5000, "0x" + "f" * 5000, "true", '""', '"x"',
    "[]", "{}", "x", "null", "[" * DEEP, "{a=" * DEEP, "1970-13-45", "2020-01-01T00:00:00Z",
    "\t", ",", "\n", "\0", "é", "",
)  # fmt: skip
"""What a text may hold where a number or a word is expected."""


def of_bytes(raw, rng):
    """Some bytes flipped, cut away, doubled or put in."""
    data = bytearray(raw)
    for _ in range(rng.choice((1, 1, 2, 8))):
        start = rng.randrange(len(data) + 1)
        length = rng.choice((1, 1, 4, 64, len(data)))
        piece = data[start : start + length]
        change = rng.randrange(5)
        if change == 0 and start < len(data):
            data[start] ^= 1 << rng.randrange(8)
        elif change == 1:
            del data[start:]
        elif change == 2:
            del data[start : start + length]
        elif change == 3:
            data[start:start] = piece
        else:
            data[start:start] = rng.randbytes(min(length, 64))
    return bytes(data)


def of_tokens(raw, rng):
    """Numbers and words of a text replaced, exchanged or left out."""
    parts = re.split(r"([A-Za-z0-9_.+-]+)", raw.decode())
    for _ in range(rng.choice((1, 1, 1, 3))):
        i = rng.randrange(1, len(parts), 2)
        if rng.random() < 0.25:
            k = rng.randrange(1, len(parts), 2)
            parts[i], parts[k] = parts[k], parts[i]
        else:
            parts[i] = rng.choice(WRONG_TOKENS)
    return "".join(parts).encode()


def of_lines(raw, rng):
    """Lines left out, doubled, exchanged, or with a value too many or too few."""
    lines = raw.decode().split("\n")
    i, k = rng.randrange(len(lines)), rng.randrange(len(lines))
    change = rng.randrange(5)
    if change == 0:
        del lines[i]
    elif change == 1:
        lines.insert(k, lines[i])
    elif change == 2:
        lines[i], lines[k] = lines[k], lines[i]
    else:
        separator = "\t" if "\t" in lines[i] else ","
        cells = lines[i].split(separator)
        j = rng.randrange(len(cells))
        cells[j : j + 1] = [] if change == 3 else [cells[j], rng.choice(WRONG_TOKENS)]
        lines[i] = separator.join(cells)
    return "\n".join(lines).encode()


def of_json(raw, rng):
    """Values of JSON replaced by others, keys left out, renamed or made up."""
    data = json.loads(raw)
    for _ in range(rng.choice((1, 1, 1, 3))):
        data = _changed(data, rng)
    text = json.dumps(data)
    if rng.random() < 0.1:
        number = re.search(r"(?<=[ \[])[0-9][0-9.]*", text)
        token = rng.choice(("9" * 5000, "[" * DEEP, "[" * DEEP + "]" * DEEP, '{"a":' * DEEP))
        text = text if number is None else text[: number.start()] + token + text[number.end() :]
    return text.encode()


def _changed(data, rng):
    """The data with one change at a random place."""
    places = []

    def collect(value):
        inner = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
        for key, item in inner:
            places.append((value, key))
            if isinstance(item, dict | list):
                collect(item)

    if isinstance(data, dict | list):
        collect(data)
    if not places or rng.random() < 0.02:
        return copy.deepcopy(rng.choice(WRONG_VALUES))
    holder, key = rng.choice(places)
    change = rng.randrange(8)
    if change == 0:
        del holder[key]
    elif change == 1 and isinstance(holder, dict):
        holder[rng.choice(("", "x", key + "x", "('a', 1)", "('a', " + "9" * 5000 + ")"))] = holder.pop(key)
    elif change == 2:
        other, place = rng.choice(places)
        if not isinstance(other[place], dict | list) and not isinstance(holder[key], dict | list):
            holder[key], other[place] = other[place], holder[key]
    else:
        holder[key] = copy.deepcopy(rng.choice(WRONG_VALUES))
    return data


ODD_COLUMNS = (
    lambda n: [None] * n,
    lambda n: ["x"] * n,
    lambda n: [b"\xff"] * n,
    lambda n: [[1, 2]] * n,
    lambda n: [{"a": 1}] * n,
    lambda n: [True] * n,
    lambda n: [datetime.datetime(2020, 1, 1)] * n,
    lambda n: [decimal.Decimal("NaN")] * n,
    lambda n: [-1] * n,
    lambda n: [1e308] * n,
    lambda n: [float("nan")] * n,
    lambda n: [float("-inf")] * n,
    lambda n: ["9" * 5000] * n,
    lambda n: ["", None] * (n // 2) + ["x"] * (n % 2),
)
"""Columns that Parquet can hold and that are not what is expected."""


def of_columns(frame, rng):
    """Columns of a table replaced, left out, renamed or doubled; rows left out or in another order."""
    columns = {str(name): frame[name].tolist() for name in frame.columns}
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice(list(columns))
        change = rng.randrange(8)
        if change == 0 and len(columns) > 1:
            del columns[name]
        elif change == 1:
            columns[rng.choice(("x", "", name + " ", name.upper()))] = columns.pop(name)
        elif change == 2:
            seed = rng.random()
            columns = {key: random.Random(seed).sample(values, len(values) // 2) for key, values in columns.items()}
        else:
            columns[name] = rng.choice(ODD_COLUMNS)(len(columns[name]))
    return pd.DataFrame(columns)
