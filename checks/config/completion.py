"""Which values does the file leave to the command line of accelerate launch?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mgpu.check import Answer, Edit, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.planning.memory import PRECISIONS
from mgpu.snapshot import Config
from mgpu.text import counted, listed

from ._config_file import (
    LAUNCH,
    SIMPLE_TYPES,
    is_left_open,
    is_loopback,
    place_of,
    skip_if_unreadable,
    uses_main_process_ip,
)
from ._deepspeed_values import precisions
from ._schema import LAUNCHERS, deepspeed_settings, readable_deepspeed_file
from ._spelling import intended_name
from .gpus import gpus_and_ranks
from .keys import TOP_KEYS
from .zero_file import precision_beside_file


class _Missing(NamedTuple):
    """A value that the file lacks: its option, a word for the value, and what accelerate does without it."""

    option: str
    value: str
    without: str


# The same fault, seen from a job script that uses the file.
_IN_JOB = ("job_config_has_no_head_address", "job_machine_rank_of_config")


@check(
    Severity.WARNING,
    source=LAUNCH,
    because_of=_IN_JOB,
    given=skip_if_unreadable,
    stops_start=True,
    tags=("command_line",),
)
def config_options_missing(config: Config) -> Answer:
    """The config is complete only with options on the command line of accelerate launch.

    Why: Without them, accelerate stops, or the nodes never find each other.
    More: Many repositories leave num_processes, main_process_ip, main_process_port and machine_rank out of the file,
    because a job script knows them: `accelerate launch --config_file FILE --main_process_ip ...`. mgpu does not see
    that command line here. With DeepSpeed on several nodes, the launcher also needs a hostfile or the value standard.
    A gpu_ids that names too few GPUs is in this list, because --gpu_ids replaces it.

    Fix: Pass them on the command line, or write them to the file.
    More: machine_rank differs on each node, so it belongs on the command line.
    """
    missing = [one for one in _missing_values(config) if not _is_misspelled(config, one.option)]
    if missing and config.loader is not None and not config.loader.accepted:
        return Skip("accelerate rejects the file even with these options")
    if not missing:
        return Ok(
            f"the file is complete, or {config.engine} adds the rest" if config.engine else "the file is complete"
        )
    ranked = config.values.get("machine_rank", 0) != 0
    if config.num_machines > 1 and not (config.engine or ranked or "machine_rank" in config.given):
        missing.append(_Missing("machine_rank", "RANK_OF_NODE", ""))  # 0 is right on the first node only
    options = [f"--{one.option}" for one in missing]
    return Problem(
        f"complete only with {listed(options)}",
        " ".join(one.without for one in missing if one.without),
        _fixes(config, missing),
        {"options": " ".join(options)},
        place=place_of(config, _key_to_show(config, missing[0].option)),
    )


def _is_misspelled(config: Config, option: str) -> bool:
    """Whether the file has a misspelled key for it, which config_key_unknown reports: nothing else is missing then."""
    if option in config.values:
        return False
    return any(intended_name(key, TOP_KEYS) == option for key in config.values if key not in TOP_KEYS)


def _key_to_show(config: Config, option: str) -> str:
    """Return the key at which the finding is shown: that of the option if the fault is its value."""
    own = option in ("num_processes", "mixed_precision", "gpu_ids")
    return option if own or (option == "main_process_ip" and _address_text(config)) else "num_machines"


def _fixes(config: Config, missing: list[_Missing]) -> tuple[Fix, ...]:
    """Return the command with the options, or the change of the file that makes one unnecessary."""
    names = [one.option for one in missing]
    quoting = _quoting_fix(config) if "num_processes" in names else None
    of_precision = (_precision_fix(config),) if "mixed_precision" in names else ()
    of_gpus = (Fix("Or name one GPU for each rank in gpu_ids."),) if "gpu_ids" in names else ()
    text = "Pass it on the command line." if names in (["mixed_precision"], ["gpu_ids"]) else ""
    return (quoting or Fix(text, (_command(missing),)), *of_precision, *of_gpus)


def _command(missing: list[_Missing]) -> str:
    words = [word for one in missing for word in (f"--{one.option}", one.value)]
    return shell("accelerate launch {:argument} ...", words)


def _quoting_fix(config: Config) -> Fix | None:
    """Return the fix for an unquoted NO: accelerate defaults to one process only for the text 'NO'."""
    if config.values.get("distributed_type") is not False:
        return None
    return Fix("Write distributed_type: 'NO' with quotes.", edits=(Edit("set", "distributed_type", "NO"),))


def _precision_fix(config: Config) -> Fix:
    """Return the change of mixed_precision with which the file needs no --mixed_precision."""
    return precision_beside_file(config) or Fix(
        "Or write mixed_precision: 'no' with quotes.", edits=(Edit("set", "mixed_precision", "no"),)
    )


def _precision_of_command_line(config: Config) -> _Missing | None:
    """Return --mixed_precision if accelerate stops at the value in the file, but not if the command line has one."""
    value = config.values.get("mixed_precision")
    if value is False:
        without = "YAML reads an unquoted no as false: without --mixed_precision, accelerate stops with AttributeError."
        return _Missing("mixed_precision", "no", without)
    if not config.given and precision_beside_file(config) and isinstance(value, str) and value.lower() in PRECISIONS:
        file = readable_deepspeed_file(config)
        enabled = precisions(file.values) if file else []
        own = enabled[0] if enabled in (["fp16"], ["bf16"]) else None  # accelerate refuses another one beside it
        without = (
            "mixed_precision is not allowed next to deepspeed_config_file: without --mixed_precision, which replaces"
            f" it, every worker stops with ValueError.{f' The file enables {own}.' if own else ''}"
        )
        return _Missing("mixed_precision", own or value.lower(), without)
    return None


def _missing_values(config: Config) -> Iterator[_Missing]:
    found = [*_of_every_run(config), *_of_several_nodes(config)]
    yield from (one for one in found if one.option not in config.given)


def _of_every_run(config: Config) -> Iterator[_Missing]:
    kind = config.values.get("distributed_type")
    simple = kind in SIMPLE_TYPES and "num_processes" not in config.values
    if config.distributed_type is not None and is_left_open(config, "num_processes") and not simple:
        yield _Missing(
            "num_processes",
            "GPUS_OF_ALL_NODES",
            "accelerate defaults to 1 process for the type 'NO', but YAML reads an unquoted NO as false."
            if kind is False
            else "Without num_processes, accelerate stops and requires it on the command line.",
        )
    port = config.values.get("main_process_port")
    if isinstance(port, str) and is_left_open(config, "main_process_port"):
        yield _Missing("main_process_port", "29500", "Without a number in main_process_port, accelerate stops.")
    if "num_machines" in config.values and is_left_open(config, "num_machines"):
        yield _Missing("num_machines", "NODES", "Without a number in num_machines, accelerate stops with TypeError.")
    if precision := _precision_of_command_line(config):
        yield precision
    if not config.given and (few := gpus_and_ranks(config)):
        names = f"gpu_ids names {counted(few[0], 'GPU')} for {few[1]} ranks"
        yield _Missing("gpu_ids", "all", f"{names}: without --gpu_ids, which replaces it, NCCL rejects the run.")


def _of_several_nodes(config: Config) -> Iterator[_Missing]:
    if config.num_machines < 2 or config.engine or config.distributed_type is None:
        return
    by_hostfile = not uses_main_process_ip(config)
    launcher = deepspeed_settings(config).get("deepspeed_multinode_launcher") or "pdsh"
    if by_hostfile and (launcher not in LAUNCHERS or deepspeed_settings(config).get("deepspeed_hostfile")):
        return  # config_deepspeed_launcher_unknown, or complete
    if by_hostfile and config.distributed_type == "DEEPSPEED":
        without = f"With the launcher {launcher} and no deepspeed_hostfile, DeepSpeed uses only the local node."
        yield _Missing("deepspeed_multinode_launcher", "standard", without)
    elif by_hostfile:
        return
    if "machine_rank" in config.values and is_left_open(config, "machine_rank"):
        yield _Missing("machine_rank", "RANK_OF_NODE", "Without a number in machine_rank, accelerate stops.")
    if is_left_open(config, "main_process_ip"):
        yield _Missing("main_process_ip", "ADDRESS_OF_FIRST_NODE", _without_address(config))
    unset = config.values.get("main_process_port") is None
    if config.distributed_type in SIMPLE_TYPES and unset:
        yield _Missing("main_process_port", "29500", "Without main_process_port, accelerate stops with AssertionError.")


def _address_text(config: Config) -> str:
    """Return the placeholder in main_process_ip; "" if the key has no text."""
    value = config.values.get("main_process_ip")
    return value.strip() if isinstance(value, str) else ""


def _without_address(config: Config) -> str:
    """Return what accelerate does with main_process_ip as it is in the file."""
    if text := _address_text(config):
        return f'main_process_ip is the placeholder "{text}": every node looks up a host with that name.'
    if config.distributed_type in SIMPLE_TYPES:
        return "Without main_process_ip, accelerate stops with AssertionError."
    return 'Without main_process_ip, every node looks up a host named "None".'


@check(
    Severity.WARNING,
    source="measured two network namespaces 2026-11",
    given=skip_if_unreadable,
    stops_start=True,
    tags=("command_line",),
)
def config_master_is_loopback(config: Config) -> Answer:
    """A config for several nodes has a loopback address as main_process_ip.

    Why: On every other node, the loopback address is that node itself.
    More: Each node waits for itself without printing anything. The file works if --main_process_ip on the command line
    overrides the address.

    Fix: Write an address that the other nodes can reach, or pass --main_process_ip.
    More: Use an address of the first node on the cluster's network.
    """
    if config.num_machines < 2:
        return Skip("one node may use the loopback address")
    if not uses_main_process_ip(config):
        return Skip(f"{config.distributed_type} does not use main_process_ip")
    address = str(config.values.get("main_process_ip") or "").strip()
    if not address or "main_process_ip" in config.given:
        return Skip("no address is set" if not address else "the command line sets the address")
    if not is_loopback(address):
        return Ok(address)
    return Problem(
        f"main_process_ip: {address} with {config.num_machines} nodes",
        fix=Fix(commands=("ip -brief address",)),
        place=place_of(config, "main_process_ip"),
    )
