"""Are the GPU ids of the config valid, and is there one for each rank?"""

from __future__ import annotations

import re
from collections import Counter

from mgpu.check import Answer, Edit, Fix, Ok, Problem, Severity, Skip, check
from mgpu.planning.requirements import GPU_TYPES
from mgpu.snapshot import Config
from mgpu.text import counted

from .._wording import gpu_list, parse_digits
from ._config_file import LAUNCH, has_shell_variable, place_of, skip_if_unreadable, source_text

# What torch's parser of CUDA_VISIBLE_DEVICES accepts besides numbers (torch/cuda/__init__.py _parse_visible_devices).
_UUID = r"(GPU|MIG)-[0-9A-Za-z/-]+"


def selected_gpus(config: Config) -> list[str] | None:
    """Return the GPUs that gpu_ids names, also as a number or a list; None if it does not select any.

    A trailing comma is ignored: people write "7," to satisfy the launcher, which counts commas.
    """
    value = config.values.get("gpu_ids")
    if value is not None and not isinstance(value, str):
        value = _quoted_ids(config, value)
    if not isinstance(value, str) or value == "all" or has_shell_variable(value):
        return None
    entries = [entry.strip() for entry in value.split(",")]
    return entries[:-1] if len(entries) > 1 and not entries[-1] else entries


def gpus_and_ranks(config: Config) -> tuple[int, int] | None:
    """Return the number of GPUs that gpu_ids names and of ranks on a node, if there are more ranks."""
    entries, ranks = selected_gpus(config), config.ranks_here
    if entries is None or ranks is None or config.distributed_type not in GPU_TYPES:
        return None
    return (len(entries), ranks) if ranks > len(entries) and all(map(_is_gpu_id, entries)) else None


def _is_gpu_id(entry: str) -> bool:
    return parse_digits(entry) is not None or re.fullmatch(_UUID, entry) is not None


@check(Severity.ERROR, source=LAUNCH, given=skip_if_unreadable)
def config_gpu_ids_not_text(config: Config) -> Answer:
    """gpu_ids is a number or a list.

    Why: accelerate splits it at commas and stops with AttributeError.
    More: "'int' object has no attribute 'split'".

    Fix: Quote it.
    """
    value = config.values.get("gpu_ids")
    if value is None or isinstance(value, str):
        return Ok("gpu_ids is text" if value else "gpu_ids does not select GPUs")
    quoted = _quoted_ids(config, value)
    return Problem(
        f"gpu_ids: {source_text(config, 'gpu_ids')} is not text",
        fix=Fix(
            f'Write gpu_ids: "{quoted}".' if quoted else 'Name the GPUs in quotes, for example "0,1".',
            edits=(Edit("set", "gpu_ids", quoted),) if quoted else (),
        ),
        place=place_of(config, "gpu_ids"),
    )


def _quoted_ids(config: Config, value: object) -> str | None:
    """Return the intended text (0 is "0", [0, 1] is "0,1"); None if it is not certain (0_1 is the number 1)."""
    scalar = config.scalars.get("gpu_ids")
    if type(value) is int and value >= 0 and (scalar is None or scalar.text == str(value)):
        return str(value)
    numbers = [str(item) for item in value] if isinstance(value, list) and value else []
    return ",".join(numbers) if all(parse_digits(number) is not None for number in numbers) and numbers else None


@check(Severity.ERROR, source=LAUNCH, given=skip_if_unreadable)
def config_gpu_ids_invalid(config: Config) -> Answer:
    """gpu_ids is not a valid list of GPUs.

    Why: CUDA stops at an unknown id, and shows no GPU at all if an id is listed twice.
    More: accelerate copies gpu_ids to CUDA_VISIBLE_DEVICES unchanged. Without a GPU, every rank trains alone on the
    CPU.

    Fix: Write the GPU numbers separated by commas, each once, or leave gpu_ids out.
    """
    entries = selected_gpus(config)
    if entries is None or config.on_cpu:
        return Skip("gpu_ids does not select GPUs")
    if entries == [""] and config.distributed_type == "NO":
        return Ok("gpu_ids hides all GPUs")
    bad = [entry for entry in entries if not _is_gpu_id(entry)]
    twice = sorted(entry for entry, times in Counter(entries).items() if times > 1)
    if not bad and not twice:
        return Ok(gpu_list(entries))
    right = _corrected_list(str(config.values["gpu_ids"]))
    what = "hides all GPUs" if entries == [""] else f"{bad[0]!r} is not a GPU" if bad else f"{twice[0]} is listed twice"
    return Problem(
        f"gpu_ids: {source_text(config, 'gpu_ids')}: {what}",
        fix=Fix(
            f'Write gpu_ids: "{right}".' if right else "Name each GPU once, or leave gpu_ids out to use all.",
            edits=(Edit("set", "gpu_ids", right),) if right else (),
        ),
        evidence={"gpu_ids": config.values["gpu_ids"]},
        place=place_of(config, "gpu_ids"),
    )


def _corrected_list(text: str) -> str | None:
    """Return the intended list: other separators, a range, "all" in capitals, brackets; None if not clear."""
    plain = text.strip().strip("[]()").strip()
    if plain.lower() == "all":
        return "all"
    span = re.fullmatch(r"(\d{1,2})\s*-\s*(\d{1,2})", plain, re.ASCII)
    if span and int(span[1]) < int(span[2]):
        return ",".join(str(n) for n in range(int(span[1]), int(span[2]) + 1))
    numbers = re.split(r"\s*[;,|\s]\s*", plain)
    fits = all(parse_digits(number) is not None for number in numbers) and len(set(numbers)) == len(numbers)
    return ",".join(numbers) if fits else None


@check(
    Severity.ERROR,
    source=LAUNCH,
    because_of=("config_gpu_ids_invalid", "config_gpu_ids_not_text"),
    given=skip_if_unreadable,
)
def config_gpu_ids_single(config: Config) -> Answer:
    """gpu_ids names one GPU, but the type is MULTI_GPU.

    Why: accelerate rejects it with "Less than two GPU ids were configured".
    More: The launcher counts the commas.

    Fix: Name several GPUs, separated by commas, or write distributed_type: 'NO'.
    """
    value = config.values.get("gpu_ids")
    several = (config.distributed_type or "").startswith("MULTI_") and config.distributed_type != "MULTI_CPU"
    if value is None or value == "all" or not several or config.num_machines > 1:
        return Skip("the type does not require several GPU ids")
    if "," in str(value):
        return Ok(f"gpu_ids: {value}")
    return Problem(
        f"gpu_ids: {source_text(config, 'gpu_ids')} with {config.distributed_type}: fewer than two GPUs",
        place=place_of(config, "gpu_ids"),
    )


@check(
    Severity.ERROR,
    source=LAUNCH,
    because_of=("config_gpu_ids_invalid", "config_gpu_ids_single"),
    given=skip_if_unreadable,
)
def config_gpu_ids_too_few(config: Config) -> Answer:
    """gpu_ids names fewer GPUs than the config starts ranks.

    Why: Two ranks would share a GPU, which NCCL rejects.
    More: "Duplicate GPU detected". If the command line is not known, which can replace gpu_ids and num_processes,
    config_options_missing reports it.

    Fix: Name one GPU for each rank.
    """
    entries, ranks = selected_gpus(config), config.ranks_here
    if entries is None or ranks is None or config.distributed_type not in GPU_TYPES:
        return Skip("gpu_ids does not select GPUs, or the number of ranks is not known")
    few = gpus_and_ranks(config)
    if few is None:
        return Ok(f"{counted(ranks, 'rank')} on {gpu_list(entries)}")
    if not config.given:
        return Skip("the command line can replace gpu_ids")
    return Problem(
        f"gpu_ids names {counted(few[0], 'GPU')} for {ranks} ranks",
        evidence={"gpu_ids": config.values["gpu_ids"], "ranks": ranks},
        place=place_of(config, "gpu_ids"),
    )


@check(Severity.WARNING, source=LAUNCH, given=skip_if_unreadable)
def config_gpu_ids_idle(config: Config) -> Answer:
    """gpu_ids names more GPUs than the config starts ranks.

    Why: One process uses one GPU.
    More: The remaining GPUs are idle.

    Fix: Set num_processes to the number of GPUs named.
    """
    entries, ranks = selected_gpus(config), config.ranks_here
    if entries is None or not ranks or config.distributed_type not in (*GPU_TYPES, "NO"):
        return Skip("gpu_ids does not select GPUs, or the number of ranks is not known")
    if len(entries) <= ranks or not all(_is_gpu_id(entry) for entry in entries):
        return Ok(f"{counted(ranks, 'rank')} on {gpu_list(entries)}")
    each_node = f" ({len(entries)} on each node)" if config.num_machines > 1 else ""
    text = f"Set num_processes to {len(entries) * config.num_machines}{each_node}, or name fewer GPUs."
    if config.distributed_type == "NO":
        text = f"Write distributed_type: MULTI_GPU and num_processes: {len(entries)}, or name one GPU."
    return Problem(
        f"gpu_ids names {len(entries)} GPUs for {counted(ranks, 'rank')}: {gpu_list(entries[ranks:])} idle",
        fix=Fix(text),
        evidence={"gpu_ids": config.values["gpu_ids"], "ranks": ranks},
        place=place_of(config, "gpu_ids"),
    )
