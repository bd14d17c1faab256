"""Where does every value of a launch come from: the file, a default of accelerate, the environment?

`mgpu configure --show-origin` prints it. accelerate itself evaluates the launch, which exposes keys that it reads but
never applies.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from mgpu import errors, probes
from mgpu.config import LOADER, deepspeed_json
from mgpu.config.reading import parse_config
from mgpu.errors import USAGE, MgpuError, clip
from mgpu.process import scratch
from mgpu.report import document
from mgpu.report.screen import Line, Screen, Style, wrapped
from mgpu.secrets_masking import masked, masked_value
from mgpu.snapshot import Config

if TYPE_CHECKING:
    from mgpu.validate.request import Request
    from mgpu.validate.validate_json import OriginEntry, OriginsDocument

# fmt: off
# Settings of the launcher that a config may omit, without those that only other accelerators read.
_DEFAULTS = (
    "num_processes", "num_machines", "machine_rank", "mixed_precision", "gpu_ids", "main_process_ip",
    "main_process_port", "rdzv_backend", "same_network", "use_cpu", "debug", "enable_cpu_affinity",
    "num_cpu_threads_per_process", "dynamo_backend",
)
# fmt: on
# A key in one of these sections sets the option with this prefix, which the file may omit (launch.py).
_PREFIX = {"fsdp_config": "fsdp_", "fp8_config": "fp8_", "dynamo_config": "dynamo_"}
# The distributed_type for which a section is used.
_OF_TYPE = {"fsdp_config": "FSDP", "deepspeed_config": "DEEPSPEED", "megatron_lm_config": "MEGATRON_LM"}
# Variables that a launch or its ranks read.
_OF_LAUNCHES = re.compile(
    r"PET_|ACCELERATE_|FSDP_|MEGATRON_LM_|PARALLELISM_CONFIG_"
    r"|(OMP_NUM_THREADS|CUDA_VISIBLE_DEVICES|MASTER_ADDR|MASTER_PORT)$"
)
_HANDLED_ELSEWHERE = ("compute_environment", "distributed_type")  # they select the launcher and are not its settings


@dataclass(frozen=True)
class Value:
    """One value, and where it comes from."""

    key: str
    value: Any
    source: str
    applied: bool | None = None  # None: unknown
    note: str = ""
    line: int | None = None
    column: int | None = None


def show(request: Request, contained: Mapping[str, bytes]) -> int:
    """Print the result of `--show-origin FILE` and return the exit code."""
    if request.format == "github":
        raise MgpuError("--show-origin: choose --format human or json", USAGE)
    documents = []
    screen = Screen.of()
    for name, raw in contained.items():
        deepspeed_json.refuse(raw, Path(name))
        config = parse_config(raw, name)
        if any(fault.fatal for fault in config.faults):
            raise MgpuError(f"{name}: {config.faults[0].message}", errors.NOT_READY)
        verdict = _load(raw, name, request) if request.loader else {}
        values = tuple(_hidden(one) for one in origins(config, verdict, os.environ))
        if request.format == "json":
            documents.append(_document(config, verdict, values))
        else:
            screen.show(_screen(config, verdict, values, screen))
    if documents:
        whole = documents[0] if len(documents) == 1 else {"schema": "mgpu.configure/1.0", "files": documents}
        print(document.text(whole), end="")
    return errors.READY


def _hidden(one: Value) -> Value:
    """Mask the secrets in a value."""
    return replace(one, value=masked_value(one.value, one.key), note=masked(one.note))


def origins(config: Config, verdict: Mapping[str, Any], environ: Mapping[str, str]) -> Iterator[Value]:
    """Yield every value of the file, then accelerate's defaults, then the environment variables.

    `verdict` is the loader's result for the file, empty with --no-loader.
    """
    launched = verdict.get("launched", {})
    settings: Mapping[str, Any] = launched.get("settings", {})
    seen = set()
    for key, value in _leaves(config.values):
        name = _setting(key)
        seen.add(name)
        mark = config.marks.get(key)
        applied, note = _applied(config, key, value, name, settings)
        source = f"{config.path}:{mark.line}" if mark else config.path
        yield Value(key, value, source, applied, note, mark.line if mark else None, mark.column if mark else None)
    for name in _DEFAULTS:
        if name in settings and name not in seen:
            by = "OMP_NUM_THREADS" if name == "num_cpu_threads_per_process" and "OMP_NUM_THREADS" in environ else ""
            source = f"{by} in the environment" if by else "accelerate's default"
            yield Value(name, settings[name], source, True)
    replaced = launched.get("environment", {})
    for name in sorted(name for name in environ if _OF_LAUNCHES.match(name)):
        new = replaced.get(name)
        note = f"the launch replaces it with {new}" if new is not None else ""
        yield Value(name, environ[name], "environment", None if not launched else new is None, note)


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _setting(key: str) -> str:
    """The launcher's name for a dotted key."""
    section, _, name = key.rpartition(".")
    prefix = _PREFIX.get(section, "")
    return name if name.startswith(prefix) else prefix + name


def _applied(config: Config, key: str, value: Any, name: str, settings: Mapping[str, Any]) -> tuple[bool | None, str]:
    """Whether the launch uses the value in the file, and a note on what it uses instead."""
    section = key.partition(".")[0]
    kind = _OF_TYPE.get(section)
    if kind and config.distributed_type not in (kind, None):
        return False, f"never applied: {section} needs distributed_type {kind}"
    if not settings:
        return None, ""
    if key in _HANDLED_ELSEWHERE:
        return True, ""
    if key == "fp16" and "mixed_precision" not in config.values:
        return True, f"accelerate uses mixed_precision: {config.precision}"
    if name not in settings:
        return (True, "") if isinstance(value, list | dict) else (False, "never applied")
    used = settings[name]
    if used == value and type(used) is type(value):
        return True, ""
    if value is None:
        return True, f"accelerate uses {_text(used)}"
    return False, f"never applied: accelerate uses {_text(used)}"


def _load(raw: bytes, name: str, request: Request) -> dict[str, Any]:
    """Run accelerate's own loader and launcher on the file, without a launch, and return their results."""
    with scratch.folder() as folder:
        path = Path(name)
        if name == "-":
            path = folder / "stdin.yaml"
            path.write_bytes(raw)
        arguments = {"paths": [str(path.resolve())], "launched": True}
        child = probes.run([replace(LOADER, arguments=arguments)], python=request.python)[0]
    results = child.found.get("loader") or [{}]
    return dict(results[0])


# ---- output


def _screen(config: Config, verdict: Mapping[str, Any], values: tuple[Value, ...], screen: Screen) -> list[Line]:
    lines: list[Line] = []
    if verdict.get("error"):
        text = f"accelerate {verdict['accelerate']} rejects the file: {clip(str(verdict['error']), 400)}"
        lines += screen.paragraph(text, style="fail")
    elif not verdict:
        lines += screen.paragraph("Not loaded with accelerate: which of these it applies is unknown.")
    first = min(max((len(one.key) for one in values), default=0), max(12, screen.width - 44)) + 2
    second = min(max((len(_text(one.value)) for one in values), default=0), 14) + 2
    for one in values:
        source = f"{one.source}{f', {one.note}' if one.note else ''}"
        style: Style = "warn" if one.applied is False else ""
        if screen.width < 60:
            lines.append([(f"{one.key}: {_text(one.value)}", "bold")])
            lines += screen.paragraph(source, "    ", "    ", style=style)
            continue
        head = f"{f'{one.key:<{first - 2}}  {_text(one.value)}':<{first + second - 2}}  "
        rows = wrapped(source, max(20, screen.width - len(head)))
        lines += [[(head, ""), (rows[0], style)], *([(" " * len(head) + row, style)] for row in rows[1:])]
    return lines


def _text(value: Any) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else clip(str(value)) if value != "" else "''"


def _document(config: Config, verdict: Mapping[str, Any], values: tuple[Value, ...]) -> OriginsDocument:
    return {
        "schema": "mgpu.configure/1.0",
        "config_path": config.path,
        "sha256": config.sha256,
        "accelerate": verdict.get("accelerate"),
        "error": verdict.get("error"),
        "values": [cast("OriginEntry", asdict(value)) for value in values],
        "exit_code": errors.READY,
    }
