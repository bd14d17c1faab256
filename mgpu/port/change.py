"""The changes of a script: what is replaced, inserted or removed, each with its reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import libcst as cst

from mgpu.port.source_tree import SourceTree, assigned, targets

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
    file: int = 0


class Changes:
    """The collected changes of one script."""

    def __init__(self, tree: SourceTree) -> None:
        self.tree = tree
        self.all: list[Change] = []
        self._on_all: list[cst.CSTNode] = []

    def replace(self, node: cst.CSTNode, code: str, reason: str, *, on_all: bool = False) -> None:
        """Replace an expression by other code, which all ranks have to run if it is `on_all`."""
        if on_all:
            self._on_all.append(node)
        self.edit(node, lambda _: _in_parentheses(cst.parse_expression(code)), reason)

    def rename_call(self, call: cst.Call, code: str, reason: str) -> None:
        """Call another function with the same arguments."""
        new = cst.parse_expression(code)
        self.edit(call.func, lambda _: new, reason)

    def edit(self, node: cst.CSTNode, edit: Edit, reason: str) -> None:
        """Edit a node. The function gets the node with the edits of its children applied."""
        self._add(node, edit, self.tree.line(node), self.tree.last_line(node), reason)

    def _add(self, node: cst.CSTNode, edit: Edit, line: int, last: int, reason: str, *, decide: bool = False) -> None:
        file = self.tree.file(node)
        first = self.tree.first_line(file)
        self.all.append(Change(node, edit, line - first, last - first, reason, decide, file))

    def _statement(self, node: cst.CSTNode) -> cst.CSTNode:
        """The statement that contains a node: one of several on a line (`a; b`, `if c: a`) is separated from them."""
        small = self.tree.simple_statement(node)
        line = self.tree.parent(small) if small is not None else None
        if small is None or (isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1):
            return self.tree.statement(node)
        return small

    def before(self, node: cst.CSTNode, lines: Sequence[str], reason: str) -> None:
        """Insert statements before the statement that contains a node."""
        self._beside(node, lines, reason, after=False)

    def after(self, node: cst.CSTNode, lines: Sequence[str], reason: str) -> None:
        """Insert statements after the statement that contains a node."""
        self._beside(node, lines, reason, after=True)

    def _beside(self, node: cst.CSTNode, lines: Sequence[str], reason: str, *, after: bool) -> None:
        statement = self._statement(node)
        new = [cst.parse_statement(line) for line in lines]
        line = self.tree.last_line(statement) if after else self.tree.line(statement)

        def insert(updated: Any) -> Any:
            old = list(updated.nodes) if isinstance(updated, cst.FlattenSentinel) else [updated]
            if not after and old and hasattr(old[0], "leading_lines"):  # comments above the statement stay above it
                moved = [new[0].with_changes(leading_lines=old[0].leading_lines), *new[1:]]
                return cst.FlattenSentinel([*moved, old[0].with_changes(leading_lines=[]), *old[1:]])
            return cst.FlattenSentinel([*old, *new] if after else [*new, *old])

        self._add(statement, insert, line, line, reason)

    def remove(self, node: cst.CSTNode, reason: str) -> None:
        """Remove the statement that consists of a node. Where the node is a part of it, or binds more, mark it."""
        statement = self._statement(node)
        small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else statement
        whole = isinstance(small, cst.Expr) and small.value is node
        if whole or (assigned(small) is not None and len(targets(small)) == 1 and node in (small, assigned(small))):
            self.edit(statement, lambda _: cst.FlattenSentinel([]), reason)
        else:
            self.decide(node, f"remove {self.tree.code(node).strip()}, and keep the rest of the statement.")

    def guard(self, node: cst.CSTNode, condition: str, reason: str) -> None:
        """Run the statement that contains a node only under a condition."""
        statement = self._statement(node)

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
        if not any(one.decide and one.node is statement and one.reason == text for one in self.all):
            self._add(statement, mark, line, line, text, decide=True)

    def is_for_all(self, node: cst.CSTNode) -> bool:
        """Whether all ranks have to run a node, because of a change inside it."""
        return any(one is node or node in self.tree.parents(one) for one in self._on_all)

    def touches(self, node: cst.CSTNode) -> bool:
        """Whether a node is already edited."""
        return any(change.node is node and not change.decide for change in self.all)

    def apply(self) -> list[str]:
        """The text of each file with all changes."""
        edits: dict[int, list[Change]] = {}
        for change in self.all:
            edits.setdefault(id(change.node), []).append(change)
        return [module.visit(_Apply(edits)).code for module in self.tree.modules]


class _Apply(cst.CSTTransformer):
    def __init__(self, edits: dict[int, list[Change]]) -> None:
        super().__init__()
        self._edits = edits

    def on_leave(self, original_node: cst.CSTNode, updated_node: Any) -> Any:
        updated: Any = super().on_leave(original_node, updated_node)
        if isinstance(original_node, (cst.SimpleStatementLine, cst.SimpleStatementSuite)):
            if any(id(small) in self._edits for small in original_node.body):
                updated = self._separated(original_node, updated)
        elif isinstance(original_node, cst.BaseSmallStatement):
            return updated  # edited with its line
        elif isinstance(original_node, cst.FormattedString) and not original_node.deep_equals(updated):
            updated = updated.visit(_SingleQuotes()) if updated.end == '"' else updated
        updated = self._edited(original_node, updated)
        if isinstance(updated, cst.IndentedBlock) and not updated.body:
            updated = updated.with_changes(body=[cst.parse_statement("pass")])
        return updated

    def _edited(self, original: cst.CSTNode, updated: Any) -> Any:
        for change in sorted(self._edits.get(id(original), ()), key=lambda one: one.decide):
            updated = change.edit(updated)
        return updated

    def _separated(self, original: cst.SimpleStatementLine | cst.SimpleStatementSuite, updated: Any) -> Any:
        """Give each statement of a line a line of its own, and edit it there."""
        lines: list[Any] = []
        for small, new in zip(original.body, updated.body, strict=True):
            line = cst.SimpleStatementLine([new.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)])
            edited = self._edited(small, line)
            lines += edited.nodes if isinstance(edited, cst.FlattenSentinel) else [edited]
        if lines and isinstance(lines[-1], cst.SimpleStatementLine):
            lines[-1] = lines[-1].with_changes(trailing_whitespace=updated.trailing_whitespace)
        if isinstance(original, cst.SimpleStatementSuite):
            return cst.IndentedBlock(lines)
        if lines:
            lines[0] = lines[0].with_changes(leading_lines=updated.leading_lines)
        return cst.FlattenSentinel(lines)


class _SingleQuotes(cst.CSTTransformer):
    """Inside f"...", Python before 3.12 accepts only the other quotes."""

    def leave_SimpleString(self, original_node: cst.SimpleString, updated_node: cst.SimpleString) -> cst.SimpleString:
        inside = updated_node.value[1:-1]
        plain = updated_node.value.startswith('"') and not any(mark in inside for mark in "'\"\\")
        return updated_node.with_changes(value=f"'{inside}'") if plain else updated_node


def _in_parentheses(node: cst.BaseExpression) -> cst.BaseExpression:
    """Add parentheses to an operation, which may replace a part of another one."""
    if isinstance(node, (cst.BinaryOperation, cst.Comparison, cst.BooleanOperation, cst.IfExp)) and not node.lpar:
        return node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return node
