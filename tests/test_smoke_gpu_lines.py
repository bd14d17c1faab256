"""Do the lines of the rungs hold that only ranks on GPUs reach?

Ranks on the CPU that take it for a GPU (tests/scripts/pretends_gpu.py): a slip in Python shows, CUDA does not.
"""

from __future__ import annotations

from pathlib import Path

from mgpu.smoke.ranks import STAGES
from tests.rungs import Case, climb

PRETENDS = "tests.scripts.pretends_gpu:"


def test_all_rungs_with_gpu_lines(tmp_path: Path) -> None:
    """Quick and standard, NCCL by name and gloo, DDP and FSDP2; gloo that fails beside NCCL fails nothing."""
    cases = [
        Case("quick", 2, STAGES, PRETENDS + "patch", orders={"level": "quick", "precision": "fp16"}),
        Case("standard", 2, STAGES, PRETENDS + "patch", orders={"strategy": "fsdp", "fill_percent": 10}),
        Case(
            "gloo", 2, STAGES[:5] + STAGES[7:], PRETENDS + "over_gloo", orders={"strategy": "fsdp", "precision": "bf16"}
        ),
        Case("no gloo", 2, STAGES[:4], PRETENDS + "gloo_has_no_way", orders={"level": "quick"}),
    ]
    ran = climb(tmp_path, cases)
    for name, ranks in ran.items():
        assert [rank.error for rank in ranks.ranks] == [None] * ranks.expected, (name, ranks.ranks)
        assert all(rank.finished for rank in ranks.ranks), (name, ranks.launcher_output)
    standard, gloo = ran["standard"].ranks[0], ran["gloo"].ranks[0]
    assert standard.gpu_name == "NVIDIA Pretended" and standard.gloo_works
    assert {"gemm_tflops_bf16", "h2d_gb_per_s", "memory_filled_mib"} <= set(standard.measured)
    assert {row.backend for row in standard.bandwidth} == {"nccl"}
    assert {row.collective for row in gloo.bandwidth} == {"all_reduce"}
    assert any("gloo needs host memory for them" in one for one in gloo.skipped)
    failed = ran["no gloo"].ranks[0]
    assert failed.gloo_works is False
    assert any("first barrier over gloo: Connect timeout" in one for one in failed.skipped)
