"""Comes to its end as its argument says, on rank 1 (rank 0 when it is alone); the other ranks wait for it."""

import argparse
import os
import resource
import signal
import subprocess
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
if how in ("early", "says") and RANK == 0:  # not before the other has ended
    try:
        while not Path("at.1").exists() or Path(f"/proc/{Path('at.1').read_text()}/maps").read_bytes():
            time.sleep(0.01)
    except OSError:  # it has exited, and was waited for
        pass
if how == "early" and RANK == 0:  # as a rank that has more data than the other
    time.sleep(2)
    sys.exit(5)
if how == "says" and RANK == 0:  # as torch reports a peer that exited (synthetic)
    print("[rank0]: Traceback (most recent call last):", file=sys.stderr)
    print('[rank0]:   File "train.py", line 1, in <module>', file=sys.stderr)
    print("[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer", file=sys.stderr)
    print("[rank0]: [127.0.0.1]:22177", file=sys.stderr, flush=True)
if RANK == WORLD - 1:
    if how == "early":
        time.sleep(1.5)  # a rank that imports torch lives longer than this
        sys.exit(0)
    while how in ("exits", "says") and WORLD > 1 and not Path("at.0").exists():  # what rank 0 prints comes before
        time.sleep(0.01)
    if how == "exits":  # as C++ does when a thread is stopped at Python's exit
        print("done", flush=True)
        os.write(2, b"terminate called without an active exception\n")
        os.abort()
    if how == "says":
        sys.exit("the dataset is empty, giving up")
    if how == "exit":
        sys.exit(int(sys.argv[2]))
    if how == "raise":
        try:
            print(dict(os.environ)["loss"])
        except KeyError as error:
            raise ValueError("the loss is odd") from error
    if how == "command":
        subprocess.run([sys.executable, "-c", "import sys; sys.exit('no space for the cache')"], check=True)
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
