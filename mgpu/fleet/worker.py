"""The pre-flight's worker on one node: runs the commands that the head of the pre-flight sends.

srun starts one worker per node (workers.py). Commands are lines on stdin, answers go to stdout (both: framing.py); all
other output goes to stderr. The worker exits when stdin is closed.
"""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any

from mgpu import file_reading
from mgpu.fleet import framing, project_state
from mgpu.process import child_process, interpreter, scratch, signals
from mgpu.structured_text import json_of
from mgpu.version import __version__

_END_S = 5.0  # for a smoke test to stop after SIGTERM
_LATE_S = 10.0  # past its own limit, a smoke test is stopped from outside
_LARGEST = 16 << 20  # bytes of a test's document
_MOST_HASHED = 64 << 20  # bytes of a config or a script
_TAIL = 2000  # characters of a test's output, if it left no document
# Packages installed on the node come before the head's mgpu, unless mgpu came with the connection.
_BOOT = "import sys; sys.path.append(sys.argv.pop(1)); from mgpu.__main__ import main; main()"
_BOOT_CARRIED = "import sys; sys.path.insert(0, sys.argv.pop(1)); from mgpu.__main__ import main; main()"


def main() -> None:
    """Serve commands until stdin is closed, as a task of srun's step."""
    serve(lambda answers: Node(answers, os.environ.get("SLURMD_NODENAME") or socket.gethostname()))


def serve(make: Callable[[IO[str]], Node], commands: Iterable[Mapping[str, Any]] | None = None) -> None:
    """Serve commands until stdin is closed. What is printed meanwhile goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    node = make(answers)
    with signals.stop_once():  # the head of the pre-flight and Slurm may both send a signal
        try:
            node.greet()
            for command in read_commands() if commands is None else commands:
                node.serve(command)
        except (BrokenPipeError, KeyboardInterrupt, signals.Stopped):
            pass
        finally:
            node.close()


def read_commands() -> Iterator[Mapping[str, Any]]:
    """Yield the messages on stdin."""
    for line in framing.whole_lines(sys.stdin):
        command = framing.decode_message(line)
        if isinstance(command, dict):
            yield command


class Node:
    """This node, and the port it opened for the other nodes."""

    carried = False  # whether mgpu's source came with the connection

    def __init__(self, answers: IO[str], name: str) -> None:
        self.name = name
        self._answers = answers
        self._sent = 0
        self._sending = threading.Lock()  # several threads send the output of a run
        self._listening: Any = None
        self._test: child_process.Program | None = None

    def greet(self) -> None:
        """Send the first message."""
        self._send(self.greeting())

    def greeting(self) -> dict[str, Any]:
        """Return the first message."""
        return {"pid": os.getpid(), "host": socket.gethostname(), "mgpu": __version__}

    def serve(self, command: Mapping[str, Any]) -> None:
        """Run a command and send the answer; an exception becomes an answer too."""
        work = self.commands().get(str(command.get("do")))
        if work is None or (command.get("of") is not None and self.name not in command["of"]):
            return
        try:
            found = work(command)
        except KeyboardInterrupt:
            raise
        except Exception as error:
            from mgpu.errors import reason

            found = {"error": reason(error)}
        self._send({"number": command.get("number"), **found})

    def commands(self) -> dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]]:
        """Return what this node can do."""
        return {
            "examine": self._examine,
            "clock": self._clock,
            "listen": self._listen,
            "walk": self._walk,
            "test": self._smoke_test,
        }

    def close(self) -> None:
        """Stop everything that this node started."""
        if self._listening is not None:
            self._listening.close()
        if self._test is not None and self._test.poll() is None:
            _end(self._test)

    def _send(self, message: Mapping[str, Any]) -> None:
        with self._sending:
            self._sent += 1
            for line in framing.lines(self._sent, {"node": self.name, **message}):
                self._answers.write(line)
            self._answers.flush()

    def _clock(self, command: Mapping[str, Any]) -> dict[str, Any]:
        return {"time": time.time()}

    def _examine(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Run the doctor's quick checks for the config, and check which of the head's folders are visible here."""
        from mgpu import probes
        from mgpu.config import facts
        from mgpu.snapshot import Plan, to_json

        config = None
        text = command["own_configs"].get(self.name, command["config"])
        if text is not None:
            with scratch.folder() as place:
                path = place / str(command["name"])
                path.write_text(text, "utf-8")
                config = replace(facts(path, ask_loader=False), path=str(command["name"]))
        ranks = (config.ranks_here if config else None) or 1
        plan = Plan(
            nodes=config.num_machines if config else command["nodes"], cpu_ranks=ranks if command["cpu"] else None
        )
        snapshot = replace(probes.gather(probes.QUICK, plan=plan), config=config)
        files = {name: _sha256(Path(path)) for name, path in command["files"].items()}
        if command["project"]:
            files |= project_state.facts(command["data"])
        return {
            "facts": to_json(replace(snapshot, config=None)),  # the config came from the head
            "faults": faults(snapshot),
            "orphans": [one.pid for one in snapshot.leftovers.processes if one.kind == "rank" and one.orphan]
            if snapshot.leftovers
            else [],
            "files": files,
            "unseen": [folder for folder, token in command["tokens"].items() if not (Path(folder) / token).exists()],
            "busy": [port for port in command["ports"] if _busy(port)],
        }

    def _listen(self, command: Mapping[str, Any]) -> dict[str, Any]:
        from mgpu.fleet import connectivity

        meeting = command["ports"] if command["head"] == self.name else [None]
        for port in meeting:  # like the job script, try the next port if one is in use
            self._listening = connectivity.Listening(self.name, on_gpu=not command["cpu"], meeting_port=port)
            if self._listening.door.meeting_error is None or port == meeting[-1]:
                break
            self._listening.close()
        return {"card": self._listening.card}

    def _walk(self, command: Mapping[str, Any]) -> dict[str, Any]:
        assert self._listening is not None
        found = self._listening.walk(
            command["endpoints"], head=command["head"], by_name=command["by_name"], ways=command.get("ways", True)
        )
        return {"paths": [asdict(path) for path in found]}

    def _smoke_test(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Run `mgpu smoke-test` of this node's group."""
        if self._listening is not None:  # the connection test is finished
            self._listening.close()
            self._listening = None
        group = next((g for g in command["groups"] if self.name in g["nodes"]), None)
        if group is None:
            return {"left_out": True}
        began = time.monotonic()
        with scratch.folder() as place:
            config, output = place / "accelerate.yaml", place / "smoke.json"
            config.write_text(group["own_configs"].get(self.name, group["config"]), "utf-8")
            folder = Path(group["folder"]) if group["folder"] and Path(group["folder"]).is_dir() else place
            arguments = ["smoke-test", "-c", str(config), "--output", str(output), *command["options"]]
            arguments += ["--log-dir", str(folder / "-".join(group["nodes"])) + f".{self.name}"]
            if len(group["nodes"]) > 1:
                arguments += ["--node-rank", str(group["nodes"].index(self.name))]
            limit_s, log = float(command["limit_s"]) + _LATE_S, place / "output"
            variables = {**self._interface(command), **os.environ, **command["environment"]}
            code, printed = self._run(arguments, variables, limit_s, log)
            document = _read(output)
        if document is None:
            return {"code": code, "error": printed or "the smoke test wrote no result"}
        return {"code": code, "seconds": round(time.monotonic() - began, 3), **summary(document)}

    def _interface(self, command: Mapping[str, Any]) -> dict[str, str]:
        """Return the variables for the interface that was measured to work; a value of the user's own wins."""
        name = command["interfaces"].get(self.name)
        return {} if name is None else {"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": f"={name}"}

    def _run(self, arguments: list[str], variables: Mapping[str, str], limit_s: float, log: Path) -> tuple[int, str]:
        """Run mgpu in its own process; return the exit code and the end of its output."""
        root = str(Path(__file__).resolve().parents[2])
        with log.open("wb") as output:
            self._test = child_process.start(
                [*interpreter.text(sys.executable, _BOOT_CARRIED if self.carried else _BOOT), root, *arguments],
                env=variables,
                stdout=output,
                stderr=subprocess.STDOUT,
                at_our_end=signal.SIGTERM,
                start_new_session=False,
            )
            try:
                code = self._test.wait(limit_s)
            except subprocess.TimeoutExpired:
                _end(self._test)
                return 124, f"the smoke test did not finish within {limit_s:.0f} s"
            except (KeyboardInterrupt, signals.Stopped):  # stop it before the folder it writes to is removed
                _end(self._test)
                raise
        return code, file_reading.read_part(log, most=4 * _TAIL).decode("utf-8", "replace").strip()[-_TAIL:]


def faults(snapshot: Any) -> list[dict[str, str]]:
    """Return the doctor's errors, except consequences of others, and all problems that certainly stop a run."""
    from mgpu import engine
    from mgpu.engine import before_start, selections
    from mgpu.report.document import outcome_text

    outcomes = [*engine.judge(snapshot, selections.NODE)]
    known = {outcome.check.id for outcome in outcomes if outcome.status == "fail"}
    outcomes += [outcome for outcome in before_start.refusals(snapshot) if outcome.check.id not in known]
    found = [o for o in outcomes if o.status in ("fail", "crash") and not o.because_of]
    return [{"id": outcome.check.id, "text": outcome_text(outcome)} for outcome in found]


def summary(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a smoke test's document that the head needs."""
    failed = [check for check in document["checks"] if check["status"] == "fail"]
    causes = [check for check in failed if not check["because_of"]] or failed
    return {
        "verdict": document["verdict"],
        "problems": [{key: check[key] for key in ("id", "title", "fix")} for check in causes],
        "culprit": document.get("culprit"),
        "error": document.get("error"),
    }


def _read(path: Path) -> dict[str, Any] | None:
    try:
        document = json_of(file_reading.read_whole(path, most=_LARGEST))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def _sha256(path: Path) -> str:
    """Return the hash of a file that every node reads itself."""
    try:
        return hashlib.sha256(file_reading.read(path, most=_MOST_HASHED)).hexdigest()
    except OSError as error:
        return f"not readable: {error.strerror}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Stop a smoke test; on SIGTERM it stops its ranks itself."""
    process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _busy(port: int) -> bool:
    from mgpu.launchers.port import is_taken

    return is_taken(port)
