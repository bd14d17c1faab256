"""Messages of Hugging Face's libraries and Lightning that mean one thing in one place, and another elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_library_rows import BEST, LOAD, METRIC, MISMATCH, UNEXPECTED
from tests.test_log_meanings import explained

ENUM = ("transformers/utils/generic.py", "_missing_", "raise ValueError(")
SCHEDULES = (
    "is not a valid SchedulerType, please select one of ['linear', 'cosine', 'cosine_with_restarts', 'polynomial', "
    "'constant', 'constant_with_warmup', 'inverse_sqrt', 'reduce_lr_on_plateau', 'cosine_with_min_lr', "
    "'warmup_stable_decay']"
)
OPTIMIZERS = (
    "is not a valid OptimizerNames, please select one of ['adamw_torch', 'adamw_torch_fused', 'adafactor', "
    "'lion_8bit', 'adalomo', 'grokadamw', 'sgd']"
)
OTHER = ("somelib/core.py", "f", "raise ValueError(")
DATASETS = ("datasets/arrow_dataset.py", "cast", "x()")
ENCODE = ("transformers/tokenization_utils_tokenizers.py", "_decode", "text = self._tokenizer.decode(token_ids)")
BASE = ("transformers/tokenization_utils_base.py", "add_special_tokens", "x = dict(x)")
TEMPLATE = ("transformers/utils/chat_template_utils.py", "_compile_jinja_template", "return env.from_string(x)")
SHAPE = ("transformers/models/vit/modeling_vit.py", "forward", "b, c, h, w = pixel_values.shape")
ATTENTION = ("transformers/models/vit/modeling_vit.py", "forward", "x, weights = self.attention(x)")
LOOP = ("transformers/trainer.py", "evaluation_loop", "metrics[x] = 1")
STEP = ("transformers/trainer.py", "training_step", "x[0] = 1")
REWARDS = ("trl/trainer/grpo_trainer.py", "_calculate_rewards", "output = [x for x in result]")
SCORE = ("/home/ada/reward.py", "reward", "return [x for x in None]")
MODEL = ("transformers/models/t5/modeling_t5.py", "forward", "raise ValueError(")
INDEX = ("transformers/generation/utils.py", "generate", "batch = ids.shape[0]")
LIGHTNING = ("lightning/pytorch/trainer/trainer.py", "__init__", "raise MisconfigurationException(")
INSERT = ("lightning/pytorch/utilities/argparse.py", "insert_env_defaults", "return fn(self, **kwargs)")
MISTAKE = "lightning.fabric.utilities.exceptions.MisconfigurationException: "
ABSENT = "AttributeError: '{}' object has no attribute '{}'"
CONVERT = "pyarrow.lib.ArrowInvalid: Could not convert {}"
SYNTAX = "jinja2.exceptions.TemplateSyntaxError: "
UNPACK = "ValueError: not enough values to unpack (expected {}, got {})"
DEVICES = "`devices` selected with `{}` should be an int > 0."


# fmt: off
@pytest.mark.parametrize(
    ("code", "below", "error", "said", "not_said"),
    [
        # Only what is misspelled is a guess; a name that others use has its own table.
        ("a = TrainingArguments(lr_scheduler_type='linear_with_warmup')", (ENUM,), "ValueError: linear_with_warmup "
         f"{SCHEDULES}", "probably linear is meant", "constant_with_warmup is meant"),
        ("a = TrainingArguments(lr_scheduler_type='wsd')", (ENUM,), f"ValueError: wsd {SCHEDULES}",
         "probably warmup_stable_decay is meant", "probably linear"),
        ("a = TrainingArguments(optim='adamw')", (ENUM,), f"ValueError: adamw {OPTIMIZERS}",
         "probably adamw_torch is meant", "grokadamw is meant"),
        ("a = TrainingArguments(optim='lion')", (ENUM,), f"ValueError: lion {OPTIMIZERS}", "optim is 'lion'",
         "is meant"),
        ("a = TrainingArguments(lr_scheduler_type='cosin')", (ENUM,), f"ValueError: cosin {SCHEDULES}", "and others",
         " more."),
        ("a = TrainingArguments(optim='sgdd')", (ENUM,), f"ValueError: sgdd {OPTIMIZERS}", "-e sgdd .", "and others"),
        ("x = f(r)", (OTHER,), "ValueError: rank must be in [0, 8), got 9", "rank must be in", "It accepts"),
        ("x = f(r)", (OTHER,), "ValueError: rank must be in ['low', 'high'], got hihg", "It accepts low and high",
         "must be in low"),
        ("x = f(m)", (OTHER,), "ValueError: Unknown mode: fastt. Expected one of: fast, slow, cuda:0",
         "probably fast is meant", "expected, "),
        ("x = sns.f(df, hue='kindd')", (("seaborn/core.py", "f", "y = t[k]"),), "KeyError: 'kindd'", "kindd",
         "does not accept"),
        ("x = f(df, hue='kindd')", ((*OTHER[:2], "y = t[k]"),), "KeyError: 'kindd'", "hue is 'kindd'", "column"),
        # datasets and PyArrow
        ("d = d.train_test_split(0.1, stratify_by_column='label')", (DATASETS,), "ValueError: Stratifying by column is "
         "only supported for ClassLabel column, and column label is Value.", "ClassLabel(num_classes=N)",
         "dataset.class_encode_column"),
        ("d.cast(f)", (DATASETS,), "ValueError: Invalid string class label c", "x['label'] not in NAMES",
         "sorted(set("),
        ("d = Dataset.from_pandas(df)", (DATASETS,), CONVERT.format("'x' with type str: tried to convert to int64"),
         "values of different types: 'x' is a str", "Images"),
        ("d = Dataset.from_list(x)", (DATASETS,), CONVERT.format("<A> with type A: did not recognize Python value type "
         "when inferring an Arrow data type"), "an object of the class A, for which PyArrow has no type",
         "different types"),
        ("d = Dataset.from_list(x)", (DATASETS,), "pyarrow.lib.ArrowInvalid: cannot mix list and non-list, non-null "
         "values", "a column mixes list and non-list values", "dictionary in some rows"),
        ("d = Dataset.from_list(x)", (DATASETS,),
         "pyarrow.lib.ArrowInvalid: cannot mix struct and non-struct, non-null "
         "values", "A field is a dictionary in some rows", "is a list in some rows"),
        ("d = load_from_disk(p)", (DATASETS,), "FileNotFoundError: Directory /x/y not found", "save_to_disk() wrote",
         "does not accept"),
        ("d = f(p)", (OTHER,), "FileNotFoundError: Directory /x/y not found", "/x/y", "save_to_disk"),
        ("n = d.num_rows", (), ABSENT.format("IterableDataset", "num_rows"), "an IterableDataset has no num_rows",
         "num_rows()"),
        ("d.sort('idx')", (DATASETS,), "ValueError: Column 'idx' not found in the dataset.", "another set or split",
         "It has other columns"),
        # Checkpoints: positions and patches differ with the resolution.
        ("m.load_state_dict(s)", (LOAD,), MISMATCH.format("model.embed_tokens.weight", "320, 16", "320, 64"),
         "of a model of another size", "resolution"),
        ("m.load_state_dict(s)", (LOAD,), MISMATCH.format("vit.pos_embed", "1, 197, 768", "1, 577, 768"),
         "another number of positions",
         "of a model of another size"),
        ("m.load_state_dict(s)", (LOAD,), MISMATCH.format("vit.patch_embed.proj.weight", "768, 3, 16, 16",
         "768, 3, 32, 32"), "has another size", "of a model of another size"),
        # Names of arguments and classes
        ("t = RewardTrainer(args=a)", (("trl/trainer/reward_trainer.py", "__init__", "x = args.max_length"),),
         ABSENT.format("TrainingArguments", "max_length"), "from trl import RewardConfig", "REWARD"),
        ("t = OnlineDPOTrainer(args=a)", (("trl/experimental/online_dpo/online_dpo_trainer.py", "__init__", "x"),),
         ABSENT.format("TrainingArguments", "beta"), "from trl.experimental.online_dpo import OnlineDPOConfig",
         "from trl import"),
        ("t = Trainer(optimizer=o)", (), UNEXPECTED.format("Trainer.__init__", "optimizer"), "it is called optimizers",
         "Lightning"),
        ("t = Trainer(optimizer=o)", (INSERT,), UNEXPECTED.format("Trainer.__init__", "optimizer"), "optimizer",
         "is called optimizers"),
        ("m.generate(x)", (), ABSENT.format("TinyModel", "generate"), "TinyModel has no generate(): it is probably a "
         "base model", "pip install"),
        ("m.generate(x)", (), ABSENT.format("TinyLMHeadModel", "generate"), "generate", "base model"),
        ("x = getattr(torch, name)", (), "AttributeError: module 'torch' has no attribute 'fp8'", "fp8",
         "float8_e4m3fn"),
        # Trainer, trl, accelerate
        ("t.train()", (STEP,), ABSENT.format("TinyNet", "save_pretrained"), "TinyNet has no save_pretrained(), which",
         "GenerationMixin"),
        ("t.train()", (STEP,), ABSENT.format("NoneType", "save_pretrained"), "save_pretrained",
         "models of transformers"),
        ("m = get_peft_model(m, c)", (OTHER,), ABSENT.format("TinyNet", "prepare_inputs_for_generation"),
         "TinyNet has no prepare_inputs_for_generation()", "neftune"),
        ("m = get_peft_model(m, c)", (OTHER,), ABSENT.format("NoneType", "prepare_inputs_for_generation"), "NoneType",
         "GenerationMixin"),
        ("t.evaluate()", (LOOP,), "TypeError: 'float' object does not support item assignment",
         "compute_metrics returned a float", "does not accept"),
        ("t.train()", (STEP,), "TypeError: 'float' object does not support item assignment", "float",
         "compute_metrics"),
        ("t.train()", (REWARDS,), "TypeError: 'float' object is not iterable", "a reward function returned float",
         "step"),
        ("t.train()", (REWARDS, SCORE), "TypeError: 'NoneType' object is not iterable", "reward.py",
         "a reward function returned"),
        ("t = GRPOTrainer(m)", (("trl/x.py", "__init__", "raise ValueError("),),
         "ValueError: No reward source provided",
         "GRPO got no reward function", "grep"),
        ("t = f(m)", (OTHER,), "ValueError: reward functions must be callable", "callable", "GRPO got no"),
        ("a = Accelerator(parallelism_config=c)", (("accelerate/x.py", "f", "raise ValueError("),),
         "ValueError: tp_size "
         "must be at least 1, but got 0", "tp_size is 0, and must be at least 1", "grep"),
        ("a = f(c)", (OTHER,), "ValueError: kernel_size must be at least 1, but got 0", "kernel_size", "parallelism"),
        ("m(x)", (MODEL,), "ValueError: You cannot specify both input_ids and inputs_embeds at the same time",
         "the model got both input_ids and inputs_embeds", "neither"),
        ("m(x)", (MODEL,), "ValueError: You have to specify either decoder_input_ids or decoder_inputs_embeds",
         "the decoder got no input: neither labels nor decoder_input_ids", "tokenized"),
        ("m(x)", (MODEL,), "ValueError: You have to specify either input_ids or inputs_embeds",
         "the model got neither input_ids nor inputs_embeds, or both", "the decoder got no input"),
        ("t.train()", (BEST,), METRIC.format("['eval_a_loss', 'eval_b_loss', 'epoch']"), "eval_NAME_loss", "no labels"),
        ("t.train()", (BEST,), METRIC.format("['eval_runtime', 'epoch']"), "have no labels", "Choose one"),
        ("t.train()", (BEST,), METRIC.format("['eval_loss', 'epoch']"), "Choose one", "eval_NAME_loss"),
        # Tokenizers and models
        ("tok.decode(x)", (ENCODE,), "OverflowError: out of range integral type conversion attempted",
         "a number that no id can be", "max_length=1024"),
        ("m(x)", (MODEL,), "OverflowError: can't convert negative int to unsigned", "negative int", "tokenizer"),
        ("tok(x, max_length=n)", (ENCODE,), "OverflowError: int too big to convert", "too large for the tokenizer",
         "-100"),
        ("m(x)", (MODEL,), "OverflowError: int too big to convert", "int too big", "tokenizer.model_max_length"),
        ("x = tok.apply_chat_template(c)", (TEMPLATE,), f"{SYNTAX}Encountered unknown tag 'generation'.",
         "the chat template has {% generation %}, which is not rendered here", "not valid"),
        ("x = tok.apply_chat_template(c)", (TEMPLATE,), f"{SYNTAX}Expected an expression, got 'end of statement block'",
         "the chat template is not valid Jinja", "generation"),
        ("x = env.get_template('page.html')", (("jinja2/environment.py", "handle_exception", "raise x"),),
         f"{SYNTAX}Expected an expression, got 'end of statement block'", "Expected an expression", "chat template"),
        ("m(x)", (SHAPE,), UNPACK.format(4, 3), "a tensor with 3 dimensions, and expects 4", "calls a layer"),
        ("m(x)", (ATTENTION,), UNPACK.format(2, 1), "the model unpacks 2 values and gets 1", "a tensor with 1 dim"),
        ("x = b.token_type_ids", (("transformers/tokenization_utils_base.py", "__getattr__", "raise AttributeError"),),
         "AttributeError", "print(inputs.keys())", "is used as one tensor"),
        ("m = m.merge_and_unload()", (), ABSENT.format("DistributedDataParallel", "merge_and_unload"),
         "accelerator.unwrap_model(model)", "it is not a model of PEFT"),
        ("tok.add_special_tokens(['<sp>'])", (BASE,),
         "ValueError: dictionary update sequence element #0 has length 4; 2 "
         "is required", "Probably add_special_tokens()", "additional_special_tokens"),
        ("m = from_pretrained(p, **x)", (MODEL,),
         "ValueError: dictionary update sequence element #0 has length 4; 2 is "
         "required", "dictionary update", "add_special_tokens"),
        ("m.generate('x')", (INDEX,), ABSENT.format("str", "shape"), "a str is given where a tensor is expected",
         "ids as a"),
        ("x = f(m)", (("transformers/models/x/image_processing_x.py", "resize", "h = x.shape"),),
         ABSENT.format("list", "shape"), "shape", "Tokenize to tensors"),
        ("m(**x)", (MODEL,), ABSENT.format("tuple", "get_seq_length"), "pip install --upgrade peft", "does not accept"),
        ("tok(x, stride=5)", (ENCODE,), "ValueError: tokenizer stride set to 5, which is greater than or equal to its "
         "effective max length of 2 (= 2 original max length - 0 added special tokens),",
         "stride is not smaller than the length of a piece (2 tokens)", "does not accept"),
        ("tok(x, stride=5)", (ENCODE,), "pyo3_runtime.PanicException: assertion failed: stride < max_len",
         "stride is not smaller than the length of a piece", "( tokens)"),
        ("m.generate(x, max_new_tokens=n)", (INDEX,), "ValueError: `max_new_tokens` must be greater than 0, but is -3.",
         "cut the prompt", "max(1"),
        ("m = Model(c)", (MODEL,), "AssertionError: Padding_idx must be within num_embeddings",
         "is not below the size of the vocabulary", "-1 stands"),
        ("m = Model(c)", (OTHER,), "AssertionError: Padding_idx must be within num_embeddings", "padding_idx of an "
         "embedding", "vocabulary"),
        # Lightning
        ("t.test(ckpt_path='best')", (LIGHTNING,),
         'ValueError: `.test(ckpt_path="best")` is set but `ModelCheckpoint` is '
         "not configured to save the best model.", "no checkpoint was written in this process", "monitor="),
        ("t = L.Trainer(max_epochs=n)", (LIGHTNING,),
         f"{MISTAKE}`max_epochs` must be a non-negative integer or -1. You "
         "passed in -3.", "max_epochs is -3", "test run"),
        ("t = L.Trainer(max_steps=n)", (LIGHTNING,),
         f"{MISTAKE}`max_steps` must be a non-negative integer or -1 (infinite "
         "steps). You passed in -3.", "max_steps is -3", "test run"),
        ("t = L.Trainer(fast_dev_run=n)", (LIGHTNING,),
         f"{MISTAKE}fast_dev_run=-3 is not a valid configuration. It should "
         "be >= 0.", "Use 0 or a positive number.", "-1 means"),
        ("t = L.Trainer()", (LIGHTNING,), f"{MISTAKE}The closure ran max_steps 3 times.", "max_steps 3",
         "max_steps is 3"),
        ("t = L.Trainer(devices=0)", (LIGHTNING,),
         f"{MISTAKE}`Trainer(devices=0)` value is not a valid input using cpu "
         "accelerator.", "devices is 0, which is not a number of devices", "devices of the CPU"),
        ("t = L.Trainer(devices='x')", (LIGHTNING,), f"TypeError: {DEVICES.format('CPUAccelerator')}",
         "devices of the CPU is not a whole number above 0", "devices is ,"),
        ("t = L.Trainer(devices='x')", (LIGHTNING,), f"TypeError: {DEVICES.format('OtherAccelerator')}",
         "OtherAccelerator", "devices of the CPU"),
    ],
)
def test_which_meaning(
    code: str, below: tuple[tuple[str, str, str], ...], error: str, said: str, not_said: str, tmp_path: Path
) -> None:
    answer = " | ".join(explained(tmp_path, f"{frames((SCRIPT, 'main', code), *below)}{error}\n"))
    assert said in answer, answer
    assert not_said not in answer, answer
# fmt: on
