"""Is a list used as one text or as a dict, a text as a dict, or a dict as a list? The method's name shows it."""

from __future__ import annotations

import re
from typing import NamedTuple

from mgpu.check import Fix
from mgpu.command_line import python
from mgpu.snapshot import UncaughtException
from mgpu.text import with_article

from .. import _package_mistakes as mistakes
from .._followed_values import reads_attribute
from ._own_objects import NAME, Meaning


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


class _Use(NamedTuple):
    """What a value of one of these kinds is used as, by the name of the method."""

    kinds: frozenset[str]
    names: frozenset[str]
    as_what: str
    why: str
    fix: Fix


# fmt: off
_TEXT = _names("split rsplit lower upper strip lstrip rstrip startswith endswith replace encode format casefold "
               "splitlines title find rfind isdigit partition")
_DICT = _names("keys items values get setdefault")
_USES = (
    _Use(_names("list tuple set"), _TEXT, "one text",
         "It holds several: a batch has one text per sample, an option with nargs or a YAML list gives a list, and "
         "split() or findall() return one.",
         Fix("Do it for each item, or take the one that is meant.",
             ("print(type(x), x[:2])", "[text.strip() for text in texts]", "texts[0].strip()"))),
    _Use(_names("list tuple set"), _DICT, "a dict",
         "A JSON or YAML file whose outermost part is a list, a batch that was not collated, or a function that "
         "returns several values gives it.",
         Fix("Print what it holds, and take the item that is meant, or go through all.",
             ("print(type(x), len(x), type(x[0]))", "for item in items: item.get('key')"))),
    _Use(_names("str"), _DICT, "a dict",
         "A loop over a dict gives its keys, a line of a JSON file is text until json.loads() reads it, and a path is "
         "not the file that it names.",
         Fix("Print it, and read it, or loop over the values.",
             ("print(repr(x)[:200])", "json.loads(line)", "for key, value in d.items(): ..."))),
    _Use(_names("dict"), _names("append extend insert"), "a list",
         "A JSON or YAML file, or a variable that is set elsewhere under the same name, gives a dict where a list is "
         "expected.",
         Fix("Print its keys. Add to the list in it, or set a key.",
             ("print(x.keys())", "d.setdefault('key', []).append(value)"))),
    _Use(_names("int float"), _TEXT, "a text",
         "A column of a table that has only numbers is read as numbers, its empty cells as NaN (a float), and YAML and "
         "JSON make numbers of values without quotation marks.",
         Fix("Convert it where it is read.",
             ("str(value).strip()", "pd.read_csv(path, dtype={'name': str}, keep_default_na=False)"))),
)
# fmt: on


def list_as_value(one: UncaughtException) -> Meaning | None:
    """Explain a list, a dict, a text or a number that the script's own line uses as something else."""
    found = mistakes.LACKS.match(one.message)
    if not found or not one.raised_in_own_code or not one.place:
        return None
    kind, name = found["owner"], found["name"]
    use = next((use for use in _USES if kind in use.kinds and name in use.names), None)
    if use is None:
        return None
    owners = {match["of"] for match in re.finditer(rf"(?<![\w.\])])(?P<of>{NAME})\.{name}\b", one.code or "")}
    of = reads_attribute(one, name) or (owners.pop() if len(owners) == 1 else None)
    look = python("print(type({:dotted}))", of) if of else None
    return Meaning(
        f"{of or 'a value'} is {with_article(kind)}, and {one.place} uses it as {use.as_what}: it has no {name}",
        use.why,
        (Fix("See what it is, before that line.", (look,)), use.fix) if look else (use.fix,),
    )
