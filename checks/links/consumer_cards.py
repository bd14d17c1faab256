"""Does peer access between consumer cards do what the driver reports?

NVIDIA's driver refuses peer access over PCIe between GeForce RTX 40 and 50 cards. Modified drivers and virtual machines
grant it, and then the reported access can be broken: NCCL relies on it, hangs or computes wrong numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Gpu, Kernel, Link, Nccl, Visible
from mgpu.text import counted

from .._gpus import gpu_subjects
from .._nccl_settings import effective_value
from .._wording import gpu_list
from ._pairs import has_peer_access, links_in_use

_GEFORCE = re.compile(r"GeForce")
_MODIFIED = re.compile(r"GeForce RTX [45]0\d\d")  # NVIDIA's own driver refuses peer access between these
_PASSED_THROUGH = 1  # nvmlGpuVirtualizationMode_t
_STATIC_BAR1 = "RMForceStaticBar1=1"
_MIB = 1 << 20

_P2P_OFF = Fix(
    "Disable peer-to-peer transfers in NCCL until then.",
    ("export NCCL_P2P_DISABLE=1",),
    kind="stopgap",
    caveat="gradients go through host memory",
)


def _granted_over_pcie(links: tuple[Link, ...], visible: Visible, cards: Mapping[int, Gpu]) -> list[Link]:
    """Return the pairs of these cards with peer access that is not NVLink."""
    pairs = (link for link in links_in_use(links, visible) if link.a in cards and link.b in cards)
    return [link for link in pairs if has_peer_access(link) and not link.nvlinks]


@check(
    Severity.WARNING,
    source="https://github.com/NVIDIA/nccl/issues/2335",
    because_of=("iommu_translates_peer_traffic",),
)
def peer_access_is_a_mirror(
    gpus: tuple[Gpu, ...], links: tuple[Link, ...], visible: Visible, env: Mapping[str, str], nccl: Nccl
) -> Answer:
    """GeForce cards passed through to a virtual machine report peer access.

    Why: the window to the other card can be a private copy, so NCCL hangs or adds wrong numbers.
    More: QEMU's x-nv-gpudirect-clique makes the driver grant the access. A card then reads back what it wrote, while
    the other card's memory stays unchanged. Copies between the cards look correct.

    Fix: remove x-nv-gpudirect-clique from the virtual machine.
    """
    cards = {g.index: g for g in gpus if _GEFORCE.search(g.name or "") and g.virtualization == _PASSED_THROUGH}
    if not cards:
        return Skip("no GeForce card that is passed through")
    pairs = _granted_over_pcie(links, visible, cards)
    if not pairs:
        return Ok(f"no peer access over PCIe between {counted(len(cards), 'passed-through card')}")
    if effective_value("NCCL_P2P_DISABLE", env, nccl) == "1":
        return Ok("NCCL_P2P_DISABLE is set")
    used = sorted({index for link in pairs for index in (link.a, link.b)})
    return Problem(
        f"{gpu_list(used)}: peer access over PCIe between passed-through GeForce cards",
        fix=(Fix(who="admin"), _P2P_OFF),
        evidence={f"gpu_{link.a}_{link.b}": link.topology for link in pairs[:8]},
        subjects=gpu_subjects(cards[index] for index in used),
    )


@check(
    Severity.WARNING,
    source="https://github.com/noonghunna/club-3090/pull/874",
    because_of=("rtx40_peer_access_misreported",),
)
def peer_access_exceeds_bar1(
    gpus: tuple[Gpu, ...], links: tuple[Link, ...], visible: Visible, env: Mapping[str, str], nccl: Nccl
) -> Answer:
    """A modified driver grants peer access, but a card's PCIe window is smaller than its memory.

    Why: the modified driver maps the whole memory through this window (BAR1). NCCL hangs in its start.
    More: Peer access over PCIe between GeForce RTX 40 and 50 cards exists only with a modified driver. If the window
    does not cover the memory, the driver still reports peer access, but no data arrives.

    Fix: turn on Above 4G Decoding and Resizable BAR in the BIOS.
    """
    cards = {gpu.index: gpu for gpu in gpus if _MODIFIED.search(gpu.name or "")}
    pairs = _granted_over_pcie(links, visible, cards)
    if not pairs:
        return Skip("no peer access over PCIe between GeForce RTX 40 or 50 cards")
    used = [cards[index] for index in sorted({index for link in pairs for index in (link.a, link.b)})]
    known = [gpu for gpu in used if gpu.bar1_total_bytes and gpu.memory_total_bytes]
    if not known:
        return Skip("no GPU here reports its PCIe window")
    bad = [gpu for gpu in known if (gpu.bar1_total_bytes or 0) < (gpu.memory_total_bytes or 0)]
    if not bad:
        return Ok(f"the PCIe window covers the memory of {counted(len(known), 'card')}")
    if effective_value("NCCL_P2P_DISABLE", env, nccl) == "1":
        return Ok("NCCL_P2P_DISABLE is set")
    first = bad[0]
    return Problem(
        f"{gpu_list(gpu.index for gpu in bad)}: PCIe window {(first.bar1_total_bytes or 0) // _MIB} MiB, "
        f"memory {(first.memory_total_bytes or 0) // _MIB} MiB",
        fix=(Fix(commands=("nvidia-smi -q -d MEMORY",), who="admin"), _P2P_OFF),
        evidence={f"gpu_{gpu.index}_bar1_mib": (gpu.bar1_total_bytes or 0) // _MIB for gpu in bad},
        subjects=gpu_subjects(bad),
    )


@check(
    Severity.WARNING,
    source="https://github.com/aikitoria/open-gpu-kernel-modules/pull/34",
    because_of=("peer_access_exceeds_bar1", "rtx40_peer_access_misreported"),
)
def peer_access_with_display(
    gpus: tuple[Gpu, ...],
    links: tuple[Link, ...],
    visible: Visible,
    kernel: Kernel,
    env: Mapping[str, str],
    nccl: Nccl,
) -> Answer:
    """A modified driver grants peer access to a card that also drives a display.

    Why: without RMForceStaticBar1=1 the driver may drop the mapping of that card: its data is wrong or missing.
    More: The driver maps the memory of a card with a display in another way. CUDA still reports peer access for all
    pairs, but transfers from and to that card fail.

    Fix: force the mapping, then reboot.
    """
    cards = {gpu.index: gpu for gpu in gpus if _MODIFIED.search(gpu.name or "")}
    pairs = _granted_over_pcie(links, visible, cards)
    if not pairs:
        return Skip("no peer access over PCIe between GeForce RTX 40 or 50 cards")
    used = {index for link in pairs for index in (link.a, link.b)}
    shown = [cards[index] for index in sorted(used) if cards[index].display_active]
    if not shown:
        if any(cards[index].display_active is None for index in used):
            return Skip("whether a card drives a display is not known")
        return Ok("no card with peer access drives a display")
    if kernel.peer_options is None:
        return Skip("the driver's options cannot be read (/proc/driver/nvidia/params)")
    if _STATIC_BAR1 in kernel.peer_options:
        return Ok(f"the driver has {_STATIC_BAR1}")
    if effective_value("NCCL_P2P_DISABLE", env, nccl) == "1":
        return Ok("NCCL_P2P_DISABLE is set")
    value = ";".join((*kernel.peer_options, _STATIC_BAR1))
    line = f"options nvidia NVreg_RegistryDwords={value}"
    return Problem(
        f"{gpu_list(gpu.index for gpu in shown)} has peer access and a display, and the driver lacks {_STATIC_BAR1}",
        fix=(Fix(f"Write '{line}' to /etc/modprobe.d/nvidia-p2p.conf, then reboot.", who="admin"), _P2P_OFF),
        evidence={"registry_dwords": " ".join(kernel.peer_options) or "none about peer access"},
        subjects=gpu_subjects(shown),
    )
