"""Which options was `mgpu smoke-test` called with, and are they valid?"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from mgpu.command_line import below, from_words
from mgpu.errors import USAGE, MgpuError
from mgpu.launchers.gpu_selection import wanted_gpus
from mgpu.smoke.ranks import STAGES
from mgpu.smoke.ranks.rank_plan import Level
from mgpu.text import did_you_mean, listed

FORMATS = ("human", "json", "junit", "github", "markdown", "html")
# The default of --timeout, for the whole test without the search for a cause.
TIMEOUT_S = {"quick": 120.0, "standard": 120.0, "long": 900.0}
# The quick level only checks correctness and measures nothing.
_QUICK = tuple(name for name in STAGES if name not in ("checkpoint", "bandwidth"))
_MOST_RANKS = 1024
_MOST_STEPS = 1000
SCRIPT_S = 300.0  # the limit of the rehearsal without --timeout: the script may load a model first
_ONE_NODE = "one-node.yaml"
_FILL = 95  # percent; the test itself needs the rest


@dataclass(frozen=True)
class Request:
    """The options of smoke-test."""

    config: str = ""
    cpu: int | None = None
    gpus: str = ""
    level: Level = "standard"
    timeout_s: float | None = None
    stall_s: float = 30.0
    start_s: float = 90.0  # for imports from a cold network file system, and for other nodes to join
    bisect: bool = True
    scaling: bool | None = None  # None: of the stages; True: also of the script; False: neither
    fill_percent: int = 0
    baseline: str = ""
    checkpoint_folder: str = ""
    node: int | None = None  # the number of this node
    allow_busy: bool = False
    stamp: bool = True
    show: bool = False
    log_dir: str = ""
    format: str = "human"
    output: str = "-"
    slurm: bool = False  # the pre-flight of a Slurm job: all its nodes
    hosts: str = ""  # machines reached with ssh
    python: str = ""  # of the training run: PATH; with --hosts also HOST=PATH,...
    need: int | None = None  # minimum number of healthy nodes for it
    target: tuple[str, ...] = ()  # the user's script and its arguments, to be rehearsed; empty: none
    module: bool = False  # the script is a module
    checkpoint_now: bool = False  # of the script, after its last step
    steps: int = 8  # optimizer steps of the rehearsal

    def check(self) -> None:
        """Raise MgpuError (2) if a value is not allowed or options contradict each other."""
        for flag, value, allowed in (("--format", self.format, FORMATS), ("--level", self.level, get_args(Level))):
            if value not in allowed:
                near = did_you_mean(value, allowed)
                raise MgpuError(f"{flag} {value}: choose {listed(allowed, 'or')}.{near}", USAGE)
        self._check_numbers()
        self._check_output()
        if self.gpus:
            wanted_gpus(self.gpus)
        together = (
            (self.cpu is not None and self.gpus, "--cpu uses no GPUs: remove --gpus"),
            (self.cpu is not None and self.fill_percent, "--cpu uses no GPU memory: remove --fill"),
            (self.cpu is not None and self.allow_busy, "--cpu uses no GPUs: remove --allow-busy"),
            (
                self.need is not None and not (self.slurm or self.hosts),
                "--need counts the nodes of a Slurm job or the hosts: add --slurm or --hosts",
            ),
            (self.slurm and self.hosts, "--hosts names the machines, --slurm takes the job's: choose one"),
            (self.checkpoint_now and not self.target, "--checkpoint-now: name the script to rehearse"),
            (self.module and not self.target, "--module: name the module to rehearse"),
            (self.target and (self.slurm or self.hosts), f"--slurm and --hosts test nodes. {self.one_node()}"),
            (self.target and self.show, "--show only prints the last result: remove SCRIPT"),
        )
        for wrong, text in together:
            if wrong:
                raise MgpuError(text, USAGE)
        if self.slurm or self.hosts:
            self._check_preflight()
        if self.show:
            self._check_show()

    def one_node(self) -> str:
        """Return how the script is rehearsed: on one node, while the nodes are tested without it."""
        started = [*(["-m"] if self.module else []), *self.target]
        commands = (
            (("mgpu", "smoke-test", "--cpu", "2", *started), "on CPU ranks"),
            (("mgpu", "configure", "-y", "--nodes", "1", "-o", _ONE_NODE), "on GPUs: a config of one node, then"),
            (("mgpu", "smoke-test", "-c", _ONE_NODE, *started), ""),
        )
        lines = "".join(below(from_words(words), why and f"# {why}") for words, why in commands)
        return f"A script is rehearsed on one node; test the others without SCRIPT:{lines}"

    def _check_show(self) -> None:
        """Reject options that start something."""
        started = (
            ("--cpu", self.cpu is not None),
            ("--gpus", self.gpus),
            ("--fill", self.fill_percent),
            ("--baseline", self.baseline),
            ("--checkpoint-dir", self.checkpoint_folder),
            ("--node-rank", self.node is not None),
            ("--allow-busy", self.allow_busy),
            ("--timeout", self.timeout_s is not None),
        )
        if given := [flag for flag, value in started if value]:
            raise MgpuError(f"--show only prints the last result: remove {', '.join(given)}", USAGE)

    def _check_preflight(self) -> None:
        """Reject options that a pre-flight ignores: it chooses levels, ranks and folders for each node itself."""
        useless = (
            ("--gpus", self.gpus),
            ("--node-rank", self.node is not None),
            ("--show", self.show),
            ("--fill", self.fill_percent),
            ("--baseline", self.baseline),
            ("--format", self.format not in ("human", "json")),
        )
        if given := [flag for flag, value in useless if value]:
            which = "--hosts tests all hosts" if self.hosts else "--slurm tests all nodes of the job"
            raise MgpuError(f"{which}: remove {', '.join(given)}", USAGE)

    def _check_output(self) -> None:
        """Check before the ranks start that the result can be written afterwards."""
        path = Path(self.output)
        if self.output in ("", "-"):
            return
        wrong = "it is a folder" if path.is_dir() else None
        if not path.parent.is_dir():
            wrong = f"no folder {path.parent}"
        elif not os.access(path.parent if not path.exists() or path.is_file() else path, os.W_OK):
            wrong = "no write permission"
        if wrong:
            raise MgpuError(f"--output {self.output}: {wrong}", USAGE)

    def _check_numbers(self) -> None:
        for flag, number, least, most in (
            ("--cpu", self.cpu, 1, _MOST_RANKS),
            ("--timeout", self.timeout_s, 1, float("inf")),
            ("--stall-timeout", self.stall_s, 1, float("inf")),
            ("--start-timeout", self.start_s, 1, float("inf")),
            ("--fill", self.fill_percent, 0, _FILL),
            ("--node-rank", self.node, 0, float("inf")),
            ("--need", self.need, 1, float("inf")),
            ("--steps", self.steps, 2, _MOST_STEPS),
        ):
            if number is not None and not (least <= number <= most and number < float("inf")):  # also NaN
                span = f"from {least:g} to {most:g}" if most < float("inf") else f"of {least:g} or more"
                raise MgpuError(f"{flag} {number:g}: give a number {span}", USAGE)

    @property
    def stages(self) -> tuple[str, ...]:
        """Return the stages of the level."""
        return _QUICK if self.level == "quick" else STAGES

    @property
    def limit_s(self) -> float:
        """Return the time limit of the whole test, in seconds."""
        return TIMEOUT_S[self.level] if self.timeout_s is None else self.timeout_s

    @property
    def script_limit_s(self) -> float:
        """Return the time limit of the rehearsal, in seconds."""
        return SCRIPT_S if self.timeout_s is None else self.timeout_s
