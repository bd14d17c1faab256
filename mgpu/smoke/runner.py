"""How is one launch of the ranks started, watched, stopped and turned into facts?

Always through the real launcher, with the config and the environment that `mgpu launch` would use. The runner enforces
all timeouts and leaves no rank behind, whatever happens to them.
"""

from __future__ import annotations

import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from mgpu import file_reading
from mgpu.errors import CANNOT_RUN, MgpuError, reason
from mgpu.launchers import argv as launching
from mgpu.launchers import port
from mgpu.process import child_process, exit_code, guard, leftover_files, open_files, processes, signals
from mgpu.process import command as process_command
from mgpu.smoke import machines, stacks, watch
from mgpu.smoke.ranks.journal import ASK
from mgpu.smoke.ranks.rank_plan import Orders
from mgpu.snapshot import Config, Rank, Ranks, Snapshot

_POLL_S = 0.05
_GRACE_S = 2.0
_AFTER_S = 3.0  # processes started by a rank may exit a moment after the launcher
# A file, not a module: `-m` would put the current folder first on the ranks' sys.path.
_WORKER = Path(__file__).resolve().with_name("worker.py")
_LOG = "launcher.log"
_FACT_BYTES = 8000  # of the launcher's log, kept as a fact
_LOG_BYTES = 1 << 20  # of the launcher's log: its table of failed ranks has about 250 bytes per rank

Ended = Literal["finished", "stalled", "timed_out", "died", "interrupted"]
Show = Callable[[watch.View, bool], None]  # called with the view while the ranks run, and once (True) at the end


@dataclass(frozen=True)
class Attempt:
    """One launch: the ranks of `config` with `orders`, and the changes to the environment."""

    config: Config
    snapshot: Snapshot
    orders: Orders
    timeout_s: float
    rehearsal: bool = False  # --cpu: the ranks stay off the GPUs
    environment: Mapping[str, str] = field(default_factory=dict)  # set for this launch; "" removes
    ranks: int | None = None  # fewer than in the config, for a subset of the GPUs


def run_ranks(attempt: Attempt, show: Show | None = None) -> Ranks:
    """Start the launcher, watch the ranks until they finish, hang or run out of time, clean up, and return the facts.

    Raises MgpuError if the launcher cannot be started.
    """
    orders, folder, run_id = attempt.orders, Path(attempt.orders.folder), uuid.uuid4().hex
    rendezvous_port = attempt.config.port or port.launch_port(attempt.config)
    taken = rendezvous_port is not None and port.is_taken(rendezvous_port)
    command = _command(attempt, run_id, rendezvous_port)
    files = leftover_files.files()
    view, test = watch.View(orders), machines.RendezvousTest(orders, attempt.config)
    try:
        with guard.guard_run(run_id):
            launcher = _start(command, attempt.environment, folder / _LOG)
            ended = _watch(launcher, view, attempt.timeout_s, show)
            quiet_s = round(time.monotonic() - view.progress, 1)
            hung, answers = _ask_hung(view, ended)
            states, launcher_exit = view.states(), launcher.poll()
            outlived, left = _end(run_id, launcher)
    except (KeyboardInterrupt, signals.Stopped):  # a second one, during the clean-up: the guard has finished it
        _sweep(files, view, ())
        raise
    output = _tail(folder / _LOG)
    # Read only now: hundreds of running ranks would leave mgpu no time on a core.
    ranks = stacks.add_answers(view.folder, hung, answers) if hung else _ended_ranks(view, states, output)
    if show:
        show(view, True)
    facts = replace(
        _initial_ranks(orders),
        ranks=ranks,
        ended="died" if ended == "finished" and launcher_exit != 0 else ended,
        launcher_exit=launcher_exit,
        quiet_s=quiet_s,
        left_running=tuple(left),
        outlived=tuple(outlived) if ended == "finished" else (),
        launcher_output=output[-_FACT_BYTES:].decode("utf-8", "replace").strip() or None,
        meeting=test.result(),
    )
    return _add_port(_add_files(facts, _sweep(files, view, outlived), view), rendezvous_port, taken)


def _add_port(ranks: Ranks, number: int | None, taken: bool) -> Ranks:
    """Return the facts with the rendezvous port. `taken`: it was in use before the run."""
    left = number is not None and not taken and ranks.node == 0 and port.is_taken(number)
    return replace(ranks, port=number, left_port=left)


def _initial_ranks(orders: Orders) -> Ranks:
    """Return the facts that the orders determine; the caller replaces ranks, ended and launcher_exit."""
    return Ranks(
        expected=orders.world,
        rungs=orders.rungs,
        ranks=(),
        ended="died",
        launcher_exit=None,
        stall_limit_s=orders.stall_s,
        folder=orders.folder,
        nodes=orders.nodes,
        node=orders.node,
        cpu=orders.cpu,
        level=orders.level,
        strategy=orders.strategy,
        precision=orders.precision,
        accumulate=orders.accumulate,
        micro_steps=orders.micro_steps,
    )


def _ended_ranks(view: watch.View, states: watch.States, output: bytes) -> tuple[Rank, ...]:
    """Return the ranks of a finished run, with the exit codes that the launcher reports."""
    view.read()
    exits = exit_code.rank_exit_codes(output)
    return tuple(view.rank(number, states, exits) for number in view.journals)


def _sweep(before: frozenset[Path], view: watch.View, outlived: Sequence[int]) -> leftover_files.Swept:
    """Remove what the ranks and their DataLoader workers left."""
    return leftover_files.sweep(before, {*outlived, *view.workers(), *_ranks_by_pid(view)}, view.wrote())


def _ranks_by_pid(view: watch.View) -> dict[int, int]:
    return {pid: number for number in view.journals if (pid := view.pid(number))}


def _add_files(facts: Ranks, swept: leftover_files.Swept, view: watch.View) -> Ranks:
    """Add the files that were left, each removed one with the process that left it."""
    ranks, workers = _ranks_by_pid(view), view.workers()

    def maker(pid: int) -> str:
        if pid in ranks:
            return f"rank {ranks[pid]}"
        return f"a DataLoader worker of rank {workers[pid]}" if pid in workers else "a process of the run"

    removed = {path: maker(pid) for path, pid in swept.removed.items()}
    known = {**workers, **ranks}
    by = {path: known[pid] for path, pid in swept.removed.items() if pid in known}
    return replace(facts, left_files=swept.remaining, removed_files=removed, removed_by=by)


def _ask_hung(view: watch.View, ended: Ended) -> tuple[tuple[Rank, ...], stacks.Answers]:
    """Return the ranks that hang, after making them write their stacks; none if they do not hang.

    States are read first: a stopped rank is resumed for its stack.
    """
    if ended not in ("stalled", "timed_out"):
        return (), stacks.Answers()
    view.read()
    states = view.states()
    hung = tuple(view.rank(number, states, {}) for number in view.journals)
    return hung, stacks.ask(view.folder, view.listeners(), hung)


def _end(run_id: str, launcher: subprocess.Popen[bytes]) -> tuple[list[int], list[int]]:
    """Kill the processes of the run. Returns those that were still running, and those that cannot be killed."""
    if launcher.poll() is not None:  # a process that exits a moment after the launcher has not outlived it
        deadline = time.monotonic() + _AFTER_S
        while processes.processes_of_run(run_id) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
    there, left = processes.end_run(run_id, _GRACE_S)
    try:
        launcher.wait(2)
    except subprocess.TimeoutExpired:
        launcher.kill()
    return there, left


def _command(attempt: Attempt, run_id: str, rendezvous_port: int | None) -> process_command.Command:
    snapshot, config = attempt.snapshot, attempt.config
    assert snapshot.driver is not None and snapshot.python is not None
    command = launching.build(
        config,
        snapshot.driver,
        [str(_WORKER), "--orders", str(attempt.orders.write())],
        python=snapshot.python,
        port=None if config.port else rendezvous_port,
        run_id=run_id,
        node=attempt.orders.node if attempt.orders.nodes > 1 else None,
        meet_s=machines.launcher_limit_s(attempt.orders),
    )
    if attempt.ranks is not None:
        at = command.argv.index("--config_file") + 2
        # "all" means those in CUDA_VISIBLE_DEVICES: the config's gpu_ids would select others.
        flags = ("--num_processes", str(attempt.ranks), "--gpu_ids", "all")
        fewer = (*command.argv[:at], *flags, *command.argv[at:])
        command = replace(command, argv=fewer)
    if attempt.rehearsal:
        command = replace(command, env_added={**command.env_added, "ACCELERATE_USE_CPU": "true"})
    return command


def _start(command: process_command.Command, changes: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start the launcher in a session of its own, with its output in a file."""
    environment = {**command.environment(), **changes}
    for name, value in changes.items():
        if not value:
            del environment[name]
    open_files.raise_limit()
    (log.parent / ASK).unlink(missing_ok=True)
    with log.open("wb") as output:
        try:
            return child_process.start(
                command.argv,
                at_our_end=signal.SIGKILL,  # the kernel then kills the ranks too (ranks/ladder.py)
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            raise MgpuError(f"the launcher cannot be started: {reason(error)}", CANNOT_RUN) from None


def _watch(launcher: subprocess.Popen[bytes], view: watch.View, limit_s: float, show: Show | None) -> Ended:
    """Watch the ranks until they finish, hang, run out of time, or the test is interrupted."""
    deadline = time.monotonic() + limit_s
    try:
        while launcher.poll() is None:
            view.read()
            if view.has_unknown_ranks():
                view.started |= processes.ranks_under(launcher.pid)
            if show:
                show(view, False)
            if view.stalled():
                return "stalled"
            if view.lost():
                return "died"
            if time.monotonic() > deadline:
                return "timed_out"
            time.sleep(_POLL_S)
    except (KeyboardInterrupt, signals.Stopped):
        view.interrupted = True
        return "interrupted"
    return "finished"


def _tail(log: Path) -> bytes:
    """Return the end of the launcher's output."""
    try:
        return file_reading.read_part(log, most=_LOG_BYTES)
    except OSError:
        return b""
