"""Run scripts on forked ranks: torch is imported once, with the hooks of the rehearsal in it.

Reads one JSON object a line: "script", "folder" (to start in, with a folder `recorder` for the records), "port",
"steps", "seconds", "until" (0: nothing is measured), "checkpoint". Writes the process IDs of the ranks as JSON, then
their exit codes when the last one has ended.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import _mgpu_recorder  # type: ignore[import-not-found]
import _mgpu_rehearsal  # type: ignore[import-not-found]
import _mgpu_rehearsed_checkpoint  # type: ignore[import-not-found]
import accelerate
import torch
import torch._dynamo  # DDP imports it, which takes seconds
import torch.distributed.fsdp

RANKS = 2


def rank(number: int, order: dict[str, Any]) -> int:
    """Run the script in this process; return its exit code."""
    os.environ.update(
        RANK=str(number), LOCAL_RANK=str(number), WORLD_SIZE=str(RANKS), LOCAL_WORLD_SIZE=str(RANKS),
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(order["port"]), ACCELERATE_USE_CPU="true",
    )  # fmt: skip
    os.chdir(order["folder"])
    log = os.open(f"{number}.log", os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    atexit._clear()
    rehearsal = _mgpu_rehearsal.REHEARSAL
    rehearsal.off, rehearsal.folder, rehearsal.wanted = False, f"{order['folder']}/recorder", order["steps"]
    rehearsal.times.until = order["until"]
    rehearsal.checkpoint = _mgpu_rehearsed_checkpoint.Checkpoint(rehearsal) if order["checkpoint"] else None
    _mgpu_recorder.RECORDER.folder = rehearsal.folder
    rehearsal.join(number, RANKS)
    sys.argv = [order["script"]]
    sys.path.insert(0, str(Path(order["script"]).parent))
    code = 0
    try:
        # What it returns stays referenced until the exit. torch 2.13 can deadlock where a DDP model is freed just after
        # all_gather_object and barrier: the process group waits for its thread, which waits for the interpreter's lock.
        variables = runpy.run_path(order["script"], run_name="__main__")
        assert variables
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    os._exit(code)


def ended(children: list[int], seconds: float) -> list[int | None]:
    """Wait for the ranks; the exit codes, None for one that had to be killed."""
    codes: dict[int, int | None] = {}
    deadline = time.monotonic() + seconds
    while len(codes) < len(children):
        for child in set(children) - set(codes):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                codes[child] = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                codes[child] = None
        time.sleep(0.02)
    return [codes[child] for child in children]


def main() -> None:
    """Serve orders until the input ends."""
    torch.set_num_threads(1)
    assert accelerate
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        children = []
        for number in range(RANKS):
            if child := os.fork():
                children.append(child)
            else:
                rank(number, order)
        print(json.dumps(children), flush=True)
        print(json.dumps(ended(children, order["seconds"])), flush=True)


main()
