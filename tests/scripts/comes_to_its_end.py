"""Comes to its end as its argument says, on rank 1 (rank 0 when it is alone); the other ranks wait for it."""

import argparse
import os
import resource
import signal
import sys
import time
from pathlib import Path

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
how = sys.argv[1]
print(f"rank {RANK} begins: {how}", flush=True)
if how == "well":
    sys.exit(0)
Path(f"at.{RANK}.new").write_text(str(os.getpid()))
Path(f"at.{RANK}.new").rename(f"at.{RANK}")
if RANK == WORLD - 1:
    if how == "exit":
        sys.exit(int(sys.argv[2]))
    if how == "raise":
        try:
            print(dict(os.environ)["loss"])
        except KeyError as error:
            raise ValueError("the loss is NaN") from error
    if how == "arguments":
        argparse.ArgumentParser().parse_args(sys.argv[2:])
    if how == "memory":
        resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))
        bytearray(1 << 30)
    if how == "cgroup":
        taken = []
        while True:
            taken.append(b"x" * (50 << 20))
    if how == "hang":
        os.kill(os.getpid(), signal.SIGSTOP)
    if how.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, how))
while True:
    time.sleep(0.05)
