"""The statements of a shell script as data, before anything is expanded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from mgpu.readers.job_script.shell_words import Text, Word


@dataclass
class Assign:
    """NAME=value, NAME+=value, NAME=(values)."""

    name: str
    values: list[Word]
    line: int
    array: bool = False
    append: bool = False
    element: bool = False  # NAME[3]=value
    raw: str = ""


@dataclass
class Simple:
    """A simple command: assignments and words."""

    words: list[Word]
    assigns: list[Assign]
    line: int
    heredoc: Text | None = None  # its stdin
    heredoc_quoted: bool = False
    outputs: list[Word] = field(default_factory=list)  # the files to which it redirects its output


@dataclass
class Block:
    """A compound command: a group, the parts of an `if` or `case`, or the body of a loop."""

    kind: Literal["group", "subshell", "if", "loop", "case", "function", "pipe", "or"]
    parts: list[list[Node]] = field(default_factory=list)  # if: its conditions, then one list per branch
    name: str = ""  # of a function, or a loop's variable
    otherwise: bool = False  # if: there is an else
    background: bool = False
    line: int = 1


Node: TypeAlias = "Simple | Block"
