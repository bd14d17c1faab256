"""Can the machines of this config meet?"""

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
    as_whole,
    expands,
    place_of,
    readable,
    started_by_torchrun,
    written,
)

_PORTS = "https://man7.org/linux/man-pages/man7/ip.7.html"
_OPEN_TO_ALL = 1024  # ports below belong to root: ip(7), ip_unprivileged_port_start
_UNCOUNTED = "num_machines waits for a shell"
_STARTED = "a config for {engine}: whoever starts the machines tells them address, port and rank"
_OF_THIS_MACHINE = ("localhost", "127.0.0.1", "0.0.0.0", "::1")


def _meets(config: Config) -> bool:
    """Whether the launcher uses main_process_ip: with torchrun and, as an assertion, with the simple launcher. Of the
    launchers of several machines that DeepSpeed has, only `standard` does."""
    return started_by_torchrun(config) or config.distributed_type in SIMPLE_TYPES


def _loopback(address: str) -> bool:
    return address in ("localhost", "::1", "[::1]") or address.startswith("127.")


@check(Severity.ERROR, source=PREPARE, given=readable)
def config_master_missing(config: Config) -> Answer:
    """A config for several machines names no address of the main one.

    Why: accelerate passes the text "None" as host name, and every machine tries to resolve it for 15 minutes.

    Fix: Give it in the file or on the command line.
    More: It is an address of the first machine that the others reach.
    """
    if config.num_machines < 2:
        return Skip("one machine needs no address")
    if not _meets(config):
        return Skip(f"{config.distributed_type} does not meet at main_process_ip")
    address = config.values.get("main_process_ip")
    if address is not None and str(address).strip():
        return Ok(f"main_process_ip {address}")
    if config.engine:
        return Skip(_STARTED.format(engine=config.engine))
    return Problem(
        f"{config.num_machines} machines and no main_process_ip",
        "accelerate stops with an AssertionError."
        if config.distributed_type in SIMPLE_TYPES
        else 'accelerate would look for a host called "None".',
        commands("accelerate launch --main_process_ip ADDRESS ..."),
        place=place_of(config, "num_machines"),
    )


@check(Severity.ERROR, source="measured two network namespaces 2026-11", given=readable)
def config_master_is_loopback(config: Config) -> Answer:
    """A config for several machines gives the loopback address as the main one's.

    Why: The other machines cannot reach it; they wait for themselves.
    More: Every machine would wait for itself, in silence.

    Fix: Write an address the others reach.
    More: It is one of the first machine, on the cluster's network.
    """
    if config.num_machines < 2:
        return Skip("one machine may use the loopback address")
    if not _meets(config):
        return Skip(f"{config.distributed_type} does not meet at main_process_ip")
    address = str(config.values.get("main_process_ip") or "").strip()
    if not address:
        return Skip("no address is given")
    if not _loopback(address):
        return Ok(address)
    return Problem(
        f"main_process_ip: {address} with {config.num_machines} machines",
        fix=commands("ip -brief address"),
        place=place_of(config, "main_process_ip"),
    )


@check(Severity.ERROR, source=PREPARE, given=readable)
def config_master_invalid(config: Config) -> Answer:
    """main_process_ip is neither an address nor a host name.

    Why: The ranks would look for a host of that name.
    More: accelerate joins it with the port and passes it on unread; they look again and again, for 15 minutes.

    Fix: the address alone; its port goes into main_process_port.
    """
    value = config.values.get("main_process_ip")
    if config.num_machines < 2 or not _meets(config) or value is None or not str(value).strip() or expands(value):
        return Skip("no address that is used")
    fault, edits = _amiss(config, value)
    if not fault:
        return Ok(f"{value}")
    good = next((edit.value for edit in edits if edit.key == "main_process_ip"), None)
    return Problem(
        f"main_process_ip: {written(config, 'main_process_ip')} {fault}",
        fix=Fix(
            f"Write main_process_ip: {good}." if good else "Write the address or the host name alone.", edits=edits
        ),
        place=place_of(config, "main_process_ip"),
    )


def _amiss(config: Config, value: object) -> tuple[str, tuple[Edit, ...]]:
    """What is wrong with an address, and the repair where only one is possible."""
    if not isinstance(value, str):
        return "is not an address", ()
    address = re.sub(r"^[a-z]+://", "", value.strip()).rstrip("/")
    host, _, port = address.partition(":")
    if port.isdecimal() and port.isascii() and len(port) <= 5 and _fault_of(host) == "":
        given = config.values.get("main_process_port")
        moved = (Edit("set", "main_process_ip", host), Edit("set", "main_process_port", int(port)))
        return "has a port in it", moved if given in (None, int(port)) else ()
    fault = _fault_of(address)
    if not fault and address != value:
        what = "has blanks around it" if address == value.strip() else "is a URL"
        return what, (Edit("set", "main_process_ip", address),)
    return fault, ()


def _fault_of(address: str) -> str:
    """Why this is neither an IPv4 address, nor a host name, nor an IPv6 address; "" if it is one."""
    parts = address.split(".")
    if all(part.isascii() and part.isdecimal() for part in parts):
        fits = len(parts) == 4 and all(len(part) <= 3 and int(part) <= 255 for part in parts)
        return "" if fits else "is not an address"
    plain = address[1:-1] if address.startswith("[") and address.endswith("]") else address
    if plain.count(":") > 1 and re.fullmatch(r"[0-9A-Fa-f:.]+(%\w+)?", plain):
        return ""  # torch takes the port from the end, with brackets or without
    return "" if re.fullmatch(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?", plain) else "is not a host name"


@check(Severity.WARNING, source=PREPARE, given=readable)
def config_master_ignored(config: Config) -> Answer:
    """A config for one machine names the address of a main one.

    Why: The ranks meet on this machine.
    More: With num_machines 1 nobody reads it, and the others are not waited for.

    Fix: Delete it, or write num_machines.
    """
    address = config.values.get("main_process_ip")
    if config.num_machines > 1 or address is None or not str(address).strip():
        return Ok("no address that nobody reads")
    if expands(config.values.get("num_machines")):
        return Skip(_UNCOUNTED)
    if str(address).strip() in _OF_THIS_MACHINE:
        return Ok(f"{address} is this machine")
    return Problem(
        f"main_process_ip: {written(config, 'main_process_ip')} has no effect with one machine",
        place=place_of(config, "main_process_ip"),
    )


@check(Severity.ERROR, source=PREPARE, given=readable)
def config_port_invalid(config: Config) -> Answer:
    """main_process_port is not a port number.

    Why: text or a number out of range stops the launcher with a TypeError or OverflowError; 0 means "pick a free one"
    and works on one machine only.

    Fix: a number from 1 to 65535 without quotes, the same on all machines.
    """
    port = config.values.get("main_process_port")
    if port is None and config.engine:
        return Skip(_STARTED.format(engine=config.engine))
    if port is None and config.num_machines > 1 and config.distributed_type in SIMPLE_TYPES:
        return Problem(
            f"{config.num_machines} machines and no main_process_port",
            f"With {config.distributed_type} accelerate stops with an AssertionError.",
            Fix("Write a port that is free on the first machine, for example 29500."),
            place=place_of(config, "num_machines"),
        )
    if port is None or expands(port):
        return Skip("no port is given")
    if config.distributed_type in SIMPLE_TYPES and config.num_machines == 1 and (config.num_processes or 1) == 1:
        return Skip("one process needs no port")
    if type(port) is int and (0 < port < 65536 or (port == 0 and config.num_machines == 1)):
        return Ok(f"port {port or 'chosen at launch'}")
    why = (
        "0 lets each machine pick another port; they never meet."
        if port == 0
        else "Ports are numbers from 1 to 65535, written without quotes."
    )
    whole = as_whole(port)
    return Problem(
        f"main_process_port: {written(config, 'main_process_port')}",
        why,
        Fix(
            f"Write {whole}." if whole else "Write a free port, for example 29500.",
            edits=(Edit("set", "main_process_port", whole),) if whole and 0 < whole < 65536 else (),
        ),
        place=place_of(config, "main_process_port"),
    )


@check(Severity.WARNING, source=_PORTS, given=readable)
def config_port_privileged(config: Config) -> Answer:
    """main_process_port is below 1024.

    Why: The first rank cannot listen on it.
    More: Only root may: "Permission denied" on the first machine, and the others wait.

    Fix: Write a free port from 1024 up, for example 29500.
    """
    port = config.port
    if port is None or port >= _OPEN_TO_ALL:
        return Ok(f"port {port}" if port else "no port is given")
    return Problem(f"main_process_port: {port} is for root only", place=place_of(config, "main_process_port"))


@check(Severity.ERROR, source=PREPARE, given=readable)
def config_machine_rank_invalid(config: Config) -> Answer:
    """machine_rank is not the number of one of the machines.

    Why: they are numbered from 0. With another number the machines wait for the missing one, up to 15 minutes; text
    stops the launcher.

    Fix: Delete it; give each machine its own.
    """
    if config.num_machines < 2 or not started_by_torchrun(config):
        return Skip("machine_rank is not used")
    rank = config.values.get("machine_rank", 0)
    if expands(rank):
        return Skip("machine_rank waits for a shell")
    whole = rank if isinstance(rank, int) else as_whole(rank)
    if whole is not None and 0 <= whole < config.num_machines:
        return Ok(f"machine {whole} of {config.num_machines}")
    return Problem(
        f"machine_rank: {written(config, 'machine_rank')} of {counted(config.num_machines, 'machine')}",
        f"The machines are numbered from 0 to {config.num_machines - 1}.",
        commands("accelerate launch --machine_rank 0 ..."),
        place=place_of(config, "machine_rank"),
    )


@check(Severity.WARNING, source=PREPARE, given=readable)
def config_machine_rank_ignored(config: Config) -> Answer:
    """A config for one machine says that it is another than the first.

    Why: The launcher starts a run of its own.
    More: With num_machines 1 it does not look at the number: this machine trains alone.

    Fix: Delete it, or write num_machines and main_process_ip.
    """
    rank = config.values.get("machine_rank")
    if config.num_machines > 1 or rank in (None, 0, "0", False):
        return Ok("no machine_rank that nobody reads")
    if expands(config.values.get("num_machines")):
        return Skip(_UNCOUNTED)
    return Problem(
        f"machine_rank: {written(config, 'machine_rank')} has no effect with one machine",
        place=place_of(config, "machine_rank"),
    )


@check(Severity.INFO, source=LAUNCH, given=readable)
def config_machine_rank_fixed(config: Config) -> Answer:
    """The config is for one certain machine of several.

    Why: All that read it would take themselves for the same machine.
    More: They wait for the others.

    Fix: Give it when launching.
    More: Leave it out of the file.
    """
    rank = config.values.get("machine_rank")
    if config.num_machines < 2 or type(rank) is not int or not 0 < rank < config.num_machines:
        return Ok("the file fits every machine")
    return Problem(
        f"machine_rank: {rank}: the file is for that machine only",
        fix=commands(shell("accelerate launch --machine_rank {:number} ...", rank)),
        place=place_of(config, "machine_rank"),
    )
