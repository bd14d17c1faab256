"""Does the script need a GPU, or train on one device only, if its ranks run on the CPU?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Severity, Skip, check, commands
from mgpu.command_line import python
from mgpu.planning.requirements import GPU_TYPES
from mgpu.snapshot import Config, Driver, Script, ScriptCall

from ._calls import INIT, LIGHTNING, argument, calls, finding, text_of, trains
from ._rank_paths import in_every_run, is_per_sample, requires_kind

_DEVICES = "https://docs.pytorch.org/docs/stable/notes/cuda.html"
_CPU_COUNT = (
    "https://github.com/Lightning-AI/pytorch-lightning/blob/master/src/lightning/pytorch/trainer/connectors/"
    "accelerator_connector.py"
)
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


@check(Severity.WARNING, source=_CPU_COUNT, given=requires_kind("lightning"))
def script_lightning_default_on_cpu(script: Script, config: Config, driver: Driver) -> Answer:
    """Lightning's Trainer chooses its devices itself, and on a machine without GPUs that is one.

    Why: Without a GPU, accelerator="auto" is the CPU and devices="auto" is 1. Lightning then uses its strategy for a
    single device and ignores the launcher's world size, so each rank trains alone.

    Fix: State the strategy and the number of ranks.
    """
    ranks = config.ranks_here or 1
    if driver.any_gpu or ranks < 2:
        return Ok("there are GPUs" if driver.any_gpu else "one rank")
    made = [call for call in calls(script, LIGHTNING) if call.reached]
    if not trains(script) or len(in_every_run(script, made)) < len(made):
        return Ok("no visible training, or a condition decides which Trainer is created")
    if not made:
        return Ok("no Trainer is created in the code that was read")
    if not all(map(_uses_defaults, made)):
        return Ok("the Trainer has a strategy, an accelerator or a number of devices")
    return finding(
        script,
        made[0],
        "Lightning trains on one device (the default on the CPU): every rank would train alone",
        commands(python('Trainer(accelerator="cpu", strategy="ddp", devices={:number})', ranks)),
    )


def _uses_defaults(call: ScriptCall) -> bool:
    """Whether a Trainer chooses accelerator, devices and strategy itself."""
    if not call.name.endswith("Trainer") or call.arguments or {"num_nodes", "**"} & set(call.keywords):
        return False
    return all(call.keywords.get(name) in (None, "'auto'") for name in ("accelerator", "devices", "strategy"))
