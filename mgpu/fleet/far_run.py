"""Run this host's part of a training that spans several hosts: `mgpu launch --node-rank K`, here on the host.

Its output is sent as it is written; what mgpu itself says before the program starts and after it ends is not, because
the other side gives the one verdict. It gets the document of the run instead, before the files of this host: the
connection may break while those travel.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from mgpu import file_reading
from mgpu.errors import reason
from mgpu.fleet import part_files
from mgpu.launch import node_answers, why, why_subject
from mgpu.launch.hand_off import PROGRAM_STARTS
from mgpu.launch.report import PROGRAM_ENDS
from mgpu.process import child_process, interpreter, processes, run_log, scratch, signals
from mgpu.snapshot import Snapshot, to_json
from mgpu.structured_text import json_of

BOOT = "import sys; sys.path.insert(0, sys.argv.pop(1)); from mgpu.__main__ import main; main()"
_LARGEST = 16 << 20  # bytes of a run's document
_CHUNK = 1 << 16
_KEPT = 4000  # characters of mgpu's own messages
_OWN = "mgpu: "  # how its messages begin (process/notices.py)
_PASSED_ON = tuple(_OWN + text for text in (run_log.LOG_ENDS, run_log.NO_LOG))  # no other file may have them
_ROOM_BYTES = 256 << 10  # that a folder for logs must accept
END, NOTICE = "end", "notice"  # events; a notice: the logs are in a folder that will be removed
_LOOK_S = 0.5  # between two looks at the files
_END_S = 8.0  # after SIGTERM, for the launcher and its ranks to stop
Send = Callable[[Mapping[str, Any]], None]


class Part:
    """One host's part of a run."""

    def __init__(self, orders: Mapping[str, Any], added: Mapping[str, str], send: Send) -> None:
        self._orders, self._added, self._message = orders, added, send
        self._process: child_process.Program | None = None
        self._own = ""  # what mgpu said before the program started
        self._folder = Path(os.devnull, "none")  # of this host's part
        self._inside = False

    def run(self) -> dict[str, Any]:
        """Run to the end, and send the exit code and the document of the run, then its files."""
        with scratch.folder() as place:
            config, result = place / str(self._orders["name"]), place / "result.json"
            config.write_text(self._orders["config"], "utf-8")
            arguments = self._arguments(config, result, place)
            sender = part_files.Sender(self._folder, self._message)
            code = self._wait(arguments, sender)
            said = "" if self._inside else self._own[-_KEPT:]
            self._message({"event": END, "code": code, "document": _document(result), "said": said})
            sender.end()
        return {"code": code}

    def stop(self, number: int) -> None:
        """Pass a signal on to the launcher, which stops its ranks."""
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(number)

    def answer(self, number: int) -> None:
        """Ask the ranks what they do now, and send the answer to request `number`. Returns at once."""
        threading.Thread(target=self._answer, args=(number,), daemon=True).start()

    def _answer(self, number: int) -> None:
        process = self._process
        if process is None or not (ranks := processes.ranks_under(process.pid)):
            return
        hang = why.ask(why_subject.Subject("", None, (why_subject.Part(self._folder, ranks, 0),))).hang
        content = json.dumps(to_json(Snapshot(hang=hang))["hang"])
        self._message({"event": part_files.EVENT, "name": node_answers.ANSWER, "text": content, "number": number})

    def end(self) -> None:
        """Stop the run, within _END_S."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
            return
        process.kill()
        process.wait()

    def _arguments(self, config: Path, result: Path, place: Path) -> list[str]:
        folder = Path(self._orders["logs"])
        if why := _unusable(folder):
            text = f"{folder}: {why}. The logs of this host are in {place} until they are collected"
            self._message({"event": NOTICE, "text": text})
            folder = place / "logs"
        self._folder = folder / f"node{self._orders['node']}"
        return [
            "launch",
            *("-c", str(config)),
            *("--node-rank", str(self._orders["node"])),
            *("--yes", "--unverified", "allow"),
            *("--json-result", str(result)),
            *("--log-dir", str(folder)),
            *self._orders["options"],
            *self._orders["target"],
        ]

    def _wait(self, arguments: Sequence[str], sender: part_files.Sender) -> int:
        root = str(Path(__file__).resolve().parents[2])
        self._process = process = child_process.start(
            [*interpreter.text(sys.executable, BOOT), root, *arguments],
            env={**self._added, **os.environ, **self._orders["environment"]},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            at_our_end=signal.SIGTERM,
        )
        assert process.stdout is not None and process.stderr is not None
        threads = [
            threading.Thread(target=self._copy_output, args=(process.stdout,), daemon=True),
            threading.Thread(target=self._copy_errors, args=(process.stderr,), daemon=True),
        ]
        for thread in threads:
            thread.start()
        try:
            while (code := process.poll()) is None:
                sender.look()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_LOOK_S)
        except (KeyboardInterrupt, signals.Stopped):
            self.end()
            raise
        for thread in threads:
            thread.join(2)  # a background process of the program may hold its output open
        return code

    def _copy_output(self, stream: IO[bytes]) -> None:
        with contextlib.suppress(OSError, ValueError):
            while data := os.read(stream.fileno(), _CHUNK):
                self._send("out", data)

    def _copy_errors(self, stream: IO[bytes]) -> None:
        """Send what the program writes to stderr: the lines between mgpu's two rules."""
        with contextlib.suppress(OSError, ValueError):
            for line in iter(stream.readline, b""):
                text = line.decode("utf-8", "replace")
                if PROGRAM_STARTS in text and not self._inside:
                    self._inside = True
                elif PROGRAM_ENDS in text and self._inside:
                    break
                elif self._inside and (not text.startswith(_OWN) or text.startswith(_PASSED_ON)):
                    self._send("err", line)
                elif self._inside:
                    continue  # mgpu here speaks of this host alone; it is in its mgpu.log
                else:
                    self._own += text
            while os.read(stream.fileno(), _CHUNK):
                pass

    def _send(self, stream: str, data: bytes) -> None:
        self._message({"event": "output", "stream": stream, "text": data.decode("utf-8", "surrogateescape")})


def _unusable(folder: Path) -> str:
    """Return why logs cannot be written to a folder, which is created; "" if they can."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_ROOM_BYTES))
            file.flush()
    except OSError as error:
        return reason(error)
    return ""


def _document(path: Path) -> dict[str, Any] | None:
    try:
        found = json_of(file_reading.read_whole(path, most=_LARGEST))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
