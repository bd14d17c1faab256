"""Is the memory of every GPU healthy?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Family, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Gpu
from mgpu.text import counted

from ._gpus import gpu_problem, gpu_subjects, reset_commands
from ._wording import gpu_list

FAMILY = Family(gpu_only=True)

_DEBUG = "https://docs.nvidia.com/deploy/gpu-debug-guidelines/"
_MEMORY = "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/"
_RETIREMENT = "https://docs.nvidia.com/deploy/dynamic-page-retirement/"
_QUERIES = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html"

# Data center models that NVIDIA ships with ECC enabled (their data sheets), as whole words of the name.
# fmt: off
_ECC_MODELS = frozenset({
    "V100", "T4", "A10", "A10G", "A30", "A40", "A100", "A800", "L4", "L40", "L40S", "H20", "H100", "H200", "H800",
    "GH200", "B200", "B300", "GB200", "GB300",
})
# fmt: on
_VGPU = 2  # nvmlGpuVirtualizationMode_t: only the host can change ECC there
# DCGM's limit for retired pages per board (DcgmGPUHardwareLimits.h): its InfoROM stores no more.
_RETIRED_LIMIT = 63


@check(Severity.ERROR, source=_DEBUG)
def gpu_ecc_uncorrected(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU has had uncorrectable memory errors since the driver was loaded.

    Why: the GPU's memory returned wrong bits that ECC could not correct. A rank that reads them is killed.
    More: The damaged page may contain weights or gradients. The process that accesses it is killed (Xid 48, 94, 95),
    and every other rank then hangs in a collective.

    Fix: stop the jobs on it, then reset it. If errors recur, contact the vendor.
    """
    known = [gpu for gpu in gpus if gpu.ecc_uncorrected_volatile is not None]
    bad = [gpu for gpu in known if gpu.ecc_uncorrected_volatile]
    if bad:
        errors = sum(gpu.ecc_uncorrected_volatile or 0 for gpu in bad)
        return Problem(
            f"{counted(errors, 'uncorrected ECC error')} on {gpu_list(g.index for g in bad)} "
            "since the driver was loaded",
            fix=Fix(commands=reset_commands(bad), who="admin"),
            evidence={f"gpu_{gpu.index}": gpu.ecc_uncorrected_volatile for gpu in bad},
            subjects=gpu_subjects(bad),
        )
    if not known:
        return Skip("no GPU here reports ECC errors")
    return Ok(f"no uncorrected errors on {len(known)} of {len(gpus)} GPUs")


@check(Severity.ERROR, source=_MEMORY, condemns_node=True)
def gpu_row_remap_failed(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU has run out of spare memory rows.

    Why: no spare row was left to replace a bad one. NVIDIA's policy for this flag is to return the board.
    More: The bad row stays in use and will fail again.

    Fix: run NVIDIA's field diagnostic and return the board.
    """
    known = [gpu for gpu in gpus if gpu.rows_remap_failed is not None]
    bad = [gpu for gpu in known if gpu.rows_remap_failed]
    if bad:
        return Problem(
            f"row remapping failed on {gpu_list(g.index for g in bad)}",
            fix=Fix(commands=("nvidia-smi -q -d ROW_REMAPPER",), who="hardware"),
            evidence={f"gpu_{gpu.index}_remapped": gpu.rows_remapped_uncorrectable for gpu in bad},
            subjects=gpu_subjects(bad),
        )
    if not known:
        return Skip("no GPU here remaps rows")
    return Ok(f"no failed row remapping on {len(known)} of {len(gpus)} GPUs")


@check(Severity.WARNING, source=_MEMORY, because_of=("gpu_wants_recovery",))
def gpu_row_remap_pending(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU needs a reset to replace a bad memory row.

    Why: a bad memory row was marked for remapping. Its spare row is used after the next reset.
    More: The board is not defective.

    Fix: reset it when nothing runs on it.
    """
    known = [gpu for gpu in gpus if gpu.rows_remap_pending is not None]
    bad = [gpu for gpu in known if gpu.rows_remap_pending]
    if bad:
        return gpu_problem(
            bad,
            "row remapping pending until a reset",
            {"remapped": "rows_remapped_uncorrectable"},
            Fix(commands=reset_commands(bad), who="admin"),
        )
    return Ok(f"no pending remap on {len(known)} of {len(gpus)} GPUs") if known else Skip("no GPU here remaps rows")


@check(Severity.WARNING, source=_RETIREMENT)
def gpu_retired_pages_pending(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU needs a reset to retire a bad memory page.

    Why: a bad page stays in use until the GPU is reset.
    More: Until then the page may be allocated again, and a process that uses it fails.

    Fix: reset it when nothing runs on it.
    """
    known = [gpu for gpu in gpus if gpu.retired_pages_pending is not None]
    bad = [gpu for gpu in known if gpu.retired_pages_pending]
    if bad:
        return gpu_problem(
            bad,
            "page retirement pending until a reset",
            {"pending": lambda gpu: True},
            Fix(commands=reset_commands(bad), who="admin"),
        )
    if not known:
        return Skip("no GPU here retires pages")
    return Ok(f"no pending retirement on {len(known)} of {len(gpus)} GPUs")


@check(Severity.ERROR, source=_QUERIES, because_of=("gpu_row_remap_failed",), condemns_node=True)
def gpu_memory_unrepairable(gpus: tuple[Gpu, ...]) -> Answer:
    """The driver reports a GPU's memory as unrepairable.

    Why: the driver has no spare memory left to replace the damaged part.
    More: A process that accesses the damaged memory again is killed, and every other rank then hangs in a collective.

    Fix: run NVIDIA's field diagnostic and return the board.
    """
    known = [gpu for gpu in gpus if gpu.memory_unrepairable is not None]
    bad = [gpu for gpu in known if gpu.memory_unrepairable]
    if bad:
        return gpu_problem(
            bad,
            "unrepairable memory",
            {"serial": "serial"},
            Fix(commands=("nvidia-smi -q -d ECC,ROW_REMAPPER",), who="hardware"),
        )
    if not known:
        return Skip("not reported by any GPU or driver here (requires driver 590)")
    return Ok(f"no unrepairable memory on {len(known)} of {len(gpus)} GPUs")


@check(Severity.ERROR, source=_QUERIES)
def gpu_sram_errors_exceeded(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU's SRAM (caches and registers) has had more uncorrected errors than NVIDIA's threshold.

    Why: uncorrected errors in caches and registers exceed the driver's threshold.
    More: SRAM has no spare rows. The driver counts errors and sets this flag when the board should be returned. Until
    it is replaced, processes on it are occasionally killed, and the other ranks hang.

    Fix: run NVIDIA's field diagnostic and return the board.
    """
    known = [gpu for gpu in gpus if gpu.ecc_sram_threshold_exceeded is not None]
    bad = [gpu for gpu in known if gpu.ecc_sram_threshold_exceeded]
    if bad:
        return gpu_problem(
            bad,
            "uncorrected SRAM errors above the threshold",
            {"uncorrected": "ecc_uncorrected_aggregate"},
            Fix(commands=("sudo nvidia-smi -q -d ECC",), who="hardware"),
        )
    if known:
        return Ok(f"below the threshold on {len(known)} of {len(gpus)} GPUs")
    if any(gpu.ecc_enabled and gpu.rows_remap_failed is not None for gpu in gpus):
        return Skip("reported to root only: sudo nvidia-smi -q -d ECC")
    return Skip("no GPU here counts these errors")


@check(Severity.WARNING, source=_MEMORY, because_of=("gpu_row_remap_failed", "gpu_memory_unrepairable"))
def gpu_spare_rows_used_up(gpus: tuple[Gpu, ...]) -> Answer:
    """A memory bank of a GPU has no spare rows left.

    Why: the next bad row in this bank cannot be replaced.
    More: All bad rows so far were replaced. When the next one fails, remapping fails and the board has to be returned.

    Fix: report it to the hardware administrator.
    More: Nothing to do yet, but plan to replace the board.
    """
    known = [gpu for gpu in gpus if gpu.rows_banks_without_spare is not None]
    bad = [gpu for gpu in known if gpu.rows_banks_without_spare]
    if bad:
        banks = sum(gpu.rows_banks_without_spare or 0 for gpu in bad)
        return gpu_problem(
            bad,
            f"{counted(banks, 'memory bank')} without spare rows",
            {"banks": "rows_banks_without_spare"},
            Fix(commands=("nvidia-smi -q -d ROW_REMAPPER",), who="hardware"),
        )
    if not known:
        return Skip("no GPU here reports its spare rows")
    return Ok(f"all banks have spare rows on {len(known)} of {len(gpus)} GPUs")


@check(Severity.WARNING, source="https://github.com/NVIDIA/DCGM (DcgmGPUHardwareLimits.h)")
def gpu_pages_retired_to_the_limit(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU has retired the maximum number of memory pages.

    Why: no more bad pages can be retired.
    More: Boards before Ampere retire bad pages, and their InfoROM can record a fixed number. A page that fails after
    that stays in use, and processes that use it are killed.

    Fix: run NVIDIA's field diagnostic and return the board.
    """
    known = [gpu for gpu in gpus if gpu.retired_pages is not None]
    bad = [gpu for gpu in known if (gpu.retired_pages or 0) >= _RETIRED_LIMIT]
    if bad:
        return gpu_problem(
            bad,
            f"{bad[0].retired_pages} memory pages retired (limit {_RETIRED_LIMIT})",
            {"retired": "retired_pages"},
            Fix(commands=("nvidia-smi -q -d PAGE_RETIREMENT",), who="hardware"),
        )
    if not known:
        return Skip("no GPU here retires pages")
    most = max(gpu.retired_pages or 0 for gpu in known)
    return Ok(f"at most {counted(most, 'page')} retired on {len(known)} of {len(gpus)} GPUs")


@check(Severity.INFO, source=_QUERIES)
def gpu_repair_pending(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU needs a reset to repair a memory channel or a processing cluster.

    Why: a spare memory channel or processing cluster is used only after the next reset.

    Fix: reset it when nothing runs on it.
    """
    known = [gpu for gpu in gpus if gpu.repair_pending is not None]
    bad = [gpu for gpu in known if gpu.repair_pending]
    if bad:
        return gpu_problem(
            bad,
            "repair pending until a reset",
            {"pending": lambda gpu: True},
            Fix(commands=reset_commands(bad), who="admin"),
        )
    return (
        Ok(f"no pending repair on {len(known)} of {len(gpus)} GPUs") if known else Skip("not reported by any GPU here")
    )


@check(Severity.INFO, source=_DEBUG)
def gpu_memory_errors_before(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU has had uncorrected memory errors in the past, but none since the driver was loaded.

    Why: the errors were handled, and no new ones have occurred since the driver was loaded.
    More: If its ranks fail repeatedly, check this board first.

    Fix: nothing to do now.
    """
    known = [gpu for gpu in gpus if gpu.ecc_uncorrected_aggregate is not None]
    bad = [gpu for gpu in known if gpu.ecc_uncorrected_aggregate and not gpu.ecc_uncorrected_volatile]
    if bad:
        errors = sum(gpu.ecc_uncorrected_aggregate or 0 for gpu in bad)
        return gpu_problem(
            bad,
            f"{counted(errors, 'uncorrected memory error')} in the past",
            {"uncorrected": "ecc_uncorrected_aggregate", "rows_remapped": "rows_remapped_uncorrectable"},
            Fix(commands=("nvidia-smi -q -d ECC,ROW_REMAPPER",)),
        )
    return Ok(f"no earlier errors on {len(known)} of {len(gpus)} GPUs") if known else Skip("no GPU here counts errors")


@check(Severity.WARNING, source=_QUERIES)
def gpu_ecc_off(gpus: tuple[Gpu, ...]) -> Answer:
    """ECC is disabled on a data center GPU.

    Why: a flipped bit in this GPU's memory goes undetected into the results.
    More: ECC is sometimes disabled to save the few percent of memory it uses.

    Fix: enable it, then reset the GPU when it is idle.
    """
    known = [gpu for gpu in gpus if gpu.ecc_enabled is not None and gpu.virtualization != _VGPU and _has_ecc(gpu)]
    bad = [gpu for gpu in known if not gpu.ecc_enabled and not gpu.ecc_pending]
    if bad:
        return Problem(
            f"ECC is off on {gpu_list(g.index for g in bad)}",
            fix=Fix(
                commands=(
                    *(shell("sudo nvidia-smi -i {:number} -e 1", gpu.index) for gpu in bad),
                    *reset_commands(bad),
                ),
                who="admin",
            ),
            evidence={f"gpu_{gpu.index}_model": gpu.name for gpu in bad},
            subjects=gpu_subjects(bad),
        )
    if not known:
        return Skip("no GPU here has ECC by default")
    return Ok(f"ECC is on, or pending until a reset, on {len(known)} of {len(gpus)} GPUs")


def _has_ecc(gpu: Gpu) -> bool:
    """Return whether this model ships with ECC on: "NVIDIA L40S" does, "NVIDIA GeForce RTX 4090" does not."""
    return not _ECC_MODELS.isdisjoint(re.split(r"[\s-]+", gpu.name or ""))
