"""Did the script's own code stop the run: an assertion, an exception that it raises, endless recursion?"""

from __future__ import annotations

import ast
import re

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.snapshot import UncaughtException

from .._followed_values import parsed
from ._messages import in_one_line, short_name
from ._missing_weights import missing_weights, with_short_paths
from ._own_objects import Meaning, file_of
from ._own_requirements import other_dtype, too_few_gpus
from ._printed_sizes import printed_sizes
from ._square_images import not_square
from ._which_ranks import rank_condition

_LEVEL = re.compile(r"^\W*(?:WARNING|ERROR|INFO|CRITICAL|FATAL)\W+", re.IGNORECASE)
_SENTENCE = 2  # spaces of a message that is more than a key


_OF_MACHINE = re.compile(
    r"(?i)\b(?:gpus?|cuda|device|driver|nccl|ecc|nvlink|xid|memory|oom|timed? ?out|timeout|rank|connect\w*|network|"
    r"distributed|world.size|nan|inf|isnan|isfinite|finite|mps|tpu|npu|rocm|hip)\b|cuda|nvidia"
)


def _not_a_gpu(code: str, one: UncaughtException) -> str:
    """Return what it is about, unless line or message name a part of the machine, or numbers that are not finite."""
    if rank_condition(one) or _OF_MACHINE.search(f"{code} {one.message} {one.more or ''}".replace("_", " ")):
        return ""
    return " It is about the settings or the data that it got, not about a GPU or the ranks' communication."


def _condition(code: str) -> str:
    """Return what an assertion requires, without its message, as the line writes it."""
    tree = parsed(code)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Assert)] if tree else []
    if len(nodes) == 1 and code.isascii():
        return code[nodes[0].test.col_offset : nodes[0].test.end_col_offset]
    return re.split(r",\s*f?['\"]", code.removeprefix("assert "), maxsplit=1)[0].strip()


def _stops_itself(one: UncaughtException, said: str) -> Meaning:
    """Explain `assert False`, with which a script stops where nothing that it knows fits."""
    return Meaning(
        f"the script's own code stopped the run at {one.place}{said}",
        "The line is an assertion that always fails: the branches above it know some kinds of input (a format, a name, "
        "a type), and this run gave something else.",
        (
            Fix(
                "Read the conditions above that line, and print what they test.",
                (shell("grep -n -B12 'assert False' {:path}", file_of(one)),),
            ),
        ),
    )


def stopped_by_itself(one: UncaughtException) -> Meaning | None:
    """Explain an exception that the script raises itself."""
    code, short = one.code or "", short_name(one.type)
    if one.direct or re.fullmatch(r"raise(?: \w+)?", code):  # it passes on another exception, which says more
        return None
    if absent := missing_weights(one):
        return absent
    if code.startswith("assert ") and short == "AssertionError":
        condition = _condition(code)
        said = "" if one.message.startswith("assert ") else f": {with_short_paths(one.message)}"
        if condition in ("False", "0"):
            return _stops_itself(one, said)
        if not said and (of_type := other_dtype(one, condition)):
            return of_type
        printed = printed_sizes(one, condition)
        if not said and (square := not_square(one, condition, printed)):
            return square
        return Meaning(
            f"a check in the script's own code failed at {one.place}{said or f': {condition}'}",
            f'The script requires "{condition}", and it does not hold in this run.{_not_a_gpu(code, one)}{printed}',
            (
                Fix("Compare these values with the condition, and correct where the one that differs comes from.")
                if printed
                else Fix("Print the values in the condition, and correct where they come from."),
                Fix("Read the lines before it: they show which option or file they come from."),
            ),
        )
    is_key = short == "KeyError" and one.message.count(" ") < _SENTENCE  # a name alone is not a reason
    if code.startswith("raise ") and one.message and not is_key and short != "StopIteration":
        if too_few := too_few_gpus(one):
            return too_few
        return _raised_by_script(one, code)
    return None


def _raised_by_script(one: UncaughtException, code: str) -> Meaning:
    said = one.message.strip("'\"") if short_name(one.type) == "KeyError" else in_one_line(one)  # Python quotes a key
    said = (
        _LEVEL.sub("", one.says_more)
        if one.says_more and said.rstrip(" .!:").lower() in one.says_more.lower()
        else said
    )
    condition = Fix(
        "Read the condition above that line.",
        (shell("grep -n -B8 {} {:path}", code[:40].split("(")[0], file_of(one)),),
    )
    known = any(line.condition for line in one.recorded)  # the report shows it
    return Meaning(
        f"the script's own code stopped the run at {one.place}: {with_short_paths(said)}",
        f"The script raises this {short_name(one.type)} itself, when it finds something that it does not accept."
        f"{_not_a_gpu(code, one)}",
        (
            Fix("Change what the message names: an option, a name, a path or the data."),
            *(() if known else (condition,)),
        ),
        of_code=False,  # what the script does not accept can be one rank's data
    )


def endless_recursion(one: UncaughtException) -> Meaning | None:
    """Explain a function that calls itself without an end, or too often."""
    if short_name(one.type) != "RecursionError":
        return None
    return Meaning(
        f"{(one.place or 'a function').rpartition(' in ')[2]} calls itself too deeply, probably without an end "
        f"({one.place})",
        "Frames of the traceback repeat. A method that calls itself instead of its base class, __getattr__ that reads "
        "an attribute that does not exist yet (before super().__init__(), or while it is copied to a worker), or a "
        "structure that contains itself. Or a tree or list is really deeper than Python's limit of 1,000 calls.",
        (
            Fix("Look for the frames that repeat, and end the recursion there."),
            Fix("If the structure is that deep, use a loop, or raise the limit.", ("sys.setrecursionlimit(10_000)",)),
        ),
    )
