"""Which options does `mgpu launch` have?"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Request:
    """The options of launch."""

    target: tuple[str, ...] = ()
    module: bool = False
    config: str = ""
    yes: bool = False
    dry_run: bool = False
    print_command: bool = False
    unverified: str = ""  # ask, allow, refuse
    smoke: str = "auto"  # auto, always, never: the smoke test before the start
    launcher: str = "auto"  # auto, accelerate, torchrun, python
    gpus: str = ""  # N, or indices
    port: str = "auto"  # auto, or a number
    node: int | None = None  # which of several machines this is
    exec_: bool = False  # replace this process: nothing watches, nothing is explained
    triage: bool = True
    timeout_s: float = 0.0  # of the training; 0: none
    detach: bool = False
    attach: bool = False  # this and the next two: `target` names a run, or nothing the latest
    status: bool = False
    stop: bool = False
    watch: bool = False  # `target` names a run or nothing, else it is the script
    log_dir: str = ""
    json_result: str = ""
