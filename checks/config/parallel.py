"""Do the sizes in parallelism_config and megatron_lm_config fit the ranks and the type?"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check, commands
from mgpu.snapshot import Config, Driver
from mgpu.text import counted

from ._config_file import ACCELERATORS, as_integer, is_readable, place_of, skip_if_away
from ._schema import FSDP, MEGATRON, PARALLELISM, entries, fsdp_version, settings
from ._value_kinds import integer

_PARALLELISM = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/parallelism_config.py"
_MEGATRON_DOCS = "https://huggingface.co/docs/accelerate/usage_guides/megatron_lm"
_PREFIX = "parallelism_config_"
_NO_SIZES = "the config has no parallelism_config that applies"


def _sizes(config: Config) -> dict[str, int] | None:
    """Return dp_replicate, dp_shard, tp, cp, sp; None if the section does not apply or a size cannot be read."""
    values: Mapping[str, Any] = settings(config, PARALLELISM) if is_readable(config) else {}
    if not values:
        return None
    names = ("dp_replicate", "dp_shard", "tp", "cp", "sp")
    given = {name: values.get(f"{_PREFIX}{name}_size", 1) for name in names}
    sizes = {name: as_integer(value) or integer(value) for name, value in given.items()}  # 2.0 is meant as 2
    sound = {name: size for name, size in sizes.items() if size is not None and size > 0}
    return sound if len(sound) == len(names) else None


def _product(sizes: Mapping[str, int]) -> str:
    return " x ".join(f"{name} {size}" for name, size in sizes.items() if size > 1)


def _first_size_key(config: Config, sizes: Mapping[str, int]) -> str:
    """Return the first key that sets a size above 1; the section if there is none."""
    dotted = entries(config, PARALLELISM)
    large = [f"{_PREFIX}{name}_size" for name, size in sizes.items() if size > 1]
    return next((dotted[key] for key in large if key in dotted), "parallelism_config")


@check(Severity.ERROR, source=_PARALLELISM, because_of=("config_processes_invalid",))
def config_parallel_sizes_mismatch(config: Config) -> Answer:
    """The product of the sizes in parallelism_config is not num_processes.

    Why: Every worker stops with ValueError: the mesh must contain each rank once.
    More: "total_size does not match num_processes".

    Fix: Write sizes whose product is num_processes.
    """
    sizes, ranks = _sizes(config), config.num_processes
    if sizes is None or ranks is None:
        return Skip(_NO_SIZES if sizes is None else "the number of processes is not known")
    whole = prod(sizes.values())
    if whole == 1 or sizes["sp"] > 1:  # for sequence parallelism, DeepSpeed builds the mesh
        return Ok("no mesh to check")
    if whole == ranks:
        return Ok(f"{_product(sizes)} = {counted(ranks, 'rank')}")
    return Problem(
        f"{_product(sizes)} = {whole}, but num_processes is {ranks}",
        fix=Fix(f"Write sizes whose product is {ranks}."),
        evidence={"product": whole, "ranks": ranks},
        place=place_of(config, _first_size_key(config, sizes)),
    )


@check(Severity.ERROR, source=_PARALLELISM)
def config_parallel_kind_invalid(config: Config) -> Answer:
    """parallelism_config has a combination that accelerate rejects.

    Why: Every worker stops with ValueError.
    More: Tensor and context parallelism need sharded data parallelism, not only replicas. Context and sequence
    parallelism exclude each other. FSDP needs a dimension to shard along. FSDP 1 and Megatron-LM do not support
    parallelism_config.

    Fix: Change the sizes named in the message.
    """
    sizes = _sizes(config)
    if sizes is None:
        return Skip(_NO_SIZES)
    whole, kind = prod(sizes.values()), config.distributed_type
    fsdp2 = kind == "FSDP" and fsdp_version(settings(config, FSDP)) == 2
    if whole == 1:
        return Ok("all sizes are 1")
    found = None
    if sizes["cp"] > 1 and sizes["sp"] > 1:
        found = ("cp_size and sp_size are both above 1", "Keep one of them above 1.")
    elif (sizes["tp"] > 1 or sizes["cp"] > 1) and sizes["dp_replicate"] > 1 and sizes["dp_shard"] == 1:
        found = (
            f"{_product(sizes)}: tensor or context parallelism needs sharding, not only replicas",
            "Write a dp_shard_size above 1, so that the product is num_processes.",
        )
    elif fsdp2 and sizes["dp_shard"] == 1 and sizes["cp"] == 1:
        found = (
            "FSDP has no dimension to shard along: dp_shard_size and cp_size are 1",
            "Set dp_shard_size, or train without FSDP.",
        )
    elif not fsdp2 and kind not in (*ACCELERATORS, "DEEPSPEED"):
        what = "FSDP 1" if kind == "FSDP" else str(kind)
        fix = "Write fsdp_config.fsdp_version: 2." if kind == "FSDP" else "Delete the section."
        found = (f"parallelism_config does not support {what}", fix)
    if found is None:
        return Ok(f"{_product(sizes)} with {kind}")
    return Problem(found[0], fix=Fix(found[1]), place=place_of(config, _first_size_key(config, sizes)))


@check(
    Severity.WARNING,
    source="measured accelerate 1.15 torch 2.13 2026-11",
    because_of=("config_parallel_sizes_mismatch", "config_parallel_kind_invalid"),
    given=skip_if_away,
    stops_start=True,
)
def config_parallelism_needs_gpu(config: Config, driver: Driver) -> Answer:
    """The config uses parallelism_config on a machine without a GPU.

    Why: Every CPU rank stops with ValueError: "ParallelismConfig is only compatible" with FSDP 2, DeepSpeed and GPUs.
    The file may be meant for another machine.

    Fix: Use it on a machine with GPUs. For a dry run here, run the smoke test without it.
    """
    sizes = _sizes(config)
    if sizes is None:
        return Skip(_NO_SIZES)
    if driver.any_gpu:
        return Ok("this machine has NVIDIA GPUs")
    if prod(sizes.values()) == 1:
        return Ok("all sizes are 1")
    return Problem(
        f"{_product(sizes)} on the CPU does not start: parallelism_config needs a GPU",
        fix=commands("mgpu smoke-test --cpu 2"),
        place=place_of(config, _first_size_key(config, sizes)),
    )


def splits_ranks(config: Config) -> bool:
    """Whether parallelism_config has a size above 1."""
    return prod((_sizes(config) or {}).values()) > 1


def sizes_fit(config: Config) -> bool:
    """Whether accelerate accepts the sizes of parallelism_config, with this type and number of ranks."""
    checks = (config_parallel_sizes_mismatch, config_parallel_kind_invalid)
    return not any(isinstance(check.function(config), Problem) for check in checks)


@check(Severity.ERROR, source=_MEGATRON_DOCS, because_of=("config_processes_invalid",))
def config_megatron_sizes_mismatch(config: Config) -> Answer:
    """The tensor and pipeline degrees of megatron_lm_config do not divide num_processes.

    Why: Megatron-LM cannot divide the ranks into complete copies of the model, and stops.
    More: Each copy of the model needs tp x pp ranks.

    Fix: Set num_processes to tp x pp x copies.
    """
    values: Mapping[str, Any] = settings(config, MEGATRON) if is_readable(config) else {}
    if not values or config.num_processes is None:
        return Skip("the config has no megatron_lm_config that applies")
    tensor, pipeline = (integer(values.get(f"megatron_lm_{key}_degree", 1)) for key in ("tp", "pp"))
    if not tensor or not pipeline or tensor < 1 or pipeline < 1:
        return Skip("the degrees cannot be read")
    ranks = config.num_processes
    if ranks % (tensor * pipeline) == 0:
        return Ok(f"{ranks // (tensor * pipeline)} x {tensor} x {pipeline} = {counted(ranks, 'rank')}")
    dotted = entries(config, MEGATRON)
    key = next((name for name in ("megatron_lm_tp_degree", "megatron_lm_pp_degree") if name in dotted), None)
    return Problem(
        f"tp {tensor} x pp {pipeline} = {tensor * pipeline} does not divide the {counted(ranks, 'rank')}",
        fix=Fix(f"Write degrees whose product divides {ranks}."),
        evidence={"tp": tensor, "pp": pipeline, "ranks": ranks},
        place=place_of(config, dotted[key] if key else "megatron_lm_config"),
    )
