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


BY_DAY = "date,vcEwI,vcIya,vcWoR,total\n2020-09-01,72,0,40,112\n2020-09-02,72,8,48,128\n2020-09-03,72,0,44,116\n"


def test_gpus_of_virtual_clusters_by_day(tmp_path: Path) -> None:
    path = spec(tmp_path, BY_DAY)
    last = read_cluster(path)
    assert (last.gpus, last.gpus_per_server) == ({"vcEwI": 72, "vcWoR": 44}, {"vcEwI": 8, "vcWoR": 8})
    assert read_cluster(path, day="2020-09-02").gpus == {"vcEwI": 72, "vcIya": 8, "vcWoR": 48}
    assert make_cluster(f"{path}@2020-09-01", None).total_gpus == 112
    assert make_cluster(str(path), None) == last


@pytest.mark.parametrize(
    ("text", "day", "told"),
    [
        (BY_DAY, "2021-01-01", "field 'date': found '2021-01-01', expected a day of it, 2020-09-01 to 2020-09-03"),
        (BY_DAY.replace("116", "117"), None, "cluster.csv:4: field 'total': found 117, expected 116, the GPUs"),
        (BY_DAY.replace("72,0,44", "72,0,-4"), None, "cluster.csv:4: field 'vcWoR': found -4, expected a whole number"),
        (BY_DAY.replace("72,0,44", "72,0,"), None, "cluster.csv:4: field 'vcWoR'"),
        (BY_DAY.splitlines()[0], None, "found 'no rows', expected at least one day"),
        ("date,a,total\n2020-09-01,8,8\n2020-09-02,8,8\n2020-09-01,4,4", "2020-09-01", ":4: .*expected each day once"),
        ("date,a,total\n2020-09-01,0,0", None, ":2: found 'no GPUs', expected those of at least one virtual cluster"),
        ("date,a,a,total\n2020-09-01,4,4,8", None, "field 'a': found '2 columns', expected one"),
        (
            "vc,node num\nvcA,2\n",
            "2020-09-01",
            "field '@2020-09-01': found .*expected a file with the GPUs of each day",
        ),
    ],
)
def test_days_that_cannot_be_read_are_named(text: str, day: str | None, told: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=told):
        read_cluster(spec(tmp_path, text), day=day)


def test_the_published_gpus_of_venus(public_data) -> None:
    """Those of the end of September are the servers of Lucid's configuration, which has merged small ones."""
    cluster = read_cluster(public_data("lucid/helios_venus_gpu_number.csv.gz"))
    merged = read_cluster(public_data("lucid/vc_config.csv.gz"))
    assert cluster.total_gpus == merged.total_gpus == 1080
    assert cluster.gpus["vcEwI"] == merged.gpus["vcEwI"] == 72
    early = read_cluster(public_data("lucid/helios_venus_gpu_number.csv.gz"), day="2020-04-01")
    assert early.total_gpus == 968


def test_lists_of_nodes_name_their_types(tmp_path: Path) -> None:
    openb = "sn,cpu_milli,memory_mib,gpu,model\na,1,1,2,P100\nb,1,1,0,\nc,1,1,8,G3\nd,1,1,4,P100\ne,1,1,2,P100\n"
    cluster = read_cluster(spec(tmp_path, openb))
    assert (cluster.gpus, cluster.gpus_per_server) == ({"P100": 8, "G3": 8}, {"P100": 2, "G3": 8})
    spot = "gpu_model,gpu_capacity_num,cpu_num,node_name\nA10,1,128,0\nA10,1,128,1\nH800,8,1,2\n"
    assert read_cluster(spec(tmp_path, spot), "ignored").gpus == {"A10": 2, "H800": 8}


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("a,2,\n", "cluster.csv:2: field 'model': found nothing, expected the type of its GPUs"),
        ("a,0,x\nb,-1,x\n", "cluster.csv:3: field 'gpu': found -1, expected a whole number from 0"),
        ("a,two,x\n", "cluster.csv:2: field 'gpu': found 'two'"),
        ("a,0,x\n", "found 'no accelerator type'"),
    ],
)
def test_bad_nodes_are_named(rows: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=told):
        read_cluster(spec(tmp_path, f"sn,gpu,model\n{rows}"))


def test_a_description_without_a_type_asks_for_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--accelerator TYPE"):
        read_cluster(spec(tmp_path, f"{HEADER}\n1,1,1,1,1"))


@pytest.mark.parametrize(
    ("name", "gpus", "types"),
    [("openb_node_list_gpu_node.csv.gz", 6212, 7), ("spot2026_node_info_df.csv.gz", 10412, 6)],
)
def test_public_lists_of_nodes(public_data, name: str, gpus: int, types: int) -> None:
    cluster = read_cluster(public_data(f"field/{name}"))
    assert (cluster.total_gpus, len(cluster.accelerators)) == (gpus, types)


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


@pytest.mark.parametrize("text", ["days.csv@", "days.csv.gz@"])
def test_a_day_that_is_left_out_behind_its_sign_is_asked_for(text: str) -> None:
    with pytest.raises(InputError, match="expected FILE@DAY, as in FILE@2020-09-01, or FILE alone"):
        make_cluster(text, None)


@pytest.mark.parametrize("name", ["", "vc:1", "a,b"])
def test_types_have_names_that_text_can_hold(name: str) -> None:
    with pytest.raises(InputError, match="expected the name of a type without comma and colon"):
        allocator.Cluster({name: 4})
