"""Is an error that a run survived left alone, a good end recognized, and a real failure after it still found?

All logs are synthetic: short, in the wording of the programs that write them. `HEALTHY` are logs of runs that
succeeded, or that show no error; `AFTER` are the same with a real failure at the end.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from mgpu.engine import root_cause
from mgpu.readers.log import read
from mgpu.report import failure, log_report
from mgpu.snapshot import Log


class Sample(NamedTuple):
    """A log, and the state that its end shows."""

    text: str
    state: str = "succeeded"


def steps(first: int, last: int, form: str = "step {n} | loss 0.{n}") -> str:
    return "".join(f"{form.format(n=n)}\n" for n in range(first, last + 1))


def bars(first: int, last: int, of: int) -> str:
    return "".join(f"\r{100 * n // of:3}%|{'█' * (10 * n // of):10}| {n}/{of} [00:{n:02}<00:{of - n:02},  1.0it/s]"
                   for n in range(first, last + 1)) + "\n"  # fmt: skip


def raised(error: str, place: str = "/home/u/loader.py", prefix: str = "") -> str:
    lines = (
        "Traceback (most recent call last):",
        f'  File "{place}", line 7, in read',
        "    return fetch(name)",
        error,
    )
    return "".join(f"{prefix}{line}\n" for line in lines)


FULL = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB"
RUNTIME = "{'train_runtime': 812.1, 'train_samples_per_second': 9.8, 'train_loss': 0.41, 'epoch': 3.0}\n"
NCCL = "node7:4711:4820 [0] NCCL INFO "
FIT = "`Trainer.fit` stopped: `max_epochs=3` reached.\n"

IGNORED = (
    "Exception ignored in atexit callback: <function update_table at 0x7fe4>",
    "Traceback (most recent call last):",
    '  File "/srv/ops/matmul.py", line 480, in update',
    "    self.put(table)",
)
ITS_END = (
    '  File "/srv/ops/matmul.py", line 105, in put',
    '    os.replace(self.path + ".tmp", self.path)',
    "FileNotFoundError: [Errno 2] No such file or directory: '/home/u/.triton/autotune/k.pickle.tmp' -> "
    "'/home/u/.triton/autotune/k.pickle'",
)
HEALTHY: dict[str, Sample] = {
    # Ends
    "Hugging Face Trainer": Sample(
        "{'loss': 0.71, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': 0.5}\n" + bars(1, 20, 20) + RUNTIME),
    "Lightning": Sample("Epoch 2: 100%|██████████| 40/40 [00:10<00:00, 4.0it/s, v_num=3, train_loss=0.2]\n" + FIT),
    "DeepSpeed": Sample(
        steps(1, 3, "[2026-11-21 10:12:01,408] [INFO] [logging.py:96:log_dist] [Rank 0] step={n}, skipped=0, lr=[1e-5]")
        + "[2026-11-21 10:12:09,100] [INFO] [launch.py:351:main] Process 4711 exits successfully.\n"),
    "Megatron": Sample(
        steps(1, 3, " iteration        {n}/       3 | consumed samples: 48 | elapsed time per iteration (ms): 712.2 | "
              "lm loss: 9.1E+00 | number of skipped iterations:   0 | number of nan iterations:   0 |")
        + "[after training is done] datetime: 2026-11-21 10:12:09\n"),
    "torchtitan": Sample(
        steps(1, 3, "[rank0]:[titan] 2026-11-21 10:12:01,408 - root - INFO - step: {n}  loss: 8.1  memory: "
        "40.1GiB(50%)")
        + "[rank0]:[titan] 2026-11-21 10:12:09,408 - root - INFO - Training completed\n"
        "[rank0]:[titan] 2026-11-21 10:12:09,500 - root - INFO - Process group destroyed\n"),
    "verl": Sample(
        steps(1, 3, "(TaskRunner pid=4711) step:{n} - actor/pg_loss:0.01 - critic/rewards/mean:0.4")
        + "(TaskRunner pid=4711) ('Final validation metrics: {'val/test_score': 0.5}')\n"),
    "accelerate with a bar": Sample(bars(1, 30, 30) + "Model weights saved in out/model.safetensors\n"),
    "a bar of an epoch or of the run": Sample(bars(1, 30, 30), "unknown"),
    "steps of a total": Sample(steps(1, 5, "step {n}/5 loss 0.3")),
    "vLLM that is serving": Sample(
        "INFO 11-21 10:12:01 [api_server.py:1261] Starting vLLM API server 0 on http://0.0.0.0:8000\n"
        "INFO:     Application startup complete.\n"
        'INFO:     10.0.0.1:4711 - "POST /v1/completions HTTP/1.1" 200 OK\n', "unknown"),
    "Slurm's epilog": Sample(
        steps(1, 4) + "Job ID: 4711\nState: COMPLETED (exit code 0)\nCPU Efficiency: 30.1%\n"),
    "a run that goes on": Sample(steps(1, 9), "unknown"),
    "a bar of a preparation": Sample(
        "Loading checkpoint shards: 100%|██████████| 4/4 [00:10<00:00, 2.5s/it]\n", "unknown"),
    "accelerate test": Sample("stdout: Test is a success! You are ready for your distributed training!\n"
                              "Test is a success! You are ready for your distributed training!\n"),
    "NCCL's own messages": Sample(
        f"{NCCL}cudaDriverVersion 12080\n{NCCL}NET/Plugin: Could not find: libnccl-net.so. Using internal plugin.\n"
        f"{NCCL}Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n{NCCL}comm 0x55 rank 0 nranks 2 cudaDev 0 - Init COMPLETE\n"
        + steps(1, 3) + "Training finished in 12.1 s\n"
        f"{NCCL}[Service thread] Connection closed by localRank 1\n"
        f"{NCCL}comm 0x55 rank 0 nranks 2 cudaDev 0 busId 1000 - Abort COMPLETE\n"),
    "the store's end after success": Sample(
        steps(1, 4) + "Training complete.\n"
        "[rank1]:[W1121 10:12:01.408 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=63, addr=[n1]:40000, "
        "remote=[n0]:29500): Connection reset by peer\n"
        '[rank1]:[W1121 10:12:01.409 ProcessGroupNCCL.cpp:1662] Failed to check the "should dump" flag on TCPStore, '
        "(maybe TCPStore server has shut down too early), with error: Broken pipe\n"),
    # Errors that were survived
    "a batch size that was reduced": Sample(
        "trying batch size 64\n" + raised(FULL) + "CUDA out of memory with batch size 64, retrying with 32\n"
        + steps(1, 6) + "Training complete\n"),
    "find_executable_batch_size": Sample(
        f"{FULL}. Decreasing batch size to: 16\n" + bars(1, 12, 12) + RUNTIME),
    "autotune in inductor": Sample(
        "[rank0]:E1121 10:12:01.408000 4711 torch/_inductor/select_algorithm.py:1905] [0/0] Runtime error during "
        "autotuning: \n[rank0]:E1121 10:12:01.409000 4711 torch/_inductor/select_algorithm.py:1905] [0/0] No "
        "valid triton "
        "configs. OutOfMemoryError: out of resource: triton_mm Required: 327680 Hardware limit:232448 Reducing block "
        "sizes or `num_stages` may help.. \n[rank0]:E1121 10:12:01.410000 4711 "
        "torch/_inductor/select_algorithm.py:1905] "
        "[0/0] Ignoring this choice.\n" + steps(1, 4) + "Training complete\n"),
    "a traceback that was logged": Sample(
        steps(1, 3) + "ERROR:root:could not log to wandb\n" + raised("requests.exceptions.ConnectionError: api")
        + steps(4, 20) + "Training complete\n"),
    "a sample that was skipped": Sample(
        steps(1, 3) + raised("OSError: broken data stream when reading image file")
        + "WARNING skipping sample 4711\n" + steps(4, 9) + RUNTIME),
    "the Hub's limit": Sample(
        "429 Client Error: Too Many Requests for url: https://huggingface.co/api/models/a/b. Retrying in 8s\n"
        + steps(1, 3) + "Training complete\n"),
    "a stale file handle": Sample(
        steps(1, 3) + "OSError: [Errno 116] Stale file handle: '/data/x.bin', retrying (1/5)\n" + steps(4, 8)
        + "Finished training\n"),
    "a store that was not up yet": Sample(
        "[W1121 10:12:01.408 socket.cpp:752] [c10d] The client socket has failed to connect to [node0]:29500 "
        "(errno: 111 "
        "- Connection refused). Retrying.\n" * 3 + steps(1, 4) + "Training done!\n"),
    "Lightning's hint about srun": Sample(
        "/opt/lib/python3.11/site-packages/lightning/x.py:204: The `srun` command is available on your system but "
        "is not "
        "used. HINT: If your intention is to run Lightning on SLURM, prepend your python command with `srun` like so: "
        "srun python train.py\n" + steps(0, 4, "Epoch {n}: train_loss=0.3") + FIT),
    "pip's resolver": Sample(
        "ERROR: pip's dependency resolver does not currently take into account all the packages that are "
        "installed. This "
        "behaviour is the source of the following dependency conflicts.\n"
        "torchvision 0.21.0 requires torch==2.6.0, but you have torch 2.7.0 which is incompatible.\n"
        "Successfully installed torch-2.7.0\n" + steps(1, 4) + "Training complete\n"),
    "an elastic restart": Sample(
        steps(1, 5) + raised("RuntimeError: CUDA error: an illegal memory access was encountered", prefix="[rank1]: ")
        + "W1121 10:12:01.408 4711 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 4712 closing "
        "signal SIGTERM\nE1121 10:12:02.408 4711 torch/distributed/elastic/multiprocessing/api.py:874] failed "
        "(exitcode: "
        "1) local_rank: 1 (pid: 4713) of binary: /usr/bin/python\n"
        "I1121 10:12:03.408 4711 torch/distributed/elastic/agent/server/api.py:900] [default] Worker group FAILED. 3/3 "
        "attempts left; will restart worker group\nresuming from step 4\n" + steps(4, 30)
        + "I1121 10:20:03.408 4711 torch/distributed/elastic/agent/server/api.py:879] [default] worker group "
        "successfully "
        "finished. Waiting 300 seconds for other agents to finish.\n"),
    "a preempted job that was requeued": Sample(
        steps(1, 5) + "slurmstepd: error: *** JOB 4711 ON node7 CANCELLED AT 2026-11-21T10:12:01 DUE TO "
        "PREEMPTION ***\n"
        "Resuming from checkpoint-5\n" + steps(5, 20) + "Training complete\n"),
    "a worker that was started again": Sample(
        steps(1, 3) + "RuntimeError: DataLoader worker (pid(s) 4711) exited unexpectedly\nrespawning worker 4711\n"
        + steps(4, 9) + "Training complete\n"),
    "an actor that Ray started again": Sample(
        "(raylet) A worker died or was killed while executing a task by an unexpected system error. Restarting actor.\n"
        "(Worker pid=12) " + raised("ConnectionError: lost", prefix="(Worker pid=12) ")
        + steps(1, 12, "(Trainer pid=4) step {n} reward 0.2") + "Job 'raysubmit_abc' succeeded\n"),
    "an import that is optional": Sample(
        raised("ModuleNotFoundError: No module named 'flash_attn'") + "flash_attn is not installed, falling back "
        "to sdpa\n"
        + bars(1, 12, 12) + RUNTIME),
    "a backend that fell back": Sample(
        "WARNING: apex could not be imported: libcudart.so.11.0: cannot open shared object file, falling back to "
        "torch\n"
        + steps(1, 4) + "Training complete\n"),
    "wandb offline": Sample(
        "wandb: Network error (ConnectionError), entering retry loop.\nwandb: W&B syncing is set to `offline`\n"
        + steps(1, 3) + "wandb: Run summary:\nwandb:   loss 0.3\nTraining complete\n"),
    "NCCL that retries": Sample(
        f"{NCCL}socketStartConnect: Connect to 10.0.0.1<40001> failed : Connection refused, retrying\n" + steps(1, 5)
        + "Training complete\n"),
    # Text that only quotes errors
    "model output": Sample(
        "".join(f"Sample {n}: Your GPU shows NVRM: Xid (PCI:0000:10:1c): 79, pid=1, GPU has fallen off the bus.\n"
                "Prompt: what does CUDA out of memory mean?\nResponse: NCCL error: unhandled system error\n"
                for n in range(3)) + "Evaluation complete\n"),
    "tracebacks of generated programs": Sample(
        "".join(f"problem {n}: FAIL\n" + raised("ZeroDivisionError: division by zero", "<string>") for n in range(4))
        + "pass@1: 0.25\nEvaluation finished\n"),
    "a unit test's output": Sample(
        "FAIL-SAFE test: expecting ValueError\ntest_oom (tests.Full) ... ok\n"
        "============================= 12 passed, 3 warnings in 4.20s =============================\n"),
    "prose in a log": Sample(
        "See https://example.org/cuda-out-of-memory for 'Address already in use' errors\n" + steps(1, 3)
        + "Training complete\n"),
    "a data set's text": Sample(
        '{"text": "RuntimeError: CUDA error: device-side assert triggered"}\n' + steps(1, 3) + "Training complete\n"),
    # Warnings
    "deprecations": Sample(
        "/opt/x.py:7: FutureWarning: `torch.cuda.amp.autocast(args...)` is deprecated. This will raise an error "
        "in 2.9.\n"
        "/opt/y.py:9: UserWarning: an error estimate could not be computed\n" + bars(1, 12, 12) + RUNTIME),
    "a GPU warning": Sample(
        "UserWarning: There is an imbalance between your GPUs. You may want to exclude GPU 1\n" + steps(1, 3)
        + "Training complete\n"),
    "a process group that was not destroyed": Sample(
        steps(1, 3) + "Training complete\n[rank0]:[W1121 10:12:01.408 ProcessGroupNCCL.cpp:1496] Warning: WARNING: "
        "destroy_process_group() was not called before program exit, which can leak resources.\n"),
    "TensorFlow's messages": Sample(
        "E0000 00:00:1732.1 4711 cuda_dnn.cc:8310] Unable to register cuDNN factory: Attempting to register "
        "factory for "
        "plugin cuDNN when one has already been registered\n" + steps(1, 3) + "Training complete\n"),
    "apt": Sample(
        "debconf: delaying package configuration, since apt-utils is not installed\nW: Failed to fetch x. Retrying\n"
        + steps(1, 3) + "All done.\n"),
    "a thread that failed": Sample(
        "Exception in thread Thread-1 (send):\n" + raised("BrokenPipeError: [Errno 32] Broken pipe") + steps(1, 12)
        + "Training complete\n"),
    "two epochs in bars": Sample(
        "Epoch 1/2: 100%|██████████| 40/40 [00:10<00:00, 4.0it/s]\nEpoch 2/2: 100%|██████████| 40/40 [00:10<00:00]\n"),
    "a set-up that is done": Sample("Loading the data set\nDone.\n" + steps(1, 6), "unknown"),
    "data that is done": Sample("Preprocessing\nDone.\nTraining started\n", "unknown"),
    "an evaluation in between": Sample(steps(1, 3) + "Evaluation complete\n" + steps(4, 9), "unknown"),
    "an epoch that is complete": Sample(steps(1, 3) + "Training epoch 1 complete\n", "unknown"),
    "words about an end": Sample(steps(1, 3) + "Training will be stopped when finished\n", "unknown"),
    "an error that was expected": Sample(
        "testing a batch that is too large\n" + raised(FULL) + "caught the expected error, continuing\n"
        + steps(1, 4) + "All tests passed\n"),
    "a checkpoint that was not there": Sample(
        raised("FileNotFoundError: [Errno 2] No such file or directory: '/ckpt/latest'") + "starting from scratch\n"
        + steps(1, 14) + "Training complete\n"),
    "a loader that timed out once": Sample(
        steps(1, 4) + "RuntimeError: DataLoader timed out after 30 seconds\nrestarting the loader\n" + steps(5, 9)
        + FIT),
    "losses that are not numbers": Sample(
        steps(1, 3) + "Gradient overflow. Skipping step, reducing loss scale to 32768.0\n"
        + "loss is nan at step 4, skipping\n" + steps(5, 9) + RUNTIME),
    "a permission that is not needed": Sample(
        "PermissionError: [Errno 13] Permission denied: '/root/.triton' (ignored)\n" + bars(1, 15, 15) + RUNTIME),
    "memory reports": Sample(
        steps(1, 3) + "Memory: max allocated 71.2 GiB, out of memory events: 0, retries: 0\nTraining complete\n"),
    "a store that waits": Sample(
        "[rank1]:[W1121 10:12:01.408 TCPStore.cpp:141] [c10d] TCP client failed to connect/validate to host "
        "node0:29500 - "
        "retrying (try=0, timeout=600000ms, delay=1000ms): Connection reset by peer\n" + steps(1, 4)
        + "Training complete\n"),
    "Slurm's step that waited": Sample(
        "srun: Job step creation temporarily disabled, retrying (Requested nodes are busy)\nsrun: Step created for "
        "StepId=4711.1\n" + steps(1, 4) + "Training complete\n"),
    "a job array's epilog": Sample(
        steps(1, 4) + "Job 4711 finished with exit code 0\nslurmstepd: task exited with code 0\n"),
    "a spot machine that came back": Sample(
        steps(1, 5) + "[rank0]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2, remote "
        "process "
        "exited or there was a network error, NCCL version 2.26.2\nRestarting from the last checkpoint (attempt 2)\n"
        + steps(4, 20) + "Training complete\n"),
    "vLLM that generates": Sample(
        "Processed prompts: 100%|██████████| 64/64 [00:10<00:00,  6.2it/s, est. speed input: 71.00 toks/s]\n"
        "[rank0]:[W1121 10:12:01.408 ProcessGroupNCCL.cpp:1496] Warning: WARNING: process group has NOT been destroyed "
        "before we destruct ProcessGroupNCCL.\n"),
    "a Ray cluster that shuts down": Sample(
        steps(1, 4, "(Trainer pid=4) step {n} reward 0.2") + "Training complete\n(raylet) [2026-11-21 "
        "10:12:01,408 E 7 7] "
        "(raylet) node_manager.cc:3084: 1 Workers (tasks / actors) killed due to memory pressure: 0\n"),
    "answers in a table": Sample(
        "| question | answer |\n| why | RuntimeError: CUDA error: an illegal memory access was encountered |\n"
        + steps(1, 3) + "Evaluation complete\n"),
    "a conversation": Sample(
        "[user] my run fails with torch.distributed.DistNetworkError: EADDRINUSE\n[assistant] Address already in use "
        "means that the port is taken\n" + bars(1, 12, 12) + RUNTIME),
    "a hint of Lightning, and the run went on": Sample(
        "PossibleUserWarning: The `srun` command is available on your system but is not used.\n"
        + "wandb: Run summary:\n" + "wandb:       loss 0.3\n" * 12, "unknown"),
    "ranks that lose the store while they shut down": Sample(
        steps(1, 240) + "".join(
            f'[rank{rank}]:[W510 13:52:58.2 ProcessGroupNCCL.cpp:1771] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] '
            'Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down too early)\n'
            for rank in range(1, 4)), "unknown"),
    "a disk of Ray that is nearly full": Sample(
        "(raylet) file_system_monitor.cc:111: /tmp/ray/session_2025-03-02 is over 95% full, "  # codespell:ignore
        "available space: 15301278; capacity: 7e12. Object creation will fail if spilling is required.\n", "unknown"),
    "a warning about a batch that was left out": Sample(
        "20:16:28 WARNING OOM at iter 1 (rank 0): CUDA out of memory. Tried to allocate 30.79 GiB.\n20:16:28 WARNING "
        "Skipped iter 1.\n20:56:41 INFO Saving a checkpoint to out\n20:56:42 INFO Saving the model\n", "unknown"),
    "an attempt long before, and an end in Portuguese": Sample(
        "2025-01-04 17:18:06 - ERROR - Erro: Can't load tokenizer for 'a/b'. If you were trying to load it\n"
        + "2025-01-04 17:23:35 - INFO - Iniciando processamento de exemplo...\n" * 250
        + "2025-01-08 16:30:31 - INFO - Treinamento conclu\u00eddo com sucesso\n"),
    "a message that comes again and again": Sample("".join(
        f"(TaskRunner pid=7) error!! index 2 is out of bounds for dimension 0 with size 2\nstep {n} | loss 0.{n}\n"
        for n in range(1, 30)), "unknown"),
    "cuDNN tries another plan": Sample(
        "UserWarning: Plan failed with a cudnnException: CUDNN_BACKEND: cudnn_status: CUDNN_STATUS_NOT_SUPPORTED\n"
        + steps(1, 2), "unknown"),
    "an exception that Python ignored": Sample(
        steps(1, 2) + "Exception ignored in: <function _Iter.__del__ at 0x7f1fce83f560>\n"
        + raised("RuntimeError: DataLoader worker (pid 1109404) is killed by signal: Aborted. "), "unknown"),
    "a stop that Python ignored": Sample(
        steps(1, 2) + "Exception ignored in: <function _gc_callback at 0x7fb8c57809a0>\n"
        + raised("\nKeyboardInterrupt: "), "unknown"),
    "exceptions that Python ignored in two processes of one node, printed into each other": Sample(
        steps(1, 9, "1: step {n} | loss 0.{n}") + "".join(f"1: {line}\n" for line in (*IGNORED * 2, *ITS_END * 2)),
        "unknown"),
    "a metric named error": Sample(steps(1, 4) + "Mean absolute error: train 0.3 validation 0.4 test 0.5\n", "unknown"),
    "no failed cases": Sample(steps(1, 4) + "0 failed: everything passed in this evaluation\n", "unknown"),
    "docker compose": Sample("trainer-1  | step 1 loss 0.3\ntrainer-1  | Training complete\ntrainer-1 exited with "
    "code 0\n"),
}  # fmt: skip

REAL = raised("ValueError: bad batch", "/home/u/train.py")
AFTER = {name: sample for name, sample in HEALTHY.items() if "error" in sample.text.lower() or "Xid" in sample.text}


def read_text(text: str, tmp_path: Path) -> Log:
    path = tmp_path / "run.log"
    path.write_text(text, encoding="utf-8")
    return read.read_logs([path])


def cause(log: Log) -> tuple[str | None, str]:
    found = root_cause.find_cause(log, None).first
    problem = found.outcome.problem if found else None
    return (found.id, problem.title) if found and problem else (None, "")


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_log_has_no_cause_and_its_end_is_recognized(name: str, tmp_path: Path) -> None:
    sample = HEALTHY[name]
    log = read_text(sample.text, tmp_path)
    assert cause(log) == (None, "")
    assert log_report.ending_entry(log, ())["state"] == sample.state


@pytest.mark.parametrize("name", AFTER)
def test_a_real_failure_after_it_is_the_cause(name: str, tmp_path: Path) -> None:
    log = read_text(AFTER[name].text + steps(40, 44) + REAL, tmp_path)
    found, title = cause(log)
    assert found == "log_exception" and title == "train.py:7 in read raised ValueError: bad batch", (found, title)
    assert log.finished is None


XID = "NVRM: Xid (PCI:0000:41:00): 79, pid=4711, GPU has fallen off the bus."


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        (XID, True), (f"[12345.678901] {XID}", True), (f"[Sat Nov 21 10:12:01 2026] {XID}", True),
        (f"Nov 21 10:12:01 node7 kernel: {XID}", True), (f"Nov 21 10:12:01 node7 kernel: [12345.678901] {XID}", True),
        (f"2026-11-21T10:12:01.123456+00:00 node7 kernel: {XID}", True), (f"kern  :err   : [12345.678901] {XID}", True),
        (f"<3>[12345.678901] {XID}", True), (f"node7: [12345.678901] {XID}", True), (f"kern.log:Nov 21 10:12:01 "
        f"n1 kernel: {XID}", True),
        (f"2026-11-21T10:12:01,123456+00:00 {XID}", True), (f"trainer-1  | [12345.678901] {XID}", True),
        (f"The log shows {XID}", False), (f"generated: {XID}", False), (f'"{XID}"', False), (f"Answer: look for "
        f"'{XID}'", False),
        (f"step 7 output: {XID}", False), (f"- {XID}", False), (f"loss 0.3 text {XID}", False),
    ],
)  # fmt: skip
def test_an_xid_counts_at_the_start_of_a_kernels_line(line: str, counts: bool, tmp_path: Path) -> None:
    log = read_text(f"start\n{line}\n", tmp_path)
    assert (cause(log)[0] == "log_xid_bus") == counts


LAST = "torch.distributed.DistBackendError: NCCL error in: /pytorch/NCCLUtils.cpp:93, {kind}, NCCL version 2.26.2\n"


@pytest.mark.parametrize(
    ("kind", "last", "wanted"),
    [
        ("unhandled cuda error", "Cuda failure 2 'out of memory'", "log_nccl_out_of_memory"),
        ("unhandled cuda error", "Cuda failure 217 'peer access is not supported between these two devices'",
         "log_peer_access_refused"),
        ("unhandled cuda error", "Cuda failure \u2018invalid argument\u2019", "log_nccl_cuda_failed"),
        ("unhandled system error", "Error: failed to extend /dev/shm/nccl-WU88OE to 9637892 bytes, error: No "
        "space left on "
         "device (28)", "log_shm_full_for_nccl"),
        ("unhandled system error", "something that no table knows", "log_nccl_system_error"),
        ("internal error", "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000",
         "log_ranks_share_a_gpu"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("prefix", ["", "[rank1]: ", "(WorkerDict pid=4711) ", "3: "])
def test_what_nccl_reports_after_last_error_decides(
    kind: str, last: str, wanted: str, prefix: str, tmp_path: Path
) -> None:
    error = LAST.format(kind=kind)
    text = raised(error.rstrip(), "/home/u/train.py", prefix) + f"{prefix}Last error:\n{prefix}{last}\n"
    log = read_text(text, tmp_path)
    found = root_cause.find_cause(log, None)
    assert found.first is not None and found.first.id == wanted
    shown = failure.triage_document(found, log, None)["probable_cause"]
    assert shown is not None
    evidence = f"{shown['evidence'].get('line')} {shown['evidence'].get('nccl_error')}"
    assert last.replace("\u2018", "'").replace("\u2019", "'") in evidence


GOOD_ENDS = (
    "{'train_runtime': 812.1, 'train_loss': 0.4}", "  train_runtime            = 0:13:32.11",
    "`Trainer.fit` stopped: `max_epochs=3` reached.", "`Trainer.fit` stopped: `max_steps=500` reached.",
    "Training completed. Do not forget to share your model on huggingface.co/models =)",
    "[default] worker group successfully finished. Waiting 300 seconds for other agents to finish.",
    "[after training is done] datetime: 2026-11-21 10:12:09", "[exiting program after 500 iterations] datetime: x",
    "[2026-11-21 10:12:09,100] [INFO] [launch.py:351:main] Process 4711 exits successfully.",
    "Job 'raysubmit_abc' succeeded", "State: COMPLETED (exit code 0)", "JobState=COMPLETED Reason=None",
    "============ 12 passed, 3 warnings in 4.20s ============", "trainer-1 exited with code 0", "exit code: 0",
    "Training complete", "Training completed in 3:12:01", "Finished training.", "Training finished after 3 epochs",
    "training done!", "Fine-tuning completed successfully", "Done.", "All done!", "DONE", "Job finished at 10:12",
    "Total training time: 3:12:01", "Total train time 812 s", "run completed successfully", "Pretraining finished",
    "Saved final model to /out", "Test is a success! You are ready for your distributed training!", "SUCCESS",
    "Evaluation finished", "Benchmark complete: 812 tok/s", "✅ Training complete!", "*** Training Complete ***",
    "INFO:__main__:Training completed", "2026-11-21 10:12:01 | INFO | Training finished", "completed without error",
    "26-05-12 18:04:37.203 - INFO: End of training.", "End of training. Time consumed: 2 days, 3:11:02",
    "stage=train_done saved=out/agent/params", '{"event": "run_finished", "score": 0.4}',
)  # fmt: skip
NO_ENDS = (
    "Training", "step 3 loss 0.4", "Loading checkpoint done", "Training has not finished", "Training failed",
    "Epoch 3 done",
    "Waiting until training is complete", "training was aborted before it finished", "Evaluation of step 40 complete",
    "Init COMPLETE", "If the run finished with errors, see x", "download complete", "Compilation finished", "exit "
    "code 1",
    "State: FAILED (exit code 1)", "trainer-1 exited with code 137", "12 passed, 3 failed", "tokenization done",
    "Sanity Checking DataLoader 0: 100%|██████████| 2/2 [00:01<00:00, 1.9it/s]", "return code: 2",
    "Map: 100%|██████████| 5000/5000 [00:01<00:00, 4000 examples/s]", " 40%|████      | 40/100 [00:10<00:15,  4.0it/s]",
    "save_at: end of training", "End of training epoch 3", "train_done=False", "watching for run_finished.flag",
)  # fmt: skip


@pytest.mark.parametrize("line", (*GOOD_ENDS, *NO_ENDS))
def test_which_lines_show_a_good_end(line: str, tmp_path: Path) -> None:
    log = read_text(f"start\n{line}\n", tmp_path)
    assert (log.finished is not None) == (line in GOOD_ENDS)


BAD_ENDS = (
    "srun: error: node7: task 3: Exited with exit code 1", "trainer-1 exited with code 137", "State: FAILED (exit "
    "code 1)",
    "command terminated with exit code 1", "E1121 10:12:01.408 4711 api.py:869] failed (exitcode: 1) local_rank: "
    "0 (pid: "
    "12) of binary: /usr/bin/python", "train.sh: exit code 2", "Process finished with exit code 139", "return code: 2",
    "[2026-11-21 10:12:01,745] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 3668201",
    "make: *** [Makefile:7: train] Error 1", "Job 'raysubmit_abc' failed", "Killed",
    "============ 3 failed, 12 passed in 4.20s ============",
)  # fmt: skip


@pytest.mark.parametrize("line", BAD_ENDS)
@pytest.mark.parametrize("after", ["", "Done.\n", "Training complete\n"])
def test_a_failure_that_nothing_explains_is_no_success(line: str, after: str, tmp_path: Path) -> None:
    log = read_text(f"{steps(1, 4)}{line}\n{after}", tmp_path)
    assert (log.finished, log.failed is not None) == (None, True)


@pytest.mark.parametrize("end", ["Done.\n", "Training complete\n", "Job finished at 10:12\n"])
def test_what_a_batch_script_prints_after_a_failure_is_no_success(end: str, tmp_path: Path) -> None:
    limit = "slurmstepd: error: *** JOB 4711 ON n1 CANCELLED AT 2026-11-21T10:12:01 DUE TO TIME LIMIT ***\n"
    assert cause(read_text(steps(1, 4) + limit + end, tmp_path))[0] == "log_slurm_time_up"
    log = read_text(steps(1, 4) + REAL + "=" * 20 + "\nSat Nov 21 10:12:01 UTC 2026\n" + end, tmp_path)
    assert cause(log)[0] == "log_exception" and log.finished is None


def test_an_end_that_was_cut_short_is_no_success(tmp_path: Path) -> None:
    text = (
        steps(1, 4) + "LOGS   - Keyboard interruption. Exiting from early training\nLOGS   - Training took 00:09:17\n"
    )
    assert cause(read_text(text, tmp_path))[0] == "log_interrupted"
    assert read_text(text, tmp_path).finished is None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("step 1 loss 0.3\nslurmstepd: error: *** STEP 2382.0 ON hgx CANCELLED AT 2024-06-21T01:22:01 ***\n",
         "the job step was cancelled"),
        (REAL + "slurmstepd: error: *** STEP 2382.0 ON hgx CANCELLED AT 2024-06-21T01:22:01 ***\n", "bad batch"),
        ("torch/cuda/__init__.py:141: UserWarning: CUDA initialization: The NVIDIA driver on your system is too old "
         "(found version 11040).\nKeyboardInterrupt\n", "the run was interrupted"),
        ("*** SIGTERM received at time=1755416551 on cpu 89 ***\nTerminated with signal 15\n", "SIGTERM"),
    ],
)  # fmt: skip
def test_what_stopped_a_run(text: str, wanted: str, tmp_path: Path) -> None:
    assert wanted in cause(read_text(text, tmp_path))[1]


def test_an_exception_within_a_handler_does_not_show_versions(tmp_path: Path) -> None:
    second = raised("AttributeError: 'PolicyCfg' object has no attribute 'command'", "/v/site-packages/gym/registry.py")
    chain = "\nDuring handling of the above exception, another exception occurred:\n\n"
    first = raised("TypeError: Missing values detected in object Cfg for the following fields:")
    assert "Missing values" in cause(read_text(first + chain + second, tmp_path))[1]


def test_a_hint_explains_a_failure_only(tmp_path: Path) -> None:
    hint = (
        "(raylet) /tmp/ray/session_2025-03-02 is over 95% full, available space: 15; capacity: 7\n"  # codespell:ignore
    )
    assert cause(read_text(hint, tmp_path))[0] is None
    died = hint + "ray.exceptions.WorkerCrashedError: The worker died unexpectedly while executing this task.\n"
    log = read_text(died, tmp_path)
    assert {one.signature for one in log.seen if not one.survived} >= {"log_ray_disk_nearly_full"}


def test_what_follows_a_bar_in_its_line(tmp_path: Path) -> None:
    bar = " 99%|\u2588\u2588\u2589| 8086/8184 [34:22<00:48,  2.01it/s, loss=0.3]"
    assert cause(read_text(bars(1, 9, 9) + bar + "Killed\n", tmp_path))[0] == "log_shell_reports_kill"
    assert cause(read_text(bar + bar + "\n", tmp_path))[0] is None
    assert cause(read_text(bar + REAL, tmp_path))[0] == "log_exception"


def test_a_cut_traceback_after_a_good_end(tmp_path: Path) -> None:
    cut = REAL.rpartition("ValueError")[0]
    assert read_text(RUNTIME, tmp_path).finished and not read_text(RUNTIME + cut, tmp_path).finished
    assert cause(read_text(RUNTIME + cut, tmp_path))[0] == "log_traceback_cut"


def test_other_ranks_take_some_more_steps(tmp_path: Path) -> None:
    for prefix in ("", "[rank1]: "):
        text = steps(1, 4) + raised("ValueError: bad batch", prefix=prefix) + steps(5, 8)
        assert cause(read_text(text, tmp_path))[0] == "log_exception"
        # The launcher reports the failure: the exception is its cause, even if the others took many steps.
        late = text + steps(9, 25) + "srun: error: node7: task 1: Exited with exit code 1\n"
        assert cause(read_text(late, tmp_path))[0] == "log_exception"


def test_a_run_that_failed_again_after_a_restart(tmp_path: Path) -> None:
    error = raised("ValueError: bad batch", prefix="[rank1]: ")
    text = steps(1, 5) + error + "will restart worker group\n" + steps(4, 9) + error
    assert cause(read_text(text, tmp_path))[0] == "log_exception"
    other = steps(1, 5) + raised(FULL, prefix="[rank1]: ") + "will restart worker group\n" + steps(4, 9) + error
    assert cause(read_text(other, tmp_path))[0] == "log_exception"
