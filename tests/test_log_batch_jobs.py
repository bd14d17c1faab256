"""Failures of batch jobs, notebooks, launchers and rollout servers: is the first cause named, and nothing else?"""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.engine import root_cause
from mgpu.readers.log import read, several_runs
from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained


def divided(line: str, message: str, file: str = "/home/u/Megatron-LM/megatron/core/part.py") -> str:
    core = "/home/u/Megatron-LM/megatron/core/utils.py" if file.startswith("/") else "vllm/distributed/utils.py"
    calls = frames((SCRIPT, "main", "pretrain(args)"), (file, "__init__", line),
                   (core, "divide", "ensure_divisibility(numerator, denominator)"),
                   (core, "ensure_divisibility", "assert numerator % denominator == 0, TEXT"))  # fmt: skip
    return f"{calls}AssertionError: {message}\n"


@pytest.mark.parametrize(
    ("line", "message", "title", "words"),
    [
        ("self.heads_per_partition = divide(num_attention_heads, world_size)", "28 is not divisible by 8",
         "28 attention heads cannot be divided by tensor parallel size 8", "1, 2, 4, 7, 14, 28"),
        ("self.groups = divide(self.config.num_query_groups, world_size)", "2 is not divisible by 4",
         "2 key-value heads", "--tensor-model-parallel-size 2"),
        ("self.hidden_size_per_attention_head = divide(projection_size, num_heads)", "4096 is not divisible by 33",
         "width 4096", "number of ranks is not the cause"),
        ("self.part = divide(self.num_embeddings, self.tp_size)", "151643 is not divisible by 4",
         "vocabulary of 151643", "--make-vocab-size-divisible-by"),
        ("self.output_size_per_partition = divide(output_size, tp_size)", "18944 is not divisible by 3",
         "layer's width 18944", "--tensor-parallel-size 2"),
    ],
)  # fmt: skip
def test_the_line_that_divides_names_the_size(line: str, message: str, title: str, words: str, tmp_path: Path) -> None:
    row, found, text = explained(tmp_path, divided(line, message))
    assert row == "log_sizes_do_not_divide" and title in found and words in found + text, (found, text)
    if "not the cause" not in words:
        assert "not the cause" not in text


def test_the_file_that_divides_names_the_size_if_its_line_is_not_known(tmp_path: Path) -> None:
    installed = divided("x = divide(a, b)", "28 is not divisible by 3", "vllm/model_executor/models/qwen2_attention.py")
    assert "28 attention heads" in explained(tmp_path, installed)[1]
    other = divided("x = divide(a, b)", "28 is not divisible by 3", "vllm/model_executor/layers/other.py")
    assert "28 is not divisible by 3: a size of the model" in explained(tmp_path, other)[1]


def test_two_numbers_without_a_traceback_are_not_explained_away(tmp_path: Path) -> None:
    _, title, words = explained(tmp_path, "AssertionError: 28 is not divisible by 8\n")
    assert "28 is not divisible by 8" in title and "not the cause" not in words
    own = frames((SCRIPT, "main", "assert size % 8 == 0, f'{size} is not divisible by 8'"))
    _, title, words = explained(tmp_path, own + "AssertionError: 30 is not divisible by 8\n")
    assert "tensor" not in title + words


SPOOL = "/var/spool/slurmd/job4711"


@pytest.mark.parametrize(
    "line",
    [
        f"{SPOOL}/slurm_script: line 6: /var/spool/ops/env.sh: No such file or directory",
        f"Missing Slurm script: {SPOOL}/slurm/train.slurm",
        f"python3: can't open file '{SPOOL}/train.py': [Errno 2] No such file or directory",
        "/cm/local/apps/slurm/var/spool/job17/slurm_script: line 9: cd: "
        "/cm/local/apps/slurm/var/spool/job17/../src: No such file or directory",
        f"Traceback (most recent call last):\n  File \"/w/t.py\", line 3, in main\n    open(p)\nFileNotFoundError: "
        f"[Errno 2] No such file or directory: '{SPOOL}/config.yaml'",
    ],
)  # fmt: skip
def test_a_job_that_looks_next_to_slurms_copy_of_its_script(line: str, tmp_path: Path) -> None:
    _, title, words = explained(tmp_path, f"{line}\n")
    assert "Slurm's copy of the job script" in title and "SLURM_SUBMIT_DIR" in words and "chmod" not in words


def test_other_paths_of_a_job_script(tmp_path: Path) -> None:
    for path in ("/home/u/run.sh", "env.sh", "/data/slurm/job.sh"):
        line = f"{SPOOL}/slurm_script: line 6: {path}: No such file or directory\n"
        assert "copy" not in explained(tmp_path, line)[1]


@pytest.mark.parametrize(
    ("line", "row"),
    [
        ("./run.sh: line 3: 4711 Segmentation fault      (core dumped) python train.py", "log_rank_segfault"),
        ("/w/my.job: line 30: 4711 Aborted                 (core dumped) python train.py", "log_rank_aborted"),
        ("run.sh: line 3: 99 Illegal instruction     (core dumped) python train.py", "log_illegal_instruction"),
        ("run.sh: line 3: 99 Floating point exception(core dumped) python train.py", "log_rank_floating_point_signal"),
        ("run.sh: line 3: 99 Terminated              python train.py", "log_asked_to_end"),
        ("run.sh: line 3: 99 Hangup                  python train.py 2>&1", "log_terminal_closed"),
        ("Hangup", "log_terminal_closed"),
        ("Segmentation fault", "log_rank_segfault"),
    ],
)
def test_what_the_shell_reports_of_a_signal(line: str, row: str, tmp_path: Path) -> None:
    assert explained(tmp_path, f"epoch 3 loss 0.12\n{line}\n")[0] == row


def test_words_of_a_program_are_no_signals(tmp_path: Path) -> None:
    text = "epoch 3 loss 0.12\nHangup detection is on\nSegmentation fault tolerance: 3 tasks\nAborted: 0 of 7\n"
    path = tmp_path / "run.log"
    path.write_text(text)
    assert root_cause.find_cause(read.read_logs([path]), None).first is None


@pytest.mark.parametrize(
    "line",
    [
        "2025-06-24 14:08:01,135 - __main__ - INFO - \u23f9 Training interrupted by user",
        "Interrupted by user.",
        "WARNING:root:KeyboardInterrupt received, saving a checkpoint",
        "Run was interrupted by the user",
        "Received SIGINT, shutting down",
    ],
)
def test_a_program_that_reports_that_a_user_stopped_it(line: str, tmp_path: Path) -> None:
    assert explained(tmp_path, f"epoch 3 loss 0.12\n{line}\n")[0] == "log_interrupted"


def test_memory_that_nccl_lacks_comes_before_a_crash_that_follows(tmp_path: Path) -> None:
    text = (
        "localhost: [rank0]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:230, unhandled cuda "
        "error\nlocalhost: [rank0]: ncclUnhandledCudaError: Call to CUDA function failed.\nlocalhost: [rank0]: Last "
        "error:\nlocalhost: [rank0]: Failed to CUDA calloc async 4 bytes\n"
        "n2: [ERROR] [launch.py:341:sigkill_handler] ['python', 'train.py'] exits with return code = -11\n"
    )
    assert explained(tmp_path, text)[0] == "log_nccl_out_of_memory"
    assert explained(tmp_path, text.splitlines()[-1] + "\n")[0] == "log_rank_segfault"


REFUSED = (
    "2025-08-08 05:12:00,001 - app.client - ERROR - request 17 failed\n"
    + frames(("aiohttp/client_reqrep.py", "raise_for_status", "raise ClientResponseError("))
    + "aiohttp.client_exceptions.ClientResponseError: 400, message='Bad Request', url='http://localhost:8006/v1'\n"
)


@pytest.mark.parametrize(
    ("end", "went_on"),
    [
        ("2025-08-08 05:13:56,097 - __main__ - INFO - Experiment completed successfully", True),
        ("INFO:app:Run finished successfully", True),
        ("2025-08-08 05:13:56.097 | INFO     | app:main:7 - Evaluation completed successfully.", True),
        ("Job completed successfully", False),
        ("2025-08-08 05:13:56,097 - __main__ - ERROR - Experiment not completed successfully", False),
    ],
)
def test_success_that_the_programs_logger_reports(end: str, went_on: bool, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(f"2025-08-08 05:11:00,001 - app - INFO - start\n{REFUSED}{end}\n")
    assert (root_cause.find_cause(read.read_logs([path]), None).first is None) is went_on


def logged(minute: int, *lines: str) -> str:
    return "".join(f"2025-06-24 14:{minute:02}:01,135 - app.{line}\n" for line in lines)


STARTED = ("main - INFO - Starting the training of the model", "setup - INFO - Setting up the environment")


@pytest.mark.parametrize("last", ["main - INFO - Training interrupted by user", "main - INFO - Loading the weights"])
def test_a_file_to_which_a_logger_appends_each_run(last: str, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    error = "hub - ERROR - Failed: 401 Client Error: Unauthorized for url: https://huggingface.co/org/model"
    path.write_text(logged(1, *STARTED, error) + logged(9, *STARTED, error) + logged(30, *STARTED, last))
    with path.open("rb") as stream:
        last_run, _ = several_runs.of_last_run(path, iter([stream.read()]))
    assert last_run is not None and (last_run.line, last_run.earlier) == (7, 2)


def test_an_error_in_a_logger_of_one_run_begins_no_other(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(
        logged(1, *STARTED, "hub - ERROR - retry", "main - INFO - Setting up the data", *["x - INFO - a"] * 400)
    )
    with path.open("rb") as stream:
        assert several_runs.of_last_run(path, iter([stream.read()]))[0] is None


CELL = """\
---------------------------------------------------------------------------
{type:<42}Traceback (most recent call last)
Cell In[7], line 3
      1 config = {{"lr": 1e-4}}
----> 3 {code}

"""
PAPERMILL = (
    "Executing:  45%|####5     | 5/11 [00:18<00:22,  3.79s/cell]\n"
    + frames((SCRIPT, "<module>", "sys.exit(papermill())"), ("papermill/execute.py", "execute", "raise error"))
    + 'papermill.exceptions.PapermillExecutionError: \n-----\nException encountered at "In [7]":\n'
)
NBCLIENT = (
    frames((SCRIPT, "<module>", "nb.execute()"), ("nbclient/client.py", "check", "raise CellExecutionError"))
    + "nbclient.exceptions.CellExecutionError: An error occurred while executing the following cell:\n"
    + "------\nx\n------\n"
)


@pytest.mark.parametrize("wrapper", ["", PAPERMILL, NBCLIENT])
def test_the_exception_of_a_notebooks_cell_is_the_cause(wrapper: str, tmp_path: Path) -> None:
    key = CELL.format(type="KeyError", code='rate = config["learning_rate"]') + "KeyError: 'learning_rate'\n"
    _, title, _ = explained(tmp_path, wrapper + key)
    assert "config has no key 'learning_rate'" in title and "Papermill" not in title, title
    memory = CELL.format(type="OutOfMemoryError", code="trainer.train()") + (
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.68 GiB of "
        "which 1.1 GiB is free.\n"
    )
    assert explained(tmp_path, wrapper + memory)[0] == "log_gpu_memory_full"


def test_the_marked_line_of_a_notebooks_frame_is_its_code(tmp_path: Path) -> None:
    inner = "File /home/u/lib.py:22, in run(x)\n     20 def run(x):\n---> 22     return x['rate']\n     23 # end\n\n"
    text = CELL.format(type="KeyError", code="run({})") + inner + "KeyError: 'rate'\n"
    path = tmp_path / "run.log"
    path.write_text(text)
    [raised] = read.read_logs([path]).raised
    assert (raised.code, raised.place) == ("return x['rate']", "lib.py:22 in run")
    assert raised.own_lines == ("run({})", "return x['rate']")
