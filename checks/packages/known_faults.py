"""Do the installed releases have known faults that affect this machine or this config?

The rows are in `_faults_nccl` and `_faults_training`. NCCL's own check is in `nccl`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.planning.requirements import version_numbers
from mgpu.snapshot import Config, Driver, Gpu, Host, Nccl, Plan, Pytorch, Visible
from mgpu.text import counted, listed

from .._faults import (
    TABLES_DATE,
    Fault,
    Situation,
    describe,
    judge_faults,
    newest_fix,
    shown_gpus,
    sources,
    stopgaps,
    update,
    update_nccl,
)
from .._faults_nccl import DRIVER_FAULTS, NCCL_FAULTS
from .._faults_training import TORCH_FAULTS, TRAINING_FAULTS
from .._grammars import format_version
from .._variables import NEWEST_NCCL

_TORCH_RELEASES = "https://github.com/pytorch/pytorch/releases"
# fmt: off
# The newest releases that the tables were compared with: PyPI, and docs.nvidia.com/cuda/cuda-toolkit-release-notes.
_NEWEST: Mapping[str, tuple[int, ...]] = {
    "NCCL": NEWEST_NCCL[:2], "torch": (2, 15), "driver": (616,), "accelerate": (1, 15), "transformers": (5, 24),
    "deepspeed": (0, 19),
}
# developer.nvidia.com/cuda-gpus. Older ones than 7.0 are not new.
_KNOWN_COMPUTE = {
    (7, 0), (7, 2), (7, 5), (8, 0), (8, 6), (8, 7), (8, 9), (9, 0), (10, 0), (10, 3), (11, 0), (12, 0), (12, 1),
}
# fmt: on


def _without_use(rows: Sequence[Fault]) -> list[Fault]:
    return [row for row in rows if row.use is None]


def _problem(hits: Sequence[Fault], versions: Mapping[str, str | None], fixes: tuple[Fix, ...]) -> Problem:
    """Return one problem for several faults; the title has the first."""
    first = hits[0]
    return Problem(
        describe(first, versions[first.package]) + (f" {len(hits) - 1} more." if len(hits) > 1 else ""),
        " ".join(row.effect for row in hits),
        fixes,
        sources(hits) | {row.package: versions[row.package] for row in hits},
        tuple(dict.fromkeys(row.package for row in hits)),
    )


def _updates(hits: Sequence[Fault]) -> tuple[Fix, ...]:
    """Return the fixes of faults in several packages."""
    packages = dict.fromkeys(row.package for row in hits)
    return tuple(fix for name in packages for fix in update([row for row in hits if row.package == name], name))


@check(Severity.WARNING, source=_TORCH_RELEASES, because_of=("torch_missing", "torch_is_cpu_build"))
def torch_version_known_bad(
    pytorch: Pytorch, packages: Mapping[str, str], gpus: tuple[Gpu, ...], visible: Visible
) -> Answer:
    """This release of PyTorch or triton has a known bug on these GPUs.

    Why: a release can compute wrong values, or fail to compile, on one GPU architecture only. A patch release fixes it.

    Fix: update it.
    """
    if not pytorch.version or not pytorch.cuda:
        return Skip("no torch with CUDA")
    versions = {"torch": pytorch.version, "triton": packages.get("triton")}
    hits, unknown = judge_faults(_without_use(TORCH_FAULTS), versions, Situation(gpus=shown_gpus(gpus, visible)))
    if hits:
        return _problem(hits, versions, _updates(hits))
    missing = f"; not known: {listed(unknown)}" if unknown else ""
    return Ok(f"no known bug of torch {pytorch.version} affects these GPUs{missing}")


@check(Severity.WARNING, source="https://docs.nvidia.com/datacenter/tesla/index.html", because_of=("gpu_lost",))
def driver_version_known_bad(driver: Driver, gpus: tuple[Gpu, ...]) -> Answer:
    """This driver release has a known bug that affects these GPUs.

    Why: GPUs time out or are not supported with some driver releases. A later release of the same branch fixes it.

    Fix: update the driver.
    """
    if not driver.version or not gpus:
        return Skip("the driver's version is unknown" if gpus else "no GPU here")
    versions = {"driver": driver.version}
    hits, unknown = judge_faults(DRIVER_FAULTS, versions, Situation(gpus=[gpu for gpu in gpus if not gpu.lost]))
    if hits:
        newer = Fix(f"Update the driver to {newest_fix(hits)} or newer.", who="admin")
        return _problem(hits, versions, (newer, *stopgaps(hits)))
    missing = f"; not known: {listed(unknown)}" if unknown else ""
    return Ok(f"no known bug of driver {driver.version} affects these GPUs{missing}")


@check(Severity.WARNING, source="https://github.com/huggingface/accelerate/releases")
def versions_known_bad_for_config(packages: Mapping[str, str], config: Config) -> Answer:
    """An installed version has a known bug in a feature that this config uses.

    Why: some releases of DeepSpeed, accelerate and transformers have bugs in one strategy only. Often nothing fails,
    but gradients are wrong, weights lose precision, or a step takes several times as long.

    Fix: update the package.
    """
    rows = _without_use(TRAINING_FAULTS)
    hits, unknown = judge_faults(rows, packages, Situation(config=config))
    if hits:
        return _problem(hits, packages, _updates(hits))
    missing = "; whether gradients are accumulated is not known" if unknown else ""
    return Ok(f"no known bad version ({counted(len(rows), 'row')} checked){missing}")


@check(Severity.INFO, source=_TORCH_RELEASES)
def versions_known_bad_in_some_uses(
    nccl: Nccl,
    pytorch: Pytorch,
    packages: Mapping[str, str],
    gpus: tuple[Gpu, ...],
    visible: Visible,
    plan: Plan,
    host: Host,
) -> Answer:
    """An installed version has a known bug that depends on what the script does.

    Why: mgpu cannot see whether the script does this.
    More: The versions, the GPUs and the number of nodes match a known bug. Whether the run is affected depends on the
    script, which mgpu does not execute.

    Fix: compare the list with your script, and update if it is affected.
    """
    versions = {**packages, "nccl": nccl.libraries[0].version if nccl.libraries else None}
    versions["torch"] = pytorch.version if pytorch.cuda else None
    shown = shown_gpus(gpus, visible)
    rows = [row for row in (*NCCL_FAULTS, *TORCH_FAULTS, *TRAINING_FAULTS) if row.use is not None]
    if len(shown) < 2 and plan.nodes < 2:
        rows = [row for row in rows if row.package != "nccl"]  # not used with a single GPU
    hits, _ = judge_faults(rows, versions, Situation(host.machine, shown, plan.nodes))
    if not hits:
        return Ok(f"no such bug in the installed versions ({counted(len(rows), 'row')} checked)")
    of_nccl = [row for row in hits if row.package == "nccl"]
    others = [row for row in hits if row.package != "nccl"]
    return Problem(
        f"{counted(len(hits), 'known bug')} in some uses: "
        + "; ".join(f"{row.package} {versions[row.package]} ({row.use})" for row in hits),
        " ".join(f"{row.use}: {row.effect}" for row in hits),
        (Fix(), *(update_nccl(of_nccl, nccl) if of_nccl else ()), *_updates(others)),
        sources(hits) | {row.package: versions[row.package] for row in hits},
        tuple(dict.fromkeys(row.package for row in hits)),
    )


@check(Severity.INFO, source="https://pypi.org/project/nvidia-nccl-cu13/")
def versions_newer_than_mgpu_knows(
    nccl: Nccl, pytorch: Pytorch, packages: Mapping[str, str], driver: Driver, gpus: tuple[Gpu, ...]
) -> Answer:
    """What is installed is newer than the tables of this mgpu.

    Why: nothing is wrong. mgpu has no rows about these releases or GPUs, so it cannot name their bugs, and may not know
    new variables and options.

    Fix: no action needed. A newer mgpu may know them.
    """
    installed = {
        "NCCL": nccl.libraries[0].version if nccl.libraries else None,
        "torch": pytorch.version,
        "driver": driver.version,
        **{name: packages.get(name) for name in ("accelerate", "transformers", "deepspeed")},
    }
    newer = {
        name: version
        for name, version in installed.items()
        if version and version_numbers(version)[: len(_NEWEST[name])] > _NEWEST[name]
    }
    kinds = {gpu.compute_capability for gpu in gpus if gpu.compute_capability}
    if unknown := [format_version(kind) for kind in sorted(kinds - _KNOWN_COMPUTE) if kind > min(_KNOWN_COMPUTE)]:
        newer["GPU architecture"] = " and ".join(unknown)
    if not newer:
        return Ok(f"no release newer than the tables of {TABLES_DATE}")
    return Problem(
        f"newer than this mgpu knows (tables of {TABLES_DATE}): "
        + listed(f"{name} {version}" for name, version in newer.items()),
        evidence=newer,
        subjects=tuple(newer),
    )
