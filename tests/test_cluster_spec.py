"""The description of a cluster as a file: switches, nodes, GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "expected a header line"),
        (HEADER, "found '0 rows', expected one row"),
        (f"{HEADER}\n1,1,1,1,1\n1,1,1,1,1", "found '2 rows'"),
        (f"{HEADER.replace('num_switch,', '')}\n1,1,1,1", "field 'num_switch'.*present"),
        (f"{HEADER},nodes\n1,1,1,1,1,1", "field 'nodes'.*a known column"),
        (f"{HEADER}\n0,1,1,1,1", "cluster.csv:2: field 'num_switch': found 0"),
        (f"{HEADER}\n1,x,1,1,1", "cluster.csv:2: field 'num_node_p_switch': found 'x'"),
        (f"{HEADER}\n1,1,,1,1", "cluster.csv:2: field 'num_gpu_p_node'"),
        (f"{HEADER}\n1,1,1.5,1,1", "cluster.csv:2: field 'num_gpu_p_node'"),
        (
            f"{HEADER}\n1,1000001,1,1,1",
            "cluster.csv:2: field 'num_node_p_switch': found 1000001, .* from 1 to 1,000,000",
        ),
        (f"{HEADER}\n1001,1000,1,1,1", "cluster.csv:2: found 1001000, expected at most 1,000,000 GPUs"),
        (f"{HEADER}\n1000,1000,1000,1,1", "at most 1,000,000 GPUs"),
    ],
)
def test_bad_files_are_named(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=told):
        read_cluster(spec(tmp_path, text), "a100")


def test_public_descriptions(public_data) -> None:
    folder = public_data("elasticflow/cluster_specs")
    found = {path.stem: read_cluster(path, "a100") for path in folder.glob("*.csv")}
    for name, cluster in found.items():
        # n1g2 is two servers of one GPU
        nodes, gpus = (2, 1) if name == "n1g2" else map(int, name.removeprefix("n").split("g"))
        assert (cluster.total_gpus, cluster.gpus_per_server["a100"]) == (nodes * gpus, gpus)
    assert len(found) == 16


def test_virtual_clusters_have_servers_of_eight_gpus(tmp_path: Path) -> None:
    cluster = read_cluster(spec(tmp_path, ",num\nvcA,9\nvcB,1"))
    assert dict(cluster.gpus) == {"vcA": 72, "vcB": 8}
    assert set(cluster.gpus_per_server.values()) == {8}
    assert read_cluster(spec(tmp_path, "vc,node num\nvcA,9\nvcB,1")) == cluster


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (",num\nvcA,none", "cluster.csv:2: field 'num': found 'none'"),
        (",num\nvcA,0", "cluster.csv:2: field 'num': found 0, expected a whole number of servers from 1"),
        (",num\nvcA,1\nvcA,2", "cluster.csv:3: .*found 'vcA', expected each virtual cluster once"),
        ("vc,nodes\nvcA,1", "--accelerator"),
    ],
)
def test_bad_virtual_clusters_are_named(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=told):
        read_cluster(spec(tmp_path, text))
