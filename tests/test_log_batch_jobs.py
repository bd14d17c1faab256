"""Failures of batch jobs, notebooks, launchers and rollout servers: is the first cause named, and nothing else?"""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.engine import root_cause
from mgpu.readers.log import read, several_runs
from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained
from tests.test_log_went_on import cause


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
        ("self.local = divide(config.num_experts, self.ep_size)", "60 is not divisible by 8",
         "60 experts cannot be divided by expert parallel size 8", "--expert-model-parallel-size"),
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


def test_a_python_script_that_was_itself_given_to_sbatch(tmp_path: Path) -> None:
    raised = "ModuleNotFoundError: No module named '{}'\n"
    for module, code in (("lattice", "import lattice"), ("utils", "from utils import seed")):
        text = frames((f"{SPOOL}/slurm_script", "<module>", code)) + raised.format(module)
        _, title, words = explained(tmp_path, text)
        assert "Slurm runs a copy of the script" in title and "PYTHONPATH=$PWD" in words and "pip" not in words
    for path, module in ((f"{SPOOL}/slurm_script", "pandas"), (SCRIPT, "lattice")):
        text = frames((path, "<module>", f"import {module}")) + raised.format(module)
        assert "copy" not in explained(tmp_path, text)[1]
    inner = frames((f"{SPOOL}/slurm_script", "<module>", "import x"), ("x/core.py", "<module>", "import lattice"))
    assert "copy" not in explained(tmp_path, inner + raised.format("lattice"))[1]


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
    + "nbclient.exceptions.CellExecutionError: An error occurred while executing the following cell:\n--\nx\n--\n"
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
    inner = (
        "File /u/lib.py:22, in Runner.run(self, x)\n     20 def run(x):\n---> 22     return x['rate']\n     23 #\n\n"
    )
    text = CELL.format(type="KeyError", code="run({})") + inner + "KeyError: 'rate'\n"
    path = tmp_path / "run.log"
    path.write_text(text)
    [raised] = read.read_logs([path]).raised
    assert (raised.code, raised.place) == ("return x['rate']", "lib.py:22 in run")
    assert raised.own_lines == ("run({})", "return x['rate']")


NPU = "/path/compiler_depend.ts:90 NPU function error: call aclnnInplaceCopy failed, error code is {code}\n[ERROR] x"
POST = ("slime/utils/http_utils.py", "_post", "response.raise_for_status()")
WAKE = ("trl/extras/vllm_client.py", "update_named_param", "self.pynccl_comm.broadcast(weights, src=self.rank)")
CONFIG = (
    "deepspeed/runtime/config.py",
    "__init__",
    "config_decoded = base64.urlsafe_b64decode(config).decode('utf-8')",
)
OPENS = ("transformers/models/qwen2/tokenization_qwen2.py", "__init__", "with open(vocab_file) as vocab_handle:")


@pytest.mark.parametrize(
    ("call", "error", "title", "words"),
    [
        (CONFIG, "binascii.Error: Incorrect padding", "DeepSpeed's config file does not exist", "all nodes share"),
        (CONFIG, "UnicodeDecodeError: 'utf-8' codec can't decode byte 0x9e in position 0: invalid start byte",
         "DeepSpeed's config file does not exist", "ls -l"),
        (OPENS, "TypeError: expected str, bytes or os.PathLike object, not NoneType",
         "tokenizer's own files are missing", "use_fast=True"),
        (("transformers/models/llama/tokenization_llama.py", "get_spm", "self.sp_model.Load(self.vocab_file)"),
         "TypeError: not a string", "tokenizer's own files are missing", "tokenizer.model"),
        (POST, "httpx.HTTPStatusError: Server error '500 Internal Server Error' for url 'http://10.0.0.7:3/generate'",
         "a server that the run uses answered with an error (500)", "mgpu doctor --log SERVER.log"),
        (POST, "openai.InternalServerError: Error code: 503 - {'error': 'x'}", "(503)", "502 to 504"),
        (WAKE, "AssertionError: this nccl communicator is created to work on cuda:0, but the input tensor is on cuda:1",
         "weight on cuda:1", "device_map"),
        (WAKE, 'Exception: Request failed: 404, {"detail":"Not Found"}', "routes that TRL needs", "trl vllm-serve"),
        (WAKE, "Exception: Request failed: 500, Internal Server Error", "answered with an error (500)", "server.log"),
        (("pytorch_lightning/strategies/ddp.py", "root_device", "return self.parallel_devices[self.local_rank]"),
         "IndexError: list index out of range", "more tasks than Lightning has devices", "--ntasks-per-node"),
        (("verl/utils/seqlen_balancing.py", "get", "assert"), "AssertionError: number of items:[4] < k_partitions:[8]",
         "4 samples, but is divided into 8 parts", "train_batch_size"),
        (("torch/nn/init.py", "trunc_normal_", "tensor.erfinv_()"),
         "RuntimeError: \n  #ifdef __HIPCC__\n  #define X\nnvrtc: error: invalid value for --gpu-architecture (-arch)",
         "NVRTC) does not know the GPU", "cu130"),
        (("torch/nn/init.py", "trunc_normal_", "tensor.erfinv_()"),
         "RuntimeError: \n  #ifdef __HIPCC__\nnvrtc: error: failed to open libnvrtc-builtins.so.12.4.",
         "does not find its own library: libnvrtc-builtins.so.12.4", "LD_LIBRARY_PATH"),
        (WAKE, "RuntimeError: " + NPU.format(code=507035), "vector kernel raised an exception", "ASCEND_LAUNCH"),
        (WAKE, "RuntimeError: " + NPU.format(code=161002), "wrong size, type or format", "EZ1001"),
        (WAKE, "RuntimeError: " + NPU.format(code=999999), "aclnnInplaceCopy, error code 999999", "npu-smi info"),
    ],
)  # fmt: skip
def test_what_the_call_that_failed_says(
    call: tuple[str, str, str], error: str, title: str, words: str, tmp_path: Path
) -> None:
    _, found, text = explained(tmp_path, frames((SCRIPT, "main", "trainer.train()"), call) + f"{error}\n")
    assert title in found and words in text, (found, text)


def test_the_same_messages_of_other_code(tmp_path: Path) -> None:
    own = frames((SCRIPT, "load", "with open(path) as stream:"))
    for error in (
        "TypeError: expected str, bytes or os.PathLike object, not NoneType",
        "binascii.Error: Incorrect padding",
        "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: https://huggingface.co/api/x",
    ):
        _, title, words = explained(tmp_path, f"{own}{error}\n")
        assert "tokenizer" not in title and "DeepSpeed" not in title + words and "inference engine" not in words


@pytest.mark.parametrize(
    ("last", "row"),
    [
        ("ERROR: Training failed with exit code 2", "log_job_reports_exit"),
        ("Python script exited with code 1", "log_job_reports_exit"),
        ("Exit code: 1", ""),  # an agent's tool reports it too
        ("Command exited with code 1", ""),
        ("[Error] HOSTFILE is required when PP>1", "log_program_reported_error"),
        ("\u274c Training failed: the dataset has no split", "log_program_reported_error"),
        ("\u274c Test case 3 failed", ""),
        ("Exit code: 0", ""),
        ("The tool failed with exit code 1\n" + "next request\n" * 30, ""),
    ],
)
def test_the_last_line_of_a_job_script(last: str, row: str, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(f"=====\nPhase 1: training\n=====\n{last}\n")
    first = root_cause.find_cause(read.read_logs([path]), None).first
    assert (first.id if first else "") == row


TRAINED = (
    " iteration        1/       2 | lm loss: 2.1\n iteration        2/       2 | lm loss: 2.0\n"
    "[after training is done] datetime: 2026-03-25 13:10:06\n"
)
HANGUP = "/w/smoke.sh: line 44: 367038 Hangup                  deepspeed train.py\n"


def test_a_stop_after_the_end_of_the_training_is_no_failure(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(TRAINED + "[rank0]: destroy_process_group() was not called\n" + HANGUP + "reset the clocks\n")
    log = read.read_logs([path])
    assert root_cause.find_cause(log, None).first is None and log.finished
    for text in (HANGUP, TRAINED + "evaluating sample 7\n" * 60 + HANGUP):
        assert explained(tmp_path, f"start\n{text}")[0] == "log_terminal_closed"


def test_a_launcher_that_was_killed_itself(tmp_path: Path) -> None:
    line = "run.sh: line 44: 4711 Killed                  {} train.py\n"
    assert "launcher itself was killed" in explained(tmp_path, line.format("/opt/env/bin/torchrun --nnodes 2"))[1]
    assert "a rank was killed" in explained(tmp_path, line.format("python"))[1]


@pytest.mark.parametrize(
    ("line", "row"),
    [
        ("=>> PBS: job killed: walltime 3630 exceeded limit 3600", "log_batch_time_up"),
        ("TERM_RUNLIMIT: job killed after reaching LSF run time limit.", "log_batch_time_up"),
        ("timeout: sending signal KILL to command '/opt/env/bin/python'", "log_timeout_command"),
        ("Connection to gpu1 closed by remote host.", "log_ssh_connection_broke"),
        ("ssh: connect to host node2 port 22: Connection timed out", "log_ssh_host_silent"),
        ("error: Failed to spawn: `torchrun`", "log_uv_failed"),
        ("[2025-07-06 07:14:27,052 C 29 29] task_receiver.cc:219:  Check failed: valid", "log_ray_check_failed"),
        ("exec /entrypoint.sh: no such file or directory", "log_container_program_not_run"),
        ("Job 'raysubmit_x7f' failed", "log_ray_job_failed"),
        ("CondaToSNonInteractiveError: Terms of Service have not been accepted for x", "log_conda_terms"),
        ("g++: fatal error: Killed signal terminated program cc1plus", "log_compiler_killed"),
        ("zsh: segmentation fault (core dumped)  python train.py", "log_rank_segfault"),
        ("zsh: killed     python train.py", "log_rank_killed"),
        ("fish: Job 1, 'python t.py' terminated by signal SIGSEGV (Address boundary error)", "log_rank_segfault"),
        ("CheckpointingException: Object shard /c/iter_5/x._extra_state/shard_0_1.pt not found",
         "log_megatron_shards_missing"),
        ("EI0006: Getting socket times out. Reason: Remote Rank did not send the data in time.",
         "log_hccl_rank_missing"),
        ("RuntimeError: HCCL function error: HcclGetRootInfo(&id), error code is 4", "log_npu_call_failed"),
        ("RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 60.97 GiB total)", "log_npu_memory_full"),
    ],
)  # fmt: skip
def test_what_something_around_the_run_reports(line: str, row: str, tmp_path: Path) -> None:
    assert explained(tmp_path, f"step 1 loss 2.0\n{line}\n")[0] == row


def test_the_whole_reason_for_a_pod_without_a_node(tmp_path: Path) -> None:
    line = (
        "0/5 nodes are available: 2 node(s) had untolerated taint {nvidia.com/gpu: present}, 3 Insufficient cpu. x: y\n"
    )
    title = explained(tmp_path, line)[1]
    assert title.endswith("{nvidia.com/gpu: present}, 3 Insufficient cpu"), title


def test_git_over_ssh_is_not_a_node(tmp_path: Path) -> None:
    line = "ssh: connect to host github.com port 22: Connection timed out\n"
    assert cause(f"step 1 loss 2.0\n{line}", tmp_path) != "log_ssh_host_silent"


def test_what_is_done_if_a_run_is_interrupted_is_no_interruption(tmp_path: Path) -> None:
    line = "a checkpoint is written if training is interrupted by the user (Ctrl-C)\n"
    assert cause(f"{line}step 1 loss 2.0\n", tmp_path) is None


def test_a_config_of_deepspeed_in_another_encoding_exists(tmp_path: Path) -> None:
    hjson = ("hjson/__init__.py", "load", "return loads(fp.read())")
    error = "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"
    config = ("deepspeed/runtime/config.py", "__init__", "self._param_dict = hjson.load(open(config, 'r'))")
    _, title, _ = explained(tmp_path, f"{frames(config, hjson)}{error}\n")
    assert "does not exist" not in title, title
