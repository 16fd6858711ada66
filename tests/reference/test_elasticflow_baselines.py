"""Tiresias, Gandiva and Themis as ElasticFlow was compared with them, without public data and with another solver."""

from __future__ import annotations

import pytest

from tests.reference.elasticflow_records import replay
from throughputs import ThroughputTable, read_trace

FIVE_JOBS = """job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration
0,0,77215,resnet50_cifar10,4426,256,1,3930
1,2811,94898,resnet50_cifar10,9179,256,1,4830
2,5469,19852,resnet50_cifar10,6228,128,1,752
3,309537,17316,resnet50_cifar10,409537,64,1,10823
4,5602,38524,resnet50_cifar10,6988,64,1,1347"""

FIVE_ENDS = {
    "tiresias": [3934, 7645, 6225, 7060, 320364],
    "gandiva_time_slicing": [3938, 7653, 6229, 7060, 320360],
    "themis": [4080, 7920, 6480, 7200, 310320],
}
"""In order of submission."""


@pytest.mark.parametrize("policy", FIVE_ENDS)
def test_five_jobs_on_one_server_end_at_the_recorded_second(policy, tmp_path):
    path = tmp_path / "five.csv"
    path.write_text(FIVE_JOBS)
    speeds = {64: 28.60476646243157, 128: 26.39903482326002, 256: 19.647666084668582}
    types = [(f"resnet50_cifar10 (batch size {size})", 1) for size in speeds]
    table = ThroughputTable(types, ["a100"], [[speed] for speed in speeds.values()])
    ours = replay(policy, read_trace(path), table, 1, 8, 240.0).jobs["completion_time"]
    assert ours.to_numpy() == pytest.approx(FIVE_ENDS[policy], abs=1e-6)
