"""Is the precision one that accelerate and the GPUs support?"""

from __future__ import annotations

from mgpu.check import Answer, Edit, Fix, Ok, Problem, Severity, Skip, check
from mgpu.planning.memory import PRECISIONS
from mgpu.planning.requirements import BF16, FP8
from mgpu.snapshot import Config, Gpu, Visible

from ._config_file import ARGS, PREPARE, has_shell_variable, is_readable, place_of, skip_if_unreadable, source_text
from ._schema import precision

_QUOTED = {"no": "'no' in quotes, which means fp32"}
# fmt: off
# Other common names for the precisions, including torch's.
_MEANT = {
    "float16": "fp16", "half": "fp16", "f16": "fp16", "torch.float16": "fp16", "fp-16": "fp16",
    "bfloat16": "bf16", "bfp16": "bf16", "torch.bfloat16": "bf16", "bf-16": "bf16", "brain": "bf16",
    "fp32": "no", "float32": "no", "full": "no", "none": "no", "32": "no", "torch.float32": "no",
}
# fmt: on


@check(Severity.ERROR, source=PREPARE, given=skip_if_unreadable)
def config_precision_invalid(config: Config) -> Answer:
    """mixed_precision is not one of no, fp16, bf16, fp8.

    Why: accelerate rejects other values.
    More: An unquoted `no` is false in YAML, at which accelerate stops, too, unless the command line has
    --mixed_precision: config_options_missing reports it.

    Fix: Write 'no' in quotes, fp16 or bf16.
    """
    value = config.values.get("mixed_precision")
    if value is False:
        return Skip("an unquoted no is left to the command line")
    if value is None or (isinstance(value, str) and value.lower() in PRECISIONS):
        return Ok(f"{value or 'none'}")
    if has_shell_variable(value):
        return Skip("mixed_precision contains a shell variable")
    sure = _MEANT.get(str(value).strip().lower())
    hint = f". Did you mean {sure}?" if sure else ""
    return Problem(
        f"mixed_precision: {source_text(config, 'mixed_precision')}{hint}",
        "accelerate supports no, fp16, bf16 and fp8.",
        Fix(
            f"Write {_QUOTED.get(sure, sure)}." if sure else "Write 'no', fp16 or bf16.",
            edits=(Edit("set", "mixed_precision", sure),) if sure else (),
        ),
        place=place_of(config, "mixed_precision"),
    )


@check(Severity.WARNING, source=ARGS, given=skip_if_unreadable)
def config_precision_twice(config: Config) -> Answer:
    """The config has both mixed_precision and the old key fp16.

    Why: accelerate reads only mixed_precision.
    More: It has done so since 0.6, and silently drops fp16.

    Fix: Delete fp16.
    """
    values = config.values
    if "fp16" not in values or "mixed_precision" not in values:
        return Ok("the precision is set once")
    return Problem(
        f"fp16: {source_text(config, 'fp16')} is overridden by"
        f" mixed_precision: {source_text(config, 'mixed_precision')}",
        fix=Fix(edits=(Edit("delete", "fp16"),)),
        place=place_of(config, "fp16"),
    )


def _weakest(gpus: tuple[Gpu, ...], visible: Visible) -> Gpu | None:
    known = [gpu for gpu in gpus if gpu.index in visible.gpus and gpu.compute_capability]
    return min(known, key=lambda gpu: gpu.compute_capability or (0, 0), default=None)


@check(Severity.WARNING, source="https://github.com/pytorch/pytorch/pull/148322")
def config_bf16_emulated(config: Config, gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """The config uses bf16 on a GPU that does not support it.

    Why: torch emulates it: results are correct, but slower than fp32.
    More: GPUs below compute capability 8.0 have no bf16 units. accelerate's own test counts emulation as support.

    Fix: Use fp16 on Volta and Turing, 'no' on older GPUs.
    """
    weakest = _weakest(gpus, visible)
    if not is_readable(config) or precision(config) != "bf16":
        return Skip("the config does not use bf16")
    if weakest is None:
        return Skip("no visible GPU with a known compute capability")
    major, minor = weakest.compute_capability or (0, 0)
    if (major, minor) >= BF16:
        return Ok(f"lowest compute capability {major}.{minor}, bf16 needs 8.0")
    return Problem(
        f"bf16 on {weakest.name} (compute capability {major}.{minor})",
        fix=Fix("Write mixed_precision: fp16." if major >= 7 else "Write mixed_precision: 'no'."),
        place=place_of(config, "mixed_precision"),
    )


@check(Severity.ERROR, source="https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/modeling.py")
def config_fp8_unsupported(config: Config, gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """The config uses fp8 on a GPU without fp8 units.

    Why: fp8 needs compute capability 8.9 (Ada) or 9.0 (Hopper).
    More: Below that, the ranks fall back to fp16 or stop.

    Fix: Use bf16.
    """
    weakest = _weakest(gpus, visible)
    if not is_readable(config) or precision(config) != "fp8":
        return Skip("the config does not use fp8")
    if weakest is None:
        return Skip("no visible GPU with a known compute capability")
    major, minor = weakest.compute_capability or (0, 0)
    if (major, minor) >= FP8:
        return Ok(f"lowest compute capability {major}.{minor}, fp8 needs 8.9")
    return Problem(
        f"fp8 on {weakest.name} (compute capability {major}.{minor})",
        fix=Fix("Write mixed_precision: bf16." if (major, minor) >= BF16 else "Write mixed_precision: fp16."),
        place=place_of(config, "mixed_precision"),
    )
