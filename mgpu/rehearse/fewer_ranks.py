"""How fast is the script on fewer ranks? The same command on 1, 2 ... ranks, with the same batch on each."""

from __future__ import annotations

from dataclasses import replace

from mgpu.errors import MgpuError
from mgpu.launchers.gpu_selection import select_gpus
from mgpu.rehearse.run import Show, Wanted, rehearse
from mgpu.snapshot import KeptFile, Measurement, Rehearsal, ScalingRun

_WATCHED = 2  # steps: the checks have run on all ranks, these only warm up


def counts(ranks: int) -> tuple[int, ...]:
    """Return the smaller numbers of ranks: 1, and 2 if there are more."""
    return tuple(count for count in (1, 2) if count < ranks)


def run(wanted: Wanted, done: Rehearsal, show: Show | None = None) -> Rehearsal:
    """Run the script on fewer ranks and return the rehearsal with what was measured."""
    found: list[ScalingRun] = []
    for count in counts(done.expected):
        folder = wanted.folder / f"{count}-ranks"
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            fewer = select_gpus(str(count), wanted.snapshot)
            environment = {**wanted.environment, **_threads(done), **fewer.env}
            few = replace(wanted, snapshot=fewer.snapshot, flags=fewer.flags, environment=environment, folder=folder)
            one = rehearse(replace(few, steps=_WATCHED, checkpoint=False), show)
        except (MgpuError, OSError) as error:
            found.append(ScalingRun(count, why=str(error).splitlines()[0]))
            continue
        done = replace(done, kept=_together(done.kept, one.kept))
        found.append(ScalingRun(count, _as_part_of(one, done), "" if one.measurement else why(one)))
        if one.ended == "interrupted":
            return replace(done, ended="interrupted", scaling=tuple(found))
    return replace(done, scaling=tuple(found))


def _together(before: tuple[KeptFile, ...], more: tuple[KeptFile, ...]) -> tuple[KeptFile, ...]:
    """Return the user's files that a run changed, each once: as it was not put back, if so."""
    known = {one.path: one for one in (*before, *more)}
    return tuple({**known, **{one.path: one for one in (*before, *more) if one.why}}.values())


def _as_part_of(one: Rehearsal, done: Rehearsal) -> Measurement | None:
    """Return the measurement with the time of the run on all ranks, which it belongs to."""
    if one.measurement is None or done.measurement is None:
        return one.measurement
    return replace(one.measurement, taken=done.measurement.taken)


def _threads(rehearsal: Rehearsal) -> dict[str, str]:
    """Return the variable with which a rank has as many threads as on all ranks: launchers give one rank more."""
    threads = {rank.measured.threads for rank in rehearsal.ranks if rank.measured and rank.measured.threads}
    return {"OMP_NUM_THREADS": str(max(threads))} if threads else {}


def why(rehearsal: Rehearsal) -> str:
    """Return why a rehearsal has no figures."""
    if rehearsal.ended == "failed":
        raised = next((rank.raised for rank in rehearsal.ranks if rank.raised), None)
        return f"the script fails: {raised or f'exit code {rehearsal.exit_code}'}"
    ended = {"stalled": "the script makes no progress", "timed_out": "the time limit was reached"}
    if text := ended.get(rehearsal.ended):
        return text
    return next((rank.unmeasured for rank in rehearsal.ranks if rank.unmeasured), None) or _too_short(rehearsal)


def _too_short(rehearsal: Rehearsal) -> str:
    return f"the script ended after {rehearsal.steps} steps, before any could be measured"
