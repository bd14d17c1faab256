"""Which change does an error message about settings ask for: set another one too, leave one out, use a new name?"""

from __future__ import annotations

import re

from mgpu.check import Fix

# "--use-dist-ckpt", "`tp_size`", "'dp_size'", "parallelism.tensor_parallel_degree", "micro_batch_size", "use_cpu=True"
_NAME = (
    r"(?:--\w[\w.-]*\w(?:=[\w.'\"]+)?|`[^`\s]{2,60}`|'[A-Za-z][\w.]{2,50}'"
    r"|\b[A-Za-z][A-Za-z0-9]*(?:[._][A-Za-z0-9]+)+(?:=['\w]+)?)"
)
_VALUE = (
    r"(?P<value> ?(?:>=?|==|<=?) ?[\w.'\"]+| to be (?:True|False|\d+|set)\b)?"
    r"(?! to match| version| package| librar| module| to be )"
)
_FILLER = (
    r"(?: (?:argument|option|flag|parameter|config|setting|is|are|can|be|only|be used|it|you|must|the|set to|a|an))*"
)
_RENAMED = re.compile(
    rf"(?P<a>{_NAME})[^.;]{{0,60}}?(?:no longer (?:valid|supported|used|accepted)|deprecated|removed|renamed|obsolete)"
    rf"\b[^`]{{0,40}}?(?:use|to|by|set|specify) (?P<b>{_NAME})"
)
_NEEDS = (
    re.compile(rf"[Mm]ust use (?P<a>{_NAME}) with (?P<b>{_NAME})"),
    re.compile(
        rf"(?P<a>{_NAME}){_FILLER} (?:requires?|needs?|(?:must|can|should|has to)(?: only)? be used (?:together |in "
        rf"conjunction )?with|(?:is |are )?only (?:supported|valid|available|effective|compatible|works?|allowed|used|"
        rf"possible|tested)(?: with| when| if| in|,)|works only with|depends on|relies on)"
        rf"{_FILLER} (?P<b>{_NAME}){_VALUE}"
    ),
    re.compile(
        rf"(?P<b>{_NAME}) (?:must|should|has to|needs to) be (?:set|enabled|turned on|specified|provided)(?: to "
        rf"\S+)? (?:when|if)(?: using| you use| enabling)? (?P<a>{_NAME})"
    ),
)
_EXCLUDES = (
    re.compile(
        rf"(?P<a>{_NAME}) (?:and|or|with|along with|together with) (?P<b>{_NAME})[^.;]{{0,30}}? "
        rf"(?:cannot(?! be both None)|can not|"
        rf"can't|are mutually exclusive|mutually exclusive|may not|must not|should not|are not compatible|are "
        rf"incompatible|is not supported|are not supported)"
    ),
    re.compile(
        rf"(?P<a>{_NAME}){_FILLER} (?:is |are )?(?:not (?:supported|compatible|allowed|tested|implemented)(?: (?:when "
        rf"using|with|when|for|in combination with|together with))|incompatible with|mutually exclusive with|"
        rf"conflicts with|cannot be (?:used|combined|set|enabled|specified)(?: together)? (?:with|when|if|for)|"
        rf"does not support){_FILLER} (?P<b>{_NAME})"
    ),
    re.compile(rf"[Cc]annot (?:use|specify|set|enable|combine) both (?P<a>{_NAME}) and (?P<b>{_NAME})"),
    re.compile(rf"[Oo]nly one of (?P<a>{_NAME}) (?:and|or) (?P<b>{_NAME})"),
    re.compile(rf"[Bb]oth (?P<a>{_NAME}) and (?P<b>{_NAME}) (?:are|were) (?:set|specified|given|provided)(?! to| but)"),
)
_UNSET = re.compile(
    rf"(?<!or )(?<!if )(?<!when )(?<!unless )(?P<a>{_NAME})(?: argument| option)? (?:(?:must|should|has to|needs to) "
    r"be|(?:is|was) not) (?:set|specified|provided|given|defined)(?=[.,!]|$| in | via | for | but)"
)


def fix_of(message: str) -> Fix | None:
    """Return the change that the message asks for, with its settings' names; None if it names no such relation."""
    text = " ".join(message.split())[:600]
    if found := _RENAMED.search(text):
        a, b = _names(found)
        return Fix(f"Replace {a} with {b}.") if a != b else None
    for pattern in _EXCLUDES:
        if (found := pattern.search(text)) and (both := _names(found))[0] != both[1]:
            return Fix(f"Leave out {both[0]} or {both[1]}: they cannot be combined.")
    for pattern in _NEEDS:
        if (found := pattern.search(text)) and (both := _names(found))[0] != both[1]:
            value = (found.groupdict().get("value") or "").removesuffix(" to be set").rstrip(".")
            return Fix(f"Set {both[1]}{value} too, or leave out {both[0]}.")
    if found := _UNSET.search(text):
        return Fix(f"Set {_bare(found['a'])}.")
    return None


def _names(found: re.Match[str]) -> tuple[str, str]:
    return _bare(found["a"]), _bare(found["b"])


def _bare(name: str) -> str:
    return (name.strip("`'") if name[0] in "`'" else name).rstrip(".,")
