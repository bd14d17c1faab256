"""Do the folders of a job's output exist, and if not here, does something make them?

A folder that git ignores, or that a setup script of the repository makes, is missing in a fresh clone, but often exists
where the job is submitted. A script that makes it and then submits the job (shell or Python) needs nothing before.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from mgpu.file_reading import current_folder
from mgpu.readers.job_script.python_files import content
from mgpu.snapshot import Directive, JobFolder

_PLACEHOLDER = "%"  # starts a placeholder that Slurm replaces
_IGNORES = ".gitignore"
_LARGEST_BYTES = 64 << 10  # of a script or .gitignore
_MOST_ENTRIES, _MOST_SCRIPTS, _ABOVE = 2_000, 100, 6  # files and folders looked at, scripts read, folders above
_SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch")
_NAMES = ("Makefile", "makefile", "justfile")
_MKDIR = re.compile(r"(?:^|[;&|({@\t ])(?:mkdir|install -d)((?:[ \t]+[^\s;&|)#]+)+)", re.MULTILINE)
_COMMENT = re.compile(r"(?:^|\s)#.*$", re.MULTILINE)
_SBATCH = re.compile(r"(?:^|[;&|({\t ])sbatch(?=\s|$)([^\n;&|]*)", re.MULTILINE)  # also alone, in an array of words
_VARIABLE = re.compile(r"[$`*?]")  # in the words after sbatch: perhaps the name of this job
_OF_A_JOB = re.compile(r"^#SBATCH\b", re.MULTILINE)  # its own mkdir comes too late
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_MAKES_IN_PYTHON = re.compile(r"\bmakedirs\(|\bmkdir\(")
_SBATCH_IN_PYTHON = re.compile(r"""["'](?:[\w./]*/)?sbatch(?=["'\s])([^"'\n]*)""")
_QUOTED = re.compile(r"""(["'])([^"'\n{}$]{1,200})\1""")
_START = re.compile(r"(?:\$\{?\w+\}?/|\./)+")


class Maker(NamedTuple):
    """What shows that a folder may exist where the job is submitted."""

    why: str = ""  # "git ignores it"; "" without anything
    submits: bool = False  # a script that makes it also submits the job


def output_folders(asked: Sequence[Directive], path: Path) -> Iterator[JobFolder]:
    """Yield the folders of the job's output files; `path`: of the job script."""
    start = start_folder(asked)
    makers: dict[str, Maker] = {}
    for directive in asked:
        if directive.obeyed and directive.option in ("output", "error") and directive.value:
            folder = os.path.dirname(directive.value)
            if folder:
                exists = _exists(folder, start, path)
                if exists is False and folder not in makers:
                    makers[folder] = _maker(os.path.normpath(os.path.join(start, folder)), path)
                made = Maker() if exists is not False else makers[folder]
                yield JobFolder(directive.line, folder, exists, made.why, made.submits)


def start_folder(asked: Sequence[Directive]) -> str:
    """Return the folder of --chdir, or ""."""
    return next((one.value for one in reversed(asked) if one.obeyed and one.option == "chdir" and one.value), "")


def _exists(folder: str, start: str, path: Path) -> bool | None:
    """Whether a folder exists, relative to here or to the script; None if only the job's nodes can determine it."""
    if _PLACEHOLDER in folder or "$" in folder or folder.startswith("~"):
        return None
    if os.path.isabs(folder) or os.path.isabs(start):
        whole = os.path.join(start, folder)
        return True if os.path.isdir(whole) else False if _known_here(whole) else None
    return any(os.path.isdir(os.path.join(where, start, folder)) for where in (os.curdir, path.parent))


def _known_here(folder: str) -> bool:
    """Whether a folder's file system exists on this machine, unlike /scratch/me of another cluster."""
    parts = [part for part in folder.split("/") if part]
    return len(parts) > 1 and os.path.isdir("/" + "/".join(parts[:2]))


# ---- what makes a folder


def maker_of(folder: str, path: Path) -> str:
    """Return what shows that a folder may exist where the job is submitted; "" without anything.

    `folder` is relative to the folder where the job is submitted: the current one, or that of the script.
    """
    return _maker(folder, path).why


def _maker(folder: str, path: Path) -> Maker:
    if os.path.isabs(folder):
        return Maker()
    found = []
    for name, text in _setup_scripts(root_of(path), path):
        python = name.endswith(".py")
        submits = _submits(path.name, text, python=python)
        if (submits and _makes_in_python(text, folder)) if python else _makes_for(path.name, text, folder):
            found.append(Maker(f"{name} makes it", submits))
    if submitter := next((one for one in found if one.submits), None):
        return submitter
    if folder.startswith(".."):
        return Maker()
    return Maker("git ignores it") if is_ignored(folder, path) else found[0] if found else Maker()


def is_ignored(written: str, path: Path) -> bool:
    """Whether git ignores a path, relative to the folder where the job is submitted; `path`: of the job script."""
    root = root_of(path)
    folders = [Path(here)] if (here := current_folder()) else []
    for submitted in dict.fromkeys((*folders, path.absolute().parent)):
        for above in _up_to(submitted, root):
            whole = os.path.relpath(submitted / written, above)
            if _ignored(whole, content(above / _IGNORES, _LARGEST_BYTES)):
                return True
    return False


def root_of(path: Path) -> Path:
    """Return the folder of the script's repository; without .git the current folder, if the script is in it."""
    own = path.absolute().parent
    above = [own, *list(own.parents)[:_ABOVE]]
    found = next((one for one in above if os.path.exists(one / ".git")), None)
    here = current_folder()
    return found or (Path(here) if here and Path(here) in above else own)


def _up_to(folder: Path, root: Path) -> Iterator[Path]:
    """Yield a folder and those above it, up to the root of the repository."""
    for one in (folder, *folder.parents):
        yield one
        if one == root or root not in one.parents:
            return


def _ignored(folder: str, patterns: str) -> bool:
    """Whether a .gitignore has this folder, one above it, or all that is in it; the last matching line decides."""
    parts = folder.split("/")
    found = False
    for line in patterns.splitlines():
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        negated, text = text.startswith("!"), text.lstrip("!")
        text = re.sub(r"(?:/\*{1,2})?/?$", "", text)
        if any(_matches(parts[:number], text) for number in range(1, len(parts) + 1)):
            found = not negated
    return found


def _matches(parts: Sequence[str], pattern: str) -> bool:
    if "/" not in pattern:
        return bool(pattern) and fnmatchcase(parts[-1], pattern)
    wanted = pattern.lstrip("/").split("/")
    if wanted[0] == "**":
        wanted, parts = wanted[1:], parts[-len(wanted) + 1 :]
    return len(wanted) == len(parts) and all(map(fnmatchcase, parts, wanted))


def _setup_scripts(root: Path, path: Path) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of the scripts of a repository that may make folders, without those that are jobs.

    These are its shell scripts and Makefiles, and the Python scripts that submit jobs.
    """
    seen = read = 0
    for where, folders, names in os.walk(root):
        folders[:] = sorted(one for one in folders if not one.startswith(".") and one not in ("node_modules", "venv"))
        seen += len(folders) + len(names)
        for name in sorted(names):
            file = Path(where, name)
            if name.endswith(".py") and "sbatch" in (text := content(file, _LARGEST_BYTES)):
                yield name, text
            elif (name.endswith(_SCRIPTS) or name in _NAMES) and file != path.absolute():
                read += 1
                if text := content(file, _LARGEST_BYTES):
                    yield name, "" if _OF_A_JOB.search(text) else text
        if seen > _MOST_ENTRIES or read > _MOST_SCRIPTS:
            return


def _makes_for(job: str, script: str, folder: str) -> bool:
    """Whether a script makes a folder for this job; False if it only submits other jobs, and makes it for them."""
    named = re.search(rf"(?<![\w.-]){re.escape(job)}(?!\w)", script)
    if named or not (submits := _sbatch_lines(script)):
        return _makes(script, folder)
    perhaps_this = any(_VARIABLE.search(line) or not line.strip() for line in submits)
    return perhaps_this and _makes(script, folder, itself=True)


def _submits(job: str, script: str, *, python: bool) -> bool:
    """Whether a script submits this job, or one whose name is in a variable."""
    lines = _SBATCH_IN_PYTHON.findall(script) if python else _sbatch_lines(script)
    of_variable = re.compile(r"[{%]") if python else _VARIABLE
    name = re.compile(rf"(?<![\w.-]){re.escape(job)}(?!\w)")
    return any(of_variable.search(line) or name.search(line) or not line.strip() for line in lines)


def _sbatch_lines(script: str) -> list[str]:
    """Return what follows each sbatch of a shell script on its line."""
    return _SBATCH.findall(_COMMENT.sub("", script.replace("\\\n", " ")))


def _makes_in_python(script: str, folder: str) -> bool:
    """Whether a Python script makes folders, and has this one, or one in it, as a text."""
    texts = (found[2].removeprefix("./").rstrip("/") for found in itertools.islice(_QUOTED.finditer(script), 2_000))
    return bool(_MAKES_IN_PYTHON.search(script)) and any(f"{text}/".startswith(f"{folder}/") for text in texts)


def _makes(script: str, folder: str, *, itself: bool = False) -> bool:
    """Whether a script has a mkdir for this folder, or (unless `itself`) for one in it."""
    for found in itertools.islice(_MKDIR.finditer(script), 200):
        for word in found[1].split():
            for made in with_braces_expanded(word.strip("\"'")):
                whole = _START.sub("", made.replace('"', ""), count=1).rstrip("/")
                if whole == folder if itself else f"{whole}/".startswith(f"{folder}/"):
                    return True
    return False


def with_braces_expanded(word: str) -> list[str]:
    """Return the words that a shell makes of one with braces: logs/{a,b}."""
    words = [word]
    for _ in range(3):
        found = [(one, braces) for one in words if (braces := _BRACES.search(one))]
        if not found or len(words) > 100:
            break
        words = [one for one in words if not _BRACES.search(one)] + [
            one[: braces.start()] + part + one[braces.end() :] for one, braces in found for part in braces[1].split(",")
        ]
    return words
