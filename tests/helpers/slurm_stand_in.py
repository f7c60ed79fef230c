"""Slurm's commands where there is no Slurm: `sbatch`, `squeue`, `sacct`, `scontrol` and `scancel` over a file.

    python slurm_stand_in.py FOLDER COMMAND ARGUMENTS...

It does what Slurm 22.05 was seen to do, in the same words, as far as the runner asks. There is no daemon: each call
first looks after the tasks, starts those whose turn it is and notes which have ended. What the tests do to a cluster
is in `FOLDER/settings.json`: the size of an array, how many tasks there is room for, whether there is accounting.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SETTINGS = {
    "max_array": 1001,
    "room": 8,
    "kill_wait": 2.0,
    "remembers": 300.0,
    "accounting": False,
    "clock": None,  # seconds by which it goes; that of the machine otherwise
    "away": False,  # the controller is not reached
    "refuses": "",  # what the next submission is told
    "deaf": False,  # the next submission is taken, and its answer is lost
}
OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "PREEMPTED", "NODE_FAIL", "OUT_OF_MEMORY")
ALIVE = ("RUNNING", "COMPLETING")


class Refusal(Exception):
    pass


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings: dict[str, Any] = SETTINGS | _read(folder / "settings.json")
        self.state: dict[str, Any] = {"next": 1, "arrays": {}, "tasks": {}} | _read(folder / "state.json")

    @property
    def tasks(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = self.state["tasks"]
        return found

    def now(self) -> float:
        clock: float | None = self.settings["clock"]
        return time.time() if clock is None else clock

    def look_after(self) -> None:
        """Do the work of a daemon up to now."""
        now = self.now()
        for name, task in list(self.tasks.items()):
            if task["state"] in ALIVE:
                self._watch(name, task, now)
            elif task["state"] in OVER and now - task["ended"] > self.settings["remembers"]:
                task["forgotten"] = True
        for name, task in self.tasks.items():
            array = self.state["arrays"][task["array"]]
            alive = [t for t in self.tasks.values() if t["state"] in ALIVE]
            mine = sum(t["array"] == task["array"] for t in alive)
            if task["state"] == "PENDING" and not task["held"]:
                if mine < array["at_a_time"] and len(alive) < self.settings["room"]:
                    self._launch(name, task, array)
                    task["reason"] = "None"
                else:
                    task["reason"] = "JobArrayTaskLimit" if mine >= array["at_a_time"] else "Resources"

    def _watch(self, name: str, task: dict[str, Any], now: float) -> None:
        array, life = self.state["arrays"][task["array"]], self._life(name, task)
        with contextlib.suppress(OSError, ValueError):
            code = int((life / "exit").read_text())
            task["status"] = code - 128 if code > 128 else code << 8
            self._ended(task, task["becomes"] or ("FAILED" if code else "COMPLETED"), now)
            return
        spent = now - task["began"]
        if array["limit"] and spent > array["limit"] - array["warning"] and not task["warned"]:
            task["warned"] = True
            self.signal(name, signal.SIGUSR1)
        if array["limit"] and spent > array["limit"]:
            self.end(name, "TIMEOUT")
        if task["killed"] and now - task["killed"] > self.settings["kill_wait"]:
            self.signal(name, signal.SIGKILL)

    def _ended(self, task: dict[str, Any], state: str, now: float) -> None:
        task.update(state=state, ended=now)
        if state in ("PREEMPTED", "NODE_FAIL"):
            self.put_back(task)

    def put_back(self, task: dict[str, Any]) -> None:
        task["lives"].append(task["state"])
        task.update(state="PENDING", restarts=task["restarts"] + 1, status=0, becomes="", killed=0.0)

    def _life(self, name: str, task: dict[str, Any]) -> Path:
        return self.folder / f"{name}.{task['restarts']}"

    def _launch(self, name: str, task: dict[str, Any], array: dict[str, Any]) -> None:
        life = self._life(name, task)
        life.mkdir()
        env = {**array["env"], "SLURM_ARRAY_JOB_ID": task["array"], "SLURM_ARRAY_TASK_ID": str(task["index"])}
        if task["restarts"]:
            env["SLURM_RESTART_COUNT"] = str(task["restarts"])
        values = {"%%": "%", "%a": str(task["index"]), "%A": task["array"], "%j": name, "%u": "user"}
        output = re.sub("%.", lambda match: values.get(match[0], match[0]), array["output"])
        words = 'sh "$0/script" & echo $! > "$0/pid.new"; mv "$0/pid.new" "$0/pid"; wait $!; '
        words += 'echo $? > "$0/exit.new"; mv "$0/exit.new" "$0/exit"'
        (life / "script").write_text(array["script"])
        with open(output, "ab") as stream:
            subprocess.Popen(
                ["sh", "-c", words, str(life)],
                cwd=array["folder"],
                env=env,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
            )
        task.update(state="RUNNING", began=self.now(), warned=False, node="stand-in")

    def signal(self, name: str, number: int) -> None:
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((self._life(name, self.tasks[name]) / "pid").read_text()), number)

    def end(self, name: str, becomes: str) -> None:
        """End a task like Slurm: SIGTERM, and SIGKILL a while later."""
        task = self.tasks[name]
        if task["state"] == "PENDING":
            self._ended(task, becomes, self.now())
        elif task["state"] == "RUNNING":
            task.update(state="COMPLETING", becomes=becomes, killed=self.now())
            self.signal(name, signal.SIGTERM)

    def lose_node(self) -> None:
        """Its tasks are put back in the queue; what they run goes on running, cut off."""
        for task in self.tasks.values():
            if task["state"] in ALIVE:
                self._ended(task, "NODE_FAIL", self.now())

    def by_name(self, words: list[str]) -> list[str]:
        """The tasks that are meant by `17`, `17_3` or `17_[1-3,7]`."""
        found = []
        for word in words:
            array, _, numbers = word.partition("_")
            wanted: set[int] | None = set()
            for part in numbers.strip("[]").split(","):
                low, _, high = part.partition("-")
                wanted = None if not part else (wanted or set()) | set(range(int(low), int(high or low) + 1))
            here = [n for n, t in self.tasks.items() if t["array"] == array and not t.get("forgotten")]
            found += [n for n in here if wanted is None or self.tasks[n]["index"] in wanted]
        return found

    # The commands -----------------------------------------------------------------------------------------------------

    def sbatch(self, words: list[str]) -> None:
        options = dict(word[2:].partition("=")[::2] for word in words)
        low, high, most = (int(n) for n in re.findall(r"\d+", options["array"]))
        if options.get("partition", "main") not in ("main", "urgent"):
            raise Refusal("Batch job submission failed: Invalid partition name specified")
        if high >= self.settings["max_array"]:
            raise Refusal("Batch job submission failed: Invalid job array specification")
        if self.settings["refuses"]:
            raise Refusal(f"Batch job submission failed: {self.settings['refuses']}")
        array_id = str(self.state["next"])
        self.state["next"] += high - low + 1
        limit = options.get("time", "")
        minutes, _, seconds = limit.partition(":")
        self.state["arrays"][array_id] = {
            "name": options["job-name"],
            "script": sys.stdin.read(),
            "output": options["output"],
            "folder": options["chdir"],
            "env": dict(os.environ),
            "at_a_time": most or high + 1,
            "limit": 60 * int(minutes) + int(seconds or 0) if limit else 0,
            "warning": int(options["signal"].rpartition("@")[2]),
            "options": words,
        }
        for index in range(low, high + 1):
            self.tasks[f"{array_id}_{index}"] = {
                "array": array_id,
                "index": index,
                "state": "PENDING",
                "restarts": 0,
                "status": 0,
                "lives": [],
                "reason": "None",
                "node": "",
                "held": False,
                "becomes": "",
                "killed": 0.0,
                "ended": 0.0,
            }
        if self.settings["deaf"]:
            raise Refusal("Batch job submission failed: Socket timed out on send/recv operation")
        print(array_id)

    def squeue(self, words: list[str]) -> None:
        options = dict(word[2:].partition("=")[::2] for word in words)
        ids = options["jobs"].split(",") if "jobs" in options else list(self.state["arrays"])
        known = self.by_name(ids)
        if "jobs" in options and len(ids) == 1 and not known:
            raise Refusal("slurm_load_jobs error: Invalid job id specified")
        for name in known:
            task = self.tasks[name]
            array = self.state["arrays"][task["array"]]
            if "name" in options and array["name"] != options["name"]:
                continue
            said = {
                "ArrayJobID": task["array"],
                "ArrayTaskID": task["index"],
                "State": task["state"],
                "RestartCnt": task["restarts"],
                "exit_code": task["status"],
                "Reason": task["reason"],
                "NodeList": task["node"],
            }
            fields = [field.partition(":")[0] for field in options["Format"].split(",")]
            print("".join(f"{said[field]}|" for field in fields))

    def sacct(self, words: list[str]) -> None:
        if not self.settings["accounting"]:
            raise Refusal("Slurm accounting storage is disabled")
        task = self.tasks[dict(word[2:].partition("=")[::2] for word in words)["jobs"]]
        by = " by 0" if task["state"] == "CANCELLED" else ""
        print(f"{task['state']}{by}|{task['status'] >> 8}:{task['status'] & 127}")

    def scontrol(self, words: list[str]) -> None:
        match [word for word in words if not word.startswith("--")]:
            case ["show", "config"]:
                print(f"Configuration data as of today\nMaxArraySize            = {self.settings['max_array']}")
            case ["show", "job", name]:
                if not self.by_name([name]):
                    raise Refusal("slurm_load_jobs error: Invalid job id specified")
                task = self.tasks[name]
                code = f"{task['status'] >> 8}:{task['status'] & 127}"
                print(f"JobId=1 JobState={task['state']} Restarts={task['restarts']} ExitCode={code}")
            case ["requeue", name]:
                if not self.by_name([name]):
                    raise Refusal("Invalid job id specified")
                task = self.tasks[name]
                if task["state"] in ALIVE:
                    self.end(name, "PREEMPTED")
                elif task["state"] in OVER:
                    self.put_back(task)
            case ["release", name]:
                self.tasks[name]["held"] = False
            case ["update", job, throttle]:
                array = self.state["arrays"][job.partition("=")[2]]
                array["at_a_time"] = int(throttle.partition("=")[2])
            case unknown:
                raise Refusal(f"invalid keyword: {unknown}")

    def scancel(self, words: list[str]) -> None:
        options = dict(word[2:].partition("=")[::2] for word in words if word.startswith("--"))
        for name in self.by_name([word for word in words if not word.startswith("--")]):
            state = self.tasks[name]["state"]
            if "signal" in options:
                self.signal(name, getattr(signal, f"SIG{options['signal']}"))
            elif options.get("state", state) == state:
                self.end(name, "CANCELLED")

    # What tests do to it ----------------------------------------------------------------------------------------------

    def fault(self, words: list[str]) -> None:
        match words:
            case ["preempt"]:
                for name in self.tasks:
                    self.end(name, "PREEMPTED") if self.tasks[name]["state"] == "RUNNING" else None
            case ["lose-node"]:
                self.lose_node()
            case ["out-of-memory", name]:
                self.end(name, "OUT_OF_MEMORY")
            case ["hold", name]:
                self.tasks[name].update(held=True, reason="launch failed requeued held")


@contextlib.contextmanager
def lock_file(folder: Path) -> Iterator[Cluster]:
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        cluster = Cluster(folder)
        try:
            if not cluster.settings["away"]:
                cluster.look_after()
            yield cluster
        finally:
            (folder / "state.new").write_text(json.dumps(cluster.state))
            (folder / "state.new").rename(folder / "state.json")


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.is_file() else {}  # type: ignore[no-any-return]


def main(folder: str, command: str, *words: str) -> int:
    with lock_file(Path(folder)) as cluster:
        with open(Path(folder) / "calls.txt", "a") as calls:
            print(command, *words, file=calls)
        try:
            if cluster.settings["away"] and command != "fault":
                raise Refusal("Unable to contact slurm controller (connect failure)")
            getattr(cluster, command)(list(words))
        except Refusal as error:
            print(f"{command}: error: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
