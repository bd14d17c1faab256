"""Is an exception probably a mistake inside packages, without any code of the user's between their calls?

Facts and texts for `log/framework_mistakes.py`, `log/refused.py` and `_skew_meanings.py`.
"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException
from mgpu.text import listed

from . import _conditions as conditions
from . import _version_skew as skew

# They only call what they were given: torch runs modules and the backward pass, Ray runs tasks.
_PASS_ON = frozenset({"torch", "ray", "hydra", "fire", "click", "triton"})
# They call the trainers that others derive from theirs.
_RUN_TRAINERS = frozenset({"transformers", "accelerate", "lightning", "pytorch_lightning"})
LACKS = re.compile(r"'(?P<owner>\w+)' object has no attribute '(?P<name>\w+)'")
_CLASSES = (
    (r"^DeepSpeed", "deepspeed"),
    (
        r"^Hf(?:Trainer)?DeepSpeed|\wFor(?:CausalLM|ConditionalGeneration|SequenceClassification)$|Tokenizer(?:Fast)?$"
        r"|RotaryEmbedding$|^(?:Llama|Qwen\w*|Mistral|Gemma\w*)(?:Attention|Model|DecoderLayer|Config)$",
        "transformers",
    ),
    (r"^Peft|^Lora[A-Z]", "peft"),
    (r"^(?:LLMEngine|AsyncLLM\w*|EngineCore\w*|GPUModelRunner|VllmConfig)$", "vllm"),
)
# What a package assumes about its own objects. Sizes and counts (==, %, <) are the user's settings.
_INTERNAL = re.compile(
    r"^assert (?:not )?(?:[\w.\[\]]+ is (?:not )?None\b|isinstance\(|hasattr\(|[\w.\[\]]+\.dtype (?:==|in) |callable\()"
)
_WORD, _SENTENCE = re.compile(r"[A-Za-z_`'\"]{2,}"), 5  # a message with fewer words names a value
_LOADS = re.compile(r" in (?:\w*load_(?:state_dict|checkpoint|optimizer)\w*|_load_\w+|sharded_state_dict)$")
_SAVES = re.compile(r" in (?:_?save_\w*|\w*save_checkpoint\w*)$")
_GENERATES = re.compile(r" in \w*(?:generate|rollout)\w*$")


def within_packages(one: UncaughtException) -> bool:
    """Whether packages raised it among themselves: the user's files only call the outermost of them."""
    return bool(one.packages) and bool(one.packages[-1]) and "" not in one.packages[1:]


def innermost(one: UncaughtException) -> tuple[str, ...]:
    """Return the package that raised it, and the package that called that one, if there is another."""
    own = [package for package in one.packages if package and package not in _PASS_ON]
    if not own:
        return ()
    last = skew.distribution(own[-1])
    outer = next((package for package in reversed(own) if skew.distribution(package) != last), None)
    return (own[-1], outer) if outer else (own[-1],)


def to_move(one: UncaughtException) -> tuple[str, ...]:
    """Return the packages whose releases matter: the innermost, and the one that it does not fit, if there is one.

    In this order: what is called, what calls it.
    """
    packages = innermost(one)
    if not packages or one.type.endswith("IndexError"):
        return packages[:1]
    lacks = LACKS.match(one.message)
    whose = package_of_class(lacks["owner"]) if lacks and not reads_its_own_attribute(one, lacks["name"]) else None
    if whose and whose != packages[0]:
        return whose, packages[0]
    called_by_base = packages[1:] and packages[1] in _RUN_TRAINERS
    return packages if (asserts_its_own_state(one) or whose) and not called_by_base else packages[:1]


def package_of_class(owner: str) -> str | None:
    """Return the package (import name) that a class probably belongs to, from its name; None if it says nothing."""
    if found := skew.package_of(owner):
        return found
    return next((package for pattern, package in _CLASSES if re.search(pattern, owner)), None)


def asserts_its_own_state(one: UncaughtException) -> bool:
    """Whether an assertion without a message failed, about the package's own objects, not about the user's numbers."""
    return (
        one.type.endswith("AssertionError")
        and bool(_INTERNAL.match(one.message))
        and not (one.raised_in or "").endswith(" in __post_init__")  # of a config: these are its settings
        and not conditions.of_settings(one.message)
    )


def refuses_in_words(one: UncaughtException) -> bool:
    """Whether the code raised it on purpose, with a sentence: it refuses what it was given, and made no mistake."""
    return (
        (one.code or "").startswith("raise")
        and len(_WORD.findall(one.message)) >= _SENTENCE
        and not LACKS.match(one.message)
    )


def reads_its_own_attribute(one: UncaughtException, name: str) -> bool:
    """Whether the line that failed reads `self.name`, in a package."""
    own = re.search(rf"\bself\.{re.escape(name)}\b", one.code or "")
    return bool(own) and bool(one.packages) and bool(one.packages[-1]) and one.packages[-1] not in _PASS_ON


def doing(one: UncaughtException) -> str:
    """Return what the run was doing, as the frames show it: " while it loaded a checkpoint"; empty if they do not."""
    for pattern, text in (
        (_LOADS, " while it loaded a checkpoint"),
        (_SAVES, " while it saved"),
        (_GENERATES, " while it generated"),
    ):
        if any(pattern.search(frame) for frame in one.frames[-12:]):
            return text
    return ""


def fixes(*packages: str, beside: bool = False) -> tuple[Fix, ...]:
    """Return how to get out of a mistake in the first of these packages (import names), which the second one calls.

    `beside`: torch ran between them.
    """
    names = list(dict.fromkeys(skew.distribution(one) for one in packages))
    return (
        Fix(
            f"Install another release of {names[-1]}: the newest, or the one that worked before"
            + (f", together with the {names[0]} that its requirements name." if names[1:] else "."),
            (
                shell("pip show {:package}", [*names, *(("torch",) if beside else ())]),
                shell("pip install --upgrade {:package}", skew.requirement_for(packages[-1])),
                "pip check",
            ),
        ),
        Fix(
            f"Look for the failed line in the issues of {listed(names)}: a fix may be merged but not released. In a "
            "clone of the repository, compare with its main branch.",
        ),
        Fix("Until then, leave out the option that leads there."),
    )


# What transformers has in every release, and where: it imports its names when they are first used.
# fmt: off
_ALWAYS = {
    "Trainer": "trainer", "TrainingArguments": "training_args", "PreTrainedModel": "modeling_utils",
    "AutoConfig": "models.auto.configuration_auto", "AutoTokenizer": "models.auto.tokenization_auto",
    "AutoModel": "models.auto.modeling_auto", "AutoModelForCausalLM": "models.auto.modeling_auto",
    "AutoModelForSequenceClassification": "models.auto.modeling_auto", "BertModel": "models.bert.modeling_bert",
    "PreTrainedTokenizer": "tokenization_utils", "pipeline": "pipelines",
    "GPT2LMHeadModel": "models.gpt2.modeling_gpt2",
}
# fmt: on


def explain_lazy_import(module: str, name: str) -> Meaning | None:
    """Explain a name that every release of transformers has, but that could not be imported."""
    inner = _ALWAYS.get(name) if module == "transformers" else None
    if inner is None:
        return None
    return Meaning(
        f"transformers could not import its own {name}: probably a package that it imports is broken",
        f"Every release has {name}, and imports it when it is first used. The real error is hidden: a broken or wrong "
        "package that this module imports (apex, accelerate, torch, tensorflow, numpy), or a file or folder named "
        "transformers next to the script.",
        (
            Fix(
                "Import the module directly: its traceback ends at the broken package. Reinstall or remove that one.",
                (
                    shell("python -c {}", f"import transformers.{inner}"),
                    "python -c 'import transformers; print(transformers.__file__)'",
                    "pip check",
                ),
            ),
        ),
    )


def explain_own_attribute(owner: str, name: str, raised: UncaughtException | None) -> Meaning | None:
    """Explain an attribute that a class of a package should have set itself."""
    if raised is None or not reads_its_own_attribute(raised, name):
        return None
    packages = innermost(raised)
    package = skew.distribution(packages[0])
    return Meaning(
        f"probably a mistake in {package}: its class {owner} reads its own attribute {name}, which was never set",
        f"The line is in {raised.library or raised.raised_in}. This release or commit of {package} does not set it in "
        "this case, or only a part of it was updated. If a class of yours is derived from it, call super().__init__().",
        fixes(packages[0]),
    )


# Classes that a recipe's config names, whose other keys in that section become the arguments.
_CONFIGURED = {
    "DistributedCheckpointer": "torchtune",
    "FullModelHFCheckpointer": "torchtune",
    "FullModelMetaCheckpointer": "torchtune",
    "FullModelTorchTuneCheckpointer": "torchtune",
}
_FROM_CONFIG = re.compile(r"^(?:torchtune/config/_instantiate|mmengine/registry/|mmcv/utils/registry)")


def explain_config_argument(call: str, name: str, raised: UncaughtException | None) -> Meaning | None:
    """Explain an argument that a config, not code, gives a class; None if the call is not known to be of that kind."""
    owner = call.removesuffix(".__init__")
    package = _CONFIGURED.get(owner)
    built = raised is not None and any(_FROM_CONFIG.match(frame) for frame in raised.frames[-6:])
    if not package and not built:
        return None
    whose = f"the installed {package}'s {owner}" if package else f"{owner}()"
    other = " Another checkpointer may take it." if owner.endswith("Checkpointer") else ""
    return Meaning(
        f"{owner}() does not accept the argument {name}: the recipe or its config is for another class",
        f"The config names the class, and the other keys of that section become its arguments. Either the config has "
        f"{name} for another class of this kind, or the recipe needs a class that {whose} is not.",
        (
            Fix(
                f"Use the class that the recipe was written for, or remove {name} from that section.{other}",
                ("tune ls", "tune cat RECIPE_CONFIG") if package == "torchtune" else (),
            ),
            Fix("Or compare the versions: recipe and package must be of the same release.", ("pip check",)),
        ),
    )
