"""The kernel probe: here, on described trees of /proc and /sys, and with a process that really cannot be woken."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path

import pytest

from mgpu.probes import KERNEL, SYSTEM, gather, kernel
from mgpu.snapshot import Kernel, decode
from tests.checks import facts
from tests.conftest import ask_all, need
from tests.test_probe_system import GARBAGE, plant

SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs-builder@U22)\n"
    "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n"
)
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\nGCC version:  gcc\n"
MODULES = """\
nvidia_uvm 1789952 0 - Live 0x0000000000000000 (OE)
nvidia 9744384 2 nvidia_uvm, Live 0x0000000000000000 (OE)
ib_uverbs 200704 1 mlx5_ib, Live 0x0000000000000000
mlx5_core 2514944 1 mlx5_ib, Live 0x0000000000000000
nf_tables 372736 0 - Live 0x0000000000000000
"""
COMMAND_LINE = (
    "BOOT_IMAGE=/vmlinuz root=UUID=0d1f ro quiet luks.key=secret intel_iommu=on iommu=pt pci=realloc "
    "nvidia-drm.modeset=1 modprobe.blacklist=nouveau nvidia.NVreg_OpenRmEnableUnsupportedGpus=1\n"
)
TREE = {
    "proc/modules": MODULES,
    "proc/driver/nvidia/version": OPEN,
    "proc/driver/nvidia/params": 'EnableMSI: 1\nRegistryDwords: "ForceP2P=17"\n',
    "proc/cmdline": COMMAND_LINE,
    "proc/meminfo": "SwapTotal: 8192 kB\nSwapFree: 2048 kB\nCommitLimit: 4096 kB\nCommitted_AS: 1024 kB\n",
    "proc/loadavg": "12.34 1.00 0.50 3/900 4711\n",
    "proc/uptime": "100000.00 1.00\n",
    "proc/sys/kernel/dmesg_restrict": "1\n",
    "proc/sys/vm/overcommit_memory": "2\n",
    "proc/sys/fs/file-nr": "4096\t0\t9223372036854775807\n",
    "proc/sys/net/ipv4/ip_local_port_range": "32768\t60999\n",
    "proc/sys/net/ipv4/ip_local_reserved_ports": "29500-29510\n",
    "sys/kernel/iommu_groups/0/type": "DMA-FQ\n",
    "sys/devices/system/cpu/online": "0-62,64\n",
    "sys/devices/system/cpu/present": "0-95\n",
    "sys/devices/system/cpu/smt/control": "on\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_driver": "acpi-cpufreq\n",
    "etc/systemd/logind.conf": "[Login]\n#RemoveIPC=no\nRemoveIPC=yes\n",
}

Read = Callable[..., Kernel]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """What the probe says of a described machine."""

    def run(files: Mapping[str, str] | None = None) -> Kernel:
        root = plant(tmp_path / "root", files or {})
        (found,) = kernel.probe(f"{root}/proc", f"{root}/sys", str(root))
        known: Kernel = decode(Kernel, json.loads(json.dumps(found))["kernel"], "kernel")
        return known

    return run


def test_this_machine() -> None:
    snapshot = gather([replace(SYSTEM, then=(KERNEL,))])
    here = snapshot.kernel
    assert here is not None, snapshot.gaps
    assert here.cpus_online == os.sysconf("SC_NPROCESSORS_ONLN")
    assert here.load_1min is not None and here.files_used and here.port_range
    assert here.stuck == ()


def test_it_takes_a_few_milliseconds() -> None:
    """Not a benchmark: a guard against a scan of everything, at ten times the CPU time that it takes."""
    begin = time.process_time()
    list(kernel.probe())
    assert time.process_time() - begin < 0.25


def test_a_described_machine(read: Read) -> None:
    assert read(TREE) == Kernel(
        modules=("ib_uverbs", "mlx5_core", "nvidia", "nvidia_uvm"),
        driver_flavour="open",
        command_line="intel_iommu=on iommu=pt pci=realloc nvidia-drm.modeset=1 modprobe.blacklist=nouveau "
        "nvidia.NVreg_OpenRmEnableUnsupportedGpus=1",
        iommu="translating",
        dmesg_restricted=True,
        overcommit_memory=2,
        port_range=(32768, 60999),
        files_used=4096,
        files_max=9223372036854775807,
        cpus_online=64,
        cpus_present=96,
        cpu_governor="powersave",
        load_1min=12.34,
        swap_used_bytes=6 << 20,
        remove_ipc=True,
        stuck=(),
        cpu_driver="acpi-cpufreq",
        smt="on",
        secure_boot=None,
        reserved_ports="29500-29510",
        committed_bytes=1 << 20,
        commit_limit_bytes=4 << 20,
        peer_options=("ForceP2P=17",),
    )


def test_nothing_to_read(read: Read) -> None:
    here = read()
    assert {field.name: getattr(here, field.name) for field in fields(Kernel) if getattr(here, field.name)} == {}


@pytest.mark.parametrize("name", TREE)
def test_any_file_may_be_garbage(name: str, read: Read, tmp_path: Path) -> None:
    read(TREE)
    for text in GARBAGE:
        read({name: text})
    (tmp_path / "root" / name).unlink()
    (tmp_path / "root" / name).mkdir()
    read()


PARAMS = 'ResmanDebugLevel: 4294967295\nRegistryDwords: "{}"\nRegistryDwordsPerDevice: ""\n'


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (PARAMS.format("ForceP2P=17;RMForceStaticBar1=1;RmLogonRC=1"), ("ForceP2P=17", "RMForceStaticBar1=1")),
        (PARAMS.format(" PeerMappingOverride=1; RMPcieP2PType=0x1 "), ("PeerMappingOverride=1", "RMPcieP2PType=0x1")),
        (PARAMS.format(""), ()),
        (PARAMS.format("p2p;=1;P2P=$(x)"), ()),
        ("RegistryDwords:", None),
        ("", None),
    ],
)
def test_the_options_about_peer_access(text: str, options: tuple[str, ...] | None, read: Read) -> None:
    assert read({"proc/driver/nvidia/params": text}).peer_options == options


@pytest.mark.parametrize(
    ("text", "flavour"), [(OPEN, "open"), (CLOSED, "proprietary"), ("", None), ("NVRM version: soon", None)]
)
def test_the_flavour_of_the_driver(text: str, flavour: str | None, read: Read) -> None:
    assert read({"proc/driver/nvidia/version": text}).driver_flavour == flavour


@pytest.mark.parametrize(
    ("files", "iommu"),
    [
        ({"sys/kernel/notes": ""}, None),  # not shown
        ({"sys/kernel/iommu_groups/.keep": ""}, None),
        ({"sys/kernel/iommu_groups/0/type": "identity\n"}, "passthrough"),
        ({"sys/kernel/iommu_groups/0/type": "DMA\n"}, "translating"),
        ({"sys/kernel/iommu_groups/0/type": "blocked\n", "sys/kernel/iommu_groups/1/type": "DMA\n"}, "translating"),
        # the GPUs' own groups decide
        (
            {
                "sys/kernel/iommu_groups/0/type": "DMA\n",
                "proc/driver/nvidia/gpus/0000:1a:00.0/information": "",
                "sys/bus/pci/devices/0000:1a:00.0/iommu_group/type": "identity\n",
            },
            "passthrough",
        ),
        # Linux before 5.11 tells no type
        ({"sys/kernel/iommu_groups/0/devices/x": "", "proc/cmdline": "ro iommu=pt\n"}, "passthrough"),
        ({"sys/kernel/iommu_groups/0/devices/x": "", "proc/cmdline": "ro\n"}, None),
    ],
)
def test_the_iommu(files: dict[str, str], iommu: str | None, read: Read) -> None:
    assert read(files).iommu == iommu


def test_no_iommu(read: Read, tmp_path: Path) -> None:
    (tmp_path / "root/sys/kernel/iommu_groups").mkdir(parents=True)
    assert read().iommu == "off"


@pytest.mark.parametrize(
    ("value", "expected"), [(b"\x06\0\0\0\x01", True), (b"\x06\0\0\0\x00", False), (b"\x06\0", None), (b"", None)]
)
def test_secure_boot(value: bytes, expected: bool | None, read: Read, tmp_path: Path) -> None:
    path = tmp_path / "root" / SECURE_BOOT
    path.parent.mkdir(parents=True)
    path.write_bytes(value)
    assert read().secure_boot is expected


def test_a_machine_without_efi_has_no_secure_boot(read: Read) -> None:
    assert read({"sys/firmware/acpi/interrupts/x": ""}).secure_boot is False


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"etc/systemd/logind.conf": "[Login]\n#RemoveIPC=yes\n"}, None),
        ({"etc/systemd/logind.conf": "[Login]\nRemoveIPC = no\n"}, False),
        ({"etc/systemd/logind.conf": "RemoveIPC=yes\nRemoveIPC=maybe\n"}, False),
        ({"etc/systemd/logind.conf.d/50.conf": "RemoveIPC=true\n"}, True),
        ({"etc/systemd/logind.conf.d/50.conf~": "RemoveIPC=yes\n"}, None),
        # drop-ins win over the file, later names over earlier ones, /etc over /usr/lib
        (
            {
                "etc/systemd/logind.conf": "RemoveIPC=no\n",
                "usr/lib/systemd/logind.conf.d/10.conf": "RemoveIPC=yes\n",
            },
            True,
        ),
        (
            {
                "etc/systemd/logind.conf.d/90.conf": "RemoveIPC=no\n",
                "usr/lib/systemd/logind.conf.d/10.conf": "RemoveIPC=yes\n",
            },
            False,
        ),
        (
            {
                "etc/systemd/logind.conf.d/10.conf": "RemoveIPC=no\n",
                "usr/lib/systemd/logind.conf.d/10.conf": "RemoveIPC=yes\n",
            },
            False,
        ),
    ],
)
def test_what_logind_does_at_logout(files: dict[str, str], expected: bool | None, read: Read) -> None:
    assert read(files).remove_ipc is expected


# ---- processes that cannot be woken


def process(pid: int, name: str, state: str = "D", started_s: float = 1000, switches: int = 5) -> dict[str, str]:
    ticks = int(started_s * os.sysconf("SC_CLK_TCK"))
    return {
        f"proc/{pid}/comm": f"{name}\n",
        f"proc/{pid}/stat": f"{pid} ({name}) {state} 1 {pid} {pid} 0 -1 4194304 1 0 0 0 1 1 0 0 20 0 1 0 {ticks} 1 1\n",
        f"proc/{pid}/status": f"voluntary_ctxt_switches:\t{switches}\nnonvoluntary_ctxt_switches:\t1\n",
    }


GPU_OPEN = "-> /dev/nvidia0"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (process(10, "nvidia-smi"), ("nvidia-smi (pid 10, started 28 h ago)",)),
        (process(10, "nvidia-persiste"), ("nvidia-persiste (pid 10, started 28 h ago)",)),
        (process(10, "python3.11") | {"proc/10/fd/7": GPU_OPEN}, ("python3.11 (pid 10, started 28 h ago)",)),
        (process(10, "pt_main_thread") | {"proc/10/fd/7": GPU_OPEN}, ("pt_main_thread (pid 10, started 28 h ago)",)),
        (process(10, "nvidia-smi) R (x"), ("nvidia-smi) R (x (pid 10, started 28 h ago)",)),  # a name may hold anything
        (process(10, "nvidia-smi", state="S"), ()),
        (process(10, "nvidia-smi", started_s=99_990), ()),  # it began ten seconds ago
        (process(10, "python") | {"proc/10/fd/7": "-> /mnt/data"}, ()),  # waits for a disk, perhaps
        (process(10, "python"), ()),  # somebody else's
        (process(10, "dd"), ()),
        ({"proc/10/stat": "10 (nvidia-smi"}, ()),
        ({"proc/10/stat": ""}, ()),
        ({"proc/10/status": ""}, ()),
    ],
)
def test_stuck_processes(files: dict[str, str], expected: tuple[str, ...], read: Read) -> None:
    assert read({"proc/uptime": "100000.00 1.00\n", **files}).stuck == expected


def test_one_that_goes_on_is_not_stuck(read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = iter(range(100))
    monkeypatch.setattr(kernel, "_switches", lambda proc, pid: [str(next(counted))])
    assert read({"proc/uptime": "100000.00 1.00\n", **process(10, "nvidia-smi")}).stuck == ()


def test_too_many_processes_to_ask(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_ENOUGH_S", -1.0)
    assert read(process(10, "nvidia-smi")).stuck is None
    (outcome,) = ask_all("process_stuck_in_driver", kernel=facts.kernel(stuck=None))
    assert outcome.status == "skip"


# The parent of a vfork sleeps uninterruptibly until its child has gone.
SLEEPER = "#include <unistd.h>\nint main(void) { if (vfork() == 0) { sleep(60); _exit(0); } return 0; }\n"


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[int]:
    """A process in uninterruptible sleep that is called nvidia-smi."""
    compiler = need("cc")
    (tmp_path / "sleeper.c").write_text(SLEEPER)
    program = tmp_path / "nvidia-smi"
    subprocess.run([compiler, "-o", str(program), str(tmp_path / "sleeper.c")], check=True, timeout=60)
    process = subprocess.Popen([str(program)], start_new_session=True)
    end = time.monotonic() + 10
    while kernel._stat("/proc", str(process.pid))[:2] != ("nvidia-smi", "D"):
        assert time.monotonic() < end, "it does not fall asleep"
        time.sleep(0.01)
    yield process.pid
    os.killpg(process.pid, 9)
    process.wait(10)


def test_a_process_that_really_cannot_be_woken(sleeper: int) -> None:
    found = gather([replace(SYSTEM, then=(replace(KERNEL, arguments={"stuck_age_s": 0.0}),))]).kernel
    assert found is not None and found.stuck == (f"nvidia-smi (pid {sleeper}, started 0 s ago)",)
    (outcome,) = ask_all("process_stuck_in_driver", kernel=found)
    assert outcome.status == "warn"
    young = gather([replace(SYSTEM, then=(KERNEL,))]).kernel
    assert young is not None and young.stuck == ()
