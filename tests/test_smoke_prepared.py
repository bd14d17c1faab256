"""What does accelerate's own config change for the steps that the smoke test takes through it, and what cannot be
tried?"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")


def accelerator(deepspeed: Any = None, dynamo: str = "NO", parallel: Any = None) -> Any:
    plugin = None if deepspeed is None else SimpleNamespace(deepspeed_config=deepspeed)
    state = SimpleNamespace(
        deepspeed_plugin=plugin, dynamo_plugin=SimpleNamespace(backend=SimpleNamespace(value=dynamo))
    )
    return SimpleNamespace(
        state=state, gradient_accumulation_steps=1, parallelism_config=SimpleNamespace(**parallel) if parallel else None
    )


def test_deepspeeds_own_config_has_the_last_word() -> None:
    """Its count of micro-steps, and that it clips gradients, which the reference does not."""
    from mgpu.smoke.ranks import prepared

    assert prepared._micro_steps(accelerator({"gradient_accumulation_steps": 8})) == 8
    assert prepared._micro_steps(accelerator({"gradient_accumulation_steps": "auto"})) == 1
    assert prepared._micro_steps(accelerator()) == 1
    assert prepared._clips(accelerator({"gradient_clipping": "auto"}))
    assert not prepared._clips(accelerator({})) and not prepared._clips(accelerator())


def test_a_compiler_gets_its_time() -> None:
    """torch.compile may take longer than the stall limit."""
    from mgpu.smoke.ranks import prepared

    assert prepared._compiles(accelerator(dynamo="INDUCTOR")) and not prepared._compiles(accelerator())


@pytest.mark.parametrize(
    ("found", "precision", "parallel", "said"),
    [
        ("MULTI_GPU", "bf16", {}, None),
        ("MULTI_GPU", "bf16", {"dp_replicate_size": 2, "tp_size": 1, "cp_size": 1}, None),
        ("MULTI_GPU", "bf16", {"tp_size": 2}, "tp_size 2"),
        ("FSDP", "no", {"cp_size": 4}, "cp_size 4"),
        ("MEGATRON_LM", "bf16", {}, "Megatron-LM"),
        ("MULTI_GPU", "fp8", {}, "fp8"),
    ],
)
def test_what_cannot_be_tried_is_said(found: str, precision: str, parallel: dict[str, int], said: str | None) -> None:
    """Not failed, and not claimed."""
    from mgpu.smoke.ranks import prepared

    here: Any = SimpleNamespace(orders=SimpleNamespace(precision=precision))
    reason = prepared._skip_reason(here, accelerator(parallel=parallel), found)
    assert reason is None if said is None else said in str(reason)
