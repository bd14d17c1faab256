"""Which of two readings do rows of Trainer, the Hub, PEFT, Lightning and datasets take, by a message's values?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

HUB = ("huggingface_hub/utils/_http.py", "hook", "raise OfflineModeIsEnabled(")
CREATE = ("huggingface_hub/hf_api.py", "create_repo", "r = session.post(path)")
CACHE = ("huggingface_hub/file_download.py", "hf_hub_download", "raise OfflineModeIsEnabled(")
TRAINER = ("transformers/trainer.py", "compute_loss", "raise ValueError(")
BEST = ("transformers/trainer.py", "_determine_best_metric", "raise KeyError(")
LOAD = ("torch/nn/modules/module.py", "load_state_dict", "raise RuntimeError(")
BERT = ("transformers/models/bert/modeling_bert.py", "forward", "buffered = self.token_type_ids.expand(2, n)")
HOOK = ("transformers/trainer_callback.py", "call_event", "result = getattr(callback, event)(")
LIGHTNING = ("lightning/pytorch/utilities/argparse.py", "insert_env_defaults", "return fn(self, **kwargs)")
CALL = ("lightning/pytorch/trainer/call.py", "_maybe_unwrap_optimized", "raise TypeError(")
QUERY = ("datasets/formatting/formatting.py", "_check_valid_index_key", "raise IndexError(")
OFFLINE = (
    "huggingface_hub.errors.OfflineModeIsEnabled: Cannot reach https://huggingface.co/{}: offline mode is enabled."
)
NO_LOSS = (
    "ValueError: The model did not return a loss from the inputs, only the following keys: {}. For reference, the "
    "inputs it received are input_ids,attention_mask."
)
METRIC = (
    "KeyError: \"The `metric_for_best_model` training argument is set to 'eval_f1', which is not found in the "
    "evaluation "
    'metrics. The available evaluation metrics are: {}. Consider changing the `metric_for_best_model`."'
)
MISMATCH = (
    "RuntimeError: Error(s) in loading state_dict for Net:\n\tsize mismatch for {}: copying a param with shape "
    "torch.Size([{}]) from checkpoint, the shape in current model is torch.Size([{}])."
)
EXPANDED = (
    "RuntimeError: The expanded size of the tensor ({0}) must match the existing size ({1}) at non-singleton dimension "
    "1.  Target sizes: [2, {0}].  Tensor sizes: [1, {1}]"
)
MODULE = "TypeError: `model` must be a `LightningModule` or `torch._dynamo.OptimizedModule`, got `{}`"
DATA = ("accelerate/data_loader.py", "__iter__", "raise ValueError(")
BACKWARD = ("torch/utils/checkpoint.py", "check_recomputed_tensors_match", "raise CheckpointError(")
DIFFERS = (
    "torch.utils.checkpoint.CheckpointError: torch.utils.checkpoint: A different number of tensors was saved during "
    "the original forward and recomputation."
)
LATE = "UserWarning: WARNING: Unsloth should be imported before [trl, transformers, peft] to ensure all optimizations"
GENERATE = ("transformers/generation/utils.py", "_validate_model_kwargs", "raise ValueError(")
PREDICT = ("transformers/trainer_seq2seq.py", "prediction_step", "out = self.model.generate(**inputs)")
UNUSED = (
    "ValueError: The following `model_kwargs` are not used by the model: ['sample_id'] (note: typos in the generate "
    "arguments will also show up in this list)"
)
ADAM = ("torch/optim/adam.py", "_single_tensor_adam", "exp_avg.lerp_(grad, 1 - beta1)")
UNEXPECTED = "TypeError: {}() got an unexpected keyword argument '{}'"


# fmt: off
@pytest.mark.parametrize(
    ("calls", "error", "title", "not_said"),
    [
        ((HUB, CREATE), OFFLINE.format("api/repos/create"), "the run should upload to the Hub", "are not in the cache"),
        ((CACHE,), OFFLINE.format("org/model/resolve/main/config.json"), "not in the cache", "should upload"),
        ((TRAINER,), NO_LOSS.format("last_hidden_state,pooler_output"), "the model has no head", "rename_column"),
        ((TRAINER,), NO_LOSS.format("start_logits,end_logits"), "no start_positions and end_positions", "no head"),
        ((TRAINER,), NO_LOSS.format("logits"), "the batches have no labels", "no head"),
        ((BEST,), METRIC.format("['eval_loss', 'eval_acc', 'eval_runtime', 'epoch']"),
         "metric_for_best_model needs eval_f1, and the evaluation has eval_loss and eval_acc", "label_names"),
        ((BEST,), METRIC.format("['eval_runtime', 'epoch']"), "the evaluation has none of its own", "eval_runtime"),
        ((LOAD,), MISMATCH.format("bert.embeddings.word_embeddings.weight", "32, 16", "32, 64"),
         "the checkpoint is of a model of another size: bert.embeddings.word_embeddings.weight is 16 wide, and 64 here",
         "resize_token_embeddings"),
        ((LOAD,), MISMATCH.format("model.embed_tokens.weight", "32001, 64", "32000, 64"),
         "the vocabulary of the checkpoint has another size", "another size:"),
        ((BERT,), EXPANDED.format(100, 64), "a sample has 100 tokens, and the model has positions for "
                                            "64", "max_length=100"),
        ((), EXPANDED.format(100, 64), "of the shape [1, 64] cannot be expanded to", "positions for"),
        ((QUERY,), "IndexError: Invalid key: 100 is out of bounds for size 16",
         "row 100 is asked for, and the dataset has 16 rows", "no column left"),
        ((QUERY,), "IndexError: Invalid key: 1432 is out of bounds for size 0", "no column left", "row 1432"),
        ((CALL,), MODULE.format("Linear"), "is not a LightningModule, but another object", "mixes the packages"),
        ((CALL,), MODULE.format("LitModel"), "mixes the packages", "but another object"),
        ((LIGHTNING,), UNEXPECTED.format("Trainer.__init__", "gpus"), "removed the argument gpus of "
                "Trainer()", "too old"),
        ((), UNEXPECTED.format("LoraConfig.__init__", "rank"), "LoraConfig() has no argument rank: it is called r",
         "launcher"),
        ((), UNEXPECTED.format("Seq2SeqTrainingArguments.__init__", "world_size"), "the launcher sets it", "is called"),
        ((), UNEXPECTED.format("TrainingArguments.__init__", "lr"), "it is called learning_rate", "launcher"),
        ((HOOK,), UNEXPECTED.format("Logger.on_step_end", "model"),
         "Logger.on_step_end() does not accept model, which Trainer passes to every callback", "pip install"),
        ((), UNEXPECTED.format("Logger.on_step_end", "model"), "on_step_end", "every callback"),
        ((), "AttributeError: module 'torch' has no attribute 'bf16'",
         "'bf16' is not the name of a dtype of torch: it is called bfloat16", "upgrade"),
        ((), "AttributeError: module 'torch' has no attribute 'uint7'", "torch has no uint7", "the name of a dtype"),
        ((), "AttributeError: 'BertModel' object has no attribute 'generate'", "BertModel has no generate()", "pip"),
        ((("trl/trainer/dpo_trainer.py", "__init__", "kw = args.model_init_kwargs"),),
         "AttributeError: 'TrainingArguments' object has no attribute 'model_init_kwargs'",
         "DPOTrainer got TrainingArguments, and needs DPOConfig", "pip"),
        ((), "ValueError: args.max_steps must be set to a positive value if dataloader does not have a length, was -1",
         "or an epoch has no complete batch", "object of type"),
        ((DATA,), "ValueError: Batch does not contain any data (`None`). At the end of all iterable data available "
         "before expected stop iteration.", "gave no more samples", "remove_unused_columns"),
        ((TRAINER,), "ValueError: The batch received was empty, your model won't be able to train on it. Double-check "
         "that your training dataset contains keys expected by the model: input_ids.", "remove_unused_columns=False",
         "gave no more samples"),
        ((PREDICT, GENERATE), UNUSED, "does not take some of its fields: ['sample_id']", "token_type_ids"),
        ((GENERATE,), UNUSED, "that the model's forward() does not accept: ['sample_id']", "the evaluation passes"),
        ((ADAM,), "RuntimeError: \"lerp_kernel_scalar\" not implemented for 'Half'", "the optimizer's step computes in "
         "16 bits", "accelerator.autocast"),
        ((), "RuntimeError: \"addmm_impl_cpu_\" not implemented for 'Half'", "torch has no addmm_impl_cpu_ for the "
         "type Half on the CPU", "the optimizer"),
    ],
)
def test_which_reading(
    calls: tuple[tuple[str, str, str], ...], error: str, title: str, not_said: str, tmp_path: Path
) -> None:
    said = " | ".join(explained(tmp_path, f"{frames((SCRIPT, 'main', 'run(args)'), *calls)}{error}\n"))
    assert title in said, said
    assert not_said not in said, said


def test_a_dataset_that_was_not_made_names_the_exception_before(tmp_path: Path) -> None:
    failed = "datasets.exceptions.DatasetGenerationError: An error occurred while generating the dataset\n"
    reader = ("datasets/packaged_modules/json/json.py", "_generate_tables", "pa_table = paj.read_json(")
    chain = "\nThe above exception was the direct cause of the following exception:\n\n"
    builder = ("datasets/builder.py", "_prepare_split_single", "raise DatasetGenerationError(")
    before = f"{frames((SCRIPT, 'main', 'load()'), reader)}KeyError: 'rows'\n"
    log = f"{before}{chain}{frames((SCRIPT, 'main', 'load()'), builder)}{failed}"
    said = " | ".join(explained(tmp_path, log))
    assert "a dataset could not be prepared: KeyError: 'rows'" in said, said
    assert "no such key at its top" in said, said


def test_unsloth_was_imported_late(tmp_path: Path) -> None:
    failed = f"{frames((SCRIPT, 'main', 'loss.backward()'), BACKWARD)}{DIFFERS}\n"
    said = " | ".join(explained(tmp_path, f"{LATE}\n{failed}"))
    assert "probably Unsloth replaced the model's code" in said and "import unsloth" in said, said
    assert "Unsloth" not in " ".join(explained(tmp_path, f"Unsloth: Will patch your computer.\n{failed}"))


def test_what_trainer_plans_is_not_a_step_that_worked(tmp_path: Path) -> None:
    plan = (
        "***** Running training *****\n  Num Epochs = 1\n  Gradient Accumulation steps = 1\n"
        "  Total optimization steps = 2\n"
    )
    error = "ValueError: You must specify exactly one of input_ids or inputs_embeds\n"
    said = " | ".join(explained(tmp_path, f"{plan}{frames((SCRIPT, 'main', 'trainer.train()'), TRAINER)}{error}"))
    assert "steps that worked" not in said, said
    steps = "step 1: loss 2.1\nstep 2: loss 2.0\n"
    failed = f"{frames((SCRIPT, 'main', 'trainer.train()'), TRAINER)}{error}"
    said = " | ".join(explained(tmp_path, f"{plan}{steps}{failed}"))
    assert "steps that worked" in said, said
# fmt: on
