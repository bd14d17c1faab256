"""Which setting is a text where the script computes with a number? The message has the operator, the line the name."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import python
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

from ._texts_as_numbers import text_among_numbers

_COMPARED = re.compile(
    r"'(?P<op>[<>]=?|[-+*/])' not supported between instances of '(?P<left>\w+)' and '(?P<right>\w+)'"
)
_COMPUTED = re.compile(r"operand type\(s\) for (?P<op>[-+*/%]{1,2})=?: '(?P<left>\w+)' and '(?P<right>\w+)'")
_OPERAND = r"[A-Za-z_][\w.]*(?:\[['\"]?\w+['\"]?\])?|\d[\w.]*"


def name_of_text(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Return a meaning with the name of the text; None if the line does not show it."""
    found = raised and (_COMPARED.search(raised.message) or _COMPUTED.search(raised.message))
    if raised is None or not found:
        return None
    if meant := text_among_numbers(raised):
        return meant
    if not raised.raised_in_own_code or not raised.place:
        return None
    op, code = re.escape(found["op"]), raised.code or ""
    uses = re.findall(
        rf"(?<![\w.\])])({_OPERAND}) ?(?<![-+*/%<>=]){op}=?(?![-+*/%<>=]) ?({_OPERAND})(?![\w.(\[])", code
    )
    names = {use[found["left"] != "str"] for use in uses}
    if len(names) != 1 or code.count(found["op"]) != 1 or not re.match(r"[A-Za-z_]", name := names.pop()):
        return None
    shown = python("print(repr({:dotted}))", name) if re.fullmatch(r"[A-Za-z_][\w.]*", name) else "print(repr(value))"
    return Meaning(
        f"{name} is a text, and {raised.place} computes with it as with a number",
        "It was read as text: argparse without type=int, an environment variable, a line or a cell of a file, quotes "
        "in a config file, 1e-5 in YAML (it needs 1.0e-5), 'auto' in a DeepSpeed file, or it was passed in the place "
        "of another argument.",
        (
            Fix("Print it, and look at where it is set or passed.", (shown,)),
            Fix(
                "Convert it where it is read.",
                ("parser.add_argument('--steps', type=int)", "int(os.environ['STEPS'])", "learning_rate: 1.0e-5"),
            ),
        ),
    )
