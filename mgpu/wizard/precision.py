"""Which precision do all GPUs of the run support, and which is best? Pure."""

from __future__ import annotations

from typing import Final

from mgpu.planning.gpu_models import is_target
from mgpu.planning.requirements import BF16, FP8, FP8_ACCELERATE, FP16, fp8_backends, is_older
from mgpu.snapshot import Snapshot
from mgpu.wizard.answers import Answers, Origin
from mgpu.wizard.devices import Devices
from mgpu.wizard.proposal_types import Option, Part, Setting, origin_of, refusal
from mgpu.wizard.software import installed_version

_PRECISIONS: Final = {"bf16": "bf16", "fp16": "fp16", "no": "fp32", "fp8": "fp8"}


def fp8_backend(snapshot: Snapshot) -> str | None:
    """Return accelerate's backend for fp8, as in fp8_config: "AO", "TE"; None if none is installed."""
    return next((name for name in fp8_backends(snapshot.packages or {}) if name != "MSAMP"), None)


def precision(snapshot: Snapshot, answers: Answers, used: Devices) -> tuple[str, Part]:
    """Return the precision all GPUs of the run support: bf16 from compute capability 8.0, fp16 from 7.0."""
    best, why = _best_precision(used)
    disabled = _impossible(snapshot, used)
    options = tuple(
        Option(name, text, disabled.get(name), name == best, _detail(name, used)) for name, text in _PRECISIONS.items()
    )
    name = best
    origin: Origin = "rule" if used.cpu or used.capability is None or is_target(snapshot) else "probe"
    problems: tuple[str, ...] = ()
    if answers.precision != "auto":
        name, origin, why = answers.precision, origin_of(answers, "precision"), _choice_reason(answers.precision, used)
        problems = refusal("precision", options, name)
    keys: dict[str, object] = {"mixed_precision": name}
    if name == "fp8" and (backend := fp8_backend(snapshot)):
        keys["fp8_config.fp8_backend"] = backend
    text = _PRECISIONS.get(name, name)
    setting = Setting("precision", text, origin, why, "precision", keys)
    return name, Part((setting,), {"precision": options}, {"precision": name}, problems)


_PRECISION_DETAIL: Final = {
    "bf16": "no loss scaling",
    "fp16": "needs loss scaling, can overflow",
    "no": "twice the memory for activations",
    "fp8": "fastest matrix products; monitor the loss",
}


def _detail(name: str, used: Devices) -> str:
    """Return the cost of an option. A slow one is not impossible."""
    if used.capability is not None and name == "bf16" and used.capability < BF16:
        return (
            f"native from compute capability 8.0, have {_format_capability(used)}: emulated by torch, slower than fp32"
        )
    if used.capability is not None and name == "fp16" and used.capability < FP16:
        return f"tensor cores need compute capability 7.0, have {_format_capability(used)}: saves memory, not time"
    return _PRECISION_DETAIL[name]


def _format_capability(used: Devices) -> str:
    return ".".join(str(part) for part in used.capability or ())


def _best_precision(used: Devices) -> tuple[str, str]:
    if used.cpu:
        return "no", "CPU ranks"
    if used.capability is None:
        return "no", "compute capability unknown"
    major, minor = used.capability
    name = "bf16" if (major, minor) >= BF16 else "fp16" if (major, minor) >= FP16 else "no"
    return name, f"compute capability {major}.{minor}"


def _impossible(snapshot: Snapshot, used: Devices) -> dict[str, str]:
    """Return why a precision is impossible, by its name."""
    if used.cpu:
        return {"fp16": "on the CPU, accelerate trains in fp32 instead", "fp8": "needs a GPU"}
    if used.capability is None:
        return {"fp8": "needs compute capability 8.9; that of a GPU is unknown"}
    major, minor = used.capability
    found: dict[str, str] = {}
    if (major, minor) < FP8:
        found["fp8"] = f"needs compute capability 8.9, have {major}.{minor}"
    elif is_older(accelerate := installed_version(snapshot, "accelerate"), FP8_ACCELERATE):
        found["fp8"] = f"needs accelerate 1.6; {accelerate} is installed and does not pass fp8 settings to the ranks"
    elif snapshot.packages is None:
        found["fp8"] = "needs torchao or transformer-engine; installed packages are unknown"
    elif fp8_backend(snapshot) is None:
        found["fp8"] = "needs torchao or transformer-engine; neither is installed"
    return found


def _choice_reason(name: str, used: Devices) -> str:
    if used.cpu or used.capability is None:
        return "chosen"
    return f"chosen; compute capability {used.capability[0]}.{used.capability[1]}"
