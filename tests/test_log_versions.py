"""checks/_version_changes.py, _version_skew.py, _skew_meanings.py: which release has it, and which package to move?

The tracebacks are written here.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from mgpu.engine import root_cause
from mgpu.readers.log import read

tables: Any = importlib.import_module("mgpu.checks._version_changes")
of_data: Any = importlib.import_module("mgpu.checks._version_changes_data")
of_megatron: Any = importlib.import_module("mgpu.checks._version_changes_megatron")
later: Any = importlib.import_module("mgpu.checks._version_changes_2026")
of_trainers: Any = importlib.import_module("mgpu.checks._version_changes_trainers")
skew: Any = importlib.import_module("mgpu.checks._version_skew")
SCRIPT = "/home/ada/train.py"
INSTALLED = "/opt/env/lib/python3.11/site-packages"


def traceback(error: str, *files: str) -> str:
    """A traceback through these files; a name without a slash is an installed package."""
    paths = [one if "/" in one else f"{INSTALLED}/{one}/core.py" for one in files]
    frames = "".join(f'  File "{path}", line 7, in run\n    call()\n' for path in paths)
    return f"Traceback (most recent call last):\n{frames}{error}\n"


def explained(tmp_path: Path, text: str) -> tuple[str, str]:
    """The title of the first cause, and all of its fixes' texts and commands."""
    path = tmp_path / "run.log"
    path.write_text(text, "utf-8")
    first = root_cause.find_cause(read.read_logs([path]), None).first
    assert first is not None and first.outcome.problem is not None
    problem = first.outcome.problem
    return problem.title, " | ".join(word for fix in problem.fixes for word in (fix.text, *fix.commands))


def test_every_line_of_the_tables_is_well_formed() -> None:
    for line in (tables.CHANGES.strip() + of_megatron.CHANGES).strip().splitlines():
        package, release, sign, *items = line.split()
        assert (
            package in tables.PAGES | of_megatron.PAGES
            and re.fullmatch(r"\d+\.\d+", release)
            and sign in "+-"
            and items
        ), line
    for line in f"{tables.CHANGES}{later.CHANGES}{of_trainers.CHANGES}{of_data.CHANGES}".split("\n"):
        if not line:
            continue
        package, release, sign, *items = line.split()
        assert package in skew.PAGES and re.fullmatch(r"\d+\.\d+(?:\.\d+)?", release) and sign in "+-" and items, line
        for item in items:
            assert re.fullmatch(r"(?:/[\w.]+|\*|[\w-]+(?:\.\w+)*(?:\([\w,]+\))?)(?:@\w+)?(?:=[\w.()]+)?", item), item
    for line in f"{tables.MODELS}{later.MODELS}".split("\n"):
        if not line:
            continue
        assert re.fullmatch(r"\d\.\d+( \w+)+", line), line
    for words in (
        one for table in (tables, later, of_megatron, of_trainers, of_data) for one in table.RELEASED.values()
    ):
        assert re.fullmatch(r"(?:\d+\.\d+(?:\.\d+)? 20\d\d-\d\d ?)+", words)
    assert len(list(skew._changes())) > 450


def test_what_was_added_and_removed_has_both_releases_in_order() -> None:
    for what, found in skew._table().items():
        for known in found:
            assert known.added or known.removed, what
            if known.added and known.removed:
                order = [tuple(map(int, release.split("."))) for release in (known.added, known.removed)]
                assert order == sorted(order), what


@pytest.mark.parametrize(
    ("error", "files", "title", "fix"),
    [
        ("TypeError: Trainer.__init__() got an unexpected keyword argument 'tokenizer'", (SCRIPT, "trl"),
         "trl is too old for the installed transformers: transformers 5.0 (2026-01) removed the argument tokenizer of "
         "Trainer()", "pip install --upgrade trl"),
        ("TypeError: SFTTrainer.__init__() got an unexpected keyword argument 'tokenizer'", (SCRIPT,),
         "trl 0.16 (2025-03) removed the argument tokenizer of SFTTrainer()", "Use processing_class instead."),
        ("TypeError: _UnslothSFTTrainer.__init__() got an unexpected keyword argument 'max_seq_length'", (SCRIPT,),
         "trl 0.13 (2024-12) removed the argument max_seq_length", "pip install 'trl<0.13'"),
        ("TypeError: KTOConfig.__init__() got an unexpected keyword argument 'use_liger_loss'", (SCRIPT,),
         "trl 0.28 (2026-02) removed the argument use_liger_loss of KTOConfig()", "Use use_liger_kernel instead."),
        ("ModuleNotFoundError: No module named 'swift.llm'", (SCRIPT,),
         "ms-swift 4.0 (2026-03) removed the module swift.llm", "pip install 'ms-swift<4.0'"),
        ("AttributeError: type object 'Trainer' has no attribute 'add_argparse_args'", (SCRIPT,),
         "pytorch-lightning 2.0 (2023-03) removed the attribute add_argparse_args", "LightningCLI"),
        ("ModuleNotFoundError: No module named 'transformers.modeling_attn_mask_utils'", (SCRIPT,),
         "transformers 5.24 (2026-11) removed the module", "transformers.masking_utils"),
        ("TypeError: Accelerator.unwrap_model() got an unexpected keyword argument 'keep_torch_compile'",
         (SCRIPT, "transformers"), "the installed accelerate is too old: accelerate 1.3 (2025-01) added",
         "pip install 'accelerate>=1.3'"),
        ("TypeError: MyTrainer.compute_loss() got an unexpected keyword argument 'num_items_in_batch'",
         (SCRIPT, "transformers"), "which transformers passes since 4.46", "**kwargs"),
        ("TypeError: __init__() got an unexpected keyword argument 'evaluation_strategy'", (SCRIPT,),
         "transformers 4.51 (2025-04) removed the argument evaluation_strategy", "Use eval_strategy instead."),
        ("TypeError: Frobnicator.__init__() got an unexpected keyword argument 'x'", (SCRIPT, "verl", "vllm"),
         "the installed vllm does not fit the code that uses it", "pip show vllm verl"),
        ("TypeError: Accelerator.__init__() got an unexpected keyword argument 'nonsense'", (SCRIPT, "trl"),
         "the installed trl and accelerate do not fit", "pip install --upgrade trl accelerate"),
        ("TypeError: TrainingArguments.__init__() got an unexpected keyword argument 'warmup_ratio'", (SCRIPT,),
         "transformers 5.15 (2026-08) removed the argument warmup_ratio", "Use warmup_steps instead."),
        ("ImportError: cannot import name 'is_fsdp_enabled' from 'transformers.integrations.fsdp' (/x/fsdp.py)",
         (SCRIPT, "peft"), "peft is too old for the installed transformers: transformers 5.14 (2026-07) removed",
         "What changed: https://github.com/huggingface/transformers/releases/tag/v5.14.0"),
        ("ModuleNotFoundError: No module named 'diffusers.models.unet_2d_condition'", (SCRIPT,),
         "diffusers 0.29 (2024-06) removed the module diffusers.models.unet_2d_condition", "diffusers.models.unets"),
        ("TypeError: AdamW8bit.__init__() got an unexpected keyword argument 'percentile_clipping'", (SCRIPT,),
         "bitsandbytes 0.50 (2026-07) removed the argument percentile_clipping", "pip install 'bitsandbytes<0.50'"),
        ("KeyError: 'deepseek_v4'", (SCRIPT, "transformers"), "too old for deepseek_v4 models: transformers 5.8",
         "pip install 'transformers>=5.8'"),
        ("AttributeError: 'DeepSpeedZeRoOffload' object has no attribute '_register_hooks_recursively'",
         (SCRIPT, "transformers", "trl"),
         "trl is too old for the installed deepspeed: deepspeed 0.16.4 (2025-02) removed", "'deepspeed<0.16.4'"),
        ("AttributeError: 'UnslothGRPOTrainer' object has no attribute '_get_per_token_logps'",
         (SCRIPT, "transformers", "unsloth_compiled_cache"),
         "unsloth is too old for the installed trl: trl 0.20 (2025-07) removed", "pip install --upgrade unsloth"),
        ("TypeError: helper() got an unexpected keyword argument 'x'", (SCRIPT,),
         "your call at train.py:7 in run passes x to helper()", "grep -n helper train.py"),
        ("AttributeError: 'LlamaForCausalLM' object has no attribute '_is_quantized_training_enabled'",
         (SCRIPT, "trl", "torch"), "trl is too old for the installed transformers", "pip install --upgrade trl"),
        ("AttributeError: 'GRPOConfig' object has no attribute 'num_iterations'. Did you mean: 'num_generations'?",
         (SCRIPT,), "the installed trl is too old: trl 0.16 (2025-03) added", "pip install 'trl>=0.16'"),
        ("TypeError: Trainer.init() got an unexpected keyword argument 'tokenizer'", (SCRIPT,),
         "transformers 5.0 (2026-01) removed the argument tokenizer", "Use processing_class instead."),
        ("TypeError: Params4bit.__new__() got an unexpected keyword argument '_is_hf_initialized'",
         (SCRIPT, "transformers"), "the installed transformers and bitsandbytes do not fit",
         "pip install --upgrade transformers bitsandbytes"),
        ("ValueError: Some specified arguments are not used by the HfArgumentParser: ['--evaluation_strategy', 'no']",
         (SCRIPT, "transformers"), "transformers 4.51 (2025-04) removed the option --evaluation_strategy",
         "Use eval_strategy instead."),
        ("ImportError: cannot import name 'HybridCache' from 'transformers' (/x/transformers/__init__.py)",
         (SCRIPT, "peft"), "peft is too old for the installed transformers: transformers 5.0", "upgrade peft"),
        ("ImportError: cannot import name 'Qwen3MoeForCausalLM' from 'transformers' (/x/__init__.py)", (SCRIPT,),
         "the installed transformers is too old: transformers 4.51 (2025-04) added",
         "pip install 'transformers>=4.51'"),
        ("ImportError: cannot import name 'AttrsDescriptor' from 'triton.compiler.compiler' (/x/c.py)",
         (SCRIPT, "torch"), "torch and triton do not fit", "pip install --force-reinstall torch"),
        ("ImportError: cannot import name 'Mapping' from 'collections' (/x/__init__.py)", (SCRIPT, "oldlib"),
         "this Python version has no collections.Mapping", "pip show oldlib"),
        ("ImportError: cannot import name 'ModelX' from 'vllm.model_executor' (/x/__init__.py)", (SCRIPT, "verl"),
         "the installed verl and vllm do not fit", "pip install --upgrade verl vllm"),
        ("ModuleNotFoundError: No module named 'transformers.models.gemma3'", (SCRIPT,),
         "transformers 4.50 (2025-03) added the module", "transformers>=4.50"),
        ("ModuleNotFoundError: No module named 'torch._six'", (SCRIPT, "deepspeed"),
         "deepspeed is too old for the installed torch", "pip install --upgrade deepspeed"),
        ("TypeError: GPTModel.__init__() got an unexpected keyword argument 'model_comm_pgs'", (SCRIPT, "mbridge"),
         "mbridge is too old for the installed megatron-core: megatron-core 0.15 (2025-12) removed",
         "pip install --upgrade mbridge"),
        ("TypeError: MLATransformerConfig.__init__() got an unexpected keyword argument 'softmax_type'",
         (SCRIPT, "mbridge"), "the installed megatron-core is too old: megatron-core 0.15 (2025-12) added",
         "pip install 'megatron-core>=0.15'"),
        ("ModuleNotFoundError: No module named 'megatron.training'", (SCRIPT, "swift"),
         "megatron.training is not part of the package megatron-core", "PYTHONPATH=$PWD/Megatron-LM"),
        ("ModuleNotFoundError: No module named 'megatron.bridge'", (SCRIPT,), "megatron-bridge is not installed",
         "pip install megatron-bridge"),
        ("ModuleNotFoundError: No module named 'megatron.core.datasets.helpers_cpp'", (SCRIPT, "megatron"),
         "Megatron's dataset helpers are not compiled", "make -C"),
        ("ImportError: cannot import name 'helpers' from 'megatron.data' (/srv/Megatron-LLM/megatron/data/__init__.py)",
         (SCRIPT,), "Megatron's dataset helpers are not compiled", "make -C megatron/data"),
        ("AttributeError: module 'transformer_engine' has no attribute 'pytorch'", (SCRIPT, "megatron"),
         "without its part for torch", "transformer-engine[pytorch]"),
        ("AttributeError: 'TransformerConfig' object has no attribute 'softmax_type'", (SCRIPT,),  # the script's own
         "an object of the class TransformerConfig has no attribute softmax_type", "pip check"),
        ("AssertionError: no_sync context manager is incompatible with gradient partitioning logic of ZeRO stage 3",
         (SCRIPT, "accelerate", "deepspeed"), "too old for this DeepSpeed", "pip install 'deepspeed<0.16'"),
        ("ModuleNotFoundError: No module named 'sklearn'", (SCRIPT,), "not installed in this environment: sklearn",
         "python -m pip install scikit-learn"),
        ("ModuleNotFoundError: No module named 'amp_C'", (SCRIPT, "apex"), "apex is installed without its compiled "
                                                                           "part",
         "github.com/NVIDIA/apex"),
        ("ModuleNotFoundError: No module named 'flash_attn_2_cuda'", (SCRIPT, "flash_attn"),
         "flash-attn is installed without its compiled part", "--no-deps --no-build-isolation"),
        ("ValueError: The checkpoint you are trying to load has model type `gpt_oss` but Transformers does not "
         "recognize "
         "this architecture.", (SCRIPT, "transformers"), "transformers 4.55 (2025-08) is the first release with them",
         "pip install 'transformers>=4.55'"),
        ("ImportError: tokenizers>=0.21,<0.22 is required for a normal functioning of this module, but found "
         "tokenizers==0.20.0.", (SCRIPT, "transformers"), "requires tokenizers>=0.21,<0.22, but tokenizers==0.20.0.",
         "pip install 'tokenizers>=0.21,<0.22'"),
    ],
)  # fmt: skip
def test_the_package_to_move_is_named(tmp_path: Path, error: str, files: tuple[str, ...], title: str, fix: str) -> None:
    said, fixes = explained(tmp_path, traceback(error, *files))
    assert title in said
    assert fix in fixes


def test_no_fix_names_a_module_as_if_it_were_a_package(tmp_path: Path) -> None:
    error = "ImportError: cannot import name 'nothing' from 'some_package.deep.module' (/e/site-packages/x/module.py)"
    _, fixes = explained(tmp_path, traceback(error, SCRIPT))
    assert "pip show" not in fixes and "import some_package.deep.module as m" in fixes
    error = "ImportError: cannot import name 'nothing' from 'megatron.core.module' (/x/module.py)"
    _, fixes = explained(tmp_path, traceback(error, SCRIPT))
    assert "pip show megatron-core" in fixes and "megatron.core" not in fixes


def test_what_the_script_was_doing_changes_the_meaning(tmp_path: Path) -> None:
    sizes = "RuntimeError: The size of tensor a (10) must match the size of tensor b (12) at non-singleton dimension 0"
    frame = '  File "/home/ada/train.py", line 7, in {}\n    call()\n'
    head = "Traceback (most recent call last):\n"
    said = [explained(tmp_path, f"{head}{frame.format(name)}{sizes}\n")[0] for name in ("load_weights", "step")]
    assert said[0].startswith("the checkpoint does not fit the model") and said[1].startswith("two tensors")
    full = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 79 GiB"
    texts = [explained(tmp_path, f"{head}{frame.format(name)}{full}\n") for name in ("load_model", "step")]
    assert texts[0][0] == "a GPU's memory is full while the model is loaded" and "batch" not in texts[0][1]
    assert texts[1][0] == "a GPU's memory is full" and "batch" in texts[1][1]


SHARDED = "got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling"


@pytest.mark.parametrize(
    ("error", "packages", "title", "fix"),
    [
        (f"RuntimeError: aten._foreach_mul_.Tensor: {SHARDED}", ("accelerate",), "gradient clipping mixes", "foreach"),
        (f"RuntimeError: aten._foreach_lerp_.Scalar: {SHARDED}", (), "a copy of the weights (EMA", "to_local()"),
        (f"RuntimeError: aten._fused_adamw_.default: {SHARDED}", (), "the optimizer's step mixes", "fused=False"),
        (f"RuntimeError: aten.mm.default: {SHARDED}", (), "aten.mm.default got a sharded tensor", "full_tensor()"),
        ("AssertionError: found no DeviceMesh from dtensor args for c10d.broadcast_.default!", ("nemo_rl", "torch"),
         "a collective got a sharded tensor (DTensor)", "to_local()"),
        ("AssertionError: found no DeviceMesh from dtensor args for c10d.broadcast_.default!", ("accelerate", "torch"),
         "a model that is already sharded (DTensor) was given to DDP", "tp_plan"),
        ("RuntimeError: The size of tensor a (16256) must match the size of tensor b (65024) at dimension 0",
         ("megatron",), "4 times as large", "Pad sequences to a multiple of 4"),
        ("RuntimeError: The size of tensor a (0) must match the size of tensor b (4096) at dimension 1", ("deepspeed",),
         "a parameter or gradient of size 0 was used", "ZeRO-2"),
        ("ValueError: hidden_size (100) must be divisible by num_heads (12)", ("transformers",),
         "a size cannot be divided evenly", "Change one of the two sizes"),
        ("KeyError: 'OMPI_COMM_WORLD_RANK'", (), "expects to be started by mpirun", "mpirun -np"),
        ("KeyError: 'NODE_RANK'", (), "NODE_RANK is not set: torchrun, accelerate and deepspeed do not", "GROUP_RANK"),
        ("torch._dynamo.exc.TorchRuntimeError: Dynamo failed to run FX node with fake tensors: call_function f(*(x)): "
         "got RuntimeError('bad shapes')", ("torch",), "while tracing: RuntimeError('bad shapes')", "DYNAMO_DISABLE"),
    ],
)  # fmt: skip
def test_the_traceback_and_the_operator_say_what_was_sharded_or_missing(
    tmp_path: Path, error: str, packages: tuple[str, ...], title: str, fix: str
) -> None:
    arguments = "--tensor-model-parallel-size 4\n"  # a split over ranks is said only with these
    said, fixes = explained(tmp_path, arguments + traceback(error, SCRIPT, *packages))
    assert title in said
    assert fix in fixes


def test_an_assertion_without_a_message_is_shown_by_its_code(tmp_path: Path) -> None:
    file = "/opt/Megatron-LM/megatron/training/arguments.py"
    text = f'Traceback (most recent call last):\n  File "{file}", line 9, in validate_args\n'
    title, _ = explained(tmp_path, f"{text}    assert args.max_length >= args.seq_length\nAssertionError\n")
    assert title == "Megatron rejects the combination of arguments: args.max_length must be at least args.seq_length"


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("gcs_rpc_client.h:151: Failed to connect to GCS at address :6379 within 5 seconds.",
         "the address of Ray's head node has no host: :6379"),
        ("gcs_rpc_client.h:151: Failed to connect to GCS at address 10.0.0.1:6379 within 5 seconds.",
         "Ray's head node cannot be reached at 10.0.0.1:6379"),
    ],
)  # fmt: skip
def test_an_address_without_a_host_is_said(tmp_path: Path, line: str, title: str) -> None:
    assert explained(tmp_path, f"starting\n{line}\n")[0] == title


LOST = "ImportError: cannot import name 'log' from 'torch.distributed.elastic.agent.server.api' (/x/api.py)"
TOKENIZER = "TypeError: SFTTrainer.__init__() got an unexpected keyword argument 'tokenizer'"


def decorated(error: str, file: str, function: str) -> str:
    """A traceback from the script through one frame of a package, which only passes the arguments on."""
    frame = f'  File "{INSTALLED}/{file}", line 9, in {function}\n    return func(*args, **kwargs)\n'
    return traceback(frame + error, SCRIPT)


@pytest.mark.parametrize(
    ("file", "function"),
    [
        ("transformers/utils/deprecation.py", "wrapped_func"),
        ("huggingface_hub/utils/_deprecation.py", "inner_f"),
        ("unsloth/trainer.py", "new_init"),
        ("transformers/hf_argparser.py", "parse_dict"),
        ("hydra/_internal/instantiate/_instantiate2.py", "_call_target"),
    ],
)
def test_a_frame_that_passes_arguments_on_is_not_the_caller(tmp_path: Path, file: str, function: str) -> None:
    title, fixes = explained(tmp_path, decorated(TOKENIZER, file, function))
    assert title.startswith("trl 0.16 (2025-03) removed the argument tokenizer of SFTTrainer()")
    assert fixes.startswith("Change the script. Use processing_class instead.") and "upgrade transformers" not in fixes


def test_the_exception_of_another_caller_is_not_used(tmp_path: Path) -> None:
    chained = "\nDuring handling of the above exception, another exception occurred:\n\n"
    text = traceback(TOKENIZER, SCRIPT) + chained + traceback("RuntimeError: no trainer", SCRIPT, "accelerate")
    assert "accelerate is too old" not in explained(tmp_path, text)[0]


@pytest.mark.parametrize(
    ("error", "files", "title"),
    [
        ("AttributeError: 'TinyNet' object has no attribute 'encoder'", (SCRIPT, "torch"),
         "train.py:7 in run raised AttributeError: 'TinyNet' object has no attribute 'encoder'"),
        ("AttributeError: 'TinyNet' object has no attribute 'encoder'", (SCRIPT, "accelerate", SCRIPT, "torch"),
         "train.py:7 in run raised AttributeError"),
        ("AttributeError: 'TinyNet' object has no attribute 'tokenizer'", (SCRIPT, "torch"),
         "an object of the class TinyNet has no attribute tokenizer"),
        ("AttributeError: 'TinyNet' object has no attribute 'sample'", (SCRIPT,),
         "an object of the class TinyNet has no attribute sample"),
        ("AttributeError: 'TinyTrainer' object has no attribute 'tokenizer'", (SCRIPT,),
         "transformers 5.0 (2026-01) removed the attribute tokenizer"),
        ("AttributeError: 'DistributedDataParallel' object has no attribute 'config'", (SCRIPT, "torch"),
         "the script reads .config from the wrapper DistributedDataParallel"),
        ("AttributeError: 'TinyNet' object has no attribute 'gadget'", (SCRIPT, "transformers", "torch"),
         "transformers reads an attribute that an object of the class TinyNet does not have"),
        ("TypeError: TinyNet.forward() missing 1 required positional argument: 'mask'", (SCRIPT, "torch"),
         "train.py:7 in run raised TypeError"),
        ("TypeError: TinyNet.forward() got an unexpected keyword argument 'cache_position'", (SCRIPT, "torch"),
         "TinyNet.forward() does not accept the argument cache_position"),
    ],
)  # fmt: skip
def test_an_object_of_the_script_is_not_another_version(
    tmp_path: Path, error: str, files: tuple[str, ...], title: str
) -> None:
    said, fixes = explained(tmp_path, traceback(error, *files))
    assert said.startswith(title)
    assert "show torch" not in fixes


@pytest.mark.parametrize(
    "text",
    [LOST + "\n", traceback(LOST, SCRIPT, "accelerate", "deepspeed"), traceback(LOST, SCRIPT, "deepspeed", "torch")],
)
def test_the_package_that_imports_what_torch_removed_is_upgraded_first(tmp_path: Path, text: str) -> None:
    title, fixes = explained(tmp_path, text)
    assert title.startswith("deepspeed is too old for the installed torch: torch 2.4 removed")
    assert fixes.startswith("Upgrade deepspeed") and "pip install --upgrade deepspeed" in fixes


def test_an_unknown_name_of_torch_does_not_move_torch(tmp_path: Path) -> None:
    error = "ImportError: cannot import name '_gone' from 'torch.distributed.nowhere' (/x/nowhere.py)"
    fixes = explained(tmp_path, traceback(error, SCRIPT, "deepspeed"))[1]
    assert fixes.startswith("Upgrade deepspeed") and "pip install --upgrade deepspeed |" in fixes
    assert fixes.endswith("pip check")


def test_names_that_differ_do_not_make_a_checkpoint_wrong(tmp_path: Path) -> None:
    error = "RuntimeError: Missing key in checkpoint state_dict: model.base_model.layers.0.weight."
    title, fixes = explained(tmp_path, traceback(error, SCRIPT, "accelerate", "torch"))
    assert "has no entry model.base_model.layers.0.weight" in title, fixes


def test_a_mismatched_optimizer_is_not_one_ranks_data(tmp_path: Path) -> None:
    error = "ValueError: 8-bit optimizer holds 3 parameters that the wrapped model lacks"
    text = "[rank0]: step 1\n" + "".join(
        f"[rank1]: {line}\n" for line in traceback(error, SCRIPT, "accelerate").split("\n")
    )
    path = tmp_path / "run.log"
    path.write_text(text, "utf-8")
    first = root_cause.find_cause(read.read_logs([path]), None).first
    assert first is not None and first.outcome.problem is not None
    assert "share of the data" not in first.outcome.problem.cause
    assert not any("batch" in fix.text for fix in first.outcome.problem.fixes)


def test_the_packages_of_a_traceback_are_read(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(traceback("ValueError: x", SCRIPT, "trl", "trl", "transformers", SCRIPT), "utf-8")
    assert read.read_logs([path]).raised[0].packages == ("", "trl", "transformers", "")


@pytest.mark.parametrize(
    ("module", "frames", "title"),
    [
        (
            "numpy._core",
            [("numpy/lib/format.py", "array = pickle.load(fp, **pickle_kwargs)")],
            "saved with another numpy (2.0 or newer): its objects are of numpy._core, which the installed numpy, older "
            "than 1.26, does not have",
        ),
        (
            "numpy._core.multiarray",
            [("torch/serialization.py", "return super().find_class(mod_name, name)")],
            "saved with another numpy (2.0 or newer)",
        ),
        ("numpy._core", [], "saved with another numpy (2.0 or newer)"),  # the script's own pickle.load
        (
            "pandas.core.indexes.numeric",
            [("pandas/io/pickle.py", "return pickle.load(handles.handle)")],
            "a file that the run loads was saved with another pandas: its objects are of pandas.core.indexes.numeric",
        ),
    ],
)
def test_a_module_of_a_saved_object_is_not_an_incomplete_installation(
    tmp_path: Path, module: str, frames: list[tuple[str, str]], title: str
) -> None:
    inner = "".join(f'  File "{INSTALLED}/{path}", line 3, in load\n    {code}\n' for path, code in frames)
    text = (
        f'Traceback (most recent call last):\n  File "{SCRIPT}", line 7, in main\n    rows = pickle.load(stream)\n'
        f"{inner}ModuleNotFoundError: No module named '{module}'\n"
    )
    found, fixes = explained(tmp_path, text)
    assert title in found
    assert "delete it: it is written again" in fixes and "force-reinstall" not in fixes


def test_an_import_of_the_module_is_not_of_a_saved_object(tmp_path: Path) -> None:
    line = (
        f'Traceback (most recent call last):\n  File "{SCRIPT}", line 7, in <module>\n    import numba\n'
        f'  File "{INSTALLED}/numba/np.py", line 3, in <module>\n    from numpy._core import umath\n'
        "ModuleNotFoundError: No module named 'numpy._core'\n"
    )
    assert "the installed numpy is too old" in explained(tmp_path, line)[0]
    own = line.replace("numba/np.py", "numpy/x.py")
    assert "incomplete or mixed" in explained(tmp_path, own)[0]


@pytest.mark.parametrize(
    ("error", "file"),
    [
        ("ImportError: cannot import name 'build_head' from 'src.nets' (/home/ada/src/nets.py)", "nets.py"),
        (
            "ImportError: cannot import name 'Loss' from 'mylib' (/w/mylib/__init__.py). Did you mean: 'loss'?",
            "mylib/__init__.py",
        ),
    ],
)
def test_a_name_that_a_file_of_the_project_lacks_is_no_version(tmp_path: Path, error: str, file: str) -> None:
    title, fixes = explained(tmp_path, traceback(error, SCRIPT))
    assert title.startswith(f"{file} has no ") and "train.py:7" in title
    assert "git log" in fixes and "pip" not in fixes


@pytest.mark.parametrize(
    "error",
    [
        "ImportError: cannot import name 'build' from 'somelib' (/opt/e/lib/python3.11/site-packages/somelib/x.py)",
        "ImportError: cannot import name 'Nothing9' from 'transformers' (/home/ada/transformers/src/__init__.py)",
    ],
)
def test_an_installed_or_cloned_package_is_not_the_project(tmp_path: Path, error: str) -> None:
    assert "file of the project" not in explained(tmp_path, traceback(error, SCRIPT))[0]
