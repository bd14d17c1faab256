"""Does accelerate itself accept a config file?

Runs in a child process in the training run's interpreter. Each file takes the path of `accelerate launch --config_file
FILE train.py`: accelerate's loader, launch parser, validation and launch preparation, then torchrun's argument parsing,
then a rank's parsing of its environment, without starting any process. Nothing is written, and no GPU, free port or
other library is needed.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import re
import types
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

# A value that a command line replaces: NUM_NODES, <ip>, {{ nodes }}.
_PLACEHOLDER = r"\s*|[A-Z][A-Z0-9]*_[A-Z0-9_]+|<[^<>]+>|\{\{.+\}\}"


def probe(paths: list[str], launched: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the fact loader: for each file, whether accelerate accepts it, and accelerate's error.

    With `launched`, also the launcher's settings and the variables that it adds to the ranks' environment.
    """
    yield {"asking": "loading the config with accelerate"}
    gc.disable()  # nothing that is imported is garbage
    found: list[dict[str, Any]] = []
    for path in paths:
        verdict = verdicts([path], launched=launched)
        if not verdict:
            return  # accelerate is missing or broken, which another check reports
        found += verdict
        yield {"loader": found}


def verdicts(paths: list[str], *, launched: bool = False) -> list[dict[str, Any]]:
    """Return accelerate's verdict on each file; empty if accelerate or torch cannot be imported.

    A file that accelerate rejects is tried again with the options that it leaves to the command line.
    """
    try:
        import accelerate
        import torch.distributed.run  # noqa: F401
        from accelerate.commands.launch import _validate_launch_command, launch_command_parser  # noqa: F401
        from accelerate.utils import launch  # noqa: F401
    except BaseException:
        return []
    return [{"accelerate": accelerate.__version__, **_completed_verdict(path, launched)} for path in paths]


def _completed_verdict(path: str, launched: bool) -> dict[str, Any]:
    alone = _verdict(path, launched, [])
    options = [] if alone["accepted"] else _open_options(path)
    if not options:
        return alone
    return {**_verdict(path, launched, options), "options": [word[2:] for word in options if word.startswith("--")]}


def _open_options(path: str) -> list[str]:
    """Return options with values for what the file leaves to the command line: missing values and placeholders."""
    import yaml

    try:
        with open(path, encoding="utf-8") as file:
            values = yaml.safe_load(file)
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return []
    if not isinstance(values, dict):
        return []

    def is_open(key: str) -> bool:
        value = values.get(key)
        placeholder = isinstance(value, str) and re.fullmatch(_PLACEHOLDER, value) is not None
        return value is None or placeholder or (key == "num_processes" and value == -1)

    def is_text(key: str) -> bool:
        return isinstance(values.get(key), str)

    nodes = values.get("num_machines", 1)
    several = (is_open("num_machines") and "num_machines" in values) or (type(nodes) is int and nodes > 1)
    given = {"num_processes": str(nodes) if type(nodes) is int and nodes > 1 else "2"}
    if several:
        given |= {"num_machines": "2", "main_process_ip": "10.0.0.1"}
        given |= {"machine_rank": "0"} if "machine_rank" in values else {}
    if (several and values.get("distributed_type") in ("NO", False, "MULTI_CPU")) or is_text("main_process_port"):
        given["main_process_port"] = "29500"
    precision = _precision_option(values)
    return [*(word for key, value in given.items() if is_open(key) for word in (f"--{key}", value)), *precision]


def _precision_option(values: dict[str, Any]) -> list[str]:
    """Return --mixed_precision if it can replace a value at which accelerate stops.

    That is an unquoted no, which YAML reads as false, or any value next to a DeepSpeed file.
    """
    value, section = values.get("mixed_precision"), values.get("deepspeed_config")
    named = isinstance(section, dict) and section.get("deepspeed_config_file") not in (None, "", "none")
    beside_file = named and values.get("distributed_type") == "DEEPSPEED" and isinstance(value, str)
    return ["--mixed_precision", str(value or "no").lower()] if value is False or beside_file else []


def _verdict(path: str, launched: bool, options: list[str]) -> dict[str, Any]:
    before = dict(os.environ)
    error = None
    launch: dict[str, Any] = {"settings": {}, "environment": {}}
    try:
        with _quiet(), _any_machine():
            _launch(path, launch, options)
    except SystemExit as stopped:
        error = f"accelerate's argument parser rejected it (exit {stopped.code})"
    except BaseException as raised:
        words = " ".join(str(raised).split())[:2000]  # it can quote a value of the file
        error = f"{type(raised).__name__}: {words}" if words else type(raised).__name__
    finally:
        os.environ.clear()
        os.environ.update(before)
    own = {name: value for name, value in launch["environment"].items() if before.get(name) != value}
    result = {"settings": launch["settings"], "environment": own}
    return {"accepted": error is None, "error": error, **({"launched": result} if launched else {})}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress output and warnings of accelerate and torchrun."""
    import logging

    logging.disable(logging.CRITICAL)
    try:
        null = io.StringIO()
        with contextlib.redirect_stdout(null), contextlib.redirect_stderr(null), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def _launch(path: str, result: dict[str, Any], options: list[str]) -> None:
    """Run `accelerate launch` up to the start of the first process (commands/launch.py: launch_command).

    Adds the resulting settings and environment to `result`.
    """
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils import launch as prepare

    args = launch_command_parser().parse_args(["--config_file", path, *options, "train.py"])
    args, defaults, precision_of_file = _validate_launch_command(args)
    if getattr(args, "use_deepspeed", False):
        fields = [*list(defaults.deepspeed_config.keys()), *(["mixed_precision"] if precision_of_file else [])]
        args.deepspeed_fields_from_accelerate_config = ",".join(fields)
        command, env = prepare.prepare_deepspeed_cmd_env(args)
        env = _as_torchrun(env)
        if not command:  # on several nodes, pdsh starts a launcher other than torchrun
            _torchrun(args, env)
    elif args.use_fsdp or args.use_megatron_lm or args.multi_gpu:
        env = _as_torchrun(prepare.prepare_multi_gpu_env(args))
        _torchrun(args, env)
    elif args.tpu or str(getattr(defaults.compute_environment, "value", "")) == "AMAZON_SAGEMAKER":
        return
    else:
        _, env = prepare.prepare_simple_launcher_cmd_env(args)
    plain = (str, int, float, bool, type(None))
    result["settings"] = {name: value for name, value in vars(args).items() if isinstance(value, plain)}
    result["environment"] = env
    os.environ.update(env)  # a value that is not a string stops the simple launcher as well
    with contextlib.suppress(ImportError):  # a missing library is not an error of the file
        _in_a_rank(args)


def _as_torchrun(env: dict[str, Any]) -> dict[str, str]:
    """Return the environment as the launcher passes it to torchrun (utils/environment.py: patch_environment)."""
    return {name.upper(): str(value) for name, value in env.items()}


@contextlib.contextmanager
def _any_machine() -> Iterator[None]:
    """Ignore errors that the file does not cause: a port in use, no GPU, no mpirun, no library for fp8.

    Other checks cover those. An invalid port still raises.
    """
    import torch
    from accelerate.utils import dataclasses as plugins
    from accelerate.utils import launch as prepare

    look = prepare.is_port_in_use

    def is_port_in_use(*arguments: Any) -> bool:
        look(*arguments)
        return False

    with contextlib.ExitStack() as changed:
        patch = mock.patch.object
        changed.enter_context(patch(prepare, "is_port_in_use", is_port_in_use))
        changed.enter_context(patch(torch.cuda, "current_device", lambda: 0))
        if hasattr(prepare, "_get_mpirun_args"):
            words = ("mpirun", "--hostfile", "-n", "--npernode", "--bind-to")
            changed.enter_context(patch(prepare, "_get_mpirun_args", lambda: words))
        for module, name in (
            (prepare, "is_fp8_available"),
            (plugins, "is_cuda_available"),
            (plugins, "is_transformer_engine_available"),
        ):
            if hasattr(module, name):
                changed.enter_context(patch(module, name, lambda *_, **__: True))
        yield


def _torchrun(args: Any, env: dict[str, str]) -> None:
    """Run torchrun's argument parsing, and the first assertion of its agent."""
    import torch.distributed.run as torchrun
    from accelerate.utils.launch import _filter_args
    from torch.distributed.elastic.agent.server.api import WorkerSpec

    options = ["--training_script", args.training_script, "--training_script_args", args.training_script_args]
    args = _filter_args(args, torchrun.get_args_parser(), options)
    args.log_dir = os.devnull  # otherwise it creates a folder
    os.environ.update(env)
    config, *_ = torchrun.config_from_args(args)
    WorkerSpec("default", config.nproc_per_node, rdzv_handler=None, entrypoint="true")


def _in_a_rank(args: Any) -> None:
    """Parse the environment like Accelerator() in the script does first (accelerator.py), without using a GPU."""
    from accelerate.utils import dataclasses as plugins
    from accelerate.utils.imports import is_deepspeed_available

    def on(name: str) -> bool:
        return os.environ.get(name, "").lower() == "true"

    precision = os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
    plugins.TorchDynamoPlugin()
    if on("ACCELERATE_USE_FSDP"):
        plugins.FullyShardedDataParallelPlugin()
    file = os.environ.get("ACCELERATE_DEEPSPEED_CONFIG_FILE", "none")
    there = file == "none" or os.path.exists(file)  # relative to the launch folder; another check looks for it
    if on("ACCELERATE_USE_DEEPSPEED") and is_deepspeed_available() and there:
        plugins.DeepSpeedPlugin().set_mixed_precision(precision)
    if on("ACCELERATE_USE_MEGATRON_LM"):
        plugins.MegatronLMPlugin()
    steps = os.environ.get("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "1")
    if steps != "auto":  # the Trainer passes its own number to Accelerator
        int(steps)
    if on("ACCELERATE_USE_PARALLELISM_CONFIG"):
        _parallelism(args)
    if precision == "fp8":
        recipe = {"TE": "TERecipeKwargs", "MSAMP": "MSAMPRecipeKwargs"}.get(
            os.environ.get("ACCELERATE_FP8_BACKEND", "")
        )
        if recipe and hasattr(plugins, recipe):
            getattr(plugins, recipe)()


def _parallelism(args: Any) -> None:
    """Validate the sizes of the dimensions: their product must be the number of ranks."""
    from accelerate.parallelism_config import ParallelismConfig
    from accelerate.utils.dataclasses import DistributedType

    config = ParallelismConfig()
    kinds = {"use_deepspeed": DistributedType.DEEPSPEED, "use_fsdp": DistributedType.FSDP}
    ranks = int(args.num_processes)
    kind = next((kind for name, kind in kinds.items() if getattr(args, name)), DistributedType.MULTI_GPU)
    stand_in = types.SimpleNamespace(
        num_processes=ranks,
        multi_device=ranks > 1 and args.multi_gpu,
        distributed_type=kind,
        is_main_process=True,
        is_fsdp2=args.use_fsdp and os.environ.get("FSDP_VERSION") == "2",
    )
    try:
        config._validate_accelerator(stand_in)
    except AttributeError as error:
        if "SimpleNamespace" not in str(error) and "_validate_accelerator" not in str(error):
            raise  # otherwise this accelerate needs an attribute that only a real Accelerator has
