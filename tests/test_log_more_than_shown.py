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
         "in a model whose parts accelerate places on devices", "enable_model_cpu_offload", "GPUs, so device_map"),
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


CONFIG = ("yacs/config.py", "__getattr__", "raise AttributeError(name)")
OWN_CONFIG = ("/home/ada/lib/cfg.py", "__getattr__", "raise AttributeError(key)")
ABSENT = (
    "OSError: {0} does not appear to have a file named {1}. Checkout 'https://huggingface.co/{0}/tree/main' for "
    "available files.\n"
)
CV = "cv2.error: OpenCV(4.8.0) /io/a.cpp:6: error: {}\n"


@pytest.mark.parametrize(
    ("log", "title", "words", "absent"),
    [
        # A config that looks up its keys itself: no enumeration, and no mistake of a package's release.
        (frames((SCRIPT, "main", "lr = cfg.SOLVER.BASE_LRS"), CONFIG) + "AttributeError: BASE_LRS\n",
         "cfg.SOLVER has no BASE_LRS, which fit.py:7 in main reads", "print(cfg.SOLVER)", "release of yacs"),
        (frames((SCRIPT, "main", "lr = cfg.lr"), OWN_CONFIG) + "AttributeError: lr\n", "cfg has no lr", "grep", "enum"),
        (frames((SCRIPT, "main", "m = Mode.TRANE")) + "AttributeError: TRANE\n", "an enumeration has no member TRANE",
         "list(Mode)", "config"),
        # NaN of a table is no diverged loss.
        (frames((SCRIPT, "conv", "return int(row[3])")) + "ValueError: cannot convert float NaN to integer\n",
         "a value is NaN", "df.isna()", "learning rate"),
        (frames((SCRIPT, "show", "print(int(loss))")) + "ValueError: cannot convert float NaN to integer\n",
         "a loss is NaN", "learning rate", "df.isna()"),
        # A list where an array is expected.
        (frames((SCRIPT, "fit", "n, d = X.shape")) + "AttributeError: 'list' object has no attribute 'shape'\n",
         "X is a list", "np.array(x)", "expects one tensor"),
        (frames((SCRIPT, "fit", "y = out.logits")) + "AttributeError: 'tuple' object has no attribute 'logits'\n",
         "out is a tuple", "one tensor or an output object", "np.array"),
        # An assertion of a network is not scikit-learn's.
        (frames((SCRIPT, "forward", "assert ok(x), 'Input contains NaN'")) + "AssertionError: Input contains NaN\n",
         "the script's own check found NaN in its input", "isfinite", "Imputer"),
        (frames((SCRIPT, "main", "svm.fit(X, y)"), ("sklearn/utils/validation.py", "_assert", "raise ValueError(m)"))
         + "ValueError: Input X contains NaN.\n", "the data for scikit-learn", "Imputer", "own check"),
        # Repositories of the Hub.
        (ABSENT.format("anna/Llama-GGUF", "config.json"), "has weights in GGUF", "gguf_file=", "zero_to_fp32"),
        (ABSENT.format("anna/styles", "config.json"), "not only, a model that transformers loads", "adapter_config",
         "zero_to_fp32"),
        (ABSENT.format("out/checkpoint-100", "config.json"), "is not a complete model", "zero_to_fp32", "GGUF"),
        (ABSENT.format("/data/m", "config.json"), "is not a complete model", "zero_to_fp32", "GGUF"),
        ("OSError: anna/bert does not appear to have a file named pytorch_model.bin but there is a file for TensorFlow "
         "weights. Use `from_tf=True` to load this model from those weights.\n", "those of another library",
         "from_tf=True", "zero_to_fp32"),
        # OpenCV's arguments, files and arrays.
        (frames((SCRIPT, "main", "cv2.imwrite(path, img)"))
         + CV.format("(-2:Unspecified error) could not find a writer for the specified extension in function 'i'"),
         "cannot use the file or its format", "print(repr(path))", "uint8"),
        (frames((SCRIPT, "main", "cv2.circle(img, (x, y), 3)")) + CV.format("(-5:Bad argument) in function 'circle'\n"
         "> Overload resolution failed:\n>  - Can't parse 'center'. Sequence item with index 0 has a wrong type"),
         "cv2.circle() does not accept its argument center", "(int(x), int(y))", "channels"),
        (frames((SCRIPT, "main", "g = cv2.cvtColor(img, cv2.COLOR_RGB2GRAY)"))
         + CV.format("(-15:Bad number of channels) in function 'f'"), "does not accept the array", "shape", "int(x)"),
        # A path that an option names.
        (frames((SCRIPT, "load_model", "raise FileNotFoundError(f'no checkpoint: {p}')"))
         + "FileNotFoundError: checkpoint not found: weights/best.pth\n", "weights/best.pth does not exist",
         "If an option names it", "the path is made of them"),
    ],
)  # fmt: skip
def test_values_and_files(log: str, title: str, words: str, absent: str, tmp_path: Path) -> None:
    _, shown, text = explained(tmp_path, log)
    assert title in shown and words in text and absent not in f"{shown} {text}", (shown, text)


OLD_GPU = (
    "/opt/conda/lib/python3.{0}/site-packages/torch/cuda/__init__.py:104: UserWarning: \n"
    "NVIDIA GeForce RTX 3090 with CUDA capability sm_86 is not compatible with the current PyTorch installation.\n"
)
TORCH = "- PyTorch version: {}\n"
FOUND = "RuntimeError: The NVIDIA driver on your system is too old (found version {}).\n"
NO_KERNEL = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
INDICES = (
    "RuntimeError: Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but "
    "got torch.cuda.HalfTensor instead (while checking arguments for embedding)\n"
)
EMBEDDING = ("torch/nn/functional.py", "embedding", "return torch.embedding(weight, input)")
BUSY = "BlockingIOError: [Errno 11] Resource temporarily unavailable\n"
KINDS = "RuntimeError: Expected one of cpu, cuda, xpu, hip, xla, hpu device type at start of device string: {}\n"
NO_BF16 = "ValueError: Your setup doesn't support bf16/gpu.\n"


@pytest.mark.parametrize(
    ("log", "title", "words", "absent"),
    [
        # Wheels that do not exist for the Python of the log.
        (OLD_GPU.format(7), "no kernels for this GPU", "these wheels need 3.9 or newer", "3.12"),
        (OLD_GPU.format(11), "no kernels for this GPU", "whl/cu126", "or newer: install them in a new environment"),
        # Wheels that do not exist for the torch of the log.
        (f"{TORCH.format('2.5.1+cu121')}{FOUND.format(12020)}", "supports CUDA 12.2",
         "write torch==2.5.1 and cu124 in this command", "cu118"),
        (f"{TORCH.format('2.9.1+cu130')}{FOUND.format(12020)}", "supports CUDA 12.2", "whl/cu126",
         "The log shows torch"),
        (FOUND.format(12020), "supports CUDA 12.2", "whl/cu126", "The log shows torch"),
        (f"{TORCH.format('2.9.1+cu130')}{FOUND.format(11040)}", "supports CUDA 11.4", "pip installs another torch.",
         "To keep"),
        (TORCH.format("2.12.0+cu126") + NO_KERNEL, "no kernels for this GPU", "write torch==2.12.0 and cu130", "cu132"),
        (TORCH.format("2.6.0+cu124") + NO_KERNEL, "no kernels for this GPU", "pip installs another torch.", "To keep"),
        (f"{TORCH.format('2.5.1+cu121')}{OLD_GPU.format(11)}", "no kernels for this GPU", "Install a newer torch",
         "To keep"),
        # Indices of an embedding are not always tokens.
        (frames((SCRIPT, "forward", "e = self.emb(x[:, 0])"), EMBEDDING) + INDICES,
         "an embedding got fp16 or bf16 values as its indices", "Keep the indices in a tensor", "token"),
        (frames((SCRIPT, "main", "out = model.generate(**x)"), GENERATE, EMBEDDING) + INDICES,
         "token ids were cast", "is_floating_point", "Keep the indices in a tensor"),
        # A descriptor that does not wait is no limit on processes.
        (frames((SCRIPT, "step", "data = self.sock.recv(4096)")) + BUSY, "is set not to wait", "setblocking", "ulimit"),
        (frames((SCRIPT, "step", "p.start()"), ("/usr/lib/python3.11/multiprocessing/popen_fork.py", "_launch",
         "self.pid = os.fork()")) + BUSY, "reached its limit on processes", "ulimit", "setblocking"),
        # A device that this torch does not have yet.
        (frames((SCRIPT, "main", "d = torch.device('mps')")) + KINDS.format("mps"), "too old for the device 'mps'",
         "torch 1.12", "in another form"),
        (frames((SCRIPT, "main", "d = torch.device(name)")) + KINDS.format("gpu"), "does not know the device 'gpu'",
         "in another form", "torch 1.12"),
        (frames((MAC, "main", "a = arguments()")) + NO_BF16, "bf16 was requested on a Mac", "bf16=False", "Ampere"),
        (frames((SCRIPT, "main", "a = arguments()")) + NO_BF16, "bf16 was requested, but the GPUs", "Ampere", "Mac"),
    ],
)  # fmt: skip
def test_machines_and_releases(log: str, title: str, words: str, absent: str, tmp_path: Path) -> None:
    _, shown, text = explained(tmp_path, log)
    assert title in shown and words in text and absent not in f"{shown} {text}", (shown, text)


STORAGE = "RuntimeError: The tensor has a non-zero number of elements, but its data is not allocated yet.\n"
NOT_FOUND = "AttributeError: Can't get attribute 'Net' on <module '{}' from '/w/test.py'>\n"
RECOMPUTED = (
    "torch.utils.checkpoint.CheckpointError: torch.utils.checkpoint: A different number of tensors was saved during "
    "the original forward and recomputation.\n"
)
HALF = "RuntimeError: \"{}\" not implemented for 'Half'\n"
NO_TOOLKIT = "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.\n"


@pytest.mark.parametrize(
    ("log", "title", "words", "absent"),
    [
        # Sizes of a model in one process are not divided among ranks.
        (frames((SCRIPT, "forward", "check_length(t)"))
         + "AssertionError: sequence length 100 must be divisible by chunk size 16\n",
         "not a multiple of the number that this model divides it by", "F.pad", "context parallelism"),
        (frames((SCRIPT, "main", "check(args)")) + "AssertionError: seq-length should be a multiple of 2 * "
         "context-parallel-size if context-parallel-size > 1.\n", "over the ranks that share a sequence",
         "context parallelism", "F.pad"),
        # A tensor without memory is not always a shard.
        (frames((SCRIPT, "scan", "return _C.scan(x)")) + STORAGE, "a shape but no memory", "custom_op", "FSDP.summ"),
        (frames((SCRIPT, "scan", "y = model.head(x)"), ("torch/distributed/fsdp/_utils.py", "f", "x")) + STORAGE,
         "outside of the sharded model's forward", "register_fsdp", "custom_op"),
        # Classes of a script that was started, and of one that a worker imports.
        (frames((SCRIPT, "main", "net = torch.load(p)")) + NOT_FOUND.format("__main__"),
         "needs the class or function Net of the script that wrote it", "state_dict", "pip check"),
        (frames((SCRIPT, "main", "reduction.pickle.load(f)")) + NOT_FOUND.format("__mp_main__"),
         "a process that the script starts does not find Net", "num_workers=0", "pip check"),
        (frames((SCRIPT, "main", "net = torch.load(p)")) + NOT_FOUND.format("models.old"),
         "a saved file needs models.old", "pip check", "num_workers"),
        # A Mac has no CUDA.
        (frames((MAC, "main", "e = CUDAExtension('x', s)")) + NO_TOOLKIT, "on a Mac, which has no CUDA", "without CUDA",
         "conda install"),
        (frames((SCRIPT, "main", "e = CUDAExtension('x', s)")) + NO_TOOLKIT, "there is no CUDA toolkit", "CUDA_HOME",
         "Mac"),
        # fp16 on the CPU.
        (HALF.format("addmm_impl_cpu_"), "for the type Half on the CPU", "float", "two tensors"),
        (frames((SCRIPT, "main", "y = x.cumsum(0)")) + HALF.format("cumsum_cuda_kernel"), "type Half on a GPU", "",
         "on the CPU, and this torch"),
        # Gradient checkpointing of a script's own.
        (frames((SCRIPT, "main", "loss.backward()")) + RECOMPUTED, "computed something else the second time",
         "random.random()", "use_cache"),
        (frames((SCRIPT, "main", "trainer.train()"), ("transformers/trainer.py", "train", "loss.backward()"))
         + RECOMPUTED,
         "computed different values", "use_cache", "random.random()"),
        # A C++ exception has no traceback of Python.
        ("terminate called after throwing an instance of 'std::runtime_error'\n  what():  no memory for the scene\n",
         "no memory for the scene", "gdb", "its last frame"),
        # A table of pandas.
        (frames((SCRIPT, "main", "X = df[:, 1:]"), ("pandas/core/frame.py", "__getitem__", "self.columns.get_loc(key)"))
         + "pandas.errors.InvalidIndexError: (slice(None, None, None), slice(1, None, None))\n", "a table of pandas",
         ".iloc", "tokenizer"),
        (frames((SCRIPT, "main", "y = out[0:30]")) + "KeyError: slice(0, 30, None)\n", "a dict or a table", "tokenizer",
         "table of pandas is sliced"),
    ],
)  # fmt: skip
def test_one_process_and_other_programs(log: str, title: str, words: str, absent: str, tmp_path: Path) -> None:
    _, shown, text = explained(tmp_path, log)
    assert title in shown and words in text and absent not in f"{shown} {text}", (shown, text)


ELEMENT = "TypeError: expected Tensor as element 0 in argument 0, but got {}\n"
NO_WINDOW = (
    "cv2.error: OpenCV(4.8.0) window.cpp:1272: error: (-2:Unspecified error) The function is not implemented. Rebuild "
    "the library with Windows, GTK+ 2.x or Cocoa support.\n"
)


@pytest.mark.parametrize(
    ("log", "title", "words", "absent"),
    [
        # What a list of tensors holds: rewards are no rows of a dataset, and a number of numpy is no array.
        (frames((SCRIPT, "learn", "r = torch.stack(self.rewards)")) + ELEMENT.format("float"), "a plain number (float)",
         "torch.tensor(items)", "set_format"),
        (frames((SCRIPT, "learn", "r = torch.cat(self.rewards)")) + ELEMENT.format("numpy.float64"),
         "a plain number (numpy.float64)", "torch.tensor(items)", "from_numpy"),
        (frames((SCRIPT, "learn", "r = torch.cat(parts)")) + ELEMENT.format("numpy.ndarray"), "a NumPy array",
         "from_numpy", "plain number"),
        (frames((SCRIPT, "main", "for b in loader:"), ("transformers/data/data_collator.py", "f", "torch.stack(x)"))
         + ELEMENT.format("list"), "is a list", "set_format", "plain number"),
        # exp() of what is no loss.
        (frames((SCRIPT, "accept", "p = math.exp(-d / t)")) + "OverflowError: math range error\n", "too large for a",
         "math.exp(min(x, 700))", "clip_grad"),
        (frames((SCRIPT, "show", "ppl = math.exp(loss)")) + "OverflowError: math range error\n", "too large for a",
         "clip_grad", "probability"),
        # An OpenCV without windows, a Qt of another package, and a machine without a screen.
        (frames((SCRIPT, "main", "cv2.imshow('a', x)")) + NO_WINDOW, "OpenCV has no windows", "pip uninstall", "xvfb"),
        ('Could not load the Qt platform plugin "cocoa" in "" even though it was found.\n', "different releases of Qt",
         "QT_DEBUG_PLUGINS", "xvfb"),
        ("_tkinter.TclError: no display name and no $DISPLAY environment variable\n", "no screen", "xvfb",
         "QT_DEBUG_PLUGINS"),
    ],
)  # fmt: skip
def test_lists_exponents_and_windows(log: str, title: str, words: str, absent: str, tmp_path: Path) -> None:
    _, shown, text = explained(tmp_path, log)
    assert title in shown and words in text and absent not in f"{shown} {text}", (shown, text)


DEVICE = "RuntimeError: Invalid device string: '{}'\n"
SEED = ("torch/random.py", "manual_seed", "seed = int(seed)")
NOT_USED = "RuntimeError: It looks like your LightningModule has parameters that were not used in producing the loss\n"


@pytest.mark.parametrize(
    ("log", "title", "words", "absent"),
    [
        (frames((SCRIPT, "main", "x.to(d)")) + DEVICE.format("cuda:0,1"), "names several devices", "DataParallel",
         "another form"),
        (frames((SCRIPT, "main", "x.to(d)")) + DEVICE.format("cuda:x"), "'cuda:x' is not a device", "another form",
         "DataParallel"),
        (frames((SCRIPT, "main", "torch.manual_seed(args.seed)"), SEED)
         + "TypeError: int() argument must be a string or a number, not 'NoneType'\n", "the seed is None",
         "if seed is not None", "int(seed))"),
        (frames((SCRIPT, "main", "torch.manual_seed(args.seed)"), SEED)
         + "ValueError: invalid literal for int() with base 10: 'a'\n", "a seed is not a whole number", "int(seed))",
         "if seed is not None"),
        (frames((SCRIPT, "main", "trainer.fit(m)")) + NOT_USED, "the LightningModule has parameters that get no",
         "ddp_find_unused_parameters_true", "Kwargs"),
        ("RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.\n",
         "the model has parameters that get no gradient", "find_unused_parameters=True", "Lightning"),
    ],
)  # fmt: skip
def test_seeds_and_devices(log: str, title: str, words: str, absent: str, tmp_path: Path) -> None:
    _, shown, text = explained(tmp_path, log)
    assert title in shown and words in text and absent not in f"{shown} {text}", (shown, text)
