"""The pages of docs/ as the tests read them: their blocks of code, and which of those are commands to run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT

DOCS = ROOT / "docs"
PAGES = tuple(sorted(DOCS.glob("*.md")))
_FENCE = re.compile(r'^(`{3,})(\w+)?(?: title="([^"]*)")?\n(.*?)^\1$', re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"(?:^    .*\n|^\n(?=    ))+", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One block of code. `language` is empty for an indented one."""

    page: str
    language: str
    title: str
    text: str

    @property
    def is_run(self) -> bool:
        """Whether a test runs its commands: it is neither marked as an example nor as output."""
        return self.language in ("bash", "console") and not self.title

    @property
    def commands(self) -> list[list[str]]:
        """Its command lines that start mgpu, as words."""
        if self.language == "console":
            lines = [line[2:] for line in self.text.splitlines() if line.startswith("$ ")]
        elif self.language in ("bash", ""):
            lines = self.text.replace("\\\n", " ").splitlines()
        else:
            lines = []
        found = [re.search(r"(?:^|[\s/])mgpu (?!doctor \d|launch:)(.*)", line) for line in lines]
        return [["mgpu", *shlex.split(one[1], comments=True)] for one in found if one]


def blocks(page: Path) -> Iterator[Block]:
    """Every block of code of a page."""
    text = page.read_text("utf-8")
    for _, language, title, body in _FENCE.findall(text):
        yield Block(page.name, language or "text", title, body)
    for found in _INDENTED.finditer(_FENCE.sub("", text)):
        yield Block(page.name, "", "", "".join(line[4:] or "\n" for line in found[0].splitlines(keepends=True)))


def files(page: Path) -> dict[str, str]:
    """The blocks of a page that are files: the title is the name."""
    return {one.title: one.text for one in blocks(page) if re.fullmatch(r"[\w-]+\.\w+", one.title)}
