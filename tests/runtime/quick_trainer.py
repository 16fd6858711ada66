"""A trainer that starts in a few milliseconds: ``quick_trainer.py STEPS SECONDS_PER_STEP RESULT [GATE]``.

It follows the rules of leases by hand, without an import that takes time. Steps are appended to RESULT one line each,
with the epoch; a lock tells whether two of them ever ran at once. Its last step waits for the file GATE to be there.
"""

import fcntl
import json
import os
import sys
import time

steps, seconds, result = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
gate = sys.argv[4] if len(sys.argv) > 4 else "/"
job, epoch = os.environ["ALLOCATOR_JOB_ID"], int(os.environ["ALLOCATOR_LEASE_EPOCH"])
saved = os.environ["ALLOCATOR_CHECKPOINT_DIR"] + "/steps"
folder = os.path.dirname(os.environ["ALLOCATOR_CHECKPOINT_DIR"])
lock = open(result + ".lock", "w")  # noqa: SIM115 - held as long as we run
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    with open(result, "a") as file:
        file.write(f"twice {epoch}\n")
    sys.exit(3)
try:
    with open(saved) as file:
        done = int(file.read())
except OSError:
    done = 0


def replace(path: str, text: str) -> None:
    with open(path + ".new", "w") as file:
        file.write(text)
    os.replace(path + ".new", path)


def report(state: str, kept: int) -> None:
    told = {"job": job, "epoch": epoch, "state": state, "steps": done, "saved_steps": kept, "trained_steps": done}
    replace(folder + "/report.json", json.dumps(told | {"trained_seconds": done * seconds, "at": time.time()}))


kept = done
report("training", kept)
while done < steps:
    time.sleep(seconds)
    with open(folder + "/lease.json") as file:
        lease = json.load(file)
    if lease["epoch"] != epoch:
        sys.exit(4)
    if done + 1 == steps and not lease["ends"] and not os.path.exists(gate):
        continue
    done += 1
    with open(result, "a") as file:
        file.write(f"step {done} {epoch}\n")
    replace(saved, str(done))
    kept = done
    if lease["ends"] and done < steps:
        report("ending", kept)
        sys.exit(0)
    report("training", kept)
report("done", kept)
