"""A service that is started again goes on with what it was told before; what is given anew is changed."""

from __future__ import annotations

import json
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from allocator.cli.service.serve_options import ServeOptions, Told, WebOptions
from allocator.runtime.door.client import Client, NoServiceError
from allocator.runtime.records.journal import Journal
from tests.runtime.lives import leave, started
from tests.runtime.model_cluster import job, one_type, service_on
from tests.runtime.test_commands import PATIENCE, start
from throughputs import InputError

FIRST = Told.of_events(None, None)


def after(told, **said):
    """After another start, by way of the journal's JSON."""
    told = told.after(ServeOptions(**said), WebOptions())
    policy = {"name": told.policy, "settings": dict(told.policy_settings)}
    return Told.of_events(json.loads(json.dumps(told.options)), json.loads(json.dumps(policy)))


def test_what_is_not_said_stays():
    first = after(FIRST, virtual="v100:2", round_seconds=5.0, policy="max_min_fairness", early_dispatch=False)
    assert after(first) == first
    assert first.words() == ["--virtual v100:2", "--round 5", "--whole-rounds"]
    second = after(first, round_seconds=7.0, hang=60.0)
    assert list(second.changes(first)) == ["--round 5 -> 7", "--hang not given -> 60"]
    assert second.policy == "max_min_fairness"


def test_failures_of_an_older_start_are_retries_now():
    told = Told.of_events({"virtual": "v100:2", "max_failures": 3}, None)
    assert told.options == {"virtual": "v100:2", "retries": 2}
    assert after(told).words() == ["--virtual v100:2", "--retries 2"]
    assert list(after(told, retries=0).changes(told)) == ["--retries 2 -> 0"]


def test_settings_are_kept_by_name_and_another_policy_begins_with_its_own():
    said = ["policy.choice=published", "queue=global", "placement=buddy"]
    first = after(FIRST, policy="max_min_fairness", settings=said)
    second = after(first, settings=["queue=per_type"])
    assert second.settings == ["queue=per_type", "placement=buddy", "policy.choice=published"]
    assert list(second.changes(first)) == ["--set queue global -> per_type"]
    third = after(second, policy="fifo", settings=["policy.choice=balanced"])
    assert third.policy_settings == {"choice": "balanced"}
    assert after(third, policy="srtf").policy_settings == {}
    # the option of a setting takes its place
    assert after(after(FIRST, settings=["round_seconds=5"]), round_seconds=7.0).settings == []
    assert after(third, choice="published").policy_settings == {}


def test_paths_are_found_again_from_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = FIRST.after(ServeOptions(throughputs=Path("table.csv")), WebOptions(web="unix:web", token_file=Path("t")))
    assert told.path("throughputs") == tmp_path / "table.csv"
    assert told.options["web"] == f"unix:{tmp_path}/web"
    assert told.path("token_file") == tmp_path / "t"
    with pytest.raises(InputError, match=r"--throughputs: found .*, expected a file that exists; one of an"):
        told.check_files()
    (tmp_path / "table.csv").touch()
    told.check_files()


def test_another_kind_of_cluster_begins_without_the_options_of_the_one_before():
    local = after(FIRST, virtual="v100:2", grace=5.0)
    slurm = after(local, adapter="slurm", partition="gpu")
    assert slurm.words() == ["--grace 5", "--adapter slurm", "--partition gpu"]
    for told, wrong in ((local, {"partition": "gpu"}), (slurm, {"virtual": "v100:1"})):
        with pytest.raises(InputError, match="expected nothing with --adapter"):
            after(told, **wrong)


async def test_jobs_that_run_are_not_left_for_another_kind_of_cluster(tmp_path):

    cluster = one_type()
    service = await started(tmp_path, cluster, job(60.0))
    await leave(service)
    cluster.name = "other"
    with pytest.raises(InputError, match=r"found 'other, while jobs hold GPUs of model \(1 in the journal\)'"):
        await service_on(tmp_path, cluster)
    assert len(cluster.running()) == 1


def served(state, *options):
    """What a service prints that is started and stopped."""
    with start("serve", "--state", str(state), *options) as service:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and service.poll() is None:
            with suppress(NoServiceError):
                Client(state).ask("status", jobs=[])
                break
            time.sleep(0.05)
        service.send_signal(signal.SIGTERM)
        output, errors = service.communicate(timeout=PATIENCE)
    assert "Traceback" not in errors
    return output + errors


def test_a_start_without_options_goes_on_with_the_last_ones(tmp_path):
    state = tmp_path / "state"
    served(
        state, "--virtual", "v100:2", "--round", "5", "--policy", "max_min_fairness", "--web", f"unix:{tmp_path}/web"
    )
    again = served(state)
    lines = again.splitlines()
    assert lines[0].startswith(f"Serving v100:2 from {state} (local) under max_min_fairness, in rounds of 5 s; ")
    options = f"--virtual v100:2 --round 5 --web unix:{tmp_path}/web"
    assert lines[1] == f"Options, also of later starts on this state: {options}"
    assert lines[2] == f"Page, metrics and requests at unix:{tmp_path}/web"
    assert "Changed" not in again
    changed = served(state, "--round", "8", "--policy", "srtf")
    assert "Changed since the last start: --round 5 -> 8; --policy max_min_fairness -> srtf\n" in changed
    assert "found 'policy.nothing'" in served(state, "--set", "policy.nothing=1")
    assert "under fifo_perf" in served(state, "--defaults", "--virtual", "k80:1")
    journal = Journal(state)
    told = [(e.kind, dict(e.data or {})) for e in journal.events() if e.kind in ("options", "policy")]
    journal.close()
    assert [kind for kind, _ in told] == ["options", "policy", "options", "policy", "options", "policy"]
    assert told[2][1]["round_seconds"] == 8.0
    assert told[-2:] == [("options", {"virtual": "k80:1"}), ("policy", {"name": "fifo_perf", "settings": {}})]
