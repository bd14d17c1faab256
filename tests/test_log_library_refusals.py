"""What the libraries of Hugging Face and Lightning refuse: each answer names the settings that are at odds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

ARGUMENTS = ("transformers/training_args.py", "__post_init__", "self.optim = OptimizerNames(self.optim)")
ENUM = ("transformers/utils/generic.py", "_missing_", "raise ValueError(")
TRAINER = ("transformers/trainer.py", "_prepare_inputs", "raise ValueError(")
GENERATE = ("transformers/generation/configuration_utils.py", "validate", "raise ValueError(")
TRL = ("trl/trainer/sft_trainer.py", "__init__", "raise ValueError(")
DATASETS = ("datasets/arrow_dataset.py", "map", "raise ValueError(")
MAPPED = ("datasets/arrow_dataset.py", "apply_function", "processed_inputs = function(*fn_args)")
LIGHTNING = ("lightning/pytorch/trainer/trainer.py", "__init__", "raise MisconfigurationException(")
MISTAKE = "lightning.fabric.utilities.exceptions.MisconfigurationException: "


def words(code: str, below: tuple[tuple[str, str, str], ...], error: str, folder: Path) -> str:
    return " | ".join(explained(folder, f"{frames((SCRIPT, 'main', code), *below)}{error}\n"))


# fmt: off
@pytest.mark.parametrize(
    ("code", "below", "error", "title", "fix"),
    [
        ("args = TrainingArguments(optim='adamw8bit')", (ARGUMENTS, ENUM), "ValueError: adamw8bit is not a valid "
         "OptimizerNames, please select one of ['adamw_torch', 'adamw_8bit', 'adafactor']",
         "optim is 'adamw8bit', which transformers does not accept: probably adamw_8bit is meant",
         "optim='adamw_8bit'"),
        ("args = TrainingArguments(save_strategy='step')", (ARGUMENTS, ENUM), "ValueError: step is not a valid "
         "SaveStrategy, please select one of ['no', 'steps', 'epoch', 'best']",
         "save_strategy is 'step', which transformers does not accept: probably steps is meant",
         "save_strategy='steps'"),
        ("trainer = build(cfg)", (ARGUMENTS, ENUM), "ValueError: cosin is not a valid SchedulerType, please select one "
         "of ['linear', 'cosine']", "lr_scheduler_type is 'cosin'", "lr_scheduler_type='cosine'"),
        ("acc = Accelerator(dynamo_backend='inductorx')", (("accelerate/utils/dataclasses.py", "__post_init__", "x"),),
         "ValueError: 'INDUCTORX' is not a valid DynamoBackend", "probably inductor is meant",
         "dynamo_backend='inductor'"),
        ("t = Trainer(precision='fp16')", (LIGHTNING,), "ValueError: Precision 'fp16' is invalid. Allowed precision "
         "values: ('16-true', '16-mixed', 'bf16-mixed', 32, 16, 'bf16')",
         "precision is 'fp16', which lightning does not accept: probably 16-mixed is meant", "precision='16-mixed'"),
        ("cfg = LoraConfig(task_type='CAUSAL')", (("peft/config.py", "__post_init__", "raise ValueError("),),
         "ValueError: Invalid task type: 'CAUSAL'. Must be one of the following task types: SEQ_CLS, CAUSAL_LM.",
         "task_type is 'CAUSAL', which peft does not accept: probably CAUSAL_LM is meant", "task_type='CAUSAL_LM'"),
        ("p = FullyShardedDataParallelPlugin(backward_prefetch='PRE')",
         (("accelerate/utils/dataclasses.py", "__post_init__", "self.backward_prefetch = BackwardPrefetch[x]"),),
         "KeyError: 'PRE'", "backward_prefetch is 'PRE', which accelerate does not accept", "grep"),
        ("m = from_pretrained(p, dtype='bf16')", (("transformers/modeling_utils.py", "get_dtype", "x"),),
         "ValueError: Invalid `dtype` passed to the config. Expected either 'auto' or a string representing a valid "
         "`torch.dtype` (e.g., 'float32'), but got bf16.", "dtype is 'bf16'", "dtype='bfloat16'"),
        ("trainer.train()", (TRAINER,), "ValueError: You must specify exactly one of input_ids or inputs_embeds",
         "the model got neither input_ids nor inputs_embeds", "tokenizer(x['text']"),
        ("trainer.train()", (TRAINER,), "TypeError: can only join an iterable", "Trainer got an empty batch",
         "data_collator"),
        ("trainer.evaluate()", (("transformers/trainer.py", "evaluation_loop", "metrics[x] = 1"),),
         "TypeError: 'float' object does not support item assignment",
         "compute_metrics returned a float instead of a dictionary",
         "return {'accuracy'"),
        ("t = SFTTrainer(args=args)", (TRL,), "ValueError: When packing is enabled, `max_length` can't be `None`.",
         "packing needs max_length, and it is None", "max_length=2048"),
        ("t = GRPOTrainer(args=args)", (TRL,), "ValueError: Number of reward weights (2) must match number of reward "
         "functions (1)", "reward_weights has 2 entries, and there are 1 reward functions", "len(reward_funcs)"),
        ("t.train()", (("trl/trainer/grpo_trainer.py", "_calculate_rewards", "output = [x for x in result]"),),
         "TypeError: 'NoneType' object is not iterable", "a reward function returned NoneType", "def reward"),
        ("acc.save_state()", (("accelerate/accelerator.py", "save_state", "os.makedirs(output_dir)"),),
         "TypeError: expected str, bytes or os.PathLike object, not NoneType", "save_state() got no folder", "out/"),
        ("out = m.generate(ids, max_length=20)", (GENERATE,), "ValueError: Input length of input_ids is 30, but "
         "`max_length` is set to 20. This can lead to unexpected behavior.",
         "the prompt has 30 tokens, and max_length is 20", "max_new_tokens=256"),
        ("out = m.generate(ids)", (GENERATE,), "ValueError: `num_return_sequences` (3) has to be smaller or equal to "
         "`num_beams` (2).", "num_return_sequences (3) is larger than num_beams (2)", "num_beams=4"),
        ("out = m.generate(x)", (("transformers/tokenization_utils_base.py", "__getattr__", "raise AttributeError"),),
         "AttributeError", "has no such attribute: it is a dictionary", "model.generate(**inputs"),
        ("tok.batch_decode(labels)", (("transformers/tokenization_utils_tokenizers.py", "_decode", "x"),),
         "OverflowError: can't convert negative int to unsigned", "a number that no id can be (negative or too large)",
         "ids != -100"),
        ("m = get_peft_model(m, c)", (("peft/tuners/lora/layer.py", "update_layer", "raise ValueError("),),
         "ValueError: `r` should be a positive integer value but the value passed is 0", "the LoRA rank r is 0",
         "LoraConfig(r=16"),
        ("ds = ds.sort('idx')", (DATASETS,), "ValueError: Column 'idx' not found in the dataset. Please provide a "
         "column selected in: ['text', 'label']", "the dataset has no column 'idx'", "column_names"),
        ("ds = ds.train_test_split(0.1)", (), "AttributeError: 'DatasetDict' object has no attribute "
         "'train_test_split'", "a DatasetDict has no train_test_split (fit.py", "dataset['train']"),
        ("save_file(state, p)", (("safetensors/torch.py", "_flatten", "raise ValueError("),), "ValueError: Key `model` "
         "is invalid, expected torch.Tensor but received <class 'collections.OrderedDict'>",
         "safetensors saves tensors only, and 'model' is a collections.OrderedDict", "torch.save"),
        ("t = L.Trainer()", (LIGHTNING,), f"{MISTAKE}ModelCheckpoint(save_top_k=3, monitor=None) is not a valid "
         "configuration. No quantity for top_k to track.", "best 3 checkpoints, but has no metric", "monitor="),
        ("t = L.Trainer()", (LIGHTNING,), f"{MISTAKE}You have passed invalid value 1.5 for limit_train_batches, it has "
         "to be in [0.0, 1.0] or an int.", "limit_train_batches is 1.5", "limit_train_batches=0.5"),
        ("M.load_from_checkpoint(p)", (("lightning/pytorch/core/saving.py", "_load_state", "obj = cls(**kwargs)"),),
         "TypeError: M.__init__() missing 1 required positional argument: 'hidden'",
         "the checkpoint does not hold the arguments of M: 'hidden'", "save_hyperparameters"),
    ],
)
def test_what_a_library_refuses(
    code: str, below: tuple[tuple[str, str, str], ...], error: str, title: str, fix: str, tmp_path: Path
) -> None:
    said = words(code, below, error, tmp_path)
    assert title in said, said
    assert fix in said, said


@pytest.mark.parametrize(
    ("code", "below", "error", "not_said"),
    [
        # a guess by likeness would name another precision
        ("t = Plugin(precision='fp64')", (("accelerate/utils/x.py", "f", "raise ValueError("),), "ValueError: Invalid "
         "mixed precision: fp64. Must be one of ['fp8', 'fp16', 'bf16', 'fp32']", "is meant"),
        # the script's own words
        ("raise ValueError('x is not supported, only a, b are supported')", (), "ValueError: x is not supported, only "
         "a, b are supported", "is 'x'"),
        # a key of data that is not a setting of the call
        ("row = table(name)", (("pandas/core/x.py", "get", "return self[k]"),), "KeyError: 'PRE'", "does not accept"),
        ("m = Client(token=t)", (("huggingface_hub/hf_api.py", "whoami", "raise ValueError("),),
         "ValueError: Invalid user token. Please log in again with hf auth login", "is 'token'"),
        ("x = call(n)", (("ray/x.py", "f", "raise RuntimeError("),), "RuntimeError: Unknown error 999", "is '999'"),
        ("t = fit(df, target='price')", (("sklearn/x.py", "f", "y = table[target_name]"),), "KeyError: 'prices'",
         "is 'p"),
        ("t = fit(df, text_column='body')", (("someset/x.py", "f", "y = row[name]"),), "KeyError: 'body'", "is 'body'"),
        ("n = sum(values)", (), "TypeError: 'NoneType' object is not iterable", "reward function"),
        ("os.makedirs(path)", (), "TypeError: expected str, bytes or os.PathLike object, not NoneType", "save_state"),
        ("x[0] = 1", (), "TypeError: 'float' object does not support item assignment", "compute_metrics"),
        ("a, b = f()", (), "ValueError: not enough values to unpack (expected 2, got 1)", "dimensions"),
        ("raise AttributeError", (), "AttributeError", "tokenizer"),
        ("m = Model()", (), "TypeError: Model.__init__() missing 1 required positional argument: 'hidden'",
         "save_hyperparameters"),
    ],
)
def test_similar_messages_of_others(
    code: str, below: tuple[tuple[str, str, str], ...], error: str, not_said: str, tmp_path: Path
) -> None:
    assert not_said not in words(code, below, error, tmp_path)


def test_a_batched_function_gets_lists(tmp_path: Path) -> None:
    error = "AttributeError: 'list' object has no attribute 'lower'\n"
    inner = (SCRIPT, "clean", "return {'n': x['text'].lower()}")
    assert "With batched=True, each column of the batch is a list" in " ".join(
        explained(tmp_path, f"{frames((SCRIPT, 'main', 'ds.map(f)'), MAPPED, inner)}{error}")
    )
# fmt: on
