"""Where a run's memory was full, and other failures of which the place decides: a metric, a save, an optimizer.

Each kind has a near message in which it must not apply.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .test_log_callers import MODULE, frames
from .test_log_meanings import explained

SCRIPT = "/home/ada/fit.py"
FULL = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried}. GPU 0 has a total capacity of 79.15 GiB of "
    "which 0.50 GiB is free. {others}Including non-PyTorch memory, this process has {own} GiB memory in use. {allowed}"
    "Of the allocated memory 4.00 GiB is allocated by PyTorch, and 0.30 GiB is reserved by PyTorch but unallocated.\n"
)
LAYER = ("transformers/models/llama/modeling_llama.py", "forward", "x = self.mlp(x)")
LINEAR = ("torch/nn/modules/linear.py", "forward", "return F.linear(input, self.weight, self.bias)")
LORA = ("peft/tuners/lora/layer.py", "forward", "result = result + lora_B(lora_A(dropout(x))) * scaling")
MLP = ("transformers/models/llama/modeling_llama.py", "forward", "return self.down_proj(self.act_fn(self.up_proj(x)))")
ATTENTION = ("transformers/models/llama/modeling_llama.py", "forward", "q = self.q_proj(x)")
STEP = ("transformers/trainer.py", "compute_loss", "outputs = model(**inputs)")
HOOK = ("transformers/debug_utils.py", "get_abs_min_max", "abs_var = var.abs()")
TRAINS = (SCRIPT, "main", "trainer.train()")
CALLS_MODEL = (SCRIPT, "main", "out, loss = model(x, y)")
APPLIES = ("torch/autograd/function.py", "apply", "return super().apply(*args, **kwargs)")
COMPILED = ("torch/_functorch/_aot_autograd/jit_compile_runtime_wrappers.py", "forward", "fw_outs = call(")
KERNELS = ("torch/_inductor/codecache.py", "__call__", "return self.current_callable(inputs)")
GENERATED = ("/tmp/torchinductor_ada/ab/cabc.py", "call", "buf7 = empty_strided_cuda((8, 16), (16, 1))")
BACKWARD = (
    (SCRIPT, "main", "loss.backward()"),
    ("torch/_tensor.py", "backward", "torch.autograd.backward("),
    ("torch/autograd/graph.py", "_engine_run_backward", "return Variable._execution_engine.run_backward("),
)
NO_GRAD = ("torch/autograd/grad_mode.py", "decorate_context", "return func(*args, **kwargs)")
TUNES = ("torch/_inductor/select_algorithm.py", "benchmark_in_current_process", "timings = benchmark(choices)")


def full(tried: str = "1.16 GiB", others: str = "", own: str = "70.00", allowed: str = "") -> str:
    return FULL.format(tried=tried, others=others, own=own, allowed=allowed)


@pytest.mark.parametrize(
    ("calls", "tried", "title"),
    [
        # A compiled model's forward pass goes through torch/autograd/function.py, too.
        ((CALLS_MODEL, MODULE, APPLIES, COMPILED, KERNELS, GENERATED), "20.00 MiB", "in the forward pass"),
        ((*BACKWARD, APPLIES, ("torch/_functorch/_aot_autograd/runtime_wrappers.py", "backward", "out = call("),
          KERNELS, GENERATED), "20.00 MiB", "in the backward pass"),
        (BACKWARD, "20.00 MiB", "in the backward pass"),
        ((CALLS_MODEL, APPLIES, COMPILED, KERNELS, TUNES), "20.00 MiB", "while kernels are tuned"),
        # What torch 1 calls step() through.
        (((SCRIPT, "main", "optimizer.step()"), NO_GRAD, ("torch/optim/adam.py", "step", "s = zeros_like(p)")),
         "20.00 MiB", "in the optimizer's step"),
        (((SCRIPT, "validate", "out = model(x)"), NO_GRAD, ("/home/ada/net.py", "forward", "x = self.conv(x)")),
         "20.00 MiB", "during evaluation"),
        # The check of activations is an option of its own.
        ((TRAINS, STEP, LAYER, MLP, LORA, HOOK), "13.93 GiB", "in a check of the activations"),
        ((TRAINS, STEP, LAYER, MLP, LORA), "13.93 GiB", "in an MLP layer"),
        ((TRAINS, STEP, LAYER, LAYER, MLP, LINEAR), "13.93 GiB", "in an MLP layer"),
        ((TRAINS, STEP, LAYER, LAYER, MLP, LINEAR), "0.50 GiB", "in the forward pass"),
        ((TRAINS, STEP, LAYER, LAYER, ATTENTION, LINEAR), "13.93 GiB", "one very large tensor"),
        # Weights that are moved as a whole, or the optimizer's.
        ((TRAINS, ("deepspeed/runtime/engine.py", "__init__", "self._configure_distributed_model(model)"),
          ("deepspeed/runtime/engine.py", "_configure_distributed_model", "self.module.to(self.device)"),
          ("torch/nn/modules/module.py", "to", "return self._apply(convert)")), "126.00 MiB",
         "while DeepSpeed puts the whole model on it"),
        ((TRAINS, ("deepspeed/runtime/engine.py", "_configure_zero_optimizer", "optimizer = Stage1And2("),
          ("deepspeed/runtime/zero/stage_1_and_2.py", "initialize_optimizer_states", "p.grad = zeros()")),
         "126.00 MiB", "its share of fp32 weights and optimizer states"),
    ],
)  # fmt: skip
def test_the_frames_name_what_filled_the_gpu(
    calls: tuple[tuple[str, str, str], ...], tried: str, title: str, tmp_path: Path
) -> None:
    _, found, _ = explained(tmp_path, frames(*calls) + full(tried))
    assert found.startswith("a GPU's memory is full ") and title in found, found


OLD = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried} GiB (GPU 0; 31.75 GiB total capacity; "
    "{own} GiB already allocated; 0.40 GiB free; {reserved} GiB reserved in total by PyTorch)\n"
)
RENDER = ("diff_gaussian_rasterization/__init__.py", "forward", "num_rendered = _C.rasterize_gaussians(*args)")
GSPLAT = ("gsplat/cuda/_wrapper.py", "forward", "out = fn(means, quats, scales)")
CONVOLUTION = ("torch/nn/modules/conv.py", "forward", "return self._conv_forward(input)")


@pytest.mark.parametrize(
    ("calls", "tried", "own", "reserved", "title"),
    [
        ((CALLS_MODEL, RENDER), "4.20", "6.10", "30.90", "fragmented: the rasterizer's buffers grow"),
        ((CALLS_MODEL, RENDER), "0.20", "30.10", "30.90", "full in the rasterizer: the scene has too many Gaussians"),
        ((CALLS_MODEL, CONVOLUTION), "4.20", "8.10", "30.90", "most of what torch has reserved is unused"),
        ((CALLS_MODEL, CONVOLUTION), "4.20", "27.10", "30.90", "one very large tensor"),
        ((CALLS_MODEL, CONVOLUTION), "14.20", "8.10", "30.90", "one very large tensor"),  # larger than the gaps
    ],
)
def test_most_of_what_is_reserved_is_unused(
    calls: tuple[tuple[str, str, str], ...], tried: str, own: str, reserved: str, title: str, tmp_path: Path
) -> None:
    text = frames(*calls) + OLD.format(tried=tried, own=own, reserved=reserved)
    assert title in explained(tmp_path, text)[1]


LITTLE = (
    "RuntimeError: CUDA out of memory. Tried to allocate 64.00 MiB (GPU 0; {total} GiB total capacity; {own} GiB "
    "already allocated; 11.00 MiB free; {own} GiB reserved in total by PyTorch)\n"
)


@pytest.mark.parametrize(("total", "own", "title"),
                         [("1.96", "1.40", "this GPU has little"), ("3.81", "3.30", "this GPU has little"),
                          ("7.79", "7.20", "in the forward pass")])  # fmt: skip
def test_a_gpu_with_little_memory(total: str, own: str, title: str, tmp_path: Path) -> None:
    calls = ((SCRIPT, "main", "out = net(x)"), ("/home/ada/net.py", "forward", "x = self.conv(x)"))
    assert title in explained(tmp_path, frames(*calls) + LITTLE.format(total=total, own=own))[1]


PARALLEL = (
    TRAINS,
    STEP,
    ("torch/nn/parallel/data_parallel.py", "forward", "outputs = self.parallel_apply(replicas, inputs)"),
)
AGAIN = "torch.OutOfMemoryError: Caught OutOfMemoryError in replica 0 on device 0.\n"
WORKER = ("torch/nn/parallel/parallel_apply.py", "_worker", "output = module(*input, **kwargs)")
LOSS = ("torch/nn/functional.py", "cross_entropy", "return torch._C._nn.cross_entropy_loss(")


@pytest.mark.parametrize(
    ("text", "title"),
    [
        (frames(*PARALLEL) + AGAIN + "Original " + frames(WORKER, LAYER, LAYER, MLP, LINEAR) + full("512.00 MiB"),
         "in the forward pass of a replica under DataParallel"),
        (frames(*PARALLEL) + AGAIN + "Original " + frames(WORKER, LAYER, LOSS) + full("4.00 GiB"),
         "in the loss of a replica under DataParallel"),
        (frames(*PARALLEL) + AGAIN, "in the forward pass of a replica under DataParallel"),
        (frames(*PARALLEL, ("torch/nn/parallel/scatter_gather.py", "gather", "return gather_map(outputs)")) + full(),
         "under DataParallel, which gathers all outputs on GPU 0"),
    ],
    ids=("activations", "logits", "without the replica's own traceback", "gathered outputs"),
)  # fmt: skip
def test_a_replica_of_data_parallel_failed_or_its_caller(text: str, title: str, tmp_path: Path) -> None:
    _, found, _ = explained(tmp_path, text)
    assert title in found, found


@pytest.mark.parametrize(
    ("allowed", "title"),
    [("75.19", "in the forward pass"), ("19.79", "a process reached the GPU memory limit that it set for itself")],
)
def test_a_limit_near_the_size_of_the_gpu_is_not_the_cause(allowed: str, title: str, tmp_path: Path) -> None:
    text = frames(CALLS_MODEL, MODULE, ("/home/ada/net.py", "forward", "x = self.conv(x)"))
    _, found, _ = explained(tmp_path, text + full(allowed=f"{allowed} GiB allowed; "))
    assert title in found, found


def _processes(**held: str) -> str:
    return "".join(f"Process {pid[1:]} has {size} GiB memory in use. " for pid, size in held.items())


@pytest.mark.parametrize(
    ("others", "title", "together"),
    [
        (_processes(p7103="20.00", p7100="19.50", p7106="21.00", p9900="6.00"),
         "4 other processes use 66.5 of its 79.15 GiB, this one 10.00 GiB", True),
        (_processes(p7103="20.00", p61000="19.50", p15000="21.00"),
         "3 other processes use 60.5 of its 79.15 GiB, this one 10.00 GiB", False),
        (_processes(p7103="60.00", p7106="4.00"), "another process (pid 7103) uses 60.00 GiB of its 79.15 GiB", False),
    ],
    ids=("a sweep", "of several users", "one of them has nearly all"),
)  # fmt: skip
def test_several_processes_are_counted_together(others: str, title: str, together: bool, tmp_path: Path) -> None:
    name, found, words = explained(tmp_path, frames(CALLS_MODEL) + full(others=others, own="10.00"))
    assert name == "log_gpu_memory_taken" and title in found, found
    assert ("The pids of 3 are close together (7100 to 7106)" in words) == together


LOADS = (SCRIPT, "main", "data = load_from_disk(path)")
OF_DICT = ("datasets/dataset_dict.py", "load_from_disk", "dataset_dict[k] = Dataset.load_from_disk(")
OF_SPLIT = ("datasets/arrow_dataset.py", "load_from_disk", "raise FileNotFoundError(")
NO_FILES = (
    "FileNotFoundError: No such files: '/data/tok/train/dataset_info.json', nor '/data/tok/train/state.json' found. "
    "Expected to load a `Dataset` object but provided path is not a `Dataset`.\n"
)


@pytest.mark.parametrize(
    ("calls", "title", "command"),
    [
        ((LOADS, OF_DICT, OF_SPLIT), "the saved dataset is incomplete", "ls -la /data/tok/train |"),
        (
            (LOADS, OF_SPLIT),
            "the dataset is loaded in another way than it was saved",
            "datasets.load_from_disk(FOLDER)",
        ),
    ],
    ids=("a split of it", "the folder itself"),
)
def test_a_dataset_that_was_saved_in_part(
    calls: tuple[tuple[str, str, str], ...], title: str, command: str, tmp_path: Path
) -> None:
    _, found, words = explained(tmp_path, frames(*calls) + NO_FILES)
    assert found.startswith(title) and command in words, (found, words)


SAVES = ("transformers/trainer.py", "_save_checkpoint", "self.save_model(output_dir)")
WRITES = ("safetensors/torch.py", "save_file", "serialize_file(_flatten(tensors), filename)")


@pytest.mark.parametrize(
    ("calls", "title"),
    [
        ((TRAINS, SAVES, WRITES), "your disk quota is exceeded: the run could not save its model or a checkpoint"),
        ((TRAINS, ("huggingface_hub/file_download.py", "http_get", "f.write(chunk)")), "your disk quota is exceeded"),
    ],
    ids=("a checkpoint", "a download"),
)  # fmt: skip
def test_a_quota_is_exceeded_while_something_is_written(
    calls: tuple[tuple[str, str, str], ...], title: str, tmp_path: Path
) -> None:
    _, found, _ = explained(tmp_path, frames(*calls) + "OSError: [Errno 122] Disk quota exceeded\n")
    assert found == title


SHAPES = "ValueError: operands could not be broadcast together with shapes (6000,2) (6000,)\n"
EVALUATES = ("transformers/trainer.py", "evaluation_loop", "metrics = self.compute_metrics(prediction)")


@pytest.mark.parametrize(
    ("calls", "title", "command"),
    [
        ((TRAINS, EVALUATES, ("trl/trainer/utils.py", "compute_accuracy", "acc = np.array(predictions == labels)")),
         "the reward model probably does not return one score for each text", "num_labels=1"),
        ((TRAINS, EVALUATES, (SCRIPT, "compute_accuracy", "accuracy = (predictions == labels).mean()")),
         "two arrays of shapes (6000,2) and (6000,) cannot be combined", "np.argmax"),
    ],
    ids=("TRL's own metric", "the script's"),
)  # fmt: skip
def test_scores_that_a_metric_does_not_expect(
    calls: tuple[tuple[str, str, str], ...], title: str, command: str, tmp_path: Path
) -> None:
    _, found, words = explained(tmp_path, frames(*calls) + SHAPES)
    assert found.startswith(title) and command in words and ("argmax(" in words) == ("two arrays" in title), found


@pytest.mark.parametrize(
    ("keys", "inputs", "title", "word"),
    [
        ("logits", "input_ids,labels", "the batches have labels, but the model returned only logits", "problem_type"),
        ("scores", "input_ids,labels", "the batches have labels, but the model's forward() returned no loss", "branch"),
        ("logits", "input_ids,attention_mask", "the batches have no labels", "label"),
    ],
)
def test_a_model_that_returned_no_loss(keys: str, inputs: str, title: str, word: str, tmp_path: Path) -> None:
    error = (
        f"ValueError: The model did not return a loss from the inputs, only the following keys: {keys}. For reference, "
        f"the inputs it received are {inputs}.\n"
    )
    _, found, words = explained(tmp_path, frames(TRAINS, ("transformers/trainer.py", "compute_loss", "raise")) + error)
    assert found.startswith(title) and word in words, found


NOTHING = "RuntimeError: stack expects a non-empty TensorList\n"


@pytest.mark.parametrize(
    ("call", "error", "title"),
    [
        (("/home/ada/sam.py", "_grad_norm", "torch.stack(["), NOTHING, "no parameter of the optimizer has a gradient"),
        (("/home/ada/sam.py", "first_step", "n = torch.stack([p.grad.norm() for p in ps])"), NOTHING,
         "no parameter of the optimizer has a gradient"),
        (("/home/ada/loop.py", "grad_norm", "return max(p.grad.norm() for p in ps if p.grad is not None)"),
         "ValueError: max() arg is an empty sequence\n", "no parameter of the optimizer has a gradient"),
        (("/home/ada/sam.py", "collate", "torch.stack(["), NOTHING, "a list or an array is empty"),
        (("/home/ada/loop.py", "gradual_norm", "torch.stack(["), NOTHING, "a list or an array is empty"),
        (("/home/ada/optimizer.py", "step", "x = torch.stack(batches)"), NOTHING, "batches is empty"),
    ],
)  # fmt: skip
def test_an_empty_list_of_gradients(call: tuple[str, str, str], error: str, title: str, tmp_path: Path) -> None:
    _, found, _ = explained(tmp_path, frames(TRAINS, call) + error)
    assert found.startswith(title), found


BLOCK = ("/home/ada/blocks.py", "forward", "out = self.attn(x)")
PASSES_ON = ("diffusers/models/attention_processor.py", "forward", "return self.processor(")
NEEDS = "TypeError: DoubleProcessor.__call__() missing 1 required positional argument: 'image_emb'\n"
PREPARED = ("accelerate/utils/operations.py", "forward", "return model_forward(*args, **kwargs)")
LACKS = "TypeError: step() missing 1 required positional argument: 'latents'\n"
SAMPLES = ("diffusers/pipelines/base.py", "run", "x = self.step(latents)")


@pytest.mark.parametrize(
    ("calls", "error", "title", "command"),
    [
        ((CALLS_MODEL, MODULE, PREPARED, MODULE, BLOCK, MODULE, PASSES_ON), NEEDS,
         "the attention processor DoubleProcessor gets no 'image_emb' (blocks.py:7 in forward)",
         "grep -rnw --include='*.py' DoubleProcessor ."),
        # What the script's own file calls does not fit the script, not the package that called the script.
        ((CALLS_MODEL, PREPARED, BLOCK, SAMPLES), LACKS,
         "diffusers does not fit its caller", "pip show diffusers"),
        ((CALLS_MODEL, PREPARED, SAMPLES), LACKS,
         "the installed diffusers and accelerate probably do not fit", "pip show diffusers accelerate"),
    ],
    ids=("a processor", "called by the script", "called by a package"),
)  # fmt: skip
def test_an_argument_that_the_script_does_not_pass(
    calls: tuple[tuple[str, str, str], ...], error: str, title: str, command: str, tmp_path: Path
) -> None:
    _, found, words = explained(tmp_path, frames(*calls) + error)
    assert found.startswith(title) and command in words, (found, words)


_PLAN = "XLA:TPU compile permanent error. Ran out of memory in memory space {}. Used {} of {} {}. Exceeded capacity.\n"


@pytest.mark.parametrize(
    ("calls", "error", "title", "words", "not_said"),
    [
        (((SCRIPT, "main", "if grad_norm > 5.0:"),), f"RuntimeError: {_PLAN.format('hbm', '41.20G', '15.75G', 'hbm')}",
         "one compiled program needs 41.20G, and it has 15.75G", "torch_xla.sync()",
         "PREALLOCATE"),
        (((SCRIPT, "main", "print(loss.item())"), ("torch_xla/core/xla_model.py", "mark_step", "torch_xla.sync(wait)")),
         f"RuntimeError: Bad StatusOr access: RESOURCE_EXHAUSTED: {_PLAN.format('hbm', '20.1G', '15.75G', 'hbm')}",
         "needs 20.1G", "compiles all since", "PREALLOCATE"),
        (((SCRIPT, "main", "state = train_step(state, batch)"),),
         f"jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: {_PLAN.format('hbm', '21.9G', '7.48G', 'hbm')}",
         "needs 21.9G", "micro-batch", "torch_xla"),
        (((SCRIPT, "main", "out = model(x)"),), f"RuntimeError: {_PLAN.format('vmem', '32.42M', '16.00M', 'vmem')}",
         "one operation needs 32.42M of a core's own memory (vmem)", "smaller blocks", "micro-batch"),
        (((SCRIPT, "main", "out = f(x)"),), "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory "
         "while trying to allocate 5368709120 bytes.\n", "memory is full (reported by XLA)", "PREALLOCATE", "sync"),
    ],
)  # fmt: skip
def test_what_xla_planned_decides(
    calls: tuple[tuple[str, str, str], ...], error: str, title: str, words: str, not_said: str, tmp_path: Path
) -> None:
    found = explained(tmp_path, frames(*calls) + error)
    assert found[0] == "log_xla_memory_full" and title in found[1]
    assert words in found[2] and not_said not in found[2]


@pytest.mark.parametrize(("tried", "own"), [("4.20", "6.10"), ("0.20", "30.10")])
@pytest.mark.parametrize(("rasterizer", "has_options"), [(RENDER, True), (GSPLAT, False)])
def test_each_rasterizer_has_its_own_options(
    rasterizer: tuple[str, str, str], has_options: bool, tried: str, own: str, tmp_path: Path
) -> None:
    text = frames(CALLS_MODEL, rasterizer) + OLD.format(tried=tried, own=own, reserved="30.90")
    _, title, words = explained(tmp_path, text)
    assert "rasterizer" in title and "number of Gaussians" in words
    assert ("densify_until_iter" in words) == has_options and ("--data_device" in words) == has_options
    assert "if it is not set yet" in words


def test_half_precision_for_training_comes_with_a_scaler(tmp_path: Path) -> None:
    error = OLD.replace("31.75", "3.81").format(tried="0.09", own="2.90", reserved="3.02")
    words = explained(tmp_path, frames(CALLS_MODEL, CONVOLUTION) + error)[2]
    assert "float16" in words and "GradScaler" in words and "scaler.step(optimizer)" in words
