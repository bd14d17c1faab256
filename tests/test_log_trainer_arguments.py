"""Objects that the script hands to a trainer, whose constructor reads an attribute that they lack.

All tracebacks are written here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import frames
from tests.test_log_meanings import SCRIPT, explained

NEW = (SCRIPT, "main", "trainer = GRPOTrainer(")
TRAINER = "trl/trainer/grpo_trainer.py"
GETATTR = ("torch/nn/modules/module.py", "__getattr__", "raise AttributeError(")
READS = (TRAINER, "__init__", "model.warnings_issued['estimate_tokens'] = True")
FAULTS = ("failed in its own code", "do not fit", "pip show", "pip check")


def lacking(owner: str, name: str) -> str:
    return f"AttributeError: '{owner}' object has no attribute '{name}'\n"


@pytest.mark.parametrize(
    ("calls", "error", "title", "words"),
    [
        ((NEW, READS, GETATTR), lacking("AutoModelForCausalLMWithValueHead", "warnings_issued"),
         "GRPOTrainer got an AutoModelForCausalLMWithValueHead as model", "without the value head"),
        ((NEW, READS, GETATTR), lacking("PeftModelForCausalLM", "warnings_issued"),
         "GRPOTrainer got a PeftModelForCausalLM as model", "Pass the base model"),
        ((NEW, READS, GETATTR), lacking("TinyNet", "warnings_issued"), "GRPOTrainer got a TinyNet as model",
         "is not a model of transformers"),
        ((NEW, (TRAINER, "__init__", "if model.config.is_encoder_decoder:")), lacking("str", "config"),
         "GRPOTrainer got a str as model", "AutoModelForCausalLM.from_pretrained(NAME)"),
        ((NEW, (TRAINER, "__init__", "self.pad = tokenizer.pad_token_id")), lacking("str", "pad_token_id"),
         "GRPOTrainer got a str as tokenizer", "AutoTokenizer.from_pretrained(NAME)"),
        ((NEW, (TRAINER, "__init__", "x = processing_class.eos_token")), lacking("WordTable", "eos_token"),
         "GRPOTrainer got a WordTable as processing_class", "is not a tokenizer"),
        # A wrapper of renamed arguments, and a trainer that is derived from another one, in between.
        (((SCRIPT, "main", "t = DPOTrainer(net, args=a)"),
          ("transformers/utils/deprecation.py", "wrapped_func", "return func(*args, **kwargs)"),
          (TRAINER, "__init__", "super().__init__(model=model)"),
          ("transformers/trainer.py", "__init__", "self.can = model.is_parallelizable"), GETATTR),
         lacking("TinyNet", "is_parallelizable"), "DPOTrainer got a TinyNet as model", "PreTrainedModel"),
    ],
)  # fmt: skip
def test_the_argument_is_of_the_wrong_kind(
    calls: tuple[tuple[str, str, str], ...], error: str, title: str, words: str, tmp_path: Path
) -> None:
    row, found, text = explained(tmp_path, frames(*calls) + error)
    assert row == "log_exception" and found.startswith(title) and words in text, (row, found, text)
    if "Peft" not in title:
        assert not any(fault in found + text for fault in FAULTS), text


def test_a_model_that_is_wrapped_already(tmp_path: Path) -> None:
    error = lacking("DistributedDataParallel", "add_model_tags")
    reads = (TRAINER, "__init__", "model.add_model_tags(self._tag_names)")
    row, title, text = explained(tmp_path, frames(NEW, reads, GETATTR) + error)
    assert row == "log_wrapped_model_attribute" and "a trainer got a model that is wrapped already" in title
    assert "leave out the call that wraps it" in text
    own = (SCRIPT, "main", "model.add_model_tags(['mine'])")
    assert "the script reads .add_model_tags from the wrapper" in explained(tmp_path, frames(own, GETATTR) + error)[1]


@pytest.mark.parametrize(
    ("calls", "error", "row"),
    [
        # Its class is one that trainers are made for: its release can be too old.
        ((NEW, READS, GETATTR), lacking("LlamaForCausalLM", "warnings_issued"), "log_framework_failed"),
        # Not an argument, not in a constructor, not handed over by the script.
        ((NEW, (TRAINER, "__init__", "self.model.warnings_issued['x'] = 1"), GETATTR),
         lacking("AutoModelForCausalLMWithValueHead", "warnings_issued"), "log_framework_failed"),
        ((NEW, (TRAINER, "train", "model.warnings_issued['x'] = 1"), GETATTR),
         lacking("AutoModelForCausalLMWithValueHead", "warnings_issued"), "log_framework_failed"),
        (((SCRIPT, "main", "run_exp()"), ("llamafactory/train/tuner.py", "run_exp", "trainer = PPOTrainer("), READS,
          GETATTR), lacking("AutoModelForCausalLMWithValueHead", "warnings_issued"), "log_framework_failed"),
    ],
)  # fmt: skip
def test_another_object(calls: tuple[tuple[str, str, str], ...], error: str, row: str, tmp_path: Path) -> None:
    found = explained(tmp_path, frames(*calls) + error)
    assert found[0] == row and " got a" not in found[1], found
