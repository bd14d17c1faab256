"""Logs as people paste them: wrapped, cut, typed, without a traceback or without the type of the exception."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.engine import root_cause
from mgpu.readers.log import read


def explained(text: str, folder: Path) -> tuple[str, str]:
    """The id of the first cause, and its title, reason and commands as one text; empty without a cause."""
    path = folder / "run.log"
    path.write_text(text, "utf-8")
    first = root_cause.find_cause(read.read_logs([path]), None).first
    if first is None or first.outcome.problem is None:
        return "", ""
    problem = first.outcome.problem
    return first.id, " | ".join(
        (problem.title, problem.cause, *(line for fix in problem.fixes for line in fix.commands))
    )


WRAPPED = """\
RuntimeError: one of the variables needed for gradient computation has been modified by
an inplace operation: [torch.cuda.FloatTensor [512]] is at version 4; expected version 3
 instead. Hint: the backtrace further above shows the operation that failed to compute i
ts gradient.
"""
BELOW = """\
ValueError: invalid literal for int() with base 10: '2(x3)'
    _init_process_group_auto()
  File "/home/ada/core/distributed.py", line 288, in _init_process_group_slurm
    LOCAL_WORLD_SIZE = int(os.environ['SLURM_STEP_TASKS_PER_NODE'])
"""
IPYTHON_CUT = """\
/usr/local/lib/python3.10/dist-packages/unsloth/models/llama.py in _fast_inner_training_loop(self, batch_size, args)

TypeError: _unsloth_get_batch_samples() takes 3 positional arguments but 4 were given
"""
MISSING = """\
TypeError: _launch_subprocesses() missing 2 required positional arguments:
'init_tokenizer_manager_func',
and 'run_scheduler_process_func'
"""
SAVED = """\
Traceback (most recent call last):
  File "/opt/lib/site-packages/transformers/generation/configuration_utils.py", line 771, in save_pretrained
    raise ValueError(str([w.message for w in caught_warnings]))
ValueError: [UserWarning('`do_sample` is set to `False`. However, `temperature` is set to `0.9` -- this flag is only')]
"""
CUT_SAMPLER = """\
  File "/opt/env/lib/python3.11/site-packages/sentence_transformers/sampler.py", line 211, in __iter__
    yield [index + offset for index in next(samplers[number])]
"""
REFERENCE = """\
AssertionError: zero stage 2 requires an optimizer
Traceback (most recent call last):
  File "/home/ada/trl/trainer/dpo_trainer.py", line 248, in __init__
    self.ref_model = self.accelerator._prepare_deepspeed(self.ref_model)[0]
  File "/opt/env/lib/python3.10/site-packages/accelerate/accelerator.py", line 1600, in _prepare_deepspeed
    engine, optimizer, _, lr_scheduler = deepspeed.initialize(**kwargs)
"""
OWN_ENGINE = """\
'LLMEngine' object has no attribute 'scheduler_of_v0'
  File "/home/ada/online.py", line 270, in _generate
    queue = self.llm.llm_engine.scheduler_of_v0
"""
MIXED = """\
File "/opt/env/lib/python3.11/site-packages/transformers/modeling_rope_utils.py", line 651, in convert
    keys = keys | {"partial"}
TypeError: unsupported operand type(s) for |: 'list' and 'set'
"""
TWO_LINES = "lightning.fabric.MisconfigurationException: You requested gpu: [1]\n But your machine only has: [0]\n"


@pytest.mark.parametrize(
    ("text", "row", "words"),
    [
        # Wrapped by hand or by a terminal, also within a word.
        (WRAPPED, "log_changed_in_place", "modified"),
        ("RuntimeError: Expected all tensors to be on the same device, but found at least two de\nvices, cuda:0 and "
         "cpu!\n", "log_tensors_on_several_devices", "device"),
        (MISSING, "log_packages_do_not_fit", "'run_scheduler_process_func'"),
        (TWO_LINES, "log_gpu_number_invalid", "by a number that does not exist"),
        # Typed: two mistakes and another case.
        ("[ValueError : Attemting to unscale fp16 Gradients]\n", "log_fp16_gradients_unscaled", "fp16"),
        # Cut before its end.
        ("TypeError: MyTrainer.compute_loss() got an unexpected keyword argument 'num_items_in_bat\n",
         "log_argument_not_accepted", "transformers passes since 4.46"),
        # Without the type, or quoted.
        ("'MyDataset' object has no attribute 'column'\n", "log_exception", "AttributeError"),
        ("> ValueError: bad batch\n", "log_exception", "raised ValueError: bad batch"),
        ("E       ValueError: bad batch\n", "log_exception", "raised ValueError: bad batch"),
        # The frames below the message, or in IPython's form without its head.
        (BELOW, "log_exception", "2(x3) means 2 on each of 3 nodes"),
        (IPYTHON_CUT, "log_packages_do_not_fit", "the installed unsloth"),
        # Names of packages and of their internals.
        ("TypeError: _unsloth_get_batch_samples() takes 3 positional arguments but 4 were given\n",
         "log_packages_do_not_fit", "a call of _unsloth_get_batch_samples() does not fit its definition"),
        ("AttributeError: 'Linear' object has no attribute '_old_hook_table'\n", "log_packages_do_not_fit",
         "grep -rnw --include='*.py' _old_hook_table ."),
        ("ImportError: cannot import name 'Trainer' from 'transformers'\n", "log_name_not_in_module",
         "import transformers.trainer"),
        ("RuntimeError: CUDA error: peer mapping resources exhausted\n", "log_exception", "at most 8 others"),
        ("AttributeError: 'MegatronTrainRayActor' object has no attribute 'parallel_state'\n",
         "log_packages_do_not_fit", "an object of the class MegatronTrainRayActor has no attribute parallel_state"),
        # The type alone on its line, or the line of code that failed above the message.
        ("megatron.core.dist_checkpointing.core.CheckpointingException:\nShardedTensor.flattened_range is not "
         "supported.\n", "log_flattened_range_removed", "dp_reshardable"),
        ("x.errors.ShapeError:\nthe thing has no shape at all.\n", "log_exception",
         "raised ShapeError: the thing has no shape at all."),
        ("[rank0]:[rank0]:     state.losses.append(state.loss)\n[rank0]:[rank0]: AttributeError: 'float' object has no "
         "attribute 'append'\n", "log_exception", "(state.losses is a float, not a list) | The log has the line that "
         "failed"),
        ("    for this model we see the following\nAttributeError: 'float' object has no attribute 'append'\n",
         "log_exception", "without its traceback"),
        ("AttributeError: 'dict' object has no attribute 'num_gpus_per_worker'\n", "log_exception",
         "It got a dict where"),
        ("TypeError: __init__() got an unexpected keyword argument 'find_unused_parameters'\n",
         "log_argument_not_accepted", "torch 1.1 added the argument find_unused_parameters of DistributedDataParallel"),
        ("TypeError: DistributedCheckpointer.__init__() got an unexpected keyword argument 'model_type'\n",
         "log_argument_not_accepted", "the recipe or its config is for another class"),
        # The package of an extension is named only if its file shows it.
        ("ImportError: mmdetection/mmdet/ops/dcn/deform.cpython-37m-x86_64-linux-gnu.so: undefined symbol: "
         "_ZN2at7getE\n", "log_extension_for_another_torch", "find . -name 'deform*.so'"),
        ("ImportError: /v/lib/python3.12/site-packages/mmcv/_ext.cpython-312-x86_64-linux-gnu.so: undefined symbol: "
         "_ZN2at7getE\n", "log_extension_for_another_torch", "--no-cache-dir mmcv"),
        # Tools that are not Python's, and what they look for.
        ("/tmp/tmpv1qfkl_e/main.c:2:10: fatal error: cuda.h: No such file or directory\n", "log_header_missing",
         "cuda.h of the CUDA toolkit is missing, so Triton"),
        ("ops.cpp:2:10: fatal error: libaio.h: No such file or directory\n", "log_header_missing", "libaio-dev"),
        ("ERROR: the dataset is empty\nmake: *** [train] Error 1\n", "log_program_reported_error",
         "the dataset is empty"),
        ("make: *** [Makefile:12: helpers_cpp.so] Error 1\n", "log_make_failed", "helpers_cpp.so"),
        # Cut within a chain, within a traceback, before a message's end.
        (f"{SAVED}\nDuring handling of the above exception, another exception occurred:\n",
         "log_generation_config_invalid", "temperature"),
        (f"{SAVED}\nDuring handling of the above exception, another exception occurred:\n\n"
         'Traceback (most recent call last):\n  File "/home/ada/train.py", line 3, in <module>\n    main()\n',
         "log_generation_config_invalid", "temperature"),
        (CUT_SAMPLER, "log_traceback_cut", "samplers[number] has no items left"),
        ('  File "/home/ada/train.py", line 3, in main\n    raise BadShard(message)\n', "log_traceback_cut",
         "raises BadShard"),
        # One message, several causes: a frame, an attribute or the numbers decide.
        (REFERENCE, "log_zero_trains_nothing", "the reference model was given to DeepSpeed"),
        ("AssertionError: zero stage 2 requires an optimizer\n", "log_zero_trains_nothing", "nothing to train"),
        ("AttributeError: 'DummyOptim' object has no attribute 'step'\n", "log_placeholder_not_replaced",
         "before DeepSpeed replaced it"),
        ("'DummyOptim' object has no attribute 'param_groups'\n", "log_placeholder_not_replaced", "generic learning"),
        ("RuntimeError: The size of tensor a (18959) must match the size of tensor b (19471) at non-singleton "
         "dimension 0\n", "log_tensor_sizes_differ", "probably rows of an embedding"),
        ("RuntimeError: The size of tensor a (187) must match the size of tensor b (203) at non-singleton "
         "dimension 1\n", "log_tensor_sizes_differ", "In a step"),
        ("IndexError: index out of range in self\n", "log_index_out_of_range", "on the CPU"),
        (OWN_ENGINE, "log_packages_do_not_fit", "The call is in your own file (online.py:270 in _generate)"),
        (MIXED, "log_framework_failed", "transformers failed in its own code"),
        ("[W socket.cpp:663] [c10d] The client socket has failed to connect to [::ffff:255.255.0.0]:29500 (errno: 110 "
         "- Connection timed out).\n", "log_master_address_impossible", "255.255.0.0"),
        # A sentence without a type is all that was copied.
        ("fancy-option is not supported by this engine\n", "log_program_reported_error", "the log has only this"),
        # A script's own names.
        ("TypeError: collate() takes 1 positional argument but 2 were given\n", "log_exception", "raised TypeError"),
        ("AttributeError: 'Net' object has no attribute 'head'\n", "log_exception", "raised AttributeError"),
    ],
)  # fmt: skip
def test_what_a_person_pasted(text: str, row: str, words: str, tmp_path: Path) -> None:
    found, shown = explained(text, tmp_path)
    assert (found, words in shown) == (row, True), shown


@pytest.mark.parametrize(
    "text",
    [
        "The variables needed for this gradient computation have been collected\nby an operation of the script\n",
        "loss 0.3\nWe attempt to unscale the gradients of the model in fp16\nloss 0.2\n",
        "Parameters which did not need a change: head.weight\n",
        "Saved the model's state\n'columns' of the table: object has no header\n",
        "--worker-cls is not supported by the V1 Engine. Falling back to V0.\n",
        "UserWarning: `do_sample` is set to `False`. However, `temperature` is set to `0.9`\n",
        "loss 0.3\nloss 0.2\nloss 0.1\nthe cache cannot be used\nloss 0.1\n",
    ],
)
def test_text_that_only_looks_similar_is_no_cause(text: str, tmp_path: Path) -> None:
    assert explained(text, tmp_path) == ("", "")


def test_a_message_between_others_is_not_joined_with_them(tmp_path: Path) -> None:
    text = "RuntimeError: bad batch\n\nExpected all tensors to be on the same\ndevice: checked, they are\n"
    assert explained(text, tmp_path)[0] == "log_exception"


SHAPES = (
    "RuntimeError: Error(s) in loading state_dict for Net:\n\tsize mismatch for {}: copying a param with shape "
    "torch.Size([{}]) from checkpoint, the shape in current model is torch.Size([{}]).\n"
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SHAPES.format("embed_tokens.weight", "32001, 64", "32000, 64"), "32,001 is 1 more than 32,000: tokens"),
        (SHAPES.format("lm_head.weight", "151936, 64", "151900, 64"), "rounded up to a multiple of 128"),
        (SHAPES.format("layers.0.q_proj.weight", "1024, 64", "4096, 64"), "exactly 4 times the other"),
        ("RuntimeError: The size of tensor a (51) must match the size of tensor b (52) at non-singleton dimension 1\n",
         "differ by 1"),
        ("RuntimeError: shape '[2, 1024, 32]' is invalid for input of size 16384\n", "exactly 4 times"),
    ],
)  # fmt: skip
def test_what_two_sizes_mean(text: str, words: str, tmp_path: Path) -> None:
    assert words in explained(text, tmp_path)[1]


@pytest.mark.parametrize(
    "text",
    [
        SHAPES.format("head.weight", "12, 64", "17, 128"),
        "RuntimeError: The size of tensor a (18959) must match the size of tensor b (19471) at dimension 0\n",
        "RuntimeError: shape '[4, -1, 512]' is invalid for input of size 1000\n",
    ],
)
def test_sizes_without_a_relation_have_no_remark(text: str, tmp_path: Path) -> None:
    shown = explained(text, tmp_path)[1]
    assert shown and "times the other" not in shown and "tokens were added" not in shown and "differ by 1" not in shown
