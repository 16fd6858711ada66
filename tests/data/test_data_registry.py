"""The registry of public data sets, and where their files are."""

from __future__ import annotations

import gzip
import hashlib
import re
import sys
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote

import pytest

from allocator.data import (
    CACHE_VARIABLE,
    DataError,
    cache_directory,
    datasets,
    fetch,
    find,
    path_of,
    verify,
)
from allocator.data.registry import HASH_ORIGINS, DataFile, Dataset
from tests.data.table_of_docs import markdown_table
from throughputs import InputError

DOCS = Path(__file__).resolve().parents[2] / "docs" / "data.md"


def test_every_set_is_complete_and_says_unknown_where_it_is():
    names = [dataset.name for dataset in datasets()]
    assert names == sorted(set(names))
    for dataset in datasets():
        assert re.fullmatch(r"[a-z0-9-]+", dataset.name)
        assert dataset.title
        assert dataset.hash_from in HASH_ORIGINS
        assert dataset.licence
        assert dataset.page.startswith("https://")
        for file in dataset.files:
            assert file.url.startswith("https://")
            assert " " not in file.url
            assert unquote(file.url).endswith(file.path.rpartition("/")[2])
            assert file.sha256 is None or re.fullmatch(r"[0-9a-f]{64}", file.sha256)
            assert (file.sha256 is not None) == bool(dataset.hash_from), file
            # a hash of our own is only worth something beside an address that does not move
            assert dataset.hash_from != "copy" or re.search(r"/[0-9a-f]{40}/", file.url), file
    assert "non-commercial" in find("lucid-colocation").licence


@pytest.mark.parametrize(
    ("name", "path", "local"),
    [
        ("shockwave-throughputs", "tacc_throughputs.json", "shockwave/tacc_throughputs.json.gz"),
        ("elasticflow-throughputs", "throughputs_T4/bert.csv", "elasticflow/throughputs_T4/bert.csv"),
        ("lucid-colocation", "data/colocate_info.csv", "lucid/colocate_info.csv.gz"),
    ],
)
def test_hashes_are_those_of_the_copies(public_data, name, path, local):
    raw = public_data(local).read_bytes()
    if local.endswith(".gz") and not path.endswith(".gz"):
        raw = gzip.decompress(raw)
    file = find(name).file(path)
    assert (len(raw), hashlib.sha256(raw).hexdigest()) == (file.size, file.sha256)


@pytest.mark.exhaustive
def test_readers_exist():
    from allocator.cli.app import load

    options = {option for parameter in load("simulate").params for option in parameter.opts}
    for dataset in datasets():
        for reader in dataset.read_by:
            module, _, function = reader.rpartition(".")
            assert reader in options if reader.startswith("--") else hasattr(import_module(module), function)


def test_unknown_names_are_met_with_a_suggestion():
    with pytest.raises(InputError, match="did you mean 'philly'"):
        find("phily")
    with pytest.raises(InputError, match="'tacc_throughputs"):
        fetch("shockwave-throughputs", files=["tac_throughputs.json"])


def test_names_and_paths_stay_in_the_cache():
    with pytest.raises(InputError, match="field 'name'"):
        Dataset("../a", "t", "l", "p")
    for path in ("../x", "/x", ".x/y", "a\\b", ""):
        with pytest.raises(InputError, match="inside the folder"):
            DataFile(path, "https://h/x")


def test_the_page_for_people_says_the_same():
    """To renew it, put the output of `python -m tests.data.table_of_docs` in place of the table."""
    text = DOCS.read_text()
    assert markdown_table(datasets()) in text
    assert CACHE_VARIABLE in text
    assert all(f"**{origin}**" in text for origin in HASH_ORIGINS.values())


def test_the_cache_directory(monkeypatch, tmp_path):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "by variable"))
    assert cache_directory() == tmp_path / "by variable"
    assert cache_directory(tmp_path / "by option") == tmp_path / "by option"
    monkeypatch.delenv(CACHE_VARIABLE)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory() == tmp_path / "xdg" / "cluster-allocator" / "data"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache_directory() == Path.home() / "Library" / "Caches" / "cluster-allocator" / "data"


def test_path_of_a_set_a_file_and_a_single_file(tmp_path):
    with pytest.raises(DataError, match="run `allocator data fetch gavel-throughputs`"):
        path_of("gavel-throughputs", cache=tmp_path)
    folder = tmp_path / "gavel-throughputs"
    folder.mkdir()
    (folder / "simulation_throughputs.json").touch()
    assert (
        path_of("gavel-throughputs/simulation_throughputs.json", cache=tmp_path).name == "simulation_throughputs.json"
    )
    with pytest.raises(DataError, match="physical_cluster"):
        path_of("gavel-throughputs", cache=tmp_path)
    (folder / "physical_cluster_throughputs.json").touch()
    assert path_of("gavel-throughputs", cache=tmp_path) == folder


def test_sets_without_address(tmp_path):
    for use in (fetch, verify, path_of):
        with pytest.raises(DataError, match="get them from https://"):
            use("mit-supercloud", cache=tmp_path)
