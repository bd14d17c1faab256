"""Does every node have the same software?"""

from __future__ import annotations

from mgpu.check import Answer, Severity, check
from mgpu.snapshot import Fleet

from ._families import judged

_SHOW = "srun -N{count:number} -w {nodes:hosts} --ntasks-per-node=1 --label"
_TORCH = "python -c 'import torch; print(torch.__version__, torch.__file__)'"


@check(
    Severity.ERROR,
    source="https://docs.nvidia.com/deploy/nvml-api/group__nvmlInitializationAndCleanup.html",
)
def fleet_driver_silent(fleet: Fleet) -> Answer:
    """The NVIDIA driver does not answer on some nodes, or answers otherwise than on the rest.

    Why: the driver is not loaded, its library belongs to another version, or a GPU has fallen off the bus. Ranks on
    such a node fail at their first CUDA call, while all others wait for them in the first collective.

    Fix: leave the node out, and have it drained until nvidia-smi works there.
    """
    return judged(
        fleet, "driver_silent", "NVML answers alike",
        "Ranks there fail at their first CUDA call; the ranks of all other nodes wait for them.",
        "See what the driver says there, and tell the admins.", (f"{_SHOW} nvidia-smi -L",),
    )  # fmt: skip


@check(Severity.ERROR, source="https://github.com/pytorch/pytorch/pull/175023")
def fleet_torch_differs(fleet: Fleet) -> Answer:
    """Some nodes have another PyTorch than the others.

    Why: torch.distributed expects one version everywhere and checks nothing: ranks with another one bring another NCCL,
    other defaults and other formats of the store, and the job fails or hangs in its first collective.

    Fix: one environment for all nodes, on a shared file system or in a container.
    """
    return judged(
        fleet, "torch", "one torch",
        "Ranks of different torch versions do not train together: they fail or hang at the first collective.",
        "Give every node the same environment. See which one those nodes take:", (f"{_SHOW} {_TORCH}",),
    )  # fmt: skip


@check(Severity.ERROR, source="https://github.com/NVIDIA/nccl/blob/master/src/init.cc")
def fleet_nccl_differs(fleet: Fleet) -> Answer:
    """Some nodes would load another NCCL than the others.

    Why: a library from LD_LIBRARY_PATH, LD_PRELOAD or a module is found before that of the wheel. NCCL refuses a
    communicator of two versions ("Mismatched NCCL version detected"), and older ones hang in it.

    Fix: take away what brings the other library in.
    """
    return judged(
        fleet, "nccl", "one NCCL",
        'NCCL ends with "Mismatched NCCL version detected", or hangs.',
        "See where it comes from there; LD_LIBRARY_PATH, LD_PRELOAD and modules come before the wheel.",
        (f"{_SHOW} bash -c 'env | grep LD_; pip list 2>/dev/null | grep -i nccl'",),
    )  # fmt: skip


@check(Severity.WARNING, source="https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html")
def fleet_driver_differs(fleet: Fleet) -> Answer:
    """Some nodes have another NVIDIA driver than the others.

    Why: NCCL chooses transports and algorithms by what the driver can do, each rank for itself. Mostly this is only
    slower; where the older driver does not serve the CUDA that torch was built with, its ranks fail.

    Fix: have the driver brought to one version.
    """
    return judged(
        fleet, "driver", "one driver",
        "They train together as long as every driver serves the CUDA of torch, and as fast as the slowest of them.",
        "Have the driver of those nodes brought to {usual}.",
        (f"{_SHOW} nvidia-smi --query-gpu=driver_version --format=csv,noheader -i 0",),
    )  # fmt: skip


@check(Severity.WARNING, source="https://github.com/pytorch/pytorch/issues/108212")
def fleet_accelerate_differs(fleet: Fleet) -> Answer:
    """Some nodes have another accelerate than the others.

    Why: each node's launcher reads the config by its own rules and starts its ranks by its own defaults: keys that one
    version knows end the launch on another.

    Fix: one environment for all nodes.
    """
    return judged(
        fleet, "accelerate", "one accelerate",
        "Each node's launcher reads the same config by its own rules.",
        "Install the same version there.", (f"{_SHOW} pip install 'accelerate=={{usual:id}}'",),
    )  # fmt: skip


@check(Severity.WARNING, source="https://docs.python.org/3/library/pickle.html#data-stream-format")
def fleet_python_differs(fleet: Fleet) -> Answer:
    """Some nodes run another Python than the others.

    Why: another interpreter means another environment, with its own packages; objects that ranks send each other are
    pickled, and need not be readable in another version.

    Fix: activate the same environment on every node.
    """
    return judged(
        fleet, "python", "one Python",
        "Another interpreter has its own packages, and what ranks pickle for each other need not fit.",
        "Activate the same environment on every node, by its full path. See which one it is there:",
        (f"{_SHOW} python -c 'import sys; print(sys.version, sys.executable)'",),
    )  # fmt: skip


@check(Severity.WARNING, source="https://github.com/pytorch/pytorch/issues/108212")
def fleet_packages_differ(fleet: Fleet) -> Answer:
    """Some nodes have other versions of packages than the others.

    Why: ranks that tokenise, collate or attend with different code compute different things from the same step on, and
    nothing says so; a package that is missing on one node ends only its ranks, and the others wait.

    Fix: one environment for all nodes.
    """
    return judged(
        fleet, "packages", "the same packages",
        "Ranks with different code compute different things, or fail alone while the others wait.",
        "Give every node the same environment. See the difference:", (f"{_SHOW} pip list --format=freeze",),
    )  # fmt: skip


@check(Severity.INFO, source="https://github.com/pytorch/pytorch/issues/108212")
def fleet_libraries_differ(fleet: Fleet) -> Answer:
    """Some nodes have other CUDA libraries or tools than the others.

    Why: torch brings its own libraries and prefers them; the system's matter where something is compiled on the node or
    a library path leads there.

    Fix: nothing, unless extensions are built on the nodes.
    """
    return judged(
        fleet, "libraries", "the same libraries",
        "torch prefers its own libraries; these matter where something is compiled on the node.",
        "Load the same modules on every node, where extensions are built there.",
    )  # fmt: skip


@check(Severity.INFO, source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html")
def fleet_system_differs(fleet: Fleet) -> Answer:
    """Some nodes have another kernel, operating system or container than the others.

    Why: they were installed or booted at another time. It seldom matters to a run, and explains other differences.

    Fix: nothing, unless these nodes behave otherwise.
    """
    return judged(
        fleet, "system", "one operating system",
        "They were installed or booted at another time; that seldom matters, and explains other differences.",
        "Nothing, unless these nodes behave otherwise.",
    )  # fmt: skip


@check(Severity.WARNING, source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html")
def fleet_environment_differs(fleet: Fleet) -> Answer:
    """Some nodes have other environment variables than the others.

    Why: NCCL asks that its variables are the same on all ranks where they choose an algorithm, a protocol or a network;
    otherwise ranks wait for each other in different ways. Shell start files of single nodes are where they come from.

    Fix: set them in the job script, for all nodes alike.
    """
    return judged(
        fleet, "environment", "the same variables",
        "Variables of NCCL, CUDA and torch that differ make ranks choose differently, up to a hang.",
        "Set it in the job script for all nodes, or unset it there. See where it comes from:",
        (f"{_SHOW} bash -lc 'env | grep {{key:name}}'",),
    )  # fmt: skip


@check(Severity.ERROR, source="https://huggingface.co/docs/accelerate/basic_tutorials/launch")
def fleet_config_differs(fleet: Fleet) -> Answer:
    """Some nodes read another accelerate config than the others.

    Why: the launcher of each node reads the file for itself. Another number of processes, precision or sharding makes
    ranks that do not fit each other: they hang, or train something else.

    Fix: one file, on a file system that all nodes share.
    """
    return judged(
        fleet, "config", "the same config",
        "Each node's launcher reads its own copy: ranks with another precision, sharding or count do not fit.",
        "Put the config where all nodes see the same file.",
        ("sbcast --force accelerate.yaml /tmp/accelerate.yaml",),
    )  # fmt: skip


@check(Severity.ERROR, source="https://docs.pytorch.org/docs/stable/elastic/run.html")
def fleet_script_differs(fleet: Fleet) -> Answer:
    """Some nodes have another training script than the others.

    Why: ranks of different code call different collectives, or the same ones with other sizes: they hang, or train
    something that neither script describes.

    Fix: one file, on a file system that all nodes share.
    """
    return judged(
        fleet, "script", "the same script",
        "Ranks of different code call different collectives: they hang, or train something else.",
        "Put the script where all nodes see the same file.", (f"{_SHOW} sha256sum train.py",),
    )  # fmt: skip
