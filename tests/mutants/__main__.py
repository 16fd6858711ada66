"""Which tests notice a wrong change: ``python -m tests.mutants [--only ID ...] [--room ROOM ...] [--whole]``.

Which tests run which lines is found first, folder by folder. Each worker then has a copy of the tree, applies one
mutant at a time, and runs the tests of its folder that run the changed lines, the quickest first, until one fails, then
all of the folder, then its exhaustive ones; the test that failed must pass without the mutant. A test that hangs has
noticed it. What was noticed is kept in `build` and not run again while the mutant is the same; `--again` forgets
verdicts and reach.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from queue import Queue
from runpy import run_path
from shutil import copy2, rmtree
from threading import Lock

from rich.progress import Progress

from tests.conftest import HERE, _data_root
from tests.mutants.mutants import ROOT, Mutant, read_mutants
from tests.mutants.reach import PRODUCT, Reach

NOTICED = ("noticed", "timed out")
CHILD = str(Path(__file__).with_name("child.py"))
PYTEST = ["-m", "not exhaustive", "-p", "no:cacheprovider", "--tb=no", "-rfE"]
MOST_TESTS = 400
"""Tests that are named one by one; where more run a line, whole files are run."""
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
_ENDED = re.compile(r"^ended with (\d+) after (\S+) CPU seconds$", re.MULTILINE)

_SERVER = get_context("forkserver")
_SERVER.set_forkserver_preload(
    [
        "pytest",
        "hypothesis",
        "numpy",
        "scipy.optimize",
        "pandas",
        "pyarrow.parquet",
        "highspy",
        "clarabel",
        "cvxpy",
        "typer",
    ]
)


def copy_tree(source: Path, target: Path, *below: str) -> None:
    """All files that git does not ignore, of some folders or of all."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *below]
    for name in filter(None, subprocess.check_output(listed, cwd=source, text=True).split("\0")):
        if (source / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            copy2(source / name, target / name)


def run_tests(tree: Path, tests: list[str], options: argparse.Namespace) -> tuple[str, set[str], float]:
    """What came of it, the tests that failed, and CPU seconds."""
    output = tree.with_suffix(".output")
    hangs = ["-o", f"faulthandler_timeout={options.each}", "-o", "faulthandler_exit_on_timeout=true"]
    given = {"TREE": str(tree), "ARGUMENTS": [*PYTEST, *hangs, *tests], "OUTPUT": str(output)}
    child = _SERVER.Process(target=run_path, args=(CHILD,), kwargs={"init_globals": given})
    child.start()
    child.join(options.limit)
    if late := child.is_alive():
        os.killpg(child.pid or 0, signal.SIGKILL)
        child.join()
    text = output.read_text(errors="replace")
    failed, ended = set(_FAILED.findall(text)), _ENDED.search(text)
    if failed:
        verdict = "noticed"
    elif late or "Timeout (" in text:
        verdict = "timed out"
    elif ended and int(ended[1]) in (0, 5):  # 5: all that was named is exhaustive
        verdict = "survived"
    else:
        verdict = f"broken: {text[-300:]}"
    return verdict, failed, float(ended[2]) if ended else 0.0


def digest_of(tree: Path, *below: str) -> str:
    """Of all files below some folders of a tree."""
    found = sha256()
    for path in sorted(path for folder in below for path in (tree / folder).rglob("*.py")):
        found.update(path.relative_to(tree).as_posix().encode() + path.read_bytes())
    return found.hexdigest()[:12]


def find_reach(tree: Path, folders: list[str], options: argparse.Namespace) -> Reach:
    """Which tests of these folders run which lines; found once for the same tests and product."""
    files = {
        folder: Path(options.results).parent
        / "reach"
        / f"{folder.replace('/', '.')}-{digest_of(tree, folder, *PRODUCT)}"
        for folder in folders
    }
    missing = [folder for folder, file in files.items() if options.again or not file.exists()]

    def one(folder: str) -> None:
        file = files[folder].resolve()
        file.parent.mkdir(parents=True, exist_ok=True)
        environment = os.environ | {"PYTHONPATH": str(tree), "REACH": str(file)}
        environment["ALLOCATOR_TEST_SECONDS"] = str(file.with_suffix(".seconds"))
        found = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "tests.mutants.reach", *PYTEST, folder],
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
        )
        print(f"{folder}: {found.stdout.splitlines()[-1] if found.stdout else found.stderr}", flush=True)

    with ThreadPoolExecutor(options.workers) as pool:
        list(pool.map(one, missing))
    return Reach(files.values())


def named(tests: list[str], folder: str) -> list[str]:
    """What is said to pytest: tests in their order, or the files that have them, or the folder."""
    if len(tests) <= MOST_TESTS:
        return tests or [folder]
    return list(dict.fromkeys(test.partition("::")[0] for test in tests))


def judge(mutant: Mutant, tree: Path, reach: Reach, options: argparse.Namespace) -> dict[str, object]:
    """Apply the mutant, run its tests, take it back."""
    path, cpu = tree / mutant.file, 0.0
    original = path.read_text()
    tests = reach.tests_of(mutant.file, mutant.lines(tree), mutant.noticed_by)
    stages = {
        "everyday": named(tests, mutant.noticed_by),
        "folder": [mutant.noticed_by],  # what another process runs is reached by no test
        "exhaustive": ["-m", "exhaustive and not deep", mutant.noticed_by] if mutant.noticed_by != "tests" else [],
        "whole": ["tests"] if options.whole else [],
    }
    verdict, test, by = "survived", "", ""
    try:
        path.write_text(mutant.mutated(tree))
        for stage, which in stages.items():
            if not which or (stage == "exhaustive" and options.everyday):
                continue
            verdict, failed, used = run_tests(tree, ["-x", *which], options)
            cpu += used
            if verdict != "survived":
                test, by = min(failed, default=""), stage
                break
    finally:
        path.write_text(original)
    return asdict(mutant) | {
        "verdict": verdict,
        "test": test,
        "by": by,
        "reached_by": len(tests),
        "cpu_seconds": round(cpu, 1),
    }


def check_controls(found: list[dict[str, object]], tree: Path, options: argparse.Namespace) -> None:
    """What noticed a mutant has to pass without it."""
    tests = sorted({str(entry["test"]) for entry in found if entry["verdict"] == "noticed" and entry["test"]})
    failed = run_tests(tree, ["-m", "not deep", *tests], options)[1] if tests else set()
    for entry in found:
        if entry["test"] in failed:
            entry["verdict"] = "broken: its test fails without it"


def run(mutants: list[Mutant], options: argparse.Namespace) -> dict[str, dict[str, object]]:
    """Verdicts by id; those that are known already are kept."""
    file = Path(options.results)
    known = json.loads(file.read_text()) if file.exists() and not options.again else {}
    done = {
        m.id for m in mutants if known.get(m.id, {}).items() >= asdict(m).items() and known[m.id]["verdict"] in NOTICED
    }
    waiting = [m for m in mutants if not m.equivalent and m.id not in done]
    with tempfile.TemporaryDirectory(prefix="mutants-") as top, Progress() as progress:
        trees: Queue[Path] = Queue()
        for worker in range(min(options.workers, len(waiting))):
            tree = Path(top) / str(worker)
            copy_tree(ROOT, tree)
            if options.tests_from:
                rmtree(tree / "tests")
                copy_tree(Path(options.tests_from), tree, "tests")
                for name in ("cpu_seconds.py", "mutants/reach.py", "mutants/__init__.py"):  # what is measured with
                    if (HERE / name).exists():
                        (tree / "tests" / name).parent.mkdir(exist_ok=True)
                        copy2(HERE / name, tree / "tests" / name)
            trees.put(tree)
        task, lock = progress.add_task("mutants", total=len(waiting)), Lock()
        reach = find_reach(trees.queue[0], sorted({m.noticed_by for m in waiting}), options) if waiting else Reach([])

        def note(verdict: dict[str, object]) -> None:
            known[str(verdict["id"])] = verdict
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(known, indent=1))

        def one(mutant: Mutant) -> dict[str, object]:
            tree = trees.get()
            try:
                verdict = judge(mutant, tree, reach, options)
            finally:
                trees.put(tree)
            with lock:
                note(verdict)
                progress.print(f"{mutant.id}: {verdict['verdict']} {verdict['test']}", markup=False)
                progress.advance(task)
            return verdict

        with ThreadPoolExecutor(max(options.workers, 1)) as pool:
            found = list(pool.map(one, waiting))
        if found:
            check_controls(found, trees.get(), options)
            for verdict in found:
                note(verdict)
    return {m.id: known[m.id] for m in mutants if m.id in known}


def main() -> int:
    """0 if every mutant was noticed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", action="extend", metavar="ID", help="these mutants")
    parser.add_argument("--room", nargs="+", action="extend", help="the mutants of these files of tests/mutants")
    parser.add_argument("--everyday", action="store_true", help="leave the exhaustive tests of its folder out")
    parser.add_argument("--whole", action="store_true", help="run the whole suite on what its own folder lets pass")
    parser.add_argument("--tests-from", metavar="PATH", help="take the tests of another checkout")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for one mutant")
    parser.add_argument("--each", type=float, default=120.0, help="seconds after which one test hangs")
    parser.add_argument("--results", default=str(HERE.parent / "build" / "mutants.json"))
    parser.add_argument("--again", action="store_true", help="run those that are known too")
    options = parser.parse_args()
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # a mutant is as old and as long as what it was made of
    os.environ["ALLOCATOR_DATA"] = str(_data_root())
    mutants = read_mutants()
    if unknown := set(options.only or ()) - {m.id for m in mutants}:
        parser.error(f"no mutants: {', '.join(sorted(unknown))}")
    if unknown := set(options.room or ()) - {m.room for m in mutants}:
        parser.error(f"no rooms: {', '.join(sorted(unknown))}")
    chosen = [m for m in mutants if m.id in (options.only or [m.id]) and m.room in (options.room or [m.room])]
    for mutant in chosen:
        mutant.check(ROOT)
    found = run(chosen, options)
    missed = [entry for entry in found.values() if entry["verdict"] not in NOTICED]
    for entry in sorted(missed, key=lambda entry: (entry["noticed_by"], entry["file"])):
        print(f"{entry['noticed_by']}  {entry['file']}  {entry['id']}: {entry['verdict']}")
    total, noticed = (
        Counter(e["room"] for e in found.values() if allowed is None or e["verdict"] in allowed)
        for allowed in (None, NOTICED)
    )
    for room in total:
        print(f"{room}: {noticed[room]} of {total[room]} noticed")
    late = sum(entry.get("by", "") not in ("", "everyday", "folder") for entry in found.values())
    print(f"{late} of them by exhaustive tests alone")
    seconds = sum(float(entry["cpu_seconds"]) for entry in found.values())
    print(f"all: {noticed.total()} of {total.total()} noticed; {seconds:.0f} CPU seconds")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
