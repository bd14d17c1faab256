"""How fast does mgpu answer, compared with the tools people run today?

    python -m tests.bench.start_up [ROUNDS]

Whole processes, wall clock, interleaved (one of each per round, so that a drifting machine hits all alike), medians.
The ratios are what counts; the seconds are this machine's.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

TORCH = "python -c 'import torch'"
COMMANDS: dict[str, list[str]] = {
    "python -c pass": ["-c", "pass"],
    "mgpu --version": ["-m", "mgpu", "--version"],
    "mgpu --help": ["-m", "mgpu", "--help"],
    "mgpu doctor --quick": ["-m", "mgpu", "doctor", "--quick"],
    "mgpu doctor": ["-m", "mgpu", "doctor"],
    TORCH: ["-c", "import torch"],
    "accelerate env": ["-m", "accelerate.commands.accelerate_cli", "env"],
    "torch.utils.collect_env": ["-m", "torch.utils.collect_env"],
}


def seconds(arguments: list[str], folder: str) -> float:
    """One run of `python ARGUMENTS`; its exit code does not matter (doctor ends with 4 where there is no GPU)."""
    # Compiling everything anew at each start is not what a user's Python does.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment | {"XDG_STATE_HOME": f"{folder}/state", "TERM": "dumb"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return time.perf_counter() - start


def main() -> None:
    """Print the table and the ratios the project promises."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as folder:
        for arguments in COMMANDS.values():  # warm the file cache
            seconds(arguments, folder)
        for _ in range(rounds):
            for name, arguments in COMMANDS.items():
                taken[name].append(seconds(arguments, folder))
    median = {name: statistics.median(values) for name, values in taken.items()}
    print(f"{'command':<28}{'median s':>10}{'fastest':>10}{'slowest':>10}   ({rounds} rounds, interleaved)")
    for name, values in taken.items():
        print(f"{name:<28}{median[name]:>10.3f}{min(values):>10.3f}{max(values):>10.3f}")
    quick, env = median["mgpu doctor --quick"], median["accelerate env"]
    print()
    print(f"mgpu --version               {median['mgpu --version']:.3f} s   (at most 0.15 s)")
    print(f"mgpu doctor --quick          {quick:.3f} s   (at most 0.3 s)")
    print(f"  of accelerate env          {quick / env:.2f} x  (at most 0.2 x)")
    print(f"mgpu doctor of import torch  {median['mgpu doctor'] / median[TORCH]:.2f} x")


if __name__ == "__main__":
    main()
