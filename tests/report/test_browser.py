"""The page's script in a real browser, where there is one: few visits, each of which looks at much."""

import csv
import html
import io
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode
from xml.etree import ElementTree

import numpy as np
import pytest

from allocator import Trace, get_policy, simulate
from allocator.cluster import Cluster
from allocator.report import write_report
from allocator.results.result import SimulationResult
from tests.report.synthetic import FREE_STARTS, changed, make_result, make_results

CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync --enable-logging=stderr --virtual-time-budget=2000 --dump-dom"
)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

Drive = Callable[..., dict[str, Any]]


def open_page(path: Path, profile: Path, address: str = "") -> str:
    """The document after its script ran; fails on any message on the console."""
    command = [str(CHROMIUM), *FLAGS.split(), f"--user-data-dir={profile}", path.as_uri() + address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert "CONSOLE" not in done.stderr
    return done.stdout


@pytest.fixture
def drive(tmp_path: Path) -> Drive:
    """Opens the page with what is to be shown in its address, runs a script in it, and returns what this `tell`s."""

    def act(script: str, given: list[SimulationResult], **shown: Any) -> dict[str, Any]:
        path = write_report(given, tmp_path / "report.html")
        whole = f"""<script>
            const told = {{ files: {{}} }};
            const tell = (more) => {{ document.body.dataset.told = JSON.stringify(Object.assign(told, more)); }};
            const all = (selector) => [...document.querySelectorAll(selector)];
            const texts = (selector) => all(selector).map((node) => node.textContent);
            const made = [];
            URL.createObjectURL = (file) => {{ made.push(file); return "#file"; }};
            HTMLAnchorElement.prototype.click = function () {{
                const name = this.download;
                made.pop().text().then((text) => {{ told.files[name] = text; tell({{}}); }});
            }};
            const fire = (node, kind) => node.dispatchEvent(new Event(kind));
            {script}
            tell({{ address: location.hash.slice(1) }});
            setTimeout(() => tell({{ address: location.hash.slice(1) }}), 500);
        </script></body>"""
        path.write_text(path.read_text(encoding="utf-8").replace("</body>", whole), encoding="utf-8")
        address = f"#{urlencode(shown, doseq=True)}" if shown else ""
        found = re.search(r'data-told="([^"]*)"', open_page(path, tmp_path / "profile", address))
        assert found is not None
        answer: dict[str, Any] = json.loads(html.unescape(found[1]))
        return answer | {"address": parse_qs(answer["address"])}

    return act


def test_what_is_chosen_is_in_the_address_and_the_back_button_takes_it_back(
    results: list[SimulationResult], drive: Drive
) -> None:
    told = drive(
        """
        tell({ note: texts("#timeline-note")[0], rows: all("#allocation-table th[scope=row]").length });
        const nameless = all("button, select, input, canvas, [role=region]").filter((node) =>
          !(node.getAttribute("aria-label") || node.textContent.trim() || node.closest("label")));
        tell({ nameless: nameless.map((node) => node.outerHTML) });
        const select = document.getElementById("baseline");
        select.value = "1";
        fire(select, "change");
        const first = "#comparison tbody tr td:nth-child(2)";
        tell({ cells: texts(first), signs: texts(`${first} .ratio span`) });
        all(".key")[2].click();
        document.querySelector("#comparison thead th:nth-child(2) button").click();
        tell({ chosen: location.hash, hidden: all("#comparison tbody tr.off").length });
        history.back();
        setTimeout(() => tell({ sorted: all("#comparison [aria-sort]").length, baseline: select.value }), 300);
        """,
        results,
    )
    assert told["note"].startswith("Shown: 0 h to")
    assert told["nameless"] == []
    decisions = results[0].decisions
    assert told["rows"] == (decisions[len(decisions) // 2][2].throughputs.n_jobs if decisions else 0)
    average = np.array([result.summary()["average_jct"] / 3600 for result in results])
    ratios = average / average[1]
    for cell, value, ratio in zip(told["cells"], average, ratios, strict=True):
        assert cell.startswith(f"{value:.2f}"[:4])
        assert f"×{ratio:.2f}" in cell
    assert told["signs"] == [" ▲" if ratio < 1 else " ▼" for ratio in ratios if f"{ratio:.2f}" != "1.00"]
    chosen = parse_qs(told["chosen"].lstrip("#"))
    assert (chosen["baseline"], chosen["hide"]) == (["isolated"], ["max_min_fairness"])
    assert chosen["sort-comparison"] == ["average JCT (h)"]
    assert (told["hidden"], told["sorted"], told["baseline"]) == (1, 0, "1")
    assert "sort-comparison" not in told["address"]
    assert told["address"]["hide"] == ["max_min_fairness"]


SEARCHES = {
    "transformer": "job_type.str.contains('Transformer')",
    "type:resnet gpus:1": "job_type.str.contains('ResNet') and scale_factor == 1",
    "jct>5 status:completed": "jct > 18000",
    "id:7": "job_id == 7",
    "partition:red-h": "partition == 'red-hot'",
    "nothing like it": "job_id < 0",
}


@pytest.mark.exhaustive
def test_an_address_shows_what_it_says_and_searches_find_jobs(results: list[SimulationResult], drive: Drive) -> None:
    jobs = results[0].jobs.assign(partition=(["red", "blue", "red-hot"] * 5)[:14])
    told = drive(
        f"""tell({{
            sorted: texts("#comparison [aria-sort=descending]"), off: all("main .curve.off").length,
            panes: texts("#timeline figcaption"), note: texts("#timeline-note")[0], job: texts("#timeline-job")[0],
            scale: texts("[data-chart=jct] [aria-pressed=true]"),
            selected: texts("#jobs-table [aria-selected=true] th"),
            pools: document.getElementById("timeline-pool").parentElement.hidden,
        }});
        const search = document.getElementById("jobs-search");
        told.found = {json.dumps(list(SEARCHES))}.map((text) => {{
            search.value = text;
            fire(search, "input");
            return [texts("#jobs-table tbody th"), texts("#jobs-count")[0]];
        }});
        tell({{}});""",
        [changed(results[0], jobs=jobs), *results[1:]],
        **{"sort-comparison": "-makespan (h)", "hide": "isolated", "first": "max_min_fairness", "second": "fifo"},
        **{"from": 7200, "to": 18000, "job": 3, "jct-scale": "linear", "jobs": "fifo", "sort": "-jct"},
    )
    assert (told["sorted"], told["off"], told["scale"]) == (["makespan (h)"], 6, ["linear"])
    assert (told["panes"], told["selected"], told["pools"]) == (["max_min_fairness", "fifo"], ["3"], True)
    assert told["note"].startswith("Shown: 2 h to 5 h of ")
    assert "Each band" not in told["note"]
    assert told["job"].startswith("Job 3: ")
    assert "max_min_fairness: completed at" in told["job"]
    for (found, count), query in zip(told["found"], SEARCHES.values(), strict=True):
        expected = jobs.query(query).sort_values("jct", ascending=False)["job_id"].astype(str).tolist()
        assert (found, count) == (expected, f"{len(expected)} of 14 jobs")


@pytest.mark.exhaustive
def test_tables_come_as_csv_and_figures_as_svg(results: list[SimulationResult], drive: Drive) -> None:
    sections = ("comparison", "jobs", "jct", "queue", "timeline")
    script = f"for (const id of {json.dumps(sections)}) document.querySelector(`#${{id}} .tools button`).click();"
    files = drive(script, results, search="gpus:1", jobs="fifo", hide="isolated")["files"]
    rows = list(csv.DictReader(io.StringIO(files.pop("comparison.csv"))))
    shown = {row["policy"]: float(row["average JCT (h)"]) for row in rows}
    for result in results:
        assert shown[result.label] == pytest.approx(result.summary()["average_jct"] / 3600)
    rows = list(csv.DictReader(io.StringIO(files.pop("jobs-fifo.csv"))))
    jobs = results[0].jobs.query("scale_factor == 1")
    assert [row["job"] for row in rows] == jobs["job_id"].astype(str).tolist()
    np.testing.assert_allclose([float(row["JCT (h)"]) for row in rows], jobs["jct"] / 3600, atol=2 / 3600)
    assert len(files) == 3
    for name, text in files.items():
        root = ElementTree.fromstring(text)
        tags = [node.tag.partition("}")[2] for node in root.iter()]
        assert tags[:2] == ["svg", "rect"]
        assert not re.search(r"var\(|class=|nan", text.lower())
        names = {node.text for node in root.iter() if node.text}
        if "timeline" in name:
            assert tags.count("rect") > 20
        else:
            drawn = {node.get("stroke") for node in root.iter() if node.get("data-policy")}
            assert len(drawn) == 2  # of three policies, one of them hidden
            assert names & {"fifo", "isolated", "max_min_fairness"} == {"fifo", "max_min_fairness"}


def drawn_jobs(svg: str) -> dict[int, list[tuple[float, float, float, float]]]:
    """Left, top, width and height of the rectangles of each job, by the hue of its colour."""
    found: dict[int, list[tuple[float, float, float, float]]] = {}
    for node in ElementTree.fromstring(svg).iter():
        colour = node.get("fill", "")
        if colour.startswith("hsl("):
            left, top, width, height = (float(node.get(name, "nan")) for name in ("x", "y", "width", "height"))
            found.setdefault(round(float(colour[4:].split()[0])), []).append((left, top, width, height))
    return found


@pytest.mark.exhaustive
def test_jobs_that_share_a_gpu_are_stacked_by_their_fractions(drive: Drive) -> None:
    """A half and a quarter stand on each other; as the half leaves the quarter comes down and 0.7 stands on it."""
    seconds = [3600.0, 7200.0, 9000.0, 3600.0]
    trace = Trace(["a"] * 4, [1] * 4, seconds, [0.0] * 4, duration=seconds, gpu_fraction=[0.5, 0.25, 1.0, 0.7])
    result = simulate(trace, "gpu:2", get_policy("fcfs"), preset=FREE_STARTS)
    assert result.jobs["start_time"].tolist() == [0, 0, 0, 3600]
    told = drive('document.querySelector("#timeline .tools button").click();', [result], second="none")
    (text,) = told["files"].values()
    drawn = drawn_jobs(text)
    half, quarter, whole, last = (drawn[round(job * 137.508 % 360)] for job in range(4))
    row = whole[0][3]
    for own, share in ((half, 0.5), (quarter, 0.25), (whole, 1.0), (last, 0.7)):
        np.testing.assert_allclose([rectangle[3] for rectangle in own], share * row, atol=0.051)
    assert [len(own) for own in (half, quarter, whole, last)] == [1, 2, 1, 1]
    assert last[0][0] == pytest.approx(quarter[1][0], abs=0.11)  # it began as the half left
    assert last[0][0] > half[0][0] + half[0][2] - 0.2
    (_, top, _, tall), (_, raised, _, _), (_, lowered, _, _) = half[0], quarter[0], quarter[1]
    assert raised < top < lowered
    assert lowered + quarter[1][3] == pytest.approx(top + tall, abs=0.11)


@pytest.mark.exhaustive
def test_runs_with_different_seeds_are_one_policy(drive: Drive) -> None:
    runs = [each for seed in range(3) for each in make_results("fifo", "isolated", n_jobs=8, seed=seed, hours=4)]
    told = drive(
        """tell({
            names: texts("#comparison tbody th"), average: texts("#comparison tbody td:nth-child(2)"),
            keys: texts(".key"), runs: texts("#jobs-run option"), curves: all("#chart-queue .curve").length,
        });""",
        runs,
    )
    assert told["names"] == told["keys"] == ["fifo", "isolated"]
    assert told["runs"] == [f"{name}, seed {seed}" for seed in range(3) for name in ("fifo", "isolated")]
    assert told["curves"] == 6
    values = [run.summary()["average_jct"] / 3600 for run in runs[::2]]
    half = 4.302653 * np.std(values, ddof=1) / np.sqrt(3)  # Student's t with two degrees of freedom
    mean, shown = told["average"][0].removesuffix(" (best)").split(" ±")
    assert float(mean) == pytest.approx(np.mean(values), rel=5e-3)
    assert float(shown) == pytest.approx(half, abs=0.06)


@pytest.mark.exhaustive
def test_charts_are_whole_on_a_phone(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.report.test_browser.FLAGS", f"{FLAGS} --window-size=500,900")
    script = """
        const sides = (node) => { const box = node.getBoundingClientRect(); return [box.left, box.right]; };
        const shown = all(".chart:not(.panel) .view").filter((view) => view.style.display !== "none");
        tell({ width: innerWidth, charts: all(".chart:not(.panel)").map(sides),
               words: shown.flatMap((view) => [...view.querySelectorAll("text")].map(sides)) });"""
    told = drive(script, make_results(n_jobs=8, hours=4))
    assert told["width"] == 500
    assert len(told["charts"]) >= 4
    for left, right in told["charts"] + told["words"]:
        assert 0 <= left <= right <= 500


@pytest.mark.exhaustive
def test_of_large_runs_only_what_is_in_view_is_drawn(drive: Drive) -> None:
    """Types of many GPUs are bands until they are opened, by their name or a click; of many jobs few rows are there."""
    made = make_result(n_jobs=2000, hours=0.3, cluster="v100:600,p100:320")
    told = drive(
        """
        const pool = document.getElementById("timeline-pool");
        const canvas = document.querySelector("#pane-first canvas");
        const tall = () => canvas.clientHeight;
        const before = tall();
        tell({ before, note: texts("#timeline-note")[0], types: [...pool.options].map((option) => option.value) });
        pool.value = "p100";
        fire(pool, "change");
        tell({ opened: tall() - before, after: texts("#timeline-note")[0], address_then: location.hash });
        pool.value = "";
        fire(pool, "change");
        const box = canvas.getBoundingClientRect();
        const press = (kind) => canvas.dispatchEvent(new PointerEvent(kind, {
            clientX: box.left + 10, clientY: box.top + 26 + 5, pointerId: 1, pointerType: "mouse", bubbles: true,
        }));
        canvas.setPointerCapture = () => {};
        const click = () => { press("pointerdown"); press("pointerup"); };
        click();
        tell({ pool: pool.value, grown: tall() - before });
        click();
        tell({ back: tall() - before, rows: all("#jobs-table tbody th").length });
        const view = document.getElementById("jobs-view");
        tell({ height: view.scrollHeight });
        view.scrollTop = 30 * 1500;
        fire(view, "scroll");
        tell({ there: texts("#jobs-table tbody th") });
        """,
        [changed(made, cluster=Cluster(made.cluster.gpus, {"v100": 8, "p100": 4}))],
        second="none",
    )
    assert told["types"] == ["", "v100", "p100"]
    assert told["before"] < 200
    assert "Each band is an accelerator type" in told["note"]
    assert told["opened"] == 2 * 320
    assert "Each band" not in told["after"]
    assert "open=p100" in told["address_then"]
    assert (told["pool"], told["grown"], told["back"]) == ("v100", 600, 0)
    assert "open" not in told["address"]
    assert told["rows"] < 100
    assert told["height"] > 2000 * 30
    assert "1500" in told["there"]
