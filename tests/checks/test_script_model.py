"""checks/script/model.py"""

from __future__ import annotations

import pytest

from tests.bad_scripts import bad, good, read
from tests.checks.facts import Case, informs, skips, table, warns, well

HEAD = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("nccl")
rank = dist.get_rank()
model = DDP(torch.nn.Linear(2, 2).to(rank), device_ids=[rank])
"""
ENCODES = HEAD + "model.encode(x)\n"
ASKS = HEAD + "if hasattr(model, 'encode'):\n    model.encode(x)\n"
EVALUATES = "if rank == 0:\n    with torch.no_grad():\n        print(model(x))\n"
PIPELINE = """\
from accelerate import Accelerator
from diffusers import {0}
accelerator = Accelerator()
model = {0}.from_pretrained("runwayml/stable-diffusion")
model, optimizer = accelerator.prepare(model, optimizer)
for batch in loader:
    accelerator.backward(model(batch))
    optimizer.step()
model.save_pretrained("out")
"""
FSDP = HEAD.replace("import DistributedDataParallel as DDP", "import DistributedDataParallel as DDP\nimport deepspeed")

CASES = (
    informs("script_wrapped_model_on_one_rank", "line 21: the wrapped model is called only on rank 0", "model.module(",
        script=bad("collectives-evaluation-through-the-wrapped-model")),
    well("script_wrapped_model_on_one_rank", "1 call",
        script=good("collectives-evaluation-through-the-wrapped-model")),
    well("script_wrapped_model_on_one_rank", "no visible call of a wrapped model", script=read(HEAD)),
    informs("script_wrapped_model_on_one_rank", "only on rank 0", "model.module(", script=read(HEAD + EVALUATES)),
    well("script_wrapped_model_on_one_rank", "does not broadcast buffers", script=read(
        HEAD.replace("[rank])", "[rank], broadcast_buffers=False)") + EVALUATES)),
    warns("script_method_of_wrapped_model", "save_pretrained() is called on the wrapped model", "unwrap_model",
        script=read(PIPELINE.format("UNet2DConditionModel"))),
    well("script_method_of_wrapped_model", "none of a method", script=read(PIPELINE.format("DiffusionPipeline"))),
    warns("script_method_of_wrapped_model", "generate() is called on the wrapped model", "unwrap_model(model).generate",
        script=bad("collectives-method-of-the-wrapped-model")),
    warns("script_method_of_wrapped_model", "line 7: encode() is called", "model.module.encode(", script=read(ENCODES)),
    well("script_method_of_wrapped_model", "2 method calls", script=good("collectives-method-of-the-wrapped-model")),
    well("script_method_of_wrapped_model", "1 method call, none of a method", script=read(ASKS)),
    well("script_method_of_wrapped_model", "2 method calls", script=read(HEAD + "model.eval()\nmodel.parameters()\n")),
    skips("script_method_of_wrapped_model", "forwards", script=read(FSDP + "model.encode(x)\n")),
    warns("script_wrapped_model_not_used", "ddp_model is created but never called: the training loop calls model",
        "ddp_model(...)", script=bad("collectives-wrapper-that-nothing-calls")),
    well("script_wrapped_model_not_used", "1 wrapped model",
        script=good("collectives-wrapper-that-nothing-calls")),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()
