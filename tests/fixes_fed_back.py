"""Every fix that a finding proposes, applied to the file as a person would: its edits, or what its text says.

`proposals` turns a finding into the changes that it proposes: the edits of each fix, and each alternative in its text
("Write fsdp_version: 2.", "Delete it.", "Move it to fsdp_config."). `objections` applies one of them and returns what
is wrong with the result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import yaml

from checks.config import _schema
from checks.config.keys import TOP_KEYS as TOP
from mgpu.check import Edit, Problem
from mgpu.config import fixes, reading
from mgpu.engine import Outcome
from mgpu.snapshot import Config, Snapshot
from mgpu.validate import run

GRAVITY = {"info": 0, "warn": 1, "fail": 2}
SECTIONS = {section.name: section for section in _schema.SECTIONS}
NAMES = {*TOP, *(key for section in _schema.SECTIONS for key in section.keys)}
# Parts of a sentence that change nothing in the file.
_BESIDES = (
    r"\s*(\([^()]*\)|if you (want|mean|meant) .*|unless .*|to use the .*|in quotes|, including the quotes|with quotes"
    r"| for (production|one|a dry run)\b.*|, which is .*|: .* has no effect.*|^For [^,]*, )"
)


def section_of(key: str, problem: Problem) -> str:
    """The dotted key that a text means: at the top level, or in the section that has such a key."""
    if "." in key or key in TOP:
        return key
    own = (problem.place.key or "").partition(".")[0] if problem.place else ""
    homes = [name for name, section in SECTIONS.items() if section.canonical(key) in section.keys]
    if not homes:
        return key
    return f"{own if own in homes else homes[0]}.{key}"


def proposals(problem: Problem, values: dict[str, object]) -> Iterator[tuple[str, tuple[Edit, ...]]]:
    """Yield a name and the edits of everything that a finding proposes."""
    for fix in problem.fixes:
        if fix.edits:
            yield f"edits of {fix.text!r}", fix.edits
        else:
            yield from from_text(fix.text, problem, values)


def from_text(text: str, problem: Problem, values: dict[str, object]) -> Iterator[tuple[str, tuple[Edit, ...]]]:
    """Yield every alternative of a text, with the edits that a person makes who follows it."""
    at = problem.place.key if problem.place and problem.place.key else ""
    for sentence in re.split(r"(?<=[.])\s+(?=[A-Za-z])", text):
        sentence = sentence.strip().rstrip(".:")
        sentence = re.sub(_BESIDES, "", sentence)
        parts = re.split(r",? or (?=[a-zA-Z'])", sentence)
        verb = ""
        for part in parts:
            first = part.split(" ")[0].capitalize()
            verb = first if first in ("Write", "Delete", "Set", "Move", "Remove", "Turn") else verb
            edits = _edits(part if first == verb else f"{verb} {part}", at, problem, values)
            if edits:
                yield part, edits


def _edits(clause: str, at: str, problem: Problem, values: dict[str, object]) -> tuple[Edit, ...]:
    pairs = (
        re.findall(r"([\w.]+): ('[^']*'|\"[^\"]*\"|\[[^]]*\]|\S+)", clause) if clause[1:].startswith("rite ") else []
    )
    pairs += re.findall(r"^[Ss]et ([a-z_.0-9]+) to (?!the )(\w+)", clause)
    if pairs and clause[1:].startswith("rite it as "):
        (key, value), *more = ((section_of(key, problem), yaml.safe_load(value)) for key, value in pairs)
        others = (Edit("set", other, given) for other, given in more)
        return (Edit("rename", at, to=key), Edit("set", key, value), *others)
    if pairs and ": and below it" not in clause and "`" not in clause:
        edits = [Edit("set", section_of(key, problem), yaml.safe_load(value)) for key, value in pairs]
        deleted = re.findall(r" and delete (\w+)$", clause)
        return (*edits, *(Edit("delete", key) for key in deleted))
    alone = re.fullmatch(r"[Ww]rite ('[^']*'|\[[^]]*\]|[^\s,]+)", clause)
    if alone and at and alone[1] in NAMES:
        return (Edit("rename", at, to=section_of(alone[1], problem)),)
    if alone and at and (value := _value(alone[1])) is not None:
        return (Edit("set", at, value[0]),)
    if re.fullmatch(r"[Dd]elete (it|the (line|key|section))(:.*| to .*)?", clause) and at:
        return (Edit("delete", at.partition(".")[0] if "section" in clause else at),)
    if named := re.fullmatch(r"[Dd]elete ([a-z_0-9]+)", clause):
        return (Edit("delete", named[1] if named[1] in values else at),)
    if (moved := re.fullmatch(r"[Mm]ove it (?:to|under) (the top level|\w+)", clause)) and at:
        to = "" if moved[1] == "the top level" else f"{moved[1]}."
        return (Edit("rename", at, to=f"{to}{at.rpartition('.')[2]}"),)
    return ()


def _value(text: str) -> tuple[object] | None:
    """A value as written in a text; None for a word that stands for a value."""
    try:
        return (yaml.safe_load(text),)
    except yaml.YAMLError:
        return None


def findings(outcomes: Sequence[Outcome]) -> dict[tuple[str, str], Outcome]:
    """The findings of a file by check and key."""
    return {
        (o.check.id, (o.problem.place.key or "") if o.problem.place else ""): o
        for o in outcomes
        if o.problem is not None
    }


def judged(text: str, name: str, machine: Snapshot) -> tuple[Config, tuple[Outcome, ...]]:
    config = reading.parse_config(text.encode(), name)
    return config, run.judge(config, machine)


def objections(
    text: str, name: str, machine: Snapshot, outcome: Outcome, edits: tuple[Edit, ...], before: Sequence[Outcome]
) -> tuple[str | None, list[str]]:
    """Return the file with a proposal applied, and what is wrong with it. No file: it cannot be applied."""
    try:
        after = fixes.apply(text, edits, json_only=name.endswith(".json"))
    except fixes.CannotFix:
        return None, []
    _, outcomes = judged(after, name, machine)
    assert outcome.problem is not None
    old, new = findings(before), findings(outcomes)
    own = (outcome.check.id, (outcome.problem.place.key or "") if outcome.problem.place else "")
    wrong = []
    if own in new and new[own].problem and new[own].problem.title == outcome.problem.title:  # type: ignore[union-attr]
        wrong.append("the finding is still there")
    for key, found in new.items():
        if key in old or GRAVITY.get(found.status, 3) < GRAVITY[outcome.status] or _was_hidden(found, key[1], edits):
            continue
        assert found.problem is not None
        wrong.append(f"new: {found.status} {key[0]} {found.problem.title}")
    return after, wrong


def _was_hidden(found: Outcome, at: str, edits: tuple[Edit, ...]) -> bool:
    """Whether a fault was there before, in what accelerate did not read or mgpu could not judge.

    Another type or version makes accelerate read keys that it ignored. A number of ranks under its right name can be
    above the GPUs here. An offload that is applied at last needs CPU threads.
    """
    touched = {name for edit in edits for name in (edit.key, edit.to) if name}
    if {"distributed_type", "fsdp_config.fsdp_version"} & touched and at not in touched:
        return True
    if found.check.id == "config_leaves_gpus_idle" and "num_processes" in touched:
        return True  # the GPUs of a node that Slurm has not granted but does not hide either
    renamed = any(edit.kind == "rename" for edit in edits)
    return renamed and (found.check.area != "config" or set(found.check.facts) != {"config"})
