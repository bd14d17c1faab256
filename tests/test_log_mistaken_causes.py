"""Messages that another part of the log, or the place of the exception, turns into something else than they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.engine import root_cause
from mgpu.readers.log import read
from tests.test_log_meanings import SCRIPT, explained, traceback
from tests.test_log_went_on import cause

CHANNELS = (
    "RuntimeError: Given groups=1, weight of size [{w}, {c}, 3], expected input{shape} to have {c} channels, but got "
    "{got} channels instead"
)
PARTIAL = (
    "ImportError: cannot import name 'IS' from partially initialized module 'unsloth.models.vision' (most likely due "
    "to a circular import) ({path}/unsloth/models/vision.py)"
)
ATTRIBUTE = "AttributeError: 'Qwen3ForCausalLM' object has no attribute '{name}'"
CLOSURE = "TypeError: CAGrad.{call}() got an unexpected keyword argument '{name}'"
NO_PARENT = (
    'RuntimeError: ncclComm != nullptr INTERNAL ASSERT FAILED at "/pytorch/torch/csrc/distributed/c10d/'
    'ProcessGroupNCCL.cpp":4043, please report a bug to PyTorch. Parent communicator missing in eager initialization '
    "mode."
)


def test_one_channel_that_stands_last_may_be_a_missing_batch(tmp_path: Path) -> None:
    one = CHANNELS.format(w=1, c=1, shape="[1, 300, 1]", got=300)
    _, title, words = explained(tmp_path, traceback(one, SCRIPT, "torch"))
    assert "a dimension is at the wrong place" in title and "squeeze" in words and "batch dimension is missing" in words
    three = CHANNELS.format(w=8, c=3, shape="[1, 300, 3]", got=300)
    _, title, words = explained(tmp_path, traceback(three, SCRIPT, "torch"))
    assert "in its last dimension" in title and "squeeze" not in words


def test_installed_packages_that_import_each_other_are_no_file_of_the_script(tmp_path: Path) -> None:
    text = traceback(PARTIAL.format(path="/venv/lib/python3.12/site-packages"), SCRIPT, "unsloth", "unsloth_zoo")
    _, title, words = explained(tmp_path, text)
    assert "installed packages import each other" in title and "Rename" not in words
    assert "Rename" in explained(tmp_path, traceback(PARTIAL.format(path="/home/ada"), SCRIPT))[2]


def test_an_engine_that_a_model_was_loaded_without(tmp_path: Path) -> None:
    text = traceback(ATTRIBUTE.format(name="vllm_engine"), SCRIPT, "unsloth", "peft", "torch/nn/modules/module.py")
    _, title, words = explained(tmp_path, text)
    assert "no engine" in title and "fast_inference=True" in words and "upgrade" not in words
    assert "engine" not in explained(tmp_path, text.replace("vllm_engine", "other_thing"))[1]


def test_an_optimizer_without_a_closure_is_no_matter_of_releases(tmp_path: Path) -> None:
    files = (SCRIPT, "lightning", "torch/optim/optimizer.py")
    _, title, words = explained(tmp_path, traceback(CLOSURE.format(call="step", name="closure"), *files))
    assert "CAGrad.step() of the optimizer has no argument closure" in title and "def step(self, closure=None)" in words
    assert "closure" not in explained(tmp_path, traceback(CLOSURE.format(call="run", name="limit"), *files))[1]


def test_an_assertion_about_a_communicator_is_no_lost_connection(tmp_path: Path) -> None:
    found, title, words = explained(tmp_path, traceback(NO_PARENT, SCRIPT, "torch/distributed/distributed_c10d.py"))
    assert found == "log_exception" and "between two ranks" in title and "batch_isend_irecv" in words
    lost = "RuntimeError: NCCL communicator was aborted on rank 1"
    assert cause(traceback(lost, SCRIPT, "torch/distributed/distributed_c10d.py"), tmp_path) != "log_exception"


def test_a_pipe_of_wandb_is_not_the_output(tmp_path: Path) -> None:
    error = "BrokenPipeError: [Errno 32] Broken pipe"
    _, title, words = explained(tmp_path, traceback(error, SCRIPT, "wandb/sdk/lib/sock_client.py"))
    assert "wandb's own process ended" in title and "> train.log" not in words
    assert "wandb" not in explained(tmp_path, traceback(error, SCRIPT))[1]


@pytest.mark.parametrize(
    ("error", "found"),
    [
        ("ImportError: /v/torch_npu/lib/libtorch_npu.so: undefined symbol: _ZN3atb15C", "log_torch_npu_does_not_load"),
        ("ImportError: libascendcl.so: cannot open shared object file: No such file", "log_torch_npu_does_not_load"),
        ("ImportError: /v/torch/lib/libtorch_cuda.so: undefined symbol: cublasLtGetVersion", "log_torch_incomplete"),
    ],
)
def test_torch_npu_is_not_torch(error: str, found: str, tmp_path: Path) -> None:
    assert cause(traceback(error, SCRIPT, "torch_npu"), tmp_path) == found


def test_a_traceback_that_bitsandbytes_prints_and_survives(tmp_path: Path) -> None:
    first = "Could not load bitsandbytes native library: libbitsandbytes_cpu.so: cannot open shared object file\n"
    first += traceback("OSError: /x/libbitsandbytes_cpu.so: cannot open shared object file", "bitsandbytes")
    full = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 29.26 GiB. GPU 0 has a total capacity of 63.98"
    both = first + traceback(full, SCRIPT, "torch")
    assert cause(both, tmp_path) == cause(traceback(full, SCRIPT, "torch"), tmp_path)


def test_a_build_that_failed_on_rank_0_explains_what_rank_1_lacks(tmp_path: Path) -> None:
    built = traceback("RuntimeError: Error building extension 'cpu_adam'", SCRIPT, "torch", prefix="[rank0]: ")
    missing = "ImportError: /h/.cache/torch_extensions/py312/cpu_adam/cpu_adam.so: cannot open shared object file"
    lacks = traceback(missing, SCRIPT, "deepspeed", prefix="[rank1]: ")
    assert cause(built + lacks, tmp_path) == "log_extension_not_built"
    assert cause(lacks, tmp_path) == "log_extension_cache_broken"


def test_what_a_command_printed_is_before_the_command(tmp_path: Path) -> None:
    pmi = "Abort(1090831): Fatal error in PMPI_Init_thread: Other MPI error\nMPIR_pmi_init(142): PMI_Get_appnum: -1\n"
    failed = (
        'Traceback (most recent call last):\n  File "/home/ada/launch.py", line 3, in <module>\n    run(line)\n'
        '  File "/usr/lib/python3.11/subprocess.py", line 526, in run\n    raise CalledProcessError(retcode, args)\n'
        "subprocess.CalledProcessError: Command '['bash', 'build_index.sh']' returned non-zero exit status 1.\n"
    )
    assert cause(failed, tmp_path) == "log_command_failed"
    assert cause(pmi + failed, tmp_path) == "log_mpi_not_initialized"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("CRITICAL:__main__:Starting the fine-tuning", None),
        ("CRITICAL:__main__:the dataset is not there, giving up", "log_program_reported_error"),
    ],
)
def test_a_milestone_that_is_logged_as_critical_is_no_error(line: str, found: str | None, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(f"INFO:__main__:loaded the model\n{line}\n")
    first = root_cause.find_cause(read.read_logs([path]), None).first
    assert (first.id if first else None) == found
