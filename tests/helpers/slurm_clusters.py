"""Two clusters for tests: a real Slurm of one node, started for them where Slurm is installed, and the stand-in. To a
test they are the same: commands on PATH, what was called, and what can befall it.

    python tests/helpers/slurm_clusters.py      # a real one by hand, until Ctrl-C
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

COMMANDS = ("sbatch", "squeue", "sacct", "scontrol", "scancel")
MAX_TASKS = 3  # in an array
DAEMONS = ("munged", "slurmctld", "slurmd")
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
MaxArraySize={most}
JobRequeue=1
KillWait=2
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=node NodeHostname={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=1000 State=UNKNOWN
PartitionName=main Nodes=node Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=node MaxTime=INFINITE State=UP PriorityTier=10
"""


class Cluster(Protocol):
    env: dict[str, str]  # of whoever talks to it

    def calls(self, command: str) -> list[str]:
        """Each call of a command so far, with its arguments."""

    def tasks(self) -> dict[str, tuple[str, int]]:
        """Each task since it was cleared: its state, and how often it was put back in the queue."""

    def warn(self, task: str) -> None:
        """The warning before a task's time limit."""

    def preempt(self) -> None:
        """Something more urgent takes the place of all tasks, for a moment."""

    def lose_node(self) -> None:
        """The node is gone, and soon another is there."""

    def cut_off(self) -> contextlib.AbstractContextManager[None]:
        """The controller cannot be reached, for a while."""

    def clear(self) -> None:
        """End every task, and forget the calls."""


class _Wrapper:
    folder: Path
    env: dict[str, str]

    def calls(self, command: str) -> list[str]:
        path = self.folder / "calls.txt"
        lines = path.read_text().splitlines() if path.is_file() else []
        return [line for line in lines if line.split(" ")[0] == command]

    def put_commands(self, script_of: Callable[[str], str]) -> None:
        for name in COMMANDS:
            path = self.folder / "bin" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"#!/bin/sh\n{script_of(name)}\n")
            path.chmod(0o755)
        self.env = {"PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}

    def call(self, *words: str) -> str:
        env = {**os.environ, **self.env}
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=600, check=True)
        return done.stdout

    def tasks(self) -> dict[str, tuple[str, int]]:
        fields = ",".join(f"{field}:|" for field in ("ArrayJobID", "ArrayTaskID", "State", "RestartCnt"))
        lines = self.call("squeue", "--array", "--noheader", "--states=all", f"--Format={fields}").splitlines()
        said = [line.split("|")[:4] for line in lines]
        return {f"{a}_{task}": (state, int(restarts)) for a, task, state, restarts in said if task.isdigit()}

    def warn(self, task: str) -> None:
        self.call("scancel", "--signal=USR1", "--batch", task)


class StandIn(_Wrapper):
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = Path(__file__).with_name("slurm_stand_in.py")
        self.put_commands(lambda name: f'exec {sys.executable} -E -s -S {program} {folder} {name} "$@"')
        self.set(max_array=MAX_TASKS)

    def set(self, **settings: Any) -> None:
        path = self.folder / "settings.json"
        before = json.loads(path.read_text()) if path.is_file() else {}
        path.with_suffix(".new").write_text(json.dumps(before | settings))
        path.with_suffix(".new").rename(path)

    def fault(self, *words: str) -> None:
        program = Path(__file__).with_name("slurm_stand_in.py")
        subprocess.run([sys.executable, str(program), str(self.folder), "fault", *words], check=True)

    def preempt(self) -> None:
        self.fault("preempt")

    def lose_node(self) -> None:
        self.fault("lose-node")

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        self.set(away=True)
        yield
        self.set(away=False)

    def clear(self) -> None:
        self.set(kill_wait=0.0)
        for _ in range(2):
            self.call("scancel", *{name.partition("_")[0] for name in self.tasks()})


class Real(_Wrapper):
    """munged, slurmctld and slurmd in a folder of their own, as whoever runs the tests."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))  # short: a socket lies in it
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.earlier: set[str] = set()
        self.sbatch = shutil.which("sbatch") or ""  # not that of `bin`, whose calls are counted
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        host = socket.gethostname().partition(".")[0]
        user = self.call_plain("id", "-un")
        ports = [_free_port(), _free_port()]
        text = CONFIGURATION.format(host=host, user=user, folder=self.folder, ports=ports, most=MAX_TASKS)
        (self.folder / "slurm.conf").write_text(text)
        self.put_commands(lambda name: f'echo {name} "$@" >>{self.folder}/calls.txt\nexec {shutil.which(name)} "$@"')
        self.env["SLURM_CONF"] = str(self.folder / "slurm.conf")
        (self.folder / "munge.key").write_bytes(secrets.token_bytes(128))
        (self.folder / "munge.key").chmod(0o600)
        here = str(self.folder)
        names = {name: f"{here}/munge.{name}" for name in ("socket", "key", "pid", "log", "seed")}
        flags = [f"--{'socket' if name == 'socket' else name + '-file'}={p}" for name, p in names.items()]
        self.start("munged", "--foreground", "--force", *flags)
        wait_for(Path(names["socket"]).exists)
        self.start("slurmctld", "-D", "-f", self.env["SLURM_CONF"])
        self.start("slurmd", "-D", "-N", "node", "-f", self.env["SLURM_CONF"])
        wait_for(lambda: "idle" in self.call("sinfo", "--noheader", "--format=%T"))

    @staticmethod
    def call_plain(*words: str) -> str:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()

    def tasks(self) -> dict[str, tuple[str, int]]:
        return {name: said for name, said in super().tasks().items() if name not in self.earlier}

    def start(self, name: str, *words: str) -> None:
        path = shutil.which(name) or f"/usr/sbin/{name}"
        setpriv = shutil.which("setpriv")
        in_main_thread = threading.current_thread() is threading.main_thread()  # elsewhere it would end with the thread
        wrapper = [setpriv, "--pdeathsig", "TERM"] if setpriv and in_main_thread else []
        with open(self.folder / f"{name}.log", "ab") as log:
            self.daemons[name] = subprocess.Popen(
                [*wrapper, path, *words], stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )

    def preempt(self) -> None:
        job = self.call(self.sbatch, "--parsable", "-p", "urgent", "-c", "8", "--output=/dev/null", "--wrap=:").strip()
        wait_for(lambda: "COMPLETED" in self.call("scontrol", "show", "job", job))

    def lose_node(self) -> None:
        self.call("scontrol", "update", "NodeName=node", "State=DOWN", "Reason=test")
        wait_for(self._is_back)

    def _is_back(self) -> bool:
        """Return whether the node is up: it may come back by itself, and must then not be resumed."""
        with contextlib.suppress(subprocess.CalledProcessError):
            self.call("scontrol", "update", "NodeName=node", "State=RESUME")
        return "down" not in self.call("sinfo", "--noheader", "--format=%T")

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        self.daemons["slurmctld"].send_signal(signal.SIGTERM)
        self.daemons["slurmctld"].wait(60)
        yield
        self.start("slurmctld", "-D", "-f", self.env["SLURM_CONF"])

    def clear(self) -> None:
        over = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED")
        self.call("scancel", "--quiet", "--state=PENDING", "--user", self.call_plain("id", "-un"))
        self.call("scancel", "--quiet", "--user", self.call_plain("id", "-un"))
        wait_for(lambda: all(state in over for state, _ in self.tasks().values()))
        self.earlier |= {*self.tasks()}
        (self.folder / "calls.txt").unlink(missing_ok=True)

    def close(self) -> None:
        for name in reversed(DAEMONS):
            if name in self.daemons:
                self.daemons[name].terminate()
                self.daemons[name].wait(60)
        shutil.rmtree(self.folder, ignore_errors=True)


def missing() -> str | None:
    """Return the reason why no real cluster can run here, or None."""
    absent = [n for n in (*DAEMONS, *COMMANDS) if not (shutil.which(n) or Path(f"/usr/sbin/{n}").exists())]
    if absent:
        return f"no {absent[0]} here: apt-get install slurmctld slurmd slurm-client munge"
    return None if os.geteuid() == 0 else "Slurm's daemons want root"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(condition: Callable[[], object], seconds: float = 600.0) -> None:
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(subprocess.CalledProcessError):
            if condition():
                return
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.1)


if __name__ == "__main__":
    cluster = Real()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    print(f"export SLURM_CONF={cluster.env['SLURM_CONF']}", flush=True)
    try:
        signal.pause()
    except KeyboardInterrupt:
        cluster.close()
