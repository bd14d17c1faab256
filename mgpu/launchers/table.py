"""How does `mgpu launch` start each launcher, and which settings reach its ranks? One record per launcher.

How each is recognized on a command line, in a log and among processes is in known_launchers.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from mgpu.known_launchers import Launcher
from mgpu.launchers import argv
from mgpu.launchers.gpu_selection import Selection
from mgpu.process.command import Command
from mgpu.snapshot import Config, Driver, Python


@dataclass(frozen=True)
class Start:
    """The input for the command of one node."""

    fewer: Selection  # the config and the machine
    target: Sequence[str]  # the script and its arguments, or -m and a module
    run_id: str
    port: int | None = None  # the rendezvous port, if it must be passed to the launcher
    node: int | None = None  # the number of this node

    @property
    def config(self) -> Config:
        """Return the config of the ranks."""
        return self.fewer.config

    @property
    def driver(self) -> Driver:
        """Return the driver, which also shows whether there is a GPU."""
        assert self.fewer.snapshot.driver is not None
        return self.fewer.snapshot.driver

    @property
    def python(self) -> Python:
        """Return the interpreter of the ranks."""
        assert self.fewer.snapshot.python is not None
        return self.fewer.snapshot.python


@dataclass(frozen=True)
class Way:
    """How to start one launcher."""

    command: Callable[[Start], Command]
    passes: Literal["config", "precision", "nothing"]  # which settings it passes to its ranks, besides the GPUs
    one_process: bool = False  # it starts one process, on one machine
    needs_port: bool = False  # it does not read the config's port, and needs one even for a single rank
    forbidden: Callable[[Config, str], str | None] | None = None  # why this version of accelerate must not start it
    title: str = ""  # in the summary; "": its name
    mode: str = ""  # in the summary, in place of strategy and precision


def _accelerate(s: Start) -> Command:
    node = s.node if s.config.num_machines > 1 else None
    return argv.build(
        s.config,
        s.driver,
        s.target,
        python=s.python,
        port=s.port,
        run_id=s.run_id,
        node=node,
        more=s.fewer.flags,
        env=s.fewer.env,
    )


def _torchrun(s: Start) -> Command:
    return argv.torchrun(
        s.config, s.target, python=s.python, port=s.port, run_id=s.run_id, node=s.node, env=s.fewer.env
    )


def _python(s: Start) -> Command:
    return argv.single_process(s.config, s.driver, s.target, python=s.python, run_id=s.run_id, env=s.fewer.env)


WAYS: Final[Mapping[Launcher, Way]] = {
    "accelerate": Way(_accelerate, "config", forbidden=argv.writes_environment),
    "torchrun": Way(_torchrun, "nothing", needs_port=True, mode="precision and strategy set by the script"),
    "python": Way(_python, "precision", one_process=True, title="python without a launcher"),
}
