"""Which argument was probably meant: the name that another library has, a key of a dictionary, an argument of a hook?

Texts for `_skew_meanings.py`.
"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.command_line import python, shell
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

from . import _version_skew as skew
from ._wording import at_place

# What people write, by the class, and the argument that it has.
_OTHERS = {
    ("LoraConfig", "rank"): "r",
    ("LoraConfig", "lora_r"): "r",
    ("LoraConfig", "lora_rank"): "r",
    ("LoraConfig", "alpha"): "lora_alpha",
    ("LoraConfig", "dropout"): "lora_dropout",
    ("LoraConfig", "targets"): "target_modules",
    ("TrainingArguments", "batch_size"): "per_device_train_batch_size",
    ("TrainingArguments", "train_batch_size"): "per_device_train_batch_size",
    ("TrainingArguments", "eval_batch_size"): "per_device_eval_batch_size",
    ("TrainingArguments", "lr"): "learning_rate",
    ("TrainingArguments", "epochs"): "num_train_epochs",
    ("TrainingArguments", "num_epochs"): "num_train_epochs",
    ("TrainingArguments", "grad_accum_steps"): "gradient_accumulation_steps",
    ("TrainingArguments", "accumulation_steps"): "gradient_accumulation_steps",
    ("TrainingArguments", "num_workers"): "dataloader_num_workers",
    ("TrainingArguments", "scheduler"): "lr_scheduler_type",
    ("TrainingArguments", "optimizer"): "optim",
    ("TrainingArguments", "clip_grad_norm"): "max_grad_norm",
    ("Trainer", "optimizer"): "optimizers",
    ("Trainer", "train_data"): "train_dataset",
    ("Trainer", "eval_data"): "eval_dataset",
    ("Trainer", "collator"): "data_collator",
    ("Trainer", "collate_fn"): "data_collator",
    ("Trainer", "metrics"): "compute_metrics",
    ("Trainer", "training_args"): "args",
    ("Accelerator", "fp16"): "mixed_precision",
    ("Accelerator", "bf16"): "mixed_precision",
}
_DTYPES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp32": "float32",
    "fp64": "float64",
    "f16": "float16",
    "f32": "float32",
}
_HOOK = re.compile(r"^(?P<owner>[A-Z]\w*)\.(?P<hook>on_[a-z]+(?:_[a-z]+)*)$")
# What is made of a dictionary in a call of the script, and which argument of that call has the dictionary.
_OF_DICTIONARY = {"AcceleratorConfig": "accelerator_config"}
_LIGHTNING = frozenset({"lightning", "pytorch_lightning", "lightning_fabric"})
_TRL = re.compile(
    r"^trl/(?:\w+/)*(?P<name>sft|dpo|grpo|kto|rloo|reward|ppo|orpo|cpo|bco|gkd|online_dpo)_trainer\.py in "
)
_EXPERIMENTAL = "trl/experimental/"
_KINDS = {"reward": "Reward", "online_dpo": "OnlineDPO"}  # the others are written in capitals
_OTHER_TRAINERS = _LIGHTNING | {"composer"}  # packages with another class of the name Trainer
_GENERATES = ("LMHeadModel", "PeftModel", "EncoderDecoderModel", "LanguageModel")
_BARE = re.compile(r"^[A-Z]\w+Model$")  # LlamaModel, BertModel
_BUILDER = re.compile(r"^datasets/builder\.py in ")


def explain(call: str, name: str, raised: UncaughtException | None) -> Meaning | None:
    """Explain an argument of another name, of a dictionary or of a hook; None if it is not one of these."""
    owner = call.removesuffix(".__init__")
    if (meant := _OTHERS.get((owner, name))) and not _of_other_trainer(owner, raised):
        return _other_name(owner, name, meant, raised)
    if owner in _OF_DICTIONARY:
        return _key(_OF_DICTIONARY[owner], name, raised)
    frames = raised.frames if raised else ()
    if owner.endswith("Config") and any(_BUILDER.search(frame) for frame in frames):
        return _of_builder(owner, name, raised)
    hook = _HOOK.match(call)
    if hook and any(frame.startswith("transformers/trainer_callback.py in ") for frame in frames):
        return _of_hook(hook["owner"], hook["hook"], name, raised)
    return None


def _of_other_trainer(owner: str, raised: UncaughtException | None) -> bool:
    if (
        owner != "Trainer"
        or raised is None
        or any(frame.startswith(("transformers/", "trl/")) for frame in raised.frames)
    ):
        return False
    return bool(_OTHER_TRAINERS.intersection(raised.packages))


def with_the_same_classes(package: str) -> frozenset[str]:
    """Return the packages that contain the same classes as this one, and itself."""
    return _LIGHTNING if package in _LIGHTNING else frozenset({package})


def explain_attribute(owner: str, name: str, raised: UncaughtException | None) -> Meaning | None:
    """Explain an object of another class than the one that has this attribute: a bare model, arguments of Trainer."""
    of_trl = next((found for frame in (raised.frames if raised else ()) if (found := _TRL.search(frame))), None)
    if owner in ("TrainingArguments", "Seq2SeqTrainingArguments") and of_trl:
        return _of_trainer(owner, name, of_trl)
    if name == "generate" and _BARE.match(owner) and not owner.endswith(_GENERATES):
        return Meaning(
            f"{owner} has no generate(): it is probably a base model, without a head that predicts tokens"
            f"{at_place(raised)}",
            "Base models return hidden states. Encoders such as BERT are not made to generate.",
            (
                Fix(
                    "Load the class that generates.",
                    (
                        "AutoModelForCausalLM.from_pretrained(MODEL)",
                        "AutoModelForSeq2SeqLM.from_pretrained(MODEL)  # T5, BART",
                    ),
                ),
                Fix(
                    "A class of your own, or of a Hub repository: inherit generate(), which transformers 4.50 and "
                    "newer do not add.",
                    ("class MyModel(PreTrainedModel, GenerationMixin): ...",),
                ),
            ),
            complete=True,
        )
    return None


def _of_trainer(owner: str, name: str, of_trl: re.Match[str]) -> Meaning:
    kind = _KINDS.get(of_trl["name"], of_trl["name"].upper())
    load = python("from trl import {:name}", f"{kind}Config")
    if of_trl[0].startswith(_EXPERIMENTAL):
        load = python("from trl.experimental.{:name} import {:name}", of_trl["name"], f"{kind}Config")
    return Meaning(
        f"{kind}Trainer got {owner}, and needs {kind}Config: it reads {name}, which only that one has",
        f"{kind}Config extends TrainingArguments with the options of {kind}Trainer.",
        (
            Fix(
                f"Make {kind}Config from the same options.",
                (load, python("args = {:name}(...)", f"{kind}Config")),
            ),
        ),
        complete=True,
    )


def explain_dtype(module: str, name: str) -> Meaning | None:
    """Explain a short name of a dtype that torch does not have: "bf16" in a config or a call."""
    if module != "torch" or name not in _DTYPES:
        return None
    dtype = _DTYPES[name]
    return Meaning(
        f"'{name}' is not the name of a dtype of torch: it is called {dtype}",
        "A config, an option or a call names the dtype as text, and the name is looked up in torch. Settings of a "
        "precision (bf16=True, mixed_precision: bf16) are others: they have the short names.",
        (
            Fix(
                "Write torch's name.",
                (python("from_pretrained(MODEL, dtype='{:name}')", dtype), python("dtype=torch.{:name}", dtype)),
            ),
        ),
        complete=True,
    )


def _other_name(owner: str, name: str, meant: str, raised: UncaughtException | None) -> Meaning:
    package = skew.package_of(f"{owner}.__init__")
    how = {
        "optimizers": "optimizers is a pair: the optimizer and the learning rate scheduler. Either can be None.",
        "mixed_precision": "mixed_precision has the name of the precision as its value.",
        "per_device_train_batch_size": "It is the number of samples per GPU: the global batch is larger by the number "
        "of GPUs and by gradient_accumulation_steps.",
    }.get(meant, "Other libraries use the other name.")
    use = {
        "optimizers": python("optimizers=({:name}, None)", name),
        "mixed_precision": python("mixed_precision='{:name}'", name),
    }.get(meant, python("{:name}=...", meant))
    return Meaning(
        f"{owner}() has no argument {name}: it is called {meant}{at_place(raised)}",
        how,
        (
            Fix(f"Write {meant}.", (use,)),
            Fix(
                "The name is the same in YAML and JSON files that are passed on.",
                (shell("pip show {:package}", skew.distribution(package)),) if package else (),
            ),
        ),
        complete=True,
    )


def _key(argument: str, name: str, raised: UncaughtException | None) -> Meaning:
    return Meaning(
        f"{argument} has the key {name}, which does not exist{at_place(raised)}",
        "It has split_batches, dispatch_batches, even_batches, use_seedable_sampler, non_blocking, "
        "gradient_accumulation_kwargs and use_configured_state. The key is misspelled, or of another release.",
        (Fix("Correct the key.", ("TrainingArguments(accelerator_config={'split_batches': True})",)),),
        complete=True,
    )


def _of_builder(owner: str, name: str, raised: UncaughtException | None) -> Meaning:
    kind = owner.removesuffix("Config")
    return Meaning(
        f"load_dataset() passes {name} on to the {kind} reader, which has no such option{at_place(raised)}",
        f"What load_dataset() does not know itself goes to the reader of the format ({owner}). The name is misspelled, "
        "is of another format, or is an argument that a newer datasets removed.",
        (
            Fix(
                "Look at its options.",
                ("python -c 'import datasets; help(datasets.load_dataset)'", "pip show datasets"),
            ),
            Fix(f"Or leave out {name}."),
        ),
        complete=True,
    )


def _of_hook(owner: str, hook: str, name: str, raised: UncaughtException | None) -> Meaning:
    return Meaning(
        f"{owner}.{hook}() does not accept {name}, which Trainer passes to every callback",
        "Trainer calls hooks with args, state and control, and with more by name: model, optimizer, train_dataloader, "
        "processing_class, metrics and others, which differ by hook and release.",
        (
            Fix(
                "Accept what is left over.",
                (python("def {:name}(self, args, state, control, **kwargs):", hook),),
            ),
        ),
        complete=True,
    )
