"""Answers that say no more than the lines of a log prove: the same message of other programs.

The logs are written here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

CALL = ("torch/nn/modules/module.py", "_call_impl", "return forward_call(*args, **kwargs)")
SIZES = "RuntimeError: The size of tensor a ({}) must match the size of tensor b ({}) at non-singleton dimension {}\n"
BERT = ("transformers/models/bert/modeling_bert.py", "forward", "scores = scores + mask")
ENGINE = ("deepspeed/runtime/engine.py", "forward", "loss = self.module(*inputs, **kwargs)")


@pytest.mark.parametrize(
    ("log", "title", "words", "absent"),
    [
        # An empty tensor is a parameter only in a run that partitions parameters.
        (frames((SCRIPT, "match", "iou = inter / (area_a[:, None] + area_b)")) + SIZES.format(0, 4, 1),
         "one of two tensors is empty: their sizes are 0 and 4 (fit.py:7 in match)", "without boxes", "GatheredParam"),
        (frames((SCRIPT, "step", "loss = engine(x)"), ENGINE) + SIZES.format(0, 4096, 1),
         "a parameter or gradient of size 0", "GatheredParameters", "without boxes"),
        # 256 channels are no maximum length.
        (frames((SCRIPT, "forward", "x = x + self.skip(y)")) + SIZES.format(256, 300, 1),
         "two tensors have different sizes: 256 and 300 in dimension 1", "residual", "tokenizer"),
        (SIZES.format(512, 640, 3), "two tensors have different sizes: 512 and 640", "shapes", "truncation=True"),
        (frames((SCRIPT, "step", "out = model(**batch)"), CALL, BERT) + SIZES.format(600, 512, 3),
         "longer than the model allows: 600 instead of 512", "max_length=512", "residual"),
    ],
)  # fmt: skip
def test_sizes(log: str, title: str, words: str, absent: str, tmp_path: Path) -> None:
    _, shown, text = explained(tmp_path, log)
    assert title in shown and words in text and absent not in text, (shown, text)


NORM = ("torch/nn/functional.py", "batch_norm", "_verify_batch_size(input.size())")
ONE = "ValueError: Expected more than 1 value per channel when training, got input size torch.Size([1, 64])\n"
LOOKS_UP = ("torch/nn/modules/module.py", "__getattr__", "raise AttributeError(")
LACKS = "AttributeError: '{}' object has no attribute '{}'\n"
TWICE = "RuntimeError: Expected to mark a variable ready only once.\n"


@pytest.mark.parametrize(
    ("log", "title", "words", "absent"),
    [
        # One process: a model in training mode, and no ranks.
        (frames((SCRIPT, "act", "a = self.actor(s)"), NORM) + ONE, "a single sample", "model.eval()", "SyncBatchNorm"),
        (frames((SCRIPT, "main", "y = net(x)"), NORM, prefix="[rank1]: ") + f"[rank1]: {ONE}", "a single sample",
         "SyncBatchNorm", "observation"),
        # What has no .module: a model of torch looks it up in torch's code.
        (frames((SCRIPT, "main", "net.module.state_dict()"), LOOKS_UP) + LACKS.format("UNet", "module"),
         "of the model UNet, which is not wrapped", "getattr(model", "vars(x)"),
        (frames((SCRIPT, "main", "part = spec.module")) + LACKS.format("LayerSpec", "module"),
         "reads .module of an object of the class LayerSpec, which has none", "vars(x)", "unwrap"),
        (frames((SCRIPT, "main", "net = build(args.module)")) + LACKS.format("Namespace", "module"),
         "the option module", "add_argument", "unwrap"),
        # DeepSpeed's engine passes on what its model has; no_sync() is not of the model.
        (frames((SCRIPT, "main", "model.save_lora(p)"), ENGINE) + LACKS.format("DeepSpeedEngine", "save_lora"),
         "neither DeepSpeed's engine nor the model in it has .save_lora", "dir(model.module)", "prepare()"),
        (frames((SCRIPT, "main", "with model.no_sync():"), LOOKS_UP) + LACKS.format("DataParallel", "no_sync"),
         "other wrappers do", "nullcontext", "belongs to the model"),
        (frames((SCRIPT, "main", "model.head"), LOOKS_UP) + LACKS.format("DataParallel", "head"),
         "belongs to the model inside", "model.module.head", "other wrappers"),
        # A batch that is no total over ranks of accelerate.
        (frames((SCRIPT, "main", "raise ValueError(text)"))
         + "ValueError: Batch size 10 must be divisible by number of devices 4\n", "divide", "", "split_batches"),
        (TWICE, "the gradient of a parameter twice", "chunk(2)", "The cause is"),
    ],
)  # fmt: skip
def test_wrappers(log: str, title: str, words: str, absent: str, tmp_path: Path) -> None:
    _, shown, text = explained(tmp_path, log)
    assert title in shown and words in text and absent not in f"{shown} {text}", (shown, text)


TWO = "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, {} and {}!\n"
REPLICA = ("torch/nn/parallel/parallel_apply.py", "_worker", "output = module(*input, **kwargs)")
LINEAR = ("torch/nn/modules/linear.py", "forward", "return F.linear(input, self.weight, self.bias)")
HOOKS = ("accelerate/hooks.py", "new_forward", "output = old_forward(*args, **kwargs)")
PIPE = ("diffusers/pipelines/flux/pipeline_flux.py", "__call__", "noise = self.transformer(")
META = ("accelerate/utils/modeling.py", "set_module_tensor_to_device", "new_value = value.to(device)")
EMPTY = "NotImplementedError: Cannot copy out of meta tensor; no data!\n"
OFFLOADED = "Some parameters are on the meta device because they were offloaded to the cpu.\ndevice_map='auto'\n"
GENERATE = ("transformers/generation/utils.py", "generate", "return self.sample(")
LLAVA = ("transformers/models/llava/modeling_llava.py", "forward", "h = torch.matmul(a, self.w)")
DTYPE = "RuntimeError: expected scalar type Float but found Half\n"
MAC = "/Users/ada/fit.py"


@pytest.mark.parametrize(
    ("log", "title", "words", "absent"),
    [
        # A tensor on the CPU is not on the GPU of another copy.
        (frames((SCRIPT, "main", "out = model(x)"), REPLICA, (SCRIPT, "forward", "x = x + self.pos[:n]"))
         + TWO.format("cuda:0", "cpu"), "mixes a tensor on the CPU with one on the GPU", "register_buffer", "swift"),
        (frames((SCRIPT, "main", "out = model(x)"), REPLICA, (SCRIPT, "forward", "x = x + self.pos[:n]"))
         + TWO.format("cuda:0", "cuda:1"), "stayed on the GPU of another copy", "torchrun", "register_buffer"),
        # Hooks alone do not show that a part was offloaded.
        (frames((SCRIPT, "main", "img = pipe(prompt_embeds=e)"), PIPE, HOOKS, LINEAR) + TWO.format("cuda:0", "cpu"),
         "in a model whose parts accelerate places on devices", "enable_model_cpu_offload", "did not fit on the"),
        (OFFLOADED + frames((SCRIPT, "main", "model(x)"), HOOKS, LINEAR) + TWO.format("cuda:0", "cpu"),
         "a part of the model was offloaded to the CPU by device_map", "shard it", "diffusers"),
        (frames((MAC, "main", "y = net(x)"), LINEAR) + TWO.format("mps:0", "cpu"), "one on Apple's GPU (mps)",
         "torch.device('mps')", "cuda"),
        # Rank 0 has the weights only where there are several ranks.
        (frames((SCRIPT, "main", "m = M.from_pretrained(p)"), META) + EMPTY, "no values for one of its weights",
         "init_empty_weights", "rank 0"),
        (frames((SCRIPT, "main", "m = M.from_pretrained(p)"), META, prefix="[rank1]: ") + f"[rank1]: {EMPTY}",
         "expected to come from rank 0", "FSDP", "init_empty_weights"),
        # Inference has no trainer; a function of one's own that is called generate() has no mixed precision.
        (frames((SCRIPT, "main", "out = model.generate(**x)"), GENERATE, LLAVA) + DTYPE,
         "different dtypes in inference", "torch_dtype=torch.float16", "TrainingArguments"),
        ("step 3 loss: 1.25\n" + frames((SCRIPT, "main", "out = model.generate(**x)"), GENERATE, LLAVA) + DTYPE,
         "in generation, which runs outside of mixed precision", "autocast", "in inference"),
        (frames((SCRIPT, "generate", "y = torch.matmul(a, self.w)")) + DTYPE, "two tensors have different dtypes", "",
         "generate()"),
    ],
)  # fmt: skip
def test_devices_and_dtypes(log: str, title: str, words: str, absent: str, tmp_path: Path) -> None:
    _, shown, text = explained(tmp_path, log)
    assert title in shown and words in text and absent not in f"{shown} {text}", (shown, text)
