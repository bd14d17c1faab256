"""With which code do statements end the script, whatever happened before?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mgpu.readers.job_script.shell_nodes import Block, Node, Simple


def exit_code(
    nodes: Sequence[Node], functions: Mapping[str, list[Node]], calls: frozenset[str] = frozenset()
) -> str | None:
    """Return the code with which these statements always end the script; None if they may not, or it is not known.

    `calls`: the functions whose statements these are.
    """
    harmless: set[str] = set()
    for node in nodes:
        if not _may_exit([node], functions, harmless):
            continue
        if not isinstance(node, Simple):
            return None
        name = _name(node)
        if name in functions and name not in calls:
            return exit_code(_statements(functions[name]), functions, calls | {name})
        return node.words[1].plain if name == "exit" and len(node.words) == 2 else None
    return None


def _statements(body: Sequence[Node]) -> Sequence[Node]:
    """Return the statements of a function: those between its braces."""
    first = body[0] if body else None
    return first.parts[0] if isinstance(first, Block) and first.kind == "group" else body


def _may_exit(nodes: Sequence[Node], functions: Mapping[str, list[Node]], seen: set[str]) -> bool:
    """Whether statements may end the script or the function they are in. `seen`: functions not to look into again."""
    for node in nodes:
        if isinstance(node, Simple):
            name = _name(node)
            if name in ("exit", "exec", "return"):
                return True
            if name in functions and name not in seen:
                seen.add(name)
                if _may_exit(functions[name], functions, seen):
                    return True
        elif node.kind not in ("function", "subshell") and any(_may_exit(p, functions, seen) for p in node.parts):
            return True
    return False


def _name(node: Simple) -> str:
    return (node.words[0].plain or "") if node.words else ""
