"""Sizes that must divide each other: the remedy is about the two that the message or the assertion names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import frames
from tests.test_log_meanings import SCRIPT, explained, traceback

VALIDATE = "mgpu configure --validate"
MEGATRON = "/opt/Megatron-LM/megatron/core/transformer/transformer_block.py"


@pytest.mark.parametrize(
    ("message", "title", "words", "absent"),
    [
        ("num_layers should be divisible by pipeline_model_parallel_size", "layers cannot be divided evenly over the "
         "pipeline stages", "--pipeline-model-parallel-size N", "Change the batch"),
        ("number of layers (30) must be divisible by pp_size 4", "over the pipeline stages", ": 1, 2, 3, 5, 6, 10",
         "Change the batch"),
        ("num_layers_per_rank 5 must be divisible by num_layers_per_virtual_pipeline_stage", "pipeline stages",
         "virtual stages", "Change the batch"),
        ("num_attention_heads 28 must be divisible by ulysses_sp_size 8", "attention heads cannot be divided evenly "
         "over the sequence-parallel ranks", ": 1, 2, 4, 7, 14, 28", "pipeline"),
        ("num_query_groups (2) must be divisible by tensor_model_parallel_size (4)", "key-value heads cannot",
         "grouped-query", "pipeline"),
        ("Number of experts (60) should be a multiple of tensor parallel", "sizes do not fit",
         "the two sizes", "accelerate"),
        ("num_experts (60) must be divisible by expert_model_parallel_size (8)", "over the expert-parallel ranks",
         ": 1, 2, 3, 4, 5, 6, 10", "pipeline"),
        ("vocab_size 32001 must be divisible by tp_size", "vocabulary cannot", "--make-vocab-size-divisible-by",
         "pipeline"),
        ("global batch size (10) is not divisible by micro batch size (4) times data parallel size (2)",
         "the batch cannot be divided evenly over the data-parallel ranks", "micro batch x data-parallel", "stages"),
        ("world size (12) is not divisible by tensor_parallel (4) x pipeline_parallel (2)", "the number of ranks is "
         "not a multiple of the parallel sizes", "whole number of copies", "batch"),
        ("world_size (1) is not divisible by 2", "only one process was started", "torchrun", "batch"),
        ("num_heads (6) must be divisible by the world size", "sizes do not fit", "the two sizes", "accelerate"),
    ],
)  # fmt: skip
def test_the_named_quantities_decide(message: str, title: str, words: str, absent: str, tmp_path: Path) -> None:
    calls = frames((SCRIPT, "main", "model = build(cfg)"), (MEGATRON, "check", "assert a % b == 0, ("))
    row, found, text = explained(tmp_path, f"{calls}AssertionError: {message}\n")
    assert row == "log_sizes_do_not_divide" and title in found, (row, found)
    assert words in text and absent not in text and VALIDATE not in text, text


@pytest.mark.parametrize(
    "message",
    ["world size (12) is not divisible by tensor_parallel (4)", "the global batch 9 must be divisible by 2 ranks",
     "dp_shard_size 3 must be a multiple of the number of nodes"],
)  # fmt: skip
def test_only_a_run_with_accelerate_has_its_config(message: str, tmp_path: Path) -> None:
    for package, expected in (("accelerate", True), ("torchtitan", False)):
        text = explained(tmp_path, traceback(f"ValueError: {message}", SCRIPT, f"{package}/parallel.py", raised=True))[
            2
        ]
        assert (VALIDATE in text) == expected, text


@pytest.mark.parametrize(
    ("code", "title"),
    [
        ("assert config.num_layers % config.pipeline_model_parallel_size == 0", "pipeline stages: config.num_layers"),
        ("assert (num_experts % self.ep_size == 0)", "expert-parallel ranks"),
        ("assert args.global_batch % dp_size == 0", "data-parallel ranks"),
        ("assert seq_len % cp_size == 0", "context-parallel ranks"),
        ("assert self.total_num_heads % tp_size == 0", "the model's attention heads cannot be divided over"),  # a case
        ("assert width % patch == 0", "a size is not a multiple of another one, as the script requires"),
    ],
)
def test_an_assertion_without_a_message(code: str, title: str, tmp_path: Path) -> None:
    row, found, _ = explained(
        tmp_path, frames((SCRIPT, "main", "run()"), (MEGATRON, "check", code)) + "AssertionError\n"
    )
    assert row == "log_assertion_of_multiples" and title in found, found
