"""Which argument of the script's own line is None, an item of a size that is no integer, or an index that is too large?

Python's and torch's messages name the types, and the line of code the names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import python
from mgpu.signature import Meaning as OfRow
from mgpu.snapshot import UncaughtException

from ._messages import short_name
from ._own_objects import PLAIN, Meaning

_PATH_IS_NONE = re.compile(
    r"(?:expected str, bytes or os\.PathLike object|path should be string, bytes, os\.PathLike(?: or integer)?|"
    r"should be a str or an os\.PathLike object.*|expected str, bytes, or os\.PathLike object), not '?NoneType"
)
# Functions that take a path, with their arguments, as far as these are plain.
_TAKES_PATH = re.compile(
    r"\b(?:open|join|exists|isfile|isdir|islink|makedirs|mkdir|listdir|scandir|walk|remove|stat|getsize|basename|"
    r"dirname|abspath|realpath|expanduser|splitext|Path|PurePath|fspath|rmtree|copyfile|copy|move|load|loadtxt|"
    r"read_csv|read_text|imread)\((?P<arguments>[^()]{1,200})"
)
_COMBINATION = re.compile(r"(?P<call>\w+)\(\) received an invalid combination of arguments - got \((?P<got>[^()]*)\)")
_SIZES = re.compile(r"\* \(tuple of ints (?:size|shape)\b")
_SIZE_TYPES = frozenset({"tuple", "list", "torch.Size", "Size"})

_OF_LSTM = re.compile(r"torch/nn/modules/rnn\.py in (?:forward|check_forward_args)$")


def path_that_is_none(one: UncaughtException) -> str | None:
    """Return the only name that the script's line passes as a path, if the message says that the path is None."""
    if not _PATH_IS_NONE.search(one.message):
        return None
    names = {
        name
        for call in _TAKES_PATH.finditer(one.own_code or one.code or "")
        for part in call["arguments"].split(",")
        if (name := part.strip()) and re.fullmatch(PLAIN, name)
    }
    return names.pop() if len(names) == 1 else None


def not_a_size(one: UncaughtException) -> Meaning | None:
    """Explain a size of which an item is no integer: torch's message has only the types of the arguments."""
    found = _COMBINATION.search(one.message)
    if short_name(one.type) != "TypeError" or not found or not _SIZES.search(f"{one.message}\n{one.more or ''}"):
        return None
    first = found["got"].partition(",")[0].strip()
    passed = re.search(rf"\b{found['call']}\((?:size=)?(?P<of>{PLAIN})\s*[,)]", one.code or "")
    if first not in _SIZE_TYPES or "NoneType" in re.sub(r"\w+=NoneType", "", found["got"]):
        return None
    name = passed["of"] if passed else "the size"
    return Meaning(
        f"an item of {name} is probably not an int, and {found['call']}() takes whole numbers ({one.place})",
        f"{found['call']}() got a {first}, which it takes if all items are of type int. A division with / gives a "
        "float, also of whole numbers. An item can also be None, a text, a tensor or another tuple.",
        (
            Fix(
                "Print the items before that line.",
                (
                    python("print({:dotted}, [type(item) for item in {:dotted}])", name, name)
                    if passed
                    else "print(size)",
                ),
            ),
            Fix("Divide with //, or convert the items.", ("height // 8", "int(height / 8)")),
        ),
    )


_SUBSCRIPT = re.compile(rf"(?P<of>{PLAIN})\[(?P<index>[^\[\],]*(?:\[[^\[\]]*\][^\[\],]*)?)(?:,[^\[\]]*)?\]")


def _one_state(groups: Mapping[str, str], raised: UncaughtException | None) -> OfRow | None:
    """Explain an LSTM that gets one tensor as its state: it reads the second item of a pair."""
    if raised is None or groups["index"] != "1" or not _OF_LSTM.search(raised.frames[-1] if raised.frames else ""):
        return None
    return OfRow(
        f"an LSTM gets one tensor as its state, and takes two: (h, c){f' ({raised.place})' if raised.place else ''}",
        "nn.GRU and nn.RNN have one state, nn.LSTM a pair of the hidden state and the cell state. It takes the second "
        "item of what it gets, and a tensor for one layer has one item.",
        (Fix("Give it both, in one tuple.", ("c0 = torch.zeros_like(h0)", "out, (h, c) = lstm(x, (h0, c0))")),),
    )


def index_of_array(groups: Mapping[str, str], raised: UncaughtException | None) -> OfRow | None:
    """Explain an index that is too large for an array of numpy, whose message says "axis"; None for a tensor."""
    if groups["kind"] != "axis":
        return _one_state(groups, raised)
    index, size = groups["index"], f"{int(groups['size']):,}"
    code = (raised.code if raised and raised.packages[-1:] == ("",) else raised.own_code if raised else "") or ""
    found = {(match["of"], match["index"].strip()) for match in _SUBSCRIPT.finditer(code)}
    title = f"an index is too large: {index}, but the array has {size} elements"
    why = "It was computed for another or a longer array."
    name = ""
    if len(found) == 1 and groups["axis"] == "0":
        name, at = found.pop()
        title = f"an index is too large: {name} has only {size} elements, and {at} is {index}"
        why = f"{at} was computed for another or a longer array than {name}."
        if "[" in at:
            inner = at.partition("[")[0]
            title = f"an index is too large: {index}, probably {at}, but {name} has only {size} elements"
            why = (
                f"{at} was computed for another or a longer array than {name}, or {inner} is the one that is too short."
            )
    return OfRow(
        title,
        f"{why} A fixed number in the code, the length of the whole dataset instead of a part, or samples that were "
        "dropped (drop_last, a filter) are usual reasons.",
        (
            Fix(
                "Print the shapes before that line, and take the limit of the index from the array itself.",
                (python("print({:dotted}.shape)", name) if name else "print(array.shape)",),
            ),
        ),
    )
