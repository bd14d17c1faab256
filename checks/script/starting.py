"""Does the script start, and does each rank run it to its end without a person?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Severity, check
from mgpu.command_line import shell
from mgpu.snapshot import Script, ScriptFault

from ._calls import finding, reached_calls
from ._rank_paths import in_every_run

_MODULES = "https://docs.python.org/3/tutorial/modules.html#intra-package-references"
_IMPORT = "https://docs.python.org/3/reference/simple_stmts.html#the-import-statement"
_CALLS = "https://docs.python.org/3/reference/expressions.html#calls"
_PDB = "https://docs.python.org/3/library/pdb.html"
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


@check(Severity.WARNING, source=_PDB)
def script_stops_in_debugger(script: Script) -> Answer:
    """The script stops in a debugger.

    Why: Every rank waits at the prompt, and all of them read from the same terminal. In a batch job there is none: pdb
    ends the run with BdbQuit.

    Fix: Remove the line.
    """
    found = in_every_run(script, reached_calls(script, _DEBUGGER))
    if not found:
        return Ok("no line stops every run in a debugger")
    return finding(
        script, found[0], f"{found[0].name}() stops every rank in a debugger", Fix("Remove the line."), found[1:]
    )
