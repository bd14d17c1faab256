"""checks/kernel_log.py"""

from __future__ import annotations

import pytest

from mgpu.snapshot import KernelEvent, Plan
from tests.checks.facts import Case, event, host, informs, kernel_log, problem, skips, table, warns, well

DAY = 86400.0
TWO_NODES = Plan(nodes=2)


def line(kind: str, text: str, **changes: object) -> KernelEvent:
    return event(kind, None, **{"process": None, "pci": None, "text": text, **changes})


def killed(text: str, **changes: object) -> KernelEvent:
    return line("oom", text, process="python (pid 4711)", **changes)


def limited(width: int = 4, capable: int = 16, speed: str = "8.0", **changes: object) -> KernelEvent:
    text = (
        f"pci 0000:1a:00.0: 31.504 Gb/s available PCIe bandwidth, limited by {speed} GT/s PCIe x{width} link at "
        f"0000:00:1c.0 (capable of 252.048 Gb/s with 16.0 GT/s PCIe x{capable} link)"
    )
    return line("pcie", text, **{"pci": "0000:1a:00.0", "gpu": 2, "seconds_ago": 9 * DAY, **changes})


GROUP = "Memory cgroup out of memory: Killed process 4711 (python) total-vm:99000000kB, anon-rss:64000000kB"
WHOLE = "Out of memory: Killed process 4711 (python) total-vm:99000000kB"
HUNG = "INFO: task python:4711 blocked for more than 122 seconds."
AER = "nvidia 0000:1a:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Requester ID)"
EDAC = "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0"
DOWN = "mlx5_core 0000:5c:00.0 eth2: Link down"
HOT = "mlx5_core 0000:5c:00.0: Port module event[error]: module 0, Cable error, High Temperature"
POWER = "mlx5_core 0000:5c:00.0: mlx5_pcie_event:299:(pid 268269): Detected insufficient power on the PCIe slot (27W)."
DISK = "Buffer I/O error on dev dm-0, logical block 1308098575, lost async page write"
SILENT = "nfs: server 10.1.2.3 not responding, still trying"
SOFT = "nfs: server 10.1.2.3 not responding, timed out"
BACK = "nfs: server 10.1.2.3 OK"

CASES = (
    # oom_killer_struck: of the job, or of the machine
    informs("oom_killer_struck", "python (pid 4711) was killed by the OOM killer 2 min ago", "sbatch --mem=0",
        kernel_log=kernel_log(killed(GROUP))),
    informs("oom_killer_struck", "(2 kills in a day)", "docker run --memory",
        kernel_log=kernel_log(killed(WHOLE), killed(GROUP))),
    well("oom_killer_struck", "no OOM kill in the kernel log (last 24 h)"),
    well("oom_killer_struck", "no OOM kill", kernel_log=kernel_log(killed(GROUP, seconds_ago=DAY + 1))),
    skips("oom_killer_struck", "not checked", kernel_log=None),
    # process_hung_in_kernel
    warns("process_hung_in_kernel", "python (pid 4711) hung in the kernel, last 2 min ago", "blocked for more",
        kernel_log=kernel_log(line("hung_task", HUNG, process="python (pid 4711)"))),
    well("process_hung_in_kernel", "no hung process"),
    well("process_hung_in_kernel", "no hung process",
        kernel_log=kernel_log(line("hung_task", HUNG, process="python (pid 4711)", seconds_ago=DAY + 1))),
    # pcie_bandwidth_limited: fewer lanes; a lower speed alone may be an idle link
    warns("pcie_bandwidth_limited",
        "GPU 2 (0000:1a:00.0): 31.504 of 252.048 Gb/s, an x4 link at 0000:00:1c.0 instead of x16",
        "sudo lspci -vv -s 0000:00:1c.0", kernel_log=kernel_log(limited())),
    warns("pcie_bandwidth_limited", "(and 1 more device)", "lspci",
        kernel_log=kernel_log(limited(), limited(pci="0000:1b:00.0", gpu=3))),
    well("pcie_bandwidth_limited", "no PCIe link with too few lanes", kernel_log=kernel_log(limited(16))),
    well("pcie_bandwidth_limited", "no PCIe link", kernel_log=kernel_log(limited(16, speed="2.5"))),
    well("pcie_bandwidth_limited", "no PCIe link", kernel_log=kernel_log(limited(gpu=None))),
    well("pcie_bandwidth_limited", "no PCIe link", kernel_log=kernel_log(limited(), limited(16))),
    well("pcie_bandwidth_limited", "no PCIe link", kernel_log=kernel_log(line("pcie", "cut off", gpu=2))),
    skips("pcie_bandwidth_limited", "virtual machine", kernel_log=kernel_log(limited()), host=host(virtual="KVM")),
    # pcie_error_logged
    warns("pcie_error_logged", "GPU 2 (0000:1a:00.0): uncorrected PCIe error 2 min ago", "lspci -s 0000:1a:00.0",
        kernel_log=kernel_log(line("aer", AER, pci="0000:1a:00.0", gpu=2))),
    warns("pcie_error_logged", "the device at 0000:17:00.0", "lspci",
        kernel_log=kernel_log(line("aer", AER, pci="0000:17:00.0"))),
    well("pcie_error_logged", "no uncorrected PCIe error"),
    well("pcie_error_logged", "no uncorrected",
        kernel_log=kernel_log(line("aer", AER, pci="0000:17:00.0", seconds_ago=DAY + 1))),
    # host_memory_faulty
    warns("host_memory_faulty", "uncorrected error in the host's memory or CPU 2 min ago", "ras-mc-ctl",
        kernel_log=kernel_log(line("mce", EDAC))),
    well("host_memory_faulty", "no uncorrected host memory error in the kernel log (last 24 h)"),
    # nic_link_flapped: five times in a day, and only where the network matters
    warns("nic_link_flapped", "0000:5c:00.0 went down 5 times in a day", "cable and transceiver",
        plan=TWO_NODES, kernel_log=kernel_log(*[line("nic", DOWN, pci="0000:5c:00.0")] * 5)),
    well("nic_link_flapped", "no flapping link", plan=TWO_NODES,
        kernel_log=kernel_log(*[line("nic", DOWN, pci="0000:5c:00.0")] * 4, line("nic", DOWN, pci="0000:5d:00.0"))),
    well("nic_link_flapped", "no flapping link", plan=TWO_NODES,
        kernel_log=kernel_log(*[line("nic", DOWN, pci="0000:5c:00.0", seconds_ago=DAY + 1)] * 9)),
    skips("nic_link_flapped", "single-node run (--nodes)",
        kernel_log=kernel_log(*[line("nic", DOWN, pci="0000:5c:00.0")] * 5)),
    # nic_faulty
    warns("nic_faulty", "the network adapter at 0000:5c:00.0 reported an overheated transceiver 2 min ago", "cooling",
        plan=TWO_NODES, kernel_log=kernel_log(line("nic", HOT, pci="0000:5c:00.0"))),
    warns("nic_faulty", "the network adapter reported a fault 2 min ago", "mlxlink", plan=TWO_NODES,
        kernel_log=kernel_log(line("nic", "mlx5_core 0000:5c:00.0: health compromised - reached miss count"))),
    well("nic_faulty", "no network adapter fault in the kernel log (last 24 h)",
        plan=TWO_NODES, kernel_log=kernel_log(line("nic", DOWN), line("nic", POWER))),
    skips("nic_faulty", "single-node run (--nodes)", kernel_log=kernel_log(line("nic", HOT))),
    # nic_slot_power_low: announced by many boards that are well
    informs("nic_slot_power_low", "the slot of the network adapter at 0000:5c:00.0 advertises too little power",
        "Nothing", plan=TWO_NODES,
        kernel_log=kernel_log(line("nic", POWER, pci="0000:5c:00.0"))),
    well("nic_slot_power_low", "no network adapter reports too little slot power", plan=TWO_NODES),
    skips("nic_slot_power_low", "single-node run (--nodes)"),
    # disk_error_logged
    warns("disk_error_logged", "disk error 2 min ago: Buffer I/O error on dev dm-0", "lsblk",
        kernel_log=kernel_log(line("disk", DISK))),
    well("disk_error_logged", "no disk error"),
    well("disk_error_logged", "no disk error", kernel_log=kernel_log(line("disk", SILENT))),
    well("disk_error_logged", "no disk error", kernel_log=kernel_log(line("disk", DISK, seconds_ago=DAY + 1))),
    # nfs_server_silent: until the kernel says OK
    warns("nfs_server_silent", "NFS server 10.1.2.3 does not respond (last logged 2 min ago)", "findmnt",
        kernel_log=kernel_log(line("disk", SILENT))),
    warns("nfs_server_silent", "NFS server 10.1.2.3", "findmnt",
        kernel_log=kernel_log(line("disk", BACK), line("disk", SILENT, seconds_ago=3 * DAY))),
    # of a soft mount it never says OK
    warns("nfs_server_silent", "NFS server 10.1.2.3 does not respond (last logged 10 min ago)", "findmnt",
        kernel_log=kernel_log(line("disk", SOFT, seconds_ago=600.0))),
    skips("nfs_server_silent", "10.1.2.3 timed out 10 min ago, and the log does not show whether it is back",
        kernel_log=kernel_log(line("disk", SOFT, seconds_ago=601.0))),
    well("nfs_server_silent", "no unresponsive NFS server in the kernel log (last 24 h), 1 recovered",
        kernel_log=kernel_log(line("disk", SILENT), line("disk", BACK))),
    well("nfs_server_silent", "no unresponsive NFS server in the kernel log (last 24 h)",
        kernel_log=kernel_log(line("disk", DISK))),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


def test_the_limit_of_the_job_is_told_from_a_full_machine() -> None:
    assert "process's cgroup" in problem("oom_killer_struck", kernel_log=kernel_log(killed(GROUP))).cause
    assert "The machine ran out of memory" in problem("oom_killer_struck", kernel_log=kernel_log(killed(WHOLE))).cause
