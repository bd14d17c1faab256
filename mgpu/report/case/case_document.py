"""The document of a case, from a redacted Snapshot alone: the same facts give the same document on every machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mgpu import engine, errors
from mgpu.engine import Outcome, explained, root_cause, selections
from mgpu.engine import verdict as verdicts
from mgpu.report import describe, document, failure, findings, log_report
from mgpu.report.case import run_entries
from mgpu.report.case.case_json import (
    CardEntry,
    CaseDocument,
    ConfigValueEntry,
    FindingEntry,
    HeadlineEntry,
    Light,
    PictureEntry,
    RowEntry,
    SlotEntry,
    SmokeTestEntry,
)
from mgpu.snapshot import Config, Gpu, HcaPort, PciDevice, Snapshot, topology

if TYPE_CHECKING:
    from mgpu.engine.verdict import SmokeVerdict, Verdict

_LIGHTS: dict[Verdict, Light] = {
    "ready": "ok",
    "ready_with_warnings": "warn",
    "not_ready": "fail",
    "unknown": "unknown",
    "no_gpu": "unknown",
}
_ETHERNET = "020000"  # PCI class
_LONGEST_VALUE = 200


def of_facts(snapshot: Snapshot) -> CaseDocument:
    """Judge the facts of a case and return its document. `snapshot` is redacted."""
    outcomes = engine.judge(snapshot, selections.DOCTOR)
    verdict = verdicts.of_machine(outcomes, snapshot)
    return of_outcomes(snapshot, outcomes, verdict, verdicts.exit_code(verdict))


def of_outcomes(snapshot: Snapshot, outcomes: Sequence[Outcome], verdict: Verdict, code: int) -> CaseDocument:
    """Return the document of facts that were judged before. The durations of the checks are left out."""
    of_run, others = split(snapshot, outcomes)
    case = _content(snapshot, outcomes, others, verdict, code)
    if of_run:
        chosen = root_cause.choose(of_run, snapshot.log, _ended(snapshot))
        triage: Any = failure.triage_document(chosen, snapshot.log, _ended(snapshot))
        case.update(triage)
    if snapshot.log is not None and snapshot.run is None:
        case["ending"] = log_report.ending_entry(snapshot.log, outcomes)
    case["headline"] = _headline(snapshot, case, findings.verdict_text(others, verdict, snapshot, None))
    return case


def of_smoke_test(
    snapshot: Snapshot,
    outcomes: Sequence[Outcome],
    verdict: SmokeVerdict,
    code: int,
    headline: HeadlineEntry,
    rows: Sequence[RowEntry],
) -> CaseDocument:
    """Return the document of a smoke test, whose `rows` are its stages."""
    case = _content(snapshot, outcomes, outcomes, verdict, code)
    case.update({"kind": "smoke_test", "headline": headline, "rows": list(rows)})
    if case["smoke_test"] is not None:
        case["smoke_test"]["passed"] = {"passed": True, "failed": False}.get(verdict)
    return case


def _content(
    snapshot: Snapshot, outcomes: Sequence[Outcome], others: Sequence[Outcome], verdict: str, code: int
) -> CaseDocument:
    """Return a document without its headline. `others`: the outcomes that do not concern the end of a run."""
    case: CaseDocument = document.envelope("case", outcomes, verdict, code, 0.0, snapshot)
    for entry in case["checks"]:
        entry["duration_s"] = 0.0
    effects = explained(others)
    more: Any = {
        "kind": _kind(snapshot),
        "rows": [_row(*row) for row in findings.row_texts(others, describe.rows(snapshot))],
        "findings": [_finding(one, effects.get(id(one), ())) for one in findings.in_order(others)],
        "picture": _picture(snapshot),
        "config": list(_config(snapshot)),
        "smoke_test": _smoke_test(snapshot, outcomes),
        "run": run_entries.run_entry(snapshot),
        "log_lines": run_entries.log_lines(snapshot.log),
        "packages": dict(sorted((snapshot.packages or {}).items())),
    }
    case.update(more)
    return case


def split(snapshot: Snapshot, outcomes: Sequence[Outcome]) -> tuple[list[Outcome], list[Outcome]]:
    """Return the outcomes on the end of a run, which are one cause with its effects, and all others."""
    if all(fact is None for fact in (snapshot.run, snapshot.hang, snapshot.log)):
        return [], list(outcomes)
    ids = {check.id for check in engine.checks_of(selections.ENDED)}
    return [one for one in outcomes if one.check.id in ids], [one for one in outcomes if one.check.id not in ids]


def _ended(snapshot: Snapshot) -> Any:
    """The run, if it has ended."""
    return snapshot.run if snapshot.run is not None and not snapshot.run.going else None


def _kind(snapshot: Snapshot) -> str:
    if snapshot.timeline is not None or snapshot.run is not None:
        return "run"
    if snapshot.host is None and not snapshot.gpus:
        return "smoke_test" if snapshot.ranks is not None else "files"
    return "smoke_test" if snapshot.ranks is not None else "machine"


def _headline(snapshot: Snapshot, case: CaseDocument, machine: tuple[str, str]) -> HeadlineEntry:
    """The verdict: of the run if there is one, else of a log, else of the machine."""
    if case["kind"] == "run":
        return run_entries.headline(snapshot, case.get("probable_cause"), case.get("first_failure"))
    word, text = machine
    if snapshot.log is not None and snapshot.host is None:
        state = case["ending"]["state"]
        cause = case.get("probable_cause")
        lights: Mapping[str, Light] = {"succeeded": "ok", "failed": "fail"}
        known = cause["title"] if cause else case["ending"]["line"] or "the log shows no known error"
        return {"word": state.upper(), "light": lights.get(state, "unknown"), "text": known}
    if snapshot.ranks is not None and (test := case["smoke_test"]) is not None:
        words: dict[bool | None, tuple[str, Light]] = {True: ("PASSED", "ok"), False: ("FAILED", "fail")}
        word, light = words.get(test["passed"], ("UNKNOWN", "unknown"))
        return {"word": word, "light": light, "text": test["text"]}
    return {"word": word, "light": _LIGHTS[case["verdict"]], "text": text}  # type: ignore[index]


def _row(status: engine.Status, label: str, text: str, group: Sequence[Outcome]) -> RowEntry:
    return {"status": status, "label": label, "text": text}


def _finding(outcome: Outcome, effects: Sequence[Outcome]) -> FindingEntry:
    entry: Any = document.check_json(outcome) | {"duration_s": 0.0}
    entry["also"] = [f"{one.check.id}: {document.outcome_text(one)}" for one in effects]
    return entry  # type: ignore[no-any-return]


# The picture


def _picture(snapshot: Snapshot) -> PictureEntry | None:
    """What is near to what; None without a GPU."""
    gpus = snapshot.gpus or ()
    if not gpus:
        return None
    nearby = {gpu.numa_node: gpu.cpus_near for gpu in gpus}
    cards, table = list(_cards(snapshot)), topology.matrix(snapshot)
    nodes = {*nearby, *(card["numa"] for card in cards)}
    return {
        "links": topology.explain_matrix(gpus, table) if len(table) > 1 else "",
        "switch": any(link.through_switch for link in snapshot.links or ()),
        "numa": [
            {"node": node, "cpus": nearby.get(node)} for node in sorted(nodes, key=lambda node: (node is None, node))
        ],
        "cards": cards,
        "slots": [_slot(gpu) for gpu in gpus],
    }


def _slot(gpu: Gpu) -> SlotEntry:
    generation = gpu.pcie_generation_max or gpu.pcie_generation
    parts = [f"x{gpu.pcie_width}" if gpu.pcie_width else "", f"Gen{generation}" if generation else ""]
    narrow = bool(gpu.pcie_width and gpu.pcie_width_max and gpu.pcie_width < gpu.pcie_width_max)
    return {
        "gpu": gpu.index,
        "pcie": " ".join(filter(None, parts)) or None,
        "narrow": narrow,
        "nvlinks": gpu.nvlinks_active,
    }


_KINDS = {"InfiniBand": "InfiniBand", "Ethernet": "RoCE", "EFA": "EFA"}


def _cards(snapshot: Snapshot) -> Iterator[CardEntry]:
    """The network cards: those with a fast port, then the others on the PCI bus."""
    ports = snapshot.infiniband.ports if snapshot.infiniband else ()
    for port in ports:
        yield _fast_card(port)
    fast = {name for port in ports for name in (port.device, *port.interfaces)}
    for card in snapshot.pci.of("nic") if snapshot.pci else ():
        if not fast & {card.address, *card.names}:
            yield _plain_card(card)


def _fast_card(port: HcaPort) -> CardEntry:
    kind = _KINDS.get(port.link_layer, "unknown")
    return {
        "name": port.name,
        "numa": port.numa_node,
        "state": port.state,
        "kind": kind,
        "gbit_per_s": port.rate_gbit_per_s,
    }


def _plain_card(card: PciDevice) -> CardEntry:
    kind = "Ethernet" if card.pci_class in (_ETHERNET, None) else "network card"
    name = "/".join(card.names) or card.address
    return {"name": name, "numa": card.numa_node, "state": None, "kind": kind, "gbit_per_s": None}


# The config


def _config(snapshot: Snapshot) -> Iterator[ConfigValueEntry]:
    """Every value of the config, with its source: the file, a DeepSpeed file, an option, the environment."""
    config = snapshot.config
    if config is not None:
        name = config.path.rpartition("/")[2] or config.path
        for key, value in _leaves(config.values):
            mark = config.marks.get(key)
            yield _value(key, value, f"{name}:{mark.line}" if mark else name)
        yield from _beside_file(config)
    for key, value in sorted((snapshot.env or {}).items()):
        yield _value(key, value, "environment")


def _beside_file(config: Config) -> Iterator[ConfigValueEntry]:
    for flag in config.launch_flags:
        yield _value(flag, "", "option that mgpu launch adds (comment of the config)")
    for flag in config.given:
        yield _value(f"--{flag}", "", "command line of the job script")
    if config.deepspeed_file is not None:
        for key, value in _leaves(config.deepspeed_file.values):
            yield _value(key, value, config.deepspeed_file.path.rpartition("/")[2])


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _value(key: str, value: Any, source: str) -> ConfigValueEntry:
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return {"key": key, "value": errors.clip(text, _LONGEST_VALUE), "source": source}


# The smoke test


def _smoke_test(snapshot: Snapshot, outcomes: Sequence[Outcome]) -> SmokeTestEntry | None:
    """What the last smoke test of this config measured."""
    from mgpu.planning import bandwidth

    ranks = snapshot.ranks
    if ranks is None:
        return None
    ids = {check.id for check in engine.checks_of(selections.SMOKE)}
    problems = [one for one in findings.in_order(outcomes) if one.check.id in ids and one.status == "fail"]
    passed = False if problems else True if ranks.ended == "finished" else None
    what = f"{ranks.expected} {'CPU ranks' if ranks.cpu else 'GPUs'}, level {ranks.level}, {ranks.strategy}"
    text = f"{what}: {document.outcome_text(problems[0]) if problems else ranks.ended.replace('_', ' ')}"
    return {
        "passed": passed,
        "text": text,
        "bandwidth": [
            {
                "collective": one.collective,
                "ranks": one.ranks,
                "size_bytes": one.size_bytes,
                "busbw_gb_per_s": one.busbw_gb_per_s,
            }
            for one in bandwidth.merge_ranks(ranks.ranks)
        ],
        "scaling": []
        if ranks.cpu  # they share the cores
        else [
            {"ranks": one.ranks, "samples_per_s": one.samples_per_s, "efficiency": one.efficiency}
            for one in bandwidth.merge_scaling(ranks.ranks)
        ],
    }
