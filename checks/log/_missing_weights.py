"""Does the script's own load function miss a file of weights, and which part of a long path says why?"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.snapshot import UncaughtException

from ._messages import short_name
from ._own_objects import Meaning, file_of

_ENDS = r"\.(?:pt|pth|safetensors|ckpt|bin)"
_WEIGHTS = re.compile(
    rf"(?P<quote>['\"`])(?P<quoted>[^'\"`]+{_ENDS})(?P=quote)|(?P<path>[^\s'\"`,:()<>]+{_ENDS})(?![\w/\\-])"
)
_LOADS = re.compile(r" in \w*(?:load|resume|restore|from_(?:checkpoint|pretrained))\w*$", re.I)
_ABSENT = re.compile(
    r"not (?:been )?(?:found|exist)|n't exist|no such|missing|\bno (?:\w+ )?(?:weights|checkpoint|file|model)|"
    r"(?:cannot|could not|unable to|failed to) find",
    re.I,
)
_TESTS = re.compile(r"\b(?:exists|isfile|is_file)\(")
_PUBLISHED = re.compile(r"pre-?train|imagenet|download|/hub/", re.I)
_PATH = re.compile(r"[^\s'\"`,()<>]*[/\\][^\s'\"`,()<>]+")
_LONG, _PARTS = 60, 4  # characters of a path, and its last parts that are shown of a longer one
_LONG_MESSAGE = 100
_CUT = " ... "  # what a log's reader has left out of a long message


def end_of_path(path: str) -> str:
    """Return a path, of a long one only the last parts: these depend on the options of a run."""
    parts = re.split(r"[/\\]", path)
    return path if len(path) <= _LONG or len(parts) <= _PARTS else f".../{'/'.join(parts[-_PARTS:])}"


def with_short_paths(message: str) -> str:
    """Return a message, of a long one with the ends of its paths only, so a title does not cut them in the middle."""
    if len(message) <= _LONG_MESSAGE:
        return message
    return _PATH.sub(lambda found: found[0] if "://" in found[0] else end_of_path(found[0]), message)


def _says_absent(one: UncaughtException) -> bool:
    code = one.code or ""
    if code.startswith("assert "):
        return bool(_ABSENT.search(one.message) or _TESTS.search(code))
    absent = short_name(one.type) == "FileNotFoundError" or _ABSENT.search(one.message)
    return code.startswith("raise ") and bool(absent)


def missing_weights(one: UncaughtException) -> Meaning | None:
    """Explain an exception that the script's own load function raises about a file of weights."""
    found = _WEIGHTS.search(one.message)
    if found is None or not _LOADS.search(one.place or "") or not _says_absent(one):
        return None
    path = found["quoted"] or found["path"]
    folder = path.rpartition("/")[0] or ("/" if path.startswith("/") else ".")
    looks = () if _CUT in one.message else (shell("ls -la {:path}", folder), shell("namei {:path}", path))
    relative = "" if path.startswith(("/", "~")) else ", from the folder in which the job runs"
    published = _PUBLISHED.search(f"{path} {one.place}")
    of_run = (
        "The file must exist before this run. If an option names it, the option is misspelled, relative to another "
        "folder, or of another machine. If the script builds the path of them, an earlier training run with "
        "the same options must have written it: that run was not started, ended before it saved, or had another "
        "option, so its file is in a folder with another name. Published weights must be downloaded to this path."
    )
    to_download = (
        "The file must exist before this run. Pretrained weights were not downloaded to this path, or the option that "
        "names their folder has the path of another machine."
    )
    first = (
        "Download the file to this path."
        if published
        else "If a training run writes it, run that one first, with these options."
    )
    return Meaning(
        f"the weights file {end_of_path(path)} does not exist ({one.place})",
        to_download if published else of_run,
        (
            Fix(
                f"Compare the path with what its folder has{relative}. The first part that does not exist shows which "
                "option to correct.",
                looks,
            ),
            Fix(first),
            Fix(
                "See how the script builds the path.", (shell("grep -n -B8 {} {:path}", _statement(one), file_of(one)),)
            ),
        ),
    )


def _statement(one: UncaughtException) -> str:
    return (one.code or "")[:40].split("(")[0]
