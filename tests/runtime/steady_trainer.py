"""A trainer of known speed by a clock of its own: ``steady_trainer.py v100=40,k80=10``.

It reports steps, and the seconds that they would take at the steps/s of the accelerator type that its lease names. How
long they do take is a matter of the machine, and changes nothing of its reports.
"""

import json
import os
import sys
import time

job, epoch = os.environ["ALLOCATOR_JOB_ID"], int(os.environ["ALLOCATOR_LEASE_EPOCH"])
folder = os.path.dirname(os.environ["ALLOCATOR_CHECKPOINT_DIR"])
rates = dict(part.split("=") for part in sys.argv[1].split(","))


def lease() -> dict[str, object]:
    with open(folder + "/lease.json") as file:
        told: dict[str, object] = json.load(file)
    return told


rate = float(rates[str(lease()["accelerator"])])
done = 0
while not lease()["ends"]:
    time.sleep(0.005)
    done += 1
    report = {"job": job, "epoch": epoch, "state": "training", "steps": done}
    with open(folder + "/report.json.new", "w") as file:
        json.dump(report | {"trained_steps": done, "trained_seconds": done / rate, "at": time.time()}, file)
    os.replace(folder + "/report.json.new", folder + "/report.json")
