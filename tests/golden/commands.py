"""Commands as users type them: what each prints and writes, line for line of `commands/cases.txt`.

A line is a case: a command without the word ``allocator``, or several with ``&&`` between, which share a folder. The
folder has the files of `commands/inputs` and the policies of docs/examples. Lines below ``# exhaustive`` are left out
of every day. A line of `commands/refused.txt` begins with the exit code and the words that the message must have.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd

from allocator import __version__
from allocator.cli import main
from tests.golden.door import in_text
from tests.golden.kept import Case, Taken

HERE = Path(__file__).parent / "commands"
OWN_POLICIES = HERE.parents[2] / "docs" / "examples" / "own_policies"
PLAIN = {"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1", "PYTHONHASHSEED": "0"}
WALL = re.compile(
    r"(?:\w*(?:wall|solve|solver|decision|policy|elapsed|runtime)_(?:seconds|ms)|(?:cpu|run)_seconds"
    r"|started_at|host|python|version|peak_\w+)(?:_\w+)?$"
)
"""Names of figures that tell of the machine, not of the answer; so does ``seconds`` beside a solver's status."""
LASTED = re.compile(
    r"\b\d+(\.\d+)? (ms|s)(?=; (prices|about)| for a decision)"
    r"|, in \d+(\.\d+)? s\b.*|; about .* left|(?<=│)(\s+\d+\.\d\d │){2}$"
)
"""What texts say of it; the last two columns of the tables of sweeps are seconds of the policy and of the run."""
PROGRESS = re.compile(r"\d+ of \d+: |\S+: \d+ of \d+ jobs completed, simulated clock ")
"""Lines that come as runs end, in the order in which processes do, and while they last long."""
DIGITS = re.compile(r"-?\d+\.\d+(e[-+]\d+)?")
OPAQUE = {".gz", ".ckpt", ".png", ".zip", ".state", ".npz", ".svg", ".html", ".log"}


def cases() -> list[Case]:
    """All commands; each file has those of one."""
    tier, found = "", []
    for line in (HERE / "cases.txt").read_text().splitlines():
        if line.startswith("#"):
            tier = "exhaustive" if line == "# exhaustive" else ""
        elif line:
            found.append(Case(f"commands/{line.split()[0]}", line, f"allocator {line}", partial(_take, line), tier))
    return found


def _take(line: str) -> Taken:
    return Taken(answer_of(line.split(" && "), inputs))


def refusals() -> list[tuple[int, list[str], str]]:
    """Exit code, words of the message, and line."""
    lines = (HERE / "refused.txt").read_text().splitlines()
    rows = [[cell.strip() for cell in line.split("|", 2)] for line in lines if line and not line.startswith("#")]
    return [(int(code), words.split(), line) for code, words, line in rows]


def answer_of(commands: Sequence[str], prepare: Callable[[Path], object]) -> dict[str, Any]:
    """Exit code, both streams and the files written, of commands in a folder that is prepared."""
    with _folder() as folder:
        prepare(folder)
        told, known = {}, _stamps(folder)
        for command in commands:
            code, out, err = run(command)
            stamps = _stamps(folder)
            written = sorted(path for path, stamp in stamps.items() if known.get(path) != stamp)
            known = stamps
            one = {"exit": code, "stdout": _text(out, folder), "stderr": _text(err, folder)}
            told[command] = one | {path: plain(_read(folder / path), folder) for path in written}
        return told


def inputs(folder: Path) -> None:
    """The files that commands read."""
    shutil.copytree(HERE / "inputs", folder, dirs_exist_ok=True)
    shutil.copytree(OWN_POLICIES, folder, dirs_exist_ok=True)
    # a copied folder is as open as its original, which the umask of a checkout decides
    folder.chmod(0o700)


def run(command: str) -> tuple[int, str, str]:
    """Exit code and both streams of one command, in the working folder."""
    words = shlex.split(command)
    # what is imported stays in its process
    imports = "--import" in words and Path(words[words.index("--import") + 1]).exists()
    return _in_a_process(words) if imports else _here(words)


def _in_a_process(words: list[str]) -> tuple[int, str, str]:
    root = str(HERE.parents[2])
    environment = os.environ | {"PYTHONPATH": root}
    done = subprocess.run([sys.executable, "-m", "allocator", *words], capture_output=True, text=True, env=environment)
    return done.returncode, done.stdout, done.stderr


def _here(words: list[str]) -> tuple[int, str, str]:
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with (
        redirect_stdout(out),
        redirect_stderr(err),
        warnings.catch_warnings(),
        mock.patch.object(sys, "argv", ["allocator", *words]),
        mock.patch.object(warnings, "formatwarning"),
    ):
        warnings.simplefilter("default")
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.showwarning = lambda *told, **_: sys.stderr.write(warnings.formatwarning(*told[:4]))
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    printed, told = (stream.buffer.getvalue().decode() for stream in (out, err))
    # how far a run is is told every few seconds, where it takes that long
    return code, printed, re.sub(r".* completed, simulated clock .*\n", "", told)


@contextmanager
def _folder() -> Iterator[Path]:
    """A working folder with all inputs, and an environment that does not matter."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as made, mock.patch.dict(os.environ, PLAIN):
        os.environ.pop("ALLOCATOR_STATE", None)
        folder = Path(made).resolve()
        os.chdir(folder)
        try:
            yield folder
        finally:
            os.chdir(before)


def _stamps(folder: Path) -> dict[str, tuple[int, int]]:
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.stat().st_size) for path in files}


def _text(text: str, folder: Path) -> Any:
    """JSON as such, else lines."""
    try:
        return plain(json.loads(text), folder)
    except ValueError:
        return plain([line.rstrip() for line in text.splitlines() if not PROGRESS.match(line)], folder)


def _read(path: Path) -> Any:
    """What a file holds: JSON as such, tables by column, lines, or nothing that can be told."""
    kind = path.suffix
    if kind in OPAQUE:
        return f"a file {kind}"
    if kind == ".parquet":
        columns = json.loads(in_text(pd.read_parquet(path)).to_json(orient="columns", double_precision=15))
        return {name: list(column.values()) for name, column in columns.items()}
    text = path.read_text()
    if kind == ".json":
        return json.loads(text)
    if kind == ".csv" and not text.startswith("#"):
        return {name: column.tolist() for name, column in pd.read_csv(path, dtype=str, keep_default_na=False).items()}
    return text.splitlines()


def plain(told: Any, folder: Path) -> Any:
    """Without what differs from day to day and from place to place, and the last digits of solvers."""
    if isinstance(told, dict):
        wall = {name for name in told if WALL.match(name) or (name == "seconds" and "status" in told)}
        return {name: "..." if name in wall else plain(value, folder) for name, value in told.items()}
    if isinstance(told, list):
        return [plain(one, folder) for one in told]
    if isinstance(told, float):
        return _short(told)
    if isinstance(told, str):
        if DIGITS.fullmatch(told):
            return repr(_short(float(told)))
        return LASTED.sub("...", told.replace(str(folder), "DIR").replace(__version__, "VERSION"))
    return told


def _short(value: float) -> float:
    return float(f"{value:.9g}") if abs(value) > 1e-9 else 0.0
