"""Can the nodes of this config reach one rendezvous endpoint?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Edit, Fix, Ok, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import Config
from mgpu.text import counted

from ._config_file import (
    LAUNCH,
    PREPARE,
    SIMPLE_TYPES,
    as_integer,
    has_shell_variable,
    is_left_open,
    place_of,
    skip_if_unreadable,
    source_text,
    started_by_torchrun,
    uses_main_process_ip,
)

_PORTS = "https://man7.org/linux/man-pages/man7/ip.7.html"
_OPEN_TO_ALL = 1024  # lower ports are for root only: ip(7), ip_unprivileged_port_start
_UNCOUNTED = "num_machines is not a number"
_OF_THIS_MACHINE = ("localhost", "127.0.0.1", "0.0.0.0", "::1")


def _is_uncounted(config: Config) -> bool:
    """Whether a shell or the command line sets num_machines."""
    placeholder = "num_machines" in config.values and is_left_open(config, "num_machines")
    return placeholder or "num_machines" in config.given or has_shell_variable(config.values.get("num_machines"))


@check(Severity.ERROR, source=PREPARE, given=skip_if_unreadable)
def config_master_invalid(config: Config) -> Answer:
    """main_process_ip is neither an address nor a host name.

    Why: The ranks would look up a host with that name.
    More: accelerate adds the port and passes it on unchecked. The ranks retry for 15 minutes.

    Fix: Write the address only; the port goes into main_process_port.
    """
    value = config.values.get("main_process_ip")
    if (
        config.num_machines < 2
        or not uses_main_process_ip(config)
        or is_left_open(config, "main_process_ip")
        or has_shell_variable(value)
    ):
        return Skip("main_process_ip is not set or not used")
    fault, edits = _address_fault(config, value)
    if not fault:
        return Ok(f"{value}")
    good = next((edit.value for edit in edits if edit.key == "main_process_ip"), None)
    return Problem(
        f"main_process_ip: {source_text(config, 'main_process_ip')} {fault}",
        fix=Fix(f"Write main_process_ip: {good}." if good else "Write only the address or the host name.", edits=edits),
        place=place_of(config, "main_process_ip"),
    )


def _address_fault(config: Config, value: object) -> tuple[str, tuple[Edit, ...]]:
    """Return what is wrong with an address, and the edits if only one fix is possible."""
    if not isinstance(value, str):
        return "is not an address", ()
    address = re.sub(r"^[a-z]+://", "", value.strip()).rstrip("/")
    host, _, port = address.partition(":")
    if port.isdecimal() and port.isascii() and len(port) <= 5 and _host_fault(host) == "":
        given = config.values.get("main_process_port")
        moved = (Edit("set", "main_process_ip", host), Edit("set", "main_process_port", int(port)))
        return "includes a port", moved if given in (None, int(port)) else ()
    fault = _host_fault(address)
    if not fault and address != value:
        what = "has spaces around it" if address == value.strip() else "is a URL"
        return what, (Edit("set", "main_process_ip", address),)
    return fault, ()


def _host_fault(address: str) -> str:
    """Return why this is not an IPv4 address, host name or IPv6 address; "" if it is one."""
    parts = address.split(".")
    if all(part.isascii() and part.isdecimal() for part in parts):
        fits = len(parts) == 4 and all(len(part) <= 3 and int(part) <= 255 for part in parts)
        return "" if fits else "is not an address"
    plain = address[1:-1] if address.startswith("[") and address.endswith("]") else address
    if plain.count(":") > 1 and re.fullmatch(r"[0-9A-Fa-f:.]+(%\w+)?", plain):
        return ""  # torch reads the port from the end, with or without brackets
    return "" if re.fullmatch(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?", plain) else "is not a host name"


@check(Severity.INFO, source=PREPARE, given=skip_if_unreadable)
def config_master_ignored(config: Config) -> Answer:
    """A config for one node sets main_process_ip.

    Why: The ranks rendezvous on this machine.
    More: With num_machines 1 the address is not used, and the launch does not wait for other nodes.

    Fix: Delete it, or set num_machines.
    """
    address = config.values.get("main_process_ip")
    if config.num_machines > 1 or is_left_open(config, "main_process_ip"):
        return Ok("no unused address")
    if _is_uncounted(config):
        return Skip(_UNCOUNTED)
    if str(address).strip() in _OF_THIS_MACHINE:
        return Ok(f"{address} is this machine")
    return Problem(
        f"main_process_ip: {source_text(config, 'main_process_ip')} has no effect with one node",
        place=place_of(config, "main_process_ip"),
    )


@check(Severity.ERROR, source=PREPARE, given=skip_if_unreadable)
def config_port_invalid(config: Config) -> Answer:
    """main_process_port is not a port number.

    Why: Text or a number out of range stops the launcher with a TypeError or OverflowError. 0 means "pick a free port"
    and works on one node only.

    Fix: Write a number from 1 to 65535 without quotes, the same on all nodes.
    """
    port = config.values.get("main_process_port")
    if is_left_open(config, "main_process_port") or has_shell_variable(port):
        return Skip("no port is set")
    if config.distributed_type in SIMPLE_TYPES and config.num_machines == 1 and (config.num_processes or 1) == 1:
        return Skip("one process needs no port")
    if type(port) is int and (0 < port < 65536 or (port == 0 and config.num_machines == 1)):
        return Ok(f"port {port or 'chosen at launch'}")
    why = (
        "With 0, each node picks a different port, and they never connect."
        if port == 0
        else "Ports are numbers from 1 to 65535, written without quotes."
    )
    whole = as_integer(port)
    return Problem(
        f"main_process_port: {source_text(config, 'main_process_port')}",
        why,
        Fix(
            f"Write {whole}." if whole else "Write a free port, for example 29500.",
            edits=(Edit("set", "main_process_port", whole),) if whole and 0 < whole < 65536 else (),
        ),
        place=place_of(config, "main_process_port"),
    )


@check(Severity.WARNING, source=_PORTS, given=skip_if_unreadable)
def config_port_privileged(config: Config) -> Answer:
    """main_process_port is below 1024.

    Why: The first rank cannot listen on it.
    More: Only root can. The first node gets "Permission denied", and the others wait.

    Fix: Write a free port of 1024 or above, for example 29500.
    """
    port = config.port
    if port is None or port >= _OPEN_TO_ALL:
        return Ok(f"port {port}" if port else "no port is set")
    return Problem(f"main_process_port: {port} can only be used by root", place=place_of(config, "main_process_port"))


@check(Severity.ERROR, source=PREPARE, given=skip_if_unreadable)
def config_machine_rank_invalid(config: Config) -> Answer:
    """machine_rank is not a valid node number.

    Why: Nodes are numbered from 0. With any other number, the nodes wait up to 15 minutes for the missing one. Text
    stops the launcher.

    Fix: Delete it, and pass each node its own rank.
    """
    if config.num_machines < 2 or not started_by_torchrun(config):
        return Skip("machine_rank is not used")
    rank = config.values.get("machine_rank", 0)
    if is_left_open(config, "machine_rank"):
        return Skip("machine_rank is left to the command line")
    if has_shell_variable(rank):
        return Skip("machine_rank contains a shell variable")
    whole = rank if isinstance(rank, int) else as_integer(rank)
    if whole is not None and 0 <= whole < config.num_machines:
        return Ok(f"node {whole} of {config.num_machines}")
    return Problem(
        f"machine_rank: {source_text(config, 'machine_rank')} of {counted(config.num_machines, 'node')}",
        f"The nodes are numbered from 0 to {config.num_machines - 1}.",
        commands("accelerate launch --machine_rank 0 ..."),
        place=place_of(config, "machine_rank"),
    )


@check(Severity.WARNING, source=PREPARE, given=skip_if_unreadable)
def config_machine_rank_ignored(config: Config) -> Answer:
    """A config for one node has a machine_rank other than 0.

    Why: The launcher starts a separate run on this node.
    More: With num_machines 1 it ignores machine_rank, so this node trains alone.

    Fix: Delete it, or set num_machines and main_process_ip.
    """
    rank = config.values.get("machine_rank")
    if config.num_machines > 1 or rank in (0, "0", False) or is_left_open(config, "machine_rank"):
        return Ok("no unused machine_rank")
    if _is_uncounted(config):
        return Skip(_UNCOUNTED)
    return Problem(
        f"machine_rank: {source_text(config, 'machine_rank')} has no effect with one node",
        place=place_of(config, "machine_rank"),
    )


@check(Severity.INFO, source=LAUNCH, because_of=("job_machine_rank_of_config",), given=skip_if_unreadable)
def config_machine_rank_fixed(config: Config) -> Answer:
    """The config has the machine_rank of one node of several.

    Why: All nodes that use this file would have the same rank.
    More: They wait for the missing ranks. With 0 the file is right on the first node, and --machine_rank must replace
    the number on every other one. With --rdzv_backend c10d, torchrun numbers the nodes itself; accelerate launch reads
    that option from the command line only.

    Fix: Pass it on the command line.
    More: Delete it from the file.
    """
    rank = config.values.get("machine_rank")
    if config.num_machines < 2 or type(rank) is not int or not 0 <= rank < config.num_machines:
        return Ok("the file works on every node")
    if "machine_rank" in config.given:
        return Skip("the command line sets machine_rank")
    if "rdzv_backend" in config.given and config.values.get("rdzv_backend") != "static":
        return Ok("machine_rank is not used: the command line sets rdzv_backend")
    if rank == 0 and (not started_by_torchrun(config) or is_left_open(config, "main_process_ip")):
        return Ok("machine_rank is not used, or left to the command line with main_process_ip")
    title = (
        f"machine_rank: {rank}: the file works on that node only"
        if rank
        else "machine_rank: 0: every other node needs --machine_rank, or a file of its own"
    )
    return Problem(
        title,
        fix=commands(shell("accelerate launch --machine_rank {:number} ...", rank or 1)),
        place=place_of(config, "machine_rank"),
    )
