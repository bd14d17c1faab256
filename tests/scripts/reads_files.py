"""Runs mgpu command lines, each in a fork of this process with little memory and time: stdin and stdout are JSON lines.

A fork starts in milliseconds, where an interpreter that imports mgpu takes half a second.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

MEMORY = 1_500_000_000  # bytes of address space beyond what the imports take
SECONDS = 20  # of the CPU
WALL = 90.0  # on a machine that does other things as well
IMPORTED = (
    "yaml", "typer", "difflib", "tomllib", "mgpu.__main__", "mgpu.cli", "mgpu.doctor.run", "mgpu.validate.run",
    "mgpu.wizard.run", "mgpu.smoke.run", "mgpu.smoke.show_last", "mgpu.smoke.baseline", "mgpu.launch.run",
    "mgpu.doctor.report",
    "mgpu.readers.log.read", "mgpu.fleet.load", "mgpu.readers.job_script.read",
    "mgpu.readers.training_script.read", "mgpu.snapshot.redaction",
    "mgpu.snapshot.changes", "mgpu.cli.app", "mgpu.cli.option_parser",
)  # fmt: skip


def in_a_fork(order: dict[str, Any]) -> dict[str, Any]:
    """Exit code, output, CPU and wall seconds, and the memory in KiB of one command line."""
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _run(order)
    while time.monotonic() - began < WALL:
        pid, status, used = os.wait4(child, os.WNOHANG)
        if pid:
            return {
                "code": os.waitstatus_to_exitcode(status), "seconds": used.ru_utime + used.ru_stime,
                "memory": used.ru_maxrss, "wall": time.monotonic() - began,
            }  # fmt: skip
        time.sleep(0.005)
    os.killpg(child, signal.SIGKILL)
    os.wait4(child, 0)
    return {"code": "killed", "seconds": SECONDS, "memory": 0, "wall": time.monotonic() - began}


def _run(order: dict[str, Any]) -> None:
    code: object = 1
    try:
        os.setsid()
        os.chdir(order["folder"])
        os.environ.update(order["variables"])
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            if order[name] is None:
                os.close(number)
                continue
            handle = os.open(order[name], flags, 0o600)
            os.dup2(handle, number)
            os.close(handle)
        sys.stdin = open(0, closefd=False) if order["stdin"] is not None else None  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, now + MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        sys.argv = ["mgpu", *order["argv"]]
        from mgpu.__main__ import main

        main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    for module in IMPORTED:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    for line in sys.stdin:
        print(json.dumps(in_a_fork(json.loads(line))), flush=True)
