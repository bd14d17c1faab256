"""What has the user decided, and where? One record, filled from a file, flags, the environment and questions.

The flags of `mgpu configure`, the variables MGPU_*, `--set`, the answers files and the command line that repeats a
session are all generated from the decisions in `topics/`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from mgpu import errors
from mgpu.errors import MgpuError, clip
from mgpu.secrets_masking import masked, masked_argv
from mgpu.wizard.answer_fields import Answers, Origin
from mgpu.wizard.decision import Decision
from mgpu.wizard.topics import BY_NAME, KEYS, SECTIONS

__all__ = ["BY_NAME", "KEYS", "SECTIONS", "UNDECIDED", "Answers", "Origin"]

UNDECIDED: Final = Answers()
AGAIN_BEFORE: Final = "Write it anew:  "  # codespell:ignore anew
AGAIN: Final = "Regenerate:  "  # in the comments of generated files, in front of the command that repeats the session


def key_named(text: str) -> Decision:
    """Return the decision for a dotted name, a field, a key or a flag. Raises MgpuError with the nearest name."""
    name = text.strip().lower().lstrip("-").replace("-", "_")
    for key in KEYS:
        if name in (key.name, key.dotted):
            return key
    bare = [key for key in KEYS if key.key == name]
    if len(bare) == 1:
        return bare[0]
    import difflib

    names = {
        **{k.name: k.dotted for k in KEYS},
        **{k.key: k.dotted for k in KEYS},
        **{k.dotted: k.dotted for k in KEYS},
    }
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f". Did you mean {names[near[0]]}?" if near else f"; choose one of {', '.join(k.dotted for k in KEYS)}"
    raise MgpuError(f"no answer is named {clip(repr(text))}{hint}", errors.USAGE)


def parse(name: str, raw: object) -> Any:
    """Return the value of a field; None or "auto" if mgpu is to choose. Raises ValueError with what is allowed."""
    if raw is None or (isinstance(raw, str) and raw.strip().lower() == "auto"):
        return UNDECIDED[name]
    value = BY_NAME[name].read(raw)
    if isinstance(value, str) and masked(value) != value:
        raise ValueError("must not contain a secret, because answers are saved in files and shown")
    return value


def holds_secret(name: str, value: Any) -> bool:
    """Return whether an answer cannot be saved: the command, with a secret among its arguments."""
    return name == "command" and value is not None and masked_argv(value) != [*value]


def as_typed(name: str, value: Any) -> str:
    """Return a value as the user would type it, so that `parse` reads the same value back."""
    if value in (None, "auto"):
        return "auto"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return BY_NAME[name].show(value)


# -- one record from several sources --------------------------------------------------------------------------------


def with_decision(answers: Answers, name: str, value: Any, origin: Origin = "you") -> Answers:
    """Return the answers with one more decision. Accepting the current value of a decided field changes nothing."""
    if answers[name] == value and name in answers.origins:
        return answers
    origins = {**answers.origins, name: origin}
    changed: dict[str, Any] = {name: value}
    if value not in (None, "auto"):
        for rival in BY_NAME[name].settles:
            changed[rival] = UNDECIDED[rival]
            origins.pop(rival, None)
    if name in ("params", "model"):
        changed["source"] = ""
    return replace(answers, **changed, origins=origins)


def merge(*layers: Answers) -> Answers:
    """Return one record: for each field, the first of the layers that decides it."""
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    blocked: set[str] = set()
    for layer in layers:
        taken = [name for name in layer.origins if name not in origins and name not in blocked]
        values |= {name: layer[name] for name in taken}
        origins |= {name: layer.origins[name] for name in taken}
        blocked |= {rival for name in taken if layer[name] not in (None, "auto") for rival in BY_NAME[name].settles}
    return Answers(**values, origins=origins)


def without(answers: Answers, names: Sequence[str]) -> Answers:
    """Return the answers without these decisions."""
    origins = {name: origin for name, origin in answers.origins.items() if name not in names}
    return replace(answers, **{name: UNDECIDED[name] for name in names}, origins=origins)


def collect(
    flags: Mapping[str, object],
    sets: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
    *,
    file: Answers | None = None,
) -> Answers:
    """Return the answers of the command line, the environment and an answers file, in that order of precedence."""
    layers = [
        _layer("flag", ((name, value, BY_NAME[name].flag) for name, value in flags.items() if value is not None)),
        _layer("flag", map(_assignment, sets)),
        _layer("env", ((k.name, environ[k.variable], f"{k.variable}=") for k in KEYS if environ.get(k.variable))),
    ]
    if file is not None:
        layers.append(file)
    answers = merge(*layers)
    if wrong := contradiction(answers):
        raise MgpuError(wrong, errors.USAGE)
    return answers


def _layer(origin: Origin, given: Iterable[tuple[str, object, str]]) -> Answers:
    """Return the answers of one source: (field, raw value, the spelling for messages)."""
    values: dict[str, Any] = {}
    written: dict[str, str] = {}
    for name, raw, where in given:
        try:
            values[name] = parse(name, raw)
        except ValueError as error:
            given_as = f"{where}{'' if where.endswith('=') else ' '}{raw}"
            raise MgpuError(f"{given_as}: {error}", errors.USAGE) from None
        written[name] = where
    for one in KEYS:
        other, why = one.excludes or ("", "")
        if values.get(one.name) is not None and values.get(other) is not None:
            pair = " and ".join(written[name].rstrip("=") for name in (one.name, other))
            raise MgpuError(f"{pair} cannot be used together: {why}", errors.USAGE)
    return Answers(**values, origins=dict.fromkeys(values, origin))


def _assignment(text: str) -> tuple[str, object, str]:
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise MgpuError(f"--set {text}: expected KEY=VALUE, for example --set batch.per_gpu=8", errors.USAGE)
    key = key_named(name)
    return key.name, value, f"--set {key.dotted}="


def contradiction(answers: Answers) -> str | None:
    """Return the first contradiction between answers, as one clause; None if there is none."""
    a = answers
    if a.params is not None and a.trainable is not None and a.trainable > a.params:
        return (
            f"{as_typed('trainable', a.trainable)} trained parameters are more than the model has "
            f"({as_typed('params', a.params)}): check --trainable and --params"
        )
    if a.effective_batch is None or a.batch_per_gpu is None:
        return None
    if a.effective_batch % a.batch_per_gpu:
        return f"an effective batch of {a.effective_batch} is not a multiple of {a.batch_per_gpu} per GPU"
    gpus = len(a.gpus) if isinstance(a.gpus, tuple) else a.gpus
    gpus = gpus if a.gpus_per_node is None else a.gpus_per_node
    ranks = (gpus or 0) * (a.nodes or 1)
    from mgpu.planning import plan

    step = plan.effective_batch(a.batch_per_gpu, ranks)
    if ranks and a.effective_batch % step:
        over = f" x {a.nodes} nodes" if (a.nodes or 1) > 1 else ""
        return (
            f"an effective batch of {a.effective_batch} is not a multiple of {a.batch_per_gpu} per GPU x {gpus} GPUs"
            f"{over} = {step}, so no accumulation reaches it"
        )
    return None


# -- repeating a session without questions --------------------------------------------------------------------------


def arguments(answers: Answers) -> list[str]:
    """Return the flags that repeat these decisions."""
    looked_up = answers.model is not None and answers.origins.get("params") == "probe"
    words = []
    for key in KEYS:
        value = answers[key.name]
        if key.name not in answers.origins or value in (None, "auto"):
            continue
        if key.name == "params" and looked_up:  # --model implies it
            continue
        if key.name == "model" and not looked_up and answers.params is not None:
            continue
        if key.switch:
            words.append(key.flag if value else key.flag.replace("--", "--no-", 1))
        else:
            words += [key.flag, as_typed(key.name, value)]
    return words


def equivalent_flags(answers: Answers, *, extra: Sequence[str] = (), width: int | None = None) -> str:
    """Return the command line that writes the same config without questions, split into lines of at most `width`."""
    import shlex

    words = [shlex.quote(word) for word in ("mgpu", "configure", "--yes", *extra, *arguments(answers))]
    groups: list[str] = []
    for word in words:  # a flag and its value stay together
        if groups and not word.startswith("-") and groups[-1].startswith("-") and " " not in groups[-1]:
            groups[-1] += f" {word}"
        else:
            groups.append(word)
    lines = [""]
    for group in groups:
        if width is not None and lines[-1].strip() and len(lines[-1]) + len(group) + 3 > width:
            lines.append("    ")
        lines[-1] += group if not lines[-1].strip() else f" {group}"
    return " \\\n".join(lines)
