"""Is every host of `--hosts` reached with ssh, and does it have the project's Python and folder?"""

from __future__ import annotations

from collections.abc import Sequence

from mgpu.check import Answer, Fix, Ok, Problem, Severity, check
from mgpu.command_line import from_words, shell
from mgpu.hostlist import fold
from mgpu.snapshot import Fleet, HostAccess
from mgpu.text import counted

from ._ssh_access import LONGEST, judge_access, over_ssh, short_message
from ._ways import on_host, ssh

_SSH = "https://man.openbsd.org/ssh_config"
_SSHD = "https://man.openbsd.org/sshd_config"
_MEASURED = "measured with OpenSSH 9.2: hosts of network namespaces, 2026-11"


@check(Severity.ERROR, source=_MEASURED, given=over_ssh)
def ssh_name_unknown(fleet: Fleet) -> Answer:
    """The name of a host cannot be resolved here.

    Why: it is neither in DNS, nor in /etc/hosts, nor a Host of your ~/.ssh/config. Often it is misspelled.

    Fix: use the host's address, or add the name to ~/.ssh/config.
    """
    return judge_access(
        fleet,
        ("no_name",),
        lambda one: "this name cannot be resolved",
        "It is neither in DNS or /etc/hosts nor a Host of your ~/.ssh/config.",
        lambda one: Fix(
            "Correct the name, or add a Host with a HostName to ~/.ssh/config.",
            (shell("getent hosts {:host}", one.node), ssh(one, "-G")),
        ),
        "every name is known",
    )


@check(Severity.ERROR, source=_MEASURED, given=over_ssh)
def ssh_unreachable(fleet: Fleet) -> Answer:
    """A host does not answer on ssh's port.

    Why: it is switched off, still starting, at another address, or a firewall drops the packets. If the connection
    is refused, the machine answers but no sshd listens on that port.

    Fix: start the machine or its sshd, or correct address and port.
    """
    closed = ("Start sshd there.", "sudo systemctl start ssh")
    return judge_access(
        fleet,
        ("down", "closed"),
        short_message,
        "The machine is off or at another address, a firewall drops the packets, or no sshd listens on that port.",
        lambda one: Fix(
            closed[0] if one.problem == "closed" else "Check whether it is on, and its address.",
            (closed[1], ssh(one, "-v")) if one.problem == "closed" else (shell("ping -c 3 {:host}", one.node),),
        ),
        "every host answers",
    )


@check(Severity.ERROR, source=_SSH, given=over_ssh)
def ssh_key_refused(fleet: Fleet) -> Answer:
    """A host does not accept your key.

    Why: mgpu never types a password, so each host needs a key that works without one: in authorized_keys there, and
    here either without a passphrase or in the agent. A wrong user name looks the same.

    Fix: copy your public key to the host, or add the key to the agent.
    """

    def fix(one: HostAccess) -> Fix:
        port = ("-p", str(one.port)) if one.port else ()
        copy = from_words(("ssh-copy-id", *port, one.destination)) if ssh(one) else ssh(one)
        agent = ("ssh-add",) if "sign_and_send" in one.said or "passphrase" in one.said else ()
        return Fix("Copy your key there, then try it.", (*agent, copy, ssh(one)))

    return judge_access(
        fleet,
        ("key",),
        lambda one: "your key is not accepted",
        "A key must work without a question: accepted there, and here without a passphrase or in the agent.",
        fix,
        "every host accepts your key",
    )


@check(Severity.ERROR, source=_SSH, given=over_ssh)
def ssh_host_key_changed(fleet: Fleet) -> Answer:
    """A host has another host key than the one that is known here.

    Why: it was installed again, or another machine has its name or address now. It could also be an attack, so ssh
    refuses the connection.

    Fix: make sure that it is the right machine, then forget its old key.
    """
    return judge_access(
        fleet,
        ("host_key_changed",),
        lambda one: "its host key has changed",
        "It was installed again, or another machine has its name or address now.",
        lambda one: Fix(
            "Only if you know why it changed: forget the old key and accept the new one.",
            (
                shell("ssh-keygen -R '[{:host}]:{:number}'", one.node, one.port)
                if one.port
                else shell("ssh-keygen -R {:host}", one.node),
                ssh(one),
            ),
        ),
        "every host key is the known one",
    )


@check(Severity.ERROR, source=_SSH, given=over_ssh)
def ssh_host_key_unknown(fleet: Fleet) -> Answer:
    """A host's key is not known here yet.

    Why: the first connection asks whether the key is right, and mgpu cannot answer for you.

    Fix: connect once by hand and compare the fingerprint.
    """
    return judge_access(
        fleet,
        ("host_key_new",),
        lambda one: "its host key is not known here yet",
        "The first connection asks whether the key is right. mgpu does not answer for you.",
        lambda one: Fix("Connect once by hand.", (ssh(one),)),
        "every host key is known",
    )


@check(Severity.ERROR, source=_SSH, given=over_ssh)
def ssh_configuration_invalid(fleet: Fleet) -> Answer:
    """Your ssh configuration is not valid, or does not fit the host.

    Why: ssh ends before it connects, or has no algorithm in common with an old server.

    Fix: correct the file and line in the message, or name what the message misses.
    """
    return judge_access(
        fleet,
        ("config",),
        short_message,
        "ssh stopped at your configuration, or has no algorithm in common with an old server.",
        lambda one: Fix("Correct what the message names, then try it.", (ssh(one, "-v"),)),
        "your ssh configuration works",
    )


@check(Severity.ERROR, source=_SSHD, given=over_ssh)
def ssh_refused_by_host(fleet: Fleet) -> Answer:
    """A host accepts the connection but no command.

    Why: the account is locked or its password has expired, the login shell is not a shell, or a forced command takes
    the place of mgpu's.

    Fix: connect by hand, which shows the message, and ask the administrator of that machine.
    """
    return judge_access(
        fleet,
        ("account", "shell", "other"),
        lambda one: f"ssh did not start a command: {short_message(one)}",
        "The account, the login shell or a forced command prevents it.",
        lambda one: Fix("Try a command by hand.", (on_host(one, shell("true")),)),
        "every host runs commands",
    )


@check(Severity.ERROR, source=_MEASURED, given=over_ssh, role="root", kind="network")
def ssh_connection_lost(fleet: Fleet) -> Answer:
    """The connection to a host broke.

    Why: the machine was switched off or crashed, its network failed, or sshd was stopped.

    Fix: look at the machine; then run the command again.
    """
    broken = {node: why for node, why in fleet.missing.items() if why.startswith("the connection ended")}
    access = [one for one in fleet.access or () if one.node in broken or one.problem == "lost"]
    if not access:
        return Ok(f"the connections lasted ({counted(len(fleet.nodes), 'host')})")
    return tuple(
        Problem(
            f"{one.node}: {broken.get(one.node) or f'the connection ended: {short_message(one)}'}",
            "The machine or its network failed, or its sshd was stopped.",
            Fix("Check whether it is up.", (on_host(one, shell("uptime")),)),
            {"host": one.destination},
            subjects=(one.node,),
        )
        for one in access
    )


@check(Severity.ERROR, source=_MEASURED, given=over_ssh)
def ssh_no_python(fleet: Fleet) -> Answer:
    """A host has no Python that mgpu can use.

    Why: the probes need Python 3.10 or newer. A login over ssh without a terminal often has a shorter PATH than your
    own terminal.

    Fix: install Python there, or name it with --python.
    """
    return judge_access(
        fleet,
        ("no_python", "old_python"),
        lambda one: one.said.removeprefix("mgpu: "),
        "The probes need Python 3.10 or newer: at the same path as here, or named python3.",
        lambda one: Fix(
            "Install it, or name its path with --python.",
            (on_host(one, shell("command -v python3")),),
        ),
        "every host has a Python",
    )


@check(Severity.ERROR, source=_MEASURED, given=over_ssh)
def ssh_no_space(fleet: Fleet) -> Answer:
    """A host has no space for temporary files.

    Why: mgpu unpacks 10 MB there while it runs; torch, data loaders and compilers need much more.

    Fix: free space in /tmp.
    """
    return judge_access(
        fleet,
        ("full",),
        lambda one: one.said.removeprefix("mgpu: "),
        "mgpu needs 10 MB there while it runs. torch and data loaders need more.",
        lambda one: Fix("Free space.", (on_host(one, shell("df -h /tmp /var/tmp /dev/shm")),)),
        "every host has space for temporary files",
    )


@check(Severity.ERROR, source=_MEASURED, given=over_ssh)
def ssh_other_python(fleet: Fleet) -> Answer:
    """The project's Python is not on a host, so its ranks cannot start there.

    Why: mgpu starts the ranks with the same interpreter path on every host. Where it does not exist, another Python
    answered the questions, without your packages.

    Fix: create the environment at the same path on every host, or name one that all have with --python.
    """
    found = [one for one in fleet.access or () if one.python_wanted and one.python and one.python != one.python_wanted]
    found = [one for one in found if one.python_wanted == found[0].python_wanted]
    if not found:
        return Ok("the same Python path on every host")
    wanted = found[0].python_wanted
    nodes = [one.node for one in found]
    look = on_host(found[0], shell("ls -l /{:id}", wanted.removeprefix("/")))
    fix = Fix("Create the environment at the same path, or name another one with --python.", (look,))
    if there := [one for one in found if one.environment]:
        names = [one.destination for one in fleet.access or () if not one.problem]
        pythons = ",".join(f"{one.node}={one.environment}" for one in there)
        again = shell("mgpu configure --hosts {:ids} --python {}", ",".join(names), pythons)
        fix = Fix("Use the environment with torch that is there, or create one at the same path.", (again, look))
    return Problem(
        f"{fold(nodes)}: no {wanted}",
        f"Ranks are started with this path on every host. There, {found[0].python} answered, without your packages.",
        fix,
        {"hosts": fold(nodes), "wanted": wanted, "found": found[0].python},
        subjects=tuple(nodes),
    )


@check(Severity.ERROR, source=_MEASURED, given=over_ssh)
def ssh_no_folder(fleet: Fleet) -> Answer:
    """The project's folder is not on a host.

    Why: the ranks of every host run in the folder with the same path as here, and read the script from it.

    Fix: clone or copy the project to the same path.
    """
    errors: dict[str, list[HostAccess]] = {}
    for one in fleet.access or ():
        if one.folder_error:
            errors.setdefault(one.folder_error, []).append(one)
    if not errors:
        return Ok("the current folder is on every host")
    return tuple(_no_folder_problem(error, found) for error, found in errors.items())


def _no_folder_problem(error: str, found: Sequence[HostAccess]) -> Problem:
    nodes = [one.node for one in found]
    if "denied" in error:
        fix = Fix("Give your user access to it.", (on_host(found[0], shell("'id; ls -ld ~'")),))
    else:
        copy = shell('rsync -a ./ {:user}:"$PWD"/', found[0].destination)
        fix = Fix("Copy the project to the same path, for example:", (copy, ssh(found[0])))
    return Problem(
        f"{fold(nodes)}: no folder like the current one ({error})",
        "The ranks run in the folder with the same path on every host.",
        fix,
        {"hosts": fold(nodes), "error": error},
        subjects=tuple(nodes),
    )


@check(Severity.INFO, source=_MEASURED, given=over_ssh)
def ssh_noisy(fleet: Fleet) -> Answer:
    """A host's shell start-up files print text in logins without a terminal.

    Why: mgpu skips the text, but rsync, scp and DeepSpeed's launcher fail because of it.

    Fix: print it only in interactive shells.
    """
    found = [one for one in fleet.access or () if one.noise and not one.problem]
    if not found:
        return Ok("no shell prints text of its own")
    nodes = [one.node for one in found]
    return Problem(
        f"{fold(nodes)}: the shell's start-up files print {found[0].noise[0][:LONGEST]!r}",
        "rsync, scp and other tools that use ssh fail because of such text.",
        Fix("Put it in ~/.bashrc behind a test for an interactive shell.", ("case $- in *i*) ;; *) return ;; esac",)),
        {"hosts": fold(nodes)},
        subjects=tuple(nodes),
    )
