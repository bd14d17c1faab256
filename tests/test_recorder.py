"""Does the recorder record what a rank does, without the rank noticing? In real interpreters."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from mgpu.hangs import hang_evidence, stack_requests
from mgpu.hangs.hang_evidence import INJECTED, RECORDED, Inquiry
from mgpu.launchers.port import free_port
from mgpu.process import processes
from mgpu.process.command import Command
from mgpu.recorder.inject._mgpu_recorder import BEAT, FOLDER, MEMORY_AT, SIGNAL, SIGNAL_TO_PYTHON
from mgpu.snapshot import NOT_LOADED
from mgpu.structured_text import json_of
from tests.conftest import PYTHONPATH, ROOT, environment, need
from tests.scripts import wait_for

ASLEEP = "import time, sys; print('there', flush=True); time.sleep(60)"


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that end with the test."""
    found: list[subprocess.Popen[str]] = []
    yield found
    for process in found:
        process.kill()
        process.communicate()


def variables(folder: Path, added: Mapping[str, str] | None = None, path: str = "", rank: str = "3") -> dict[str, str]:
    """The environment of a rank, with a PYTHONPATH of the user."""
    recorded = folder / RECORDED
    recorded.mkdir(exist_ok=True)
    paths = f"{INJECTED}{os.pathsep}{path}" if path else str(INJECTED)
    found = {**environment(folder), "PYTHONPATH": paths, FOLDER: str(recorded), **(added or {})}
    return found | ({"RANK": rank} if rank else {})


def python(code: str, env: Mapping[str, str], *options: str, cwd: Path | None = None) -> Any:
    """Run it to its end."""
    command = [sys.executable, *options, "-c", code]
    return subprocess.run(command, env=env, cwd=cwd, text=True, capture_output=True, timeout=120, check=False)


def asleep(started: list[subprocess.Popen[str]], code: str, env: Mapping[str, str], *options: str) -> int:
    """Start it, and wait for its first line; its pid."""
    process = subprocess.Popen(
        [sys.executable, *options, "-c", code], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    started.append(process)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    return process.pid


def looked_at(folder: Path, pid: int, rank: int = 3) -> Any:
    """What is found out about a rank."""
    inquiry = Inquiry(folder, {rank: processes.Rank(pid)})
    inquiry.ask()
    inquiry._ready_at += 10
    while inquiry.is_waiting():
        time.sleep(0.02)
    return inquiry.result()[0][0]


def names(folder: Path, kind: str) -> list[str]:
    return sorted(path.name for path in (folder / RECORDED).glob(f"*.{kind}"))


# The start of an interpreter


def test_it_answers_and_prints_nothing(tmp_path: Path, started: list[subprocess.Popen[str]]) -> None:
    pid = asleep(started, ASLEEP, variables(tmp_path))
    found = looked_at(tmp_path, pid)
    assert [frame.line for frame in found.frames] == [1] and found.silent is None
    assert found.state == "sleeping" and found.collectives == ()
    os.kill(pid, signal.SIGTERM)
    output, said = started[0].communicate()
    assert (output, said, started[0].returncode) == ("", "", -signal.SIGTERM)
    assert names(tmp_path, "*") == [f"3.{pid}.stacks"]


@pytest.mark.parametrize("end", ["pass", "raise SystemExit(7)", "1/0", "import os; os.abort()"])
def test_the_program_ends_as_without_it(tmp_path: Path, end: str) -> None:
    code = f"import sys; print('out'); print('err', file=sys.stderr)\n{end}"
    with_it, without = python(code, variables(tmp_path)), python(code, environment(tmp_path))
    assert (with_it.returncode, with_it.stdout, with_it.stderr) == (without.returncode, without.stdout, without.stderr)
    (stacks,) = (tmp_path / RECORDED).glob("*.stacks")
    assert stacks.read_bytes() == b"", "faulthandler must not be enabled for the program's own faults"


@pytest.mark.parametrize("rank", ["", "3"])
def test_ctrl_c_ends_it_by_the_signal(tmp_path: Path, started: list[subprocess.Popen[str]], rank: str) -> None:
    pid = asleep(started, ASLEEP, variables(tmp_path, rank=rank))
    os.kill(pid, signal.SIGINT)
    said = started[0].communicate()[1]
    assert "KeyboardInterrupt" in said and started[0].returncode == -signal.SIGINT
    assert names(tmp_path, "raised") == names(tmp_path, "values") == []


def test_it_imports_no_torch_and_little_else(tmp_path: Path) -> None:
    code = "import sys; print(*sys.modules)"
    more = set(python(code, variables(tmp_path)).stdout.split()) - set(
        python(code, environment(tmp_path)).stdout.split()
    )
    heavy = {"torch", "json", "threading", "subprocess", "pathlib", "socket", "logging", "inspect", "asyncio", "mmap"}
    assert "_mgpu_recorder" in more and not more & heavy and len(more) < 50, more


def test_a_process_that_is_no_rank_gets_no_handler(tmp_path: Path, started: list[subprocess.Popen[str]]) -> None:
    pid = asleep(started, ASLEEP, variables(tmp_path, rank=""))
    assert not stack_requests.listens(pid)
    assert looked_at(tmp_path, pid).silent == NOT_LOADED
    assert processes.state_of(pid) not in (None, "ended"), "the signal would have ended it"
    assert names(tmp_path, "*") == []


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_a_python_that_ignores_the_environment(
    tmp_path: Path, started: list[subprocess.Popen[str]], option: str
) -> None:
    pid = asleep(started, ASLEEP, variables(tmp_path), option)
    assert looked_at(tmp_path, pid).silent == "its Python has not loaded the recorder (options -I, -E, -S?)"
    assert processes.state_of(pid) not in (None, "ended")


def test_a_process_that_took_the_signal_back_is_not_signaled(
    tmp_path: Path, started: list[subprocess.Popen[str]]
) -> None:
    code = f"import signal; signal.signal({SIGNAL}, signal.SIG_DFL); {ASLEEP}"
    pid = asleep(started, code, variables(tmp_path))
    assert looked_at(tmp_path, pid).silent == "it did not answer"
    assert processes.state_of(pid) not in (None, "ended")


# The user's own


def test_the_users_sitecustomize_runs(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys; sys.mine = __name__, __file__\n")
    code = "import sys, sitecustomize; print(*sys.mine, sitecustomize.__file__); import mine"
    (own / "mine.py").write_text("print('imported')\n")
    done = python(code, variables(tmp_path, path=str(own)))
    where = str(own / "sitecustomize.py")
    assert done.stdout.split() == ["sitecustomize", where, where, "imported"], done.stderr
    assert names(tmp_path, "stacks"), "the recorder runs too"


def test_an_environment_with_a_sitecustomize_of_its_own(tmp_path: Path) -> None:
    """As distributions and conda packages have one in site-packages."""
    made = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made)], check=True)
    (packages,) = made.glob("lib/python*/site-packages")
    (packages / "sitecustomize.py").write_text("import sys; sys.mine = __file__\n")
    code, env = "import sys; print(sys.mine)", variables(tmp_path)
    done = subprocess.run([made / "bin/python", "-c", code], env=env, text=True, capture_output=True, check=False)
    assert done.stdout.strip() == str(packages / "sitecustomize.py"), done.stderr
    assert names(tmp_path, "stacks"), "the recorder runs too"


def test_an_error_in_the_users_sitecustomize_is_reported_by_python(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("raise RuntimeError('mine')\n")
    with_it = python("print(1)", variables(tmp_path, path=str(own)))
    without = python("print(1)", {**environment(tmp_path), "PYTHONPATH": str(own)})
    assert (with_it.returncode, with_it.stdout, with_it.stderr) == (without.returncode, without.stdout, without.stderr)
    assert "RuntimeError: mine" in with_it.stderr


def test_the_users_path_and_other_variables_stay(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    command = Command(("x",), {"PYTHONPATH": "/a:/b", "A": "1"})
    added = hang_evidence.with_recorder(command, tmp_path / "runs", {"PYTHONPATH": "/other"}).env_added
    assert added["PYTHONPATH"] == f"{INJECTED}:/a:/b" and added["A"] == "1"
    added = hang_evidence.with_recorder(Command(("x",)), tmp_path / "runs", {"PYTHONPATH": "/other"}).env_added
    assert added["PYTHONPATH"] == f"{INJECTED}:/other"
    assert hang_evidence.with_recorder(Command(("x",)), tmp_path / "runs", {}).env_added["PYTHONPATH"] == str(INJECTED)


def test_the_users_excepthook_is_called_and_the_exception_recorded(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys; sys.excepthook = lambda *found: print('mine', found[1])\n")
    done = python("def f(): raise KeyError('label')\nf()", variables(tmp_path, path=str(own)))
    assert done.stdout == "mine 'label'\n" and done.returncode == 1
    later = "import sys; old = sys.excepthook\nsys.excepthook = lambda *found: (print('mine'), old(*found))\n1/0"
    done = python(later, variables(tmp_path))
    assert done.stdout == "mine\n" and "ZeroDivisionError" in done.stderr
    (record,) = names(tmp_path, "raised")
    assert (tmp_path / RECORDED / record).read_text() == "ZeroDivisionError: division by zero\n<string>:3:<module>\n"


def test_import_hooks_of_others_still_work(tmp_path: Path) -> None:
    own = tmp_path / "own" / "torch" / "optim"
    own.mkdir(parents=True)
    for place in (own.parent, own):
        (place / "__init__.py").touch()
    (own / "optimizer.py").write_text("hooks = []\nregister_optimizer_step_post_hook = hooks.append\n")
    code = """
import sys
class Mine:
    asked = []
    def find_spec(self, name, path=None, target=None):
        self.asked.append(name)
sys.meta_path.insert(1, Mine())
import torch.optim.optimizer as found
print(len(found.hooks), found.__name__, found.__spec__.loader.__class__.__name__, "torch.optim.optimizer" in Mine.asked)
"""
    done = python(code, variables(tmp_path, path=str(tmp_path / "own")))
    assert done.stdout.split() == ["1", "torch.optim.optimizer", "SourceFileLoader", "True"], done.stderr


def test_a_module_that_was_only_looked_for_is_hooked_later(tmp_path: Path) -> None:
    own = tmp_path / "own" / "torch" / "optim"
    own.mkdir(parents=True)
    for place in (own.parent, own):
        (place / "__init__.py").touch()
    (own / "optimizer.py").write_text("hooks = []\nregister_optimizer_step_post_hook = hooks.append\n")
    code = """
import importlib.util
print(importlib.util.find_spec("torch.optim.optimizer") is not None)
import torch.optim.optimizer as found
print(len(found.hooks))
"""
    done = python(code, variables(tmp_path, path=str(tmp_path / "own")))
    assert done.stdout.split() == ["True", "1"], done.stderr


def test_a_loader_that_cannot_be_changed_still_loads(tmp_path: Path) -> None:
    code = """
import sys
from importlib.machinery import ModuleSpec
class Fixed:
    __slots__ = ()
    def create_module(self, spec): return None
    def exec_module(self, module): module.loaded = True
class Mine:
    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, Fixed(), is_package=True) if name.partition(".")[0] == "safetensors" else None
sys.meta_path.insert(1, Mine())
import safetensors.torch
print(safetensors.torch.loaded)
"""
    done = python(code, variables(tmp_path))
    assert (done.stdout, done.stderr, done.returncode) == ("True\n", "", 0)


def test_the_counters_have_their_place_on_the_disk(tmp_path: Path) -> None:
    """If they had not, a disk that is full would end the rank with SIGBUS when it counts."""
    code = "import _mgpu_recorder as it; it._joined(3); it.RECORDER.stepped()"
    done = python(code, variables(tmp_path))
    assert done.returncode == 0, done.stderr
    (name,) = names(tmp_path, "beat")
    assert (tmp_path / RECORDED / name).stat().st_blocks * 512 >= MEMORY_AT


# A folder that cannot be written


@pytest.mark.parametrize("how", ["missing", "a file", "read-only"])
def test_a_folder_that_cannot_be_written_does_not_disturb(tmp_path: Path, how: str) -> None:
    env = variables(tmp_path)
    recorded = tmp_path / RECORDED
    recorded.rmdir()
    if how == "a file":
        recorded.touch()
    if how == "read-only":
        env[FOLDER] = "/proc"
    done = python("import sys; print(sys.excepthook is sys.__excepthook__)\n1/0", env)
    assert done.returncode == 1 and done.stderr.count("Traceback") == 1 and "_mgpu" not in done.stderr
    shown = python("print('goes on')", env | {"MGPU_DEBUG": "1"})
    assert "_mgpu_recorder.py" in shown.stderr and shown.stdout == "goes on\n" and shown.returncode == 0


def test_a_full_folder_does_not_disturb(tmp_path: Path) -> None:
    code = "import os; os.symlink('/dev/full', os.environ['MGPU_RECORDER'] + f'/3.{os.getpid()}.raised.tmp')\n1/0"
    done = python(code, variables(tmp_path))
    assert done.returncode == 1 and done.stderr.count("Traceback") == 1 and "No space" not in done.stderr


def test_a_temporary_folder_that_cannot_be_written_is_not_needed(
    tmp_path: Path, started: list[subprocess.Popen[str]]
) -> None:
    pid = asleep(started, ASLEEP, variables(tmp_path, {"TMPDIR": "/proc/none"}))
    assert [frame.line for frame in looked_at(tmp_path, pid).frames] == [1]


WITHOUT_PTRACE = """
import subprocess, sys
from pathlib import Path
from tests.test_recorder import looked_at
code = "import ctypes, time; ctypes.CDLL(None).prctl(4, 0); print('there', flush=True); time.sleep(60)"
with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as rank:
    rank.stdout.readline()
    try:
        print(open(f"/proc/{rank.pid}/syscall").read())
    except PermissionError:
        print("not permitted")
    found = looked_at(Path(sys.argv[1]), rank.pid)
    print(found.frames[0].line, found.state, found.silent, found.waits_for)
    rank.kill()
"""


def test_nothing_depends_on_ptrace(tmp_path: Path) -> None:
    """The kernel refuses all that needs ptrace, as in a container or with yama's ptrace_scope 3."""
    env = variables(tmp_path)
    env["PYTHONPATH"] += f"{os.pathsep}{ROOT}"
    given = [sys.executable, "-c", WITHOUT_PTRACE, str(tmp_path)]
    if os.geteuid() == 0:
        need("setpriv")
        given = ["setpriv", "--bounding-set=-sys_ptrace", *given]
    done = subprocess.run(given, env=env, text=True, capture_output=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["not permitted", "1 sleeping None None"], done.stderr


# Children


def test_forked_children_have_files_of_their_own(tmp_path: Path, started: list[subprocess.Popen[str]]) -> None:
    code = f"""
import os, sys, threading, time, warnings
warnings.simplefilter("error")
child = os.fork()
if child == 0:
    time.sleep(60)
{ASLEEP}
"""
    parent = asleep(started, code, variables(tmp_path), "-W", "error")
    (child,) = processes.with_descendants(parent)[1:]
    try:
        wait_for(lambda: (tmp_path / RECORDED / f"3.{child}.stacks").exists(), 10)
        found = looked_at(tmp_path, parent)
        assert [frame.line for frame in found.frames] == [7]
        assert [(one.pid, [frame.line for frame in one.frames]) for one in found.workers] == [(child, [6])]
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_leave_no_file_of_their_own(tmp_path: Path, method: str) -> None:
    """Of every start method; each is recorded while it lives."""
    script = tmp_path / "train.py"
    script.write_text(
        "import multiprocessing, os, sys\n"
        "def stacks(_):\n    return [n for n in os.listdir(os.environ['MGPU_RECORDER']) if f'.{os.getpid()}.s' in n]\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context(sys.argv[1])\n"
        "    worker = context.Process(target=print, args=('worked',))\n    worker.start(); worker.join()\n"
        "    with context.Pool(1) as pool:\n        print(pool.map(stacks, [0])); pool.close(); pool.join()\n"
        "    sys.stdout.flush()\n    if os.fork() == 0:\n        sys.exit(0)\n    os.wait(); print(os.getpid())\n"
    )
    done = subprocess.run(
        [sys.executable, str(script), method], env=variables(tmp_path), text=True, capture_output=True, timeout=60,
        check=False,
    )  # fmt: skip
    worked, alive, pid = done.stdout.splitlines()
    assert worked == "worked" and ".stacks" in alive, done.stderr
    left = names(tmp_path, "stacks")
    helpers = {"fork": 0, "spawn": 1, "forkserver": 2}[method]  # of multiprocessing: one for the whole run
    assert f"3.{pid}.stacks" in left and len(left) <= 1 + helpers, left


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.7"])
def test_an_old_python_is_left_alone(tmp_path: Path, version: str) -> None:
    """A run may start a program with any Python: it prints nothing, and the user's sitecustomize runs."""
    old = _python_of(version)
    if old is None:
        pytest.skip(f"there is no Python {version}")
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys\nsys.mine = __name__\n")
    env = variables(tmp_path, {"PYTHONDONTWRITEBYTECODE": "1", "MGPU_DEBUG": "1"}, str(own))
    done = subprocess.run(
        [old, "-c", "import sys; print(sys.mine)"], env=env, text=True, capture_output=True, check=True
    )
    assert (done.stdout, done.stderr) == ("sitecustomize\n", "")
    assert names(tmp_path, "*") == []


def _python_of(version: str) -> str | None:
    """The interpreter of this version, on PATH or of pyenv."""
    folders = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin"))
    names = [shutil.which(f"python{version}", path=str(folder)) for folder in folders]
    found = [*names, shutil.which(f"python{version}")]
    return next((one for one in found if one and _is(one, version)), None)


def _is(python: str, version: str) -> bool:
    """Whether it runs: a shim of pyenv exists for versions that are not chosen."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", code], env={}, text=True, capture_output=True, check=False)
    return done.stdout.strip() == version


TRAINS = """
import os, sys, time, warnings
warnings.simplefilter("error", DeprecationWarning)
import torch, torch.distributed as dist, torch.multiprocessing as mp
from torch.utils.data import DataLoader

class Slow(torch.utils.data.Dataset):
    def __len__(self): return 6
    def __getitem__(self, index):
        if index == 5: time.sleep(60)
        return torch.ones(2)

def main(rank):
    os.environ["RANK"] = str(rank)
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:" + sys.argv[1], rank=rank, world_size=2)
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    for batch in DataLoader(Slow(), batch_size=1, num_workers=1, prefetch_factor=1):
        (parameter * batch).sum().backward()
        dist.all_reduce(parameter.grad)
        optimizer.step()
        print("step", flush=True)

if __name__ == "__main__":
    mp.spawn(main, nprocs=2)
"""


def test_ranks_that_mp_spawn_starts(tmp_path: Path, started: list[subprocess.Popen[str]]) -> None:
    """They learn their rank late; torch's loader, optimizer, workers and flight recorder are seen."""
    script = tmp_path / "train.py"
    script.write_text(TRAINS)
    env = variables(tmp_path, {"OMP_NUM_THREADS": "1"}, path=PYTHONPATH, rank="")
    process = subprocess.Popen(
        [sys.executable, str(script), str(free_port())],
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    started.append(process)
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(10)]
    assert said == ["step\n"] * 10
    time.sleep(0.3)
    beats = [name.split(".")[:2] for name in names(tmp_path, "beat")]
    assert sorted(rank for rank, _ in beats) == ["0", "1"]
    for rank, pid in beats:
        beat = hang_evidence.beat_of(tmp_path, int(rank), int(pid))
        assert beat is not None and (beat.steps, beat.batches) == (5, 5) and beat.waits_since > 0
        found = looked_at(tmp_path, int(pid), int(rank))
        assert [one.name for one in found.collectives] == ["all_reduce"] * 5, found.unrecorded
        assert {one.caller.line for one in found.collectives if one.caller} == {20}
        assert any(frame.file.endswith("dataloader.py") for frame in found.frames)
        (worker,) = [one for one in found.workers if one.loader]
        assert worker.frames[0].line == 10 and worker.frames[0].text.startswith("if index == 5")
    for one in processes.with_descendants(process.pid)[::-1]:
        os.kill(one, signal.SIGKILL)


# Runs Python code in three threads, or C code that keeps Python's lock.
BUSY = """
import sys, threading
def fib(n):
    return n if n < 2 else (lambda a, b: a + b)(fib(n - 1), fib(n - 2))
def work():
    while True:
        fib(9), eval(compile("(lambda q: q * 2)(3)", "<text>", "eval"))
for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
print("busy", flush=True)
work()
"""
BUSY_IN_C = "print('busy', flush=True)\nsum(range(10**11))\n"


def test_a_process_that_runs_python_code_is_not_harmed(tmp_path: Path, started: list[subprocess.Popen[str]]) -> None:
    """Without a process group, as a loader's worker. Where faulthandler walks changing frames, Python crashes."""
    pid = asleep(started, BUSY, variables(tmp_path))
    wait_for(lambda: looked_at(tmp_path, pid).frames[-1].line == 11, 10)  # 10: still in print()
    for _ in range(120):
        inquiry = Inquiry(tmp_path, {3: processes.Rank(pid)})
        inquiry.ask()
        inquiry._ready_at += 10
        while inquiry.is_waiting() and started[0].poll() is None:
            time.sleep(0.001)
        assert started[0].poll() is None, "asking ended it"
        frames = inquiry.result()[0][0].frames
        assert frames[-1].line == 11 and not any("_mgpu_recorder" in frame.file for frame in frames), frames


def test_a_running_process_gets_the_signal_that_python_handles(
    tmp_path: Path, started: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pid, sent = asleep(started, BUSY.replace("range(2)", "range(0)"), variables(tmp_path)), []
    monkeypatch.setattr(processes, "signal_thread", lambda pid, thread, number: sent.append(number))
    requests = stack_requests.StackRequests()
    wait_for(lambda: processes.state_of(pid) == "running", 10)
    requests.send(pid)
    assert sent == [SIGNAL_TO_PYTHON] and not requests.insist([])
    wait_for(lambda: requests.insist([pid]), 10)  # silent in 0.2 s of its CPU time: it is in C code
    assert sent == [SIGNAL_TO_PYTHON, SIGNAL]


def test_c_code_that_keeps_the_lock_and_runs(tmp_path: Path, started: list[subprocess.Popen[str]]) -> None:
    pid = asleep(started, BUSY_IN_C, variables(tmp_path))
    wait_for(lambda: [frame.line for frame in looked_at(tmp_path, pid).frames] == [2], 10)  # 1: still in print()


SLEEPS_IN_C = """
import ctypes, sys, time
import torch.distributed as dist
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:" + sys.argv[1], rank=0, world_size=1)
libc = (ctypes.PyDLL if sys.argv[2] == "keeps" else ctypes.CDLL)(None)
print("sleeps", flush=True)
print(libc.sleep(5), flush=True)
"""


@pytest.mark.parametrize(("lock", "left"), [("gives", "0"), ("keeps", "4")])
def test_a_wait_in_c_code_is_interrupted_only_if_it_keeps_pythons_lock(
    tmp_path: Path, started: list[subprocess.Popen[str]], lock: str, left: str
) -> None:
    """sleep(3) returns the seconds that were left when a signal ended it."""
    script = tmp_path / "train.py"
    script.write_text(SLEEPS_IN_C)
    process = subprocess.Popen(
        [sys.executable, str(script), str(free_port()), lock], env=variables(tmp_path, rank="0"), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    started.append(process)
    assert process.stdout is not None and process.stdout.readline() == "sleeps\n"
    time.sleep(0.3)
    found = looked_at(tmp_path, process.pid, 0)
    assert [frame.line for frame in found.frames] == [7]
    assert process.stdout.readline().strip() == left


def test_the_files_of_a_beat_have_one_size() -> None:
    assert struct.calcsize(BEAT) == 56


def test_the_recorder_runs_with_old_pythons() -> None:
    """Its syntax is that of Python 3.8."""
    import ast

    for path in INJECTED.glob("*.py"):
        ast.parse(path.read_text("utf-8"), feature_version=(3, 8))


def test_flight_recorder_on_request(tmp_path: Path) -> None:
    """An answer that is no JSON, or none at all, is a reason."""
    flight = tmp_path / RECORDED / "3.1.flight"
    flight.parent.mkdir()
    inquiry = Inquiry(tmp_path, {3: processes.Rank(1)})
    inquiry._flights[3] = flight
    assert "did not answer" in inquiry._flight(3)["error"]
    flight.write_text("[]")
    assert inquiry._flight(3)["error"] == "not an object"
    flight.write_text('{"entries": []}')
    assert inquiry._flight(3) == json_of('{"entries": []}')
