"""The registry of public data sets, and where their files are."""

from __future__ import annotations

import gzip
import hashlib
import re
import subprocess
import sys
import tarfile
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote

import pytest

from allocator.cluster_spec import read_cluster
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
from allocator.data.listing import markdown_table
from allocator.data.registry import HASH_ORIGINS, read_sets
from throughputs import InputError, read_table, read_trace
from throughputs.goodput.tables import read_step_times, read_validation

DOCS = Path(__file__).resolve().parents[2] / "docs" / "data.md"


def test_every_set_is_complete_and_says_unknown_where_it_is():
    names = [dataset.name for dataset in datasets()]
    assert names == sorted(set(names))
    assert {"gavel-throughputs", "shockwave-traces", "elasticflow-itp", "philly", "lucid-colocation"} <= set(names)
    for dataset in datasets():
        assert re.fullmatch(r"[a-z0-9-]+", dataset.name)
        assert dataset.title
        assert dataset.licence
        assert dataset.page.startswith("https://")
        paths = [file.path for file in dataset.files]
        assert len(paths) == len(set(paths)), dataset.name
        for file in dataset.files:
            assert file.url.startswith("https://")
            assert " " not in file.url
            assert unquote(file.url).endswith(file.path.rpartition("/")[2])
            assert file.sha256 is None or re.fullmatch(r"[0-9a-f]{64}", file.sha256)
            assert (file.sha256 is not None) == bool(dataset.hash_from), file
    assert "non-commercial" in find("lucid-colocation").licence


def test_addresses_of_copied_hashes_name_a_commit():
    """A branch moves; a hash of our own is only worth something beside an address that does not."""
    for dataset in datasets():
        if dataset.hash_from == "copy":
            assert all(re.search(r"/[0-9a-f]{40}/", file.url) for file in dataset.files), dataset.name


@pytest.mark.parametrize(
    ("name", "path", "local"),
    [
        ("shockwave-throughputs", "tacc_throughputs.json", "shockwave/tacc_throughputs.json.gz"),
        ("shockwave-configurations", "tacc_32gpus.json", "shockwave/configurations/tacc_32gpus.json"),
        ("elasticflow-itp-raw", "raw-traces.tar.gz", "elasticflow/traces/raw-traces.tar.gz"),
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


# What stands in for files of which we have cuts only.
CUTS = {f"{kind}_first60.csv": f"trace_job_Philly_{kind}.csv" for kind in ("SLO", "MIX1", "MIX2")}
CUTS["spot2026_node_info_df.csv"] = "node_info_df.csv"


def files_here(public_data, folder):
    """Names of our copies of public files, without .gz, by what reads them.

    Of an archive that is public itself, what reads all in it; our own archives (.tar.xz) are the files in them.
    """
    root = public_data("gavel").parent
    readers = {
        "throughputs.read_table": lambda path: read_table(folder_of_models(path) or path),
        "throughputs.read_trace": read_trace,
        "allocator.cluster_spec.read_cluster": lambda path: read_cluster(path, "a100"),
        "throughputs.goodput.tables": read_measured,
    }
    found = {}
    for path in sorted(root.rglob("*")):
        if path.name.endswith(".tar.gz"):
            inside = [member for member in unpacked(path, folder) if member.suffix == ".csv"]
            found[path.name] = {name for name, read in readers.items() if all(reads(read, each) for each in inside)}
        elif path.name.endswith(".tar.xz"):
            for member in unpacked(path, folder):
                found[member.name] = {name for name, read in readers.items() if reads(read, member)}
        elif path.is_file() and path.suffix in (".json", ".csv", ".trace", ".gz") and ".tar" not in path.name:
            name = path.name.removesuffix(".gz")
            found[CUTS.get(name, name)] = {name for name, read in readers.items() if reads(read, path)}
    return found


def read_measured(path):
    """Steps, or all trainings beside the one of a file."""
    return read_validation(path.parent) if path.name.startswith("validation-") else read_step_times(path)


def folder_of_models(path):
    return path.parent if path.parent.name.startswith("throughputs_") else None


def unpacked(path, folder):
    place = folder / path.name
    with tarfile.open(path) as archive:
        archive.extractall(place, filter="data")
    return [member for member in place.rglob("*") if member.is_file()]


def reads(read, path):
    try:
        read(path)
    except (InputError, UnicodeDecodeError):
        return False
    return True


@pytest.mark.exhaustive
def test_readers_are_those_that_read_the_files(public_data, tmp_path):
    """Every set of which there are copies names the functions that read them, and no others."""
    here, looked_at = files_here(public_data, tmp_path), set()
    for dataset in datasets():
        named = {reader for reader in dataset.read_by if "." in reader}
        for file in dataset.files:
            name = file.path.rpartition("/")[2]
            if name in here:
                looked_at.add(dataset.name)
                assert here[name] == named, f"{dataset.name}: {file.path}"
    assert {"gavel-throughputs", "shockwave-throughputs", "shockwave-traces", "elasticflow-throughputs"} <= looked_at
    assert looked_at >= {dataset.name for dataset in datasets() if dataset.read_by and not dataset.by_schema}
    assert not looked_at & {dataset.name for dataset in datasets() if dataset.by_schema}


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
    with pytest.raises(InputError, match=r"did you mean 'trace-data\.tar\.gz'"):
        path_of("philly/trace-data.tar")
    with pytest.raises(InputError, match=r"did you mean 'tacc_throughputs\.json'"):
        fetch("shockwave-throughputs", files=["tac_throughputs.json"])


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ('[{ path = "../x" }]', "inside the folder"),
        ('[{ path = "/etc/x" }]', "inside the folder"),
        ('[{ path = ".state/x" }, { path = ".hidden" }]', "inside the folder"),
    ],
)
def test_a_registry_cannot_leave_its_folder(files, message):
    text = f'[[dataset]]\nname = "a"\ntitle = "t"\nlicence = "MIT"\npage = "p"\nbase = "http://h/"\nfiles = {files}'
    with pytest.raises(InputError, match=message):
        read_sets(text, "test.toml")


def test_a_registry_entry_needs_its_fields_and_an_address():
    with pytest.raises(InputError, match="licence"):
        read_sets('[[dataset]]\nname = "a"\ntitle = "t"\npage = "p"', "test.toml")
    with pytest.raises(InputError, match="address"):
        read_sets('[[dataset]]\nname = "a"\nfiles = [{ path = "x" }]', "test.toml")
    with pytest.raises(InputError, match="hash_from"):
        read_sets('[[dataset]]\nname = "a"\ntitle = "t"\nlicence = "l"\npage = "p"\nhash_from = "hearsay"', "test.toml")


def test_the_page_for_people_says_the_same():
    """To renew it, put the output of `allocator data list --markdown` in place of the table."""
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
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_directory() == Path.home() / ".cache" / "cluster-allocator" / "data"
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
    (tmp_path / "philly").mkdir()
    (tmp_path / "philly" / "trace-data.tar.gz").touch()
    assert path_of("philly", cache=tmp_path) == tmp_path / "philly" / "trace-data.tar.gz"


def test_sets_without_address(tmp_path):
    for use in (fetch, verify):
        with pytest.raises(DataError, match=r"no public address .* get them from https://"):
            use("mit-supercloud", cache=tmp_path)
    with pytest.raises(DataError, match="get them from"):
        path_of("mit-supercloud", cache=tmp_path)


def test_the_registry_is_read_without_heavy_imports():
    script = (
        "import sys, allocator.cli; early = 'allocator.data' in sys.modules; import allocator.data\n"
        "allocator.data.datasets()\n"
        "print(early, [m for m in ('pandas', 'scipy', 'highspy', 'cvxpy', 'rich.progress') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False []"
