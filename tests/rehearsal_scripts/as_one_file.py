"""A rehearsed script as a user would have it: with the functions of `setting` in it."""

from __future__ import annotations

import ast
from pathlib import Path

SETTING = Path(__file__).with_name("setting.py")


def as_one_file(script: Path) -> str:
    """Return the script's text with the functions that it imports from `setting`."""
    text, setting = script.read_text(), SETTING.read_text()
    line = next(line for line in text.splitlines() if line.startswith("from setting import "))
    functions = {one.name: one for one in ast.parse(setting).body if isinstance(one, ast.FunctionDef)}
    wanted, needed = line.partition("import ")[2].split(", "), []
    for name in wanted:
        if name not in needed:
            needed.append(name)
        inside = {one.id for one in ast.walk(functions[name]) if isinstance(one, ast.Name)}
        wanted += [one for one in inside if one in functions and one not in wanted]
    lines = setting.splitlines()
    parts = [
        "\n".join(lines[functions[name].lineno - 1 : functions[name].end_lineno])
        for name in functions
        if name in needed
    ]
    imports = [one for one in lines if one.startswith(("import ", "from "))]
    names = {word for part in parts for word in part.replace("(", " ").replace("[", " ").replace(".", " ").split()}
    kept = [one for one in imports if any(word.strip(",") in names for word in one.partition("import ")[2].split())]
    code = "\n".join([*kept, "", "", *("\n\n\n".join(parts)).splitlines(), "", ""])
    return text.replace(line, code, 1)
