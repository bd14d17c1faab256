"""What does the user see of a failure that no signature names: the message, its own advice, the line, the first rank?

Also of programs that are not Python: each end names what failed. The logs are synthetic.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.check import Problem
from mgpu.engine import root_cause
from mgpu.readers.log import read
from tests.test_log_courses import bars, steps


def traceback(message: str, *packages: str, prefix: str = "") -> str:
    lines = ["Traceback (most recent call last):", '  File "/home/u/train.py", line 41, in main', "    train(model)"]
    for file in packages:
        lines += [f'  File "/opt/lib/python3.11/site-packages/{file}", line 7, in run', "    assert is_fine(x)"]
    return "".join(f"{prefix}{line}\n" for line in (*lines, *message.split("\n")))


def first(text: str, tmp_path: Path) -> tuple[str, Problem]:
    path = tmp_path / "run.log"
    path.write_text(text)
    found = root_cause.find_cause(read.read_logs([path]), None).first
    assert found is not None and found.outcome.problem is not None
    return found.id, found.outcome.problem


ADVICE = {
    "Found no template. Please set tokenizer.chat_template before training.":
        "Please set tokenizer.chat_template before training.",
    "`foo` fails with packing. Use `bar=True` instead.": "Use `bar=True` instead.",
    "The schedule is not set. Choose one of: cosine, linear": "Choose one of: cosine, linear",
    "The model has no adapter. Did you mean to call `get_peft_model`?": "Did you mean to call `get_peft_model`?",
    "Bad plan:\n\tlayer 3 is missing\nTry passing `strict=False` to ignore it.":
        "Try passing `strict=False` to ignore it.",
    "`steps` must be positive, but is 0": "`steps` must be positive, but is 0",
    "Flash kernels are off. To enable them, run `fancy --on`.":
        "To enable them, run `fancy --on`.",
}  # fmt: skip


@pytest.mark.parametrize("message", ADVICE)
@pytest.mark.parametrize("prefix", ["", "[rank3]: ", "(Worker pid=12) "])
def test_what_a_message_advises_is_the_first_fix(message: str, prefix: str, tmp_path: Path) -> None:
    name, problem = first(steps(1, 3) + traceback(f"ValueError: {message}", "fancy/plan.py", prefix=prefix), tmp_path)
    assert name == "log_exception"
    assert problem.fixes[0].text == f'Follow the error message: "{ADVICE[message]}"'
    assert not problem.fixes[0].commands
    assert "It was raised in fancy/plan.py:7 in run." in problem.cause


@pytest.mark.parametrize("message", [
    "bad batch", "Please report a bug at https://example.org/issues", "index 7 is out of bounds for dimension 0",
])  # fmt: skip
def test_a_message_without_advice_has_no_such_fix(message: str, tmp_path: Path) -> None:
    _, problem = first(traceback(f"ValueError: {message}"), tmp_path)
    assert not any("Follow the error message" in fix.text for fix in problem.fixes)


def test_a_message_of_several_lines_is_shown_whole_and_what_others_print_is_not(tmp_path: Path) -> None:
    message = "RuntimeError: Error(s) in preparing Plan:\n\tlayer 3 is missing\n\tlayer 4 has 2 heads"
    others = ("wandb: Run history:", "srun: error: n1: task 3: Exited with exit code 1", "\nstep 4 loss 0.3")
    for after in ("", *others, "step 4 loss 0.3", "[rank1]: step 4", "2026-11-21 10:12:01 INFO stopping"):
        _, problem = first(f"{traceback(message)}{after}\n", tmp_path)
        assert problem.title.endswith(
            "raised RuntimeError: Error(s) in preparing Plan: layer 3 is missing layer 4 has 2 heads"
        ) or problem.title.endswith("on rank 3: Error(s) in preparing Plan: layer 3 is missing layer 4 has 2 heads")
        assert problem.evidence["line"] == " ".join(message.split())


def test_the_reason_after_an_empty_line_is_a_part_of_the_message(tmp_path: Path) -> None:
    message = "ValueError: The frob is invalid. Correct it first.\n\nThrown during validation:\n[frob is 3, not 4]"
    _, problem = first(f"{traceback(message)}\nstep 4\n", tmp_path)
    assert str(problem.evidence["line"]).split() == message.split()


def test_of_a_long_message_the_end_is_shown_too(tmp_path: Path) -> None:
    _, problem = first(traceback(f"ValueError: {'The device is not there. ' * 30}In your case: frob=7."), tmp_path)
    assert problem.title.endswith("In your case: frob=7.") and " ... " in problem.title


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [("assert batch_size * steps % world == 0, text", "AssertionError: text", "batch_size * steps must be a multiple"),
     ("rows = 1, param.shape[1], param.shape[0]", "IndexError: tuple index out of range", "fewer than 2 dimensions"),
     ("rows = hidden.shape[3]", "IndexError: tuple index out of range", "hidden has fewer than 4 dimensions")],
)  # fmt: skip
def test_the_line_that_failed_says_which_value_did(code: str, error: str, words: str, tmp_path: Path) -> None:
    _, problem = first(traceback(error, "fancy/plan.py").replace("assert is_fine(x)", code), tmp_path)
    assert words in problem.cause


def test_a_rank_whose_traceback_ends_in_the_same_frame_failed_too(tmp_path: Path) -> None:
    frames = traceback("ValueError: bad batch", prefix="[rank1]: ")
    cut = "".join(traceback("ValueError: bad batch", prefix="[rank0]: ").splitlines(keepends=True)[:-2])
    _, problem = first(f"{frames}{cut}", tmp_path)
    assert "traceback of rank 0" in problem.cause and "Only this rank" not in problem.cause


def test_an_assertion_without_a_message_shows_its_condition(tmp_path: Path) -> None:
    _, problem = first(traceback("AssertionError", "fancy/plan.py"), tmp_path)
    assert problem.title == "train.py:41 in main raised AssertionError: assert is_fine(x)"


def test_the_direct_cause_is_in_the_title_and_the_first_of_a_handler_in_the_text(tmp_path: Path) -> None:
    link = "\nThe above exception was the direct cause of the following exception:\n\n"
    _, problem = first(traceback("KeyError: 'abc'") + link + traceback("RuntimeError: no data set"), tmp_path)
    assert problem.title == "train.py:41 in main raised RuntimeError: no data set (direct cause: KeyError: 'abc')"
    during = "\nDuring handling of the above exception, another exception occurred:\n\n"
    _, problem = first(traceback("KeyError: 'abc'") + during + traceback("RuntimeError: no data set"), tmp_path)
    assert problem.title.endswith("RuntimeError: no data set") and "first exception was KeyError" in problem.cause


def test_the_rank_that_failed_first_is_named(tmp_path: Path) -> None:
    text = traceback("ValueError: bad batch", prefix="[rank2]: ") + traceback("IndexError: 7", prefix="[rank0]: ")
    _, problem = first(text, tmp_path)
    assert "on rank 2: bad batch" in problem.title
    assert "It came first: rank 0 raised IndexError after it." in problem.cause


ENDS = {
    "train.sh: line 14: apptainer: command not found": ("log_command_not_found", "apptainer"),
    "bash: train.sh: No such file or directory": ("log_shell_file_missing", "train.sh"),
    "bash: ./run.sh: Permission denied": ("log_shell_file_missing", "./run.sh"),
    "train.sh: line 12: syntax error near unexpected token `fi'": ("log_shell_syntax", "near unexpected token"),
    "/x/slurm_script: line 3: MASTER_ADDR: unbound variable": ("log_shell_variable_unset", "MASTER_ADDR"),
    "train.py: error: unrecognized arguments: --lrr 3": ("log_argument_unknown", "--lrr"),
    "train.py: error: the following arguments are required: --data": ("log_argument_missing", "--data"),
    "train.py: error: argument --lr: invalid float value: 'x'": ("log_argument_value_rejected", "--lr"),
    "Usage: train.py [OPTIONS]\n\nError: No such option: --lrr Did you mean --lr?": ("log_option_rejected", "--lrr"),
    "╭─ Error ───────────╮\n│ No such option: --lrr │\n╰───────────────────╯": ("log_option_rejected", "--lrr"),
    "ERROR: Could not consume arg: --lrr": ("log_option_rejected", "--lrr"),
    "FATAL Flags parsing error: Unknown command line flag 'lrr'. Did you mean: lr ?": ("log_option_rejected", "lrr"),
    'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].':
        ("log_docker_without_gpus", "GPUs"),
    'docker: Error response from daemon: OCI runtime create failed: exec: "trainn": executable file not found in $PATH':
        ("log_container_not_created", "trainn"),
    "Error: statfs /data/x: no such file or directory": ("log_container_not_created", "/data/x"),
    'Error from server (NotFound): pods "train-0" not found': ("log_kubectl_refused", "train-0"),
    "srun: error: Unable to create step for job 12: More processors requested than permitted":
        ("log_slurm_request_too_large", "request"),
    "Killed": ("log_shell_reports_kill", "SIGKILL"),
    "x.sh: line 9: 4711 Killed                  python train.py": ("log_rank_killed", "SIGKILL"),
    "Segmentation fault (core dumped)": ("log_rank_segfault", "SIGSEGV"),
    "Fatal Python error: init_fs_encoding: failed to get the Python codec": ("log_python_fatal", "init_fs_encoding"),
    "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc":
        ("log_host_memory_refused", "host memory"),
    "terminate called after throwing an instance of 'own::Error'\n  what():  no plan for rank 3":
        ("log_exception", "no plan for rank 3"),
    "python: /a/plan.cpp:12: void run(): Assertion `x > 0' failed.\nAborted (core dumped)":
        ("log_c_assertion", "plan.cpp:12"),
    "thread '<unnamed>' panicked at src/lib.rs:123:45:\nno entry found for key": ("log_program_panicked", "Rust"),
    "panic: runtime error: index out of range [3] with length 3\n\ngoroutine 1 [running]:":
        ("log_program_panicked", "Go"),
}  # fmt: skip


@pytest.mark.parametrize("end", ENDS)
def test_the_end_of_a_program_that_is_not_python_names_what_failed(end: str, tmp_path: Path) -> None:
    for before in ("", "loading\n" + steps(1, 3)):
        name, problem = first(f"{before}{end}\n", tmp_path)
        assert name == ENDS[end][0]
        assert ENDS[end][1] in f"{problem.title} {problem.cause}"


@pytest.mark.parametrize("line", [
    "train.sh: line 14: nvtop: command not found", "bash: /etc/profile.d/x.sh: No such file or directory",
    "x.sh: line 3: ulimit: Permission denied",
])  # fmt: skip
def test_a_command_that_failed_before_a_run_that_succeeded_is_no_cause(line: str, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(f"{line}\n{bars(0, 20, 20)}{steps(1, 12)}Training complete\n")
    log = read.read_logs([path])
    assert root_cause.find_cause(log, None).first is None and log.finished is not None
    assert first(f"{line}\n{steps(1, 3)}{traceback('ValueError: bad batch')}", tmp_path)[0] == "log_exception"
