"""Did the ranks train together, and if not, which of them is why?"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Rank, Ranks

from ._knowledge import counted, listed

_ACCELERATE = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/state.py"
_TORCH = "https://pytorch.org/docs/stable/distributed.html"
# A live rank beats every 0.2 s (mgpu/smoke/worker.py); one that is silent for longer than this does not run.
_SILENT_S = 1.0
_SIGNALS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 1: "SIGHUP", 2: "SIGINT"}


def _who(rank: Rank) -> str:
    where = f"{rank.device}" if rank.device else "not yet on a device"
    return f"rank {rank.rank} ({where}, pid {rank.pid})" if rank.pid else f"rank {rank.rank}"


def _file(ranks: Ranks, name: str) -> str:
    """A file of the run, as a shell takes it."""
    return f"{shlex.quote(ranks.folder)}/{name}"


def _last_line(ranks: Ranks) -> str:
    return ((ranks.launcher_output or "").strip() or "nothing").splitlines()[-1]


def _odd(held: Mapping[int, str]) -> list[int]:
    """The ranks that hold something else than most; none when no value is the commonest."""
    common = Counter(held.values()).most_common(2)
    if len(common) > 1 and common[0][1] == common[1][1]:
        return []
    return [number for number, value in held.items() if value != common[0][0]]


def _rung(rank: Rank, ranks: Ranks) -> str:
    passed = {step.rung for step in rank.steps if step.ok}
    return next((rung for rung in ranks.rungs if rung not in passed), ranks.rungs[-1])


def _frozen(ranks: Ranks) -> list[Rank]:
    """Ranks that were not running when the run was ended: stopped, or without a heartbeat."""
    return [
        rank
        for rank in ranks.ranks
        if not rank.finished
        and (
            rank.process_state in ("stopped", "traced")
            or (ranks.ended in ("stalled", "timed_out") and rank.silent_s is not None and rank.silent_s > _SILENT_S)
        )
    ]


def _own_failures(ranks: Ranks) -> list[Rank]:
    """Ranks on which a rung failed, the earliest first: the others failed because it was gone."""
    failed = [rank for rank in ranks.ranks if any(step.ok is False for step in rank.steps)]
    return sorted(failed, key=lambda rank: rank.failed_at or float("inf"))


def _killed(ranks: Ranks) -> list[Rank]:
    """Ranks ended by a signal of their own. TERM is what the launcher sends to the siblings of one that failed."""
    return [r for r in ranks.ranks if not r.finished and (r.exit_code or 0) < 0 and r.exit_code != -15]


@check(Severity.ERROR, source=_ACCELERATE)
def ranks_not_of_one_world(ranks: Ranks) -> Answer:
    """The ranks do not form the world the config asks for.

    Why: accelerate starts every rank, finds no device to train on, and lets each train alone: world size 1 on every
    rank, each of them "main", exit code 0. Its own `accelerate test` calls that a success.

    Fix: see which GPUs torch sees in the ranks (`mgpu doctor`).
    """
    heard = [rank for rank in ranks.ranks if rank.world_size is not None]
    wrong = [
        r for r in heard if r.world_size != ranks.expected or r.accelerate_world_size not in (None, ranks.expected)
    ]
    if wrong:
        rank = wrong[0]
        told = {r.rank: r.accelerate_world_size if r.world_size == ranks.expected else r.world_size for r in wrong}
        return Problem(
            f"{counted(ranks.expected, 'rank')} wanted; {_who(rank)} sees a world of {told[rank.rank]}",
            "Each rank would train for itself on the whole data, and write the same checkpoint.",
            Fix("See what torch sees.", ("mgpu doctor",)),
            {f"rank_{number}": world for number, world in told.items()},
            tuple(f"rank {r.rank}" for r in wrong),
        )
    if not heard:
        return Skip("no rank came as far as the process group")
    return Ok(f"{len(heard)} of {ranks.expected} ranks see a world of {ranks.expected}")


@check(Severity.ERROR, source="https://man7.org/linux/man-pages/man7/signal.7.html")
def rank_frozen(ranks: Ranks) -> Answer:
    """A rank's process is stopped, or does not run any more.

    Why: its heartbeat ended while it was alive: stopped by SIGSTOP or a debugger, suspended by the scheduler, swapped
    out, or stuck in the kernel. The others wait for it in their next collective.

    Fix: find out who stopped it.
    """
    frozen = _frozen(ranks)
    if frozen:
        rank = frozen[0]
        silent = f"{rank.silent_s or ranks.stall_limit_s:.0f} s"
        stopped = rank.process_state in ("stopped", "traced")
        state = f"is {rank.process_state}" if stopped else f"does not run (no heartbeat for {silent})"
        return Problem(
            f"{_who(rank)} {state}",
            f"It came as far as \"{rank.last_word}\" ({_rung(rank, ranks)}) and then did not run for {silent}; "
            "the others wait for it.",
            Fix("Find out who stopped it: a debugger, the scheduler, SIGSTOP, or a device that hangs in the kernel.",
                (f"ps -o pid,stat,wchan:32,cmd -p {rank.pid}",) if rank.pid else ()),
            {"rank": rank.rank, "pid": rank.pid, "host": rank.host, "state": rank.process_state,
             "last_word": rank.last_word},
            tuple(f"rank {r.rank}" for r in frozen),
        )  # fmt: skip
    return Ok(f"{counted(len(ranks.ranks), 'rank')} ran all the time")


@check(Severity.ERROR, source="https://pytorch.org/docs/stable/elastic/errors.html", because_of=("rank_frozen",))
def rank_killed(ranks: Ranks) -> Answer:
    """A rank was ended by a signal.

    Why: SIGKILL without a word is the kernel when memory runs out, the scheduler, or a person; SIGSEGV, SIGBUS and
    SIGABRT are a crash in a library. The other ranks fail a moment later, because it is gone.

    Fix: the kernel log tells whether it was the memory.
    """
    killed = _killed(ranks)
    if killed:
        rank = killed[0]
        name = _SIGNALS.get(-(rank.exit_code or 0), f"signal {-(rank.exit_code or 0)}")
        return Problem(
            f"{_who(rank)} was killed by {name}",
            f'It had come as far as "{rank.last_word}" ({_rung(rank, ranks)}). What the others say is a consequence.',
            Fix(
                "See whether the kernel killed it for memory, and what it printed.",
                ("sudo dmesg | grep -i 'killed process'", f"cat {_file(ranks, 'launcher.log')}"),
            ),
            {"rank": rank.rank, "pid": rank.pid, "signal": name, "last_word": rank.last_word},
            tuple(f"rank {r.rank}" for r in killed),
        )
    return Ok("no rank was ended by a signal")


@check(Severity.ERROR, source=_TORCH, because_of=("rank_frozen", "rank_killed", "ranks_not_of_one_world"))
def rank_failed(ranks: Ranks) -> Answer:
    """A rank met an error.

    Why: the error of the first rank that failed is the cause; the others stop because it is gone.

    Fix: as the error says.
    """
    failed = _own_failures(ranks)
    if failed:
        rank = failed[0]
        step = next(step for step in rank.steps if step.ok is False)
        return Problem(
            f"{_who(rank)} failed at \"{step.rung}\": {step.detail}",
            f"Its last word was \"{rank.last_word}\". Ranks that failed: {', '.join(str(r.rank) for r in failed)}.",
            Fix("See the whole error in the rank's report.", (f"cat {_file(ranks, f'rank{rank.rank}.json')}",)),
            {"rank": rank.rank, "rung": step.rung, "error": rank.error},
            tuple(f"rank {r.rank}" for r in failed),
        )  # fmt: skip
    return Ok("no rank met an error")


@check(Severity.ERROR, source=_TORCH, because_of=("rank_frozen", "rank_killed", "rank_failed"))
def ranks_hang(ranks: Ranks) -> Answer:
    """The ranks made no progress within the stall limit.

    Why: all ranks are alive and wait. When one is behind the others, it did not come to the collective they wait in;
    when all are at the same place, the collective itself does not get through (transport, interface, driver).

    Fix: the stack of the rank that is behind shows what it does.
    """
    if ranks.ended not in ("stalled", "timed_out"):
        return Ok("the ranks never stood still")
    limit = f"{ranks.stall_limit_s:g} s without progress" if ranks.ended == "stalled" else "the time limit ran out"
    waiting = [rank for rank in ranks.ranks if not rank.finished]
    if not waiting:
        return Problem(
            f"all ranks finished, but the launcher did not end ({limit})",
            "The launcher waits for something else than its ranks.",
            Fix("See what it printed.", (f"cat {_file(ranks, 'launcher.log')}",)),
        )
    behind = min(waiting, key=lambda rank: rank.last_word_order)
    first = max(ranks.ranks, key=lambda rank: rank.last_word_order)
    if behind.last_word_order < first.last_word_order:
        title = f'{_who(behind)} is behind at "{behind.last_word or "not heard of"}" ({limit})'
        cause = f'The others are at "{first.last_word}" ({_rung(first, ranks)}) and wait for it.'
    else:
        title = f'all ranks wait at "{behind.last_word or "not heard of"}" ({limit})'
        cause = f'Every rank came to the same place of "{_rung(behind, ranks)}", and what they do there does not end.'
    stack = (behind.stack or "").splitlines()
    where = next((line.strip() for line in stack if line.strip().startswith("File ")), None)
    return Problem(
        title,
        cause + (f" Python is at {where}." if where else ""),
        Fix("Look at the stacks of the ranks.", (f"cat {_file(ranks, 'rank*.stack')}",)),
        {"rank": behind.rank, "last_word": behind.last_word, "rung": _rung(behind, ranks), "stack": where},
        (f"rank {behind.rank}",),
    )


@check(Severity.ERROR, source=_TORCH, because_of=("rank_frozen", "rank_killed", "rank_failed", "ranks_hang"))
def rank_ended_early(ranks: Ranks) -> Answer:
    """A rank's process ended before its report was complete.

    Why: it was killed (out of memory, a signal), or crashed in a library, without a Python error.

    Fix: the launcher's last lines name the exit code or the signal.
    """
    missing = [rank for rank in ranks.ranks if not rank.finished]
    if not missing:
        return Ok(f"{counted(len(ranks.ranks), 'report')} complete")
    if ranks.ended in ("stalled", "timed_out", "interrupted"):
        return Skip("the ranks were ended by mgpu")
    rank = min(missing, key=lambda r: r.last_word_order)
    said = next(
        (line for line in reversed((ranks.launcher_output or "").splitlines()) if "exitcode" in line), ""
    ).strip()
    if not rank.pid:
        return Problem(
            f"rank {rank.rank} never started (launcher exit {ranks.launcher_exit})",
            f"The launcher said: {_last_line(ranks)}",
            Fix("See all it printed.", (f"cat {_file(ranks, 'launcher.log')}",)),
            {"rank": rank.rank, "launcher_exit": ranks.launcher_exit},
            tuple(f"rank {r.rank}" for r in missing),
        )
    return Problem(
        f"{_who(rank)} ended at \"{rank.last_word}\" ({_rung(rank, ranks)})",
        f"Its process is gone without a Python error. {said}".strip(),
        Fix("See what the launcher printed, and whether the kernel killed it.",
            (f"cat {_file(ranks, 'launcher.log')}", "sudo dmesg | grep -i 'killed process'")),
        {"rank": rank.rank, "last_word": rank.last_word, "launcher_exit": ranks.launcher_exit},
        tuple(f"rank {r.rank}" for r in missing),
    )  # fmt: skip


@check(Severity.ERROR, source=_TORCH)
def ranks_share_a_gpu(ranks: Ranks) -> Answer:
    """Two ranks use the same GPU.

    Why: NCCL refuses two ranks on one GPU, or the two run at half speed and out of memory.

    Fix: one GPU for each rank: num_processes and CUDA_VISIBLE_DEVICES must fit.
    """
    users: dict[str, list[int]] = {}
    for rank in ranks.ranks:
        if rank.gpu_uuid:
            users.setdefault(rank.gpu_uuid, []).append(rank.rank)
    shared = {uuid: who for uuid, who in users.items() if len(who) > 1}
    if shared:
        uuid, who = next(iter(shared.items()))
        return Problem(
            f"ranks {', '.join(map(str, who))} all use {uuid}",
            "Each rank needs a GPU of its own.",
            Fix("Make num_processes the number of visible GPUs.", ("mgpu doctor -v",)),
            {gpu: len(members) for gpu, members in shared.items()},
            tuple(f"rank {number}" for number in who),
        )
    return Ok(f"{len(users)} GPUs, one rank each") if users else Skip("no rank is on a GPU with a known UUID")


@check(Severity.ERROR, source="https://pytorch.org/docs/stable/notes/ddp.html", because_of=("rank_failed",))
def parameters_differ_between_ranks(ranks: Ranks) -> Answer:
    """After the same training steps the ranks hold different parameters.

    Why: DDP keeps the copies equal by averaging gradients; when they differ, the ranks drift apart and train different
    models. Something between the GPUs loses or alters data.

    Fix: a fault of the transport or of a GPU: run the test on pairs of GPUs.
    """
    held = {rank.rank: rank.parameters for rank in ranks.ranks if rank.parameters}
    if len(held) < 2:
        return Skip("fewer than two ranks trained")
    if len(set(held.values())) == 1:
        return Ok(f"equal bit for bit on {len(held)} ranks")
    odd = _odd(held)
    return Problem(
        f"{'rank' if len(odd) == 1 else 'ranks'} {listed(odd)} {'holds' if len(odd) == 1 else 'hold'} "
        "other parameters than the rest"
        if odd
        else f"ranks {listed(held)} hold different parameters",
        "The copies of the model have drifted apart.",
        Fix("Test pairs of GPUs to find the one that is at fault.", ("CUDA_VISIBLE_DEVICES=0,1 mgpu smoke-test",)),
        {f"rank_{number}": digest for number, digest in held.items()},
        tuple(f"rank {number}" for number in odd or held),
    )


@check(Severity.WARNING, source="https://pytorch.org/docs/stable/notes/randomness.html")
def ranks_compute_differently(ranks: Ranks) -> Answer:
    """The same computation gives other bits on one rank.

    Why: equal GPUs with equal libraries agree bit for bit; one that does not computes wrongly, or is another model.

    Fix: compare the GPUs; when they are equal, suspect the odd one.
    """
    found = {rank.rank: rank.computed for rank in ranks.ranks if rank.computed}
    if len(found) < 2:
        return Skip("fewer than two ranks computed")
    if len(set(found.values())) == 1:
        return Ok(f"the same bits on {len(found)} ranks")
    odd = _odd(found)
    return Problem(
        f"{'rank' if len(odd) == 1 else 'ranks'} {listed(odd)} {'computes' if len(odd) == 1 else 'compute'} "
        "other bits than the rest"
        if odd
        else f"ranks {listed(found)} compute different bits",
        "On GPUs of one model the same kernels give the same bits.",
        Fix("Are the GPUs of one model?", ("nvidia-smi -L",)),
        {f"rank_{number}": digest for number, digest in found.items()},
        tuple(f"rank {number}" for number in odd or found),
    )


@check(Severity.ERROR, source="https://pytorch.org/docs/stable/elastic/agent.html")
def ranks_left_running(ranks: Ranks) -> Answer:
    """Processes of the smoke test are still there after it was ended.

    Why: they hold GPU memory and ports; the next launch would meet them. A process in uninterruptible sleep cannot be
    killed: a device or a file system hangs in the kernel.

    Fix: kill them; if that does not work, reboot.
    """
    if not ranks.left_running:
        return Ok("no process was left behind")
    pids = " ".join(map(str, ranks.left_running))
    return Problem(
        f"{counted(len(ranks.left_running), 'process', 'processes')} could not be ended: {pids}",
        "They survived SIGKILL, so they hang in the kernel.",
        Fix("Try again; then reboot.", (f"kill -9 {pids}", "sudo reboot"), who="admin"),
        {"pids": pids},
    )


@check(
    Severity.ERROR,
    source="https://huggingface.co/docs/accelerate/package_reference/cli",
    because_of=("rank_frozen", "rank_killed", "rank_failed", "ranks_hang", "rank_ended_early"),
)
def launcher_failed(ranks: Ranks) -> Answer:
    """The launcher ended with an error.

    Why: its exit code is what a training would end with, too.

    Fix: its last lines say what it did not like.
    """
    if ranks.ended not in ("finished", "died"):
        return Skip("the launcher was ended by mgpu")
    if ranks.launcher_exit == 0:
        return Ok("exit code 0")
    return Problem(
        f"the launcher ended with exit code {ranks.launcher_exit}",
        f"Its last line: {_last_line(ranks)}",
        Fix("See all it printed.", (f"cat {_file(ranks, 'launcher.log')}",)),
        {"exit": ranks.launcher_exit},
    )
