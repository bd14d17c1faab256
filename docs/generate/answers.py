"""What can be decided in `mgpu configure`: the option, key and variable of each answer, from the wizard's records."""

from __future__ import annotations

from docs.generate.markup import code, front, plain, table
from mgpu.wizard.decision import Decision
from mgpu.wizard.topics import JOB, KEYS, SECTIONS

_HEAD = """\
# Answers of mgpu configure

Every answer has an option, a key for `--set` and for `mgpu.answers.toml`, and an environment variable. A flag counts
before `--set`, `--set` before the variable, the variable before the file, and the file before the value that mgpu
detects. `auto` restores the detected value.

`mgpu.answers.toml` has a table for each section, and only your decisions:

```toml title="Example"
[batch]
per_gpu = 8
dataset_size = 52002
```
"""


def page() -> str:
    """Return the page with every answer."""
    parts = [front("Answers", "The option, key and environment variable of each answer of mgpu configure."), _HEAD]
    for section, title in SECTIONS.items():
        mine = [one for one in KEYS if one.section == section]
        parts += [f"## {title}\n", *map(_entry, mine)]
    return "\n".join(parts)


def _entry(one: Decision) -> str:
    flag = f"{one.flag}, --no-{one.flag[2:]}" if one.switch else f"{one.flag} {one.metavar}"
    rows = [("Option", code(flag)), ("Key", code(one.dotted)), ("Variable", code(one.variable))]
    if one.choices:
        rows.append(("Values", "<br>".join(f"{code(name)}: {plain(what)}" for name, what in one.choices)))
    if one in JOB or one.engines is not None:
        rows.append(("For", plain(", ".join(one.engines)) if one.engines else "jobs (`--slurm`, `--emit`)"))
    if one.excludes:
        rows.append(("Not with", f"{code(one.excludes[0])}: {plain(one.excludes[1])}"))
    info = "".join(f"{plain(part)}\n\n" for part in one.info.split("\n\n") if part.strip())
    return f"### {one.dotted}\n\n{plain(one.help)}\n\n{info}{table(('', ''), rows)}"
