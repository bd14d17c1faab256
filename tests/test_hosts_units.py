"""Machines that are reached with ssh: their names, ssh's messages, what travels, and which host is to blame."""

from __future__ import annotations

import json
import os
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from mgpu.config.reading import parse_config
from mgpu.errors import USAGE, MgpuError
from mgpu.fleet import (
    allocation,
    derived_config,
    far_side,
    framing,
    hosts_config,
    hosts_run,
    hosts_verdict,
    route,
    verified_hosts,
)
from mgpu.fleet.verified_hosts import Tested as Passed
from mgpu.hosts import payload, ssh, ssh_errors
from mgpu.hosts.named_hosts import MOST, Host, read_hosts
from mgpu.launchers.project_folder import FOLDER
from mgpu.smoke.ranks.rank_plan import Orders
from mgpu.smoke.request import Request as SmokeRequest
from mgpu.snapshot import Fleet, NodeAddresses, NodePath
from mgpu.snapshot.networking import Interface

# ---- names


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,b", [Host("a"), Host("b")]),
        ("a b", [Host("a"), Host("b")]),
        ("node[1-3]", [Host("node1"), Host("node2"), Host("node3")]),
        ("n[08-10],x", [Host("n08"), Host("n09"), Host("n10"), Host("x")]),
        ("me@n1:2222", [Host("n1", "me", 2222)]),
        ("me@n[1-2]:2222", [Host("n1", "me", 2222), Host("n2", "me", 2222)]),
        ("10.0.0.7", [Host("10.0.0.7")]),
        ("fe80::1%eth0", [Host("fe80::1%eth0")]),
        ("[fe80::1]:2222", [Host("fe80::1", "", 2222)]),
        ("me@[fe80::1]:2222,b", [Host("fe80::1", "me", 2222), Host("b")]),
        ("me@fe80::1", [Host("fe80::1", "me")]),
        ("localhost,b", [Host("localhost", local=True), Host("b")]),
        ("me@localhost", [Host("localhost", "me")]),
        ("localhost:2222", [Host("localhost", "", 2222)]),
        (socket.gethostname(), [Host(socket.gethostname(), local=True)]),
    ],
)
def test_hosts_are_named(text: str, expected: list[Host]) -> None:
    assert [*read_hosts(text)] == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no host"),
        (" , ", "no host"),
        ("a,a", "a is named twice"),
        ("me@a,you@a", "a is named twice"),
        ("-oProxyCommand=x", "is not a host"),
        ("me@-oProxyCommand=x", "is not a host"),
        ("-l@a", "is not a host"),
        ("a;reboot", "is not a host"),
        ("$(reboot)", "is not a host"),
        ("a:0", "0 is not a port"),
        ("a:65536", "65536 is not a port"),
        ("a:ssh", "is not a host"),
        ("n[1-", "unmatched bracket"),
        ("n[a-b]", "is not a number or range"),
        ("n[3-1]", "runs backwards"),
        ("n[1-99999999]", "more than"),
        (f"n[1-{MOST + 1}]", f"{MOST + 1} hosts, at most {MOST}"),
        ("./missing", "No such file"),
        ("/", "it is a folder"),
    ],
)
def test_what_is_not_a_host(text: str, said: str) -> None:
    with pytest.raises(MgpuError, match=re.escape(said)) as caught:
        read_hosts(text)
    assert caught.value.exit_code == USAGE


def test_a_file_of_hosts(tmp_path: Path) -> None:
    file = tmp_path / "hosts.txt"
    file.write_text("# ours\n\nn1 slots=4\nme@n[2-3]:2222  slots = 2 # new\n10.0.0.9\n[fe80::1]\n")
    assert [*read_hosts(str(file))] == [
        Host("n1", slots=4), Host("n2", "me", 2222, 2), Host("n3", "me", 2222, 2), Host("10.0.0.9"), Host("fe80::1"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("n1 max_slots=4", "not understood"),
        ("n1 4", "not understood"),
        ("-F/tmp/x", "is not a host"),
        ("n1\nn1", "named twice"),
        ("# nothing", "no host"),
        ("\x00", "is not a host"),
    ],
)
def test_what_is_wrong_in_a_file_of_hosts(line: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text(f"{line}\n")
    with pytest.raises(MgpuError, match=said):
        read_hosts(str(file))


# ---- ssh


def test_no_name_is_read_as_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a host that was not parsed comes after "--"."""
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    words = ssh.command(Host("-oProxyCommand=reboot", port=22))
    assert words[words.index("--") + 1 :] == ["-oProxyCommand=reboot", ssh.REMOTE]
    assert words[0] == "/usr/bin/ssh" and "BatchMode=yes" in words
    assert ssh.command(Host("localhost", local=True)) == ["/bin/sh", "-c", ssh.REMOTE]


def test_a_missing_ssh_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(MgpuError, match="ssh is not on PATH"):
        ssh.command(Host("n1"))


def test_every_login_shell_reads_the_remote_command_alike() -> None:
    """One quoted word for sh, without what csh, tcsh and fish read in another way inside single quotes."""
    assert ssh.REMOTE.startswith("/bin/sh -c '") and ssh.REMOTE.endswith("'")
    assert ssh.REMOTE.count("'") == 2
    assert not set(ssh.REMOTE) & set("\\!\n")


def test_what_travels_has_no_newline_inside() -> None:
    """Each of the three values is one line, as the far side reads them."""
    lines = ssh.opening("/env/bin/python", payload.program(), payload.message(name="n1", folder="/a\nb", wanted="/p"))
    assert [line.count("\n") for line in lines] == [1, 1, 1] and all(line.endswith("\n") for line in lines)


@pytest.mark.parametrize(
    ("kind", "code", "said"),
    [
        (ssh_errors.KEY, 255, "trainer@n1: Permission denied (publickey)."),
        (ssh_errors.KEY, 255, "trainer@n1: Permission denied (publickey,password)."),
        (ssh_errors.KEY, 255, "Received disconnect from 10.200.0.6 port 22:2: Too many authentication failures"),
        (ssh_errors.KEY, 255, "sign_and_send_pubkey: signing failed for ED25519 from agent: agent refused operation"),
        (ssh_errors.HOST_KEY_CHANGED, 255, "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\n"
                                           "Host key for n1 has changed and you have requested strict checking."),
        (ssh_errors.HOST_KEY_NEW, 255, "Host key verification failed."),
        (ssh_errors.HOST_KEY_NEW, 255, "No ED25519 host key is known for n2 and you have requested strict checking."),
        (ssh_errors.CLOSED, 255, "ssh: connect to host n1 port 22: Connection refused"),
        (ssh_errors.DOWN, 255, "ssh: connect to host n1 port 22: Connection timed out"),
        (ssh_errors.DOWN, 255, "ssh: connect to host n1 port 22: No route to host"),
        (ssh_errors.DOWN, 255, "Connection timed out during banner exchange"),
        (ssh_errors.DOWN, 255, "Connection to 10.200.0.2 port 22 timed out"),
        (ssh_errors.NO_NAME, 255, "ssh: Could not resolve hostname n7: Name or service not known"),
        (ssh_errors.BUSY, 255, "kex_exchange_identification: Connection closed by remote host"),
        (ssh_errors.BUSY, 255, "kex_exchange_identification: read: Connection reset by peer"),
        (ssh_errors.BUSY, 255, "channel 0: open failed: connect failed: open failed"),
        (ssh_errors.CONFIG, 255, "Unable to negotiate with 10.200.0.2 port 22: no matching key exchange method found."),
        (ssh_errors.JUMP, 255, "channel 0: open failed: administratively prohibited: open failed\n"
                               "stdio forwarding failed\nConnection closed by UNKNOWN port 65535"),
        (ssh_errors.CONFIG, 255, "/home/me/.ssh/config: line 3: Bad configuration option: foo\n"
                                 "/home/me/.ssh/config: terminating, 1 bad configuration options"),
        (ssh_errors.CONFIG, 255, "Bad owner or permissions on /home/me/.ssh/config"),
        (ssh_errors.ACCOUNT, 1, "This account is currently not available."),
        (ssh_errors.ACCOUNT, 1, "Password change required but no TTY available."),
        (ssh_errors.SHELL, 1, "sorry, you must have a tty"),
        (ssh_errors.SHELL, 1, "This service allows sftp connections only."),
        (ssh_errors.SHELL, 3, ""),
        (ssh_errors.NO_PYTHON, 127, "mgpu: no Python here"),
        (ssh_errors.NO_PYTHON, 127, ""),
        (ssh_errors.OLD_PYTHON, 78, "mgpu: Python 3.8 is too old"),
        (ssh_errors.FULL, 73, "mgpu: no folder for temporary files: /dev/shm: No space left on device"),
        (ssh_errors.LOST, 255, "Timeout, server n1 not responding."),
        (ssh_errors.LOST, 255, "client_loop: send disconnect: Broken pipe"),
        (ssh_errors.LOST, 255, "Connection to n3 closed by remote host."),
        (ssh_errors.SUDO, 1, "sudo: a terminal is required to read the password; either use the -S option to read from "
                             "standard input or configure an askpass helper"),
        (ssh_errors.SUDO, 1, "sudo: a password is required"),
        (ssh_errors.OTHER, 255, ""),
    ],
)  # fmt: skip
def test_messages_of_ssh(kind: str, code: int, said: str) -> None:
    """Recorded in tests/test_ssh_hosts.py, with warnings and a banner before them."""
    noise = "Warning: Permanently added 'n1' (ED25519) to the list of known hosts.\nAuthorized use only\n"
    assert kind in ssh_errors.KINDS
    assert ssh_errors.kind_of(noise + said, code) == kind
    assert ssh_errors.reason(said, code) in (said.splitlines() or [f"exit code {code}, without a message"])


@pytest.mark.parametrize(
    ("line", "address"),
    [
        ('Authenticated to n1 ([10.200.0.1]:22) using "publickey".', "10.200.0.1"),
        ('Authenticated to n1 ([fe80::1%eth0]:22) using "publickey".', "fe80::1"),
        ('Authenticated to n2 (via proxy) using "publickey".', ""),
        ("Transferred: sent 3480, received 3356 bytes, in 0.1 seconds", ""),
        ("Bytes per second: sent 64083.9, received 61800.4", ""),
        ("Permission denied (publickey).", None),
    ],
)
def test_the_address_that_ssh_reached(line: str, address: str | None) -> None:
    assert ssh_errors.remark(line) == address


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("", ("", "")),
        ("/env/bin/python", ("/env/bin/python", "/env/bin/python")),
        ("b=/env/bin/python", ("", "/env/bin/python")),
        ("/p,b=/q", ("/p", "/q")),
        ("/odd=name/python", ("/odd=name/python", "/odd=name/python")),
    ],
)
def test_where_the_python_of_a_host_is(wanted: str, expected: tuple[str, str]) -> None:
    assert tuple(host.python for host in read_hosts("a,b", wanted)) == expected


@pytest.mark.parametrize(("wanted", "said"), [("python3", "absolute path"), ("c=/p", "c is not one of the hosts")])
def test_what_is_no_python_of_a_host(wanted: str, said: str) -> None:
    with pytest.raises(MgpuError, match=said):
        read_hosts("a,b", wanted)


def test_a_python_with_torch_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "you"))
    assert far_side.environment("/home/me/env/bin/python") == ""
    for place in ("you/env", ".venv"):  # below the other home; then in the project, which comes first
        (tmp_path / place / "bin").mkdir(parents=True)
        (tmp_path / place / "bin" / "python").touch(0o755)
        assert far_side.environment("/home/me/env/bin/python") != str(tmp_path / place / "bin" / "python"), "no torch"
        (tmp_path / place / "lib" / "python3.12" / "site-packages" / "torch").mkdir(parents=True)
        assert far_side.environment("/home/me/env/bin/python") == str(tmp_path / place / "bin" / "python")


def test_a_banner_is_not_the_reason() -> None:
    said = "Authorized use only. Permission slips at the desk.\ntrainer@n1: Permission denied (publickey).\n"
    assert ssh_errors.reason(said, 255) == "trainer@n1: Permission denied (publickey)."


def test_messages_between_noise() -> None:
    """Start-up files print lines before ours, text without an end of line, and colors."""
    reader = framing.Reader()
    message = {"event": "output", "text": os.urandom(400).hex()}
    pieces = list(framing.lines(1, message))
    assert len(pieces) == 2 and all(map(framing.is_piece, pieces))
    seen = [
        "Welcome",
        "mgpu 1 2/2",
        "\x1b[1mhello\x1b[0m" + pieces[0].rstrip(),
        "last login: today",
        pieces[1].rstrip(),
    ]
    assert [found for line in seen if (found := reader.take(line)) is not None] == [message]


# ---- which way, and who is to blame


def _interface(name: str, address: str) -> Interface:
    return Interface(name, True, False, (address,), False)


def _path(node: str, via: str, address: str, **changes: Any) -> NodePath:
    values = {"via": via, "tried": (address,), "connected": True, "bulk": True, "mbit_per_s": 900.0, **changes}
    return NodePath(node, "n1", **values)


@pytest.mark.parametrize(
    ("eth1", "interface"),
    [
        ({"mbit_per_s": 9000.0}, "eth1"),
        ({"mbit_per_s": 10.0}, "eth0"),
        ({"bulk": False, "mbit_per_s": 9000.0}, "eth0"),
        ({"connected": False}, "eth0"),
    ],
)
def test_the_fastest_way_that_works_for_all(eth1: dict[str, Any], interface: str) -> None:
    door = NodeAddresses("n1", "n1", interfaces=(_interface("eth0", "10.0.0.1"), _interface("eth1", "10.1.0.1")))
    paths = [_path(node, "eth0", "10.0.0.1") for node in ("n2", "n3")]
    paths += [_path("n2", "eth1", "10.1.0.1", mbit_per_s=9999.0), _path("n3", "eth1", "10.1.0.1", **eth1)]
    found = route.into(Fleet((), doors=(door,), paths=tuple(paths)), "n1")
    assert found is not None and found.interface == interface
    assert route.of_all(Fleet((), doors=(door,), paths=tuple(paths)), ["n1", "n2"]) == {"n1": found}


def test_no_way_without_all_hosts() -> None:
    door = NodeAddresses("n1", "n1", interfaces=(_interface("eth0", "10.0.0.1"),))
    paths = [_path("n2", "eth0", "10.0.0.1"), _path("n3", "name", "10.0.0.1")]
    assert route.into(Fleet((), doors=(door,), paths=tuple(paths)), "n1") is None
    assert route.into(Fleet((), doors=(door,)), "n1") is None


def _part(id: str = "", role: str = "", **changes: Any) -> dict[str, Any]:
    cause = {"id": id, "role": role} if role else None
    return {"code": 1, "lost": None, "said": "", "document": {"probable_cause": cause}, **changes}


_LOST = _part(lost="the connection ended: x", document=None)
_RAISED, _TIMEOUT, _EXITED = ("log_exception", "root"), ("log_peer_gone", "secondary"), ("log_child_failed", "wrapper")


@pytest.mark.parametrize(
    ("parts", "chosen"),
    [
        ((_part(*_TIMEOUT), _part(*_RAISED)), "log_exception"),
        ((_part(*_EXITED), _part(*_TIMEOUT)), _TIMEOUT[0]),
        ((_part(*_TIMEOUT), _LOST), "ssh_connection_lost"),
        ((_LOST, _part(*_RAISED)), "log_exception"),
        ((_part(document={"signalled": True, "probable_cause": None}), _part(*_TIMEOUT)), _TIMEOUT[0]),
        ((_part(code=0), _part(*_EXITED)), _EXITED[0]),
        ((_part("a_later_check", "wrapper"), _part(*_TIMEOUT)), _TIMEOUT[0]),
    ],
)
def test_one_cause_from_all_hosts(parts: tuple[dict[str, Any], ...], chosen: str, tmp_path: Path) -> None:
    (tmp_path / hosts_run.RESULTS).mkdir()
    for number, part in enumerate(parts):
        (tmp_path / hosts_run.RESULTS / f"{number}.json").write_text(json.dumps({**part, "host": f"n{number}"}))
    document: Any = {"exit_code": 1, "signalled": False, "timed_out": False, "first_failure": None}
    hosts_verdict.amend(tmp_path, document, [{"name": f"n{number}"} for number in range(len(parts))])
    assert document["probable_cause"]["id"] == chosen


def test_a_damaged_part_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / hosts_run.RESULTS).mkdir()
    (tmp_path / hosts_run.RESULTS / "0.json").write_text("{")
    (tmp_path / hosts_run.RESULTS / "1.json").write_text(json.dumps({**_part(), "host": "n2"}))
    assert [part["host"] for part in hosts_verdict.read_parts(tmp_path)] == ["n2"]


# ---- what was tested


def test_what_was_tested_is_kept(tmp_path: Path) -> None:
    config = tmp_path / "accelerate.yaml"
    assert verified_hosts.find(config, "abc", ["n1", "n2"], "/p") is None
    verified_hosts.record(config, Passed("abc", ("n1", "n2"), "/p"))
    found = verified_hosts.find(config, "abc", ["n1", "n2"], "/p")
    assert found is not None and found.time
    for other in (("abd", ["n1", "n2"], "/p"), ("abc", ["n2", "n1"], "/p"), ("abc", ["n1", "n2"], "/q")):
        assert verified_hosts.find(config, *other) is None
    verified_hosts.record(config, Passed("abc", ("n1", "n2"), "/q"))
    assert verified_hosts.find(config, "abc", ["n1", "n2"], "/p") is None, "replaced"


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"schema": 2, "tested": []}', '{"schema": 1}', '{"schema": 1, "tested": 5}',
     '{"schema": 1, "tested": [5]}', '{"schema": 1, "tested": [{"config": "abc", "hosts": "n1", "python": "/p"}]}'],
)  # fmt: skip
def test_a_damaged_file_of_tests_counts_as_none(text: str, tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / verified_hosts.FILE).write_text(text)
    assert verified_hosts.find(tmp_path / "a.yaml", "abc", ["n1"], "/p") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_another_users_file_of_tests_counts_as_none(tmp_path: Path) -> None:
    config = tmp_path / "a.yaml"
    verified_hosts.record(config, Passed("abc", ("n1",), "/p"))
    os.chown(tmp_path / FOLDER / verified_hosts.FILE, 4711, 4711)
    assert verified_hosts.find(config, "abc", ["n1"], "/p") is None


@pytest.mark.parametrize(
    ("kind", "slots", "said"),
    [("MULTI_GPU", 2, ""), ("MULTI_GPU", 4, ""), ("FSDP", 1, ""), ("DEEPSPEED", 2, ""),
     ("DEEPSPEED", 4, "DEEPSPEED needs the same number on each: remove the slots")],
)  # fmt: skip
def test_slots_are_the_ranks_of_a_host(
    kind: str, slots: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each host's config says its own number, from which its launcher takes its share; a comment has all of them."""
    monkeypatch.chdir(tmp_path)
    config = f"compute_environment: LOCAL_MACHINE\ndistributed_type: {kind}\nnum_machines: 1\nnum_processes: 2\n"
    (tmp_path / "accelerate.yaml").write_text(config)
    (tmp_path / "hosts.txt").write_text(f"a slots={slots}\nb\n")
    job = allocation.of_hosts(read_hosts("./hosts.txt"))
    if said:
        with pytest.raises(MgpuError, match=said):
            allocation.read_wanted(SmokeRequest(), job, {}, tmp_path)
        return
    wanted = allocation.read_wanted(SmokeRequest(), job, {}, tmp_path)
    text, own = derived_config.of_nodes(wanted.config, wanted.ranks_on, job.nodes, 29500)
    found = [parse_config(one.encode(), "a.yaml") for one in (text, own.get("b", text))]
    assert [one.ranks_here for one in found] == [slots, 2]
    assert {one.world for one in found} == {slots + 2}
    assert bool(own) == (slots != 2)


@pytest.mark.parametrize(("of_nodes", "ranks"), [((), [range(2), range(2, 4)]), ((3, 1), [range(3), range(3, 4)])])
def test_the_ranks_of_a_node(of_nodes: tuple[int, ...], ranks: list[range]) -> None:
    assert [Orders("/f", 4, nodes=2, of_nodes=of_nodes).ranks_of(node) for node in (0, 1)] == ranks


def test_hosts_with_different_numbers_of_gpus_get_two_ways_out() -> None:
    hosts_config._require_equal({"a": 2, "b": 2}, "a,b")
    with pytest.raises(MgpuError) as caught:
        hosts_config._require_equal({"a": 2, "b": 1}, "a,b")
    assert "printf '%s\\n' 'a slots=2' 'b slots=1' > hosts.txt" in caught.value.message
    assert "mgpu configure --hosts a,b --gpus 1" in caught.value.message
    with pytest.raises(MgpuError, match="leave out b"):
        hosts_config._require_equal({"a": 2, "b": 0}, "a,b")
