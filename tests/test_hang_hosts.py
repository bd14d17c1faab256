"""Two hosts lose each other while their ranks train: the network between them is cut, or one of them is gone."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hangs.matrix import HANGS, line_of
from tests.hosts import Network
from tests.scripts import wait_for, write_config

OPTIONS = (
    "launch", "--yes", "--unverified", "allow", "--launcher", "torchrun", "--hang-after", "4", "--on-hang", "stop",
    "--timeout", "120",
)  # fmt: skip
CONFIG = """\
compute_environment: LOCAL_MACHINE
num_processes: 2
distributed_type: MULTI_GPU
mixed_precision: 'no'
num_machines: 2
machine_rank: 0
main_process_ip: 10.200.0.1
main_process_port: 29655
"""


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with Network(tmp_path / "hosts") as hosts:
        for name in hosts.names:
            write_config(hosts.folder / name, CONFIG)
        yield hosts


def launch(network: Network, program: str, *, logs: str) -> list[Any]:
    """Start both nodes."""
    given = (str(HANGS / "hosts.py"), program)
    return [
        network.start(name, *OPTIONS, "--log-dir", logs, "--node-rank", str(node), *given)
        for node, name in enumerate(network.names)
    ]


def start(network: Network, program: str, *, logs: str) -> list[Any]:
    """Start both nodes; return when both ranks are about to call their collective."""
    runners = launch(network, program, logs=logs)
    homes = [network.folder / name for name in network.names]
    wait_for(lambda: all((home / "ready").exists() for home in homes), 90)
    return runners


def cut(network: Network) -> None:
    network.link("switch", "port1", "down")
    for name in network.names:
        (network.folder / name / "cut").touch()


def hang_of(folder: Path) -> Any:
    return json.loads((folder / "result.json").read_bytes())["hang"]


def test_nodes_that_share_a_folder_give_one_verdict(network: Network, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    runners = launch(network, "sleeps", logs=str(logs))
    shown = [runner.communicate(timeout=120)[1] for runner in runners]
    assert [runner.returncode for runner in runners] == [124, 124], shown
    for node in ("node0", "node1"):
        hang = hang_of(logs / node)
        assert (hang["id"], hang["rank"], hang["at"]) == ("hang_rank_sleeps", 1, line_of("hosts.sleeps"))
        assert [one["rank"] for one in hang["ranks"]] == [0, 1]


def test_nodes_with_folders_of_their_own_blame_no_rank(network: Network) -> None:
    """Each says what it knows, and that it does not know the rest; a run that may be healthy is not stopped."""
    runners = launch(network, "sleeps", logs="logs")
    notes = [network.folder / name / "logs" / f"node{node}" / "mgpu.log" for node, name in enumerate(network.names)]
    try:
        wait_for(lambda: all(note.exists() and "[hang_others_unknown]" in note.read_text() for note in notes), 120)
        said = [note.read_text() for note in notes]
        assert "rank 0 waits in all_reduce #14 of 420 float32 values" in said[0]
        assert all("what the other rank of this run does is not known here" in note for note in said)
        assert f"rank 1 sleeps at {line_of('hosts.sleeps')}" in said[1]
        assert not any(check in note for check in ("hang_collective_stuck", "hang_rank_sleeps") for note in said)
        assert [runner.poll() for runner in runners] == [None, None]
    finally:
        for runner in runners:
            runner.send_signal(signal.SIGTERM)
    shown = [runner.communicate(timeout=60)[1] for runner in runners]
    assert 124 not in [runner.returncode for runner in runners], shown


def test_the_network_between_two_hosts_is_cut(network: Network, tmp_path: Path) -> None:
    """The nodes share a --log-dir: both give the same answer."""
    logs = tmp_path / "logs"
    runners = start(network, "network", logs=str(logs))
    cut(network)
    shown = [runner.communicate(timeout=120)[1] for runner in runners]
    assert [runner.returncode for runner in runners] == [124, 124], shown
    for node in ("node0", "node1"):
        hang = hang_of(logs / node)
        assert (hang["id"], hang["kind"]) == ("hang_host_unreachable", "unreachable")
        assert (hang["rank"], hang["at"], hang["collective"]) == (
            0,
            line_of("hosts.network"),
            "all_reduce #14 of 7 float32 values",
        )
        title = hang["finding"]["title"]
        assert "rank 0 gets no answer from 10.200.0.2; rank 1 gets no answer from 10.200.0.1" in title
        assert hang["quiet_s"] < 4 + 15
    assert {name: network.left(name) for name in network.names} == {"n1": [], "n2": []}


def test_the_host_of_the_store_is_gone(network: Network) -> None:
    """The other host has to find out alone."""
    first, second = start(network, "store", logs="logs")
    cut(network)
    for pid in network.left("n1"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    shown = second.communicate(timeout=120)[1]
    first.communicate(timeout=10)
    assert second.returncode == 124, shown
    hang = hang_of(network.folder / "n2" / "logs" / "node1")
    assert (hang["id"], hang["rank"], hang["at"]) == ("hang_host_unreachable", 1, line_of("hosts.store"))
    title = hang["finding"]["title"]
    assert title.startswith("rank 1 gets no answer from 10.200.0.1:29655 (the store): it waits in new_group at ")
    assert hang["finding"]["fix"][0]["commands"] == ["ping -c 3 10.200.0.1"]
    assert hang["quiet_s"] < 4 + 15
    assert network.left("n2") == []
