"""What commands write never takes the place of what they read, nor of anything else: of all commands there are."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allocator.cli.app import COMMANDS, app, load
from allocator.cli.options.outputs import WRITTEN, File, Folder, may_name_input, option_of
from throughputs import InputError

READ = {
    "--trace", "--throughputs", "--cluster", "--accelerator", "--prices", "--entities", "--predictions", "--import",
    "--state", "--cache", "--columns", "--from", "--samples", "--directory", "--tls-cert", "--tls-key", "--tls-ca",
    "--token-file", "INSTANCE.json|-", "FILE|-", "FROM|-", "FILE|FOLDER", "DIR", "RUN", "FILE",
}  # fmt: skip
"""What names a file or folder that a command reads, or is its own place to keep things."""

OUTPUT_NAMES = {"out", "report", "plot", "checkpoint", "target", "into"}


def leaves() -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its full name."""
    for name in COMMANDS:
        command = load(name)
        parts = getattr(command, "commands", {})
        yield from ((f"{name} {part}", each) for part, each in parts.items()) if parts else [(name, command)]


LEAVES = dict(leaves())
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
    names = [*what.files, *(pattern.replace("*", "x") for pattern in what.below)]
    return folder / "out", folder / "out" / (names[0] if names else "")


def test_every_option_that_names_a_file_is_known_to_read_or_to_write():
    for name, command in LEAVES.items():
        written = WRITTEN.get(name, {})
        options = {option_of(parameter): parameter for parameter in command.params}
        assert written.keys() <= options.keys(), name
        for option, parameter in options.items():
            if parameter.name in OUTPUT_NAMES:
                assert option in written, f"{name} {option}: what it writes has to stand in WRITTEN"
            elif may_name_input(parameter):
                assert option in READ, f"{name} {option}: does it read or write?"
    assert WRITTEN.keys() <= LEAVES.keys()


@pytest.mark.parametrize("way", ["itself", "other spelling", "link", "hard link"])
@pytest.mark.parametrize(("name", "option", "source"), PAIRS)
def test_an_output_is_no_input(name, option, source, way, tmp_path):
    place, file = place_and_file(name, option, tmp_path)
    file.parent.mkdir(parents=True, exist_ok=True)
    if file == place / "":
        file.mkdir(exist_ok=True)
    else:
        file.write_text("precious")
    given = {
        "itself": lambda: file,
        "other spelling": lambda: file.parent / ".." / file.parent.name / file.name,
        "link": lambda: linked(os.symlink, file, tmp_path / "link"),
        "hard link": lambda: linked(os.symlink if file.is_dir() else os.link, file, tmp_path / "link"),
    }[way]()
    order = [(source, given), (option, place)]  # arguments stand in their order
    error = refused(name, *order)
    assert (error.source, error.found) == (option, str(place))
    assert source in error.expected
    if file.is_file():
        assert file.read_text() == "precious"


def linked(link: Any, file: Path, name: Path) -> Path:
    link(file, name)
    return name


def test_behind_a_cluster_may_be_a_day_and_behind_a_file_of_policies_a_class(tmp_path):
    for name, source, behind in (
        ("compare", "--cluster", "@2020-09-01"),
        ("compare", "--import", ":Mine"),
        ("simulate", "--cluster", "@2020-09-01"),
    ):
        place, file = place_and_file(name, "--out", tmp_path / name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("precious")
        assert source in refused(name, (source, Path(f"{file}{behind}")), ("--out", place)).expected


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [("predict", "--out", "--report"), ("nodes", "--out", "--report"), ("throughputs fit", "--out", "--plot")],
)
def test_two_outputs_are_two_files(name, one, other, tmp_path):
    error = refused(name, (one, tmp_path / "a"), (other, tmp_path / "." / "a"))
    assert {error.source} < {one, other}


def test_a_checkpoint_is_no_file_of_the_results(tmp_path):
    (tmp_path / "jobs.csv").write_text("job_id,jct\n")
    error = refused("simulate", ("--out", tmp_path), ("--checkpoint", tmp_path / "jobs.csv"))
    assert "--checkpoint" in str(error)


@pytest.mark.parametrize(("name", "option"), [pair for pair in OUTPUTS if pair != ("profile", "--into")])
def test_what_is_something_else_stays(name, option, tmp_path):
    what = WRITTEN[name][option]
    files = list(what.files) if isinstance(what, Folder) else [""]
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
    for place in ("file", "file/below") if folder else ("folder", "file/below", "no/such/folder/file"):
        assert refused(name, *source, (option, tmp_path / place)).source == option
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def run(*words: object) -> None:
    app(list(map(str, words)), standalone_mode=False)


def test_what_was_written_is_written_anew(tmp_path, monkeypatch):
    """Each command over its own output of before."""
    monkeypatch.chdir(tmp_path)
    job = {"job_id": 0, "throughputs": {"v100": 3.1}, "scale_factor": 1}
    Path("i.json").write_text(json.dumps({"cluster": {"v100": 4}, "jobs": [job]}))
    traces = ("t.csv", "t.csv.gz", "t.parquet")
    run("trace", "generate", "--jobs", 8, "--out", "jobs.csv")
    run("trace", "generate", "--jobs", 4, "--throughputs", "goodput", "--out", "trainings.csv")
    for _ in range(2):
        for name in traces:
            run("trace", "generate", "--jobs", 8, "--out", name)
        for name in ("gavel", "gavel7", "shockwave", "swf"):
            run("trace", "convert", "jobs.csv", f"t.{name}", "--to", name, "--lossy")
        run("trace", "convert", "trainings.csv", "pollux.csv", "--to", "pollux", "--lossy")
        run("trace", "example-log", "--out", "log.csv")
        run("trace", "import", "log.csv", "--out", "imported.csv")
        run("throughputs", "example-samples", "--out", "samples.csv")
        run("throughputs", "fit", "--samples", "samples.csv", "--out", "fit.toml", "--plot", "fit.svg")
        run("solve", "i.json", "--policy", "fifo", "--out", "answer.json")
        run("audit", "i.json", "--policy", "max_min_fairness", "--out", "audit.json")
        run("predict", "--trace", "imported.csv", "--out", "predicted.csv", "--report", "predicted.html")
        run(
            "nodes", "--trace", "imported.csv", "--learn", 1, "--model", "truth", "--out", "n.csv", "--report", "n.html"
        )
        run("simulate", "--trace", "jobs.csv", "--policy", "fifo", "--cluster", "v100:4", "--out", "run")
        run("compare", "--trace", "jobs.csv", "--policies", "fifo", "--cluster", "v100:4", "--out", "compared")
        run("whatif", "--trace", "jobs.csv", "--cluster", "v100:4", "--next-gpus", 0, "-j", 1, "--out", "w")
        run("sweep", "trace", "--trace", "jobs.csv", "--policies", "fifo", "--cluster", "v100:4", "-j", 1, "--out", "s")


def test_a_checkpoint_in_python_is_no_trace_either(tmp_path):
    import allocator

    trace = allocator.Trace(["a"], scale_factor=[1], total_steps=[360.0], arrival_time=[0.0])
    file = tmp_path / "t.csv"
    file.write_text("precious")
    with pytest.raises(InputError, match=r"t\.csv"):
        allocator.simulate(trace, "v100:1", allocator.get_policy("fifo"), [[1.0]], checkpoint=file)
    assert file.read_text() == "precious"


def test_text_that_is_none_is_refused(tmp_path):
    for name, option in (("solve", "INSTANCE.json|-"), ("serve", "--state"), ("status", "--state"), ("data fetch", "")):
        path = Path(os.fsdecode(bytes(tmp_path) + b"/\xff"))
        assert "UTF-8" in refused(name, (option, path)).expected
