"""What does a training script do, according to its syntax tree? It is never imported or run."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mgpu.errors import reason
from mgpu.probes.libraries import find_shadowed
from mgpu.readers.training_script import python_source
from mgpu.readers.training_script.certain_errors import certain_errors
from mgpu.readers.training_script.constant_parameters import constant_parameters
from mgpu.readers.training_script.decided_tests import Constants, Place
from mgpu.readers.training_script.framework import INIT, Hidden, framework
from mgpu.readers.training_script.known_libraries import is_harmless
from mgpu.readers.training_script.local_modules import (
    MOST_BYTES,
    MOST_BYTES_AT_LAUNCH,
    LocalModules,
)
from mgpu.readers.training_script.results import Results
from mgpu.readers.training_script.scopes import Scope, Source
from mgpu.readers.training_script.unread_code import may_average
from mgpu.readers.training_script.walk import Walk
from mgpu.secret_names import is_secret_name
from mgpu.secrets_masking import masked, masked_argv
from mgpu.several_ranks import TORCH_SPAWNS, has_option_of_several
from mgpu.snapshot import InScript, Script, ScriptCall, ScriptLoop, ScriptSet

__all__ = ["MOST_BYTES", "MOST_BYTES_AT_LAUNCH", "read"]

# Calls that start the ranks of a run.
_SPAWNS = re.compile(
    rf"{TORCH_SPAWNS}|accelerate\.(?:notebook_launcher|debug_launcher)"
    r"|torch\.distributed\.(?:launcher\.(?:api\.)?elastic_launch|run\.main)"
)
_PROCESS = re.compile(r"(?:torch\.)?multiprocessing\.Process")
_RUNS_COMMAND = re.compile(
    r"subprocess\.(?:run|Popen|call|check_call|check_output)|os\.(?:system|popen)|os\.(?:exec|spawn)\w+"
)
# A launcher at the start of a command, as a text or a list: 'torchrun ...', ["accelerate", "launch", ...].
_LAUNCHER = re.compile(
    r"[\[(]*\s*[rfb]?['\"](?:[A-Z_]+=\S* +)*(?:torchrun|deepspeed|accelerate['\", ]+launch|horovodrun|mpirun|mpiexec"
    r"|trl['\", ]+(?:sft|dpo|grpo|kto|reward|rloo)|axolotl['\", ]+train|llamafactory-cli['\", ]+train"
    r"|swift['\", ]+(?:sft|pt|rlhf))\b"
    r"|[\[(]*\s*(?:[rfb]?['\"])?(?:python[\d.]*|\{?sys\.executable\}?)['\", ]+-m['\", ]+"
    r"(?:torch\.distributed\.(?:run|launch)|accelerate\.commands\.launch|deepspeed\.launcher)\b"
)
_RANK = re.compile(r"\b(?:LOCAL_)?RANK\b")
# Calls that import a module, or create an object, by a name that only the run knows.
_BY_NAME = re.compile(
    r"importlib\.import_module|__import__|runpy\.run_(?:path|module)|hydra\.utils\.(?:instantiate|call|get_\w+)"
    r"|exec|.*\binstantiate_from_config"
)


def read(path: Path, arguments: Sequence[str] = (), *, follow: bool = True, most_bytes: int = MOST_BYTES) -> Script:
    """Return the fact `script`.

    With `follow`, also reads the modules of its project that it imports, up to `most_bytes`. If the file is not valid
    Python, `error` has the reason. Raises MgpuError for a file that does not exist or cannot be read.
    """
    shown, given = str(path), tuple(masked_argv(arguments))
    if isinstance(raw := python_source.read_python(path), str):
        return Script(shown, given, error=raw)
    modules = LocalModules(path, follow, most_bytes)
    parsed = _parsed(raw, package := modules.package())
    if not isinstance(parsed, tuple):
        return replace(parsed, path=shown, arguments=given)
    try:
        walk = _walk(modules, *parsed)
        facts = Results(walk).facts() | {"faults": certain_errors(*parsed, modules) if follow else ()}
    except RecursionError:
        return Script(shown, given, error="its statements are nested too deeply to be read")
    unread = tuple(sorted({module.partition(".")[0] for module in walk.elsewhere if not is_harmless(module)}))
    calls: tuple[ScriptCall, ...] = facts["calls"]
    by_name = tuple(_position(call) for call in calls if call.reached and _BY_NAME.fullmatch(call.name))
    cut = facts["cut"] or not follow
    speaks, unclear = framework(walk, calls, Hidden(unread, len(modules.skipped), bool(by_name), cut))
    return Script(
        shown,
        given,
        module=f"{package}.{path.stem}" if package else "",
        python=python_source.PYTHON,
        lines=len(parsed[1].lines) - (not parsed[1].lines[-1]),
        speaks=speaks,
        unclear=unclear,
        unread=unread,
        may_average=speaks == "ddp" and may_average(walk, calls, unread),
        files=tuple(modules.files),
        skipped=modules.skipped,
        by_name=by_name,
        shadowed=find_shadowed(modules.folder),
        spawns=tuple(call for call in calls if _certainly_spawns(call, facts["sets"], calls, facts["loops"])),
        **{**facts, "cut": facts["cut"] or bool(modules.skipped)},
    )


def _parsed(raw: bytes, package: str) -> tuple[ast.Module, Source] | Script:
    """Return the syntax tree of the script, or a fact with the reason why there is none."""
    try:
        return python_source.parse(raw, "", "", package)
    except SyntaxError as error:
        newer = python_source.newer_python(error)
        text = python_source.syntax_error(error)
        return Script("", error=text, error_line=error.lineno, python=python_source.PYTHON, newer_python=newer)
    except (ValueError, LookupError, UnicodeError) as error:  # a zero byte, an unknown encoding, not UTF-8
        return Script("", error=reason(error))
    except (RecursionError, MemoryError):
        return Script("", error="its expressions are nested too deeply to be read")


def _walk(modules: LocalModules, tree: ast.Module, source: Source) -> Walk:
    """Return what is in the script and its modules, without the branches that no run takes. Raises RecursionError."""
    walk = _walk_once(modules, tree, source, {})
    if modules.skipped or not (constants := constant_parameters(walk)):
        return walk
    modules.start_again()
    return _walk_once(modules, tree, source, constants)


def _walk_once(modules: LocalModules, tree: ast.Module, source: Source, constants: Mapping[Place, Constants]) -> Walk:
    walk = Walk(modules.find, _mask_value, constants)
    scope = Scope({"__name__": "__name__"})
    modules.add_script(scope)
    walk.module(tree, source, scope)
    walk.read_uncalled()
    return walk


def _position(call: ScriptCall) -> InScript:
    return InScript(call.line, call.column, call.file, call.function)


def _certainly_spawns(
    call: ScriptCall, sets: Sequence[ScriptSet], calls: Sequence[ScriptCall], loops: Sequence[ScriptLoop]
) -> bool:
    """Whether a call starts the ranks in every run of several."""
    counted = {loops[number].over for number in call.loops if number < len(loops)}
    several = [one for one in call.conditions if f"range({one.removesuffix(' > 1')})" in counted]
    if not call.reached or len(several) < len(call.conditions) or set(call.guards) - {"distributed"}:
        return False
    if (call.guards or several) and _may_have_launcher(sets, calls):  # it may also be started with a launcher
        return False
    if _PROCESS.fullmatch(call.name):  # in a loop; each joins a group with a rank that the script gives it
        ranks = [one.keywords.get("rank", "") for one in calls if one.name in INIT]
        target = call.keywords.get("target", "").rpartition(".")[2]
        joins = not target or target in _joining(calls)
        return (
            bool(call.loops)
            and joins
            and any(rank and "environ" not in rank and "getenv" not in rank for rank in ranks)
        )
    if not _RUNS_COMMAND.fullmatch(call.name) or not call.written:
        return bool(_SPAWNS.fullmatch(call.name))
    command = call.written[0]
    values = [one.value for one in sets if (one.target, one.file) == (command, call.file)]
    return any(_LAUNCHER.match(text) for text in (command, *values))


def _joining(calls: Sequence[ScriptCall]) -> set[str]:
    """Return the names of the functions that lead to the start of a process group."""
    found = {call.function.rpartition(".")[2] for call in calls if call.name in INIT}
    while True:
        callers = (call for call in calls if call.name.rpartition(".")[2] in found)
        more = {call.function.rpartition(".")[2] for call in callers} - found
        if not more:
            return found
        found |= more


def _may_have_launcher(sets: Sequence[ScriptSet], calls: Sequence[ScriptCall]) -> bool:
    """Whether the process group may get the rank that a launcher sets, or an option may decide it."""
    texts = [text for call in calls for text in (*call.arguments, *call.keywords.values(), *call.written)]
    texts += [one.value for one in sets]
    started = [call for call in calls if call.name in INIT]
    by_script = bool(started) and all("rank" in call.keywords for call in started)
    return not by_script or any(_RANK.search(text) or has_option_of_several(text) for text in texts)


def _mask_value(name: str, text: str) -> str:
    """Mask a secret value, recognized by the name it is assigned to or by its format."""
    quoted = text[:1] in "'\"" and len(text) > 2
    if quoted and name and is_secret_name(name):
        return "'***'"
    return masked(text) if len(text) >= 16 and ("'" in text or '"' in text or "://" in text) else text
