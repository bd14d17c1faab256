"""Does NCCL get the real PCI topology?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Container, Gpu, Host, Link, Pci, Visible, bus_address
from mgpu.text import counted, listed

from .._gpus import gpu_subjects

_TROUBLE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"


@check(Severity.WARNING, source=f"{_TROUBLE}#topology-detection")
def pci_tree_hidden(pci: Pci, gpus: tuple[Gpu, ...], visible: Visible, container: Container) -> Answer:
    """The GPUs cannot be found in /sys.

    Why: NCCL cannot detect which devices are close to each other, and treats all as equally distant.
    More: This happens in a container whose /sys is masked or belongs to another machine. The result is wrong rings, no
    GPUDirect RDMA, and a fraction of the speed.

    Fix: give the container access to the host's /sys.
    """
    known = [gpu for gpu in gpus if gpu.index in visible.gpus and gpu.pci]
    if container.wsl:
        return Skip("WSL has no PCI bus to show")
    if len(known) < 2:
        return Skip("fewer than two GPUs with a known PCI address")
    gone = [gpu for gpu in known if pci.at(gpu.pci) is None]
    if not gone:
        return Ok(f"{counted(len(known), 'GPU')} found in /sys")
    return Problem(
        f"/sys shows {len(known) - len(gone)} of {len(known)} visible GPUs on the PCI bus",
        fix=Fix(
            commands=("docker run -v /sys:/sys:ro ...",) if container.kind else ("ls -l /sys/bus/pci/devices",),
            who="admin",
        ),
        evidence={"readable": pci.readable, "missing": listed(bus_address(gpu.pci or "") for gpu in gone[:8])},
        subjects=gpu_subjects(gone),
    )


@check(Severity.WARNING, source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-topo-file")
def topology_file_misfit(pci: Pci, gpus: tuple[Gpu, ...], env: Mapping[str, str]) -> Answer:
    """NCCL's topology file does not describe this machine.

    Why: the file is for another machine type, and NCCL would build its rings for that one.
    More: NCCL_TOPO_FILE defines which GPUs and network adapters are close to each other, and NCCL trusts it. With wrong
    rings the bandwidth can drop to a tenth.

    Fix: use the file for this machine type, or none.
    """
    path = pci.topology_file
    if path is None:
        return Skip("no NCCL topology file is set")
    named = env.get("NCCL_TOPO_FILE")
    undo = Fix(commands=("unset NCCL_TOPO_FILE",) if named else (), who="you")
    if pci.topology_error is not None:
        return Problem(
            f"NCCL_TOPO_FILE {path} cannot be read: {pci.topology_error}",
            "NCCL continues without it and uses the topology that /sys shows.",
            undo,
            {"file": path, "error": pci.topology_error},
        )
    here = {bus_address(gpu.pci) for gpu in gpus if gpu.pci}
    described = {bus_address(address) for address in pci.topology_gpus or ()}
    if not here or not described:
        return Skip("the file lists no GPU" if here else "the GPUs' PCI addresses are unknown")
    missing = sorted(here - described)
    if not missing:
        return Ok(f"{path} describes {counted(len(here), 'GPU')} of this machine")
    return Problem(
        f"{path} lacks {len(missing)} of this machine's {len(here)} GPUs",
        fix=undo,
        evidence={"file": path, "missing": listed(missing[:8]), "described": len(described)},
    )


@check(Severity.INFO, source=f"{_TROUBLE}#topology-detection")
def vm_topology_flat(
    host: Host, pci: Pci, gpus: tuple[Gpu, ...], links: tuple[Link, ...], visible: Visible, container: Container
) -> Answer:
    """This virtual machine hides the PCIe switches above its GPUs.

    Why: NCCL cannot detect which GPUs are close to each other and uses host memory, which works but is slower.
    More: Direct transfers also need ATS, which few providers enable. If it is enabled only partly, the first collective
    hangs.

    Fix: ask the provider for a topology file, and set NCCL_TOPO_FILE to it.
    More: If a run hangs, set NCCL_P2P_DISABLE=1.
    """
    if not host.virtual or container.wsl:
        return Skip("not a virtual machine" if not host.virtual else "WSL has no PCI bus to show")
    devices = [found for gpu in gpus if gpu.index in visible.gpus and (found := pci.at(gpu.pci)) and found.path]
    if len(devices) < 2:
        return Skip("fewer than two GPUs with a known PCI address")
    if any(link.nvlinks for link in links):
        return Ok("the GPUs are connected by NVLink")
    if any(len(device.path) > 1 for device in devices):
        return Ok("the bus shows the switches above the GPUs")
    if pci.topology_gpus:
        return Ok(f"flat, and {pci.topology_file} describes it")
    return Problem(
        f"{host.virtual}: {len(devices)} GPUs directly on the root bus",
        fix=(
            Fix(),
            Fix(
                "If the run hangs in its first collective, disable peer-to-peer transfers.",
                ("export NCCL_P2P_DISABLE=1",),
                kind="stopgap",
                caveat="transfers go through host memory, as they mostly do here anyway",
            ),
        ),
        evidence={"hypervisor": host.virtual, "gpus": len(devices)},
    )
