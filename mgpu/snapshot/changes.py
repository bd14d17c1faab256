"""What changed on this machine since it was saved?

Pure: two Snapshots, walked by their types. What has an identity is matched by it (GPUs by UUID, interfaces by name,
folders by path), what always moves (free memory, temperatures, load, times) is left out. What was known and is not any
more is told as that, never as gone.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mgpu.quantities import gib
from mgpu.snapshot import FACTS, Gpu, Snapshot, bus_address, hints_of

Kind = Literal["added", "removed", "changed", "unknown"]
Plain = str | int | float | bool | None

# Facts that are of one run or of one moment, or follow from others.
_NOT_COMPARED = frozenset(
    {
        "visible",
        "kernel_log",
        "leftovers",
        "gpu_runs",
        "plan",
        "ranks",
        "nccl_log",
        "baseline",
        "stamp",
        "script",
        "job_script",
        "log",
        "run",
        "fleet",
    }
)
# Fields that move by themselves or with the load, and such as follow from others.
MOVES = frozenset({
    "Gpu.index", "Gpu.minor", "Gpu.serial", "Gpu.memory_used_bytes", "Gpu.memory_free_bytes",
    "Gpu.memory_reserved_bytes", "Gpu.bar1_used_bytes", "Gpu.temperature_c", "Gpu.temperature_margin_c",
    "Gpu.memory_temperature_c", "Gpu.power_w", "Gpu.utilization_percent", "Gpu.clock_event_reasons",
    "Gpu.sm_clock_mhz", "Gpu.performance_state", "Gpu.pcie_generation", "Gpu.pcie_replays",
    "Gpu.ecc_corrected_volatile", "Gpu.processes", "Gpu.trouble", "Gpu.display_active", "NvLink.errors",
    "Driver.init_s", "TorchRuntime.import_s", "TorchRuntime.devices", "System.memory_available_bytes",
    "System.shm_free_bytes", "System.tmp_free_bytes", "System.cwd_free_bytes", "System.memory_limit_used_bytes",
    "System.tasks_used", "System.oom_kills", "Interface.addresses", "Network.port_busy", "Network.port_owner",
    "Network.port_owner_pid", "Network.port_owner_mine", "Slurm.job_id", "Slurm.node_rank", "HcaPort.link_downed",
    "HcaPort.lid", "HcaPort.sm_lid", "PciDevice.aer_fatal", "PciDevice.speed_gt_per_s", "Kernel.files_used",
    "Kernel.load_1min", "Kernel.swap_used_bytes", "Kernel.stuck", "Kernel.committed_bytes", "Folder.total_bytes",
    "Folder.free_bytes", "Folder.free_inodes", "Folder.stat_s", "Folder.error", "Storage.hf_cache_models",
    "Config.path", "Config.marks", "Config.faults", "Config.loader", "Config.sha256", "LoaderVerdict.error",
})  # fmt: skip
# Fields in which None is something one knows; in all others it means not known.
_NONE = {
    "Gpu.lost": "it answers", "System.cpus_quota": "no limit", "System.memory_limit_bytes": "no limit",
    "System.limit_open_files": "unlimited", "System.limit_locked_memory_bytes": "unlimited",
    "System.limit_processes": "unlimited", "System.limit_stack_bytes": "unlimited", "System.tasks_max": "no limit",
    "System.hard_open_files": "unlimited", "System.hard_locked_memory_bytes": "unlimited",
    "Container.kind": "none", "Pytorch.cuda": "a CPU build", "Driver.nvml_error": "it answers",
    "Python.accelerate_default_config": "none", "Python.on_path": "none", "Python.accelerate_on_path": "none",
    "TorchRuntime.import_error": "it imports", "TorchRuntime.cuda_error": "none", "Network.hostname_error": "none",
    "PciDevice.driver": "none", "Libraries.nvcc": "none", "Libraries.compiler": "none", "Libraries.ninja": "none",
    "Libraries.cuda_home": "not set", "Config.batch_per_gpu": "not set",
}  # fmt: skip
# What people call it; other fields are called by their own name, without its unit.
CALLED = {
    "Host.name": "host", "Host.os": "operating system", "Host.kernel": "Linux kernel", "Host.machine": "architecture",
    "Python.executable": "interpreter", "Python.version": "Python", "Python.on_path": "python on PATH",
    "Python.accelerate_on_path": "accelerate on PATH", "Python.accelerate_default_config": "default config",
    "Driver.version": "driver", "Driver.cuda_version": "CUDA of the driver", "Driver.nvml_error": "NVML",
    "Driver.module_version": "driver module", "Driver.nvml_version": "NVML version",
    "Driver.pci_gpus": "GPUs on the PCI bus", "Driver.device_nodes": "device nodes", "Pytorch.version": "torch",
    "Pytorch.cuda": "CUDA of torch", "Pytorch.location": "torch's folder",
    "TorchRuntime.device_count": "GPUs torch sees",
    "TorchRuntime.nccl_version": "NCCL of torch", "System.cpus_allowed": "CPUs allowed",
    "Gpu.ecc_uncorrected_volatile": "uncorrected ECC errors", "Gpu.lost": "state",
    "Gpu.ecc_uncorrected_aggregate": "uncorrected ECC errors ever", "Gpu.mig_mode": "MIG", "Gpu.pci": "PCI address",
    "System.memory_total_bytes": "RAM", "System.shm_total_bytes": "/dev/shm", "System.numa_nodes": "NUMA nodes",
    "System.limit_open_files": "limit of open files", "System.limit_locked_memory_bytes": "limit of locked memory",
    "System.limit_processes": "limit of processes", "System.limit_stack_bytes": "limit of the stack",
    "System.memory_limit_bytes": "limit of memory", "Container.kind": "container",
    "Network.hostname": "host name", "Slurm.gpus_on_node": "GPUs Slurm granted",
}  # fmt: skip
_SUBJECT = {  # the words before a field of a fact without a name of its own
    "Host": "", "Python": "", "Driver": "", "Pytorch": "torch ", "TorchRuntime": "torch ", "System": "",
    "Nccl": "NCCL ", "Network": "", "Slurm": "Slurm ", "Pci": "PCI ", "InfiniBand": "InfiniBand ", "Kernel": "kernel ",
    "Container": "container ", "Storage": "", "Libraries": "", "Config": "config ",
}  # fmt: skip
_UNITS = (
    ("_bytes", ""), ("_mbit_per_s", " Mbit/s"), ("_gbit_per_s", " Gbit/s"), ("_gt_per_s", " GT/s"),
    ("_mb_per_s", " MB/s"), ("_percent", " %"), ("_mhz", " MHz"), ("_w", " W"), ("_c", " C"), ("_s", " s"),
)  # fmt: skip
_SHOWN_PAIRS = 4
_LONGEST = 60  # a value longer than this is cut on screens


@dataclass(frozen=True)
class Change:
    """One thing that is not as it was."""

    fact: str
    what: str  # "GPU 3", "driver", "NCCL_DEBUG"
    kind: Kind
    before: Plain = None
    after: Plain = None

    @property
    def text(self) -> str:
        """How, in words: `575.57 -> 580.65`, `gone`, `not known now: …`."""
        match self.kind:
            case "added":
                return f"new: {_short(self.after)}" if self.after not in (None, "") else "new"
            case "removed":
                return f"gone (was {_short(self.before)})" if self.before not in (None, "") else "gone"
            case "unknown":
                return f"not known now: {self.after}"
            case _:
                return f"{_short(self.before)} -> {_short(self.after)}"


def _short(value: Plain) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def changes(before: Snapshot, after: Snapshot) -> tuple[Change, ...]:
    """What is not as it was, in the order of the facts."""
    hints = hints_of(Snapshot)
    found: list[Change] = []
    for fact in FACTS:
        if fact in _NOT_COMPARED:
            continue
        old, new = getattr(before, fact), getattr(after, fact)
        if old is None or (new is None and after.left_out(fact)):
            continue  # nothing to compare with
        if new is None:
            found.append(Change(fact, fact.replace("_", " "), "unknown", None, after.gap(fact).reason))
        elif fact == "gpus":
            found += _gpus(old, new)
        elif fact == "links":
            found += _links(before, after)
        elif fact == "env":
            found += _mapping(fact, "", old, new)
        elif fact == "config":
            found += _mapping(fact, "config ", _flat(old.values), _flat(new.values))
        else:
            found += _compared(fact, hints[fact], old, new, "", fact)
    return tuple(dict.fromkeys(found))


def _compared(fact: str, hint: Any, old: Any, new: Any, subject: str, where: str) -> Iterator[Change]:
    """Two values of one field by its type; `where` is Class.field."""
    if old == new:
        return
    hint = _without_none(hint)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint) and old is not None and new is not None:
        yield from _fields(fact, typing.cast("type[Any]", hint), old, new, subject)
    elif origin is tuple and args[-1] is Ellipsis and dataclasses.is_dataclass(args[0]):
        yield from _items(fact, typing.cast("type[Any]", args[0]), old or (), new or ())
    elif isinstance(old, Mapping) and isinstance(new, Mapping):
        name = called(where)
        yield from _mapping(fact, "" if where in FACTS or name == "wheels" else f"{name} ", old, new)
    elif origin is tuple and args[-1] is Ellipsis and old is not None and new is not None:
        for kind, items in (("removed", [i for i in old if i not in new]), ("added", [i for i in new if i not in old])):
            if items:
                named = ", ".join(map(str, items))
                before, after = (named, None) if kind == "removed" else (None, named)
                yield Change(fact, f"{subject}{called(where)}", typing.cast("Kind", kind), before, after)
    elif old is None and where not in _NONE:
        return  # it was not known
    elif new is None and where not in _NONE:
        yield Change(fact, f"{subject}{called(where)}", "unknown", said(where, old), "it could not be read")
    else:
        yield Change(fact, f"{subject}{called(where)}", "changed", said(where, old), said(where, new))


def _fields(fact: str, kind: type[Any], old: Any, new: Any, subject: str) -> Iterator[Change]:
    hints = hints_of(typing.cast("Any", kind))
    for field in dataclasses.fields(kind):
        where = f"{kind.__name__}.{field.name}"
        if where in MOVES:
            continue
        prefix = subject or ("" if where in CALLED else _SUBJECT.get(kind.__name__, f"{fact.replace('_', ' ')} "))
        yield from _compared(fact, hints[field.name], getattr(old, field.name), getattr(new, field.name), prefix, where)


# What a thing in a list is known by, and whether it is told when one comes or goes.
_IDENTITY: dict[str, Callable[[Any], str | None]] = {
    "Interface": lambda one: None if one.virtual and not one.loopback else f"interface {one.name}",
    "PciDevice": lambda one: f"{one.kind.upper()} at {one.address}",
    "HcaPort": lambda one: f"port {one.name}",
    "Folder": lambda one: one.path if one.role in ("named", "output") else f"{one.role.replace('_', ' ')} folder",
    "NcclLibrary": lambda one: one.path,
    "Library": lambda one: one.path,
    "NvLink": lambda one: f"NVLink {one.link}",
}


def _items(fact: str, kind: type[Any], old: Sequence[Any], new: Sequence[Any]) -> Iterator[Change]:
    identity = _IDENTITY.get(kind.__name__)
    if identity is None:
        return
    olds = {name: one for one in old if (name := identity(one)) is not None}
    news = {name: one for one in new if (name := identity(one)) is not None}
    for name in (*olds, *(name for name in news if name not in olds)):
        if name not in news:
            yield Change(fact, name, "removed")
        elif name not in olds:
            yield Change(fact, name, "added")
        else:
            yield from _fields(fact, kind, olds[name], news[name], f"{name} ")


def _gpus(old: Sequence[Gpu], new: Sequence[Gpu]) -> Iterator[Change]:
    """GPUs by their UUIDs. One without (it is lost, or may not be asked) is the one that had its number."""
    left = {gpu.uuid: gpu for gpu in new if gpu.uuid}
    nameless = {gpu.index: gpu for gpu in new if not gpu.uuid}
    for gpu in old:
        now = left.pop(gpu.uuid, None) if gpu.uuid else nameless.pop(gpu.index, None)
        if now is None:
            now = nameless.pop(gpu.index, None)
        subject = f"GPU {gpu.index} "
        if now is None:
            yield Change("gpus", subject.strip(), "removed", gpu.name)
        elif now.lost and not gpu.lost:
            yield Change("gpus", subject.strip(), "changed", _NONE["Gpu.lost"], now.lost)
        else:
            if now.index != gpu.index and len(old) == len(new):
                yield Change("gpus", f"{subject}number", "changed", gpu.index, now.index)
            yield from _fields("gpus", Gpu, _without_links(gpu), _without_links(now), subject)
            before, after = gpu.nvlinks_active, now.nvlinks_active
            if before != after and before is not None and after is not None:
                yield Change("gpus", f"{subject}active NVLinks", "changed", before, after)
    for gpu in (*left.values(), *nameless.values()):
        yield Change("gpus", f"GPU {gpu.index}", "added", None, gpu.name)


def _without_links(gpu: Gpu) -> Gpu:
    return dataclasses.replace(gpu, nvlinks=())


def _links(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    """Paths between GPUs that are there both times, whatever their numbers are now."""
    now = {
        gpu.index: other.index
        for gpu in before.gpus or ()
        for other in after.gpus or ()
        if gpu.uuid is not None and gpu.uuid == other.uuid
    }
    news = {frozenset((link.a, link.b)): link for link in after.links or ()}
    moved: dict[tuple[str, str, str], list[str]] = {}
    for old in before.links or ():
        new = news.get(frozenset((now.get(old.a), now.get(old.b))))  # type: ignore[arg-type]
        if new is None:
            continue
        pair = f"{old.a}-{old.b}"
        if old.name != new.name and "?" not in (old.name, new.name):
            moved.setdefault(("link of GPU", old.name, new.name), []).append(pair)
        for field, word in (("p2p_read", "peer reads of GPU"), ("p2p_write", "peer writes of GPU")):
            was, is_ = getattr(old, field), getattr(new, field)
            if was is not None and is_ is not None and (was == 0) != (is_ == 0):
                moved.setdefault((word, _on(was), _on(is_)), []).append(pair)
    for (word, was, is_), pairs in moved.items():
        more = f" and {len(pairs) - _SHOWN_PAIRS} more" if len(pairs) > _SHOWN_PAIRS else ""
        yield Change("links", f"{word} {', '.join(pairs[:_SHOWN_PAIRS])}{more}", "changed", was, is_)


def _on(status: int) -> str:
    return "on" if status == 0 else "off"


def _mapping(fact: str, subject: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    for key in (*old, *(key for key in new if key not in old)):
        if key not in new:
            yield Change(fact, f"{subject}{key}", "removed", said("", old[key]))
        elif key not in old:
            yield Change(fact, f"{subject}{key}", "added", None, said("", new[key]))
        elif old[key] != new[key]:
            yield Change(fact, f"{subject}{key}", "changed", said("", old[key]), said("", new[key]))


def _flat(values: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(values, Mapping):
        return {prefix: values}
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= _flat(value, f"{prefix}.{key}" if prefix else str(key))
    return found


def _without_none(hint: Any) -> Any:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return next(arg for arg in typing.get_args(hint) if arg is not type(None))
    return hint


def called(where: str) -> str:
    """What people call a field: `power limit` for Gpu.power_limit_w."""
    if where in CALLED:
        return CALLED[where]
    name = where.partition(".")[2] or where
    unit = next((unit for unit, _ in _UNITS if name.endswith(unit)), "")
    return name.removesuffix(unit).replace("_", " ")


def said(where: str, value: Any) -> Plain:
    """A value as a person reads it; numbers without a unit stay numbers."""
    name = where.partition(".")[2]
    if value is None:
        return _NONE.get(where, "not known")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_bytes") and isinstance(value, int):
        return gib(value)
    if isinstance(value, (int, float)):
        unit = next((word for unit, word in _UNITS if name.endswith(unit)), "")
        return f"{value:g}{unit}" if unit else value
    if isinstance(value, (tuple, list)):
        dotted = len(value) == 2 and all(type(part) is int for part in value)
        return (".".join if dotted else ", ".join)(map(str, value)) or "none"
    if name == "pci" and isinstance(value, str):
        return bus_address(value)
    return str(value)


def since(before: Snapshot, after: Snapshot) -> str:
    """When the older one was taken: `12 Nov 10:02 UTC`; the year where it is another one."""
    taken = before.taken or ""
    try:
        year, month, day = (int(part) for part in taken[:10].split("-"))
        name = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")[month - 1]
    except (ValueError, IndexError):
        return "it was saved"
    same = (after.taken or "")[:4] == taken[:4]
    clock = f" {taken[11:16]} UTC" if taken[13:14] == ":" else ""
    return f"{day} {name}{'' if same else f' {year}'}{clock}"
