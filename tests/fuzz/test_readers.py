"""Every reader, with thousands of damaged files: it reads, or it raises `InputError`, and nothing else ever."""

from __future__ import annotations

import io
import json
import random
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.cluster import Cluster
from allocator.cluster_spec import read_cluster
from allocator.experiments.store import Store
from allocator.instance import read_instance
from allocator.protocol.entities import Entities
from allocator.published.elasticflow.tables import read_folder
from allocator.published.shockwave.generator import shockwave_trace
from allocator.sweep import Sweep
from tests.fuzz import mutations
from throughputs import (
    InputError,
    InterferenceModel,
    ThroughputTable,
    default_colocation,
    default_table,
    gavel_trace,
    import_log,
    read_prices,
    read_table,
    read_trace,
    write_table,
    write_trace,
)
from throughputs.files import parse_json, parse_toml, read_frame
from throughputs.training.rules import read_rules

CASES = 6
"""Of each kind of damage to each kind of file."""

PRICES = """time_seconds,accelerator,price,zone
0,v100,0.74,a
0,k80,0.135,a
3600,v100,1.5,b
7200,v100,0.5,a
"""
ENTITIES_TOML = """[entities.research]
weight = 2.5
policy = "fairness"
[entities.vision]
weight = 1
policy = "fifo"
parent = "research"
"""
ENTITIES_CSV = "name,weight,policy,parent\nresearch,2,fairness,\nvision,1.5,fifo,research\n"
INSTANCE = {
    "cluster": {"v100": 4, "k80": 8},
    "gpu_prices": {"v100": 0.74, "k80": 0.135},
    "entities": {"vision": {"weight": 2, "policy": "fifo", "jobs": [0]}, "text": {"weight": 1.5, "parent": "vision"}},
    "jobs": [
        {
            "job_id": 0,
            "throughputs": {"v100": 3.1, "k80": 0.9},
            "scale_factor": 2,
            "priority_weight": 1.0,
            "num_steps_remaining": 5000,
            "time_since_start": 120.0,
            "isolated_seconds": 60,
            "slo_seconds": 3600.0,
            "arrival_rank": 1,
        },
        {
            "job_id": "b",
            "throughputs": {"v100": 7, "k80": 1.5},
            "scale_factor": 2,
            "entity": "text",
            "arrival_rank": 0,
            "slo_seconds": None,
        },
    ],
    "pairs": [{"pair": [0, "b"], "throughputs": {"v100": [2.1, 3.0], "k80": [0.5, 0.25]}}],
}
SWEEP = """kind = "static"
name = "study"
policies = ["fifo", { name = "max_min_fairness", solver = "highs" }]
clusters = ["v100:4,k80:4", { gpus = "v100:8", per_jobs = 4 }]
jobs = { first = 4, last = 8, count = 3 }
seeds = [0, 1]
cases = [{ name = "ideal", ideal = true }, { round_seconds = 720, seeds = [3] }]

[workload]
generator = "gavel"
multi_gpu = true
prices = { v100 = 0.74, k80 = 0.135 }
entities = [{ name = "vision", weight = 2, policy = "fifo", jobs = 2 }]

[settings]
preset = "gavel"
max_waiting_jobs = "none"
accelerator_order = ["v100", "k80"]

[vary]
decide_every_seconds = [600.0, 7200.0]
policy.choice = ["balanced", "published"]
"""
ELASTICFLOW = """job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration,best_effort
a-1,0,7246,resnet50,5896,256,1,3930,0
b-2,4686,19793,gpt2,11932,256,1,4830,1
c-3,4600,9793,bert,9223372036854775807,64,16,630,0
"""
CHRONUS = """job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,\
expect_time_list,expect_value_list,best_effort,job_type
2622,vc_0e4a51,1,1,4146,mobilenet_v2,174,25,239,10,0,strict
7245,vc_ed69ec,0,1,8446,inception_v3,173,5,299-319-379-419,10-8-5-2,0,soft
10856,vc_e13805,1,20,6946,mobilenet_v2,180,19,340-360-400-460,10-8-5-2,0,soft
11,vc_e13805,2,25,69,alexnet,18,19,25,10,1,best
"""
SPEC = "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n1,16,8,64,256\n"
FOLDER = """global_batch_size,1,2,4,8,16,32,64
64,6.030661553957379,8.643477263279834,10.3,11.06,10.98,10.6,9.2
128,3.5749256045333064,5.679410396897942,8.45,9.99,nan,,0
"""
RULES = """accordion_start = 0.3
[models.LM]
samples_per_epoch = 50_000
largest_batch_size = 256
batch_size = 20
[models.LM.critical.profile]
otherwise = [{ first = 0, end = 10 }, { first = 150, end = 160, every = 200, before = 900 }]
256 = [{ first = 0, end = 20 }]
[models.LM.doublings]
16 = { 1 = [31, 41, 51, 71], 2 = [21, 31] }
"""


def small_table():
    table = default_table()
    keys = [0, 1, 2, 40]
    known = ThroughputTable([table.keys[k] for k in keys], table.accelerators, table.isolated[keys])
    return known.with_colocation(default_colocation())


def written(write, what, name, **more):
    """What a writer of the package makes of something."""

    def make(folder):
        write(what(), folder / name, **more)
        return (folder / name).read_bytes()

    return make


def model_of(path):
    frame, first_line = read_frame(path)
    return InterferenceModel.from_frame(frame, str(path), first_line)


def sweep_of(path):
    return len(Sweep.from_toml(path).points())


def results_of(path):
    return Store(path.parent).table()


def finished_sweep(folder):
    sweep = Sweep.from_dict({"kind": "static", "policies": "fifo", "jobs": [2], "seeds": [0], "clusters": ["v100:2"]})
    Store(folder).begin(sweep, sweep.points())
    return Store(folder), sweep.points()[0].key


def sweep_folder(folder):
    finished_sweep(folder)
    return (folder / "sweep.json").read_bytes()


@dataclass(frozen=True)
class Format:
    """A kind of file: who reads it, and a valid example of it."""

    name: str
    read: Callable[[Path], object]
    example: Callable[[Path], bytes] | str

    def raw(self, folder):
        return self.example.encode() if isinstance(self.example, str) else self.example(folder)

    @property
    def damages(self):
        """The kinds of damage that make sense for it."""
        if self.name.endswith((".gz", ".parquet")):
            return (mutations.of_bytes,)
        if self.name.endswith(".json"):
            return (mutations.of_bytes, mutations.of_tokens, mutations.of_json)
        return (mutations.of_bytes, mutations.of_tokens, mutations.of_lines)


def cluster_of(path):
    return read_cluster(path, "a100")


def log_of(path):
    return import_log(path, strict=True)


def folder_of(path):
    return read_folder(path.parent, "a100")


def jobs():
    return gavel_trace(6, 600.0, multi_gpu=True, priorities=True, slos=True)


FORMATS = (
    Format("gavel.trace", read_trace, written(write_trace, jobs, "gavel.trace", format="gavel")),
    Format(
        "shockwave.trace",
        read_trace,
        written(write_trace, lambda: shockwave_trace(6, 40.0), "shockwave.trace", format="shockwave"),
    ),
    Format("packed.trace.gz", read_trace, written(write_trace, jobs, "packed.trace.gz", format="gavel")),
    Format("jobs.csv", read_trace, written(write_trace, jobs, "jobs.csv")),
    Format("table.json", read_table, written(write_table, small_table, "table.json")),
    Format("table.csv", read_table, written(write_table, small_table, "table.csv")),
    Format("elasticflow.csv", read_trace, ELASTICFLOW),
    Format(
        "log.csv",
        log_of,
        "submit_time,duration_s,gpus\n2024-05-01T08:00:00Z,10,1\n2024-05-02,0:20:00,2\n",
    ),
    Format("chronus.csv", read_trace, CHRONUS),
    Format("cluster.csv", cluster_of, SPEC),
    Format("bert.csv", folder_of, FOLDER),
    Format("prices.csv", read_prices, PRICES),
    Format("entities.toml", Entities.parse, ENTITIES_TOML),
    Format("entities.json", Entities.parse, json.dumps(INSTANCE["entities"]).replace(', "jobs": [0]', "")),
    Format("entities.csv", Entities.parse, ENTITIES_CSV),
    Format("instance.json", read_instance, json.dumps(INSTANCE)),
    Format("sweep.toml", sweep_of, SWEEP),
    Format("sweep.json", results_of, sweep_folder),
    Format("rules.toml", read_rules, RULES),
    Format("model.csv", model_of, lambda _: default_colocation().to_frame().head(6).to_csv(index=False).encode()),
)


def read_or_refuse(form, path):
    """Whether the reader takes the file; anything but `InputError` passes on."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        for harmless in (SyntaxWarning, DeprecationWarning):
            warnings.simplefilter("ignore", harmless)
        try:
            form.read(path)
        except InputError as error:
            told = str(error)
        else:
            return True
    assert "\n" not in told, "one line"
    return False


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_damaged_files_are_read_or_refused(form, tmp_path):
    raw, path, refused = form.raw(tmp_path), tmp_path / form.name, 0
    path.write_bytes(raw)
    form.read(path)
    for damage in form.damages:
        for case in range(CASES):
            path.write_bytes(damage(raw, random.Random(f"{form.name} {damage.__name__} {case}")))
            try:
                refused += not read_or_refuse(form, path)
            except Exception as error:
                pytest.fail(f"{damage.__name__}, case {case}: {error!r}")
    assert refused > 0.4 * CASES * len(form.damages), "damage that does none tests nothing"


@pytest.mark.parametrize(
    ("name", "read", "example"),
    [
        ("jobs.parquet", read_trace, lambda: jobs().to_frame()),
        ("table.parquet", read_table, lambda: small_table().to_frame()),
        ("elasticflow.parquet", read_trace, lambda: pd.read_csv(io.StringIO(ELASTICFLOW))),
        ("prices.parquet", read_prices, lambda: pd.read_csv(io.StringIO(PRICES))),
    ],
)  # fmt: skip
def test_parquet_with_other_columns(name, read, example, tmp_path):
    form, path = Format(name, read, ""), tmp_path / name
    example().to_parquet(path, index=False)
    assert read_or_refuse(form, path)
    refused = 0
    for case in range(CASES):
        frame = mutations.of_columns(example(), random.Random(case))
        try:
            frame.to_parquet(path, index=False)
        except Exception:  # pyarrow has no type for such a mixture
            continue
        try:
            refused += not read_or_refuse(form, path)
        except Exception as error:
            pytest.fail(f"case {case}, {frame.dtypes.to_dict()}: {error!r}")
    assert refused > CASES / 4


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_files_that_are_something_else(form, tmp_path):
    path = tmp_path / form.name
    for raw in (b"", b"\n\n", b"{}", b"null", b"\0" * 100, b"\x1f\x8b", b"PAR1PAR1", b"\xff\xfe", b"[" * 10**5):
        path.write_bytes(raw)
        read_or_refuse(form, path)


@settings(max_examples=40)
@given(st.text(max_size=40) | st.from_regex(r"[a-z0-9]{1,4}:[0-9]{1,22}(,[a-z]{1,3}:[0-9.]{0,5}){0,2}", fullmatch=True))
def test_clusters_from_any_text(text):
    try:
        cluster = Cluster.parse(text)
    except InputError:
        return
    assert Cluster.parse(str(cluster)) == cluster


@settings(max_examples=50)
@given(st.text(max_size=60))
def test_any_text_as_json_and_toml(text):
    for parse in (parse_json, parse_toml):
        with suppress(InputError):
            parse(text, "here")


@pytest.mark.parametrize("parse", [parse_json, parse_toml])
def test_what_parsers_stumble_over_is_said(parse):
    assign = "a = " if parse is parse_toml else ""
    for text, told in (("[" * 100_000, "too deep a nesting"), ("9" * 5000, "limit")):
        with pytest.raises(InputError, match=told):
            parse(assign + text, "here")
