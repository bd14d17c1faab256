"""checks/kernel/"""

from __future__ import annotations

import pytest

from mgpu.snapshot import Plan
from tests.checks.facts import (
    DOCKER,
    GIB,
    Case,
    container,
    driver,
    fails,
    gpu,
    gpus,
    host,
    informs,
    kernel,
    network,
    nic,
    no_driver,
    pci,
    pci_device,
    problem,
    skips,
    slurm,
    system,
    table,
    warns,
    well,
)

NOUVEAU = kernel(modules=("nouveau", "ib_core"), driver_flavour=None)
UNLOADED = no_driver("DRIVER_NOT_LOADED", pci_gpus=4, device_nodes=("/dev/nvidiactl", "/dev/nvidia0"))
CLOSED, OPEN = kernel(driver_flavour="proprietary"), kernel(driver_flavour="open")
B200 = tuple(pci_device(n, device="2901") for n in range(4))
CASES = (
    # kernel_older_than_advised: 5.5
    informs("kernel_older_than_advised", "Linux 5.4.0-216-generic, accelerate recommends 5.5 or newer",
        "mgpu smoke-test",
        host=host(kernel="5.4.0-216-generic")),
    informs("kernel_older_than_advised", "Linux 4.18.0-553.el8.x86_64", "mgpu smoke-test",
        host=host(kernel="4.18.0-553.el8.x86_64")),
    well("kernel_older_than_advised", "Linux 5.5.0-1", host=host(kernel="5.5.0-1")),
    well("kernel_older_than_advised", "Linux 5.15.167.4-microsoft",
        host=host(kernel="5.15.167.4-microsoft-standard-WSL2")),
    well("kernel_older_than_advised", "Linux 5.5-custom",
        host=host(kernel="5.5-custom")),
    skips("kernel_older_than_advised", "'GNU'", host=host(kernel="GNU")),
    # nouveau_holds_gpus
    fails("nouveau_holds_gpus", "nouveau is loaded, NVIDIA's module is not", "blacklist nouveau",
        kernel=NOUVEAU, gpus=(), driver=no_driver(pci_gpus=1)),
    fails("nouveau_holds_gpus", "nouveau is loaded", "sudo reboot", kernel=NOUVEAU, gpus=(), driver=UNLOADED),
    fails("nouveau_holds_gpus", "nova_core is loaded", "sudo reboot",
        kernel=kernel(modules=("nova_core",)), gpus=(), driver=no_driver(pci_gpus=1)),
    well("nouveau_holds_gpus", "nouveau is not loaded"),
    well("nouveau_holds_gpus", "drives another card", kernel=kernel(modules=("nouveau", "nvidia"))),
    well("nouveau_holds_gpus", "drives another card", kernel=NOUVEAU),  # in a container, NVML answers
    skips("nouveau_holds_gpus", "no NVIDIA GPU expected here", kernel=NOUVEAU, gpus=(), driver=no_driver()),
    skips("nouveau_holds_gpus", "no NVIDIA GPU expected here",
        kernel=NOUVEAU, gpus=(), driver=no_driver(pci_gpus=1), plan=Plan(expect_gpus=0)),
    skips("nouveau_holds_gpus", "cannot be read", kernel=kernel(modules=None)),
    # secure_boot_may_refuse_driver
    warns("secure_boot_may_refuse_driver", "Secure Boot is on, NVIDIA's module is not loaded", "sudo mokutil --import",
        kernel=kernel(secure_boot=True), driver=UNLOADED, gpus=()),
    well("secure_boot_may_refuse_driver", "Secure Boot is off", driver=UNLOADED, gpus=()),
    well("secure_boot_may_refuse_driver", "the module is loaded", kernel=kernel(secure_boot=True)),
    skips("secure_boot_may_refuse_driver", "mokutil --sb-state",
        kernel=kernel(secure_boot=None), driver=UNLOADED, gpus=()),
    skips("secure_boot_may_refuse_driver", "no module is missing",
        kernel=kernel(secure_boot=True), driver=no_driver(), gpus=()),
    skips("secure_boot_may_refuse_driver", "no module is missing",
        kernel=kernel(secure_boot=True), driver=UNLOADED, gpus=(), plan=Plan(expect_gpus=0)),
    # driver_module_of_wrong_flavour: below 1e00 (Turing) and from 2900 (Blackwell) on
    fails("driver_module_of_wrong_flavour",
        "0000:1a:00.0, 0000:1b:00.0, 0000:1c:00.0 and 0000:1d:00.0 need the open one",
        "sudo apt-get install nvidia-open", kernel=CLOSED, gpus=(), pci=pci(*B200)),
    fails("driver_module_of_wrong_flavour", "the proprietary module is loaded, but 0000:1b:00.0 needs the open one",
        "nvidia-open",
        kernel=CLOSED, gpus=(gpu(0),), pci=pci(pci_device(0), pci_device(1, device="2900"))),
    fails("driver_module_of_wrong_flavour", "the open module is loaded, but 0000:1b:00.0 needs the proprietary one",
        "sudo apt-get install cuda-drivers",
        kernel=OPEN, gpus=(gpu(0),), pci=pci(pci_device(0), pci_device(1, device="1dff"))),
    well("driver_module_of_wrong_flavour", "the open module supports 4 GPUs"),
    well("driver_module_of_wrong_flavour", "the open module supports 4 GPUs", gpus=(), pci=pci(*B200)),
    well("driver_module_of_wrong_flavour", "the proprietary module supports 4 GPUs",  # whatever it is, it works
        kernel=CLOSED, pci=pci(*B200, nic(0))),
    well("driver_module_of_wrong_flavour", "module supports 2 GPUs",
        kernel=CLOSED, gpus=(gpu(0),), pci=pci(pci_device(0), pci_device(1, device="28ff"))),
    well("driver_module_of_wrong_flavour", "module supports 2 GPUs",
        kernel=OPEN, gpus=(gpu(0),), pci=pci(pci_device(0), pci_device(1, device="1e00"))),
    well("driver_module_of_wrong_flavour", "the open module supports 1 GPU",
        kernel=OPEN, gpus=(), pci=pci(pci_device(0, device="?"))),
    skips("driver_module_of_wrong_flavour", "unknown module variant: not loaded, or /proc/driver/nvidia is not visible",
        kernel=kernel(driver_flavour=None)),
    skips("driver_module_of_wrong_flavour", "a container", kernel=CLOSED, gpus=(), pci=pci(*B200), container=DOCKER),
    skips("driver_module_of_wrong_flavour", "cannot match the GPUs on the bus with the driver's",
        kernel=CLOSED, gpus=gpus(1, pci=None), pci=pci(*B200)),
    skips("driver_module_of_wrong_flavour", "cannot match the GPUs on the bus with the driver's",
        kernel=CLOSED, gpus=(), pci=pci(nic(0))),
    # process_stuck_in_driver
    warns("process_stuck_in_driver",
        "nvidia-smi (pid 4711) and python (pid 4712): stuck in the kernel, cannot be killed",
        "sudo dmesg",
        kernel=kernel(stuck=("nvidia-smi (pid 4711)", "python (pid 4712)"))),
    well("process_stuck_in_driver", "no process that uses the driver or a GPU is in uninterruptible sleep"),
    skips("process_stuck_in_driver", "too many", kernel=kernel(stuck=None)),
    # shared_memory_removed_at_logout
    warns("shared_memory_removed_at_logout", "RemoveIPC=yes", "RemoveIPC=no", kernel=kernel(remove_ipc=True)),
    well("shared_memory_removed_at_logout", "RemoveIPC=no"),
    skips("shared_memory_removed_at_logout",
        "not set in logind.conf, and the built-in default differs between distributions",
        kernel=kernel(remove_ipc=None)),
    skips("shared_memory_removed_at_logout", "container", kernel=kernel(remove_ipc=True), container=DOCKER),
    skips("shared_memory_removed_at_logout", "root's", kernel=kernel(remove_ipc=True), host=host(user_is_root=True)),
    skips("shared_memory_removed_at_logout", "login session", kernel=kernel(remove_ipc=True), slurm=slurm(job_id=None)),
    # overcommit_is_strict
    informs("overcommit_is_strict", "vm.overcommit_memory=2: 480 GiB may still be reserved", "sysctl vm.overcommit",
        kernel=kernel(overcommit_memory=2)),
    informs("overcommit_is_strict", "vm.overcommit_memory=2", "sysctl",
        kernel=kernel(overcommit_memory=2, committed_bytes=None)),
    well("overcommit_is_strict", "vm.overcommit_memory=0"),
    well("overcommit_is_strict", "vm.overcommit_memory=1", kernel=kernel(overcommit_memory=1)),
    skips("overcommit_is_strict", "cannot be read", kernel=kernel(overcommit_memory=None)),
    # outgoing_ports_few: 1000
    informs("outgoing_ports_few", "999 ports (50000-50998)", "32768 60999", kernel=kernel(port_range=(50000, 50998))),
    informs("outgoing_ports_few", "0 ports", "32768 60999", kernel=kernel(port_range=(60999, 32768))),
    well("outgoing_ports_few", "ports 50000-50999", kernel=kernel(port_range=(50000, 50999))),
    well("outgoing_ports_few", "32768-60999"),
    skips("outgoing_ports_few", "cannot be read", kernel=kernel(port_range=None)),
    # port_among_outgoing_ones
    informs("port_among_outgoing_ones", "port 29500 is in the range for outgoing connections (1024-65535)",
        "ip_local_reserved_ports=29500",
        kernel=kernel(port_range=(1024, 65535))),
    informs("port_among_outgoing_ones", "port 29500 is in the range for outgoing connections (29500-29500)",
        "_ports=8080,29501-29510,29500",
        kernel=kernel(port_range=(29500, 29500), reserved_ports="8080,29501-29510")),
    well("port_among_outgoing_ones", "outside 32768-60999"),
    well("port_among_outgoing_ones", "outside 29501-65535", kernel=kernel(port_range=(29501, 65535))),
    well("port_among_outgoing_ones", "port 29500 is reserved",
        kernel=kernel(port_range=(1024, 65535), reserved_ports="8080,29500-29510")),
    well("port_among_outgoing_ones", "port 12345 is reserved", network=network(port=12345),
        kernel=kernel(port_range=(1024, 65535), reserved_ports="12345")),
    skips("port_among_outgoing_ones", "cannot be read", kernel=kernel(port_range=None)),
    # file_handles_nearly_used_up: 90 %
    warns("file_handles_nearly_used_up", "901 of 1000 file handles in use", "fs.file-max=2097152",
        kernel=kernel(files_used=901, files_max=1000)),
    well("file_handles_nearly_used_up", "900 of 1000", kernel=kernel(files_used=900, files_max=1000)),
    skips("file_handles_nearly_used_up", "cannot be read", kernel=kernel(files_used=None)),
    skips("file_handles_nearly_used_up", "cannot be read", kernel=kernel(files_max=None)),
    # cpus_offline
    informs("cpus_offline", "95 of 96 CPUs are online", "sudo chcpu -e", kernel=kernel(cpus_online=95)),
    informs("cpus_offline", "47 of 96 CPUs are online", "chcpu", kernel=kernel(cpus_online=47, smt="off")),
    well("cpus_offline", "all 96 CPUs are online"),
    well("cpus_offline", "48 of 96 CPUs: hyper-threading is off", kernel=kernel(cpus_online=48, smt="off")),
    well("cpus_offline", "hyper-threading", kernel=kernel(cpus_online=48, smt="forceoff")),
    skips("cpus_offline", "LXC", kernel=kernel(cpus_online=4), container=container("lxc")),
    skips("cpus_offline", "cannot be read", kernel=kernel(cpus_present=None)),
    # cpu_held_at_lowest_clock
    informs("cpu_held_at_lowest_clock", 'CPU governor "powersave" with acpi-cpufreq', "sudo cpupower",
        kernel=kernel(cpu_governor="powersave", cpu_driver="acpi-cpufreq")),
    well("cpu_held_at_lowest_clock", "performance (intel_pstate)"),
    *(
        well("cpu_held_at_lowest_clock", "powersave", kernel=kernel(cpu_governor="powersave", cpu_driver=name))
        for name in ("intel_pstate", "amd-pstate-epp")
    ),
    well("cpu_held_at_lowest_clock", "schedutil",
        kernel=kernel(cpu_governor="schedutil", cpu_driver="acpi-cpufreq")),
    skips("cpu_held_at_lowest_clock", "virtual machine", kernel=kernel(cpu_governor=None, cpu_driver=None)),
    skips("cpu_held_at_lowest_clock", "unknown CPU frequency driver",
        kernel=kernel(cpu_governor="powersave", cpu_driver=None)),
    # machine_busy: more than one process a CPU
    informs("machine_busy", "load 96.1 on 96 CPUs", "top -b", kernel=kernel(load_1min=96.1)),
    well("machine_busy", "load 96.0 on 96 CPUs", kernel=kernel(load_1min=96.0)),
    skips("machine_busy", "cannot be read", kernel=kernel(load_1min=None)),
    # swap_in_use: a tenth of the memory
    informs("swap_in_use", "11 GiB swapped out (memory: 100 GiB)", "ps -eo rss",
        kernel=kernel(swap_used_bytes=11 * GIB), system=system(memory_total_bytes=100 * GIB)),
    well("swap_in_use", "10 GiB swapped out",
        kernel=kernel(swap_used_bytes=10 * GIB), system=system(memory_total_bytes=100 * GIB)),
    well("swap_in_use", "0 MiB swapped out"),
    skips("swap_in_use", "cannot be read", kernel=kernel(swap_used_bytes=None)),
    skips("swap_in_use", "cannot be read", system=system(memory_total_bytes=0)),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


def test_the_gpus_that_do_not_start_are_named() -> None:
    found = problem("driver_module_of_wrong_flavour", kernel=CLOSED, gpus=(), pci=pci(*B200), driver=driver())
    assert found.subjects == tuple(device.address for device in B200)
    assert found.evidence["flavour"] == "proprietary"
