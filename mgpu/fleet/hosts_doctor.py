"""`mgpu doctor --hosts`: examine all hosts at the same time over ssh, and compare them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mgpu import errors, file_reading
from mgpu.errors import MgpuError
from mgpu.fleet import stages
from mgpu.fleet.examination import Examination, Wish
from mgpu.fleet.ssh_workers import SshWorkers
from mgpu.hosts.named_hosts import Host
from mgpu.process import signals
from mgpu.snapshot import Fleet
from mgpu.text import counted

if TYPE_CHECKING:
    from mgpu.report.json_types import StageStatus

_START_S = 60.0  # for Python to start and the probes to end on every host; importing from a cold disk takes long
_WHOLE_S = 180.0
_LARGEST = 16 << 20  # bytes of a config
# torchrun's and accelerate's own; the next free one is used. Linux takes those from 32768 on for outgoing connections.
FIRST_PORT = 29500


@dataclass(frozen=True)
class Subject:
    """What will run on the hosts."""

    config: str = ""  # the path of a config to check there
    cpu: bool = False
    data: tuple[str, ...] = ()  # paths that the run reads
    own_configs: Mapping[str, str] = field(default_factory=dict)  # host -> its config, if the hosts differ
    port: int = 0  # for the rendezvous, if the user named one; 0: any that is free


def examine(
    hosts: Sequence[Host], subject: Subject, show: Callable[[str], None] | None, timeout_s: float = 0.0
) -> tuple[Fleet, Examination]:
    """Return the fact `fleet` of the hosts, and what they said. Raises MgpuError."""
    deadline = time.monotonic() + (timeout_s or _WHOLE_S)

    def left_s() -> float:
        left = deadline - time.monotonic()
        if left <= 0:
            raise MgpuError(f"stopped: the hosts took longer than {timeout_s or _WHOLE_S:g} s", errors.TIMED_OUT)
        return left

    shown = _Shown(show or (lambda text: None))
    shown.say(f"connect to {counted(len(hosts), 'host')}")
    workers = SshWorkers(hosts, folder=os.getcwd())
    with signals.stop_once(), workers:  # the workers are stopped before anything else
        examination = Examination(workers, wish(hosts, subject), left_s, _START_S, _silent, shown)
        examination.run()
        return examination.fleet(None, workers.access), examination


def wish(hosts: Sequence[Host], subject: Subject) -> Wish:
    """Return what every host is asked."""
    path = Path(subject.config) if subject.config else None
    return Wish(
        config=file_reading.read(path, most=_LARGEST).decode("utf-8", "replace") if path else None,
        config_name=path.name if path else "",
        own_configs=subject.own_configs,
        cpu=subject.cpu,
        folders=(),  # without a shared file system, each host has its own copy, which is compared
        files={},  # the config travels to each host
        ports=(subject.port,) if subject.port else tuple(stages.some_ports(FIRST_PORT)),
        nodes=len(hosts),
        data=subject.data,
        project=True,
        by_name=False,
    )


def _silent(name: str, status: StageStatus, detail: str) -> None:
    """The doctor shows no stages."""


class _Shown:
    """Progress on the doctor's one line."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self.say = show

    def asked(self, answered: int, asked: int, waiting: Sequence[str]) -> None:
        """Show how many hosts have answered."""
        if waiting:
            names = ", ".join(waiting[:3]) + (" ..." if len(waiting) > 3 else "")
            self.say(f"{answered} of {counted(asked, 'host')}; waiting for {names}")
