"""Did the others wait for a rank that saved, prepared data or evaluated by itself?"""

from __future__ import annotations

import re
from typing import NamedTuple

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.snapshot import Log, LoneWork

_DDP_TIMEOUT = "https://huggingface.co/docs/transformers/main_classes/trainer"
_LONGER = Fix(
    "Give the others more time.",
    ("InitProcessGroupKwargs(timeout=timedelta(hours=2))", "TrainingArguments(ddp_timeout=7200)"),
    kind="stopgap",
    caveat="A real hang then takes that long to be detected.",
)


class _Work(NamedTuple):
    did: str
    shorter: Fix
    why: str = "It took longer than the timeout, or that rank died there without a message."


_ITSELF = (
    "It took longer than the timeout, or that rank itself waits there, in a collective or barrier that only it called "
    "(inside `if rank == 0`, or for a model that is sharded)."
)
_WORK = {
    "save": _Work(
        "saved a checkpoint",
        Fix(
            "Call save_state, get_state_dict and wait_for_everyone on all ranks, not inside `if is_main_process`. Let "
            "all ranks save their own part, or save in the background, on a fast disk.",
            ("accelerate launch --fsdp_state_dict_type SHARDED_STATE_DICT ...", "mgpu doctor --script train.py"),
        ),
        _ITSELF,
    ),
    "data": _Work(
        "prepared the data",
        Fix(
            "Prepare the data once before the run, in one process with several workers, so that all ranks read it from "
            "the cache.",
            ("dataset.map(function, batched=True, num_proc=16)",),
        ),
    ),
    "download": _Work(
        "downloaded files",
        Fix("Download before the run.", ("HF_HUB_OFFLINE=1 mgpu launch train.py",)),
    ),
    "load": _Work(
        "loaded the model",
        Fix("Copy the model to a local disk of each node, and load it before the process group is created."),
    ),
    "long": _Work(
        "was still busy",
        Fix(
            "Make that work shorter, or let all ranks do it at the same time and in the same way. Find out why it "
            "takes so long on some ranks: memory that is swapped, a slow disk, a CPU that other ranks share.",
            ("free -g; vmstat 1 5", "py-spy dump --pid PID"),
        ),
        "The line says how long it took, which is longer than the others waited.",
    ),
    "evaluate": _Work(
        "evaluated or generated",
        Fix(
            "Move barrier, wait_for_everyone and gather out of `if is_main_process`. Evaluate on all ranks, each with "
            "its share of the data, or evaluate fewer samples.",
            ("eval_loader = accelerator.prepare(eval_loader)", "mgpu doctor --script train.py"),
        ),
        _ITSELF,
    ),
}


_ENDED = re.compile(r"[ _:-]*(?:done|finished|completed?|ended)\b", re.IGNORECASE)
_LONGEST = 80  # characters of a line in the title


def _progress(work: LoneWork) -> str:
    """Return what the last line calls the work, as ' ("Running tokenizer on dataset")'; empty without words."""
    if work.function:
        return " (tokenizing, mapping)" if work.kind == "data" else ""
    text = re.sub(r"^(?:DEBUG|INFO|WARNING)\W+", "", work.text.strip())
    if work.kind == "long":
        return f' ("{re.split(_ENDED, text, maxsplit=1)[0][:_LONGEST].rstrip()}")'
    words = re.split(r"\s*(?:[(:|\[]|\d+ ?%|\.\.\.)", text, maxsplit=1)[0]
    return f' ("{words}")' if words else ""


@check(
    Severity.ERROR,
    source=_DDP_TIMEOUT,
    role="secondary",
    kind="timeout",
    tags=("precise",),
    same_as=(
        "log_collective_timed_out",
        "log_gloo_timed_out",
        "log_desynchronised",
        "log_ranks_missing_at_barrier",
        "log_store_wait_timed_out",
        "log_ranks_diverged",
        "log_exchange_stalled",
        "log_timeout_line_cut",
    ),
)
def log_rank_worked_alone(log: Log) -> Answer:
    """Ranks waited in a collective until its timeout, while one rank saved, prepared data or evaluated.

    Why: A collective completes only when all ranks join it. The last lines before the timeout show what one rank still
    did: it took longer than the timeout, or that rank died there without a message. The network is not the cause.

    Fix: Share this work between the ranks, do it before the run, or raise the timeout.
    """
    work = log.lone_work
    if work is None or work.kind not in _WORK:
        return Ok(f"no work of one rank before a timeout in {log.lines:,} lines")
    known = _WORK[work.kind]
    stall = next(iter(log.stalled), None)
    where = f" in {stall.operation}" if stall and stall.operation else ""
    limit = f" of {work.timeout_s:,.0f} s" if work.timeout_s else ""
    if work.function:
        where = f" in {work.function}()"
    doing = _progress(work) + (f" for {work.took_s:,.0f} s" if work.took_s else "")
    who = (
        "another rank" if work.function else "one rank, probably rank 0," if work.rank is None else f"rank {work.rank}"
    )
    return Problem(
        f"ranks waited{where} until the timeout{limit}, while {who} {known.did}{doing}",
        f"{known.why} The network is not the cause.",
        (known.shorter, _LONGER),
        {"line": work.text, "work": work.kind, "function": work.function},
        () if work.rank is None else (f"rank {work.rank}",),
        Place(work.file, work.line),
    )
