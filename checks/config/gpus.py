"""Are the GPUs that the config names here, and do they have its precision?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Config, Gpu, Visible

from .._knowledge import gpu_list, whole
from ._file import BROKEN, LAUNCH, place_of, readable, suggestion

_BF16 = (8, 0)  # native bf16 begins here; torch.cuda.is_bf16_supported() counts emulation as well
_FP8 = (8, 9)  # accelerate.utils check_cuda_fp8_capability


@check(Severity.ERROR, source=LAUNCH)
def config_gpu_ids_invalid(config: Config, gpus: tuple[Gpu, ...]) -> Answer:
    """gpu_ids is not a list of GPUs of this machine.

    Why: accelerate writes it into CUDA_VISIBLE_DEVICES as it stands. A number without quotes crashes the launcher; an
    id twice or out of range leaves fewer GPUs, or none, and then every rank trains alone on the CPU.

    Fix: quote it, and name each GPU once; or leave it out.
    """
    if not readable(config):
        return Skip(BROKEN)
    value = config.values.get("gpu_ids")
    if value in (None, "all"):
        return Skip("gpu_ids does not choose")
    at = place_of(config, "gpu_ids")
    if not isinstance(value, str):
        quoted = str(value).strip("[]").replace(" ", "")
        return Problem(
            f"gpu_ids: {value!r} is not text",
            "accelerate splits it at commas and stops with AttributeError.",
            Fix(f'Write gpu_ids: "{quoted}".'),
            place=at,
        )
    entries = [entry.strip() for entry in value.split(",")]
    number = sum(gpu.permitted for gpu in gpus)  # CUDA counts only those
    bad = [entry for entry in entries if (place := whole(entry)) is None or (gpus and place >= number)]
    twice = sorted({entry for entry in entries if entries.count(entry) > 1})
    if bad or twice:
        what = f"{bad[0]!r} is no GPU of this machine" if bad else f"{twice[0]} stands twice"
        return Problem(
            f"gpu_ids: {value!r}: {what}",
            "CUDA stops at an id it does not know, and shows no GPU at all when one stands twice.",
            Fix("Name each GPU once, or leave gpu_ids out to use all."),
            {"gpu_ids": value, "gpus": number},
            place=at,
        )
    ranks = config.ranks_here
    if ranks is not None and ranks > len(entries):
        return Problem(
            f"gpu_ids names {len(entries)} GPUs for {ranks} ranks",
            "Two ranks would share a GPU, and NCCL refuses that.",
            Fix("Name as many GPUs as there are ranks."),
            {"gpu_ids": value, "ranks": ranks},
            place=at,
        )
    return Ok(f"{gpu_list(entries)}")


@check(Severity.ERROR, source=LAUNCH)
def config_precision_invalid(config: Config) -> Answer:
    """mixed_precision is not one of no, fp16, bf16, fp8.

    Why: an unquoted `no` is false in YAML and crashes the launcher; other words are refused.

    Fix: 'no' in quotes, fp16, bf16 or fp8.
    """
    if not readable(config):
        return Skip(BROKEN)
    value = config.values.get("mixed_precision")
    if value is None or (isinstance(value, str) and value.lower() in ("no", "fp16", "bf16", "fp8")):
        return Ok(f"{value or 'none'}")
    fix = "Write mixed_precision: 'no' with quotes." if value is False else "Write 'no', fp16, bf16 or fp8."
    return Problem(
        f"mixed_precision: {value!r}" + suggestion(str(value), ("no", "fp16", "bf16", "fp8")),
        "YAML reads an unquoted no as false, and accelerate stops with AttributeError." if value is False
        else "accelerate knows no, fp16, bf16 and fp8.",
        Fix(fix),
        place=place_of(config, "mixed_precision"),
    )  # fmt: skip


def _precision(config: Config) -> str:
    """mixed_precision as accelerate takes it: in any case."""
    return str(config.values.get("mixed_precision") or "no").lower()


def _weakest(gpus: tuple[Gpu, ...], visible: Visible) -> Gpu | None:
    known = [gpu for gpu in gpus if gpu.index in visible.gpus and gpu.compute_capability]
    return min(known, key=lambda gpu: gpu.compute_capability or (0, 0), default=None)


@check(Severity.WARNING, source="https://github.com/pytorch/pytorch/pull/148322")
def config_bf16_emulated(config: Config, gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """The config asks for bf16 on a GPU that does not have it.

    Why: below compute capability 8.0 torch emulates bf16: nothing fails, training is slow. accelerate's own test counts
    emulation as support.

    Fix: fp16 on Volta and Turing, 'no' on older ones.
    """
    weakest = _weakest(gpus, visible)
    if not readable(config) or _precision(config) != "bf16":
        return Skip("the config does not ask for bf16")
    if weakest is None:
        return Skip("no visible GPU with a known compute capability")
    major, minor = weakest.compute_capability or (0, 0)
    if (major, minor) >= _BF16:
        return Ok(f"native from compute capability 8.0; the weakest GPU has {major}.{minor}")
    return Problem(
        f"bf16 on {weakest.name} (compute capability {major}.{minor})",
        "torch emulates it: correct, and slower than fp32.",
        Fix("Write mixed_precision: fp16." if major >= 7 else "Write mixed_precision: 'no'."),
        place=place_of(config, "mixed_precision"),
    )


@check(Severity.ERROR, source="https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/modeling.py")
def config_fp8_unsupported(config: Config, gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """The config asks for fp8 on a GPU without fp8 units.

    Why: fp8 begins with compute capability 8.9; below it the ranks fall back to fp16, or stop.

    Fix: bf16.
    """
    weakest = _weakest(gpus, visible)
    if not readable(config) or _precision(config) != "fp8":
        return Skip("the config does not ask for fp8")
    if weakest is None:
        return Skip("no visible GPU with a known compute capability")
    major, minor = weakest.compute_capability or (0, 0)
    if (major, minor) >= _FP8:
        return Ok(f"the weakest GPU has {major}.{minor}")
    return Problem(
        f"fp8 on {weakest.name} (compute capability {major}.{minor})",
        "fp8 needs 8.9 (Ada) or 9.0 (Hopper).",
        Fix("Write mixed_precision: bf16." if (major, minor) >= _BF16 else "Write mixed_precision: fp16."),
        place=place_of(config, "mixed_precision"),
    )
