"""One colour for each policy, on every page and in every picture.

>>> policy_colour("fifo")
'#262b33'
>>> [look.colour for look in policy_looks(["isolated", "fifo", "gandiva"])]
[8, 4, 0]
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from zlib import crc32

LIGHT = (
    "#0072b2",
    "#d55e00",
    "#008f68",
    "#b5559a",
    "#262b33",
    "#2c98d4",
    "#8a1c4a",
    "#7a7a10",
    "#7d8590",
    "#4a3fa8",
)
"""On white, after Okabe and Ito. The first five are drawn solid and the others dashed; within each five they can be
told apart with any kind of colour vision, and each has a contrast of at least 3 to the paper."""

DARK = (
    "#4aa8e0",
    "#f07c34",
    "#2fc49a",
    "#e08cc6",
    "#f2f4f7",
    "#9ad4f5",
    "#d0507e",
    "#c9c950",
    "#8b94a1",
    "#8f83ee",
)
"""The same on dark paper."""

_SOLID = 5
_DASHES = ("none", "7 3", "2 3", "9 3 2 3")

# Policies that are often compared differ in their colour; a policy that is blind to accelerator types has a relative
# of the colour of the one that is not.
_OWN = {
    "max_min_fairness_perf": 0,
    "finish_time_fairness_perf": 1,
    "min_total_duration_perf": 2,
    "max_sum_throughput_perf": 3,
    "fifo": 4,
    "max_min_fairness": 5,
    "finish_time_fairness": 6,
    "fifo_perf": 7,
    "isolated": 8,
    "min_total_duration": 9,
    "max_min_fairness_packed": 9,
    "finish_time_fairness_packed": 7,
    "max_min_fairness_water_filling_perf": 2,
    "allox": 2,
    "min_total_duration_packed": 7,
    "max_min_fairness_water_filling": 7,
    "shockwave": 1,
    "isolated_plus": 4,
    "gandiva_fair": 8,
    "gandiva": 8,
    "elasticflow": 1,
    "elasticflow_no_admission": 6,
    "elasticflow_mip": 9,
    "edf": 0,
    "edf_admission": 5,
    "tiresias": 2,
    "gandiva_time_slicing": 8,
    "themis": 3,
    "chronus": 4,
    "srtf": 7,
    "fcfs": 1,
    "sjf": 6,
    "qssf": 0,
    "lucid": 3,
    "lucid_program": 9,
    "sia": 9,
    "pollux": 3,
    "optimus": 1,
    "quotas": 0,
}
_ORDER = {name: place for place, name in enumerate(_OWN)}


@dataclass(frozen=True)
class Look:
    """How a policy is drawn.

    Attributes
    ----------
    colour : position in `LIGHT` and `DARK`.
    dash : 0 for solid lines, 1 to 3 for a kind of dashes each: a second means to tell lines apart.
    """

    colour: int
    dash: int

    @property
    def light(self) -> str:
        """The colour on white paper."""
        return LIGHT[self.colour]

    @property
    def dark(self) -> str:
        """The colour on dark paper."""
        return DARK[self.colour]

    @property
    def dashes(self) -> str:
        """The dashes, as SVG has them."""
        return _DASHES[self.dash]


def policy_colour(name: str) -> str:
    """The colour of a policy on white paper, from its name alone: the same in every picture.

    Two policies may have the same one; `policy_looks` gives those of one picture different ones.
    """
    return LIGHT[_own(name)]


def policy_looks(names: Iterable[str]) -> list[Look]:
    """How the policies of one picture are drawn: in their own colours, where these differ.

    Of policies that have the same colour the one that comes first in `_OWN` has it, and the others take in turn what is
    left: whoever stands beside a policy may change its look, their order does not. Ten policies differ in colour; more
    of them differ in their dashes too. Settings behind the name, as in ``fifo:seed=1``, do not matter.
    """
    listed = list(names)
    wanted = {_own(name) for name in listed}
    free = [colour for colour in range(len(LIGHT)) if colour not in wanted]
    others = iter([*(Look(colour, colour // _SOLID) for colour in free), *_further(len(listed))])
    looks: dict[int, Look] = {}
    for position in sorted(range(len(listed)), key=lambda position: _rank(listed[position])):
        colour = _own(listed[position])
        looks[position] = Look(colour, colour // _SOLID) if colour in wanted else next(others)
        wanted.discard(colour)
    return [looks[position] for position in range(len(listed))]


def style_rules(names: Iterable[str]) -> str:
    """CSS that gives the class ``c<position>`` of each policy its colour ``--own`` and its dashes ``--dash``.

    Paper is dark where the reader wants it on a screen; inside of the class ``light``, and in print, it is white.
    """
    looks = policy_looks(names)
    light = " ".join(f"--c{at}: {look.light};" for at, look in enumerate(looks))
    dark = " ".join(f"--c{at}: {look.dark};" for at, look in enumerate(looks))
    own = "\n".join(f".c{at} {{ --own: var(--c{at}); --dash: {look.dashes} }}" for at, look in enumerate(looks))
    on_screen = "@media screen and (prefers-color-scheme: dark)"
    return f":root, .light {{ {light} }}\n{on_screen} {{ :root {{ {dark} }} }}\n{own}\n"


def _further(count: int) -> list[Look]:
    """Looks beyond the ten colours; after thirty, the last dashes stay."""
    places = range(len(LIGHT), len(LIGHT) + count)
    return [Look(place % len(LIGHT), min(place // len(LIGHT) + 1, len(_DASHES) - 1)) for place in places]


def _rank(name: str) -> tuple[int, str]:
    """By this policies choose their colours: those of `_OWN` in its order, then the others by name."""
    policy = name.partition(":")[0]
    return (_ORDER[policy], "") if policy in _OWN else (len(_OWN), policy)


def _own(name: str) -> int:
    policy = name.partition(":")[0]
    return _OWN[policy] if policy in _OWN else crc32(policy.encode()) % len(LIGHT)
