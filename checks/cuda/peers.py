"""Do copies between GPUs arrive intact?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import GpuRun
from mgpu.text import counted

from ._runs import describe_untested, tested_runs

_IOMMU = "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#iommu-on-linux"
_PEER_TROUBLE = (
    "gpu_memory_corrupts",
    "nvlink_inactive",
    "nvlink_fabric_not_ready",
    "iommu_translates_peer_traffic",
    "pcie_acs_redirects",
    "rtx40_peer_access_misreported",
    "xid_nvlink_failed",
    "nvlink_fabric_degraded",
)


@check(Severity.ERROR, source=_IOMMU, because_of=_PEER_TROUBLE)
def peer_copy_fails(gpu_runs: tuple[GpuRun, ...]) -> Answer:
    """A copy from one GPU to another arrives changed, fails or hangs.

    Why: CUDA reports that the two GPUs can access each other's memory, but something on the path breaks it: IOMMU
    translation, ACS on a PCIe switch or a faulty link. NCCL then hangs at the first collective, or gradients are wrong.

    Fix: turn off IOMMU translation (or set passthrough mode), and ACS on the PCIe switches between the GPUs.
    More: Until then, disable direct access.
    """
    if isinstance(used := tested_runs(gpu_runs), Skip):
        return used
    copies = [(run, peer) for run in used for peer in run.peers]
    if not copies:
        why = next((run.no_peers for run in used if run.no_peers), None)
        return Skip(f"no copy was tested: {why}" if why else "fewer than two GPUs got that far")
    bad = [(run, peer) for run, peer in copies if peer.intact is False or peer.error]
    if not bad:
        direct = sum(peer.access is True for _, peer in copies)
        return Ok(
            f"{counted(len(copies), 'copy', 'copies')} arrived intact, {direct} of them direct"
            f"{describe_untested(gpu_runs)}"
        )
    run, peer = bad[0]
    what = peer.error or "data arrives changed"
    more = f", and {counted(len(bad) - 1, 'other pair')}" if len(bad) > 1 else ""
    return Problem(
        f"copy from GPU {run.index} to GPU {peer.to}: {what}{more}",
        "CUDA offers direct access between them." if peer.access else "The copy goes through host memory.",
        (
            Fix(commands=("grep -o 'iommu[^ ]*' /proc/cmdline", "sudo lspci -vvv | grep -i acsctl"), who="admin"),
            Fix(
                "Disable direct access.",
                ("export NCCL_P2P_DISABLE=1",),
                kind="stopgap",
                caveat="GPUs exchange data through host memory, several times slower.",
            ),
        ),
        {f"gpu_{run.index}_to_{peer.to}": peer.error or "changed" for run, peer in bad},
        tuple(dict.fromkeys(f"GPU {index}" for run, peer in bad for index in (run.index, peer.to))),
    )
