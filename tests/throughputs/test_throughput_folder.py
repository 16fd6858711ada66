"""A folder of throughputs by batch size and number of GPUs, as ElasticFlow has them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from throughputs import Configurations, InputError, read_table

BERT = "global_batch_size,1,2,4\n64,6.0,8.5,0\n128,3.5,nan,\n"


def folder(tmp_path: Path, name: str = "throughputs_A100", **files: str) -> Path:
    path = tmp_path / name
    path.mkdir(exist_ok=True)
    for model, text in files.items():
        (path / f"{model}.csv").write_bytes(text.encode())
    return path


def test_cells_that_were_not_profiled_are_no_columns(tmp_path: Path) -> None:
    path = folder(tmp_path, bert=BERT, vgg16="global_batch_size,8,1\r\n64,2.5,1.5\r\n")
    (path / "notes.txt").write_text("not read")
    table = read_table(path)
    assert table.accelerators == ("a100",)
    assert table.keys == (
        ("bert (batch size 64)", 1),
        ("bert (batch size 64)", 2),
        ("bert (batch size 128)", 1),
        ("vgg16 (batch size 64)", 8),
        ("vgg16 (batch size 64)", 1),
    )
    assert table.isolated[:, 0].tolist() == [6.0, 8.5, 3.5, 2.5, 1.5]
    ways = Configurations.from_table(table, ["bert (batch size 64)"], ["a100"])
    assert ways.counts_of(0) == (1, 2)
    with pytest.raises(InputError, match="found 4, expected one of 1, 2"):
        table.rates(["bert (batch size 64)"], [4], ["a100"])


def test_rows_that_end_early_and_cells_in_quotes(tmp_path: Path) -> None:
    path = folder(tmp_path, bert='# of one model\nglobal_batch_size,"1",2\n64,"6.0"\n')
    table = read_table(path)
    assert (table.keys, table.isolated.tolist()) == ((("bert (batch size 64)", 1),), [[6.0]])


def test_the_accelerator_type(tmp_path: Path) -> None:
    assert read_table(folder(tmp_path, "throughputs_T4", bert=BERT)).accelerators == ("t4",)
    other = folder(tmp_path, "profiles", bert=BERT)
    assert read_table(other, "v100").accelerators == ("v100",)
    for path in (other, folder(tmp_path, "throughputs_", bert=BERT)):
        with pytest.raises(InputError, match="throughputs_TYPE, or the accelerator type"):
            read_table(path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "expected a header line"),
        ("batch,1\n64,1\n", "bert.csv:1: found 'batch', expected global_batch_size"),
        ("global_batch_size\n64\n", "bert.csv:1: .* numbers of GPUs"),
        ("global_batch_size,1,1\n64,1,1\n", "bert.csv:1: .* each once"),
        ("global_batch_size,0\n64,1\n", "bert.csv:1: found '0', expected a number of GPUs"),
        ("global_batch_size,two\n64,1\n", "bert.csv:1: found 'two'"),
        ("global_batch_size,1\n0,1\n", "bert.csv:2: field 'global_batch_size': found '0'"),
        ("global_batch_size,1\n64,1\nx,1\n", "bert.csv:3: field 'global_batch_size': found 'x'"),
        ("global_batch_size,1\n64,1\n64,2\n", "bert.csv:3: .* each batch size once"),
        ("global_batch_size,1\n64,x\n", "bert.csv:2: field '1': found 'x'"),
        ("global_batch_size,1,16\n64,1,-2\n", "bert.csv:2: field '16': found '-2'"),
        ("global_batch_size,1\n64,inf\n", "bert.csv:2: field '1': found 'inf'"),
        ("global_batch_size,1\n64,1,2\n", "bert.csv:2: found '3 values', expected 2 values, as in the header"),
        ("# A100\nglobal_batch_size,1\n64,1\n\n64,1\n", "bert.csv:4: field 'global_batch_size': found ''"),
        (f"global_batch_size,1\n64,{'1' * 200_000}\n", "a CSV file .field larger"),
    ],
)
def test_bad_files_are_named(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=told):
        read_table(folder(tmp_path, bert=text))


def test_spaces_capitals_and_the_folder_one_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder(tmp_path, bert="global_batch_size, 1 ,2\n 64 , 6.0,NaN\n")
    (path / "bert.csv").rename(path / "bert.CSV")
    monkeypatch.chdir(path)
    table = read_table(".")
    assert (table.accelerators, table.keys) == (("a100",), (("bert (batch size 64)", 1),))
    assert table.isolated.tolist() == [[6.0]]


@pytest.mark.parametrize("digits", ["²", "٣", "9" * 20, "1.0", "+1"])
def test_numbers_that_are_not_in_plain_digits(digits: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=re.escape(f"bert.csv:1: found {digits!r}, expected a number of GPUs")):
        read_table(folder(tmp_path, bert=f"global_batch_size,{digits}\n64,1\n"))
    with pytest.raises(InputError, match=re.escape(f"bert.csv:2: field 'global_batch_size': found {digits!r}")):
        read_table(folder(tmp_path, bert=f"global_batch_size,1\n{digits},1\n"))


def test_a_folder_without_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="files MODEL"):
        read_table(folder(tmp_path))


@pytest.mark.parametrize(("name", "types", "figures"), [("A100", 17, 109), ("T4", 9, 60)])
def test_public_folders(name: str, types: int, figures: int, public_data) -> None:
    table = read_table(public_data(f"elasticflow/throughputs_{name}"))
    assert table.accelerators == (name.lower(),)
    assert (len(table.job_types), len(table.keys)) == (types, figures)
    assert (table.isolated > 0).all()
