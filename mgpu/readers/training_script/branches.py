"""Which branches of a script are always or never taken, and after which statements is the rest not reached?"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from mgpu.readers.training_script.names import Frame
from mgpu.readers.training_script.rank_conditions import NOTHING, Guards, is_rank, merge_guards

EXITS = frozenset({"sys.exit", "exit", "quit", "os._exit"})
_NEVER = ("TYPE_CHECKING", "typing.TYPE_CHECKING")  # false when the script runs
_OF_FILES = re.compile(r"OSError|IOError|EnvironmentError|FileExistsError")
_EXISTS = re.compile(r"EEXIST|\bisdir\(|\bexists\(|\.is_dir\(")
_CHANGES_NAMES = frozenset({"exec", "globals", "setattr"})  # may give a flag another value


def leaves(body: Sequence[ast.stmt]) -> bool:
    """Whether the code after these statements is not reached."""
    last = body[-1]
    if isinstance(last, ast.Return | ast.Raise | ast.Continue | ast.Break):
        return True
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        return ast.unparse(last.value.func) in EXITS
    return False


def until_exit(body: Sequence[ast.stmt]) -> Sequence[ast.stmt]:
    """Return the statements up to the first after which none is reached."""
    last = next((at for at, one in enumerate(body) if leaves([one])), len(body))
    return body[: last + 1]


def main_guard(test: ast.expr) -> bool | None:
    """Return True for `__name__ == "__main__"`, False for the opposite; None for any other condition."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        value = main_guard(test.operand)
        return None if value is None else not value
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq | ast.NotEq):
        return None
    sides = (test.left, test.comparators[0])
    named = any(isinstance(one, ast.Name) and one.id == "__name__" for one in sides)
    text = any(isinstance(one, ast.Constant) and one.value == "__main__" for one in sides)
    return isinstance(test.ops[0], ast.Eq) if named and text else None


def remaining(node: ast.If, frame: Frame) -> Guards:
    """Return the ranks that continue after an `if` because it stops the others; nothing if it stops no rank."""
    stay, others = frame.split(node.test)
    if leaves(node.body):
        last, kept = node.body[-1], others
    elif node.orelse and leaves(node.orelse):  # `if rank == 0: ... else: return`
        last, kept = node.orelse[-1], stay
    else:
        return _left_by_others(node, frame)
    if isinstance(last, ast.Raise) and not _is_exit(last):  # a check of values
        return tuple(guard for guard in kept if guard == "distributed")
    return kept


def _is_exit(node: ast.Raise) -> bool:
    kind = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    return isinstance(kind, ast.Name) and kind.id == "SystemExit"


def case_ranks(subject: ast.expr, case: ast.match_case, frame: Frame) -> tuple[Guards, str]:
    """Return the ranks for which a case of a `match` holds, and its condition as text: "method == 'ddp'"."""
    pattern = case.pattern
    guards = frame.split(case.guard)[0] if case.guard is not None else ()
    if isinstance(pattern, ast.MatchValue | ast.MatchSingleton):
        value = pattern.value if isinstance(pattern, ast.MatchValue) else ast.Constant(pattern.value)
        words = frame.walk.mask("", f"{frame.source.words(subject)} == {frame.source.words(pattern)}")
        return merge_guards(frame.split(ast.Compare(subject, [ast.Eq()], [value]))[0], guards), words
    of_ranks = is_rank(frame.both(subject)) or frame.split(subject) != NOTHING
    return merge_guards(("some",) if of_ranks else (), guards), f"match {frame.condition(subject)}"


def _left_by_others(node: ast.If, frame: Frame) -> Guards:
    """Return the ranks after `if distributed: ... if not is_main: return`: rank 0, or the only process."""
    if "distributed" not in frame.split(node.test)[0]:
        return ()
    inner = [one for one in node.body if isinstance(one, ast.If) and not one.orelse and leaves(one.body)]
    kept = {guard for one in inner for guard in frame.split(one.test)[1]}
    return tuple(guard for guard in ("main", "local_main") if guard in kept)[:1]


def is_for_one_process(node: ast.If, frame: Frame) -> bool:
    """Whether a condition holds only in one process: `if args.stage == 2: assert not args.distributed`.

    Only conditions on options, which are the same in every function.
    """
    names = [one for one in ast.walk(node.test) if isinstance(one, ast.Name)]
    roots = {id(one.value) for one in ast.walk(node.test) if isinstance(one, ast.Attribute | ast.Subscript)}
    called = any(isinstance(one, ast.Call) for one in ast.walk(node.test))
    if called or not names or any(id(one) not in roots or one.id == "self" for one in names):
        return False
    return any(_requires_one_process(statement, frame) for statement in node.body)


def _requires_one_process(statement: ast.stmt, frame: Frame) -> bool:
    """Whether the run ends here if an option starts several ranks. A group that has not started says nothing."""
    if isinstance(statement, ast.Assert):
        test, guards = statement.test, frame.split(statement.test)[0]
    elif isinstance(statement, ast.If) and isinstance(statement.body[-1], ast.Raise):
        test, guards = statement.test, frame.split(statement.test)[1]
    else:
        return False
    return guards == ("single",) and not any(isinstance(one, ast.Call) for one in ast.walk(test))


def caught_errors(node: ast.Try) -> tuple[str, ...]:
    """Return the context of the body of a `try`: which errors in it do not end the run."""
    if any(map(_swallows_all, node.handlers)):
        return ("try",)
    return ("try OSError",) if any(map(_swallows_existing, node.handlers)) else ()


def caught_context(handler: ast.ExceptHandler) -> tuple[str, ...]:
    """Return the context of an `except`: an iterator has ended, a user has stopped the run, or any other."""
    kind = "" if handler.type is None else ast.unparse(handler.type)
    known = tuple(f"except {name}" for name in ("StopIteration", "KeyboardInterrupt") if name in kind)
    return known or ("except",)


def _swallows_all(handler: ast.ExceptHandler) -> bool:
    """Whether the run continues after any error that this handler catches."""
    kind = "" if handler.type is None else ast.unparse(handler.type)
    broad = not kind or any(name in kind for name in ("Exception", "RuntimeError", "AssertionError"))
    return broad and not any(isinstance(node, ast.Raise) for node in ast.walk(handler)) and not _ends_run(handler)


def _swallows_existing(handler: ast.ExceptHandler) -> bool:
    """Whether the run continues if a file or folder already exists."""
    kind = "" if handler.type is None else ast.unparse(handler.type)
    if not _OF_FILES.search(kind) or _ends_run(handler):
        return False
    raises = any(isinstance(node, ast.Raise) for node in ast.walk(handler))
    return not raises or bool(_EXISTS.search(ast.unparse(handler)))  # `if error.errno != errno.EEXIST: raise`


def _ends_run(handler: ast.ExceptHandler) -> bool:
    """Whether a handler ends the run."""
    return any(isinstance(node, ast.Call) and ast.unparse(node.func) in EXITS for node in ast.walk(handler))


def fixed_value(test: ast.expr, words: str, flags: dict[str, bool]) -> bool | None:
    """Return the value that a condition has in every run; None if it is not known."""
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if words in _NEVER:
        return False
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and isinstance(test.operand, ast.Name):
        value = flags.get(test.operand.id)
        return None if value is None else not value
    return flags.get(test.id) if isinstance(test, ast.Name) else None


def constant_flags(tree: ast.Module) -> dict[str, bool]:
    """Return the module's flags, `USE_WANDB = False`, that nothing else in the module can change."""
    flags = {
        one.targets[0].id: bool(one.value.value)
        for one in tree.body
        if isinstance(one, ast.Assign) and len(one.targets) == 1 and isinstance(one.targets[0], ast.Name)
        if isinstance(one.value, ast.Constant) and (one.value.value is None or isinstance(one.value.value, bool))
    }
    if not flags:
        return {}
    stored: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            if node.id in _CHANGES_NAMES:
                return {}
            if not isinstance(node.ctx, ast.Load) and node.id in flags:
                if node.id in stored:
                    del flags[node.id]
                stored.add(node.id)
        elif isinstance(node, ast.arg):
            flags.pop(node.arg, None)
        elif isinstance(node, ast.alias):
            flags.pop((node.asname or node.name).partition(".")[0], None)
            if node.name == "*":
                return {}
    return flags
