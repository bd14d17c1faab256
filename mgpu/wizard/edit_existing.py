"""Which decisions does an existing config contain, and which edits does it need for different ones?

The file is changed in place: keys unknown to mgpu, and keys that no decision changes, stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from mgpu.check import Edit
from mgpu.command_line import below, shell
from mgpu.errors import REFUSED, MgpuError, clip
from mgpu.planning.memory import PRECISIONS
from mgpu.snapshot import Config, Snapshot
from mgpu.wizard.answers import Answers, Origin

if TYPE_CHECKING:
    from mgpu.wizard.proposal_types import Proposal

_THREADS: Final = "--num_cpu_threads_per_process"
_TYPES: Final = ("NO", "MULTI_GPU", "FSDP", "DEEPSPEED")
# fmt: off
# Keys that follow from an answer. Other keys of a section stay as they are if the file has them.
_ANSWERED: Final = frozenset(
    {
        "fsdp_config.fsdp_version", "fsdp_config.fsdp_offload_params", "deepspeed_config.zero_stage",
        "deepspeed_config.gradient_accumulation_steps", "deepspeed_config.offload_optimizer_device",
        "deepspeed_config.offload_param_device", "dynamo_config.dynamo_backend", "fp8_config.fp8_backend",
    }
)
# Keys that only FSDP1 reads; with version 2 they have no effect, or are rejected.
_FSDP1: Final = (
    "sharding_strategy", "backward_prefetch", "forward_prefetch", "sync_module_states", "use_orig_params",
)
# FSDP2's replacement for a sharding strategy, as accelerate's to-fsdp2 command converts it.
_RESHARD: Final = {
    "FULL_SHARD": True, "SHARD_GRAD_OP": False, "NO_SHARD": False, "HYBRID_SHARD": True, "HYBRID_SHARD_ZERO2": False,
}
# Keys whose existing kind is kept if it is on: nvme counts as offload, EAGER as compiled.
_KINDS: Final = ("offload_optimizer_device", "offload_param_device", "dynamo_backend", "fp8_backend")
# Keys that only make sense with another value of an answer, and are deleted with it.
_ONLY_THERE: Final = ("zero3_init_flag", "zero3_save_16bit_model", "deepspeed_multinode_launcher")
_NUMBERED: Final = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")  # 1, 2 …
_PREFIX: Final = {"fsdp_config": "fsdp_", "fp8_config": "fp8_", "dynamo_config": "dynamo_"}
_OF_TYPE: Final = {"fsdp_config": "FSDP", "deepspeed_config": "DEEPSPEED"}
_TOP: Final = (
    "distributed_type", "num_processes", "num_machines", "main_process_ip", "main_process_port", "gpu_ids",
    "mixed_precision",
)
# fmt: on


def answers_from(config: Config, snapshot: Snapshot | None = None) -> Answers:
    """Return the decisions in a file. Raises MgpuError for a kind of run that mgpu does not write.

    `snapshot`: the machine it is edited on; if it has no GPU, the file's number of GPUs is not a decision.
    """
    values = config.values
    kind = config.distributed_type
    if kind not in _TYPES or config.on_cpu:
        setting = "use_cpu" if kind in _TYPES else f"distributed_type {clip(kind or 'missing', 60)}"
        raise MgpuError(
            f"{config.path}: mgpu cannot edit a config with {setting}, only with {', '.join(_TYPES)}"
            + below(shell("mgpu configure --validate {:path}", config.path), "check it")
            + "\n  mgpu configure -o OTHER.yaml              write another file",
            REFUSED,
        )
    found: dict[str, Any] = {
        "gpus": _gpus(config, snapshot),
        "precision": _word(values.get("mixed_precision"), PRECISIONS),
        **_strategy(config),
        "port": config.port,
        "nodes": config.num_machines if config.num_machines > 1 else None,
        "address": values.get("main_process_ip") if isinstance(values.get("main_process_ip"), str) else None,
        "batch_per_gpu": config.batch_per_gpu,
        "accum": _accumulation(config),
        "dataset_size": config.dataset_size,
        "compile": _section_value(values, "dynamo_config", "dynamo_backend") not in (None, False, "NO", "no") or None,
        "threads": _threads(config.launch_flags),
        "numa": True if "--enable_cpu_affinity" in config.launch_flags else None,
    }
    kept = {name: value for name, value in found.items() if value is not None}
    origins: dict[str, Origin] = dict.fromkeys(kept, "file")
    return Answers(**kept, origins=origins)


def _gpus(config: Config, snapshot: Snapshot | None) -> int | tuple[int, ...] | None:
    if snapshot is not None and snapshot.driver is not None and not snapshot.driver.any_gpu:
        return None
    ids = config.values.get("gpu_ids")
    if isinstance(ids, str) and all(part.strip().isdecimal() and len(part) < 5 for part in ids.split(",")):
        return tuple(int(part) for part in ids.split(","))
    return config.ranks_here


def _strategy(config: Config) -> dict[str, str]:
    """Return strategy and offload, if the type decides them. FSDP1 becomes FSDP2, as mgpu writes no other."""
    values, kind = config.values, config.distributed_type
    if kind == "FSDP":
        offload = _section_value(values, "fsdp_config", "fsdp_offload_params")
        return {"strategy": "fsdp2", "offload": "cpu" if _true(offload) else "none"}
    if kind != "DEEPSPEED":
        return {"strategy": "ddp"}
    given = values.get("deepspeed_config")
    section: Mapping[str, Any] = given if isinstance(given, dict) else {}
    stage, offloaded = section.get("zero_stage", 2), section.get("offload_optimizer_device")
    if config.deepspeed_file is not None:
        if not config.deepspeed_file.exists or config.deepspeed_file.fault:
            why = config.deepspeed_file.fault or "it does not exist, relative to the current folder"
            raise MgpuError(
                f"{config.path} refers to {config.deepspeed_file.path}, which cannot be read: {why}",
                REFUSED,
            )
        zero = config.deepspeed_file.values.get("zero_optimization")
        zero = zero if isinstance(zero, dict) else {}
        optimizer = zero.get("offload_optimizer")
        stage = zero.get("stage", 0)
        offloaded = optimizer.get("device") if isinstance(optimizer, dict) else None
    if str(stage) not in ("1", "2", "3"):
        raise MgpuError(f"{config.path}: mgpu cannot edit a config with ZeRO stage {stage}, only 1, 2 and 3", REFUSED)
    return {"strategy": f"zero{stage}", "offload": "cpu" if offloaded in ("cpu", "nvme") else "none"}


def _accumulation(config: Config) -> int | None:
    if config.accumulate is not None and config.accumulate > 1:
        return config.accumulate
    given = _section_value(config.values, "deepspeed_config", "gradient_accumulation_steps")
    return given if type(given) is int and given > 1 and config.distributed_type == "DEEPSPEED" else None


def _threads(flags: tuple[str, ...]) -> int | None:
    return int(flags[flags.index(_THREADS) + 1]) if _THREADS in flags else None


def _word(value: Any, allowed: tuple[str, ...]) -> str | None:
    text = "no" if value is False else str(value).lower()
    return text if text in allowed else None


def _true(value: Any) -> bool:
    return value is True or str(value).lower() in ("true", "yes", "1", "y", "on", "t")


def _key_in_file(section: Any, name: str, key: str) -> str:
    """Return how the file spells a key of a section: accelerate accepts some without their prefix."""
    short = key.removeprefix(_PREFIX.get(name, "\0"))
    return short if isinstance(section, dict) and short in section and key not in section else key


def _section_value(values: Mapping[str, Any], name: str, key: str) -> Any:
    section = values.get(name)
    return section.get(_key_in_file(section, name, key)) if isinstance(section, dict) else None


# ---- edits


def edits_for(config: Config, proposal: Proposal) -> tuple[Edit, ...]:
    """Return the edits that turn the file's settings into the proposal's; empty if they are the same."""
    return tuple(_edits(config.values, proposal.values, config.deepspeed_file is not None))


def conversion_notes(config: Config, proposal: Proposal) -> tuple[str, ...]:
    """Return notes about conversions that the user did not decide: an FSDP1 file becomes FSDP2."""
    section = config.values.get("fsdp_config")
    if config.distributed_type != "FSDP" or proposal.values["distributed_type"] != "FSDP" or not _is_fsdp1(section):
        return ()
    strategy = _sharding(section)
    notes = [
        f"This file was FSDP1 and becomes FSDP2, the only version mgpu writes: {strategy} becomes "
        f"fsdp_reshard_after_forward: {str(_RESHARD[strategy]).lower()}, and FSDP1-only keys are removed."
    ]
    if strategy.startswith("HYBRID"):
        notes.append(f"{strategy} kept a copy per node. FSDP2 splits over all GPUs: copies need a device mesh.")
    if strategy == "NO_SHARD":
        notes.append("NO_SHARD kept a full copy on each GPU. FSDP2 splits the model; --strategy ddp keeps copies.")
    return tuple(notes)


def out_of_reach(config: Config, proposal: Proposal) -> tuple[str, ...]:
    """Return keys of the DeepSpeed file that differ from the decisions, because mgpu does not change that file."""
    file = config.deepspeed_file
    if file is None or proposal.values["distributed_type"] != "DEEPSPEED":
        return ()
    there, decided = _strategy(config), proposal.answers.origins
    found = []
    if proposal.chosen.get("strategy") != there["strategy"]:
        found.append("zero_optimization.stage")
    if proposal.chosen.get("offload") != there["offload"]:
        found.append("zero_optimization.offload_optimizer")
    if decided.get("precision", "file") != "file" and proposal.values["mixed_precision"] != _enabled_precision(
        file.values
    ):
        found.append("bf16.enabled and fp16.enabled")
    if any(decided.get(name, "file") != "file" for name in ("accum", "effective_batch")):
        given = file.values.get("gradient_accumulation_steps", 1)
        found += ["gradient_accumulation_steps"] if given != proposal.accumulate else []
    return tuple(found)


def _enabled_precision(values: Mapping[str, Any]) -> str:
    """Return the precision that a DeepSpeed file enables."""
    return next((name for name in ("bf16", "fp16") if _true(_section_value(values, name, "enabled"))), "no")


def _is_fsdp1(section: Any) -> bool:
    """Return whether accelerate reads these settings as FSDP1, which it does without a version."""
    return str(_section_value({"fsdp_config": section}, "fsdp_config", "fsdp_version")) != "2"


def _sharding(section: Any) -> str:
    """Return FSDP1's sharding strategy by name; accelerate's wizard writes it to a key that is a boolean in FSDP2."""
    for key in ("fsdp_sharding_strategy", "fsdp_reshard_after_forward"):
        given = str(_section_value({"fsdp_config": section}, "fsdp_config", key)).upper()
        name = dict(zip("12345", _NUMBERED, strict=True)).get(given, given)
        if name in _RESHARD:
            return name
    return "FULL_SHARD"


def _edits(old: Mapping[str, Any], new: Mapping[str, Any], by_deepspeed_file: bool) -> Iterator[Edit]:
    both = by_deepspeed_file and new["distributed_type"] == "DEEPSPEED"
    for key in _TOP:
        if both and key == "mixed_precision":  # the DeepSpeed file sets it, and accelerate rejects it in two places
            continue
        if key in new and not _is_unchanged(key, old.get(key), new[key], present=key in old):
            yield Edit("set", key, new[key])
        elif key not in new and old.get(key) not in (None, "all"):
            if key == "main_process_port" and old[key] == 0:  # "any free one", as without the key
                continue
            yield Edit("delete", key)
    if new.get("num_machines") == 1 and old.get("machine_rank") not in (None, 0):
        yield Edit("delete", "machine_rank")
    for name in ("fsdp_config", "deepspeed_config", "fp8_config", "dynamo_config"):
        if name in new and not (both and name == "deepspeed_config"):
            yield from _section(name, old.get(name), new[name])
        elif name in old and name not in new and (name not in _OF_TYPE or _OF_TYPE[name] != new["distributed_type"]):
            yield Edit("delete", name)


def _is_unchanged(key: str, old: Any, new: Any, *, present: bool) -> bool:
    if key == "distributed_type" and new == "NO":
        return bool(old == "NO")  # an unquoted NO is false: accelerate accepts it, but quoting is clearer
    if key == "mixed_precision":
        return _word(old, (str(new),)) == new and (isinstance(old, str) or (not present and new == "no"))
    if key == "num_machines" and new == 1:
        return old in (1, None)
    return bool(old == new) and type(old) is type(new)


def _section(name: str, old: Any, new: Mapping[str, Any]) -> Iterator[Edit]:
    section: Mapping[str, Any] = old if isinstance(old, dict) else {}
    was_fsdp1 = name == "fsdp_config" and _is_fsdp1(section)
    if was_fsdp1:
        for key in (prefix + one for one in _FSDP1 for prefix in ("fsdp_", "")):
            if key in section:
                yield Edit("delete", f"{name}.{key}")
        new = {**new, "fsdp_reshard_after_forward": _RESHARD[_sharding(section)]}
    for key, value in new.items():
        spelled = _key_in_file(section, name, key)
        stays = spelled in section and f"{name}.{key}" not in _ANSWERED
        if was_fsdp1 and str(section.get(spelled)).upper() in ("LOCAL_STATE_DICT", "2") and "state_dict" in key:
            stays = False  # FSDP2 rejects it
        if key == "fsdp_cpu_ram_efficient_loading" and value is False:  # with torchao's fp8, accelerate rejects true
            stays = False
        if name != "fsdp_config" and key in _KINDS and _is_enabled(key, section.get(spelled)) and spelled in section:
            continue
        if stays and not (was_fsdp1 and key == "fsdp_reshard_after_forward"):  # a boolean in version 2, a name in 1
            continue
        if spelled not in section or not _is_equal(section[spelled], value):
            yield Edit("set", f"{name}.{spelled}", value)
    for key in _ONLY_THERE:
        if name == "deepspeed_config" and key in section and key not in new:
            yield Edit("delete", f"{name}.{key}")
    for dotted in sorted(_ANSWERED):
        of, _, key = dotted.partition(".")
        spelled = _key_in_file(section, name, key)
        if of == name and key not in new and spelled in section and _is_enabled(key, section[spelled]):
            yield Edit("delete", f"{name}.{spelled}")


def _is_equal(old: Any, new: Any) -> bool:
    """Return whether both mean the same to accelerate, which accepts text for numbers and booleans in sections."""
    return str(old).lower() == str(new).lower()


def _is_enabled(key: str, value: Any) -> bool:
    """Return whether a value that the proposal does not write enables something."""
    if key == "gradient_accumulation_steps":
        return str(value) not in ("1", "auto")
    return str(value).lower() not in ("none", "false", "no", "0")
