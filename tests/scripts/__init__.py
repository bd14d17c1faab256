"""Small programs that the tests launch, and what starts them and finds their processes.

None of them imports torch: what is tested is how mgpu starts and ends them. `faults/sitecustomize.py` makes one rank of
the smoke test fail in a given way at a given word of its journal.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.conftest import ROOT, environment

SCRIPTS = Path(__file__).parent
# Two ranks as `mgpu configure --yes` writes them on a machine without a GPU.
TWO_RANKS = """\
compute_environment: LOCAL_MACHINE
num_processes: 2
distributed_type: MULTI_GPU
mixed_precision: 'no'
num_machines: 1
"""
ONE_PROCESS = """\
compute_environment: LOCAL_MACHINE
num_processes: 1
distributed_type: 'NO'
mixed_precision: 'no'
num_machines: 1
use_cpu: true
"""


def write_config(folder: Path, text: str = TWO_RANKS, name: str = "accelerate.yaml") -> Path:
    """A config in `folder`."""
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def fault(how: str, word: str, rank: int | str = 1, rung: str = "") -> dict[str, str]:
    """Variables that make one rank ("all": every rank) do `how` when it is about to do `word`, in `rung` if named."""
    path = f"{SCRIPTS / 'faults'}{os.pathsep}{ROOT}"
    return {"PYTHONPATH": path, "FAULT_HOW": how, "FAULT_WORD": word, "FAULT_RANK": str(rank), "FAULT_RUNG": rung}


def start(
    *arguments: str,
    folder: Path,
    env: Mapping[str, str] | None = None,
    ignoring: Sequence[signal.Signals] = (),
    under: Sequence[str] = (),
    **options: Any,
) -> subprocess.Popen[str]:
    """`python -m mgpu ARGS` in the background, cwd and home in `folder`; signals as a terminal's shell leaves them.

    `under`: a command that runs its arguments.
    """

    def signals() -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN if number in ignoring else signal.SIG_DFL)

    options.setdefault("stdin", subprocess.DEVNULL)
    options.setdefault("stdout", subprocess.PIPE)
    options.setdefault("stderr", subprocess.PIPE)
    return subprocess.Popen(
        [*under, sys.executable, "-m", "mgpu", *arguments],
        cwd=folder,
        env=environment(folder / "home", env),
        text=True,
        errors="replace",
        preexec_fn=signals,
        **options,
    )


def marked(folder: Path) -> list[int]:
    """The live processes of every run that was started with its home in `folder`."""
    home = f"HOME={folder / 'home'}".encode()
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, IndexError):
            variables = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
            if home in variables and any(variable.startswith(b"MGPU_RUN_ID=") for variable in variables):
                state = Path(f"/proc/{name}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
                if state != "Z":
                    found.append(int(name))
    return found


def wait_for(what: Callable[[], Any], limit_s: float = 60.0) -> Any:
    """Poll until `what()` is true; its value. Fails after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while not (value := what()):
        assert time.monotonic() < deadline, f"waited {limit_s} s in vain"
        time.sleep(0.02)
    return value


def kill_all(folder: Path) -> None:
    """What a test left behind, whatever happened in it."""
    for pid in marked(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
