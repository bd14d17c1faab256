"""How are private names removed from a Snapshot before it is shared?

Host and user names, addresses, home folders and UUIDs are replaced by stable substitutes. Secrets are masked in every
Snapshot that is written, shared or not.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from mgpu.secrets_masking import masked, masked_value
from mgpu.snapshot import Snapshot, from_json, hints_of, to_json
from mgpu.snapshot.config_secrets import known_secrets
from mgpu.snapshot.field_marks import marks
from mgpu.snapshot.json_form import origin_and_args

_PID = re.compile(r"(?<=\bpid )\d+")
_HOME = re.compile(r"((?:/home|/Users)/|/torchinductor_)[^/\s:,'\"]+")  # torch names its cache after the user
_ADDRESS = re.compile(r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\d)|[0-9a-fA-F:]*:[0-9a-fA-F:.]*(?!\w))")
_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_UUIDS = re.compile(rf"(?P<whole>{_UUID})|(?<!MIG-)\b(?P<part>(?:GPU|MIG)-[0-9a-fA-F][0-9a-fA-F-]*)(?!\w)")


def mask_secrets(snapshot: Snapshot) -> Snapshot:
    """Return the Snapshot with secrets (passwords, tokens, keys) masked, recognized by name or format."""
    plain = to_json(snapshot)
    hidden = _mask_secrets(Snapshot, plain, "", known_secrets(snapshot))
    return snapshot if hidden == plain else from_json(hidden)


def _mask_secrets(hint: Any, data: Any, where: str, known: tuple[str, ...]) -> Any:
    """Return the JSON of one field with secrets masked, by its type hint; `where` is Class.field."""
    if data is None or isinstance(data, int | float):
        return data
    origin, args = origin_and_args(hint)
    if origin is Literal:
        return data
    if origin in (typing.Union, types.UnionType):
        return _mask_secrets(next(a for a in args if a is not type(None)), data, where, known)
    if isinstance(data, dict) and dataclasses.is_dataclass(hint):
        kinds, kind = hints_of(typing.cast("Any", hint)), typing.cast("type[Any]", hint).__name__
        return {key: _mask_secrets(kinds[key], value, f"{kind}.{key}", known) for key, value in data.items()}
    if isinstance(data, dict) and marks(where).secret_by_key:
        return masked_value(data)
    if isinstance(data, dict):
        inner = args[-1] if args else Any
        hidden = {masked(key, known): _mask_secrets(inner, value, where, known) for key, value in data.items()}
        return _mask_scalars(hidden) if where == "Config.scalars" else hidden
    if isinstance(data, list | tuple):
        return [_mask_secrets(args[0] if args else Any, value, where, known) for value in data]
    return masked(data, known) if isinstance(data, str) else data


def _mask_scalars(scalars: dict[str, Any]) -> dict[str, Any]:
    """Mask the text of config scalars whose keys name a secret."""
    return {key: one | {"text": masked_value(one["text"], key)} for key, one in scalars.items()}


def redact(snapshot: Snapshot) -> Snapshot:
    """Return the Snapshot with private names replaced by stable substitutes and secrets masked.

    Replaces host and user names, addresses, home folders and UUIDs. The same name gets the same substitute in every
    file, and everything that affects the verdict (loopback, equality, the UUID that an entry of CUDA_VISIBLE_DEVICES
    means) is preserved. A Snapshot that is already redacted is not redacted again, because entries of
    CUDA_VISIBLE_DEVICES would no longer match a GPU.
    """
    if snapshot.redacted:
        return mask_secrets(snapshot)  # a config may have been read since
    plain_masked = _mask_secrets(Snapshot, to_json(snapshot), "", known_secrets(snapshot))
    plain: dict[str, Any] = _redact_value(Snapshot, plain_masked, "", _Substitutes.of(snapshot))
    return from_json(plain | {"redacted": True})


def _substitute(kind: str, name: str) -> str:
    return f"{kind}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def _pid(pid: int) -> int:
    """Return a substitute above the kernel's largest PID (2^22), so that `kill` cannot hit a process."""
    return pid if pid <= 1 else 10_000_000 + pid * 7_368_787 % (1 << 22)


def _uuid(uuid: str) -> str:
    """Return a substitute UUID of the same format; a GPU- or MIG- prefix is kept."""
    # A UUID has 32 digits, but a saved file can contain any text.
    digits = itertools.cycle(hashlib.sha256(uuid.encode()).hexdigest())
    return re.sub(r"[0-9a-fA-F]", lambda _: next(digits), uuid)


@dataclass(frozen=True)
class _Substitutes:
    """The substitutes for one machine's names, and the full UUIDs that UUID prefixes can mean."""

    names: Mapping[str, str]
    gpus: tuple[str, ...]  # UUIDs of the GPUs that CUDA counts
    migs: tuple[str, ...]

    @classmethod
    def of(cls, snapshot: Snapshot) -> _Substitutes:
        """Return the substitutes for the names of this machine, its users and its job's nodes."""
        hosts = {snapshot.host.name if snapshot.host else "", snapshot.network.hostname if snapshot.network else ""}
        master = snapshot.network.master.name if snapshot.network and snapshot.network.master else ""
        for rank in snapshot.ranks.ranks if snapshot.ranks else ():  # a smoke test on several machines
            hosts |= {rank.host or "", *(peer.host or "" for peer in rank.peers)}
        hosts |= {rank.host or "" for rank in (snapshot.log.fallen if snapshot.log else ())}
        hosts |= {rank.host or "" for rank in (snapshot.run.ranks if snapshot.run else ())}
        if fleet := snapshot.fleet:
            hosts |= {*fleet.nodes, *fleet.missing, *(name.removesuffix(".json") for name in fleet.strangers)}
        hosts |= set() if _ADDRESS.fullmatch(master) else {master}
        hosts |= {short for name in hosts if not (short := name.partition(".")[0]).isdecimal()}
        hosts -= {"", "localhost", "localhost.localdomain"}
        users = {p.user for gpu in snapshot.gpus or () for p in gpu.processes or () if p.user}
        home = snapshot.storage.role("home") if snapshot.storage else None
        users |= {home.path.rstrip("/").rpartition("/")[2]} if home else set()
        users -= {"", "root"}
        permitted = [gpu for gpu in snapshot.gpus or () if gpu.permitted]
        return cls(
            {name: _substitute("user", name) for name in users} | {name: _substitute("host", name) for name in hosts},
            tuple(gpu.uuid for gpu in permitted if gpu.uuid),
            tuple(uuid for gpu in permitted for uuid in gpu.mig_uuids),
        )

    def text(self, text: str, where: str) -> str:
        """Return a text of the field `where` with names of users, hosts and devices replaced."""
        kind = marks(where).redaction.kind
        if kind == "serial":
            return _substitute("serial", text)
        named = _can_contain_names(where, text)
        if named and text in self.names:
            return self.names[text]
        if kind == "interface":  # eth0:10.0.0.1
            name, colon, address = text.partition(":")
            return f"{name}{colon}{_ADDRESS.sub(_address, address)}"
        text = _UUIDS.sub(self._replace_uuid, text)
        text = _HOME.sub(r"\1user", text)
        if kind != "version":
            text = _ADDRESS.sub(_address, text)
        if not named:
            return text
        return self._replace_names(_PID.sub(lambda found: str(_pid(int(found.group()[:18]))), text))

    def _replace_names(self, text: str) -> str:
        return self._any_name.sub(lambda found: self.names[found.group()], text) if self._any_name else text

    @cached_property
    def _any_name(self) -> re.Pattern[str] | None:
        names = sorted((re.escape(name) for name in self.names if len(name) > 1), key=len, reverse=True)
        return re.compile(rf"(?<![\w.-])(?:{'|'.join(names)})(?![\w-])") if names else None

    def _replace_uuid(self, found: re.Match[str]) -> str:
        """Return the substitute for a UUID or a prefix of one.

        A prefix becomes the substitute of the one UUID it matches. One that matches no GPU, or several, becomes a
        unique text that no UUID starts with.
        """
        if found["whole"]:
            return _uuid(found["whole"])
        part = found["part"]
        known = self.gpus if part.startswith("GPU") else self.migs
        meant = [part] if part in known else [uuid for uuid in known if uuid.startswith(part)]
        if len(meant) == 1 or (meant and part.startswith("MIG")):  # CUDA uses the first matching instance
            return part[:4] + _uuid(meant[0][4:])
        return f"{part[:4]}{_substitute('unknown', part)}"


def _can_contain_names(where: str, text: str) -> bool:
    """Whether a host or user name in this field is meant as one: in paths, messages, addresses in variables."""
    redaction = marks(where).redaction
    key = where.split(".", 2)[2:]  # of an entry of a mapping
    if redaction.kind == "variable":
        return bool(key) and ("/" in text or "ADDR" in key[0] or "HOST" in key[0])
    return redaction.kind in ("name", "text") or key == [redaction.name_at]


def _address(found: re.Match[str]) -> str:
    """Return the substitute for an IP address, which shows its version; loopback and unspecified addresses are kept."""
    import ipaddress

    text = found.group().rstrip(".:") or found.group()  # the end of a sentence
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return found.group()
    if address.is_loopback or address.is_unspecified:
        return found.group()
    return _substitute("address6" if address.version == 6 else "address", text) + found.group()[len(text) :]


def _redact_value(hint: Any, data: Any, where: str, substitutes: _Substitutes) -> Any:
    """Return the redacted JSON of one field, by its type hint; `where` is Class.field or Class.field.key."""
    if data is None or isinstance(data, bool | float):
        return data
    origin, args = origin_and_args(hint)
    if origin is Literal:
        return data
    if origin in (typing.Union, types.UnionType):
        return _redact_value(next(a for a in args if a is not type(None)), data, where, substitutes)
    if isinstance(data, dict) and dataclasses.is_dataclass(hint):
        kinds, kind = hints_of(typing.cast("Any", hint)), typing.cast("type[Any]", hint).__name__
        if where.startswith("Config.scalars."):  # redact like the parsed value
            where = where.replace("scalars", "values", 1)
            return {key: _redact_value(kinds[key], value, where, substitutes) for key, value in data.items()}
        return {key: _redact_value(kinds[key], value, f"{kind}.{key}", substitutes) for key, value in data.items()}
    if isinstance(data, dict):
        inner = args[-1] if args else Any
        return {
            substitutes.text(key, where): _redact_value(inner, value, f"{where}.{key}", substitutes)
            for key, value in data.items()
        }
    if isinstance(data, list | tuple):
        return [_redact_value(args[0] if args else Any, value, where, substitutes) for value in data]
    if type(data) is int and marks(where).redaction.kind == "pid":
        return _pid(data)
    return substitutes.text(data, where) if isinstance(data, str) else data
