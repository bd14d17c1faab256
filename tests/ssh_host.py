"""One host of `ssh_hosts.SshHosts`: what a test does there, and the faults it plants."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tests.conftest import ROOT, STARTUP, environment, missing, need

if TYPE_CHECKING:
    from tests.ssh_hosts import SshHosts
    from tests.terminal import Terminal

USER = "trainer"
HOME = f"/home/{USER}"
PROJECT = f"{HOME}/project"
_START_S = 20.0
_SERVER = """\
Port 22
HostKey /etc/ssh/ssh_host_ed25519_key
PidFile none
UsePAM no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
PrintMotd no
PrintLastLog no
AcceptEnv LANG LC_*
Subsystem sftp internal-sftp
"""
_OUTSIDE = ("TMPDIR", "XDG_STATE_HOME", "XDG_CACHE_HOME")
_MANY = """\
for pair in "$@"; do
    unshare -u sh -c 'hostname "$1"; exec "$3" -D -e -o ListenAddress="$2"' sh "${pair%=*}" "${pair#*=}" "$0" &
done
"""


class SshHost:
    """A host by name. `home` and `project` are where a test reads and writes its files."""

    def __init__(self, bed: SshHosts, name: str) -> None:
        self.bed, self.name = bed, name
        self.folder = bed.folder / name
        self.home = self.folder / "home" / USER
        self.project = self.home / "project"
        self.log = self.folder / "sshd.log"
        self.env: dict[str, str] = {}  # added to the variables of what starts there
        self._servers: list[subprocess.Popen[str]] = []
        self._lines: list[str] = []
        self._shell = need("bash")

    @property
    def address(self) -> str:
        """The host's IPv4 address on the first network."""
        return f"10.200.0.{self.bed.names.index(self.name) + 1}"

    # What a test does there.

    def command(self, *command: str, env: Mapping[str, str] | None = None) -> list[str]:
        """The arguments that run a command as the user, with a login's environment, if root starts them on the host."""
        user = {"USER": USER, "LOGNAME": USER, "SHELL": self._shell}
        values = environment(Path(HOME), {**user, **self.env, **(env or {})}, _OUTSIDE)
        uid = str(self.bed.uid)
        become = ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups"]
        return [*become, "env", "-i", *(f"{name}={value}" for name, value in values.items()), *command]

    def popen(self, *command: str, env: Mapping[str, str] | None = None, **options: object) -> subprocess.Popen[str]:
        """Start a command as the user, with options of `subprocess.Popen`. A signal reaches the command itself."""
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        texts = {"text": True, "errors": "replace"}
        return self.bed.popen(self.name, self.command(*command, env=env), **{**streams, **texts, **options})

    def terminal(self, *arguments: str, env: Mapping[str, str] | None = None) -> Terminal:
        """`python -m mgpu ARGUMENTS` as the user of the host, at a terminal."""
        variables = {"TERM": "xterm-256color", **(env or {})}
        return self.bed.terminal(self.name, self.command(sys.executable, "-m", "mgpu", *arguments, env=variables))

    def run(
        self, *command: str, env: Mapping[str, str] | None = None, stdin: str = "", timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as the user of the host, not through ssh."""
        process = self.popen(*command, env=env, stdin=subprocess.PIPE)
        try:
            out, err = process.communicate(stdin, timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def start(self, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """`python -m mgpu ARGUMENTS` as the user of the host, in its project folder."""
        return self.popen(sys.executable, "-m", "mgpu", *arguments, env=env)

    def root(self, *command: str) -> str:
        """Run a command there as root, which must succeed: its output."""
        return self.bed.inside(self.name, *command)

    def write(self, place: str, text: str) -> Path:
        """Write a file of the user; `place` is below the home folder, as "project/train.py"."""
        path = self.home / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self.bed.owned(*[one for one in (path, *path.parents) if one.is_relative_to(self.home)][:-1])
        return path

    def left(self) -> dict[int, str]:
        """The processes on the host by their pid here, with command line, without the bed's own."""
        found = {}
        for pid in self.bed.left(self.name):
            with contextlib.suppress(OSError):
                found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        return found

    def idle(self, seconds: float) -> dict[int, str]:
        """Wait at most so long until nothing is left on the host: what still is."""
        end = time.monotonic() + seconds
        while (found := self.left()) and time.monotonic() < end:
            time.sleep(0.05)
        return found

    # Its server.

    def start_sshd(self, *, wait: bool = True) -> None:
        """Start the server, with the lines of `configure` before its own."""
        # Without the folder of mgpu, which need not be on a host.
        values = {"PYTHONPATH": str(STARTUP), **self.env}
        variables = " ".join(f'"{name}={value}"' for name, value in values.items())
        lines = [*self._lines, f"SetEnv {variables}", _SERVER]
        (self.folder / "ssh" / "sshd_config").write_text("\n".join(lines))
        self._serve([need("sshd"), "-D", "-e"])
        if wait:
            self.wait_for_sshd()

    def wait_for_sshd(self, count: int = 1) -> None:
        """Until the server, or so many of them, waits for connections."""
        end = time.monotonic() + _START_S
        while (said := self.log.read_text(errors="replace")).count("Server listening on") < count:
            if time.monotonic() > end or self._servers[-1].poll():
                missing(f"sshd does not start here: {said[-600:]}")
            time.sleep(0.02)

    def stop_sshd(self, *, sessions: bool = False) -> None:
        """Stop the server: connections are refused. `sessions`: end those that there are, too."""
        for server in self._servers:
            server.kill()
            server.wait()
        self._servers.clear()
        if sessions:
            self.kill_all()

    def freeze_sshd(self) -> None:
        """Stop the server with SIGSTOP: the kernel accepts a connection, then nothing comes."""
        for server in self._servers:
            server.send_signal(signal.SIGSTOP)

    def thaw_sshd(self) -> None:
        """The server goes on after `freeze_sshd`."""
        for server in self._servers:
            server.send_signal(signal.SIGCONT)

    def configure(self, *lines: str) -> None:
        """Put lines before those of sshd_config, where the first value of an option counts, and restart the server."""
        self.stop_sshd()
        self._lines = [*lines, *self._lines]
        self.start_sshd()

    def start_many(self, addresses: Mapping[str, str]) -> None:
        """Servers at addresses of the loopback network, by host name; the user's ssh knows them all."""
        key = (self.folder / "ssh" / "ssh_host_ed25519_key.pub").read_text().split()[1]
        self.known([*self._known().splitlines(), f"127.0.0.* ssh-ed25519 {key}"])
        self.ssh_config("".join(f"Host {name}\n    HostName {address}\n" for name, address in addresses.items()))
        self.bed.knows(self.name, **addresses)
        (self.folder / "ssh" / "sshd_config").write_text(_SERVER)
        pairs = [f"{name}={address}" for name, address in addresses.items()]
        self._serve(["sh", "-c", _MANY, need("sshd"), *pairs])
        self.wait_for_sshd(len(addresses))

    def _serve(self, command: list[str]) -> None:
        self.log.write_text("")
        with open(self.log, "ab") as log:
            self._servers.append(
                self.bed.popen(
                    self.name,
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    env={"PATH": os.environ["PATH"]},
                    text=True,
                )
            )

    def ended(self) -> None:
        """Collect the servers, which the end of the host has killed."""
        for server in self._servers:
            server.wait(10)

    # Who may come in.

    def account(
        self, *, shell: str | None = None, password: str = "*", last_change: str = "19000:0:99999:7:::"
    ) -> None:
        """Write the accounts: the user's login shell; its fields of /etc/shadow."""
        self._shell = shell or self._shell
        entry = f"{USER}:x:{self.bed.uid}:{self.bed.uid}::{HOME}:{self._shell}\n"
        server = "sshd:x:103:65534::/run/sshd:/usr/sbin/nologin\n"
        etc = self.folder / "etc"  # written in place: the files are mounted
        (etc / "passwd").write_text(f"{entry}root:x:0:0:root:/root:/bin/sh\n{server}")
        (etc / "shadow").write_text(f"{USER}:{password}:{last_change}\nroot:*:19000:0:99999:7:::\n")

    def login_shell(self, name: str) -> None:
        """Another login shell: a program's name, as "fish", or a path, which need not be there."""
        self.account(shell=name if "/" in name else need(name))

    def profile(self, text: str, *files: str) -> None:
        """Lines at the start of the files that shells read for a command: bash, tcsh and fish."""
        for file in files or (".bashrc", ".profile"):
            self.write(file, text)

    def refuse_key(self) -> None:
        """Remove the user's key from authorized_keys."""
        self.write(".ssh/authorized_keys", "")

    def new_host_key(self) -> None:
        """A machine that was installed again: another host key than the one that is known."""
        for file in (self.folder / "ssh").glob("ssh_host_*"):
            file.unlink()
        key = self.folder / "ssh" / "ssh_host_ed25519_key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        self.configure()

    def known_line(self) -> str:
        """The host's line of known_hosts."""
        key = (self.folder / "ssh" / "ssh_host_ed25519_key.pub").read_text().split()[1]
        return f"{self.name},{self.address} ssh-ed25519 {key}"

    # Of the head: its user's ssh.

    def known(self, lines: list[str]) -> None:
        """The lines of the user's known_hosts."""
        self.write(".ssh/known_hosts", "".join(f"{line}\n" for line in lines))

    def forget(self, name: str) -> None:
        """A host that the user has never connected to."""
        self.known([line for line in self._known().splitlines() if not line.startswith(f"{name},")])

    def ssh_config(self, text: str) -> None:
        """Put lines before those of ~/.ssh/config, where the first value of an option counts."""
        config = self.home / ".ssh" / "config"
        self.write(".ssh/config", text + config.read_text())

    def encrypt_key(self, passphrase: str) -> None:
        """Protect the user's key with a passphrase."""
        self._keygen("-p", "-P", "", "-N", passphrase)

    def agent(self) -> None:
        """Start an agent that holds the user's key, which has no passphrase yet, for all commands that follow."""
        socket = f"{HOME}/.ssh/agent"
        self.run("ssh-agent", "-a", socket)
        self.env["SSH_AUTH_SOCK"] = socket
        added = self.run("ssh-add", "-q")
        assert added.returncode == 0, added.stderr

    def _keygen(self, *options: str) -> None:
        done = self.run("ssh-keygen", "-q", *options, "-f", f"{HOME}/.ssh/id_ed25519")
        assert done.returncode == 0, done.stderr

    def _known(self) -> str:
        return (self.home / ".ssh" / "known_hosts").read_text()

    # The machine and its network.

    def kill_all(self) -> None:
        """Kill everything on the host but its server, and wait for the end of it."""
        end = time.monotonic() + _START_S
        while pids := self.bed.left(self.name):
            assert time.monotonic() < end, self.left()
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    def down(self) -> None:
        """The cable is pulled: nothing comes or goes, nothing on the host ends."""
        self.bed.link("switch", self._port, "down")

    def up(self) -> None:
        """The cable is back."""
        self.bed.link("switch", self._port, "up")

    def crash(self) -> None:
        """The host loses power: it ends without a word to those that are connected."""
        self.down()
        self.root("ss", "-K", "state", "connected")  # or the kernel would still say goodbye when the cable is back
        self.stop_sshd(sessions=True)

    def boot(self) -> None:
        """The host comes back after `crash`, with a new boot id."""
        (self.folder / "etc" / "boot_id").write_text(f"{uuid.uuid4()}\n")
        self.up()
        self.start_sshd()

    def mtu(self, size: int) -> None:
        """The MTU of the host's interface."""
        self.bed.link(self.name, "eth0", "mtu", str(size))

    def black_hole(self, size: int) -> None:
        """Larger frames to or from the host are lost on the way, while its own MTU stays as it is."""
        self.bed.link("switch", self._port, "mtu", str(size))

    def slow(self, rate: str, delay_ms: int = 0) -> None:
        """A slow link in both directions: a rate of tc, as "10mbit"; a delay each way needs netem in the kernel."""
        need("tc")
        shaper = ["tbf", "rate", rate, "burst", "32kbit", "latency", "400ms"]
        if delay_ms:
            shaper = ["netem", "rate", rate, "delay", f"{delay_ms}ms"]
        for where, device in ((self.name, "eth0"), ("switch", self._port)):
            self.bed.shape(where, device, *shaper)

    def only_through(self, jump: str) -> None:
        """A host that only `jump` can connect to, and the head's user knows: ProxyJump."""
        self.bed.firewall(self.name, "-A", "INPUT", "-i", "eth0", "-s", self.bed[jump].address, "-j", "ACCEPT")
        self.bed.firewall(self.name, "-A", "INPUT", "-i", "eth0", "-p", "tcp", "--syn", "-j", "DROP")
        self.bed.head.ssh_config(f"Host {self.name}\n    ProxyJump {jump}\n")

    @property
    def _port(self) -> str:
        return f"port{self.bed.names.index(self.name) + 1}"

    # What is missing there.

    def small_shm(self, size: str) -> None:
        """The size of /dev/shm, as "64M"."""
        self.root("mount", "-o", f"remount,size={size}", "/dev/shm")

    def disk(self, place: str, size: str, *, full: bool = True) -> None:
        """A disk of its own at a path of the host, of a size as "4M"; `full`: there is nothing left of it."""
        uid = self.bed.uid
        self.root(
            "sh",
            "-ec",
            'mkdir -p "$1"; mount -t tmpfs -o "size=$2,uid=$3,gid=$3" tmpfs "$1"',
            "sh",
            place,
            size,
            str(uid),
        )
        if full:
            self.root("sh", "-c", 'cat /dev/zero > "$1/.filler" 2>/dev/null; :', "sh", place)

    def python(self, other: str | None) -> None:
        """What is at the path of the Python under test: another interpreter, or nothing."""
        self.root("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", sys.prefix)
        if other:
            self.root("sh", "-ec", 'mkdir -p "${1%/*}"; ln -s "$2" "$1"', "sh", sys.executable, other)

    def clock(self, seconds: int) -> None:
        """What programs of the host that start from now on take for the time of day is off by so much."""
        library = self.folder / "clock.so"
        subprocess.run(
            [need("cc"), "-shared", "-fPIC", "-o", str(library), str(ROOT / "tests/clock_shift.c"), "-ldl"], check=True
        )
        (self.folder / "clock").write_text(f"{seconds}\n")
        self.set_env(LD_PRELOAD=self.put(library), CLOCK_SHIFT=self.put(self.folder / "clock"))

    def put(self, source: Path) -> str:
        """Copy a file or folder of the test, whose own folder is not there, to the host: its path there."""
        copy = self.folder / "home" / source.name
        if source.is_dir():
            shutil.copytree(source, copy, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.copy(source, copy)
        return f"/home/{source.name}"

    def replace(self, path: str, text: str) -> None:
        """Another text in a file of the host, as of torch/version.py; the real one is kept."""
        copy = self.folder / f"{uuid.uuid4()}.replaced"
        copy.write_text(text)
        self.root("mount", "--bind", self.put(copy), path)

    def set_env(self, **values: str) -> None:
        """Variables of all that starts on the host from now on, in sessions of ssh too."""
        self.env |= values
        if self._servers:
            self.configure()
