"""Messages of a log that are not about how the run went: of its setup, of generated text, of pip, of other jobs."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from mgpu.engine import judge, root_cause, selections
from mgpu.readers.log import read
from mgpu.report import log_report
from mgpu.report.screen import Screen
from mgpu.snapshot import Log, Snapshot
from tests.test_log_callers import frames
from tests.test_log_meanings import explained

CHDIR = "{n}: slurmstepd: error: couldn't chdir to `/workspace': No such file or directory: going to /tmp instead\n"
EPOCH = " 0: 2026-11-21,10:12:{n:02} | INFO | Train Epoch: 0 [ {at}/114688 ({n}%)] Data (t): 1.9 Loss: 7.{n}\n"
MODULE = "/var/spool/slurmd/job00004/slurm_script: line 21: module: command not found\n"
CONDA = "CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'.\n"
ON_GPUS = "GPU available: True (cuda), used: True\n"
EMPTY = (
    "/x/lib/data.py:104: Total length of `DataLoader` across ranks is zero. Please make sure this was your intention.\n"
)
PIP = "Successfully installed MarkupSafe-2.1.5 torch-2.7.0\n"
CANCELLED = "slurmstepd: error: *** JOB {job} ON gpu0{job} CANCELLED AT 2026-11-21T10:12:01 ***\n"


def read_text(text: str, folder: Path) -> Log:
    path = folder / "run.log"
    path.write_text(text, "utf-8")
    return read.read_logs([path])


def cause(text: str, folder: Path) -> str | None:
    first = root_cause.find_cause(read_text(text, folder), None).first
    return first.id if first else None


def test_steps_after_a_message_of_the_setup_show_that_it_stopped_nothing(tmp_path: Path) -> None:
    steps = "".join(EPOCH.format(n=n, at=4096 * n) for n in (1, 2))
    assert cause(CHDIR.format(n=0), tmp_path) == "log_slurm_working_folder_missing"
    assert cause(CHDIR.format(n=0) + EPOCH.format(n=1, at=4096), tmp_path) == "log_slurm_working_folder_missing"
    assert cause(CHDIR.format(n=0) + steps, tmp_path) is None
    assert cause(CONDA + steps, tmp_path) is None
    assert cause(MODULE + CONDA + steps + frames(("/home/ada/fit.py", "main", "run()")) + "ValueError: no\n",
                 tmp_path) == "log_exception"  # fmt: skip


def test_a_folder_that_no_task_has_is_not_one_nodes_fault(tmp_path: Path) -> None:
    text = "".join(CHDIR.format(n=n) for n in (0, 4, 8)) + "0: start\n"
    _, title, words = explained(tmp_path, text)
    assert "on several nodes" in title and "container" in words and "exclude" not in words
    assert "exclude" in explained(tmp_path, CHDIR.format(n=0))[2]


def test_a_trainer_that_has_its_gpus_shows_that_the_environment_was_there(tmp_path: Path) -> None:
    assert cause(MODULE + CONDA, tmp_path) == "log_module_not_loaded"
    assert cause(MODULE + CONDA + ON_GPUS, tmp_path) is None
    assert cause(MODULE + CONDA + ON_GPUS + EMPTY, tmp_path) == "log_lightning_no_batches"
    assert cause(MODULE + CONDA + ON_GPUS + EMPTY + "".join(f"step {n}\n" for n in range(9)), tmp_path) is None
    assert cause(MODULE + ON_GPUS.replace("used: True", "used: False"), tmp_path) == "log_module_not_loaded"


@pytest.mark.parametrize(
    "line",
    [
        "Generated answers: ['a store\\n\\nclient.setConnectTimeout(5000) ReadTimeoutError', 'two']",
        "completions: ['requests.exceptions.ReadTimeout: HTTPSConnectionPool(host=x): Read timed out.']",
        "['" + "one word after another, " * 60 + " Read timed out. ', 'the next sample']",
        'Model responses: ["catch ConnectTimeout"]',
    ],
)
def test_generated_text_is_not_what_happened(line: str, tmp_path: Path) -> None:
    assert cause(f"start\n{line}\n", tmp_path) is None
    assert cause("ReadTimeout: HTTPSConnectionPool(host='x.org'): Read timed out. (read timeout=10)\n", tmp_path)


def test_what_pip_installed_says_nothing_about_the_run(tmp_path: Path) -> None:
    steps = "".join(f"LR: 0.1, Acc: {n}.0, Loss: 0.{n}\n" for n in range(40))
    assert read_text(PIP + steps, tmp_path).finished is None
    assert read_text("start\n" + PIP, tmp_path).finished is not None
    ended = read_text(
        f"{PIP}{steps}**** Final test accuracy: 65.57. ****\n\nLoRA weights saved to out/a.pt\n", tmp_path
    )
    assert ended.finished is not None and "accuracy: 65.57" in ended.finished


BAR = "".join(f"\r {n}%|#| {n}/100 [00:0{n % 10}<01:00,  1.0it/s]" for n in range(60)) + "\n"


def shown(text: str, tmp_path: Path) -> str:
    """The report about a log, as text."""
    log = read_text(text, tmp_path)
    outcomes = judge(Snapshot(log=log), selections.ENDED)
    report = log_report.report_of_logs(Snapshot(log=log), outcomes, Screen(160, False, False, io.StringIO()))
    return "\n".join("".join(part for part, _ in line) for line in report)


def test_what_the_run_survived_is_shown(tmp_path: Path) -> None:
    text = shown("start\n" + "".join(CANCELLED.format(job=n) for n in (11, 12)) + BAR, tmp_path)
    assert "went on after 1 known error" in text and "Went on after" in text
    assert "run.log:2: slurmstepd: error: *** JOB 11 ON gpu011 CANCELLED" in text and "(2 times)" in text


def test_the_program_that_failed_between_others_is_shown(tmp_path: Path) -> None:
    failed = 'Traceback (most recent call last):\n  File "/home/ada/score.py", line 9, in <module>\n'
    text = shown(f"{BAR}{failed}    assert name in known\nAssertionError\n{BAR}", tmp_path)
    assert "Could not determine how the run ended" in text
    assert "Went on after  run.log:5: AssertionError" in text and "(score.py:9)" in text
    assert "Went on after" not in shown(BAR, tmp_path)


NVML = "gpu7:41:41 [0] init.cc:83 NCCL WARN nvmlInit_v2() failed: Driver/library version mismatch\n"
SCATTER = (
    "/x/torch_geometric/typing.py:63: UserWarning: An issue occurred while importing 'torch-scatter'. Disabling its "
    "usage. Stacktrace: /x/torch_scatter/_version_cpu.so: undefined symbol: _ZN3c1017RegisterOperatorsD1Ev\n"
)
IOMMU = 'gpu7:41:41 [0] NCCL WARN Missing "iommu=pt" from kernel command line which can lead to a hang!\n'
LOGGED = "Evaluation  [ {n}/1872]  eta: 3:12:57    time: 9.6318  data: 0.1369  max mem: 17330\n"
TUTORIAL = "INFO:root:[1,   {n}] loss: 0.119 masks: 66.3 44.2 [mem: 5.91e+04] (669.2 ms)\n"


@pytest.mark.parametrize("warning", [NVML, IOMMU, SCATTER])
@pytest.mark.parametrize("after", ["".join(LOGGED.format(n=n) for n in range(100, 300, 10)), "reading a part\n" * 300])
def test_a_warning_after_which_much_follows_is_no_failure(warning: str, after: str, tmp_path: Path) -> None:
    assert cause("loading\n" + warning + after, tmp_path) is None
    failure = frames(("/home/ada/fit.py", "main", "run()")) + "ValueError: no\n"
    assert cause("loading\n" + after + failure, tmp_path) == "log_exception"


def test_a_warning_is_the_cause_if_the_run_failed_after_it(tmp_path: Path) -> None:
    assert cause("loading\n" + NVML + "waiting\n" * 3, tmp_path) == "log_driver_mismatch"
    killed = "srun: error: n1: task 0: Exited with exit code 1\n"
    assert cause("loading\n" + SCATTER + "reading a part\n" * 300 + killed, tmp_path) is not None
    assert cause(SCATTER + "reading a part\n" * 30, tmp_path) is None


@pytest.mark.parametrize("line", [LOGGED, TUTORIAL, "Epoch: [3]  [ {n}/1252]  eta: 0:12:31  loss: 0.3\n"])
def test_steps_of_these_forms_show_that_an_exception_was_caught(line: str, tmp_path: Path) -> None:
    caught = frames(("/home/ada/fit.py", "main", "run()")) + "ValueError: no\n"
    before, after = ("".join(line.format(n=n) for n in range(at, at + 700, 10)) for at in (10, 800))
    assert cause(before + caught + after, tmp_path) is None
    assert cause(before + caught + line.format(n=800), tmp_path) == "log_exception"


HEAD = "Traceback (most recent call last):\n"
CLOSED = frames(("/v/site-packages/tensorboardX/event_file_writer.py", "run", "self._queue.get()"))[len(HEAD) :]
SPAWNED = (
    HEAD
    + '  File "/x/torch/multiprocessing/spawn.py", line 160, in join\n    raise ProcessRaisedException(msg, error)\n'
    "torch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 0 terminated with the following error:\n"
)
FAILED = frames(("/home/ada/gait.py", "infer", "x = inputs.permute(2, 1, 0)")) + "ValueError: six dimensions\n"


def test_threads_that_end_with_their_process_are_no_cause(tmp_path: Path) -> None:
    closed = "OSError: handle is closed\n"
    torn = f"Exception in thread Thread-3:\nException in thread Thread-2:\n{HEAD}{CLOSED}{closed}{CLOSED}{closed}"
    first = root_cause.find_cause(read_text("reading\n" * 5 + torn + SPAWNED + FAILED, tmp_path), None).first
    assert first and first.outcome.problem and "six dimensions" in first.outcome.problem.title
    wandb = "Thread HandlerThread:\n" + frames(
        ("/v/site-packages/wandb/sdk/internal/internal_util.py", "run", "self._run()")
    )
    ended = wandb + "EOFError\nException: The wandb backend process has shutdown\n"
    assert cause("epoch 1\n" + ended + FAILED.replace("ValueError: six dimensions", "KeyboardInterrupt"), tmp_path) == (
        "log_interrupted"
    )
    assert cause("epoch 1\n" + wandb + "EOFError\n" + FAILED.replace("ValueError: six dimensions", "EOFError"),
                 tmp_path) == "log_exception"  # fmt: skip


@pytest.mark.parametrize("line", ["RuntimeError: KeyboardInterrupt: ", "ImportError: KeyboardInterrupt"])
def test_ctrl_c_within_an_import(line: str, tmp_path: Path) -> None:
    text = frames(("/x/site-packages/torch/__init__.py", "<module>", "from torch._C import *")) + line + "\n"
    assert cause(text, tmp_path) == "log_interrupted"


ON_CPU = (
    "1/100 15G 3.566 640: 9% 609/6848WARNING \u26a0\ufe0f CUDA OutOfMemoryError in TaskAlignedAssigner, using CPU\n"
)
LOGGED_STATE = (
    "(WARNING)[base.py:475] loaded state dict contains a parameter group that doesn't match the size of optimizer's "
    "group\n"
)
VISDOM = (
    "requests.exceptions.ConnectionError: HTTPConnectionPool(host='localhost', port=8097): Max retries exceeded with "
    "url: /events (Caused by NewConnectionError('<x>: Failed to establish a new connection: [Errno 111] Connection "
    "refused'))\n"
)
TUNED = "E0106 16:56:21.639000 41 torch/_inductor/select_algorithm.py:2100] [7/0] {}\n"
AUTOTUNED = TUNED.format("Runtime error during autotuning:") + TUNED.format(
    "No valid triton configs. OutOfResources: out of resource: shared memory, Required: 245760, Hardware limit: 232448."
)


@pytest.mark.parametrize("said", [ON_CPU, VISDOM, AUTOTUNED, LOGGED_STATE])
def test_what_a_program_goes_on_after_by_its_own_words(said: str, tmp_path: Path) -> None:
    failure = frames(("/home/ada/fit.py", "main", "x.view(3, 4)")) + "RuntimeError: shape '[3, 4]' is invalid for "
    assert cause(said + failure + "input of size 8\n", tmp_path) == "log_reshape_invalid"
    assert cause(said + CANCELLED.format(job=7), tmp_path) in (
        "log_slurm_cancelled",
        "log_optimizer_state_does_not_fit",
    )
    if said is not LOGGED_STATE:
        assert cause(said, tmp_path) is None


LOGGED = (
    "[2026-11-21 10:12:{n:02},003][net.callbacks.cards][ERROR] - Failed to write the card of epoch{n}.ckpt\n"
    + frames(("/home/ada/net/callbacks/cards.py", "write_card", "from net.cards.texts import describe"))
    + "ModuleNotFoundError: No module named 'net.cards'\n"
)
FIT_END = "`Trainer.fit` stopped: `max_epochs=1` reached.\n"
AFTERWARDS = "Tagged the run.\nWrote cards/index.html\nThe best one is epoch0.ckpt\n"


def test_an_exception_that_comes_again_after_a_good_end_is_caught_each_time(tmp_path: Path) -> None:
    assert cause(LOGGED.format(n=0) + FIT_END + LOGGED.format(n=1) + AFTERWARDS, tmp_path) is None
    # It can have ended the program: the last thing that it did, or only once, or not logged by the program.
    fatal = frames(("/home/ada/net/callbacks/cards.py", "write_card", "from net.cards.texts import describe"))
    fatal += "ModuleNotFoundError: No module named 'net.cards'\n"
    epilogue = "Elapsed: 00:12:01\nDisk used: 12 GB\nNode: n7\n"
    assert cause(LOGGED.format(n=0) + FIT_END + fatal + epilogue, tmp_path) == "log_submodule_missing"
    assert cause(LOGGED.format(n=0) + FIT_END + LOGGED.format(n=1), tmp_path) == "log_submodule_missing"
    assert cause(FIT_END + LOGGED.format(n=1) + AFTERWARDS, tmp_path) == "log_submodule_missing"
    assert cause(LOGGED.format(n=0) + LOGGED.format(n=1) + AFTERWARDS, tmp_path) == "log_submodule_missing"


LMOD = (
    "Lmod has detected the following error: The following module(s) are unknown:\n"
    '"cuda/12.9-x"\n\nPlease check the spelling or version number. Also try "module spider ..."\n'
    "It is also possible your cache file is out-of-date; it may help to try:\n"
    '  $ module --ignore_cache load "cuda/12.9-x"\n\n'
    "Also make sure that all modulefiles written in TCL start with the string\n#%Module\n\n\n\n"
)


def test_a_short_job_that_ends_well_needed_no_module(tmp_path: Path) -> None:
    assert cause(f"{LMOD}ranking 40 texts\nscores: [0.75, 0.98]\nDONE\n", tmp_path) is None
    assert cause(f"{LMOD}ranking 40 texts\n", tmp_path) == "log_module_not_loaded"
    assert cause(f"{LMOD}DONE\n", tmp_path) == "log_module_not_loaded"  # the batch script says it


KERNEL = "Detected kernel version 4.18.0, which is below the recommended minimum of 5.5.0; this can cause a hang.\n"
IOMMU = (
    'g1:7:9 [0] NCCL WARN Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!\n'
)
ANSWERS = "".join(f"The answer is {word}.\n" for word in ("red", "green", "blue", "tall", "short"))


@pytest.mark.parametrize(("warning", "row"), [(KERNEL, "log_kernel_too_old"), (IOMMU, "log_iommu_hangs_peers")])
def test_what_can_make_a_run_hang_counts_only_if_little_follows(warning: str, row: str, tmp_path: Path) -> None:
    assert cause(warning, tmp_path) == row  # as in a run that hangs
    assert cause(warning * 8 + "  0%|          | 0/90 [00:00<?, ?it/s]\n", tmp_path) == row
    assert cause(warning * 8 + ANSWERS, tmp_path) is None
    failed = frames(("/home/ada/fit.py", "main", "run()")) + "ValueError: no\n"
    assert cause(warning + ANSWERS + failed, tmp_path) == "log_exception"
