"""The description of a cluster as a file: switches, nodes, GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

import allocator
from allocator.cli.options.values import make_cluster
from allocator.cluster_spec import read_cluster
from throughputs import InputError

HEADER = "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node"


def spec(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "cluster.csv"
    path.write_text(text)
    return path


def test_servers_are_switches_times_nodes(tmp_path: Path) -> None:
    cluster = read_cluster(spec(tmp_path, f"{HEADER}\n8,32,4,64,256"), "a100")
    assert (cluster.gpus, cluster.gpus_per_server) == ({"a100": 1024}, {"a100": 4})
    largest = read_cluster(spec(tmp_path, f"{HEADER}\n100,1000,10,1,1"), "a100")
    assert largest.total_gpus == 1_000_000
    short = read_cluster(spec(tmp_path, "num_gpu_p_node,num_switch,num_node_p_switch\n8,1,2\n"), "t4")
    assert str(short) == "t4:16"


def test_public_descriptions(public_data) -> None:
    folder = public_data("elasticflow/cluster_specs")
    found = {path.stem: read_cluster(path, "a100") for path in folder.glob("*.csv")}
    for name, cluster in found.items():
        # n1g2 is two servers of one GPU
        nodes, gpus = (2, 1) if name == "n1g2" else map(int, name.removeprefix("n").split("g"))
        assert (cluster.total_gpus, cluster.gpus_per_server["a100"]) == (nodes * gpus, gpus)
    assert len(found) == 16


BY_DAY = "date,vcEwI,vcIya,vcWoR,total\n2020-09-01,72,0,40,112\n2020-09-02,72,8,48,128\n2020-09-03,72,0,44,116\n"


def test_gpus_of_virtual_clusters_by_day(tmp_path: Path) -> None:
    path = spec(tmp_path, BY_DAY)
    last = read_cluster(path)
    assert (last.gpus, last.gpus_per_server) == ({"vcEwI": 72, "vcWoR": 44}, {"vcEwI": 8, "vcWoR": 8})
    assert read_cluster(path, day="2020-09-02").gpus == {"vcEwI": 72, "vcIya": 8, "vcWoR": 48}
    assert make_cluster(f"{path}@2020-09-01", None).total_gpus == 112
    assert make_cluster(str(path), None) == last


def test_lists_of_nodes_name_their_types(tmp_path: Path) -> None:
    openb = "sn,cpu_milli,memory_mib,gpu,model\na,1,1,2,P100\nb,1,1,0,\nc,1,1,8,G3\nd,1,1,4,P100\ne,1,1,2,P100\n"
    cluster = read_cluster(spec(tmp_path, openb))
    assert (cluster.gpus, cluster.gpus_per_server) == ({"P100": 8, "G3": 8}, {"P100": 2, "G3": 8})
    spot = "gpu_model,gpu_capacity_num,cpu_num,node_name\nA10,1,128,0\nA10,1,128,1\nH800,8,1,2\n"
    assert read_cluster(spec(tmp_path, spot), "ignored").gpus == {"A10": 2, "H800": 8}


BAD = f"""
 | header
{HEADER} | row 0
{HEADER}/1,1,1,1,1/1,1,1,1,1 | row 2
{HEADER.replace("num_switch,", "")}/1,1,1,1 | 'num_switch'
{HEADER},nodes/1,1,1,1,1,1 | 'nodes'
{HEADER}/0,1,1,1,1 | :2: 'num_switch' 0
{HEADER}/1,x,1,1,1 | :2: 'num_node_p_switch' 'x'
{HEADER}/1,1,,1,1 | :2: 'num_gpu_p_node'
{HEADER}/1,1,1.5,1,1 | :2: 'num_gpu_p_node'
{HEADER}/1,1000001,1,1,1 | :2: 'num_node_p_switch' 1000001 1,000,000
{HEADER}/1001,1000,1,1,1 | :2: 1001000 1,000,000
{HEADER}/1000,1000,1000,1,1 | :2: 1,000,000
date,a,total/2020-09-01,8,8/2020-09-02,8,9 | :3: 'total' 9 8
date,a,b,total/2020-09-01,8,-4,4 | :2: 'b' -4
date,a,b,total/2020-09-01,8,,8 | :2: 'b'
date,a,total | rows
date,a,total/2020-09-01,8,8/2020-09-02,8,8/2020-09-01,4,4 | :4: once
date,a,total/2020-09-01,0,0 | :2: GPUs
date,a,a,total/2020-09-01,4,4,8 | 'a' 2
sn,gpu,model/a,2, | :2: 'model'
sn,gpu,model/a,0,x/b,-1,x | :3: 'gpu' -1
sn,gpu,model/a,two,x | :2: 'gpu' 'two'
sn,gpu,model/a,0,x | accelerator
,num/vcA,none | :2: 'num' 'none'
,num/vcA,0 | :2: 'num' 0
,num/vcA,1/vcA,2 | :3: 'vcA'
"""


@pytest.mark.parametrize("line", BAD.strip("\n").splitlines())
def test_bad_files_are_named(line: str, tmp_path: Path) -> None:
    text, words = line.split(" | ")
    accelerator = "a100" if not text or text.startswith("num") else None
    with pytest.raises(InputError) as caught:
        read_cluster(spec(tmp_path, text.replace("/", "\n")), accelerator)
    wanted = [f"cluster.csv{word}" if word.startswith(":") else word for word in words.split()]
    assert [word for word in wanted if word not in str(caught.value)] == [], caught.value


def test_what_else_must_be_said(tmp_path: Path) -> None:
    for text in (f"{HEADER}\n1,1,1,1,1", "vc,nodes\nvcA,1"):
        with pytest.raises(InputError, match="accelerator"):
            read_cluster(spec(tmp_path, text))
    for text, day in ((BY_DAY, "2021-01-01"), ("vc,node num\nvcA,2\n", "2020-09-01")):
        with pytest.raises(InputError, match=day):
            read_cluster(spec(tmp_path, text), day=day)
    for text in ("days.csv@", "days.csv.gz@"):
        with pytest.raises(InputError, match="FILE@DAY"):
            make_cluster(text, None)
    for name in ("", "vc:1", "a,b"):
        with pytest.raises(InputError, match="comma and colon"):
            allocator.Cluster({name: 4})
