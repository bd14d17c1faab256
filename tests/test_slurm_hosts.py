"""Does the pre-flight of a Slurm job name what is wrong between its hosts, before any training starts?

A real Slurm over hosts made of namespaces, each with its own network, name and /etc/hosts. Faults are set on the living
hosts and taken back; Slurm's own ports stay open, as an administrator leaves them.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mgpu import errors
from mgpu.job_files import sbatch
from mgpu.job_files.job import Job
from tests.hosts import SlurmHosts

IN_TIME = 60  # seconds for the stage that meets a fault; torch alone is silent for 330 and more
WHOLE = 200  # seconds for one pre-flight on a busy machine
CONFIG = """\
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
mixed_precision: 'no'
use_cpu: true
num_machines: {nodes}
num_processes: {nodes}
"""
MEETING_PORTS = "12000:31999"  # of all jobs
ON_ETH1 = {"GLOO_SOCKET_IFNAME": "eth1"}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmHosts]:
    with SlurmHosts(tmp_path_factory.mktemp("slurm") / "hosts", 4) as network:
        network.second_network()
        yield network
        assert network.at_work() == {}


@dataclass
class Told:
    """What a pre-flight said and wrote."""

    code: int
    folder: Path
    document: dict[str, Any]

    @property
    def bad(self) -> dict[str, str]:
        """Node -> the check that names it."""
        return {one["node"]: one["id"] for one in self.document["bad"]}

    def title(self, check: str) -> str:
        """What a check says: it has found exactly one thing."""
        (found,) = [one for one in self.document["checks"] if one["id"] == check and one["status"] in ("fail", "warn")]
        return str(found["title"])

    def stage(self, name: str) -> dict[str, Any]:
        """One of the stages."""
        (found,) = [one for one in self.document["stages"] if one["name"] == name]
        return dict(found)


def preflight(hosts: SlurmHosts, nodes: int, need: int, env: dict[str, str] | None = None) -> Told:
    """`mgpu smoke-test --slurm` in an allocation of the first hosts, of which some are needed."""
    home = hosts.folder / "n1"
    (home / "accelerate.yaml").write_text(CONFIG.format(nodes=need))
    folder = home / f"preflight-{time.monotonic_ns()}"
    done = hosts.ask(
        "salloc", "--quiet", f"--nodes={nodes}", "--ntasks-per-node=1", sys.executable, "-m", "mgpu", "smoke-test",
        "--slurm", "-c", "accelerate.yaml", "--log-dir", str(folder), "--json", env=env, timeout=WHOLE,
    )  # fmt: skip
    assert done.stdout, done.stderr
    return Told(done.returncode, folder, json.loads(done.stdout))


def not_trained(told: Told) -> None:
    """The network was looked at in time, and no rank was started after that."""
    assert told.code == errors.NOT_READY
    assert told.stage("network")["seconds"] < IN_TIME
    assert [told.stage(name)["status"] for name in ("alone", "pairs", "together")] == ["skip"] * 3


def test_a_host_with_closed_ports_is_left_out_and_the_others_train(hosts: SlurmHosts) -> None:
    with hosts.dropping("n2"):
        told = preflight(hosts, 3, 2)
    assert told.bad == {"n2": "node_unreachable"}
    assert told.code == errors.READY
    assert told.document["chosen"] == ["n1", "n3"]
    assert [told.stage(name)["status"] for name in ("alone", "pairs")] == ["ok", "ok"]
    assert [one["id"] for one in told.document["checks"] if one["status"] in ("fail", "warn")] == ["node_unreachable"]
    assert told.stage("network")["seconds"] < IN_TIME


def test_every_host_is_named_for_its_own_fault(hosts: SlurmHosts) -> None:
    """Closed data ports on n2, whose second interface is up and leads nowhere; n3 that takes itself for 127.0.1.1; and
    n4, to which the head's name means that."""
    hosts.link("switch", "second2", "nomaster")
    try:
        with hosts.dropping("n2"), hosts.knowing("n3", n3="127.0.1.1"), hosts.knowing("n4", n1="127.0.1.1"):
            told = preflight(hosts, 4, 4)
    finally:
        hosts.link("switch", "second2", "master", "bridge1")
    not_trained(told)
    assert told.bad == {"n2": "node_unreachable", "n3": "node_tells_loopback", "n4": "head_unreachable"}
    assert told.title("node_unreachable") == "no other node can reach n2 at 10.200.0.2: timed out"
    assert "n3 gives the other nodes the loopback address 127.0.1.1" in told.title("node_tells_loopback")
    assert "n4 resolves n1 to 127.0.1.1, the rendezvous endpoint" in told.title("head_unreachable")
    assert "eth1 of n2 (10.201.0.2) is up, but cannot be reached" in told.title("node_interface_isolated")
    assert told.document["exclude"] == "--exclude=n[2-4]"
    assert (told.folder / "passing_nodes.txt").read_text() == "n1\n"
    failing = (told.folder / "failing_nodes.txt").read_text()
    assert "n2\tno other node can reach n2 at 10.200.0.2: timed out\n" in failing


def test_every_host_is_named_for_its_own_fault_of_the_data_network(hosts: SlurmHosts) -> None:
    """Slurm's own network works. On the one that the ranks are told to use, the switch port of n1 carries less than the
    interfaces send, and n3 is up, has an address, and is alone."""
    hosts.link("n1", "eth1", "mtu", "9000")
    hosts.link("switch", "second1", "mtu", "1400")
    hosts.link("switch", "second3", "nomaster")
    try:
        told = preflight(hosts, 4, 4, env=ON_ETH1)
    finally:
        hosts.link("n1", "eth1", "mtu", "1500")
        hosts.link("switch", "second1", "mtu", "1500")
        hosts.link("switch", "second3", "master", "bridge1")
    not_trained(told)
    assert told.bad == {"n1": "node_loses_full_packets", "n3": "node_unreachable"}
    assert told.title("node_loses_full_packets") == (
        "full-size packets are lost to and from n1, small ones arrive; MTU 9000 on n1, 1500 on n[2-4]"
    )
    assert "no other node can reach n3 at 10.201.0.3" in told.title("node_unreachable")


def test_a_job_whose_meeting_port_is_dropped_ends_with_the_reason(hosts: SlurmHosts) -> None:
    """Without the pre-flight, torchrun on the first node waits for ten minutes, and the others say "timed out"."""
    home = hosts.folder / "n1"
    (home / "train.py").write_text("open('trained', 'w').close()\n")
    python = f"{shlex.quote(sys.executable)} -m mgpu"
    text = sbatch.render(
        Job(("train.py",), shape="torchrun", nodes=3, gpus_per_node=0, preflight=True, mgpu=python, name="digits")
    )
    (home / "job.sbatch").write_text(text)
    (home / "logs").mkdir(exist_ok=True)
    rule = ("INPUT", "-p", "tcp", "--syn", "--dport", MEETING_PORTS, "-j", "DROP")
    hosts.firewall("n1", "-A", *rule)
    try:
        job = hosts.ended("job.sbatch")
    finally:
        hosts.firewall("n1", "-D", *rule)
    said = "".join(path.read_text() for path in (home / "logs").glob("digits-*.out"))
    assert job["ExitCode"] == f"{errors.NOT_READY}:0", said
    folder = home / "logs" / f"preflight-{job['JobId']}"
    not_trained(Told(errors.NOT_READY, folder, json.loads((folder / "preflight.json").read_text())))
    assert re.search(r"n\[2-3\] cannot connect to the rendezvous endpoint n1:\d+: timed out", said)
    assert not (home / "trained").exists()
