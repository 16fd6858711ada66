"""Reading the description of a cluster as Tiresias, ElasticFlow and Chronus have it.

A header and one row: ``num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node``. There are as many
servers as switches times nodes per switch. Processors and memory are not read: no policy here counts them.

Source: D. Gu et al., "ElasticFlow", ASPLOS 2023 (public artifact pkusys/ElasticFlow, folder ``cluster_specs``).
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


def read_cluster(path: str | os.PathLike[str], accelerator: str) -> Cluster:
    """The cluster of a CSV file; all its GPUs are of the type `accelerator`.

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
