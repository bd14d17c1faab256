"""The storage probe: recorded mount tables, folders that do not answer, real full and read-only disks, this machine."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mgpu import engine
from mgpu.check import Problem
from mgpu.probes import gather, storage
from mgpu.probes.runner import STORAGE, Probe, run
from mgpu.snapshot import Folder, Snapshot, Storage, decode, loads
from tests.checks.facts import facts
from tests.conftest import CHECKS, environment, missing, need

# As a cluster's compute node has it: root on a disk, home on NFS, scratch on Lustre, a data set on an object store.
MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,discard shared:1 - ext4 /dev/vda rw,discard
28 27 0:30 / /tmp rw,nosuid shared:2 - tmpfs tmpfs rw,size=24684084k
31 27 0:41 / /home rw,relatime master:3 - nfs4 filer:/home rw,vers=4.2,hard
33 27 0:43 / /scratch rw,flock - lustre 10.1.2.3@tcp:/scratch rw,flock
35 27 0:44 / /scratch/my\\040data ro,nosuid - fuse.s3fs s3fs rw,user_id=0
36 27 0:45 / /over rw - ext4 /dev/vdb rw
37 36 0:46 / /over rw - tmpfs tmpfs rw
38 27 0:47 / /scr rw - xfs /dev/vdc rw
half a line
39 27 0:48 / /no-dash rw
"""


@pytest.fixture
def mounts(tmp_path: Path) -> str:
    path = tmp_path / "mountinfo"
    path.write_text(MOUNTS)
    return str(path)


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """None of the variables that move folders, and a home of the test's own."""
    for name in ("TMPDIR", "TEMP", "TMP", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE",
                 "TORCH_HOME", "TRITON_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR",
                 "TORCH_EXTENSIONS_DIR"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LOGNAME", "ada")
    (tmp_path / "home").mkdir()


def ask(**arguments: Any) -> Storage:
    *_, last = storage.probe(**{"lustre": (), **arguments})
    return decode(Storage, json.loads(json.dumps(last["storage"])), "")


def of(found: Storage, role: str) -> Folder:
    folder = found.role(role)
    assert folder is not None
    return folder


# ---- which folders


def test_the_usual_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "home"
    assert {folder.role: folder.path for folder in ask().folders} == {
        "current": str(tmp_path),
        "temporary": "/tmp",
        "home": str(home),
        "hf_cache": f"{home}/.cache/huggingface/hub",
        "torch_cache": f"{home}/.cache/torch",
        "triton_cache": f"{home}/.triton/cache",
        "inductor_cache": "/tmp/torchinductor_ada",
        "extensions": f"{home}/.cache/torch_extensions",
    }


@pytest.mark.parametrize(
    ("env", "role", "path"),
    [
        ({"TMPDIR": "/job/tmp"}, "temporary", "/job/tmp"),
        ({"TMPDIR": "", "TMP": "/b"}, "temporary", "/b"),
        ({"TMPDIR": "/job/tmp"}, "inductor_cache", "/job/tmp/torchinductor_ada"),
        ({"TORCHINDUCTOR_CACHE_DIR": "/i"}, "inductor_cache", "/i"),
        ({"XDG_CACHE_HOME": "/c"}, "hf_cache", "/c/huggingface/hub"),
        ({"XDG_CACHE_HOME": "/c"}, "torch_cache", "/c/torch"),
        ({"XDG_CACHE_HOME": "/c"}, "extensions", "/c/torch_extensions"),
        ({"XDG_CACHE_HOME": "/c", "HF_HOME": "/hf"}, "hf_cache", "/hf/hub"),
        ({"HF_HOME": "/hf", "HF_HUB_CACHE": "/hub"}, "hf_cache", "/hub"),
        ({"HUGGINGFACE_HUB_CACHE": "/old"}, "hf_cache", "/old"),
        ({"TORCH_HOME": "/t"}, "torch_cache", "/t"),
        ({"TRITON_HOME": "/t"}, "triton_cache", "/t/.triton/cache"),
        ({"TRITON_HOME": "/t", "TRITON_CACHE_DIR": "/tc"}, "triton_cache", "/tc"),
        ({"TORCH_EXTENSIONS_DIR": "/e"}, "extensions", "/e"),
    ],
)
def test_the_variables_that_move_them(
    env: dict[str, str], role: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert of(ask(), role).path == path


def test_the_hub_cache_is_where_huggingface_hub_looks(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    for env in ({}, {"HF_HOME": "/hf"}, {"XDG_CACHE_HOME": "/c"}, {"HF_HUB_CACHE": "/hub", "HF_HOME": "/hf"}):
        given = environment(tmp_path / "home", env, without=() if "XDG_CACHE_HOME" in env else ("XDG_CACHE_HOME",))
        theirs = subprocess.run(
            [sys.executable, "-c", "from huggingface_hub import constants; print(constants.HF_HUB_CACHE)"],
            env=given, capture_output=True, text=True, check=True,
        ).stdout.strip()  # fmt: skip
        ours = subprocess.run(
            [sys.executable, "-c", "from mgpu.probes import storage; print(dict(storage._usual())['hf_cache'])"],
            env=given, capture_output=True, text=True, check=True,
        ).stdout.strip()  # fmt: skip
        assert ours == theirs


def test_a_current_folder_that_was_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    monkeypatch.delenv("PWD", raising=False)
    (tmp_path / "gone").rmdir()
    found = of(ask(), "current")
    assert found.exists is False or found.error is not None


# ---- which file system


@pytest.mark.parametrize(
    ("path", "filesystem", "mount"),
    [
        ("/", "ext4", "/"),
        ("/etc", "ext4", "/"),
        ("/tmp/x", "tmpfs", "/tmp"),
        ("/tmpx", "ext4", "/"),
        ("/home/ada/run", "nfs4", "/home"),
        ("/scratch/ada", "lustre", "/scratch"),
        ("/scratch/my data/train", "fuse.s3fs", "/scratch/my data"),
        ("/over/x", "tmpfs", "/over"),  # the later mount hides the earlier
        ("/scr", "xfs", "/scr"),
    ],
)
def test_the_longest_mount_holds_the_path(path: str, filesystem: str, mount: str, mounts: str) -> None:
    assert storage._mount(path, mounts) == (filesystem, mount)


def test_links_are_followed(tmp_path: Path, mounts: str) -> None:
    (tmp_path / "link").symlink_to("/proc")
    (folder,) = [f for f in ask(named=[str(tmp_path / "link")], mounts=mounts).folders if f.role == "named"]
    assert folder.filesystem == "proc"


def test_a_folder_that_is_not_there_is_judged_by_the_one_above_it(tmp_path: Path) -> None:
    (folder,) = [f for f in ask(named=[str(tmp_path / "a" / "b")]).folders if f.role == "named"]
    assert folder.exists is False and folder.writable is True
    assert folder.free_bytes == pytest.approx(
        os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize, rel=0.05
    )  # fmt: skip


def test_without_a_mount_table_the_type_is_not_known(tmp_path: Path) -> None:
    folder = of(ask(mounts=str(tmp_path / "missing")), "home")
    assert folder.filesystem is None and folder.mount is None and folder.free_bytes is not None


def test_models_in_the_cache_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = tmp_path / "hub"
    for name in ("models--gpt2", "datasets--glue", "models--bert", ".locks", "version.txt"):
        (hub / name).mkdir(parents=True)
    monkeypatch.setenv("HF_HUB_CACHE", str(hub))
    assert ask().hf_cache_models == 3
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "missing"))
    assert ask().hf_cache_models == 0
    (tmp_path / "file").touch()
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "file"))
    assert ask().hf_cache_models is None


def test_what_lustre_says_of_itself(tmp_path: Path) -> None:
    (tmp_path / "health_check").write_text("NOT HEALTHY\nOST0001 ...\n")
    assert ask(lustre=(str(tmp_path / "missing"), str(tmp_path / "health_check"))).lustre_health == "NOT HEALTHY"
    assert ask().lustre_health is None


# ---- folders that do not answer


@pytest.fixture
def dead_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """statvfs of paths under /dead waits, as for a server that is down; every other path answers."""
    real, released = os.path.isdir, threading.Event()

    def isdir(path: str) -> bool:
        if str(path).startswith("/dead"):
            released.wait(60)
        return real(path)

    monkeypatch.setattr(os.path, "isdir", isdir)
    yield "/dead"
    released.set()


def test_a_dead_server_costs_its_own_folders_only(dead_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", "/dead/hf")
    started = time.monotonic()
    found = ask(named=["/dead/data"], patience_s=0.3)
    assert time.monotonic() - started < 30
    silent = [folder for folder in found.folders if not folder.answered]
    assert [(folder.role, folder.path) for folder in silent] == [("hf_cache", "/dead/hf/hub"), ("named", "/dead/data")]
    assert all(folder.exists is None and folder.error == "no answer in 0.3 s" for folder in silent)
    assert of(found, "current").free_bytes is not None


def firing(found: Storage, **changes: Any) -> dict[str, Problem]:
    checks = [check for check in CHECKS.values() if check.area == "storage"]
    return {o.check.id: o.problem for o in engine.run(checks, Snapshot(**facts(storage=found, **changes))) if o.problem}


def test_a_dead_server_is_an_error(dead_server: str) -> None:
    found = firing(ask(named=["/dead/data"], patience_s=0.2))
    assert "/dead/data: no answer" in found["folder_does_not_answer"].title


# A file server that never answers, for real: a FUSE file system whose server reads no request.
DEAD = """\
import ctypes, json, os, sys
fuse = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0".encode()
if ctypes.CDLL(None).mount(b"none", sys.argv[1].encode(), b"fuse", 0, options): sys.exit(77)
os.set_inheritable(fuse, False)
from mgpu.probes import STORAGE, gather
from mgpu.snapshot import to_json
print(json.dumps(to_json(gather([STORAGE]))), flush=True)
os._exit(0)
"""


def test_a_file_server_that_is_really_dead(tmp_path: Path) -> None:
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.W_OK):
        missing("mounting a FUSE file system needs root and /dev/fuse")
    dead = tmp_path / "dead"
    dead.mkdir()
    started = time.monotonic()
    done = subprocess.run(
        [need("unshare"), "-m", "--propagation", "private", sys.executable, "-c", DEAD, str(dead)],
        env=environment(tmp_path / "home", {"HF_HOME": str(dead / "hf"), "TRITON_CACHE_DIR": str(dead / "triton")}),
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    if done.returncode == 77:
        missing("FUSE file systems may not be mounted here")
    snapshot = loads(done.stdout)
    assert time.monotonic() - started < 15
    assert snapshot.storage is not None, snapshot.gaps
    found = firing(snapshot.storage)["folder_does_not_answer"]
    assert found.evidence == {"hf_cache": str(dead / "hf/hub"), "triton_cache": str(dead / "triton")}
    assert of(snapshot.storage, "current").writable is True


# ---- caches of a cluster with its home on NFS


def test_compile_caches_on_nfs(mounts: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cache = tmp_path / "home" / ".triton" / "cache"
    cache.mkdir(parents=True)
    Path(mounts).write_text(MOUNTS + f"50 27 0:50 / {tmp_path / 'home'} rw - nfs4 filer:/home rw\n")
    found = firing(ask(mounts=mounts))
    assert "nfs4" in found["compile_cache_on_network"].title
    assert "export TRITON_CACHE_DIR=/tmp/$USER/triton_cache" in found["compile_cache_on_network"].fixes[0].commands
    assert "hf_cache_on_network" in found


def test_a_hub_cache_whose_locks_do_not_hold(mounts: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hub = tmp_path / "scratch"
    hub.mkdir()
    Path(mounts).write_text(MOUNTS + f"50 27 0:50 / {hub} rw - lustre 10.1.2.3@tcp:/scratch rw\n")
    monkeypatch.setenv("HF_HUB_CACHE", str(hub))
    found = firing(ask(mounts=mounts))["hf_cache_on_network"]
    assert "Locks may not work" in found.cause
    assert found.fixes[0].commands == ("hf download ORG/MODEL", "export HF_HUB_OFFLINE=1")


def test_a_data_set_on_an_object_store(mounts: str, tmp_path: Path) -> None:
    data = tmp_path / "bucket"
    data.mkdir()
    Path(mounts).write_text(MOUNTS + f"50 27 0:50 / {data} rw - fuse.s3fs s3fs rw\n")
    found = firing(ask(mounts=mounts, named=[str(data)]))["data_folder_on_slow_storage"]
    assert "fuse.s3fs" in found.title and "wait for data" in found.cause


# ---- really full, really read-only


def in_a_mount(mount: str, folder: Path, before: str = "true") -> Snapshot:
    """What the probe finds in `folder` after mounting something there, in a mount namespace of its own."""
    if os.geteuid() != 0:
        missing("mounting needs root")
    unshare = need("unshare")
    folder.mkdir()
    trial = subprocess.run([unshare, "-m", "true"], capture_output=True, check=False)
    if trial.returncode:
        missing("mount namespaces are not allowed here")
    ask_it = (
        "import json; from mgpu.probes import STORAGE, gather; from mgpu.snapshot import to_json; "
        "print(json.dumps(to_json(gather([STORAGE]))))"
    )
    here = shlex.quote(str(folder))
    script = f"mount {mount} {here} && cd {here} && {before}; exec {shlex.join([sys.executable, '-c', ask_it])}"
    done = subprocess.run(
        [unshare, "-m", "--propagation", "private", "sh", "-c", script],
        env=environment(folder.parent / "home", {"TMPDIR": str(folder)}), capture_output=True, text=True, check=True,
    )  # fmt: skip
    return loads(done.stdout)


def test_a_full_disk(tmp_path: Path) -> None:
    snapshot = in_a_mount("-t tmpfs -o size=64k tmpfs", tmp_path / "full", "cat /dev/zero > filler 2>/dev/null")
    assert snapshot.storage is not None
    found = firing(snapshot.storage)
    full = found["output_folder_full"]
    assert "the current folder is full: 0 MiB free" in full.title and "when it writes the first one" in full.cause
    assert any(command.startswith("df -h") for command in full.fixes[0].commands)
    assert "is full" in found["temporary_folder_unusable"].title
    assert "in memory" in found["temporary_folder_in_memory"].title
    assert of(snapshot.storage, "current").filesystem == "tmpfs"


def test_a_disk_without_inodes(tmp_path: Path) -> None:
    fill = "i=0; while touch f$i 2>/dev/null; do i=$((i+1)); done"
    snapshot = in_a_mount("-t tmpfs -o size=2g,nr_inodes=64 tmpfs", tmp_path / "inodes", fill)
    assert snapshot.storage is not None
    folder = of(snapshot.storage, "current")
    assert folder.free_inodes == 0 and (folder.free_bytes or 0) > 1_000_000_000
    assert "0 free inodes" in firing(snapshot.storage)["output_folder_full"].title


def test_a_read_only_disk(tmp_path: Path) -> None:
    snapshot = in_a_mount("-t tmpfs -o ro tmpfs", tmp_path / "ro")
    assert snapshot.storage is not None
    folder = of(snapshot.storage, "current")
    assert folder.read_only is True and folder.writable is False  # root may write anywhere but here
    assert "mounted read-only" in firing(snapshot.storage)["output_folder_not_writable"].title


def test_an_empty_hub_cache_without_a_network(tmp_path: Path) -> None:
    found = firing(ask(), env={"HF_HUB_OFFLINE": "1"})["hf_cache_empty_offline"]
    assert "LocalEntryNotFoundError" in found.cause


# ---- the child, and this machine


def test_the_child_imports_nothing_heavy() -> None:
    script = f"import runpy, sys; s = runpy.run_path({storage.__file__!r}); before = set(sys.modules); " \
             "list(s['probe']()); print(*sorted(set(sys.modules) - before))"  # fmt: skip
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=True)
    assert {"threading", "subprocess", "json"}.isdisjoint(done.stdout.split())


def test_on_this_machine(tmp_path: Path) -> None:
    snapshot = gather([STORAGE])
    assert snapshot.storage is not None, snapshot.gaps
    for folder in snapshot.storage.folders:
        assert folder.answered and folder.filesystem and folder.stat_s is not None, folder
    assert of(snapshot.storage, "current").exists is True


def test_named_folders_reach_the_child(tmp_path: Path) -> None:
    probe: Probe = replace(STORAGE, arguments={"named": [str(tmp_path), "/nonexistent"]})
    (child,) = run([probe])
    named: Sequence[dict[str, Any]] = [f for f in child.found["storage"]["folders"] if f["role"] == "named"]
    assert [(folder["path"], folder["exists"]) for folder in named] == [(str(tmp_path), True), ("/nonexistent", False)]
