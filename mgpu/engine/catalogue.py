"""The catalogue of all checks, `checks/README.md`, generated from their docstrings.

    python -m mgpu.engine.catalogue

writes it, and the numbers of checks in the README and in docs/. A test fails if they are out of date.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from mgpu import engine
from mgpu.check import Check
from mgpu.engine import selections
from mgpu.signature import Signature

FILE = Path(__file__).resolve().parents[2] / "checks" / "README.md"

_HEAD = """\
# The checks

Generated from the docstrings by `python -m mgpu.engine.catalogue`. Edit the docstrings, not this file. To write a
check, see [`__init__.py`](__init__.py).

{number} checks in {areas} areas. Each check is one function, whose name is its id for `--only`, `--skip` and
`--explain`. error: the run would not start, or would be wrong. warning: it may be slow, or fail later. info: worth
knowing.
"""


def text(checks: Sequence[Check]) -> str:
    """The whole page."""
    areas = list(dict.fromkeys(check.area for check in checks))
    parts = [_HEAD.format(number=len(checks), areas=len(areas))]
    for area in areas:
        mine = [check for check in checks if check.area == area]
        number = {s: sum(c.severity.value == s for c in mine) for s in ("error", "warning", "info")}
        counts = ", ".join(f"{n} {s}" for s, n in number.items() if n)
        parts.append(f"| [{area}](#{area}) | {counts} |")
    parts[1:] = ["| area | |\n|:--|:--|\n" + "\n".join(parts[1:]) + "\n"]
    for area in areas:
        parts.append(f"## {area}\n")
        parts += [_entry(check) for check in checks if check.area == area]
    return "\n".join(parts)


def _entry(check: Check) -> str:
    summary, *rest = check.doc.split("\n\n")
    lines = [f"### `{check.id}`", "", f"**{check.severity.value}** - {_line(summary)}", ""]
    for paragraph in rest:
        lines += [re.sub(r"^(Why|Fix):", r"**\1**", _line(paragraph)), ""]
    if check.because_of:
        lines += [f"Explained by {', '.join(f'`{id}`' for id in check.because_of)}.", ""]
    source = f"<{check.source}>" if check.source.startswith("http") else check.source
    return "\n".join([*lines, f"Source: {source}", ""])


def _line(paragraph: str) -> str:
    """A paragraph on one line, with HTML escaped."""
    return re.sub(r"<(?=[A-Za-z/])", r"\\<", " ".join(paragraph.split()))


def pages(root: Path) -> list[Path]:
    """Return the pages that name numbers of checks."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def update_counts(page: str) -> str:
    """Return a page with the current numbers of checks."""
    numbers = {
        r"\d+(?=\s+of\s+mgpu's\s+\d+\s+checks)": selections.MACHINE,
        r"(?<= of mgpu's )\d+(?=\s+checks)": selections.ALL,
        r"\d+(?=\s+checks\s+that\s+know\s+which\s+shell)": selections.JOB_SCRIPT,
        r"\d+(?=\s+checks\)\.)": selections.SCRIPT,
    }
    for pattern, selection in numbers.items():
        page = re.sub(pattern, str(len(engine.checks_of(selection))), page)
    texts = sum(isinstance(check, Signature) for check in engine.load())
    return re.sub(r"\d+(?=\s+texts,\s+each\s+explained\s+by)", str(texts), page)


def main() -> None:
    """Write the page, and the numbers in the others, in a source tree."""
    if not engine.is_our_source_tree(FILE.parents[1]):
        raise SystemExit("not in a source tree of mgpu: nothing written")
    FILE.write_text(text(engine.load()), encoding="utf-8")
    for path in pages(FILE.parents[1]):
        before = path.read_text("utf-8")
        if (after := update_counts(before)) != before:
            path.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()
