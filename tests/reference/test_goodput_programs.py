"""Programs of Sia and Pollux against those that were dumped from runs of the originals, with their objectives."""

from __future__ import annotations

import gzip
import json
from typing import Any

import numpy as np
import pytest

from allocator.published.pollux.genetic import NodeTable
from formulations.goodput import SiaProgram, solve_on_nodes
from tests.reference import pollux_cases
from tests.reference.pollux_cases import node_program, without_restarts
from throughputs import Configurations


def sia_program(case: dict[str, Any]) -> SiaProgram:
    """A dumped round: jobs that adapt, then jobs with a fixed number of GPUs."""
    types = case["cluster_order"]
    room = case.get("capacity") or case["total_gpus"]
    forced = case.get("forced") or case["nonpreempt"]
    rows: list[tuple[int, int, int, float]] = []
    restart: list[float] = []
    held: list[int] = []
    pinned: list[bool] = []
    kinds = (
        ("adaptive", case["jobs"], case["goodput"], case["realloc"]),
        ("rigid", case["rigid_jobs"], case["rigid_goodput"], case["rigid_realloc"]),
    )
    for kind, names, goodputs, factors in kinds:
        for at, (name, goodput, factor) in enumerate(zip(names, goodputs, factors, strict=True)):
            ways = [(types.index(pool), gpus) for pool, _, gpus in case["configs"]]
            if kind == "rigid":
                ways = [(pool, case["rigid_num_gpus"][at]) for pool in range(len(types))]
            before = case["prev"][kind].get(name)
            restart.append(factor)
            pinned.append(name in forced[kind])
            held.append(-1 if before is None else len(rows) + before)
            rows += [(len(restart) - 1, pool, gpus, value) for (pool, gpus), value in zip(ways, goodput, strict=True)]
    job, pool, gpus, goodput = map(np.array, zip(*rows, strict=True))
    columns = Configurations(job, pool, gpus, goodput, jobs=range(len(restart)), pools=types)
    assert (columns.rate == goodput).all()
    penalty = case["lambda_n"] * (-1.0 if case["p"] > 0 else 1.0)
    return SiaProgram(
        columns, goodput, np.array([room[name] for name in types]), case["p"], penalty,
        restart, held, pinned, decimals=2, most_cost=3000.0,
    )  # fmt: skip


@pytest.fixture(scope="module")
def rounds(reference_data: Any) -> Any:
    """Dumped rounds of Sia, of a file."""
    return lambda name: json.loads(gzip.decompress(reference_data(f"pollux_sia/sia_ilp_{name}.json.gz").read_bytes()))


@pytest.fixture(scope="module")
def nodes(reference_data: Any) -> list[tuple[dict[str, Any], Any]]:
    """Recorded cases of Pollux with their programs."""
    return [(case, node_program(case)) for case in pollux_cases.read(reference_data(pollux_cases.RECORDED))]


@pytest.mark.exhaustive
def test_the_choices_of_recorded_rounds_cost_what_they_did(rounds: Any) -> None:
    """And one at which the original does not end, its costs rounded to 0.01: 256 jobs on 1,024 GPUs."""
    cases = [(case, case["original_objective"]) for case in rounds("cases")]
    assert len(cases) == 60
    cases += [(case["instance"], case["highs_gap0.001"]["objective"]) for case in rounds("stress_256")]
    for case, objective in cases:
        program = sia_program(case)
        found = program.solve()
        assert found.status == "optimal"
        assert program.objective(found.x) == pytest.approx(objective, abs=1e-6)


def test_other_powers_penalties_and_jobs_that_must_stay(rounds: Any) -> None:
    cases = rounds("variant_cases")
    assert {case["p"] for case in cases} == {-1, -0.5, 0.5, 1}
    for case in cases:
        program = sia_program(case)
        for solver in ("highs", "cbc"):
            found = program.solve(solver)
            assert program.objective(found.x) == pytest.approx(case["exact_objective"], abs=1e-6)
            assert found.x[np.asarray(program.held)[np.asarray(program.pinned)]].all()


def test_both_objectives_of_recorded_matrices(nodes: Any) -> None:
    """Fitness and utility of states that the original was asked about."""
    for case, program in nodes:
        table = NodeTable(program, without_restarts(case, program))
        members = np.array([table.on_gpus(np.array(state)) for state in case["states"]])
        for (total, utility, _), recorded in zip(table.scores(members), case["F"], strict=True):
            assert program.mean.of_sum(total, program.ways.n_jobs) == pytest.approx(-recorded[0], rel=1e-12)
            assert utility == pytest.approx(-recorded[1], rel=1e-12)
        assert program.fitness(np.array(case["mip"]["state"])) == pytest.approx(case["mip"]["fitness"], rel=1e-12)


def test_gpus_on_nodes_are_never_worse_than_the_genetic_search(nodes: Any) -> None:
    for case, program in nodes:
        found = solve_on_nodes(program)
        assert found.status == "optimal"
        # of the fourth case the recorded branch and bound did not end within its limit
        assert case["mip"]["fitness"] <= found.fitness * (1 + 1e-9)
        assert found.fitness <= case["mip"]["bound"] * (1 + 1e-9)
        assert found.fitness >= max(run["fitness"] for run in case["ga"]) * (1 - 1e-9)
        assert found.fitness == pytest.approx(program.fitness(found.gpus), rel=1e-12)
