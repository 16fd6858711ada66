"""What commands write never takes the place of what they read, nor of anything else: of all commands there are."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allocator.cli.app import COMMANDS, DECLARED, load
from allocator.cli.options.outputs import File, Folder, may_name_input, option_of, written_by
from tests.cli.command import ran
from throughputs import InputError

READ = {
    "--trace", "--throughputs", "--cluster", "--accelerator", "--prices", "--entities", "--start", "--predictions",
    "--import", "--world", "--state", "--cache", "--columns", "--from", "--samples", "--directory", "--tls-cert",
    "--tls-key", "--tls-ca", "--token-file", "INSTANCE.json|-", "INSTANCE.json|LOG|-",
    "FILE|-", "FROM|-", "FILE|FOLDER", "DIR", "RUN", "FILE", "NAME|FILE.py",
}  # fmt: skip
"""What names a file or folder that a command reads, or is its own place to keep things."""

OUTPUT_NAMES = {"out", "report", "plot", "checkpoint", "target", "into"}


def leaves() -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its full name."""
    for name in COMMANDS:
        command = load(name)
        parts = getattr(command, "commands", {})
        yield from ((f"{name} {part}", each) for part, each in parts.items()) if parts else [(name, command)]


def written() -> Iterator[tuple[str, Any]]:
    """What each command is declared to write, by its full name."""
    for name, declared in DECLARED.items():
        yield name, written_by(declared)
        yield from ((f"{name} {part}", written_by(each)) for part, each in declared.get("commands", {}).items())


LEAVES = dict(leaves())
WRITTEN = {name: options for name, options in written() if options}
OUTPUTS = [(name, option) for name, options in WRITTEN.items() for option in options]
PAIRS = [
    (name, option, option_of(parameter))
    for name, option in OUTPUTS
    for parameter in LEAVES[name].params
    if may_name_input(parameter) and option_of(parameter) not in WRITTEN[name]
]


def arguments(*given: tuple[str, Path]) -> list[str]:
    """Options with their values, and arguments, whose name is their metavar, in their place."""
    return [word for option, path in given for word in ([option] if option.startswith("-") else []) + [str(path)]]


def refused(name: str, *given: tuple[str, Path]) -> InputError:
    """What a command has against what it is given; the arguments that it lacks are never missed."""
    with pytest.raises(InputError) as caught:
        LEAVES[name].main(args=arguments(*given), standalone_mode=False)
    return caught.value


def place_and_file(name: str, option: str, folder: Path) -> tuple[Path, Path]:
    """An output, and the file that writing it would replace."""
    what = WRITTEN[name][option]
    if isinstance(what, File):
        return folder / "there", folder / "there"
    names = [pattern.replace("*", "x") for pattern in what.files]
    return folder / "out", folder / "out" / (names[0] if names else "")


def test_every_option_that_names_a_file_is_known_to_read_or_to_write():
    for name, command in LEAVES.items():
        known = WRITTEN.get(name, {})
        options = {option_of(parameter): parameter for parameter in command.params}
        assert known.keys() <= options.keys(), name
        for option, parameter in options.items():
            if parameter.name in OUTPUT_NAMES:
                assert option in known, f"{name} {option}: what it writes has to stand in commands.toml"
            elif may_name_input(parameter):
                assert option in READ, f"{name} {option}: does it read or write?"
    assert WRITTEN.keys() <= LEAVES.keys()


@pytest.mark.parametrize(("name", "option", "source"), PAIRS)
def test_an_output_is_no_input(name, option, source, tmp_path):
    place, file = place_and_file(name, option, tmp_path)
    file.parent.mkdir(parents=True, exist_ok=True)
    if file == place / "":
        file.mkdir(exist_ok=True)
    else:
        file.write_text("precious")
    (tmp_path / "link").symlink_to(file)
    ways = [file, file.parent / ".." / file.parent.name / file.name, tmp_path / "link"]
    if file.is_file():
        os.link(file, tmp_path / "hard")
        ways.append(tmp_path / "hard")
    for given in ways:
        error = refused(name, (source, given), (option, place))  # arguments stand in their order
        assert (error.source, error.found) == (option, str(place))
        assert source in error.expected
    if file.is_file():
        assert file.read_text() == "precious"


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [("predict", "--out", "--report"), ("nodes", "--out", "--report"), ("throughputs fit", "--out", "--plot")],
)
def test_two_outputs_are_two_files(name, one, other, tmp_path):
    error = refused(name, (one, tmp_path / "a"), (other, tmp_path / "." / "a"))
    assert {error.source} < {one, other}


@pytest.mark.parametrize(("name", "option"), [pair for pair in OUTPUTS if pair != ("profile", "--into")])
def test_what_is_something_else_stays(name, option, tmp_path):
    what = WRITTEN[name][option]
    files = [name for name in what.files if "*" not in name] if isinstance(what, Folder) else [""]
    for place in files:
        file = tmp_path / (place or "notes.txt")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("notes,of,mine\n1,2,3\n")
        source = [("FROM|-", tmp_path / "none.csv")] if option == "TO" else []
        error = refused(name, *source, (option, tmp_path if place else file))
        assert (error.source, error.found) == (option, str(file))
        assert file.read_text() == "notes,of,mine\n1,2,3\n"
        file.unlink()


@pytest.mark.parametrize(("name", "option"), OUTPUTS)
def test_a_place_that_cannot_be_is_told_first(name, option, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    source = [("FROM|-", tmp_path / "none.csv")] if option == "TO" else []
    folder = isinstance(WRITTEN[name][option], Folder)
    assert refused(name, *source, (option, "")).source == option
    for place in ("file", "file/below") if folder else ("folder", "file/below", "no/such/folder/file"):
        assert refused(name, *source, (option, tmp_path / place)).source == option
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


LINES = """
trace generate --jobs 4 --out jobs.csv
trace generate --jobs 4 --out t.csv.gz
trace generate --jobs 4 --out t.parquet
trace generate --jobs 2 --throughputs goodput --out trainings.csv
trace convert jobs.csv t.gavel --to gavel --lossy
trace convert jobs.csv t.gavel7 --to gavel7 --lossy
trace convert jobs.csv t.shockwave --to shockwave --lossy
trace convert jobs.csv t.swf --to swf --lossy
trace convert trainings.csv pollux.csv --to pollux --lossy
trace example-log --out log.csv
trace import log.csv --out imported.csv
throughputs example-samples --out samples.csv
throughputs fit --samples samples.csv --out fit.toml --plot fit.svg
solve i.json --policy fifo --out answer.json
audit i.json --policy isolated --out audit.json
predict --trace imported.csv --truth --out predicted.csv --report predicted.html
nodes --trace imported.csv --learn 1 --model truth --out n.csv --report n.html
simulate --trace jobs.csv --policy fifo --cluster v100:4 --out run
compare --trace jobs.csv --policies fifo --cluster v100:4 --out compared
whatif --trace jobs.csv --cluster v100:4 --next-gpus 0 -j 1 --out w
sweep trace --trace jobs.csv --policies fifo --cluster v100:4 -j 1 --out s
"""


@pytest.mark.exhaustive
@pytest.mark.usefixtures("folder")
def test_what_was_written_is_written_anew():
    """Each command over its own output of before."""
    job = {"job_id": 0, "throughputs": {"v100": 3.1}, "scale_factor": 1}
    Path("i.json").write_text(json.dumps({"cluster": {"v100": 4}, "jobs": [job]}))
    for line in LINES.strip().splitlines():
        ran(line)
        ran(line)
