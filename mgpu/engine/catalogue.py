"""The catalogue of all checks, `checks/README.md`, made of their docstrings.

    python -m mgpu.engine.catalogue

writes it, and the numbers of checks in the README; a test says when that was forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from mgpu import engine
from mgpu.check import Check
from mgpu.engine import selections

FILE = Path(__file__).resolve().parents[2] / "checks" / "README.md"

_HEAD = """\
# The checks

Generated from the docstrings by `python -m mgpu.engine.catalogue`: change those, not this file. How a check is written
stands in [`__init__.py`](__init__.py).

{number} checks in {areas} areas. One check = one function: its name is the id that `--only`, `--skip` and `--explain`
take. error: the run would not start, or not be right. warning: it may be slow, or fail later. info: worth knowing.
"""


def text(checks: Sequence[Check]) -> str:
    """The whole page."""
    areas = list(dict.fromkeys(check.area for check in checks))
    parts = [_HEAD.format(number=len(checks), areas=len(areas))]
    for area in areas:
        mine = [check for check in checks if check.area == area]
        number = {s: sum(c.severity.value == s for c in mine) for s in ("error", "warning", "info")}
        told = ", ".join(f"{n} {s}" for s, n in number.items() if n)
        parts.append(f"| [{area}](#{area}) | {told} |")
    parts[1:] = ["| area | |\n|:--|:--|\n" + "\n".join(parts[1:]) + "\n"]
    for area in areas:
        parts.append(f"## {area}\n")
        parts += [_entry(check) for check in checks if check.area == area]
    return "\n".join(parts)


def _entry(check: Check) -> str:
    summary, *rest = check.doc.split("\n\n")
    lines = [f"### `{check.id}`", "", f"**{check.severity.value}** - {_line(summary)}", ""]
    for paragraph in rest:
        told = re.sub(r"^(Why|Fix):", r"**\1**", _line(paragraph))
        lines += [told, ""]
    if check.because_of:
        lines += [f"Explained by {', '.join(f'`{id}`' for id in check.because_of)}.", ""]
    source = f"<{check.source}>" if check.source.startswith("http") else check.source
    return "\n".join([*lines, f"Source: {source}", ""])


def _line(paragraph: str) -> str:
    """A paragraph in one line; what Markdown would take for HTML is escaped."""
    return re.sub(r"<(?=[A-Za-z/])", r"\\<", " ".join(paragraph.split()))


def counted(readme: str) -> str:
    """The README with today's numbers of checks."""
    numbers = {
        r"\d+(?=\s+of\s+mgpu's\s+\d+\s+checks)": selections.MACHINE,
        r"(?<= of mgpu's )\d+(?=\s+checks)": selections.ALL,
        r"\d+(?=\s+checks\s+that\s+know\s+which\s+shell)": selections.JOB_SCRIPT,
        r"\d+(?=\s+checks\)\.)": selections.SCRIPT,
    }
    for pattern, selection in numbers.items():
        readme = re.sub(pattern, str(len(engine.checks_of(selection))), readme)
    return readme


def main() -> None:
    """Write the page, and the README's numbers, in a source tree."""
    if not engine.is_our_source_tree(FILE.parents[1]):
        raise SystemExit("mgpu is installed, and this is no source tree of it: nothing written")
    FILE.write_text(text(engine.load()), encoding="utf-8")
    readme = FILE.parents[1] / "README.md"
    readme.write_text(counted(readme.read_text("utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
