"""Main tables of papers beside the figures that they print, as ``allocator study`` makes them."""

from __future__ import annotations

import gzip
import io
import json
import re
import shutil
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from allocator import simulate
from allocator.data import CACHE_VARIABLE
from allocator.studies import headline
from allocator.studies.study import Options
from allocator.studies.tables import Shown
from tests.cli.command import ran, refused, run
from throughputs import Trace

TWO = Trace(["a", "b"], [1, 1], [600.0, 300.0], [0.0, 0.0], duration=[600.0, 300.0])


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))


def test_what_is_printed_stands_beside_what_runs_give(tmp_path):
    study = headline.headline(
        "two jobs",
        ("gpus", "policy"),
        {"average JCT, min": Shown("average_jct", unit=60.0), "makespan, s": Shown("makespan", ".0f")},
        {(1, "fcfs"): (13.0, 950.0), (1, "srtf"): (10.0, 950.0)},
        lambda _: [((1, p), 0, partial(simulate, TWO, "gpu:1", p)) for p in ("fcfs", "srtf")],
    )
    results = study.results()
    assert study.table(results).to_numpy().tolist() == [
        ["1", "fcfs", "13.25", "13.00", "960", "950"],  # each start takes 30 s
        ["1", "srtf", "10.75", "10.00", "960", "950"],
    ]
    study.write(results, tmp_path / "two")
    assert pd.read_csv("two.csv")["makespan, s, printed"].tolist() == [950, 950]


def test_simulations_of_a_study_are_told_kept_and_made_once():
    def runs(_):
        yield (1, "fcfs"), 0, partial(simulate, TWO, "gpu:1", "fcfs")
        yield (1, "srtf"), 0, stopped

    def stopped(**_):
        raise KeyboardInterrupt

    study = headline.headline(
        "two jobs", ("gpus", "policy"), {"s": Shown("makespan")}, {(1, "fcfs"): (1.0,), (1, "srtf"): (2.0,)}, runs
    )
    texts = []
    for _ in range(2):
        file = io.StringIO()
        (row,) = study.results(Options(folder=Path("kept"), console=Console(file=file))).to_dict("records")
        assert (row["policy"], row["makespan"], row["printed_makespan"]) == ("fcfs", 960.0, 1.0)
        texts.append(file.getvalue())
    assert re.match(r"1, fcfs, 0: completed, in \d+\.\d s\nInterrupted", texts[0])
    assert texts[1].startswith("1, fcfs, 0: kept in kept")


def test_studies_by_name_and_in_a_file():
    assert [line.split()[0] for line in ran("study").out.splitlines()] == list(headline.studies())
    assert {"gavel", "elasticflow", "pollux", "shockwave", "sia"} <= set(headline.studies())
    assert "'shockwave'" in refused("study shockwav")
    absent = run("study shockwave")
    assert (absent.code, "allocator data fetch shockwave-traces" in absent.err) == (1, True)
    Path("own.py").write_text(
        "from allocator.studies.study import Study\nfrom allocator.studies.tables import Shown\n"
        "STUDY = Study('own', lambda _: [({'k': 1}, lambda: {'s': 2.0})], ('k',), {'s': Shown('s')})\n"
    )
    assert json.loads(ran("study own.py --out made --json").out) == [{"k": 1, "s": 2.0}]
    assert Path("made/own.csv").read_text() == "k,s\n1,2.0\n"
    assert ran("study own.py --out made").out.splitlines()[-1] == "wrote made/own.csv, made/own.tex"
    Path("none.py").write_text("STUDY = 3\n")
    assert "STUDY" in refused("study none.py")


@pytest.mark.exhaustive
def test_the_table_of_shockwave(public_data, tmp_path):
    traces, speeds = tmp_path / "cache/shockwave-traces", tmp_path / "cache/shockwave-throughputs"
    shutil.copytree(public_data("shockwave/traces"), traces)
    speeds.mkdir()
    packed = public_data("shockwave/tacc_throughputs.json.gz")
    (speeds / "tacc_throughputs.json").write_bytes(gzip.decompress(packed.read_bytes()))
    results = headline.study("shockwave").results(Options(quick=True)).set_index("policy")
    for name in ("min_total_duration", "max_min_fairness", "max_sum_throughput_perf", "gandiva_fair"):
        row = results.loc[name]
        for figure, unit, digits in (("makespan", 3600, 3), ("average_jct", 3600, 3), ("worst_rho_static", 1, 3)):
            assert round(row[figure] / unit, digits) == row[f"printed_{figure}"]
