"""Does a launch that cannot start end with 125, 126 or 127, and one message, whatever it lacks?

After the start every code is the training's: a script or a scheduler that sees 1 or 3 takes it for that of the script.
"""

from __future__ import annotations

import os
import resource
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mgpu import errors
from mgpu.cli.launch import launch
from mgpu.exit_status import guarded
from mgpu.launch import hand_off, preflight
from mgpu.launch import start_errors as starting
from mgpu.launch.request import Request
from mgpu.process import supervisor
from mgpu.process.command import Command
from mgpu.snapshot import Snapshot
from tests.conftest import environment, missing, need
from tests.scripts import ONE_PROCESS, write_config

LAUNCH = (sys.executable, "-m", "mgpu", "launch", "--unverified", "allow", "--launcher", "python")
# A user whose processes are counted, and who may read this interpreter wherever it is: root's are not counted.
UNPRIVILEGED = (
    "--reuid=54321", "--regid=54321", "--clear-groups", "--inh-caps=-all,+dac_override",
    "--ambient-caps=-all,+dac_override", "--bounding-set=-all,+dac_override",
)  # fmt: skip


@pytest.fixture
def here(tmp_path: Path) -> Path:
    write_config(tmp_path, ONE_PROCESS)
    (tmp_path / "train.py").write_text("print('it runs')\n")
    return tmp_path


def launched(folder: Path, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """A launch with these options, which something keeps from starting."""
    return subprocess.run(
        [*LAUNCH, *words, "train.py"], cwd=folder, env=environment(folder / "home"), stdin=subprocess.DEVNULL,
        text=True, timeout=60, check=False, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
    )  # fmt: skip


def not_started(done: subprocess.CompletedProcess[str], *words: str, code: int = errors.LAUNCH_REFUSED) -> None:
    """Refused with one message, whose last line has these words; the script did not run."""
    assert done.returncode == code, done.stderr
    assert "it runs" not in done.stdout and "Traceback" not in done.stderr
    said = [text for text in done.stderr.splitlines() if text.startswith("mgpu: ")]
    assert len(said) == 1 and all(word in said[0] for word in words), done.stderr


def at_most(limit: int, number: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(limit, (number, number))


@pytest.mark.parametrize(("files", "words"), [(6, ()), (9, ("--detach",)), (12, ("--exec",))])
def test_too_few_file_descriptors(here: Path, files: int, words: Sequence[str]) -> None:
    done = launched(here, *words, preexec_fn=at_most(resource.RLIMIT_NOFILE, files))
    not_started(done, "not started: Too many open files", f"limit of this process: {files}", "ulimit -n")


def test_too_few_file_descriptors_for_the_launcher_alone(here: Path) -> None:
    """One more descriptor at a time, until it runs: no number in between ends with another code."""
    for files in range(13, 40):
        done = launched(here, "--detach", preexec_fn=at_most(resource.RLIMIT_NOFILE, files))
        if done.returncode == 0:
            return
        code = errors.CANNOT_RUN if "the launcher cannot be started" in done.stderr else errors.LAUNCH_REFUSED
        not_started(done, "Too many open files", code=code)
    pytest.fail("it never started")


@pytest.mark.parametrize("words", [(), ("--detach",), ("--exec",)])
def test_too_few_processes(here: Path, words: Sequence[str]) -> None:
    if os.geteuid() != 0:
        missing("another user is needed, whose processes are counted")
    setpriv = need("setpriv")
    for folder in (here, here / "home"):
        folder.mkdir(exist_ok=True)
        shutil.chown(folder, 54321, 54321)
    done = subprocess.run(
        [setpriv, *UNPRIVILEGED, *LAUNCH, *words, "train.py"], cwd=here, env=environment(here / "home"),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
        preexec_fn=at_most(resource.RLIMIT_NPROC, 2),
    )  # fmt: skip
    not_started(done, "not started: Resource temporarily unavailable", "ulimit -u")


def test_stderr_that_cannot_be_written(here: Path) -> None:
    """Nothing could be said of the run, nor of its end."""
    with open("/dev/full", "w") as full:
        assert launched(here, stderr=full).returncode == errors.LAUNCH_REFUSED
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert launched(here, stderr=writing).returncode == errors.LAUNCH_REFUSED
    finally:
        os.close(writing)
    assert not (here / ".mgpu/runs").exists()


def test_closed_streams_and_no_descriptor(here: Path) -> None:
    """With what is closed the descriptors are as few as before: nothing is said, and nothing written elsewhere."""

    def closed() -> None:
        os.closerange(0, 3)
        at_most(resource.RLIMIT_NOFILE, 6)()

    done = launched(here, preexec_fn=closed)
    assert (done.returncode, done.stdout, done.stderr) == (errors.LAUNCH_REFUSED, "", "")
    assert sorted(path.name for path in here.iterdir()) == ["accelerate.yaml", "train.py"]


def test_no_folder_can_be_written(here: Path) -> None:
    if os.geteuid() != 0:
        missing("mounting needs root")
    temporary = [folder for folder in ("/tmp", "/var/tmp", "/usr/tmp") if os.path.isdir(folder)]
    inside = [name for name in temporary if here.is_relative_to(name)]
    mounts = [f"mount --bind {name} {name} && mount -o remount,ro,bind {name}" for name in temporary]
    if not inside:
        mounts.append(f"mount --bind {shlex.quote(str(here))} {shlex.quote(str(here))}")
        mounts.append(f"mount -o remount,ro,bind {shlex.quote(str(here))}")
    script = f"{' && '.join(mounts)} && cd {shlex.quote(str(here))} || exit 77; exec {shlex.join(LAUNCH)} train.py"
    environ = {name: value for name, value in environment(here / "home").items() if name != "TMPDIR"}
    done = subprocess.run(
        [need("unshare"), "-m", "--propagation", "private", "sh", "-c", script], env=environ, cwd=here,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if done.returncode in (1, 77) and "mount" in done.stderr:
        missing("mount namespaces are not allowed here")
    not_started(done, "not started: No usable temporary directory")


def test_a_reader_that_left_is_no_refusal_where_nothing_starts(here: Path) -> None:
    """`mgpu launch --print-command train.py | true`. A full disk is one."""
    reading, writing = os.pipe()
    os.close(reading)
    assert launched(here, "--print-command", stdout=writing).returncode == 141
    os.close(writing)
    with open("/dev/full", "w") as full:
        done = launched(here, "--print-command", stdout=full)
    assert (done.returncode, done.stderr) == (125, "mgpu: not started: No space left on device\n")


# Faults of mgpu's own


def test_a_bug_before_the_start(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> Snapshot:
        raise KeyError("gpus")

    monkeypatch.chdir(here)
    monkeypatch.setattr(preflight, "gather_facts", broken)
    request = Request(target=("train.py",), unverified="allow", json_result="result.json")
    assert guarded(lambda: launch(request)) == errors.LAUNCH_REFUSED
    assert "not started: a bug in mgpu: KeyError: 'gpus' (MGPU_DEBUG=1 shows where)" in capsys.readouterr().err
    assert '"exit_code": 125' in (here / "result.json").read_text()
    monkeypatch.setenv("MGPU_DEBUG", "1")
    with pytest.raises(KeyError):
        guarded(lambda: launch(request))


def test_codes_of_other_commands_are_the_trainings(here: Path) -> None:
    """What ends the doctor with 1, 3, 4 or 5 would be taken for the script's code here; the others stay."""
    codes = {1: 125, 2: 2, 3: 125, 4: 125, 5: 125, 124: 124, 125: 125, 126: 126, 127: 127, 130: 130}
    for given, wanted in codes.items():
        with pytest.raises(errors.MgpuError) as told, starting.attempt(Request()):
            raise errors.MgpuError("why", given)
        assert (told.value.exit_code, told.value.message) == (wanted, "why")


def test_a_failure_while_it_runs_is_not_told_as_a_refusal(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run is ended, and the code is none that a script chose."""

    def broken(self: supervisor.Supervisor) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.chdir(here)
    monkeypatch.setenv("XDG_STATE_HOME", str(here / "state"))
    monkeypatch.setattr(supervisor.Supervisor, "_look", broken)
    (here / "logs").mkdir()
    command = Command((sys.executable, "-c", "import time; time.sleep(60)"), run_id="0" * 32, launcher="python")
    with pytest.raises(errors.MgpuError) as told:
        hand_off.hand_off(Request(target=("train.py",)), command, here / "logs", Snapshot())
    assert told.value.exit_code == errors.LAUNCH_REFUSED
    assert "mgpu failed while watching the run, and stopped it: Too many open files" in told.value.message
