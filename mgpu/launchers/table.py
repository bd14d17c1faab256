"""How does `mgpu launch` start each launcher, and what do its ranks learn of the config? One record per launcher.

How each is recognized on a command line, in a log and among processes is in known_launchers.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from mgpu.known_launchers import Launcher
from mgpu.launchers import argv
from mgpu.launchers.gpu_selection import Fewer
from mgpu.process.command import Command
from mgpu.snapshot import Config, Driver, Python


@dataclass(frozen=True)
class Start:
    """What one machine is to start."""

    fewer: Fewer  # the config and the machine
    target: Sequence[str]  # the script and its arguments, or -m and a module
    run_id: str
    port: int | None = None  # where the ranks meet, if the launcher has to be told
    node: int | None = None  # which of several machines this is

    @property
    def config(self) -> Config:
        """The config that the ranks follow."""
        return self.fewer.config

    @property
    def driver(self) -> Driver:
        """The driver, and with it whether there is a GPU."""
        assert self.fewer.snapshot.driver is not None
        return self.fewer.snapshot.driver

    @property
    def python(self) -> Python:
        """The interpreter of the ranks."""
        assert self.fewer.snapshot.python is not None
        return self.fewer.snapshot.python


@dataclass(frozen=True)
class Way:
    """The way to start one launcher."""

    command: Callable[[Start], Command]
    tells: Literal["config", "precision", "nothing"]  # what its ranks learn of the config, besides the GPUs
    one_process: bool = False  # it starts one process, on one machine
    needs_port: bool = False  # it reads no port from the config, and a single rank needs one too
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
    return argv.alone(s.config, s.driver, s.target, python=s.python, run_id=s.run_id, env=s.fewer.env)


WAYS: Final[Mapping[Launcher, Way]] = {
    "accelerate": Way(_accelerate, "config", forbidden=argv.writes_environment),
    "torchrun": Way(_torchrun, "nothing", needs_port=True, mode="precision and strategy are the script's"),
    "python": Way(_python, "precision", one_process=True, title="python alone"),
}
