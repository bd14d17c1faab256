"""How does a field of a fact declare its meaning? With marks in its type.

    vbios: Annotated[Same[Version | None], Wording(of_nodes="VBIOS")] = None

* The field's name states its meaning and ends in its unit (`UNITS`). `Wording` sets a different name for messages.
* `Same`, `Near`, `Identity`, `Assigned`, `Moment`, `History`, `Once` and `Measure` declare how it is compared: between
  the nodes of a job, and with an earlier Snapshot of the same machine. Without such a mark, Booleans, Literals,
  mappings and nested dataclasses are compared both ways; a test requires a mark on all other types.
* `Label`, `Text`, `Name` and the others are kinds of text. They differ in what is replaced when a Snapshot is shared. A
  test rejects a bare `str`. The keys of a mapping are treated like its values; keys have their own kind only if the
  values contain no text.

Type checkers see the plain types. mgpu/snapshot/field_marks.py reads the marks on first use.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from mgpu.snapshot.fast_dataclass import dataclass

T = TypeVar("T")

# fmt: off
# Suffix of a field's name -> unit in messages; bytes are shown as KiB, MiB or GiB.
UNITS = (
    ("_bytes", ""), ("_mbit_per_s", " Mbit/s"), ("_gbit_per_s", " Gbit/s"), ("_gt_per_s", " GT/s"),
    ("_mb_per_s", " MB/s"), ("_percent", " %"), ("_mhz", " MHz"), ("_w", " W"), ("_c", " C"), ("_s", " s"),
)
# fmt: on


def unit_of(name: str) -> tuple[str, str]:
    """Return the unit suffix of a field's name and the unit as messages show it; two empty strings if it has none."""
    return next(((ending, unit) for ending, unit in UNITS if name.endswith(ending)), ("", ""))


@dataclass(frozen=True)
class Wording:
    """How messages name a field, and how they show None if it does not mean "not known"."""

    name: str = ""  # "": the field's own name, without its unit
    none: str | None = None
    of_nodes: str = ""  # the name in comparisons between nodes, if different


@dataclass(frozen=True)
class Subject:
    """The prefix of a fact's fields in messages, for names that do not include it: "torch location"."""

    name: str


@dataclass(frozen=True)
class Measure:
    """A measured value, compared with the median of nodes of the same kind.

    Declares which side of the median is bad, and the smallest deviation that matters.
    """

    bad: Literal["high", "low"]
    share: float = 0.05  # smallest deviation that matters, as a share of the median
    least: float = 0.0  # smallest deviation that matters, in the field's unit
    unit: str = ""  # if the field's name does not end in one
    what: str = ""


Kind = Literal["identity", "moment", "categorical", "near", "numeric"]


@dataclass(frozen=True)
class Compared:
    """How a field is compared between nodes, and whether it varies over time, so changes are not reported."""

    between_nodes: Kind | None = None
    moves: bool = False


# Equal on nodes of the same kind: versions, counts, settings.
Same: TypeAlias = Annotated[T, Compared("categorical")]
# Equal within 2 %: the memory left for the kernel depends on the node's firmware.
Near: TypeAlias = Annotated[T, Compared("near")]
# Identifies one node or one piece of hardware (host, UUID, address); different on every node.
Identity: TypeAlias = Annotated[T, Compared("identity")]
# Like Identity, but assigned at every boot or job, or covered by another field: not compared over time either.
Assigned: TypeAlias = Annotated[T, Compared("identity", moves=True)]
# Varies over time or with the load (free memory, temperatures): never compared.
Moment: TypeAlias = Annotated[T, Compared("moment", moves=True)]
# Events on one node (error counters, error messages): compared over time only.
History: TypeAlias = Annotated[T, Compared("moment")]
# Measured each time: compared between nodes only.
Once: TypeAlias = Annotated[T, Compared(moves=True)]


@dataclass(frozen=True)
class Redaction:
    """What is replaced in a text when a Snapshot is shared.

    UUIDs and the names of home folders are replaced in every kind, IP addresses in most kinds, host and user names only
    in the kinds that may contain them.
    """

    kind: Literal["label", "text", "name", "version", "serial", "pid", "variable", "interface"]
    name_at: str | None = None  # the key of a mapping whose value is a name


# mgpu's own text, a model, a state, a command. Host and user names in it are coincidences: a host may be called `no`.
Label: TypeAlias = Annotated[str, Redaction("label")]
# A path or another program's message, which may contain names, and process IDs after "pid".
Text: TypeAlias = Annotated[str, Redaction("text")]
# A host or user name and nothing else.
Name: TypeAlias = Annotated[str, Redaction("name")]
# A version: four numbers in it are not an IP address.
Version: TypeAlias = Annotated[str, Redaction("version")]
# Identifies one piece of hardware, like a UUID.
Serial: TypeAlias = Annotated[str, Redaction("serial")]
# The value of an environment variable: paths and addresses in it may contain names.
Variable: TypeAlias = Annotated[str, Redaction("variable")]
# An interface and its address: "eth0:10.0.0.1".
InterfaceAddress: TypeAlias = Annotated[str, Redaction("interface")]
# A process ID.
Pid: TypeAlias = Annotated[int, Redaction("pid")]
# JSON of any shape that contains Label or Text strings.
Labels: TypeAlias = Annotated[Any, Redaction("label")]
Texts: TypeAlias = Annotated[Any, Redaction("text")]


class SecretByKey:
    """Marks a mapping with user-defined keys (variables, config keys): values of keys that name a secret are masked."""


SecretsByKey: TypeAlias = Annotated[T, SecretByKey]
