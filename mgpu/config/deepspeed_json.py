"""What is in a DeepSpeed file (ds_config.json), and which programs can read it?

DeepSpeed itself reads it with hjson; accelerate and Trainer, which also fill in its "auto" values, as strict JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mgpu import file_reading
from mgpu.command_line import shell
from mgpu.config.loader_errors import not_json
from mgpu.config.tolerant_json import Tolerated, tolerant
from mgpu.errors import USAGE, MgpuError, reason
from mgpu.snapshot import DeepSpeedJson, Mark
from mgpu.structured_text import Malformed, json_of

LARGEST_BYTES = 1 << 20
# fmt: off
# Keys that only an accelerate config has at its top level.
_OF_ACCELERATE = frozenset({
    "compute_environment", "distributed_type", "num_processes", "num_machines", "machine_rank", "main_process_port",
    "main_process_ip", "main_training_function", "deepspeed_config", "fsdp_config", "mixed_precision", "gpu_ids",
    "use_cpu", "rdzv_backend", "downcast_bf16", "dynamo_config",
})
# fmt: on
_KEYS = ("zero_optimization", "train_micro_batch_size_per_gpu")
# Sections that other files have under the same names, and the key that they have in a DeepSpeed file.
_SECTIONS = dict.fromkeys(("bf16", "fp16", "bfloat16", "amp"), "enabled")
_SECTIONS |= {"optimizer": "params", "scheduler": "params"}
_NAMED = re.compile(r"[\"']?\b(?:zero_optimization|train_micro_batch_size_per_gpu|[bf]f?p?16|amp|optimizer)\b")
_IN_BROKEN = re.compile(r"\"(?:zero_optimization|train_micro_batch_size_per_gpu)\"\s*:")


def recognized(raw: bytes, name: str) -> DeepSpeedJson | None:
    """Return the DeepSpeed file with these bytes; None if it is another file, such as an accelerate config."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    begins = text.lstrip("\ufeff \t\r\n")[:1]
    if (begins not in ("{", "/", "#") and not name.endswith(".json")) or not _NAMED.search(text):
        return None
    found = read_text(text, name)
    if found.fault is not None:
        broken = _IN_BROKEN.search(text) and not any(f'"{key}"' in text for key in _OF_ACCELERATE)
        return found if broken else None
    if begins != "{" and not name.endswith(".json"):
        return None  # YAML that begins with a comment
    return found if _is_deepspeed(found.values) else None


def refuse(raw: bytes, path: Path) -> None:
    """Raise MgpuError if an accelerate config is expected, but this is a DeepSpeed file."""
    if recognized(raw, str(path)) is not None:
        again = shell("mgpu configure --validate {:path}", str(path))
        raise MgpuError(
            f"{path} is a DeepSpeed file, not an accelerate config: name it in one (deepspeed_config_file), or pass it"
            f" to your script. To check it: {again}",
            USAGE,
        )


def read(path: Path, name: str = "") -> DeepSpeedJson | None:
    """Return a file that a command names as its DeepSpeed file; None if it cannot be read."""
    try:
        return read_text(file_reading.read(path, most=LARGEST_BYTES).decode(), name or str(path))
    except (OSError, UnicodeDecodeError):
        return None


def read_text(text: str, name: str) -> DeepSpeedJson:
    """Return what a DeepSpeed file contains, read as strict JSON or, if it is not, as DeepSpeed itself reads it."""
    strict_fault = strict_at = None
    try:
        json_of(text)
    except Malformed as error:
        strict_fault, strict_at, _ = not_json(text, error.__cause__ or error)
    try:
        found = tolerant(text)
    except (Malformed, RecursionError) as error:
        line = getattr(error, "line", None)
        at = Mark(line, getattr(error, "column", None) or 1) if line else strict_at or Mark(1, 1)
        return DeepSpeedJson(name, fault=strict_fault or f"not JSON: {reason(error)}", fault_at=strict_at or at)
    if not isinstance(found.values, dict):
        return DeepSpeedJson(name, fault="not a JSON object", fault_at=Mark(1, 1))
    printable = json.dumps(found.values, ensure_ascii=False).encode("utf-8", "replace")  # without lone surrogates
    values = json.loads(printable)
    return DeepSpeedJson(
        name, values, found.marks, strict_fault=strict_fault, strict_at=strict_at, twice=_twice(found, strict_fault)
    )


def _twice(found: Tolerated, fault: str | None) -> tuple[str, ...]:
    return () if fault else found.twice


def _is_deepspeed(values: Mapping[str, Any]) -> bool:
    """Whether the keys are those of a DeepSpeed file."""
    if _OF_ACCELERATE & set(values):
        return False
    sections = (values.get(name) for name in _SECTIONS)
    return any(key in values for key in _KEYS) or any(
        isinstance(section, Mapping) and wanted in section
        for section, wanted in zip(sections, _SECTIONS.values(), strict=True)
    )
