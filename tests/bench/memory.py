"""How much memory does mgpu take, its children included?

    python -m tests.bench.memory [ROUNDS]

The process tree of `mgpu doctor --quick` (no torch) is sampled until it ends: the sum of the resident sets of all its
processes, which counts shared pages once for each, and of their proportional sets, which does not. Peaks.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

LIMIT_MIB = 512


def tree(root: int) -> list[int]:
    """The process and all its descendants."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError, IndexError, ValueError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def memory(pid: int) -> tuple[float, float]:
    """Resident and proportional set, in MiB."""
    values = {"Rss:": 0.0, "Pss:": 0.0}
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            name, *rest = line.split()
            if name in values:
                values[name] = int(rest[0]) / 1024
    return values["Rss:"], values["Pss:"]


def peak(arguments: list[str], folder: str) -> tuple[float, float, int]:
    """The peaks of one run, and the most processes seen at once."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mgpu", *arguments], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, env={**os.environ, "XDG_STATE_HOME": f"{folder}/state"},
    )  # fmt: skip
    most = (0.0, 0.0, 0)
    while process.poll() is None:
        pids = tree(process.pid)
        sizes = [memory(pid) for pid in pids]
        now = sum(rss for rss, _ in sizes), sum(pss for _, pss in sizes), len(pids)
        most = max(most[0], now[0]), max(most[1], now[1]), max(most[2], now[2])
    return most


def main() -> None:
    """Print the peaks of several runs, and whether the promise is kept."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as folder:
        found = [peak(["doctor", "--quick"], folder) for _ in range(rounds)]
    rss, pss, number = (max(values) for values in zip(*found, strict=True))
    print(f"mgpu doctor --quick: peak {rss:.0f} MiB resident, {pss:.0f} MiB proportional, "
          f"{number} processes ({rounds} runs; at most {LIMIT_MIB} MiB)")  # fmt: skip


if __name__ == "__main__":
    main()
