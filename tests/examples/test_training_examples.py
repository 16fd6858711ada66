"""The training scripts of docs/examples/leases: ended by their lease they go on, and end where an unbroken run does.

PyTorch and transformers are an extra: without them their tests are skipped, but not in `make test-examples`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from tests.lease.jobs import ROOT, Job, wait_until

EXAMPLES = ROOT / "docs" / "examples" / "leases"
EXPECTED = os.environ.get("ALLOCATOR_EXPECT_EXAMPLES", "0") not in ("", "0")


def needs(package):
    """Skip where an extra is not installed, unless it is to be."""
    absent = find_spec(package) is None and not EXPECTED
    return pytest.mark.skipif(absent, reason=f"{package} is not installed: make test-examples")


@pytest.fixture
def job(tmp_path):
    folder = tmp_path / "job"
    folder.mkdir()
    return Job(folder)


def launch(processes):
    """The start of a command line that runs a script on so many processes."""
    return [] if processes == 1 else ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]


def run_alone(command):
    """Outside the scheduler."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("ALLOCATOR_")}
    variables |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *map(str, command)], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_until(job, command, steps, how="lease"):
    """Start it, end its lease when it has reported so many steps, and see what it leaves.

    Its steps take so long that it is not through before, even where other programs keep this one waiting.
    """
    process = job.start(command)
    wait_until(lambda: job.reported(steps=steps), process)
    if how == "lease":
        job.write(ends=True)
    else:
        process.terminate()
    assert process.wait(300) == 0, process.communicate()[0]
    output = process.communicate()[0]
    report = job.report
    assert report.state == "ending", output
    assert report.steps == report.saved_steps == job.checkpoints.latest().steps >= steps
    return output


def run_through(job, command):
    """Start the next epoch, which completes."""
    began_at = job.report.saved_steps
    job.next_epoch()
    process = job.start(command)
    assert process.wait(300) == 0, process.communicate()[0]
    assert job.report.state == "done"
    assert job.report.epoch == job.grant.epoch
    assert job.report.steps - job.report.trained_steps == began_at + 1
    return process.communicate()[0]


@pytest.mark.exhaustive
@pytest.mark.parametrize("how", ["lease", "signal"])
def test_numpy(job, tmp_path, how):
    command = [EXAMPLES / "numpy_trainer.py", "--steps", 200]
    assert run_alone([*command, "--out", tmp_path / "whole.npy"]).startswith("200 steps, error 0.00")
    broken = [*command, "--out", tmp_path / "broken.npy"]
    run_until(job, [*broken, "--step-seconds", 0.05], 20, how)
    assert not (tmp_path / "broken.npy").exists()
    run_through(job, broken)
    np.testing.assert_array_equal(np.load(tmp_path / "broken.npy"), np.load(tmp_path / "whole.npy"))


def weights(path):
    torch = pytest.importorskip("torch")
    return np.concatenate([each.numpy().ravel() for each in torch.load(path, weights_only=True).values()])


TORCH = [EXAMPLES / "torch_trainer.py", "--steps", 120]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Weights of a run in one process that nothing breaks."""
    path = tmp_path_factory.mktemp("whole") / "model.pt"
    run_alone([*TORCH, "--out", path])
    return weights(path)


@needs("torch")
@pytest.mark.parametrize(
    ("first", "then", "settings"),
    [
        (1, 1, ["--workers", 2]),
        (1, 2, []),
        (2, 1, ["--every-rank"]),
        (2, 2, []),
    ],
)
def test_torch_goes_on_with_another_number_of_processes(job, tmp_path, whole, first, then, settings):
    command = [*TORCH, "--out", tmp_path / "model.pt", *settings]
    output = run_until(job, [*launch(first), *command, "--step-seconds", 0.2], 5)
    # lines of several processes may run into each other
    said = re.findall(r"rank \d of \d: (\d+) steps", output)
    assert said == [str(job.report.steps)] * first
    files = {path.name for path in job.checkpoints.latest().folder.glob("state-*")}
    assert files == {f"state-{rank}.pt" for rank in range(first if "--every-rank" in settings else 1)}
    run_through(job, [*launch(then), *command])
    np.testing.assert_allclose(weights(tmp_path / "model.pt"), whole, rtol=0, atol=1e-4)


@needs("torch")
def test_torchrun_passes_sigterm_on_and_waits_for_the_checkpoint(job, tmp_path):
    command = [*launch(2), *TORCH, "--step-seconds", 0.2, "--out", tmp_path / "model.pt"]
    process = job.start(command)
    wait_until(lambda: job.reported(steps=5), process)
    process.terminate()
    output = process.communicate(timeout=300)[0]
    assert job.report.state == "ending", output
    assert job.report.saved_steps == job.report.steps
    assert process.returncode != 0, "torchrun tells of the signal that it got, whatever its workers do"
    assert job.checkpoints.latest().steps == job.report.steps


@needs("torch")
def test_a_rank_that_cannot_write_fails_all_and_commits_nothing(job, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import os, torch.distributed as d\n"
        "from allocator.lease import CheckpointError, Lease\n"
        "d.init_process_group('gloo')\n"
        "lease = Lease()\n"
        "lease.step()\n"
        "def save(folder):\n"
        "    (folder / os.environ['RANK']).touch()\n"
        "    if os.environ['RANK'] == '1': raise OSError(28, 'No space left on device')\n"
        "try:\n"
        "    lease.checkpoint(save, every_rank=True)\n"
        "except CheckpointError as error:\n"
        "    print('failed:', error, flush=True)\n"
        "d.destroy_process_group()\n"
    )
    process = job.start([*launch(2), script])
    output = process.communicate(timeout=300)[0]
    assert process.returncode == 0, output
    assert output.count("failed:") == 2  # lines of several ranks may run into each other
    assert "another rank failed" in output
    assert "No space left" in output
    assert os.listdir(job.folder / "checkpoint") == []


@needs("transformers")
@pytest.mark.parametrize("processes", [1, 2])
def test_transformers(job, tmp_path, processes):
    pytest.importorskip("torch")
    command = [*launch(processes), EXAMPLES / "transformers_trainer.py", "--steps", 40]
    broken = [*command, "--out", tmp_path / "broken"]
    run_until(job, [*broken, "--step-seconds", 0.4], 3)
    assert not (tmp_path / "broken" / "model.safetensors").exists()
    run_through(job, broken)
    assert (tmp_path / "broken" / "model.safetensors").exists()
    if processes == 1:
        run_alone([*command, "--out", tmp_path / "whole"])
        one, other = (weights_of_transformer(tmp_path / name) for name in ("whole", "broken"))
        assert one.keys() == other.keys()
        for name, values in one.items():
            np.testing.assert_allclose(values, other[name], rtol=0, atol=1e-5)


def weights_of_transformer(folder):
    return pytest.importorskip("safetensors.numpy").load_file(folder / "model.safetensors")
