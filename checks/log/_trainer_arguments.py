"""Which object that the script handed to a trainer is of a kind that the trainer does not accept?

A trainer's constructor reads attributes of its arguments. If one is missing, the object is the script's, so another
release of the package does not help.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mgpu.check import Fix
from mgpu.command_line import python, shell
from mgpu.snapshot import Log, TracedCall, UncaughtException
from mgpu.text import with_article

from .. import _package_mistakes as mistakes
from .. import _version_skew as skew
from .._wording import at_place
from ._messages import short_name
from ._own_objects import Meaning

_TRAINER = re.compile(r"/(?:\S*_)?trainers?(?:/\S+)?\.py:\d+ in __init__$")
# Constructors of derived classes, and the wrappers of renamed arguments around them.
_PASSES_ON = re.compile(r" in (?:__init__|wrapper\w*|wrapped\w*|inner\w*|__call__|new_init)$")
_MODELS = r"(?:ref_|reward_|value_|teacher_|policy_|student_)?model|policy"
_TOKENIZERS = r"tokenizer|processing_class|processor"
_CLASS = re.compile(r"\b(\w*Trainer)\(")
_PLAIN_TYPES = frozenset({"str", "dict", "list", "tuple"})


class _Handed(NamedTuple):
    """An object that a trainer got from the script, and an attribute that it does not have."""

    name: str  # of the argument
    owner: str  # its class
    attribute: str
    trainer: str
    package: str  # of the trainer, import name


def _handed(one: UncaughtException) -> _Handed | None:
    """Return the argument whose attribute a trainer's constructor reads without success; None if it is another."""
    lacks = mistakes.LACKS.match(one.message)
    if short_name(one.type) != "AttributeError" or not lacks:
        return None
    calls = list(one.calls)
    while calls and calls[-1].package in ("torch", "peft"):  # their __getattr__
        calls.pop()
    if not calls or not calls[-1].package or not _TRAINER.search(calls[-1].place):
        return None
    read = re.findall(rf"(?<![\w.])({_MODELS}|{_TOKENIZERS})\.{lacks['name']}\b", calls[-1].code or "")
    caller = _caller(calls)
    if len(set(read)) != 1 or caller is None:
        return None
    package = calls[-1].package
    named = _CLASS.search(caller.code or "")
    trainer = named[1] if named else f"the trainer of {skew.distribution(package)}"
    return _Handed(read[0], lacks["owner"], lacks["name"], trainer, package)


def _caller(calls: list[TracedCall]) -> TracedCall | None:
    """Return the script's call of the constructor that is the last of these calls; None if a package made it."""
    for call in reversed(calls[:-1]):
        if not call.package:
            return call
        if not _PASSES_ON.search(call.place):
            return None
    return None


def handed_to_trainer(log: Log, raised: UncaughtException | None) -> bool:
    """Whether the object without the attribute is an argument of a trainer."""
    return raised is not None and _handed(raised) is not None


def wrong_argument(one: UncaughtException) -> Meaning | None:
    """Explain an object that a trainer does not accept; None if it is of a class that trainers are made for."""
    handed = _handed(one)
    if handed is None:
        return None
    kind = next((meant for known in (_of_value_head, _of_adapter, _of_plain_type) if (meant := known(handed))), None)
    if kind is None and mistakes.package_of_class(handed.owner):
        return None  # of a release that does not fit, perhaps
    why, fixes = kind or _of_own_class(handed)
    return Meaning(
        f"{handed.trainer} got {with_article(handed.owner)} as {handed.name}, which it does not accept: the object has "
        f"no {handed.attribute}{at_place(one)}",
        f"{handed.trainer} reads {handed.name}.{handed.attribute} in its constructor. {why}",
        fixes,
    )


_Answer = tuple[str, tuple[Fix, ...]]


def _of_value_head(handed: _Handed) -> _Answer | None:
    if not handed.owner.endswith("WithValueHead"):
        return None
    return (
        "The script passes a model in trl's wrapper with a value head, which only older releases of PPOTrainer "
        "use. The wrapper lacks attributes that a model of transformers has.",
        (
            Fix(
                "Pass the plain model, without the value head.",
                (python("{:name} = AutoModelForCausalLM.from_pretrained(MODEL)", handed.name),),
            ),
            Fix(
                "If it is built already, pass what the wrapper holds.",
                (python("{:name}.pretrained_model", handed.name),),
            ),
        ),
    )


def _of_adapter(handed: _Handed) -> _Answer | None:
    if not re.match(r"Peft|Lora[A-Z]", handed.owner):
        return None
    package = skew.distribution(handed.package)
    return (
        "It is a model in PEFT's wrapper. Either the script wrapped it (get_peft_model, PeftModel.from_pretrained), or "
        "the trainer did, if it also got a peft_config.",
        (
            Fix(
                "Pass the base model and the adapter's config: the trainer then wraps it itself.",
                ("Trainer(model=base_model, peft_config=LoraConfig(...))",),
            ),
            Fix(
                "If the script does that already, upgrade both packages together.",
                (shell("pip install --upgrade {:package}", [package, "peft"]),),
            ),
        ),
    )


def _of_plain_type(handed: _Handed) -> _Answer | None:
    if handed.owner not in _PLAIN_TYPES:
        return None
    name_or_path = "a name or a path" if handed.owner == "str" else "a config or several objects"
    loader = "AutoTokenizer" if re.fullmatch(_TOKENIZERS, handed.name) else "AutoModelForCausalLM"
    return (
        f"The script passes a plain {handed.owner} ({name_or_path}) in place of the object, or two arguments are in "
        "the wrong order. Some trainers load a model by its name, this release of this one does not.",
        (
            Fix(
                "Load it, and pass the object, each argument by its name.",
                (python("{:name} = {:name}.from_pretrained(NAME)", handed.name, loader),),
            ),
        ),
    )


def _of_own_class(handed: _Handed) -> _Answer:
    if re.fullmatch(_TOKENIZERS, handed.name):
        return (
            f"{handed.owner} is not a tokenizer or a processor of transformers.",
            (
                Fix(
                    "Wrap it in transformers' class, or give your class what the message names.",
                    ("PreTrainedTokenizerFast(tokenizer_object=...)",),
                ),
            ),
        )
    return (
        f"{handed.owner} is not a model of transformers (PreTrainedModel): it is a plain module, or a wrapper around a "
        "model. Such a trainer needs its config, generate() and save_pretrained().",
        (
            Fix(
                "If it is a wrapper, pass the model inside. Otherwise, derive its class from PreTrainedModel.",
                (python("class {:name}(PreTrainedModel): ...", handed.owner),),
            ),
            Fix(f"If only {handed.attribute} is missing, set it in {handed.owner}."),
        ),
    )
