"""A real Slurm on this machine: a controller and virtual nodes on the loopback interface, whose GPUs are null devices.

Needs root and the programs of Debian's `slurm-wlm`. The nodes share the machine: what a job prints about its CPUs and
files is this machine's, what it says of its grant is Slurm's.
"""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import time
from pathlib import Path

from tests.conftest import missing, need

_CONF = """\
ClusterName=mgpu
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdSpoolDir={folder}/spool/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
TaskPluginParam=Cores
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
ReturnToService=2
SlurmdParameters=config_overrides
PlugStackConfig={folder}/plugstack.conf
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0
KillWait=2
"""
_START_S = 20.0


class Cluster:
    """A controller and `nodes` virtual nodes with `gpus` each; `close` ends all of it."""

    def __init__(self, folder: Path, nodes: int = 2, gpus: int = 2) -> None:
        if os.geteuid() != 0:
            missing("a Slurm of our own needs root")
        programs = {name: need(name) for name in ("slurmctld", "slurmd", "srun", "salloc", "sinfo", "unshare")}
        self.folder = folder
        self.started: list[subprocess.Popen[bytes]] = []
        self.environment = {**os.environ, "SLURM_CONF": f"{folder}/slurm.conf"}
        controller, *ports = _free_ports(nodes + 1)
        conf, gres = _CONF.format(controller=controller, folder=folder), "AutoDetect=off\n"
        hosts = Path("/etc/hosts").read_text()
        cpus = len(os.sched_getaffinity(0))
        names = [f"node{number}" for number in range(1, nodes + 1)]
        for name, port in zip(names, ports, strict=True):
            (folder / "spool" / name).mkdir(parents=True)
            conf += (
                f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs={cpus}"
                f" CoresPerSocket={cpus} RealMemory=4000 Gres=gpu:{gpus}\n"
            )
            hosts += f"127.0.0.1 {name}\n"
            for gpu in range(gpus):  # only a character device passes for a GPU
                os.mknod(folder / f"{name}.{gpu}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
            gres += f"NodeName={name} Name=gpu File={folder}/{name}.[0-{gpus - 1}]\n"
        conf += f"PartitionName=gpu Nodes={','.join(names)} Default=YES MaxTime=01:00:00 State=UP\n"
        (folder / "state").mkdir()
        for name, text in {"slurm.conf": conf, "gres.conf": gres, "hosts": hosts, "plugstack.conf": ""}.items():
            (folder / name).write_text(text)
        self._start("slurmctld", programs["slurmctld"], "-D", "-i", "-f", f"{folder}/slurm.conf")
        for name in names:
            script = f"mount --bind {folder}/hosts /etc/hosts && exec slurmd -D -N {name} -f {folder}/slurm.conf"
            self._start(name, programs["unshare"], "-m", "--propagation", "private", "sh", "-c", script)
        end = time.monotonic() + _START_S
        while self.run("sinfo", "-h", "-t", "idle", "-o", "%D").stdout.strip() != str(nodes):
            if time.monotonic() > end:
                said = "".join(path.read_text()[-600:] for path in folder.glob("*.log"))
                self.close()
                missing(f"Slurm does not come up here: {said}")
            time.sleep(0.05)

    def _start(self, name: str, *command: str) -> None:
        with open(self.folder / f"{name}.log", "wb") as log:
            self.started.append(
                subprocess.Popen(
                    command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )  # fmt: skip

    def run(self, *command: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """A client's command, such as srun, with this cluster as the one it talks to."""
        return subprocess.run(
            command, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout,
            check=False,
        )  # fmt: skip

    def close(self) -> None:
        """End all jobs and daemons."""
        self.run("scancel", "--user=root", "--full")
        for process in reversed(self.started):
            process.terminate()
        for process in self.started:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
