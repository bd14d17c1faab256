"""Pages that are files of the repository, or the part of one: each text is in one place."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from docs.generate.markup import front

ROOT = Path(__file__).resolve().parents[2]
# Links of these files to others of the repository, as links of the site.
_LINKS = {
    "../checks/__init__.py": "how-to-write-a-check.md",
    "../checks/": "how-to-write-a-check.md",
    "../mgpu/README.md": "architecture.md",
    "mgpu/README.md": "architecture.md",
    "tests/README.md": "how-mgpu-is-tested.md",
    "checks/README.md": "checks/index.md",
}
_LINK = re.compile(r"\]\(([^)#\s]+)\)")


def pages() -> dict[str, str]:
    """Return the pages."""
    return {
        "architecture.md": _file("mgpu/README.md", "Architecture", "How mgpu is built, and where to change what."),
        "how-mgpu-is-tested.md": _file("tests/README.md", "How mgpu is tested", "What is real in mgpu's tests."),
        "security.md": _file("SECURITY.md", "Security", "What mgpu reads, writes, starts, sends and trusts."),
        "how-to-write-a-check.md": _check_authors(),
        "reference/files.md": _files(),
    }


def _text(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def _file(name: str, title: str, description: str) -> str:
    text = _LINK.sub(lambda found: f"]({_LINKS.get(found[1], found[1])})", _text(name))
    body = re.sub(r"<!--.*?-->", "", text.partition("\n")[2])
    return f"{front(title, description)}# {title}\n{body}"


def _check_authors() -> str:
    """The docstring of `checks/__init__.py`: its example is indented, so Markdown shows it as code."""
    first, _, rest = (ast.get_docstring(ast.parse(_text("checks/__init__.py"))) or "").partition("\n")
    head = front("How to write a check", "How a check of mgpu is written: one pure function with its documentation.")
    return f"{head}# How to write a check\n\n{first}\n{rest}\n"


def _files() -> str:
    """The section of SECURITY.md about what mgpu writes."""
    found = re.search(r"^## What it writes\n(.*?)^## ", _text("SECURITY.md"), re.DOTALL | re.MULTILINE)
    assert found, "SECURITY.md has no section about what mgpu writes"
    head = front("Files", "Every file that mgpu writes, where it is and who can read it.")
    return f"{head}# Files that mgpu writes\n\nFrom [Security](../security.md).\n{found[1]}"
