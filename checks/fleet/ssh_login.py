"""What keeps ssh from logging in to a host of `--hosts`: an agent, a jump host, too many sessions, sudo?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Severity, check
from mgpu.command_line import shell
from mgpu.snapshot import Fleet

from ._ssh_access import judge_access, over_ssh, short_message
from ._ways import on_host, ssh

_SSH = "https://man.openbsd.org/ssh_config"
_SSHD = "https://man.openbsd.org/sshd_config"
_MEASURED = "measured with OpenSSH 9.2: hosts of network namespaces, 2026-11"


@check(Severity.ERROR, source="https://man.openbsd.org/ssh-agent", given=over_ssh)
def ssh_agent_missing(fleet: Fleet) -> Answer:
    """Your key needs its passphrase, and no agent holds the key.

    Why: mgpu never types a passphrase. In a terminal of your desktop an agent often has the key; in tmux, in a job or
    after a login from another machine, SSH_AUTH_SOCK is missing or names an agent that has exited.

    Fix: start an agent and add the key once.
    """
    return judge_access(
        fleet,
        ("agent",),
        lambda one: f"your key {one.locked_key} needs its passphrase, and no agent holds it",
        "ssh would ask for the passphrase. mgpu does not type one.",
        lambda one: Fix(
            "Start an agent in this shell, and add the key.",
            ('eval "$(ssh-agent)"', shell("ssh-add {:path}", one.locked_key), ssh(one)),
        ),
        "no key needs a passphrase",
    )


@check(Severity.ERROR, source=_SSH, given=over_ssh)
def ssh_jump_host_failed(fleet: Fleet) -> Answer:
    """The jump host on the way to a host cannot be used.

    Why: it is down, refuses your key, or does not forward connections (AllowTcpForwarding, PermitOpen). It may also not
    reach the host behind it.

    Fix: log in to the jump host by hand, then through it.
    """
    return judge_access(
        fleet,
        ("jump",),
        lambda one: f"the jump host does not connect to it: {short_message(one)}",
        "The jump host of your ssh configuration (ProxyJump) is down, refuses your key, or forwards no connections.",
        lambda one: Fix(
            "See which jump host is used, and log in to it; then try the host.",
            (f"{ssh(one, '-G')} | grep -i proxyjump" if ssh(one) else "", ssh(one, "-v")),
        ),
        "every jump host works",
    )


@check(Severity.ERROR, source=_SSHD, given=over_ssh)
def ssh_sessions_exhausted(fleet: Fleet) -> Answer:
    """A host's sshd accepts no more connections or sessions.

    Why: MaxStartups limits the connections that have not logged in yet, MaxSessions those that share one connection
    (ControlMaster). Scanners on the internet, or tools that connect many times, use them up.

    Fix: try again, or raise the limit there.
    """
    return judge_access(
        fleet,
        ("busy",),
        lambda one: f"its sshd accepts no more connections or sessions: {short_message(one)}",
        "MaxStartups or MaxSessions of its sshd is reached. mgpu opens one connection, and tried twice.",
        lambda one: Fix(
            "Look at its limits, and raise them.",
            (on_host(one, shell("'sudo sshd -T | grep -iE \"maxstartups|maxsessions\"'")),),
            who="admin",
        ),
        "every sshd accepts a session",
    )


@check(Severity.ERROR, source=_MEASURED, given=over_ssh)
def ssh_sudo_required(fleet: Fleet) -> Answer:
    """A host runs sudo at login, and sudo asks for a password.

    Why: a forced command or a start-up file of the shell changes to another user. mgpu has no terminal there and types
    no password.

    Fix: log in as the user who trains, or let sudo run this without a password.
    """
    return judge_access(
        fleet,
        ("sudo",),
        lambda one: f"sudo at login: {short_message(one)}",
        "A forced command or a start-up file of the shell runs sudo, which asks for a password.",
        lambda one: Fix("Log in as the user who trains, and remove the sudo.", (on_host(one, shell("true")),)),
        "no login runs sudo",
    )
