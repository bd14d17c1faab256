"""A page for each check, from its docstring or its row of a table, and a list of them for each area."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence

from docs.generate.examples import examples
from docs.generate.markup import block, code, front, plain, source, table
from mgpu import engine
from mgpu.check import Check, Fix
from mgpu.engine import selections
from mgpu.engine.selections import Selection
from mgpu.signature import Row, Signature
from mgpu.text import counted

# Which command runs the check, in the order in which they are named.
_COMMANDS: tuple[tuple[str, Selection], ...] = (
    ("mgpu doctor", selections.MACHINE),
    ("mgpu doctor, mgpu configure --validate, in a project or site with its own rules", selections.LOCAL_RULES),
    ("mgpu doctor --script train.py", selections.SCRIPT),
    ("mgpu doctor --script job.sbatch", selections.JOB_SCRIPT),
    ("mgpu doctor --log run.log", selections.ENDED),
    ("mgpu doctor --hosts, --compare-nodes; pre-flights", selections.FLEET),
    ("mgpu configure --validate", selections.CONFIG),
    ("mgpu configure --validate ds_config.json", selections.DEEPSPEED_FILE),
    ("mgpu smoke-test", selections.SMOKE),
    ("mgpu launch", selections.VERIFIED),
    ("mgpu smoke-test, mgpu launch, before they start", selections.BEFORE_START),
    ("mgpu launch, while the run goes on and at its end", selections.REMARKS),
    ("mgpu launch --why", selections.HANG),
)
_WHO = {"you": "you", "admin": "an administrator", "hardware": "replacing or repairing hardware"}
_SEVERITY = {
    "error": "The run would not start, or would be wrong.",
    "warning": "The run may be slow, or fail later.",
    "info": "Worth knowing.",
}
_SAMPLES, _LONGEST_SAMPLE = 4, 600  # of a row on its page; characters
_TAGS, _LONGEST_TAG = 3, 120  # lines of logs by which a search finds the page
_FIELD = re.compile(r"\{(\w+)(?::\w+)?\}")  # of a template: a group of the pattern, with a kind in a command


def pages() -> dict[str, str]:
    """Return the pages of all checks, those of the areas, and the list of areas."""
    checks = engine.load()
    explained, commands = defaultdict(list), _commands()
    for check in checks:
        for cause in check.because_of:
            explained[cause].append(check.id)
    areas = {area: [check for check in checks if check.area == area] for area in dict.fromkeys(c.area for c in checks)}
    return {
        "checks/index.md": _index(areas),
        **{f"checks/area/{area}.md": _area(area, mine) for area, mine in areas.items()},
        **{f"checks/{c.id}.md": _page(c, explained[c.id], commands[c.id]) for c in checks},
    }


def _commands() -> Mapping[str, list[str]]:
    found = defaultdict(list)
    for command, selection in _COMMANDS:
        for check in engine.checks_of(selection):
            found[check.id].append(command)
    return found


def purpose(area: str) -> str:
    """Return the question that the checks of an area answer: the first line of its file."""
    return (sys.modules[f"mgpu.checks.{area}"].__doc__ or "").strip().partition("\n")[0]


def _index(areas: Mapping[str, Sequence[Check]]) -> str:
    total = sum(map(len, areas.values()))
    rows = []
    for area, mine in areas.items():
        numbers = [counted(n, s) for s in _SEVERITY if (n := sum(c.severity.value == s for c in mine))]
        rows.append((f"[{area}](area/{area}.md)", plain(purpose(area)), ", ".join(numbers).replace("infos", "info")))
    return (
        front("Checks", f"All {total} checks of mgpu by area, each with its reason, fix and source.")
        + f"# Checks\n\nmgpu has {total} checks in {len(areas)} areas. The name of a check is its ID for `--only`, "
        "`--skip` and `--explain`, and each has a page here: what it finds, why it matters, how to fix it, and the "
        "source. The pages are made from the checks' own documentation. The search box finds them by ID and by error "
        "message.\n\n"
        + "".join(f"* **{name}**: {text}\n" for name, text in _SEVERITY.items())
        + "\n"
        + table(("Area", "", "Checks"), rows)
    )


def _area(area: str, mine: Sequence[Check]) -> str:
    rows = [(f"[{code(c.id)}](../{c.id}.md)", c.severity.value, _words(c, c.summary)) for c in mine]
    head = front(f"Checks: {area}", f"{purpose(area)} {counted(len(mine), 'check')}.", searched=False)
    text = f"# {area}\n\n{plain(purpose(area))} [All areas](../index.md)\n\n"
    return f"{head}{text}{table(('Check', '', 'What is wrong'), rows)}"


def _page(check: Check, explained: Sequence[str], commands: Sequence[str]) -> str:
    summary, *rest = check.doc.split("\n\n")
    severity = check.severity.value
    # Search counts the words of the title most.
    title = f"{check.id}: {filled(check, summary).rstrip('.')}"
    row = check.row if isinstance(check, Signature) else None
    lines = [line for text in row.samples for line in text.splitlines()] if row else []
    tags = [line[:_LONGEST_TAG] for line in lines[:_TAGS]]
    parts = [front(title, filled(check, summary), tags=tags), f"# {plain(title)}\n"]
    for paragraph in rest:
        head, colon, text = paragraph.partition(": ")
        known = colon and head in ("Why", "Fix")
        parts.append(f"## {head}\n" if known else "")
        if head == "Fix" and row:
            parts.append(_fixes(row.fix))
        else:
            parts.append(f"{_words(check, text if known else paragraph)}\n")
    if row:
        parts += _of_row(row)
    if check.id in examples():
        command, finding = examples()[check.id]
        parts += ["## Example\n", f"`{command}` shows this finding of a described machine:\n", block(finding)]
    rows = [
        ("Severity", f"{severity}: {_SEVERITY[severity]}"),
        ("Area", f"[{check.area}](area/{check.area}.md): {plain(purpose(check.area))}"),
        ("Run by", "<br>".join(map(code, commands))),
        ("In a terminal", code(f"mgpu doctor --explain {check.id}")),
        ("Possible causes", _links(check.because_of)),
        ("Possible consequences", _links(explained)),
        ("Source", source(check.source)),
    ]
    return "\n".join([*parts, "## About this check\n", table(("", ""), [row for row in rows if row[1]])])


def _links(ids: Sequence[str]) -> str:
    return ", ".join(f"[{code(check_id)}]({check_id}.md)" for check_id in sorted(ids))


def filled(check: Check, text: str) -> str:
    """Return a text of a check; of a row, with PORT in place of {port}."""
    return _filled(text) if isinstance(check, Signature) else text


def _filled(template: str) -> str:
    return _FIELD.sub(lambda found: found[1].upper(), template).replace("{{", "{").replace("}}", "}")


def _words(check: Check, text: str) -> str:
    return plain(filled(check, text))


def _fixes(fix: Fix | tuple[Fix, ...]) -> str:
    """The fixes, best first, each with its commands, and who can run them if not the user."""
    parts = []
    for one in fix if isinstance(fix, tuple) else (fix,):
        who = f" Fix by: {_WHO[one.who]}." if one.who != "you" else ""
        caveat = f" ({plain(_filled(one.caveat))})" if one.caveat else ""
        parts.append(f"{plain(_filled(one.text))}{caveat}{who}\n")
        if one.commands:
            parts.append(block(_filled("\n".join(one.commands)), "bash"))
    return "\n".join(parts)


def _of_row(row: Row) -> list[str]:
    """The lines of logs that a row recognizes, and what they mean in certain runs."""
    samples = [text if len(text) <= _LONGEST_SAMPLE else f"{text[:_LONGEST_SAMPLE]}..." for text in row.samples]
    parts = ["## The lines it recognizes\n", block("\n".join(samples[:_SAMPLES]))]
    if row.cases:
        parts.append("## What it means in some runs\n")
        parts.append("The first case that applies replaces the general text.\n")
    for case in row.cases:
        title = _filled(case.title)
        parts += [f"**{plain(title[:1].upper() + title[1:])}**\n", f"{plain(_filled(case.why))}\n", _fixes(case.fix)]
    return parts
