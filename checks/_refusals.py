"""Did an installed package stop the run itself, with a message that says what it does not accept?"""

from __future__ import annotations

import re
from typing import NamedTuple

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.snapshot import UncaughtException

from . import _option_relations as relations
from . import _version_skew as skew
from ._cuda_errors import error_in_message

_WORDS = 6  # a message with fewer names a value ("'labels'"), it does not explain
_SENTENCE = re.compile(r"[A-Za-z_`'\"]{2,}")
# torch checks its operands after the script has computed them: its message says what is wrong, not what to change.
# Pools of processes raise again what a worker raised.
_NOT_ASKED = frozenset({"torch", "multiprocess", "joblib", "loky"})
# What Python itself raises about a wrong value: the package did not expect it.
_UNEXPECTED = frozenset(
    {
        "AttributeError",
        "IndexError",
        "NameError",
        "UnboundLocalError",
        "ZeroDivisionError",
        "StopIteration",
        "RecursionError",
        "OverflowError",
        "MemoryError",
    }
)
# The line that a traceback shows of a statement in several lines can be its last or another one.
_RAISES = re.compile(r"^assert\b|Error\(|Exception\(|^[frb]{0,2}[\"']|^\)$")
_OF_PYTHON = re.compile(r"object (?:is not|has no|does not|cannot|of type)|unsupported operand|not supported between")


def _named(message: str, where: str) -> Fix:
    """Return the change that the message asks for."""
    asked = relations.fix_of(message)
    return Fix(f"{asked.text if asked else 'Change what the message names.'}{where}")


class Refusal(NamedTuple):
    """What to say about a package that refused what it was given."""

    cause: str
    fixes: tuple[Fix, ...]


def explain(one: UncaughtException) -> Refusal | None:
    """Return the meaning of an exception that a package raised about its input; None if the message explains nothing.

    The innermost frame must be a package's: it raised the exception by itself.
    """
    message = one.message or " ".join((one.more or "").split())  # it may begin on the next line
    if message.startswith("CUDA error: ") and (error := error_in_message(message)):
        return Refusal(error.cause, error.fixes)
    package, short = one.packages[-1] if one.packages else "", one.type.rpartition(".")[2]
    on_purpose = (one.code or "").startswith("raise")
    if not package or package in _NOT_ASKED or (short in _UNEXPECTED and not on_purpose) or _OF_PYTHON.search(message):
        return None
    name = skew.distribution(package)
    where = f" The script's call is at {one.place}." if one.place and "" in one.packages else ""
    if message.startswith("assert "):
        return Refusal(
            f"A check inside {name} failed, which has no message of its own.",
            (
                Fix(
                    f"Upgrade {name}, or leave out what is unusual in this run (parallel sizes, precision, options)."
                    f"{where}",
                    (shell("pip show {:package}", name), "pip check"),
                ),
            ),
        )
    called = bool(one.code) and not on_purpose and not _RAISES.search(one.code or "")  # it failed inside this call
    if called or len(_SENTENCE.findall(message)) < _WORDS:
        return None
    return Refusal(
        f"{name} checked what it was given, and stopped: the message says what it does not accept.",
        (
            _named(message, where),
            Fix(
                "If the message names nothing of yours, compare the versions: one package may be too new for another.",
                (shell("pip show {:package}", name), "pip check"),
            ),
        ),
    )
