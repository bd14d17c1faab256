"""Does the script need a GPU although its ranks run on the CPU?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Severity, Skip, check, commands
from mgpu.planning.requirements import GPU_TYPES
from mgpu.snapshot import Config, Driver, Script, ScriptCall

from ._calls import INIT, argument, calls, finding, text_of
from ._rank_paths import in_every_run, is_per_sample

_DEVICES = "https://docs.pytorch.org/docs/stable/notes/cuda.html"
_ON_CUDA = re.compile(r"cuda(?::\d+)?")


@check(Severity.WARNING, source=_DEVICES, tags=("leads_to_gpu_error",))
def script_needs_cuda_on_cpu_ranks(script: Script, config: Config, driver: Driver) -> Answer:
    """The script uses CUDA or NCCL, but its ranks run on the CPU.

    Why: Without a GPU, torch raises "Torch not compiled with CUDA enabled" or "Found no NVIDIA driver" at this line,
    in every rank. Installing another torch does not change that.

    Fix: Choose the device at run time, or run on a machine with GPUs.
    """
    if script.error:
        return Skip(f"the script was not read: {script.error}")
    if not config.on_cpu and (driver.any_gpu or config.distributed_type not in GPU_TYPES):
        return Ok("the ranks run on GPUs")
    own = {one.name.rpartition(".")[2] for one in script.functions}
    for call in in_every_run(script, [call for call in script.calls if _needs_cuda(call, own)]):
        if not is_per_sample(script, call):
            device = (
                "accelerator.device"
                if script.speaks == "accelerate"
                else 'device = "cuda" if torch.cuda.is_available() else "cpu"'
            )
            return finding(
                script,
                call,
                f"{call.name.rpartition('.')[2]} needs a GPU, but the ranks run on the CPU",
                (commands(device), Fix("Or run it on a machine with GPUs.")),
            )
    for call in in_every_run(script, calls(script, re.escape(INIT))):
        if text_of(argument(call, 0, "backend")) == "nccl":
            return finding(
                script,
                call,
                "NCCL needs a GPU, but the ranks run on the CPU",
                commands('dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")'),
            )
    return Ok("no visible line needs a GPU")


def _needs_cuda(call: ScriptCall, own: set[str]) -> bool:
    """Whether a call fails without a GPU, whatever the machine.

    `own`: the names of the script's functions, which may choose another device themselves.
    """
    last = call.name.rpartition(".")[2]
    if call.name == "torch.cuda.set_device" or (last == "cuda" and call.name not in ("torch.cuda", "cuda")):
        return "cuda" not in own
    device = call.keywords.get("device") if call.name.startswith("torch.") or last == "to" else None
    texts = [device, *(call.arguments[:1] if last == "to" else ())]
    return not call.name.startswith("torch.device") and any(_ON_CUDA.fullmatch(text_of(text) or "") for text in texts)
