"""Which ranks keep the others waiting, and how?

A rank waits if its flight recorder has a collective that has not completed, or its stack is in torch.distributed. The
ranks that do not wait are the suspects. If all wait, the first collective in which they differ decides.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from itertools import takewhile
from typing import Literal, NamedTuple

from mgpu.check import Evidence
from mgpu.snapshot import AS_RECORDED, Collective, Hang, HangRank, StackFrame, Worker
from mgpu.text import listed

Kind = Literal[
    "gone",
    "stopped",
    "debugger",
    "kernel",
    "left",
    "sleep",
    "lock",
    "input",
    "loader",
    "read",
    "child",
    "idle",
    "busy",
    "waits",
    "unknown",
]

_DISTRIBUTED = re.compile(r"/torch/distributed/|/accelerate/(?:state|utils/operations)\.py|/deepspeed/comm/")
# In backward, DDP and FSDP wait for gradients in C++, below this frame.
_BACKWARD = re.compile(r"/torch/autograd/graph\.py|/torch/autograd/__init__\.py")
_TEARDOWN = frozenset({"_shutdown", "destroy_process_group", "_exitfunc", "_run_exitfuncs", "_python_exit"})
_DESTROYS = re.compile(r"\bdestroy_process_group\s*\(")
_LOADER = re.compile(r"/torch/utils/data/dataloader\.py$")
_SLEEPS = re.compile(r"\bsleep\s*\(")
_LOCKS = re.compile(r"\.acquire\s*\(|\bwith\b.*lock|\.wait\s*\(|\.join\s*\(|\.get\s*\(|flock|FileLock", re.I)
_OF_GROUPS = re.compile(r"\bdist\b|(?:work|handle|req|fut)\w*\.wait")  # waits of torch.distributed
_OF_WORK = re.compile(r"\.wait\s*\(\s*\)")  # of a collective that was started before, in C++
_INPUT = re.compile(r"\binput\s*\(|\bbreakpoint\s*\(|set_trace\s*\(|stdin\.read")
_OF_LOCKS = re.compile(
    r"/threading\.py$|/queue\.py$|/filelock/|/multiprocessing/(?:synchronize|connection|queues)\.py$"
)
_OF_DEBUGGERS = re.compile(r"/(?:pdb|bdb|ipdb|debugpy|pydevd)\b|/IPython/|/code\.py$")
_OF_CHILDREN = re.compile(r"/subprocess\.py$|/multiprocessing/popen_\w+\.py$")
_READS = re.compile(r"^(?:read|pread64|readv|recvfrom|recvmsg|write) of (.+)")
# Functions of the kernel in which a process waits for a file system that does not answer, or for a FIFO's other end.
_KERNEL_FILE = re.compile(
    r"rpc_wait|nfs_|fuse_|request_wait_answer|cifs|ceph|lustre|ll_|gpfs|wait_for_partner|fifo_open"
)


# Of several ranks that do not wait, those come first that certainly never will; then those that work, because the
# others may wait for them in another way than in a collective; then those that wait for something else.
_ORDER: tuple[Kind, ...] = (
    "stopped",
    "gone",
    "left",
    "debugger",
    "kernel",
    "input",
    "busy",
    "lock",
    "sleep",
    "read",
    "child",
    "loader",
    "idle",
)


class Rank(NamedTuple):
    """A rank and what it does."""

    facts: HangRank
    kind: Kind
    own: StackFrame | None  # the user's innermost line
    pending: Collective | None  # the collective that it waits in

    @property
    def number(self) -> int:
        """The rank."""
        return self.facts.rank


class Verdict(NamedTuple):
    """The suspects, what they do, and the ranks that wait for them."""

    kind: Kind | Literal["unreachable", "differ", "behind", "everybody", "partial", "progress", "nothing"]
    suspects: tuple[Rank, ...] = ()
    waiting: tuple[Rank, ...] = ()
    differing: tuple[tuple[int, Collective], ...] = ()  # rank and collective, where they first differ


def view(facts: HangRank) -> Rank:
    """Return what a rank does."""
    own, pending = facts.own_frame, facts.pending
    return Rank(facts, _kind(facts, own, pending), own, pending)


def _kind(facts: HangRank, own: StackFrame | None, pending: Collective | None) -> Kind:
    if facts.state is None:
        return "gone"
    if facts.state in ("stopped", "traced"):
        return "stopped" if facts.state == "stopped" else "debugger"
    if facts.state == AS_RECORDED:
        return "waits"  # it has a flight recorder; which collective is the last is compared below
    active = _is_active(facts)
    if facts.state == "in uninterruptible sleep" and not active:
        return "kernel"
    if facts.raised is not None or _in_teardown(facts):
        return "left"
    if not facts.frames:
        return "unknown" if facts.silent else "left"
    if facts.at_exit and not _waits_in_torch(facts.frames):
        return "left"
    if any(_OF_DEBUGGERS.search(frame.file) for frame in facts.frames[:4]):
        return "debugger"
    if _imports(facts.frames):
        return "busy"  # from a slow disk it takes minutes
    if _waits_in_torch(facts.frames):
        return "waits"
    if pending is not None and not facts.frames[0].library and _OF_WORK.search(facts.frames[0].text):
        return "waits"
    if not active and (elsewhere := _other_wait(facts)) is not None:
        return elsewhere
    if pending is not None and _may_wait_for_gpu(facts.frames):
        return "waits"
    return "busy" if active else "idle"


def _is_active(facts: HangRank) -> bool:
    """Whether a rank or a process that it has started computes, or reads or writes data."""
    if facts.busy is None:
        return facts.state == "running"
    return facts.busy or bool(facts.io) or any(worker.busy or worker.io for worker in facts.workers)


def _may_wait_for_gpu(frames: Sequence[StackFrame]) -> bool:
    """Whether the innermost frame may wait for a collective in C++: in torch, or the user's own (`loss.item()`)."""
    return not frames[0].library or "/torch/" in frames[0].file


def _in_teardown(facts: HangRank) -> bool:
    """Whether the script has returned: Python runs its exit functions, or destroy_process_group waits."""
    return any(frame.function in _TEARDOWN for frame in facts.frames[:8]) or destroys(facts)


def destroys(facts: HangRank) -> bool:
    """Whether destroy_process_group waits; at its end in C++, where the innermost frame is its caller's."""
    inner = takewhile(lambda frame: frame.library, facts.frames)
    called = bool(facts.frames) and _DESTROYS.search(facts.frames[0].text) is not None
    return called or any(frame.function == "destroy_process_group" for frame in inner)


def _imports(frames: Sequence[StackFrame]) -> bool:
    """Whether it imports a module of a library: `import torch` takes long, and shows torch.distributed."""
    library = list(takewhile(lambda frame: frame.library, frames))
    return any(frame.file.startswith("<frozen importlib") for frame in library)


def _waits_in_torch(frames: Sequence[StackFrame]) -> bool:
    """Whether the frames between the innermost one and the user's own lead into torch.distributed."""
    for frame in frames:
        if _DISTRIBUTED.search(frame.file):
            return True
        if not frame.library:
            return False
    return False


def _other_wait(facts: HangRank) -> Kind | None:
    """Return what else than a collective a rank waits for; None if nothing shows it."""
    first, above = facts.frames[0], facts.frames[:4]
    wait, target = facts.kernel_wait or "", facts.waits_for or ""
    tests: tuple[tuple[Kind, bool], ...] = (
        ("input", _INPUT.search(first.text) is not None),
        ("loader", any(_LOADER.search(frame.file) for frame in facts.frames[:10])),
        ("child", any(_OF_CHILDREN.search(frame.file) for frame in above)),
        ("sleep", _SLEEPS.search(first.text) is not None or wait.endswith("nanosleep")),
        ("lock", any(_OF_LOCKS.search(frame.file) for frame in above) or target.startswith("flock")),
        ("read", _KERNEL_FILE.search(wait) is not None or _READS.match(target) is not None),
        ("lock", not first.library and _LOCKS.search(first.text) is not None and not _OF_GROUPS.search(first.text)),
    )
    return next((kind for kind, holds in tests if holds), None)


def verdict(hang: Hang) -> Verdict:
    """Return why the run makes no progress."""
    ranks = [view(rank) for rank in hang.ranks]
    waiting = tuple(rank for rank in ranks if rank.kind == "waits")
    others = [rank for rank in ranks if rank.kind not in ("waits", "unknown")]
    if not others:
        return _among_waiting(waiting, hang) if len(waiting) == len(ranks) > 0 else Verdict("nothing", (), waiting)
    if not waiting:  # no rank waits for one that has ended
        others = [rank for rank in others if rank.kind != "gone"]
    if not others:
        return Verdict("progress")  # all have ended, and their launcher has not noticed yet
    first = next(kind for kind in _ORDER if any(rank.kind == kind for rank in others))
    suspects = tuple(rank for rank in others if rank.kind == first)
    if not waiting and first == "sleep" and _is_part(hang):
        return Verdict("partial", suspects)  # the ranks of the other nodes may wait
    if not waiting and (first in ("busy", "sleep") or _may_serve(others, first)):
        return Verdict("progress")  # a sleep ends
    return Verdict(first, suspects, waiting)


def _is_part(hang: Hang) -> bool:
    """Whether the run has ranks on other nodes, and what they do is not known."""
    return len(hang.ranks) < hang.world and hang.world > hang.expected


def _may_serve(ranks: Sequence[Rank], kind: Kind) -> bool:
    """Whether ranks that have not trained may wait for requests, as a server does: in a queue, in accept()."""
    idle = kind in ("lock", "read", "idle") and not any(
        (rank.facts.waits_for or "").startswith("flock") for rank in ranks
    )
    return idle and not any(rank.facts.steps for rank in ranks)


def _among_waiting(ranks: tuple[Rank, ...], hang: Hang) -> Verdict:
    """Return why ranks that all wait in a collective do not go on."""
    if cut_off := tuple(rank for rank in ranks if rank.facts.unanswered):
        return Verdict("unreachable", cut_off, tuple(rank for rank in ranks if rank not in cut_off))
    if _is_part(hang):
        return Verdict("partial", (), ranks)
    if len(ranks) < 2 or len(ranks) < (hang.world or hang.expected):
        return Verdict("everybody", (), ranks)
    recorded = {rank.number: _sequence(rank.facts) for rank in ranks}
    if not all(recorded.values()):
        return _by_place(ranks)
    first = max(min(known) for known in recorded.values())
    last = max(max(known) for known in recorded.values())
    for number in range(first, last + 1):
        here = {rank: known[number] for rank, known in recorded.items() if number in known}
        absent = [rank for rank in ranks if rank.number not in here]
        if absent:
            return Verdict("behind", tuple(absent), tuple(r for r in ranks if r not in absent), tuple(here.items()))
        if len({(one.name, one.shape) for one in here.values()}) > 1:
            return _differ(ranks, recorded, range(first, number + 1))
    return Verdict("everybody", (), ranks)


def _differ(ranks: tuple[Rank, ...], recorded: Mapping[int, Mapping[int, Collective]], numbers: range) -> Verdict:
    """Return where the ranks first differ: at the last of these numbers, or where one has a collective more or less."""
    here = {rank.number: recorded[rank.number][numbers[-1]] for rank in ranks}
    (usual, count), *_ = Counter((one.name, one.shape) for one in here.values()).most_common(1)
    odd = tuple(rank for rank in ranks if (here[rank.number].name, here[rank.number].shape) != usual)
    normal = next(rank for rank in ranks if rank not in odd)
    of_usual = [_call(recorded[normal.number][number]) for number in numbers]
    of_odd = [_call(recorded[odd[0].number][number]) for number in numbers]
    for tag, begin, end, start, stop in SequenceMatcher(None, of_usual, of_odd, autojunk=False).get_opcodes():
        if tag != "equal" and end - begin != stop - start:  # lines alone may differ, in an if with two branches
            here = {rank.number: recorded[rank.number][numbers[begin]] for rank in ranks}
            break
    suspects = odd if 2 * count > len(ranks) else ()
    return Verdict("differ", suspects, tuple(r for r in ranks if r not in suspects), tuple(here.items()))


def _call(one: Collective) -> tuple[str, str, str]:
    return one.name, one.shape, one.caller.place if one.caller else ""


def _sequence(facts: HangRank) -> Mapping[int, Collective]:
    """Return the collectives of the default process group, by their number."""
    return {one.sequence: one for one in facts.collectives if one.group in ("0", "default_pg") and not one.p2p}


def _by_place(ranks: tuple[Rank, ...]) -> Verdict:
    """Return the ranks whose own line differs from that of most others, if there is no flight recorder."""
    places = Counter(rank.own for rank in ranks)
    (usual, count), *_ = places.most_common(1)
    if len(places) == 1 or 2 * count <= len(ranks):
        return Verdict("everybody" if len(places) == 1 else "differ", (), ranks)
    odd = tuple(rank for rank in ranks if rank.own != usual)
    return Verdict("differ", odd, tuple(rank for rank in ranks if rank not in odd))


# --- words ---


def at(rank: Rank) -> str:
    """Return " at train.py:31 (step)", or "" if the user's line is not known."""
    return f" at {rank.own.place}" if rank.own else ""


def names(ranks: Sequence[Rank]) -> str:
    """Return "rank 3", "rank 3 (host n2)", "ranks 1 and 2" or "ranks 1 (host n1) and 2 (host n2)"."""
    one = "rank" if len(ranks) == 1 else "ranks"
    if len({rank.facts.host for rank in ranks}) == 1:
        return f"{one} {listed([rank.number for rank in ranks])}{on_host(ranks[0].facts)}"
    return f"{one} {listed([f'{rank.number}{on_host(rank.facts)}' for rank in ranks])}"


def on_host(rank: HangRank) -> str:
    """Return " (host n2)" in a run on several hosts, else ""."""
    return f" (host {rank.host})" if rank.host else ""


def subjects(ranks: Sequence[Rank]) -> tuple[str, ...]:
    """Return the ranks as subjects of a problem."""
    return tuple(f"rank {rank.number}" for rank in ranks)


def what_waiting_do(found: Verdict) -> str:
    """Return a sentence about the ranks that wait, or "" if none does."""
    if not found.waiting:
        return ""
    first = found.waiting[0]
    verb = "waits" if len(found.waiting) == 1 else "wait"
    where = f" ({first.own.place})" if first.own else ""
    return f"{names(found.waiting).replace('rank', 'Rank', 1)} {verb}{inside(first)}{where}."


def inside(rank: Rank) -> str:
    """Return the collective in which a rank waits: " in all_reduce #42 of 1000 float32 values", " in new_group"."""
    return f" in {rank.pending.title}" if rank.pending else _torch_function(rank)


def _torch_function(rank: Rank) -> str:
    """Return " in barrier": the function of torch.distributed that the user's line calls."""
    inner = None
    for frame in rank.facts.frames:
        if not frame.library:
            break
        if _DISTRIBUTED.search(frame.file) and frame.function not in ("wrapper", "_wrapper", "inner"):
            inner = frame.function
        elif _BACKWARD.search(frame.file):
            inner = inner or "backward"
    return f" in {inner}" if inner else " in a collective"


def evidence(hang: Hang, found: Verdict) -> Evidence:
    """Return what JSON documents need: who, where, in what."""
    first = found.suspects[0] if found.suspects else None
    other = found.waiting[0] if found.waiting else None
    own = _guilty_line(found)
    return {
        "rank": first.number if first else None,
        "kind": found.kind,
        "at": own.place if own else None,
        "line": own.text if own else None,
        "waiting_at": other.own.place if other and other.own else None,
        "collective": other.pending.title if other and other.pending else None,
        "quiet_s": round(hang.quiet_s, 1),
    }


def _guilty_line(found: Verdict) -> StackFrame | None:
    """Return the line of the first suspect: of its exception, of the collective that differs, or where it is now."""
    if not found.suspects:
        return None
    first = found.suspects[0]
    differing = next((one.caller for rank, one in found.differing if rank == first.number), None)
    return first.facts.raised_at or differing or first.own


def loader_workers(rank: Rank) -> list[Worker]:
    """Return the processes that load data for a rank."""
    return [worker for worker in rank.facts.workers if worker.loader]
