"""The page of a comparison: it needs nothing else, is whole whatever is given, and embeds what the tables say."""

import base64
import gzip
import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allocator.report import render_report, write_report
from allocator.report.charts import date_ticks, ecdf
from allocator.report.page import payload as payload_module
from allocator.report.page.payload import course
from allocator.results.result import SimulationResult
from tests.report.synthetic import changed, make_result, payload_of
from throughputs.shown import visible

Results = list[SimulationResult]
VOID = {"meta", "input", "br", "link", "img", "hr", "wbr"}


class Page(HTMLParser):
    """Collects elements, checks that they nest, and keeps the text of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["script"]:
            self.scripts.append(data)
        elif self.open[-1:] != ["style"]:
            self.words.append(data)

    def data(self) -> dict[str, Any]:
        """The payload, with that of each run put back in its place."""
        found: dict[str, Any] = json.loads(self.scripts[0])
        for run, own in zip(found["runs"], self.scripts[1:-1], strict=True):
            run |= json.loads(own)
        return found


def test_the_file_needs_nothing_else_and_is_accessible(results: Results, tmp_path: Path) -> None:
    text = write_report(results, tmp_path / "new" / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert not re.search(r"https?://|@import|url\(|//cdn", text)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", text)
    assert not any(tag in ("link", "img", "iframe") for tag, _ in page.elements)
    assert not any(name in attributes for _, attributes in page.elements for name in ("src", "href", "srcset"))
    policy = next(a["content"] for _, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert [tag for tag, _ in page.elements].count("h1") == 1
    charts = [a for tag, a in page.elements if tag == "svg" and a.get("role") == "img"]
    ids = {a["id"] for _, a in page.elements if "id" in a}
    assert len(charts) == 4
    assert all(set((chart["aria-labelledby"] or "").split()) <= ids for chart in charts)
    assert all(a.get("scope") in ("col", "row") for tag, a in page.elements if tag == "th")
    assert all(a.get("aria-label") for tag, a in page.elements if tag == "canvas")


def test_every_policy_has_its_row_curves_and_values(results: Results) -> None:
    text = render_report(results, title="A title", description="What was run.")
    page = Page(text)
    assert all(words in " ".join(page.words) for words in ("A title", "What was run."))
    averages = [result.summary()["average_jct"] / 3600 for result in results]
    for position, result in enumerate(results):
        assert page.words.count(result.policy) >= 4  # legend, table, two selectors
        curves = [a for tag, a in page.elements if tag == "path" and a.get("data-policy") == str(position)]
        assert len(curves) == 6  # two distributions on two scales, the queue and the utilisation
        assert len({(curve["class"]) for curve in curves}) == 1
        value = averages[position]
        assert f'data-value="{value:.9g}"' in text
        assert (f'<td class="best" data-value="{value:.9g}">' in text) == (value == min(averages))
    for run, result in zip(page.data()["runs"], results, strict=True):
        jct = result.jobs["jct"].dropna().sort_values()
        assert run["jctValues"] == {"count": len(jct), "values": jct.round().astype(int).tolist()}
        np.testing.assert_allclose(run["rhoValues"]["values"], result.jobs["rho"].dropna().sort_values(), atol=5e-5)
        assert run["jobs"] == len(result.jobs)


def test_distributions_step_at_each_value_up_to_the_part_that_completed(results: Results) -> None:
    values, fraction = ecdf(np.array([3.0, np.nan, 1.0, 3.0]), 5)
    assert (values.tolist(), fraction.tolist()) == ([1.0, 3.0], [0.2, 0.6])
    jobs = results[0].jobs
    cut = changed(results[0], jobs=jobs.assign(jct=jobs["jct"].where(jobs.index < 7)))
    curve = re.search(r'<path d="([^"]*)" class="curve c0" data-policy="0">', render_report([cut]))
    assert curve is not None
    last = float(re.findall(r"V([\d.]+)", curve[1])[-1])
    assert last == pytest.approx(294 + (12 - 294) * 0.5, abs=0.06)  # between the axes of the chart's frame


def decode(run: dict[str, Any]) -> set[tuple[int, int, int]]:
    """(gpu, job, position of the round) of every bar, as the script of the page reads them."""
    found = set()
    for gpu, flat in enumerate(run["bars"]):
        first = 0
        for since, length, job in np.reshape(flat, (-1, 3)).tolist():
            first += since
            found |= {(gpu, job, number) for number in range(first, first + length)}
    return found


def test_embedded_bars_are_the_rounds(results: Results) -> None:
    for run, result in zip(payload_of(results)["runs"], results, strict=True):
        rounds = result.rounds
        numbers = {number: at for at, number in enumerate(sorted(rounds["round"].unique().tolist()))}
        assert run["until"] is None
        assert decode(run) == {
            (int(gpu), job, numbers[number])
            for number, job, gpus in rounds[["round", "job_id", "gpus"]].itertuples(index=False)
            for gpu in gpus
        }
        assert run["roundStart"] == rounds.groupby("round")["start_time"].min().round().tolist()
        bin_seconds = run["busyUntil"] / len(run["busy"][0])
        assert np.sum(run["busy"]) * bin_seconds == pytest.approx(result.jobs["gpu_seconds"].sum(), rel=0.01)


def test_too_much_is_cut_at_one_time_and_thinned(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = payload_of(results)["runs"][-1]
    limit = whole["barCount"] // 2
    monkeypatch.setattr(payload_module, "BARS_PER_RUN", limit)
    monkeypatch.setattr(payload_module, "DECISIONS_PER_RUN", 5)
    cut = payload_of(results)["runs"][-1]
    assert 0 < sum(len(flat) // 3 for flat in cut["bars"]) <= limit < whole["barCount"] == cut["barCount"]
    before = {at for at, start in enumerate(cut["roundStart"]) if start < cut["until"]}
    assert decode(cut) <= decode(whole)
    shown, all_of_it = ({bar for bar in decode(run) if bar[2] in before} for run in (cut, whole))
    assert shown == all_of_it
    assert cut["busy"] == whole["busy"]
    numbers = [row["number"] for row in cut["decisions"]]
    assert (len(numbers), numbers[0], numbers[-1]) == (5, 1, cut["decisionCount"])
    monkeypatch.setattr(payload_module, "TOTAL_BARS", limit)
    runs = payload_of(results)["runs"]
    assert sum(len(flat) // 3 for run in runs for flat in run["bars"]) <= limit < sum(run["barCount"] for run in runs)


def test_embedded_decisions(results: Results) -> None:
    result, run = results[-1], payload_of(results)["runs"][-1]
    assert run["decisionCount"] == len(result.decisions) > 5
    for row in run["decisions"]:
        number, clock, allocation = result.decisions[row["number"] - 1]
        assert (row["round"], row["clock"], row["status"]) == (number, pytest.approx(clock, abs=0.5), allocation.status)
        assert row["jobs"] == list(allocation.throughputs.jobs)
        shares = np.reshape(row["shares"], allocation.shares.shape) / 1000
        np.testing.assert_allclose(shares, allocation.shares, atol=5e-4)
        np.testing.assert_allclose(row["prices"], allocation.prices, rtol=1e-4, atol=1e-9)


def test_policies_on_one_trace_share_its_table(results: Results) -> None:
    data = payload_of([*results, make_result("other", n_jobs=5, seed=9)])
    assert [run["trace"] for run in data["runs"]] == [0, 0, 0, 1]
    types = data["traces"][0]
    assert [types["types"][k] for k in types["type"]] == results[0].jobs["job_type"].tolist()


def test_a_course_is_exact_while_changes_are_few_and_keeps_its_mean_otherwise() -> None:
    two = np.full(2, 2.0)
    apart = course(np.array([0.0, 900.0]), np.array([300.0, 1200.0]), two, 2)
    assert apart == {"time": [0, 300, 900, 1200], "value": [2, 0, 2]}
    n = 5000
    start, end = np.arange(n) * 360.0, np.arange(1, n + 1) * 360.0
    queued = np.repeat([3.0, 0.0, 7.0], [1000, 3000, 1000])
    assert course(start, end, queued, 2) == {"time": [0, 360_000, 1_440_000, 1_800_000], "value": [3, 0, 7]}
    queued = np.append(np.random.default_rng(0).integers(0, 50, n - 1000), np.zeros(1000))
    thinned = course(start, end, queued, 2)
    assert len(thinned["value"]) == payload_module.COURSE_POINTS + 1 == len(thinned["time"]) - 1
    mean = np.average(thinned["value"], weights=np.diff(thinned["time"]))
    assert mean == pytest.approx(queued.mean(), rel=1e-3)


NASTY = '</script><script>alert("x")</script> & <b>\u2028'


def test_labels_are_escaped_everywhere() -> None:
    result = make_result(NASTY, n_jobs=4, hours=1, job_types=[NASTY])
    result = changed(result, settings={NASTY: NASTY, "trace": NASTY, "nested": {"a": NASTY}})
    text = render_report([result], title=NASTY, description=NASTY)
    page = Page(text)
    assert len(page.scripts) == 3
    assert "<b>" not in text
    assert "alert(" not in page.scripts[-1]
    data = page.data()
    assert data["traces"][0]["types"] == [visible(NASTY)]
    assert data["runs"][0]["name"] == visible(NASTY)


def without_runs(plain: SimulationResult, **changes: Any) -> Results:
    return [changed(plain, rounds=plain.rounds.iloc[:0], timeline=plain.timeline.iloc[:0], decisions=(), **changes)]


def never(plain: SimulationResult) -> dict[str, Any]:
    jobs = plain.jobs.assign(completion_time=np.nan, jct=np.nan, rho=np.nan)
    return {"jobs": jobs, "makespan": float("nan")}


def unpriced(plain: SimulationResult) -> Results:
    blank = replace(plain.decisions[-1][2], prices=None, objective=np.nan, unserved=("a", "b"))
    return [changed(plain, decisions=((0, 0.0, blank),))]


EDGES: dict[str, Callable[[SimulationResult], Results]] = {
    "no results": lambda _: [],
    "nothing completed": lambda plain: [changed(plain, utilization=float("nan"), **never(plain))],
    "nothing ran": lambda plain: without_runs(plain, **never(plain)),
    "no jobs": lambda plain: without_runs(plain, jobs=plain.jobs.iloc[:0]),
    "no placement": lambda plain: [changed(plain, rounds=plain.rounds.assign(gpus=""))],
    "no prices": unpriced,
    "no settings": lambda plain: [changed(plain, settings={}, decisions=())],
    "eleven policies": lambda plain: [changed(plain, policy=str(k), label=str(k)) for k in range(11)],
    "many types": lambda plain: [changed(plain, cluster=type(plain.cluster).of("v1:8,v2:8,v3:16"))],
}


@pytest.mark.parametrize("case", EDGES)
def test_edge_cases_give_a_valid_page(case: str) -> None:
    given = EDGES[case](make_result(n_jobs=4, hours=1))
    text = render_report(given)
    page = Page(text)
    assert len(page.data()["runs"]) == len(given)
    assert "nan" not in re.findall(r"\w+", " ".join(page.words))
    assert not any("nan" in (a.get("d") or "") for tag, a in page.elements if tag == "path")
    assert case != "many types" or "v1:8, v2:8, v3:16 (32 GPUs)" in text


def test_large_parts_are_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    payload = payload_of([make_result()])
    plain = payload_module.script_elements(payload)
    monkeypatch.setattr(payload_module, "PACKED", 0)
    packed = payload_module.script_elements(payload)
    texts = re.findall(r'<script type="application/gzip" id="[^"]*">(.*?)</script>', packed)
    unpacked = [gzip.decompress(base64.b64decode(text)).decode() for text in texts]
    assert unpacked == re.findall(r'<script type="application/json" id="[^"]*">(.*?)</script>', plain)


def test_dates_stand_at_round_times() -> None:
    noon = datetime(2025, 3, 24, 12, tzinfo=UTC).timestamp()
    assert date_ticks(noon + 1800, 2.0) == [(0.5, "03-24 13:00"), (1.5, "03-24 14:00")]
    assert date_ticks(noon, 240.0)[:2] == [(12.0, "03-25"), (36.0, "03-26")]
