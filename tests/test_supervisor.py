"""Does a program under the supervisor notice nothing of it, and does nothing of it outlive it?

Real programs, pipes, pseudo-terminals, shells and signals. The launcher is Python itself: what is tested here stands
between mgpu and whatever it has started. (test_launch.py has the same with the launchers.)
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pty
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from mgpu import errors
from mgpu.process import exit_code, notices, processes, run_log, stream, supervisor
from mgpu.process.command import Command
from mgpu.report import screen as report_screen
from tests.conftest import ROOT, environment
from tests.scripts import ONE_PROCESS, SCRIPTS, kill_all, marked, start, wait_for, write_config
from tests.scripts.behaves import block
from tests.test_exit_code import EXIT_3, KILLED

LAUNCH = ("launch", "--unverified", "allow", "--launcher", "python")
BEGINS, ENDS = b"your program's output starts here", b"end of your program"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    """A folder with the scripts and a config of one process. Nothing that runs here outlives it."""
    for name in ("behaves.py", "waits.py", "floods.py"):
        shutil.copy(SCRIPTS / name, tmp_path)
    write_config(tmp_path, ONE_PROCESS)
    yield tmp_path
    kill_all(tmp_path)


def ready(folder: Path) -> int:
    """The program is there; its pid."""
    wait_for((folder / "ready").exists, 30)
    return int((folder / "ready").read_text())


def notes(folder: Path) -> str:
    """What mgpu has noted of the only run."""
    (path,) = folder.glob(".mgpu/runs/*/mgpu.log")
    return path.read_text()


# Bytes


def test_a_hundred_megabytes(here: Path) -> None:
    """Every kind of byte, both streams, none lost, none changed, none added; the log has as many."""
    runner = start(*LAUNCH, "behaves.py", "noise", "100", folder=here, stderr=(here / "err").open("wb"))
    received = hashlib.sha256()
    assert runner.stdout is not None
    while data := os.read(runner.stdout.fileno(), 1 << 20):
        received.update(data)
    assert runner.wait(60) == 0
    sent = hashlib.sha256()
    for number in range(100):
        sent.update(block(number))
    assert received.digest() == sent.digest()
    said = (here / "err").read_bytes()
    said = said[said.index(b"\n", said.index(BEGINS)) + 1 :]
    assert said.startswith(b"".join(block(number) for number in range(0, 100, 10)))
    (log,) = here.glob(".mgpu/runs/*/run.log*")
    assert log.stat().st_size == 110 << 20


def test_log_that_cannot_grow(here: Path) -> None:
    """The run goes on, its output is whole, and it is noted why the log is not."""
    words = shlex.join([sys.executable, "-m", "mgpu", *LAUNCH, "floods.py"])
    done = subprocess.run(
        ["bash", "-c", f"ulimit -f 100; exec {words}"],
        cwd=here, env=environment(here / "home"), capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(done.stdout) == 8 << 18
    (log,) = here.glob(".mgpu/runs/*/run.log")
    assert log.stat().st_size == 100 << 10
    assert "the log ends here (File too large). The run continues" in notes(here)


def test_files_are_the_users_alone(here: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Also in a folder where somebody has put a link in place of the log: it is not followed."""
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "file"
    elsewhere.write_text("untouched")
    (here / "logs").mkdir()
    (here / "logs" / "mgpu.log").symlink_to(elsewhere)
    done = start(*LAUNCH, "behaves.py", "streams", "--hub_token", "hf_" + "a" * 34, folder=here)
    assert done.communicate(timeout=60) and done.returncode == 0
    (folder,) = here.glob(".mgpu/runs/*")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.glob("*.log")} == {0o600}
    assert "behaves.py streams --hub_token" in notes(here) and "aaaa" not in notes(here)
    run_log.Notes(here / "logs")("a word")
    assert elsewhere.read_text() == "untouched"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams(here: Path, closed: str) -> None:
    """No file of mgpu's own takes the place of a stream that is not there."""
    words = shlex.join([sys.executable, "-m", "mgpu", *LAUNCH, "behaves.py", "streams"])
    done = subprocess.run(
        ["bash", "-c", f"exec {words} {closed}"],
        cwd=here, env=environment(here / "home"), capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (log,) = here.glob(".mgpu/runs/*/run.log")
    assert sorted(log.read_text().splitlines()) == ["on stderr", "terminals [False, False, False]"]
    if ">&-" not in closed.split():
        assert BEGINS not in done.stdout, "what mgpu says is no part of what the program printed"


def test_stdout_on_a_full_disk(here: Path) -> None:
    """The training goes on, and it is told that its output is not all there: the exit code does not tell it."""
    with open("/dev/full", "wb") as full:
        done = start(*LAUNCH, "behaves.py", "streams", folder=here, stdout=full)
        _, said = done.communicate(timeout=60)
    assert done.returncode == 0, said
    assert "some output could not be written to stdout: No space left on device. See .mgpu/runs/" in said


def test_width_is_that_of_the_terminal_on_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    """stdout is a pipe as often as not: `mgpu launch eval.py > results`."""
    monkeypatch.delenv("COLUMNS", raising=False)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    with os.fdopen(ours, "rb"), os.fdopen(theirs, "w") as stream:
        assert report_screen.Screen.of(stream).width == 40


# The log


def test_log_of_a_long_run(tmp_path: Path) -> None:
    """The beginning and the end are kept, within the limit, and what is missing is said where it is missing."""
    told: list[str] = []
    log = run_log.RunLog(tmp_path, told.append, most=64 << 10)
    lines = [b"step %06d loss 0.123\n" % number for number in range(20_000)]
    for first in range(0, len(lines), 37):
        log.write(memoryview(b"".join(lines[first : first + 37])))
    log.close()
    parts = run_log.parts(tmp_path)
    names = [path.name for path in parts]
    last = int(names[-1].removeprefix("run.log."))
    assert last > 10 and names == ["run.log", f"run.log.{last - 1}", f"run.log.{last}"]
    assert sum(path.stat().st_size for path in parts) <= (64 << 10) + 2 * 120
    begin, middle, end = (path.read_bytes().splitlines(keepends=True) for path in parts)
    assert begin == lines[: len(begin)]
    assert middle[1:] + end[1:] == lines[-len(middle) - len(end) + 2 :]
    left_out = (len(lines) - len(begin) - len(middle) - len(end) + 2) * len(lines[0])
    assert middle[0].startswith(b"[mgpu: %s bytes omitted here" % f"{left_out:,}".encode())
    assert b"nothing is left out" in end[0]
    assert not told


@pytest.mark.parametrize("size", [1, 7, 1000, 70_000, 1 << 20])
def test_table_that_passed_long_ago(size: int) -> None:
    """However it is cut into pieces, and however much a rank prints after it."""
    noise = b"\xff worker 3: bye\r\n" * 30_000
    tables = exit_code.Tables()
    printed = noise[: size * 3] + KILLED + b"restarted\n" + EXIT_3 + (noise if size > 7 else noise[:100_000])
    for first in range(0, len(printed), size):
        tables.feed(printed[first : first + size])
    assert exit_code.training_exit_code(1, tables.last, None) == 3
    assert tables.tail == printed[-(64 << 10) :] and exit_code.first_failure(tables.tail[-50_000:]) is None


def test_what_is_printed_is_no_exit_code_of_a_training_without_a_launcher() -> None:
    assert exit_code.training_exit_code(1, EXIT_3, None, flattened=False) == 1
    assert exit_code.training_exit_code(-9, EXIT_3, None, flattened=False) == 137


# Signals


def test_signals_for_the_program_itself(here: Path) -> None:
    runner = start(*LAUNCH, "waits.py", folder=here)
    wait_for((here / "ready.0").exists, 30)
    runner.send_signal(signal.SIGWINCH)  # of no concern without a terminal
    runner.send_signal(signal.SIGUSR1)
    wait_for((here / "usr1.0").exists, 10)
    (here / "go").touch()
    assert runner.communicate(timeout=30) and runner.returncode == 0


def test_stopped_and_continued(here: Path) -> None:
    """SIGTSTP stops the training and mgpu, SIGCONT wakes both."""
    runner = start(*LAUNCH, "waits.py", folder=here)
    wait_for((here / "ready.0").exists, 30)
    program = int((here / "ready.0").read_text())
    runner.send_signal(signal.SIGTSTP)
    wait_for(lambda: {processes.state_of(pid) for pid in (runner.pid, program)} == {"stopped"}, 10)
    runner.send_signal(signal.SIGCONT)
    wait_for(lambda: {processes.state_of(pid) for pid in (runner.pid, program)} <= {"sleeping", "running"}, 10)
    (here / "go").touch()
    assert runner.communicate(timeout=30) and runner.returncode == 0
    assert [word in notes(here) for word in (" suspended", " resumed")] == [True, True]


def test_second_signal_ends_at_once(here: Path) -> None:
    """The first is left to the program, which ignores it."""
    runner = start(*LAUNCH, "behaves.py", "stubborn", folder=here)
    program = ready(here)
    runner.send_signal(signal.SIGTERM)
    wait_for(lambda: "received SIGTERM, forwarding" in notes(here), 10)
    time.sleep(0.4)
    assert runner.poll() is None and processes.state_of(program) is not None
    runner.send_signal(signal.SIGINT)
    assert runner.communicate(timeout=30) and runner.returncode == 130
    assert not marked(here)


def test_the_same_signal_twice_at_once_is_one(here: Path) -> None:
    """timeout(1) signals the process and then its group: a training that saves its state has the time for it."""
    words = [sys.executable, "-m", "mgpu", *LAUNCH, "behaves.py", "saves"]
    runner = subprocess.Popen(
        ["timeout", "60", *words], cwd=here, env=environment(here / "home"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    ready(here)
    runner.terminate()  # handed on as at the end of the time
    assert runner.communicate(timeout=30) and (here / "saved").exists()
    assert notes(here).count("received SIGTERM") == 1 and "killing the remaining" not in notes(here)


def test_killed_together_with_what_guards_it(here: Path) -> None:
    """`pkill -9 -f mgpu` kills both: the kernel tells the program."""
    runner = start(*LAUNCH, "waits.py", folder=here, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for((here / "ready.0").exists, 30)
    program = int((here / "ready.0").read_text())
    for pid in (*(child for child in children(runner.pid) if child != program), runner.pid):
        os.kill(pid, signal.SIGKILL)
    runner.wait(10)
    wait_for(lambda: not marked(here), 10)


def test_another_guard_for_one_that_was_killed(here: Path) -> None:
    """What the program has started is ended by it when mgpu is killed, too."""
    runner = start(*LAUNCH, "behaves.py", "family", folder=here, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    program = ready(here)
    (guard,) = (pid for pid in children(runner.pid) if pid != program)
    os.kill(guard, signal.SIGKILL)
    wait_for(lambda: "started another one" in notes(here), 10)
    assert len(marked(here)) == 2
    runner.kill()
    runner.wait(10)
    wait_for(lambda: not marked(here), 15)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


# The end

# Ends when nobody reads it. Makes a file once it has printed two lines.
PRINTS = "import time\nfor n in range(3000): print(n, flush=True); n == 1 and open('prints', 'w'); time.sleep(0.02)"
UNTIL_IT_PRINTS = "while not os.path.exists('prints'): time.sleep(0.02)\n"
# Runs `command` under the supervisor, with short limits.
SUPERVISES = """\
import os, sys
from mgpu.process import supervisor
from mgpu.process.command import Command
supervisor._READ_ON_S = supervisor._READ_OUT_S = 0.2
command = Command((sys.executable, "-c", sys.argv[1]), {}, "e" * 32, launcher="python")
"""
RUNS = "print('code', supervisor.Supervisor(command, None).run().returncode, file=sys.stderr)\n"


def test_launcher_killed_while_a_rank_prints(here: Path) -> None:
    """In a session of its own, and never silent for long: it is ended all the same."""
    (here / "dies.py").write_text(
        "import os, subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', {PRINTS!r}], start_new_session=True)\n"
        f"{UNTIL_IT_PRINTS}os.kill(os.getpid(), 9)\n"
    )
    runner = start(*LAUNCH, "dies.py", folder=here)
    printed, _ = runner.communicate(timeout=30)
    assert runner.returncode == 137
    assert printed.startswith("0\n1\n") and "stopped leftover processes" in notes(here)
    assert not marked(here)


def test_insisting_while_one_that_cannot_be_found_prints(here: Path) -> None:
    """A process that was started without the mark holds the pipe: mgpu ends without it."""
    (here / "hides.py").write_text(
        "import os, signal, subprocess, sys, time\n"
        "from pathlib import Path\n"
        "for number in (signal.SIGINT, signal.SIGTERM):\n"
        "    signal.signal(number, signal.SIG_IGN)\n"
        f"hidden = subprocess.Popen([sys.executable, '-c', {PRINTS!r}], env={{}}, start_new_session=True)\n"
        "Path('ready.new').write_text(str(hidden.pid))\n"
        "Path('ready.new').rename('ready')\n"
        "time.sleep(60)\n"
    )
    runner = start(*LAUNCH, "hides.py", folder=here)
    hidden = ready(here)
    runner.send_signal(signal.SIGTERM)
    wait_for(lambda: "received SIGTERM, forwarding" in notes(here), 10)
    time.sleep(0.4)
    runner.send_signal(signal.SIGINT)
    assert runner.communicate(timeout=30) and runner.returncode == 130
    wait_for(lambda: processes.state_of(hidden) in (None, "ended"), 10)  # it has no reader any more


def test_one_that_cannot_be_found_is_not_waited_for(here: Path) -> None:
    (here / "supervises.py").write_text(SUPERVISES + RUNS)
    program = f"import os, subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {PRINTS!r}], env={{}})\n"
    program += UNTIL_IT_PRINTS
    done = subprocess.run(
        [sys.executable, "supervises.py", program],
        cwd=here, env=environment(here / "home", {"PYTHONPATH": str(ROOT)}), capture_output=True, text=True,
        timeout=30, check=False,
    )  # fmt: skip
    assert done.stderr.splitlines()[0] == "code 0"
    assert done.stdout.startswith("0\n1\n")


def test_slow_reader_gets_all(here: Path) -> None:
    """Long after the end of the program, when nobody would be listened to any more."""
    (here / "supervises.py").write_text(SUPERVISES + RUNS)
    runner = subprocess.Popen(
        [sys.executable, "supervises.py", "import os; os.write(1, b'x' * 1_900_000); open('written', 'w').close()"],
        cwd=here, env=environment(here / "home", {"PYTHONPATH": str(ROOT)}),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    wait_for((here / "written").exists, 30)
    time.sleep(0.8)
    assert runner.poll() is None
    printed, said = runner.communicate(timeout=30)
    assert (len(printed), said) == (1_900_000, b"code 0\n")


def test_stream_is_read_out() -> None:
    """What is there, and no more: all of it, or a pipe full."""
    reading, writing = os.pipe()
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        found = stream.Stream(reading, null)
        os.write(writing, b"x" * 300_000)
        found.finish()
        assert (found.read(), found.ended) == (256 << 10, False)
        assert (found.read(), found.ended) == (300_000 - (256 << 10), True)
        found = stream.Stream(reading, null)
        found.finish()
        taken = 0
        while not found.ended:
            os.write(writing, b"x" * (256 << 10))
            taken += found.read()
        assert taken == 1 << 20
    finally:
        for number in (reading, writing, null):
            os.close(number)


def test_signals_for_ranks_that_are_there() -> None:
    """A rank of before may be anybody's process by now."""
    told: list[str] = []
    running = supervisor.Supervisor(Command(("true",), {}, "f" * 32), None, note=told.append)
    with subprocess.Popen(["sleep", "60"]) as other, subprocess.Popen(["sleep", "60"]) as launcher:
        try:
            running.launcher = launcher
            running.ranks[0] = processes.Rank(other.pid)
            running._on_user(signal.SIGUSR1, None)
            assert told == ["received SIGUSR1, forwarding it to the ranks: "]
            time.sleep(0.1)
            assert other.poll() is None
        finally:
            other.kill()
            launcher.kill()


def test_mark_is_kept_by_one_that_renames_itself() -> None:
    command = Command(("true",), {}, "f" * 32)
    assert command.environment({}) == {"MGPU_RUN_ID": "f" * 32, "SPT_NOENV": "1"}
    assert command.environment({"SPT_NOENV": ""})["SPT_NOENV"] == "", "the user's own"
    assert "SPT_NOENV" not in Command(("true",)).environment({})


# In a terminal


def test_no_pseudo_terminal(here: Path) -> None:
    """Pipes in its place: a container may have no /dev/pts."""
    (here / "supervises.py").write_text(
        SUPERVISES + "def fails():\n    raise FileNotFoundError(2, 'No such file or directory')\nos.openpty = fails\n"
        "done = supervisor.Supervisor(command, None, note=print).run()\n"
    )
    shown = _shown(
        [sys.executable, "supervises.py", "import os; print([os.isatty(n) for n in (1, 2)])"],
        here, {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert b"no pseudo-terminal, using pipes: No such file or directory" in shown
    assert b"[False, False]\r\n" in shown and b"the launcher exited with 0" in shown


def test_guard_leaves_a_terminal_that_is_not_the_runs(here: Path) -> None:
    """A job in the background never had it: somebody else has set it as it is."""
    (here / "ends.py").write_text(
        "import sys, termios\n"
        "from mgpu.process import guard\n"
        "def put_back(*words):\n"
        "    other = termios.tcgetattr(0)\n"
        "    wanted = [*other[:3], other[3] ^ termios.ECHO, *other[4:]]\n"
        "    watching = guard.Guard('f' * 32, wanted)\n"
        "    for word in words:\n"
        "        watching.set_raw(word)\n"
        "    watching.end(done=False)\n"
        "    return termios.tcgetattr(0) != other\n"
        "print([put_back(), put_back(True, False), put_back(True), put_back(True, False, True)])\n"
    )
    shown = _shown([sys.executable, "ends.py"], here, {"PYTHONPATH": str(ROOT)})
    assert shown == b"[False, False, True, True]\r\n"


class Screen:
    """A shell on a pseudo-terminal of 24 x 80, with mgpu ready to be started."""

    def __init__(self, folder: Path) -> None:
        pexpect = pytest.importorskip("pexpect")
        self.folder = folder
        variables = environment(folder / "home", {"TERM": "xterm", "PS1": "$ ", "PYTHONPATH": str(ROOT)})
        self.child: Any = pexpect.spawn(
            "bash", ["--norc", "--noprofile", "-i"],
            cwd=str(folder), env=variables, encoding="utf-8", timeout=30, dimensions=(24, 80),
        )  # fmt: skip
        self.child.sendline("bind 'set enable-bracketed-paste off'; PS1='ready: '")
        self.child.expect("\nready: |\rready: ")

    def launch(self, *arguments: str, after: str = "") -> None:
        words = shlex.join([sys.executable, "-m", "mgpu", *LAUNCH, "--yes", *arguments])
        self.child.sendline(f"{words}{after}; echo code $?.")

    def code(self) -> int:
        """What mgpu ended with."""
        self.child.expect(r"code (\d+)\.")
        return int(self.child.match.group(1))

    def settings(self) -> str:
        """The terminal's, as the shell has them now."""
        self.child.expect("ready: ")
        self.child.sendline("stty -a; echo 'that was' all")
        self.child.expect("(speed.*)that was all")
        return " ".join(self.child.match.group(1).split())


@pytest.fixture
def screen(here: Path) -> Iterator[Screen]:
    found = Screen(here)
    yield found
    found.child.close(force=True)


def test_keys_and_sizes(here: Path, screen: Screen) -> None:
    """A program that wants every key gets Ctrl-C as one; a word is typed unseen; the window's size when it changes."""
    screen.launch("behaves.py", "raw")
    ready(here)
    screen.child.send("\x03")
    screen.child.expect(r"key b'\\x03'")
    assert screen.code() == 0
    screen.launch("behaves.py", "password")
    screen.child.expect("Word: ")
    time.sleep(0.2)
    screen.child.sendline("abcde")
    screen.child.expect("word of 5 letters")
    assert "abcde" not in screen.child.before
    assert screen.code() == 0
    (here / "ready").unlink()
    screen.launch("behaves.py", "sizes")
    ready(here)
    screen.child.setwinsize(40, 132)
    screen.child.expect(r"size os.terminal_size\(columns=132, lines=40\)")
    (here / "go").touch()
    assert screen.code() == 0
    assert " icanon" in (settings := screen.settings()) and " echo " in settings and " opost" in settings


def test_streams_stay_apart(here: Path, screen: Screen) -> None:
    """What is a terminal is one for the program, what is a file is none and gets its own bytes."""
    screen.launch("behaves.py", "streams", after=" 2>err")
    screen.child.expect(r"terminals \[True, True, False\]")
    assert screen.code() == 0
    assert "on stderr\n" in (here / "err").read_text()
    screen.launch("behaves.py", "streams", after=" >out")
    screen.child.expect("on stderr")
    assert screen.code() == 0
    assert (here / "out").read_text() == "terminals [True, False, True]\n"
    screen.launch("behaves.py", "streams", after=" </dev/null")
    screen.child.expect(r"terminals \[False, True, True\]")
    assert screen.code() == 0


def test_terminal_shows_what_it_would_without_mgpu(here: Path) -> None:
    """Colours, carriage returns, odd bytes, line ends: byte for byte."""
    script = here / "paints.py"
    script.write_text(
        "import sys\n"
        "out = sys.stdout.buffer\n"
        "for n in range(3000):\n"
        "    out.write(b'\\x1b[3%dm line %d \\x1b[0m\\xff\\xc3 \\t|\\r 50%%\\r\\n' % (n % 8, n))\n"
        "    out.write(b'plain\\n')\n"
    )
    plain = _shown([sys.executable, "paints.py"], here)
    ours = _shown([sys.executable, "-m", "mgpu", *LAUNCH, "--yes", "paints.py"], here)
    ours = ours[ours.index(b"\r\n", ours.index(BEGINS)) + 2 :]
    assert len(plain) > 100_000
    assert ours.startswith(plain)
    assert re.match(rb"[^\n]*" + ENDS, ours[len(plain) :].replace(b"\x1b[1m", b""))
    (log,) = here.glob(".mgpu/runs/*/run.log")
    assert log.read_bytes() == plain.replace(b"\r\n", b"\n")


def _shown(command: list[str], folder: Path, more: Mapping[str, str] = MappingProxyType({})) -> bytes:
    """All that a command shows on a terminal of its own."""
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execvpe(command[0], command, environment(folder / "home", {"TERM": "dumb", **more}))
    found = bytearray()
    with contextlib.suppress(OSError):  # EIO at its end
        while data := os.read(master, 1 << 16):
            found += data
    os.close(master)
    os.waitpid(pid, 0)
    return bytes(found)


def test_ctrl_z_and_fg(here: Path, screen: Screen) -> None:
    """The shell has its terminal back as it was, the training stands still; fg resumes both, and keys work again."""
    screen.launch("waits.py")
    wait_for((here / "ready.0").exists, 30)
    program = int((here / "ready.0").read_text())
    screen.child.send("\x1a")
    screen.child.expect("Stopped")
    assert " icanon" in (settings := screen.settings()) and " isig" in settings
    assert processes.state_of(program) == "stopped"
    screen.child.sendline("fg; echo code $?.")
    wait_for(lambda: processes.state_of(program) in ("sleeping", "running"), 10)
    wait_for(lambda: "resumed" in notes(here), 10)
    screen.child.send("\x03")
    assert screen.code() == errors.INTERRUPTED
    assert " icanon" in screen.settings()
    assert not marked(here)


def test_ctrl_c_twice(here: Path, screen: Screen) -> None:
    screen.launch("behaves.py", "stubborn")
    ready(here)
    screen.child.send("\x03")
    wait_for(lambda: "SIGINT from the keyboard" in notes(here), 10)
    time.sleep(0.4)
    assert marked(here)
    screen.child.send("\x03")
    assert screen.code() == errors.INTERRUPTED
    assert not marked(here)


def test_terminal_that_is_closed(here: Path, screen: Screen) -> None:
    """As when a window is closed or ssh is cut: the training ends, nothing is left."""
    screen.launch("waits.py")
    wait_for((here / "ready.0").exists, 30)
    screen.child.close(force=True)
    wait_for(lambda: not marked(here), 30)
    wait_for(lambda: "the launcher exited" in notes(here), 10)
    assert "received SIGHUP, forwarding" in notes(here)


def test_killed_in_a_terminal(here: Path) -> None:
    """Nothing is left, and the terminal is as it was. No shell between: bash would mend it by itself."""
    master, inner = pty.openpty()
    before = termios.tcgetattr(inner)
    runner = subprocess.Popen(
        [sys.executable, "-m", "mgpu", *LAUNCH, "--yes", "waits.py"], cwd=here, env=environment(here / "home"),
        stdin=inner, stdout=inner, stderr=inner, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    try:
        wait_for((here / "ready.0").exists, 30)
        wait_for(lambda: termios.tcgetattr(inner) != before, 10)
        runner.kill()
        assert runner.wait(10) == -signal.SIGKILL
        wait_for(lambda: not marked(here), 10)
        wait_for(lambda: termios.tcgetattr(inner) == before, 10)
    finally:
        os.close(inner)
        os.close(master)


def test_a_word_amid_a_progress_bar(here: Path, screen: Screen) -> None:
    """On a line of its own, never in the program's log; the bar goes on."""
    (here / "speaks.py").write_text(
        "import sys\n"
        "from pathlib import Path\n"
        "from mgpu.process import notices, run_log, supervisor\n"
        "from mgpu.process.command import Command\n"
        "said = []\n"
        "def tick(running):\n"
        "    if running.seconds > 0.5 and not said:\n"
        "        said.append(running.say('all GPUs \\x1b[31mwork'))\n"
        "notices._SAY_S = 0.5\n"
        "command = Command((sys.executable, 'behaves.py', 'bar'), {}, 'd' * 32, launcher='python')\n"
        "folder = Path(sys.argv[1])\n"
        "folder.mkdir(parents=True)\n"
        "running = supervisor.Supervisor(command, None, [tick], run_log.Notes(folder))\n"
        "running.log = run_log.open_log(folder, running.say)\n"
        "running.run()\n"
    )
    screen.child.sendline(f"{sys.executable} speaks.py runs/1; echo code $?.")
    screen.child.expect(r"done\r\nmgpu: all GPUs  \[31mwork\r\n")
    screen.child.expect(r"\r\d+\.\d done")
    (here / "go").touch()
    assert screen.code() == 0
    assert "GPUs" not in (here / "runs/1/run.log").read_text()
    (here / "go").unlink()
    runner = subprocess.Popen(
        [sys.executable, "speaks.py", "runs/2"], cwd=here, env=environment(here / "home", {"PYTHONPATH": str(ROOT)}),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    noted = here / "runs/2/mgpu.log"
    wait_for(lambda: noted.exists() and "message: all GPUs" in noted.read_text(), 30)
    (here / "go").touch()
    assert (runner.communicate(timeout=30)[1], runner.returncode) == ("", 0)


def test_a_message_is_broken_between_words() -> None:
    """At the width of the terminal; a command stays whole, so that it can be copied."""
    said = "Continue the rank that a debugger has stopped.  kill -CONT 2345 2346 2347 2348 2349 2350"
    assert notices._folded(said, 40) == [
        "mgpu: Continue the rank that a debugger",
        "      has stopped.",
        "      kill -CONT 2345 2346 2347 2348 2349 2350",
    ]
    assert notices._folded(said, 0) == notices._folded(said, 200) == [f"mgpu: {said}"]


def test_the_program_is_read_ahead_of_a_slow_reader() -> None:
    """While one buffer waits for the reader, the next is filled; then the program waits. No byte changes place."""
    source, program = os.pipe()
    reader, target = os.pipe()
    passing = stream.Stream(source, target)
    sent, read, received = os.urandom(4 << 20), 0, bytearray()
    os.set_blocking(program, False)
    os.set_blocking(reader, False)
    left = memoryview(sent)
    filled = False
    while len(received) < len(sent):
        with contextlib.suppress(BlockingIOError):
            left = left[os.write(program, left) :]
        if passing.takes and (size := passing.read()):
            read += size
            continue
        if not filled and not passing.takes:  # the reader's pipe, and both buffers
            filled = True
            assert fcntl.fcntl(reader, fcntl.F_GETPIPE_SZ) + (256 << 10) < read < len(sent)
        with contextlib.suppress(BlockingIOError):
            received += os.read(reader, 70_000)
        passing.write()
    assert filled and bytes(received) == sent
    for number in (source, program, reader, target):
        os.close(number)
