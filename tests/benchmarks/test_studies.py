"""What every study does: it lists runs, tables them with intervals, draws them, and writes all of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import stdtrit

from allocator.studies import figures, tables
from allocator.studies.study import Options, Study, against_load, side_by_side
from allocator.studies.tables import Shown
from allocator.sweep import Sweep
from benchmarks import decisions, simulations, studies
from benchmarks.__main__ import GROUPS, STUDIES
from benchmarks.runtime import overheads
from throughputs import InputError

ROOT = Path(__file__).resolve().parents[2]
ROWS = pd.DataFrame(
    [("one", 4, 0, 2.0), ("one", 4, 1, 6.0), ("two_b", 4, 0, 3.0), ("one", 1000, 0, np.nan)],
    columns=["policy", "jobs", "seed", "hours"],
).assign(status="completed")
HALF_WIDTH = stdtrit(1, 0.975) * 2.0  # two figures that are 4 apart have a standard error of 2


def test_a_table_has_a_row_for_each_group_and_the_interval_of_its_draws():
    shown = {"mean": Shown("hours", ".1f"), "most": Shown("hours", ".0f", 2.0, "max")}
    cells = tables.table(ROWS, ("policy", "jobs"), shown)
    assert cells.to_numpy().tolist() == [
        ["one", "4", f"4.0 \N{PLUS-MINUS SIGN} {HALF_WIDTH:.1f}", "3"],
        ["two_b", "4", "3.0", "2"],
        ["one", "1,000", "-", "-"],
    ]
    assert tables.markdown(cells).splitlines()[3] == "| two_b | 4 | 3.0 | 2 |"
    assert tables.on_screen("title", cells).row_count == 3
    assert tables.latex(tables.summary(ROWS, load="jobs", value="hours")).splitlines()[4:6] == [
        f"one & 4 & 2 & completed & 4.00 $\\pm$ {HALF_WIDTH:.2f} \\\\",
        r"one & 1000 & 1 & completed & - \\",
    ]
    with pytest.raises(InputError, match="days"):
        tables.table(ROWS, ("policy",), {"days": Shown("days")})


@pytest.mark.parametrize("status", ["saturated", "failed"])
def test_a_group_of_which_a_run_did_not_complete_has_no_mean(status):
    rows = ROWS.assign(status=["completed", status, "completed", "completed"])
    by, shown = ("policy", "jobs"), {"mean": Shown("hours", ".1f")}
    assert tables.table(rows, by, shown)["mean"].tolist() == ["-", "3.0", "-"]
    assert tables.numbers(rows, by, shown)["mean"].tolist() == pytest.approx([np.nan, 3.0, np.nan], nan_ok=True)
    figure = against_load(Study("own", lambda _: (), ("jobs", "policy"), shown), rows)
    drawn = figures.drawn(figure)
    assert drawn["status"].tolist() == [status, "completed", "completed"]
    assert drawn["mean"].tolist() == pytest.approx([np.nan, np.nan, 3.0], nan_ok=True)


@pytest.mark.parametrize(
    ("seconds", "text"), [(2e-7, "0.2 us"), (0.0123, "12.3 ms"), (0.9999, "1 s"), (61.0, "61 s"), (1234.0, "1,234 s")]
)
def test_durations_have_three_digits_and_a_unit(seconds, text):
    assert tables.duration(seconds) == text


def test_a_table_and_its_picture_are_written_side_by_side(tmp_path):
    figures.use_style()
    figure, panels = figures.panels(2)
    for axes, unit in zip(panels, (1.0, 0.5), strict=True):
        figures.bars(axes, ROWS[ROWS["jobs"] == 4], value="hours", unit=unit)
        axes.set_title(f"in {unit:g}")
    drawn = figures.drawn(figure)
    written = tables.export(tmp_path / "deep" / "bars", drawn, figure)
    assert [path.suffix for path in written] == [".csv", ".tex", ".svg", ".pdf"]
    assert written[2].read_text().startswith("<?xml")
    assert written[3].read_bytes().startswith(b"%PDF")
    table = pd.read_csv(written[0])
    assert table["panel"].tolist() == ["in 1", "in 1", "in 0.5", "in 0.5"]
    assert table["mean"].tolist() == [4.0, 3.0, 8.0, 6.0]
    assert table["half_width"].tolist()[::2] == pytest.approx([HALF_WIDTH, 2 * HALF_WIDTH])
    lines = written[1].read_text().splitlines()
    assert lines[2] == r"panel & policy & seeds & mean \\"
    assert lines[4] == rf"in 1 & one & 2 & 4.00 $\pm$ {HALF_WIDTH:.2f} \\"
    assert lines[5] == r"in 1 & two\_b & 1 & 3.00 \\"
    assert tables.export(tmp_path / "alone", drawn) == [tmp_path / "alone.csv", tmp_path / "alone.tex"]


TINY = {"kind": "static", "jobs": [4], "seeds": [0, 1], "clusters": ["v100:2"], "policies": ["fifo", "srtf"]}


@pytest.mark.parametrize("draw", [against_load, pytest.param(side_by_side, marks=pytest.mark.exhaustive)])
def test_a_study_of_ones_own_is_run_tabled_and_drawn(tmp_path, draw):
    study = Study(
        "Two orders",
        lambda _: [Sweep.from_dict(TINY | {"name": "tiny"})],
        by=("submitted_jobs", "policy"),
        shown={"average JCT, h": Shown("average_jct", unit=3600.0)},
        draw=draw,
    )
    results = study.results(Options(folder=tmp_path, processes=1))
    assert len(results) == 4
    assert study.table(results)["policy"].tolist() == ["fifo", "srtf"]
    assert len(study.write(results, tmp_path / "tiny")) == 4
    assert (tmp_path / "tiny" / "results.parquet").exists()


def test_measured_runs_have_their_labels_and_may_give_several_rows():
    runs = [({"kind": "a"}, lambda: {"seconds": 1.0}), ({"kind": "b"}, lambda: [{"seconds": 2.0}, {"seconds": 3.0}])]
    study = Study("measured", lambda _: runs, ("kind",), {"s": Shown("seconds", ".1f", over="median")})
    assert study.table(study.results()).to_numpy().tolist() == [["a", "1.0"], ["b", "2.5"]]


@pytest.mark.parametrize("name", studies.STUDIES)
def test_sweeps_list_their_runs_and_say_what_they_show(name):
    study = studies.STUDIES[name]
    (full,), (small,) = (study.runs(Options(quick=quick)) for quick in (False, True))
    assert len(small.points()) < len(full.points())
    assert study.title == full.description
    assert study.draw is not None


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "study",
    [decisions.LEASES, simulations.VIRTUAL_CLUSTERS, overheads.TRAINER_LEASE],
    ids=lambda study: study.title[:20],
)
def test_measurements_fill_their_tables(study):
    cells = study.table(study.results(Options(quick=True)))
    assert len(cells) > 1
    assert not cells.isin(["-", "nan"]).any(axis=None)


@pytest.mark.exhaustive
def test_the_command_runs_a_study_in_a_file_and_names_those_there_are(tmp_path):
    (tmp_path / "own.py").write_text(
        "from allocator.studies.study import Study\nfrom allocator.studies.tables import Shown\n"
        "STUDY = Study('own', lambda _: [({'k': 1}, lambda: {'s': 2.0})], ('k',), {'s': Shown('s')})\n"
    )
    out = tmp_path / "rows.json"
    command = [sys.executable, "-m", "benchmarks", "--out", str(out)]
    done = subprocess.run([*command, str(tmp_path / "own.py")], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(out.read_text())["own"] == [{"k": 1, "s": 2.0}]
    assert (tmp_path / "own.tex").exists()
    done = subprocess.run([*command, "nothing"], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 2
    assert all(name in done.stderr for name in (*GROUPS, *STUDIES))
