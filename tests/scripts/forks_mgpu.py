"""Runs mgpu command lines, each in a fork of this process: stdin and stdout are JSON lines.

A fork starts in milliseconds, while an interpreter that imports mgpu uses half a second of the processor. An order has
the command line, its folder, environment, standard streams (paths; None: closed) and the seconds it may take; with
`limited` it also gets little memory and little processor time.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import resource
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

MEMORY = 1_500_000_000  # bytes of address space beyond what the imports take
SECONDS = 20  # of the CPU
# Modules that run in ranks or probes and import torch, or act when they are imported.
NOT_IMPORTED = ("mgpu.smoke.ranks", "mgpu.smoke.worker", "mgpu.probes", "mgpu.wizard.parameter_probe_child")


def in_a_fork(order: dict[str, Any]) -> dict[str, Any]:
    """Exit code ("killed": it took too long), processor and wall seconds, and memory in KiB of one command line."""
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _run(order)
    ended = os.pidfd_open(child)
    in_time = bool(select.select([ended], [], [], order["timeout"])[0])
    os.close(ended)
    if not in_time:
        os.killpg(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    return {
        "code": os.waitstatus_to_exitcode(status) if in_time else "killed",
        "seconds": used.ru_utime + used.ru_stime,
        "memory": used.ru_maxrss,
        "wall": time.monotonic() - began,
    }


def _run(order: dict[str, Any]) -> None:
    code: object = 1
    try:
        os.setsid()
        os.chdir(order["folder"])
        os.environ.clear()
        os.environ.update(order["environment"])
        _connect(order)
        if order["limited"]:
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


def _connect(order: dict[str, Any]) -> None:
    """Put the files of the order in place of the three standard streams."""
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


def _import_all() -> None:
    import mgpu

    names = ["yaml", "typer", "difflib", "tomllib", "mgpu.probes.runner", "mgpu.probes.prefetch"]
    names += [module.name for module in pkgutil.walk_packages(mgpu.__path__, "mgpu.")]
    for name in names:
        if name in names[:6] or not name.startswith(NOT_IMPORTED):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    from mgpu import engine
    from mgpu.readers.log import row_matching

    engine.load()
    row_matching.known_signatures()  # what takes longest before the first line of a log is read
    gc.freeze()


if __name__ == "__main__":
    _import_all()
    for line in sys.stdin:
        print(json.dumps(in_a_fork(json.loads(line))), flush=True)
