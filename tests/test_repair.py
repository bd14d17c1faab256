"""What `--fix` may touch, what it looks at again before it does, and what it never does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mgpu.check import Check, Fix, Ok, Problem, Severity
from mgpu.doctor import repair
from mgpu.engine import Outcome
from mgpu.snapshot import LeftFile, Leftovers, Snapshot
from tests.checks.facts import GIB, config, facts, leftovers, python, pytorch
from tests.conftest import Run, environment
from tests.scripts import wait_for
from tests.terminal import CONTROL_C, CONTROL_D, ENTER, Terminal

OLD = time.time() - 3 * 3600


@pytest.fixture
def shm(tmp_path: Path) -> Path:
    folder = tmp_path / "shm"
    folder.mkdir()
    return folder


def left(path: Path, kind: Any = "shm", alive: bool | None = False, age_s: float = 9000.0) -> LeftFile:
    return LeftFile(str(path), kind, 1 << 20, age_s, alive)


def machine(*files: LeftFile, **changes: Any) -> Snapshot:
    left_over = leftovers(files=files, sees_all_processes=True)
    return Snapshot(**facts(leftovers=left_over, **{"python": python(accelerate_default_config=None)} | changes))


def offered(snapshot: Snapshot, outcomes: Any = (), again: Any = ..., **where: Any) -> dict[str, repair.Repair]:
    now = snapshot.leftovers if again is ... else again
    return {one.id: one for one in repair.find_repairs(snapshot, outcomes, lambda: now, **where)}


# ---- the default config


def test_a_default_config_is_renamed_and_nothing_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "default_config.yaml"
    path.write_text("num_processes: 1\n")
    (tmp_path / "default_config.yaml.bak").write_text("an older one")
    one = offered(machine(python=python(accelerate_default_config=str(path))))["default_config"]
    result = repair.perform(one)
    assert result.done and "default_config.yaml.bak.2" in result.text
    assert not path.exists()
    assert (tmp_path / "default_config.yaml.bak").read_text() == "an older one"
    assert (tmp_path / "default_config.yaml.bak.2").read_text() == "num_processes: 1\n"


def test_the_config_in_use_is_not_offered(tmp_path: Path) -> None:
    path = str(tmp_path / "default_config.yaml")
    asked = machine(python=python(accelerate_default_config=path), config=replace(config(), path=path))
    assert "default_config" not in offered(asked)


@pytest.mark.parametrize("kind", ["link", "folder", "gone"])
def test_what_is_no_plain_file_is_left_alone(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "default_config.yaml"
    target = tmp_path / "shared.yaml"
    target.write_text("x: 1\n")
    if kind == "link":
        path.symlink_to(target)
    elif kind == "folder":
        path.mkdir()
    before = sorted(tmp_path.iterdir())
    result = repair.perform(offered(machine(python=python(accelerate_default_config=str(path))))["default_config"])
    assert not result.done and str(path) in result.text
    assert sorted(tmp_path.iterdir()) == before and target.read_text() == "x: 1\n"


# ---- /dev/shm


def made(path: Path, age: bool = True) -> Path:
    path.write_bytes(b"x")
    if age:
        os.utime(path, (OLD, OLD))
    return path


def test_files_of_dead_processes_are_removed_and_no_others(shm: Path) -> None:
    dead, alive, unknown = (made(shm / name) for name in ("nccl-dead", "nccl-alive", "torch_unknown"))
    asked = machine(left(dead), left(alive, alive=True), left(unknown, alive=None))
    one = offered(asked, shm=shm)["shm_files"]
    assert one.title == f"remove 1 file of dead processes from {shm} (1 MiB)"
    assert one.command == f"rm {dead}"
    result = repair.perform(one)
    assert result.done and result.text == "removed nccl-dead"
    assert sorted(path.name for path in shm.iterdir()) == ["nccl-alive", "torch_unknown"]


@pytest.mark.parametrize("sees", [False, None])
def test_owners_that_may_be_hidden_are_not_called_dead(sees: bool | None, shm: Path) -> None:
    asked = machine(left(made(shm / "nccl-dead")))
    assert asked.leftovers is not None
    asked = replace(asked, leftovers=replace(asked.leftovers, sees_all_processes=sees))
    assert offered(asked, shm=shm) == {}


def test_a_file_elsewhere_is_never_offered(shm: Path, tmp_path: Path) -> None:
    inner = shm / "folder"
    inner.mkdir()
    for path in (made(tmp_path / "nccl-x"), made(inner / "nccl-y")):
        assert offered(machine(left(path)), shm=shm) == {}


def test_an_owner_that_came_back_keeps_its_file(shm: Path) -> None:
    path = made(shm / "nccl-x")
    for now in (Leftovers((left(path, alive=True),), ()), Leftovers((), ()), None):
        result = repair.perform(offered(machine(left(path)), again=now, shm=shm)["shm_files"])
        assert not result.done and path.exists()


@pytest.mark.parametrize("kind", ["symlink", "fifo", "folder"])
def test_what_took_the_place_of_a_file_is_left_alone(kind: str, shm: Path, tmp_path: Path) -> None:
    path = made(shm / "nccl-x")
    precious = made(tmp_path / "precious")
    one = offered(machine(left(path)), shm=shm)["shm_files"]
    path.unlink()
    if kind == "symlink":
        path.symlink_to(precious)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    result = repair.perform(one)
    assert not result.done and os.path.lexists(path) and precious.exists()


def test_a_file_of_somebody_else_is_left_alone(shm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(shm / "nccl-x")
    one = offered(machine(left(path)), shm=shm)["shm_files"]
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    assert offered(machine(left(path)), shm=shm) == {}
    result = repair.perform(one)
    assert not result.done and "another user" in result.text and path.exists()


def test_a_young_file_is_left_alone(shm: Path) -> None:
    path = made(shm / "torch_4711_1_0")
    assert offered(machine(left(path, age_s=59.0)), shm=shm) == {}
    one = offered(machine(left(path, age_s=60.0)), shm=shm)["shm_files"]
    assert one.command == f"rm {path}"
    again = machine(left(path, age_s=3.0)).leftovers  # another file of the same name, made meanwhile
    assert not repair.perform(offered(machine(left(path)), again=again, shm=shm)["shm_files"]).done and path.exists()


def test_a_namespace_entered_meanwhile_keeps_everything(shm: Path) -> None:
    path = made(shm / "nccl-x")
    asked = machine(left(path))
    assert asked.leftovers is not None
    again = replace(asked.leftovers, sees_all_processes=False)
    assert not repair.perform(offered(asked, again=again, shm=shm)["shm_files"]).done and path.exists()


def test_a_newline_in_a_name_hides_no_user(shm: Path, holder: Any) -> None:
    path = made(shm / "nccl-a\nb")
    holder("mapped", path)
    result = repair.perform(offered(machine(left(path)), shm=shm)["shm_files"])
    assert not result.done and "(in use)" in result.text and path.exists()


@pytest.fixture
def holder(shm: Path) -> Iterator[Callable[[str, Path], None]]:
    """A process that has a file open, or mapped."""
    started: list[subprocess.Popen[str]] = []

    def start(how: str, path: Path) -> None:
        code = {
            "open": "f = open(sys.argv[1])",
            "mapped": "import mmap; f = open(sys.argv[1], 'r+'); m = mmap.mmap(f.fileno(), 0); f.close()",
        }[how]
        script = f"import sys; {code}; print('ready', flush=True); sys.stdin.read()"
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"

    yield start
    for process in started:
        process.communicate("")


@pytest.mark.parametrize("how", ["open", "mapped"])
def test_a_file_in_use_is_kept_whatever_its_name_says(how: str, shm: Path, holder: Any) -> None:
    used, free = made(shm / "nccl-used"), made(shm / "nccl-free")
    holder(how, used)
    result = repair.perform(offered(machine(left(used), left(free)), shm=shm)["shm_files"])
    assert result.done and result.text == "removed nccl-free; skipped: nccl-used (in use)"
    assert used.exists() and not free.exists()


# ---- locks


def lock(folder: Path, age: bool = True) -> Path:
    folder.mkdir()
    path = made(folder / "lock", age)
    if age:
        os.utime(folder, (OLD, OLD))
    return path


def test_a_stale_lock_is_removed(tmp_path: Path) -> None:
    path = lock(tmp_path / "flash_attn")
    one = offered(machine(left(path, "lock", None)))["build_locks"]
    result = repair.perform(one)
    if "a build is running" in result.text:
        pytest.skip("somebody compiles here")
    assert result.done and not path.exists()


def test_a_lock_somebody_may_hold_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    young, old = lock(tmp_path / "young"), lock(tmp_path / "old")
    assert offered(machine(left(young, "lock", None, age_s=3599.0))) == {}
    assert offered(machine(left(young, "lock", True))) == {}
    one = offered(machine(left(old, "lock", None)))["build_locks"]
    monkeypatch.setattr(repair, "_compiling", lambda: "nvcc, pid 7")
    assert "nvcc, pid 7" in repair.perform(one).text and old.exists()
    monkeypatch.setattr(repair, "_compiling", lambda: None)
    (old.parent / "kernel.o").write_text("just written")
    result = repair.perform(one)
    assert not result.done and "changed within the last hour" in result.text and old.exists()


def test_a_lock_that_newer_torch_leaves_in_place_is_no_leftover(tmp_path: Path) -> None:
    path = lock(tmp_path / "op")
    for version, wanted in (("2.13.0", True), ("2.14.0", False), (None, False)):
        asked = machine(left(path, "lock", None), pytorch=pytorch(version=version))
        assert ("build_locks" in offered(asked)) is wanted
    assert "build_locks" not in offered(replace(machine(left(path, "lock", None)), pytorch=None))


def test_a_lock_that_is_open_by_way_of_a_link_is_kept(
    tmp_path: Path, holder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair, "_compiling", lambda: None)
    (tmp_path / "disk").mkdir()
    path = lock(tmp_path / "disk" / "op")
    (tmp_path / "home").symlink_to(tmp_path / "disk")
    holder("open", path)
    result = repair.perform(offered(machine(left(tmp_path / "home" / "op" / "lock", "lock", None)))["build_locks"])
    assert not result.done and path.exists()


def test_a_folder_that_vanishes_does_not_hide_what_was_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "_compiling", lambda: None)
    first, second = lock(tmp_path / "first"), lock(tmp_path / "second")
    one = offered(machine(left(first, "lock", None), left(second, "lock", None)))["build_locks"]
    second.unlink()
    second.parent.rmdir()
    result = repair.perform(one)
    assert result.done and not first.exists() and str(second) in result.text


def test_a_running_compiler_is_found(tmp_path: Path) -> None:
    (tmp_path / "12").mkdir()
    (tmp_path / "12" / "comm").write_text("bash\n")
    (tmp_path / "13").mkdir()
    assert repair._compiling(tmp_path) is None
    (tmp_path / "13" / "comm").write_text("cicc\n")
    assert repair._compiling(tmp_path) == "cicc, pid 13"


# ---- the environment


def outcome(id: str, *fixes: Fix, severity: Severity = Severity.ERROR, because_of: tuple[str, ...] = ()) -> Outcome:
    def function() -> Ok:
        return Ok("")

    function.__name__ = id
    problem = Problem(f"{id} is wrong", "because", fixes)
    return Outcome(Check(function, severity, "https://example.org"), problem, 0.0, because_of)


def lines(*outcomes: Outcome) -> list[str]:
    return [line for line in repair.environment_lines(outcomes) if line.startswith(("export", "unset"))]


@pytest.mark.parametrize(
    ("command", "taken"),
    [
        ("export CUDA_VISIBLE_DEVICES=0,1,3", True),
        ("export NCCL_SOCKET_IFNAME='eth 0'", True),
        ("export NCCL_IB_HCA==mlx5_0:1", True),
        ("export OMP_NUM_THREADS=", True),
        ("unset NCCL_P2P_DISABLE", True),
        ("unset RANK WORLD_SIZE LOCAL_RANK", True),
        # anything that is more than that, a placeholder, or not ours to set
        ("export NCCL_DEBUG=$(rm -rf /)", False),
        ("export NCCL_DEBUG=`id`", False),
        ('export NCCL_DEBUG="$HOME"', False),
        ("export NCCL_DEBUG=INFO; rm x", False),
        ("export NCCL_DEBUG=INFO && rm x", False),
        ("export NCCL_SOCKET_IFNAME=<interface>", False),
        ("export NCCL_SOCKET_IFNAME=...", False),
        ("export LD_LIBRARY_PATH=/x", False),
        ("export PATH=/x", False),
        ("export PYTHONPATH=/x", False),
        ("unset LD_PRELOAD", False),
        ("unset PYTHONPATH NCCL_DEBUG", False),
        ("unset PATH", False),
        ("sudo export NCCL_DEBUG=1", False),
        ("export NCCL_DEBUG=INFO\nrm x", False),
        ("ulimit -l unlimited", False),
    ],
)
def test_only_plain_lines_about_a_runs_variables_are_written(command: str, taken: bool) -> None:
    assert lines(outcome("one", Fix("x", (command,)))) == ([command] if taken else [])


def test_only_what_the_user_can_do_and_what_is_no_stopgap() -> None:
    stopgap = Fix("x", ("export NCCL_SHM_DISABLE=1",), kind="stopgap")
    admin = Fix("x", ("export NCCL_DEBUG=INFO",), who="admin")
    assert lines(outcome("one", stopgap), outcome("two", admin)) == []
    assert lines(outcome("one", stopgap, Fix("y", ("unset NCCL_ALGO",)))) == ["unset NCCL_ALGO"]


def test_of_alternatives_the_first_and_of_contradictions_the_graver() -> None:
    either = Fix("x", ("export CUDA_VISIBLE_DEVICES=0,1", "unset CUDA_VISIBLE_DEVICES"))
    warning = outcome("two", Fix("y", ("export CUDA_VISIBLE_DEVICES=3",)), severity=Severity.WARNING)
    assert lines(warning, outcome("one", either)) == ["export CUDA_VISIBLE_DEVICES=0,1"]
    followed = outcome("three", Fix("z", ("unset NCCL_ALGO",)), because_of=("one",))
    assert lines(outcome("one", either), followed) == ["export CUDA_VISIBLE_DEVICES=0,1"]


def test_the_file_is_sourced_as_it_is_and_an_older_one_kept(tmp_path: Path) -> None:
    found = [
        outcome("one", Fix("x", ("export NCCL_SOCKET_IFNAME='a b'",))),
        outcome("two", Fix("y", ("unset NCCL_X",))),
    ]
    one = offered(machine(), found, folder=tmp_path)["environment"]
    assert repair.perform(one).done
    path = tmp_path / "mgpu.env"
    done = subprocess.run(
        ["sh", "-c", f'NCCL_X=1; . {path}; echo "$NCCL_SOCKET_IFNAME|${{NCCL_X-gone}}"'],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "a b|gone\n"
    assert repair.perform(one).done and not (tmp_path / "mgpu.env.bak").exists()  # the same again
    path.write_text("mine\n")
    assert "mgpu.env.bak" in repair.perform(one).text
    assert (tmp_path / "mgpu.env.bak").read_text() == "mine\n"


def test_a_link_named_mgpu_env_is_not_followed(tmp_path: Path) -> None:
    precious = made(tmp_path / "bashrc")
    (tmp_path / "mgpu.env").symlink_to(precious)
    one = offered(machine(), [outcome("one", Fix("x", ("unset NCCL_X",)))], folder=tmp_path)["environment"]
    assert not repair.perform(one).done and precious.read_bytes() == b"x"


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    found = [outcome("one", Fix("x", ("unset NCCL_X",)))]
    result = repair.perform(offered(machine(), found, folder=tmp_path / "missing")["environment"])
    assert not result.done and "cannot write" in result.text


# ---- the command


def default_config(home: Path) -> Path:
    path = home / "cache" / "huggingface" / "accelerate" / "default_config.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("num_processes: 1\n")
    return path


VARIABLES = {"NCCL_P2P_DISABLE": "1", "RANK": "0"}


def test_a_dry_run_changes_nothing(mgpu: Run, tmp_path: Path) -> None:
    path = default_config(tmp_path / "home")
    before = sorted(p for p in tmp_path.rglob("*") if p.name != "doctor.json")
    done = mgpu("doctor", "--quick", "--fix", "--dry-run", env=VARIABLES)
    assert "Would rename" in done.stdout and str(path) in done.stdout
    assert "Would write" in done.stdout and "unset RANK" in done.stdout
    assert sorted(p for p in tmp_path.rglob("*") if p.name not in ("doctor.json", "state", "mgpu")) == [
        p for p in before if p.name not in ("state", "mgpu")
    ]
    document = json.loads(mgpu("doctor", "--quick", "--fix", "--dry-run", "--json", env=VARIABLES).stdout)
    found = [(r["id"], r["done"]) for r in document["repairs"] if r["id"] != "shm_files"]  # of other runs here
    assert found == [("default_config", False), ("environment", False)]


def test_yes_does_them_all_and_the_exit_code_is_of_what_is_left(mgpu: Run, tmp_path: Path) -> None:
    path = default_config(tmp_path / "home")
    done = mgpu("doctor", "--quick", "--fix", "--yes", env=VARIABLES)
    assert not path.exists() and path.with_name(f"{path.name}.bak").exists()
    assert "unset RANK" in (tmp_path / "mgpu.env").read_text()
    assert "accelerate_default_config_left" in done.stdout.partition("Fixed: ")[2].splitlines()[0]
    plain = mgpu("doctor", "--quick", env=VARIABLES)
    assert done.returncode == plain.returncode
    again = mgpu("doctor", "--quick", "--fix", "--yes")
    assert "Nothing to fix automatically." in again.stdout


def test_without_a_terminal_nothing_is_asked_and_nothing_done(mgpu: Run, tmp_path: Path) -> None:
    path = default_config(tmp_path / "home")
    done = mgpu("doctor", "--quick", "--fix")
    assert done.returncode == 2 and "default_config.yaml is" in done.stdout
    assert "possible. Add --yes, or --dry-run" in " ".join(done.stderr.split())
    path.unlink()
    # Until no other test of this machine has something in /dev/shm.
    done = wait_for(lambda: (one := mgpu("doctor", "--quick", "--fix")).returncode != 2 and one, 60)
    assert (done.returncode, done.stderr) == (mgpu("doctor", "--quick").returncode, "")
    assert "Nothing to fix automatically" in done.stdout


@pytest.mark.parametrize(
    "options",
    [
        ["--dry-run"],
        ["--yes"],
        ["--fix", "--yes", "--from", "x.json"],
        ["--fix", "--yes", "--redact"],
        ["--fix", "--yes", "--format", "markdown"],
        ["--quick", "--deep"],
        ["--deep", "--from", "x.json"],
        ["--python", sys.executable, "--from", "x.json"],
    ],
)
def test_options_that_mean_nothing_together(options: list[str], mgpu: Run) -> None:
    done = mgpu("doctor", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(("keys", "renamed"), [("y", True), ("n", False), ("", False)])
def test_each_is_asked_about_in_a_terminal(keys: str, renamed: bool, tmp_path: Path) -> None:
    path = default_config(tmp_path / "home")
    env = environment(tmp_path / "home", {"LC_ALL": "C.UTF-8"})
    terminal = Terminal([sys.executable, "-m", "mgpu", "doctor", "--quick", "--fix"], env=env, cwd=tmp_path)
    terminal.see("Apply? [y/N]")
    terminal.press(keys, ENTER)
    terminal.end()
    assert path.exists() is not renamed
    assert ("Done: renamed to" in terminal.text.replace("\n", " ")) is renamed


@pytest.mark.parametrize(("key", "code"), [(CONTROL_D, None), (CONTROL_C, 130)])
def test_whoever_leaves_the_question_changes_nothing(key: str, code: int | None, tmp_path: Path) -> None:
    path = default_config(tmp_path / "home")
    env = environment(tmp_path / "home", {"LC_ALL": "C.UTF-8"})
    terminal = Terminal([sys.executable, "-m", "mgpu", "doctor", "--quick", "--fix"], env=env, cwd=tmp_path)
    terminal.see("Apply? [y/N]")
    terminal.press(key)
    ended = terminal.end()
    assert path.exists() and "Traceback" not in terminal.text
    if code is not None:
        assert ended == code


def test_size_is_told(shm: Path) -> None:
    files = [replace(left(made(shm / f"nccl-{n}")), size_bytes=GIB) for n in range(3)]
    assert "3 files" in offered(machine(*files), shm=shm)["shm_files"].title
    assert "(3 GiB)" in offered(machine(*files), shm=shm)["shm_files"].title
