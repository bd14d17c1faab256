"""checks/nccl.py"""

from __future__ import annotations

from dataclasses import replace

import pytest

from mgpu.snapshot import Library, NcclLibrary, Plan
from tests.checks.facts import (
    MIB,
    WHEEL,
    Case,
    fails,
    gpus,
    host,
    informs,
    libraries,
    nccl,
    pytorch,
    seen,
    skips,
    system,
    table,
    torch_runtime,
    warns,
    well,
)

WHEELS = {"nvidia-nccl-cu12": "2.27.5", "nvidia-nccl-cu13": "2.29.7"}
BOTH = nccl(replace(WHEEL, version="2.27.5"), wheels=WHEELS)
PRELOADED = NcclLibrary("/usr/lib/libnccl.so.2", "2.21.5", "preload")
UNLIMITED = system(limit_stack_bytes=None)
SYSTEMS = {"nccl": "/usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5"}
NOT_FOUND = "libnccl-net-ofi.so: cannot open shared object file: No such file or directory"
NO_NET = Library("nccl-net", "ofi", "system", loads=False, error=NOT_FOUND)
NO_TUNER = Library("nccl-tuner", "mine", "system", loads=False, error="mine: file too short")


def release(version: str) -> NcclLibrary:
    return NcclLibrary("/x/libnccl.so.2", version, "wheel")


CASES = (
    # nccl_wheels_mixed
    fails("nccl_wheels_mixed",
        "nvidia-nccl-cu12 2.27.5 and nvidia-nccl-cu13 2.29.7", "pip uninstall -y nvidia-nccl-cu12", nccl=BOTH),
    fails("nccl_wheels_mixed", "nvidia-nccl-cu12 2.27.5", "--no-deps nvidia-nccl-cu13==2.29.7", nccl=BOTH),
    fails("nccl_wheels_mixed", "nvidia-nccl-cu12 2.27.5", "uninstall", nccl=replace(BOTH, libraries=())),
    # xgboost brings nvidia-nccl-cu12, and torch's own came last
    well("nccl_wheels_mixed",
        "nvidia-nccl-cu12 and nvidia-nccl-cu13: their shared file is 2.29.7, torch requires 2.29.7",
        nccl=nccl(wheels=WHEELS)),
    well("nccl_wheels_mixed", "nvidia-nccl-cu13 2.29.7 only"),
    skips("nccl_wheels_mixed", "no NCCL wheel", nccl=nccl(wheels={})),
    skips("nccl_wheels_mixed", "torch requires no NCCL wheel, other packages do",
        nccl=BOTH, pytorch=pytorch(nccl_required=None)),
    # nccl_not_the_wheels
    warns("nccl_not_the_wheels", "LD_PRELOAD loads NCCL 2.21.5 instead of the wheel's 2.29.7", "unset LD_PRELOAD",
        nccl=nccl(PRELOADED, WHEEL)),
    well("nccl_not_the_wheels", "NCCL 2.29.7 from /opt/env/", nccl=nccl(WHEEL, PRELOADED)),
    well("nccl_not_the_wheels", "NCCL 2.21.5 from /usr/lib",
        nccl=nccl(NcclLibrary("/usr/lib/libnccl.so.2", "2.21.5", "system"))),
    well("nccl_not_the_wheels", "NCCL 2.21.5 from /usr/lib",  # an image's torch, and a wheel of another package
        nccl=nccl(NcclLibrary("/usr/lib/libnccl.so.2", "2.21.5", "system"), WHEEL)),
    skips("nccl_not_the_wheels", "no NCCL library", nccl=nccl(libraries=())),
    skips("nccl_not_the_wheels", "no NCCL library", pytorch=pytorch(cuda=None)),
    # nccl_not_as_required
    warns("nccl_not_as_required",
        "nvidia-nccl-cu13 2.28.9, torch requires 2.29.7", "pip install --no-deps nvidia-nccl-cu13==2.29.7",
        nccl=nccl(wheels={"nvidia-nccl-cu13": "2.28.9"})),
    warns("nccl_not_as_required", "nvidia-nccl-cu13 is missing, torch requires 2.29.7", "pip install",
        nccl=nccl(wheels={"nvidia-nccl-cu12": "2.27.5"})),
    well("nccl_not_as_required", "nvidia-nccl-cu13 2.29.7, as torch requires"),
    well("nccl_not_as_required", "torch requires 2.28.9, which has a known bug",
        pytorch=pytorch(nccl_required="nvidia-nccl-cu13==2.28.9"), host=host(machine="aarch64")),
    warns("nccl_not_as_required", "nvidia-nccl-cu13 2.29.7, torch requires 2.28.9", "nvidia-nccl-cu13==2.28.9",
        pytorch=pytorch(nccl_required="nvidia-nccl-cu13==2.28.9")),  # the bug is one of ARM
    skips("nccl_not_as_required", "pins no NCCL wheel", pytorch=pytorch(nccl_required=None)),
    skips("nccl_not_as_required", "pins no NCCL wheel", nccl=nccl(wheels={})),
    # nccl_stack_unlimited: NCCL before 2.28
    warns("nccl_stack_unlimited", "ulimit -s is unlimited, NCCL is 2.27.7", "ulimit -s 8192",
        system=UNLIMITED, nccl=nccl(NcclLibrary("/x", "2.27.7", "wheel"))),
    well("nccl_stack_unlimited", "NCCL 2.28 works with an unlimited stack",
        system=UNLIMITED, nccl=nccl(NcclLibrary("/x", "2.28", "wheel"))),
    well("nccl_stack_unlimited", "NCCL 2.28.0 works with an unlimited stack",
        system=UNLIMITED, nccl=nccl(NcclLibrary("/x", "2.28.0", "wheel"))),
    well("nccl_stack_unlimited", "stack limit 8192 KiB",
        system=system(limit_stack_bytes=8 * MIB), nccl=nccl(NcclLibrary("/x", "2.27.7", "wheel"))),
    skips("nccl_stack_unlimited", "no NCCL library", system=UNLIMITED, nccl=nccl(NcclLibrary("/x", None, "wheel"))),
    # nccl_loaded_is_another: what the process mapped, asked itself
    warns("nccl_loaded_is_another", "NCCL 2.21.5 is loaded, torch was compiled with 2.29.7", "echo $LD_PRELOAD",
        torch_runtime=torch_runtime(mapped=SYSTEMS, nccl_loaded_version="2.21.5")),
    well("nccl_loaded_is_another", "NCCL 2.29.7 from /opt/env/"),
    well("nccl_loaded_is_another", "2.28.9, with which torch was compiled, has a known bug",
        torch_runtime=torch_runtime(nccl_version="2.28.9"), host=host(machine="aarch64")),
    skips("nccl_loaded_is_another", "torch loads no libnccl: it has none, or links it statically",
        torch_runtime=torch_runtime(mapped={})),
    skips("nccl_loaded_is_another", "/opt/env/lib/nvidia/nccl/lib/libnccl.so.2 does not report its version",
        torch_runtime=torch_runtime(nccl_loaded_version=None)),
    skips("nccl_loaded_is_another", "could not determine what torch loads",
        torch_runtime=torch_runtime(mapped=None)),
    skips("nccl_loaded_is_another", "cannot be imported", torch_runtime=torch_runtime(import_error="OSError")),
    # nccl_not_the_images
    informs("nccl_not_the_images", "NCCL_VERSION=2.21.5-1 in the image, torch uses 2.29.7",
        "No action needed. Do not rely on these variables.",
        env={"NCCL_VERSION": "2.21.5-1", "CUDA_VERSION": "13.0.1"}),
    informs("nccl_not_the_images", "CUDA_VERSION=12.4.1 in the image, torch uses 13.0",
        "No action needed. Do not rely on these variables.",
        env={"CUDA_VERSION": "12.4.1"}),
    well("nccl_not_the_images", "NCCL_VERSION=2.29.7-1", env={"NCCL_VERSION": "2.29.7-1", "CUDA_VERSION": "13.0.2"}),
    skips("nccl_not_the_images", "no version set by an image"),
    skips("nccl_not_the_images", "torch has no CUDA", env={"CUDA_VERSION": "12.4.1"}, pytorch=pytorch(cuda=None)),
    # nccl_version_known_bad: the edges of each range, and of each situation
    warns("nccl_version_known_bad",
        "NCCL 2.25.1: The kernels need more shared memory than this GPU has",
        "nvidia-nccl-cu13>=2.26.2",
        nccl=nccl(release("2.25.1")), gpus=gpus(compute_capability=(12, 0))),
    warns("nccl_version_known_bad", "NCCL 2.25.1: ncclCommAbort hangs", ">=2.26.2", nccl=nccl(release("2.25.1"))),
    warns("nccl_version_known_bad", "NCCL 2.25.1: ncclCommAbort hangs",
        "Use an image or package with NCCL 2.26.2 or newer. /usr/lib/libnccl.so.2 is not from a wheel.",
        nccl=nccl(NcclLibrary("/usr/lib/libnccl.so.2", "2.25.1", "system"))),
    skips("nccl_version_known_bad", "NCCL is not used with a single GPU",
        nccl=nccl(release("2.25.1")), gpus=gpus(1), visible=seen(0)),
    well("nccl_version_known_bad", "no known bug of NCCL 2.26.2 affects this machine",
        nccl=nccl(release("2.26.2")), gpus=gpus(compute_capability=(12, 0))),
    well("nccl_version_known_bad", "NCCL 2.24.3", nccl=nccl(release("2.24.3"))),
    warns("nccl_version_known_bad", "NCCL 2.18.1: Tree with LL128 corrupts data", "export NCCL_PROTO='^LL128'",
        nccl=nccl(release("2.18.1")), plan=Plan(nodes=2)),
    well("nccl_version_known_bad", "NCCL 2.18.1", nccl=nccl(release("2.18.1"))),
    well("nccl_version_known_bad", "NCCL 2.18.3", nccl=nccl(release("2.18.3")), plan=Plan(nodes=2)),
    warns("nccl_version_known_bad",
        "NCCL 2.14.3: All-reduce between two H100 GPUs hangs (Ring with LL128). Fixed in 2.15.5.",
        ">=2.15.5",
        nccl=nccl(release("2.14.3")), gpus=gpus(2)),
    well("nccl_version_known_bad", "NCCL 2.14.3", nccl=nccl(release("2.14.3")), gpus=gpus(4)),
    well("nccl_version_known_bad", "NCCL 2.15.5", nccl=nccl(release("2.15.5")), gpus=gpus(2)),
    well("nccl_version_known_bad", "NCCL 9.0.0", nccl=nccl(release("9.0.0"))),
    skips("nccl_version_known_bad", "no NCCL library", nccl=nccl(libraries=())),
    # nccl_version_known_bad: rows that depend on more than the GPU; every row is tested in test_known_faults.py
    warns("nccl_version_known_bad", "NCCL 2.28.9: Proxy slots leak on ARM", "'nvidia-nccl-cu13>=2.29.3'",
        nccl=nccl(release("2.28.9")), host=host(machine="aarch64")),
    well("nccl_version_known_bad", "no known bug of NCCL 2.28.9 affects this machine", nccl=nccl(release("2.28.9"))),
    well("nccl_version_known_bad", "; not known: compute capability",
        nccl=nccl(release("2.24.3")), gpus=gpus(4, compute_capability=None)),
    # nccl_plugin_not_loadable
    warns("nccl_plugin_not_loadable", "nccl-net plugin ofi cannot be loaded", "unset NCCL_NET_PLUGIN",
        libraries=libraries(NO_NET), plan=Plan(nodes=2)),
    warns("nccl_plugin_not_loadable", "nccl-tuner plugin mine cannot be loaded", "unset NCCL_TUNER_PLUGIN",
        libraries=libraries(NO_TUNER)),
    well("nccl_plugin_not_loadable", "ofi cannot be loaded, but a single-node run needs no network plugin",
        libraries=libraries(NO_NET)),
    well("nccl_plugin_not_loadable", "/opt/ofi/libnccl-net.so can be loaded",
        libraries=libraries(Library("nccl-net", "/opt/ofi/libnccl-net.so", "library_path", None, True))),
    well("nccl_plugin_not_loadable", "no plugin configured"),
    skips("nccl_plugin_not_loadable", "could not determine whether the plugins load",
        libraries=libraries(Library("nccl-net", "ofi", "system"))),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()
