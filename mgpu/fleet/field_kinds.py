"""Define how each fact is compared between nodes.

* identity: names one node or one piece of hardware (host, UUID, address, pid): never compared.
* moment: changes over time or with the load (free memory, counters, error messages): never compared; the node's own
  checks judge it.
* categorical: identical on equal nodes (versions, counts, settings): compared for equality.
* near: almost identical (memory: firmware and kernel reserve slightly different amounts): equal within 2 %.
* numeric: measured; compared with the median of the equal nodes.

A field's declaration (mgpu/snapshot/field_types.py) decides, else its type. `kind_of` returns None if neither does, and
a test rejects such a field.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, Literal

from mgpu.snapshot import FACTS, Snapshot, hints_of
from mgpu.snapshot.changes import field_label
from mgpu.snapshot.field_marks import marks, subject_prefix
from mgpu.snapshot.field_types import Kind, Measure, unit_of

# Variables and config keys that naturally differ between nodes, or depend on a node's place in the job.
_OWN = re.compile(
    r"env\.(?:SLURM_(?:NODEID|PROCID|JOB_ID.*)|(?:PET_)?(?:NODE_|GROUP_|LOCAL_)?RANK|PMI_.*|OMPI_COMM_WORLD_.*RANK"
    r"|TORCHELASTIC_RUN_ID|ACCELERATE_PROCESS_.*|.*_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL|ZE_AFFINITY_MASK)|config\.values\.machine_rank"
)


def kind_of(where: str, hint: Any) -> Kind | None:
    """Return the kind of a field, `Class.field`; None if it declares none and its type does not decide."""
    declared = marks(where)
    if declared.measure:
        return "numeric"
    if declared.compared.between_nodes:
        return declared.compared.between_nodes
    hint = without_none(hint)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    flag = hint is bool or origin is Literal
    whole = dataclasses.is_dataclass(hint) or (origin is tuple and dataclasses.is_dataclass(args[0]))
    mapping = origin is not None and isinstance(origin, type) and issubclass(origin, Mapping)
    version = origin is tuple and args == (int, int)
    return "categorical" if flag or whole or mapping or version else None


def without_none(hint: Any) -> Any:
    """Return the type of a field without None."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return next(arg for arg in typing.get_args(hint) if arg is not type(None))
    return hint


def is_own(key: str) -> bool:
    """Whether this variable or config key naturally differs between nodes."""
    return bool(_OWN.fullmatch(key))


def is_near(key: str) -> bool:
    """Whether a key's numbers count as equal if they are nearly equal."""
    return marks(key_label(key).where).compared.between_nodes == "near"


def measure_of(where: str) -> Measure | None:
    """Return how a field is measured; None if it is not a measurement."""
    measure, unit = marks(where).measure, unit_of(where)[1]
    return replace(measure, unit=unit) if measure and unit else measure


@cache
def compared_facts() -> tuple[str, ...]:
    """Return the facts that are compared."""
    return tuple(fact for fact in FACTS if marks(f"Snapshot.{fact}").compared.between_nodes != "moment")


# fmt: off
# Names of keys that are not fields.
_CALLED = {
    "gpus.count": "GPUs", "gpus.visible.count": "visible GPUs", "nccl.loaded.version": "NCCL",
    "nccl.loaded.origin": "NCCL from", "infiniband.ports.count": "InfiniBand ports",
    "pci.devices.nic.count": "network cards", "pci.devices.gpu.count": "GPUs on the bus",
    "files.script": "training script", "files.config": "config file",
}
# fmt: on


@dataclass(frozen=True)
class KeyLabel:
    """The name of a key, and the field that formats its values."""

    what: str
    where: str  # Class.field, by which a value is formatted; "" for an entry of a mapping


@lru_cache(maxsize=20_000)  # some hundred keys, each needed once per role
def key_label(key: str) -> KeyLabel:
    """Return the name of a key: "eth0 mtu" for network.interfaces.eth0.mtu."""
    fact, _, rest = key.partition(".")
    hint = without_none(hints_of(Snapshot).get(fact, str))
    if key in COUNTS:
        return KeyLabel(_CALLED.get(key, f"number of {rest.removesuffix('.count').replace('_', ' ')}"), "")
    where, subject = _place(hint, rest, fact)
    if key in _CALLED:
        return KeyLabel(_CALLED[key], where)
    if not where:
        return KeyLabel(f"{subject or fact} ".replace("_", " ").strip() if not rest else subject, "")
    wording = marks(where).wording
    if wording.of_nodes and not subject:
        return KeyLabel(wording.of_nodes, where)
    prefix = f"{subject} " if subject else "" if wording.name else subject_prefix(where.partition(".")[0])
    return KeyLabel(f"{prefix}{field_label(where)}", where)


# fmt: off
COUNTS = frozenset({
    "gpus.count", "gpus.visible.count", "infiniband.ports.count", "pci.devices.nic.count", "pci.devices.gpu.count",
})
# fmt: on


def _place(hint: Any, rest: str, subject: str) -> tuple[str, str]:
    """Return `Class.field` for the rest of a key, and the name of the object that has the field."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple and args and dataclasses.is_dataclass(args[0]):
        name, _, field = rest.rpartition(".")
        kind = typing.cast("Any", args[0])
        if field in hints_of(kind):
            folder = kind.__name__ == "Folder" and "/" not in name
            return f"{kind.__name__}.{field}", f"{name.replace('_', ' ')} folder" if folder else name
        field, _, entry = rest.partition(".")  # an entry of a mapping in it: gpu_runs.results.bf16
        return "", f"{field.replace('_', ' ')} {entry}".strip()
    if not dataclasses.is_dataclass(hint):
        return "", rest or subject
    kind = typing.cast("Any", hint)
    field, _, inner = rest.partition(".")
    hints = hints_of(kind)
    if field not in hints:
        return "", rest or subject.replace("_", " ")
    if not inner:
        return f"{kind.__name__}.{field}", ""
    if kind.__name__ == "Config":
        return "", f"config {inner}"
    if kind.__name__ == "Pytorch" or field in ("wheels", "user_packages"):
        return "", inner
    where, name = _place(without_none(hints[field]), inner, field)
    if not where and name == inner:
        name = f"{field.replace('_', ' ')} {inner}"
    return where, name
