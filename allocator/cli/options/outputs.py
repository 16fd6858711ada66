"""Outputs never destroy inputs: one rule for all commands, applied before anything is read or run.

What a command writes stands in `WRITTEN`; whatever else on its command line may name a file is read. Refused are an
output that is the same file as an input or as another output (by link, other spelling or hard link), an existing file
that is not what the command writes, and a place where nothing can be written.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from allocator.cli.inputs.examples import EXAMPLE_COLUMNS
from allocator.cli.screen import shown_as_text
from throughputs import InputError
from throughputs.goodput.samples import SAMPLE_COLUMNS

_LOOKED_AT = 1 << 16
_READ = re.compile(r"FILE|FOLDER|DIR|INSTANCE|RUN|FROM")
_TABS = (6, 9, 11)

BYTES = {"submit": ("-- COMMAND...", "--env", "--directory")}
"""What is handed on to jobs as it is, whether or not it is text."""

Look = Callable[[bytes], bool]
"""Whether the bytes at the beginning and the end of a file are those of what a command writes."""


def _words(*words: str) -> Look:
    return lambda contents: all(word.encode() in contents for word in words)


_PARQUET, _TABLE_OF_JOBS = _words("PAR1"), _words("job_type", "scale_factor", "arrival_time")
_THROUGHPUTS = _words("job_type", "scale_factor", "throughput")
_PAGE = _words("<!doctype html>", "Content-Security-Policy")


def _jobs(contents: bytes) -> bool:
    """A table of jobs that is not one of finished jobs."""
    return _TABLE_OF_JOBS(contents) and b"jct" not in contents.split(b"\n", 1)[0]


def _trace(contents: bytes) -> bool:
    """The same, or one of Pollux, a text of Gavel or Shockwave, or a workload in the standard format."""
    first = contents.split(b"\n", 1)[0]
    texts = first.count(b"\t") in _TABS or first.startswith(b"; Version") or _words("application", "replicas")(first)
    return texts or _jobs(contents)


def _picture(contents: bytes) -> bool:
    return contents.startswith((b"\x89PNG", b"%PDF")) or b"<svg" in contents


@dataclass(frozen=True)
class File:
    """A file that a command writes, and what one that it may replace looks like."""

    looks: Look

    def check(self, option: str, path: Path) -> None:
        """Raise InputError where it cannot be written, or something else is there."""
        if path.is_dir():
            raise InputError(option, found=str(path), expected="a file, not a folder")
        _check_place(option, path, path.parent)
        if not path.parent.is_dir():
            raise InputError(option, found=str(path), expected="a file in a folder that exists")
        self.check_contents(option, path)

    def check_contents(self, option: str, path: Path) -> None:
        """Raise InputError where something else is there."""
        if path.is_file() and path.stat().st_size and not self.looks(_ends_of(path)):
            expected = "a new file, or one as it is written there: this one is something else, and would be lost"
            raise InputError(option, found=str(path), expected=expected)

    def replaced(self, path: Path) -> Iterator[Path]:
        """What would no longer be what it is."""
        yield path


@dataclass(frozen=True)
class Folder:
    """A folder that a command makes: its files by name, and patterns of those below it that others look after."""

    files: Mapping[str, Look] = field(default_factory=dict)
    below: Sequence[str] = ()

    def check(self, option: str, path: Path) -> None:
        """Raise InputError where it cannot be made, or what it would replace is something else."""
        _check_place(option, path, path)
        for name, looks in self.files.items():
            File(looks).check_contents(option, path / name)

    def replaced(self, path: Path) -> Iterator[Path]:
        """What would no longer be what it is: files, and the folder as a whole."""
        yield path
        for pattern in (*self.files, *self.below):
            yield from path.glob(pattern)


RUN = Folder(
    {
        "summary.json": _words('"policy"', '"status_detail"'),
        "jobs.csv": _words("job_id", "jct"),
        "rounds.parquet": _words("end_time", "job_id", "accelerator", "gpus"),
        "timeline.parquet": _words("active_jobs", "busy_gpus"),
        "priorities.csv": _words("priority_weight"),
        "entities.csv": _words("entity"),
        "efficiency.csv": _words("time,efficiency"),
        "fragmentation.parquet": _words("free_gpus", "fragmented_gpus"),
        "rates.parquet": _words("PAR1", "job_id"),
        "capacity.parquet": _words("PAR1", "time"),
        "decisions.parquet": _words("decision", "status"),
        "shares.parquet": _words("decision", "job_id", "share"),
        "profiler.csv": _words("profiler_queueing_time"),
    }
)
"""The files of a run."""

SWEPT = Folder(
    {"sweep.json": _words('"format"', '"points"'), "results.parquet": _PARQUET},
    ("points/*.json", "jobs/*.parquet", "logs/*.log"),
)
"""The files of a sweep."""

SPREAD = File(_words("lower_quartile"))
"""The file beside measured throughputs."""

DIFFERENCES = "differences.json"
"""Paired differences between policies that `compare` ran with several seeds."""

_COMPARED = {"report.html": _PAGE, "comparison.json": lambda c: b'"policy"' in c or b'"caveats"' in c}

WRITTEN: dict[str, dict[str, File | Folder]] = {
    "solve": {"--out": File(_words('"policy"', '"objective_unit"'))},
    "audit": {"--out": File(_words('"properties"', '"explanations"'))},
    "simulate": {"--out": RUN, "--checkpoint": File(_words("allocator checkpoint"))},
    "compare": {
        "--out": Folder(
            _COMPARED | {DIFFERENCES: _words('"baseline"', '"pairs"')},
            [f"{folder}/{name}" for folder in ("*", "*/*") for name in RUN.files],
        )
    },
    "whatif": {
        "--out": Folder(
            {
                "whatif.html": _PAGE,
                "whatif.json": _words('"rows"'),
                "rows.csv": _words("policy"),
                "next_gpus.csv": _words("accelerator"),
                **{f"runs/{name}": looks for name, looks in SWEPT.files.items()},
            },
            ["*/jobs.csv", *(f"runs/{pattern}" for pattern in SWEPT.below)],
        )
    },
    "policies new": {"--out": Folder()},
    "trace generate": {"--out": File(_trace)},
    "trace convert": {"TO": File(_trace)},
    "trace import": {"--out": File(_jobs)},
    "trace example-log": {"--out": File(_words(",".join(EXAMPLE_COLUMNS)))},
    "predict": {"--out": File(_jobs), "--report": File(_PAGE)},
    "nodes": {"--out": File(_words("nodes_in_use", "nodes_awake")), "--report": File(_PAGE)},
    "throughputs fit": {"--out": File(_words("# Fitted to")), "--plot": File(_picture)},
    "throughputs example-samples": {"--out": File(_words(",".join(SAMPLE_COLUMNS)))},
    **{f"sweep {kind}": {"--out": SWEPT} for kind in ("continuous", "static", "trace", "run")},
    "sweep plot": {"--out": File(_picture)},
    "sweep export": {"--out": File(lambda c: b"{tabular}" in c or b"policy" in c.split(b"\n", 1)[0])},
    "study": {"--out": Folder()},
    "record": {
        "--out": Folder(
            {**RUN.files, **_COMPARED}
            | {"trace.csv": _jobs, "throughputs.csv": _THROUGHPUTS}
            | {f"simulated/{name}": looks for name, looks in RUN.files.items()}
        )
    },
    # a table that figures are added to is read, which is a test of its own
    "profile": {"--out": File(lambda c: b'"null"' in c or _THROUGHPUTS(c)), "--into": File(_words())},
}
"""By command, the options (or the argument, by its metavar) that name what it writes."""


def guard(command: Any, name: str) -> None:
    """Make a command look at what it would write before it does anything, its options included, and print text."""
    parse, run = command.parse_args, command.invoke

    def parse_args(context: Any, args: list[str]) -> Any:
        with _arguments_as_options(command):
            if args and not context.resilient_parsing:
                _check(command, WRITTEN.get(name, {}), context, args, BYTES.get(name, ()))
            return parse(context, args)

    def invoke(context: Any) -> Any:
        with shown_as_text(), _arguments_as_options(command):
            return run(context)

    command.parse_args, command.invoke = parse_args, invoke


@contextmanager
def _arguments_as_options(command: Any) -> Iterator[None]:
    """Call an argument that a function in Python found wrong by the option that it was given by."""
    options = {option for parameter in command.params for option in parameter.opts}
    try:
        yield
    except InputError as error:
        option = f"--{error.source.replace('_', '-')}"
        if option not in options:
            raise
        raise InputError(
            option, expected=error.expected, found=error.found, line=error.line, field=error.field
        ) from error


def option_of(parameter: Any) -> str:
    """What a parameter of a command is called: its option, or the metavar of an argument."""
    option = str(max(parameter.opts, key=len))
    return option if option.startswith("-") else str(parameter.metavar or option)


def may_name_input(parameter: Any) -> bool:
    """Whether the value of a parameter that names no output may name a file or folder: its metavar says so."""
    return bool(_READ.search(str(parameter.metavar)))


def _check(
    command: Any, written: Mapping[str, File | Folder], context: Any, args: Sequence[str], of_bytes: Sequence[str]
) -> None:
    """Raise InputError where the rule is broken, or a value is no text."""
    given, _, _ = command.make_parser(context).parse_args(args=list(args))
    if given.get("help"):
        return
    outputs: list[tuple[str, File | Folder, Path]] = []
    inputs: list[tuple[str, Path]] = []
    for parameter in command.get_params(context):
        option = option_of(parameter)
        for text in _texts(parameter.consume_value(context, given)[0]):
            if option not in of_bytes:
                _check_text(option, text)
            if option in written:
                outputs.append((option, written[option], Path(text)))
            elif may_name_input(parameter) and text != "-":
                # a value too long for a name is none; `Path.exists` would raise
                inputs += [(option, path) for path in _paths(text) if os.path.exists(path)]
    for option, what, path in outputs:
        replaced = list(what.replaced(path))
        others = [(other, file) for other, _, file in outputs if other != option]
        for other, file in inputs + others:
            if any(_same(file, each) for each in replaced):
                place = "file than" if isinstance(what, File) else "folder, as this would replace"
                does = "is read" if (other, file) in inputs else "is written"
                expected = f"another {place} {file}, which {does} ({other})"
                raise InputError(option, found=str(path), expected=expected)
        what.check(option, path)


def _texts(value: Any) -> list[str]:
    values = value if isinstance(value, list | tuple) else [value]
    return [str(each) for each in values if isinstance(each, str | os.PathLike)]


def _check_text(option: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(option, found=os.fsencode(text), expected="text in UTF-8") from None


def _paths(text: str) -> Iterator[Path]:
    """The files that a value may name: behind one there may be a day (FILE@DAY) or a class (FILE.py:CLASS)."""
    for name in dict.fromkeys((text, text.partition("@")[0], text.rpartition(":")[0])):
        if name and "\0" not in name:
            yield Path(name)


def _same(one: Path, other: Path) -> bool:
    if one.exists() and other.exists():
        return one.samefile(other)
    return os.path.realpath(one) == os.path.realpath(other)


def _check_place(option: str, path: Path, folder: Path) -> None:
    """Raise InputError where `folder` cannot be one that is written to: its nearest that exists says so."""
    nearest = next(each for each in (folder, *folder.absolute().parents) if each.exists() or each.is_symlink())
    if not nearest.is_dir():
        raise InputError(option, found=str(path), expected=f"a place in a folder: {nearest} is none")
    if not os.access(nearest, os.W_OK | os.X_OK) and not path.exists():
        raise InputError(option, found=str(path), expected=f"a place that can be written to, which {nearest} is not")


def _ends_of(path: Path) -> bytes:
    """The first and last bytes of a file, unpacked where its name says that it is packed."""
    with path.open("rb") as file:
        first = file.read(_LOOKED_AT)
        file.seek(max(path.stat().st_size - _LOOKED_AT, 0))
        last = file.read(_LOOKED_AT)
    if path.suffix.lower() != ".gz":
        return first + last
    try:
        return zlib.decompressobj(wbits=31).decompress(first, _LOOKED_AT)
    except zlib.error:
        return first
