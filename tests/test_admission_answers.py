"""What a test of admission answers, by hand: caps, slots, restarts, GPUs that jobs have, and the command's words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from allocator.cli.app import app
from tests.test_admission import ask
from throughputs import InputError, Trace, write_trace


def test_a_cap_is_the_newcomers_own() -> None:
    """A job of the same type is there, which has no cap; on one GPU 100 steps take 100 s."""
    answer = ask("a 100<60", "a 50<1000", most_gpus=1)
    assert (answer.admitted, answer.earliest_deadline, answer.fewest_gpus) == (False, 100.0, None)
    assert {gpus for _, gpus in answer.plan} <= {0, 1}
    assert ask("a 100<60", "a 50<1000").admitted


@pytest.mark.parametrize(("gpus", "late"), [(2, ()), (1, (0,))])
def test_who_goes_on_with_the_gpus_it_has_needs_no_restart(gpus: int, late: tuple[int, ...]) -> None:
    """90 steps take 50 s on the two GPUs there are, which is all the time there is."""
    there = Trace(["a"], [gpus], [90.0], [0.0], deadline=[50.0])
    assert ask("b 10<500", there, gpus=2, restart_seconds=5.0).late == late


def test_a_newcomer_has_to_get_going() -> None:
    """60 steps on the two GPUs there are take 33.3 s, and 20 s to get going; on one it would be 80 s."""
    answer = ask("a 60<50", gpus=2, restart_seconds=20.0)
    assert (answer.admitted, answer.earliest_deadline) == (False, 54.0)
    assert answer.plan == ((0.0, 2),)
    # three steps/s on four
    assert answer.fewest_gpus == 4


def test_a_deadline_that_is_offered_may_be_behind_all_others() -> None:
    """On all four GPUs after the other job, the newcomer would be through at 41 + 100 + 80.3 = 221.3 s.

    With a deadline of 222 s it would come before the other one, and have all GPUs at once: who runs would have to start
    anew. From 100 + 133.9 s on, two GPUs do for it.
    """
    answer = ask("a 241<37", "a 41<237", restart_seconds=100.0)
    assert (answer.admitted, answer.earliest_deadline, answer.plan) == (False, 234.0, ((0.0, 2),))
    assert not ask("a 241<233", "a 41<237", restart_seconds=100.0).admitted
    # whatever was asked for
    for due in range(30, 38):
        asked = ask(("a", 241.0, float(due)), "a 41<237", restart_seconds=100.0)
        assert asked.earliest_deadline == 234.0


KIND = "bert (batch size 64)"


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    """One to four GPUs; a job that needs two of them from 1000 s to 1050 s, and one that arrived before and is late."""
    folder = tmp_path / "throughputs_A100"
    folder.mkdir()
    (folder / "bert.csv").write_text("global_batch_size,1,2,4\n64,1,1.8,3\n")
    there = Trace([KIND, KIND], [2, 2], [9e9, 90.0], [500.0, 1000.0], deadline=[900.0, 1050.0])
    write_trace(there, tmp_path / "jobs.csv")
    trace = str(tmp_path / "jobs.csv")
    there_is = ["admit", "--throughputs", str(folder), "--cluster", "a100:4", "--job-type", KIND, "--trace", trace]
    return [*there_is, "--restart", "0"]


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def told(*arguments: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(run(*arguments, "--json").stdout)
    return answer


def test_the_command_passes_on_what_it_is_told(arguments: list[str]) -> None:
    question = (*arguments, "--steps", "90")
    # now is the last arrival
    assert told(*question, "--within", "90")["plan"] == [{"start": 1000.0, "gpus": 1}]
    assert told(*question, "--within", "60", "--max-gpus", "1")["earliest_deadline"] == 1090.0
    assert told(*question, "--within", "90", "--clock", "1000")["plan"] == [{"start": 1000.0, "gpus": 1}]
    # then the other job needs all GPUs for 30 s of its last 40
    later = told(*question, "--within", "90", "--clock", "1010")
    assert (later["deadline"], later["plan"]) == (1100.0, [{"start": 1010.0, "gpus": 0}, {"start": 1040.0, "gpus": 2}])
    # ten seconds to get going: one GPU no longer does
    assert told(*question, "--within", "95", "--restart", "10")["plan"] != [{"start": 1000.0, "gpus": 1}]
    # by 1160 s two GPUs and, from 1050 s on, four do 90 + 330 steps; 162 + 210 if the other's come back at 1090 s
    assert told(*arguments, "--steps", "400", "--within", "160")["admitted"]
    assert not told(*arguments, "--steps", "400", "--within", "160", "--slot", "90")["admitted"]
    assert told(*arguments, "--steps", "120", "--within", "60", "--admission", "repair")["admitted"]


@pytest.mark.parametrize(
    ("more", "field"),
    [
        (("--within", "90", "--clock", "999"), "1000 s"),
        ((), "--within"),
        (("--within", "5", "--deadline", "1009"), "--deadline"),
        (("--deadline", "1000"), "--deadline"),
        (("--within", "5", "--steps", "0"), "--steps"),
        (("--within", "5", "--admission", "all"), "each or repair"),
    ],
)
def test_questions_that_are_refused(arguments: list[str], more: tuple[str, ...], field: str) -> None:
    refused = run(*arguments, "--steps", "90", *more)
    assert isinstance(refused.exception, InputError)
    assert field in str(refused.exception)
