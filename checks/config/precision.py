"""Is the precision one that accelerate knows and the GPUs have?"""

from __future__ import annotations

from mgpu.check import Answer, Edit, Fix, Ok, Problem, Severity, Skip, check
from mgpu.planning.memory import PRECISIONS
from mgpu.planning.requirements import BF16, FP8
from mgpu.snapshot import Config, Gpu, Visible

from ._config_file import ARGS, PREPARE, expands, is_readable, place_of, readable, written
from ._schema import precision

_QUOTED = {"no": "'no' with quotes, which is fp32"}
# fmt: off
# What people write for them, torch's names among it.
_MEANT = {
    "float16": "fp16", "half": "fp16", "f16": "fp16", "torch.float16": "fp16", "fp-16": "fp16",
    "bfloat16": "bf16", "bfp16": "bf16", "torch.bfloat16": "bf16", "bf-16": "bf16", "brain": "bf16",
    "fp32": "no", "float32": "no", "full": "no", "none": "no", "32": "no", "torch.float32": "no",
}
# fmt: on


@check(Severity.ERROR, source=PREPARE, given=readable)
def config_precision_invalid(config: Config) -> Answer:
    """mixed_precision is not one of no, fp16, bf16, fp8.

    Why: an unquoted `no` is false in YAML and crashes the launcher; other words are refused.

    Fix: 'no' in quotes, fp16, bf16 or fp8.
    """
    value = config.values.get("mixed_precision")
    if value is None or (isinstance(value, str) and value.lower() in PRECISIONS):
        return Ok(f"{value or 'none'}")
    if expands(value):
        return Skip("mixed_precision waits for a shell")
    sure = "no" if value is False else _MEANT.get(str(value).strip().lower())
    shown = written(config, "mixed_precision")
    hint = " without quotes is false" if value is False else f". Did you mean {sure}?" if sure else ""
    return Problem(
        f"mixed_precision: {shown}{hint}",
        "YAML reads an unquoted no as false, and accelerate stops with AttributeError."
        if value is False
        else "accelerate knows no, fp16, bf16 and fp8.",
        Fix(
            "Write mixed_precision: 'no' with quotes."
            if value is False
            else f"Write {_QUOTED.get(sure, sure)}."
            if sure
            else "Write 'no', fp16, bf16 or fp8.",
            edits=(Edit("set", "mixed_precision", sure),) if sure else (),
        ),
        place=place_of(config, "mixed_precision"),
    )


@check(Severity.WARNING, source=ARGS, given=readable)
def config_precision_twice(config: Config) -> Answer:
    """The old key fp16 stands beside mixed_precision and says something else.

    Why: accelerate reads mixed_precision alone.
    More: It has since 0.6, and drops fp16 without a word.

    Fix: Delete fp16.
    """
    values = config.values
    if "fp16" not in values or "mixed_precision" not in values:
        return Ok("the precision is given once")
    return Problem(
        f"fp16: {written(config, 'fp16')} has no effect beside mixed_precision: {written(config, 'mixed_precision')}",
        fix=Fix(edits=(Edit("delete", "fp16"),)),
        place=place_of(config, "fp16"),
    )


def _weakest(gpus: tuple[Gpu, ...], visible: Visible) -> Gpu | None:
    known = [gpu for gpu in gpus if gpu.index in visible.gpus and gpu.compute_capability]
    return min(known, key=lambda gpu: gpu.compute_capability or (0, 0), default=None)


@check(Severity.WARNING, source="https://github.com/pytorch/pytorch/pull/148322")
def config_bf16_emulated(config: Config, gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """The config asks for bf16 on a GPU that does not have it.

    Why: torch emulates it: correct, and slower than fp32.
    More: That is so below compute capability 8.0: nothing fails. accelerate's own test counts emulation as support.

    Fix: fp16 on Volta and Turing, 'no' on older ones.
    """
    weakest = _weakest(gpus, visible)
    if not is_readable(config) or precision(config) != "bf16":
        return Skip("the config does not ask for bf16")
    if weakest is None:
        return Skip("no visible GPU with a known compute capability")
    major, minor = weakest.compute_capability or (0, 0)
    if (major, minor) >= BF16:
        return Ok(f"native from compute capability 8.0; the weakest GPU has {major}.{minor}")
    return Problem(
        f"bf16 on {weakest.name} (compute capability {major}.{minor})",
        fix=Fix("Write mixed_precision: fp16." if major >= 7 else "Write mixed_precision: 'no'."),
        place=place_of(config, "mixed_precision"),
    )


@check(Severity.ERROR, source="https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/modeling.py")
def config_fp8_unsupported(config: Config, gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """The config asks for fp8 on a GPU without fp8 units.

    Why: fp8 needs 8.9 (Ada) or 9.0 (Hopper).
    More: Below it the ranks fall back to fp16, or stop.

    Fix: bf16.
    """
    weakest = _weakest(gpus, visible)
    if not is_readable(config) or precision(config) != "fp8":
        return Skip("the config does not ask for fp8")
    if weakest is None:
        return Skip("no visible GPU with a known compute capability")
    major, minor = weakest.compute_capability or (0, 0)
    if (major, minor) >= FP8:
        return Ok(f"the weakest GPU has {major}.{minor}")
    return Problem(
        f"fp8 on {weakest.name} (compute capability {major}.{minor})",
        fix=Fix("Write mixed_precision: bf16." if (major, minor) >= BF16 else "Write mixed_precision: fp16."),
        place=place_of(config, "mixed_precision"),
    )
