"""Does every node have the same software?"""

from __future__ import annotations

from mgpu.check import Answer, Severity, check
from mgpu.snapshot import Fleet

from ._families import ON_NODES, judged

_NVML = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlInitializationAndCleanup.html"
_TORCH = "python -c 'import torch; print(torch.__version__, torch.__file__)'"


@check(Severity.ERROR, source=_NVML)
def fleet_driver_silent(fleet: Fleet) -> Answer:
    """The NVIDIA driver does not answer on some nodes, or answers otherwise than on the rest.

    Why: Ranks there fail at their first CUDA call; the ranks of all other nodes wait for them.
    More: The driver is not loaded, its library belongs to another version, or a GPU has fallen off the bus.

    Fix: See what the driver says there, and tell the admins.
    More: Leave the node out, and have it drained until nvidia-smi works there.
    """
    return judged(fleet, "driver_silent", "NVML answers alike", f"{ON_NODES} nvidia-smi -L")


@check(Severity.ERROR, source="https://github.com/pytorch/pytorch/pull/175023")
def fleet_torch_differs(fleet: Fleet) -> Answer:
    """Some nodes have another PyTorch than the others.

    Why: Ranks of different torch versions do not train together: they fail or hang at the first collective.
    More: torch.distributed expects one version everywhere and checks nothing: another one brings another NCCL, other
    defaults and other formats of the store.

    Fix: Give every node the same environment. See which one those nodes take:
    More: the command shows it. A shared file system or a container holds one for all.
    """
    return judged(fleet, "torch", "one torch", f"{ON_NODES} {_TORCH}")


@check(Severity.ERROR, source="https://github.com/NVIDIA/nccl/blob/master/src/init.cc")
def fleet_nccl_differs(fleet: Fleet) -> Answer:
    """Some nodes would load another NCCL than the others.

    Why: NCCL ends with "Mismatched NCCL version detected", or hangs.
    More: A library from LD_LIBRARY_PATH, LD_PRELOAD or a module is found before that of the wheel; older versions hang.

    Fix: See where it comes from there; LD_LIBRARY_PATH, LD_PRELOAD and modules come before the wheel.
    More: Take away what brings the other library in.
    """
    return judged(
        fleet, "nccl", "one NCCL", f"{ON_NODES} bash -c 'env | grep LD_; pip list 2>/dev/null | grep -i nccl'"
    )


@check(Severity.WARNING, source="https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html")
def fleet_driver_differs(fleet: Fleet) -> Answer:
    """Some nodes have another NVIDIA driver than the others.

    Why: They train together as long as every driver serves the CUDA of torch, and as fast as the slowest of them.
    More: NCCL chooses transports and algorithms by what the driver can do, each rank for itself. Where the older driver
    does not serve the CUDA that torch was built with, its ranks fail.

    Fix: have the driver brought to one version.
    """
    return judged(
        fleet,
        "driver",
        "one driver",
        f"{ON_NODES} nvidia-smi --query-gpu=driver_version --format=csv,noheader -i 0",
        fix="Have the driver of those nodes brought to {usual}.",
    )


@check(Severity.WARNING, source="https://github.com/pytorch/pytorch/issues/108212")
def fleet_accelerate_differs(fleet: Fleet) -> Answer:
    """Some nodes have another accelerate than the others.

    Why: Each node's launcher reads the same config by its own rules.
    More: It starts its ranks by its own defaults: keys that one version knows end the launch on another.

    Fix: Install the same version there.
    """
    return judged(fleet, "accelerate", "one accelerate", f"{ON_NODES} pip install 'accelerate=={{usual:id}}'")


@check(Severity.WARNING, source="https://docs.python.org/3/library/pickle.html#data-stream-format")
def fleet_python_differs(fleet: Fleet) -> Answer:
    """Some nodes run another Python than the others.

    Why: Another interpreter has its own packages, and what ranks pickle for each other need not fit.
    More: It means another environment.

    Fix: Activate the same environment on every node, by its full path. See which one it is there:
    More: the command shows it.
    """
    return judged(
        fleet, "python", "one Python", f"{ON_NODES} python -c 'import sys; print(sys.version, sys.executable)'"
    )


@check(Severity.WARNING, source="https://github.com/pytorch/pytorch/issues/108212")
def fleet_packages_differ(fleet: Fleet) -> Answer:
    """Some nodes have other versions of packages than the others.

    Why: Ranks with different code compute different things, or fail alone while the others wait.
    More: Ranks tokenise, collate or attend with that code, and nothing says so; a package that is missing on one node
    ends only its ranks.

    Fix: Give every node the same environment. See the difference:
    More: the command shows it.
    """
    return judged(fleet, "packages", "the same packages", f"{ON_NODES} pip list --format=freeze")


@check(Severity.INFO, source="https://github.com/pytorch/pytorch/issues/108212")
def fleet_libraries_differ(fleet: Fleet) -> Answer:
    """Some nodes have other CUDA libraries or tools than the others.

    Why: torch prefers its own libraries; these matter where something is compiled on the node.
    More: The system's matter too where a library path leads to them.

    Fix: Load the same modules on every node, where extensions are built there.
    """
    return judged(fleet, "libraries", "the same libraries")


@check(Severity.INFO, source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html")
def fleet_system_differs(fleet: Fleet) -> Answer:
    """Some nodes have another kernel, operating system or container than the others.

    Why: They were installed or booted at another time; that seldom matters, and explains other differences.

    Fix: Nothing, unless these nodes behave otherwise.
    """
    return judged(fleet, "system", "one operating system")


@check(Severity.WARNING, source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html")
def fleet_environment_differs(fleet: Fleet) -> Answer:
    """Some nodes have other environment variables than the others.

    Why: Variables of NCCL, CUDA and torch that differ make ranks choose differently, up to a hang.
    More: NCCL asks that its variables are the same on all ranks where they choose an algorithm, a protocol or a
    network. Shell start files of single nodes are where they come from.

    Fix: Set it in the job script for all nodes, or unset it there. See where it comes from:
    More: the command shows it.
    """
    return judged(fleet, "environment", "the same variables", f"{ON_NODES} bash -lc 'env | grep {{key:name}}'")


@check(Severity.ERROR, source="https://huggingface.co/docs/accelerate/basic_tutorials/launch")
def fleet_config_differs(fleet: Fleet) -> Answer:
    """Some nodes read another accelerate config than the others.

    Why: Each node's launcher reads its own copy: ranks with another precision, sharding or count do not fit.
    More: They hang, or train something else.

    Fix: Put the config where all nodes see the same file.
    """
    return judged(fleet, "config", "the same config", "sbcast --force accelerate.yaml /tmp/accelerate.yaml")


@check(Severity.ERROR, source="https://docs.pytorch.org/docs/stable/elastic/run.html")
def fleet_script_differs(fleet: Fleet) -> Answer:
    """Some nodes have another training script than the others.

    Why: Ranks of different code call different collectives: they hang, or train something else.
    More: Or the same ones with other sizes.

    Fix: Put the script where all nodes see the same file.
    """
    return judged(fleet, "script", "the same script", f"{ON_NODES} sha256sum train.py")
