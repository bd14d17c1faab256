"""Do all nodes have the same software?"""

from __future__ import annotations

from mgpu.check import Answer, Severity, check
from mgpu.snapshot import Fleet

from ._families import judge
from ._ways import ON_NODES

_NVML = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlInitializationAndCleanup.html"
_TORCH = "python -c 'import torch; print(torch.__version__, torch.__file__)'"


@check(Severity.ERROR, source=_NVML)
def fleet_driver_silent(fleet: Fleet) -> Answer:
    """The NVIDIA driver does not respond on some nodes, or responds differently than on the rest.

    Why: Ranks there fail at their first CUDA call, and the ranks on all other nodes wait for them.
    More: The driver is not loaded, its library belongs to another version, or a GPU fell off the bus.

    Fix: Run nvidia-smi there, and contact an administrator.
    More: Exclude the node, and have it drained until nvidia-smi works there.
    """
    return judge(fleet, "driver_silent", "same NVML state", f"{ON_NODES} nvidia-smi -L")


@check(Severity.ERROR, source="https://github.com/pytorch/pytorch/pull/175023")
def fleet_torch_differs(fleet: Fleet) -> Answer:
    """Some nodes have a different PyTorch version.

    Why: Ranks with different torch versions cannot train together: they fail or hang at the first collective.
    More: torch.distributed expects the same version everywhere without checking it: another one has another NCCL,
    other defaults and other store formats.

    Fix: Use the same environment on every node. See which one those nodes use:
    More: the command shows it. A shared file system or a container provides one for all nodes.
    """
    return judge(fleet, "torch", "same torch", f"{ON_NODES} {_TORCH}")


@check(Severity.ERROR, source="https://github.com/NVIDIA/nccl/blob/master/src/init.cc")
def fleet_nccl_differs(fleet: Fleet) -> Answer:
    """Some nodes would load a different NCCL version.

    Why: NCCL stops with "Mismatched NCCL version detected", or hangs.
    More: A library from LD_LIBRARY_PATH, LD_PRELOAD or a module is found before the wheel's. Older versions hang.

    Fix: See where it comes from there; LD_LIBRARY_PATH, LD_PRELOAD and modules take precedence over the wheel.
    More: Remove the setting that adds the other library.
    """
    return judge(
        fleet, "nccl", "same NCCL", f"{ON_NODES} bash -c 'env | grep LD_; pip list 2>/dev/null | grep -i nccl'"
    )


@check(Severity.WARNING, source="https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html")
def fleet_driver_differs(fleet: Fleet) -> Answer:
    """Some nodes have a different NVIDIA driver version.

    Why: They can train together as long as every driver supports torch's CUDA version, at the speed of the slowest.
    More: Each rank's NCCL chooses transports and algorithms according to its driver. If the older driver does not
    support the CUDA version that torch was built with, its ranks fail.

    Fix: have the same driver version installed everywhere.
    """
    return judge(
        fleet,
        "driver",
        "same driver",
        f"{ON_NODES} nvidia-smi --query-gpu=driver_version --format=csv,noheader -i 0",
        fix="Have driver {usual} installed on those nodes.",
    )


@check(Severity.WARNING, source="https://github.com/pytorch/pytorch/issues/108212")
def fleet_accelerate_differs(fleet: Fleet) -> Answer:
    """Some nodes have a different accelerate version.

    Why: Each version reads the same config by its own rules.
    More: The launchers use different defaults, and a key that one version accepts stops the launch with another.

    Fix: Install the same version there.
    """
    return judge(fleet, "accelerate", "same accelerate", f"{ON_NODES} pip install 'accelerate=={{usual:id}}'")


@check(Severity.WARNING, source="https://docs.python.org/3/library/pickle.html#data-stream-format")
def fleet_python_differs(fleet: Fleet) -> Answer:
    """Some nodes run a different Python version.

    Why: Another interpreter has its own packages, and objects that ranks pickle for each other may be incompatible.
    More: It usually means another environment.

    Fix: Activate the same environment on every node, by its full path. See which one is active there:
    More: the command shows it.
    """
    return judge(
        fleet, "python", "same Python", f"{ON_NODES} python -c 'import sys; print(sys.version, sys.executable)'"
    )


@check(Severity.WARNING, source="https://github.com/pytorch/pytorch/issues/108212")
def fleet_packages_differ(fleet: Fleet) -> Answer:
    """Some nodes have different package versions.

    Why: Ranks with different code compute different results, or fail while the others wait.
    More: Tokenization, collation or attention may differ without any message. If a package is missing on one node,
    only its ranks fail.

    Fix: Use the same environment on every node. See the difference:
    More: the command shows it.
    """
    return judge(fleet, "packages", "same packages", f"{ON_NODES} pip list --format=freeze")


@check(Severity.INFO, source="https://github.com/pytorch/pytorch/issues/108212")
def fleet_libraries_differ(fleet: Fleet) -> Answer:
    """Some nodes have different CUDA libraries or tools.

    Why: torch prefers its own libraries; these matter if something is compiled on the node.
    More: The system's libraries also matter if a library path contains them.

    Fix: If extensions are built there, load the same modules on every node.
    """
    return judge(fleet, "libraries", "same libraries")


@check(Severity.INFO, source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html")
def fleet_system_differs(fleet: Fleet) -> Answer:
    """Some nodes have a different kernel, operating system or container.

    Why: They were installed or booted at another time. That seldom matters, but explains other differences.

    Fix: Nothing, unless these nodes behave differently.
    """
    return judge(fleet, "system", "same operating system")


@check(Severity.WARNING, source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html")
def fleet_environment_differs(fleet: Fleet) -> Answer:
    """Some nodes have different environment variables.

    Why: With different NCCL, CUDA or torch variables, ranks behave differently and may hang.
    More: NCCL requires equal values on all ranks for variables that select an algorithm, a protocol or a network.
    Differences usually come from shell startup files on single nodes.

    Fix: Set it in the job script for all nodes, or unset it there. See where it comes from:
    More: the command shows it.
    """
    return judge(fleet, "environment", "same variables", f"{ON_NODES} bash -lc 'env | grep {{key:name}}'")


@check(Severity.ERROR, source="https://huggingface.co/docs/accelerate/basic_tutorials/launch")
def fleet_config_differs(fleet: Fleet) -> Answer:
    """Some nodes have a different accelerate config.

    Why: Each node's launcher reads its own copy: ranks with different precision, sharding or count do not match.
    More: They hang, or train something else.

    Fix: Put the config on a shared file system.
    """
    return judge(fleet, "config", "same config", "sbcast --force accelerate.yaml /tmp/accelerate.yaml")


@check(Severity.ERROR, source="https://docs.pytorch.org/docs/stable/elastic/run.html")
def fleet_script_differs(fleet: Fleet) -> Answer:
    """Some nodes have a different training script.

    Why: Ranks with different code call different collectives: they hang, or train something else.
    More: Or they call the same collectives with different sizes.

    Fix: Put the script on a shared file system.
    """
    return judge(fleet, "script", "same script", f"{ON_NODES} sha256sum train.py")
