"""The documentation as plain text for language models: llms.txt (llmstxt.org) and llms-full.txt."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from mgpu import engine
from mgpu.documentation import SITE, check_url

_FRONT = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_HEAD = """\
# mgpu

> A command line tool that gets a PyTorch script training on several GPUs: it examines the machine (doctor), writes
> accelerate's config (configure), proves that all ranks train together (smoke-test), and starts the script with exactly
> that config (launch).

Each finding has an ID. `mgpu doctor --explain ID` prints its documentation; its page is {checks}ID/. All commands have
JSON output for programs (`--json`, `--json-schema`).
"""

Page = tuple[str, str, str]  # title, address, Markdown


def index(sections: Mapping[str, Sequence[Page]]) -> str:
    """Return llms.txt: the pages of the navigation, by its sections."""
    parts = [_HEAD.format(checks=f"{SITE}checks/")]
    for section, pages in sections.items():
        parts.append(f"## {section}\n")
        parts += [f"- [{title}]({address}): {_description(text)}" for title, address, text in pages]
        parts.append("")
    return "\n".join(parts)


def full(sections: Mapping[str, Sequence[Page]]) -> str:
    """Return llms-full.txt: those pages with their text, and a line for each check."""
    parts = [_HEAD.format(checks=f"{SITE}checks/")]
    for pages in sections.values():
        parts += [f"---\nSource: {address}\n\n{_FRONT.sub('', text).strip()}\n" for _, address, text in pages]
    parts.append("---\n# Every check\n")
    parts += [
        f"- {check.id} ({check.severity.value}): {check.summary} {check_url(check.id)}" for check in engine.load()
    ]
    return "\n".join(parts) + "\n"


def _description(text: str) -> str:
    """The description of a page, or its first sentence."""
    if found := re.search(r'\A---\n.*?^description: "?(.*?)"?$', text, re.DOTALL | re.MULTILINE):
        return found[1]
    body = _FRONT.sub("", text)
    paragraph = next((p for p in body.split("\n\n") if p.strip() and not p.lstrip().startswith(("#", "!", "`"))), "")
    return " ".join(paragraph.split()).partition(". ")[0].rstrip(".") + "."
