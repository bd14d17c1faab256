"""Do the ssh hosts of the tests behave as real ones, and does each planted fault get the message of the real ssh?

The messages are those of OpenSSH 9.2p1 (Debian 12), recorded here with BatchMode, ConnectTimeout=5 and
ServerAliveInterval=3.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.scripts import wait_for
from tests.ssh_host import HOME, SshHost
from tests.ssh_hosts import OPTIONS, Said, SshHosts

_SSH = ("-A", "INPUT", "-p", "tcp", "--dport", "22")
_DENIED = "trainer@{name}: Permission denied (publickey)."
_TIMED_OUT = "ssh: connect to host {name} port 22: Connection timed out"
_REFUSED = "ssh: connect to host {name} port 22: Connection refused"
_NO_ROUTE = "ssh: connect to host {name} port 22: No route to host"
_CHANGED = "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @"
_PROCESSES = "cat /proc/[0-9]*/cmdline"
_NO_TERMINAL = "sorry, you must have a tty"


@dataclass(frozen=True)
class Fault:
    """How a host is spoiled, and what `ssh HOST echo hello` says then: its exit code, a line of stderr, its stdout."""

    plant: Callable[[SshHost], object]
    code: int
    line: str
    out: str = ""


def _occupied(host: SshHost) -> None:
    """A server that accepts one connection that has not logged in, and there is one."""
    host.configure("MaxStartups 1:100:1")
    waiting = host.bed.head.popen("bash", "-c", f"exec 3<>/dev/tcp/{host.name}/22; read -u 3; echo; exec sleep 60")
    assert waiting.stdout is not None
    waiting.stdout.readline()


def _closed(*target: str) -> Callable[[SshHost], None]:
    return lambda host: host.bed.firewall(host.name, *_SSH, "-j", *target)


def _set(*lines: str) -> Callable[[SshHost], None]:
    return lambda host: host.configure(*lines)


def _banner(host: SshHost) -> None:
    host.write("banner", "Authorized use only\n")
    host.configure(f"Banner {HOME}/banner")


def _no_home(host: SshHost) -> None:
    (host.folder / "ssh" / "keys").write_text((host.home / ".ssh" / "authorized_keys").read_text())
    host.configure("AuthorizedKeysFile /etc/ssh/keys")
    host.root("umount", "-l", "/home")


def _behind_closed(host: SshHost) -> None:
    """The jump host, the last one, forwards nothing."""
    host.only_through(host.bed.nodes[-1])


FAULTS = {
    "key refused": Fault(SshHost.refuse_key, 255, _DENIED),
    "password only": Fault(
        _set("PasswordAuthentication yes", "AuthorizedKeysFile none"), 255,
        "trainer@{name}: Permission denied (publickey,password).",
    ),
    "home folder writable for all": Fault(lambda host: host.home.chmod(0o777), 255, _DENIED),
    "account locked": Fault(lambda host: host.account(password="!*"), 255, _DENIED),
    "login shell is not there": Fault(lambda host: host.login_shell("/bin/not-installed"), 255, _DENIED),
    "too many keys": Fault(
        _set("MaxAuthTries 1"), 255, "Received disconnect from {address} port 22:2: Too many authentication failures"
    ),
    "host key changed": Fault(SshHost.new_host_key, 255, _CHANGED),
    "host key unknown": Fault(lambda host: host.bed.head.forget(host.name), 255, "Host key verification failed."),
    "server stopped": Fault(SshHost.stop_sshd, 255, _REFUSED),
    "server does not answer": Fault(SshHost.freeze_sshd, 255, "Connection timed out during banner exchange"),
    "server is full": Fault(_occupied, 255, "kex_exchange_identification: "),  # closed, or reset
    "old server": Fault(
        _set("KexAlgorithms diffie-hellman-group1-sha1"), 255,
        "Unable to negotiate with {address} port 22: no matching key exchange method found.",
    ),
    "no sessions": Fault(_set("MaxSessions 0"), 255, "channel 0: open failed: connect failed: open failed"),
    "host down": Fault(SshHost.down, 255, _NO_ROUTE),
    "packets dropped": Fault(_closed("DROP"), 255, _TIMED_OUT),
    "packets rejected": Fault(_closed("REJECT"), 255, _REFUSED),
    "packets prohibited": Fault(_closed("REJECT", "--reject-with", "icmp-admin-prohibited"), 255, _NO_ROUTE),
    "large packets lost": Fault(lambda host: host.black_hole(1000), 255, "Connection to {address} port 22 timed out"),
    "jump host forwards nothing": Fault(_behind_closed, 255, "stdio forwarding failed"),
    "no login": Fault(
        lambda host: host.login_shell("/usr/sbin/nologin"), 1, "", "This account is currently not available.\n"
    ),
    "terminal required": Fault(
        _set(f"ForceCommand test -t 0 || {{ echo '{_NO_TERMINAL}' >&2; exit 1; }}"), 1, _NO_TERMINAL
    ),
    "sftp only": Fault(
        _set("ForceCommand internal-sftp"), 1, "", "This service allows sftp connections only.\n"
    ),
    "banner": Fault(_banner, 0, "Authorized use only", "hello\n"),
    "profile that prints": Fault(lambda host: host.profile("echo Welcome\n"), 0, "", "Welcome\nhello\n"),
    "profile for a terminal": Fault(
        lambda host: host.profile("stty erase ^H\n"), 0,
        "stty: 'standard input': Inappropriate ioctl for device", "hello\n",
    ),
    "profile that exits": Fault(lambda host: host.profile("exit 3\n"), 3, ""),
    "profile that starts another shell": Fault(lambda host: host.profile("exec dash\n"), 0, ""),
    "home folder missing": Fault(
        _no_home, 0, f"Could not chdir to home directory {HOME}: No such file or directory", "hello\n"
    ),
}  # fmt: skip
SPARE = ("fish", "tcsh", "dash")  # hosts without a fault, with another login shell; the last one is the jump host


def _others_keys(hosts: SshHosts) -> None:
    """Keys that no host accepts, which are offered to one of them before the right one."""
    number = [*FAULTS].index("too many keys") + 1
    hosts.head.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{HOME}/.ssh/other")
    hosts.head.ssh_config(f"Host n{number}\n    IdentityFile ~/.ssh/other\n")


def test_each_fault_gets_the_message_of_ssh(tmp_path: Path) -> None:
    with SshHosts(tmp_path / "hosts", len(FAULTS) + len(SPARE)) as hosts:
        names = dict(zip((*FAULTS, *SPARE), hosts.nodes, strict=True))
        for shell in SPARE:
            hosts[names[shell]].login_shell(shell)
        _others_keys(hosts)
        for title, fault in FAULTS.items():
            fault.plant(hosts[names[title]])
        hosts[hosts.nodes[-1]].configure("AllowTcpForwarding no")
        with ThreadPoolExecutor(6) as threads:
            said = dict(
                zip(names, threads.map(lambda name: hosts.ssh(name, "echo hello"), names.values()), strict=True)
            )
        for title, fault in FAULTS.items():
            name = names[title]
            line = fault.line.format(name=name, address=hosts[name].address)
            assert (said[title].code, said[title].stdout) == (fault.code, fault.out), (title, said[title])
            assert line in said[title].stderr if line else not said[title].stderr, (title, said[title])
        for shell in SPARE:
            assert (said[shell].code, said[shell].stdout, said[shell].stderr) == (0, "hello\n", ""), said[shell]
            assert hosts.ssh(names[shell], "echo $0").stdout.strip() in (shell, f"/usr/bin/{shell}", "")


def _in_session(hosts: SshHosts, name: str, fault: Callable[[SshHost], None]) -> Said:
    """What ssh says when a fault comes while a command runs."""
    process = hosts.head.popen("ssh", *OPTIONS, name, "echo $$; exec sleep 60")
    assert process.stdout is not None and process.stdout.readline()
    begin = time.monotonic()
    fault(hosts[name])
    out, err = process.communicate(timeout=60)
    return Said(process.returncode, out, err, time.monotonic() - begin)


def _kill(*start: str) -> Callable[[SshHost], None]:
    def kill(host: SshHost) -> None:
        found = [pid for pid, command in host.left().items() if command.startswith(start)]
        assert found, host.left()
        for pid in found:
            os.kill(pid, signal.SIGKILL)

    return kill


def _reboot(host: SshHost) -> None:
    before = host.run("cat", "/proc/sys/kernel/random/boot_id").stdout
    host.crash()
    assert not host.left()
    host.boot()
    assert host.run("cat", "/proc/sys/kernel/random/boot_id").stdout not in ("", before)


def test_a_session_is_cut_off(tmp_path: Path) -> None:
    faults: dict[str, tuple[Callable[[SshHost], None], str]] = {
        "n1": (SshHost.down, "Timeout, server n1 not responding.\n"),
        "n2": (_reboot, "client_loop: send disconnect: Broken pipe\n"),
        "n3": (_kill("sshd: trainer@notty"), "Connection to n3 closed by remote host.\n"),
        "n4": (_kill("bash", "sleep"), ""),
    }
    with SshHosts(tmp_path / "hosts", len(faults)) as hosts:
        with ThreadPoolExecutor(len(faults)) as threads:
            said = threads.map(lambda name: _in_session(hosts, name, faults[name][0]), faults)
        for (name, (_, line)), one in zip(faults.items(), said, strict=True):
            assert (one.code, one.stderr) == (255, line), (name, one)
        hosts["n1"].up()
        assert any(command.startswith("sleep") for command in hosts["n1"].left().values()), (
            "it went on without a network"
        )
        assert [*hosts["n3"].idle(0).values()] == ["sleep 60 "], "the end of a session does not end its command"
        hosts["n1"].kill_all()
        hosts["n3"].kill_all()
        for name in faults:
            assert hosts.ssh(name, "echo back").stdout == "back\n"
            assert not hosts[name].idle(10)


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    with SshHosts(tmp_path_factory.mktemp("ssh") / "hosts") as hosts:
        yield hosts


def test_hosts_are_machines_of_their_own(bed: SshHosts) -> None:
    shown = "hostname; id -un; echo $HOME; cat which /proc/sys/kernel/random/boot_id; ls /tmp /dev/shm"
    said = {}
    for name in bed.nodes:
        bed[name].write("which", f"copy of {name}\n")
        bed[name].run("touch", f"/tmp/of-{name}", f"/dev/shm/shm-{name}")
        said[name] = bed.ssh(name, shown).stdout.splitlines()
        assert said[name][:4] == [name, "trainer", HOME, f"copy of {name}"]
        assert f"of-{name}" in said[name] and f"shm-{name}" in said[name]
    assert not {*said["n1"][3:]} & {*said["n2"][3:]} - {"", "/tmp:", "/dev/shm:"}
    assert "eth0" in bed.ssh("n1", "ls /sys/class/net").stdout.split()


def test_processes_are_seen_on_their_host_only(bed: SshHosts) -> None:
    client = bed.head.popen("ssh", *OPTIONS, "n1", "echo ready; exec sleep 12345")
    assert client.stdout is not None and client.stdout.readline() == "ready\n"
    wait_for(lambda: any("12345" in command for command in bed["n1"].left().values()))  # an exec hides it for a moment
    assert "12345" in bed.ssh("n1", _PROCESSES).stdout and "12345" not in bed.ssh("n2", _PROCESSES).stdout
    client.kill()  # the pid is the client's own
    client.communicate()
    assert not bed["n2"].idle(10) and not bed.head.idle(10)
    bed["n1"].kill_all()
    assert not bed["n1"].idle(10) and bed.ssh("n1", "true").code == 0


def test_mgpu_runs_as_the_user_here_and_there(bed: SshHosts) -> None:
    started = bed.start("head", "--version")
    out, err = started.communicate(timeout=60)
    assert started.returncode == 0 and out.startswith("mgpu"), err
    here = bed.head.run(sys.executable, "-c", "import os; print(os.getuid(), os.getcwd(), os.environ['HOME'])").stdout
    assert here.split() == [str(bed.uid), f"{HOME}/project", HOME]
    assert bed.ssh("n1", sys.executable, "-m", "mgpu", "--version").stdout == out


def test_projects_have_the_same_commit_until_one_differs(bed: SshHosts) -> None:
    git = ("git", "-c", "user.name=trainer", "-c", "user.email=trainer@example.org")
    bed.head.write("project/train.py", "print(1)\n")
    for command in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "first")):
        done = bed.head.run(*git, *command)
        assert done.returncode == 0, done.stderr
    bed.copy_project()
    ask = "cd project && git rev-parse HEAD && git status --short"
    commits = {name: bed.ssh(name, ask).stdout for name in bed.nodes}
    assert len({*commits.values()}) == 1 and len(commits["n1"].split()) == 1, commits
    bed["n2"].write("project/train.py", "print(2)\n")
    assert bed.ssh("n2", ask).stdout == commits["n1"] + " M train.py\n"


def test_what_is_missing_on_a_host(tmp_path: Path) -> None:
    with SshHosts(tmp_path / "hosts", 3) as hosts:
        one, two, three = (hosts[name] for name in hosts.nodes)
        one.small_shm("64M")
        one.disk(f"{HOME}/project/checkpoints", "1M")
        one.clock(-400)
        assert hosts.ssh("n1", "df --output=size -m /dev/shm").stdout.split()[-1] == "64"
        assert "No space left on device" in hosts.ssh("n1", "echo 1 > project/checkpoints/x").stderr
        now = int(hosts.ssh("n1", "date +%s").stdout), int(one.run("date", "+%s").stdout)
        assert all(300 < time.time() - seconds < 420 for seconds in now), now
        two.python(None)
        assert hosts.ssh("n2", sys.executable, "-V").code == 127
        three.python(os.path.realpath(sys.executable))
        assert (
            hosts.ssh("n3", sys.executable, "-c", "'import torch'").stderr.rstrip().endswith("No module named 'torch'")
        )
        three.replace(version := str(ROOT / "mgpu" / "__init__.py"), "changed = True\n")
        assert hosts.ssh("n3", "cat", version).stdout == "changed = True\n"
        assert hosts.ssh("n1", "cat", version).stdout == Path(version).read_text()
        three.mtu(1400)
        assert "mtu 1400" in hosts.ssh("n3", "ip link show eth0").stdout
        hosts.second_network()
        assert "10.201.0.2/24" in hosts.ssh("n2", "ip -4 addr show eth1").stdout
        two.slow("2mbit")
        said = hosts.ssh("n2", "head -c 300000 /dev/zero | wc -c; head -c 300000 /dev/zero")
        assert said.seconds > 1 and len(said.stdout) > 300000  # 1.2 s by the rate


def test_keys_agents_and_a_jump_host(tmp_path: Path) -> None:
    with SshHosts(tmp_path / "hosts", 2) as hosts:
        hosts["n2"].only_through("n1")
        assert hosts.ssh("n2", "echo $SSH_CONNECTION").stdout.startswith(hosts["n1"].address)
        hosts.head.encrypt_key("secret")
        denied = hosts.ssh("n1", "true")
        assert (denied.code, denied.stderr) == (255, "trainer@n1: Permission denied (publickey).\n")
        (hosts.head.home / ".ssh" / "id_ed25519").write_bytes((hosts.folder / "key").read_bytes())
        hosts.head.agent()
        hosts.head.encrypt_key("secret")
        assert hosts.ssh("n2", "hostname").stdout == "n2\n"
        assert hosts.head.idle(0), "the agent"


@pytest.mark.parametrize("uid", [None, 0])
def test_a_host_can_be_the_head(tmp_path: Path, uid: int | None) -> None:
    with SshHosts(tmp_path / "hosts", 2, head="n1", uid=uid) as hosts:
        assert hosts.names == ["n1", "n2"] and hosts.head is hosts["n1"]
        assert hosts.ssh("n2", "id -un; hostname").stdout == "trainer\nn2\n"
        assert hosts.ssh("n1", "hostname").stdout == "n1\n"
        config = hosts.head.run("ssh", "-G", "n2").stdout
        assert "identityfile ~/.ssh/id_ed25519\n" in config
        assert hosts.head.run("sh", "-c", "echo ~").stdout == f"{HOME}\n"


def test_many_servers_on_the_head(tmp_path: Path) -> None:
    with SshHosts(tmp_path / "hosts", 1) as hosts:
        names = hosts.many(64)
        ask = "for name; do ssh -o BatchMode=yes $name hostname || exit; done"
        assert hosts.head.run("sh", "-c", ask, "sh", "m1", "m33", "m64").stdout.split() == ["m1", "m33", "m64"]
        assert len(names) == 64 and hosts.head.run("getent", "hosts", "m64").stdout.split() == ["127.0.0.73", "m64"]
        assert not hosts.head.idle(10)


def _start_of(pid: int) -> str | None:
    """When a process started, in the kernel's ticks; None if it has ended."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if state == "Z" else rest[18]


def test_nothing_stays_after_the_end(tmp_path: Path) -> None:
    with SshHosts(tmp_path / "hosts", 1) as hosts:
        client: subprocess.Popen[str] = hosts.head.popen(
            "ssh", *OPTIONS, "n1", "echo ready; trap '' TERM HUP; sleep 60"
        )
        assert client.stdout is not None and client.stdout.readline()
        started = {pid: _start_of(pid) for pid in (*hosts.left("n1"), *hosts.left("head"))}
        assert len(started) >= 4 and all(started.values())
    client.communicate(timeout=10)
    assert not [pid for pid, at in started.items() if _start_of(pid) == at]  # else another one's
