"""Which array did OpenCV refuse? Its message has the check that failed, and the line of code the call."""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.command_line import python, shell
from mgpu.snapshot import Circumstance, Log, UncaughtException

from ._own_objects import PLAIN, Meaning

_ERROR = re.compile(r"error: \(-\d{1,4}:?(?P<kind>[^()]*)\)(?P<check>.*)")
_WHERE = re.compile(r"\s*\bin function '.*")
_CALL = re.compile(rf"\bcv2?\.(?P<call>[\w.]+)\((?P<of>{PLAIN})?")
# What OpenCV reports about an image that imread() could not read: it returns None for it, or an empty array.
_EMPTY = re.compile(r"empty\(\)|ssize\.(?:width|area)|can't open/read|imread|src is not a numpy array|img is not")
_LONGEST = 160
_UNOPENED = re.compile(r"imread_\('(?P<path>[^'\n]{1,400})'\): can't open/read file")
_MANY = 10  # so many files are no single faults


def is_unread_image(text: str) -> bool:
    """Whether OpenCV's message is about an image that was not read; other messages are about an array's form."""
    return bool(_EMPTY.search(text)) or not _ERROR.search(text)


def refused_array(one: UncaughtException) -> Meaning | None:
    """Explain an array of the wrong form."""
    found = _ERROR.search(one.message)
    if (
        one.type != "cv2.error"
        or not found
        or "not implemented" in one.message
        or is_unread_image(f"{one.message} {one.more or ''}")
    ):
        return None
    detail = " ".join(line.lstrip("> ").strip() for line in (one.more or "").split("\n"))
    parts = (found["kind"].strip(), _WHERE.sub("", found["check"]).strip(), " ".join(detail.split())[:_LONGEST])
    said = ": ".join(part for part in parts if part)
    called = _CALL.search(one.own_code or one.code or "")
    call = f"cv2.{called['call']}()" if called else "OpenCV"
    name = called["of"] if called and called["of"] else "image"
    gray = "channels" in said.lower()
    if other := _of_argument(said, call, one.place or "the script") or _of_file(said, call, one.place or "the script"):
        return other
    return Meaning(
        f"{call} does not accept the array that {one.place or 'the script'} gives it: {said}",
        "OpenCV checks the channels, the dtype and the size before it computes. Usual reasons: an image with 1 channel "
        "that is converted from RGB, channels first (C, H, W) instead of last, a float64, int64 or boolean array, or a "
        "tensor instead of an array.",
        (
            Fix(
                "Print what it gets, before that line.",
                (python("print(type({:dotted}), {:dotted}.shape, {:dotted}.dtype)", name, name, name),),
            ),
            Fix(
                "Leave out the conversion if the image has one channel already."
                if gray
                else "Convert it to the form that the function expects (uint8 or float32, H x W x channels)."
            ),
        ),
        of_code=False,
    )


_NOT_PARSED = re.compile(r"Can't parse '(?P<name>\w+)'\.(?: (?P<why>Sequence item with index \d+ has a wrong type))?")
_OF_FILES = re.compile(r"could not find a writer|[Cc]an't (?:open|write)|[Pp]arsing error|codec|fourcc", re.I)


def _of_argument(said: str, call: str, place: str) -> Meaning | None:
    """Explain an argument that is not an image: a point, a color, a size of another type."""
    found = _NOT_PARSED.search(said)
    if not found:
        return None
    name = found["name"]
    return Meaning(
        f"{call} does not accept its argument {name} ({place})",
        "Points, sizes and thicknesses are plain integers of Python in a tuple, and colors plain numbers: floats (x / "
        "2, a box of a model), integers of numpy and tensors are refused by many functions.",
        (
            Fix("Convert each of its items.", ("(int(x), int(y))", "tuple(map(int, box[:2]))")),
            Fix("Print it before that line, if it is converted already."),
        ),
        of_code=False,
    )


def _of_file(said: str, call: str, place: str) -> Meaning | None:
    """Explain a file that OpenCV cannot write or read: the array is not the reason."""
    if not _OF_FILES.search(said):
        return None
    return Meaning(
        f"{call} cannot use the file or its format ({place}): {said}",
        "The end of the file's name chooses the format (.png, .jpg): it is missing, or this OpenCV was built without "
        "it. For a model or a parameter file, the content is of another format or release, or is cut off.",
        (Fix("Print the path, and look at the file.", ("print(repr(path))", "file PATH; ls -l PATH")),),
        of_code=False,
    )


def unopened_images(one: UncaughtException, log: Log) -> Meaning | None:
    """Explain an image that OpenCV could not open: imread() only warns of it, and names the file."""
    before = (each for each in log.shows if each.file == one.file and each.line < one.line)
    seen = next((each for each in before if each.name == "image_not_opened"), None)
    named = _UNOPENED.search(seen.text) if seen else None
    if seen is None or named is None or one.type != "cv2.error":
        return None
    path = named["path"]
    folder = path.rpartition("/")[0]
    last = _UNOPENED.search(seen.latest or seen.text)
    alike = bool(folder) and last is not None and last["path"].rpartition("/")[0] == folder
    place = one.place or "the script"
    single = last is not None and last["path"] == path
    if single or seen.times < _MANY:
        what = f"a file of the dataset: {path}" if single else f"files of the dataset, the first is {path}"
        title = f"OpenCV could not open {what}"
        why = "It is missing here, its name in the list is wrong, or this user may not read it. "
    else:
        where = f"in {folder}" if alike else f"the first is {path}"
        title = f"OpenCV could not open files of the dataset, {where}, and warned of it {seen.times} times"
        why = f"So many are no single faults: {_of_folder(log, seen) if alike else 'a path or a copy is wrong. '}"
    return Meaning(
        title,
        f"imread() raises nothing for a file that it cannot open: it warns and returns None, and {place} fails with "
        f"that. {why}A file that is not opened is not damaged.",
        (
            Fix(
                "See what is there, on the machine that runs this, and correct the path or copy what is missing.",
                (shell("ls -ld {:path}", path), shell("ls {:path} | head; df -h .", folder or ".")),
            ),
            Fix(
                "Let the dataset check its files before the first step.",
                ("missing = [path for path in paths if not os.path.exists(path)]",),
            ),
        ),
    )


def _of_folder(log: Log, seen: Circumstance) -> str:
    """Say what it means that all files are of one folder, and when the first was missed."""
    late = log.reached is not None and log.reached.line < seen.line
    after = (
        "Steps worked before the first of them: another split begins there, such as the validation. " if late else ""
    )
    return (
        "the first and the last are of one folder, which is missing on this machine, not mounted, copied in part, "
        f"or has another path here. {after}"
    )
