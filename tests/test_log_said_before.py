"""What the program reported just before an exception is shown with it, if it is a problem and not settled."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.readers.log import read
from tests.test_log_meanings import SCRIPT, explained, traceback

FAILED = traceback("ValueError: the loader has nothing for epoch 1", SCRIPT, raised=True)
SAID = "Just before it, the program printed"


@pytest.mark.parametrize(
    "line",
    [
        "error in sample 17 of train.jsonl: list index out of range",
        "FusedAdam CUDA build failed (fused_adam.so: cannot open shared object file)",
        "cxil_map: write error of the network",
        "found 0 images in /data/train",
        "WARNING: no samples match the filter",
        "[2026-11-20 10:11:12] ERROR could not read /data/index.json",
    ],
)
def test_a_problem_that_the_program_reported_is_shown(line: str, tmp_path: Path) -> None:
    text = f"epoch 1 begins\n{line}\n{FAILED}"
    words = explained(tmp_path, text)[2]
    assert SAID in words and line.rpartition("] ")[2][:40] in words
    assert SAID in explained(tmp_path, f"{line}\nbuilding the loader\n{FAILED}")[2], "not only in the last line"


@pytest.mark.parametrize(
    "line",
    [
        "epoch 1: loss 0.31 error 0.12",
        "/venv/lib/python3.11/site-packages/torch/x.py:3: UserWarning: lr_scheduler.step() is not called",
        "The tokenizer does not have a padding token! Will use pad_token = <|PAD|>.",
        "Error executing job with overrides: []",
        "Some weights of EsmModel were not initialized from the model checkpoint at esm2",
        " 45%|████▌     | 45/100 [00:12<00:15, failed 0 samples]",
        "retrying after an error, attempt 2",
        'raise ValueError("tokenizer file not found here")',
        "with open(path) as f: # file is not closed:",
        "    raise KeyError(name)  # the file is missing",
        "All checks passed, no missing keys in state",
        "no checkpoint found in out, starting from scratch",
    ],
)
def test_notices_values_and_what_was_settled_are_not(line: str, tmp_path: Path) -> None:
    assert SAID not in explained(tmp_path, f"epoch 1 begins\n{line}\n{FAILED}")[2]


def test_another_rank_or_a_line_long_before_is_not_meant(tmp_path: Path) -> None:
    of_rank_1 = traceback("ValueError: the loader has nothing", SCRIPT, prefix="[rank1]: ", raised=True)
    line = "error in sample 17: list index out of range\n"
    assert SAID not in explained(tmp_path, f"[rank0]: {line}{of_rank_1}")[2]
    assert SAID in explained(tmp_path, f"[rank1]: {line}{of_rank_1}")[2]
    quiet = "".join(f"shard {n} of 20 is there\n" for n in range(20))
    assert SAID not in explained(tmp_path, f"{line}{quiet}{FAILED}")[2]


def test_before_the_first_exception_of_a_chain(tmp_path: Path) -> None:
    first = traceback("KeyError: 'x'", SCRIPT, raised=True)
    both = f"{first}\nDuring handling of the above exception, another exception occurred:\n\n{FAILED}"
    assert SAID in explained(tmp_path, f"sample 3 is missing its label\n{both}")[2]


END = "\n"
LATE = "RuntimeError: Server http://10.1.2.3:9000/health failed to start in 900s"
_POLLS = "worker 10.1.2.7:9100 is not ready yet\nWaiting for 1 more workers ...\n"


@pytest.mark.parametrize(
    ("before", "error", "waited"),
    [
        (_POLLS * 9, LATE, "worker 10.1.2.7:9100 is not ready yet"),
        ("[rank0]: " + _POLLS.replace("\nW", "\n[rank0]: W") * 5, f"[rank0]: {LATE}", "worker 10.1.2.7:9100 is not"),
        ("Still waiting for the scheduler at tcp://n1:8786\n" * 4,
         "TimeoutError: Server failed to start within the timeout period.", "waiting for the scheduler at tcp://n1"),
    ],
)  # fmt: skip
def test_what_a_program_waited_for_is_its_repeated_line(before: str, error: str, waited: str, tmp_path: Path) -> None:
    prefix = "[rank0]: " * error.startswith("[")
    failed = traceback(error.removeprefix(prefix), SCRIPT, prefix=prefix, raised=True)
    found = explained(tmp_path, f"{before}giving up\n{failed}")
    assert found[0] == "log_server_not_up_in_time" and waited in found[2]
    retries = traceback("Exception: too many attempts", SCRIPT, prefix=prefix, raised=True)
    between = ("", "During handling of the above exception, another exception occurred:", "")
    chained = f"{failed}{''.join(f'{prefix}{line}{END}' for line in between)}{retries}"
    found = explained(tmp_path, before + chained)
    assert found[0] == "log_server_not_up_in_time" and waited in found[2]


def test_a_line_that_came_once_or_an_exception_about_something_else_is_not_about_a_wait(tmp_path: Path) -> None:
    ready = "worker is ready\n" * 30
    once = explained(tmp_path, f"{_POLLS}{ready}{traceback(LATE, SCRIPT, raised=True)}")
    assert once[0] == "log_server_not_up_in_time" and "is not ready yet" not in once[2]
    other = explained(tmp_path, f"{_POLLS * 9}{ready}{FAILED}")
    assert "is not ready yet" not in other[2]


OF_NONE = (
    'Traceback (most recent call last):\n  File "/home/ada/search.py", line 60, in {function}\n    {code}\n'
    "TypeError: 'NoneType' object is not subscriptable\n"
)


@pytest.mark.parametrize(
    ("said", "code", "why"),
    [
        ("Trial 3 failed: could not convert string to float: 'n/a'", "print(best['loss'])",
         "could not convert string to float: 'n/a'; probably therefore best is None"),
        ("fold 2: error while fitting: expected 3 channels, got 1", "rows.append(self.result[0])",
         "expected 3 channels, got 1; probably therefore self.result is None"),
    ],
)  # fmt: skip
def test_a_value_that_is_none_after_an_error_that_was_caught(said: str, code: str, why: str, tmp_path: Path) -> None:
    text = f"begin\n{said}\n{'=' * 20}\nsearch is complete\n{OF_NONE.format(function='main', code=code)}"
    _, title, words = explained(tmp_path, text)
    assert title.startswith(f"an error that the program caught: {why}")
    assert "traceback.print_exc()" in words


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("search is complete", "print(best['loss'])"),
        ("3 images were not found", "print(best['loss'])"),  # without a reason
        ("Trial 3 failed: no memory left here", "print(cfg.model['loss'])"),  # a setting that is missing
    ],
)
def test_other_values_that_are_none(said: str, code: str, tmp_path: Path) -> None:
    _, title, _ = explained(tmp_path, f"begin\n{said}\n{OF_NONE.format(function='main', code=code)}")
    assert "caught" not in title and " is None" in title


UNSET = (
    'Traceback (most recent call last):\n  File "/home/ada/fit.py", line 31, in build\n    return net.to(device)\n'
    "UnboundLocalError: {}\n"
)
OLD, NEW = (
    "local variable 'net' referenced before assignment",
    "cannot access local variable 'net' where it is not associated with a value",
)


@pytest.mark.parametrize("message", [OLD, NEW])
@pytest.mark.parametrize(
    "text",
    [
        "loading data\nBackbone resnet19 is unknown here\n{}",
        "{}loading data\nBackbone resnet19 is unknown here\n",  # a buffer, written at the end
        "loading data\nError: the optimizer is not supported\n{}",
    ],
)
def test_a_name_without_a_value_after_a_value_that_was_refused(text: str, message: str, tmp_path: Path) -> None:
    row, title, words = explained(tmp_path, text.format(UNSET.format(message)))
    assert row == "log_name_without_value"
    assert title.startswith('the program printed "')
    assert title.endswith("and went on: probably net was therefore never set, which fit.py:31 in build reads")
    assert "grep -rnF" in words


@pytest.mark.parametrize(
    ("said", "searched"),
    [
        ("Unknown loss: huber", "'Unknown loss'"),
        ("Error: unknown schedule: cosine3", "'unknown schedule'"),
        ("the mode 'quick' is not supported", "'is not supported'"),
        ("Backbone resnet19 is unknown here", "'is unknown here'"),
        ("such a schedule is not supported", "'such a schedule is not supported'"),
    ],
)
def test_the_search_is_without_the_value(said: str, searched: str, tmp_path: Path) -> None:
    assert f"-B 20 {searched} ." in explained(tmp_path, f"begin\n{said}\n{UNSET.format(OLD)}")[2]


@pytest.mark.parametrize(
    "text",
    [
        "loading data\n{}",
        "{}loading data\nthe epochs are over\n",
        "3 images were skipped\n{}",  # says nothing of a value that has no branch
        "{}srun: error: node7: task 0: Exited with exit code 1\n",
        # The next command of the job script, not the program.
        "{}job.sh: line 9: score_all: command not found\n",
        "{}/bin/sh: 1: score_all: not found\n",
        "{}zsh: command not found: score_all\n",
        "{}mv: cannot stat 'runs/best.pt': No such file or directory\n",
        "{}/usr/bin/tar: runs: Cannot open: No such file or directory\n",
        "{}score.py: error: argument --split: invalid choice: 'dev'\n",
        "mkdir: cannot create directory 'x': No such file or directory\n{}",
    ],
)
def test_other_names_without_a_value(text: str, tmp_path: Path) -> None:
    row, title, _ = explained(tmp_path, text.format(UNSET.format(OLD)))
    assert row == "log_name_without_value"
    assert "reads net before it has a value" in title


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (f"UnboundLocalError: {OLD}", OLD),
        ("AttributeError: 'NoneType' object has no attribute 'shape'", "'NoneType' object has no attribute 'shape'"),
        ("IndexError: list index out of range", "list index out of range"),
        ("ValueError: the loader has no samples", "the loader has no samples"),
    ],
)
def test_messages_of_one_line_end_there(error: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(f"{traceback(error, SCRIPT)}the mean is 3 of all\ngood bye\n", "utf-8")
    (one,) = read.read_logs([path]).raised
    assert one.message == message
    assert (one.more is None) == ("the loader" not in message)


@pytest.mark.parametrize("named", ["divide by zero encountered in log", "invalid value encountered in divide"])
def test_values_that_numpy_warned_of_before(named: str, tmp_path: Path) -> None:
    failed = traceback("ValueError: Input X contains NaN.", SCRIPT, "sklearn")
    warning = f"/home/ada/features.py:12: RuntimeWarning: {named}\n  y = y / n\n"
    _, title, words = explained(tmp_path, f"begin\n{warning}{failed}")
    assert (
        title == f"scikit-learn gets NaN or infinity, probably from what numpy computed before: features.py:12: {named}"
    )
    assert "divisor" in words and "isna().sum()" in words
    far = "begin\n" + warning + "reading a table\n" * 90 + failed  # of another file
    assert "missing or infinite values" in explained(tmp_path, far)[1]
    assert "numpy computed" in explained(tmp_path, far.replace("features.py", Path(SCRIPT).name))[1]
    assert explained(tmp_path, failed)[1] == "the data for scikit-learn has missing or infinite values (NaN)"
    text = f"step 1\n{warning}Loss is nan, stopping training\n"
    assert f"features.py:12: {named}" in explained(tmp_path, text)[2]
