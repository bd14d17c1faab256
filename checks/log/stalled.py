"""In which collective did each rank wait until the timeout, and which rank did not join?"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TypeAlias

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.signature import Applies, Meaning
from mgpu.snapshot import Log, StalledCollective

from ._circumstances import before_wait, shown

_FLIGHT_RECORDER_TUTORIAL = "https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html"
_TROUBLESHOOTING = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
# A process group's first collectives. If they time out, the run has never exchanged any data.
_FIRST_COLLECTIVES = 2
# Operations with the same number of elements on every rank.
_EQUAL = ("ALLREDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE", "BROADCAST", "BARRIER")
_Position: TypeAlias = tuple[int | None, str | None, int | None]
# fmt: off
_ON_ALL = Fix("Look for collectives (also saving, gathering metrics) inside `if rank == 0`, for branches that depend "
              "on the batch, and for unequal numbers of batches.", ("mgpu doctor --script train.py",))
_REPORT = Fix("Let torch report the mismatched collective.", ("TORCH_DISTRIBUTED_DEBUG=DETAIL mgpu launch ...",))
_SMOKE = Fix("Find a transport that works.", ("mgpu smoke-test", "NCCL_DEBUG=INFO mgpu launch ..."))
_NO_PEERS = Fix("Test whether it works without direct access between the GPUs.",
                ("NCCL_P2P_DISABLE=1 mgpu smoke-test", "export NCCL_P2P_DISABLE=1"), kind="stopgap",
                caveat="Slower: traffic goes through host memory.")
_ACS = Fix("If it does, turn off PCIe ACS and the IOMMU's translation, in the BIOS or with iommu=pt.",
           ("mgpu doctor --only pcie_acs_redirects,iommu_translates_peer_traffic", "sudo lspci -vvv | grep -i acsctl",
            "cat /proc/cmdline"), who="admin")
_INTERFACE = Fix("Set the interface that connects the nodes, and open all ports between them.",
                 ("ip -br addr", "export NCCL_SOCKET_IFNAME=IFACE", "mgpu doctor --only network"))
_stalled = partial(  # These checks are consequences of what the named ones find.
    check,
    Severity.ERROR,
    because_of=("log_rank_worked_alone", "log_ranks_diverged", "log_timed_out_after_end", "log_processes_stood_still"),
    role="secondary",
    kind="timeout",
    tags=("precise",),
)
_CHECKED_ANSWER = (
    "The last lines before the timeout show such a check that exceeded its own time limit. The limit is an alarm "
    "signal, which Python delivers between two of its own operations: one long computation (a huge power, a "
    "factorization) is not stopped, and an alarm in the wrong place is lost. The other ranks then wait."
)
_OF_ANSWERS = Fix("Run the check in a process of its own that can be killed, and treat a timeout as a wrong answer.",
                  ("multiprocessing.Process(target=check, args=(answer, solution))", "process.join(5); process.kill()"))
# What the first exchange used, and why it did not work.
_TRANSPORTS: tuple[tuple[Applies, Meaning], ...] = (
    (shown("bridge_interface"), Meaning(
        "NCCL uses a bridge of Docker or libvirt",
        "NCCL chose a virtual network inside the node (docker0, virbr0), which does not reach the other nodes.",
        (_INTERFACE, _SMOKE))),
    (shown("network_within_node"), Meaning(
        "NCCL sends what GPUs of one node exchange over the network cards, where no data arrives",
        "It does so if direct access and shared memory are turned off (NCCL_P2P_LEVEL=LOC, NCCL_P2P_DISABLE=1, "
        "NCCL_SHM_DISABLE=1) or do not work in this container. NCCL_IB_GID_INDEX is for RoCE: on InfiniBand it can "
        "stop the traffic too. The log shows each variable that is set (\"set by environment\").",
        (Fix("Try without the NCCL variables that the job or the shell sets.",
             ("env | grep ^NCCL_", "env -u NCCL_P2P_LEVEL -u NCCL_P2P_DISABLE -u NCCL_SHM_DISABLE "
              "-u NCCL_IB_GID_INDEX mgpu smoke-test")), _SMOKE))),
    (shown("network_channels"), Meaning(
        "NCCL's connections between the nodes transfer no data",
        "The rendezvous works, and NCCL's own connections do not: a firewall or security group closes their ports, "
        "the interface does not connect the nodes, or the adapters do not reach each other. Or a rank came later than "
        "the timeout.",
        (_INTERFACE, Fix("On AWS with EFA, the security group must allow all traffic to and from itself."), _SMOKE))),
    (shown("peer_channels"), Meaning(
        "direct access between the GPUs (P2P) transfers no data, probably because of PCIe ACS or the IOMMU",
        "NCCL connected the GPUs, and no data arrives. PCIe access control (ACS), an IOMMU that translates, or a "
        "virtual machine redirects the traffic between GPUs. Drivers for GeForce cards had the same fault. Or a rank "
        "came later than the timeout.",
        (_NO_PEERS, _ACS, _SMOKE))),
)
# fmt: on


def _positions(log: Log) -> list[StalledCollective]:
    """Return the watchdog reports that name a rank and its collective."""
    return [one for one in log.stalled if one.rank is not None and one.sequence is not None]


def _comparable(log: Log) -> list[StalledCollective]:
    """Return the reports about one process group: each group counts its collectives from 1.

    If a rank reports several numbers without naming groups, no numbers can be compared.
    """
    far = _positions(log)
    if any(one.several for one in far):
        return []
    groups = Counter(one.group for one in far if one.group is not None)
    if len(groups) < 2:
        return far
    usual = groups.most_common(1)[0][0]
    return [one for one in far if one.group == usual]


def _position(one: StalledCollective) -> _Position:
    return one.sequence, one.operation, one.elements if one.operation in _EQUAL else None


def _position_text(one: StalledCollective, *, elements: bool) -> str:
    size = f", {one.elements:,} elements" if elements and one.elements is not None else ""
    return f"rank {one.rank} in collective {one.sequence} ({one.operation}{size})"


def _silent(log: Log) -> list[int]:
    """Return the ranks without a watchdog report, also those below the highest rank that the log does not show."""
    reporting = {one.rank for one in log.stalled if one.rank is not None}
    first = any((one.sequence or 0) <= _FIRST_COLLECTIVES for one in log.stalled)  # not all of them may have started
    known = {*log.ranks, *(() if first else range(max(reporting, default=-1) + 1))}
    return sorted(known - reporting)


@check(
    Severity.ERROR,
    source=_FLIGHT_RECORDER_TUTORIAL,
    because_of=("log_ranks_diverged", "log_processes_stood_still"),
    role="secondary",
    kind="timeout",
    tags=("precise",),
)
def log_ranks_out_of_step(log: Log) -> Answer:
    """Ranks waited in different collectives: they did not run the same collectives in the same order.

    Why: Every rank must start the same collectives in the same order. One rank started more, fewer or other ones.
    More: A rank that runs one more or one less (an `if rank == 0` around a collective, a longer share of the data, a
    caught exception) waits in a different collective than the rest, until the watchdog stops them all.

    Fix: Find where the ranks diverge: conditions on the rank around reduce, gather, barrier or save, or unequal numbers
    of batches.
    """
    far = _comparable(log)
    steps = Counter(map(_position, far))
    if len(steps) < 2:
        return Ok("all watchdog reports are about the same collective" if far else "no watchdog reports")
    usual, _ = steps.most_common(1)[0]
    other = next(one for one in far if _position(one) != usual)
    one = next(one for one in far if _position(one) == usual)
    same = (one.sequence, one.operation) == (other.sequence, other.operation)
    return Problem(
        f"ranks are out of step: {_position_text(other, elements=same)}, {_position_text(one, elements=same)}",
        _of_difference(one, other),
        (_ON_ALL, _REPORT),
        {
            "sequence": usual[0],
            "other": other.sequence,
            "operation": usual[1],
            "other_operation": other.operation,
        },
        # Of as many ranks here as there, neither is the odd one.
        subjects=tuple(
            f"rank {stall.rank}" for stall in ((other, one) if steps[usual] == steps[_position(other)] else (other,))
        ),
    )


def _of_difference(one: StalledCollective, other: StalledCollective) -> str:
    """Return what the positions of two ranks mean."""
    if one.sequence == other.sequence:
        return (
            "Both ranks started the same number of collectives, and the last one is not the same: their paths through "
            "the script differ. A condition on the rank or on the batch led one of them elsewhere."
        )
    behind, ahead = sorted((one, other), key=lambda stall: stall.sequence or 0)
    return (
        f"Every rank must start the same collectives in the same order. Rank {behind.rank} is "
        f"{(ahead.sequence or 0) - (behind.sequence or 0)} behind rank {ahead.rank}: it skipped some, or the other one "
        "ran more."
    )


@_stalled(source=_FLIGHT_RECORDER_TUTORIAL)
def log_rank_never_came(log: Log) -> Answer:
    """Most ranks waited in the same collective, and some ranks never joined it.

    Why: The ranks that report the timeout are not the cause. The silent rank had exited, did long work alone (a
    download, tokenizing, saving, evaluation), or hung.

    Fix: Read the end of the silent rank's log. Do long work on one rank before init_process_group, or with a longer
    timeout.
    """
    far, silent = _positions(log), _silent(log)
    if not far or not silent or len(silent) >= len(far) or len({one.sequence for one in far}) > 1:
        return Ok("no rank is missing from the watchdog reports" if far else "no watchdog reports")
    names = ", ".join(map(str, silent))
    first = next((one for one in log.seen if one.signature == "log_collective_timed_out"), None)
    stuck = before_wait("answer_check_timed_out")(log, None)
    return Problem(
        f"rank{'s' * (len(silent) > 1)} {names} never joined collective {far[0].sequence} ({far[0].operation}) that "
        f"the others waited in{'; it was probably stuck in a reward function that checks answers' * stuck}",
        _CHECKED_ANSWER if stuck else "",
        (
            *((_OF_ANSWERS,) if stuck else ()),
            Fix(
                "Read the end of that rank's log. Long work on one rank belongs before the first collective, or needs "
                "a longer timeout: InitProcessGroupKwargs(timeout=...)."
            ),
        ),
        {"line": first.text if first else None, "sequence": far[0].sequence, "operation": far[0].operation},
        tuple(f"rank {rank}" for rank in silent),
        Place(first.file, first.line) if first else None,
    )


@_stalled(source=_TROUBLESHOOTING)
def log_exchange_never_worked(log: Log) -> Answer:
    """The first collective timed out on all ranks: the GPUs have never exchanged any data.

    Why: A rank came later than the timeout (it prepared data or loaded the model by itself), or NCCL's own connections
    transfer no data (peer access, network interface, closed ports).
    More: An IOMMU breaks peer access, or the interface does not reach the other node.

    Fix: Run the smoke test. It tries each transport and reports which one works.
    """
    far = _positions(log)
    if not far or len({one.sequence for one in far}) > 1 or (far[0].sequence or 0) > _FIRST_COLLECTIVES or len(far) < 2:
        return Ok("the first collectives completed" if far else "no watchdog reports")
    meaning = next((meaning for applies, meaning in _TRANSPORTS if applies(log, None)), None)
    alone = not shown("several_nodes")(log, None)
    return Problem(
        "the first exchange never worked: "
        + (meaning.title if meaning else f"all {len(far)} ranks waited in collective {far[0].sequence}"),
        meaning.why if meaning else "",
        meaning.fixes if meaning else (_SMOKE, *((_NO_PEERS, _ACS) if alone else (_INTERFACE,))),
        {"sequence": far[0].sequence, "operation": far[0].operation},
        tuple(f"rank {one.rank}" for one in far),
    )


@_stalled(source=_FLIGHT_RECORDER_TUTORIAL)
def log_exchange_stalled(log: Log) -> Answer:
    """All ranks waited in the same collective, after earlier ones had completed: the transport or a GPU stopped.

    Why: The ranks were in step. A link, a network card or a GPU stopped, or a kernel never finishes.
    More: Look for an Xid.

    Fix: Look for Xids and network error counters, then run the smoke test on the same GPUs.
    """
    far = _positions(log)
    if (
        len(far) < 2
        or len(set(map(_position, far))) > 1
        or (far[0].sequence or 0) <= _FIRST_COLLECTIVES
        or _silent(log)
    ):
        return Ok("not all ranks waited in one collective" if far else "no watchdog reports")
    barrier = far[0].elements == 1
    return Problem(
        f"all {len(far)} ranks waited in collective {far[0].sequence} ({far[0].operation}), which never completed",
        "It has one element, as a barrier has. The ranks were in step by number: one of them may have run another "
        "barrier than the others (inside `if rank == 0`). Otherwise a link, a network card or a GPU stopped."
        if barrier
        else "",
        (
            *((_ON_ALL,) if barrier else ()),
            Fix("Look for a GPU fault.", ("sudo dmesg -T | grep -iE 'xid|nvlink'",), who="admin"),
            Fix("Test the same GPUs.", ("mgpu smoke-test",)),
        ),
        {"sequence": far[0].sequence, "operation": far[0].operation},
        tuple(f"rank {one.rank}" for one in far),
    )


@_stalled(source=_FLIGHT_RECORDER_TUTORIAL, same_as=("log_collective_timed_out", "log_watchdog_stuck"))
def log_timeout_before_silence(log: Log) -> Answer:
    """A collective timed out on a rank, and the watchdogs of other ranks got stuck afterwards.

    Why: When a watchdog stops its rank, the communicators of the others break, and their watchdogs get stuck in NCCL.
    torch reports that minutes later, and a merged log can show it first.

    Fix: Start at the rank that reports the timeout, and look for the rank that did not join.
    """
    first = next((one for one in log.seen if one.signature == "log_collective_timed_out" and not one.survived), None)
    stuck = next((one for one in log.seen if one.signature == "log_watchdog_stuck" and not one.survived), None)
    if first is None or stuck is None or log.silent_after_s is None or log.silent_after_s < 0:
        return Ok("no watchdogs that got stuck after a timeout")
    stall = next((one for one in log.stalled if one.rank == first.rank), None)
    operation = f" in {stall.operation}" if stall and stall.operation else ""
    others = ", ".join(map(str, stuck.ranks))
    return Problem(
        f"a rank waited for the others{operation} until NCCL's timeout; other watchdogs got stuck after that",
        f"The watchdogs{f' of ranks {others}' if others else ''} got stuck {log.silent_after_s:.0f} s after it, and "
        "reported it minutes later: a consequence. The rank that reports the timeout is not the cause: another rank "
        "did not join the collective. It failed, took another path in the script or still worked alone, or its GPU "
        "stopped.",
        (
            Fix(
                "Find the rank that did not join: the first error, the lowest SeqNum, or the oldest last line.",
                ("mgpu doctor --log rank0.log rank1.log ...",),
            ),
            Fix(
                "Let torch record which collective each rank was in.",
                ("TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 mgpu launch train.py",),
            ),
            Fix(
                "Look for a GPU fault on the nodes of the ranks that report nothing.",
                ("sudo dmesg -T | grep -iE 'xid|nvlink'",),
                who="admin",
            ),
        ),
        {"line": first.text, "stuck_after_s": log.silent_after_s},
        tuple(f"rank {rank}" for rank in first.ranks),
        Place(first.file, first.line),
    )
