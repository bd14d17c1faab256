"""Links that came with a cloned repository, or that another user placed in a shared folder, lead mgpu nowhere."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mgpu import errors, files
from mgpu.errors import MgpuError
from mgpu.launchers import stamp
from mgpu.snapshot import Snapshot, Stamp
from tests.checks import facts as known
from tests.conftest import Run, ask_all, environment, missing, need

ATTACKER, VICTIM = 4711, 4712
SECRET = "the user's own file\n"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A project beside a file and a folder that its links point to."""
    (tmp_path / "outside" / "folder").mkdir(parents=True)
    (tmp_path / "outside" / "id").write_text(SECRET)
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def assert_untouched(clone: Path) -> None:
    outside = clone.parent / "outside"
    assert (outside / "id").read_text() == SECRET
    assert sorted(os.listdir(outside)) == ["folder", "id"] and os.listdir(outside / "folder") == []
    copies = [path for path in clone.rglob("*") if path.is_file() and not path.is_symlink()]
    assert not [path for path in copies if SECRET in path.read_text("utf-8", "replace")]


ONE_PROCESS = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: 'NO'\nmixed_precision: 'no'\n"
    "num_processes: 1\nnum_machines: 1\nuse_cpu: true\n"
)
TARGET = ("--yes", "--target", "8xA100-80GB", "--params", "7B", "-o", "accelerate.yaml")


@pytest.mark.parametrize(
    ("name", "target", "arguments"),
    [
        ("mgpu.answers.toml", "../outside/id", ("configure", *TARGET, "--save-answers", "mgpu.answers.toml")),
        ("accelerate.yaml", "../outside/id", ("configure", *TARGET, "--force")),
        ("accelerate.yaml", "../outside/new.yaml", ("configure", *TARGET)),
        ("accelerate.yaml", "../outside/folder/new.yaml", ("configure", *TARGET, "--force")),
        ("train.sbatch", "../outside/new.sbatch", ("configure", *TARGET, "--slurm", "--job", "train.sbatch")),
        (".mgpu", "../outside/folder", ("launch", "--unverified", "allow", "--launcher", "python", "train.py")),
    ],
)  # fmt: skip
def test_links_in_a_cloned_repository(
    clone: Path, mgpu: Run, name: str, target: str, arguments: tuple[str, ...]
) -> None:
    (clone / "train.py").write_text("print('trained')\n")
    if arguments[0] == "launch":
        (clone / "accelerate.yaml").write_text(ONE_PROCESS)
    (clone / name).symlink_to(target)
    done = mgpu(*arguments, cwd=clone)
    expected = errors.LAUNCH_REFUSED if arguments[0] == "launch" else errors.REFUSED
    assert done.returncode == expected, done.stdout + done.stderr
    assert name in done.stderr and "symbolic link" in done.stderr and "outside" in done.stderr
    assert_untouched(clone)
    assert arguments[0] == "launch" or [path.name for path in clone.iterdir() if not path.is_symlink()] == ["train.py"]


def test_a_link_inside_the_project_is_followed(clone: Path, mgpu: Run) -> None:
    (clone / "configs").mkdir()
    (clone / "accelerate.yaml").symlink_to("configs/one.yaml")
    done = mgpu("configure", *TARGET, cwd=clone)
    assert done.returncode == errors.READY, done.stderr
    assert (clone / "accelerate.yaml").is_symlink() and "num_processes: 8" in (clone / "configs/one.yaml").read_text()


def passed_in(folder: Path) -> Any:
    """The facts of a machine on which the config of this folder passed."""
    config = known.config(path=str(folder / "accelerate.yaml"), sha256="c" * 64)
    return Snapshot(**known.facts(config=config))


@pytest.mark.parametrize("link", [".mgpu", ".mgpu/verified.json", ".mgpu/lock", ".mgpu/.gitignore"])
def test_a_stamp_is_not_written_through_a_link(clone: Path, link: str) -> None:
    snapshot = passed_in(clone)
    if link == ".mgpu":
        (clone / ".mgpu").symlink_to("../outside/folder")
    else:
        (clone / ".mgpu").mkdir()
        (clone / link).symlink_to("../../outside/id")
    try:
        stamp.write(snapshot, ("start", "train"), {})
    except MgpuError as error:
        assert "symbolic link" in error.message
    else:
        assert link == ".mgpu/.gitignore"
    assert_untouched(clone)


# Stamps that mgpu cannot have written


def stamped(folder: Path) -> Any:
    snapshot = passed_in(folder)
    stamp.write(snapshot, ("start", "train"), {})
    now = stamp.current_stamp(snapshot)
    assert now is not None and now.verified is not None and now.refused is None
    return snapshot


def edited(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], Any]:
    def apply(path: Path) -> None:
        document = json.loads(path.read_text())
        for entry in document["entries"].values():
            change(entry)
        path.write_text(json.dumps(document))

    return apply


def moved_behind_a_link(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))
    path.parent.symlink_to("elsewhere")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (edited(lambda entry: entry.update(rungs=[])), "ignored (no stages"),
        (edited(lambda entry: entry.pop("rungs")), "ignored (no stages"),
        (edited(lambda entry: entry.update(time="2099-01-01T00:00:00Z")), "ignored (no stages"),
        (edited(lambda entry: entry.update(time="yesterday")), "ignored (no stages"),
        (edited(lambda entry: entry["facts"].update(gpus=3)), "ignored (no stages"),
        (lambda path: path.chmod(0o666), "other users can write to it"),
        (lambda path: path.write_text("[" * 200_000), "is damaged"),
        (moved_behind_a_link, "is a symbolic link"),
    ],
)
def test_a_stamp_that_does_not_count(tmp_path: Path, spoil: Callable[[Path], Any], words: str) -> None:
    snapshot = stamped(tmp_path)
    spoil(tmp_path / ".mgpu" / "verified.json")
    now = stamp.current_stamp(snapshot)
    assert now is not None and now.verified is None and words in str(now.refused)
    (outcome,) = ask_all("config_not_verified", stamp=now)
    assert outcome.problem is not None and words in outcome.problem.cause


def test_a_stamp_that_counts(ask: Any) -> None:
    assert ask("config_not_verified", stamp=Stamp({"gpus": "none"}, "2026-11-20", {}, ("start",))).status == "ok"


# Two ordinary users of one machine


def as_user(uid: int) -> list[str]:
    """The command that starts another as this user, who can read everything (so that Python starts) and write only
    what that user can."""
    return [
        need("setpriv"), f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--inh-caps=+dac_read_search",
        "--ambient-caps=+dac_read_search",
    ]  # fmt: skip


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder like /tmp; `mine` below it belongs to the victim."""
    if os.geteuid() != 0:
        missing("two users need root")
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and folder != Path("/") and not folder.stat().st_mode & stat.S_IXOTH:
            folder.chmod(folder.stat().st_mode | 0o011)
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    (folder / "mine").mkdir()
    os.chown(folder / "mine", VICTIM, VICTIM)
    (folder / "mine" / "precious").write_text(SECRET)
    os.chown(folder / "mine" / "precious", VICTIM, VICTIM)
    return folder


def link(path: Path, target: Path, uid: int = ATTACKER) -> None:
    path.symlink_to(target)
    os.lchown(path, uid, uid)


def doctor(shared: Path, *arguments: str, uid: int = VICTIM, **variables: str) -> subprocess.CompletedProcess[str]:
    env = environment(shared / "mine" / "home", variables)
    for name in [name for name, value in variables.items() if not value]:
        del env[name]
    command = [*(as_user(uid) if uid else []), sys.executable, "-m", "mgpu", "doctor", "--quick", *arguments]
    return subprocess.run(
        command, cwd=shared / "mine", env=env, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("uid", [VICTIM, 0])
def test_output_through_a_strangers_link(shared: Path, uid: int) -> None:
    """The kernel's fs.protected_symlinks is off on some machines; as root the link could lead to any file."""
    link(shared / "report.json", shared / "mine" / "precious")
    link(shared / "folder", shared / "mine")
    for where in (shared / "report.json", shared / "folder" / "new.json"):
        for arguments in (("--save", str(where)), ("--json", "--output", str(where))):
            done = doctor(shared, *arguments, uid=uid)
            assert done.returncode == errors.REFUSED, done.stderr
            assert "another user's symbolic link" in done.stderr
    assert (shared / "mine" / "precious").read_text() == SECRET and not (shared / "mine" / "new.json").exists()


def test_output_through_ones_own_link(shared: Path) -> None:
    link(shared / "report.json", shared / "mine" / "precious", VICTIM)
    done = doctor(shared, "--json", "--output", str(shared / "report.json"))
    assert done.returncode != errors.REFUSED, done.stderr
    assert json.loads((shared / "mine" / "precious").read_text())["schema"].startswith("mgpu.doctor/")


def test_a_strangers_file_in_a_shared_folder_is_not_replaced(shared: Path) -> None:
    """Its mode would let the other user rewrite the report."""
    (shared / "report.json").write_text("theirs")
    os.chown(shared / "report.json", ATTACKER, ATTACKER)
    (shared / "report.json").chmod(0o666)
    done = doctor(shared, "--json", "--output", str(shared / "report.json"), uid=0)
    assert done.returncode == errors.REFUSED and "belongs to another user" in done.stderr
    assert (shared / "report.json").read_text() == "theirs"


def test_without_a_home_no_state_is_kept_where_others_can_prepare_it(shared: Path) -> None:
    """The state folder was $TMPDIR/mgpu-UID, which anybody can make first."""
    link(shared / f"mgpu-{VICTIM}", shared / "mine")
    done = doctor(shared, HOME="", XDG_STATE_HOME="", TMPDIR=str(shared))
    assert "Traceback" not in done.stderr and done.returncode in (0, 1, errors.UNKNOWN, errors.NO_GPU)
    assert sorted(os.listdir(shared / "mine")) == ["precious"]


def test_the_home_of_another_user(shared: Path) -> None:
    """sudo can keep HOME: nothing of root's is put where the user could have prepared a link."""
    home = shared / "theirs"
    (home / ".local" / "state").mkdir(parents=True)
    for folder in (home, home / ".local", home / ".local" / "state"):
        os.chown(folder, ATTACKER, ATTACKER)
    link(home / ".local" / "state" / "mgpu", shared / "mine")
    done = doctor(shared, uid=0, HOME=str(home), XDG_STATE_HOME="")
    assert "Traceback" not in done.stderr
    assert sorted(os.listdir(shared / "mine")) == ["precious"]
    with pytest.raises(OSError, match="belongs to another user"):
        files.state_folder({"HOME": str(home)})


def test_a_stamp_of_another_user(tmp_path: Path, shared: Path) -> None:
    snapshot = stamped(tmp_path)
    os.chown(tmp_path / ".mgpu" / "verified.json", ATTACKER, ATTACKER)
    now = stamp.current_stamp(snapshot)
    assert now is not None and now.verified is None and "belongs to another user" in str(now.refused)
    os.chown(tmp_path / ".mgpu", ATTACKER, ATTACKER)
    with pytest.raises(MgpuError, match="belongs to another user"):
        stamp.write(snapshot, ("start", "train"), {})


def test_a_marker_of_another_user(shared: Path) -> None:
    from mgpu.launchers.run_folder import LAUNCH, MARKER, claim_folder, find_obstacle

    with claim_folder(shared / "logs", LAUNCH, named=True) as path:
        (path / "run.log").write_text("of mgpu")
    os.chown(path / MARKER, ATTACKER, ATTACKER)
    assert find_obstacle(path, LAUNCH) is not None
    assert (path / "run.log").read_text() == "of mgpu"
