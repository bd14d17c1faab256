"""What do ssh's messages mean?

The kinds are facts, judged by `checks/fleet/ssh.py`. Messages are those of OpenSSH's client, which has no translations
(source=https://github.com/openssh/openssh-portable: ssh.c, sshconnect.c, sshconnect2.c, readconf.c, kex.c), of its
server (session.c) and of shells.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

# fmt: off
# Kinds of problems with a host.
NO_NAME, DOWN, CLOSED, KEY, HOST_KEY_CHANGED, HOST_KEY_NEW, CONFIG, ACCOUNT, BUSY, JUMP, NO_PYTHON, OLD_PYTHON = (
    "no_name", "down", "closed", "key", "host_key_changed", "host_key_new", "config", "account", "busy", "jump",
    "no_python", "old_python",
)
FULL, SHELL, LOST, OTHER, SUDO, AGENT = "full", "shell", "lost", "other", "sudo", "agent"
KINDS = (
    NO_NAME, DOWN, CLOSED, KEY, HOST_KEY_CHANGED, HOST_KEY_NEW, CONFIG, ACCOUNT, BUSY, JUMP, NO_PYTHON, OLD_PYTHON,
    FULL, SHELL, LOST, OTHER, SUDO, AGENT,
)

# The first match counts: a jump host's own failure is followed by the messages of the connection through it.
_KNOWN: Sequence[tuple[str, str]] = (
    (HOST_KEY_CHANGED, r"REMOTE HOST IDENTIFICATION HAS CHANGED|Host key for .* has changed"),
    (HOST_KEY_NEW, r"^No .*host key is known for |^Host key verification failed|^key_verify failed"),
    (CONFIG, r"[Bb]ad configuration option|terminating, \d+ bad configuration options|^Bad owner or permissions on "
             r"|^Unable to negotiate with |^unknown option -- "
             r"|: line \d+: .*(?:missing argument|unsupported option)|^Bad \w+ .* in .* line \d+"),
    (JUMP, r"stdio forwarding failed|UNKNOWN port 65535|^Jumphost loop|jump host"),
    (NO_NAME, r"^ssh: Could not resolve hostname "),
    (CLOSED, r"^ssh: connect to host .*: Connection refused"),
    (DOWN, r"^ssh: connect to host |^Connection timed out during banner exchange|^Connection to .* port \d+ timed out"),
    (ACCOUNT, r"[Pp]assword (?:change required|has expired)|This account is (?:currently )?not available"
              r"|account (?:has )?expired|System is booting up|nologin|(?i:required) to change your password"),
    (KEY, r"Permission denied|Too many authentication failures|sign_and_send_pubkey: |no mutual signature"
          r"|No supported authentication methods|UNPROTECTED PRIVATE KEY FILE"),
    (BUSY, r"^(?:kex|ssh)_exchange_identification: |Exceeded MaxStartups|Not allowed at this time"
           r"|^mux_client_request_session: .*refused|^channel \d+: open failed: "),
    (SUDO, r"^(?:sudo|doas): "),
    (LOST, r"^Timeout, server .* not responding|^client_loop: send disconnect|closed by remote host|Broken pipe"
           r"|^Connection (?:to .* )?(?:reset|closed)|^Read from remote host "),
    (NO_PYTHON, r"^mgpu: no Python here"),
    (OLD_PYTHON, r"^mgpu: Python [\d.]+ is too old"),
    (FULL, r"^mgpu: no folder for temporary files: |No space left on device|Disk quota exceeded"),
)
# fmt: on
# Lines at LogLevel=VERBOSE that are no errors (sshconnect2.c, clientloop.c). The first one has the address that was
# reached; through a jump host it is "(via proxy)".
_REMARK = re.compile(
    r"Authenticated to \S+ \((?:\[(?P<address>[0-9A-Fa-f.:]+)(?:%\w+)?\]:\d+|via proxy)\) using "
    r"|Transferred: sent |Bytes per second: sent "
)
_COMPILED = tuple((kind, re.compile(pattern, re.MULTILINE)) for kind, pattern in _KNOWN)
# Lines that are not the reason: warnings, the frame of the message about a changed host key.
_NOISE = re.compile(
    r"^(?:@+$|@.*@$|Warning: |\*\* |debug\d: |Pseudo-terminal |Offending |\s*$)|has been added to the list"
)


def kind_of(stderr: str, code: int | None) -> str:
    """Return the kind of problem that ended a connection before the host answered."""
    for kind, pattern in _COMPILED:
        if pattern.search(stderr):
            return kind
    return NO_PYTHON if code == 127 else OTHER if code == 255 else SHELL


def reason(stderr: str, code: int | None) -> str:
    """Return the line of ssh's messages that says why, or else the exit code."""
    lines = [line.strip() for line in stderr.splitlines() if not _NOISE.search(line)]
    for _, pattern in _COMPILED:
        for line in lines:
            if pattern.search(line):
                return line
    return lines[-1] if lines else f"exit code {code}, without a message"


def remark(line: str) -> str | None:
    """Return the address in a line of ssh's that is no error, "" if it has none; None for all other lines."""
    found = _REMARK.match(line)
    return (found["address"] or "") if found else None
