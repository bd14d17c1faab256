"""Why did a run on several hosts end? One verdict from what each host says of its part.

A rank that fails makes the others fail too: their connections break. The engine chooses the cause that explains the
others, as within one host (engine/root_cause.py); among equals, the part that ended first counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mgpu import engine, file_reading
from mgpu.engine import root_cause, selections
from mgpu.fleet.hosts_run import RESULTS
from mgpu.process import run_log
from mgpu.report import failure
from mgpu.snapshot import Fleet, HostAccess, Snapshot
from mgpu.structured_text import json_of

if TYPE_CHECKING:
    from mgpu.launch.run_json import RunDocument

_LARGEST = 16 << 20  # bytes of one host's document
_MOST = 1024  # files
_RANKS = ("ranks", "remarks")  # lists of a document that all hosts have
_UNKNOWN_END = "How its ranks ended is not known. If it is up, it stops them by itself within 30 s."
_PEAKS = ("peak_host", "peak_allocated", "peak_reserved")  # of a rank up to some moment, if its host is lost


def amend(folder: Path, document: RunDocument, hosts: Sequence[Mapping[str, Any]]) -> None:
    """Complete the document of the whole run with what its hosts say. `hosts`: as in the run's orders."""
    parts = read_parts(folder)
    if not parts:
        return
    whole: Any = document
    whole["ranks"] = _ranks(document.get("ranks") or (), parts)
    whole["remarks"] = _remarks(document.get("remarks") or (), parts)
    first, there = whole["first_failure"], {one["rank"]: one["host"] for one in whole["ranks"]}
    if isinstance(first, dict) and not first.get("host"):
        whole["first_failure"] = {**first, "host": there.get(first["rank"])}
    if not document["exit_code"] or document["signalled"] or document["timed_out"]:
        return
    found = [(part, _triage(part, hosts)) for part in parts if part["code"]]
    # A part that mgpu stopped explains nothing: another one had failed before.
    found = [one for one in found if not (one[0]["document"] or {}).get("signalled")] or found
    if found:
        lost = [bool(part.get("lost")) for part, _ in found]
        names = [str(part["host"]) for part, _ in found if part.get("lost")]
        printed = _printed(whole, names, folder / run_log.NAME) if names else None
        whole.update(_first([triage for _, triage in found], lost, printed))


def _first(
    triages: Sequence[Mapping[str, Any]], lost: Sequence[bool], printed: Mapping[str, Any] | None
) -> Mapping[str, Any]:
    """Return the triage that explains the others. `lost`: whether each is of a host that was lost."""
    known = [*triages, *([printed] if printed else [])]
    causes = [triage.get("probable_cause") or {} for triage in known]
    first = root_cause.first_of_parts([(str(one.get("id")), str(one.get("role"))) for one in causes])
    if first < len(lost) and lost[first]:
        return known[first]
    of_lost = [cause for cause, is_lost in zip(causes, lost, strict=False) if is_lost and cause]
    return {**known[first], "secondary": [*of_lost, *(known[first].get("secondary") or ())]}


def _printed(document: Mapping[str, Any], lost: Sequence[str], log: Path) -> Mapping[str, Any] | None:
    """Return the root cause that the output shows if a host printed it that was lost later; None if there is none.

    What a rank prints before the connection breaks is not an effect of that. `log`: the output of all hosts.
    """
    cause = document.get("probable_cause")
    if not isinstance(cause, dict) or cause.get("role") != "root" or not isinstance(cause.get("line"), int):
        return None
    host = _printed_by(log, cause["line"])
    if host not in lost:
        return None
    evidence = {**(cause.get("evidence") or {})}
    if isinstance(line := evidence.get("line"), str):  # without what mgpu said after it
        evidence["line"] = line.partition("\nmgpu: ")[0]
    named = {**cause, "title": f"on {host}: {cause.get('title')}", "evidence": evidence}
    return {"first_failure": document.get("first_failure"), "probable_cause": named, "secondary": []}


def _printed_by(log: Path, number: int) -> str:
    """Return the host that printed a line, by its number from 1; "" if that is not known."""
    try:
        lines = file_reading.read_part(log, most=_LARGEST, start=0).decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    found = re.match(r"\[([^\]\s]+)\] ", lines[number - 1]) if 0 < number <= len(lines) else None
    return found[1] if found else ""


def _ranks(recorded: Sequence[Any], parts: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return how the ranks ended according to their hosts; of a host that is lost, only which ranks it had."""
    known = {one["rank"]: {**one, **dict.fromkeys(_PEAKS)} for one in recorded}
    for part in parts:
        for one in (part["document"] or {}).get("ranks") or ():
            known[one["rank"]] = {**one, "host": part["host"]}
    return [known[number] for number in sorted(known)]


def _remarks(joined: Sequence[Any], parts: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the findings on all ranks together, and those of each host on its GPUs."""
    of_hosts = [entry for part in parts for entry in (part["document"] or {}).get("remarks") or ()]
    ours = [entry for entry in joined if _is_joined(entry)]
    return [*ours, *_unique([entry for entry in of_hosts if isinstance(entry, dict) and not _is_joined(entry)])]


def _is_joined(entry: Mapping[str, Any]) -> bool:
    """Whether a finding is one on the ranks, which is made from what all hosts have recorded."""
    return bool({"uneven_ranks", "not_finite"} & set(engine.tags(str(entry.get("id")), selections.REMARKS)))


def read_parts(folder: Path) -> list[dict[str, Any]]:
    """Return what each host said of its part, in the order of their ends."""
    found = []
    for number in range(_MOST):
        try:
            part = json_of(file_reading.read_own(folder / RESULTS / f"{number}.json", most=_LARGEST))
        except OSError:
            break
        except ValueError:
            continue
        if isinstance(part, dict) and isinstance(part.get("code"), int) and isinstance(part.get("host"), str):
            own = part.get("document")
            found.append(
                {
                    **part,
                    "document": own if _is_sound(own) else None,
                }
            )
    return found


def _is_sound(document: Any) -> bool:
    """Whether a document has the parts that are used here, each of its kind: it came from another machine."""
    if not isinstance(document, dict):
        return False
    lists = [document.get(name) or [] for name in _RANKS]
    return (
        all(isinstance(one, list) for one in lists)
        and all(isinstance(one, dict) and isinstance(one.get("rank"), int) for one in lists[0])
        and all(isinstance(document.get(name) or {}, dict) for name in ("probable_cause", "first_failure", "hang"))
    )


def _triage(part: Mapping[str, Any], hosts: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the triage of a part, on its host."""
    if part.get("lost"):
        return _of_lost_host(part, hosts)
    document = part["document"] or {}
    found = {key: document[key] for key in ("probable_cause", "secondary", "hang", "foreseen") if key in document}
    first = document.get("first_failure")
    if isinstance(first, dict):
        found["first_failure"] = {**first, "host": part["host"]}
    if isinstance(cause := found.get("probable_cause"), dict):
        found["probable_cause"] = _on_host(cause, part["host"])
    return found


def _on_host(cause: Mapping[str, Any], host: str) -> Mapping[str, Any]:
    """Return a cause whose title names the host, if it has commands to type: they are for that host."""
    title, fixes = str(cause.get("title")), cause.get("fix")
    known = fixes if isinstance(fixes, list) else []
    has_commands = any(isinstance(fix, dict) and fix.get("commands") for fix in known)
    is_named = re.search(rf"(?<![\w.-]){re.escape(host)}(?![\w.-])", title) is not None
    return {**cause, "title": f"on {host}: {title}"} if has_commands and not is_named else cause


def _of_lost_host(part: Mapping[str, Any], hosts: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    name = part["host"]
    host = next((one for one in hosts if one["name"] == name), {"name": name})
    destination = f"{host['user']}@{name}" if host.get("user") else name
    access = HostAccess(name, destination, port=host.get("port"))
    fleet = Fleet((), {name: str(part["lost"])}, access=(access,))
    outcomes = engine.judge(Snapshot(fleet=fleet), selections.FLEET)
    found: Mapping[str, Any] = failure.triage_document(root_cause.choose(outcomes, None, None), None, None)
    cause = found["probable_cause"]
    if cause:
        cause = {**cause, "cause": f"{cause['cause']} {_UNKNOWN_END}"}
    return {**found, "probable_cause": cause, "first_failure": None}


def _unique(entries: Sequence[Any]) -> list[Any]:
    return [entry for place, entry in enumerate(entries) if entry not in entries[:place]]
