"""Which value has another number of parts than the names that a line assigns it to: a shape, a text, an item?"""

from __future__ import annotations

import re
from dataclasses import replace

from mgpu.check import Fix
from mgpu.command_line import python
from mgpu.snapshot import UncaughtException
from mgpu.text import counted

from ._own_objects import PLAIN, Meaning

_UNPACK = re.compile(r"^(?:for )?(?P<names>[\w.*\[\]', ]+?)(?: = | in )(?P<value>.+)$")
_ENUMERATED = re.compile(
    r"^for \w+, \((?P<names>\w+(?:, ?\w+)*),?\) in (?:enumerate|tqdm\(enumerate)\((?P<value>[^)]+)"
)
_OF_DATA = re.compile(r"(?!for ).* = (?:batch|data|samples?|items?)\w*$")
_COUNTS = re.compile(r"\(expected (?:at least )?(?P<wanted>\d+)(?:, got (?P<got>\d+))?\)")
_SHAPE = re.compile(rf"^(?P<of>{PLAIN}(?:\[[^\[\]]+\])*)\.(?:shape|size\(\))$")
_SPLIT = re.compile(r"\.(?:r?split|r?partition)\([^()]*\)$")
_STRIPPED = re.compile(r"\.(?:split|rsplit)\(")
_ZIPPED = re.compile(rf"^zip\(\*(?P<of>{PLAIN})\)$")
_CALL = re.compile(r"^[A-Za-z_][\w.]*\(")
_OF_MODEL = re.compile(r"(?i)^(?:\w+\.)*\w*(?:model|net|encoder|decoder|bert|gpt|llm|transformer)\w*\(")
_IMAGE = re.compile(r"h(?:eight|_\w+)?\w*, w\w*, \w+$|\w+, h\w*, w\w*$", re.I)


def unpacked(one: UncaughtException) -> Meaning | None:
    """Explain a value with too few or too many parts."""
    if "values to unpack" not in one.message:
        return None
    code = one.code or ""
    found = _ENUMERATED.match(code) or _UNPACK.match(code)
    if not found:
        return None
    counts = _COUNTS.search(one.message)
    value, names = found["value"].partition("  #")[0].rstrip(": "), found["names"].strip()
    wanted = counts["wanted"] if counts else str(names.count(",") + 1)
    got = counts["got"] if counts and counts["got"] else ("fewer" if "not enough" in one.message else "more")
    if code.startswith("for "):
        plural = "" if got == "1" else "s"
        return _items(value, f"{got} part{plural}, and the loop at {one.place} expects {wanted} ({names})")
    for kind in (_of_shape, _of_text, _of_zip):
        if meant := kind(value, got, wanted, names, one):
            return meant
    return _of_value(value, got, wanted, names, one)


def unpacked_batch(one: UncaughtException) -> Meaning | None:
    """Return what a line means that takes a batch apart, also in a package: the data has another form."""
    one = replace(one, place=one.raised_in)  # not the script's call
    return unpacked(one) if _OF_DATA.match(one.code or "") else None


def _number(got: str, what: str) -> str:
    return counted(int(got), what) if got.isdigit() else f"{got} {what}s"


def _of_shape(value: str, got: str, wanted: str, names: str, one: UncaughtException) -> Meaning | None:
    if not (found := _SHAPE.match(value)):
        return None
    of = found["of"]
    gray = (
        " An image without a dimension of channels is gray: read it in color, or add the dimension."
        if _IMAGE.match(names) and got == "2"
        else ""
    )
    return Meaning(
        f"{of} has {_number(got, 'dimension')}, and {one.place} expects {wanted} ({names})",
        "A dimension is missing or too many: that of the batch (one sample, squeeze, an index), of the channels, of "
        f"time, or a batch that was already flattened.{gray}",
        (
            Fix("Print the shape before that line.", (python("print({:dotted}.shape)", of),)),
            Fix(
                "Add or remove the dimension where the value is made.",
                ("x = x[None]  # a batch of one", "x = x.squeeze(1)  # only a dimension of size 1"),
            ),
        ),
    )


def _of_text(value: str, got: str, wanted: str, names: str, one: UncaughtException) -> Meaning | None:
    if not _SPLIT.search(value):
        return None
    return Meaning(
        f"a text was split into {_number(got, 'part')}, and {one.place} expects {wanted} ({names})",
        f"{value} splits a line, a name or an option of another form than the code expects: an empty or last line, a "
        "header, another separator, or the separator within a part.",
        (
            Fix("Print the text, and skip or correct what has another form.", ("print(repr(text))",)),
            *(
                (Fix("If a part can contain the separator, limit the splits.", ("text.split(' ', maxsplit=1)",)),)
                if got == "more" and _STRIPPED.search(value)
                else ()
            ),
        ),
        of_code=False,
    )


def _of_zip(value: str, got: str, wanted: str, names: str, one: UncaughtException) -> Meaning | None:
    found = _ZIPPED.match(value)
    if not found:
        return None
    of = found["of"]
    if got == "0":
        return Meaning(
            f"{of} is empty ({one.place})",
            f"{value} has nothing to take apart: no sample was collected, or a filter removed all.",
            (Fix(f"Print the length of {of}.", (python("print(len({:dotted}))", of),)),),
            of_code=False,
        )
    return Meaning(
        f"each item of {of} has {_number(got, 'part')}, and {one.place} expects {wanted} ({names})",
        f"{value} makes one value of each part of the items: the dataset or the list gives items of another form.",
        (Fix("Print one item, and take as many parts as it has.", (python("print({:dotted}[0])", of),)),),
    )


def _of_value(value: str, got: str, wanted: str, names: str, one: UncaughtException) -> Meaning:
    call = bool(_CALL.match(value))
    of_model = "an option that adds or removes an output (return_dict, a mask, lengths), " if call else ""
    plural = "" if got == "1" else "s"
    return Meaning(
        f"{value} gives {got} value{plural}, and {one.place} expects {wanted} ({names})",
        "What is on the right returns another number of values than the names on the left: "
        f"{'a function, a model' if call else 'a model'} or a dataset of another version, {of_model}or a batch that "
        "was not collated.",
        (
            Fix(
                f"Keep what {value} gives in one variable (out), print it, and take that many values.",
                ("print(type(out), len(out))",),
            ),
            *(
                (
                    Fix(
                        "Outputs of transformers are objects: read them by name.",
                        ("out = model(**batch); loss = out.loss",),
                    ),
                )
                if _OF_MODEL.match(value)
                else ()
            ),
        ),
    )


def _items(value: str, numbers: str) -> Meaning:
    """Explain a loop over items that have another number of parts than the names in front of `in`."""
    of_dict = (
        (
            Fix(
                f"If {value} is a dict, go through its items: a loop over the dict itself gives its keys.",
                (python("for key, value in {:dotted}.items():", value),),
            ),
        )
        if re.fullmatch(PLAIN, value)
        else ()
    )
    return Meaning(
        f"an item of {value} has {numbers}",
        "What fills it adds items of another form: another version of the data set or of a file, a function that "
        "returns one value more or less, or single items that lack a field.",
        (
            Fix(
                "Print the first item, and take as many parts as it has.",
                (python("print(next(iter({:dotted})))", value),),
            ),
            *of_dict,
            Fix(
                "If only some differ, compare the lengths of all of them.",
                (python("print({{len(x) for x in {:dotted}}})", value),),
            ),
        ),
    )
