"""A real Slurm cluster on this machine: munged, slurmctld and one slurmd a virtual node, with GPUs that are names.

All of it lives under one folder and on free ports; nothing of the system's own Slurm is touched.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel", "sinfo", "srun")
"""What Debian's packages slurmctld, slurmd, slurm-client and munge bring."""

LIMIT = 120.0
"""Seconds after which waiting fails; on a loaded machine everything takes a multiple of what it does alone."""

SETTINGS = """\
ClusterName=virtual
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={root}/munge.socket
CredType=cred/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0,sched_min_interval=0
ReturnToService=2
KillWait=5
MinJobAge=600
SlurmdTimeout={patience}
InactiveLimit=0
GresTypes=gpu
{nodes}
PartitionName=gpus Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing_programs():
    """Which of Slurm's programs are not installed."""
    return [program for program in PROGRAMS if shutil.which(program, path=_path()) is None]


def wait_until(holds, what, seconds=LIMIT, pause=0.02):
    """Wait for a condition; the seconds that it took."""
    begun = time.monotonic()
    while not holds():
        assert time.monotonic() - begun < seconds, f"{what}: not within {seconds:.0f} s"
        time.sleep(pause)
    return time.monotonic() - begun


class VirtualCluster:
    """Nodes by name, each with GPUs of one type: {"v1": ("v100", 2)}."""

    def __init__(self, root, nodes):
        self.root, self.nodes = root, dict(nodes)
        self.configuration = root / "slurm.conf"
        self.environment = os.environ | {"SLURM_CONF": str(self.configuration), "PATH": _path()}
        self._processes = {}

    def begin(self):
        """Write the configuration and start everything."""
        self._write()
        key = self.root / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self._spawn(
            "munged",
            "--foreground",
            "--force",
            *(f"--{option}={self.root}/munge.{end}" for option, end in _MUNGE_FILES.items()),
        )
        wait_until((self.root / "munge.socket").exists, "munged listens")
        self.start_controller()
        for node in self.nodes:
            self.start_node(node)
        wait_until(lambda: self.run("sinfo", "-h", "-o", "%T").split() == ["idle"], "all nodes are idle")

    def mend(self):
        """Start again what a test has killed or drained."""
        if "slurmctld" not in self._processes:
            self.start_controller()
        for node in self.nodes:
            if node not in self._processes:
                self.start_node(node)
            self.resume(node)
        wait_until(lambda: self.run("sinfo", "-h", "-o", "%T").split() == ["idle"], "all nodes are idle")

    def update(self, *words):
        """Change a node or a job, as soon as Slurm takes it: in states between two others it refuses to."""
        refusals = [""]

        def taken():
            done = self._done("scontrol", "update", *words)
            refusals.append(done.stderr.strip())
            return done.returncode == 0

        try:
            wait_until(taken, f"scontrol update {' '.join(words)}", pause=0.2)
        except AssertionError as error:
            raise AssertionError(f"{error}: {refusals[-1]}") from None

    def resume(self, node):
        """Take a node into use again, and wait until it is.

        One that was down comes back by itself when its slurmd registers, and from then on Slurm refuses to resume it:
        "Invalid node state specified".
        """

        def in_use():
            if self.run("sinfo", "-h", "-n", node, "-o", "%T").strip() in ("idle", "mixed", "allocated"):
                return True
            self.run("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)
            return False

        wait_until(in_use, f"node {node} is in use", pause=0.2)

    def clear(self):
        """No job is left."""
        if "slurmctld" not in self._processes:
            self.start_controller()
        self.run("scancel", f"--user={_user_name()}", "--signal=KILL", "--full", check=False)
        self.run("scancel", f"--user={_user_name()}", check=False)
        for pid in self._left_over():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not self.run("squeue", "-h").strip(), "the queue is empty")

    def end(self):
        """Stop everything, jobs included."""
        for name in [*self.nodes, "slurmctld", "munged"]:
            self.kill(name, signal.SIGTERM)
        for pid in self._left_over():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def start_controller(self, *, register=True):
        """Start slurmctld; without `register` it knows for some seconds nothing of its nodes but what it had saved."""
        self._spawn("slurmctld", "-D")
        wait_until(lambda: "is UP" in self.run("scontrol", "ping", check=False), "slurmctld answers")
        if register and self.nodes.keys() & self._processes.keys():
            self.run("scontrol", "reconfigure")
            wait_until(lambda: "unknown" not in self.run("sinfo", "-h", "-o", "%T"), "the nodes have registered")

    def start_node(self, node):
        (self.root / "spool" / node).mkdir(parents=True, exist_ok=True)
        self._spawn(node, "-D", "-N", node, program="slurmd")

    def kill(self, name, number=signal.SIGKILL):
        """Kill slurmctld, munged, or the slurmd of a node; its jobs live on."""
        process = self._processes.pop(name, None)
        if process is not None:
            process.send_signal(number)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def run(self, *command, check=True):
        """What a command of Slurm's prints."""
        done = self._done(*command)
        assert done.returncode == 0 or not check, done.stderr
        return done.stdout

    def _done(self, *command):
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=LIMIT, check=False)

    def _spawn(self, name, *options, program=""):
        with (self.root / f"{name}.out").open("ab") as output:
            self._processes[name] = subprocess.Popen(
                [program or name, *options], env=self.environment, stdout=output, stderr=output, start_new_session=True
            )

    def _write(self):
        controller, *ports = _free_ports(1 + len(self.nodes))
        devices = self.root / "devices"
        for folder in (devices, self.root / "state"):
            folder.mkdir(parents=True)
        nodes, gpus = [], ["AutoDetect=off"]
        for (node, (kind, count)), port in zip(self.nodes.items(), ports, strict=True):
            nodes.append(
                f"NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} "
                f"CPUs=16 RealMemory=64000 Gres=gpu:{kind}:{count} Feature={kind}"
            )
            for gpu in range(count):
                # Slurm sets CUDA_VISIBLE_DEVICES only for character devices.
                (devices / f"{node}_{gpu}").symlink_to(os.devnull)
            gpus.append(f"NodeName={node} Name=gpu Type={kind} File={devices}/{node}_[0-{count - 1}]")
        user = _user_name()
        self.configuration.write_text(
            SETTINGS.format(root=self.root, port=controller, user=user, nodes="\n".join(nodes), patience=8)
        )
        (self.root / "gres.conf").write_text("\n".join(gpus) + "\n")
        (self.root / "cgroup.conf").write_text("CgroupPlugin=autodetect\n")

    def _left_over(self):
        """Processes of jobs and those that watch them, which outlive a slurmd that was killed."""
        mark = f"SLURM_CONF={self.configuration}".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                variables = (folder / "environ").read_bytes().split(b"\0")
                watches = (folder / "cmdline").read_bytes().startswith(b"slurmstepd")
                if mark in variables and (watches or any(one.startswith(b"SLURM_JOB_ID=") for one in variables)):
                    found.append(int(folder.name))
        return found


_MUNGE_FILES = {
    "socket": "socket",
    "key-file": "key",
    "log-file": "log",
    "pid-file": "pid",
    "seed-file": "seed",
}


def _path():
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def _user_name():
    return subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()


def _free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
