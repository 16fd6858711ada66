from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from allocator.presets import preset, preset_names
from allocator.report import render_report
from allocator.report.colours import DARK, LIGHT, policy_colour, policy_looks
from tests.report.synthetic import changed, make_result

# What is left of linear red, green and blue without one kind of cones (Machado, Oliveira, Fernandes, TVCG 2009).
VISIONS = {
    "normal": np.eye(3),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
    ),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]]
    ),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
PAPERS = {"light": (LIGHT, "#ffffff"), "dark": (DARK, "#15181d")}


def linear(colour: str) -> NDArray[np.float64]:
    values = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(rgb: NDArray[np.float64]) -> NDArray[np.float64]:
    x, y, z = np.cbrt(TO_XYZ @ np.clip(rgb, 0.01, 1) / (0.9505, 1.0, 1.089))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("paper", PAPERS)
@pytest.mark.parametrize("vision", VISIONS)
def test_colours_drawn_alike_can_be_told_apart(paper: str, vision: str) -> None:
    seen = [lab(VISIONS[vision] @ linear(colour)) for colour in PAPERS[paper][0]]
    for five in (seen[:5], seen[5:]):
        assert min(np.linalg.norm(a - b) for a, b in combinations(five, 2)) > 10


@pytest.mark.parametrize("paper", PAPERS)
def test_colours_stand_out_from_the_paper(paper: str) -> None:
    colours, background = PAPERS[paper]
    behind = TO_XYZ[1] @ linear(background)
    for colour in colours:
        low, high = sorted((TO_XYZ[1] @ linear(colour), behind))
        assert (high + 0.05) / (low + 0.05) >= 3


@pytest.mark.parametrize("name", preset_names())
def test_policies_that_presets_compare_have_their_own_colours(name: str) -> None:
    policies = preset(name).comparison.policies
    if len(policies) > len(LIGHT):
        pytest.skip("more policies than colours")
    assert [look.light for look in policy_looks(policies)] == [policy_colour(policy) for policy in policies]


def test_looks_of_one_picture_differ_while_there_are_any() -> None:
    names = [f"policy {k}" for k in range(30)]
    looks = policy_looks(names)
    assert len(set(looks)) == 30
    assert len({look.colour for look in policy_looks(names[:10])}) == 10
    assert len(policy_looks(names * 2)) == 60


def test_policies_of_one_colour_differ_beside_each_other_in_whatever_order() -> None:
    names = ["pollux", "max_sum_throughput_perf", "lucid", "themis"]
    looks = dict(zip(names, policy_looks(names), strict=True))
    assert len({look.colour for look in looks.values()}) == 4
    assert looks["max_sum_throughput_perf"].light == policy_colour("max_sum_throughput_perf")
    assert dict(zip(names[::-1], policy_looks(names[::-1]), strict=True)) == looks


def test_settings_and_company_do_not_change_the_colour() -> None:
    assert policy_colour("elasticflow:admission=repair") == policy_colour("elasticflow")
    one, two = policy_looks(["elasticflow", "elasticflow:admission=repair"])
    assert one.light == policy_colour("elasticflow")
    assert two.colour != one.colour
    alone, beside = policy_looks(["fifo"])[0], policy_looks(["a new one", "fifo"])[1]
    assert alone == beside


def test_the_page_colours_a_policy_by_its_name_whatever_it_is_called_there() -> None:
    result = changed(make_result("themis", n_jobs=4, hours=1), settings={"preset": "elasticflow"})
    page = render_report([result])
    assert "themis (Themis)" in page
    assert f"--c0: {policy_colour('themis')};" in page
