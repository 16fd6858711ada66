"""Public data sets by name: where they are, under which licence, and how to get and check them.

The files are not bundled. A set is downloaded into a cache directory, one file at a time; a file has its final name
only once it was verified.

>>> from allocator.data import fetch, path_of
>>> fetch("shockwave-traces")  # doctest: +SKIP
>>> folder = path_of("shockwave-traces")  # doctest: +SKIP
>>> table = path_of("gavel-throughputs/simulation_throughputs.json")  # doctest: +SKIP
"""

from allocator.data.registry import DataError, DataFile, Dataset, datasets, find
from allocator.data.store import CACHE_VARIABLE, FileReport, FileState, cache_directory, fetch, path_of, verify

__all__ = [
    "CACHE_VARIABLE",
    "DataError",
    "DataFile",
    "Dataset",
    "FileReport",
    "FileState",
    "cache_directory",
    "datasets",
    "fetch",
    "find",
    "path_of",
    "verify",
]
