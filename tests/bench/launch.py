"""What does a launch cost, beside the same launcher called directly?

    python -m tests.bench.launch [ROUNDS]

Throughput: 100 MB that a program prints, and that it writes in blocks, from its first byte to its last at the reader,
through pipes and through a terminal; they are compared byte for byte. Start-up: to the first line of a script of two
ranks, and to the end of the command, with a config that a smoke test has verified. With and without mgpu in turn,
every other round in the opposite order; medians, and the ratios and differences are those within a round. They are
what counts: the seconds are this machine's, and a busy machine shows in the spread.

A terminal's output needs a second pseudo-terminal, and a process that copies between the two: util-linux's script(1),
written in C, does the same and keeps the same log. Where it is installed it runs in turn with the others, and mgpu must
keep as much of the rate as it does.
"""

from __future__ import annotations

import os
import pty
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.scripts import ONE_PROCESS, TWO_RANKS, write_config

ROUNDS = 7
MEGABYTES = 100
LEAST_OF_SCRIPT = 0.9  # of what script(1) keeps of the direct rate
LEAST_RATIO, MOST_ADDED_S, MOST_MIB = 0.8, 0.35, 60 / 1.048576
_LOOK_EVERY = 100  # reads, of up to a megabyte
_BEGIN, _END = b"<the first byte", b"the last byte>"
# What a training does is to print lines. Beside it, what no training does: blocks as fast as the kernel takes them, of
# odd bytes where nothing changes them, of lines for a terminal, which makes \r\n of their ends. Then the copying itself
# is all there is, and mgpu, which reads, logs and writes, is a third process that wants a core.
_WRITES = """\
import os, sys
if sys.argv[1] == "prints":
    os.write(1, b"<the first byte")
    for _ in range(int(sys.argv[2]) * 10000):
        print("step 1234: loss 0.6931, learning rate 1.0e-04, 3.14 samples a second, grad norm 0.577215664901532")
    sys.stdout.flush()
    os.write(1, b"the last byte>")
    sys.exit()
block = os.urandom(1 << 16) if sys.argv[1] == "odd" else (b"x" * 99 + b"\\n") * 655
os.write(1, b"<the first byte")
for _ in range(int(sys.argv[2]) * 1000000 // len(block)):
    left = memoryview(block)
    while left:
        left = left[os.write(1, left):]
os.write(1, b"the last byte>")
"""
_FIRST_LINE = "import os, time\nif os.environ['RANK'] == '0': print(time.time(), flush=True)\n"
_DIRECT = [sys.executable]
_LAUNCH = [sys.executable, "-m", "mgpu", "launch", "--yes"]
_ALONE = [*_LAUNCH, "--unverified", "allow", "--launcher", "python", "--log-dir", "logs"]


class Reader:
    """Takes all that comes, and keeps the time of the first and the last byte of what was asked for."""

    def __init__(self, of: int | None = None) -> None:
        """`of`: the process whose memory is looked at now and then."""
        self.parts: list[bytes] = []
        self.began = self.ended = self.peak_mib = 0.0
        self._of = of

    def take(self, number: int) -> None:
        before = b""  # a mark may be cut in two
        with suppress(OSError):  # EIO at a terminal's end
            while data := os.read(number, 1 << 20):
                now = time.perf_counter()
                if not self.began and _BEGIN in before + data:
                    self.began = now
                if not self.ended and _END in before + data[-4096:]:
                    self.ended = now
                before = (before + data[-len(_BEGIN) :])[-len(_BEGIN) :]
                self.parts.append(data)
                if self._of is not None and (len(self.parts) % _LOOK_EVERY == 0 or self.ended):
                    self.peak_mib = max(self.peak_mib, _peak_mib(self._of))

    @property
    def payload(self) -> bytes:
        whole = b"".join(self.parts)
        return whole[whole.index(_BEGIN) : whole.rindex(_END)]

    @property
    def rate(self) -> float:
        """Megabytes a second."""
        return len(self.payload) / 1e6 / (self.ended - self.began)


def through_pipe(command: list[str], folder: Path) -> Reader:
    """The output of a command, and the peak memory of its own process."""
    process = subprocess.Popen(
        command, cwd=folder, env=_environment(folder), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None
    reader = Reader(process.pid)
    reader.take(process.stdout.fileno())
    _must(process.wait() == 0, command)
    return reader


def through_terminal(command: list[str], folder: Path) -> Reader:
    reader = Reader()
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execvpe(command[0], command, _environment(folder))
    reader.take(master)
    os.close(master)
    _must(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, command)
    return reader


def throughput(rounds: int, folder: Path, how: Callable[[list[str], Path], Reader], kind: str) -> float:
    """One line of the table; the peak memory of mgpu in MiB."""
    write_config(folder, ONE_PROCESS)
    (folder / "writes.py").write_text(_WRITES)
    program = ["writes.py", kind, str(MEGABYTES)]
    direct = [*_DIRECT, *program]
    commands = {"direct": direct, "mgpu": [*_ALONE, *program]}
    if how is through_terminal and shutil.which("script"):
        commands["script"] = ["script", "-q", "-e", "-c", shlex.join(direct), "script.log"]
    rates: dict[str, list[float]] = {name: [] for name in commands}
    most = 0.0
    for turn in range(rounds + 1):
        sizes = {}
        for name in list(commands)[:: -1 if turn % 2 else 1]:
            reader = how(commands[name], folder)
            payload = reader.payload
            sizes[name] = len(payload)
            if kind == "odd" and name == "mgpu":
                log = (folder / "logs" / "run.log").read_bytes()
                _must(log == payload + _END, ["the log is what was read"])
            most = max(most, reader.peak_mib if name == "mgpu" else 0)
            if turn:  # the first warms the file cache
                rates[name].append(reader.rate)
        _must(len(set(sizes.values())) == 1, ["as many bytes with mgpu as without"])
    _print_rates(f"{how.__name__} {kind}", rates)
    return most


def _print_rates(what: str, rates: Mapping[str, Sequence[float]]) -> None:
    """One line of the table: the rates, and mgpu's ratio to the direct one, or to script's where that is the limit."""
    ratios = {
        name: [one / direct for one, direct in zip(each, rates["direct"], strict=True)] for name, each in rates.items()
    }
    ratio = statistics.median(ratios["mgpu"])
    least, limit = LEAST_RATIO, ""
    if "script" in ratios:
        kept = statistics.median(ratios["script"])
        least = min(LEAST_RATIO, LEAST_OF_SCRIPT * kept)
        limit = f", script {kept:.2f}"
    print(
        f"{what:<24}direct {statistics.median(rates['direct']):>6.0f} MB/s   mgpu "
        f"{statistics.median(rates['mgpu']):>6.0f} MB/s   ratio {ratio:.2f} ({min(ratios['mgpu']):.2f} to "
        f"{max(ratios['mgpu']):.2f}{limit}; at least {least:.2f})  {_word(ratio >= least)}"
    )


def start_up(rounds: int, folder: Path) -> None:
    """How much later the script begins, and the command ends, with mgpu."""
    write_config(folder, TWO_RANKS)
    (folder / "first.py").write_text(_FIRST_LINE)
    tested = [sys.executable, "-m", "mgpu", "smoke-test", "--level", "quick"]
    _must(subprocess.run(tested, cwd=folder, env=_environment(folder), capture_output=True).returncode == 0, tested)
    shown = [*_LAUNCH, "--print-command", "first.py"]
    taken: dict[str, list[tuple[float, float]]] = {"direct": [], "mgpu": []}
    for turn in range(rounds + 1):
        for name in ("direct", "mgpu")[:: -1 if turn % 2 else 1]:
            line = subprocess.run(shown, cwd=folder, env=_environment(folder), capture_output=True, text=True).stdout
            command = ["sh", "-c", f"exec env {line}"] if name == "direct" else [*_LAUNCH, "first.py"]
            began = time.time()
            done = subprocess.run(
                command, cwd=folder, env=_environment(folder), capture_output=True, text=True, stdin=subprocess.DEVNULL
            )
            ended = time.time()
            _must(done.returncode == 0, [*command, done.stderr])
            if turn:
                taken[name].append((float(done.stdout.split()[0]) - began, ended - began))
    for place, what in enumerate(("to the first line", "to the end")):
        direct, ours = ([times[place] for times in taken[name]] for name in ("direct", "mgpu"))
        added = [one - other for one, other in zip(ours, direct, strict=True)]
        median = statistics.median(added)
        print(
            f"{what:<18}direct {statistics.median(direct):>6.2f} s      mgpu {statistics.median(ours):>6.2f} s      "
            f"added {median:.2f} s ({min(added):.2f} to {max(added):.2f}; at most {MOST_ADDED_S})  "
            f"{_word(median <= MOST_ADDED_S)}"
        )


def _environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "HOME": str(folder), "XDG_STATE_HOME": f"{folder}/state", "TERM": "dumb"}


def _peak_mib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


def _must(good: bool, what: list[str]) -> None:
    if not good:
        sys.exit(f"failed: {' '.join(what)}")


def _word(good: bool) -> str:
    return "ok" if good else "TOO SLOW"


def main() -> None:
    """Print the figures beside what the project promises."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    print(f"{rounds} rounds, medians; load of this machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        throughput(rounds, folder, through_pipe, "prints")
        throughput(rounds, folder, through_terminal, "prints")
        peak = throughput(rounds, folder, through_pipe, "odd")
        throughput(rounds, folder, through_terminal, "lines")
        shutil.rmtree(folder / "logs", ignore_errors=True)
        start_up(rounds, folder)
    print(f"{'memory':<18}mgpu's own process: at most {peak:.0f} MiB while 100 MB pass (less than 60 MB)  "
          f"{'ok' if 0 < peak < MOST_MIB else 'TOO MUCH'}")  # fmt: skip


if __name__ == "__main__":
    main()
