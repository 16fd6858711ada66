"""The page's script in a real browser, where there is one."""

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
from allocator.presets import Preset
from allocator.report import write_report
from allocator.results.result import SimulationResult
from tests.report.synthetic import changed, make_result, make_results

CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--virtual-time-budget=2000",
    "--dump-dom",
)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


Drive = Callable[..., dict[str, Any]]


def open_page(path: Path, profile: Path, address: str = "") -> str:
    """The document after its script ran; fails on any message on the console."""
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", path.as_uri() + address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert "CONSOLE" not in done.stderr
    return done.stdout


@pytest.fixture
def drive(results: list[SimulationResult], tmp_path: Path) -> Drive:
    """Opens the page with what is to be shown in its address, runs a script in it, and returns what this `tell`s."""

    def act(script: str, given: list[SimulationResult] | None = None, **shown: Any) -> dict[str, Any]:
        path = write_report(results if given is None else given, tmp_path / "report.html")
        whole = f"""<script>
            const told = {{}};
            const tell = (more) => {{ document.body.dataset.told = JSON.stringify(Object.assign(told, more)); }};
            const all = (selector) => [...document.querySelectorAll(selector)];
            const texts = (selector) => all(selector).map((node) => node.textContent);
            URL.createObjectURL = (file) => {{ file.text().then((file) => tell({{ file }})); return "#file"; }};
            HTMLAnchorElement.prototype.click = function () {{ tell({{ name: this.download }}); }};
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


def test_the_script_fills_the_page(results: list[SimulationResult], tmp_path: Path) -> None:
    text = open_page(write_report(results, tmp_path / "report.html"), tmp_path / "profile")
    middle = results[0].decisions[len(results[0].decisions) // 2]
    assert f"round {middle[0]}, " in text
    matrix = text.partition('id="allocation-table"')[2]
    assert matrix.count('<th class="text" scope="row">') == middle[2].throughputs.n_jobs
    assert "Shown: 0 h to" in text
    assert "GPU timeline of fifo. Shown: 0 h to" in text


def test_the_script_bears_a_run_in_which_nothing_happened(tmp_path: Path) -> None:
    plain = make_result(n_jobs=3, n_rounds=10, cluster="v100:2")
    tables = {name: getattr(plain, name).iloc[:0] for name in ("jobs", "rounds", "timeline")}
    empty = changed(plain, decisions=(), makespan=float("nan"), **tables)
    text = open_page(write_report([empty], tmp_path / "report.html"), tmp_path / "profile")
    assert "Nothing ran." in text
    assert "This run recorded no decisions." in text


def figures(result: SimulationResult, name: str, unit: float = 3600.0) -> float:
    return float(result.summary()[name]) / unit


def test_a_baseline_turns_figures_into_ratios(results: list[SimulationResult], drive: Drive) -> None:
    first = "#comparison tbody tr td:nth-child(2)"
    told = drive(f"tell({{ cells: texts('{first}'), signs: texts('{first} .ratio span') }});", baseline="isolated")
    average = np.array([figures(result, "average_jct") for result in results])
    ratios = average / average[1]
    for cell, value, ratio in zip(told["cells"], average, ratios, strict=True):
        assert cell.startswith(f"{value:.2f}"[:4])
        assert f"×{ratio:.2f}" in cell
    shown = [ratio for ratio in ratios if f"{ratio:.2f}" != "1.00"]
    assert told["signs"] == [" ▲" if ratio < 1 else " ▼" for ratio in shown]


def test_what_is_chosen_is_in_the_address_and_the_back_button_takes_it_back(drive: Drive) -> None:
    told = drive("""
        const select = document.getElementById("baseline");
        select.value = "1";
        select.dispatchEvent(new Event("change"));
        all(".key")[2].click();
        document.querySelector("#comparison thead th:nth-child(2) button").click();
        tell({ chosen: location.hash, hidden: all("#comparison tbody tr.off").length });
        history.back();
        setTimeout(() => tell({ sorted: all("#comparison [aria-sort]").length, baseline: select.value }), 300);
    """)
    chosen = parse_qs(told["chosen"].lstrip("#"))
    assert chosen["baseline"] == ["isolated"]
    assert chosen["hide"] == ["max_min_fairness"]
    assert chosen["sort-comparison"] == ["average JCT (h)"]
    assert told["hidden"] == 1
    assert (told["sorted"], told["baseline"]) == (0, "1")
    assert "sort-comparison" not in told["address"]
    assert told["address"]["hide"] == ["max_min_fairness"]


def test_an_address_shows_what_it_says(drive: Drive) -> None:
    told = drive(
        """tell({
            sort: texts("#comparison [aria-sort=descending]"),
            off: all("main .curve.off").length,
            panes: texts("#timeline figcaption"),
            note: texts("#timeline-note")[0],
            job: texts("#timeline-job")[0],
            scale: texts("[data-chart=jct] [aria-pressed=true]"),
            selected: texts("#jobs-table [aria-selected=true] th"),
        });""",
        **{"sort-comparison": "-makespan (h)", "hide": "fifo", "first": "max_min_fairness", "second": "fifo"},
        **{"from": 7200, "to": 36000, "job": 3, "jct-scale": "linear", "jobs": "fifo"},
    )
    assert told["sort"] == ["makespan (h)"]
    assert told["off"] == 6
    assert told["panes"] == ["max_min_fairness", "fifo"]
    assert told["note"].startswith("Shown: 2 h to 10 h of ")
    assert told["job"].startswith("Job 3: ")
    assert "max_min_fairness: completed at" in told["job"]
    assert told["scale"] == ["linear"]
    assert told["selected"] == ["3"]


@pytest.mark.parametrize(
    ("search", "query"),
    [
        ("transformer", "job_type.str.contains('Transformer')"),
        ("type:resnet gpus:1", "job_type.str.contains('ResNet') and scale_factor == 1"),
        ("jct>20 status:completed", "jct > 72000"),
        ("id:7", "job_id == 7"),
        ("nothing like it", "job_id < 0"),
    ],
)
def test_a_search_finds_jobs(results: list[SimulationResult], drive: Drive, search: str, query: str) -> None:
    script = 'tell({ found: texts("#jobs-table tbody th"), count: texts("#jobs-count")[0] });'
    told = drive(script, search=search, sort="-jct", jobs="fifo")
    expected = results[0].jobs.query(query).sort_values("jct", ascending=False)["job_id"].astype(str).tolist()
    assert told["found"] == expected
    assert told["count"] == f"{len(expected)} of 14 jobs"


def test_a_click_on_a_job_shows_it_in_the_timelines(results: list[SimulationResult], drive: Drive) -> None:
    script = "document.querySelector(\"#jobs-table tbody tr[data-job='5'] button\").click();"
    told = drive(script, jobs="max_min_fairness")
    address = {name: values[0] for name, values in told["address"].items()}
    job = results[0].jobs.iloc[5]
    assert address["job"] == "5"
    assert address["first"] == "max_min_fairness"
    assert float(address["from"]) < job["arrival_time"] < job["completion_time"] < float(address["to"])


def test_a_job_in_the_address_is_in_view(results: list[SimulationResult], drive: Drive) -> None:
    told = drive('tell({ note: texts("#timeline-note")[0] });', job=9, first="fifo", second="none")
    job = results[0].jobs.iloc[9]
    found = re.match(r"Shown: ([\d.]+) h to ([\d.]+) h", told["note"])
    assert found is not None
    start, end = (3600 * float(text) for text in found.groups())
    life = job["completion_time"] - job["arrival_time"]
    assert start < job["arrival_time"] < job["completion_time"] < end < job["completion_time"] + life


def test_only_the_rows_in_view_are_in_the_document(drive: Drive) -> None:
    many = make_result(n_jobs=3000, n_rounds=30, cluster="v100:64", decide_every=0)
    script = """
        const box = document.getElementById("jobs-view");
        tell({ rows: all("#jobs-table tbody th").length, tall: box.scrollHeight });
        box.scrollTop = 30 * 2000;
        box.dispatchEvent(new Event("scroll"));
        tell({ rowsThere: texts("#jobs-table tbody th") });
    """
    told = drive(script, [many])
    assert told["rows"] < 100
    assert told["tall"] > 3000 * 30
    assert "2000" in told["rowsThere"]


def test_tables_come_as_csv(results: list[SimulationResult], drive: Drive) -> None:
    told = drive('document.querySelector("#comparison .tools button").click();', baseline="fifo")
    assert told["name"] == "comparison.csv"
    head, *rows = csv.reader(io.StringIO(told["file"]))
    assert head[:2] == ["policy", "average JCT (h)"]
    for row, result in zip(rows, results, strict=True):
        assert row[0] == result.label
        assert float(row[1]) == pytest.approx(figures(result, "average_jct"))


def test_jobs_come_as_csv_as_they_were_searched(results: list[SimulationResult], drive: Drive) -> None:
    told = drive('document.querySelector("#jobs .tools button").click();', search="gpus:1", jobs="fifo")
    assert told["name"] == "jobs-fifo.csv"
    rows = list(csv.DictReader(io.StringIO(told["file"])))
    jobs = results[0].jobs.query("scale_factor == 1")
    assert [row["job"] for row in rows] == jobs["job_id"].astype(str).tolist()
    np.testing.assert_allclose([float(row["JCT (h)"]) for row in rows], jobs["jct"] / 3600, atol=2 / 3600)


@pytest.mark.parametrize("section", ["jct", "queue", "timeline"])
def test_figures_come_as_svg_with_their_style(drive: Drive, section: str) -> None:
    told = drive(f'document.querySelector("#{section} .tools button").click();', hide="isolated")
    root = ElementTree.fromstring(told["file"])
    tags = [node.tag.partition("}")[2] for node in root.iter()]
    assert tags[:2] == ["svg", "rect"]
    assert not re.search(r"var\(|class=|nan", told["file"].lower())
    if section == "timeline":
        assert tags.count("rect") > 100
        assert {"fifo", "isolated"} <= {node.text for node in root.iter() if node.text}
    else:
        drawn = {node.get("stroke") for node in root.iter() if node.get("data-policy")}
        assert len(drawn) == 2  # of three policies, one of them hidden
        names = {node.text for node in root.iter() if node.text}
        assert {"fifo", "max_min_fairness"} <= names
        assert "isolated" not in names
        assert all((colour or "").startswith("rgb(") for colour in drawn)


def drawn_jobs(svg: str) -> dict[int, list[tuple[float, float, float, float]]]:
    """Left, top, width and height of the rectangles of each job, by the hue of its colour."""
    found: dict[int, list[tuple[float, float, float, float]]] = {}
    for node in ElementTree.fromstring(svg).iter():
        colour = node.get("fill", "")
        if colour.startswith("hsl("):
            left, top, width, height = (float(node.get(name, "nan")) for name in ("x", "y", "width", "height"))
            found.setdefault(round(float(colour[4:].split()[0])), []).append((left, top, width, height))
    return found


def test_jobs_that_share_a_gpu_are_stacked_by_their_fractions(drive: Drive) -> None:
    """A half and a quarter stand on each other; as the half leaves the quarter comes down and 0.7 stands on it."""
    trace = Trace(
        ["a"] * 4,
        scale_factor=[1, 1, 1, 1],
        total_steps=[3600.0, 7200.0, 9000.0, 3600.0],
        arrival_time=[0.0] * 4,
        duration=[3600.0, 7200.0, 9000.0, 3600.0],
        gpu_fraction=[0.5, 0.25, 1.0, 0.7],
    )
    free_starts = Preset().replace(restart_penalty_seconds=0.0)
    result = simulate(trace, "gpu:2", get_policy("fcfs"), preset=free_starts)
    assert result.jobs["start_time"].tolist() == [0, 0, 0, 3600]
    told = drive('document.querySelector("#timeline .tools button").click();', [result], second="none")
    drawn = drawn_jobs(told["file"])
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
    every = [rectangle for own in (half, quarter, whole, last) for rectangle in own]
    for i, (x, y, wide, high) in enumerate(every):
        for left, upper, width, height in every[:i]:
            apart = x >= left + width - 0.2 or left >= x + wide - 0.2
            assert apart or y >= upper + height - 0.2 or upper >= y + high - 0.2


@pytest.mark.parametrize("width", [420, 760])
def test_no_sideways_scrolling_on_narrow_screens(results: list[SimulationResult], tmp_path: Path, width: int) -> None:
    """In a frame, as windows of the browser have a least width."""
    text = html.escape(write_report(results, tmp_path / "report.html").read_text(encoding="utf-8"))
    frame = tmp_path / "frame.html"
    frame.write_text(
        f"""<!doctype html><iframe style="width:{width}px;height:900px;border:0" srcdoc="{text}"></iframe><script>
        setTimeout(() => {{
          const inside = document.querySelector("iframe").contentDocument.documentElement;
          document.title = `${{inside.clientWidth}} ${{inside.scrollWidth}}`;
        }}, 1000);</script>""",
        encoding="utf-8",
    )
    found = re.search(r"<title>(\d+) (\d+)</title>", open_page(frame, tmp_path / "profile"))
    assert found is not None
    window, page = map(int, found.groups())
    assert page == window > width - 20  # the bar for scrolling down takes its place


def test_every_control_has_a_name_and_the_keyboard_moves_the_timelines(drive: Drive) -> None:
    told = drive("""
        const nameless = all("button, select, input, canvas, [role=region]").filter((node) =>
          !(node.getAttribute("aria-label") || node.textContent.trim() || node.closest("label")));
        tell({ nameless: nameless.map((node) => node.outerHTML) });
        const canvas = document.querySelector("#pane-first canvas");
        tell({ before: texts("#timeline-note")[0] });
        canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "+" }));
        tell({ after: texts("#timeline-note")[0] });
    """)
    assert told["nameless"] == []
    assert told["before"] != told["after"]
    assert {"from", "to"} <= set(told["address"])


def test_runs_with_different_seeds_are_one_policy(drive: Drive) -> None:
    runs = [
        changed(each, settings=each.settings | {"seed": seed})
        for seed in range(3)
        for each in make_results(2, n_jobs=12, n_rounds=800, cluster="v100:8", seed=seed, decide_every=50)
    ]
    script = """tell({
        names: texts("#comparison tbody th"), average: texts("#comparison tbody td:nth-child(2)"),
        keys: texts(".key"), runs: texts("#jobs-run option"), curves: all("#chart-queue .curve").length,
    });"""
    told = drive(script, runs)
    assert told["names"] == told["keys"] == ["fifo", "isolated"]
    assert told["runs"] == [f"{name}, seed {seed}" for seed in range(3) for name in ("fifo", "isolated")]
    assert told["curves"] == 6
    values = [figures(run, "average_jct") for run in runs[::2]]
    half = 4.302653 * np.std(values, ddof=1) / np.sqrt(3)  # Student's t with two degrees of freedom
    mean, shown = told["average"][0].removesuffix(" (best)").split(" ±")
    assert float(mean) == pytest.approx(np.mean(values), rel=1e-3)
    assert float(shown) == pytest.approx(half, abs=0.06)


def large_run() -> SimulationResult:
    """Some jobs on more GPUs than there is room for rows."""
    made = make_result(n_jobs=30, n_rounds=200, cluster="v100:600,p100:320")
    return changed(made, cluster=Cluster(made.cluster.gpus, {"v100": 8, "p100": 4}))


def test_types_of_a_large_cluster_are_bands_until_they_are_opened(drive: Drive) -> None:
    script = """
        const pool = document.getElementById("timeline-pool");
        const canvas = document.querySelector("#pane-first canvas");
        tell({ tall: canvas.clientHeight, note: texts("#timeline-note")[0] });
        tell({ types: [...pool.options].map((option) => option.value) });
        pool.value = "p100";
        pool.dispatchEvent(new Event("change"));
        tell({ opened: canvas.clientHeight, after: texts("#timeline-note")[0], hidden: pool.parentElement.hidden });
    """
    told = drive(script, [large_run()], second="none")
    assert told["types"] == ["", "v100", "p100"]
    assert not told["hidden"]
    assert told["tall"] < 200
    assert "Each band is an accelerator type" in told["note"]
    assert told["opened"] - told["tall"] == 2 * 320
    assert "Each band" not in told["after"]
    assert told["address"]["open"] == ["p100"]


def test_a_click_on_a_band_opens_the_type_and_another_closes_it(drive: Drive) -> None:
    script = """
        const canvas = document.querySelector("#pane-first canvas");
        const box = canvas.getBoundingClientRect();
        const press = (kind) => canvas.dispatchEvent(new PointerEvent(kind, {
            clientX: box.left + 10, clientY: box.top + 26 + 5, pointerId: 1, pointerType: "mouse", bubbles: true,
        }));
        canvas.setPointerCapture = () => {};
        const tall = () => canvas.clientHeight;
        const before = tall();
        press("pointerdown"); press("pointerup");
        const opened = tall();
        tell({ pool: document.getElementById("timeline-pool").value });
        press("pointerdown"); press("pointerup");
        tell({ grown: opened - before, back: tall() - before });
    """
    told = drive(script, [large_run()], second="none")
    assert (told["pool"], told["grown"], told["back"]) == ("v100", 600, 0)
    assert "open" not in told["address"]


def test_a_cluster_whose_gpus_fit_has_no_bands_to_open(drive: Drive) -> None:
    told = drive("""tell({
        hidden: document.getElementById("timeline-pool").parentElement.hidden,
        note: texts("#timeline-note")[0],
    });""")
    assert told["hidden"]
    assert "Each band" not in told["note"]


def test_jobs_are_found_by_their_partition(drive: Drive) -> None:
    result = make_result(n_jobs=12, n_rounds=60, cluster="v100:8")
    jobs = result.jobs.assign(partition=["red", "blue", "red-hot"] * 4)
    told = drive('tell({ count: texts("#jobs-count")[0] });', [changed(result, jobs=jobs)], search="partition:red-h")
    assert told["count"].startswith("4 of 12")
