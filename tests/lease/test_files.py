"""What is read from files of leases and reports: whole and of the right types, or nothing."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.lease.files import Grant, Report, parse, read_file, write_file
from allocator.lease.whole import MOST_BYTES, read_object

finite = st.floats(allow_nan=False, allow_infinity=False)
values = {
    "str": st.text(max_size=30),
    "int": st.integers(-(2**62), 2**62),
    "float": finite,
    "bool": st.booleans(),
    "float | None": st.none() | finite,
    "int | None": st.none() | st.integers(-(2**62), 2**62),
}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def contents(kind):
    return st.builds(kind, **{field.name: values[field.type] for field in fields(kind)})


@pytest.mark.parametrize("kind", [Grant, Report])
@given(data=st.data())
def test_what_was_written_is_read(kind, data, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / f"{kind.__name__}.json"
    content = data.draw(contents(kind))
    write_file(path, content)
    assert read_file(path, kind) == content
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", [Grant, Report])
@given(data=st.data())
def test_half_a_file_bytes_of_any_kind_and_values_of_other_types_are_no_error(kind, data):
    whole = asdict(data.draw(contents(kind)))
    told = json.dumps(whole).encode()
    assert parse(told[: data.draw(st.integers(0, len(told) - 1))], kind) is None
    changed = json.dumps(whole | {data.draw(st.sampled_from(sorted(whole))): data.draw(json_values)}).encode()
    content = parse(data.draw(st.binary(max_size=200) | st.just(changed)), kind)
    for field in fields(content) if content is not None else ():
        value, wanted = getattr(content, field.name), field.type
        if value is None:
            assert wanted.endswith("| None")
        elif wanted.startswith("float"):
            assert isinstance(value, int | float)
            assert not isinstance(value, bool)
            assert math.isfinite(value)
        else:
            assert type(value).__name__ == wanted.removesuffix(" | None")


def test_where_writing_fails_the_file_is_what_it_was(tmp_path, monkeypatch):
    path = tmp_path / "report.json"
    write_file(path, Report("a", 1))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_file(path, Report("a", 2))
    assert read_file(path, Report) == Report("a", 1)
    assert [each.name for each in tmp_path.iterdir()] == ["report.json"]


def test_what_stands_in_the_place_of_a_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    with open(tmp_path / "long", "wb") as file:
        file.truncate(1 << 40)
    (tmp_path / "nested").write_text("[" * MOST_BYTES)
    for name in ("pipe", "folder", "link", "long", "nested", "absent"):
        assert read_file(tmp_path / name, Grant) is None
        assert read_object(tmp_path / name) == {}
    # an object may be as long as is said
    (tmp_path / "file").write_text(json.dumps({"a": "x" * MOST_BYTES}))
    assert read_object(tmp_path / "file") == {}
    assert read_object(tmp_path / "file", 2 * MOST_BYTES) == {"a": "x" * MOST_BYTES}
