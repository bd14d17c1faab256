"""Is this PyTorch new enough, and built with what several GPUs need?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.planning.requirements import numbers
from mgpu.snapshot import Driver, Plan, Pytorch, TorchRuntime, Visible

from .._gpus import usable_count
from ._wheels import install

_PYTORCH = "https://pytorch.org/get-started/locally/"
# The oldest PyTorch mgpu supports; accelerate 1.15 itself asks for 2.0.
_OLDEST = (2, 4)


@check(Severity.WARNING, source="https://github.com/huggingface/accelerate (setup.py)", because_of=("torch_missing",))
def torch_too_old(pytorch: Pytorch) -> Answer:
    """PyTorch is older than mgpu supports.

    Why: before 2.4 FSDP2 is missing and collectives behave differently; what mgpu verifies was not tried there.

    Fix: update torch.
    """
    version = numbers(pytorch.version)
    if not version:
        return Skip("torch's version is not known")
    if version[:2] < _OLDEST:
        return Problem(
            f"torch {pytorch.version}, 2.4 or newer wanted",
            "mgpu's smoke test and FSDP2 need 2.4.",
            Fix("Update torch.", ("pip install --upgrade torch",)),
            {"torch": pytorch.version},
        )
    return Ok(f"torch {pytorch.version}")


@check(Severity.ERROR, source=_PYTORCH, because_of=("torch_missing",))
def torch_is_cpu_build(pytorch: Pytorch, driver: Driver, plan: Plan) -> Answer:
    """This machine has NVIDIA GPUs, and the installed PyTorch was built without CUDA.

    Why: torch.cuda.is_available() is False. accelerate does not stop: it starts N trainings on the CPU that do not know
    of each other, each of them "main", with exit code 0.

    Fix: install a CUDA build.
    """
    if not pytorch.installed:
        return Skip("torch is not installed")
    if not driver.any_gpu:
        return Skip("no NVIDIA GPU on this machine")
    if pytorch.cuda:
        return Ok(f"built for CUDA {pytorch.cuda}")
    if plan.expect_gpus == 0:
        return Skip("0 GPUs are wanted")
    what = f"for ROCm {pytorch.hip}" if pytorch.hip else "for the CPU only"
    return Problem(
        f"torch {pytorch.version} is built {what}",
        "It cannot use the NVIDIA GPUs of this machine; accelerate would quietly train on the CPU, once per rank.",
        Fix("Install a CUDA build.", (install(driver),)),
        {"torch": pytorch.version, "cuda": pytorch.cuda, "hip": pytorch.hip},
    )


@check(Severity.ERROR, source="https://pytorch.org/docs/stable/distributed.html", because_of=("torch_is_cpu_build",))
def torch_without_nccl(
    torch_runtime: TorchRuntime, pytorch: Pytorch, driver: Driver, visible: Visible, plan: Plan
) -> Answer:
    """This PyTorch build has CUDA but no NCCL.

    Why: without NCCL the ranks cannot exchange gradients between GPUs; init_process_group("nccl") raises.

    Fix: install the Linux wheel from PyPI or PyTorch's index; builds of other origin may leave NCCL out.
    """
    if not pytorch.cuda or torch_runtime.nccl_available is None:
        return Skip("torch has no CUDA" if not pytorch.cuda else "torch.distributed is not known")
    if torch_runtime.nccl_available:
        return Ok(f"built with NCCL {torch_runtime.nccl_version}")
    if usable_count(visible) < 2 and plan.nodes < 2:
        return Skip("one GPU has none to exchange gradients with")
    return Problem(
        f"torch {pytorch.version} was built without NCCL",
        "GPU ranks have no way to exchange gradients.",
        Fix("Install PyTorch's own wheel.", (install(driver),)),
        {"torch": pytorch.version},
    )


@check(Severity.ERROR, source="https://pytorch.org/docs/stable/distributed.html", because_of=("torch_import_fails",))
def torch_without_distributed(torch_runtime: TorchRuntime, pytorch: Pytorch) -> Answer:
    """This PyTorch build can do neither NCCL nor gloo: it has no torch.distributed.

    Why: builds for macOS, Jetson, or made with USE_DISTRIBUTED=0 leave it out. init_process_group does not exist, and
    accelerate starts ranks that cannot meet.

    Fix: install PyTorch's own wheel.
    """
    if torch_runtime.import_error is not None or torch_runtime.gloo_available is None:
        return Skip("torch cannot be imported" if torch_runtime.import_error else "torch.distributed is not known")
    have = [n for n, there in (("nccl", torch_runtime.nccl_available), ("gloo", torch_runtime.gloo_available)) if there]
    if have:
        return Ok(f"backends: {', '.join(have)}")
    return Problem(
        f"torch {pytorch.version} has no torch.distributed",
        "Several ranks have no way to meet.",
        Fix("Install PyTorch's own wheel.", ("pip install --force-reinstall torch",)),
        {"torch": pytorch.version},
    )
