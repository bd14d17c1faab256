"""What assertions without a message mean, and which change a message about options asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from checks import _conditions, _option_relations
from mgpu.engine import root_cause
from mgpu.readers.log import read

MEGATRON = "/opt/Megatron-LM/megatron/training/arguments.py"
PACKAGE = "/opt/env/lib/python3.13/site-packages/vllm/config/model.py"


def judged(tmp_path: Path, text: str) -> tuple[str, str, str]:
    """The id, the title, and the cause with all fixes."""
    path = tmp_path / "run.log"
    path.write_text(text, "utf-8")
    first = root_cause.find_cause(read.read_logs([path]), None).first
    assert first is not None and first.outcome.problem is not None
    problem = first.outcome.problem
    return first.id, problem.title, " | ".join((problem.cause, *(fix.text for fix in problem.fixes)))


def failed(file: str, code: str, function: str = "validate_args") -> str:
    return f'Traceback (most recent call last):\n  File "{file}", line 9, in {function}\n    {code}\nAssertionError\n'


@pytest.mark.parametrize(("code", "text", "settings"), [
    ("assert args.save_interval is not None", "args.save_interval is not set (None)", ("save_interval",)),
    ("assert not args.bf16", "args.bf16 is set, which is not allowed here", ("bf16",)),
    ("assert args.a % args.b == 0", "args.a must be a multiple of args.b, and is not", ("a", "b")),
    ("assert (n % (a * b) == 0), \\", "n must be a multiple of a * b, and is not", ()),
    ("assert config['lr'] > 0, f'no'", "config['lr'] must be greater than 0", ("lr",)),
    ("assert args.kind in ['a', 'b']", "args.kind must be one of ['a', 'b']", ("kind",)),
    ("assert args.x is None or args.y is None", "none of this is true: args.x is None; args.y is None", ("x", "y")),
    ("assert os.path.exists(args.load), 'x'", "args.load does not exist on this node", ("load",)),
    ("assert not torch.isnan(loss).any()", "loss is NaN", ()),
    ("assert torch.cuda.is_available()", "torch sees no GPU", ()),
    ("assert isinstance(x, str)", "x is not of the type str", ()),
    ("assert config.a.b == 'c'", "config.a.b must equal 'c'", ("b",)),
])  # fmt: skip
def test_a_condition_is_put_into_words(code: str, text: str, settings: tuple[str, ...]) -> None:
    assert _conditions.explain(code) == _conditions.Condition(text, settings)


@pytest.mark.parametrize("code", ["assert (", "assert any(x is not None", "raise ValueError()", "assert f(x)"])
def test_an_incomplete_line_says_nothing(code: str) -> None:
    assert _conditions.explain(code) is None


def test_a_missing_setting_is_no_mistake_of_the_package(tmp_path: Path) -> None:
    found, title, rest = judged(tmp_path, failed(MEGATRON, "assert args.micro_batch_size is not None"))
    assert found == "log_settings_rejected"
    assert title.endswith("args.micro_batch_size is not set (None)")
    assert "Change --micro-batch-size" in rest
    assert judged(tmp_path, failed(PACKAGE, "assert self._state is not None", "run"))[0] == "log_framework_failed"


@pytest.mark.parametrize(("code", "row", "title"), [
    ("assert args.hidden_size % args.num_attention_heads == 0", "log_assertion_of_multiples", "width is not a"),
    ("assert self.total_num_heads % tp_size == 0", "log_assertion_of_multiples", "attention heads cannot be divided"),
    ("assert args.save_retain_interval % args.save_interval == 0", "log_assertion_of_multiples", "one interval"),
    ("assert torch.distributed.is_initialized()", "log_assertion_of_launch", "group of connected ranks"),
])  # fmt: skip
def test_well_known_assertions_have_their_meaning(code: str, row: str, title: str, tmp_path: Path) -> None:
    found = judged(tmp_path, failed(PACKAGE, code))
    assert found[0] == row and title in found[1]


def test_an_assertion_in_several_lines_is_read_whole(tmp_path: Path) -> None:
    """Python 3.13 shows all its lines, and underlines the part that failed."""
    code = "assert (\n        args.lr\n        > args.min_lr\n        ^^^^^^^^^^^^^\n    )"
    assert "args.lr must be greater than args.min_lr" in judged(tmp_path, failed(MEGATRON, code))[1]


@pytest.mark.parametrize(("message", "fix"), [
    ("Must use --overlap-param-gather with --overlap-grad-reduce",
     "Set --overlap-grad-reduce too, or leave out --overlap-param-gather."),
    ("--dcp-replicate-q-proj requires --dcp-size > 1.", "Set --dcp-size > 1 too, or leave out --dcp-replicate-q-proj."),
    ("--fp4-format and --fp8-format cannot be used simultaneously.",
     "Leave out --fp4-format or --fp8-format: they cannot be combined."),
    ("--enable-a does not support --enable-b: the pool differs.",
     "Leave out --enable-a or --enable-b: they cannot be combined."),
    ("--batch-size argument is no longer valid, use --micro-batch-size instead",
     "Replace --batch-size with --micro-batch-size."),
    ("max_iters must be specified in default_args", "Set max_iters."),
])  # fmt: skip
def test_the_change_that_a_message_asks_for(message: str, fix: str) -> None:
    found = _option_relations.fix_of(message)
    assert found is not None and found.text == fix


@pytest.mark.parametrize("message", [
    "local_path and hdfs_path cannot be both None",
    "`XGBoostTrainer` requires the `xgboost` version to be >= 1.7.0.",
    "eval_interval is set, but there is no dataset",
    "the loss is not finite",
])  # fmt: skip
def test_other_messages_ask_for_no_such_change(message: str) -> None:
    assert _option_relations.fix_of(message) is None


def test_a_part_of_a_config_that_the_package_fills_is_its_own_state(tmp_path: Path) -> None:
    text = failed(PACKAGE.replace("config/model", "v1/worker"), "assert self.vllm_config.x is not None", "run")
    assert judged(tmp_path, text)[0] == "log_framework_failed"
