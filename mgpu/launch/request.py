"""The options of `mgpu launch`, and which combinations are rejected."""

from __future__ import annotations

import dataclasses
import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mgpu.command_line import shell
from mgpu.errors import USAGE, MgpuError
from mgpu.known_launchers import STARTED
from mgpu.text import did_you_mean, listed

LAUNCHERS = ("auto", *STARTED)
POLICIES = ("ask", "allow", "refuse")
ON_HANG = ("report", "stop")
SMOKE = ("auto", "always", "never")
_FLAGS = {"exec_": "--exec", "node": "--node-rank", "timeout_s": "--timeout", "triage": "--no-triage"}
_FLAGS |= {"wait_s": "--wait"}
_FLAGS |= {"hang_after_s": "--hang-after", "recorder": "--no-recorder"}
_PORTS = range(1, 65536)
_NOT_OPTIONS = ("target", "dashes", "script")


@dataclass(frozen=True)
class Request:
    """The options of launch."""

    target: tuple[str, ...] = ()
    dashes: bool = False  # -- comes before `target`
    script: tuple[str, ...] = ()  # of the user's own launch line: what its ranks run, with -m for a module
    module: bool = False
    config: str = ""
    yes: bool = False
    dry_run: bool = False
    print_command: bool = False
    unverified: str = ""  # ask, allow, refuse
    smoke: str = "auto"  # auto, always, never: the smoke test before the start
    launcher: str = "auto"  # of LAUNCHERS
    wait_s: float = 0.0  # for GPUs that other processes use; 0: refuse at once
    gpus: str = ""  # N, or indices
    port: str = ""  # auto: a free one, or a number; "": the config's, else a free one
    node: int | None = None  # which of several machines this is
    exec_: bool = False  # replace this process: the run is neither watched nor diagnosed
    triage: bool = True
    timeout_s: float = 0.0  # of the training; 0: no limit
    recorder: bool = True  # in the ranks
    hang_after_s: float = 30.0  # without progress until the ranks are asked what they do
    on_hang: str = "report"  # of ON_HANG
    nan_check: int = 0  # steps between two losses on a GPU that the recorder reads; 0: none
    detach: bool = False
    attach: bool = False  # for this and the next four, `target` names a run; empty: the latest
    status: bool = False
    stop: bool = False
    report: bool = False  # the page and the archive of a run
    why: bool = False  # `target` may also be a PID or a shared --log-dir
    watch: bool = False  # `target` names a run or is empty, else it is the script
    log_dir: str = ""
    json_result: str = ""
    hosts: str = ""  # machines reached with ssh
    python: str = ""  # of the training run: PATH; with --hosts also HOST=PATH,...
    pass_env: tuple[str, ...] = ()  # names of variables that their ranks get
    slurm: bool = False  # `target` is a job script, or a Python script for which one is written
    nodes: int | None = None  # this and the rest: of the Slurm job
    gpus_per_node: int | None = None
    partition: str = ""
    account: str = ""
    qos: str = ""
    time: str = ""
    spare: int = 0  # extra nodes to request as replacements
    preflight: bool = True

    @property
    def of_a_run(self) -> bool:
        """Whether the options are about a run started earlier, so that nothing is started."""
        program = bool(self.target) and (self.module or self.foreign or self.target[0].endswith(".py"))
        return self.attach or self.status or self.stop or self.why or self.report or (self.watch and not program)

    @property
    def foreign(self) -> bool:
        """Whether `target` is the user's own launch line, which is started unchanged."""
        name = self.target[0] if self.dashes and self.target and not self.slurm else ""
        if not name or name.startswith("-") or name.endswith(".py"):
            return False
        return shutil.which(name) is not None or not (self.module or Path(name).is_file())

    def check(self) -> None:
        """Raise MgpuError (2) for a value that is not allowed, or for options that contradict each other."""
        for flag, value, allowed in (
            ("--launcher", self.launcher, LAUNCHERS),
            ("--unverified", self.unverified or "ask", POLICIES),
            ("--smoke", self.smoke, SMOKE),
            ("--on-hang", self.on_hang, ON_HANG),
        ):
            if value not in allowed:
                raise MgpuError(_choose(flag, value, allowed), USAGE)
        if self.port not in ("", "auto") and not (self.port.isdecimal() and int(self.port) in _PORTS):
            raise MgpuError(f"--port {self.port}: expected auto or a number from 1 to 65535", USAGE)
        if self.gpus:
            from mgpu.launchers.gpu_selection import wanted_gpus

            wanted_gpus(self.gpus)
        if not 0 <= self.timeout_s < math.inf:
            raise MgpuError(f"--timeout {self.timeout_s:g}: expected a number of seconds", USAGE)
        if not 1 <= self.hang_after_s < math.inf:
            raise MgpuError(f"--hang-after {self.hang_after_s:g}: expected at least 1 s", USAGE)
        if self.wait_s and (self.slurm or self.hosts or self.foreign or self.of_a_run):
            raise MgpuError("--wait is for a SCRIPT on this machine: remove it", USAGE)
        self._check_unknown()
        self._check_together()

    def _check_unknown(self) -> None:
        """Raise MgpuError (2) for an option that mgpu launch does not have, in the place of the script."""
        name = self.target[0].partition("=")[0] if self.target and not self.module else ""
        if not name.startswith("-") or name == "--" or Path(self.target[0]).exists():
            return
        flags = [flag_of(field.name) for field in dataclasses.fields(self) if field.name not in _NOT_OPTIONS]
        near = did_you_mean(name, flags)
        raise MgpuError(f"unknown option {name}.{near} Options of the script go after its name.", USAGE)

    def _check_together(self) -> None:
        """Raise MgpuError (2) for options that contradict each other."""
        self._check_hosts()
        self._check_job()
        shows = "--print-command" if self.print_command else "--dry-run" if self.dry_run else ""
        starts = (("--exec", self.exec_), ("--detach", self.detach), ("--watch", self.watch))
        ends = ((self.log_dir, "write --log-dir"), (not self.triage, "diagnose a failure: omit --no-triage"))
        together: Sequence[tuple[object, str]] = (
            (self.print_command and self.dry_run, "--dry-run also shows the command: omit --print-command"),
            (shows and self.smoke == "always", f"{shows} starts nothing: omit --smoke always"),
            *((shows and given, f"{shows} starts nothing: omit {flag}") for flag, given in starts),
            (self.exec_ and self.detach, "--exec replaces mgpu, --detach needs it in the background: choose one"),
            (self.detach and self.watch, "--watch stays in the terminal, --detach leaves it: choose one"),
            (self.exec_ and self.watch, "--exec replaces mgpu, which could then not watch the run: choose one"),
            (self.exec_ and self.timeout_s, "--exec replaces mgpu, which could then not enforce --timeout: omit it"),
            (self.exec_ and self.json_result, "--exec replaces mgpu, which could then not write --json-result"),
            *((self.exec_ and given, f"--exec replaces mgpu, which could then not {task}") for given, task in ends),
            (self.nan_check and not self.recorder, "--nan-check needs the recorder: omit --no-recorder"),
            (shows and self.json_result, f"{shows} starts nothing, so there is no result: omit --json-result"),
            (
                self.smoke == "always" and self.gpus,
                f"--smoke always tests the config, --gpus {self.gpus} changes it: "
                f"{shell('mgpu smoke-test --gpus {:ids}', self.gpus)}",
            ),
        )
        for wrong, text in together:
            if wrong:
                raise MgpuError(text, USAGE)

    def _check_job(self) -> None:
        """Raise MgpuError (2) for options of a Slurm job without --slurm."""
        if self.slurm:
            return
        of_a_job = (
            ("--nodes", self.nodes is not None),
            ("--gpus-per-node", self.gpus_per_node is not None),
            ("--partition", self.partition),
            ("--account", self.account),
            ("--qos", self.qos),
            ("--time", self.time),
            ("--spare", self.spare),
            ("--no-preflight", not self.preflight),
        )
        for flag, given in of_a_job:
            if given:
                raise MgpuError(f"{flag} is only for Slurm jobs: add --slurm", USAGE)

    def _check_hosts(self) -> None:
        """Raise MgpuError (2) for options that do not fit --hosts, or that need it."""
        if not self.hosts:
            if self.pass_env:
                raise MgpuError("--pass-env is for --hosts: here the ranks inherit all variables", USAGE)
            return
        others = (
            ("--slurm", self.slurm),
            ("--node-rank", self.node is not None),
            ("--gpus", self.gpus),
            ("--exec", self.exec_),
            ("-- COMMAND", self.foreign),
        )
        if given := [flag for flag, value in others if value]:
            raise MgpuError(f"--hosts starts the ranks on each host itself: remove {', '.join(given)}", USAGE)


def flag_of(field: str) -> str:
    """Return the option of a field."""
    return _FLAGS.get(field, f"--{field.replace('_', '-')}")


def _choose(flag: str, value: str, allowed: Sequence[str]) -> str:
    import difflib

    near = difflib.get_close_matches(value, allowed, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"{flag} {value}: choose {listed(allowed, 'or')}.{hint}"
