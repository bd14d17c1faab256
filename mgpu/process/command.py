"""A launcher's command: argv, the variables that mgpu adds, and the mark that identifies its processes."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mgpu import secrets_masking
from mgpu.known_launchers import KNOWN, KnownLauncher, Launcher

MARK = "MGPU_RUN_ID"  # the variable that identifies every process of a run
# setproctitle overwrites /proc/PID/environ and the mark with a long title, unless this is set (its README, "Environment
# variables"): then a title is cut to the length of the command line.
_KEEPS_MARK = "SPT_NOENV"


@dataclass(frozen=True)
class Command:
    """A command and the variables added to its environment."""

    argv: tuple[str, ...]
    env_added: Mapping[str, str] = field(default_factory=dict)  # always shown to the user
    run_id: str = ""
    launcher: Launcher = "accelerate"
    ranks: int = 1  # on this machine
    script: str = ""  # or the module's name
    arguments: tuple[str, ...] = ()  # the script's
    stop_s: float = 35.0  # for it to stop when mgpu asks: torchrun waits 30 s, then kills its ranks
    is_job: bool = False  # a job script: its srun only prints the status on the first Ctrl-C and continues

    @property
    def known(self) -> KnownLauncher:
        """Return the properties of the launcher."""
        return KNOWN[self.launcher]

    def environment(self, base: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Return the complete environment of the launcher."""
        mark = {MARK: self.run_id} if self.run_id else {}
        return {**({_KEEPS_MARK: "1"} if mark else {}), **base, **self.env_added, **mark}

    def shell_text(self) -> str:
        """Return the shell command, starting with the variables that mgpu adds, including the script's secrets."""
        return _line(self.env_added, self.argv)

    def masked(self) -> str:
        """Return the same without secrets, for a screen or a file."""
        return _line(secrets_masking.masked_env(self.env_added), secrets_masking.masked_argv(self.argv))


def _line(env: Mapping[str, str], argv: Sequence[str]) -> str:
    return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in env.items()), shlex.join(argv)])
