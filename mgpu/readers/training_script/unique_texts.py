"""Which texts are different in each process: by the rank, a process id, a time or a random name?"""

from __future__ import annotations

import ast
import re

# Calls whose arguments may be the names of files or folders.
USES_PATH = re.compile(
    r"(?:save\w*|open|\w*Writer|init\w*|Run|start\w*|write\w*|dump\w*|makedirs|mkdir|Experiment|Path)$"
)
# Functions and methods that build a text or path from others.
_BUILDS_TEXT = frozenset(
    {
        "join",
        "joinpath",
        "Path",
        "str",
        "format",
        "replace",
        "with_name",
        "with_suffix",
        "abspath",
        "realpath",
        "lower",
        "open",
    }
)
_UNIQUE = re.compile(
    r"rank(?!ing)|process_index|proc_?id|SLURM_LOCALID|uuid\d|token_hex|mkdtemp|mkstemp|TemporaryDirectory"
    r"|NamedTemporaryFile|getpid|gethostname|\btime\(\)|\bnow\(|strftime|perf_counter",
    re.IGNORECASE,
)
_TIMED = re.compile(r"time\(\)|now\(|strftime|perf_counter", re.IGNORECASE)
_DOTTED = re.compile(r"[A-Za-z_][\w.]*")


def last_name(node: ast.expr) -> str:
    """Return the last part of a dotted name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def is_text_or_path(node: ast.expr) -> bool:
    """Whether an expression may be a text or path that is built from its parts."""
    if isinstance(node, ast.Call):
        name = last_name(node.func)
        return name in _BUILDS_TEXT or is_unique_text(f"{name}()")
    return isinstance(
        node, ast.JoinedStr | ast.BinOp | ast.Name | ast.Attribute | ast.IfExp | ast.BoolOp | ast.Subscript
    )


def is_unique_text(text: str) -> bool:
    """Whether an expression visibly contains the rank, a process id, a time or a random name."""
    return bool(_UNIQUE.search(text))


def is_timed_text(text: str) -> bool:
    """Whether everything in an expression that is visibly different in each process is a time."""
    return all(_TIMED.fullmatch(one[0]) for one in _UNIQUE.finditer(text))


def dotted_names(text: str) -> list[str]:
    """Return the dotted names in an expression."""
    return _DOTTED.findall(text)


def given(node: ast.Call) -> list[ast.expr]:
    """Return all arguments of a call."""
    return [*node.args, *(keyword.value for keyword in node.keywords)]
