"""Does the smoke test work across hosts, and does every host's verdict name what is wrong between them?

Real ranks over gloo on two hosts made of namespaces, through the real launcher, started on each host as a user does.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from mgpu import errors
from mgpu.smoke.ranks import STAGES
from tests import verdicts
from tests.hosts import Network
from tests.scripts import fault, write_config

STALL = 3  # seconds
START = 60  # for the imports on both hosts
ALONE = 8  # where nobody else is to come
IN_TIME = 25  # seconds after the limit, on a busy machine; torch alone waits for minutes
PORT = 29517
CONFIG = """\
compute_environment: LOCAL_MACHINE
num_processes: {ranks}
distributed_type: MULTI_GPU
mixed_precision: 'no'
num_machines: 2
main_process_ip: n1
main_process_port: {port}
"""

DROP_DATA = ("-A", "INPUT", "-i", "eth0", "-p", "tcp", "--syn", "!", "--dport", str(PORT), "-j", "DROP")


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with Network(tmp_path / "hosts") as hosts:
        yield hosts


class Told:
    """What the smoke test on one host said."""

    def __init__(self, code: int, out: str, err: str, folder: Path, started: float) -> None:
        assert out, err
        self.code, self.folder, self.ended = code, folder, time.time()
        self.seconds = self.ended - started
        self.document: dict[str, Any] = json.loads(out)
        self.failed = verdicts.checks(self.document)

    def seconds_after(self, word: str) -> float:
        """From the moment that a rank of this host announced a step to the end."""
        for path in sorted((self.folder / self.document["logs"]).glob("rank*.jsonl")):
            for record in map(json.loads, path.read_text().splitlines()):
                if record.get("word", "").startswith(word):
                    return self.ended - float(record["time"])
        raise AssertionError(f"no rank came to {word}")

    @property
    def cause(self) -> dict[str, Any]:
        """The failure that is no consequence of another one: exactly one."""
        return verdicts.cause(self.document)


def on(
    network: Network,
    *hosts: str,
    ranks: int = 2,
    level: str = "quick",
    start_s: float = START,
    ports: Mapping[str, int] | None = None,
    env: Mapping[str, Mapping[str, str]] | None = None,
) -> dict[str, Told]:
    """The smoke test on some of the hosts at the same time; nothing of it may be left on any of them."""
    started: dict[str, subprocess.Popen[str]] = {}
    begin = time.time()
    for name in hosts:
        write_config(network.folder / name, CONFIG.format(ranks=ranks, port=(ports or {}).get(name, PORT)))
        started[name] = network.start(
            name, "smoke-test", "--node-rank", str(network.names.index(name)), "--json", "--level", level,
            "--stall-timeout", str(STALL), "--start-timeout", str(start_s), "--no-bisect", env=(env or {}).get(name),
        )  # fmt: skip
    told = {}
    for name, process in started.items():
        out, err = process.communicate(timeout=120)
        told[name] = Told(process.returncode, out, err, network.folder / name, begin)
    assert {name: network.left(name) for name in network.names} == {name: [] for name in network.names}
    return told


def fails(told: Told, check: str, *words: str) -> None:
    """Exit code 1, and one cause: this check, with these words in its title."""
    assert (told.code, told.document["verdict"]) == (errors.NOT_READY, "failed")
    assert told.cause["id"] == check, told.failed
    for word in words:
        assert word in told.cause["title"], told.cause["title"]


def test_all_rungs_pass_across_two_hosts(network: Network) -> None:
    told = on(network, "n1", "n2", ranks=2, level="standard")
    for number, name in enumerate(("n1", "n2")):
        document = told[name].document
        assert told[name].code == errors.READY, [check["title"] for check in told[name].failed.values()]
        assert [(stage["name"], stage["status"]) for stage in document["stages"]] == [(r, "ok") for r in STAGES]
        assert [(rank["rank"], rank["host"]) for rank in document["ranks"]] == [(number, name)]
        assert document["stamp"]  # this config is verified, with what this host has


def test_data_ports_behind_a_firewall(network: Network) -> None:
    """Only the meeting point is open: without a connection tried beforehand the ranks hang in init_process_group."""
    for name in network.names:
        network.firewall(name, *DROP_DATA)
    for told in on(network, "n1", "n2").values():
        fails(told, "host_port_blocked", "rank", '"group"', "n2 cannot connect to n1 at 10.200.0.1: timed out")
        assert told.seconds_after("connect to the other hosts") < STALL + IN_TIME


def test_own_names_that_resolve_to_loopback(network: Network) -> None:
    """As Debian writes /etc/hosts: each host advertises 127.0.1.1, and the other one then meets itself."""
    network.knows("n1", n1="127.0.1.1")
    network.knows("n2", n2="127.0.1.1")
    for told in on(network, "n1", "n2").values():
        fails(told, "host_advertises_loopback", "rank", '"group"', "advertises 127.0.1.1", "connection refused")
        assert "GLOO_SOCKET_IFNAME=eth0" in json.dumps(told.cause["fix"])
        assert "n1 and n2" in told.cause["cause"]


def test_a_rank_of_one_host_is_killed(network: Network) -> None:
    death = fault("SIGKILL", "all-reduce", rank=1, rung="collectives")
    told = on(network, "n1", "n2", env={"n2": death})
    fails(told["n2"], "rank_killed", "rank 1", "SIGKILL")
    fails(told["n1"], "peer_disappeared", "n2 (rank 1)", "rank 0", '"collectives"')
    assert all(one.seconds_after("all-reduce") < STALL + IN_TIME for one in told.values())


def test_a_host_that_never_comes(network: Network) -> None:
    """Each of the two waits at a port of its own, where the other one is not."""
    told = on(network, "n1", "n2", start_s=ALONE, ports={"n2": PORT + 1})
    fails(told["n1"], "machines_never_came", "node 1 did not join", "rank 0", '"start"')
    assert "mgpu smoke-test --node-rank 1" in json.dumps(told["n1"].cause["fix"])
    fails(told["n2"], "meeting_point_unreachable", "rank 1", '"start"', f"n1:{PORT + 1}", "refuses the connection")
    assert all(one.seconds < ALONE + IN_TIME for one in told.values())
