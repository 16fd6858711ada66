"""Every reader of tables and files: what it says of bad cells, and which forms of one file are the same to it."""

from __future__ import annotations

import gzip
import re
from dataclasses import dataclass, field

import pandas as pd
import pytest

from allocator.protocol.entities import Entities
from allocator.published.pollux.tables import read_step_times
from throughputs import (
    ImportedLog,
    InputError,
    import_log,
    limits,
    read_configurations,
    read_prices,
    read_table,
    read_trace,
)
from throughputs.files import read_frame, read_json
from throughputs.goodput import read_samples
from throughputs.predict import read_predictions


def of_four(path):
    return read_predictions(path, 4)


@dataclass
class Reader:
    """A reader, a good file of two rows, and by column the cells that it refuses; ∅ is empty, _ a space."""

    read: object
    header: str
    row: str
    bad: dict[str, str]
    optional: str = ""
    others: bool = False
    names: dict[str, str] = field(default_factory=dict)

    def text(self, **changed):
        """The file, with other cells in its second row."""
        cells = dict(zip(self.header.split(","), self.row.split(","), strict=True)) | changed
        first = self.row.replace("id_", "0")
        return f"{self.header}\n{first}\n{','.join(cells.values()).replace('id_', '1')}\n"


COUNT, POSITIVE = "x ∅ 0 -8 2.5", "x ∅ 0 -8 inf"
READERS = {
    "trace": Reader(
        read_trace,
        "job_id,job_type,scale_factor,total_steps,arrival_time,priority_weight,duration,predicted_seconds,needs_data_dir,"
        "mode,slo,deadline,deadline_options,arrival_date,gpu_fraction,gpu_utilization,category",
        "id_,LM,1,5,9,1,9,9,true,gns,,,,2024-05-01,1,,",
        {
            "job_id": "0 5 x",
            "job_type": "∅",
            "scale_factor": COUNT,
            "total_steps": "many -5 0 1e300 1e-320 nan inf ∅",
            "arrival_time": "soon 1e300 -1 8 ∅",
            "priority_weight": "0 x nan 1e307 1e-320",
            "duration": "1e300 0 x",
            "predicted_seconds": "0 -3 inf",
            "needs_data_dir": "maybe",
            "mode": "gsn",
            "slo": "nan 0 x",
            "deadline": "x 2 inf 1e50",
            "deadline_options": "9 9: :9 9:x 9:8:7 9:1_8:1 9:nan nan:1 1e50:1 9:-1 9-8",
            "arrival_date": "1_May -1 .5",
            "gpu_fraction": "0 1.5",
            "gpu_utilization": "-1 2",
            "category": "riged",
        },
        "job_id priority_weight duration predicted_seconds needs_data_dir mode slo deadline deadline_options "
        "arrival_date gpu_fraction gpu_utilization category",
    ),
    **{
        name: Reader(
            read_trace,
            f"job_id,{submitted},{steps},model_name,{due},batch_size,num_gpu,duration,best_effort",
            "0,9,5,m,50,8,1,9,0",
            {
                submitted: "x ∅ -1 inf nan",
                steps: "x ∅ 0 -3 inf",
                "model_name": "∅",
                due: "x 2 inf2 nan",
                "batch_size": COUNT,
                "num_gpu": COUNT,
                "duration": POSITIVE,
                "best_effort": "2 x 0.5",
            },
            f"job_id best_effort {submitted}",
        )
        for name, submitted, steps, due in (
            ("elasticflow", "submit_time", "iteration", "ddl"),
            ("elasticflow public", "submission_time", "num_iteration", "deadline"),
        )
    },
    "chronus": Reader(
        read_trace,
        "job_id,user,num_gpu,batch_size,submit_time,iterations,model_name,duration,interval,expect_time_list,"
        "expect_value_list,best_effort,job_type",
        "0,u,1,8,1,5,m,9,0,50-60,10-8,0,soft",
        {
            "num_gpu": "x ∅ -1 1.5",
            "batch_size": COUNT,
            "submit_time": "x ∅ -1",
            "iterations": "x ∅ 0 -1",
            "model_name": "∅",
            "duration": "x ∅ 0 -1",
            "expect_time_list": "x ∅ 0 5- -5 5--7 nan inf",
            "expect_value_list": "x ∅ 0 5- nan 10-8-5 10",
            "best_effort": "x 2",
        },
        "job_id user batch_size interval job_type expect_time_list",
    ),
    "pollux": Reader(
        read_trace,
        "name,time,application,num_replicas,batch_size,category",
        "a,1,bert,8,384,adaptive",
        {
            "time": "-1 x",
            "application": "bart ∅",
            "num_replicas": COUNT,
            "batch_size": COUNT,
            "category": "rigit",
        },
        "name category application num_replicas",
    ),
    "lucid": Reader(
        read_trace,
        "job_id,user,vc,jobname,gpu_num,cpu_num,state,submit_time,duration,dataset,model,batchsize,amp,gpu_util",
        "1,a,vcA,x,1,1,s,2020-09-01 00:00:00,5,d,m,1,0,35.5",
        {
            "vc": "∅",
            "gpu_num": "-1 x",
            "submit_time": "yesterday",
            "duration": "0 x",
            "batchsize": "1.5",
            "gpu_util": "x",
        },
        "job_id user jobname cpu_num state gpu_util vc gpu_num batchsize",
    ),
    "table": Reader(
        read_table,
        "job_type,scale_factor,accelerator,throughput",
        "LM,1id_,v100,7.5",
        {"job_type": "∅", "scale_factor": COUNT, "accelerator": "∅", "throughput": "fast -2 nan inf ∅"},
    ),
    "pairs": Reader(
        read_table,
        "job_type,scale_factor,accelerator,throughput,other_job_type,other_scale_factor,other_throughput",
        "LM,1,id_,7.5,LM,1,7.5",
        {
            "other_job_type": "∅",
            "other_scale_factor": "1.5 0 inf 1e300 9007199254740993e3",
            "other_throughput": "∅ -1 x",
        },
        "other_job_type other_scale_factor other_throughput",
        names={"other_job_type": "other_scale_factor"},
    ),
    "configurations": Reader(
        read_configurations, "job,pool,gpus,rate", "lm,v100,1id_,64.5", {"job": "∅", "gpus": "x ∅", "rate": "x"}
    ),
    "prices": Reader(
        read_prices,
        "accelerator,time_seconds,price",
        "v100,id_,1.5",
        {"accelerator": "∅", "time_seconds": "soon -inf", "price": "cheap -1 inf ∅"},
    ),
    "entities": Reader(Entities.parse, "name,weight", "webid_,1", {"name": "∅", "weight": "x 0 -1"}, "weight"),
    "samples": Reader(
        read_samples,
        "nodes,gpus,batch_size,step_time,sync_time",
        "1,2,32,0.1,0",
        {
            "nodes": "0 x",
            "gpus": "0 1.5",
            "batch_size": "0 x",
            "step_time": "0 1e300 1e-300 x",
            "sync_time": "0.1 -1 ∅",
        },
        names={"step_time": "gradient_time"},
    ),
    "placements": Reader(
        read_step_times,
        "placement,local_bsz,step_time,sync_time",
        "1,32,0.1,0",
        {"placement": "40 x", "local_bsz": "0 x", "step_time": "inf 0", "sync_time": "-1"},
        others=True,
        names={"placement": "num_nodes"},
    ),
    "predictions": Reader(
        of_four, "job_id,seconds", "id_,30.5", {"job_id": "9 0 x", "seconds": "0 -4 soon"}, "seconds", others=True
    ),
}
CASES = [(name, column, cell) for name, of in READERS.items() for column in of.bad for cell in of.bad[column].split()]


def refusal(path, read, text):
    """What is said of a file with this text."""
    path.write_text(text) if isinstance(text, str) else path.write_bytes(text)
    with pytest.raises(InputError) as caught:
        read(path)
    assert str(path) in str(caught.value)
    return caught.value


@pytest.mark.parametrize(("name", "column", "cell"), CASES)
def test_a_bad_cell_is_named_with_its_line_and_field(tmp_path, name, column, cell):
    of = READERS[name]
    cell = "" if cell == "∅" else cell.replace("_", " ")
    error = refusal(tmp_path / "bad.csv", of.read, of.text(**{column: cell}))
    assert error.line == 3
    assert column in error.field or error.field == of.names.get(column)
    shown = str(error).partition("found ")[2].partition(", expected ")[0]
    for part in re.split("[: ]", cell):
        assert part in shown or str(float(part)) in shown
    assert cell or shown in ("nothing", "''", "1.0")


@pytest.mark.parametrize("name", READERS)
def test_columns_must_be_there_once_and_known(tmp_path, name):
    of, path = READERS[name], tmp_path / "bad.csv"
    of.read(_written(path, of.text()))
    header, cells = of.header.split(","), of.row.replace("id_", "0").split(",")
    for place, column in enumerate(header):
        if column in of.optional.split():
            continue
        less = [",".join(row[:place] + row[place + 1 :]) for row in (header, cells)]
        assert refusal(path, of.read, "\n".join(less)).field in (column, of.names.get(column))
    twice = ",".join([*header[:-1], header[0]])
    assert header[0] in str(refusal(path, of.read, f"{twice}\n{','.join(cells)}\n"))
    if not of.others:
        assert refusal(path, of.read, f"{of.header},zebra\n{','.join(cells)},1\n").field == "zebra"
    for text, line in (
        ("", 1),
        ("# only a comment\n", 2),
        (of.text() + "1," * 99 + "\n", 4),
        (f"{of.text()}{','.join(cells)},,5\n", 4),
    ):
        assert refusal(path, of.read, text).line in (line, line - 1)
    assert refusal(path, of.read, of.text().encode() + b"caf\xe9\n").line == 4


def _written(path, text):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def told(found):
    """What was read, in a form that can be compared."""
    found = found.trace if isinstance(found, ImportedLog) else found
    return found.to_frame().to_csv() if hasattr(found, "to_frame") else repr(found)


LOGS = {
    "log": (import_log, "submit_time,duration_s,gpus\n0,5,1\n1,7,2\n"),
    "sacct": (import_log, "JobID|Submit|Elapsed|State|AllocTRES\n7|2024-03-01T08:00:00|01:00:00|FAILED|gres/gpu=1\n"),
}
TEXTS = LOGS | {name: (of.read, of.text()) for name, of in READERS.items()}


@pytest.mark.parametrize("name", TEXTS)
def test_ends_of_lines_comments_and_packing_change_nothing(tmp_path, name):
    read, text = TEXTS[name]
    path = tmp_path / "some.csv"
    whole = told(read(_written(path, text)))
    for end in ("\r", "\r\n"):
        other = text.replace("\n", end)
        for again in (other, other.removesuffix(end), other + "\n"):
            assert told(read(_written(path, again))) == whole
    assert told(read(_written(path, f"\ufeff# a note\n{text}\n"))) == whole
    packed = _written(tmp_path / "some.csv.gz", gzip.compress(text.encode()))
    assert told(read(packed)).replace(".gz", "") == whole


@pytest.mark.parametrize(
    ("name", "column", "cell"),
    [("trace", "total_steps", "٧"), ("table", "throughput", "７.５"), ("entities", "weight", "١")],
)
def test_digits_of_other_scripts_are_refused(tmp_path, name, column, cell):
    error = refusal(tmp_path / "some.csv", READERS[name].read, READERS[name].text(**{column: cell}))
    assert (error.line, error.field) == (3, column)


@pytest.fixture
def bound(monkeypatch):
    monkeypatch.setattr(limits, "LARGEST_UNPACKED", 100_000)
    return limits.LARGEST_UNPACKED


@pytest.mark.parametrize("read", [read_frame, read_json, read_trace, import_log])
def test_what_unpacks_to_more_than_the_bound_is_refused(tmp_path, bound, read):
    path = tmp_path / "some.csv.gz"
    large = gzip.compress(b"submit_time,duration_s,gpus\n" + b"0,1,1\n" * bound)
    assert len(large) < bound / 10
    assert "100,000 bytes" in str(refusal(path, read, large))
    assert read_json(_written(path, gzip.compress(b" " * (bound - 2) + b"[]"))) == []


def test_parquet_is_bounded_by_its_cells(tmp_path, bound):
    path = tmp_path / "some.parquet"
    pd.DataFrame({"job_id": [0] * 20_000}).to_parquet(path)
    assert path.stat().st_size < bound / 10
    with pytest.raises(InputError, match="100,000 bytes"):
        read_frame(path)
    pd.DataFrame({"job_id": [0] * 2_000}).to_parquet(path)
    assert len(read_frame(path)[0]) == 2_000


@pytest.mark.parametrize("read", [read_trace, read_table, read_prices, read_configurations])
def test_files_that_are_absent_or_not_what_their_name_says(tmp_path, read):
    assert limits.LARGEST_UNPACKED >= 200 * limits.MOST_JOBS
    for name in ("t.csv", "t.csv.gz", "t.parquet"):
        with pytest.raises(FileNotFoundError, match=name):
            read(tmp_path / name)
        if name != "t.csv":
            refusal(tmp_path / name, read, b"plain text")
    if read is not read_trace:
        assert ".parquet" in str(refusal(tmp_path / "t.xlsx", read, "a,b\n1,2\n"))
