"""`--deep`: do the GPUs work under real use?

One killable child per GPU creates a CUDA context, writes and reads memory, and computes. If more than one GPU passes,
another child copies between them. A GPU that another process uses is skipped.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mgpu.probes import build, runner
from mgpu.probes.runner import Child, Probe
from mgpu.snapshot import Gap, Gpu, Snapshot, gpu_in_use

# Memory used for a few seconds: about 500 MiB for the context (300 on small GPUs, more with many kernels loaded), and
# some matrices for the computation.
CONTEXT_BYTES = 500 << 20
NEEDED_BYTES = 1 << 30
_PARALLEL = 4  # each child can load a gigabyte of torch from a cold file system
_DEADLINE_S = 90.0  # cuInit takes seconds on eight GPUs without persistence mode, importing torch tens of seconds
_COPIES_DEADLINE_S = 60.0
_PATH = runner.Probe("gpu_run", (), 0).path

_NO_GPU = Gap("no_driver", "there is no GPU to use")


@dataclass(frozen=True)
class _Target:
    """A GPU or MIG instance to test in its own child, which sees it through CUDA_VISIBLE_DEVICES."""

    index: int  # NVML's
    uuid: str | None  # None: not reported by NVML, so the child uses CUDA's first GPU
    model: str | None
    skip: str | None = None


def announce_cost(snapshot: Snapshot) -> str | None:
    """Return the announcement of the test and its cost; None if there is nothing to test."""
    targets = [target for target in _targets(snapshot, even_if_busy=False) if target.skip is None]
    if not targets:
        return None
    what = f"GPU {targets[0].index}" if len(targets) == 1 else f"{len(targets)} GPUs"
    return f"Testing {what} for a few seconds: CUDA context (about {CONTEXT_BYTES >> 20} MiB each), short computation."


def run(
    snapshot: Snapshot,
    *,
    python: str | None = None,
    progress: Callable[[str], None] | None = None,
    even_if_busy: bool = False,
) -> Snapshot:
    """Return the Snapshot with the fact gpu_runs. `python`: the training run's interpreter."""
    gaps = {name: gap for name, gap in snapshot.gaps.items() if name != "gpu_runs"}
    if snapshot.driver is None or (snapshot.gpus is None and not snapshot.driver.nvml_error):
        gap = snapshot.gap("driver" if snapshot.driver is None else "gpus")
        return replace(snapshot, gaps={**gaps, "gpu_runs": gap})
    if not snapshot.driver.any_gpu:
        return replace(snapshot, gaps={**gaps, "gpu_runs": _NO_GPU})
    targets = _targets(snapshot, even_if_busy=even_if_busy)
    runs = {target.index: _skipped_run(target) for target in targets if target.skip}
    wanted = [target for target in targets if not target.skip]
    while wanted:
        some, wanted = wanted[:_PARALLEL], wanted[_PARALLEL:]
        for target, child in zip(some, _children(some, python, progress), strict=True):
            runs[target.index] = _read(target, child)
        if all(_hung_at_start(runs[target.index]) for target in some):  # a hung driver affects all GPUs
            runs |= {t.index: _skipped_run(replace(t, skip="CUDA hung on the GPUs tested before")) for t in wanted}
            break
    passed = [target for target in targets if runs[target.index]["ended"] == "done" and _is_whole_gpu(target)]
    if len(passed) > 1:
        _add_copies(runs, passed, python, progress)
    facts = build({"gpu_runs": [runs[index] for index in sorted(runs)]}, {})
    return replace(snapshot, gpu_runs=facts.gpu_runs, gaps={**gaps, **facts.gaps})


# ---- which GPUs


def _targets(snapshot: Snapshot, *, even_if_busy: bool) -> list[_Target]:
    """Return the GPUs the run would use, some with the reason to skip them."""
    if snapshot.gpus is None:
        return [_Target(0, None, None)]  # NVML does not respond, but CUDA may return a more specific error
    by_index = {gpu.index: gpu for gpu in snapshot.gpus}
    visible = snapshot.visible
    if visible is not None and visible.mig:
        owners: dict[int, tuple[Gpu, str]] = {}  # one instance of each GPU
        for mig in (visible.mig, *visible.more_mig):
            owner = next((gpu for gpu in snapshot.gpus if mig.removeprefix("MIG-") and _has(gpu, mig)), None)
            if owner:
                owners.setdefault(owner.index, (owner, mig))
        if not owners:
            return [_Target(0, visible.mig, None)]
        split = [_target(gpu, mig, even_if_busy) for gpu, mig in owners.values()]
        others = [by_index[index] for index in visible.gpus if index in by_index and index not in owners]
        return split + [_target(gpu, None, even_if_busy) for gpu in others if gpu.permitted]
    indices = visible.gpus if visible is not None else tuple(by_index)
    return [_target(gpu, None, even_if_busy) for index in indices if (gpu := by_index.get(index)) and gpu.permitted]


def _has(gpu: Gpu, mig: str) -> bool:
    """Whether this MIG instance (or the GPU in its old-style name) belongs to this GPU."""
    return any(uuid.startswith(mig) for uuid in gpu.mig_uuids) or bool(gpu.uuid and gpu.uuid in mig)


def _target(gpu: Gpu, mig: str | None, even_if_busy: bool) -> _Target:
    if gpu.mig_mode and mig is None and gpu.mig_uuids:
        mig = gpu.mig_uuids[0]  # CUDA exposes the first instance of a GPU in MIG mode
    model = f"{gpu.name} (MIG)" if mig else gpu.name
    return _Target(gpu.index, mig or gpu.uuid, model, _skip_reason(gpu, even_if_busy))


def _skip_reason(gpu: Gpu, even_if_busy: bool) -> str | None:
    """Return the reason not to use this GPU; None if it can be used."""
    if gpu.lost:
        return f"it does not respond to the driver: {gpu.lost}"
    if gpu.uuid is None:
        return "NVML does not report its UUID"
    if even_if_busy:
        return None
    if taken := gpu_in_use.busy_reason(gpu):
        return taken
    if gpu.memory_free_bytes is not None and gpu.memory_free_bytes < NEEDED_BYTES:
        return f"only {gpu.memory_free_bytes >> 20} MiB of its memory is free"
    return None


def _is_whole_gpu(target: _Target) -> bool:
    return target.uuid is not None and not target.uuid.startswith("MIG-")


# ---- the children


def _children(targets: Sequence[_Target], python: str | None, progress: Callable[[str], None] | None) -> list[Child]:
    probes = [
        Probe(
            f"GPU {target.index}",
            ("gpu_run",),
            _DEADLINE_S,
            in_training_python=True,
            environment=_visible_only(target.uuid) if target.uuid else {},
            file=_PATH,
        )
        for target in targets
    ]
    return runner.run(probes, python=python, progress=progress)


def _visible_only(*uuids: str) -> dict[str, str]:
    return {"CUDA_VISIBLE_DEVICES": ",".join(uuids)}


def _skipped_run(target: _Target) -> dict[str, Any]:
    return _blank(target) | {"ended": "skipped", "stage": "library", "detail": target.skip}


def _hung_at_start(run: dict[str, Any]) -> bool:
    return run["ended"] == "hung" and run["stage"] in ("library", "init")


def _blank(target: _Target) -> dict[str, Any]:
    return {"index": target.index, "uuid": target.uuid, "model": target.model}


def _read(target: _Target, child: Child) -> dict[str, Any]:
    """Return the child's result; if it hung or died, the last stage reached."""
    run: dict[str, Any] = _blank(target) | (child.found.get("gpu_run") or child.found.get("so_far") or {})
    if "gpu_run" in child.found:
        return run
    kind, reason = child.gaps.get("gpu_run") or child.gaps.get("probe") or ("crashed", "no result")
    run.setdefault("stage", "library")
    run["ended"] = "hung" if kind == "timed_out" else "died"
    run["seconds"] = child.probe.deadline_s if kind == "timed_out" else None
    step = f" in {child.asking}" if child.asking else ""
    code = child.process.returncode
    if kind == "timed_out":
        run["detail"] = f"no answer in {child.probe.deadline_s:g} s{step}"
    elif code is not None and code < 0:
        run["detail"] = f"killed by {_signal(-code)}{step}"
    else:
        run["detail"] = reason
    return run


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _add_copies(
    runs: dict[int, dict[str, Any]],
    targets: Sequence[_Target],
    python: str | None,
    progress: Callable[[str], None] | None,
) -> None:
    """Copy between all pairs of these GPUs, and add the results to the source GPU's run."""
    uuids = [target.uuid for target in targets if target.uuid]
    probe = Probe(
        "copies between GPUs",
        ("gpu_run",),
        _COPIES_DEADLINE_S,
        in_training_python=True,
        arguments={"peers": len(uuids)},
        environment=_visible_only(*uuids),
        file=_PATH,
    )
    (child,) = runner.run([probe], python=python, progress=progress)
    found = child.found.get("gpu_run") or child.found.get("so_far") or {}
    pairs = [list(pair) for pair in found.get("pairs") or ()]
    if "gpu_run" not in child.found and pairs:
        hung = child.gaps.get("gpu_run", ("", ""))[0] == "timed_out"
        pairs[-1][4] = "no answer" if hung else "the process died"
    elif found.get("error") or "gpu_run" not in child.found:
        for target in targets:
            runs[target.index]["no_peers"] = found.get("error") or child.gaps.get("gpu_run", ("", "no answer"))[1]
    for a, b, access, intact, error in pairs:
        run = runs[targets[a].index]
        run["stage"] = "peers"
        run.setdefault("peers", []).append({"to": targets[b].index, "access": access, "intact": intact, "error": error})
