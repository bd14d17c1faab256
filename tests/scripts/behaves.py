"""Does one thing that a supervisor has to get right, by its first argument; tells in `ready` that it is there.

stubborn: ignores INT, TERM and HUP. saves: on TERM takes its time, writes `saved` and ends well. family: starts a
process in a session of its own. raw: takes one key of which the terminal makes nothing. password: asks for a word
without echo. sizes: prints the terminal's size at each change, until `go` is there. bar: a line that never ends, until
`go` is there. streams: what is a terminal. noise N: N blocks of odd bytes on stdout, one on stderr for each ten.
"""

import getpass
import os
import random
import signal
import subprocess
import sys
import termios
import time
import tty
from pathlib import Path

BLOCK = 1 << 20


def block(number: int) -> bytes:
    """A megabyte of every kind of byte, no two alike."""
    return random.Random(0).randbytes(BLOCK - 8) + number.to_bytes(8, "big")


def ready() -> None:
    Path("ready.new").write_text(str(os.getpid()), "utf-8")
    Path("ready.new").rename("ready")


def wait(limit_s: float = 60) -> None:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline and not Path("go").exists():
        time.sleep(0.05)


def saved(number: int, frame: object) -> None:
    time.sleep(0.7)
    Path("saved").touch()
    sys.exit(0)


def one_key() -> None:
    before = termios.tcgetattr(0)
    tty.setraw(0)
    ready()
    key = os.read(0, 1)
    termios.tcsetattr(0, termios.TCSANOW, before)
    print("key", key)


def main() -> None:
    how = sys.argv[1]
    if how == "stubborn":
        for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_IGN)
        ready()
        wait()
    elif how == "saves":
        signal.signal(signal.SIGTERM, saved)
        ready()
        wait()
    elif how == "family":
        with subprocess.Popen(["sleep", "300"], start_new_session=True):
            ready()
            wait()
    elif how == "raw":
        one_key()
    elif how == "password":
        ready()
        print("word of", len(getpass.getpass("Word: ")), "letters")
    elif how == "sizes":
        signal.signal(signal.SIGWINCH, lambda number, frame: print("size", os.get_terminal_size(), flush=True))
        ready()
        wait()
    elif how == "bar":
        sys.stdout.write("an own line\n")
        ready()
        while not Path("go").exists():
            sys.stdout.write(f"\r{time.monotonic():.1f} done")
            sys.stdout.flush()
            time.sleep(0.1)
    elif how == "streams":
        print("terminals", [os.isatty(number) for number in (0, 1, 2)], flush=True)
        print("on stderr", file=sys.stderr)
    elif how == "noise":
        for number in range(int(sys.argv[2])):
            data = block(number)
            os.write(1, data)  # a pipe takes all of it
            if number % 10 == 0:
                os.write(2, data)


if __name__ == "__main__":
    main()
