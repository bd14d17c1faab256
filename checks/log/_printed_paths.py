"""What do the paths and lines mean that the program printed before an exception?

A path that contains a folder twice was joined to the folder that it begins with.
"""

from __future__ import annotations

import re
from dataclasses import replace

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.snapshot import UncaughtException

from .._wording import at_place
from ._own_objects import Meaning

# At least two folders in the same order: "data/audio/data/audio/". One alone is often meant: "kit/kit/x.py".
# Short names and numbers (tiles, hashes) repeat by chance: one of the folders must have a word in its name.
_FOLDER = r"[^/\\\s']{1,255}[/\\]"
_WITH_WORD = rf"(?=[^/\\\s']{{0,250}}?[^\W\d_]{{3}}){_FOLDER}"
TWICE = (
    rf"(?<![^/\\'])(?P<twice>(?:{_FOLDER}){{1,5}}{_WITH_WORD}(?:{_FOLDER}){{0,4}}|{_WITH_WORD}(?:{_FOLDER}){{1,5}})"
    r"(?P=twice)"
)
_TWICE = re.compile(TWICE)
_EXISTS = re.compile(r"\.(?:exists|is_file|is_dir|isfile|isdir)\(")
_NO_DATA = re.compile(
    r"\bempty\b|num_samples=0|No objects to concatenate|"
    r"\b(?:no|0|zero|not any) (?:\w+ )?(?:files?|samples?|images?|data|recordings?|videos?|examples?)\b",
    re.I,
)
_NOT_FOUND = "no data was found"
WHY = (
    "Probably a path that begins with this folder was joined to the folder itself, by the script or by the library "
    "that it calls."
)
FIX = Fix("If so, give the path relative to that folder, or a whole one that begins with /.")


def doubled_path(one: UncaughtException) -> Meaning | None:
    """Explain a test whether a file exists that failed, if the program printed a path with a folder twice."""
    if not (one.type == "AssertionError" and _EXISTS.search(one.code or "")):
        return None
    for path in one.printed_paths:
        if found := _TWICE.search(path):
            at = at_place(one)
            return Meaning(
                f"{path} does not exist: the path has {found['twice']} twice{at}",
                WHY,
                (
                    FIX,
                    Fix("Look at both.", (shell("ls -ld {:path} {:path}", path, path.replace(found["twice"], "", 1)),)),
                ),
            )
    return None


def said_elsewhere(one: UncaughtException) -> str:
    """Return what the program printed of the same problem, and the path of data that it did not find."""
    when, line = ("Just before it", one.said_before) if one.says_more is None else ("Elsewhere", one.says_more)
    of_files = one.printed_paths and _NO_DATA.search(f"{one.message} {one.code}")
    path = f" Before it, the program printed the path {one.printed_paths[-1]}." if of_files else ""
    return f'{path} {when}, the program printed: "{line}".' if line else path


def with_path(meant: Meaning, one: UncaughtException) -> Meaning:
    """Return the meaning of data that was not found, with the path that the program printed last."""
    if _NOT_FOUND not in meant.title or not one.printed_paths:
        return meant
    path = one.printed_paths[-1]
    look = shell("ls -la {:path}", path)
    fixes = tuple(
        replace(fix, commands=tuple(look if line == "ls PATH" else line for line in fix.commands))
        for fix in meant.fixes
    )
    return meant._replace(title=meant.title.replace(_NOT_FOUND, f"{_NOT_FOUND}, probably in {path}"), fixes=fixes)
