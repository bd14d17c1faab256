"""Why does a host refuse the user's key: is it locked with a passphrase, and does no agent hold one?"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from mgpu.hosts.named_hosts import Host
from mgpu.process import child_process

_S = 5.0  # for each of ssh's own tools
_KEYS = 8  # that are tried for a host


def locked_key(host: Host) -> str:
    """Return a key of the user for this host that needs its passphrase, if ssh has no other one; else ""."""
    port = ["-p", str(host.port)] if host.port else []
    settings = _output(["ssh", "-G", *port, "--", host.destination]).splitlines()
    named = [line.partition(" ")[2] for line in settings if line.startswith("identityfile ")]
    keys = [path for name in named[:_KEYS] if (path := Path(name).expanduser()).is_file()]
    if not keys or _code(["ssh-add", "-l"]) == 0:  # 1: the agent has no key, 2: there is no agent
        return ""
    # -y reads the private key, -P "" without a passphrase; it fails if there is one.
    locked = [path for path in keys if _code(["ssh-keygen", "-y", "-P", "", "-f", str(path)]) not in (0, None)]
    return str(locked[0]) if len(locked) == len(keys) else ""


def _output(command: list[str]) -> str:
    done = _run(command)
    return done.stdout.decode("utf-8", "replace") if done else ""


def _code(command: list[str]) -> int | None:
    done = _run(command)
    return done.returncode if done else None


def _run(command: list[str]) -> subprocess.CompletedProcess[bytes] | None:
    if shutil.which(command[0]) is None:
        return None
    try:
        return child_process.run(command, _S)
    except (OSError, subprocess.TimeoutExpired):
        return None
