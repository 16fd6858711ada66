"""One look for all pictures: quiet axes, one colour and one marker for each policy, shades for settings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from allocator.policies.paper_labels import SHOCKWAVE_LABELS
from allocator.registry import list_policies
from allocator.report.colours import LIGHT, Look, policy_looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHADES = ("#440154", "#443983", "#31688e", "#21918c", "#2fa56b")
"""Settings and whatever else is no policy, dark to light: their order can be seen with any kind of colour vision."""

# One for each colour of policies, so that colour-blind readers, and those without colours, have a second means.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "h")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.2)), (0, (1.2, 1.2)), (0, (5, 1.2, 1.2, 1.2)))

# The first variant of a policy has its colour, the next is darker, then lighter: parts of black and of white.
_VARIANTS = ((0.0, 0.0), (0.45, 0.0), (0.0, 0.5), (0.7, 0.0), (0.0, 0.7))
_VARIANT_MARKERS = ("*", "p", "8", "H")
INK, FAINT = "#333333", "#E4E4E4"

_POLICIES = {label: policy for policy, label in SHOCKWAVE_LABELS.items()}


def use_style() -> None:
    """Set matplotlib's defaults for this process: quiet axes, small pictures."""
    import matplotlib

    matplotlib.rcParams.update(
        {
            "figure.dpi": 90,
            "savefig.dpi": 90,
            "figure.facecolor": "white",
            "figure.constrained_layout.use": True,
            "font.size": 9.5,
            "text.color": INK,
            "axes.labelcolor": INK,
            "axes.edgecolor": "#AAAAAA",
            "axes.titlesize": 10.5,
            "axes.titlelocation": "left",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.color": FAINT,
            "grid.linewidth": 0.7,
            "xtick.color": INK,
            "ytick.color": INK,
            "lines.linewidth": 1.8,
            "lines.markersize": 4.5,
        }
    )


def panels(count: int, *, width: float = 5.0, height: float = 3.2, **settings: Any) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels side by side, each so many inches wide and high."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, count, figsize=(width * count, height), squeeze=False, **settings)
    return figure, list(axes[0])


def policy_of(label: str) -> str | None:
    """The policy that a label names: itself, a paper's name of it, or ``POLICY, VARIANT``; None if it names none."""
    name = label.partition(", ")[0]
    name = _POLICIES.get(name, name)
    return name if name in {entry.name for entry in list_policies()} else None


def looks(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Colour, marker and line style for each name, for keyword arguments of matplotlib.

    Parameters
    ----------
    names : labels of policies (`policy_of`), which look as in the report (`policy_looks`), variants in the order in
        which they come; any others are settings and have `SHADES` in their order.
    """
    distinct = list(dict.fromkeys(names))
    settings = [name for name in distinct if policy_of(name) is None]
    found: dict[str, dict[str, Any]] = {name: _shade(i, len(settings)) for i, name in enumerate(settings)}
    policies = list(dict.fromkeys(policy for policy in map(policy_of, distinct) if policy is not None))
    own = dict(zip(policies, policy_looks(policies), strict=True))
    seen: dict[str, int] = {}
    for name in distinct:
        policy = policy_of(name)
        if policy is not None:
            found[name] = _policy_look(own[policy], seen.setdefault(policy, 0))
            seen[policy] += 1
    return {name: found[name] for name in distinct}


def _policy_look(look: Look, variant: int) -> dict[str, Any]:
    variant %= len(_VARIANTS)
    black, white = _VARIANTS[variant]
    marker = _VARIANT_MARKERS[variant - 1] if variant else MARKERS[look.colour]
    return {"color": _mixed(LIGHT[look.colour], black, white), "marker": marker, "linestyle": DASHES[look.dash]}


def _shade(position: int, count: int) -> dict[str, Any]:
    """One of so many settings, spread over the shades."""
    place = round(position * (len(SHADES) - 1) / max(count - 1, 1)) if count <= len(SHADES) else position % len(SHADES)
    return {"color": SHADES[place], "marker": MARKERS[position % len(MARKERS)], "linestyle": "-"}


def _mixed(colour: str, black: float, white: float) -> str:
    """A colour with parts of black and white in it."""
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round((1 - black - white) * part + white * 255):02x}" for part in parts)
