"""Can the machines of this config meet?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Config

from ._file import BROKEN, LAUNCH, place_of, readable


@check(Severity.ERROR, source=LAUNCH)
def config_master_missing(config: Config) -> Answer:
    """A config for several machines names no address of the main one.

    Why: accelerate passes the text "None" as host name, and every machine tries to resolve it for 15 minutes.

    Fix: set main_process_ip to an address of the first machine that the others reach.
    """
    if not readable(config):
        return Skip(BROKEN)
    if config.num_machines < 2:
        return Skip("one machine needs no address")
    address = config.values.get("main_process_ip")
    if isinstance(address, str) and address.strip():
        return Ok(f"main_process_ip {address}")
    return Problem(
        f"{config.num_machines} machines and no main_process_ip",
        'accelerate would look for a host called "None".',
        Fix("Give it in the file or on the command line.", ("accelerate launch --main_process_ip ADDRESS ...",)),
        place=place_of(config, "num_machines"),
    )


@check(Severity.ERROR, source="measured two network namespaces 2026-11")
def config_master_is_loopback(config: Config) -> Answer:
    """A config for several machines gives the loopback address as the main one's.

    Why: every machine would wait for itself, in silence.

    Fix: an address of the first machine on the cluster's network.
    """
    if not readable(config):
        return Skip(BROKEN)
    if config.num_machines < 2:
        return Skip("one machine may use the loopback address")
    address = str(config.values.get("main_process_ip") or "")
    if not address:
        return Skip("no address is given")
    if address != "localhost" and not address.startswith("127.") and address != "::1":
        return Ok(address)
    return Problem(
        f"main_process_ip: {address} with {config.num_machines} machines",
        "The other machines cannot reach it; they wait for themselves.",
        Fix("Write an address the others reach.", ("ip -brief address",)),
        place=place_of(config, "main_process_ip"),
    )


@check(Severity.ERROR, source=LAUNCH)
def config_port_invalid(config: Config) -> Answer:
    """main_process_port is not a port number.

    Why: text or a number out of range stops the launcher with a TypeError or OverflowError; 0 means "pick a free one"
    and works on one machine only.

    Fix: a number from 1 to 65535 without quotes, the same on all machines.
    """
    if not readable(config):
        return Skip(BROKEN)
    port = config.values.get("main_process_port")
    if port is None:
        return Skip("no port is given")
    if type(port) is int and (0 < port < 65536 or (port == 0 and config.num_machines == 1)):
        return Ok(f"port {port or 'chosen at launch'}")
    why = (
        "0 lets each machine pick another port; they never meet."
        if port == 0
        else "Ports are numbers from 1 to 65535, written without quotes."
    )
    return Problem(
        f"main_process_port: {port!r}",
        why,
        Fix("Write a free port, for example 29500."),
        place=place_of(config, "main_process_port"),
    )
