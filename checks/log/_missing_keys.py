"""Which key does a line read that a batch, a config, a table or an item of the data does not have?"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.command_line import Code, python
from mgpu.snapshot import UncaughtException

from .._followed_values import origin, subscript
from ._messages import short_name
from ._own_objects import NAME, PLAIN, Meaning
from ._pandas_keys import missing_label
from ._table_keys import computed_key, other_literal
from ._values_that_are_none import CONFIGS, is_setting

_KEYS = tuple(
    re.compile(rf"(?P<of>{PLAIN}(?:\(\))?(?:\[[^\[\]]+\]){{{depth}}})\[(?P<key>[^\[\]]+)\]") for depth in range(4)
)
_BATCHES = re.compile(r"(?:^|\.|_)(?:batch|samples?|inputs?|features?|examples?)(?:_\w+|\d*)$")
_ITEMS = re.compile(r"(?:^|\.|_)(?:row|item|record|elem|element|entry|ann|annotation|obj|line|info|meta)(?:_\w+|\d*)$")
# A table that gives each character, word or token its number: self.meta["stoi"], char_to_ix, self.vocab.
_VOCABULARIES = re.compile(
    r"(?:^|\W|_)(?:stoi|[cwt]2[ix]|vocab(?:ulary)?|(?:char|chr|ch|word|tok|token)s?_?(?:2|to)_?(?:idx|id|ix|index|int|i)s?)\W*$"
)
_REMOVED = ", or Trainer, which removes the columns that forward() does not name (remove_unused_columns)"
_OF_TRAINER = frozenset({"transformers", "trl"})


def missing_key(one: UncaughtException) -> Meaning | None:
    """Explain a key that the line's object does not have; None if the line does not show which object it is."""
    if short_name(one.type) != "KeyError" or not one.message:
        return None
    if label := missing_label(one):
        return label
    key, own = one.message, one.raised_in_own_code
    in_python = bool(one.code and one.own_lines) and one.code != one.own_code
    code = (one.code if own and not in_python else one.own_code) or ""
    if own and code == one.code and (marked := subscript(one)) and not other_literal(marked[1], key):
        return _missing(marked[0], key, one, marked[1])
    read = [match for depth in _KEYS for match in depth.finditer(code)]
    found = [match for match in read if match["key"].strip("'\"") == key.strip("'\"")]
    if own and not found:
        if computed := computed_key(one, code):
            return computed
        found = [match for match in _KEYS[0].finditer(code) if not other_literal(match["key"], key)]
    reads = own or (one.raised_in or "").endswith((" in __getitem__", " in pop", " in __missing__"))
    if len(found) != 1 or not reads:
        return None
    return _missing(found[0]["of"], key, one, found[0]["key"].strip())


def _print_keys(name: str) -> Code:
    """Return the line that prints the keys of a name, or of what a function without arguments returns."""
    return (
        python("print({:dotted}.keys())", name)
        or python("print({:dotted}().keys())", name.removesuffix("()"))
        or python("print(item.keys())")
    )


def _get(name: str, key: str) -> Code:
    """Return the line that reads a key, as Python's message shows it, with a default."""
    text = python("{:dotted}.get('{:id}', DEFAULT)", name, key.strip("'\"")) or python("section.get(KEY, DEFAULT)")
    return text if key[:1] in "'\"" else python("{:dotted}.get({:number}, DEFAULT)", name, key)


def _missing(name: str, key: str, one: UncaughtException, index: str) -> Meaning:
    """Explain a key that a batch, a config or something else does not have; `index`: as the line writes it."""
    if value := _setting_as_key(one, index):
        return _not_in_table(name, key, one, *value)
    printed = Fix("Print what it has, before that line.", (_print_keys(name),))
    of = name.partition("[")[0]
    if _VOCABULARIES.search(name):
        return _not_in_vocabulary(name, key, one)
    if _BATCHES.search(of):
        removed = _REMOVED if _OF_TRAINER & {*one.packages} else ""
        return Meaning(
            f"{name} has no key {key}: the dataset or the collate function probably does not make it ({one.place})",
            "The data has other fields than the script reads: another dataset or split, a renamed column, a field that "
            f"only some samples have, a collate function that drops it{removed}.",
            (printed, Fix(f"Use the key that the data has, or add {key} where the samples are made.")),
            of_code=False,
        )
    if CONFIGS.search(of):
        return Meaning(
            f"{name} has no key {key}: it is missing in the config ({one.place})",
            "The config was written for another version of the script, the section is another one, or the key is "
            "misspelled in one of the two.",
            (Fix(f"Add {key} to the config, or read it with a default.", (_get(name, key),)), printed),
        )
    if _ITEMS.search(of):
        return Meaning(
            f"{name} has no key {key} ({one.place})",
            "This item of the data lacks the field: only some of them have it, or none, because the file is of another "
            "version or has another header.",
            (printed, Fix("If only some items lack it, read it with a default.", (_get(name, key),))),
            of_code=False,
        )
    return Meaning(
        f"{name} has no key {key} ({one.place})",
        "What fills it does not make this key: another version of the data or the config, a misspelled name, or a case "
        "that was not added to a table.",
        (printed, Fix(f"Use a key that it has, or add {key} where {name} is made.")),
    )


def _not_in_vocabulary(name: str, key: str, one: UncaughtException) -> Meaning:
    """Explain a character, a word or a token that a vocabulary does not have."""
    return Meaning(
        f"the vocabulary {name} has no entry for {key} ({one.place})",
        "It was made from other data: the text that the run reads has a character, a word or a token that was not "
        "in it, or the file of the vocabulary is of another data set or an older version of this one.",
        (
            Fix("Make the vocabulary again from all the text that the run reads, and delete the cached one."),
            Fix("Map what is unknown to a token of its own, or remove it from the text."),
        ),
        of_code=False,
    )


def _setting_as_key(one: UncaughtException, index: str) -> tuple[str, str] | None:
    """Return the setting that a line looks up in a table, and the place where it is read; None if it is no setting."""
    found = origin(one, index)
    if found is None or not found.own or not re.fullmatch(NAME, found.expression):
        return None
    return (found.expression, found.call.place) if is_setting(found.expression) else None


def _not_in_table(table: str, key: str, one: UncaughtException, setting: str, place: str) -> Meaning:
    """Explain the value of a setting for which a table of the code has no entry."""
    passed = f" {place} passes it on." if place != one.place else ""
    return Meaning(
        f"{setting} is {key}, and {table} has no entry of that name ({one.place})",
        f"{table} has an entry for each name that the code knows: a model, a data set, a loss, a kind of task. This "
        f"run's setting is not one of them: it is misspelled, of another version of the code, or its entry is added by "
        f"a module that was not imported.{passed}",
        (
            Fix("Print the names that it has, before that line.", (_print_keys(table),)),
            Fix(f"Set {setting} to one of them, or add an entry for {key}."),
        ),
    )
