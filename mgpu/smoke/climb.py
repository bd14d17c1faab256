"""How is one launch of the ranks started, watched, ended and turned into facts?

Always through the real launcher, with the config and the environment that `mgpu launch` would use. The runner owns the
clock; whatever happens to the ranks, none of them is left.
"""

from __future__ import annotations

import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Literal

from mgpu.errors import CANNOT_RUN, MgpuError, reason
from mgpu.launch import command as launching
from mgpu.launch import exit_code, guard, port, processes
from mgpu.smoke import watch
from mgpu.smoke.ranks.orders import Orders
from mgpu.snapshot import Config, Ranks, Snapshot

_POLL_S = 0.05
_GRACE_S = 2.0
_STACKS_S = 0.5  # how long the ranks get to write their stacks after a stall

Ended = Literal["finished", "stalled", "timed_out", "died", "interrupted"]
Show = Callable[[watch.View, bool], None]  # called with the view while the ranks run, and once (True) at the end


@dataclass(frozen=True)
class Attempt:
    """One launch: the ranks of `config` with `orders`, and what is changed in the environment for it."""

    config: Config
    snapshot: Snapshot
    orders: Orders
    timeout_s: float
    rehearsal: bool = False  # --cpu: the ranks stay off the GPUs
    environment: Mapping[str, str] = field(default_factory=dict)  # set for this launch; "" removes
    ranks: int | None = None  # fewer than the config's, for a part of the GPUs


def climb(attempt: Attempt, show: Show | None = None) -> Ranks:
    """Start the launcher and watch the ranks until they are through, or stuck, or out of time."""
    orders = attempt.orders
    run_id = uuid.uuid4().hex
    command = _command(attempt, run_id)
    log = Path(orders.folder) / "launcher.log"
    view = watch.View(orders)
    with guard.over(run_id):
        launcher = _start(command, attempt.environment, log)
        ended = _watch(launcher, view, attempt.timeout_s, show)
        states = view.states()
        if ended in ("stalled", "timed_out"):
            processes.signal_all(view.pids(), signal.SIGUSR1)  # every rank writes where it is
            time.sleep(_STACKS_S)
        _, left = processes.end_run(run_id, _GRACE_S)
        try:
            launcher.wait(2)
        except subprocess.TimeoutExpired:
            launcher.kill()
    view.read()
    if ended == "finished" and launcher.returncode != 0:
        ended = "died"
    if show:
        show(view, True)
    output = _tail(log)
    exits = exit_code.of_ranks((output or "").encode())
    return Ranks(
        expected=orders.world,
        rungs=orders.rungs,
        ranks=tuple(view.rank(number, states, exits) for number in view.journals),
        ended=ended,
        launcher_exit=launcher.returncode,
        stall_limit_s=orders.stall_s,
        left_running=tuple(left),
        launcher_output=output,
        folder=orders.folder,
        nodes=orders.nodes,
        node=orders.node,
        cpu=orders.cpu,
        level=orders.level,
        strategy=orders.strategy,
        precision=orders.precision,
        accumulate=orders.accumulate,
    )


def _command(attempt: Attempt, run_id: str) -> launching.Command:
    snapshot, config = attempt.snapshot, attempt.config
    assert snapshot.driver is not None and snapshot.python is not None
    command = launching.build(
        config,
        snapshot.driver,
        [*_worker(), "--orders", str(attempt.orders.write())],
        python=snapshot.python.executable,
        port=port.for_launch(config),
        run_id=run_id,
    )
    if attempt.rehearsal:
        command = replace(command, env_added={**command.env_added, "ACCELERATE_USE_CPU": "true"})
    return command


def _worker() -> list[str]:
    """How the launcher is to start the worker: as a module, or as a file where another `mgpu` would be found first.

    `-m` puts the current directory first on sys.path, and a folder of that name there (a clone of this project) hides
    an editable install.
    """
    ours = Path(__file__).resolve().parents[1]
    here = Path("mgpu")
    if Path("mgpu.py").exists() or (here.exists() and here.resolve() != ours):
        return [str(ours / "smoke" / "worker.py")]
    return ["-m", "mgpu.smoke.worker"]


def _start(command: launching.Command, changes: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """The launcher in a session of its own, its output in a file."""
    environment = {**command.environment(), **changes}
    for name, value in changes.items():
        if not value:
            del environment[name]
    with log.open("wb") as output:
        try:
            return subprocess.Popen(
                command.argv,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise MgpuError(f"the launcher cannot be started: {reason(error)}", CANNOT_RUN) from None


def _watch(launcher: subprocess.Popen[bytes], view: watch.View, limit_s: float, show: Show | None) -> Ended:
    """Follow the ranks until they are through, or stuck, or out of time, or somebody wants to stop."""
    deadline = time.monotonic() + limit_s
    try:
        with _terminated():
            while launcher.poll() is None:
                view.read()
                if show:
                    show(view, False)
                if view.stalled():
                    return "stalled"
                if time.monotonic() > deadline:
                    return "timed_out"
                time.sleep(_POLL_S)
    except (KeyboardInterrupt, _Terminated):
        return "interrupted"
    return "finished"


class _Terminated(Exception):
    """SIGTERM or SIGHUP reached mgpu while ranks were running."""


class _terminated:  # reads as a word after `with`
    """Turn SIGTERM and SIGHUP into an exception, so that the ranks are cleaned up before mgpu goes."""

    def __enter__(self) -> None:
        def stop(number: int, frame: FrameType | None) -> None:
            raise _Terminated

        asked = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
        self.old = {number: signal.signal(number, stop) for number in asked}

    def __exit__(self, *exception: object) -> None:
        for number, handler in self.old.items():
            signal.signal(number, handler)


def _tail(log: Path) -> str | None:
    try:
        text = log.read_bytes()[-8000:].decode("utf-8", "replace")
    except OSError:
        return None
    return text.strip() or None
