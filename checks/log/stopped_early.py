"""Did a user stop the run before it trained, while its data was prepared or before its first step was complete?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.snapshot import Log

_TIMES = re.compile(r"\[(?P<gone>(?:\d+:)?\d+:\d\d)<(?P<left>(?:\d+:)?\d+:\d\d)")
_OF_DATASET = re.compile(r"\bexamples/s\b")
_STOP = "A user, or a program that sends SIGINT, stopped it. What the processes print afterwards is a consequence."
# fmt: off
_PREPARE_ONCE = (
    Fix("Prepare the data once, before the launch, and save it: a map() that is stopped keeps only the shares that a "
        "process had completed.",
        ("dataset.map(prepare, num_proc=32).save_to_disk('prepared')", "load_from_disk('prepared')",
         "preprocessing_num_workers: 32 and tokenized_path: prepared  # LLaMA-Factory")),
    Fix("If one example takes long (videos, large images), decode less of it (fewer frames, smaller), or decode it in "
        "the loader's workers while the GPUs train.", ("dataset.set_transform(prepare)",)),
)
_FIRST_STEP = (
    Fix("If it stood still: let mgpu watch the run. It asks each process what it waits for.",
        ("mgpu launch train.py",)),
    Fix("Ask the process while it hangs.", ("py-spy dump --pid PID",)),
    Fix("If another process gives it its batches (a generation server, a data worker), read the output of that one."),
)
# fmt: on


@check(
    Severity.ERROR,
    source="https://huggingface.co/docs/datasets/process#multiprocessing",
    role="root",
    kind="scheduler",
    same_as=("log_interrupted",),
    effect_of="stop",
    tags=("precise",),
)
def log_interrupted_early(log: Log) -> Answer:
    """A user stopped the run before it trained: its data was still being prepared, or the first step never came.

    Why: Preparing large data takes hours if one process does it, or if each example is a video. A first step that does
    not come is often a hang: a rank waits for another one, or for a process that gives it its batches.

    Fix: Prepare the data once and save it, or find out what the run waits for. A new start can lead to the same.
    """
    at = log.stopped_at
    stop = next((one for one in log.seen if one.signature == "log_interrupted" and not one.survived), None)
    if at is None or stop is None:
        return Ok("no stop before the training")
    times = _TIMES.search(at.text)
    shown = f'The last bar before that: "{at.text}".'
    if _OF_DATASET.search(at.text):
        when = f" while its data was prepared: {at.at:,.0f} of {at.of or 0:,.0f} examples"
        when += f" after {times['gone']}" if times else ""
        why = f"Training had not begun. {_STOP} {shown}" + (f" {times['left']} were left." if times else "")
        fixes: tuple[Fix, ...] = _PREPARE_ONCE
    else:
        when = f", probably while it waited for its first step (0 of {at.of or 0:,.0f})"
        why = f"The lines before that show no complete step. {_STOP} {shown}"
        fixes = _FIRST_STEP
    return Problem(
        f"the run was interrupted (Ctrl-C){when}",
        why,
        fixes,
        {"line": stop.text, "at": at.at, "of": at.of},
        tuple(f"rank {rank}" for rank in stop.ranks),
        Place(stop.file, stop.line),
    )
