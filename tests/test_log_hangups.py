"""Workers that a signal ended, a second launcher, a missing script, a stored config, an edited script.

All logs are synthetic, in the form of the programs that write them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.check import Problem
from mgpu.engine import root_cause
from mgpu.readers.log import read
from mgpu.snapshot import LastRun, Log

WORKER = "RuntimeError: DataLoader worker (pid 71) is killed by signal: {}. \n"
BANNER = (
    "*****************************************\nSetting OMP_NUM_THREADS environment variable for each process to be 1 "
    "in default, to avoid your system being overloaded\n*****************************************\n"
)
NO_PORT = (
    'Traceback (most recent call last):\n  File "/v/site-packages/torch/distributed/elastic/rendezvous/'
    'static_tcp_rendezvous.py", line 55, in next_rendezvous\n    self._store = TCPStore(\n'
    "RuntimeError: The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).\n"
)
NOT_EXECUTED = "slurmstepd: error: execve(): {}: No such file or directory\n"
NO_VENV = "/var/spool/job7/slurm_script: line 24: /tmp/ENV/bin/activate: No such file or directory\n"
STORED = (
    'Traceback (most recent call last):\n  File "/w/train.py", line 60, in {function}\n    {code}\n'
    '  File "/v/site-packages/omegaconf/{frame}\n    target.merge_with(*others[1:])\n'
    "omegaconf.errors.ConfigKeyError: Key 'several_files' not in 'SpeechConfig'\n"
)
MERGE = 'omegaconf.py", line 321, in merge'
SHARDED = (
    'Traceback (most recent call last):\n  File "/v/site-packages/torch/{frame}\n'
    "    dev = torch.device(torch.cuda.current_device())\nAssertionError: Torch not compiled with CUDA enabled\n"
)
FAILED = 'Traceback (most recent call last):\n  File "fit.py", line {}, in main\n    load(path)\nValueError: no data\n'
NOT_READ = '  File "{}", line {}\n    batch=8\n    ^\nSyntaxError: invalid syntax\n'

CASES = {
    "a worker gets SIGHUP": (WORKER.format("Hangup"), "log_terminal_closed", "ended the DataLoader workers"),
    "a launcher gets SIGHUP": ("Signal 1 (SIGHUP) received by PID 4711\n", "log_terminal_closed", "stopped the run"),
    "a worker crashes": (WORKER.format("Segmentation fault"), "log_loader_worker_died", "a segmentation fault"),
    "torch reports the crash first": (
        "ERROR: Unexpected segmentation fault encountered in worker.\n"
        "RuntimeError: DataLoader worker (pid(s) 71) exited unexpectedly\n",
        "log_loader_worker_died", "a segmentation fault"),
    "a worker aborts": (WORKER.format("Aborted"), "log_loader_worker_died", "crashed in compiled code"),
    "a worker is killed": (WORKER.format("Killed"), "log_loader_worker_died", "probably host memory ran out"),
    "a worker gets SIGTERM": (WORKER.format("Terminated"), "log_loader_worker_died", "asked to end"),
    "a worker ends by itself": (
        "RuntimeError: DataLoader worker (pid(s) 71) exited unexpectedly\n", "log_loader_worker_died",
        "a DataLoader worker died"),
    "three launchers on a node": (BANNER * 3 + NO_PORT * 2, "log_port_taken", "several launchers on one node"),
    "only the main node's launcher": (BANNER * 2 + NO_PORT, "log_port_taken", "already in use"),
    "all launchers": (BANNER * 2 + NO_PORT * 2, "log_port_taken", "already in use"),
    "launchers after a long run": (
        BANNER + "reading the data\n" * 70 + BANNER * 2 + NO_PORT * 2, "log_port_taken", "already in use"),
    "a script of a step": (
        NOT_EXECUTED.format("/w/prepare.sh") + NO_VENV + NOT_EXECUTED.format("ray"),
        "log_slurm_step_script_missing", "/w/prepare.sh"),
    "a program of the environment": (
        NO_VENV + NOT_EXECUTED.format("torchrun"), "log_environment_not_active", "does not exist on this node"),
    "a stored config": (
        STORED.format(function="load_model_ensemble_and_task", code="OmegaConf.merge(schema, stored)", frame=MERGE),
        "log_config_key_missing", "stored in a checkpoint"),
    "a config of the run": (
        STORED.format(function="main", code="cfg = OmegaConf.merge(base, cfg)", frame=MERGE),
        "log_config_key_missing", "reads or sets a config key"),
    "a key that the loading of a checkpoint reads": (
        STORED.format(function="load_checkpoint", code="cfg.path", frame='dictconfig.py", line 3, in __getattr__'),
        "log_config_key_missing", "reads or sets a config key"),
    "sharded tensors on another accelerator": (
        SHARDED.format(frame='distributed/_shard/sharded_tensor/_ops/tensor_ops.py", line 54, in tensor_device'),
        "log_torch_without_cuda", "own sharded tensors"),
    "another call of CUDA": (
        SHARDED.format(frame='nn/modules/module.py", line 54, in convert'), "log_torch_without_cuda", "has no CUDA"),
}  # fmt: skip

NO_SHARD = (
    'Traceback (most recent call last):\n  File "/w/fit.py", line {line}, in main\n    batch = next(shards)\n'
    '  File "/w/shards.py", line 9, in read\n    np.fromfile(path)\n'
    "FileNotFoundError: [Errno 2] No such file or directory: 'data/sets/{name}.bin'\n"
)
NO_WORDS = (
    'Traceback (most recent call last):\n  File "/w/fit.py", line 30, in main\n    words.load(path)\n'
    'OSError: Not found: "./data/words/all.model": No such file or directory Error #2\n'
)
NEXT = "".join(f"step:{n}/500 train_loss:{4 - n / 100:.4f} train_time:{n * 40}ms\n" for n in range(1, 40))


def problem(log: Log) -> tuple[str, Problem]:
    first = root_cause.find_cause(log, None).first
    assert first is not None
    assert first.outcome.problem is not None
    return first.id, first.outcome.problem


def read_text(text: str, folder: Path) -> Log:
    path = folder / "run.log"
    path.write_text(text, "utf-8")
    return read.read_logs([path], last_run=True)


@pytest.mark.parametrize("name", CASES)
def test_what_ended_the_run(name: str, tmp_path: Path) -> None:
    text, wanted, title = CASES[name]
    found, said = problem(read_text(text, tmp_path))
    assert (found, title in said.title) == (wanted, True), said.title


def test_a_crash_is_not_looked_for_in_memory(tmp_path: Path) -> None:
    _, said = problem(read_text(WORKER.format("Segmentation fault"), tmp_path))
    assert not any("killed process" in one for fix in said.fixes for one in fix.commands)


@pytest.mark.parametrize(
    ("text", "begin"),
    [
        (FAILED.format(7) + NOT_READ.format("fit.py", 9), 5),
        (FAILED.format(7) + NOT_READ.format("fit.py", 3) + NOT_READ.format("fit.py", 9) * 2, 9),
        (FAILED.format(7) + NOT_READ.format("other.py", 9), None),  # perhaps the next step of the same job
        (NOT_READ.format("fit.py", 9) + FAILED.format(7), None),  # where the later attempt begins is not known
        (FAILED.format(7) + NOT_READ.format("<string>", 9), None),
    ],
)
def test_a_script_that_ran_and_cannot_be_read_any_more_was_edited_between(
    text: str, begin: int | None, tmp_path: Path
) -> None:
    log = read_text(text, tmp_path)
    assert log.last_run == (None if begin is None else LastRun(begin, 1)), log.last_run
    if begin is not None:
        found, said = problem(log)
        assert (found, "fit.py:9" in said.title) == ("log_syntax_error", True), said.title


def test_a_file_that_was_edited_and_is_imported_does_not_cut_the_traceback(tmp_path: Path) -> None:
    imports = 'Traceback (most recent call last):\n  File "run.py", line 1, in <module>\n    import fit\n'
    assert read_text(FAILED.format(7) + imports + NOT_READ.format("fit.py", 9), tmp_path).last_run is None


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        (NO_SHARD.format(line=90, name="b") + NEXT + (NO_WORDS + NEXT) * 2 + NO_WORDS, True),
        (NO_SHARD.format(line=20, name="b") + NEXT + (NO_WORDS + NEXT) * 2 + NO_WORDS, False),  # it was missing before
        (NO_SHARD.format(line=90, name="b") + NEXT + NO_WORDS, False),  # perhaps with another path
        ((NO_SHARD.format(line=90, name="b") + NEXT) * 3, False),
        (NO_SHARD.format(line=90, name="b").replace("data/", "/mnt/a/") + NEXT + (NO_WORDS + NEXT) * 2, False),
    ],
)
def test_files_of_one_folder_that_later_runs_miss_one_after_the_other(text: str, lost: bool, tmp_path: Path) -> None:
    verdict = root_cause.find_cause(read_text(text, tmp_path), None)
    first = verdict.first.id if verdict.first else None
    assert (first == "log_folder_lost") is lost, first
