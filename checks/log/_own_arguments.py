"""Which argument of the script's own line is None, an item of a size that is no integer, or an index that is too large?

Python's and torch's messages name the types, and the line of code the names.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import python
from mgpu.signature import Meaning as OfRow
from mgpu.snapshot import UncaughtException
from mgpu.text import plural

from .._followed_values import call_of, subscript
from .._wording import at_place
from ._messages import short_name
from ._own_objects import PLAIN, Meaning
from ._several_indices import index_in_own_line, one_of_several

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
_MIXED = re.compile(r"(?:tuple|list|torch\.Size|Size), int(?:,|$)")
# Their numbers are all sizes: full() and others take a value after the size.
_SIZES_ONLY = re.compile(r"(?:new_)?(?:zeros|ones|empty)|randn?|view|reshape|expand|repeat")
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


def _tuple_and_number(one: UncaughtException, call: str, name: str) -> Meaning:
    """Explain a size that is given as a tuple and further numbers: torch takes one or the other."""
    first = f"{name} is a tuple or list" if name else "its first argument is a tuple or list"
    own = re.search(rf"(?P<of>[A-Za-z_][\w.]*)\.{call}\(", one.code or "")
    made = f"{own['of']}.{call}" if own else call
    right = (
        (python("{:dotted}({:dotted}[0], dim)", made, name), python("{:dotted}(*{:dotted}, dim)", made, name))
        if name
        else ()
    )
    return Meaning(
        f"{call}() got a tuple and another number: {first}, where a number is meant ({one.place})",
        f"A size is either one tuple or separate numbers, not both: {call}((n, m)) or {call}(n, m).{_given(one, name)}",
        (Fix("Pass the number itself, or unpack the tuple.", right),),
    )


def _given(one: UncaughtException, name: str) -> str:
    """Return a sentence about the script's call that passes a tuple to the function that failed, or ""."""
    caller = one.calls[-2] if len(one.calls) > 1 else None
    if not name.isidentifier() or caller is None or caller.package or not caller.code:
        return ""
    call = call_of(caller.code, one.calls[-1].function)
    if call is None or len(call.args) + len(call.keywords) != 1:
        return ""
    values = [*call.args, *(given.value for given in call.keywords if given.arg == name)]
    if not any(isinstance(value, ast.Tuple) for value in values):
        return ""
    return f' The call of that function passes a tuple: "{caller.code}" ({caller.place}).'


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
    if _MIXED.match(found["got"]) and _SIZES_ONLY.fullmatch(found["call"]):
        return _tuple_and_number(one, found["call"], passed["of"] if passed else "")
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


_SUBSCRIPT = re.compile(rf"(?P<of>{PLAIN})\[(?P<index>[^\[\],]*(?:\[[^\[\]]*\][^\[\],]*)?)(?P<more>,[^\[\]]*)?\]")


def _one_state(groups: Mapping[str, str], raised: UncaughtException | None) -> OfRow | None:
    """Explain an LSTM that gets one tensor as its state: it reads the second item of a pair."""
    if raised is None or groups["index"] != "1" or not _OF_LSTM.search(raised.frames[-1] if raised.frames else ""):
        return None
    return OfRow(
        f"an LSTM gets one tensor as its state, and takes two: (h, c){at_place(raised)}",
        "nn.GRU and nn.RNN have one state, nn.LSTM a pair of the hidden state and the cell state. It takes the second "
        "item of what it gets, and a tensor for one layer has one item.",
        (Fix("Give it both, in one tuple.", ("c0 = torch.zeros_like(h0)", "out, (h, c) = lstm(x, (h0, c0))")),),
    )


_OF_TOKENS = re.compile(r"(?i)pos|emb|table|token|(?:\b|_)(?:ids?|pe|cos|sin)(?:\b|_)")
_NEIGHBOR = re.compile(r"\w+ ?\+ ?\d")
_SHORTER = Fix("If it is a position, shorten the samples.", ("tokenizer(text, truncation=True, max_length=512)",))


def index_of_array(groups: Mapping[str, str], raised: UncaughtException | None) -> OfRow | None:
    """Explain an index that is too large for an array of numpy, whose message says "axis", or for a tensor.

    None for a tensor in a library's line, or in a line that does not show which one it is.
    """
    of_numpy, index, size = groups["kind"] == "axis", groups["index"], _elements(groups["size"])
    own = raised is not None and raised.raised_in_own_code
    code = (raised.code if raised and own else raised.own_code if raised and of_numpy else "") or ""
    marked = subscript(raised) if raised and own else None
    code = f"{marked[0]}[{marked[1]}]" if marked else code
    if several := one_of_several(code, groups, raised):
        return several
    whole = [match for match in _SUBSCRIPT.finditer(code) if _is_whole(match, index, of_numpy)]
    found = {(match["of"], match["index"].strip()) for match in whole}
    found = set() if re.search(r"[)\]]\[(?!None\b|:|\.)", code) else found  # an item of an item
    what = "array" if of_numpy else "tensor"
    title = f"an index is too large: {index}, but the {what} has {size}"
    why = f"It was computed for another or a longer {what}."
    name = at = ""
    if len(found) == 1 and groups["axis"] == "0":
        name, at = found.pop()
        title, why = _index_of(name, at, groups, raised)
    elif not of_numpy:
        return _one_state(groups, raised) or (index_in_own_line(groups, raised) if raised else None)
    return OfRow(
        title,
        f"{why} A fixed number in the code, the length of the whole dataset instead of a part, or samples that were "
        "dropped (drop_last, a filter) are usual reasons.",
        (
            Fix(
                f"Print the shapes before that line, and take the limit of the index from the {what} itself.",
                (python("print({:dotted}.shape)", name) if name else "print(array.shape)",),
            ),
            *(() if of_numpy or not _OF_TOKENS.search(f"{name}[{at}]") else (_SHORTER,)),
        ),
    )


def _elements(size: str) -> str:
    return f"{int(size):,} {plural(int(size), 'element')}"


def _is_whole(found: re.Match[str], index: str, of_numpy: bool) -> bool:
    """Whether a subscript can be the one that failed: no slice, and no other number."""
    at = found["index"].strip()
    if found["more"] and not of_numpy:
        return False  # torch's dimension does not say which of several indices it is
    return ":" not in at and (not at.lstrip("-").isdigit() or int(at) == int(index))


def _index_of(name: str, at: str, groups: Mapping[str, str], raised: UncaughtException | None) -> tuple[str, str]:
    """Return the title and the reason, with the names of the array and of the index that the line has."""
    index, size = groups["index"], _elements(groups["size"])
    of_numpy = groups["kind"] == "axis"
    what = "array" if of_numpy else "tensor"
    where = f" ({raised.place})" if raised and raised.place and not of_numpy else ""
    why = f"{at} was computed for another or a longer {what} than {name}"
    if _NEIGHBOR.fullmatch(at) and index == groups["size"]:
        why = f"{at} is one past the end: the loop goes too far, or {name} has one element less"
    if groups["size"] == "1":
        why = f"{name} probably lacks a dimension, or has it elsewhere ([n, 1] in place of [1, n]): {why}"
    if "[" in at:
        inner = at.partition("[")[0]
        return (
            f"an index is too large: {index}, probably {at}, but {name} has only {size}{where}",
            f"{why}, or {inner} is the one that is too short.",
        )
    if at.lstrip("-").isdigit():
        return (
            f"an index is too large: {name} has only {size}, and the line reads {name}[{at}]{where}",
            f"{name} has fewer elements than the line expects.",
        )
    holds = "is" if of_numpy else "is, or holds,"
    return f"an index is too large: {name} has only {size}, and {at} {holds} {index}{where}", f"{why}."
