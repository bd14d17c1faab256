"""A real Slurm on this machine: a controller and virtual nodes on the loopback interface, whose GPUs are null devices.

Needs root and the programs of Debian's `slurm-wlm`. The nodes share the machine: what a job prints about its CPUs and
files is this machine's, what it says of its grant is Slurm's. Each has a host name of its own and an address of its own
on the loopback interface, so that a launcher knows whether it is on the first of them; their ports are shared.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from tests.conftest import PYTHONPATH, missing, need

_JOBS = 19_000  # a job's port is 12000 + its number % 20000
# Of every Slurm of the tests: one user, no accounting, nothing that needs a control group.
COMMON = """\
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdSpoolDir={folder}/spool/%n
ProctrackType=proctrack/linuxproc
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdParameters=config_overrides
PlugStackConfig={folder}/plugstack.conf
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0
KillWait=2
"""
_CONF = f"""\
ClusterName=mgpu
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={{controller}}
FirstJobId={{first_job}}
{COMMON}{{binding}}
GresTypes=gpu
MinJobAge=600
"""
_START_S = 20.0
_POLL_S = 0.1
ENDED = frozenset({
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT",
})  # fmt: skip
_FIELD = re.compile(r"(?:^| )(?P<name>[A-Z][\w/:]*)=(?P<value>.*?)(?= [A-Z][\w/:]*=|$)")


class Cluster:
    """A controller and `nodes` virtual nodes (node1, node2 ...) with `gpus` each; `close` ends all of it.

    `inside`: a shell line for a node, run as root where its slurmd will be: mounts it makes are that node's and its
    jobs' alone. `cpus`: of a node; None: this machine's, and tasks are bound to them. Else they are only claimed.
    `more_conf`: further lines of slurm.conf. Without `gpus` the nodes have none.
    """

    def __init__(
        self,
        folder: Path,
        nodes: int = 2,
        gpus: int = 2,
        inside: Mapping[str, str] = MappingProxyType({}),
        more_conf: str = "",
        *,
        cpus: int | None = None,
        gpu_type: str = "",
    ) -> None:
        if os.geteuid() != 0:
            missing("a Slurm of our own needs root")
        needed = ("slurmctld", "slurmd", "srun", "salloc", "sbatch", "scancel", "scontrol", "sinfo", "unshare")
        programs = {name: need(name) for name in needed}
        self.folder = folder
        self.started: list[subprocess.Popen[bytes]] = []
        self.environment = {**_outside_of_jobs(), "PYTHONPATH": PYTHONPATH, "SLURM_CONF": f"{folder}/slurm.conf"}
        self.names = tuple(f"node{number}" for number in range(1, nodes + 1))
        self._configure(gpus, more_conf, cpus, gpu_type)
        own = (programs["unshare"], "-m", "-u", "--propagation", "private", "sh", "-c")
        hosts = f"mount --bind {folder}/hosts /etc/hosts"
        self._start("slurmctld", *own, f"{hosts} && exec slurmctld -D -i -f {folder}/slurm.conf")
        for name in self.names:
            line = f"{{ {inside[name]}; }} && " if name in inside else ""
            self._start(
                name, *own, f"{hosts} && hostname {name} && {line}exec slurmd -D -N {name} -f {folder}/slurm.conf"
            )
        try:
            self._wait(nodes)
        except BaseException:  # nobody has what would close it
            self.close()
            raise

    def _wait(self, nodes: int) -> None:
        """Until all nodes can take jobs."""
        end = time.monotonic() + _START_S
        while self.run("sinfo", "-h", "-p", "gpu", "-t", "idle", "-o", "%D").stdout.strip() != str(nodes):
            if time.monotonic() > end:
                said = "".join(path.read_text("utf-8", "replace")[-600:] for path in self.folder.glob("*.log"))
                missing(f"Slurm does not come up here: {said}")
            time.sleep(0.05)

    def _configure(self, gpus: int, more_conf: str, cpus: int | None, gpu_type: str) -> None:
        """Write the cluster's files."""
        folder = self.folder
        controller, *ports = _free_ports(len(self.names) + 1)
        binding = "TaskPlugin=task/affinity\nTaskPluginParam=Cores" if cpus is None else "TaskPlugin=task/none"
        # Jobs make their ports of their numbers: two clusters side by side on this machine share the ports.
        first_job = 1 + controller % _JOBS
        conf = _CONF.format(controller=controller, first_job=first_job, folder=folder, binding=binding)
        gres = "AutoDetect=off\n"
        hosts = Path("/etc/hosts").read_text()
        cpus = cpus or len(os.sched_getaffinity(0))
        typed = f"{gpu_type}:" if gpu_type else ""
        for number, (name, port) in enumerate(zip(self.names, ports, strict=True), 1):
            (folder / "spool" / name).mkdir(parents=True)
            conf += (
                f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs={cpus}"
                f" CoresPerSocket={cpus} RealMemory=4000{f' Gres=gpu:{typed}{gpus}' if gpus else ''}\n"
            )
            hosts += f"127.0.0.{100 + number} {name}\n"
            for gpu in range(gpus):  # only a character device passes for a GPU
                os.mknod(folder / f"{name}.{gpu}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
            if gpus:
                kind = f" Type={gpu_type}" if gpu_type else ""
                gres += f"NodeName={name} Name=gpu{kind} File={folder}/{name}.[0-{gpus - 1}]\n"
        conf += f"PartitionName=gpu Nodes={','.join(self.names)} Default=YES MaxTime=01:00:00 State=UP\n{more_conf}\n"
        (folder / "state").mkdir()
        for name, text in {"slurm.conf": conf, "gres.conf": gres, "hosts": hosts, "plugstack.conf": ""}.items():
            (folder / name).write_text(text)

    def _start(self, name: str, *command: str) -> None:
        with open(self.folder / f"{name}.log", "wb") as log:
            self.started.append(
                subprocess.Popen(
                    command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )  # fmt: skip

    def run(
        self, *command: str, timeout: float = 60, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A client's command, such as srun, with this cluster as the one it talks to; `env` is added."""
        return subprocess.run(
            command, env={**self.environment, **(env or {})}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=timeout, check=False, cwd=cwd,
        )  # fmt: skip

    def batch(self, script: Path | str, *arguments: str, cwd: Path | None = None) -> str:
        """Submit a script from its own folder, or from `cwd`; the job's id. `arguments`: options of sbatch."""
        script = Path(script).resolve()
        result = self.run("sbatch", "--parsable", *arguments, str(script), cwd=cwd or script.parent)
        assert result.returncode == 0, result.stderr
        return result.stdout.strip().partition(";")[0]

    def job_of(self, job: str) -> dict[str, str]:
        """What scontrol says of a job now: JobState, Reason, ExitCode, NodeList, StdOut ..."""
        result = self.run("scontrol", "-o", "show", "job", job)
        assert result.returncode == 0, result.stderr
        return {found["name"]: found["value"] for found in _FIELD.finditer(result.stdout.strip())}

    def until(self, job: str, states: Sequence[str], timeout: float = 30) -> dict[str, str]:
        """Wait until a job is in one of these states. Past the timeout it is cancelled, and TimeoutError says more."""
        end = time.monotonic() + timeout
        while (found := self.job_of(job))["JobState"].partition(",")[0] not in states:
            if time.monotonic() > end:
                self.run("scancel", "--full", job)
                raise TimeoutError(f"job {job} is {found['JobState']}: {found.get('Reason')}\n{self.output(job)}")
            time.sleep(_POLL_S)
        return found

    def ended(self, job: str, timeout: float = 60) -> dict[str, str]:
        """Wait for the end of a job: scontrol's last words on it. Past the timeout it is cancelled: TimeoutError."""
        return self.until(job, sorted(ENDED), timeout)

    def output(self, job: str) -> str:
        """What a job has written to its own output file so far."""
        try:
            return Path(self.job_of(job)["StdOut"]).read_text("utf-8", "replace")
        except OSError as error:
            return f"({error})"

    def processes(self) -> list[int]:
        """Processes of this cluster's daemons, steps and jobs: all that know its slurm.conf."""
        mark = f"SLURM_CONF={self.folder}/slurm.conf".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mark in path.read_bytes().split(b"\0") and int(path.parent.name) != os.getpid():
                    found.append(int(path.parent.name))
        return found

    def left(self) -> list[str]:
        """Command lines of what runs of the jobs: everything but the cluster's own daemons."""
        return [line for line in map(_command_line, self.processes()) if line and not _DAEMON.match(line)]

    def quiet(self, timeout: float = 10) -> list[str]:
        """What is left of the jobs once they had this long to go: nothing, as soon as there is nothing."""
        end = time.monotonic() + timeout
        while (left := self.left()) and time.monotonic() < end:
            time.sleep(_POLL_S)
        return left

    def close(self) -> None:
        """End all jobs and daemons, and whatever they have left: nothing outlives the cluster."""
        self.run("scancel", "--user=root", "--full")
        self.quiet(4)
        for process in reversed(self.started):
            process.terminate()
        for process in self.started:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for number in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        shutil.rmtree(self.folder / "spool", ignore_errors=True)


_DAEMON = re.compile(r"\S*slurm(?:ctld|d) -D|\S*: slurmscriptd|sh -c mount --bind")


def _command_line(number: int) -> str:
    """The words of a process; nothing where it has gone, or has ended and waits to be collected."""
    try:
        return Path(f"/proc/{number}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _outside_of_jobs() -> dict[str, str]:
    """The environment without what a Slurm around this test would say."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_", "SRUN_"))}


def _free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
