"""Hosts that are reached by ssh: a real OpenSSH server on each host of a network of namespaces, and the machine "head",
from which a user reaches them.

Each host has processes, user accounts, home folder, /tmp, /dev/shm, /run, boot id and host key of its own. The user
`trainer` has the same home path everywhere, with other content. Nothing of this machine's ~/.ssh or /etc/ssh is used.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tests import ssh_mounts
from tests.conftest import missing, need
from tests.hosts import Network
from tests.ssh_host import PROJECT, USER, SshHost
from tests.terminal import Terminal

_UID = 4711
_CLONE_NEWPID = 0x20000000
_CLIENT = """\
Host n* m*
    IdentityFile ~/.ssh/id_ed25519
    UserKnownHostsFile ~/.ssh/known_hosts
    ControlPath ~/.ssh/cm/%C
"""
_NSSWITCH = "passwd: files\ngroup: files\nshadow: files\nhosts: files\n"
# As in a script or a tool: it never asks, and gives up early.
OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-o", "ServerAliveInterval=3")


@dataclass(frozen=True)
class Said:
    """How an ssh command ended."""

    code: int
    stdout: str
    stderr: str
    seconds: float


class SshHosts(Network):
    """Hosts n1 … with sshd, and a head; `head`: "head" (one more machine, without sshd), or "n1": that host is it.

    `uid`: of the user; None: an ordinary user's, or 0 if an ordinary user cannot read the Python under test.
    """

    def __init__(self, folder: Path, count: int = 2, *, head: str = "head", uid: int | None = None) -> None:
        super().__init__(folder, count)
        for tool in ("sshd", "ssh", "ssh-keygen"):
            need(tool)
        self.nodes = list(self.names)
        if head not in self.names:
            self.names.append(head)
        self.uid = uid if uid is not None else (_UID if ssh_mounts.readable_by_others() else 0)
        self._hosts = {name: SshHost(self, name) for name in self.names}
        self.head = self._hosts[head]
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._own: dict[str, set[int]] = {}

    def __getitem__(self, name: str) -> SshHost:
        return self._hosts[name]

    def __enter__(self) -> SshHosts:
        self.folder.mkdir(parents=True, exist_ok=True)
        _keygen(self.folder / "key")
        try:
            super().__enter__()
            self._client()
            for name in self.nodes:
                self[name].start_sshd(wait=False)
            for name in self.nodes:
                self[name].wait_for_sshd()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)  # a holder is its host's init: all processes end with it
        for host in self._hosts.values():
            host.ended()
        for thread in self._threads.values():
            thread.shutdown()

    def ssh(self, target: str, *command: str, options: Sequence[str] = OPTIONS, timeout: float = 120) -> Said:
        """`ssh OPTIONS TARGET COMMAND` as the head's user."""
        begin = time.monotonic()
        done = self.head.run("ssh", *options, target, *command, timeout=timeout)
        return Said(done.returncode, done.stdout, done.stderr, time.monotonic() - begin)

    def start(self, name: str, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """`python -m mgpu ARGUMENTS` by the user of a host, in its project folder."""
        return self[name].start(*arguments, env=env)

    def left(self, name: str) -> list[int]:
        """Processes on a host, except those that hold it and the servers that wait for connections."""
        return [pid for pid in super().left(name) if pid not in self._own[name] and not _is_listener(pid)]

    def many(self, count: int) -> list[str]:
        """Start `count` servers on the head, at 127.0.0.10 and up, with host names of their own: m1, m2 …

        They share everything but the host name: files, processes, user, host key.
        """
        names = [f"m{number}" for number in range(1, count + 1)]
        self.head.start_many({name: f"127.0.0.{number}" for number, name in enumerate(names, 10)})
        return names

    def copy_project(self) -> None:
        """Copy the head's project folder to all hosts, so that they have the same commit."""
        for name in self.nodes:
            if (host := self[name]) is not self.head:
                shutil.copytree(self.head.project, host.project, symlinks=True, dirs_exist_ok=True)
                self.owned(host.project)

    def owned(self, *places: Path) -> None:
        """Make the user the owner of files and of what is below them."""
        for place in places:
            for path in (place, *place.rglob("*")):
                os.chown(path, self.uid, self.uid, follow_symlinks=False)

    def popen(self, name: str, command: Sequence[str], **options: object) -> subprocess.Popen[str]:
        """Start a root's process in a host's namespaces; its pid is the one of `command` itself."""
        starts: Callable[..., subprocess.Popen[str]] = subprocess.Popen
        return self._threads[name].submit(starts, self._entering(name, command), **options).result()

    def shape(self, name: str, device: str, *discipline: str) -> None:
        """`tc qdisc replace` on a device of a host or of the "switch"."""
        try:
            self._inside(name, "tc", "qdisc", "replace", "dev", device, "root", *discipline)
        except AssertionError as error:
            missing(f"this kernel cannot slow a link: {error}")

    def inside(self, name: str, *command: str) -> str:
        """A command as root on a host, which must succeed: its output."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = self.popen(name, command, stdin=subprocess.DEVNULL, **pipes)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, f"{command}: {err}"
        return out

    def terminal(self, name: str, command: Sequence[str]) -> Terminal:
        """Start a root's program of a host at a terminal of its own."""
        entering = self._entering(name, command)
        entering.insert(entering.index("-n"), f"--pid=/proc/{self._holders[name].pid}/ns/pid_for_children")
        return Terminal(entering, env={"PATH": os.environ["PATH"]}, cwd=Path("/"), columns=160)

    def _inside(self, name: str, *command: str) -> None:
        if name in self._threads:
            self.inside(name, *command)
        else:
            super()._inside(name, *command)

    def _entering(self, name: str, command: Sequence[str]) -> list[str]:
        if name not in self._hosts:
            return super()._entering(name, command)
        inside = ["sh", "-c", f'cd {PROJECT} && exec "$@"', "sh"]
        return ["nsenter", "-t", str(self._holders[name].pid), "-n", "-m", "-u", *inside, *command]

    def _hold(self, name: str) -> None:
        if name not in self._hosts:
            super()._hold(name)
            return
        folder = self.folder / name
        self._files(name, folder)
        spaces = [
            "unshare",
            "-n",
            "-m",
            "-u",
            "-p",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "--propagation",
            "private",
        ]
        script = folder / "start"
        script.write_text(ssh_mounts.script(folder, self.folder / f"{name}.hosts", name))
        holder = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *spaces, "sh", "-e", str(script)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
        )
        self._holders[name] = holder
        assert holder.stdout is not None and holder.stderr is not None
        if holder.stdout.readline().strip() != "ready":
            missing(f"hosts of namespaces are not possible here: {holder.stderr.read().strip()}")
        self._own[name] = set(super().left(name))
        self._threads[name] = ThreadPoolExecutor(1, initializer=_enter_processes, initargs=(holder.pid,))

    def _files(self, name: str, folder: Path) -> None:
        """The accounts, keys, home and project folder of a host."""
        home = folder / "home" / USER
        for place in (folder / "etc", folder / "ssh", home / ".ssh" / "cm", home / "project"):
            place.mkdir(parents=True)
        for file, text in {
            "group": f"root:x:0:\ntty:x:5:\nnogroup:x:65534:\n{USER}:x:{self.uid}:\n",
            "nsswitch.conf": _NSSWITCH,
            "machine-id": uuid.uuid4().hex + "\n",
            "boot_id": f"{uuid.uuid4()}\n",
        }.items():
            (folder / "etc" / file).write_text(text)
        host = self[name]
        host.account()
        _keygen(folder / "ssh" / "ssh_host_ed25519_key")
        shutil.copyfile(self.folder / "key.pub", home / ".ssh" / "authorized_keys")
        (home / ".ssh").chmod(0o700)
        self.owned(home)

    def _client(self) -> None:
        """The head's ssh configuration, key and the host keys that it knows."""
        ssh = self.head.home / ".ssh"
        for own, there in (("key", "id_ed25519"), ("key.pub", "id_ed25519.pub")):
            shutil.copy(self.folder / own, ssh / there)
        (ssh / "config").write_text(_CLIENT)
        self.head.known([self[name].known_line() for name in self.nodes])
        self.owned(ssh)


def _enter_processes(pid: int) -> None:
    """Move what this thread starts into a host's PID namespace; no program in between, so that `Popen.pid` is right."""
    space = os.open(f"/proc/{pid}/ns/pid_for_children", os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(space, _CLONE_NEWPID):
        raise OSError(ctypes.get_errno(), "setns")
    os.close(space)


def _is_listener(pid: int) -> bool:
    with contextlib.suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        return command.startswith(b"sshd: ") and b"[listener]" in command
    return False


def _keygen(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", USER, "-f", str(path)], check=True)
