"""The changes of a script: what is replaced, inserted or removed, each with its reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import libcst as cst

from mgpu.port.source_tree import SourceTree

Edit = Callable[[Any], Any]
DECIDE = "# mgpu: decide: "


@dataclass(frozen=True)
class Change:
    """One edit of one node."""

    node: cst.CSTNode
    edit: Edit
    line: int
    last_line: int
    reason: str
    decide: bool = False


class Changes:
    """The collected changes of one script."""

    def __init__(self, tree: SourceTree) -> None:
        self.tree = tree
        self.all: list[Change] = []

    def replace(self, node: cst.CSTNode, code: str, reason: str) -> None:
        """Replace an expression by other code."""
        self.edit(node, lambda _: _in_parentheses(cst.parse_expression(code)), reason)

    def rename_call(self, call: cst.Call, code: str, reason: str) -> None:
        """Call another function with the same arguments."""
        new = cst.parse_expression(code)
        self.edit(call.func, lambda _: new, reason)

    def edit(self, node: cst.CSTNode, edit: Edit, reason: str) -> None:
        """Edit a node. The function gets the node with the edits of its children applied."""
        self.all.append(Change(node, edit, self.tree.line(node), self.tree.last_line(node), reason))

    def before(self, node: cst.CSTNode, lines: Sequence[str], reason: str) -> None:
        """Insert statements before the statement that contains a node."""
        self._beside(node, lines, reason, after=False)

    def after(self, node: cst.CSTNode, lines: Sequence[str], reason: str) -> None:
        """Insert statements after the statement that contains a node."""
        self._beside(node, lines, reason, after=True)

    def _beside(self, node: cst.CSTNode, lines: Sequence[str], reason: str, *, after: bool) -> None:
        statement = self.tree.statement(node)
        new = [cst.parse_statement(line) for line in lines]
        line = self.tree.last_line(statement) if after else self.tree.line(statement)

        def insert(updated: Any) -> Any:
            old = list(updated.nodes) if isinstance(updated, cst.FlattenSentinel) else [updated]
            if not after and hasattr(old[0], "leading_lines"):  # comments above the statement stay above it
                moved = [new[0].with_changes(leading_lines=old[0].leading_lines), *new[1:]]
                return cst.FlattenSentinel([*moved, old[0].with_changes(leading_lines=[]), *old[1:]])
            return cst.FlattenSentinel([*old, *new] if after else [*new, *old])

        self.all.append(Change(statement, insert, line, line, reason))

    def remove(self, node: cst.CSTNode, reason: str) -> None:
        """Remove the statement that contains a node."""
        statement = self.tree.statement(node)
        self.edit(statement, lambda _: cst.FlattenSentinel([]), reason)

    def guard(self, node: cst.CSTNode, condition: str, reason: str) -> None:
        """Run the statement that contains a node only under a condition."""
        statement = self.tree.statement(node)

        def wrap(updated: Any) -> Any:
            leading = updated.leading_lines
            inner = updated.with_changes(leading_lines=[])
            test = cst.parse_expression(condition)
            return cst.If(test=test, body=cst.IndentedBlock(body=[inner]), leading_lines=leading)

        self.edit(statement, wrap, reason)

    def decide(self, node: cst.CSTNode, text: str) -> None:
        """Mark a statement with a comment: what the user has to decide."""
        statement = self.tree.statement(node)
        comment = cst.EmptyLine(comment=cst.Comment(DECIDE + text))

        def mark(updated: Any) -> Any:
            if isinstance(updated, cst.FlattenSentinel):
                first = updated.nodes[0] if updated.nodes else None
                if first is None:
                    return updated
                return cst.FlattenSentinel([mark(first), *updated.nodes[1:]])
            return updated.with_changes(leading_lines=[*updated.leading_lines, comment])

        line = self.tree.line(statement)
        if not any(one.decide and one.line == line and one.reason == text for one in self.all):
            self.all.append(Change(statement, mark, line, line, text, decide=True))

    def touches(self, node: cst.CSTNode) -> bool:
        """Whether a node is already edited."""
        return any(change.node is node and not change.decide for change in self.all)

    def apply(self) -> str:
        """The text of the script with all changes."""
        edits: dict[int, list[Change]] = {}
        for change in self.all:
            edits.setdefault(id(change.node), []).append(change)
        return self.tree.module.visit(_Apply(edits)).code


class _Apply(cst.CSTTransformer):
    def __init__(self, edits: dict[int, list[Change]]) -> None:
        super().__init__()
        self._edits = edits

    def on_leave(self, original_node: cst.CSTNode, updated_node: Any) -> Any:
        updated = super().on_leave(original_node, updated_node)
        for change in sorted(self._edits.get(id(original_node), ()), key=lambda one: one.decide):
            updated = change.edit(updated)
        if isinstance(updated, cst.IndentedBlock) and not updated.body:
            updated = updated.with_changes(body=[cst.parse_statement("pass")])
        return updated


def _in_parentheses(node: cst.BaseExpression) -> cst.BaseExpression:
    """Add parentheses to an operation, which may replace a part of another one."""
    if isinstance(node, (cst.BinaryOperation, cst.Comparison, cst.BooleanOperation, cst.IfExp)) and not node.lpar:
        return node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return node
