"""The embedded profiles, and what is said of bad ones."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fit_goodput import fit_all, written
from tests.reference import goodput_cases as cases
from throughputs import InputError
from throughputs.goodput import best_batch_sizes
from throughputs.goodput.profiles import default_profiles, read_profiles

EMBEDDED = Path(__file__).resolve().parents[3] / "throughputs" / "goodput" / "data" / "adaptdl_t4.toml"


def test_the_embedded_profiles():
    profiles = default_profiles()
    assert (len(profiles.models), profiles.accelerators) == (6, ("t4",))
    times = profiles.step_times(["bert", "bert", "ncf"], "t4", [1, 1, 1], [1, 4, 4], [384, 384, 3])
    assert times[0] > 3 * times[1] > 0
    assert np.isnan(times[2])
    with pytest.raises(InputError, match=r"'cifar'.*'cifar10'"):
        profiles.find("cifar")
    best = best_batch_sizes(profiles.goodput(list(profiles.models), "t4"), [1, 1, 4], [1, 4, 16])
    assert (best.goodput > 0).all()
    late = best_batch_sizes(profiles.goodput(["cifar10", "cifar10"], "t4", [0.0, 1.0]), [4], [16])
    assert late.batch_size[1, 0] > late.batch_size[0, 0]


@pytest.mark.exhaustive
def test_they_are_what_the_measurements_say(public_data, tmp_path):
    tables = cases.unpacked(public_data("pollux_sia/sia_traces.tar.xz"), tmp_path)
    assert written(fit_all(tables)) == EMBEDDED.read_text()


def test_steps_of_a_training():
    profile = default_profiles().find("cifar10")
    assert profile.steps(128) == profile.initial_steps
    statistics = default_profiles().goodput(["cifar10"], "t4").statistics
    assert statistics.variance[0] == profile.noise_scale[0] / 128
    steps = [profile.steps(size) for size in (128, 256, 1024, 4096)]
    assert all(one > other > one / 4 for one, other in pairwise(steps))
    assert profile.noise_at([0.0, 0.05, 0.1, 0.999, 1.0, 1.1]).tolist() == [
        *[profile.noise_scale[k] for k in (0, 0, 1, 9, 9, 9)]
    ]


GOOD = EMBEDDED.read_text()[: EMBEDDED.read_text().index("[models.deepspeech2]")]


@pytest.mark.parametrize(
    ("found", "put", "message"),
    [
        ("[models.cifar10]", "[model.cifar10]", "field 'top level': found 'model'"),
        ("initial_steps = ", "initial_step = ", "found 'initial_step'"),
        ("largest_batch_size = 4096", "largest_batch_size = 64", "found 64"),
        ("accumulation = true", "accumulation = 1", "field 'models.cifar10.accumulation': found 1"),
        ("noise_scale = [", "noise_scale = [-1, ", "field 'models.cifar10.noise_scale': found -1"),
        ("gamma = 2.073", "gamma = 0.5", "field 'models.cifar10.types.t4.gamma': found 0.5"),
        ("= 1024", "= 16", "field 'models.cifar10.types.t4.largest_local_batch_size': found 16"),
    ],
)
def test_bad_profiles(found, put, message, tmp_path):
    assert found in GOOD
    path = tmp_path / "profiles.toml"
    path.write_text(GOOD.replace(found, put))
    with pytest.raises(InputError) as caught:
        read_profiles(path)
    assert message in str(caught.value)
