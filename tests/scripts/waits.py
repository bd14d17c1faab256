"""Waits until there is a file named `go`. Tells in ready.RANK that it is there, in usr1.RANK that SIGUSR1 came.

`child`: rank 0 leaves a process behind, and nobody waits; `upload`: one in a session of its own.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

rank = os.environ.get("RANK", "0")
signal.signal(signal.SIGUSR1, lambda number, frame: Path(f"usr1.{rank}").touch())
leaves = sys.argv[1:] in (["child"], ["upload"])
if leaves and rank == "0":
    child = subprocess.Popen(["sleep", "300"], start_new_session=sys.argv[1] == "upload")
    Path("child.tmp").write_text(str(child.pid), "utf-8")
    Path("child.tmp").rename("child")
print("a terminal" if sys.stdin.isatty() and sys.stdout.isatty() else "no terminal", flush=True)
Path(f"ready.{rank}").write_text(str(os.getpid()), "utf-8")
deadline = time.monotonic() + 60
while not leaves and time.monotonic() < deadline and not Path("go").exists():
    time.sleep(0.05)
