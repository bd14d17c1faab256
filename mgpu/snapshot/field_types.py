"""How does a field of a fact declare what it is? In its type, once.

    vbios: Annotated[Same[Version | None], Wording(of_nodes="VBIOS")] = None

* Its name is its meaning, and ends in its unit (`UNITS`). `Wording` is for a field that messages call something else.
* `Same`, `Near`, `Identity`, `Assigned`, `Moment`, `History`, `Once` and `Measure` say how it is compared: between the
  nodes of a job, and with the same machine as it was saved earlier. Without such a mark it is compared both times, if
  it is a flag, one of several words, a mapping or made of other fields; a test asks for the mark of any other.
* `Label`, `Text`, `Name` and the others are the kinds of text, which differ in what is replaced when a Snapshot is
  shared. A test refuses a bare `str`. The keys of a mapping are treated like its values; only if these hold no text do
  the keys have a kind of their own.

Type checkers see the plain types. mgpu/snapshot/field_marks.py reads the marks at their first use.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from mgpu.snapshot.fast_dataclass import dataclass

T = TypeVar("T")

# fmt: off
# The unit of a number, by the last part of its field's name; bytes are shown as KiB, MiB or GiB.
UNITS = (
    ("_bytes", ""), ("_mbit_per_s", " Mbit/s"), ("_gbit_per_s", " Gbit/s"), ("_gt_per_s", " GT/s"),
    ("_mb_per_s", " MB/s"), ("_percent", " %"), ("_mhz", " MHz"), ("_w", " W"), ("_c", " C"), ("_s", " s"),
)
# fmt: on


def unit_of(name: str) -> tuple[str, str]:
    """The last part of a field's name that is its unit, and the unit as messages write it; two empty texts if none."""
    return next(((ending, unit) for ending, unit in UNITS if name.endswith(ending)), ("", ""))


@dataclass(frozen=True)
class Wording:
    """How messages name a field, and its value None if that means something other than "not known"."""

    name: str = ""  # "": the field's own name, without its unit
    none: str | None = None
    of_nodes: str = ""  # when nodes are compared, if that is different


@dataclass(frozen=True)
class Subject:
    """The words before the fields of a fact whose names do not include it: "torch location"."""

    name: str


@dataclass(frozen=True)
class Measure:
    """A measured value, compared with the median of the nodes that are alike: which side is bad, and by how much it
    must differ to matter at all."""

    bad: Literal["high", "low"]
    share: float = 0.05  # of the median: the practical margin
    least: float = 0.0  # in its own unit
    unit: str = ""  # if the field's name has none
    what: str = ""


Kind = Literal["identity", "moment", "categorical", "near", "numeric"]


@dataclass(frozen=True)
class Compared:
    """How a field is compared between nodes, and whether it moves over time, so that a change is not reported."""

    between_nodes: Kind | None = None
    moves: bool = False


# Equal on nodes that are alike: versions, counts, settings.
Same: TypeAlias = Annotated[T, Compared("categorical")]
# Equal within 2 %: how much memory is left to the kernel depends on the node's firmware.
Near: TypeAlias = Annotated[T, Compared("near")]
# Names one node or one piece of hardware (host, UUID, address), so that no two nodes have the same.
Identity: TypeAlias = Annotated[T, Compared("identity")]
# The same, but given again at every boot or job, or known by another field: not compared over time either.
Assigned: TypeAlias = Annotated[T, Compared("identity", moves=True)]
# Moves by itself or with the load (free memory, temperatures): never compared.
Moment: TypeAlias = Annotated[T, Compared("moment", moves=True)]
# What happened to one node (error counters, error messages): compared over time only.
History: TypeAlias = Annotated[T, Compared("moment")]
# Measured again each time: compared between nodes only.
Once: TypeAlias = Annotated[T, Compared(moves=True)]


@dataclass(frozen=True)
class Redaction:
    """What is replaced in a text when a Snapshot is shared: UUIDs and the names of home folders in every kind, IP
    addresses in most kinds, names of machines and users only in the kinds that may hold them."""

    kind: Literal["label", "text", "name", "version", "serial", "pid", "variable", "interface"]
    name_at: str | None = None  # the key of a mapping at which there is a name


# Text of mgpu, a model, a state, a command: a name in it is a coincidence. A machine may be called `wheel` or `no`.
Label: TypeAlias = Annotated[str, Redaction("label")]
# A path or a message of another program, in which there may be names, and numbers of processes after "pid".
Text: TypeAlias = Annotated[str, Redaction("text")]
# Nothing but the name of a machine or a user.
Name: TypeAlias = Annotated[str, Redaction("name")]
# A version: four numbers in it are not an address.
Version: TypeAlias = Annotated[str, Redaction("version")]
# Names one piece of hardware, as a UUID does.
Serial: TypeAlias = Annotated[str, Redaction("serial")]
# The value of an environment variable: there are names in paths and in addresses.
Variable: TypeAlias = Annotated[str, Redaction("variable")]
# An interface and its address: "eth0:10.0.0.1".
InterfaceAddress: TypeAlias = Annotated[str, Redaction("interface")]
# The number of a process.
Pid: TypeAlias = Annotated[int, Redaction("pid")]
# JSON of any shape, with such texts in it.
Labels: TypeAlias = Annotated[Any, Redaction("label")]
Texts: TypeAlias = Annotated[Any, Redaction("text")]


class SecretByKey:
    """The keys are the user's (variables, keys of a config): one that names a secret has its value masked."""


SecretsByKey: TypeAlias = Annotated[T, SecretByKey]
