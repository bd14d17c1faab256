"""What does it cost to watch the GPUs of a run? CPU time and memory of the child that reads NVML.

    python -m tests.bench.watching [SECONDS]

Of this machine's GPUs, or where there are none of eight that are described (what NVML itself takes is then left out).
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from mgpu import probes
from mgpu.probes.gpu_monitor import Gauges
from tests import fake_nvml


def main(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        gpus = probes.gather([probes.NVML]).gpus
        if not gpus:
            listed = [f"{index}.compute_processes = {os.getpid()}:60GiB" for index in range(8)]
            described = fake_nvml.machine(Path(folder), "h100_sxm_x8", *listed)
            os.environ.update(fake_nvml.environment(fake_nvml.build(Path(folder) / "nvml"), described))
        child = Gauges(1.0, "MGPU_RUN_ID=none")
        try:
            while not child.read():
                time.sleep(0.05)
            pid, number, began = child.child.process.pid, child.number, time.monotonic()
            before, own = used(pid), time.process_time()
            while time.monotonic() < began + seconds:
                time.sleep(0.25)
                child.read()
            spent, took = used(pid) - before, time.monotonic() - began
            print(f"{'described' if not gpus else len(gpus)} GPUs, {child.number - number} readings in {took:.0f} s")
            print(f"start            {before:.2f} s of CPU")
            print(f"child            {100 * spent / took:.2f} % of a core")
            print(f"reader           {100 * (time.process_time() - own) / took:.2f} % of a core")
            print(f"child, resident  {resident(pid)}")
        finally:
            child.end()


def used(pid: int) -> float:
    """CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> str:
    """Its memory."""
    lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    return next(line.split(":")[1].strip() for line in lines if line.startswith("VmRSS"))


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)
