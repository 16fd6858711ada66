"""Tables of other systems as traces: ElasticFlow, Chronus, Pollux and Sia, Lucid, and predictions beside them."""

from __future__ import annotations

import numpy as np
import pytest

from throughputs import InputError, Trace, read_trace, write_trace
from throughputs.goodput.profiles import default_profiles
from throughputs.trace import allowed_types
from throughputs.traces import named_format

ARTIFACT = "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration"
PUBLIC = "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration"
CHRONUS = (
    "job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,expect_time_list,expect_value_list,"
    "best_effort,job_type"
)
POLLUX = "name,time,application,num_replicas,batch_size"
LUCID = "job_id,user,vc,jobname,gpu_num,cpu_num,state,submit_time,duration,dataset,model,batchsize,amp"


@pytest.fixture
def written(tmp_path):
    def write(*lines, name="jobs.csv"):
        path = tmp_path / name
        path.write_text("\n".join([*lines, ""]))
        return path

    return write


def columns(trace, *names):
    """Columns as lists, nan as None."""
    return [[None if x != x else x for x in getattr(trace, name).tolist()] for name in names]


@pytest.mark.parametrize("header", [ARTIFACT, PUBLIC])
def test_elasticflow_in_both_spellings_by_submission(written, header):
    path = written(header, "b,4686,19793,gpt2,11932,128,1,4830", "5dc7-2f,0,7246,resnet50,5896,256,2,3930")
    assert named_format(path) == "elasticflow"
    trace = read_trace(path)
    expected = [["resnet50 (batch size 256)", "gpt2 (batch size 128)"], [2, 1], [7246, 19793], [3930, 4830]]
    assert columns(trace, "job_type", "scale_factor", "total_steps", "duration") == expected
    assert columns(trace, "arrival_time", "deadline", "slo") == [[0, 4686], [5896, 11932], [None, None]]
    minutes = read_trace(path, time_unit_seconds=60)
    assert columns(minutes, "arrival_time", "deadline", "duration") == [[0, 281160], [353760, 715920], [235800, 289800]]


def test_best_effort_and_no_deadline_and_columns_of_the_philly_trace(written):
    rows = ("0,0,9,m,50,8,1,9,0", "1,0,9,m,50,8,1,9,1", f"2,0,9,m,{2**63 - 1},8,1,9,0", "3,0,9,m,,8,1,9,")
    assert columns(read_trace(written(f"{ARTIFACT},best_effort", *rows)), "deadline") == [[50, None, None, None]]
    header = "job_id,submit_time,real_iteration,model_name,ddl,batch_size,num_gpu,real_duration,duration,iteration"
    philly = read_trace(written(header, "0,0,7,vgg16,771220,256,1,8,976570,1282877"))
    assert columns(philly, "total_steps", "duration") == [[1282877], [976570]]


def test_chronus(written):
    rows = (
        "2622,vc_0,2,1,4146,alexnet,174,25,239,10,0,strict",
        "11,vc_1,0,1,1,alexnet,9,25,239,10,0,strict",
        "7245,vc_1,1,2,8446,inception_v3,173,5,299-319-379-419,10-8-5-2,0,soft",
        "9,vc_1,1,3,84,inception_v3,17,5,3,10,1,best",
    )
    path = written(CHRONUS, *rows)
    trace = read_trace(path)
    assert columns(trace, "job_type", "scale_factor", "arrival_time", "duration") == [
        ["alexnet", "inception_v3", "inception_v3"], [2, 1, 1], [60, 120, 180], [174 * 60, 173 * 60, 17 * 60],
    ]  # fmt: skip
    assert columns(trace, "entity", "deadline") == [["vc_0", "vc_1", "vc_1"], [240 * 60, 301 * 60, None]]
    soft = ((18060.0, 10.0), (19260.0, 8.0), (22860.0, 5.0), (25260.0, 2.0))
    assert trace.deadline_options.tolist() == [((14400.0, 10.0),), soft, ()]
    header = CHRONUS.replace("num_gpu", "num_gpu,batch_size")
    seconds = read_trace(written(header, "0,user0,1,256,7,7246,resnet50,3930,0,5896,10,0,strict"))
    expected = [["resnet50 (batch size 256)"], [7], [5903], [3930]]
    assert columns(seconds, "job_type", "arrival_time", "deadline", "duration") == expected


@pytest.mark.published
@pytest.mark.parametrize(("times", "values"), [("60-50", "10-8"), ("50-50", "10-8"), ("50-60", "8-10")])
def test_soft_deadlines_of_chronus_ascend_and_their_values_do_not(written, times, values):
    with pytest.raises(InputError) as caught:
        read_trace(written(CHRONUS, f"0,u,1,1,5,m,9,0,{times},{values},0,soft"))
    assert (caught.value.line, caught.value.field) == (2, "expect_time_list, expect_value_list")


def test_a_gpu_type_counts_before_the_partition():
    allowed = allowed_types(*np.array([["b|x", "", "z"], ["a", "a|b", ""]], dtype=object), ("a", "b", "c"))
    assert allowed.astype(int).tolist() == [[0, 1, 0], [1, 1, 0], [1, 1, 1]]


@pytest.mark.filterwarnings("error")
def test_units_of_time(written):
    path = written(ARTIFACT, "0,0,9,m,50,8,1,9")
    for unit, told in ((0.0, "time_unit_seconds"), (np.inf, "time_unit_seconds"), (1e308, "found inf")):
        with pytest.raises(InputError, match=told):
            read_trace(path, time_unit_seconds=unit)
    with pytest.raises(InputError, match=r"time_unit_seconds.*found 60.*chronus"):
        read_trace(written("job_type,scale_factor,total_steps,arrival_time", "A3C,1,5,0"), time_unit_seconds=60)


def test_pollux(written):
    path = written(POLLUX, "b,207.5,bert,8,384", "a,107,cifar10,6,2048", "c,300,ncf,1,32768")
    assert named_format(path) == "pollux"
    trace = read_trace(path)
    assert columns(trace, "job_type", "scale_factor", "arrival_time", "category") == [
        ["cifar10 (batch size 2048)", "bert (batch size 384)", "ncf (batch size 32768)"],
        [6, 8, 1],
        [107, 207.5, 300],
        ["adaptive"] * 3,
    ]
    profiles = default_profiles()
    assert trace.total_steps[1] == profiles.find("bert").steps(384)
    rate = 6 * 342 / profiles.goodput(["cifar10"], "t4").throughput.step_time([2], [6], [342])[0, 0]
    assert trace.duration[0] == pytest.approx(trace.total_steps[0] * 2048 / rate, rel=2e-3)


def test_categories_deadlines_and_samples_of_pollux(written):
    rows = ("a,1,bert,8,384,rigid", "b,2,bert,8,384,scale-gpus", "c,3,bert,8,384,")
    assert columns(read_trace(written(f"{POLLUX},category", *rows)), "category") == [
        ["rigid", "scale-gpus", "adaptive"]
    ]
    rows = ("a,10,cifar10,4,1024,1500,600064", "b,20,of_mine,2,100,,5000")
    trace = read_trace(written(f"{POLLUX},ddl,max_sample", *rows))
    assert columns(trace, "deadline", "total_steps") == [[1500, None], [586, 50]]
    assert np.isnan(trace.duration).tolist() == [False, True]
    assert read_trace(written(f"{POLLUX},samples", "a,1,of_mine,1,10,55")).total_steps.tolist() == [5.5]
    with pytest.raises(InputError, match=r"max_sample.*'yolov3'"):
        read_trace(written(POLLUX, "a,0,yolov,8,64"))


def deadlines(**columns):
    types = ["bert (batch size 64)", "inception3 (batch size 32)", "bert (batch size 12)"]
    given = {"deadline": [1000.0, np.nan, 900.5]} | columns
    return Trace(types, [2, 4, 1], [100.0, 7.0, 2.5], [100.0, 160.0, 180.0], **given)


def test_a_trace_with_deadlines_as_a_workload_of_pollux(tmp_path):
    path = tmp_path / "pollux.csv"
    trace = deadlines(category=["adaptive", "rigid", "rigid"])
    write_trace(trace, path, "pollux", start=100.0, rename={"inception3": "inceptionv3"})
    assert path.read_text().splitlines() == [
        "name,time,application,num_replicas,batch_size,category,ddl,max_sample,samples",
        "bert-0,0,bert,2,64,adaptive,900.0,6400,6400",
        "inceptionv3-1,60,inceptionv3,4,32,rigid,,224,224",
        "bert-2,80,bert,1,12,rigid,800.5,30,30",
    ]
    slos = {"deadline": None, "slo": [2.0, np.nan, 1.5]}
    write_trace(deadlines(**slos, duration=[50.0, np.nan, 20.0]), path, "pollux")
    assert columns(read_trace(path), "deadline") == [[200.0, None, 210.0]]
    path.unlink()
    for made, options, line, field in (
        (deadlines(**slos), {}, 1, "slo"),
        (deadlines(), {"start": 120.0}, 1, "arrival_time"),
        (deadlines(), {"rename": {"bart": "bert"}}, None, "rename"),
        (Trace(["A3C"], [1], [1.0], [0.0]), {}, 1, "job_type"),
    ):
        with pytest.raises(InputError) as caught:
            write_trace(made, path, "pollux", **options)
        assert (caught.value.line, caught.value.field, path.exists()) == (line, field, False)


JOBS = (
    "907,ann,vcA,x,8,32,FAILED,2020-09-01 00:01:00,100,ImageNet,ResNet50,64,1",
    "905,bob,vcB,y,1,4,COMPLETED,2020-09-01 00:00:10,50,LSUN,DCGAN,128,0",
    "906,bob,vcB,y,0,4,COMPLETED,2020-09-01 00:00:00,50,LSUN,DCGAN,128,0",
)


def test_lucid_counts_from_the_first_submission_of_a_job_with_gpus(written):
    trace = read_trace(written(LUCID, *JOBS))
    assert columns(trace, "arrival_time", "partition", "user", "scale_factor", "duration", "total_steps") == [
        [0.0, 50.0], ["vcB", "vcA"], ["bob", "ann"], [1, 8], [50.0, 100.0], [50.0, 100.0],
    ]  # fmt: skip
    assert trace.job_type.tolist() == ["DCGAN on LSUN (batch size 128)", "ResNet50 on ImageNet (batch size 64, amp)"]
    used = [f"{row},{percent}" for row, percent in zip(JOBS, ("35.5", "", "80"), strict=True)]
    assert columns(read_trace(written(f"{LUCID},gpu_util", *used)), "gpu_utilization") == [[None, 0.355]]


def test_predictions_by_job_id(written):
    path = written(LUCID, *JOBS)
    told = ("priority", "907,-3\n905,12.5\n1,7", [12.5, 1000.0]), ("predicted_seconds", "907,3", [None, 3.0])
    for column, row, expected in told:
        predictions = written(f"job_id,{column}", row, name="lgb.csv")
        assert columns(read_trace(path, predictions=predictions), "predicted_seconds") == [expected]
    for text, told in (
        ("job_id,priority\n905,1\n905,2", "lgb.csv:3: field 'job_id': found '905'"),
        ("job_id,priority\n905,soon", "lgb.csv:2: field 'priority': found 'soon'"),
        ("job_id,priority\n1,2", "lgb.csv"),
    ):
        with pytest.raises(InputError, match=told):
            read_trace(path, predictions=written(text, name="lgb.csv"))


PUBLIC_TRACES = {
    "elasticflow/traces/200jobs_900lam_0.9.csv": (200, 24),
    "elasticflow/traces/philly_103959.csv": (876, 876),
    "chronus/traces/MIX2_first150.csv": (150, 134),
    "chronus/traces/elasticVpollux_e.chronus.csv": (195, 195),
}


def test_public_traces(public_data, tmp_path):
    for relative, (jobs, with_deadline) in PUBLIC_TRACES.items():
        trace = read_trace(public_data(relative))
        assert (len(trace), int((~np.isnan(trace.deadline)).sum())) == (jobs, with_deadline)
        write_trace(trace, tmp_path / "own.csv")
        assert read_trace(tmp_path / "own.csv").to_frame().equals(trace.to_frame())
    trace, path = read_trace(public_data("elasticflow/traces/elasticVpollux_e.csv")), tmp_path / "p.csv"
    write_trace(trace, path, "pollux", start=float(trace.arrival_time[0]))
    rebuilt = public_data("pollux_sia/elasticVpollux_p_rebuilt.csv").read_text().splitlines()
    assert [line.rpartition(",")[0] for line in path.read_text().splitlines()] == rebuilt
