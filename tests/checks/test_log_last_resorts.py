"""What a log says that has no error: stacks, NaN gradients, the program's own last message, a timeout after the end."""

from __future__ import annotations

import pytest

from mgpu.snapshot import (
    Circumstance,
    CutTraceback,
    LastStep,
    OwnError,
    PrintedStack,
    SignatureMatch,
    UncaughtException,
)
from tests.checks.facts import Case, fails, log, table, well

STACKS = (
    PrintedStack("run.log", 3, ("full_tensor (_api.py:677)", "step (train.py:9)"), "rank 0", "MainThread"),
    PrintedStack("run.log", 9, ("all_reduce (distributed_c10d.py:2)", "loss (train.py:4)"), "rank 1", "MainThread"),
)
TIMEOUT = SignatureMatch("log_collective_timed_out", "Watchdog caught collective operation timeout", "run.log", 20)
NAN = SignatureMatch("log_loss_is_nan", "loss: nan", "run.log", 20)
STOPPED = SignatureMatch("log_interrupted", "KeyboardInterrupt", "run.log", 60)
CAUGHT = OwnError("Setup failed: no plan for it", "run.log", 60, None, "no plan for it")
NO_CONDA = "job.sh: line 22: /data/conda3/etc/profile.d/conda.sh: No such file or directory"
OF_LSF = "Read file </work/fit.err> for stderr output of this job."
ERROR = OwnError("ERROR: the dataset is empty", "run.log", 60, 1)


def shown(name: str, line: int, last: int, times: int = 1) -> Circumstance:
    return Circumstance(name, "as printed", "run.log", line, last, times)


RAISED = UncaughtException("ValueError", "x", "run.log", 3)
REFUSED = SignatureMatch(
    "log_target_rejected", "TypeError(\"Bert.__init__() got an unexpected keyword argument 'depth'\")", "run.log", 8
)
ZEROS = "{'grad_norm': 0.0, 'completions/mean_length': 64.0, 'reward': 0.0, 'reward_std': 0.0}"


def key_of(line: int) -> Circumstance:
    return Circumstance("config_object_key", "full_key: model.encoder", "run.log", line, line)


def zeros(times: int) -> Circumstance:
    return Circumstance("rewards_same", ZEROS, "run.log", 10, 90, times)


CASES = (
    fails("log_config_key_not_accepted", "the config has the key model.encoder.depth, which Bert does not", "grep -rn",
        log=log(seen=(REFUSED,), shows=(key_of(9),))),
    well("log_config_key_not_accepted", "another failure", log=log(seen=(REFUSED,), shows=(key_of(40),))),
    well("log_config_key_not_accepted", "no key", log=log(seen=(REFUSED,))),
    well("log_config_key_not_accepted", "no key", log=log(shows=(key_of(9),))),
    fails("log_rewards_never_differ", "each of 12 logged steps (reward 0.0)", "max_completion_length",
        log=log(shows=(zeros(12),))),
    well("log_rewards_never_differ", "no steps", log=log(shows=(zeros(4),))),
    well("log_rewards_never_differ", "differ in other steps",
        log=log(shows=(zeros(12), shown("rewards_differ", 3, 3)))),
    well("log_rewards_never_differ", "the log has an error", log=log(shows=(zeros(12),), raised=(RAISED,))),
    fails("log_conda_folder_missing", "there is no conda at /data/conda3", "ls -d",
        log=log(seen=(SignatureMatch("log_module_missing", "No module named 'torch'", "run.log", 9),),
            shows=(Circumstance("conda_missing_in_job", NO_CONDA, "run.log", 3, 3),))),
    well("log_conda_folder_missing", "no conda that is missing",  # the job went on without it
        log=log(shows=(Circumstance("conda_missing_in_job", NO_CONDA, "run.log", 3, 3),))),
    fails("log_errors_in_another_file", "the errors of this job are in /work/fit.err", "mgpu doctor --log",
        log=log(failed="Exited with exit code 1.", shows=(Circumstance("errors_of_lsf", OF_LSF, "run.log", 9, 9),))),
    well("log_errors_in_another_file", "no other file", log=log(failed="Exited with exit code 1.")),
    fails("log_timed_out_after_end", "the training had finished", "destroy_process_group",
        log=log(seen=(TIMEOUT,), shows=(shown("training_finished", 12, 12),))),
    well("log_timed_out_after_end", "does not follow the end",
        log=log(seen=(TIMEOUT,), shows=(shown("training_finished", 40, 40),))),
    well("log_timed_out_after_end", "no timeout after the end", log=log(shows=(shown("training_finished", 12, 12),))),
    fails("log_stacks_without_error", "the processes wait in different collectives", "--on-hang stop",
        log=log(stacks=STACKS)),
    well("log_stacks_without_error", "the log has an error", log=log(stacks=STACKS, seen=(TIMEOUT,))),
    well("log_stacks_without_error", "no stacks in the log", log=log()),
    fails("log_gradients_not_finite", "NaN or infinite in every logged step", "bf16",
        log=log(shows=(shown("gradients_not_finite", 10, 40, 5),))),
    well("log_gradients_not_finite", "are finite",  # the loss scale was found
        log=log(shows=(shown("gradients_not_finite", 10, 16, 6), shown("gradients_finite", 17, 90, 70)))),
    well("log_gradients_not_finite", "in a row", log=log(shows=(shown("gradients_not_finite", 10, 13, 4),))),
    fails("log_nan_until_stopped", "reports it in 6 lines", "isfinite",
        log=log(seen=(STOPPED,), shows=(shown("nan_reported", 10, 49, 6),))),
    well("log_nan_until_stopped", "no NaN until", log=log(shows=(shown("nan_reported", 10, 49, 6),))),
    well("log_nan_until_stopped", "no NaN until", log=log(seen=(STOPPED,))),
    fails("log_program_reported_error", "the dataset is empty", "Follow the message", log=log(own_error=ERROR)),
    well("log_program_reported_error", "another error explains it", log=log(own_error=ERROR, seen=(TIMEOUT,))),
    fails("log_program_reported_error", "the log has only this message", "Follow the message",
        log=log(own_error=ERROR, lines=1)),
    well("log_program_reported_error", "no last message", log=log()),
    fails("log_program_reported_error", "an error that it printed itself", "traceback.print_exc",
        log=log(own_error=CAUGHT)),
    fails("log_ended_while_loading", "probably killed for host memory", "killed process",
        log=log(last_work="load", failed="Killing subprocess 11")),
    well("log_ended_while_loading", "ended silently", log=log(last_work="train", failed="Killing subprocess 11")),
    well("log_ended_while_loading", "ended silently",  # by itself
        log=log(last_work="load", failed="ERROR:torch.distributed:failed (exitcode: 1) local_rank: 0 (pid: 11)")),
    well("log_ended_while_loading", "ended silently",
        log=log(last_work="load", failed="Killing subprocess 11", seen=(TIMEOUT,))),
    fails("log_gradients_not_finite", "logged step (2)", "bf16",
        log=log(shows=(shown("gradients_not_finite", 10, 40, 2),), reached=LastStep(" 2%| 20/900", "run.log", 40, 20))),
    well("log_gradients_not_finite", "in a row",
        log=log(shows=(shown("gradients_not_finite", 10, 40, 2),), reached=LastStep(" 2%| 2/900", "run.log", 40, 2))),
    fails("log_tensor_not_finite", "mel_spec has NaN values before the loss is NaN", "encoder.float()",
        log=log(seen=(NAN,), shows=(Circumstance("tensor_not_finite", "mel_spec: nan=True", "run.log", 12, 40, 3),))),
    well("log_tensor_not_finite", "no tensor with NaN before",
        log=log(seen=(NAN,), shows=(shown("tensor_not_finite", 30, 30),))),
    fails("log_loss_stays_nan", "NaN the last 4 times, from line 12 on", "clip_grad_norm_",
        log=log(shows=(shown("training_loss_nan", 12, 40, 4), shown("training_loss_finite", 3, 11, 9)))),
    fails("log_loss_stays_nan", "from the start", "set_detect_anomaly",
        log=log(shows=(shown("training_loss_nan", 12, 40, 4),))),
    well("log_loss_stays_nan", "until the end",  # it recovered
        log=log(shows=(shown("training_loss_nan", 12, 20, 4), shown("training_loss_finite", 3, 40, 9)))),
    well("log_loss_stays_nan", "until the end",  # the finite losses are another rank's
        log=log(shows=(shown("training_loss_nan", 12, 40, 4),
                       Circumstance("training_loss_finite", "as printed", "rank1.log", 3, 11, 9)))),
    well("log_loss_stays_nan", "until the end", log=log(shows=(shown("training_loss_nan", 12, 13, 2),))),
    well("log_loss_stays_nan", "log_loss_is_nan", log=log(seen=(NAN,), shows=(shown("training_loss_nan", 12, 40, 4),))),
    fails("log_evaluation_not_finite", "the loss of every evaluation (4) is NaN", "fp16_full_eval",
        log=log(shows=(shown("evaluation_not_finite", 5, 40, 4),), finished="{'train_runtime': 9.0}")),
    well("log_evaluation_not_finite", "no loss", log=log(shows=(shown("evaluation_not_finite", 5, 5, 1),))),
    well("log_evaluation_not_finite", "no loss",
        log=log(shows=(shown("evaluation_not_finite", 5, 40, 4), shown("evaluation_finite", 3, 3, 1)))),
    fails("log_all_steps_skipped", "in all 25 reports of DeepSpeed", "Train in bf16",
        log=log(shows=(shown("all_steps_skipped", 5, 90, 25), shown("some_steps_skipped", 5, 90, 25)))),
    well("log_all_steps_skipped", "no run", log=log(shows=(
        shown("all_steps_skipped", 5, 9, 3), shown("some_steps_skipped", 5, 90, 25)))),
    well("log_all_steps_skipped", "no run", log=log()),
    well("log_samples_masked", "no samples", log=log(lines=90_000, shows=(shown("samples_masked", 5, 40, 12),))),
    fails("log_samples_masked", "12 samples are not trained on", "--version",
        log=log(shows=(shown("samples_masked", 5, 40, 12),))),
    well("log_samples_masked", "no samples",
        log=log(shows=(shown("samples_masked", 5, 40, 12),), finished="{'train_runtime': 9.0}")),
    well("log_samples_masked", "no samples", log=log(shows=(shown("samples_masked", 5, 5, 1),))),
    fails("log_traceback_cut", "the last frame in the log is trl/sampler.py:2 in pick", "Read the lines that follow",
        log=log(cut=(CutTraceback("trl/sampler.py:2 in pick", "run.log", 60, 1),))),
    fails("log_traceback_cut", "so did the hook that reports exceptions", "quota -s",
        log=log(size_bytes=28672, shows=(shown("exception_hook_failed", 5, 5, 1),))),
    well("log_traceback_cut", "another error explains it",
        log=log(shows=(shown("exception_hook_failed", 5, 5, 1),), seen=(TIMEOUT,))),
    well("log_traceback_cut", "another error explains it",
        log=log(cut=(CutTraceback("trl/sampler.py:2 in pick", "run.log", 60, 1),), seen=(TIMEOUT,))),
    well("log_traceback_cut", "no traceback without", log=log()),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()
