"""Does the script start, and does each rank run it to its end without a person?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Severity, check
from mgpu.command_line import shell
from mgpu.snapshot import Script, ScriptFault
from mgpu.text import listed

from ._calls import finding, reached_calls
from ._normal_runs import NormalRuns
from ._rank_paths import in_every_run

_MODULES = "https://docs.python.org/3/tutorial/modules.html#intra-package-references"
_IMPORT = "https://docs.python.org/3/reference/simple_stmts.html#the-import-statement"
_PATH = "https://docs.python.org/3/library/sys_path_init.html"
_CALLS = "https://docs.python.org/3/reference/expressions.html#calls"
_SYNTAX = "https://docs.python.org/3/library/exceptions.html#SyntaxError"
_NAMES = "https://docs.python.org/3/library/exceptions.html#NameError"
# Methods that Python calls, most of them in no training run: to copy, print or compare an object.
_BY_PYTHON = re.compile(r"(?:.*\.)?(?!__(?:init|new|call|iter|next|len|getitem|enter)__)__\w+__")
_PDB = "https://docs.python.org/3/library/pdb.html"
_IN_HANDLER = re.compile("except")
_DEBUGGER = r"breakpoint|(?:pdb|ipdb|pudb)\.(?:set_trace|pudb)|IPython\.embed"


def _first(script: Script, kind: str) -> ScriptFault | None:
    return next((fault for fault in script.faults if fault.kind == kind), None)


@check(Severity.INFO, source=_MODULES, tags=("start_command",))
def script_is_part_of_package(script: Script) -> Answer:
    """The script has relative imports, so Python can start it only as a module.

    Why: Started as a file, it has no package. Python stops with "ImportError: attempted relative import with no known
    parent package".

    Fix: Start it as a module, in the folder that contains its package.
    """
    fault = _first(script, "relative")
    if fault is None or script.command_known:
        return Ok("no relative import, or it is started as a module")
    named = script.only_as_module
    template = "python -m {:dotted}" if script.spawns_ranks else "mgpu launch -m {:dotted}"
    fix = Fix(
        f"Start it as a module, in the folder that contains {named.partition('.')[0] or 'its package'}.",
        (shell(template, named),) if named else (),
    )
    title = f"`from {fault.name} import` works only in a module, not in a file that is started"
    return finding(script, fault, title, fix)


@check(Severity.INFO, source=_PATH, tags=("start_command",))
def script_imports_its_own_package(script: Script) -> Answer:
    """The script imports the package that contains it by its name, which Python finds only from the folder above it.

    Why: Started as a file, the script's own folder comes first in sys.path, not the one above. Unless the package is
    installed or PYTHONPATH is set, Python stops with ModuleNotFoundError.

    Fix: Start it as a module, in the folder that contains the package.
    """
    fault, (folder, named) = _first(script, "package"), script.in_own_package
    if fault is None or not named:
        return Ok("it does not import the package that contains it, or it is started as a module")
    launched = script.speaks not in (None, "nothing") and not script.spawns_ranks
    line = "mgpu launch -m {:dotted}" if launched else "python -m {:dotted}"
    command = shell(f"cd {{:path}} && {line}", folder, named) if folder else shell(line, named)
    top = named.partition(".")[0]
    fix = Fix(f"Start it as a module, in the folder that contains {top}.", (command,) if command else ())
    return finding(script, fault, f"{fault.name} is found only from the folder that contains {top}", fix)


@check(Severity.WARNING, source=_IMPORT, tags=("cannot_start",))
def script_imports_missing_name(script: Script) -> Answer:
    """The script imports a name that its own module does not define.

    Why: Every rank stops at once with "ImportError: cannot import name".

    Fix: Correct the name, or import it from the module that defines it.
    """
    fault = _first(script, "import")
    if fault is None:
        return Ok("the modules beside the script define what it imports from them")
    return finding(script, fault, f"{fault.of} does not define {fault.name}: the import fails")


@check(Severity.WARNING, source=_CALLS, tags=("cannot_start",))
def script_call_lacks_argument(script: Script) -> Answer:
    """The script calls its own function without an argument that it requires.

    Why: Every rank stops with "TypeError: missing 1 required positional argument". Often another file is the one to
    start, which imports the function and gives the argument.

    Fix: Give the argument, or start the file that calls the function with it.
    """
    fault = _first(script, "argument")
    if fault is None:
        return Ok("the calls at the top level give all required arguments")
    return finding(script, fault, f"{fault.of}() is called without {fault.name}, which it requires")


@check(Severity.WARNING, source=_SYNTAX, tags=("cannot_start",))
def script_imports_broken_module(script: Script) -> Answer:
    """The script imports a module of its own that is not valid Python.

    Why: Every rank stops with SyntaxError when it imports the module, before the training starts.

    Fix: Correct the line, and check the module with python -m py_compile.
    """
    fault = _first(script, "syntax")
    if fault is None:
        return Ok("no module that it imports at its start, as far as they were read, has a syntax error")
    return finding(script, fault, f"{fault.name}: every start of the script stops at the import of {fault.of}")


@check(Severity.WARNING, source=_NAMES)
def script_uses_undefined_name(script: Script) -> Answer:
    """The script uses a name that nothing in its file defines or imports, on a line that every run reaches.

    Why: Python looks the name up only when it runs the line, and then stops with NameError. After the training or in a
    signal handler, that loses what the run has computed.

    Fix: Import or define the name, or remove the line.
    """
    found = [one for one, tests in _undefined(script) if not tests]
    if not found:
        return Ok("the names in code that every run reaches are defined")
    first, others = found[0], _beside(found)
    names = listed(list(dict.fromkeys(one.name for one in [first, *others])))
    return finding(script, first, f"nothing in the file defines {names}: NameError when the line runs", others=others)


@check(Severity.INFO, source=_NAMES, because_of=("script_uses_undefined_name",))
def script_may_use_undefined_name(script: Script) -> Answer:
    """The script uses a name that nothing in its file defines or imports, under a condition.

    Why: Python looks the name up only when it runs the line, and then stops with NameError. Runs in which the condition
    is false do not reach the line.

    Fix: Import or define the name, or remove the line.
    """
    found = [(one, tests) for one, tests in _undefined(script) if tests]
    if not found:
        return Ok("the names in code that some runs reach are defined")
    first, tests = found[0]
    others = _beside([one for one, also in found if also == tests])
    names = listed(list(dict.fromkeys(one.name for one in [first, *others])))
    title = f"nothing in the file defines {names}: NameError if {' and '.join(tests[-2:])}"
    return finding(script, first, title, others=others)


def _undefined(script: Script) -> list[tuple[ScriptFault, tuple[str, ...]]]:
    """Return the uses of undefined names that a run reaches, one of each name and file, with their conditions."""
    runs, best = NormalRuns(script), dict[tuple[str, str], tuple[ScriptFault, tuple[str, ...]]]()
    for one in script.faults:
        if one.kind != "undefined" or _BY_PYTHON.fullmatch(one.function) or (tests := runs.conditions(one)) is None:
            continue
        known = best.get(key := (one.file, one.name))
        if known is None or (known[1] and not tests):
            best[key] = (one, tests)
    return list(best.values())


def _beside(found: list[ScriptFault]) -> list[ScriptFault]:
    return [one for one in found[1:] if one.name == found[0].name or one.file == found[0].file]


@check(Severity.WARNING, source=_PDB)
def script_stops_in_debugger(script: Script) -> Answer:
    """The script stops in a debugger.

    Why: Every rank waits at the prompt, and all of them read from the same terminal. In a batch job there is none: pdb
    ends the run with BdbQuit.

    Fix: Remove the line.
    """
    reached = [call for call in reached_calls(script, _DEBUGGER) if not any(map(_IN_HANDLER.match, call.within))]
    found = in_every_run(script, reached)
    if not found:
        return Ok("no line stops every run in a debugger")
    return finding(
        script, found[0], f"{found[0].name}() stops every rank in a debugger", Fix("Remove the line."), found[1:]
    )
