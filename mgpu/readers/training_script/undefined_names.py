"""Which names does a file use although nothing in it ever binds them, so that Python stops with NameError?

A name that is bound anywhere in the file, in any scope and in any way, counts as defined.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence
from typing import TypeAlias

from mgpu.readers.training_script.bound_names import Bindings
from mgpu.readers.training_script.branches import EXITS
from mgpu.readers.training_script.scopes import Source
from mgpu.secrets_masking import masked
from mgpu.snapshot import ScriptFault

# fmt: off
# What else Python, IPython, line_profiler and gettext define; names of Python 2, which a test of the version may guard.
_KNOWN = frozenset(dir(builtins)) | frozenset({
    "__file__", "__path__", "__annotations__", "__class__", "__module__", "__qualname__", "__builtins__", "exit",
    "quit", "copyright", "credits", "license", "help", "get_ipython", "display", "profile", "reveal_type", "_",
    "WindowsError", "unicode", "basestring", "xrange", "raw_input", "long", "unichr", "reduce", "file", "cmp",
    "execfile", "reload",
})
# fmt: on
_BINDS_ANYTHING = frozenset({"exec", "execfile", "globals", "locals", "builtins", "__builtins__", "__import__"})
_CATCHES = frozenset({"NameError", "Exception", "BaseException"})
_GUARDS = ("TYPE_CHECKING", "version", "globals", "locals", "dir(")
_LEAVES = (ast.Return, ast.Raise, ast.Break, ast.Continue)
_MOST = 40
IMPORTED = "its module is imported"
Tests: TypeAlias = tuple[str, ...]  # conditions as written, outermost first


def undefined_names(tree: ast.Module, source: Source, names: Bindings, *, imported: bool = True) -> list[ScriptFault]:
    """Return the uses of names that nothing in the file binds: the first of each name, function and condition.

    Not those of code that only handles an error. `imported`: every start of the script imports the file at once.
    """
    anything = names.bound["*"] or _BINDS_ANYTHING & names.attributes or _BINDS_ANYTHING & names.mentioned
    if anything or names.of_sys["modules"]:  # sys.modules[__name__]
        return []
    missing = names.used - set(names.bound) - _KNOWN
    if not missing:
        return []
    reader = _Uses(source, missing)
    reader.body(tree.body, "", () if imported else (IMPORTED,))
    return reader.found[:_MOST]


class _Uses:
    """Collects the uses of names, each with the conditions under which its function runs the line."""

    def __init__(self, source: Source, missing: set[str]) -> None:
        """Set what is read: a file, and the names that nothing in it binds."""
        self.source, self.missing = source, missing
        self.found: list[ScriptFault] = []
        self.seen: set[tuple[str, str, Tests]] = set()

    def body(self, body: Sequence[ast.stmt], inside: str, tests: Tests, *, optional: bool = False) -> None:
        """Read statements. `optional`: a run may leave them out; if they end with an error, a good run does."""
        if optional and _stops(body):
            return
        for statement in body:
            self.look(statement, inside, tests)
            if isinstance(statement, _LEAVES):
                break  # the rest is not reached
            if isinstance(statement, ast.If) and not statement.orelse and _leaves(statement.body):
                tests = (*tests, self._words(statement.test, "not ({})"))

    def look(self, node: ast.AST, inside: str, tests: Tests) -> None:
        """Read a node, in code that is not skipped or caught. `inside`: its function."""
        if isinstance(node, ast.Name):
            self._use(node, inside, tests)
        elif isinstance(node, ast.Raise):
            return  # the run stops there anyway
        elif isinstance(node, ast.Try):
            if not any(_catches(handler) for handler in node.handlers):
                self.body([*node.body, *node.orelse], inside, tests)
            self.body(node.finalbody, inside, tests)
        elif (
            isinstance(node, ast.With | ast.AsyncWith) and any(_suppresses(one.context_expr) for one in node.items)
        ) or (isinstance(node, ast.While) and _is_guarded(node, self.source)):
            return
        elif isinstance(node, ast.If | ast.IfExp):
            self._branches(node, inside, tests)
        elif isinstance(node, ast.BoolOp):
            form = "{}" if isinstance(node.op, ast.And) else "not ({})"
            self.look(node.values[0], inside, tests)
            for before, one in zip(node.values, node.values[1:], strict=False):
                tests = (*tests, self._words(before, form))
                self.look(one, inside, tests)
        elif isinstance(node, ast.Match):
            self.look(node.subject, inside, tests)
            for case in node.cases:
                words = f"{self._words(node.subject)} matches {self._words(case.pattern)}"
                self.body(case.body, inside, (*tests, words), optional=True)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self._definition(node, inside, tests)
        elif isinstance(node, ast.Lambda):
            return  # it is not known who calls it
        else:
            self._children(node, inside, tests)

    def _use(self, node: ast.Name, inside: str, tests: Tests) -> None:
        if node.id not in self.missing or (node.id, inside, tests) in self.seen:
            return
        self.seen.add((node.id, inside, tests))
        place = (node.lineno, self.source.column(node), self.source.file, inside)
        self.found.append(ScriptFault(*place, conditions=tests, kind="undefined", name=node.id))

    def _branches(self, node: ast.If | ast.IfExp, inside: str, tests: Tests) -> None:
        if _is_guarded(node, self.source):
            return
        self.look(node.test, inside, tests)
        always = node.test.value if isinstance(node.test, ast.Constant) else None
        in_script = "__main__" in ast.unparse(node.test) and "__name__" in ast.unparse(node.test)
        yes = tests if always or in_script else (*tests, self._words(node.test))
        no = (*tests, self._words(node.test, "not ({})"))
        if isinstance(node, ast.IfExp):
            self.look(node.body, inside, yes)
            self.look(node.orelse, inside, no)
            return
        self.body(node.body, inside, yes, optional=True)
        self.body(node.orelse, inside, no, optional=True)

    def _definition(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, inside: str, tests: Tests
    ) -> None:
        for part in (*node.decorator_list, *(node.bases if isinstance(node, ast.ClassDef) else _defaults(node))):
            self.look(part, inside, tests)
        self.body(node.body, f"{inside}.{node.name}" if inside else node.name, ())

    def _children(self, node: ast.AST, inside: str, tests: Tests) -> None:
        for field, value in ast.iter_fields(node):
            if field == "annotation" or (field == "msg" and isinstance(node, ast.Assert)):  # the run stops there anyway
                continue
            if field in ("body", "orelse") and isinstance(value, list):
                self.body(value, inside, tests)
                continue
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, ast.AST):
                    self.look(part, inside, tests)

    def _words(self, node: ast.AST, form: str = "{}") -> str:
        return form.format(masked(self.source.words(node)))


def _leaves(body: Sequence[ast.stmt]) -> bool:
    """Whether the code after these statements is skipped in a run without errors."""
    last = body[-1]
    return isinstance(last, ast.Return | ast.Continue | ast.Break) or _exit_code(last) == 0


def _stops(body: Sequence[ast.stmt]) -> bool:
    """Whether the run ends with an error after these statements."""
    return bool(body) and (isinstance(body[-1], ast.Raise) or (_exit_code(body[-1]) or 0) > 0)


def _exit_code(node: ast.stmt) -> int | None:
    """Return 0 for sys.exit() and exit(0), 1 for an error, None if the statement is not an exit."""
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or ast.unparse(call.func) not in EXITS:
        return None
    code = call.args[0] if call.args else None
    return 0 if code is None or (isinstance(code, ast.Constant) and not code.value) else 1


def _suppresses(node: ast.expr) -> bool:
    """Whether a context catches a NameError."""
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress")


def _is_guarded(node: ast.If | ast.IfExp | ast.While, source: Source) -> bool:
    """Whether a condition may see to it that the name is defined, or nothing runs what is under it."""
    text = ast.unparse(node.test)
    if isinstance(node.test, ast.Constant) and not node.test.value:
        return True
    in_module = bool(source.file) and "__main__" in text and "__name__" in text
    return in_module or any(word in text for word in _GUARDS)


def _defaults(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.expr]:
    return [*node.args.defaults, *(one for one in node.args.kw_defaults if one is not None)]


def _catches(handler: ast.ExceptHandler) -> bool:
    """Whether a handler catches a NameError."""
    names = {one.id for one in ast.walk(handler.type) if isinstance(one, ast.Name)} if handler.type else _CATCHES
    return bool(names & _CATCHES)
