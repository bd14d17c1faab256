"""Is the cause named that the log's context shows: its code, its own messages, its stacks, what ran after its end?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mgpu.engine import root_cause
from mgpu.engine.root_cause import Cause
from mgpu.readers.log import read, row_matching
from mgpu.snapshot import Log


def log_of(text: str, folder: Path) -> Log:
    path = folder / "run.log"
    path.write_text(text)
    return read.read_logs([path])


def first(text: str, folder: Path) -> Cause | None:
    return root_cause.find_cause(log_of(text, folder), None).first


def title_of(text: str, folder: Path) -> str:
    cause = first(text, folder)
    return cause.outcome.problem.title if cause and cause.outcome.problem else ""


RAISED = """\
Traceback (most recent call last):
  File "/home/u/train.py", line 41, in main
    {code}
{error}
"""
FAILED = (
    "E1121 10:12:01.408000 4711 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: "
    "0 (pid: 12) of binary: /usr/bin/python\n"
)
TIMEOUT = (
    "[rank{0}]:[E521 04:31:10.100221144 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=81230, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800071 "
    "milliseconds before timing out.\n"
)
TIMEOUTS = TIMEOUT.format(0) + TIMEOUT.format(1)
NAN = "{{'loss': 1.4, 'grad_norm': nan, 'learning_rate': {0}e-05, 'epoch': 0.{0}}}\n"
FINITE = "{'loss': 1.3, 'grad_norm': 1.2, 'learning_rate': 1e-05, 'epoch': 0.9}\n"
SIBLINGS = "slurmstepd: error: *** STEP 20113.0 ON gpu-q-12 CANCELLED AT 2026-05-21T04:31:14 ***\n"
STACKS = """\
$ py-spy dump --pid 9674
Thread 9801 (active): "MainThread"
    all_gather_tensor (torch/distributed/_functional_collectives.py:207)
    sync (sync.py:214)
$ py-spy dump --pid 9671
Thread 9790 (idle): "MainThread"
    _broadcast_bucket (group.py:911)
    sync (sync.py:221)
"""
DUMPED = """\
Timeout (0:05:00)!
Thread 0x00007f12 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait

Current thread 0x00007f13 (most recent call first):
  File "/x/torch/distributed/distributed_c10d.py", line 2810 in all_reduce
  File "/home/u/train.py", line 41 in main
"""

FIRST = {
    "a message in a source line is not the message": (
        RAISED.format(code='raise ValueError("Attempting to unscale FP16 gradients.")', error="ValueError: other"),
        "log_exception",
    ),
    "a message in a box of rich": (
        "╭──────── Traceback (most recent call last) ────────╮\n"
        "│ /home/u/train.py:41 in main                        │\n"
        '│ ❱ 41     raise ValueError("unscale FP16 gradients. Attempting to unscale FP16 gradients.") │\n'
        "╰────────────────────────────────────────────────────╯\nValueError: other\n",
        "log_exception",
    ),
    "Slurm's notice is a consequence of a timeout": (TIMEOUTS + SIBLINGS, "log_exchange_stalled"),
    "Slurm's notice alone": (SIBLINGS, "log_slurm_stopped_siblings"),
    "DeepEP's timeout before the illegal access of the watchdog": (
        "DeepEP timeout check failed: rank = 62, thread = 0, value = 0)\n"
        "[rank62]:[E901 07:15:55.011 ProcessGroupNCCL.cpp:2103] [PG ID 0 PG GUID 0 Rank 62] Process group watchdog "
        "thread terminated with exception: CUDA error: an illegal memory access was encountered\n"
        "E0901 07:15:58.001000 190 torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: -6) "
        "local_rank: 6 (pid: 266) of binary: /opt/venv/bin/python3\n",
        "log_deepep_timed_out",
    ),
    "a warning about a dtype does not explain a full GPU": (
        "Flash Attention 2.0 only supports torch.float16 and torch.bfloat16 dtypes, but the current dype in "
        "Qwen2ForCausalLM is torch.float32.\n"
        + RAISED.format(code="x.to(0)", error="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 MiB."),
        "log_gpu_memory_full",
    ),
    "a timeout after the end of the training": (
        "`Trainer.fit` stopped: `max_epochs=100` reached.\n" + TIMEOUTS,
        "log_timed_out_after_end",
    ),
    "a timeout long after it is one of another training": (
        "`Trainer.fit` stopped: `max_epochs=100` reached.\n" + "loading fold 2\n" * 100 + TIMEOUTS,
        "log_exchange_stalled",
    ),
    "gradients that are NaN until the end": ("".join(map(NAN.format, range(6))), "log_gradients_not_finite"),
    "sys.exit with a text": ("loading\nERROR: no shard of the data set fits rank 3\n" + FAILED,
                             "log_program_reported_error"),
    "a refusal before a launcher's report": (
        "loading\nnumber of heads must be divisible by the parallel size\n" + FAILED,
        "log_program_reported_error",
    ),
    "an error line after an exception is not the cause": (
        RAISED.format(code="f()", error="ValueError: bad batch") + "\nERROR: training crashed, see above\n" + FAILED,
        "log_exception",
    ),
    "the stacks of a run that hangs": ("step 1\n" + STACKS, "log_stacks_without_error"),
    "stacks of faulthandler": (DUMPED, "log_stacks_without_error"),
    "stacks beside an error": (STACKS + RAISED.format(code="f()", error="ValueError: bad batch"), "log_exception"),
}  # fmt: skip

SILENT = {
    "gradients that are NaN in the first steps": "".join(map(NAN.format, range(6))) + FINITE * 3,
    "few steps": "".join(map(NAN.format, range(3))),
    "a refusal, but no report of a failure": "loading\nnumber of heads must be divisible by the size\n",
    "an error that is retried": "ERROR: upload failed, retrying in 5 s\n",
    "a last line about something else": "loading\nstep 4 loss 0.3\n" + FAILED,
}


@pytest.mark.quick
@pytest.mark.parametrize("name", FIRST)
def test_the_context_decides_the_cause(name: str, tmp_path: Path) -> None:
    text, wanted = FIRST[name]
    cause = first(text, tmp_path)
    assert cause is not None
    assert cause.id == wanted


@pytest.mark.quick
@pytest.mark.parametrize("name", SILENT)
def test_no_cause_without_evidence(name: str, tmp_path: Path) -> None:
    cause = first(SILENT[name], tmp_path)
    assert cause is None or "exit_only" in cause.outcome.check.tags


MESSAGE = "ERROR: no shard of the data set fits rank 3"


@pytest.mark.quick
@pytest.mark.parametrize("before", [2, 20_000])
@pytest.mark.parametrize("after", ["", "\n", "\nsrun: error: n1: task 0: Exited with exit code 1\n"])
def test_the_line_of_the_programs_own_message(before: int, after: str, tmp_path: Path) -> None:
    log = log_of("loading\n" * before + MESSAGE + after, tmp_path)
    assert log.own_error is not None
    assert (log.own_error.text, log.own_error.line) == (MESSAGE, before + 1)


WHAT_WAS_EMPTY = {
    "IndexError: list index out of range": ("if all_embeddings[0].dtype == torch.bfloat16:", "all_embeddings is empty"),
    "KeyError: 'labels'": ("loss = batch['labels'].sum()", "batch has no key 'labels'"),
    "ZeroDivisionError: division by zero": ("return total / len(loader)", "loader is empty"),
    "ZeroDivisionError: float division by zero": ("return total / self.steps", "self.steps is 0"),
    "StopIteration": ("batch = next(iter(val_loader))", "val_loader has no items"),
    "ValueError: max() arg is an empty sequence": ("longest = max(lengths)", "lengths is empty"),
}


@pytest.mark.quick
@pytest.mark.parametrize("error", WHAT_WAS_EMPTY)
def test_the_source_line_shows_what_was_empty(error: str, tmp_path: Path) -> None:
    code, wanted = WHAT_WAS_EMPTY[error]
    cause = first(RAISED.format(code=code, error=error), tmp_path)
    assert cause is not None
    assert cause.outcome.problem is not None
    assert wanted in cause.outcome.problem.cause


@pytest.mark.quick
def test_two_objects_in_the_source_line_are_not_guessed(tmp_path: Path) -> None:
    cause = first(RAISED.format(code="a = x[0] + y[0]", error="IndexError: list index out of range"), tmp_path)
    assert cause is not None
    assert cause.outcome.problem is not None
    assert "is empty" not in cause.outcome.problem.cause


@pytest.mark.quick
def test_a_message_printed_twice_is_read_once(tmp_path: Path) -> None:
    error = "AssertionError: You must have a training stage starting at 1"
    [one] = log_of(RAISED.format(code="check()", error=f"{error}\n{error}"), tmp_path).raised
    assert (one.message, one.more) == ("You must have a training stage starting at 1", None)


@pytest.mark.quick
def test_ranks_of_which_only_the_last_line_is_left(tmp_path: Path) -> None:
    text = "".join(f"[rank0]: {line}\n" for line in RAISED.format(code="f()", error="ValueError: bad").splitlines())
    assert [one.ranks for one in log_of(f"{text}[rank7]: ValueError: bad\n", tmp_path).raised] == [(0, 7)]


MESSAGES = {
    "pydantic": (
        "1 validation error for X\nlr\n  Input should be a number",
        "1 validation error for X lr Input should",
    ),
    "a colon": ("sizes differ:\n  [2, 3]\n  [2, 4]", "sizes differ: [2, 3] [2, 4]"),
    "state dict": ("Error(s) in loading state_dict for M:\n\tMissing key(s): w", "for M: Missing key(s): w"),
    "a complete first line": ("sizes differ.\nCompile with DSA", "sizes differ."),
}


@pytest.mark.quick
@pytest.mark.parametrize("name", MESSAGES)
def test_lines_that_the_first_one_introduces_are_its_message(name: str, tmp_path: Path) -> None:
    text, wanted = MESSAGES[name]
    [one] = log_of(RAISED.format(code="f()", error=f"ValueError: {text}"), tmp_path).raised
    assert wanted in one.message
    assert ("DSA" in one.message) is False


@pytest.mark.quick
def test_stacks_name_the_process_and_its_collective(tmp_path: Path) -> None:
    title = title_of(STACKS, tmp_path)
    assert "different collectives" in title
    assert "process 9674 is in all_gather_tensor" in title


GOOD = {
    "the exit of a process that saved its result": (
        "epoch: 19/20, step: 1900/1913, loss: 0.3\n"
        "average checkpoint saved to ./out/model.pt\n"
        "[rank0]:[W107 03:13:33.201 ProcessGroupNCCL.cpp:1524] Warning: WARNING: destroy_process_group() was not "
        "called before program exit, which can leak resources.\n",
        True,
    ),
    "the same after an error": (
        "epoch: 19/20, step: 1900/1913, loss: 0.3\n"
        "checkpoint saved to ./out/model.pt\nERROR: validation set is empty\n"
        "[rank0]:[W107 03:13:33.201 ProcessGroupNCCL.cpp:1524] Warning: WARNING: destroy_process_group() was not "
        "called before program exit, which can leak resources.\n",
        False,
    ),
    "Ray Train retried": (
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
        "(TrainController pid=1) [State Transition] RUNNING -> RESTARTING.\n"
        "(TrainController pid=1) [State Transition] RUNNING -> FINISHED.\n",
        True,
    ),
}


@pytest.mark.quick
@pytest.mark.parametrize("name", GOOD)
def test_the_end_of_a_run(name: str, tmp_path: Path) -> None:
    text, good = GOOD[name]
    assert (log_of(text, tmp_path).finished is not None) is good


@pytest.mark.parametrize(("row", "line"), [
    ("log_config_not_found", "WARNING: Could not find 'libaio.so'"),
    ("log_compile_with_ddp", "config: torch._dynamo.config.optimize_ddp=False"),
    ("log_container_killed_for_memory", '    "OOMKilled": false,'),
    ("log_job_gave_up", "numFailedJobs: 0"),
    ("log_job_deadline", "rpc error: code = DeadlineExceeded desc = while the sandbox of Pod x was created"),
    ("log_best_metric_missing", "KeyError: 'eval_batch_size'"),
    ("log_model_not_wrapped", "AttributeError: 'NoneType' object has no attribute 'module'"),
    ("log_name_not_in_module", "ImportError: cannot import name 'UnslothGRPOTrainer' from 'UnslothGRPOTrainer'"),
])  # fmt: skip
def test_a_line_that_a_row_does_not_explain(row: str, line: str) -> None:
    (known,) = (one for one in row_matching.signature_rows() if one.id == row)
    assert re.search(known.pattern, line) is None


@pytest.mark.parametrize(
    ("channel", "within"), [("3[3] -> 0[0]", True), ("8[0] -> 0[0]", False), ("1[0] -> 0[0]", False)]
)
def test_gpus_of_one_node_that_use_the_network(channel: str, within: bool, tmp_path: Path) -> None:
    text = f"n1:1:2 [0] NCCL INFO Channel 00/0 : {channel} [receive] via NET/IB/1/GDRDMA\n"
    names = {one.name for one in log_of(f"{text}{TIMEOUTS.replace('81230', '1')}", tmp_path).shows}
    assert "network_channels" in names and ("network_within_node" in names) == within
