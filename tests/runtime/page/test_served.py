"""``allocator serve --web`` from the command line, with trainers that post their progress."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time

import pytest

from allocator.runtime.door.client import Client
from tests.runtime.page.clusters import PATIENCE, certificate

ALLOCATOR = (sys.executable, "-m", "allocator")

TRAINER = """
import json, os, ssl, sys, time, urllib.request
said = {name: os.environ[f"KUBEFLOW_TRAINER_{sys.argv[1]}_{name}"] for name in ("URL", "TOKEN", "CA_CERT")}
token = open(said["TOKEN"]).read().strip()
context = ssl.create_default_context(cafile=said["CA_CERT"])
for percentage in (25, 75):
    status = {"progressPercentage": percentage, "estimatedRemainingSeconds": 60, "lastUpdatedTime": "now"}
    asked = urllib.request.Request(
        said["URL"], json.dumps({"trainerStatus": status}).encode(), {"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(asked, context=context) as answer:
        assert answer.status == 200
time.sleep(600)
"""

CALLBACK = """
import time
from types import SimpleNamespace
from transformers.integrations.integration_utils import KubeflowCallback, get_available_reporting_integrations
assert "kubeflow" in get_available_reporting_integrations()
callback = KubeflowCallback()
state = SimpleNamespace(is_world_process_zero=True, max_steps=1000, global_step=0, epoch=0.0)
callback.on_train_begin(None, state, None)
callback._last_update_time = 0.0
state.global_step, state.epoch = 432, 0.432
callback.on_log(None, state, None, logs={"loss": 0.25})
callback.on_step_end(None, state, None)
time.sleep(600)
"""


@contextlib.contextmanager
def serving(folder):
    state = folder / "state"
    cert, key = certificate(folder)
    options = ["--virtual", "v100:2", "--policy", "fifo_perf", "--round", "5"]
    web = ["--web", "127.0.0.1:0", "--tls-cert", str(cert), "--tls-key", str(key)]
    service = subprocess.Popen([*ALLOCATOR, "serve", "--state", str(state), *options, *web])
    try:
        until(lambda: (state / "socket").exists())
        yield state
        ask(state, "cancel", jobs=list(range(len(steps(state)))))
        until(lambda: not ask(state, "status", active=True)["jobs"])
    finally:
        service.send_signal(signal.SIGINT)
        assert service.wait(PATIENCE) == 0


def until(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def ask(state, what, **fields):
    return Client(state).ask(what, **fields)


def submit(state, steps, *command):
    ask(state, "submit", jobs=[{"command": [sys.executable, "-c", *command], "total_steps": steps}])


def steps(state):
    return [job["steps"] for job in ask(state, "status")["jobs"]]


def test_trainers_post_in_either_spelling(tmp_path):
    with serving(tmp_path) as state:
        submit(state, 400, TRAINER, "SERVER")
        submit(state, 800, TRAINER, "STATUS")
        until(lambda: steps(state) == [300, 600])


def test_the_callback_of_transformers_reports(tmp_path):
    found = pytest.importorskip("transformers.integrations.integration_utils")
    if not hasattr(found, "KubeflowCallback"):
        pytest.skip("this version of transformers has no KubeflowCallback")
    with serving(tmp_path) as state:
        submit(state, 500, CALLBACK)
        until(lambda: steps(state) == [216])


def test_what_is_not_safe_is_not_served(tmp_path):
    command = [*ALLOCATOR, "serve", "--state", str(tmp_path / "state"), "--virtual", "v100:1", "--web", "127.0.0.1:0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--tls-cert FILE" in done.stderr
