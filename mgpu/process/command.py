"""A launcher's command: argv, the variables that mgpu adds, and the mark by which its processes are found again."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mgpu import secrets_masking
from mgpu.known_launchers import KNOWN, KnownLauncher, Launcher

MARK = "MGPU_RUN_ID"  # by this variable every process of a run is found again
# setproctitle writes a long title over /proc/PID/environ, the mark included, unless this is set (its README,
# "Environment variables"): then a title is cut to the length of the command line.
_KEEPS_MARK = "SPT_NOENV"


@dataclass(frozen=True)
class Command:
    """What is executed, and what is put into its environment."""

    argv: tuple[str, ...]
    env_added: Mapping[str, str] = field(default_factory=dict)  # shown to the user; never silent
    run_id: str = ""
    launcher: Launcher = "accelerate"
    ranks: int = 1  # on this machine
    script: str = ""  # or the module's name
    arguments: tuple[str, ...] = ()  # the script's
    is_job: bool = False  # a job script: its srun takes one Ctrl-C for a question, and goes on

    @property
    def known(self) -> KnownLauncher:
        """What is known of the launcher."""
        return KNOWN[self.launcher]

    def environment(self, base: Mapping[str, str] = os.environ) -> dict[str, str]:
        """The whole environment of the launcher."""
        mark = {MARK: self.run_id} if self.run_id else {}
        return {**({_KEEPS_MARK: "1"} if mark else {}), **base, **self.env_added, **mark}

    def shown(self) -> str:
        """The line as it pastes into a shell, with what mgpu adds in front; the script's secrets included."""
        return _line(self.env_added, self.argv)

    def told(self) -> str:
        """The same for a screen or a file: without secrets."""
        return _line(secrets_masking.masked_env(self.env_added), secrets_masking.masked_argv(self.argv))


def _line(env: Mapping[str, str], argv: Sequence[str]) -> str:
    return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in env.items()), shlex.join(argv)])
