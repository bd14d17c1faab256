"""`mgpu launch` from a Request to an exit code, without typer."""

from __future__ import annotations

import gc

from mgpu.launch import start_errors
from mgpu.launch.request import Request


def run(request: Request) -> int:
    """The whole command; its exit code."""
    from mgpu import exit_status

    exit_status.never_die_of_a_character()
    return exit_status.guarded(lambda: launch(request))


def launch(request: Request) -> int:
    """A run, or what is asked of one that was started before. Raises MgpuError."""
    if request.slurm:
        from mgpu.slurm import run as job

        return job.run(request)
    if request.of_a_run:
        from mgpu.launch import follow

        return follow.run(request)
    gc.disable()  # until the hand-off: nothing of what is made by then is garbage, and looking for it takes 20 ms
    with start_errors.attempt(request):
        from mgpu.launch import run

        return run.run(request)
