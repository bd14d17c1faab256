"""What is trained: how large a model, how much of it, with which optimizer?"""

from __future__ import annotations

from typing import Final

from mgpu import quantities
from mgpu.wizard.answers import Answers, Origin
from mgpu.wizard.proposal_types import Option, Part, Setting, origin_of, refusal

_TRAIN: Final = {
    "full": "All weights (full fine-tuning or pre-training)",
    "lora": "LoRA: adapters on a 16-bit base",
    "qlora": "QLoRA: adapters on a 4-bit base",
}
_OPTIMIZERS: Final = {
    "adamw": "AdamW",
    "adam8bit": "8-bit AdamW (bitsandbytes)",
    "sgd": "SGD with momentum",
    "adafactor": "Adafactor",
}
_SHORT: Final = {"adam8bit": "8-bit AdamW", "sgd": "SGD"}


def model(answers: Answers, *, cpu: bool) -> tuple[Part, str, str]:
    """Return the rows about the model, what is trained, and the optimizer."""
    four_bit = "a 4-bit base model needs a GPU" if cpu else None
    trains = tuple(
        Option(name, text, four_bit if name == "qlora" else None, name == "full") for name, text in _TRAIN.items()
    )
    eight_bit = "bitsandbytes' optimizers need a GPU" if cpu else None
    optimizers = tuple(
        Option(name, text, eight_bit if name == "adam8bit" else None, name == "adamw")
        for name, text in _OPTIMIZERS.items()
    )
    train = "full" if answers.train == "auto" else answers.train
    optimizer = "adamw" if answers.optimizer == "auto" else answers.optimizer
    problems = (*refusal("training", trains, train), *refusal("optimizer", optimizers, optimizer))
    if answers.params is not None and answers.params < 1:
        problems += (f"{answers.params} parameters: must be at least 1",)
    if answers.params and answers.trainable is not None and not 0 < answers.trainable <= answers.params:
        problems += (f"{answers.trainable} trained parameters: must be from 1 to {answers.params}",)
    train = train if train in _TRAIN else "full"
    optimizer = optimizer if optimizer in _OPTIMIZERS else "adamw"
    size = "unknown" if answers.params is None else quantities.params_text(answers.params)
    origin: Origin = "-" if answers.params is None else origin_of(answers, "params")
    trained = {"full": "all weights trained", "lora": "LoRA", "qlora": "QLoRA"}[train]
    text = f"{size}, {trained}, {_SHORT.get(optimizer, _OPTIMIZERS[optimizer])}" if answers.params is not None else size
    about = ", ".join(filter(None, (answers.model, answers.source)))
    why = "decides the strategy" if answers.params is None else about
    row = Setting("model", text, origin, why, "params")
    menus, chosen = {"train": trains, "optimizer": optimizers}, {"train": train, "optimizer": optimizer}
    return Part((row,), menus, chosen, problems), train, optimizer
