"""What does this Slurm cluster offer: partitions, GPUs, limits, accounts?

Read with Slurm's own commands, which any user of a login node can run. Nothing is changed. The formats are those of
Slurm 22.05 as tested, and published output of 16.05 to 24.11. A field that a version does not have stays unknown.
"""

from __future__ import annotations

import getpass
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from mgpu.process import child_process
from mgpu.snapshot import Association, Cluster, Gres, NodeKind, Partition

DEADLINE_S: Final = 5.0  # a client waits 9 s for an unreachable controller (measured with Slurm 22.05, 2026-11)
# Compact states of nodes on which no job will start; the others are free, busy or will return. Names and flags:
# https://slurm.schedmd.com/sinfo.html#SECTION_NODE-STATE-CODES
_OUT: Final = frozenset({"down", "drain", "drng", "fail", "failg", "unk", "inval", "futr", "err", "error", "npc"})
_NOT_RESPONDING: Final = "*"
_FLAGS: Final = "*~#!%$@^-"  # flags that can follow a state
_NO_LIMIT: Final = frozenset({"UNLIMITED", "INFINITE", "NONE", "N/A", "(null)", "", "ALL"})
_NO_ACCOUNTING: Final = "not running a supported accounting_storage plugin"


class _Output(NamedTuple):
    text: str
    fault: str  # "" = the command succeeded


def read() -> Cluster | None:
    """Return this machine's cluster; None if Slurm is not installed. What cannot be read is a fault."""
    if shutil.which("sinfo") is None:
        return None
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # an id without a name, in a container
        user = str(os.getuid())
    commands = {
        "version": ("sinfo", "--version"),
        "nodes": ("sinfo", "--noheader", "--exact", "--format=%P|%D|%c|%m|%t|%G"),
        "partitions": ("scontrol", "--oneliner", "show", "partition"),
        "config": ("scontrol", "show", "config"),
        "accounts": (
            "sacctmgr",
            "--noheader",
            "--parsable2",
            "show",
            "associations",
            f"user={user}",
            "format=Account,Partition,QOS,DefaultQOS",
        ),
        "user": ("sacctmgr", "--noheader", "--parsable2", "show", "user", user, "format=DefaultAccount"),
    }
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SINFO_", "SLURM_TIME"))}
    environment["LC_ALL"] = "C"
    with ThreadPoolExecutor(len(commands)) as pool:
        results = pool.map(lambda command: _query(command, environment), commands.values())
        try:
            outputs = dict(zip(commands, results, strict=True))
        except BaseException:  # a signal: closing the pool would wait for clients that hang
            child_process.end_all()
            raise
    return parse_cluster(
        {what: output.text for what, output in outputs.items()},
        {what: output.fault for what, output in outputs.items() if output.fault},
    )


def _query(command: Sequence[str], environment: Mapping[str, str]) -> _Output:
    """Return a command's output, or a clause with the reason it failed."""
    try:
        done = child_process.run(command, DEADLINE_S, env=environment)
    except subprocess.TimeoutExpired:
        return _Output("", f"{command[0]} did not answer within {DEADLINE_S:g} s (is slurmctld down?)")
    except OSError as error:
        return _Output("", f"{command[0]}: {error.strerror}")
    if done.returncode == 0:
        return _Output(done.stdout.decode("utf-8", "replace"), "")
    words = (done.stderr or done.stdout).decode("utf-8", "replace").strip()
    if _NO_ACCOUNTING in words:  # a site without accounting: nothing to read
        return _Output("", "")
    last = words.splitlines()[-1] if words else f"exit code {done.returncode}"
    return _Output("", re.sub(r"^(\w+): (?:(?:fatal|error): )?", r"\1: ", last))


def parse_cluster(texts: Mapping[str, str], faults: Mapping[str, str] | None = None) -> Cluster:
    """Return the cluster parsed from the commands' output; the keys are those in `read`."""
    kinds = _kinds(texts.get("nodes", ""))
    found = re.search(r"\d+\.\d+\S*", texts.get("version", ""))
    name = re.search(r"^ClusterName\s*=\s*(\S+)", texts.get("config", ""), re.MULTILINE)
    partitions = tuple(_partition(fields, kinds) for fields in _records(texts.get("partitions", "")))
    account = texts.get("user", "").strip().splitlines()
    return Cluster(
        name=name[1] if name else None,
        version=found[0] if found else None,
        partitions=partitions,
        associations=tuple(_associations(texts.get("accounts", ""))),
        default_account=account[0].strip() if account else "",
        faults=dict(faults or {}),
    )


def parse_time(text: str) -> int | None:
    """Return a Slurm time in seconds; None for no limit. Raises ValueError for an invalid time.

    Formats: minutes, M:S, H:M:S, D-H, D-H:M, D-H:M:S.
    """
    text = text.strip()
    if text.upper() in _NO_LIMIT:
        return None
    days, dash, rest = text.rpartition("-")
    parts = rest.split(":")
    if len(parts) > 3 or not all(part.isascii() and part.isdigit() for part in parts) or (dash and not days.isdigit()):
        raise ValueError(f"{text!r} is not a Slurm time")
    numbers = [int(part) for part in parts]
    if dash:
        hours, minutes, rest_s = (*numbers, 0, 0)[:3]
    elif len(numbers) == 1:
        hours, minutes, rest_s = 0, numbers[0], 0
    else:
        hours, minutes, rest_s = (0, *numbers) if len(numbers) == 2 else (numbers[0], numbers[1], numbers[2])
    return (int(days or 0) * 24 + hours) * 3600 + minutes * 60 + rest_s


def _records(text: str) -> Iterable[dict[str, str]]:
    """Parse one record per line: KEY=VALUE KEY=VALUE. A value can contain "="; the ones used here contain no blanks."""
    for line in text.splitlines():
        fields = dict(re.findall(r"(\w+)=(\S*)", line))
        if "PartitionName" in fields:
            yield fields


def _partition(fields: Mapping[str, str], kinds: Mapping[str, list[NodeKind]]) -> Partition:
    name = fields["PartitionName"]
    return Partition(
        name=name,
        default=fields.get("Default", "NO").upper() == "YES",
        up=fields.get("State", "UP").upper() == "UP",
        kinds=tuple(sorted(kinds.get(name, ()), key=lambda kind: (-kind.gpus, -kind.nodes))),
        max_time_s=_seconds(fields.get("MaxTime")),
        default_time_s=_seconds(fields.get("DefaultTime")),
        max_nodes=_integer(fields.get("MaxNodes")),
        min_nodes=_integer(fields.get("MinNodes")) or None,
        accounts=_names(fields.get("AllowAccounts")),
        qos=_names(fields.get("AllowQos") or fields.get("AllowQOS")),
    )


def _kinds(text: str) -> dict[str, list[NodeKind]]:
    """Return the nodes of each partition, grouped by hardware."""
    found: dict[str, dict[tuple[object, ...], NodeKind]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        number = _integer(cells[1]) if len(cells) == 6 else None
        if number is None:
            continue
        cpus, memory, gres = _integer(cells[2].rstrip("+")) or 1, _integer(cells[3].rstrip("+")), tuple(_gres(cells[5]))
        state = cells[4].lower()
        out = state.endswith(_NOT_RESPONDING) or state.rstrip(_FLAGS) in _OUT
        here = found.setdefault(cells[0].rstrip("*"), {})
        before = here.get((cpus, memory, gres))
        nodes, usable = (before.nodes, before.usable) if before else (0, 0)
        here[cpus, memory, gres] = NodeKind(
            nodes + number, usable + (0 if out else number), cpus, memory * 2**20 if memory else None, gres
        )
    return {name: list(kinds.values()) for name, kinds in found.items()}


def _gres(text: str) -> Iterable[Gres]:
    """Parse generic resources: gpu:a100:4(S:0-1),shard:8, gpu:4, gpu:nvidia_a100_3g.20gb:2, (null)."""
    for entry in re.sub(r"\([^)]*\)", "", text).split(","):
        name, *rest = entry.strip().split(":")
        if not name or not rest:  # a name without a number counts once: gpu
            if name:
                yield Gres(name, "", 1)
            continue
        count = re.fullmatch(r"(\d+)([KMG]?)", rest[-1])
        if count is None:
            yield Gres(name, ":".join(rest), 1)
            continue
        many = int(count[1]) * 1024 ** "_KMG".index(count[2] or "_")
        if many:
            yield Gres(name, ":".join(rest[:-1]), many)


def _associations(text: str) -> Iterable[Association]:
    """Parse one association per line: Account|Partition|QOS|DefaultQOS."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 4 and cells[0]:
            yield Association(cells[0], cells[1], tuple(filter(None, cells[2].split(","))), cells[3])


def _seconds(text: str | None) -> int | None:
    try:
        return parse_time(text or "")
    except ValueError:
        return None


def _integer(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() else None


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if (text or "ALL").upper() in _NO_LIMIT else tuple((text or "").split(","))
