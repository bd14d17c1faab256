"""Trainers that use vLLM, Ray or Lightning: whole logs (synthetic), and what is named as the first cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.engine import root_cause
from mgpu.readers.log import read, row_matching
from tests.checks.facts import Case, fails, table, well
from tests.checks.test_log_exceptions import raised, with_

KEY = {"type": "KeyError", "message": "'chosen'"}
SPLIT = {"type": "KeyError", "message": "'test'"}
UNDEFINED = {"type": "NameError", "message": "name 'flash_attn_varlen_func' is not defined"}

CASES = (
    fails("log_dataset_column_missing", "trl reads the column 'chosen'", "rename_column",
        log=with_(raised(0, **KEY, packages=("", "transformers", "trl")))),
    fails("log_dataset_column_missing", "train.py:41 in main reads the column 'chosen'", "column_names",
        log=with_(raised(0, **KEY, packages=("", "datasets", "")))),
    well("log_dataset_column_missing", "no such exception", log=with_(raised(0, **KEY, packages=("",)))),
    well("log_dataset_column_missing", "no such exception",
        log=with_(raised(0, type="KeyError", message="'LOCAL_RANK'", packages=("trl",)))),
    well("log_dataset_column_missing", "no such exception",
        log=with_(raised(0, **KEY, caught=True, packages=("trl",)))),
    fails("log_dataset_split_missing", "no split 'test', which train.py:41 in main reads", "train_test_split",
        log=with_(raised(0, **SPLIT, library="datasets/dataset_dict.py:75 in __getitem__"))),
    well("log_dataset_split_missing", "no such exception", log=with_(raised(0, **SPLIT, library=None))),
    fails("log_package_has_a_fault", "trl has a mistake in its own code: UnboundLocalError: reward", "--upgrade trl",
        log=with_(raised(0, type="UnboundLocalError", message="reward", packages=("", "trl")))),
    well("log_package_has_a_fault", "no such exception",
        log=with_(raised(0, type="UnboundLocalError", message="reward", packages=("trl", "")))),
    well("log_package_has_a_fault", "no such exception", log=with_(raised(0, packages=("", "trl")))),
    fails("log_optional_package_missing", "flash_attn_varlen_func is not defined: flash-attn is probably not installed",
        "pip show flash-attn", log=with_(raised(0, **UNDEFINED, packages=("", "openchat")))),
    fails("log_optional_package_missing", "bnb is not defined: bitsandbytes", "import it there",
        log=with_(raised(0, type="NameError", message="name 'bnb' is not defined", packages=("",)))),
    well("log_optional_package_missing", "no such exception",
        log=with_(raised(0, type="NameError", message="name 'my_loss' is not defined", packages=("",)))),
    well("log_optional_package_missing", "no such exception",
        log=with_(raised(0, **UNDEFINED, packages=("", "flash_attn")))),  # its own mistake
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


ENV = "/opt/env/lib/python3.11/site-packages"


def raised_in(error: str, *files: str, head: str = "Traceback (most recent call last):") -> str:
    frames = "".join(f'  File "{file}", line 7, in run\n    call()\n' for file in files)
    return f"{head}\n{frames}{error}\n"


CREATION = (
    raised_in(
        "ray.exceptions.RayTaskError(ActorDiedError): ray::TaskRunner.run() (pid=12, ip=10.0.0.4, actor_id=1)",
        "/home/ada/verl/trainer/main_ppo.py",
        f"{ENV}/ray/_private/worker.py",
    )
    + '  File "/home/ada/verl/trainer/main_ppo.py", line 202, in run\n    trainer.init_workers()\n'
    "ray.exceptions.ActorDiedError: The actor died because of an error raised in its creation task, "
    "ray::WorkerDict.__init__() (pid=13, ip=10.0.0.4, actor_id=2)\n"
    '  File "/home/ada/verl/workers/fsdp_workers.py", line 120, in __init__\n'
)
VERSIONS = (
    "RuntimeError: Version mismatch: The cluster was started with:\n    Ray: 2.9.3\n    Python: 3.10.13\n"
    "This process on node 10.0.0.4 was started with:\n    Ray: {ray}\n    Python: 3.10.12"
)
HEADS = (
    "(EngineCore_0 pid=9) ERROR 11-21 10:12:01 [core.py:396] ValueError: Total number of attention heads (28) must be "
    "divisible by tensor parallel size (8)."
)


@pytest.mark.parametrize(
    ("text", "title", "fix"),
    [
        (
            CREATION + "    self.build()\nValueError: no such optimizer: adamx\n",
            "fsdp_workers.py:120 in __init__ raised ValueError: no such optimizer: adamx",
            "",
        ),
        (
            CREATION + "    assert self.config.lr > 0\nAssertionError\n",
            "verl rejects the settings that the run gives it: self.config.lr must be greater than 0",
            "Change lr, so that the condition is true.",
        ),
        (
            'Traceback (most recent call last):\n  File "/home/ada/train.py", line 7, in run\n    a = 8 * args.gpus\n'
            "TypeError: unsupported operand type(s) for *: 'int' and 'NoneType'\n",
            "args.gpus is None (train.py:7 in run)",
            "grep -nE",
        ),
        (
            raised_in(VERSIONS.format(ray="2.9.3"), "/home/ada/train.py", f"{ENV}/ray/_private/utils.py"),
            "the Ray cluster runs Python 3.10.13, but this process runs Python 3.10.12",
            "ray stop --force",
        ),
        (
            raised_in(VERSIONS.format(ray="2.42.0"), "/home/ada/train.py", f"{ENV}/ray/_private/utils.py"),
            "the Ray cluster runs Ray 2.9.3, but this process runs Ray 2.42.0",
            "pip install ray==2.9.3",
        ),
        (
            raised_in(
                "pydantic_core._pydantic_core.ValidationError: 1 validation error for GRPOInput\ntrl.use_vlm\n"
                "  Extra inputs are not permitted [type=extra_forbidden, input_value=True, input_type=bool]",
                f"{ENV}/pydantic/main.py",
            ),
            "GRPOInput rejects the field trl.use_vlm: Extra inputs are not permitted",
            "Correct the field",
        ),
        (HEADS, "28 attention heads cannot be divided by tensor parallel size 8", "tensor_parallel_size=7"),
        (
            raised_in(
                "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:2 "
                "and cuda:0!",
                "/home/ada/train.py",
                f"{ENV}/unsloth/models/llama.py",
            ),
            "one process with Unsloth uses several GPUs",
            "CUDA_VISIBLE_DEVICES=0",
        ),
        (
            raised_in(
                "RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)",
                f"{ENV}/trl/extras/vllm_client.py",
                f"{ENV}/vllm/distributed/device_communicators/pynccl.py",
            ),
            "the trainer and its vLLM server probably use the same GPU",
            "trl vllm-serve",
        ),
        (
            raised_in(
                "ValueError: Converter qwen9 does not exist.", "/home/ada/LLaMA/src/llamafactory/data/template.py"
            ),
            "raised ValueError: Converter qwen9 does not exist.",
            "",
        ),
    ],
)
def test_first_cause(tmp_path: Path, text: str, title: str, fix: str) -> None:
    path = tmp_path / "run.log"
    path.write_text(text, "utf-8")
    first = root_cause.find_cause(read.read_logs([path], row_matching.signature_rows()), None).first
    assert first is not None and first.outcome.problem is not None
    problem = first.outcome.problem
    assert title in problem.title
    assert fix in " | ".join(word for one in problem.fixes for word in (one.text, *one.commands))


@pytest.mark.parametrize(
    "text",
    [
        "Server is not up yet. Retrying in 2.0 seconds...\n",
        "Waiting for placement group to be scheduled\n",
        "No available shared memory broadcast block found in 60 seconds.\n",
        "(raylet) file_system_monitor.cc:111: /tmp/ray/session_1 is over 95% full, available space: 9 GB\n",
    ],
)
def test_waiting_that_ended_is_no_cause(tmp_path: Path, text: str) -> None:
    """A run that trained afterwards is healthy."""
    steps = "".join(f"{{'loss': 0.3, 'step': {step}}}\nstep {step}/20 loss 0.3\n" for step in range(1, 21))
    path = tmp_path / "run.log"
    path.write_text(f"{text}{steps}Training complete\n", "utf-8")
    assert root_cause.find_cause(read.read_logs([path], row_matching.signature_rows()), None).first is None


def test_the_line_of_code_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    frames = 'Traceback (most recent call last):\n  File "/home/ada/train.py", line 7, in run\n    {}\n{}\n'
    error = "TypeError: unsupported operand type(s) for *: 'int' and 'NoneType'"
    for code, message, shown in (
        ("a = 8 * args.gpus", error, 'The line is "a = 8 * args.gpus".'),
        ("raise TypeError(text)", "TypeError: no such value", ""),
    ):
        path.write_text(frames.format(code, message), "utf-8")
        first = root_cause.find_cause(read.read_logs([path], row_matching.signature_rows()), None).first
        assert first is not None and first.outcome.problem is not None
        assert shown in first.outcome.problem.cause
        assert bool(shown) == ("The line is" in first.outcome.problem.cause)
