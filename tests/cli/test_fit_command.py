"""`allocator throughputs fit`: from measured steps to a model, its error and a picture."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from tests.cli.command import ran, refused, told
from throughputs.goodput import fit_model, read_samples
from throughputs.goodput.profiles import default_profiles


@pytest.fixture(autouse=True)
def _samples(folder: Path) -> None:
    ran("throughputs example-samples --out", folder / "samples.csv")


def test_the_profile_that_samples_were_drawn_from_is_found_again() -> None:
    ran("throughputs fit --samples samples.csv --out model.toml")
    fitted = fit_model(read_samples("samples.csv"))
    assert tuple(tomllib.loads(Path("model.toml").read_text()).values()) == fitted.parameters
    answer = told("throughputs fit --samples samples.csv")
    assert tuple(answer["parameters"].values()) == fitted.parameters
    assert (answer["error"]["mean"], answer["samples"]) == (pytest.approx(0.016, abs=1e-3), 20)
    truth = default_profiles().goodput(["imagenet"], "t4").throughput
    for nodes, gpus, size in ((1, 1, 50), (1, 4, 100), (3, 12, 150), (8, 32, 200)):
        one, other = (model.step_time(nodes, gpus, size)[0, 0] for model in (truth, fitted.model))
        assert other == pytest.approx(one, rel=0.06)


def test_what_is_refused_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = "throughputs fit --samples samples.csv --out model.toml"
    assert "steps.gif" in refused(f"{fit} --plot steps.gif")
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "matplotlib", None)
        assert "[plot]" in refused(f"{fit} --plot steps.svg")
    with Path("samples.csv").open("a") as file:
        file.write("1,1,20,0.1,0.2\n")
    assert "samples.csv:22: field 'sync_time': found 0.2" in refused(fit)
    assert not Path("model.toml").exists()


def test_what_samples_do_not_tell_is_a_warning() -> None:
    Path("few.csv").write_text("nodes,gpus,batch_size,step_time,sync_time\n1,1,16,0.1,0\n1,1,32,0.2,0\n")
    assert ran("throughputs fit --samples few.csv").err.startswith("warning: few.csv: ")
    assert ran("throughputs fit --samples samples.csv").err == ""
