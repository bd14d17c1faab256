"""Several nodes: which number has this one, what runs on each, and does the rendezvous endpoint answer?

The test runs on all nodes at once, with `mgpu smoke-test --node-rank K` on each, like the launch. In a Slurm step with
one task per node K is set automatically: `srun --nodes 2 --ntasks-per-node 1 mgpu smoke-test`.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Mapping

from mgpu.command_line import from_words, is_kind
from mgpu.errors import USAGE, MgpuError
from mgpu.smoke.ranks import addresses
from mgpu.smoke.ranks.rank_plan import Orders
from mgpu.snapshot import Config, RendezvousEndpoint

_SHOWN = 4  # commands that are written out; for more nodes, the first two and the last
# The launcher's time limit is shorter than the ranks': its error message states how many nodes joined.
_SOONER_S = 5.0
_LEAST_S = 3.0
_BY_NAME = {errno.EADDRNOTAVAIL: "is not an address of this machine"}


def node_number(node: int | None, config: Config, given: str) -> int:
    """Return the number of this node. Raises MgpuError (2), with the command for each node, if missing or wrong."""
    count = config.num_machines
    if count == 1:
        if node:
            raise MgpuError(f"--node-rank {node}: {config.path} is for one node", USAGE)
        return 0
    if node is None:
        node = _step_node(count, os.environ)
    if node is not None and node < count:
        return node
    if config.for_slurm and node is None:
        raise MgpuError(slurm_hint(config, given), USAGE)
    wrong = "" if node is None else f"--node-rank {node}: nodes are numbered 0 to {count - 1}. "
    lines = "\n".join(f"  {line}" for line in commands(config, given))
    raise MgpuError(
        f"{wrong}{config.path} uses {count} nodes. Start the test on each of them, within a minute:\n{lines}", USAGE
    )


def slurm_hint(config: Config, given: str) -> str:
    """Return the commands for a config that a Slurm job script uses."""
    flag = from_words(["-c", given]) + " " if given else ""
    return (
        f"{config.path} is for a Slurm job on {config.num_machines} nodes. Slurm sets each node's rank and the "
        "address of the first node.\n"
        "  mgpu launch --slurm JOB.sbatch     submits the job script, tests its nodes, then trains\n"
        f"  mgpu smoke-test --slurm {flag}--log-dir DIR     inside a job: tests its nodes"
    )


def _step_node(count: int, environ: Mapping[str, str]) -> int | None:
    """Return the number of this node in a Slurm step of `count` nodes.

    Outside of srun SLURM_NODEID is 0 on the first node and means nothing: only a step has SLURM_STEP_NUM_NODES
    (srun(1), measured with Slurm 22.05).
    """
    number = environ.get("SLURM_NODEID", "")
    in_step = environ.get("SLURM_STEP_NUM_NODES") == str(count)
    return int(number) if in_step and number.isdecimal() else None


def commands(config: Config, given: str) -> list[str]:
    """Return the test's command for each node; for many nodes, the first two and the last."""
    flag = ["-c", given] if given else []
    made = [from_words(["mgpu", "smoke-test", *flag, "--node-rank", str(node)]) for node in range(config.num_machines)]
    lines = [f"{line}   # on {describe_node(config, node)}" for node, line in enumerate(made) if line]
    return lines if len(lines) <= _SHOWN else [*lines[:2], "...", lines[-1]]


def describe_node(config: Config, node: int) -> str:
    """Describe the node of a command, in a shell comment: the address is shown only if it is a valid host."""
    address = config.values.get("main_process_ip")
    known = node == 0 and address and is_kind("host", address)
    return f"node {node}" + (f", address {address}" if known else "")


def launcher_limit_s(orders: Orders) -> float | None:
    """Return how long the launcher waits for the other nodes, in seconds; None on one node."""
    return None if orders.nodes == 1 else max(_LEAST_S, orders.start_limit_s - _SOONER_S)


class RendezvousTest:
    """Tests in a thread, while the launcher starts, whether the rendezvous endpoint can be reached.

    torch itself only reports that it timed out. On the first node: is the address one of its own?
    """

    def __init__(self, orders: Orders, config: Config) -> None:
        self._limit = launcher_limit_s(orders)
        self._results: list[str | None] = []
        self._host, self._port = str(config.values.get("main_process_ip") or ""), config.port or 0
        if self._limit is None or not self._host or not self._port:
            return
        work = self._connect if orders.node else self._bind
        threading.Thread(target=work, daemon=True).start()

    def _connect(self) -> None:
        assert self._limit is not None
        self._results.append(addresses.wait_for_listener(self._host, self._port, self._limit))

    def _bind(self) -> None:
        try:
            family, kind, _, _, address = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, kind) as tried:
                tried.bind((address[0], 0))
        except socket.gaierror as error:
            self._results.append(addresses.describe_unresolved(error))
        except OSError as error:
            self._results.append(_BY_NAME.get(error.errno or 0, addresses.describe_errno(error.errno or 0)))
        else:
            self._results.append(None)

    def result(self) -> RendezvousEndpoint | None:
        """Return the result so far; None on one node."""
        if self._limit is None or not self._host:
            return None
        return RendezvousEndpoint(self._host, self._port, self._results[0] if self._results else "no answer")
