"""Which of several reports of one stop is its cause, and what do a bar, times and exit codes show about it?

All logs are synthetic, in the form of the programs that write them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.engine import root_cause
from mgpu.readers.log import read
from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

TIMEOUT = (
    "{head}[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, "
    "Timeout(ms)=1800000) ran for {ran} milliseconds before timing out.\n"
)
TAKEN_DOWN = "{head}[Rank {rank}] Some NCCL operations have failed or timed out. Due to the asynchronous\n"
STUCK = (
    "[rank4]:[E626 {at} ProcessGroupNCCL.cpp:1743] [PG ID 0 PG GUID 0(default_pg) Rank 4] ProcessGroupNCCL's watchdog "
    "got stuck for 480 seconds without making progress in monitoring enqueued collectives.\n"
)


def timeout(rank: int, seq: int, op: str = "ALLREDUCE", ran: int = 1800021, head: str = "") -> str:
    return TIMEOUT.format(head=head, rank=rank, seq=seq, op=op, ran=ran)


def at(time: str, rank: int) -> str:
    return f"[rank{rank}]:[E626 {time} ProcessGroupNCCL.cpp:632] "


GROUPED = "[PG ID 1 PG GUID {}(mesh_tp) Rank {}] "
BAR = "{percent}%|████      | {done}/500 [{times}, {rate}]{end}"
DIED = "(raylet) A worker died or was killed while executing a task by an unexpected system error.\n"
WORKER = "(ReferenceActor pid=41, ip=10.0.0.7) "
CASES = {
    "ranks that stood still together": (
        timeout(0, 901, ran=25624887) + timeout(0, 905, ran=25625613) + timeout(3, 640, ran=25625600),
        "log_processes_stood_still", "stood still for about 6 h 37 min"),
    "one late rank alone proves nothing": (
        timeout(0, 901, ran=25624887), "log_collective_timed_out", "waited for the others"),
    "rank 0 alone in a gather after the end": (
        "{'train_runtime': 119.8, 'train_loss': 1.2}\n" + timeout(0, 2778, "_ALLGATHER_BASE"),
        "log_timed_out_after_end", "rank 0 alone waited in _ALLGATHER_BASE"),
    "other ranks in a barrier after the end": (
        "{'train_runtime': 119.8, 'train_loss': 1.2}\n" + timeout(1, 2778, "ALLREDUCE"),
        "log_timed_out_after_end", "the timeout is in what runs after it"),
    "an unknown error after steps": (
        "Training 19% step: 5700 loss: 0.028 Elapsed: 0:21:08terminate called after throwing an instance of "
        "'c10::Error'\n  what():  CUDA error: unknown error\n", "log_cuda_start_failed", "in the middle of the"),
    "an unknown error at the start": (
        "  what():  CUDA error: unknown error\n", "log_cuda_start_failed", "does not start"),
    "a watchdog that became silent after a timeout": (
        STUCK.format(at="05:14:36.393067540") + timeout(2, 9, head=at("05:06:30.929096625", 2)),
        "log_timeout_before_silence", "waited for the others in ALLREDUCE"),
    "a watchdog that was silent before": (
        STUCK.format(at="05:14:36.393067540") + timeout(2, 9, head=at("05:14:31.929096625", 2)),
        "log_watchdog_stuck", "stuck in a CUDA or NCCL call"),
    "a timeout that is printed after its consequence": (
        TAKEN_DOWN.format(head=at("05:30:20.036611330", 1), rank=1)
        + timeout(1, 13, "SCATTER", head=at("05:30:20.039566920", 1)),
        "log_collective_timed_out", "distributes the model's weights"),
    "a worker that died at its timeout": (
        BAR.format(percent=0, done=0, times="30:02<?", rate="?it/s", end="\n") + DIED
        + timeout(1, 1, "_ALLGATHER_BASE", head=WORKER), "log_worker_ended_by_timeout", "number 1) never completed"),
    "a worker that died long before": (
        BAR.format(percent=0, done=0, times="03:02<?", rate="?it/s", end="\n") + DIED
        + timeout(1, 1, "_ALLGATHER_BASE", head=WORKER), "log_ray_worker_died", "died"),
    "a bar that advanced until the timeout": (
        "caching latents...\n" + BAR.format(percent=87, done=435, times="30:02<04:26", rate="4.13s/it", end="")
        + timeout(1, 3, head="[E ProcessGroupNCCL.cpp:828] "), "log_rank_still_working", "at 435 of 500"),
    "a bar that hung until the timeout": (
        "caching latents...\n" + BAR.format(percent=2, done=10, times="30:22<16:20", rate="2.00s/it", end="")
        + timeout(1, 3, head="[E ProcessGroupNCCL.cpp:828] "), "log_collective_timed_out", "waited"),
    "a cut line of a watchdog": (
        "EPOCH 1 BATCH 80: train_loss=0.07\n[rank6]:[E ProcessGroupNCCL.cpp:563] [Rank 6] Watchdog caught collective",
        "log_timeout_line_cut", "the line is cut"),
    "a step of hours before a lost connection": (
        "2024-04-10 04:59:03 | INFO | logs | epoch 5, step at 58400, loss=31.1\n"
        "2024-04-10 05:01:07 | INFO | logs | epoch 5, step at 58600, loss=33.7\n"
        "2024-04-10 05:03:10 | INFO | logs | epoch 5, step at 58800, loss=32.8\n"
        "2024-04-10 07:05:01 | INFO | logs | epoch 5, step at 59000, loss=35.8\n"
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:589] Read error [10.0.0.2]:25266: Connection "
        "reset by peer\n", "log_step_took_long", "a step of 2 h 1 min, where 2 min 3 s were usual"),
    "usual steps before a lost connection": (
        "2024-04-10 04:59:03 | INFO | logs | epoch 5, step at 58400, loss=31.1\n"
        "2024-04-10 05:01:07 | INFO | logs | epoch 5, step at 58600, loss=33.7\n"
        "2024-04-10 05:03:10 | INFO | logs | epoch 5, step at 58800, loss=32.8\n"
        "2024-04-10 05:05:15 | INFO | logs | epoch 5, step at 59000, loss=35.8\n"
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:589] Read error [10.0.0.2]:25266: Connection "
        "reset by peer\n", "log_peer_gone", "was lost"),
    "a full bar, new weights, and an error of the adapter": (
        "Train epoch [1/1]: 100%|██████████| 128/128 [23:32<00:00, 11.04s/it, kl=0]\n"
        "(LLMRayActor pid=90) update weight: model.embed_tokens.weight, dtype: torch.bfloat16\n"
        "(LLMRayActor pid=90, ip=10.0.0.3) mlx5: node3: got completion with error:\n",
        "log_mlx5_completion_error", "failed transfer"),
    "a tracker that explains a cut traceback": (
        "(worker_7) : wandb: ERROR Error communicating with wandb process\nTraceback (most recent call last):\n"
        '  File "/app/run.py", line 34, in run\n    runnable.run()\n', "log_wandb_timed_out", "did not answer in time"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_stopped_the_run(name: str, tmp_path: Path) -> None:
    text, wanted, title = CASES[name]
    path = tmp_path / "run.log"
    path.write_text(text, "utf-8")
    first = root_cause.find_cause(read.read_logs([path]), None).first
    assert first is not None
    assert first.outcome.problem is not None
    assert (first.id, title in first.outcome.problem.title) == (wanted, True), first.outcome.problem.title


@pytest.mark.parametrize(
    "text",
    [
        timeout(0, 901) + timeout(0, 905) + timeout(3, 640),  # several groups of rank 0, without their names
        timeout(0, 901, head=GROUPED.format(1, 0)) + timeout(3, 640, head=GROUPED.format(2, 1)),
    ],
)
def test_numbers_of_several_groups_are_not_compared(text: str, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(text, "utf-8")
    verdict = root_cause.find_cause(read.read_logs([path]), None)
    assert "log_ranks_out_of_step" not in [one.id for one in (verdict.first, *verdict.others) if one]


def test_a_full_bar_is_no_end_if_the_weights_are_sent_after_it(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(
        "Train epoch [1/1]: 100%|██████████| 128/128 [23:32<00:00, 11.04s/it, kl=0]\n"
        "(LLMRayActor pid=90) update weight: model.embed_tokens.weight, dtype: torch.bfloat16\n",
        "utf-8",
    )
    assert read.read_logs([path]).finished is None


def test_what_was_written_decides_whether_the_run_must_be_repeated(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    end = "{'train_runtime': 119.8, 'train_loss': 1.2}\n" + timeout(1, 2778)
    for text, repeated in ((end, True), ("Checkpoint saved.\n" + end, False)):
        path.write_text(text, "utf-8")
        first = root_cause.find_cause(read.read_logs([path]), None).first
        assert first is not None
        assert first.outcome.problem is not None
        assert ("needs no repetition" in first.outcome.problem.fixes[0].text) is not repeated


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("2026-02-17 22:40:24,365 - ERROR - tracker - cannot open the run file on this node", True),
        ("ERROR: see https://example.org/help for more", False),
        ("2026-02-17 22:40:24,365 - INFO - tracker - opened the run file on this node", False),
    ],
)
def test_what_is_reported_before_a_cut_traceback(line: str, shown: bool, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(
        f'{line}\nTraceback (most recent call last):\n  File "/app/run.py", line 34, in run\n    runnable.run()\n',
        "utf-8",
    )
    first = root_cause.find_cause(read.read_logs([path]), None).first
    assert first is not None
    assert first.id == "log_traceback_cut"
    assert first.outcome.problem is not None
    assert ("cannot open the run file" in first.outcome.problem.title) is shown


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("ERROR:composer.cli.launcher:Rank 2 crashed with exit code -7.", "log_rank_bus_error"),
        ("trainer-1 exited with code 135", "log_rank_bus_error"),
        ("command terminated with exit code 139", "log_rank_segfault"),
        ("Rank 0 crashed with exit code -9.", "log_rank_killed"),
        ("[1d50fe70ad3a:02744] Signal: Segmentation fault (11)", "log_rank_segfault"),
        ("[1d50fe70ad3a:02744] Signal: Bus error (7)", "log_rank_bus_error"),
    ],
)
def test_how_a_launcher_reports_a_signal(line: str, wanted: str, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(f"step 1 loss 0.3\n{line}\n", "utf-8")
    first = root_cause.find_cause(read.read_logs([path]), None).first
    assert first is not None
    assert first.id == wanted


LIMIT = "slurmstepd: error: *** JOB 77 ON g5 CANCELLED AT 2026-11-21T{at} DUE TO TIME LIMIT ***\n"


def _timed(*times: str) -> str:
    return "".join(f"2026-11-21 {at} INFO step {n} loss 0.{n}\n" for n, at in enumerate(times, 1))


@pytest.mark.parametrize(
    ("lines", "at", "found"),
    [
        (_timed("02:00:01", "02:01:02", "02:02:01", "02:03:02"), "11:13:40", "log_silent_until_limit"),
        (_timed("02:00:01", "02:00:01", "02:00:01", "02:00:01"), "11:13:40", "log_silent_until_limit"),
        # It printed something until the end; the last line has no time; two clocks; an evaluation; too few lines.
        (_timed("11:10:01", "11:11:02", "11:12:01", "11:13:02"), "11:13:40", "log_slurm_time_up"),
        (_timed("02:00:01", "02:01:02", "02:02:01", "02:03:02") + "step 900\n", "11:13:40", "log_slurm_time_up"),
        (_timed("02:00:01", "02:01:02", "02:02:01", "02:03:02"), "11:03:40", "log_slurm_time_up"),
        (_timed("02:00:01", "02:01:02", "03:59:01", "04:00:02"), "11:13:40", "log_slurm_time_up"),
        (_timed("02:00:01", "02:01:02"), "11:13:40", "log_slurm_time_up"),
    ],
)
def test_a_silence_before_the_time_limit_is_a_hang(lines: str, at: str, found: str, tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    aborted = "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
    path.write_text(lines + aborted + LIMIT.format(at=at))
    first = root_cause.find_cause(read.read_logs([path]), None).first
    assert first is not None and first.id == found
    if found == "log_silent_until_limit":
        assert first.outcome.problem and "nothing for 9 h" in first.outcome.problem.title
        assert ("a line came every 1 min" in first.outcome.problem.cause) == ("02:01:02" in lines), "not every 0 s"


LOADS = ("torch/utils/data/_utils/fetch.py", "fetch", "data = [self.dataset[i] for i in index]")
WORKS = ("torch/utils/data/_utils/worker.py", "_worker_loop", "data = fetcher.fetch(index)")
READS = ("/home/ada/clips.py", "__getitem__", "frame = archive.extractfile(name).read()")


@pytest.mark.parametrize(
    ("calls", "title", "where"),
    [
        ((LOADS, READS), "while it loaded a batch", "clips.py:7 in __getitem__: frame = archive"),
        ((("torch/_tensor.py", "backward", "torch.autograd.backward("),), "(Ctrl-C)", "fit.py:7 in main: step(batch)"),
        ((("/usr/lib/python3.12/gzip.py", "read", "x = self.f.read(n)"),), "(Ctrl-C)", "fit.py:7 in main: step(batch)"),
        ((WORKS, LOADS, READS), "(Ctrl-C)", ""),  # a worker's traceback: the script was elsewhere
    ],
)
def test_where_a_run_was_interrupted(
    calls: tuple[tuple[str, str, str], ...], title: str, where: str, tmp_path: Path
) -> None:
    text = f"step 7 loss 0.41\n{frames((SCRIPT, 'main', 'step(batch)'), *calls)}KeyboardInterrupt\n"
    row, found, words = explained(tmp_path, text)
    assert row == "log_interrupted" and found.endswith(title)
    assert f"The script was at {where}" in words if where else "The script was" not in words
    assert ("num_workers=4" in words) == ("loaded" in title)


def test_a_launcher_that_was_interrupted_shows_no_line_of_the_script(tmp_path: Path) -> None:
    launcher = frames(("torch/distributed/run.py", "main", "run(args)")) + "KeyboardInterrupt\n"
    assert "The script was" not in explained(tmp_path, launcher)[2]


_MAP = "Tokenizing (num_proc=8):  {percent}%|##   | {at}/90000 [{times}, 41.20 examples/s]"
_SIGINT = "W0301 09:10:11.120000 77 site-packages/torch/distributed/elastic/agent/server/api.py:704] Received {}\n"
_CLOSES = "W0301 09:10:11.130000 77 x/elastic/multiprocessing/api.py:897] Sending process 91 closing signal SIGINT\n"
_CTRL_C = 'Traceback (most recent call last):\n  File "/w/fit.py", line 7, in <module>\n    main()\nKeyboardInterrupt\n'
_BY_TORCHRUN = _SIGINT.format("Signals.SIGINT death signal, shutting down workers") + _CLOSES
_MAPPED = "\n".join(_MAP.format(percent=n, at=900 * n, times=f"00:{n}<1:10:00") for n in range(10, 30))
_WORKERS = "".join(f"Process ForkPoolWorker-{n}:\n" for n in range(90))
_STEPS = "".join(f" {n}%|#   | {n}/400 [00:{n}<09:00, 2.00s/it]\n" for n in range(10, 30))
_FULL = "100%|##########| 400/400 [01:10<00:00, 5.71it/s, acc=0.6]\n"
_AT_ZERO = "  0%|          | 0/400 [00:00<?, ?it/s]\n"
_CAPTURED = "".join(
    f"(EngineCore_DP0 pid=9) Capturing CUDA graphs (mixed prefill-decode): {n}%|# | {n}/100 [00:01<00:01, 9.1it/s]\n"
    for n in (0, 50, 100)
)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        (f"{_MAPPED}{_BY_TORCHRUN}", "its data was prepared: 26,1"),  # the last bar has the signal in its line
        (f"{_MAPPED}\n{_WORKERS}{_CTRL_C}", "its data was prepared: 26,1"),
        (f"{_AT_ZERO}{_CAPTURED}engine ready\n{_CTRL_C}", "it waited for its first step (0 of 400)"),
        (f"{_MAPPED}\n{_AT_ZERO}{_BY_TORCHRUN}", "it waited for its first step (0 of 400)"),
        (
            f"Namespace(epoch=12, loss='l2', steps=9)\nEpoch 1/9\n{_AT_ZERO}{_CTRL_C}",
            "probably while it waited for its",
        ),
        (f"Loading weights: 100%|##| 7/7 [00:01<00:00]\nEpoch 0: {_AT_ZERO}{_CTRL_C}", "it waited for its first step"),
    ],
)
def test_what_a_run_did_when_it_was_stopped_before_it_trained(text: str, title: str, tmp_path: Path) -> None:
    found = explained(tmp_path, text)
    assert found[0] == "log_interrupted_early" and title in found[1]
    assert "will hang" not in found[2]


@pytest.mark.parametrize(
    "text",
    [
        f"{_MAPPED}\n{_STEPS}{_CTRL_C}",
        f"{_MAPPED}\n{_AT_ZERO}{{'loss': 1.31, 'epoch': 0.1}}\n{_CTRL_C}",
        f"{_STEPS}Evaluating:   0%|    | 0/12 [00:00<?, ?it/s]\n{_BY_TORCHRUN}",
        f"{_CAPTURED}{_CTRL_C}",
        f"{_STEPS}{_MAPPED.replace('Tokenizing', 'Sampling')}".replace("examples/s", "it/s") + f"\n{_CTRL_C}",
        # An epoch of which no step is complete, after others.
        f"{_FULL}{_FULL}{_AT_ZERO}{_CTRL_C}",
        f"Epoch 4: {_FULL}Epoch 5: {_AT_ZERO}{_CTRL_C}",
        f"Epoch 5/90: {_AT_ZERO}{_CTRL_C}",
        f"Epoch 1 accuracy 0.64\n{_AT_ZERO}{_CTRL_C}",
        f"Epoch 2/90\n{_AT_ZERO}{_CTRL_C}",
        f"step 20, reward 0.4\n{_AT_ZERO}{_CTRL_C}",
    ],
)
def test_a_run_that_trained_was_only_interrupted(text: str, tmp_path: Path) -> None:
    assert explained(tmp_path, text)[0] == "log_interrupted"
