"""Jobs that share GPUs in fractions, in the GPU timeline of the page."""

from xml.etree import ElementTree

import pytest

from allocator import Trace, get_policy, simulate
from tests.report.test_browser import CHROMIUM, Drive, drive

__all__ = ["drive"]

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


def test_jobs_that_share_a_gpu_are_stacked(drive: Drive) -> None:
    """0.5, 0.3 and 0.2 fill a GPU; 0.6 takes what the first and the last left, in two pieces; the last has it whole."""
    seconds = [600.0, 3600.0, 600.0, 600.0, 60.0]
    fraction = [0.5, 0.3, 0.2, 0.6, 1.0]
    trace = Trace(["a"] * 5, [1] * 5, seconds, [0.0, 10.0, 20.0, 30.0, 40.0], duration=seconds, gpu_fraction=fraction)
    result = simulate(trace, "gpu:1", get_policy("fcfs"))
    found = drive("all('#timeline button').find((each) => each.textContent === 'SVG').click();", [result])
    rects = [node for node in ElementTree.fromstring(found["file"]).iter() if node.tag.endswith("rect")]
    bars = [node for node in rects if str(node.get("fill")).startswith("hsl")]
    heights = [float(str(node.get("height"))) for node in bars]
    full = heights[-1]
    assert [height / full for height in heights] == pytest.approx([0.5, 0.3, 0.2, 0.5, 0.1, 1.0], abs=0.01)
    feet = [float(str(node.get("y"))) + height for node, height in zip(bars, heights, strict=True)]
    above = [(feet[-1] - foot) / full for foot in feet]
    assert above == pytest.approx([0.0, 0.5, 0.8, 0.0, 0.8, 0.0], abs=0.02)
