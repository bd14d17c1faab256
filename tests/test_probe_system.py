"""The system probe: here, on described trees of /proc and /sys, under planted limits, and inside a real Slurm."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mgpu.probes import SYSTEM, gather, system
from mgpu.snapshot import Container, Host, Plan, Slurm, System, decode
from tests.checks import facts
from tests.conftest import ask_all, environment, missing, need
from tests.slurm import Cluster

GIB, MIB = 1 << 30, 1 << 20
FILE = Path(system.__file__)
KINDS: dict[str, Callable[..., Any]] = {"host": Host, "container": Container, "slurm": Slurm, "system": System}
# What tells one environment from another; a test sets what it means and no other.
MARKS = ("KUBERNETES_SERVICE_HOST", "APPTAINER_NAME", "SINGULARITY_NAME", "container")


def plant(root: Path, files: Mapping[str, str]) -> Path:
    """A tree of files; a value that begins with "-> " is a link."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("-> "):
            path.symlink_to(text[3:])
        else:
            path.write_text(text)
    return root


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("SLURM")]:
        monkeypatch.delenv(name)
    for name in MARKS:
        monkeypatch.delenv(name, raising=False)


Read = Callable[..., dict[str, Any]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """What the probe says of a described machine: `read({"proc/meminfo": "..."})["system"]`, as the dataclass."""

    def run(files: Mapping[str, str] | None = None) -> dict[str, Any]:
        root = plant(tmp_path / "root", files or {})
        found: dict[str, Any] = {}
        for part in system.probe(f"{root}/proc", f"{root}/sys", f"{root}/dev/shm", str(root)):
            found |= json.loads(json.dumps(part))
        return {name: decode(kind, found[name], name) for name, kind in KINDS.items()}

    return run


# ---- this machine


def test_this_machine() -> None:
    snapshot = gather([replace(SYSTEM, then=())])
    here, container = snapshot.system, snapshot.container
    assert here and container and snapshot.host and snapshot.slurm, snapshot.gaps
    assert here.cpus_allowed == len(os.sched_getaffinity(0)) <= here.cpus_logical
    assert here.memory_total_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < here.memory_available_bytes <= here.memory_total_bytes
    assert here.shm_total_bytes and here.shm_writable
    assert container.capabilities is not None and container.own_pids is not None
    assert snapshot.host.name == os.uname().nodename and snapshot.host.kernel == os.uname().release
    assert snapshot.slurm.job_id is None and snapshot.slurm.on_allocated_node is None


def test_a_folder_that_hangs_costs_its_own_answer(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    statvfs = os.statvfs

    def hanging(path: Any) -> Any:
        if path == "/dead/tmp":
            time.sleep(6)
        return statvfs(path if os.path.exists(path) else "/")

    def silent(path: Any, mode: int, **_: Any) -> bool:
        time.sleep(6 if str(path).endswith("/srun") else 0)
        return True

    monkeypatch.setattr(system, "_PATIENCE_S", 0.05)
    monkeypatch.setattr(os, "statvfs", hanging)
    monkeypatch.setattr(os, "access", silent)
    monkeypatch.setenv("TMPDIR", "/dead/tmp")
    start = time.monotonic()
    found: dict[str, Any] = {}
    for answer in system.probe():
        found |= answer
    assert time.monotonic() - start < 5
    assert found["system"]["tmp_free_bytes"] is None and found["system"]["cwd_free_bytes"]
    assert found["slurm"]["commands_found"] is False


def test_it_imports_nothing_slow() -> None:
    code = f"import sys; exec(compile(open({str(FILE)!r}).read(), 'probe', 'exec')); list(probe()); print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert {"platform", "shutil", "subprocess", "socket", "ctypes"}.isdisjoint(result.stdout.split())


# ---- trees that are empty, or broken

TREE = {
    "proc/meminfo": "MemTotal:       1048576 kB\nMemFree:         262144 kB\nMemAvailable:    524288 kB\n",
    "proc/self/status": "Name:\tpython\nCapEff:\t0000003fffffffff\nSeccomp:\t0\n",
    "proc/self/cgroup": "0::/job\n",
    "proc/1/cgroup": "0::/\n",
    "proc/self/mountinfo": "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n",
    "proc/sys/kernel/osrelease": "6.8.0-45-generic\n",
    "proc/self/ns/pid": "-> pid:[4026531836]",
    "sys/fs/cgroup/cgroup.controllers": "cpu memory pids\n",
    "sys/fs/cgroup/job/cpu.max": "200000 100000\n",
    "sys/fs/cgroup/job/memory.max": "536870912\n",
    "sys/fs/cgroup/job/memory.current": "300000000\n",
    "sys/fs/cgroup/job/memory.stat": "anon 1000\ninactive_file 100000000\n",
    "sys/fs/cgroup/job/memory.events": "low 0\noom 2\noom_kill 3\n",
    "sys/fs/cgroup/job/pids.max": "1000\n",
    "sys/fs/cgroup/job/pids.current": "40\n",
    "sys/devices/system/node/node0/cpulist": "0-3\n",
    "sys/devices/system/node/node1/cpulist": "4-7\n",
    "sys/class/dmi/id/sys_vendor": "QEMU\n",
    "etc/os-release": 'NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
}


def test_a_described_machine(read: Read) -> None:
    found = read(TREE)
    assert (found["host"].os, found["host"].virtual) == ("Debian GNU/Linux 12 (bookworm)", "QEMU")
    assert found["container"] == Container(
        None,
        False,
        2,
        ("ipc_lock", "sys_ptrace", "sys_admin", "sys_nice", "sys_resource", "syslog"),
        False,
        None,
        False,
    )
    here: System = found["system"]
    assert (here.cpus_quota, here.numa_nodes) == (2.0, 2)
    assert (here.memory_total_bytes, here.memory_available_bytes) == (GIB, GIB // 2)
    assert (here.memory_limit_bytes, here.memory_limit_used_bytes) == (512 * MIB, 200_000_000)
    assert (here.tasks_used, here.tasks_max, here.oom_kills) == (40, 1000, 3)


def test_nothing_to_read(read: Read) -> None:
    found = read()
    assert found["container"] == Container(None, False, None)
    here: System = found["system"]
    assert here.memory_total_bytes == 0 and here.shm_total_bytes is None and here.shm_writable is None
    for name in ("cpus_quota", "numa_nodes", "memory_limit_bytes", "tasks_used", "tasks_max", "oom_kills"):
        assert getattr(here, name) is None, name
    (outcome,) = ask_all("memory_small_for_ranks", **facts.facts(system=here))
    assert outcome.status == "skip"


GARBAGE = (
    "",
    "\n",
    "\x00" * 64,
    "max",
    "-1",
    "9" * 400,
    "é²x ( ) : :::\n\n",
    "MemTotal: x kB\n1:memory\n0::\n",
    "0 0 0 0",
)


@pytest.mark.parametrize("name", TREE)
def test_any_file_may_be_garbage(name: str, read: Read, tmp_path: Path) -> None:
    if name.startswith("proc/self/ns"):
        return
    read(TREE)
    for text in GARBAGE:
        read({name: text})
    (tmp_path / "root" / name).unlink()
    (tmp_path / "root" / name).mkdir()  # a folder in its place cannot be read at all, not even by root
    read()


# ---- cgroups


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        # v1 in a Docker container: the paths are the host's, what is mounted is the container's own
        (
            {
                "proc/self/cgroup": "5:memory:/docker/4f2a\n4:cpu,cpuacct:/docker/4f2a\n3:pids:/docker/4f2a\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "536870912\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "400000000\n",
                "sys/fs/cgroup/memory/memory.stat": "inactive_file 1\ntotal_inactive_file 100000000\n",
                "sys/fs/cgroup/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "150000\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/pids/pids.max": "2048\n",
                "sys/fs/cgroup/pids/pids.current": "7\n",
            },
            (1.5, 512 * MIB, 300_000_000, 7, 2048, 2),
        ),
        # v1 without limits: a number near 2^63, "max", -1
        (
            {
                "proc/self/cgroup": "5:memory:/\n4:cpu,cpuacct:/\n3:pids:/user.slice\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
                "sys/fs/cgroup/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/pids/user.slice/pids.max": "max\n",
                "sys/fs/cgroup/pids/user.slice/pids.current": "120\n",
            },
            (None, None, None, 120, None, 0),
        ),
        # v2: a limit anywhere on the way up holds; the tightest counts
        (
            {
                "proc/self/cgroup": "0::/user.slice/user-1000.slice/session-3.scope\n",
                "sys/fs/cgroup/cgroup.controllers": "cpu memory pids\n",
                "sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope/memory.max": "max\n",
                "sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope/memory.events": "oom_kill 0\n",
                "sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope/pids.current": "12\n",
                "sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope/pids.max": "max\n",
                "sys/fs/cgroup/user.slice/user-1000.slice/memory.max": "536870912\n",
                "sys/fs/cgroup/user.slice/user-1000.slice/memory.current": "1000\n",
                "sys/fs/cgroup/user.slice/user-1000.slice/pids.current": "900\n",
                "sys/fs/cgroup/user.slice/user-1000.slice/pids.max": "1000\n",
                "sys/fs/cgroup/user.slice/pids.current": "950\n",
                "sys/fs/cgroup/user.slice/pids.max": "9000\n",
                "sys/fs/cgroup/user.slice/memory.events": "oom_kill 99\n",  # of all users
            },
            (None, 512 * MIB, 1000, 900, 1000, 0),
        ),
        # v2 in a Slurm step: kills of earlier steps of the job count, those of other jobs do not
        (
            {
                "proc/self/cgroup": "0::/system.slice/slurmstepd.scope/job_42/step_1/user/task_0\n",
                "sys/fs/cgroup/cgroup.controllers": "memory\n",
                "sys/fs/cgroup/system.slice/slurmstepd.scope/job_42/step_1/user/task_0/memory.events": "oom_kill 0\n",
                "sys/fs/cgroup/system.slice/slurmstepd.scope/job_42/memory.events": "oom 1\noom_kill 4\n",
                "sys/fs/cgroup/system.slice/slurmstepd.scope/job_42/memory.max": "536870912\n",
                "sys/fs/cgroup/system.slice/slurmstepd.scope/memory.events": "oom_kill 50\n",
            },
            (None, 512 * MIB, None, None, None, 4),
        ),
        # v2 without the memory controller in this session
        (
            {
                "proc/self/cgroup": "0::/user.slice/session-3.scope\n",
                "sys/fs/cgroup/user.slice/session-3.scope/cgroup.procs": "1\n",
                "sys/fs/cgroup/user.slice/memory.events": "oom_kill 99\n",
            },
            (None, None, None, None, None, None),
        ),
        # v2 in a container with a cgroup namespace
        (
            {
                "proc/self/cgroup": "0::/\n",
                "sys/fs/cgroup/cgroup.controllers": "cpu memory pids\n",
                "sys/fs/cgroup/cpu.max": "max 100000\n",
                "sys/fs/cgroup/memory.max": "536870912\n",
                "sys/fs/cgroup/memory.events": "oom_kill 1\n",
                "sys/fs/cgroup/pids.max": "1024\n",
                "sys/fs/cgroup/pids.current": "3\n",
            },
            (None, 512 * MIB, None, 3, 1024, 1),
        ),
    ],
    ids=["v1 docker", "v1 no limits", "v2 session", "v2 slurm", "v2 no controller", "v2 container"],
)
def test_cgroups(files: dict[str, str], expected: tuple[Any, ...], read: Read) -> None:
    here: System = read({"proc/meminfo": TREE["proc/meminfo"], **files})["system"]
    assert (
        here.cpus_quota, here.memory_limit_bytes, here.memory_limit_used_bytes, here.tasks_used, here.tasks_max,
        here.oom_kills,
    ) == expected  # fmt: skip


# ---- containers

OVERLAY = "702 655 0:53 {root} / rw,relatime master:1 - overlay overlay rw,lowerdir={lower},upperdir=/x\n"


@pytest.mark.parametrize(
    ("kind", "files", "env"),
    [
        (None, {"proc/self/mountinfo": "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"}, {}),
        ("docker", {".dockerenv": ""}, {}),
        ("docker", {"proc/1/cgroup": "4:memory:/docker/4f2a\n"}, {}),
        ("docker", {"proc/self/mountinfo": OVERLAY.format(root="/", lower="/var/lib/docker/overlay2/l/A")}, {}),
        ("docker", {"proc/1/cgroup": "0::/system.slice/docker-4f2a.scope\n"}, {}),
        (None, {"proc/self/cgroup": "0::/system.slice/docker.service\n"}, {}),  # the daemon's own, on the host
        ("podman", {"run/.containerenv": ""}, {}),
        ("podman", {"proc/self/mountinfo": OVERLAY.format(root="/", lower="/h/containers/storage/overlay/l/A")}, {}),
        ("kubernetes", {".dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}),
        ("kubernetes", {"proc/1/cgroup": "0::/kubepods.slice/pod1/cri-containerd-4f2a.scope\n"}, {}),
        ("containerd", {"proc/self/mountinfo": OVERLAY.format(root="/", lower="/var/lib/containerd/io.x/1/fs")}, {}),
        ("apptainer", {}, {"APPTAINER_NAME": "image.sif"}),
        ("apptainer", {"run/.containerenv": ""}, {"SINGULARITY_NAME": "image.sif"}),
        ("apptainer", {".singularity.d/runscript": ""}, {}),
        # pyxis in a Slurm that itself runs in Kubernetes: the innermost counts
        (
            "enroot",
            {
                "proc/self/mountinfo": "99 1 0:50 /data/user-1000/pyxis_42.0 / rw - tmpfs tmpfs rw\n"
                "98 99 0:50 /data/user-1000/pyxis_42.0/.lock /.lock ro - tmpfs tmpfs rw\n"
            },
            {"KUBERNETES_SERVICE_HOST": "10.96.0.1"},
        ),
        ("enroot", {"proc/self/mountinfo": "99 1 0:50 /enroot/data/torch / rw - tmpfs tmpfs rw\n"}, {}),
        ("lxc", {"run/systemd/container": "lxc\n"}, {}),
        ("lxc", {}, {"container": "lxc"}),
        ("nspawn", {"run/systemd/container": "systemd-nspawn\n"}, {}),
        ("other", {}, {"container": "flatpak"}),
    ],
)
def test_who_made_the_container(
    kind: str | None, files: dict[str, str], env: dict[str, str], read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert read(files)["container"].kind == kind


def test_wsl(read: Read) -> None:
    assert read({"proc/sys/kernel/osrelease": "5.15.167.4-microsoft-standard-WSL2\n"})["container"].wsl


def test_wsl_with_a_kernel_of_the_users_own(read: Read) -> None:
    files = {"proc/sys/kernel/osrelease": "6.6.0-mine\n", "proc/sys/fs/binfmt_misc/WSLInterop": "enabled\n"}
    assert read(files)["container"].wsl


def test_what_a_docker_container_may_do(read: Read) -> None:
    """The capabilities and the filter that Docker gives by default."""
    status = "Name:\tpython\nCapEff:\t00000000a80425fb\nSeccomp:\t2\n"
    found: Container = read({"proc/self/status": status, "proc/self/ns/pid": "-> pid:[4026532281]"})["container"]
    assert (found.capabilities, found.syscalls_filtered, found.own_pids) == ((), True, True)
    assert found.mempolicy is None  # a recorded tree cannot be asked


def from_child(*before: str, code: str = "") -> dict[str, Any]:
    """What the probe says in a child that is started through `before`."""
    script = f"{code}\nexec(compile(open({str(FILE)!r}).read(), 'probe', 'exec'))\nimport json\n"
    script += "found = {}\nfor part in probe(): found |= part\nprint(json.dumps(found))"
    result = subprocess.run(
        [*before, sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    return {name: decode(kind, found[name], name) for name, kind in KINDS.items()}


def test_a_pid_namespace() -> None:
    if os.geteuid() != 0:
        missing("a PID namespace needs root")
    here: Container = from_child(need("unshare"), "--pid", "--fork", "--mount-proc")["container"]
    assert here.own_pids is True


def test_a_capability_that_was_taken_away() -> None:
    if os.geteuid() != 0:
        missing("only root has capabilities to lose")
    has: Container = from_child()["container"]
    lacks: Container = from_child(need("setpriv"), "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock")["container"]
    assert "ipc_lock" in (has.capabilities or ())
    assert lacks.capabilities is not None and "ipc_lock" not in lacks.capabilities


# A seccomp filter as Docker's, for one call: get_mempolicy answers EPERM.
FILTER = """
import ctypes, os, struct
number = {"x86_64": 239, "aarch64": 236}[os.uname().machine]
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, number if BAR else 0xFFFF), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(rules), ctypes.addressof(code)))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0
"""


@pytest.mark.parametrize("barred", [True, False])
def test_numa_policies_behind_a_filter(barred: bool) -> None:
    if os.uname().machine not in ("x86_64", "aarch64"):
        pytest.skip("the number of the call is not known for this machine")
    here: Container = from_child(code=FILTER.replace("BAR", str(barred)))["container"]
    assert here.syscalls_filtered is True
    assert here.mempolicy is not barred


# ---- Slurm's variables

STEP = {
    "SLURM_JOB_ID": "42", "SLURM_NNODES": "2", "SLURM_NODEID": "1", "SLURM_STEP_ID": "0", "SLURMD_NODENAME": "gpu2",
    "SLURM_NTASKS_PER_NODE": "4", "SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_GPUS_ON_NODE": "4", "SLURM_LOCALID": "0",
    "SLURM_JOB_GPUS": "0,1,2,3", "SLURM_STEP_GPUS": "4,5,6,7", "SLURM_CPUS_PER_TASK": "16", "SLURM_CPUS_ON_NODE": "64",
    "SLURM_MEM_PER_NODE": "65536",
}  # fmt: skip


def slurm_of(env: Mapping[str, str]) -> Slurm:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        found = next(system.probe())
    slurm: Slurm = decode(Slurm, found["slurm"], "slurm")
    return slurm


def test_a_step() -> None:
    found = slurm_of(STEP | {"SLURM_JOB_END_TIME": str(int(time.time()) + 600)})
    assert found.seconds_left is not None and 590 < found.seconds_left <= 600
    assert replace(found, seconds_left=None, commands_found=True) == Slurm(
        "42", 2, 1, "1(x2)", 4, True, True, "0", "4,5,6,7", None, None, 16, 64, 64 * GIB, 0, None
    )  # of job and step, the step's tasks and GPUs count


def test_a_batch_script() -> None:
    env = {name: value for name, value in STEP.items() if "STEP" not in name}
    found = slurm_of(env)
    assert (found.step_id, found.tasks_per_node, found.job_gpus) == (None, "4", "0,1,2,3")


def test_a_step_without_gpus_does_not_take_the_batch_scripts() -> None:
    env = {name: value for name, value in STEP.items() if name != "SLURM_STEP_GPUS"}
    assert slurm_of(env).job_gpus is None


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("{here}", True),
        ("{here},gpu1", True),
        ("gpu[1-4]", False),
        ("gpu[01-04],{here}", True),
        ("gpu[1-4", False),
        ("", None),
        ("[[[]]],,", False),
        ("gpu[1-99999999999]", False),
        ("rack[1-2]n[01-04]", None),  # several dimensions are not expanded
    ],
)
def test_the_shell_of_salloc(nodes: str, expected: bool | None) -> None:
    here = os.uname().nodename.partition(".")[0]
    assert slurm_of({"SLURM_JOB_ID": "42", "SLURM_JOB_NODELIST": nodes.format(here=here)}).on_allocated_node is expected


@pytest.mark.parametrize(
    ("short", "hosts"),
    [
        ("gpu[08-10]", {"gpu08", "gpu09", "gpu10"}),
        ("a[1,3-4]b,c", {"a1b", "a3b", "a4b", "c"}),
        ("node7", {"node7"}),
    ],
)
def test_slurms_short_form_of_hosts(short: str, hosts: set[str]) -> None:
    assert system._expand_hosts(short) == hosts


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"SLURM_MEM_PER_NODE": "1024"}, GIB),
        ({"SLURM_MEM_PER_NODE": "0"}, None),  # all of it
        ({"SLURM_MEM_PER_CPU": "512", "SLURM_CPUS_ON_NODE": "4"}, 2 * GIB),
        ({"SLURM_MEM_PER_GPU": "2048", "SLURM_GPUS_ON_NODE": "2"}, 4 * GIB),
        ({"SLURM_MEM_PER_CPU": "512"}, None),
        ({"SLURM_MEM_PER_NODE": "lots"}, None),
        ({}, None),
    ],
)
def test_the_memory_slurm_grants(env: dict[str, str], expected: int | None) -> None:
    assert slurm_of({"SLURM_JOB_ID": "42"} | env).memory_bytes == expected


# ---- limits, planted


def fired(result: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    return {
        check["id"]: check
        for check in json.loads(result.stdout)["checks"]
        if check["status"] in ("fail", "warn", "info")
    }


def under(setting: str, *only: str, tmp_path: Path) -> dict[str, dict[str, Any]]:
    """What `mgpu doctor` finds in a shell with this limit."""
    command = shlex.join([sys.executable, "-m", "mgpu", "doctor", "--quick", "--json", *(f"--only={c}" for c in only)])
    result = subprocess.run(
        ["sh", "-c", f"{setting} && exec {command}"], env=environment(tmp_path), cwd=tmp_path, capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip
    assert result.stdout, result.stderr
    return fired(result)


def test_few_open_files(tmp_path: Path) -> None:
    found = under("ulimit -n 1024", "limits", tmp_path=tmp_path)["open_files_limit_low"]
    assert found["title"].startswith("ulimit -Hn is 1024")
    assert "open_files_limit_low" not in under("ulimit -Sn 1024", "limits", tmp_path=tmp_path)


def test_little_locked_memory() -> None:
    """The limit is real; the adapters and the second machine are described."""
    here: System = from_child(need("prlimit"), f"--memlock={64 * 1024}")["system"]
    assert here.limit_locked_memory_bytes == 64 * 1024
    (outcome,) = ask_all("locked_memory_limited", **facts.facts(system=here, plan=Plan(nodes=2)))
    assert outcome.problem and outcome.problem.title.startswith("ulimit -l is 64 KiB")


def test_few_processes() -> None:
    here: System = from_child(need("prlimit"), "--nproc=300")["system"]
    assert here.limit_processes == 300
    (outcome,) = ask_all("processes_limit_low", **facts.facts(system=here))
    assert outcome.problem and "room for 300" in outcome.problem.title


def test_one_cpu(tmp_path: Path) -> None:
    here: System = from_child(need("taskset"), "-c", str(min(os.sched_getaffinity(0))))["system"]
    assert here.cpus_usable == 1
    (outcome,) = ask_all("cpus_fewer_than_ranks", **facts.facts(system=here))
    assert outcome.problem and outcome.problem.title.startswith("1 CPU usable of")


def in_shm(mount: str, tmp_path: Path, after: str = "true") -> dict[str, dict[str, Any]]:
    """What `mgpu doctor` finds with another file system on /dev/shm, in a mount namespace of its own."""
    if os.geteuid() != 0:
        missing("mounting needs root")
    before = f"{need('unshare')} -m --propagation private sh -c"
    command = shlex.join([sys.executable, "-m", "mgpu", "doctor", "--quick", "--json", "--only=limits"])
    inner = f"mount {mount} tmpfs /dev/shm && {after} && exec {command}"
    result = subprocess.run(
        [*before.split(), inner], env=environment(tmp_path), cwd=tmp_path, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    if not result.stdout:
        missing(f"/dev/shm cannot be mounted over here: {result.stderr}")
    return fired(result)


def test_a_small_dev_shm(tmp_path: Path) -> None:
    """Docker's default of 64 MiB: NCCL cannot make its segments, loader workers die of a bus error."""
    found = in_shm("-t tmpfs -o size=64m", tmp_path)
    assert found["shm_too_small"]["title"] == "/dev/shm is 64 MiB, too small for 2 ranks"
    assert "bus error" in found["shm_too_small"]["cause"]
    assert found["shm_tight_for_loaders"]["because_of"] == ["shm_too_small"]


def test_a_full_dev_shm(tmp_path: Path) -> None:
    found = in_shm("-t tmpfs -o size=200m", tmp_path, after="head -c 120M /dev/zero > /dev/shm/nccl-left")
    assert found["shm_too_small"]["title"].startswith("/dev/shm: 80 MiB free of 200 MiB")


def test_a_dev_shm_that_cannot_be_written(tmp_path: Path) -> None:
    assert "read-only" in in_shm("-t tmpfs -o ro", tmp_path)["shm_not_writable"]["title"]


def test_a_dev_shm_that_suffices(tmp_path: Path) -> None:
    assert not {name for name in in_shm("-t tmpfs -o size=1g", tmp_path) if name.startswith("shm")}


@pytest.fixture
def group() -> Iterator[Path]:
    """A memory cgroup of our own, as root of a machine that lets us make one."""
    for parent in (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")):
        folder = parent / f"mgpu-test-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        if (folder / "memory.max").exists() or (folder / "memory.limit_in_bytes").exists():
            yield folder
            folder.rmdir()
            return
        folder.rmdir()
    pytest.skip("no memory cgroup can be made here")


def test_a_process_the_kernel_kills(group: Path) -> None:
    """A real limit, and a real kill at it."""
    limit = group / ("memory.max" if (group / "memory.max").exists() else "memory.limit_in_bytes")
    limit.write_text(str(64 * MIB))
    enter = f"echo $$ > {group}/cgroup.procs"
    eater = f"{sys.executable} -I -S -c 'x = bytearray(256 << 20)'"
    here: System = from_child("sh", "-c", f'{enter}; {eater} 2>/dev/null; exec "$@"', "sh")["system"]
    assert here.memory_limit_bytes == 64 * MIB
    assert here.memory_limit_used_bytes is not None and 0 < here.memory_limit_used_bytes < 64 * MIB
    if Path("/proc/swaps").read_text().count("\n") > 1 and not here.oom_kills:
        pytest.skip("what did not fit went to swap")
    assert here.oom_kills == 1
    assert [o.status for o in ask_all("processes_killed_for_memory", system=here)] == ["info"]
    assert [o.status for o in ask_all("memory_small_for_ranks", **facts.facts(system=here))] == ["warn"]


# ---- inside a real Slurm


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("slurm"))
    yield cluster
    cluster.close()


def inside(cluster: Cluster, *command: str) -> dict[str, Any]:
    """What the probe says of a job's only task, or of its first."""
    code = f"exec(compile(open({str(FILE)!r}).read(), 'probe', 'exec'))\nimport json, os\nfound = {{}}\n"
    code += (
        "for part in probe(): found |= part\nif os.environ.get('SLURM_PROCID', '0') == '0': print(json.dumps(found))"
    )
    result = cluster.run(*command, sys.executable, "-I", "-S", "-c", code)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    return {name: decode(kind, found[name], name) for name, kind in KINDS.items()}


def judged(check: str, found: Mapping[str, Any], **changes: Any) -> str:
    (outcome,) = ask_all(check, **facts.facts(**found, **changes))
    return outcome.status


def test_a_real_step(cluster: Cluster) -> None:
    found = inside(cluster, "srun", "--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=2")
    step: Slurm = found["slurm"]
    assert (step.nodes, step.node_rank, step.step_id, step.local_id) == (2, 0, "0", 0)
    assert (step.gpus_on_node, step.job_gpus, step.on_allocated_node) == (2, "0,1", True)
    assert judged("slurm_starts_several_launchers", found) == "ok"
    assert judged("slurm_granted_other_gpus", found, visible=facts.seen(0, 1, value="0,1"), gpus=facts.gpus(2)) == "ok"
    # somebody else's GPUs, and fewer than were paid for
    for visible in (facts.seen(2, 3, value="2,3"), facts.seen(0, value="0")):
        assert judged("slurm_granted_other_gpus", found, visible=visible) == "warn"
    two = facts.config(facts.YAML.replace("num_machines: 1", "num_machines: 2"))
    assert judged("slurm_has_fewer_nodes_than_config", found, config=two) == "ok"
    assert judged("slurm_nodes_left_idle", found) == "warn"


def test_a_real_step_with_a_task_for_each_gpu(cluster: Cluster) -> None:
    found = inside(cluster, "srun", "--nodes=1", "--ntasks-per-node=2", "--gpus-per-task=1")
    step: Slurm = found["slurm"]
    assert step.tasks_per_node == "2" and step.gpus_on_node == 2 and step.gpu_bind
    assert judged("slurm_starts_several_launchers", found) == "warn"
    visible, gpus = facts.seen(0, value="0"), facts.gpus(2)
    assert judged("slurm_task_sees_part_of_gpus", found, visible=visible, gpus=gpus) == "warn"


def test_the_shell_of_a_real_salloc(cluster: Cluster) -> None:
    found = inside(cluster, "salloc", "--nodes=1", "--gpus-per-node=2")
    assert (found["slurm"].on_allocated_node, found["slurm"].step_id) == (False, None)
    assert judged("slurm_shell_outside_allocation", found) == "fail"


def test_a_real_job_without_gpus(cluster: Cluster) -> None:
    found = inside(cluster, "srun", "--ntasks=1")
    assert (found["slurm"].gpus_on_node, found["slurm"].job_gpus) == (None, None)
    assert judged("slurm_granted_no_gpus", found, gpus=facts.gpus(permitted=False), visible=facts.seen()) == "fail"
    assert judged("slurm_granted_no_gpus", found) == "skip"


def test_cpus_that_a_real_srun_does_not_pass_on(cluster: Cluster) -> None:
    """Slurm 22.05 to 23.02 pins the task to one core while the variable says two; before and after it does not."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU cannot be divided")
    version = cluster.run("srun", "--version").stdout.split()[1].split(".")
    forgets = (22, 5) <= (int(version[0]), int(version[1])) <= (23, 2)
    for repeat, expected in (("", "warn" if forgets else "ok"), ("--cpus-per-task=2", "ok")):
        answer = cluster.folder / "answer"
        probe = f"{sys.executable} -I -S -c \"exec(open('{cluster.folder}/ask.py').read())\""
        (cluster.folder / "ask.py").write_text(
            f"exec(compile(open({str(FILE)!r}).read(), 'probe', 'exec'))\nimport json\nfound = {{}}\n"
            "for part in probe(): found |= part\nprint(json.dumps(found))"
        )
        script = cluster.folder / "job.sh"
        script.write_text(f"#!/bin/sh\n#SBATCH --cpus-per-task=2\n#SBATCH --output={answer}\nsrun {repeat} {probe}\n")
        assert cluster.run("sbatch", "--wait", str(script)).returncode == 0
        found = {name: decode(kind, json.loads(answer.read_text())[name], name) for name, kind in KINDS.items()}
        assert found["slurm"].cpus_per_task == 2
        assert judged("slurm_cpus_not_passed_on", found) == expected


def test_doctor_in_a_real_salloc(cluster: Cluster) -> None:
    """The whole command, where it must not call the login node ready."""
    result = cluster.run(
        "salloc", "--nodes=1", sys.executable, "-m", "mgpu", "doctor", "--quick", "--json", "--only=slurm", timeout=120
    )
    assert "slurm_shell_outside_allocation" in fired(result), result.stderr
    assert result.returncode == 1
