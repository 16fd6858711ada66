"""`allocator throughputs fit`: from measured steps to a model, its error and a picture."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from allocator.cli.app import app
from throughputs import InputError
from throughputs.goodput import PARAMETERS, ThroughputModels, fit_model, read_samples
from throughputs.goodput.profiles import default_profiles


def run(*arguments: str | Path) -> str:
    ran = CliRunner().invoke(app, ["throughputs", *map(str, arguments)], catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    return ran.output


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    path = tmp_path / "samples.csv"
    assert "20 steps of imagenet" in run("example-samples", "--out", path)
    return path


def test_what_is_printed_and_written(samples: Path, tmp_path: Path) -> None:
    said = run("fit", "--samples", samples, "--out", tmp_path / "model.toml", "--plot", tmp_path / "steps.svg")
    # the heading is as wide as the table, and may break anywhere after the name of the file
    assert "20 samples" in " ".join(said.split())
    assert all(name in said for name in PARAMETERS)
    assert "Error of step times: mean 1.6%" in said
    fitted = fit_model(read_samples(samples))
    assert tuple(tomllib.loads((tmp_path / "model.toml").read_text()).values()) == fitted.parameters
    found = json.loads(run("fit", "--samples", samples, "--json"))
    assert tuple(found["parameters"].values()) == fitted.parameters
    assert found["error"]["mean"] == pytest.approx(0.016, abs=1e-3)
    assert found["samples"] == 20


def test_measurements_are_not_written_over(samples: Path) -> None:
    before = samples.read_bytes()
    done = CliRunner().invoke(app, ["throughputs", "fit", "--samples", str(samples), "--out", str(samples)])
    assert isinstance(done.exception, InputError)
    assert done.exception.field is None
    assert "expected another file than" in str(done.exception)
    assert samples.read_bytes() == before


def test_the_profile_that_samples_were_drawn_from_is_found_again(samples: Path) -> None:
    truth = default_profiles().goodput(["imagenet"], "t4").throughput
    fitted = fit_model(read_samples(samples)).model
    for nodes, gpus, size in ((1, 1, 50), (1, 4, 100), (3, 12, 150), (8, 32, 200)):
        one, other = (model.step_time(nodes, gpus, size)[0, 0] for model in (truth, fitted))
        assert other == pytest.approx(one, rel=0.06)


def test_the_picture_is_the_same_each_time(samples: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("one.svg", "other.svg", "one.png"):
        run("fit", "--samples", samples, "--plot", tmp_path / name)
    text = (tmp_path / "one.svg").read_text()
    assert text == (tmp_path / "other.svg").read_text()
    assert "measured step time (s)" in text
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_of_another_kind_writes_nothing(samples: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"steps\.gif: found 'steps\.gif', expected a file name that ends in \.svg"):
        run("fit", "--samples", samples, "--out", tmp_path / "model.toml", "--plot", tmp_path / "steps.gif")
    assert not (tmp_path / "model.toml").exists()


def test_without_matplotlib(samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install cluster-allocator\[plot\]"):
        run("fit", "--samples", samples, "--plot", tmp_path / "steps.svg")


def test_bad_samples_name_file_line_and_field(samples: Path) -> None:
    samples.write_text(samples.read_text() + "1,1,20,0.1,0.2\n")
    with pytest.raises(InputError, match=r"samples\.csv:22: field 'sync_time': found 0\.2, expected seconds from 0"):
        run("fit", "--samples", samples)


def test_examples_of_every_profile_can_be_fitted(tmp_path: Path) -> None:
    for model in default_profiles().models:
        run("example-samples", "--model", model, "--out", tmp_path / "one.csv")
        fit = fit_model(read_samples(tmp_path / "one.csv"))
        assert fit.errors(read_samples(tmp_path / "one.csv"))["mean"] < 0.05
        assert isinstance(fit.model, ThroughputModels)


def test_what_samples_do_not_tell_is_a_warning(samples: Path, tmp_path: Path) -> None:
    few = tmp_path / "few.csv"
    few.write_text("nodes,gpus,batch_size,step_time,sync_time\n1,1,16,0.1,0\n1,1,32,0.2,0\n")
    done = CliRunner().invoke(app, ["throughputs", "fit", "--samples", str(few), "--json"])
    assert done.stderr == f"warning: {few}: no sample of several GPUs: synchronisation is taken to cost no time\n"
    assert json.loads(done.stdout)["samples"] == 2
    assert CliRunner().invoke(app, ["throughputs", "fit", "--samples", str(samples)]).stderr == ""
