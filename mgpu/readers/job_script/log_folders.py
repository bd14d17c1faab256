"""Do the folders of a job's output exist, and if not here, does something make them?

A folder that git ignores, or that a setup script of the repository makes, is missing in a fresh clone, but often exists
where the job is submitted.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from mgpu import file_reading
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
_START = re.compile(r"(?:\$\{?\w+\}?/|\./)+")


def output_folders(asked: Sequence[Directive], path: Path) -> Iterator[JobFolder]:
    """Yield the folders of the job's output files; `path`: of the job script."""
    start = start_folder(asked)
    makers: dict[str, str] = {}
    for directive in asked:
        if directive.obeyed and directive.option in ("output", "error") and directive.value:
            folder = os.path.dirname(directive.value)
            if folder:
                exists = _exists(folder, start, path)
                if exists is False and folder not in makers:
                    makers[folder] = maker_of(os.path.normpath(os.path.join(start, folder)), path)
                yield JobFolder(directive.line, folder, exists, "" if exists is not False else makers[folder])


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
    if os.path.isabs(folder) or folder.startswith(".."):
        return ""
    root = root_of(path)
    if is_ignored(folder, path):
        return "git ignores it"
    scripts = _setup_scripts(root, path)
    return next((f"{name} makes it" for name, text in scripts if _makes_for(path.name, text, folder)), "")


def is_ignored(written: str, path: Path) -> bool:
    """Whether git ignores a path, relative to the folder where the job is submitted; `path`: of the job script."""
    root = root_of(path)
    for submitted in dict.fromkeys((Path.cwd(), path.absolute().parent)):
        for above in _up_to(submitted, root):
            whole = os.path.relpath(submitted / written, above)
            if _ignored(whole, _text(above / _IGNORES)):
                return True
    return False


def root_of(path: Path) -> Path:
    """Return the folder of the script's repository; without .git the current folder, if the script is in it."""
    own = path.absolute().parent
    above = [own, *list(own.parents)[:_ABOVE]]
    found = next((one for one in above if os.path.exists(one / ".git")), None)
    return found or (Path.cwd() if Path.cwd() in above else own)


def _up_to(folder: Path, root: Path) -> Iterator[Path]:
    """Yield a folder and those above it, up to the root of the repository."""
    for one in (folder, *folder.parents):
        yield one
        if one == root or root not in one.parents:
            return


def _text(path: Path) -> str:
    try:
        return file_reading.read(path, most=_LARGEST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


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
    """Yield the names and texts of the shell scripts and Makefiles of a repository that are not jobs themselves."""
    seen = read = 0
    for where, folders, names in os.walk(root):
        folders[:] = sorted(one for one in folders if not one.startswith(".") and one not in ("node_modules", "venv"))
        seen += len(folders) + len(names)
        for name in sorted(names):
            file = Path(where, name)
            if (name.endswith(_SCRIPTS) or name in _NAMES) and file != path.absolute():
                read += 1
                if text := _text(file):
                    yield name, "" if _OF_A_JOB.search(text) else text
        if seen > _MOST_ENTRIES or read > _MOST_SCRIPTS:
            return


def _makes_for(job: str, script: str, folder: str) -> bool:
    """Whether a script makes a folder for this job; False if it only submits other jobs, and makes it for them."""
    named = re.search(rf"(?<![\w.-]){re.escape(job)}(?!\w)", script)
    if named or not (submits := _SBATCH.findall(_COMMENT.sub("", script.replace("\\\n", " ")))):
        return _makes(script, folder)
    perhaps_this = any(_VARIABLE.search(line) or not line.strip() for line in submits)
    return perhaps_this and _makes(script, folder, itself=True)


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
