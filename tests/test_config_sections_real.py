"""The tables of nested keys against the installed accelerate: the same names, the same choices, the same verdicts.

`whole_way` is what `accelerate launch` and then `Accelerator()` do with a config, short of starting anything: with it,
every key of every section is tried with values of every kind, and mgpu must say error exactly where accelerate stops.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import io
import logging
import os
import random
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import yaml

from mgpu import engine
from mgpu.config import reading
from mgpu.snapshot import DeepSpeedJson, Snapshot
from tests.conftest import CHECKS

for _package in ("accelerate", "deepspeed"):  # imported when a test runs: torch takes seconds in each worker
    if importlib.util.find_spec(_package) is None:
        pytest.skip(f"{_package} is not installed", allow_module_level=True)

schema: Any = importlib.import_module("mgpu.checks.config._schema")
deepspeed_keys: Any = importlib.import_module("mgpu.checks.config._deepspeed_keys")

# Keys that accelerate reads from a file and has no option for.
FILE_ONLY = {"fsdp_ignored_modules", "fp8_use_mxfp8_block_scaling", "bind-to"}
# Options that no config file can mean: the script, its arguments, and what only SageMaker and TPU pods use.
NOT_OURS = {
    "aws_access_key_id", "aws_secret_access_key", "config_file", "env", "help", "training_script",
    "training_script_args", "vm",
}  # fmt: skip
# Every key that `accelerate config` has written below the top level since 0.12 (git log -p of commands/config).
EVER_WRITTEN = {
    "deepspeed_config": (
        "deepspeed_config_file", "deepspeed_exclusion_filter", "deepspeed_hostfile", "deepspeed_inclusion_filter",
        "deepspeed_moe_layer_cls_names", "deepspeed_multinode_launcher", "gradient_accumulation_steps",
        "gradient_clipping", "offload_optimizer_device", "offload_optimizer_nvme_path", "offload_param_device",
        "offload_param_nvme_path", "zero3_init_flag", "zero3_save_16bit_model", "zero_stage",
    ),
    "fsdp_config": (
        "fsdp_activation_checkpointing", "fsdp_auto_wrap_policy", "fsdp_backward_prefetch",
        "fsdp_backward_prefetch_policy", "fsdp_cpu_ram_efficient_loading", "fsdp_forward_prefetch",
        "fsdp_min_num_params", "fsdp_offload_params", "fsdp_reshard_after_forward", "fsdp_sharding_strategy",
        "fsdp_state_dict_type", "fsdp_sync_module_states", "fsdp_transformer_layer_cls_to_wrap",
        "fsdp_use_orig_params", "fsdp_version", "min_num_params", "offload_params", "sharding_strategy",
        "transformer_layer_cls_to_wrap",
    ),
    "fp8_config": (
        "amax_compute_algorithm", "amax_history_length", "backend", "enable_fsdp_float8_all_gather", "fp8_format",
        "interval", "margin", "optimization_level", "override_linear_precision", "pad_inner_dim",
        "use_autocast_during_eval",
    ),
    "megatron_lm_config": tuple(
        f"megatron_lm_{name}"
        for name in (
            "gradient_clipping", "num_micro_batches", "pp_degree", "recompute_activations", "sequence_parallelism",
            "tp_degree", "use_distributed_optimizer",
        )
    ),
    "mpirun_config": ("mpirun_ccl", "mpirun_hostfile"),
    "parallelism_config": tuple(
        f"parallelism_config_{name}"
        for name in ("cp_comm_strategy", "cp_size", "dp_replicate_size", "dp_shard_size", "tp_size")
    ),
    "dynamo_config": tuple(
        f"dynamo_{name}" for name in ("backend", "mode", "use_dynamic", "use_fullgraph", "use_regional_compilation")
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def options() -> dict[str, Any]:
    from accelerate.commands.launch import launch_command_parser

    return {action.dest: action for action in launch_command_parser()._actions}


def test_every_option_of_the_launcher_has_its_place(options: dict[str, Any]) -> None:
    nested = {name for section in schema.SECTIONS for name in (*section.keys, *section.unread)}
    gone = {"fsdp_limit_all_gathers", "mpirun_ccl"}
    assert (nested - FILE_ONLY - gone) | (set(schema.LAUNCHER) - {"use_cpu"}) | NOT_OURS == set(options)


def test_the_choices_are_accelerates_own(options: dict[str, Any]) -> None:
    from accelerate.utils import constants
    from accelerate.utils.dataclasses import DynamoBackend, FP8BackendType

    assert list(schema.SHARDING) == constants.FSDP_SHARDING_STRATEGY
    assert list(schema.WRAPPING) == constants.FSDP_AUTO_WRAP_POLICY
    assert list(schema.FSDP.keys["fsdp_backward_prefetch"].choices[:3]) == constants.FSDP_BACKWARD_PREFETCH
    assert list(schema.FSDP.keys["fsdp_state_dict_type"].choices[:3]) == constants.FSDP_STATE_DICT_TYPE
    assert list(schema.LAUNCHERS) == constants.DEEPSPEED_MULTINODE_LAUNCHERS
    assert list(schema.DYNAMO_MODES) == constants.TORCH_DYNAMO_MODES
    assert set(schema.DYNAMO_BACKENDS) == {backend.value for backend in DynamoBackend}
    assert set(schema.FP8.keys["fp8_backend"].choices) == {backend.value for backend in FP8BackendType}
    for section in schema.SECTIONS:
        for name, key in section.keys.items():
            if key.kind == "choice" and name in options and options[name].choices and "backend" not in name:
                assert set(options[name].choices) <= set(key.choices), name


def test_what_is_exported_is_what_the_table_calls_read() -> None:
    from accelerate.utils import dataclasses, launch

    exported, read = inspect.getsource(launch), inspect.getsource(dataclasses)
    for name in schema.FSDP.keys:
        assert f"args.{name}" in exported or f'"{name}"' in exported, name
    for name in schema.DEEPSPEED.keys:
        assert f"args.{name}" in exported, name
    for name in schema.DEEPSPEED.unread:
        assert f"args.{name}" not in exported and name.upper() in read, name
    for name in schema.FP8.renamed:
        assert f'"{name.removeprefix("fp8_").upper()}"' not in read, name
    for name in schema.FP8.renamed.values():
        assert f'"{name.removeprefix("fp8_").upper()}"' in read, name


def test_everything_its_wizard_writes_or_ever_wrote_is_known() -> None:
    from accelerate.commands.config import cluster

    written: dict[str, set[str]] = {name: set(keys) for name, keys in EVER_WRITTEN.items()}
    for name, prefixed, key in re.findall(r'(\w+_config)\[(prefix \+ )?"(\w+)"\]', inspect.getsource(cluster)):
        section = next(section for section in schema.SECTIONS if section.name == name)
        written[name].add(section.prefix + key if prefixed else key)
    for section in schema.SECTIONS:
        names = {section.canonical(key) for key in written[section.name]}
        assert names <= {*section.keys, *section.renamed, *section.unread}, section.name


# --- the same verdict --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _as_on_a_gpu_machine() -> Iterator[None]:
    """No GPU, no fp8 library and no transformers are needed for the question what a config means."""
    import torch
    from accelerate.utils import dataclasses, launch

    def yes(*_: Any, **__: Any) -> bool:
        return True

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ))
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        for module, names in (
            (launch, ("is_fp8_available",)),
            (dataclasses, ("is_cuda_available", "is_transformer_engine_available", "compare_versions")),
        ):
            for name in names:
                stack.enter_context(mock.patch.object(module, name, yes))
        stack.enter_context(mock.patch.object(launch, "is_port_in_use", lambda *_: False))
        stack.enter_context(mock.patch.object(torch.cuda, "current_device", lambda: 0))
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


def whole_way(path: Path) -> str | None:
    """None, or what accelerate stops with."""
    try:
        with _as_on_a_gpu_machine():
            _go(path)
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return None


def _go(path: Path) -> None:
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils import launch

    args = launch_command_parser().parse_args(["--config_file", str(path), "train.py"])
    args, defaults, precision_of_file = _validate_launch_command(args)
    if args.use_deepspeed:
        fields = list(defaults.deepspeed_config.keys()) + ["mixed_precision"] * precision_of_file
        args.deepspeed_fields_from_accelerate_config = ",".join(fields)
        _, env = launch.prepare_deepspeed_cmd_env(args)
    elif args.use_fsdp or args.use_megatron_lm or args.multi_gpu:
        env = launch.prepare_multi_gpu_env(args)
    else:
        _, env = launch.prepare_simple_launcher_cmd_env(args)
    os.environ.clear()
    os.environ.update(env)  # a value that is no text stops here, as it does in the launcher
    _in_a_worker(args, env, defaults.distributed_type)


def _in_a_worker(args: Any, env: dict[str, str], kind: Any) -> None:
    import torch
    from accelerate.parallelism_config import ParallelismConfig
    from accelerate.utils import dataclasses

    compiler = dataclasses.TorchDynamoPlugin()
    if compiler.backend == "INDUCTOR":
        torch.compile(torch.nn.Identity(), mode=compiler.mode)
    if args.use_fsdp:
        dataclasses.FullyShardedDataParallelPlugin()
    if args.use_megatron_lm:
        megatron = dataclasses.MegatronLMPlugin()
        assert min(megatron.tp_degree, megatron.pp_degree, megatron.num_micro_batches) > 0  # Megatron-LM's own
        assert int(args.num_processes) % (megatron.tp_degree * megatron.pp_degree) == 0
    if args.use_deepspeed:
        plugin = dataclasses.DeepSpeedPlugin()
        plugin.set_mixed_precision(env["ACCELERATE_MIXED_PRECISION"])
        zero = importlib.import_module("deepspeed.runtime.zero.config")
        zero.DeepSpeedZeroConfig(**plugin.deepspeed_config["zero_optimization"])
        assert "auto" not in (plugin.offload_optimizer_device, plugin.offload_param_device)  # prepare() fills neither
        steps = env.get("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "1")
        assert steps == "auto" or int(steps) > 0  # Trainer replaces auto
    if env.get("ACCELERATE_USE_PARALLELISM_CONFIG") == "true":
        mesh = ParallelismConfig()
        ranks = int(args.num_processes)
        accelerator: Any = SimpleNamespace(
            multi_device=args.multi_gpu and ranks > 1, num_processes=ranks, distributed_type=kind,
            is_fsdp2=args.use_fsdp and env["FSDP_VERSION"] == "2", is_main_process=True,
        )  # fmt: skip
        mesh._validate_accelerator(accelerator)
    if env["ACCELERATE_MIXED_PRECISION"] == "fp8":
        backend = dataclasses.FP8BackendType(env.get("ACCELERATE_FP8_BACKEND", "NO"))
        recipes = {"TE": dataclasses.TERecipeKwargs, "MSAMP": dataclasses.MSAMPRecipeKwargs}
        if backend.value in recipes:
            recipes[backend.value]()
        elif backend.value == "AO":
            for name in ("PAD_INNER_DIM", "ENABLE_FSDP_FLOAT8_ALL_GATHER"):
                dataclasses.parse_flag_from_env(f"ACCELERATE_FP8_{name}", default=True)


VALUES: tuple[Any, ...] = (
    True, False, None, 0, 1, 2, 3, 4, 6, -1, 2.0, 2.5, 1e8, "2", "1", "auto", "true", "no", "on", "maybe", "", "x",
    "none", "cpu", "CPU", " 2 ", "1_000", "1e3", [True, False, False], [1], {}, "FULL_SHARD", "hybrid_shard",
    "FULLSHARD", "te", "TE", "inductor", "HYBRID", "max", "O1", "torch", "alltoall",
)  # fmt: skip
FSDP2 = {"fsdp_version": 2}
CONTEXTS: tuple[tuple[str, str, dict[str, Any], dict[str, Any]], ...] = (
    ("fsdp_config", "FSDP", {}, {}),
    ("fsdp_config", "FSDP", FSDP2, {}),
    ("fsdp_config", "FSDP", {"auto_wrap_policy": "SIZE_BASED_WRAP"}, {}),
    ("fsdp_config", "FSDP", {"fsdp_cpu_ram_efficient_loading": False}, {}),
    ("fsdp_config", "FSDP", {**FSDP2, "fsdp_activation_checkpointing": True}, {}),
    ("deepspeed_config", "DEEPSPEED", {}, {}),
    ("deepspeed_config", "DEEPSPEED", {"zero_stage": 3}, {}),
    ("megatron_lm_config", "MEGATRON_LM", {}, {}),
    ("parallelism_config", "FSDP", {}, {"fsdp_config": FSDP2}),
    ("parallelism_config", "FSDP", {"parallelism_config_dp_shard_size": 4}, {"fsdp_config": FSDP2}),
    ("parallelism_config", "FSDP", {"parallelism_config_tp_size": 2}, {"fsdp_config": FSDP2}),
    ("parallelism_config", "FSDP", {"parallelism_config_dp_shard_size": 4}, {}),
    ("parallelism_config", "MULTI_GPU", {"parallelism_config_dp_replicate_size": 2}, {}),
    ("parallelism_config", "DEEPSPEED", {"parallelism_config_sp_size": 4}, {}),
    ("dynamo_config", "MULTI_GPU", {}, {}),
    ("dynamo_config", "FSDP", {"dynamo_backend": "inductor"}, {}),
    ("dynamo_config", "DEEPSPEED", {"dynamo_backend": "inductor"}, {}),
    ("dynamo_config", "NO", {}, {"num_processes": 1}),
    ("fp8_config", "MULTI_GPU", {}, {"mixed_precision": "fp8"}),
    ("fp8_config", "MULTI_GPU", {"backend": "TE"}, {"mixed_precision": "fp8"}),
    ("fp8_config", "MULTI_GPU", {"backend": "MSAMP"}, {"mixed_precision": "fp8"}),
    ("fp8_config", "DEEPSPEED", {"backend": "AO"}, {"mixed_precision": "fp8"}),
    ("fp8_config", "MULTI_GPU", {"backend": "AO"}, {}),
)  # fmt: skip
BASE = {
    "compute_environment": "LOCAL_MACHINE", "num_machines": 1, "num_processes": 4, "mixed_precision": "bf16",
    "machine_rank": 0,
}  # fmt: skip


def trials() -> list[dict[str, Any]]:
    """Every key of every section in every context, with every value."""
    by_name = {section.name: section for section in schema.SECTIONS}
    return [
        {**BASE, "distributed_type": kind, **more, name: {**given, key: value}}
        for name, kind, given, more in CONTEXTS
        for key in by_name[name].keys
        for value in VALUES
    ]


def errors(path: Path) -> list[str]:
    """What mgpu calls an error, from the file alone."""
    asked = [check for check in CHECKS.values() if check.facts == ("config",)]
    found = engine.run(asked, Snapshot(config=reading.read(path)))
    return [f"{o.check.id}: {o.problem.title}" for o in found if o.problem and o.status == "fail"]


def differs(config: dict[str, Any], path: Path) -> str | None:
    """How mgpu's verdict and accelerate's differ over a config."""
    path.write_text(yaml.safe_dump(config), "utf-8")
    ours, theirs = errors(path), whole_way(path)
    return None if bool(ours) == bool(theirs) else f"{config}\n  mgpu: {ours}\n  accelerate: {theirs}"


def test_mgpu_says_error_exactly_where_accelerate_stops(tmp_path: Path) -> None:
    some = random.Random(4).sample(trials(), 600)
    found = [words for config in some if (words := differs(config, tmp_path / "accelerate.yaml"))]
    assert found == []


def test_the_schema_for_editors_has_every_key_of_accelerate() -> None:
    """`mgpu configure --schema`: the fields of ClusterConfig, and the options that the sections set."""
    import dataclasses

    from accelerate.commands.config.config_args import ClusterConfig
    from accelerate.commands.launch import launch_command_parser

    properties = engine.config_schema()["properties"]
    assert {field.name for field in dataclasses.fields(ClusterConfig)} <= set(properties)
    nested = {name for section in properties.values() for name in section.get("properties", {})}
    options = {action.dest for action in launch_command_parser()._actions}
    prefixes = ("fsdp_", "megatron_lm_", "dynamo_", "fp8_", "parallelism_config_", "zero", "deepspeed_")
    assert {name for name in options if name.startswith(prefixes)} <= nested


def test_every_field_of_zero_optimization_is_known() -> None:
    zero = importlib.import_module("deepspeed.runtime.zero.config").DeepSpeedZeroConfig
    offload = importlib.import_module("deepspeed.runtime.zero.offload_config")
    sections = {
        "offload_param": names_of(offload.DeepSpeedZeroOffloadParamConfig),
        "offload_optimizer": names_of(offload.DeepSpeedZeroOffloadOptimizerConfig),
    }
    assert "stage3_gather_16bit_weights_on_model_save" in names_of(zero) and "nvme_path" in sections["offload_param"]
    values = dict.fromkeys(names_of(zero), 1) | {name: dict.fromkeys(keys, 1) for name, keys in sections.items()}
    assert deepspeed_keys.unknown_zero_keys(DeepSpeedJson("ds.json", {"zero_optimization": values})) == []


def test_every_field_of_the_precisions_is_known() -> None:
    precisions = importlib.import_module("deepspeed.runtime.precision_config")
    fp16, bf16 = names_of(precisions.DeepSpeedFP16Config), names_of(precisions.DeepSpeedBF16Config)
    values = {"fp16": dict.fromkeys(fp16, 1), "bf16": dict.fromkeys(bf16, 1)}
    assert deepspeed_keys.removed_keys(DeepSpeedJson("ds.json", values)) == []


def test_every_removed_key_of_deepspeed_is_known() -> None:
    config = importlib.import_module("deepspeed.runtime.config")
    removed = {*getattr(config, "_REMOVED_TOP_LEVEL_CONFIG_KEYS", ())}
    of_zero = getattr(config, "_REMOVED_ZERO_CONFIG_KEYS", ())
    assert {*removed, *(f"zero_optimization.{name}" for name in of_zero)} <= set(deepspeed_keys._REMOVED)


def names_of(model: Any) -> set[str]:
    """The names of a configuration's fields, with their aliases."""
    return {*model.model_fields, *(field.alias for field in model.model_fields.values() if field.alias)}
