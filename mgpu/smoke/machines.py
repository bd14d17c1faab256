"""Several machines: which one is this, what is started on each, and does the machine where they meet answer?

The test runs on all of them at once, one `mgpu smoke-test --node-rank K` each, as the launch will. In a step of Slurm
with a task on each of as many nodes K is the node's own number: `srun --nodes 2 --ntasks-per-node 1 mgpu smoke-test`.
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
from mgpu.snapshot import Config, Meeting

_SHOWN = 4  # commands that are spelt out; of more machines the first and the last
# What the launcher gets less than the ranks: it gives up first, and its last words say how many machines came.
_SOONER_S = 5.0
_LEAST_S = 3.0
_BY_NAME = {errno.EADDRNOTAVAIL: "is not an address of this machine"}


def this_one(node: int | None, config: Config, given: str) -> int:
    """The number of this machine; raises MgpuError (2), with the command for each, when it is missing or wrong."""
    count = config.num_machines
    if count == 1:
        if node:
            raise MgpuError(f"--node-rank {node}: {config.path} is for one machine", USAGE)
        return 0
    if node is None:
        node = _of_step(count, os.environ)
    if node is not None and node < count:
        return node
    if config.for_slurm and node is None:
        raise MgpuError(for_slurm(config, given), USAGE)
    wrong = "" if node is None else f"--node-rank {node}: the machines are 0 to {count - 1}. "
    lines = "\n".join(f"  {line}" for line in commands(config, given))
    raise MgpuError(f"{wrong}{config.path} spans {count} machines. Start it on each, within a minute:\n{lines}", USAGE)


def for_slurm(config: Config, given: str) -> str:
    """What to do with a config that a job script starts."""
    flag = from_words(["-c", given]) + " " if given else ""
    return (
        f"{config.path} is for a job on {config.num_machines} nodes of Slurm, which gives each its rank and the "
        "address of the first.\n"
        "  mgpu launch --slurm JOB.sbatch     submits the job script, examines and tests its nodes, then trains\n"
        f"  mgpu smoke-test --slurm {flag}--log-dir DIR     inside a job: tests its nodes"
    )


def _of_step(count: int, environ: Mapping[str, str]) -> int | None:
    """The number of this node in a step of `count` nodes. Without srun SLURM_NODEID is 0 on the first node, and says
    nothing: only a step has SLURM_STEP_NUM_NODES (srun(1), measured with Slurm 22.05)."""
    number = environ.get("SLURM_NODEID", "")
    in_step = environ.get("SLURM_STEP_NUM_NODES") == str(count)
    return int(number) if in_step and number.isdecimal() else None


def commands(config: Config, given: str) -> list[str]:
    """The test's command for each machine; of many machines the first and the last."""
    flag = ["-c", given] if given else []
    made = [from_words(["mgpu", "smoke-test", *flag, "--node-rank", str(node)]) for node in range(config.num_machines)]
    lines = [f"{line}   # on {where(config, node)}" for node, line in enumerate(made) if line]
    return lines if len(lines) <= _SHOWN else [*lines[:2], "...", lines[-1]]


def where(config: Config, node: int) -> str:
    """Which machine a line is for; in a comment behind a command, so that the address must be one."""
    address = config.values.get("main_process_ip")
    known = node == 0 and address and is_kind("host", address)
    return f"machine {node}" + (f", which has the address {address}" if known else "")


def launcher_limit_s(orders: Orders) -> float | None:
    """How long the launcher waits for the other machines; None on one machine."""
    return None if orders.nodes == 1 else max(_LEAST_S, orders.start_limit_s - _SOONER_S)


class Knocking:
    """While the launcher starts: does the machine where all meet answer? Asked from outside torch, which only says that
    it timed out. On that machine itself: is the address one of its own?"""

    def __init__(self, orders: Orders, config: Config) -> None:
        self._limit = launcher_limit_s(orders)
        self._told: list[str | None] = []
        self._host, self._port = str(config.values.get("main_process_ip") or ""), config.port or 0
        if self._limit is None or not self._host or not self._port:
            return
        work = self._knock if orders.node else self._own
        threading.Thread(target=work, daemon=True).start()

    def _knock(self) -> None:
        assert self._limit is not None
        self._told.append(addresses.knock(self._host, self._port, self._limit))

    def _own(self) -> None:
        try:
            family, kind, _, _, address = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, kind) as tried:
                tried.bind((address[0], 0))
        except socket.gaierror as error:
            self._told.append(addresses.unresolved(error))
        except OSError as error:
            self._told.append(_BY_NAME.get(error.errno or 0, addresses.words(error.errno or 0)))
        else:
            self._told.append(None)

    def answer(self) -> Meeting | None:
        """What is known by now; None on one machine."""
        if self._limit is None or not self._host:
            return None
        return Meeting(self._host, self._port, self._told[0] if self._told else "no answer")
