"""Is this PyTorch new enough, and built with what several GPUs need?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.planning.requirements import version_numbers
from mgpu.snapshot import Driver, Plan, Pytorch, TorchRuntime, Visible

from .._gpus import usable_count
from ._wheels import install_command

_PYTORCH = "https://pytorch.org/get-started/locally/"
# The oldest PyTorch that mgpu supports. accelerate 1.15 itself requires 2.0.
_OLDEST = (2, 4)


@check(Severity.WARNING, source="https://github.com/huggingface/accelerate (setup.py)", because_of=("torch_missing",))
def torch_too_old(pytorch: Pytorch) -> Answer:
    """PyTorch is older than mgpu supports.

    Why: Before 2.4, FSDP2 is missing and collectives behave differently. mgpu was not tested with these versions.

    Fix: Update torch.
    """
    version = version_numbers(pytorch.version)
    if not version:
        return Skip("torch's version is unknown")
    if version[:2] < _OLDEST:
        return Problem(
            f"torch {pytorch.version}, 2.4 or newer is required",
            "mgpu's smoke test and FSDP2 need 2.4.",
            Fix(commands=("pip install --upgrade torch",)),
            {"torch": pytorch.version},
        )
    return Ok(f"torch {pytorch.version}")


@check(Severity.ERROR, source=_PYTORCH, because_of=("torch_missing",))
def torch_is_cpu_build(pytorch: Pytorch, driver: Driver, plan: Plan) -> Answer:
    """This node has NVIDIA GPUs, but the installed PyTorch was built without CUDA.

    Why: It cannot use the NVIDIA GPUs of this node. accelerate silently trains on the CPU, once per rank.
    More: torch.cuda.is_available() is False. accelerate does not stop. It starts N independent single-process runs on
    the CPU, each of which believes it is the main process, and exits with code 0.

    Fix: Install a CUDA build.
    """
    if not pytorch.installed:
        return Skip("torch is not installed")
    if not driver.any_gpu:
        return Skip("no NVIDIA GPU on this node")
    if pytorch.cuda:
        return Ok(f"built for CUDA {pytorch.cuda}")
    if plan.expect_gpus == 0:
        return Skip("0 GPUs are requested")
    what = f"for ROCm {pytorch.hip}" if pytorch.hip else "for the CPU only"
    return Problem(
        f"torch {pytorch.version} is built {what}",
        fix=Fix(commands=(install_command(driver),)),
        evidence={"torch": pytorch.version, "cuda": pytorch.cuda, "hip": pytorch.hip},
    )


@check(Severity.ERROR, source="https://pytorch.org/docs/stable/distributed.html", because_of=("torch_is_cpu_build",))
def torch_without_nccl(
    torch_runtime: TorchRuntime, pytorch: Pytorch, driver: Driver, visible: Visible, plan: Plan
) -> Answer:
    """This PyTorch build has CUDA but no NCCL.

    Why: GPU ranks cannot exchange gradients.
    More: Without NCCL the ranks cannot exchange gradients between GPUs. init_process_group("nccl") raises an error.

    Fix: Install PyTorch's own wheel.
    More: Builds from other sources can lack NCCL.
    """
    if not pytorch.cuda or torch_runtime.nccl_available is None:
        return Skip("torch has no CUDA" if not pytorch.cuda else "the state of torch.distributed is unknown")
    if torch_runtime.nccl_available:
        return Ok(f"built with NCCL {torch_runtime.nccl_version}")
    if usable_count(visible) < 2 and plan.nodes < 2:
        return Skip("a single GPU does not exchange gradients")
    return Problem(
        f"torch {pytorch.version} was built without NCCL",
        fix=Fix(commands=(install_command(driver),)),
        evidence={"torch": pytorch.version},
    )


@check(Severity.ERROR, source="https://pytorch.org/docs/stable/distributed.html", because_of=("torch_import_fails",))
def torch_without_distributed(torch_runtime: TorchRuntime, pytorch: Pytorch) -> Answer:
    """This PyTorch build supports neither NCCL nor gloo: it has no torch.distributed.

    Why: Several ranks cannot communicate.
    More: Builds for macOS, Jetson, or with USE_DISTRIBUTED=0 lack it. init_process_group does not exist, and accelerate
    starts ranks that cannot communicate.

    Fix: Install PyTorch's own wheel.
    """
    if torch_runtime.import_error is not None or torch_runtime.gloo_available is None:
        return Skip(
            "torch cannot be imported" if torch_runtime.import_error else "the state of torch.distributed is unknown"
        )
    available = {"nccl": torch_runtime.nccl_available, "gloo": torch_runtime.gloo_available}
    have = [name for name, present in available.items() if present]
    if have:
        return Ok(f"backends: {', '.join(have)}")
    return Problem(
        f"torch {pytorch.version} has no torch.distributed",
        fix=Fix(commands=("pip install --force-reinstall torch",)),
        evidence={"torch": pytorch.version},
    )
