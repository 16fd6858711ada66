import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from allocator.report import render_report, write_report
from allocator.report.charts import ecdf
from allocator.report.page import payload as payload_module
from allocator.report.page.payload import build_payload, fair_limit, queue_series
from allocator.results.result import SimulationResult
from tests.report.synthetic import POLICIES, changed, make_result, make_results
from throughputs.shown import visible

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
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["script"]:
            self.scripts.append(data)
        elif self.open[-1:] != ["style"]:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)

    def data(self) -> dict[str, Any]:
        """The payload, with that of each run put back in its place."""
        found: dict[str, Any] = json.loads(self.scripts[0])
        for run, own in zip(found["runs"], self.scripts[1:-1], strict=True):
            run |= json.loads(own)
        return found


def decode(policy: dict[str, Any]) -> set[tuple[int, int, int]]:
    """(gpu, job, position of the round) of every bar, as the script of the page reads them."""
    found = set()
    for gpu, flat in enumerate(policy["bars"]):
        first = 0
        for since, length, job in np.reshape(flat, (-1, 3)).tolist():
            first += since
            found |= {(gpu, job, number) for number in range(first, first + length)}
    return found


def test_the_file_needs_nothing_else(results: list[SimulationResult], tmp_path: Path) -> None:
    path = write_report(results, tmp_path / "new" / "report.html")
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert not re.search(r"https?://|@import|url\(|//cdn", text)
    assert not any(tag in ("link", "img", "iframe") for tag, _ in page.elements)
    assert not any(name in attributes for _, attributes in page.elements for name in ("src", "href", "srcset"))
    policy = next(a["content"] for _, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'")


def test_every_policy_has_its_row_and_curves(results: list[SimulationResult]) -> None:
    page = Page(render_report(results, title="A title", description="What was run."))
    assert "A title" in page.text
    assert "What was run." in page.text
    for position, result in enumerate(results):
        assert page.words.count(result.policy) >= 4  # legend, table, two selectors
        curves = [a for tag, a in page.elements if tag == "path" and a.get("data-policy") == str(position)]
        assert len(curves) == 6  # two distributions on two scales, the queue and the utilisation
        assert len({(curve["class"]) for curve in curves}) == 1


def test_table_marks_the_best_and_keeps_the_values(results: list[SimulationResult]) -> None:
    text = render_report(results)
    averages = [result.summary()["average_jct"] / 3600 for result in results]
    done = [result.summary()["completed_jobs"] for result in results]
    assert len(set(done)) == 1
    best = min(averages)
    assert f'<td class="best" data-value="{best:.9g}">' in text
    assert all(f'data-value="{value:.9g}"' in text for value in averages)
    assert f'<td class="best" data-value="{max(averages):.9g}">' not in text


def test_embedded_distributions_match_the_tables(results: list[SimulationResult]) -> None:
    data = Page(render_report(results)).data()
    for policy, result in zip(data["runs"], results, strict=True):
        completed = result.jobs["jct"].dropna().sort_values()
        assert policy["jctValues"] == {"count": len(completed), "values": completed.round().astype(int).tolist()}
        np.testing.assert_allclose(policy["rhoValues"]["values"], result.jobs["rho"].dropna().sort_values(), atol=5e-5)
        assert policy["jobs"] == len(result.jobs)


def test_ecdf_against_pandas(results: list[SimulationResult]) -> None:
    jct = results[0].jobs["jct"].copy()
    jct.iloc[:3] = np.nan
    jct.iloc[3:] = 1000.0 * np.arange(len(jct) - 3, 0, -1)
    jct.iloc[4] = jct.iloc[5]
    values, fraction = ecdf(jct.to_numpy(), len(jct))
    expected = (jct.rank(method="max") / len(jct)).groupby(jct).first()
    np.testing.assert_allclose(values, expected.index)
    np.testing.assert_allclose(fraction, expected)
    assert fraction[-1] == (len(jct) - 3) / len(jct)


def test_curve_ends_at_the_right_pixel() -> None:
    result = make_result(n_jobs=10, n_rounds=400, cluster="v100:8")
    text = render_report([result])
    curve = re.search(r'<path d="([^"]*)" class="curve c0" data-policy="0">', text)
    assert curve is not None
    completed = result.jobs["jct"].notna().mean()
    last = float(re.findall(r"V([\d.]+)", curve[1])[-1])
    assert last == pytest.approx(294 + (12 - 294) * completed, abs=0.06)  # between the axes of the chart's frame


def test_embedded_bars_are_the_rounds(results: list[SimulationResult]) -> None:
    for policy, result in zip(build_payload(results)["runs"], results, strict=True):
        numbers = {number: at for at, number in enumerate(sorted(result.rounds["round"].unique().tolist()))}
        expected = {
            (int(gpu), job, numbers[number])
            for number, job, gpus in result.rounds[["round", "job_id", "gpus"]].itertuples(index=False)
            for gpu in gpus.split()
        }
        assert policy["until"] is None
        assert decode(policy) == expected
        assert policy["roundStart"] == [number * 360 for number in numbers]


def test_too_many_bars_are_cut_at_one_time(results: list[SimulationResult], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = build_payload(results)["runs"][-1]
    limit = 200
    monkeypatch.setattr(payload_module, "BARS_PER_RUN", limit)
    cut = build_payload(results)["runs"][-1]
    count = sum(len(flat) // 3 for flat in cut["bars"])
    assert 0 < count <= limit < whole["barCount"] == cut["barCount"]
    assert decode(cut) <= decode(whole)
    rounds_before = {at for at, start in enumerate(cut["roundStart"]) if start < cut["until"]}
    assert {bar for bar in decode(whole) if bar[2] in rounds_before} == {
        bar for bar in decode(cut) if bar[2] in rounds_before
    }
    assert cut["busy"] == whole["busy"]


def test_busy_gpus_add_up_to_the_gpu_seconds(results: list[SimulationResult]) -> None:
    for policy, result in zip(build_payload(results)["runs"], results, strict=True):
        bin_seconds = policy["busyUntil"] / len(policy["busy"][0])
        assert np.sum(policy["busy"]) * bin_seconds == pytest.approx(result.jobs["gpu_seconds"].sum(), rel=0.01)


def test_embedded_decisions(results: list[SimulationResult]) -> None:
    result = results[-1]
    policy = build_payload(results)["runs"][-1]
    assert policy["decisionCount"] == len(result.decisions)
    for row in policy["decisions"]:
        number, clock, allocation = result.decisions[row["number"] - 1]
        assert (row["round"], row["clock"]) == (number, clock)
        assert row["jobs"] == list(allocation.throughputs.jobs)
        np.testing.assert_allclose(
            np.reshape(row["shares"], allocation.shares.shape) / 1000, allocation.shares, atol=5e-4
        )
        np.testing.assert_allclose(row["prices"], allocation.prices, rtol=1e-4)
        assert row["status"] == allocation.status


def test_nothing_waits_between_rounds_that_do_not_touch() -> None:
    timeline = pd.DataFrame({"start_time": [0.0, 900], "end_time": [300.0, 1200], "queued_jobs": [2, 2]})
    assert queue_series(timeline) == {"time": [0, 300, 900, 1200], "value": [2, 0, 2]}


def test_many_decisions_are_thinned_with_both_ends_kept(
    results: list[SimulationResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payload_module, "DECISIONS_PER_RUN", 5)
    policy = build_payload(results)["runs"][0]
    numbers = [row["number"] for row in policy["decisions"]]
    assert len(numbers) == 5
    assert (numbers[0], numbers[-1]) == (1, policy["decisionCount"])


def test_policies_on_one_trace_share_its_table(results: list[SimulationResult]) -> None:
    other = make_result("other", n_jobs=5, n_rounds=50, seed=9)
    data = build_payload([*results, other])
    assert [policy["trace"] for policy in data["runs"]] == [0, 0, 0, 1]
    types = data["traces"][0]
    assert [types["types"][k] for k in types["type"]] == results[0].jobs["job_type"].tolist()


def test_queue_is_exact_while_changes_are_few_and_keeps_its_mean_otherwise() -> None:
    n = 5000
    rng = np.random.default_rng(0)
    timeline = pd.DataFrame({"start_time": np.arange(n) * 360.0, "end_time": np.arange(1, n + 1) * 360.0})
    timeline["queued_jobs"] = np.repeat([3, 0, 7], [1000, 3000, 1000])
    assert queue_series(timeline) == {"time": [0, 360_000, 1_440_000, 1_800_000], "value": [3, 0, 7]}
    timeline["queued_jobs"] = np.append(rng.integers(0, 50, size=n - 1000), np.zeros(1000, dtype=np.int64))
    thinned = queue_series(timeline)
    assert len(thinned["value"]) == payload_module.QUEUE_POINTS + 1 == len(thinned["time"]) - 1
    assert np.average(thinned["value"], weights=np.diff(thinned["time"])) == pytest.approx(
        timeline["queued_jobs"].mean(), rel=1e-3
    )


NASTY = '</script><script>alert("x")</script> & <b>\u2028'


def test_a_cluster_of_many_types_may_be_broken_between_types() -> None:
    page = render_report([make_result("fifo", cluster="vcEwI:8,vcWoR:8,vcHvQ:16")])
    assert "vcEwI:8, vcWoR:8, vcHvQ:16 (32 GPUs)" in page


def test_labels_are_escaped_everywhere() -> None:
    result = make_result(NASTY, n_jobs=8, n_rounds=60, cluster="v100:8", job_types=[NASTY])
    result = changed(result, settings={NASTY: NASTY, "trace": NASTY, "nested": {"a": NASTY}})
    text = render_report([result], title=NASTY, description=NASTY)
    page = Page(text)
    assert len(page.scripts) == 3
    assert "<b>" not in text
    assert "alert(" not in page.scripts[-1]
    data = page.data()
    assert data["traces"][0]["types"] == [visible(NASTY)]
    assert data["runs"][0]["name"] == visible(NASTY)


def test_script_builds_no_markup_from_text() -> None:
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", render_report([]))


def without_runs(result: SimulationResult, **changes: Any) -> SimulationResult:
    return changed(result, rounds=result.rounds.iloc[:0], timeline=result.timeline.iloc[:0], decisions=(), **changes)


def edge_cases() -> dict[str, list[SimulationResult]]:
    plain = make_result(n_jobs=6, n_rounds=40, cluster="v100:4,k80:4")
    never = plain.jobs.assign(completion_time=np.nan, jct=np.nan, rho=np.nan)
    unplaced = plain.rounds.assign(gpus="")
    blank = replace(plain.decisions[-1][2], prices=None, objective=np.nan, unserved=("a", "b"))
    return {
        "no results": [],
        "one policy": [plain],
        "nothing completed": [changed(plain, jobs=never, makespan=float("nan"), utilization=float("nan"))],
        "nothing ran": [without_runs(plain, jobs=never, makespan=float("nan"))],
        "no jobs": [without_runs(plain, jobs=plain.jobs.iloc[:0])],
        "no decisions": [changed(plain, decisions=())],
        "no placement": [changed(plain, rounds=unplaced)],
        "no prices": [changed(plain, decisions=((0, 0.0, blank),))],
        "no settings": [changed(plain, settings={})],
        "eleven policies": make_results(11, n_jobs=4, n_rounds=20, cluster="v100:4"),
    }


@pytest.mark.parametrize("case", edge_cases())
def test_edge_cases_give_a_valid_page(case: str) -> None:
    given = edge_cases()[case]
    page = Page(render_report(given))
    assert len(page.data()["runs"]) == len(given)
    assert "nan" not in re.findall(r"\w+", page.text)
    assert not any("nan" in (a.get("d") or "") for tag, a in page.elements if tag == "path")


def test_page_is_accessible(results: list[SimulationResult]) -> None:
    page = Page(render_report(results))
    tags = [tag for tag, _ in page.elements]
    assert tags.count("h1") == 1
    charts = [a for tag, a in page.elements if tag == "svg" and a.get("role") == "img"]
    assert len(charts) == 4
    ids = {a["id"] for _, a in page.elements if "id" in a}
    for chart in charts:
        assert set((chart["aria-labelledby"] or "").split()) <= ids
    assert all(a.get("scope") in ("col", "row") for tag, a in page.elements if tag == "th")
    labels = [a for tag, a in page.elements if tag == "canvas"]
    assert all(a.get("aria-label") for a in labels)


def test_size_stays_bounded() -> None:
    results = [make_result(name, churn=1.0, decide_every=1) for name in POLICIES]
    assert sum(len(result.decisions) for result in results) > 5000
    text = render_report(results)
    assert len(text.encode()) < 5_000_000
    policies = build_payload(results)["runs"]
    shown = sum(len(flat) // 3 for policy in policies for flat in policy["bars"])
    assert shown <= payload_module.TOTAL_BARS < sum(policy["barCount"] for policy in policies)


@pytest.mark.parametrize("total", [0, 5, 11, 12, 40, 1000])
def test_fair_limit_is_the_largest_that_fits(total: int) -> None:
    counts = [3, 20, 0, 9, 4]
    limit = fair_limit(counts, total)
    assert sum(min(count, limit) for count in counts) <= total
    if total < sum(counts):
        assert sum(min(count, limit + 1) for count in counts) > total
