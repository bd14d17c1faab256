"""Is the right cause found in a long log, too? Each row's sample is raised amid the output of a healthy run.

The output is that of five launchers and frameworks, with warnings, bars, NCCL's messages and data that quote errors.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mgpu.engine import root_cause
from mgpu.readers.log import read, row_matching
from mgpu.signature import Row
from mgpu.snapshot import Log

ROWS = row_matching.signature_rows()
LONG = 340  # lines before the failure, more than those in which an end is looked for
EACH = 1  # forms in which each row is tried
EXCEPTION = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Timeout|Full): \S")
NCCL = "node7:{0}:{0} [{1}] NCCL INFO "


def torchrun() -> Iterator[str]:
    yield "W1121 10:12:01.408000 4711 torch/distributed/run.py:766] Setting OMP_NUM_THREADS environment variable to 1"
    for rank in range(8):
        nccl = NCCL.format(4711 + rank, rank)
        yield f"{nccl}cudaDriverVersion 12080"
        yield f"{nccl}NET/Plugin: Could not find: libnccl-net.so. Using internal plugin."
        yield f"{nccl}Channel 00/0 : {rank}[{rank}] -> {(rank + 1) % 8}[{(rank + 1) % 8}] via P2P/CUMEM"
        yield f"{nccl}comm 0x55 rank {rank} nranks 8 cudaDev {rank} - Init COMPLETE"
    yield "/opt/x.py:7: FutureWarning: `torch.cuda.amp.autocast(args...)` is deprecated. It will raise an error later."
    for step in itertools.count(1):
        yield f"step {step} | loss {2 / step:.4f} | grad norm {1 / step:.3f} | 41.2k tokens/s | mem 61.2 GiB"


def trainer() -> Iterator[str]:
    yield "Some weights of Model were not initialized from the model checkpoint at a/b and are newly initialized: ['x']"
    yield "You should probably TRAIN this model on a down-stream task to be able to use it for predictions."
    yield "Map: 100%|██████████| 5000/5000 [00:01<00:00, 4000 examples/s]"
    yield "Detected kernel version 5.15.0, which is above the minimum."
    for step in itertools.count(1):
        yield f"{step / 40:3.0f}%|{'█' * (step // 400):10}| {step}/4000 [{step // 60:02}:{step % 60:02}<30:00, 2.1it/s]"
        if step % 10 == 0:
            yield f"{{'loss': {2 / step:.4f}, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': {step / 1000:.2f}}}"
        if step % 50 == 0:
            yield f"Saving model checkpoint to out/checkpoint-{step}"
            yield f"tokenizer config file saved in out/checkpoint-{step}/tokenizer_config.json"


def megatron() -> Iterator[str]:
    yield "using world size: 16, data-parallel size: 4, tensor-model-parallel size: 2, pipeline-model-parallel size: 2"
    yield "WARNING: TensorBoard writing requested but is not available (are you using PyTorch 1.1.0 or later?)"
    yield "  train_iters ..................................... 500000"
    yield "> setting tensorboard ...\ntime to initialize megatron (seconds): 12.408"
    for step in itertools.count(1):
        yield (
            f" [2026-11-21 10:{step // 60 % 60:02}:{step % 60:02}] iteration {step:8}/  500000 | consumed samples: "
            f"{step * 256} | elapsed time per iteration (ms): 712.2 | learning rate: 1.5E-04 | lm loss: 2.1E+00 | loss "
            "scale: 1.0 | grad norm: 0.412 | number of skipped iterations:   0 | number of nan iterations:   0 |"
        )


def ray() -> Iterator[str]:
    yield "2026-11-21 10:12:01,408\tINFO worker.py:1841 -- Started a local Ray instance. View the dashboard at 1.2.3.4"
    yield "(WorkerDict pid=123) Flash Attention 2.0 only supports torch.float16 dtypes [repeated 7x across cluster]"
    for step in itertools.count(1):
        yield f"(TaskRunner pid=77) step:{step} - actor/pg_loss:0.01 - critic/rewards/mean:0.4 - timing_s/step:81.2"
        yield f"(WorkerDict pid=123) INFO 11-21 10:12:01 [metrics.py:41] Avg generation throughput: {step} tokens/s"
        yield "(TaskRunner pid=77) [response] If you see 'CUDA error: out of memory', KeyError: 'x' is not the reason."


def slurm() -> Iterator[str]:
    yield "Loading cuda/12.8\n  Loading requirement: gcc/12.2.0"
    yield (
        "0: [W1121 10:12:01.408 socket.cpp:752] [c10d] The client socket has failed to connect to [n0]:29500 (errno: "
        "111 - Connection refused). Retrying."
    )
    for step in itertools.count(1):
        yield f"{step % 4}: Epoch 0: {step % 100}%|████      | {step % 100}/100 [00:10<00:15,  4.0it/s, train_loss=0.2]"
        yield f"{step % 4}: step {step} loss 0.3"


# The output, the prefix of the failed rank's lines, and what the launcher prints after a failure.
FORMS: dict[str, tuple[Callable[[], Iterator[str]], str, tuple[str, ...]]] = {
    "torchrun": (torchrun, "[rank3]: ", (
        "W1121 10:19:01.408000 4711 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 4712 closing "
        "signal SIGTERM",
        "E1121 10:19:02.408000 4711 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) "
        "local_rank: 3 (pid: 4714) of binary: /usr/bin/python",
    )),
    "Trainer": (trainer, "", (" 37%|███▋      | 1500/4000 [12:10<20:10,  2.1it/s]",)),
    "Megatron": (megatron, "[rank3]: ", (
        "srun: error: node7: task 3: Exited with exit code 1", "srun: Terminating StepId=123.0")),
    "Ray": (ray, "(WorkerDict pid=123) ", ()),
    "Slurm": (slurm, "3: ", ("srun: error: node7: task 3: Exited with exit code 1",)),
}  # fmt: skip
FRAMES = (
    "Traceback (most recent call last):",
    '  File "/home/u/train.py", line 41, in main',
    "    train(model)",
)


def raises(row: Row) -> list[str]:
    """Return the samples of a row that are a Python exception's own line."""
    return [sample for sample in row.samples if EXCEPTION.match(sample)]


RAISED = [row for row in ROWS if row.role == "root" and raises(row)]


def shown(form: str, lines: list[str], tmp_path: Path) -> Log:
    output, prefix, after = FORMS[form]
    text = [*itertools.islice(output(), LONG), *(f"{prefix}{line}" for line in lines), *after]
    path = tmp_path / "run.log"
    path.write_text("\n".join(text) + "\n", encoding="utf-8")
    return read.read_logs([path])


@pytest.mark.parametrize("form", FORMS)
def test_the_output_alone_has_no_cause(form: str, tmp_path: Path) -> None:
    output, _, _ = FORMS[form]
    path = tmp_path / "run.log"
    path.write_text("\n".join(itertools.islice(output(), LONG)) + "\n", encoding="utf-8")
    log = read.read_logs([path])
    assert root_cause.find_cause(log, None).first is None
    assert (log.finished, log.failed) == (None, None)


@pytest.mark.parametrize("form", FORMS)
def test_the_cause_stays_first_in_a_long_log(form: str, tmp_path: Path) -> None:
    wrong, number = [], list(FORMS).index(form)
    for place, row in enumerate(RAISED):
        if (place + number) % len(FORMS) >= EACH:
            continue
        sample = raises(row)[0]
        first = root_cause.find_cause(shown(form, [*FRAMES, *sample.split("\n")], tmp_path), None).first
        if first is None or first.id != row.id:
            wrong.append((row.id, first.id if first else None))
    assert not wrong
