"""A launcher and its two ranks, which NVML shows at work: they are put into the description that the fake NVML reads.

`python on_gpus.py FOLDER`: until there is a file FOLDER/stop. The ranks do nothing at all.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path


def main(folder: Path) -> int:
    waits = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    ranks = [
        subprocess.Popen(
            waits, stdin=subprocess.PIPE, env={**os.environ, "RANK": str(n), "LOCAL_RANK": str(n), "WORLD_SIZE": "2"}
        )
        for n in range(2)
    ]
    lines = [
        line
        for n, rank in enumerate(ranks)
        for line in (
            f"{n}.compute_processes = {rank.pid}:{30 + n}GiB",
            f"{n}.memory_used = {31 + n}GiB",
            f"{n}.utilization = {95 + n} 40",
        )
    ]
    described = Path(os.environ["FAKE_NVML"])
    other = described.with_name("at_work")
    other.write_text("\n".join([described.read_text("utf-8"), *lines, ""]), "utf-8")
    other.replace(described)
    print("step 1", flush=True)
    while not (folder / "stop").exists():
        time.sleep(0.05)
    print("step 100", flush=True)
    for rank in ranks:
        assert rank.stdin is not None
        rank.stdin.close()
        rank.wait()
    return 3


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
