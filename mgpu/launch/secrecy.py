"""What of a command line, an environment or a text must nobody read? What mgpu shows or writes goes through here.

Not what it hands on: `--print-command` and the launch itself need the secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

MASK = "***"
# Keys that are recognised by their form: Hugging Face, OpenAI and Anthropic, GitHub, GitLab, AWS, Slack, JSON web
# tokens (docs.github.com/en/code-security/secret-scanning lists them).
_BY_FORM = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|A(?:KIA|SIA)[0-9A-Z]{16}|xox[abprs]-[\w-]{10,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,})"
)
_LOGIN = re.compile(r"(?<=://)[^/@\s'\"]+(?=@)")  # user:password in an address
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_ALWAYS = frozenset(
    {"password", "passwd", "passphrase", "pwd", "secret", "credential", "credentials", "apikey", "auth"}
)
# `token` and `key` are also words of the trade: --pad_token, --label_key. There the word before tells.
_NO_TOKEN = frozenset({
    "pad", "eos", "bos", "unk", "sep", "cls", "mask", "special", "image", "audio", "video", "stop", "start", "end",
    "begin", "per", "prompt", "next", "new", "first", "last", "each", "time",
})  # fmt: skip
_KEYS = frozenset({
    "api", "access", "private", "secret", "auth", "encryption", "account", "service", "ssh", "wandb", "hf", "openai",
    "comet", "neptune", "aws", "azure", "license",
})  # fmt: skip
# An option and its value with a blank between, or any name and its value with = or : between.
_ASSIGNED = re.compile(
    r"(?<![\w-])(?P<name>--[A-Za-z][\w.-]*(?=\s)|-{0,2}[A-Za-z][\w.-]*(?=['\"]?\s*[=:]))(?P<between>['\"]?\s*[=:]?\s*)"
    r"(?P<quote>['\"]?)(?P<value>[^\s'\",;]{4,})"
)
# A name that a word of a command line begins with: --name=, hydra's +name= and ++group/name=.
_NAME = re.compile(r"[-+~]{0,2}[A-Za-z][\w.+/@-]*=")
_NO_VALUES = frozenset({"None", "null", "True", "False", "true", "false"})
_NUMBER = re.compile(r"[-+]?[\d._,]+(?:[eE][-+]?\d+)?")


def is_secret_name(name: str) -> bool:
    """Whether what bears this name (an option, a variable, a key) is a secret: --hub_token, WANDB_API_KEY."""
    words = [word.lower() for word in _WORDS.findall(name)]
    for place, word in enumerate(words):
        before = words[place - 1] if place else ""
        ends = place == len(words) - 1
        if word in _ALWAYS or (word == "token" and ends and before not in _NO_TOKEN):
            return True
        if word == "key" and ends and (not before or before in _KEYS):
            return True
    return False


def masked_argv(argv: Sequence[str]) -> list[str]:
    """A command line, word for word, without its secrets: --token abc, ++a.token=abc, --env=API_KEY=abc, hf_..."""
    told: list[str] = []
    secret = False
    for word in argv:
        if secret and not word.startswith("--"):
            told.append(MASK if word else word)
            secret = False
            continue
        told.append(_masked_word(word))
        secret = re.fullmatch(r"-{1,2}[A-Za-z][\w.+-]*", word) is not None and is_secret_name(word)
    return told


def _masked_word(word: str) -> str:
    """Names before a = one after the other, as in --env=WANDB_API_KEY=abc; what comes after them may be any text."""
    place = 0
    while found := _NAME.match(word, place):
        place = found.end()
        if place < len(word) and is_secret_name(found.group()):
            return _by_form(word[:place]) + MASK
    return word[:place] + masked(word[place:]) if place else masked(word)


def masked_env(env: Mapping[str, str]) -> dict[str, str]:
    """Variables without the values of those that are secrets."""
    return {name: MASK if value and is_secret_name(name) else _by_form(value) for name, value in env.items()}


def masked(text: str) -> str:
    """Any text (a line of a log, a message) without secrets."""

    def hide(found: re.Match[str]) -> str:
        name, value = found["name"], found["value"]
        if value.lstrip("=:") == MASK:  # masked before
            return found.group()
        if not is_secret_name(name) or _NUMBER.fullmatch(value) or value in _NO_VALUES or value.startswith("--"):
            return found.group()
        return f"{name}{found['between']}{found['quote']}{MASK}"

    return _by_form(_ASSIGNED.sub(hide, text))


def _by_form(text: str) -> str:
    return _BY_FORM.sub(MASK, _LOGIN.sub(MASK, text))
