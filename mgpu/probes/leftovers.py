"""What did earlier runs of this user leave behind, and which services share the GPUs?

One pass over /proc: first the names, details only of relevant processes, and the environment only of this user's
Python processes. It runs in every doctor, so all loops are bounded. Standard library only; the roots are arguments.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from typing import Any

# Names in /proc/PID/comm, which are truncated to 15 bytes.
_SERVICES = {
    "nvidia-cuda-mps": "mps",
    "nv-fabricmanage": "fabric_manager",
    "nv-hostengine": "dcgm",
    "dcgm-exporter": "dcgm",
    "nvidia-persiste": "persistence",
    "raylet": "ray",
    "nsys": "profiler",
    "nsys-launcher": "profiler",
    "ncu": "profiler",
    "nv-nsight-cu-cl": "profiler",
}
# torch names its processes pt_main_thread and pt_elastic; ray names its workers after their task.
_PYTHON = ("python", "pt_", "torchrun", "accelerate", "deepspeed", "ray::")
_COMPILERS = frozenset({"ninja", "nvcc", "cicc", "ptxas", "cudafe++", "cc1plus"})
# fmt: off
# Processes that adopt orphans.
_REAPERS = frozenset({
    "systemd", "init", "tini", "dumb-init", "docker-init", "catatonit", "s6-svscan", "runit", "containerd-shim",
    "conmon",
})
# fmt: on
# include/linux/proc_ns.h, PROC_PID_INIT_INO: the namespace in which all processes are visible.
_FIRST_PID_NAMESPACE = "pid:[4026531836]"
# Files that NCCL, torch, CUDA, Python and Open MPI leave in /dev/shm when they are killed. Semaphores with other names
# may be intended to outlive the process that created them.
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
    """Yield the fact leftovers: first without the locks, whose folder can be on a file server that hangs.

    `mgpu`: the process whose children (including this one) and ancestors are not leftovers.
    """
    yield {"asking": "environment and memory maps of your processes, blocked if one is stuck in the kernel"}
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
        self.pids = [int(name) for name in _list_folder(proc) if name.isdigit()]

    def name(self, pid: int) -> str:
        """Return the process's name; "" if it has exited."""
        return _read(f"{self.proc}/{pid}/comm").decode("utf-8", "replace").rstrip("\n")

    def stat(self, pid: int) -> list[bytes]:
        """Return the fields of proc_pid_stat(5) from the third (state, parent, …) on; empty if it has exited."""
        return _read(f"{self.proc}/{pid}/stat").rpartition(b")")[2].split()

    def parent(self, pid: int) -> int:
        """Return its parent's PID; 0 if it has none or it is not known."""
        fields = self.stat(pid)
        return int(fields[1]) if len(fields) > 1 and fields[1].isdigit() else 0

    def ancestors(self, pid: int) -> list[int]:
        """Return its parent, the parent's parent and so on."""
        found: list[int] = []
        while (pid := self.parent(pid)) and pid not in found:
            found.append(pid)
        return found

    def age(self, pid: int) -> float | None:
        """Return the seconds since it started."""
        fields, uptime = self.stat(pid), _read(f"{self.proc}/uptime").split()
        try:
            return round(max(0.0, float(uptime[0]) - int(fields[19]) / self.ticks), 1)
        except (IndexError, ValueError):
            return None

    def is_mine(self, pid: int) -> bool:
        """Whether it belongs to this user."""
        try:
            return os.stat(f"{self.proc}/{pid}").st_uid == self.me
        except OSError:
            return False

    def shares_nothing(self, pid: int) -> bool:
        """Whether it has no shared memory.

        Works also for processes whose maps even their own user cannot read: sshd, ssh-agent and systemd's (sd-pam),
        which are part of every login.
        """
        return re.search(rb"^RssShmem:\s+0 kB$", _read(f"{self.proc}/{pid}/status"), re.MULTILINE) is not None

    def sees_all(self) -> bool | None:
        """Whether all processes are visible: none hidden by a PID namespace or the mount option hidepid."""
        try:
            namespace = os.readlink(f"{self.proc}/self/ns/pid")
        except OSError:
            return None
        return namespace == _FIRST_PID_NAMESPACE and os.path.exists(f"{self.proc}/1/comm")

    def names(self) -> Iterator[tuple[int, str]]:
        """Yield every process with its name. Opens files relative to one open folder, which is fastest."""
        try:
            folder = os.open(self.proc, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            for pid in self.pids:
                try:
                    fd = os.open(f"{pid}/comm", os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
                except OSError:
                    continue  # exited
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
        """Return services and zombies, this user's Python processes, and whether a compiler of this user runs."""
        found: list[dict[str, Any]] = []
        python: list[int] = []
        compiling = False
        for pid, name in self.names():
            if kind := _SERVICES.get(name):
                gpus = {"ray_gpus": _ray_gpus(_read(f"{self.proc}/{pid}/cmdline"))} if kind == "ray" else {}
                found.append(self.describe(pid, name, kind, self.is_mine(pid)) | gpus)
            elif name in _COMPILERS:
                compiling = compiling or self.is_mine(pid)
            elif name.startswith(_PYTHON) and self.is_mine(pid):
                if self.stat(pid)[:1] == [b"Z"]:
                    if self.parent(pid) != mgpu:  # mgpu's own probes exit at different times
                        found.append(self.describe(pid, name, "zombie", True))
                else:
                    python.append(pid)
        return found, python, compiling

    def describe(self, pid: int, name: str, kind: str, mine: bool) -> dict[str, Any]:
        """Return the fields of LeftProcess that every process has."""
        return {"pid": pid, "name": name, "kind": kind, "mine": mine, "age_s": self.age(pid)}

    def ranks(self, python: list[int], mgpu: int) -> list[dict[str, Any]]:
        """Return the processes that a launcher started as ranks, without mgpu's own relatives."""
        family = {mgpu, *self.ancestors(mgpu)}
        run = os.environ.get("TORCHELASTIC_RUN_ID")
        environments: dict[int, dict[str, str]] = {}
        for pid in python:
            if pid in family:
                continue
            env = _environment(_read(f"{self.proc}/{pid}/environ"))
            if not _is_rank(env) or (run and run == env.get("TORCHELASTIC_RUN_ID")):
                continue  # not a rank, or a rank of the job that mgpu itself runs in
            environments[pid] = env
        found = []
        for pid, env in environments.items():
            ancestors = self.ancestors(pid)
            # Loader workers inherit their rank's environment: the topmost such process is the rank.
            if mgpu not in ancestors and not environments.keys() & ancestors:
                found.append(
                    self.describe(pid, self.name(pid), "rank", True)
                    | {
                        "rank": _int(env.get("RANK") or env.get("LOCAL_RANK")),
                        "port": _int(env.get("MASTER_PORT")),
                        "orphan": self.orphan(pid, env),
                    }
                )
        return found

    def orphan(self, pid: int, env: dict[str, str]) -> bool | None:
        """Whether its launcher has exited. None if it may have been started without a launcher."""
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


def _ray_gpus(cmdline: bytes) -> float | None:
    """Return how many GPUs a raylet offers to Ray's tasks, by its command line: "node:192.0.2.2,1.0,CPU,64,GPU,8".

    Ray counts them once, when its node starts (ray 2.60, services.py, start_raylet).
    """
    found = re.search(rb"(?:^|\0)--static_resource_list=([^\0]*)\0", cmdline)
    if not found:
        return None
    parts = found[1].split(b",")
    try:
        return float(dict(zip(parts[::2], parts[1::2], strict=False)).get(b"GPU", b"0"))
    except ValueError:
        return None


def _environment(block: bytes) -> dict[str, str]:
    """Return the variables that identify a rank."""
    found = {}
    for pair in block.split(b"\0"):
        name, _, value = pair.partition(b"=")
        if name in (b"RANK", b"LOCAL_RANK", b"MASTER_PORT", b"TORCHELASTIC_RUN_ID"):
            found[name.decode()] = value.decode("utf-8", "replace")
    return found


def _shared_memory(shm: str, machine: _Machine) -> list[dict[str, Any]]:
    """Return this user's files in /dev/shm, and whether the process that created them is alive."""
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
        mapped, complete = _mapped_files(set(found), machine)
        complete = complete and machine.sees_all() is True
        alive = set(machine.pids)
        for name, file in found.items():
            if name in mapped or owners[name] in alive:
                file["owner_alive"] = True
            elif complete:
                file["owner_alive"] = False
    # Keep the largest files without a live owner.
    first = sorted(found.values(), key=lambda file: (file["owner_alive"] is True, -file["size_bytes"]))[:_FILES_KEPT]
    return [file | {"path": _text(file["path"])} for file in first]


def _owner(name: str) -> int | None:
    """Return the PID in the name: torch_4711_…, cuda.shm.<user>.<pid>.<n> (hexadecimal); None for other names."""
    if name.startswith("torch_"):
        return _int(name.split("_")[1])
    if name.startswith("cuda.shm."):
        parts = name.split(".")
        try:
            return int(parts[3], 16)
        except (IndexError, ValueError):
            return None
    return None


def _mapped_files(names: set[str], machine: _Machine) -> tuple[set[str], bool]:
    """Return the files mapped by a process of this user, and whether all processes could be read in time."""
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
            continue  # exited
        except OSError:
            if pid == 1 or machine.shares_nothing(pid):  # PID 1 is not a rank
                continue
            return found, False
        # For few files substring search is fastest; for thousands, the set whose cost does not grow with them.
        here = [n for n in wanted if n in maps] if len(wanted) < 50 else wanted.keys() & set(_LAST_PART.findall(maps))
        found |= {wanted[name] for name in here}
    return found, True


def _locks(root: str, compiling: bool) -> list[dict[str, Any]] | None:
    """Return lock files of torch's extensions: ROOT/NAME/lock or ROOT/py311_cu130/NAME/lock; None: unreadable."""
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
    """Return a path that can be written as JSON and read back."""
    return path.encode("utf-8", "replace").decode("utf-8")


def _list_folder(folder: str) -> list[str]:
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
