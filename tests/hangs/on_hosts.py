"""Hangs of runs on two hosts that are reached with ssh: what torch prints, and when; what mgpu prints, and when.

    python -m tests.hangs.on_hosts PAGE [PROGRAM ...]    # prints the rows, and writes them to PAGE (docs/hangs.md)

Real ssh servers on hosts of namespaces. As in `table.py`, torch's timeout is shortened to LIMIT_S.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

from tests.conftest import ROOT
from tests.hangs.matrix import PROGRESS
from tests.hangs.table import AFTER_S, LIMIT_S
from tests.ssh_hosts import SshHosts

HEAD = "## On two hosts"
_PROGRAM = str(Path(__file__).with_name("hosts.py"))
_SAYS = re.compile(r"^(?:\[rank\d+\]: *)?([\w.]*(?:Error|Exception|Interrupt)\b.*|.*terminate called.*)$")
_BLAMED = re.compile(r"Root Cause.*?rank\s*:\s*(\d+)", re.DOTALL)
_START_S, _MOST_S = 90.0, 90.0
_CONFIG = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: 'NO'\nmixed_precision: 'no'\nnum_machines: 1\n"
    "num_processes: 1\nuse_cpu: true\n"
)
_TEXT = """\

{head}

Here mgpu runs as `mgpu launch --hosts n1,n2 --hang-after {after} --on-hang stop`, and torch as `torchrun` on each host
with a timeout of {limit} s. The hosts are network namespaces, each with an ssh server, on a machine with {cpus} CPUs
and a load of about {load:.0f} ({date}). The times count from the fault, or from the last step.
`python -m tests.hangs.on_hosts` wrote this section.

| planted | torch: the first error | after | blames | mgpu reports | after | nothing left anywhere |
|---|---|---|---|---|---|---|
"""


class _Output:
    """The lines of a process, each with the time at which it came."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[tuple[float, str]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line.rstrip("\n")))

    def first(self, wanted: Callable[[str], Any]) -> tuple[float, Any] | None:
        return next(((at, found) for at, line in list(self.lines) if (found := wanted(line.strip()))), None)

    def last(self, text: str) -> float | None:
        return max((at for at, line in list(self.lines) if text in line), default=None)


def _stop_rank(bed: SshHosts) -> None:
    for pid, words in bed["n2"].left().items():
        if _PROGRAM in words and "torch.distributed.run" not in words and "mgpu" not in words.partition(_PROGRAM)[0]:
            os.kill(pid, signal.SIGSTOP)


# Program -> what happens to it, what the page calls it, and what makes the host well again.
_CASES: dict[str, tuple[str, Callable[[SshHosts], None] | None, Callable[[SshHosts], None] | None]] = {
    "sleeps": ("the rank of the second host sleeps", None, None),
    "skipped": ("the rank of the second host skips a collective", None, None),
    "stopped": ("SIGSTOP of the rank on the second host", _stop_rank, None),
    "network": ("the network of the second host is cut", lambda bed: bed["n2"].down(), lambda bed: bed["n2"].up()),
    "store": (
        "the first host, with the store, has disappeared",
        lambda bed: bed["n1"].crash(),
        lambda bed: bed["n1"].boot(),
    ),
}


def _plant(bed: SshHosts, program: str, runs: list[_Output]) -> float:
    """Wait until the program is where it hangs, and plant the fault: the time of it."""
    fault, end = _CASES[program][1], time.monotonic() + _START_S
    if fault is None:  # the last step that began is where it stays
        while time.monotonic() < end:
            last = [run.last(PROGRESS) for run in runs]
            if all(last) and time.monotonic() - max(at for at in last if at) > 2:
                break
            time.sleep(0.1)
        return max((at for run in runs if (at := run.last(PROGRESS))), default=time.monotonic())
    while time.monotonic() < end and not all((bed[name].project / "ready").exists() for name in bed.nodes):
        time.sleep(0.1)
    now = time.monotonic()
    fault(bed)
    for name in bed.nodes:
        bed[name].write("project/cut", "")
    return now


def _heal(bed: SshHosts, program: str) -> None:
    if healer := _CASES[program][2]:
        healer(bed)
    for name in bed.names:
        bed[name].kill_all()
    for name in bed.nodes:
        bed[name].run("sh", "-c", "rm -rf /tmp/mgpu-* ready cut")


def _variables() -> dict[str, str]:
    return {"PYTHONPATH": str(ROOT), "MGPU_HANGS_TIMEOUT_S": str(LIMIT_S), "MGPU_HANGS_SHOW": "1"}


def with_torch(bed: SshHosts, program: str) -> tuple[str, str, str]:
    """The first error, when, and which rank torchrun blames."""
    meet = ("--nnodes", "2", "--nproc-per-node", "1", "--master-addr", bed["n1"].address, "--master-port", "29655")
    env = {**_variables(), "GLOO_SOCKET_IFNAME": "eth0"}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    runs = [
        _Output(
            bed[name].popen(
                sys.executable,
                "-m",
                "torch.distributed.run",
                *meet,
                "--node-rank",
                str(number),
                _PROGRAM,
                program,
                env=env,
                **streams,
            )
        )
        for number, name in enumerate(bed.nodes)
    ]
    at = _plant(bed, program, runs)
    while time.monotonic() < at + _MOST_S and any(run.process.poll() is None for run in runs):
        time.sleep(0.2)
    errors = [found for run in runs if (found := run.first(_SAYS.match))]
    texts = ["\n".join(line for _, line in run.lines) for run in runs]
    blamed = [rank[1] for text in texts if (rank := _BLAMED.search(text))]
    first = min(errors, key=lambda one: one[0], default=None)
    for run in runs:
        run.process.kill()
    if first is None:
        return "", f"nothing in {_MOST_S:.0f} s", ""
    said = re.sub(r"\[/\S*/(\w+\.cc:\d+)\]", r"\1:", first[1][1])[:110]
    return f"`{said}`", f"{first[0] - at:.1f} s", " and ".join(blamed)


def with_mgpu(bed: SshHosts, program: str) -> tuple[str, str, str]:
    """What mgpu reports, when it says it first, and when no process is left on any host."""
    place = f"logs-{program}"
    given = (
        "launch",
        "--hosts",
        "n[1-2]",
        "--unverified",
        "allow",
        "--log-dir",
        place,
        "--launcher",
        "torchrun",
        "--hang-after",
        f"{AFTER_S}",
        "--on-hang",
        "stop",
        "--pass-env",
        "PYTHONPATH",
        "--pass-env",
        "MGPU_HANGS_SHOW",
    )
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    env = {name: value for name, value in _variables().items() if name != "MGPU_HANGS_TIMEOUT_S"}
    words = (sys.executable, "-m", "mgpu", *given, _PROGRAM, program)
    run = _Output(bed.head.popen(*words, env=env, **streams))
    at = _plant(bed, program, [run])
    gone = at
    while time.monotonic() < at + _MOST_S:
        left = [words for name in bed.names for words in bed[name].left().values() if not words.startswith("sshd: ")]
        gone = time.monotonic()
        if not left and run.process.poll() is not None:
            break
        time.sleep(0.2)
    result = json.loads((bed.head.project / place / "result.json").read_text())
    cause = result["probable_cause"] or {}
    said = run.first(lambda line: "no progress for" in line or line.startswith("mgpu: FAILED"))
    after = f"{said[0] - at:.1f} s" if said else ""
    return f"{cause.get('title')}, `{cause.get('id')}`", after, f"{gone - at:.1f} s"


def main() -> None:
    """Measure the programs, and write the section."""
    page, *names = sys.argv[1:]
    rows = []
    with tempfile.TemporaryDirectory() as folder, SshHosts(Path(folder) / "hosts") as bed:
        bed.head.write("project/accelerate.yaml", _CONFIG)
        bed.copy_project()
        for program, (what, _, _) in _CASES.items():
            if names and program not in names:
                continue
            said, after, blamed = with_torch(bed, program)
            _heal(bed, program)
            reported, seen, gone = with_mgpu(bed, program)
            _heal(bed, program)
            rows.append(f"| `hosts.{program}`: {what} | {said} | {after} | {blamed} | {reported} | {seen} | {gone} |\n")
            print(rows[-1], flush=True)
    text = Path(page).read_text("utf-8").partition(f"\n{HEAD}")[0]
    about = _TEXT.format(
        head=HEAD,
        after=AFTER_S,
        limit=LIMIT_S,
        date=date.today().isoformat(),
        cpus=os.cpu_count(),
        load=os.getloadavg()[2],
    )
    Path(page).write_text(text + about + "".join(rows), "utf-8")


if __name__ == "__main__":
    main()
