"""How does mgpu start a Python on another machine, with the user's own ssh?

One connection per host, by OpenSSH with the user's configuration: aliases, keys, the agent, jump hosts, known hosts.
It never asks anything (BatchMode). The remote command is the same for every host and has no value in it, so that any
login shell can run it: bash, dash, zsh, fish, tcsh. The values follow on stdin.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from mgpu.errors import NOT_FOUND, MgpuError
from mgpu.hosts.named_hosts import Host

CONNECT_S = 10  # to connect, and then for the key exchange
_ALIVE_S, _ALIVE = 4, 3  # a connection that answers none of 3 questions in 12 s is lost
# ControlMaster=no: an open connection of the user is used, but none is left behind. RemoteCommand and forwardings of
# the configuration are for interactive logins.
_OPTIONS = (
    "BatchMode=yes",
    f"ConnectTimeout={CONNECT_S}",
    "ConnectionAttempts=1",
    f"ServerAliveInterval={_ALIVE_S}",
    f"ServerAliveCountMax={_ALIVE}",
    "ControlMaster=no",
    "RemoteCommand=none",
    "PermitLocalCommand=no",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "EscapeChar=none",
    "LogLevel=VERBOSE",  # it says which address was reached
)
# It has no quote of its own kind inside, no backslash, no "!" and no newline: csh and fish read these differently. `sh`
# reads a line byte by byte, so what follows is left for Python. Exit code 127 if there is no Python at all.
REMOTE = (
    "/bin/sh -c 'IFS= read -r p; "
    'if [ -x "$p" ]; then :; else p=$(command -v python3) || { echo "mgpu: no Python here" >&2; exit 127; }; fi; '
    'exec "$p" -c "import sys; exec(sys.stdin.readline())"\''
)


def command(host: Host) -> list[str]:
    """Return the command that starts the program on a host. Raises MgpuError (127) without ssh."""
    if host.local:
        return ["/bin/sh", "-c", REMOTE]
    program = shutil.which("ssh")
    if program is None:
        raise MgpuError("ssh is not on PATH. Install OpenSSH's client:  apt install openssh-client", NOT_FOUND)
    options = [word for option in _OPTIONS for word in ("-o", option)]
    port = ["-p", str(host.port)] if host.port else []
    return [program, "-T", "-x", *options, *port, "--", host.destination, REMOTE]


def opening(python: str, program: str, archive: str) -> Sequence[str]:
    """Return the first lines for stdin: the Python to use, a program in one line, and what it reads."""
    return (f"{python}\n", f"exec({program!r})\n", f"{archive}\n")
