"""What did earlier runs of this user leave, and which services share the GPUs?

One pass over /proc: names first, more only of the few that matter, the environment only of this user's own Python
processes. Runs in every doctor, so whatever could be long is bounded. Standard library only; the roots are arguments.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from typing import Any

# As /proc/PID/comm has them, cut after 15 bytes.
_SERVICES = {
    "nvidia-cuda-mps": "mps",
    "nv-fabricmanage": "fabric_manager",
    "nv-hostengine": "dcgm",
    "dcgm-exporter": "dcgm",
    "nvidia-persiste": "persistence",
    "nsys": "profiler",
    "nsys-launcher": "profiler",
    "ncu": "profiler",
    "nv-nsight-cu-cl": "profiler",
}
# torch names its processes pt_main_thread and pt_elastic, ray its workers after their task.
_PYTHON = ("python", "pt_", "torchrun", "accelerate", "deepspeed", "ray::")
_COMPILERS = frozenset({"ninja", "nvcc", "cicc", "ptxas", "cudafe++", "cc1plus"})
# fmt: off
# Who takes in processes whose parent is gone.
_REAPERS = frozenset({
    "systemd", "init", "tini", "dumb-init", "docker-init", "catatonit", "s6-svscan", "runit", "containerd-shim",
    "conmon",
})
# fmt: on
# include/linux/proc_ns.h, PROC_PID_INIT_INO: the namespace in which every process is seen.
_FIRST_PID_NAMESPACE = "pid:[4026531836]"
# What NCCL, torch, CUDA, Python and Open MPI leave in /dev/shm when they are killed. Semaphores of other names may be
# meant to outlive whoever made them.
_SHM = ("nccl-", "torch_", "cuda.shm.", "psm", "sem.mp-", "sem.loky-", "vader_segment")
_SHM_LOOKED_AT = 4096
_MAPS_BUDGET_S = 0.05
_LAST_PART = re.compile(rb"/([^/\n]*?)(?: \(deleted\))?$", re.MULTILINE)  # of the paths in /proc/PID/maps
_EXTENSIONS = 200
_KEPT = 200
_FILES_KEPT = 1000  # killed runs leave hundreds, and their sizes are added up


def probe(
    proc: str = "/proc", shm: str = "/dev/shm", extensions: str | None = None, mgpu: int | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the fact leftovers: first without the locks, whose folder may lie on a file server that hangs.

    `mgpu`: the process whose children (this one among them) and ancestors are no leftovers.
    """
    yield {"asking": "your processes for environment and memory maps: one stuck in the kernel lets nobody look"}
    machine = _Machine(proc)
    mgpu = mgpu or os.getppid()
    services, python, compiling = machine.pick(mgpu)
    found: dict[str, Any] = {
        "processes": [*services, *machine.ranks(python, mgpu)][:_KEPT],
        "files": _shared_memory(shm, machine),
        "sees_all_processes": machine.sees_all(),
        "locks_searched": False,
    }
    yield {"leftovers": found}
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    root = extensions or os.environ.get("TORCH_EXTENSIONS_DIR") or f"{cache}/torch_extensions"
    yield {"asking": f"lock files under {root}"}
    locks = _locks(root, compiling)
    if locks is not None:
        yield {"leftovers": found | {"files": [*locks[:_KEPT], *found["files"]], "locks_searched": True}}


class _Machine:
    """The processes under one /proc."""

    def __init__(self, proc: str) -> None:
        self.proc, self.me = proc, os.getuid()
        self.ticks = os.sysconf("SC_CLK_TCK")
        self.pids = [int(name) for name in _listed(proc) if name.isdigit()]

    def name(self, pid: int) -> str:
        """As the process is called; "" when it is gone."""
        return _read(f"{self.proc}/{pid}/comm").decode("utf-8", "replace").rstrip("\n")

    def stat(self, pid: int) -> list[bytes]:
        """The fields of proc_pid_stat(5) from the third (state, parent, …) on; empty when it is gone."""
        return _read(f"{self.proc}/{pid}/stat").rpartition(b")")[2].split()

    def parent(self, pid: int) -> int:
        """Its parent's number; 0 when there is none, or it is not known."""
        fields = self.stat(pid)
        return int(fields[1]) if len(fields) > 1 and fields[1].isdigit() else 0

    def ancestors(self, pid: int) -> list[int]:
        """Its parent, and so on up."""
        found: list[int] = []
        while (pid := self.parent(pid)) and pid not in found:
            found.append(pid)
        return found

    def age(self, pid: int) -> float | None:
        """Seconds since it started."""
        fields, uptime = self.stat(pid), _read(f"{self.proc}/uptime").split()
        try:
            return round(max(0.0, float(uptime[0]) - int(fields[19]) / self.ticks), 1)
        except (IndexError, ValueError):
            return None

    def is_mine(self, pid: int) -> bool:
        """Whether this user runs it."""
        try:
            return os.stat(f"{self.proc}/{pid}").st_uid == self.me
        except OSError:
            return False

    def shares_nothing(self, pid: int) -> bool:
        """Whether it has no shared memory. Told also of those that even their own user may not look into: sshd,
        ssh-agent and systemd's (sd-pam) are among the processes of every login."""
        return re.search(rb"^RssShmem:\s+0 kB$", _read(f"{self.proc}/{pid}/status"), re.MULTILINE) is not None

    def sees_all(self) -> bool | None:
        """Whether no process is hidden: neither by a pid namespace nor by the mount option hidepid."""
        try:
            namespace = os.readlink(f"{self.proc}/self/ns/pid")
        except OSError:
            return None
        return namespace == _FIRST_PID_NAMESPACE and os.path.exists(f"{self.proc}/1/comm")

    def named(self) -> Iterator[tuple[int, str]]:
        """Every process with its name. Of some hundreds, so by the shortest way: relative to one open folder."""
        try:
            folder = os.open(self.proc, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            for pid in self.pids:
                try:
                    fd = os.open(f"{pid}/comm", os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
                except OSError:
                    continue  # gone
                try:
                    text = os.read(fd, 64)
                except OSError:
                    continue
                finally:
                    os.close(fd)
                yield pid, text.decode("utf-8", "replace").rstrip("\n")
        finally:
            os.close(folder)

    def pick(self, mgpu: int) -> tuple[list[dict[str, Any]], list[int], bool]:
        """Services and zombies; this user's Python processes; whether a compiler of this user runs."""
        found: list[dict[str, Any]] = []
        python: list[int] = []
        compiling = False
        for pid, name in self.named():
            if kind := _SERVICES.get(name):
                found.append(self.described(pid, name, kind, self.is_mine(pid)))
            elif name in _COMPILERS:
                compiling = compiling or self.is_mine(pid)
            elif name.startswith(_PYTHON) and self.is_mine(pid):
                if self.stat(pid)[:1] == [b"Z"]:
                    if self.parent(pid) != mgpu:  # whose probes end side by side
                        found.append(self.described(pid, name, "zombie", True))
                else:
                    python.append(pid)
        return found, python, compiling

    def described(self, pid: int, name: str, kind: str, mine: bool) -> dict[str, Any]:
        return {"pid": pid, "name": name, "kind": kind, "mine": mine, "age_s": self.age(pid)}

    def ranks(self, python: list[int], mgpu: int) -> list[dict[str, Any]]:
        """Those that a launcher started as ranks, mgpu's own family apart."""
        family = {mgpu, *self.ancestors(mgpu)}
        run = os.environ.get("TORCHELASTIC_RUN_ID")
        environments: dict[int, dict[str, str]] = {}
        for pid in python:
            if pid in family:
                continue
            env = _environment(_read(f"{self.proc}/{pid}/environ"))
            if not _is_rank(env) or (run and run == env.get("TORCHELASTIC_RUN_ID")):
                continue  # no rank, or one of the job that mgpu itself is a rank of
            environments[pid] = env
        found = []
        for pid, env in environments.items():
            ancestors = self.ancestors(pid)
            # Loader workers inherit their rank's environment: the eldest of a line is the rank.
            if mgpu not in ancestors and not environments.keys() & ancestors:
                found.append(
                    self.described(pid, self.name(pid), "rank", True)
                    | {
                        "rank": _int(env.get("RANK") or env.get("LOCAL_RANK")),
                        "port": _int(env.get("MASTER_PORT")),
                        "orphan": self.orphan(pid, env),
                    }
                )
        return found

    def orphan(self, pid: int, env: dict[str, str]) -> bool | None:
        """Whether its launcher is gone. One that was started by hand has none to lose: None where that may be."""
        parent = self.parent(pid)
        name = self.name(parent) if parent else ""
        if not name:
            return None
        elastic = "TORCHELASTIC_RUN_ID" in env
        if name in _REAPERS:
            return True if elastic or "LOCAL_RANK" in env else None
        if parent == 1 and not name.startswith(_PYTHON):
            return True if elastic else None
        return False


def _is_rank(env: dict[str, str]) -> bool:
    return "TORCHELASTIC_RUN_ID" in env or ("MASTER_PORT" in env and ("RANK" in env or "LOCAL_RANK" in env))


def _environment(block: bytes) -> dict[str, str]:
    """The few variables that tell a rank."""
    found = {}
    for pair in block.split(b"\0"):
        name, _, value = pair.partition(b"=")
        if name in (b"RANK", b"LOCAL_RANK", b"MASTER_PORT", b"TORCHELASTIC_RUN_ID"):
            found[name.decode()] = value.decode("utf-8", "replace")
    return found


def _shared_memory(shm: str, machine: _Machine) -> list[dict[str, Any]]:
    """Files of this user in /dev/shm, and whether whoever made them is alive."""
    found: dict[str, dict[str, Any]] = {}
    owners: dict[str, int | None] = {}
    now = time.time()
    try:
        with os.scandir(shm) as entries:
            for place, entry in enumerate(entries):
                if place >= _SHM_LOOKED_AT:
                    break
                if not entry.name.startswith(_SHM):
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if status.st_uid == machine.me and entry.is_file(follow_symlinks=False):
                    owners[entry.name] = _owner(entry.name)
                    found[entry.name] = {
                        "path": entry.path,
                        "kind": "shm",
                        "size_bytes": status.st_blocks * 512,
                        "age_s": round(max(0.0, now - status.st_mtime), 1),
                        "owner_alive": None,
                    }
    except OSError:
        return []
    if found:
        mapped, complete = _mapped(set(found), machine)
        complete = complete and machine.sees_all() is True
        alive = set(machine.pids)
        for name, file in found.items():
            if name in mapped or owners[name] in alive:
                file["owner_alive"] = True
            elif complete:
                file["owner_alive"] = False
    # Those that fill it must be among those that are kept.
    first = sorted(found.values(), key=lambda file: (file["owner_alive"] is True, -file["size_bytes"]))[:_FILES_KEPT]
    return [file | {"path": _text(file["path"])} for file in first]


def _owner(name: str) -> int | None:
    """The process in the name: torch_4711_…, cuda.shm.<user>.<pid>.<n> in hexadecimal digits. Others tell none."""
    if name.startswith("torch_"):
        return _int(name.split("_")[1])
    if name.startswith("cuda.shm."):
        parts = name.split(".")
        try:
            return int(parts[3], 16)
        except (IndexError, ValueError):
            return None
    return None


def _mapped(names: set[str], machine: _Machine) -> tuple[set[str], bool]:
    """Which of the files some process of this user has mapped, and whether all of them could be asked in time."""
    found: set[str] = set()
    # The kernel writes a newline in a path as \\012.
    wanted = {os.fsencode(name).replace(b"\n", b"\\012"): name for name in names}
    end = time.monotonic() + _MAPS_BUDGET_S
    for pid in machine.pids:
        if not machine.is_mine(pid):
            continue
        if time.monotonic() > end:
            return found, False
        try:
            with open(f"{machine.proc}/{pid}/maps", "rb") as file:
                maps = file.read()
        except (FileNotFoundError, ProcessLookupError):
            continue  # gone
        except OSError:
            if pid == 1 or machine.shares_nothing(pid):  # pid 1 is no rank
                continue
            return found, False
        # Of few the quickest way, of thousands the one whose cost does not grow with them.
        here = [n for n in wanted if n in maps] if len(wanted) < 50 else wanted.keys() & set(_LAST_PART.findall(maps))
        found |= {wanted[name] for name in here}
    return found, True


def _locks(root: str, compiling: bool) -> list[dict[str, Any]] | None:
    """Lock files of torch's extension builder: ROOT/NAME/lock or ROOT/py311_cu130/NAME/lock. None: not readable."""
    found = []
    now = time.time()
    try:
        folders = [entry.path for entry in os.scandir(root) if entry.is_dir(follow_symlinks=False)][:_EXTENSIONS]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError:
        return None
    for folder in list(folders):
        try:
            with os.scandir(folder) as entries:
                folders += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)][:_EXTENSIONS]
        except OSError:
            continue
    for folder in folders[: 4 * _EXTENSIONS]:
        path = f"{folder}/lock"
        try:
            status = os.lstat(path)
        except OSError:
            continue
        age = round(max(0.0, now - status.st_mtime), 1)
        found.append(
            {
                "path": _text(path),
                "kind": "lock",
                "size_bytes": status.st_size,
                "age_s": age,
                "owner_alive": True if compiling else None,
            }
        )
    return found


def _text(path: str) -> str:
    """A path that can be written as JSON and read again."""
    return path.encode("utf-8", "replace").decode("utf-8")


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _int(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else None


def _read(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        data = b""
        while block := os.read(fd, 65536):
            data += block
            if len(data) > 1 << 20:
                break
        return data
    except OSError:
        return b""
    finally:
        os.close(fd)
