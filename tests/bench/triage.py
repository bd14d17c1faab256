"""How long does triage take for a gigabyte of log, and how much memory?

    python -m tests.bench.triage [MEGABYTES]

The log is made as trainings make one: progress bars that overwrite themselves, metrics of every step, warnings of eight
ranks, exceptions that a library caught, and at the end one rank that fails and seven that follow. A second one holds a
gigabyte of lines that are all different (generated text), which no memory of shapes helps with. Processor time, not
time on the clock: other programs run here too.
"""

from __future__ import annotations

import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from mgpu.readers.log import read, row_matching

_CAUGHT = (
    "Traceback (most recent call last):\n"
    '  File "/opt/venv/lib/python3.11/site-packages/requests/adapters.py", line 667, in send\n'
    "    resp = conn.urlopen(\n"
    '  File "/opt/venv/lib/python3.11/site-packages/urllib3/connectionpool.py", line 841, in urlopen\n'
    "    retries = retries.increment(\n"
    "urllib3.exceptions.MaxRetryError: HTTPSConnectionPool(host='api.wandb.ai', port=443): Max retries exceeded\n"
)
_END = (
    "[rank5]: Traceback (most recent call last):\n"
    '[rank5]:   File "/home/u/train.py", line 41, in main\n'
    "[rank5]:     loss = model(batch)\n"
    "[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 5 has 79 GiB\n"
)


def usual(size: int) -> Iterator[str]:
    """Pieces of a training's log, about `size` bytes of it."""
    chance = random.Random(7)
    made = step = 0
    while made < size:
        parts = []
        for _ in range(1000):
            step += 1
            done = step % 100
            bar = "█" * (done // 4) + " " * (25 - done // 4)
            left = f"{step // 60}:{done:02}<2:{done:02}, {chance.uniform(1, 9):.2f}it/s"
            parts.append(f"\rEpoch {step // 100}:  {done}%|{bar}| {step}/9000000 [{left}]")
            if step % 3 == 0:
                parts.append(
                    f"\n{{'loss': {chance.random():.4f}, 'grad_norm': {chance.random():.3f}, 'learning_rate': "
                    f"{chance.random():.2e}, 'epoch': {step / 100:.2f}}}\n"
                )
            if step % 7 == 0:
                parts.append(
                    f"[2026-11-21 10:{step % 60:02}:{done % 60:02},{step % 1000:03}] [INFO] [logging.py:96:log_dist] "
                    f"[Rank {step % 8}] step={step}, skipped=0, lr=[{chance.random():.6f}], mom=[(0.9, 0.999)]\n"
                )
            if step % 50 == 0:
                parts.append(
                    f"[rank{step % 8}]:[W1121 10:12:{done % 60:02}.408 reducer.cpp:1400] Warning: "
                    "find_unused_parameters=True was specified, but did not find any unused parameters in the forward\n"
                )
            if step % 20_000 == 0:
                parts.append(_CAUGHT)
        text = "".join(parts)
        made += len(text.encode())
        yield text
    yield _END


def different(size: int) -> Iterator[str]:
    """Lines that are all different."""
    chance = random.Random(8)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 10))) for _ in range(5000)]
    made = 0
    while made < size:
        text = "".join(" ".join(chance.choices(words, k=14)) + "\n" for _ in range(1000))
        made += len(text)
        yield text
    yield _END


def main() -> None:
    size = int(sys.argv[1] if len(sys.argv) > 1 else 1000) * 1_000_000
    rows = row_matching.signature_rows()
    print(f"{len(rows)} rows")
    with tempfile.TemporaryDirectory() as folder:
        for name, pieces in (("usual", usual(size)), ("all different", different(size // 4))):
            path = Path(folder, "run.log")
            with path.open("w", encoding="utf-8", newline="") as file:
                file.writelines(pieces)
            start = time.process_time()
            log = read.read_logs([path], rows)
            took = time.process_time() - start
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
            rate = log.size_bytes / took / 1e6
            print(
                f"{name:<14} {log.size_bytes / 1e9:.2f} GB, {log.lines:,} lines: {took:.1f} s of processor time, "
                f"{rate:.0f} MB/s, peak memory {peak} MiB; {len(log.seen)} signatures, {len(log.raised)} exceptions"
            )


if __name__ == "__main__":
    main()
