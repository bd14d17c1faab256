"""How do tests see GPU machines that are not there?

`fake_nvml.c` is built into a real libnvidia-ml.so.1. Whatever loads NVML by its name then reads the machine that a
description file tells of:

    library = build(folder)                                            # once a session
    described = machine(tmp_path, "h100_sxm_x8", FAULTS["ecc"], "0.temperature = 90")
    subprocess.run([...], env=os.environ | environment(library, described))

`machines/*.txt` are the machines, all healthy and idle; `fake_nvml.c` explains the lines of a description.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import pytest

HERE = Path(__file__).parent
MACHINES = tuple(sorted(path.stem for path in (HERE / "machines").glob("*.txt")))
LIBRARY = "libnvidia-ml.so.1"
FOR_EVER = "~600000000"  # milliseconds: a week
NOBODY = 4194305  # beyond the largest pid that Linux gives: a process of another pid namespace

# Lines that turn a healthy machine into a broken one. They name GPUs 0 to 3, so a smaller machine has fewer faults.
FAULTS: Mapping[str, str] = {
    # NVML as a whole
    "driver_not_loaded": "init = !9",
    "library_mismatch": "init = !18",
    "nvml_hangs": f"init = {FOR_EVER}",
    "nvml_hangs_later": f"2.temperature = {FOR_EVER}",
    "nvml_aborts": "init = abort",
    "nvml_aborts_later": "1.name = abort",
    # one GPU
    "gpu_lost": "3.every = !15",
    "gpu_lost_at_handle": "3.handle = !15",
    "gpu_lost_half_way": "3.after = 10 !15",
    "gpu_lost_in_details": "3.after = 155 !15",
    "gpu_forbidden": "2.handle = !4",
    "ecc": "2.ecc_errors.uncorrected.* = 7",
    "remap_pending": "1.rows_remapped = 0 1 1 0",
    "remap_failed": "1.rows_remapped = 0 9 0 1",
    "ecc_before": "2.ecc_errors.uncorrected.1 = 3",
    "ecc_corrected": "2.ecc_errors.corrected.* = 1200",
    "ecc_off": "2.ecc = 0 0\n2.ecc_errors.corrected.* = !3\n2.ecc_errors.uncorrected.* = !3",
    "sram_exceeded": "2.sram_exceeded = 1",
    "memory_unrepairable": "2.unrepairable = 1",
    "spare_rows_used_up": "1.rows_spare = 2557 0 0 1 2",
    "repair_pending": "1.repair = 1 0",
    "inforom_corrupt": "0.inforom = !14",
    "memory_hot": "1.field.82 = 101",
    "hot_without_reason": "1.temperature = 90\n1.temperature_margin = -3",
    "hardware_slowdown": "1.clock_event_reasons = 0x8",
    "power_limit_low": "3.power_limit = 500000",
    "application_clocks": "3.application_clock.0 = 1200",
    "stuck_in_low_power": f"0.compute_processes = {NOBODY}:31GiB\n0.memory_used = 32306MiB\n0.utilization = 99 40\n"
    "0.performance_state = 8",
    "busy_unseen": "2.utilization = 88 30",
    "bar1_full": "2.bar1_used = 127GiB",
    "vbios_differs": "3.vbios = 96.00.30.00.01",
    "memory_smaller": "3.memory = 76000MiB",
    "exclusive_taken": f"1.compute_mode = 3\n1.compute_processes = {NOBODY}:400MiB",
    "pcie_width_reduced": "1.pcie_width = 8",
    "compute_prohibited": "0.compute_mode = 2",
    "busy": f"0.compute_processes = {NOBODY}:31GiB\n0.memory_used = 32306MiB\n0.utilization = 97 40\n"
    "0.performance_state = 0",
    "thermal": "1.clock_event_reasons = 0x40\n1.temperature = 93",
    "power_brake": "1.clock_event_reasons = 0x80",
    "mig_on": "0.mig = 1 1\n"
    "0.mig.0.uuid = MIG-6d0a1c52-94be-5f37-a8c1-3e7b20f4d965\n"
    "0.mig.2.uuid = MIG-f1b7e863-0c2d-5a94-b5e6-97d8413ac02f",
    "mig_pending": "0.mig = 0 1",
    "mig_empty": "0.mig = 1 1",
    "ecc_pending": "2.ecc = 0 1",
    "recovery_reset": "2.field.230 = 1",
    # between GPUs
    "nvlink_down": "3.nvlink.4..5.state = 0",
    "fabric_not_started": "*.fabric = 1 0",
    "fabric_degraded": "*.fabric_health = 0x1",
    "nvlink_slow": "3.nvlink.4.speed = 19922",
    "nvlink_errors": "3.nvlink.4.replays = 7\n3.nvlink.4.recoveries = 2\n3.nvlink.4.crc_errors = 20",
    "pcie_replays": "2.field.94 = 5120",
}


def build(folder: Path, *, without: tuple[str, ...] = ()) -> Path:
    """Compile the library into `folder`, once; the folder. `without` names NVML functions that it shall lack."""
    library = folder / LIBRARY
    if library.exists():
        return folder
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        unavailable("no C compiler (cc, gcc, clang) to build the fake NVML with")
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f"{LIBRARY}.{os.getpid()}"
    renamed = [f"-D{function}=absent_{number}" for number, function in enumerate(without)]
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}", *renamed]
    subprocess.run([compiler, *flags, "-o", str(unfinished), str(HERE / "fake_nvml.c")], check=True)
    unfinished.replace(library)  # whole or not there, also for a second process that builds the same
    return folder


def environment(library: Path, described: Path, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables, on top of `base`, with which a process finds the library and the machine it describes."""
    paths = [str(library), *filter(None, [base.get("LD_LIBRARY_PATH")])]
    return {"LD_LIBRARY_PATH": os.pathsep.join(paths), "FAKE_NVML": str(described)}


def machine(folder: Path, name: str, *lines: str) -> Path:
    """A description file in `folder`: the machine of that name (one of MACHINES, "" for none) and more lines.

    Lines may hold bytes that are not UTF-8, as surrogate escapes: "0.name = \\udcff".
    """
    base = (HERE / "machines" / f"{name}.txt").read_text(encoding="utf-8") if name else ""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name or 'machine'}.txt"
    path.write_text("\n".join([base, *lines, ""]), encoding="utf-8", errors="surrogateescape")
    return path


def change(described: Path, *lines: str) -> None:
    """Add lines to a description in one step, while the library reads it: of equal keys the later line counts."""
    other = described.with_name(f"{described.name}.new")
    other.write_text("\n".join([described.read_text(encoding="utf-8"), *lines, ""]), encoding="utf-8")
    other.replace(described)


def sysfs(folder: Path, numa_nodes: Mapping[str, int], *, module: str | None = None) -> Path:
    """A /sys with NVIDIA GPUs at these PCI addresses (0000:1b:00.0), their NUMA nodes, and the module's version."""
    for address, node in numa_nodes.items():
        device = folder / "bus/pci/devices" / address
        device.mkdir(parents=True)
        for file, text in {"vendor": "0x10de", "class": "0x030200", "numa_node": str(node)}.items():
            (device / file).write_text(f"{text}\n")
    if module is not None:
        (folder / "module/nvidia").mkdir(parents=True)
        (folder / "module/nvidia/version").write_text(f"{module}\n")
    return folder


def unavailable(why: str) -> NoReturn:
    """Skip the test, or fail it where everything has to run (MGPU_TESTS=all)."""
    if os.environ.get("MGPU_TESTS") == "all":
        pytest.fail(f"{why} (MGPU_TESTS=all)")
    pytest.skip(why)
