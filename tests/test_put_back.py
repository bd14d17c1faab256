"""Does a rehearsed script leave the user's files as they were, whatever it does to them and however it ends?

The programs here import no torch: the hooks that keep files work in any Python process of a rehearsal.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mgpu.process import guard
from mgpu.recorder.inject import _mgpu_kept_files as kept_files
from mgpu.rehearse.put_back import put_back
from mgpu.snapshot import KeptFile

_INJECTED = Path(kept_files.__file__).parent
_CHANGES = """\
import os, shutil, sqlite3
open("written.pt", "w").write("rehearsed")
open("appended.log", "a").write("rehearsed")
os.truncate("truncated.bin", 1)
open("new.tmp", "w").write("rehearsed"); os.replace("new.tmp", "replaced.pt")
os.rename("moved.pt", "moved.old.pt")
os.remove("removed.pt")
shutil.rmtree("checkpoint-1")
os.rename("checkpoint-2", "checkpoint-3"); os.mkdir("checkpoint-2"); open("checkpoint-2/a.pt", "w").close()
os.remove("latest"); os.symlink("checkpoint-2", "latest")
open("best", "w").write("rehearsed")  # a link to target.pt
os.write(os.open("opened.pt", os.O_WRONLY), b"X")
open("first-name.pt", "w").write("rehearsed, a longer text")
base = sqlite3.connect("study.db"); base.execute("create table t (x)"); base.commit(); base.close()
if not os.fork():
    open("by-child.pt", "w").write("rehearsed"); os._exit(0)
os.wait()
open("only-opened.pt", "r+").close()
open("new.txt", "w").write("rehearsed"); open("new.txt", "a").write("again")
"""
_FILES = [
    "written.pt", "appended.log", "truncated.bin", "replaced.pt", "moved.pt", "removed.pt", "checkpoint-1/a/b.pt",
    "checkpoint-2/a.pt", "target.pt", "opened.pt", "first-name.pt", "by-child.pt", "only-opened.pt",
]  # fmt: skip


def run(program: str, folder: Path, *, began: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program as a process of the rehearsal whose folder is `folder`/run."""
    (folder / "run" / "recorder").mkdir(parents=True, exist_ok=True)
    added = {
        "PYTHONPATH": str(_INJECTED),
        "MGPU_RECORDER": str(folder / "run" / "recorder"),
        "MGPU_REHEARSAL": "2",
        "MGPU_DEBUG": "1",
        kept_files.BEGAN: str(began if began is not None else time.time() + 60),  # the test has just made its files
    }
    command = [sys.executable, "-c", program]
    work = folder / "work"
    return subprocess.run(command, cwd=work, env={**os.environ, **added}, capture_output=True, text=True, timeout=60)


def tree(folder: Path) -> dict[str, Any]:
    """Return the content, mode and time of each file below a folder, and the target of each link."""
    found: dict[str, Any] = {}
    for path in folder.rglob("*"):
        if path.is_symlink():
            found[str(path.relative_to(folder))] = os.readlink(path)
        elif path.is_file():
            now = path.stat()
            found[str(path.relative_to(folder))] = (path.read_bytes(), now.st_mode, now.st_mtime_ns)
    return found


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    for number, name in enumerate(_FILES):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"precious {name}")
        path.chmod(0o640)
        os.utime(path, (1_600_000_000 + number, 1_600_000_000 + number))
    (folder / "study.db").write_bytes(b"")
    (folder / "second-name.pt").hardlink_to(folder / "first-name.pt")
    (folder / "latest").symlink_to("checkpoint-1")
    (folder / "best").symlink_to("target.pt")
    return folder


def test_every_file_that_was_there_is_as_it_was(tmp_path: Path, work: Path) -> None:
    before = tree(work)
    done = run(_CHANGES, tmp_path)
    assert done.returncode == 0 and not done.stderr, done.stderr
    changed = tree(work)
    assert changed["written.pt"] != before["written.pt"] and "removed.pt" not in changed
    found = put_back(tmp_path / "run")
    after = tree(work)
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {"moved.old.pt", "checkpoint-3/a.pt", "new.txt"}
    assert (work / "first-name.pt").samefile(work / "second-name.pt")
    names = {os.path.relpath(one.path, work) for one in found}
    assert names == {*_FILES, "latest", "study.db"} - {"only-opened.pt"} and not any(one.why for one in found)
    assert not any(one.late for one in found) and not (tmp_path / "run" / "kept").exists()
    assert put_back(tmp_path / "run") == ()


def test_a_file_is_kept_once_before_the_first_change_of_any_process(tmp_path: Path, work: Path) -> None:
    before = tree(work)
    for _ in range(2):
        program = 'open("written.pt", "w").write("x"); open("new.txt", "a").write("x")'
        assert run(program, tmp_path).returncode == 0
    assert [Path(one.path).name for one in put_back(tmp_path / "run")] == ["written.pt"]
    assert tree(work).items() >= before.items() and (work / "new.txt").read_text() == "xx"


@pytest.mark.parametrize(
    "change", ['open("written.pt", "w")', 'os.remove("written.pt")', 'os.replace("target.pt", "written.pt")']
)
def test_a_process_ends_before_it_changes_a_file_that_cannot_be_kept(tmp_path: Path, work: Path, change: str) -> None:
    before = tree(work)
    program = f"""\
import os, _mgpu_kept_files
_mgpu_kept_files._CLONE = 0; _mgpu_kept_files.MOST_BYTES = 18
try:
    {change}
except BaseException:
    pass
open("went-on", "w")
"""
    done = run(program, tmp_path)
    assert done.returncode == 1 and "written.pt: mgpu copies at most 0 GiB." in done.stderr
    (found,) = put_back(tmp_path / "run")
    assert found.refused and found.path == str(work / "written.pt") and found.size_bytes == 19
    assert tree(work) == before


def test_a_file_that_cannot_be_put_back_stays_where_it_was_kept(tmp_path: Path, work: Path) -> None:
    assert run('import os; os.remove("removed.pt"); os.mkdir("removed.pt")', tmp_path).returncode == 0
    (found,) = put_back(tmp_path / "run")
    assert found.why and found.copy and Path(found.copy).read_text() == "precious removed.pt"
    (work / "removed.pt").rmdir()
    assert put_back(tmp_path / "run") == (KeptFile(found.path, found.line),)
    assert (work / "removed.pt").read_text() == "precious removed.pt"


def test_a_file_that_changed_before_is_not_said_to_be_as_it_was(tmp_path: Path, work: Path) -> None:
    assert run('open("written.pt", "w").write("x")', tmp_path, began=1.0).returncode == 0
    assert [one.late for one in put_back(tmp_path / "run")] == [True]


def test_caches_and_locks_are_not_kept(tmp_path: Path, work: Path) -> None:
    (work / ".cache").mkdir()
    for name in (".cache/a", "a.lock"):
        (work / name).write_text("shared")
    assert run('open(".cache/a", "w"); open("a.lock", "w")', tmp_path).returncode == 0
    assert put_back(tmp_path / "run") == ()


def test_the_guard_puts_files_back_if_mgpu_is_killed(tmp_path: Path, work: Path) -> None:
    assert run('open("written.pt", "w").write("x")', tmp_path).returncode == 0
    mgpu = os.fork()
    if mgpu == 0:
        with guard.guard_run("no run", last=lambda: put_back(tmp_path / "run")):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(mgpu, 0)
    deadline = time.monotonic() + 20
    while (work / "written.pt").read_text() != "precious written.pt" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (work / "written.pt").read_text() == "precious written.pt"
