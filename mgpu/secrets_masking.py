"""Which parts of a text, a command line, an environment or a tree of values are secrets? They become `***`.

Everything that mgpu shows or writes is masked here. Exceptions: `--print-command` and the launch itself need the
secret, and the output of the training run is passed on byte for byte.

The time is linear in the length of the text: tokens are found with `str.find` by their first characters, names by a
word that they must contain, and every repetition is bounded or consumes what it has read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from mgpu import secret_patterns as patterns
from mgpu.secret_names import LONGEST_NAME, OF_PROSE, PARTS, Kind, is_secret_name, kind_of_name

MASK = "***"

_LONGEST_QUOTED = 16_384  # of a quoted value, and of a private key
_SHORTEST = 15  # no token of a known form is shorter
_BEGINS = tuple(begin for form in patterns.FORMS for begin in form.begins)
# A name at the start of a word of a command line: --name=, hydra's +name= and ++group/name=.
_NAME = re.compile(r"[-+~]{0,2}[A-Za-z][\w.+/@-]*=")
_OPTION = re.compile(r"-{1,2}[A-Za-z][\w.+-]*")
_NUMBER = re.compile(r"[-+]?[\d._,]+(?:[eE][-+]?\d+)?[,;)\]}]*")
# A placeholder for a value: a variable, an expression, <pad>, [MASK].
_STANDS_FOR = re.compile(
    r"\$\{?[A-Z_][A-Z0-9_]{0,100}\}?[,;)]*|<[^<>]{0,64}>[,;)]*|\[[A-Z_]{0,64}\][,;)]*|[\[{(|>~-]{1,3}|%\(?\w{0,64}\)?s"
    r"|\{\w{0,64}\}|\.\.\."
)
_FOLDER = re.compile(r"(?:~|\.{1,2})?(?:/[\w.@-]{1,32}){1,20}/?|/|\.{1,2}")
_BEGINS_WITHOUT = re.compile(r"\\{0,4}['\"]?[=:]{0,2}(?:\*\*\*|\$\(|\$\{\{|(?:os\.|\w{1,40}\.)?(?:environ|getenv)\b)")

# The words that every name of a secret contains, and what may follow them up to the value.
_HINT = re.compile("pass|pwd|pw|secret|token|key|auth|cred|bearer|cookie|jwt|sig|conn|webhook|pat|sas")
_NAMED = re.compile(
    r"(?i:pass|pwd?|secret|token|key|auth|cred|bearer|cookie|jwt|sig|conn|webhook|pat|sas)(?=(?P<rest>[\w.-]{0,40}))(?P=rest)"
    r"(?P<between>\\{0,4}['\"`]?\]?[ \t]{0,8}(?::=|=>|==?|:)[ \t]{0,16}|[ \t]{1,16}|\Z)"
)
_RUN = re.compile(r"[\w.-]*")  # of a name, read backwards
_LINE_START = re.compile(r"(?:^|\n)[ \t]{0,64}[-+]?[ \t]{0,16}['\"]?\Z")
_SCHEME = re.compile(r"(?i:bearer|basic|token|digest|negotiate|apikey|api-key)[ \t]{1,4}")
_QUOTE = re.compile(r"\\{0,4}(?:\"\"\"|'''|[\"'`])")
_PLAIN = re.compile(
    r"[^\s'\"`,;&\\]*(?:(?:\\(?!['\"ntr])|[,;](?!\s|\Z|['\"]|[A-Za-z][\w.-]{0,40}['\"]?[=:])|&(?!\w{1,40}=))"
    r"[^\s'\"`,;&\\]*)*"
)
_WHOLE_LINE = re.compile(r"[^\n'\"`]{1,16384}")
_END_IN_URL = re.compile(r"[&#;]")
_FIRST = 128  # characters of the value of a bare `key` or `token` that are examined
_RANDOM = re.compile(r"[\w+/=~-]+[,;)}\]]*")
_TWO_DIGITS = re.compile(r"\d\D{0,64}\d")
_LETTER = re.compile(r"[A-Za-z]")
_LIST = re.compile(r"\[[^\]\n]{0,16384}\]?")

_BEARER = re.compile(
    r"(?i:\b(?:bearer|basic)[ \t]{1,4})(?=[\w.~+/=-]{20}|[A-Za-z._~+/=-]{0,64}\d[\w.~+/=-]{4})[\w.~+/=-]{8,}"
)
_CURL_USER = re.compile(
    r"(?<=\s)(?P<option>-u|--user|--proxy-user)(?P<between>[ \t=]{1,4}['\"]?)(?P<user>[^\s:'\"]{1,100}):[^\s'\"]+"
)
_NETRC = re.compile(r"(?<=\spassword )[ \t]{0,8}\S+")
_BEGIN, _END = "-----BEGIN ", "-----END "
_PRIVATE = re.compile(r"-----BEGIN [A-Z0-9 ]{0,60}PRIVATE KEY(?: BLOCK)?-----")
_END_LINE = re.compile(r"-----END [A-Z0-9 ]{0,60}-----")
_ESCAPED = re.compile(r"\\[nrt]\Z|%[0-9A-Fa-f]{2}\Z")
_NO_LOGIN = re.compile(r"[\s'\"<>]")
_LONGEST_LOGIN = 1024
_LONG = re.compile(rf"\S{{{_SHORTEST},}}")  # of a token, no character is a space


# -- command lines, environments, trees -----------------------------------------------------------------------------


def masked_argv(argv: Sequence[str]) -> list[str]:
    """Mask the secrets in a command line: --token abc, ++a.token=abc, --env=API_KEY=abc, hf_..."""
    shown: list[str] = []
    secret = False
    for word in argv:
        if secret and not word.startswith("--"):
            shown.append(MASK if word and not _harmless(word) and not _is_folder(shown[-1], word) else word)
            secret = False
            continue
        shown.append(_masked_word(word))
        secret = _OPTION.fullmatch(word) is not None and is_secret_name(word)
    return shown


def _masked_word(word: str) -> str:
    """Mask a word that starts with one or more NAME=, as in --env=WANDB_API_KEY=abc, followed by any text."""
    place = 0
    while found := _NAME.match(word, place):
        place = found.end()
        if place < len(word) and is_secret_word(found.group()[:-1], word[place:]):
            return masked(word[:place]) + MASK
    return word[:place] + masked(word[place:]) if place else masked(word)


def is_secret_word(name: str, value: str) -> bool:
    """Whether a word NAME=VALUE is a secret. `key=loss` is not: a bare `key` is judged by its value."""
    kind = kind_of_name(name[-LONGEST_NAME:])
    if not kind or _harmless(value) or _is_folder(name, value):
        return False
    return kind != "weak" or name.startswith("-") or _looks_secret(name, "=", value, quoted=False)


def _is_folder(name: str, value: str) -> bool:
    """Whether the value of --pwd is a folder, as for containers (apptainer exec --pwd /workspace), not a password."""
    return name == "--pwd" and _FOLDER.fullmatch(value) is not None


def masked_env(env: Mapping[str, str]) -> dict[str, str]:
    """Mask the values of secret environment variables."""
    return {name: masked_value(value, name) if value else value for name, value in env.items()}


def masked_value(value: Any, name: str = "") -> Any:
    """Mask the secrets in a value or a tree of mappings and lists; `name`: the value's key."""
    kind = kind_of_name(name[-LONGEST_NAME:]) if name else ""
    if isinstance(value, Mapping):
        return {
            masked(key) if isinstance(key, str) else key: masked_value(inner, _inner(key, name, kind))
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return type(value)(masked_value(inner, name) for inner in value)
    if isinstance(value, str):
        return MASK if kind and value and not _harmless(value, kind) else masked(value)
    if kind == "password" and isinstance(value, int | float) and not isinstance(value, bool):
        return MASK
    return value


def _inner(key: object, name: str, kind: Kind) -> str:
    """The name to judge a value of a mapping by: everything in `credentials:` is a secret."""
    own = str(key)
    whole = kind in ("strong", "password") or name.lower() in OF_PROSE
    return name if whole and not is_secret_name(own) else own


def _harmless(value: str, kind: Kind = "strong") -> bool:
    """Whether a value is not a secret, whatever its name: None, a variable, <pad>, or already masked."""
    return (
        (len(value) < 16 and value.strip().rstrip(",;)]}").lower() in patterns.NO_VALUES)
        or _BEGINS_WITHOUT.match(value) is not None
        or _STANDS_FOR.fullmatch(value) is not None
        or (kind == "weak" and _NUMBER.fullmatch(value) is not None)
    )


# -- texts ----------------------------------------------------------------------------------------------------------


def secrets_of(data: Any, name: str = "") -> tuple[str, ...]:
    """Return the values of a tree that its keys mark as secrets, longest first, without common words."""
    if isinstance(data, Mapping):
        kind = kind_of_name(name[-LONGEST_NAME:])
        found = (secrets_of(inner, _inner(key, name, kind)) for key, inner in data.items())
    elif isinstance(data, list | tuple):
        found = (secrets_of(inner, name) for inner in data)
    elif isinstance(data, str) and len(data) >= 6 and is_secret_name(name) and not _harmless(data):
        return (data,)
    else:
        return ()
    return tuple(sorted({one for several in found for one in several}, key=len, reverse=True))


def masked(text: str, known: Sequence[str] = ()) -> str:
    """Mask the secrets in any text (a log line, a message, a file); `known`: values known to be secrets."""
    for secret in known:
        text = text.replace(secret, MASK)
    if len(text) < 4:
        return text
    if _BEGIN in text:
        text = _without_private_keys(text)
    if len(text) >= _SHORTEST and _LONG.search(text):
        text = _without_forms(text)
    if "://" in text:
        text = _without_logins(text)
    low = text.lower()
    if "bearer " in low or "basic " in low:
        text = _BEARER.sub(lambda found: found.group().split()[0] + " " + MASK, text)
    if "curl" in low or "--proxy-user" in low:
        text = _CURL_USER.sub(lambda found: f"{found['option']}{found['between']}{found['user']}:{MASK}", text)
    if "machine " in low and "password " in low:
        text = _NETRC.sub(MASK, text)
    if _HINT.search(low):
        text = _without_assigned(text)
    return text


def _without_private_keys(text: str) -> str:
    r"""Mask PEM blocks, also if cut or written with \n. Without an end, the rest of the text is masked."""
    parts, place = [], 0
    while found := _PRIVATE.search(text, place):
        parts.append(text[place : found.start()] + MASK)
        limit = found.end() + _LONGEST_QUOTED
        end = text.find(_END, found.end(), limit)
        last = _END_LINE.match(text, end) if end >= 0 else None
        place = last.end() if last else min(limit, len(text))
    return "".join([*parts, text[place:]])


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


def _without_forms(text: str) -> str:
    """Mask tokens that are recognized by their form."""
    long_words = " ".join(_LONG.findall(text))
    if not any(map(long_words.__contains__, _BEGINS)):  # nearly every text
        return text
    spans: list[tuple[int, int]] = []
    for form in patterns.FORMS:
        for begin in form.begins:
            place = text.find(begin)
            while place >= 0:
                found = _token(form, text, place)
                if found is not None:
                    spans.append(found)
                place = text.find(begin, found[1] if found else place + 1)
    if not spans:
        return text
    parts, place = [], 0
    for start, end in sorted(spans):
        if start >= place:
            parts.append(text[place:start] + MASK)
        place = max(place, end)
    return "".join([*parts, text[place:]])


def _token(form: patterns.Form, text: str, place: int) -> tuple[int, int] | None:
    """Start and end of the token of this form at `place`; None if there is none."""
    if not form.inside and place and not _edge(text, place, form.not_behind):
        return None
    found = _compiled(form.pattern).match(text, place)
    if found is None:
        return None
    if not form.lead:
        return found.span()
    lead = _compiled(form.lead + r"\Z").search(text[max(0, place - 40) : place])
    return None if lead is None else (place - len(lead.group()), found.end())


def _edge(text: str, place: int, not_behind: str) -> bool:
    r"""Whether a word can start here: not after a letter, unless the letter belongs to \n or %3D."""
    before = text[place - 1]
    if not (before.isalnum() or before == "_"):
        return before not in not_behind
    return _ESCAPED.search(text[max(0, place - 3) : place]) is not None


def _without_logins(text: str) -> str:
    """Mask user:password, or a token, before the host of a URL."""
    parts, place, start = [], 0, text.find("://")
    while start >= 0:
        begin = start + 3
        if (end := _login_end(text, begin)) and not text.startswith(MASK, begin):
            parts.append(text[place:begin] + MASK)
            place = end
        start = text.find("://", max(place, begin))
    return "".join([*parts, text[place:]])


def _login_end(text: str, begin: int) -> int:
    """Index of the @ after user and password; 0 if there is none. A password may contain / and @."""
    at = text.find("@", begin, begin + _LONGEST_LOGIN)
    if at <= begin:
        return 0
    login = text[begin:at]
    if _NO_LOGIN.search(login):
        return 0
    user, slash, _ = login.partition("/")
    name, colon, password = user.partition(":")
    if slash and (not colon or not name or password.isdecimal() or not password):
        return 0  # the @ is in the path
    limit = begin + _LONGEST_LOGIN
    while (following := text.find("@", at + 1, limit)) > 0 and not re.search(r"[\s'\"<>/]", text[at:following]):
        at = following
    return at


def _without_assigned(text: str) -> str:
    """Mask the values of secret names: NAME=value, "name": "value", --name value, name: value, ?name=value."""
    parts, place, at = [], 0, 0
    while found := _NAMED.search(text, at):
        at = found.end()
        before = text[max(place, found.start() - LONGEST_NAME) : found.start()][::-1]
        start = found.start() - (run.end() if (run := _RUN.match(before)) else 0)
        name, between = text[start : found.start("between")], found["between"]
        kind = kind_of_name(name.rstrip(".-")[-LONGEST_NAME:])
        if not kind:
            if between.isspace() or not between:  # `token --key x`: the next name follows directly
                at = found.start("between") + 1 if between else at
            continue
        value = _value(text, start, name, between, found.end(), kind)
        if value is None:
            continue
        parts.append(text[place : value[0]] + MASK)
        place = at = value[1]
    return "".join([*parts, text[place:]])


def _value(text: str, start: int, name: str, between: str, place: int, kind: Kind) -> tuple[int, int] | None:
    """Start and end of the value of a name; None if it is not a secret."""
    option, blank = name.startswith("-"), not between.strip()
    if not between or (blank and (not option or text.startswith("--", place))):
        return None
    if _BEGINS_WITHOUT.match(text, place):  # decided before reading all of it, to stay linear
        return None
    before = text[start - 1] if start else ""
    in_url = before in ("?", "&", "#")
    last = name.lower().rpartition("-")[2]
    if last in ("authorization", "cookie"):
        return _header(text, place, last)
    quote = _QUOTE.match(text, place)
    if quote:
        inner, end = _quoted(text, quote)
    elif text[place : place + 1] == "[" and kind != "weak" and (found := _LIST.match(text, place)):
        inner, end = place, found.end()
    else:
        inner, end = place, _end_of_plain(text, start, place, between, kind, in_url=in_url)
    value = text[inner:end]
    if not value or (_NUMBER.fullmatch(value) and kind != "password") or _harmless(value.lstrip("=:"), kind):
        return None
    if _is_folder(name, value):
        return None
    sure = kind != "weak" or option or in_url or _looks_secret(name, between, value, quoted=quote is not None)
    prose = not option and quote is None and ":" in between
    if not sure or (prose and len(value) < 4):
        return None
    if len(value) == _FIRST and (rest := _PLAIN.match(text, end)) and not in_url:
        end = rest.end()
    return inner, end


def _header(text: str, place: int, name: str) -> tuple[int, int] | None:
    """Start and end of the text after `Authorization:` or `Cookie:`, without the scheme."""
    quote = _QUOTE.match(text, place)
    place = quote.end() if quote else place
    scheme = _SCHEME.match(text, place) if name == "authorization" else None
    place = scheme.end() if scheme else place
    found = _WHOLE_LINE.match(text, place)
    return found.span() if found and len(found.group()) >= 4 and not text.startswith(MASK, place) else None


def _quoted(text: str, quote: re.Match[str]) -> tuple[int, int]:
    """Start and end of the text between quotes; without a closing quote, of the rest of the line."""
    mark, start = quote.group(), quote.end()
    limit = start + _LONGEST_QUOTED
    end = text.find(mark, start, limit)
    while len(mark) == 1 and end > start and text[end - 1] == "\\":
        end = text.find(mark, end + 1, limit)
    line = -1 if mark.endswith(('"""', "'''")) else text.find("\n", start, limit if end < 0 else end)
    stop = min(place for place in (end, line, min(limit, len(text))) if place >= 0)
    return start, stop


def _end_of_plain(text: str, start: int, place: int, between: str, kind: Kind, *, in_url: bool) -> int:
    """The end of an unquoted value: at a blank, or in YAML at the end of the line."""
    if kind == "weak":
        found = _PLAIN.match(text[place : place + _FIRST])
        end = place + found.end() if found else place
    else:
        of_yaml = ": " in between and _LINE_START.search(text[max(0, start - 90) : start])
        found = (_WHOLE_LINE if of_yaml else _PLAIN).match(text, place)
        end = found.end() if found else place
    cut = _END_IN_URL.search(text, place, end) if in_url else None
    return cut.start() if cut else end


def _looks_secret(name: str, between: str, value: str, *, quoted: bool) -> bool:
    """Whether the value of a bare `key`, `token` or `pass` is a secret: it looks random, or is assigned as one."""
    last = PARTS.findall(name)[-1].lower()
    if last not in ("key", "sig", "signature") and "=" in between and (quoted or not between.startswith(" ")):
        return True
    if quoted and last in (*OF_PROSE, "pass", "pw"):
        return True
    if len(value) < (16 if last == "key" else 8) or not _RANDOM.fullmatch(value):
        return False
    return _TWO_DIGITS.search(value) is not None and _LETTER.search(value) is not None
