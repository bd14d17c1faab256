"""Who passes an argument that is refused further in, where a line only hands on what it gets (`**kwargs`)?

Texts for `_calls.py`.
"""

from __future__ import annotations

import ast

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.signature import Meaning
from mgpu.snapshot import TracedCall, UncaughtException

from ._followed_values import call_of, parsed

# Arguments that only some of torch's optimizers have.
_OF_OPTIMIZERS = {
    "Adam": ("betas", "eps", "amsgrad"),
    "AdamW": ("betas", "eps", "amsgrad"),
    "SGD": ("momentum", "dampening", "nesterov"),
    "RMSprop": ("alpha", "eps", "momentum", "centered"),
    "Adagrad": ("lr_decay", "initial_accumulator_value", "eps"),
    "NAdam": ("betas", "eps", "momentum_decay"),
    "RAdam": ("betas", "eps"),
    "Adamax": ("betas", "eps"),
}


def _calls_in(code: str) -> list[ast.Call]:
    tree = parsed(code)
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)] if tree else []


def hands_on(code: str, name: str) -> bool:
    """Whether a line passes on arguments that it got (`**kwargs`), and does not pass this one by its name."""
    if "**" not in code:
        return False
    keywords = [keyword.arg for call in _calls_in(code) for keyword in call.keywords]
    return None in keywords and name not in keywords


def passed_by(one: UncaughtException | None, name: str) -> TracedCall | None:
    """Return the call further out that passes an argument by its name; None if the lines do not show it."""
    calls = one.calls if one else ()
    at = len(calls) - 1
    while at > 0 and hands_on(calls[at].code or "", name):
        call = call_of(calls[at - 1].code or "", calls[at].function)
        if call and any(keyword.arg == name for keyword in call.keywords):
            return calls[at - 1]
        at -= 1
    return None


def _which_optimizer(owner: str, name: str) -> tuple[str, Fix | None]:
    """Return whose argument it is, if it is one of another optimizer of torch, and what to do then."""
    others = [other for other, names in _OF_OPTIMIZERS.items() if name in names]
    if owner not in _OF_OPTIMIZERS or not others or owner in others:
        return "", None
    has = ", ".join(_OF_OPTIMIZERS[owner])
    why = f"{name} is an argument of torch.optim.{others[0]}, not of {owner}, which has: {has}, among others. "
    return why, Fix(
        f"Remove {name} there, and use a learning rate that is usual for {owner}. Or use torch.optim.{others[0]}."
    )


def explain_passed_on(call: str, name: str, one: UncaughtException | None) -> Meaning | None:
    """Explain an argument that a line of the user's own, further out than the one that failed, passes by its name."""
    found = passed_by(one, name)
    if one is None or found is None or found.package:
        return None
    owner = call.removesuffix(".__init__").partition(".")[0]
    through = one.library or one.place
    why, other = _which_optimizer(owner, name)
    usual = (
        "The argument is misspelled or obsolete there, belongs to another class or function, or the code between was "
        "expected to take it out before it passes on the rest."
    )
    file = found.place.partition(":")[0]
    return Meaning(
        f"{found.place} passes {name}, which reaches {call}(), and that one does not have this argument",
        f"{through} only passes on what it gets (**kwargs). {why or usual}",
        (
            other or Fix(f"Remove {name} from that call, or use the name that {owner} has."),
            Fix("The line is here.", (shell("grep -nw {:name} {:path}", name, file),)),
        ),
    )
