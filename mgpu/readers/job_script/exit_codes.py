"""With which code do statements end the script, whatever happened before?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mgpu.readers.job_script.shell_nodes import Block, Node, Simple

_DEEPEST = 12


def exit_code(nodes: Sequence[Node], functions: Mapping[str, list[Node]], depth: int = 0) -> str | None:
    """Return the code with which these statements always end the script; None if they may not, or it is not known."""
    for node in nodes:
        if not isinstance(node, Simple):
            if node.kind not in ("function", "subshell") and _may_exit([node], functions, depth):
                return None
            continue
        name = _name(node)
        if name == "exit":
            return node.words[1].plain if len(node.words) == 2 else None
        if name in functions and depth < _DEEPEST:
            body = _statements(functions[name])
            if _may_exit(body, functions, depth + 1):
                return exit_code(body, functions, depth + 1)
    return None


def _statements(body: Sequence[Node]) -> Sequence[Node]:
    """Return the statements of a function: those between its braces."""
    first = body[0] if body else None
    return first.parts[0] if isinstance(first, Block) and first.kind == "group" else body


def _may_exit(nodes: Sequence[Node], functions: Mapping[str, list[Node]], depth: int) -> bool:
    for node in nodes:
        if isinstance(node, Simple):
            name = _name(node)
            if name in ("exit", "exec", "return"):
                return True
            if name in functions and depth < _DEEPEST and _may_exit(functions[name], functions, depth + 1):
                return True
        elif node.kind not in ("function", "subshell") and any(_may_exit(p, functions, depth) for p in node.parts):
            return True
    return False


def _name(node: Simple) -> str:
    return (node.words[0].plain or "") if node.words else ""
