"""checks/log/framework_mistakes.py and gradients.py: packages among themselves, and gradients that are all NaN."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.engine import root_cause
from mgpu.readers.log import read, row_matching
from mgpu.snapshot import Circumstance, Log
from tests.checks.facts import Case, fails, log, table, well
from tests.checks.test_log_exceptions import raised, with_

STATE = {"type": "AssertionError", "message": "assert self.cpu_group is not None"}
OWN = {
    "type": "AttributeError", "message": "'Generation' object has no attribute 'tools'", "code": "if self.tools:",
}  # fmt: skip
LLM = {"type": "AttributeError", "message": "'LLMEngine' object has no attribute 'model_executor'"}
ITEMS = {"type": "IndexError", "message": "list index out of range", "code": "if rows[0].dtype == x:"}
NONE = {"type": "AttributeError", "message": "'NoneType' object has no attribute 'shape'"}


def norms(*lines: tuple[str, int, int]) -> Log:
    """Which norms of gradients a log shows: name of the row, first and last line."""
    return log(
        shows=tuple(Circumstance(name, "'grad_norm': ...", "run.log", first, last) for name, first, last in lines)
    )


EACH = {"type": "TypeError", "message": "'NoneType' object is not iterable", "code": "if all(x for x in inputs):"}
SEVERAL = {**EACH, "code": "pairs = list(zip(prompts, answers))"}
CASES = (
    fails("log_framework_failed", "trl failed in its own code, on a value that is None", "pip check",
        log=with_(raised(0, **SEVERAL, packages=("", "transformers", "trl"),
                         frames=("transformers/trainer.py in train", "trl/trainer/x.py in f", "trl/a.py in g")))),
    fails("log_framework_failed", "trl failed in its own code, on inputs, which is None", "eval_strategy='no'",
        log=with_(raised(0, **EACH, packages=("", "transformers", "trl"),
                         frames=("transformers/trainer.py in evaluate", "trl/trainer/x.py in f", "trl/a.py in g")))),
    fails("log_framework_failed", "ms-swift and vllm probably do not fit each other: a check of vllm",
        "--upgrade ms-swift",
        log=with_(raised(0, **STATE, packages=("swift", "vllm")))),
    fails("log_framework_failed", "probably a mistake in vllm: a check of vllm on its own state failed while it loaded",
        "load the weights without the optimizer's state",
        log=with_(raised(0, **STATE, packages=("", "vllm"), frames=("vllm/a.py in load_state_dict",)))),
    fails("log_framework_failed", "probably a mistake in trl: its class Generation reads its own attribute tools",
        "--upgrade trl", log=with_(raised(0, **OWN, packages=("", "transformers", "trl")))),
    fails("log_framework_failed", "openrlhf and vllm probably do not fit each other: LLMEngine has no model_executor",
        "pip show vllm openrlhf", log=with_(raised(0, **LLM, packages=("openrlhf", "vllm")))),
    fails("log_framework_failed", "sentence-transformers got nothing to work on: rows is empty",
        "Check what the caller",
        log=with_(raised(0, **ITEMS, packages=("", "transformers", "sentence_transformers")))),
    well("log_framework_failed", "no such exception",  # either of the two can be too short
        log=with_(raised(0, **ITEMS | {"code": "first = rows[0] + sizes[i]"},
                         packages=("", "transformers", "sentence_transformers")))),
    fails("log_framework_failed", "deepspeed failed in its own code, on a value that is None",
        "pip show deepspeed torch",
        log=with_(raised(0, **NONE, packages=("", "accelerate", "torch", "deepspeed")))),
    fails("log_framework_failed", "deepspeed failed in its own code, probably a mistake of this release", "--upgrade",
        log=with_(raised(0, type="KeyError", message="torch.bfloat16", packages=("", "deepspeed")))),
    fails("log_framework_failed", "ms-swift took an exception for a result: the real failure is the OSError",
        "Find that OSError", log=with_(raised(0, type="AttributeError", packages=("swift",),
                                              message="'OSError' object has no attribute 'choices'"))),
    well("log_framework_failed", "no such exception",  # a reward function of the script
        log=with_(raised(0, **NONE, packages=("", "trl", "")))),
    well("log_framework_failed", "no such exception",
        log=with_(raised(0, type="AssertionError", message="assert hidden % heads == 0", packages=("", "megatron")))),
    well("log_framework_failed", "no such exception",  # a field of the data
        log=with_(raised(0, type="KeyError", message="'reward_model'", packages=("", "verl")))),
    well("log_framework_failed", "no such exception",  # possibly the script's own class
        log=with_(raised(0, type="AttributeError", message="'TinyNet' object has no attribute 'gadget'",
                         packages=("", "transformers")))),
    well("log_framework_failed", "no such exception",
        log=with_(raised(0, **NONE, packages=("", "trl"), frames=("trl/data_utils.py in collate",)))),
    well("log_framework_failed", "no such exception",  # this rank's share of the data
        log=with_(raised(2, **NONE, packages=("", "trl")))),
    well("log_framework_failed", "no such exception",  # the package refuses on purpose, with a sentence
        log=with_(raised(0, type="AttributeError", packages=("", "sentence_transformers"),
                         code='raise AttributeError("SparseLoss should not be used alone")',
                         message="SparseLoss should not be used alone. Use it with SpladeLoss."))),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


ENV = "/opt/env/lib/python3.11/site-packages"


@pytest.mark.parametrize(
    ("banner", "version"),
    [
        ("Initializing a V1 LLM engine (v0.8.2) with config: model='x'", "vllm 0.8.2"),
        ("vllm==0.9.1", "vllm 0.9.1"),
        ("FutureWarning: `x` will be removed in vllm 0.12. Upgrade to vllm 0.11.", "vllm"),
    ],
)
def test_a_version_that_the_log_shows_is_named(tmp_path: Path, banner: str, version: str) -> None:
    text = (
        f"{banner}\nTraceback (most recent call last):\n"
        f'  File "/ws/ms-swift/swift/llm/infer/engine.py", line 69, in __init__\n    self._prepare_engine()\n'
        f'  File "{ENV}/vllm/distributed/parallel_state.py", line 188, in __init__\n'
        "    assert self.cpu_group is not None\nAssertionError\n"
    )
    (tmp_path / "run.log").write_text(text, "utf-8")
    first = root_cause.find_cause(read.read_logs([tmp_path / "run.log"], row_matching.signature_rows()), None).first
    assert first is not None and first.outcome.problem is not None
    assert first.outcome.problem.title.startswith(f"ms-swift and {version} probably do not fit each other")
