"""What is a known fault of a release, and does it affect this machine?

A row is a fact about releases: which ones, on which hardware, what happens, and where that is proven. The rows are in
`_faults_nccl` and `_faults_training`. A row applies only if every condition of it is known and met. Conditions that
cannot be read are named, never assumed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.planning.requirements import version_numbers
from mgpu.snapshot import Config, Gpu, Nccl, Visible

from ._versions import satisfies
from .config._schema import deepspeed_settings, fsdp_settings, fsdp_version, policy
from .config._value_kinds import truth

# The month in which the tables of versions were last compared with the releases: faults, NCCL variables, newest known.
TABLES_DATE = "2026-11"

Package = Literal["nccl", "torch", "driver", "accelerate", "transformers", "deepspeed", "triton"]
# fmt: off
Feature = Literal[
    "deepspeed_accumulate", "fsdp", "fsdp2_accumulate", "fsdp2_mixed", "fsdp2_no_classes", "fsdp2_ram_efficient",
    "fsdp2_ram_efficient_offload", "several_nodes", "zero_0_fp16", "zero_1_or_2", "zero_2", "zero_clip", "zero_nvme",
]
# fmt: on


class Fault(NamedTuple):
    """Releases that fail in a known situation. A condition that is not set does not matter."""

    package: Package
    versions: str  # the bad ones
    effect: str  # a sentence
    fixed_in: str | None  # the first good release; None: no release is known to contain the fix
    url: str  # a release note, a merged fix, or a thread in which a maintainer confirms it
    seen: str  # the month in which `url` was read
    machine: str | None = None  # uname -m
    compute: tuple[tuple[int, int], ...] = ()  # at least one GPU has one of these compute capabilities
    gpus: str | None = None  # pattern: at least one GPU has such a name
    gpu_count: int | None = None  # the run uses exactly this many GPUs of a node
    several_nodes: bool = False
    mixed_gpus: bool = False  # GPUs of different compute capabilities
    gsp: bool = False  # the driver runs its firmware (GSP) on at least one GPU
    feature: Feature | None = None  # the config uses it
    use: str | None = None  # what the script must do; mgpu cannot see this, so the row is only a remark
    stopgap: str | None = None  # avoids it until the update: a command, or a sentence


class Situation(NamedTuple):
    """What the conditions of rows are compared with. None: unknown."""

    machine: str | None = None
    gpus: Sequence[Gpu] = ()
    nodes: int | None = None
    config: Config | None = None


class Verdict(NamedTuple):
    """The rows that apply to the installed releases, and the conditions of other rows that are not known."""

    hits: tuple[Fault, ...]
    unknown: tuple[str, ...]


def judge_faults(rows: Iterable[Fault], versions: Mapping[str, str | None], situation: Situation) -> Verdict:
    """Return the rows whose release is installed and whose conditions are met."""
    hits: list[Fault] = []
    unknown: dict[str, None] = {}
    for row in rows:
        if not satisfies(versions.get(row.package), row.versions):
            continue
        states = conditions(row, situation)
        if False in states.values():
            continue
        missing = [name for name, state in states.items() if state is None]
        unknown.update(dict.fromkeys(missing))
        if not missing:
            hits.append(row)
    return Verdict(tuple(hits), tuple(unknown))


def conditions(row: Fault, situation: Situation) -> dict[str, bool | None]:
    """Return each condition of a row, by the fact it depends on: met, not met, or None if the fact is unknown."""
    found: dict[str, bool | None] = {}
    gpus, nodes = situation.gpus, situation.nodes
    if row.machine:
        found["architecture"] = None if situation.machine is None else situation.machine == row.machine
    if row.compute:
        found["compute capability"] = _any([g.compute_capability and g.compute_capability in row.compute for g in gpus])
    if row.gpus:
        found["GPU model"] = _any([g.name and bool(re.search(row.gpus, g.name)) for g in gpus])
    if row.gsp:
        # NVML reports no version both for a driver that runs without it and for one that cannot be asked.
        found["GPU firmware"] = _any([gpu.gsp_firmware for gpu in gpus])
    if row.gpu_count:
        found["number of GPUs"] = len(gpus) == row.gpu_count
    if row.mixed_gpus:
        kinds = {gpu.compute_capability for gpu in gpus}
        found["compute capability"] = True if len(kinds - {None}) > 1 else None if None in kinds else False
    if row.several_nodes:
        found["number of nodes"] = None if nodes is None else nodes > 1
    if row.feature:
        found["config"] = FEATURES[row.feature](situation.config) if situation.config else None
    return found


def _any(states: Iterable[bool | str | tuple[int, int] | None]) -> bool | None:
    """Return True if one is true, None if none is but one is unknown."""
    states = list(states)
    return True if any(states) else None if None in states else False


def shown_gpus(gpus: Iterable[Gpu], visible: Visible) -> list[Gpu]:
    """Return the GPUs of the run that respond."""
    return [gpu for gpu in gpus if gpu.index in visible.gpus and not gpu.lost]


def newest_fix(hits: Iterable[Fault]) -> str | None:
    """Return the first release with all fixes, or None if one of the faults has none."""
    fixes = [row.fixed_in for row in hits]
    return None if None in fixes else max((fix for fix in fixes if fix), key=version_numbers, default=None)


def _export(line: str) -> str:
    name, _, value = line.removeprefix("export ").partition("=")
    return shell("export {:name}={:text}", name, value)


def stopgaps(hits: Iterable[Fault]) -> tuple[Fix, ...]:
    """Return the workarounds of these faults."""
    lines = dict.fromkeys(row.stopgap for row in hits if row.stopgap)
    return tuple(
        Fix("Avoid the fault until then.", (_export(line),), kind="stopgap", caveat="may be slower")
        if line.startswith("export ")
        else Fix(line, kind="stopgap", caveat="may be slower")
        for line in lines
    )


def update(hits: Sequence[Fault], name: str) -> tuple[Fix, ...]:
    """Return the fixes of the faults of one package: the first good release, and the workarounds until then."""
    fixed = newest_fix(hits)
    newer = (
        Fix("Update it.", (shell("pip install --upgrade {:package}", f"{name}>={fixed}"),))
        if fixed
        else Fix(f"No release with a fix was known in {TABLES_DATE}: follow {hits[0].url}.")
    )
    return (newer, *stopgaps(hits))


def update_nccl(hits: Sequence[Fault], nccl: Nccl) -> tuple[Fix, ...]:
    """Return the fixes of faults of the NCCL that is loaded: its wheel is named after the CUDA version."""
    loaded = nccl.libraries[0]
    wheel = next(iter(nccl.wheels), None) if loaded.origin == "wheel" else None
    if wheel:
        return update(hits, wheel)
    fixed = newest_fix(hits)
    release = f"NCCL {fixed} or newer" if fixed else "a newer NCCL"
    return (Fix(f"Use an image or package with {release}. {loaded.path} is not from a wheel."), *stopgaps(hits))


def describe(row: Fault, version: str | None) -> str:
    """Return one sentence for a title: the release, what happens, and since when it is fixed."""
    name = {"nccl": "NCCL", "driver": "driver"}.get(row.package, row.package)
    return f"{name} {version}: {row.effect}" + (f" Fixed in {row.fixed_in}." if row.fixed_in else "")


def sources(hits: Iterable[Fault]) -> dict[str, str]:
    """Return evidence: where each fault is documented, and when that was read."""
    return {f"source {place}": f"{row.url} ({row.seen})" for place, row in enumerate(hits, 1)}


# --- features of a config ----------------------------------------------------------------------------------------


def _deepspeed(config: Config) -> Mapping[str, object]:
    """Return the DeepSpeed section; empty if it does not apply, or if a file of its own decides."""
    section = deepspeed_settings(config)
    return section if "deepspeed_config_file" not in section else {}


def _stage(config: Config) -> str | None:
    """Return the ZeRO stage: accelerate's default is 2."""
    section = _deepspeed(config)
    return str(section.get("zero_stage", 2)) if section else None


def _fsdp2(config: Config) -> Mapping[str, object]:
    """Return the FSDP section; empty if it does not apply, or is for FSDP 1."""
    section = fsdp_settings(config)
    return section if fsdp_version(section) == 2 else {}


def _above(value: object, least: float) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > least


def _accumulates(config: Config) -> bool | None:
    """Whether gradients are accumulated; None if only the script knows."""
    steps = _deepspeed(config).get("gradient_accumulation_steps", config.accumulate)
    return _above(steps, 1) if isinstance(steps, int) else None


def _unless(applies: object, state: bool | None) -> bool | None:
    """Return `state` if the feature's section applies, else False."""
    return state if applies else False


FEATURES: Mapping[Feature, Callable[[Config], bool | None]] = {
    "deepspeed_accumulate": lambda c: _unless(_deepspeed(c), _accumulates(c)),
    "fsdp": lambda c: bool(fsdp_settings(c)),
    "fsdp2_accumulate": lambda c: _unless(_fsdp2(c), _accumulates(c)),
    "fsdp2_mixed": lambda c: bool(_fsdp2(c)) and c.precision in ("bf16", "fp16"),
    "fsdp2_no_classes": lambda c: (
        policy(_fsdp2(c)) == "TRANSFORMER_BASED_WRAP" and not _fsdp2(c).get("fsdp_transformer_layer_cls_to_wrap")
    ),
    "fsdp2_ram_efficient": lambda c: truth(_fsdp2(c).get("fsdp_cpu_ram_efficient_loading")) is True,
    "fsdp2_ram_efficient_offload": lambda c: (
        truth(_fsdp2(c).get("fsdp_cpu_ram_efficient_loading")) is True
        and truth(_fsdp2(c).get("fsdp_offload_params")) is True
    ),
    "several_nodes": lambda c: c.num_machines > 1,
    "zero_0_fp16": lambda c: _stage(c) == "0" and c.precision == "fp16",
    "zero_1_or_2": lambda c: _stage(c) in ("1", "2"),
    "zero_2": lambda c: _stage(c) == "2",
    "zero_clip": lambda c: _stage(c) in ("1", "2") and _above(_deepspeed(c).get("gradient_clipping"), 0),
    "zero_nvme": lambda c: (
        "nvme" in (_deepspeed(c).get("offload_optimizer_device"), _deepspeed(c).get("offload_param_device"))
    ),
}
