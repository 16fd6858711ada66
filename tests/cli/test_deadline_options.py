"""Traces, throughputs and clusters of ElasticFlow and Chronus on the command line."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.cli.command import ran, refused, told
from tests.reference.test_elasticflow_baselines import FIVE_JOBS

TRACE = """job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration,best_effort
a,0,3600,bert,9000,64,1,3600,0
b,60,7200,bert,3700,64,2,3600,0
c,120,720,bert,9000,64,1,720,1
"""
SOFT = """job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,\
expect_time_list,expect_value_list,best_effort,job_type
0,u,1,1,50,alexnet,10,7,15-30,10-5,0,soft
1,u,2,2,50,alexnet,10,7,100,10,0,strict
"""
SPEC = "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n1,2,2,64,256\n"
RUN = "simulate --trace jobs.csv --cluster n2g2.csv --out out"
KNOWN = f"{RUN} --throughputs throughputs_A100"


@pytest.fixture(autouse=True)
def _files(folder: Path) -> None:
    (folder / "throughputs_A100").mkdir()
    for name, text in {
        "jobs.csv": TRACE, "soft.csv": SOFT, "n2g2.csv": SPEC, "five.csv": FIVE_JOBS,
        "throughputs_A100/bert.csv": "global_batch_size,1,2,4\n64,1,2,3\n",
    }.items():  # fmt: skip
        (folder / name).write_text(text)


def jobs() -> pd.DataFrame:
    return pd.read_csv("out/jobs.csv")


def test_a_simulation_of_files_of_elasticflow() -> None:
    """Job a takes an hour and 30 s to start; b needs as long from 60 s on and should be through at 3,700 s."""
    summary = told(f"{KNOWN} --policy fifo")
    names = ("cluster", "deadline_jobs", "admitted", "rejected", "met", "late", "deadline_ratio")
    assert [summary[name] for name in names] == ["a100:4", 2, 2, 0, 1, 1, 0.5]
    assert summary["best_effort_average_jct"] == 990.0
    assert jobs()["deadline"].tolist()[:2] == [9000, 3700]
    assert jobs()["met"].tolist()[:2] == [True, False]
    assert jobs()["met"].isna()[2]
    counted = told(KNOWN.replace("n2g2.csv", "a100:4 --gpus-per-server a100:2"), "--policy", "fifo")
    assert counted["average_jct"] == summary["average_jct"]


def test_the_accelerator_type() -> None:
    Path("throughputs_A100").rename("speeds")
    asked = f"{RUN} --policy fifo --throughputs speeds"
    assert "accelerator" in refused(asked)
    assert told(f"{asked} --accelerator t4")["cluster"] == "t4:4"
    assert "--gpus-per-server" in refused(f"{asked} --accelerator t4 --gpus-per-server t4:2")
    assert "--accelerator" in refused(f"{RUN.replace('n2g2.csv', 't4:4')} --policy fifo --accelerator t4")
    assert told("throughputs describe speeds --accelerator t4")["accelerators"] == ["t4"]


def test_soft_deadlines_in_other_units() -> None:
    asked = "simulate --trace soft.csv --cluster a100:1 --policy fifo --out out"
    summary = told(asked)
    assert (summary["deadline_jobs"], summary["met"], summary["unserved_jobs"]) == (2, 1, 1)
    assert jobs().loc[0, ["deadline", "last_deadline", "value_kept"]].tolist() == [960, 1860, 1]
    ran(f"{asked} --time-unit 1")
    assert jobs()["deadline"].tolist() == [16, 102]
    described = told("trace describe soft.csv")
    assert (described["n_jobs_with_deadline"], described["n_jobs_with_deadline_options"]) == (2, 1)
    ran("trace convert soft.csv own.csv --from chronus --time-unit 60")
    assert "960.0:10.0 1860.0:5.0" in Path("own.csv").read_text()


def test_the_command_that_scripts_rely_on() -> None:
    asked = KNOWN.replace("simulate", "simulate --preset elasticflow --slot 240")
    summaries = {}
    for policy in ("elasticflow", "elasticflow_no_admission", "edf", "edf_admission", "ef-accessctrl"):
        summary = summaries[policy] = told(f"{asked} --policy {policy}")
        assert summary["settings"]["slot_seconds"] == 240.0
        assert (jobs()["status"] == "rejected").sum() == summary["rejected"] == 2 - summary["admitted"]
        assert (jobs()["met"] == True).sum() == summary["met"]  # noqa: E712 - empty for best effort
        assert summary["deadline_ratio"] == summary["met"] / summary["deadline_jobs"] == summary["met"] / 2
    # a slot of the policy's own follows as well, and may be set on its own
    assert summaries["elasticflow"]["settings"]["policy_settings"]["slot_seconds"] == 240.0
    own = told(f"{asked} --set policy.slot_seconds=60 --policy elasticflow")
    assert own["settings"]["policy_settings"]["slot_seconds"] == 60.0
    # the original's name of the policy
    assert summaries["ef-accessctrl"]["average_jct"] == summaries["elasticflow"]["average_jct"]


@pytest.mark.parametrize(
    ("trace", "more", "said"),
    [
        ("jobs", "elasticflow", "bert (batch size 64) run on the GPUs | --throughputs throughputs_A100"),
        ("jobs", "elasticflow --throughputs throughputs_A100", ""),
        ("misspelt", "elasticflow --throughputs throughputs_A100", "Bert (batch size 64) | throughputs_A100 has no"),
        ("misspelt", "tiresias --throughputs throughputs_A100", ""),
        ("soft", "elasticflow", "jobs of alexnet run on the GPUs"),
        # durations are all that Chronus and fixed gangs need
        ("soft", "chronus", ""),
        ("named", "chronus --cluster v100:4", "A3C under the same name"),
    ],
)
def test_throughputs_that_were_forgotten(trace: str, more: str, said: str) -> None:
    """A trace of ElasticFlow runs without them, on fixed numbers of GPUs; that is said."""
    Path("misspelt.csv").write_text(TRACE.replace("bert", "Bert"))
    Path("named.csv").write_text(SOFT.replace("alexnet", "A3C"))
    err = ran(f"simulate --out out --trace {trace}.csv --cluster a100:4 --policy {more}").err
    assert all(part in err for part in said.split(" | "))
    assert bool(said) == err.startswith("warning: ")


def test_lucids_profiler_takes_short_jobs() -> None:
    """One server: the first job has it for 200 s, then the two small ones, then the last."""
    Path("log.csv").write_text(LOG)
    Path("vc.csv").write_text("vc,node num\nvcA,2\nvcB,1\n")
    lucid = "simulate --preset lucid --policy lucid --trace log.csv --cluster vc.csv --out out"
    summary = told(f"{lucid} --profiler from=vcA")
    table = pd.read_csv("out/profiler.csv")
    assert summary["cluster"] == "vcA:8,vcB:8"
    assert table["profiler_queueing_time"].tolist() == [0.0, 159.0, 156.0, 352.0]
    assert table["ended_in_profiler"].tolist() == [False, True, False, False]
    assert table["job_in_cluster"].tolist() == [0, -1, 1, 2]
    assert jobs()["arrival_time"].tolist() == [0.0, 44.0, 48.0]
    assert table["completion_time"].drop(1).tolist() == jobs()["completion_time"].tolist()
    assert table["completion_time"][1] == 232.0
    of_all = {"servers": 1, "jobs": 4, "profiled": 4, "ended": 1, "average_jct": table["jct"].mean()}
    assert summary["profiler"] == pytest.approx(of_all | {"average_queueing_time": 166.75})
    assert "profiler on 2 servers: 4 of 4 jobs profiled" in " ".join(ran(f"{lucid} --profiler default").out.split())
    ran(lucid)
    assert not Path("out/profiler.csv").exists()


LOG = """\
job_id,user,vc,gpu_num,submit_time,duration,dataset,model,batchsize,amp
1,u,vcA,8,0,873,ImageNet,ResNet50,64,1
2,u,vcB,1,41,32,LSUN,DCGAN,128,0
3,u,vcB,1,44,3200,LSUN,DCGAN,128,0
4,u,vcA,8,48,3200,LSUN,DCGAN,128,0
"""


@pytest.mark.parametrize(
    "line",
    [
        "default --policy qssf | qssf lucid_program",
        "default --policy lucid:profiling_pool=vcB | 'profiling_pool' 'vcB'",
        "servers | 'servers'",
        "servers=x | 'servers' 'x'",
        "servers=0 | 'servers' 0",
        "from=vcB | vcB 8",
        "from=vcX | 'from' 'vcX'",
        "servers=2,from=vcA | 2",
        "limit_seconds=5000 | 5000",
        "default --trace parts.csv | parts.csv 'duration'",
    ],
)
def test_what_cannot_be_profiled_is_told(line: str) -> None:
    Path("log.csv").write_text(LOG)
    Path("parts.csv").write_text(LOG.replace(",873,", ",873.5,"))
    Path("vc.csv").write_text("vc,node num\nvcA,2\nvcB,1\n")
    asked, words = line.split(" | ")
    message = refused(
        f"simulate --preset lucid --policy lucid --trace log.csv --cluster vc.csv --out out --profiler {asked}"
    )
    assert [word for word in words.split() if word not in message] == [], message
    assert not Path("out").exists()
