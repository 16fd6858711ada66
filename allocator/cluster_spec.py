"""Reading the description of a cluster as published systems have it, and lists of the nodes of one.

Tiresias, ElasticFlow and Chronus: a header and one row,
``num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node``. There are as many servers as switches times
nodes per switch. Helios and Lucid: a row for each virtual cluster, its name and its number of servers, which have eight
GPUs each; the header is ``,num`` or ``vc,node num``. A virtual cluster is an accelerator type of its name: jobs of that
partition run there only. Helios' ``cluster_gpu_number.csv`` has a row for each day, ``date``, a column with the GPUs of
each virtual cluster, and ``total``. A list has a row for each node, with its GPUs and their type: ``gpu,model``
(Alibaba openb) or ``gpu_capacity_num,gpu_model`` (Alibaba spot), among other columns. Processors and memory are not
read: no policy here counts them.

Sources: D. Gu et al., "ElasticFlow", ASPLOS 2023 (public artifact pkusys/ElasticFlow, folder ``cluster_specs``); Q. Hu
et al., "Lucid", ASPLOS 2023, and "Helios", SC 2021 (public artifacts, files ``vc_config.csv``; HeliosData); Q. Weng et
al., ATC 2023, and J. Duan et al., ASPLOS 2026 (alibaba/clusterdata).
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from allocator.cluster import MOST_GPUS, Cluster
from throughputs import InputError
from throughputs.arrays import Ints
from throughputs.files import read_frame
from throughputs.frames import Column, FrameReader
from throughputs.limits import Range

_COUNTS = ("num_switch", "num_node_p_switch", "num_gpu_p_node")
_NOT_READ = ("num_cpu_p_node", "mem_p_node")

# What the second column of a file with virtual clusters may be called, and the GPUs of their servers.
_SERVERS = ("num", "node num")
_GPUS_OF_SERVER = 8

_NODES = (("gpu", "model"), ("gpu_capacity_num", "gpu_model"))
"""Columns of lists of nodes: the GPUs of a node, and their type."""


_DATE, _TOTAL = "date", "total"
"""Columns of Helios' numbers of GPUs by day beside those of the virtual clusters."""


def read_cluster(path: str | os.PathLike[str], accelerator: str | None = None, *, day: str | None = None) -> Cluster:
    """The cluster of a CSV file.

    Parameters
    ----------
    path : file; unpacked when its name ends in ``.gz``.
    accelerator : type of all GPUs of a description, which does not name it; the others do. In a list of nodes the
        servers of a type have the size in which most of its GPUs are; nodes without GPUs are passed over.
    day : of a file with numbers of GPUs by day, as it stands there; the last one if omitted. Virtual clusters without
        GPUs on that day are left out.

    Raises
    ------
    InputError
        Names the file, line and column that cannot be used, or the type is not said.
    OSError
        The file cannot be opened.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "nodes.csv"
    ...     _ = path.write_text("gpu,model\\n8,a100\\n8,a100\\n4,v100\\n")
    ...     str(read_cluster(path))
    'a100:16,v100:4'
    """
    source = str(path)
    frame, first_line = read_frame(Path(path))
    reader = FrameReader(frame, source, first_line)
    if str(frame.columns[0]) == _DATE and len(frame.columns) > 1:
        return _on_day(reader, day)
    if day is not None:
        expected = f"a file with the GPUs of each day, columns {_DATE} and one for each virtual cluster"
        raise InputError(source, field=f"@{day}", found=[str(name) for name in frame.columns], expected=expected)
    if len(frame.columns) == 2 and str(frame.columns[1]) in _SERVERS:
        return _virtual_clusters(reader)
    for gpus, model in _NODES:
        if reader.has(gpus) and reader.has(model):
            return _of_nodes(reader, gpus, model)
    if accelerator is None:
        expected = "an accelerator type for the GPUs of that file (accelerator)"
        raise InputError("cluster", found=source, expected=expected)
    return _described(reader, accelerator)


def _counts(reader: FrameReader, name: str, least: int, most: int = MOST_GPUS) -> Ints:
    """(N,) whole numbers of a column."""
    within = Column("whole", within=Range(least, most), expected=f"a whole number from {least} to {most:,}")
    return reader.cells(name, within)


def _of_nodes(reader: FrameReader, gpus: str, model: str) -> Cluster:
    """GPUs by type, in the order in which types appear."""
    counts, types = _counts(reader, gpus, 0), reader.text(model, empty="")
    reader.require((counts == 0) | (types != ""), types, model, "the type of its GPUs")
    capacity: dict[str, int] = {}
    servers: dict[str, int] = {}
    for name in dict.fromkeys(types[counts > 0].tolist()):
        sizes, of = np.unique(counts[(types == name) & (counts > 0)], return_counts=True)
        capacity[name] = int((sizes * of).sum())
        servers[name] = int(sizes[np.argmax(sizes * of)])
    return Cluster(capacity, servers)


def _on_day(reader: FrameReader, day: str | None) -> Cluster:
    """A type for each virtual cluster that has GPUs on a day, on servers of eight."""
    if not len(reader.frame):
        raise InputError(reader.source, found="no rows", expected="at least one day")
    days = reader.text(_DATE)
    if day is not None and day not in days:
        raise InputError(reader.source, field=_DATE, found=day, expected=f"a day of it, {days[0]} to {days[-1]}")
    row = len(days) - 1 if day is None else int(np.argmax(days == day))
    if len(twice := np.flatnonzero(days == days[row])) > 1:
        raise reader.error(int(twice[-1]), _DATE, days[row], "each day once")
    names = [name for name in map(str, reader.frame.columns) if name not in (_DATE, _TOTAL)]
    gpus = {name: count for name in names if (count := int(_counts(reader, name, 0)[row]))}
    total = sum(gpus.values())
    if not gpus:
        raise reader.error(row, None, "no GPUs", "those of at least one virtual cluster")
    if reader.has(_TOTAL) and (found := int(reader.whole_numbers(_TOTAL)[row])) != total:
        raise reader.error(row, _TOTAL, found, f"{total}, the GPUs of the virtual clusters")
    return Cluster(gpus, dict.fromkeys(gpus, _GPUS_OF_SERVER))


def _described(reader: FrameReader, accelerator: str) -> Cluster:
    """The cluster of one row."""
    reader.check_columns(_COUNTS, _NOT_READ)
    if len(reader.frame) != 1:
        raise reader.error(0, None, f"{len(reader.frame)} rows", "one row, the cluster")
    switches, nodes, gpus = (int(_counts(reader, name, 1)[0]) for name in _COUNTS)
    if switches * nodes * gpus > MOST_GPUS:
        raise reader.error(0, None, switches * nodes * gpus, f"at most {MOST_GPUS:,} GPUs in all")
    return Cluster({accelerator: switches * nodes * gpus}, {accelerator: gpus})


def _virtual_clusters(reader: FrameReader) -> Cluster:
    """A type for each row, its name and its number of servers."""
    name, count = map(str, reader.frame.columns)
    names, servers = reader.text(name), _counts(reader, count, 1, MOST_GPUS // _GPUS_OF_SERVER)
    reader.require_once(names, names, name, "each virtual cluster once")
    gpus = dict(zip(names.tolist(), (_GPUS_OF_SERVER * servers).tolist(), strict=True))
    return Cluster(gpus, dict.fromkeys(gpus, _GPUS_OF_SERVER))
