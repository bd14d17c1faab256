"""Does anything outlive mgpu when it is stopped: a process, a scratch folder?

A probe hangs in a fake driver, or a program that mgpu starts hangs; then mgpu gets a signal. The processes are found by
a variable that they inherit from mgpu, whatever session they are in.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from mgpu.process import child_process, scratch, signals
from tests.conftest import ROOT, environment
from tests.fake_nvml import FAULTS, machine
from tests.fake_nvml import environment as with_nvml
from tests.scripts import fault, start, wait_for, write_config

INT, TERM, HUP, QUIT, KILL = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL
_GONE_S = 15.0  # on a busy machine; what is left behind sleeps for 600
_PROBE = "nvml.py"
_HANGS = "#!/bin/sh\nsleep 600\nexit 0\n"  # a shell and its child


def processes(folder: Path) -> dict[int, str]:
    """The live processes that were started for the test of this folder, and their command lines."""
    mark = f"HOME={folder / 'home'}".encode()
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, IndexError):
            if mark in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                state = Path(f"/proc/{name}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
                if state != "Z":
                    words = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ")
                    found[int(name)] = words.decode("utf-8", "replace")
    return found


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    """A folder with a temporary folder of its own, and programs that hang. Whatever is left of it is killed."""
    for name in ("home", "tmp", "bin"):
        (tmp_path / name).mkdir()
    for name in ("hangs", "sinfo", "scontrol", "sacctmgr"):
        (tmp_path / "bin" / name).write_text(_HANGS)
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "train.py").write_text("import time\ntime.sleep(600)\n")
    yield tmp_path
    for pid in processes(tmp_path):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, KILL)


def hangs(folder: Path, word: str) -> bool:
    """Whether a process with `word` in its command line is as far as it comes: a probe in the driver's library."""
    for pid, words in processes(folder).items():
        with contextlib.suppress(OSError):
            if word in words and (word != _PROBE or "libnvidia-ml" in Path(f"/proc/{pid}/maps").read_text()):
                return True
    return False


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def stopped_while(
    word: str, number: signal.Signals, folder: Path, line: str, env: Mapping[str, str]
) -> tuple[int, str, str]:
    """mgpu, signalled when a process with `word` in its command line hangs: exit code, stdout, stderr."""
    environ = {"TMPDIR": str(folder / "tmp"), **env}
    runner = start(*line.replace("HERE", str(folder)).split(), folder=folder, env=environ)
    wait_for(lambda: hangs(folder, word))
    if "--json" in line:  # the probes that answered are reaped by a mgpu that has read its command line
        wait_for(lambda: len(children_of(runner.pid)) == 1)
    time.sleep(0.2)
    runner.send_signal(number)
    began = time.monotonic()
    out, err = runner.communicate(timeout=30)
    wait_for(lambda: not processes(folder), max(0.1, began + _GONE_S - time.monotonic()))
    return runner.returncode, out, err


def scratch_folders(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder / "tmp") if name.startswith("mgpu-")]


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("doctor --quick", QUIT),
        ("doctor --quick --json --path /tmp", TERM),
        ("doctor --quick --path /tmp", KILL),
        ("doctor --quick --path /tmp", INT),
        ("doctor --quick --exit-style nagios", TERM),
        ("doctor --quick --exit-style prolog", KILL),
        ("configure --yes --params 1B", HUP),
        ("configure --yes --params 1B", KILL),
        ("configure --validate accelerate.yaml", HUP),
        ("smoke-test --cpu 2", TERM),
        ("smoke-test --cpu 2", KILL),
        ("launch --dry-run train.py", INT),
        ("launch --gpus 1 --unverified allow train.py", TERM),
    ],
)
def test_a_hung_probe_ends_with_mgpu(here: Path, library: Path, line: str, number: signal.Signals) -> None:
    write_config(here)
    env = with_nvml(library, machine(here / "described", "a100_sxm_x4", FAULTS["nvml_hangs"]))
    code, out, err = stopped_while(_PROBE, number, here, line, env)
    if number is KILL:
        return
    assert code == 128 + number, err
    assert "Traceback" not in err and scratch_folders(here) == []
    if number is INT:
        assert "mgpu: interrupted" in err
    if "--json" in line:
        assert json.loads(out)["exit_code"] == code


@pytest.mark.parametrize(
    ("line", "word", "number"),
    [
        ("doctor --python HERE/bin/hangs", "sleep 600", KILL),
        ("doctor --python HERE/bin/hangs", "sleep 600", TERM),
        ("configure --yes --params-from train.py", "parameter_probe_child", KILL),
        ("configure --yes --params-from train.py", "parameter_probe_child", TERM),
        ("configure --slurm --yes --params 1B", "sinfo", KILL),
        ("configure --slurm --yes --params 1B", "sinfo", HUP),
        ("configure --slurm --yes --params 1B", "sinfo", INT),
    ],
)
def test_a_hung_program_ends_with_mgpu(here: Path, line: str, word: str, number: signal.Signals) -> None:
    """With what it has started itself."""
    env = {"PATH": f"{here / 'bin'}:{os.environ['PATH']}"}
    code, _, err = stopped_while(word, number, here, line, env)
    assert code == (-KILL if number is KILL else 128 + number), err
    assert number is KILL or scratch_folders(here) == []


def test_a_signal_that_is_ignored_stays_so(here: Path, library: Path) -> None:
    """nohup, also where the probes do not start ahead."""
    env = with_nvml(library, machine(here / "described", "a100_sxm_x4", FAULTS["nvml_hangs"]))
    runner = start("doctor", "--quick", "--path", "/tmp", folder=here, env=env, ignoring=[HUP])
    wait_for(lambda: hangs(here, _PROBE))
    runner.send_signal(HUP)
    with pytest.raises(subprocess.TimeoutExpired):
        runner.wait(0.5)
    runner.send_signal(TERM)
    runner.send_signal(TERM)  # as timeout(1) does it
    runner.communicate(timeout=20)
    assert runner.returncode == 128 + TERM and not processes(here)


def test_ranks_of_a_smoke_test_end_with_it(here: Path) -> None:
    """`kill -9`, one rank stopped and the other waiting for it, and no guard: the guard is killed first."""
    env = fault("SIGSTOP", "step 3 of ") | {"TMPDIR": str(here / "tmp")}
    runner = start("smoke-test", "--cpu", "2", "--level", "quick", folder=here, env=env)
    wait_for(lambda: any('"step 3 of ' in path.read_text() for path in here.glob(".mgpu/runs/smoke-*/rank1.jsonl")))
    same = Path(f"/proc/{runner.pid}/cmdline").read_bytes()
    (guard,) = [pid for pid in children_of(runner.pid) if Path(f"/proc/{pid}/cmdline").read_bytes() == same]
    os.kill(guard, KILL)
    runner.kill()
    runner.communicate(timeout=10)
    wait_for(lambda: not processes(here), _GONE_S)
    (left,) = scratch_folders(here)
    made_by("", here)
    assert left not in scratch_folders(here)


# ---- scratch folders


def made_by(text: str, here: Path) -> subprocess.Popen[str]:
    """A process that makes a scratch folder, says its path, and does `text` before it removes it."""
    program = "from mgpu.process import scratch\nimport time\nwith scratch.folder() as path:\n"
    program += "    print(path, flush=True)\n    "
    env = {**os.environ, "TMPDIR": str(here / "tmp"), "HOME": str(here / "home"), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", program + text], env=env, stdout=subprocess.PIPE, text=True)
    if not text:
        process.communicate(timeout=20)
    return process


def test_a_scratch_folder_lives_as_long_as_its_owner(here: Path) -> None:
    owner = made_by("time.sleep(600)", here)
    assert owner.stdout is not None
    path = Path(owner.stdout.readline().strip())
    (path / "sub").mkdir()
    (path / "sub" / "link").symlink_to(here / "bin")
    (path / "folder").symlink_to(here / "bin", target_is_directory=True)
    (path / "config.yaml").write_text("x")
    made_by("", here)
    assert (path / "config.yaml").exists() and path.stat().st_mode & 0o777 == 0o700
    owner.kill()
    owner.communicate()
    made_by("", here)
    assert os.listdir(here / "tmp") == []
    assert (here / "bin" / "hangs").exists()


def _left(here: Path, name: str = "mgpu-left") -> Path:
    """A folder as a killed mgpu leaves it."""
    path = here / "tmp" / name
    path.mkdir(mode=0o700)
    (path / "log").write_text("x")
    lock = scratch._mark(str(path))
    assert lock is not None
    os.close(lock)
    return path


def test_a_folder_in_which_a_process_still_writes_is_removed(tmp_path: Path) -> None:
    """As a rank that just ends: it creates files and removes them while the folder is emptied."""
    folder = tmp_path / "mgpu-far"
    folder.mkdir()
    code = (
        "import os, sys, time\nend = time.monotonic() + 0.8\nwhile time.monotonic() < end:\n"
        "    try:\n        os.path.isdir(sys.argv[1] + '/a') or os.mkdir(sys.argv[1] + '/a')\n"
        "        open(sys.argv[1] + f'/a/{time.monotonic_ns()}', 'w').close()\n"
        "    except OSError:\n        pass\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(folder)]):
        with scratch.adopted(str(folder)):
            wait_for(lambda: (folder / "a").exists(), 20)
        assert not folder.exists()


def test_what_a_sweep_leaves_alone(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that mgpu cannot prove to be a scratch folder without an owner."""
    open_to_others = _left(here, "mgpu-others")
    open_to_others.chmod(0o755)
    unmarked = here / "tmp" / "mgpu-run-1"
    unmarked.mkdir(mode=0o700)
    elsewhere = _left(here, "elsewhere")  # another prefix, and the aim of a link
    (here / "tmp" / "mgpu-link").symlink_to(elsewhere)
    linked = _left(here, "mgpu-linked")
    os.link(linked / scratch._MARKER, here / "marker")
    foreign = _left(here, "mgpu-foreign")
    (foreign / scratch._MARKER).write_text("somebody else's\n")
    pointed = _left(here, "mgpu-pointed")
    (pointed / scratch._MARKER).unlink()
    (pointed / scratch._MARKER).symlink_to(elsewhere / scratch._MARKER)
    of_another_boot = _left(here, "mgpu-boot")
    with monkeypatch.context() as changed:
        changed.setattr(scratch, "boot_id", lambda: "another")
        scratch.sweep(str(here / "tmp"))
    kept = {open_to_others, unmarked, elsewhere, linked, foreign, pointed}
    assert all(path.is_dir() for path in (*kept, of_another_boot))
    if os.getuid() == 0:
        theirs = _left(here, "mgpu-theirs")
        os.chown(theirs, 12345, 12345)
        kept.add(theirs)
    mine = _left(here)
    scratch.sweep(str(here / "tmp"))
    assert not mine.exists() and not of_another_boot.exists()
    assert all(path.is_dir() and any(path.iterdir()) for path in kept - {unmarked}) and unmarked.is_dir()
    assert (here / "tmp" / "mgpu-link").is_symlink()


def test_a_crowded_folder_is_not_read_to_its_end(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr(scratch, "_MOST_ENTRIES", 50)
    monkeypatch.setattr(scratch, "_sweep", lambda parent, name: looked.append(name))
    for number in range(200):
        (here / "tmp" / f"mgpu-{number}").mkdir()
    monkeypatch.setattr(scratch, "_MOST_REMOVED", 10**6)
    looked.clear()
    with contextlib.suppress(TypeError):  # the stand-in gives no number
        scratch.sweep(str(here / "tmp"))
    assert len(looked) <= 50


def test_two_sweeps_at_once(here: Path) -> None:
    """Whoever gets the lock removes it; the other goes on."""
    for number in range(30):
        _left(here, f"mgpu-{number}")
    program = f"from mgpu.process import scratch\nscratch._MOST_REMOVED = 99\nscratch.sweep({str(here / 'tmp')!r})"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    sweeps = [subprocess.Popen([sys.executable, "-c", program], env=env, stderr=subprocess.PIPE) for _ in range(2)]
    assert [sweep.communicate(timeout=20)[1] for sweep in sweeps] == [b"", b""]
    assert os.listdir(here / "tmp") == []


# ---- one way to start a process, one way to handle a signal


_STARTS = {
    "subprocess": {"Popen", "run", "call", "check_call", "check_output", "getoutput", "getstatusoutput"},
    "os": {"fork", "forkpty", "system", "popen", "posix_spawn", "posix_spawnp"},
    "pty": {"fork", "spawn"},
    "asyncio": {"create_subprocess_exec", "create_subprocess_shell"},
    "signal": {"signal"},
    "tempfile": {"TemporaryDirectory", "mkdtemp"},
}
# What is allowed there, and why.
_ALLOWED = {
    "mgpu/process/child_process.py": {"Popen"},  # the one way
    "mgpu/process/signals.py": {"signal"},
    "mgpu/process/scratch.py": {"mkdtemp"},
    # The user's run: under `kill -9` of mgpu the launcher gets SIGTERM, and the guard ends what is left.
    "mgpu/process/supervisor.py": {"Popen", "signal"},
    "mgpu/process/guard.py": {"fork", "signal"},  # outlives mgpu, to end the run and put the terminal back
    "mgpu/slurm/node_watch.py": {"fork", "signal"},  # the job's step that watches a node ends on TERM; a guardian
    "mgpu/slurm/job_watch.py": {"call"},  # the step itself: Slurm ends it with the job
    "mgpu/launch/detached.py": {"fork", "signal"},  # outlives the command: --detach
    "mgpu/launchers/argv.py": {"signal"},  # --exec: as the launcher expects them
    "mgpu/one_file/self_unpacking.py": {"mkdtemp"},  # mgpu's sources in the user's cache, which stay
    "mgpu/launchers/run_folder.py": {"mkdtemp"},  # the folder of a run's logs, which stays
}
# Run inside of a probe's process, by Pythons without mgpu: killed with the probe's process group.
_IN_A_PROBE = {"mgpu/probes/kernel_log.py", "mgpu/probes/libraries.py", "mgpu/probes/pci.py"}


def _calls(path: Path) -> Iterator[tuple[ast.Call, str, str]]:
    """The calls of a file that start a process, change a signal's handler or make a temporary folder."""
    text = path.read_text("utf-8")
    if not any(module in text for module in _STARTS):
        return
    tree = ast.parse(text)
    names = {
        alias.asname or alias.name: (node.module or "", alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
            for base in bases:
                if isinstance(base, ast.Attribute) and base.attr == "Popen":
                    yield ast.Call(base, [], []), "subprocess", "Popen"
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            module, name = node.func.value.id, node.func.attr
        elif isinstance(node.func, ast.Name):
            module, name = names.get(node.func.id, ("", ""))
        else:
            continue
        if name in _STARTS.get(module, ()):
            yield node, module, name


def test_every_process_is_started_in_one_place() -> None:
    found: dict[str, set[str]] = {}
    for path in (*sorted((ROOT / "mgpu").rglob("*.py")), *sorted((ROOT / "checks").rglob("*.py"))):
        place = str(path.relative_to(ROOT))
        if place.startswith("mgpu/smoke/ranks/"):  # processes of the launcher's
            continue
        for call, module, name in _calls(path):
            if place in _IN_A_PROBE and module == "subprocess":
                assert not {word.arg for word in call.keywords} & {"start_new_session", "process_group", "preexec_fn"}
                continue
            found.setdefault(place, set()).add(name)
    assert found == _ALLOWED


def test_a_program_that_is_dropped_is_killed() -> None:
    program = child_process.start(["sleep", "600"])
    pid = program.pid
    assert os.getsid(pid) == pid
    del program
    wait_for(lambda: not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text(), 5)


def _pipes() -> set[str]:
    links = [Path(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
    return {os.readlink(link) for link in links if link.is_symlink() and "pipe:" in os.readlink(link)}


def test_a_tie_takes_no_place_for_good() -> None:
    gc.collect()
    before = _pipes()
    for _ in range(5):
        assert child_process.run(["sh", "-c", "read x; echo $x"], 20, input=b"word").stdout == b"word\n"
    with pytest.raises(FileNotFoundError):
        child_process.start(["/nowhere"])
    assert _pipes() <= before


def test_a_limit_ends_what_a_program_has_started(tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        child_process.run(["sh", "-c", f"sleep 600 & echo $! > {tmp_path}/pid; wait"], 0.5)
    pid = int((tmp_path / "pid").read_text())
    wait_for(lambda: not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text(), 5)


def test_handlers_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "_last", None)
    ignored = signal.signal(HUP, signal.SIG_DFL)  # nohup's children ignore it
    before = {number: signal.getsignal(number) for number in (INT, *signals.STOPPING)}
    with pytest.raises(signals.Stopped) as stopped, signals.stop_once():
        try:
            signal.raise_signal(HUP)
        finally:
            signal.raise_signal(INT)  # does not interrupt the clean-up
            signal.raise_signal(TERM)
    assert (stopped.value.number, stopped.value.code, signals.exit_code()) == (HUP, 129, 129)
    assert before == {number: signal.getsignal(number) for number in (INT, *signals.STOPPING)}
    signal.signal(HUP, ignored)


def test_ctrl_c_while_a_string_is_executed(tmp_path: Path) -> None:
    """Where dataclasses are imported, Python would end itself with SIGINT in place of the exit code."""
    (tmp_path / "interrupted.py").write_text(
        "import sys\nfrom mgpu.process import signals\nsignals.raise_on_signals()\n"
        "try:\n    exec('import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(9)')\n"
        "except KeyboardInterrupt:\n    sys.exit(130)\n"
    )
    env = environment(tmp_path, {"PYTHONPATH": str(ROOT)})
    assert subprocess.run([sys.executable, "-m", "interrupted"], cwd=tmp_path, env=env, check=False).returncode == 130
