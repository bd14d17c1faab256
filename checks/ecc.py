"""Is the memory of every GPU sound?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Family, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Gpu
from mgpu.text import counted

from ._gpus import gpu_problem, names_of, reset
from ._wording import gpu_list

FAMILY = Family(gpu_only=True)

_DEBUG = "https://docs.nvidia.com/deploy/gpu-debug-guidelines/"
_MEMORY = "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/"
_RETIREMENT = "https://docs.nvidia.com/deploy/dynamic-page-retirement/"
_QUERIES = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html"

# Data-centre models, which NVIDIA ships with ECC switched on (their data sheets), as whole words of the name.
# fmt: off
_ECC_MODELS = frozenset({
    "V100", "T4", "A10", "A10G", "A30", "A40", "A100", "A800", "L4", "L40", "L40S", "H20", "H100", "H200", "H800",
    "GH200", "B200", "B300", "GB200", "GB300",
})
# fmt: on
_VGPU = 2  # nvmlGpuVirtualizationMode_t: there ECC is the host's to switch
# DCGM's limit for the pages a board may retire (DcgmGPUHardwareLimits.h): its InfoROM keeps no more.
_RETIRED_LIMIT = 63


@check(Severity.ERROR, source=_DEBUG)
def gpu_ecc_uncorrected(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU has met memory errors that its ECC could not correct, since the driver was loaded.

    Why: the memory of this GPU gave wrong bits that ECC could not repair; a rank that touches them is killed.
    More: The damaged page may hold weights or gradients; the process that touches it is killed (Xid 48, 94, 95), and
    every other rank then waits in a collective.

    Fix: stop the jobs on it, then reset it. If it comes back: the vendor.
    """
    known = [gpu for gpu in gpus if gpu.ecc_uncorrected_volatile is not None]
    bad = [gpu for gpu in known if gpu.ecc_uncorrected_volatile]
    if bad:
        errors = sum(gpu.ecc_uncorrected_volatile or 0 for gpu in bad)
        return Problem(
            f"{counted(errors, 'uncorrected ECC error')} on {gpu_list(g.index for g in bad)} "
            "since the driver was loaded",
            fix=Fix(commands=reset(bad), who="admin"),
            evidence={f"gpu_{gpu.index}": gpu.ecc_uncorrected_volatile for gpu in bad},
            subjects=names_of(bad),
        )
    if not known:
        return Skip("no GPU here reports ECC errors")
    return Ok(f"no uncorrected errors on {len(known)} of {len(gpus)} GPUs")


@check(Severity.ERROR, source=_MEMORY, condemns_node=True)
def gpu_row_remap_failed(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU has run out of spare memory rows.

    Why: no spare row was left for a bad one. NVIDIA's rule for this flag is to return the board.
    More: A bad row could not be replaced, so it will be hit again: the board is at its end.

    Fix: run NVIDIA's field diagnostic and return the board.
    """
    known = [gpu for gpu in gpus if gpu.rows_remap_failed is not None]
    bad = [gpu for gpu in known if gpu.rows_remap_failed]
    if bad:
        return Problem(
            f"row remapping failed on {gpu_list(g.index for g in bad)}",
            fix=Fix(commands=("nvidia-smi -q -d ROW_REMAPPER",), who="hardware"),
            evidence={f"gpu_{gpu.index}_remapped": gpu.rows_remapped_uncorrectable for gpu in bad},
            subjects=names_of(bad),
        )
    return Ok(f"none failed on {len(known)} of {len(gpus)} GPUs") if known else Skip("no GPU here remaps rows")


@check(Severity.WARNING, source=_MEMORY, because_of=("gpu_wants_recovery",))
def gpu_row_remap_pending(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU waits for a reset to replace a bad memory row.

    Why: a bad memory row was taken out of use; its spare comes into use at the next reset.
    More: Not a fault of the board.

    Fix: reset it when nothing runs there.
    """
    known = [gpu for gpu in gpus if gpu.rows_remap_pending is not None]
    bad = [gpu for gpu in known if gpu.rows_remap_pending]
    if bad:
        return gpu_problem(
            bad,
            "a row remap waits for a reset",
            {"remapped": "rows_remapped_uncorrectable"},
            Fix(commands=reset(bad), who="admin"),
        )
    return Ok(f"no remap waits on {len(known)} of {len(gpus)} GPUs") if known else Skip("no GPU here remaps rows")


@check(Severity.WARNING, source=_RETIREMENT)
def gpu_retired_pages_pending(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU waits for a reset to retire a bad memory page.

    Why: a bad page is still in use until the GPU is reset.
    More: Until the reset the page may be handed out again, and a process that gets it fails.

    Fix: reset it when nothing runs there.
    """
    known = [gpu for gpu in gpus if gpu.retired_pages_pending is not None]
    bad = [gpu for gpu in known if gpu.retired_pages_pending]
    if bad:
        return gpu_problem(
            bad,
            "page retirement waits for a reset",
            {"pending": lambda gpu: True},
            Fix(commands=reset(bad), who="admin"),
        )
    return Ok(f"none waits on {len(known)} of {len(gpus)} GPUs") if known else Skip("no GPU here retires pages")


@check(Severity.ERROR, source=_QUERIES, because_of=("gpu_row_remap_failed",), condemns_node=True)
def gpu_memory_unrepairable(gpus: tuple[Gpu, ...]) -> Answer:
    """The driver holds a GPU's memory for damaged beyond repair.

    Why: the driver has nothing left to replace the damaged memory with.
    More: The damage will be hit again, and the process that hits it is killed; every other rank then waits in a
    collective.

    Fix: run NVIDIA's field diagnostic and return the board.
    """
    known = [gpu for gpu in gpus if gpu.memory_unrepairable is not None]
    bad = [gpu for gpu in known if gpu.memory_unrepairable]
    if bad:
        return gpu_problem(
            bad,
            "memory damaged beyond repair",
            {"serial": "serial"},
            Fix(commands=("nvidia-smi -q -d ECC,ROW_REMAPPER",), who="hardware"),
        )
    if not known:
        return Skip("no GPU or driver here tells (it takes driver 590)")
    return Ok(f"nothing beyond repair on {len(known)} of {len(gpus)} GPUs")


@check(Severity.ERROR, source=_QUERIES)
def gpu_sram_errors_exceeded(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU's caches and registers have had more uncorrected errors than NVIDIA lets pass.

    Why: the driver's own threshold for uncorrected errors in caches and registers is passed.
    More: SRAM has no spare rows. The driver counts its errors and raises this flag when the board is due to be
    returned; until then processes on it are killed now and then, and the other ranks hang.

    Fix: run NVIDIA's field diagnostic and return the board.
    """
    known = [gpu for gpu in gpus if gpu.ecc_sram_threshold_exceeded is not None]
    bad = [gpu for gpu in known if gpu.ecc_sram_threshold_exceeded]
    if bad:
        return gpu_problem(
            bad,
            "too many SRAM errors",
            {"uncorrected": "ecc_uncorrected_aggregate"},
            Fix(commands=("sudo nvidia-smi -q -d ECC",), who="hardware"),
        )
    if known:
        return Ok(f"below the threshold on {len(known)} of {len(gpus)} GPUs")
    if any(gpu.ecc_enabled and gpu.rows_remap_failed is not None for gpu in gpus):
        return Skip("only root is told: sudo nvidia-smi -q -d ECC")
    return Skip("no GPU here counts these errors")


@check(Severity.WARNING, source=_MEMORY, because_of=("gpu_row_remap_failed", "gpu_memory_unrepairable"))
def gpu_spare_rows_used_up(gpus: tuple[Gpu, ...]) -> Answer:
    """A memory bank of a GPU has no spare row left.

    Why: the next bad row in such a bank cannot be replaced.
    More: The rows that went bad so far were replaced. The next one in the same bank cannot be: remapping then fails,
    and the board has to be returned.

    Fix: tell who looks after the hardware.
    More: Nothing to do yet; plan for the replacement of the board.
    """
    known = [gpu for gpu in gpus if gpu.rows_banks_without_spare is not None]
    bad = [gpu for gpu in known if gpu.rows_banks_without_spare]
    if bad:
        banks = sum(gpu.rows_banks_without_spare or 0 for gpu in bad)
        return gpu_problem(
            bad,
            f"{counted(banks, 'memory bank')} without a spare row",
            {"banks": "rows_banks_without_spare"},
            Fix(commands=("nvidia-smi -q -d ROW_REMAPPER",), who="hardware"),
        )
    if not known:
        return Skip("no GPU here tells its spare rows")
    return Ok(f"each bank has spare rows on {len(known)} of {len(gpus)} GPUs")


@check(Severity.WARNING, source="https://github.com/NVIDIA/DCGM (DcgmGPUHardwareLimits.h)")
def gpu_pages_retired_to_the_limit(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU has retired as many memory pages as it can keep a list of.

    Why: there is no room to retire another bad page.
    More: Boards before Ampere take bad pages out of use, and their InfoROM has room for a fixed number of them. A page
    that goes bad after that stays in use: processes that get it are killed.

    Fix: run NVIDIA's field diagnostic and return the board.
    """
    known = [gpu for gpu in gpus if gpu.retired_pages is not None]
    bad = [gpu for gpu in known if (gpu.retired_pages or 0) >= _RETIRED_LIMIT]
    if bad:
        return gpu_problem(
            bad,
            f"{bad[0].retired_pages} memory pages retired, the limit is {_RETIRED_LIMIT}",
            {"retired": "retired_pages"},
            Fix(commands=("nvidia-smi -q -d PAGE_RETIREMENT",), who="hardware"),
        )
    if not known:
        return Skip("no GPU here retires pages")
    most = max(gpu.retired_pages or 0 for gpu in known)
    return Ok(f"at most {counted(most, 'page')} retired on {len(known)} of {len(gpus)} GPUs")


@check(Severity.INFO, source=_QUERIES)
def gpu_repair_pending(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU waits for a reset to repair a memory channel or a processing cluster.

    Why: a spare memory channel or processing cluster comes into use at the next reset.

    Fix: reset it when nothing runs there.
    """
    known = [gpu for gpu in gpus if gpu.repair_pending is not None]
    bad = [gpu for gpu in known if gpu.repair_pending]
    if bad:
        return gpu_problem(
            bad, "a repair waits for a reset", {"pending": lambda gpu: True}, Fix(commands=reset(bad), who="admin")
        )
    return Ok(f"none waits on {len(known)} of {len(gpus)} GPUs") if known else Skip("no GPU here tells")


@check(Severity.INFO, source=_DEBUG)
def gpu_memory_errors_before(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU has met uncorrected memory errors in its life, none since the driver was loaded.

    Why: they were dealt with, and none has come since the driver was loaded.
    More: When its ranks fail again and again, this is the board to look at first.

    Fix: nothing to do now.
    """
    known = [gpu for gpu in gpus if gpu.ecc_uncorrected_aggregate is not None]
    bad = [gpu for gpu in known if gpu.ecc_uncorrected_aggregate and not gpu.ecc_uncorrected_volatile]
    if bad:
        errors = sum(gpu.ecc_uncorrected_aggregate or 0 for gpu in bad)
        return gpu_problem(
            bad,
            f"{counted(errors, 'uncorrected memory error')} in earlier runs",
            {"uncorrected": "ecc_uncorrected_aggregate", "rows_remapped": "rows_remapped_uncorrectable"},
            Fix(commands=("nvidia-smi -q -d ECC,ROW_REMAPPER",)),
        )
    return Ok(f"no earlier errors on {len(known)} of {len(gpus)} GPUs") if known else Skip("no GPU here counts them")


@check(Severity.WARNING, source=_QUERIES)
def gpu_ecc_off(gpus: tuple[Gpu, ...]) -> Answer:
    """ECC is switched off on a data-centre GPU.

    Why: a flipped bit in the memory of this GPU goes unnoticed, into the results.
    More: Somebody switched it off for the few percent of memory it takes.

    Fix: switch it on, then reset the GPU when it is idle.
    """
    known = [gpu for gpu in gpus if gpu.ecc_enabled is not None and gpu.virtualization != _VGPU and _has_ecc(gpu)]
    bad = [gpu for gpu in known if not gpu.ecc_enabled and not gpu.ecc_pending]
    if bad:
        return Problem(
            f"ECC is off on {gpu_list(g.index for g in bad)}",
            fix=Fix(
                commands=(*(shell("sudo nvidia-smi -i {:number} -e 1", gpu.index) for gpu in bad), *reset(bad)),
                who="admin",
            ),
            evidence={f"gpu_{gpu.index}_model": gpu.name for gpu in bad},
            subjects=names_of(bad),
        )
    if not known:
        return Skip("no GPU here has ECC by default")
    return Ok(f"ECC is on, or waits for a reset, on {len(known)} of {len(gpus)} GPUs")


def _has_ecc(gpu: Gpu) -> bool:
    """Whether this model comes with ECC on: "NVIDIA L40S" does, "NVIDIA GeForce RTX 4090" does not."""
    return not _ECC_MODELS.isdisjoint(re.split(r"[\s-]+", gpu.name or ""))
