"""Which tests notice a wrong change: ``python -m tests.mutants [--only ID ...] [--room ROOM ...] [--whole]``.

Each worker has a copy of the tree, applies one mutant at a time, and runs the tests that have to notice it, the
likeliest files first, until one fails; that test must pass without the mutant. A test that hangs has noticed it. What
is known is kept and not run again while the mutant is the same; `--again` forgets it.
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
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from math import log
from pathlib import Path
from queue import Queue
from shutil import copy2, rmtree
from threading import Lock, Timer

from rich.progress import Progress

from tests.conftest import HERE, _data_root
from tests.mutants.mutants import ROOT, Mutant, read_mutants

NOTICED = ("noticed", "timed out")
PYTEST = [sys.executable, "-m", "pytest", "-m", "not exhaustive", "-p", "no:cacheprovider", "--tb=no", "-rfE"]
FIRST = 4
"""Files of tests that are loaded first."""
_WORD = re.compile(r"[a-z]{4,}")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?)(?: - .*)?$", re.MULTILINE)


def copy_tree(source: Path, target: Path, *below: str) -> None:
    """All files that git does not ignore, of some folders or of all."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *below]
    for name in filter(None, subprocess.check_output(listed, cwd=source, text=True).split("\0")):
        if (source / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            copy2(source / name, target / name)


def output_of(tree: Path, arguments: list[str], seconds: float, each: float) -> tuple[str, int, float]:
    """What pytest prints, its exit code, and CPU seconds; code -9 where it took longer than `seconds`."""
    environment = os.environ | {"PYTHONPATH": str(tree), "ALLOCATOR_DATA": str(_data_root())}
    hangs = ["-o", f"faulthandler_timeout={each}", "-o", "faulthandler_exit_on_timeout=true"]
    with tempfile.TemporaryFile("w+") as output:
        run = subprocess.Popen(
            [*PYTEST, *hangs, *arguments],
            cwd=tree,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        timer = Timer(seconds, os.killpg, (run.pid, signal.SIGKILL))
        timer.start()
        _, status, usage = os.wait4(run.pid, 0)
        timer.cancel()
        run.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        return output.read(), run.returncode, usage.ru_utime + usage.ru_stime


def run_tests(tree: Path, arguments: list[str], seconds: float, each: float) -> tuple[str, str, float]:
    """What came of it, the test that failed, and CPU seconds."""
    text, code, cpu = output_of(tree, arguments, seconds, each)
    failed = _FAILED.search(text)
    if failed:
        verdict = "noticed"
    elif code == -signal.SIGKILL:
        verdict = "cut short"
    elif "Timeout (" in text:
        verdict = "timed out"
    elif code in (0, 5):  # 5: all tests of these files are exhaustive
        verdict = "survived"
    else:
        verdict = f"broken: {text[-300:]}"
    return verdict, failed[1] if failed else "", cpu


def in_order(mutant: Mutant, tree: Path) -> list[str]:
    """The files of tests, the likeliest first: by their names, by the names of the module, by the words in both."""
    files = sorted((tree / mutant.noticed_by).rglob("test_*.py"))
    words = {path: set(_WORD.findall(path.read_text().lower())) for path in files}
    about = set(_WORD.findall(f"{mutant.id} {Path(mutant.file).stem}"))
    common = Counter(word for mine in words.values() for word in mine)
    titles = Counter(word for path in files for word in set(_WORD.findall(path.stem)))
    names = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in mutant.public_names(tree)))
    wanted = mutant.words(tree)

    def likely(path: Path) -> float:
        title = sum(log(len(files) / titles[word]) for word in about & set(_WORD.findall(path.stem)))
        inside = sum(log(len(files) / common[word]) for word in wanted & words[path]) / log(len(words[path]) + 2)
        return 3.0 * title + 3.0 * bool(names.search(path.read_text())) + inside

    return [path.relative_to(tree).as_posix() for path in sorted(files, key=likely, reverse=True)]


def judge(mutant: Mutant, tree: Path, options: argparse.Namespace) -> dict[str, object]:
    """Apply the mutant, run its tests, take it back."""
    path, begun, cpu = tree / mutant.file, time.monotonic(), 0.0
    files, original = in_order(mutant, tree), path.read_text()
    stages = [files[:FIRST], files[FIRST:], ["tests"] if options.whole else []]
    verdict, test, passed = "survived", "", 0
    try:
        path.write_text(mutant.mutated(tree))
        for stage in filter(None, stages):
            left = max(options.limit - (time.monotonic() - begun), 1.0)
            verdict, test, used = run_tests(tree, ["-x", *stage], left, options.each)
            cpu += used
            if verdict != "survived":
                break
            passed += len(stage)
    finally:
        path.write_text(original)
    if verdict == "cut short":
        verdict = f"survived {passed} of {len(files)} files, then cut short"
    return asdict(mutant) | {"verdict": verdict, "test": test, "cpu_seconds": round(cpu, 1)}


def check_controls(found: list[dict[str, object]], tree: Path, options: argparse.Namespace) -> None:
    """What noticed a mutant has to pass without it."""
    tests = sorted({str(entry["test"]) for entry in found if entry["verdict"] == "noticed" and entry["test"]})
    failed = set(_FAILED.findall(output_of(tree, tests, 3600.0, options.each)[0])) if tests else set()
    for entry in found:
        if entry["test"] in failed:
            entry["verdict"] = "broken: its test fails without it"


def run(mutants: list[Mutant], options: argparse.Namespace) -> dict[str, dict[str, object]]:
    """Verdicts by id; those that are known already are kept."""
    file = Path(options.results)
    known = json.loads(file.read_text()) if file.exists() and not options.again else {}
    done = {m.id for m in mutants if known.get(m.id, {}).items() >= asdict(m).items()}
    done -= {name for name in done if "cut short" in str(known[name]["verdict"])}
    waiting = [m for m in mutants if not m.equivalent and m.id not in done]
    with tempfile.TemporaryDirectory(prefix="mutants-") as top, Progress() as progress:
        trees: Queue[Path] = Queue()
        for worker in range(min(options.workers, len(waiting))):
            tree = Path(top) / str(worker)
            copy_tree(ROOT, tree)
            if options.tests_from:
                rmtree(tree / "tests")
                copy_tree(Path(options.tests_from), tree, "tests")
            trees.put(tree)
        task, lock = progress.add_task("mutants", total=len(waiting)), Lock()

        def note(verdict: dict[str, object]) -> None:
            known[str(verdict["id"])] = verdict
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(known, indent=1))

        def one(mutant: Mutant) -> dict[str, object]:
            tree = trees.get()
            try:
                verdict = judge(mutant, tree, options)
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
    parser.add_argument("--only", nargs="+", metavar="ID", help="these mutants")
    parser.add_argument("--room", nargs="+", help="the mutants of these files of tests/mutants")
    parser.add_argument("--whole", action="store_true", help="run the whole suite on what its own folder lets pass")
    parser.add_argument("--tests-from", metavar="PATH", help="take the tests of another checkout")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds for one mutant")
    parser.add_argument("--each", type=float, default=120.0, help="seconds after which one test hangs")
    parser.add_argument("--results", default=str(HERE.parent / "build" / "mutants.json"))
    parser.add_argument("--again", action="store_true", help="run those that are known too")
    options = parser.parse_args()
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
    seconds = sum(float(entry["cpu_seconds"]) for entry in found.values())
    print(f"all: {noticed.total()} of {total.total()} noticed; {seconds:.0f} CPU seconds")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
