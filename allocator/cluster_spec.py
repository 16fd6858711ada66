"""Reading the description of a cluster as published systems have it.

Tiresias, ElasticFlow and Chronus: a header and one row,
``num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node``. There are as many servers as switches times
nodes per switch. Processors and memory are not read: no policy here counts them.

Helios and Lucid: a row for each virtual cluster, its name and its number of servers, which have eight GPUs each; the
header is ``,num`` or ``vc,node num``. A virtual cluster is an accelerator type of its name: jobs of that partition run
there only.

Sources: D. Gu et al., "ElasticFlow", ASPLOS 2023 (public artifact pkusys/ElasticFlow, folder ``cluster_specs``); Q. Hu
et al., "Lucid", ASPLOS 2023, and "Helios", SC 2021 (public artifacts, files ``vc_config.csv``).
"""

from __future__ import annotations

import os
from pathlib import Path

from allocator.cluster import MOST_GPUS, Cluster
from throughputs import InputError
from throughputs.files import read_frame
from throughputs.frames import FrameReader

__all__ = ["read_cluster"]

_COUNTS = ("num_switch", "num_node_p_switch", "num_gpu_p_node")
_NOT_READ = ("num_cpu_p_node", "mem_p_node")

# What the second column of a file with virtual clusters may be called, and the GPUs of their servers.
_SERVERS = ("num", "node num")
_GPUS_OF_SERVER = 8


def read_cluster(path: str | os.PathLike[str], accelerator: str | None = None) -> Cluster:
    """The cluster of a CSV file; all its GPUs are of the type `accelerator`, unless it has virtual clusters.

    Raises
    ------
    InputError
        Names the file, line and column that cannot be used.
    OSError
        The file cannot be opened.
    """
    source = str(path)
    frame, first_line = read_frame(Path(path))
    reader = FrameReader(frame, source, first_line)
    if len(frame.columns) == 2 and str(frame.columns[1]) in _SERVERS:
        return _virtual_clusters(reader)
    if accelerator is None:
        expected = "an accelerator type for the GPUs of that file (--accelerator TYPE)"
        raise InputError("--cluster", found=source, expected=expected)
    reader.check_columns(_COUNTS, _NOT_READ)
    if len(frame) != 1:
        raise InputError(source, line=first_line, found=f"{len(frame)} rows", expected="one row, the cluster")
    counts = []
    for name in _COUNTS:
        count = int(reader.whole_numbers(name)[0])
        if not 1 <= count <= MOST_GPUS:
            expected = f"a whole number from 1 to {MOST_GPUS:,}"
            raise InputError(source, line=first_line, field=name, found=count, expected=expected)
        counts.append(count)
    switches, nodes, gpus = counts
    if switches * nodes * gpus > MOST_GPUS:
        expected = f"at most {MOST_GPUS:,} GPUs in all"
        raise InputError(source, line=first_line, found=switches * nodes * gpus, expected=expected)
    return Cluster({accelerator: switches * nodes * gpus}, {accelerator: gpus})


def _virtual_clusters(reader: FrameReader) -> Cluster:
    """A type for each row, its name and its number of servers."""
    name, count = map(str, reader.frame.columns)
    names, servers = reader.text(name).tolist(), reader.whole_numbers(count).tolist()
    gpus: dict[str, int] = {}
    for row, (own, number) in enumerate(zip(names, servers, strict=True)):
        if not 1 <= number <= MOST_GPUS // _GPUS_OF_SERVER:
            expected = f"a whole number of servers from 1 to {MOST_GPUS // _GPUS_OF_SERVER:,}"
            raise InputError(reader.source, line=reader.first_line + row, field=count, found=number, expected=expected)
        if own in gpus:
            expected = "each virtual cluster once"
            raise InputError(reader.source, line=reader.first_line + row, field=name, found=own, expected=expected)
        gpus[own] = number * _GPUS_OF_SERVER
    return Cluster(gpus, dict.fromkeys(gpus, _GPUS_OF_SERVER))
