"""Which Xid did the GPU driver log, and what caused it?

The groups are those of `_xid.py`: NVIDIA's catalog and its immediate actions.
"""

from __future__ import annotations

from mgpu.check import Fix, Kind, Role
from mgpu.signature import Row, signatures

from .._kernel_line import KERNEL_LINE
from .._xid import CATALOG

_XID: Kind = "xid"
# fmt: off
_RESET = Fix("Stop all processes on the GPU and reset it. If the fault comes back, have the GPU replaced.",
             ("sudo nvidia-smi --gpu-reset -i INDEX", "mgpu doctor --only xid,ecc"), who="admin")
# fmt: on
_VENDOR = Fix("Drain the node and send the bug report to the vendor.", ("sudo nvidia-bug-report.sh",), who="hardware")


def _summary(title: str) -> str:
    """Return the title as a sentence about any GPU and any Xid."""
    text = title.replace("the GPU at {pci}", "a GPU").removesuffix(" (Xid {xid})")
    return f"{text[:1].upper()}{text[1:]}."


def _row(
    name: str,
    role: Role,
    codes: str,
    samples: tuple[str, ...],
    title: str,
    why: str,
    fix: Fix | tuple[Fix, ...],
    because_of: tuple[str, ...] = (),
) -> Row:
    return Row(
        name,
        role,
        _XID,
        rf"{KERNEL_LINE}NVRM: Xid \(PCI:(?P<pci>[0-9a-fA-F:.]+)\): (?P<xid>{codes})\b",
        tuple(f"NVRM: Xid (PCI:0000:10:1c): {sample}" for sample in samples),
        title,
        why,
        fix,
        CATALOG,
        summary=_summary(title),
        because_of=because_of,
    )


_PROGRAM = "13|31|43|32|8|11|25|39|40|41|44|66|67|68|69|70|71|72|80|137|141|12[6-9]|13[0-5]"
_OTHER = r"(?!(?:13|31|43|32|8|11|25|39|40|41|44|66|67|68|69|70|71|72|80|137|141|12[6-9]|13[0-5]|45|154|63|92|94|160|"
_OTHER += r"64|48|95|140|171|172|79|74|136|14[4-9]|150|155|119|120|46|62|109|110|143|156|158|54|157|165|167|168)\b)\d+"

# fmt: off
ROWS = (
    _row("log_xid_bus", "root", "79", ("79, pid=1896, GPU has fallen off the bus.",),
         "the GPU at {pci} fell off the bus (Xid {xid})",
         "It no longer responds over PCIe: power, heat, riser or board. Every program on it dies, and the other ranks "
         "wait.",
         (Fix("Reboot the node. Check power cables, seating and temperature.", ("sudo reboot",), who="admin"),
          _VENDOR)),
    _row("log_xid_memory_damaged", "root", "48|64|95|140|171|172",
         ("64, pid=1896, Row Remapper: failed", "48, pid=1, name=python, DBE (double bit error)", "95, Uncontained: x"),
         "memory of the GPU at {pci} is damaged (Xid {xid})",
         "ECC could not correct an error, or a bad row could not be replaced. Results of this GPU are not reliable "
         "until a reset, and the program was stopped.",
         (_RESET, _VENDOR)),
    _row("log_xid_memory_contained", "root", "63|92|94|160",
         ("63, pid=1896, Row Remapper: New row marked for remapping, reset gpu to activate.",
          "94, pid=99, Contained: SM (0x1)"),
         "the GPU at {pci} had a memory error that it contained (Xid {xid})",
         "A bad row is marked for remapping, or the one program that used it was stopped. After a reset the GPU is "
         "healthy.",
         Fix("Start the run again. Reset the GPU when it is idle, which remaps the row.",
             ("sudo nvidia-smi --gpu-reset -i INDEX", "mgpu doctor --only gpu_row_remap_pending"), who="admin")),
    _row("log_xid_nvlink", "root", "74|136|14[4-9]|150|155",
         ("74, pid=99, NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
          "149, NETIR_LINK_EVT Fatal XC0 i0 Link 08"),
         "an NVLink of the GPU at {pci} failed (Xid {xid})",
         "Data between GPUs was lost. NCCL hangs, or reports an unhandled CUDA error.",
         (_RESET, Fix("On an NVSwitch node, also check the switches and the fabric manager.",
                      ("sudo dmesg | grep -i sxid", "nvidia-smi nvlink -e", "mgpu doctor --only nvswitch_failed"),
                      who="admin"), _VENDOR)),
    _row("log_xid_firmware", "root", "119|120",
         ("119, pid=99, name=python, Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76",
          ),
         "the firmware (GSP) of the GPU at {pci} stopped responding (Xid {xid})",
         "The driver waits for it, and every call to the GPU hangs or fails.",
         (_RESET, Fix("Install a newer driver.", ("nvidia-smi --query-gpu=driver_version --format=csv",),
                      who="admin"))),
    _row("log_xid_reset", "root", "46|62|109|110|143|156|158",
         ("143, GPU initialization failed", "109, pid=99, name=python, Ch 00000002, errorString CTX SWITCH TIMEOUT"),
         "the GPU at {pci} stopped and needs a reset (Xid {xid})",
         "Its scheduler or firmware hangs, or it could not be started. Programs on it hang or die.",
         (_RESET, _VENDOR)),
    _row("log_xid_board", "root", "54|157|165|167|168", ("167, PCIe fatal timeout", "54, Auxiliary power"),
         "the GPU at {pci} reports a fault of its board or power (Xid {xid})",
         "Power, PCIe or a part that could not be retired failed. Software cannot fix it.", _VENDOR),
    _row("log_xid_program", "root", _PROGRAM,
         ("13, pid=1896, Graphics Exception: ESR 0x504648",
          "31, pid=1896, name=python, Ch 00000008, intr 00000000. MMU Fault",
          "43, pid=1896, name=python, Ch 00000008", "69, pid=7, Class Error"),
         "a program performed an illegal operation on the GPU at {pci} (Xid {xid})",
         "Usually a kernel reads or writes out of bounds, reported as 'illegal memory access' or 'unspecified launch "
         "failure'. If it always happens on one GPU, whatever program runs there, the GPU is faulty.",
         (Fix("Find the kernel.", ("CUDA_LAUNCH_BLOCKING=1 mgpu launch train.py",
                                   "compute-sanitizer --target-processes all python train.py")),
          Fix("Check whether it always happens on one GPU.", ("mgpu doctor --only xid_keeps_to_one_gpu",))),
         # Programs on other GPUs fail too if a GPU, its memory or a link fails during a transfer.
         because_of=("log_xid_bus", "log_xid_nvlink", "log_xid_memory_damaged")),
    _row("log_xid_consequence", "secondary", "45",
         ("45, pid=1896, name=python, Ch 00000010",),
         "the driver cleaned up on the GPU at {pci} after an earlier fault (Xid {xid})",
         "It follows another Xid, or the end of the process. The earlier line has the cause.",
         Fix("Read the Xids before it.", ("sudo dmesg -T | grep -i xid",), who="admin")),
    _row("log_xid_other", "secondary", _OTHER, ("78, vGPU start failed", "999, something new"),
         "the driver logged a fault of the GPU at {pci} (Xid {xid})",
         "NVIDIA's catalog lists no action for it.",
         Fix("Look it up in NVIDIA's catalog.", ("mgpu doctor --only xid",))),
    Row("log_xid_recovery_action", "secondary", _XID,
        KERNEL_LINE + r"NVRM: Xid \(PCI:(?P<pci>[0-9a-fA-F:.]+)\): 154\b.*recovery action changed from "
        r"\S+ \([^)]*\) to \S+ \((?P<action>(?!None)[^)]+)\)",
        ("NVRM: Xid (PCI:0000:10:1c): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
         "NVRM: Xid (PCI:0000:10:1c): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"),
        "the GPU at {pci} needs: {action} (Xid 154)",
        "The driver reports the action that makes the GPU usable again. The Xid before it has the cause.",
        (Fix("Do what it names: drain the node, then reset the GPU or reboot.",
             ("nvidia-smi -q | grep -i -A2 'recovery action'", "sudo nvidia-smi --gpu-reset -i INDEX", "sudo reboot"),
             who="admin"),
         Fix("Read the Xids before it.", ("sudo dmesg -T | grep -i xid",), who="admin")), CATALOG,
        summary="The driver reports that a GPU needs a reset or the node a reboot."),
    Row("log_gpu_firmware_not_started", "root", _XID,
        r"GSP-FMC reported an error|Cannot initialize GSP firmware RM|kgspBootstrap\w*: .*fail",
        ("NVRM: GPU0 kgspBootstrap_GH100: GSP-FMC reported an error while attempting to boot GSP: 0x1c",
         "NVRM: GPU0 RmInitAdapter: Cannot initialize GSP firmware RM"),
        "the firmware (GSP) of a GPU does not start",
        "Firmware and driver have different versions, an earlier driver left the GPU in a bad state, or a virtual "
        "machine passes the GPU through without a reset. No program can use the GPU.",
        (Fix("Power the node off and on, and check that the firmware belongs to the driver.",
             ("sudo poweroff", "ls /lib/firmware/nvidia/$(cat /sys/module/nvidia/version)"), who="admin"), _VENDOR),
        "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/935"),
    Row("log_nvswitch_failed", "root", _XID,
        KERNEL_LINE + r"nvidia-nvswitch(?P<switch>\d+): SXid \(PCI:\S+\): (?P<code>\d+), Fatal",
        ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",),
        "NVSwitch {switch} failed (SXid {code})",
        "It lost a link or a port. Collectives over NVLink hang or fail on all GPUs connected to it.",
        (Fix("Reset all GPUs and switches together, and restart the fabric manager.",
             ("sudo systemctl restart nvidia-fabricmanager", "mgpu doctor --only nvswitch_failed"), who="admin"),
         _VENDOR),
        "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html",
        summary="An NVSwitch reported a fatal error."),
    Row("log_gpu_not_started", "root", _XID, KERNEL_LINE + r"NVRM: .*(?:RmInitAdapter|rm_init_adapter) failed",
        ("NVRM: GPU 0000:4f:00.0: RmInitAdapter failed! (0x62:0xffff:2568)",
         "NVRM: GPU 0000:4f:00.0: rm_init_adapter failed, device minor number 2"),
        "the driver could not start a GPU",
        "Power, PCIe, firmware or an incomplete reset is the cause. No program can use the GPU.",
        (Fix("Reboot the node and check whether the GPU returns.",
             ("sudo reboot", "mgpu doctor --only gpu_start_failed"),
             who="admin"), _VENDOR),
        "https://docs.nvidia.com/deploy/gpu-debug-guidelines/index.html"),
    Row("log_pcie_uncorrected", "secondary", _XID,
        KERNEL_LINE + r"pcieport \S+: (?:AER: (?:Multiple )?Uncorrect(?:ed|able) .*error|"
        r"PCIe Bus Error: severity=Uncorrect)|" + KERNEL_LINE + r"pcieport \S+: DPC: containment event",
        ("pcieport 0000:00:03.0: AER: Uncorrected (Fatal) error received: 0000:00:03.0",
         "[ 88.123456] pcieport 0000:00:03.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer"),
        "the kernel reports a PCIe error that could not be corrected",
        "A GPU or network card behind this port lost data or its link: a riser, a cable, power, or the card.",
        (Fix("Find the device behind the port, and reseat it or its riser.",
             ("lspci -tv", "sudo dmesg -T | grep -iE 'aer|pcie|xid'"), who="admin"), _VENDOR),
        "https://docs.kernel.org/PCI/pcieaer-howto.html"),
    Row("log_gpu_needs_reset", "root", _XID, r"GPU\w*[: ].*\bGPU requires reset|NVRM: .*GPU requires reset",
        ("Unable to determine the device handle for GPU0000:1B:00.0: GPU requires reset",
         "NVRM: GPU 0000:1b:00.0: GPU requires reset"),
        "a GPU needs a reset before any program can use it",
        "An earlier error (ECC, NVLink, firmware) left it in a state that only a reset ends.",
        (_RESET, Fix("Read the Xid before it.", ("sudo dmesg -T | grep -i xid",), who="admin")), CATALOG),
    Row("log_gpu_lost", "root", _XID,
        r"^(?!.*requires reset).*(?:GPU is lost|Unable to determine the device handle for [Gg][Pp][Uu])|"
        r"fallen off the bus and is not responding",
        ("Unable to determine the device handle for GPU0000:4F:00.0: GPU is lost.  Reboot the system to recover this "
         "GPU",
         "Unable to determine the device handle for GPU0: 0000:4F:00.0: Unknown Error",
         "               NVRM: fallen off the bus and is not responding to commands."),
        "a GPU is lost: the driver can no longer reach it",
        "It fell off the bus while the node was running. A rank on it fails, and the others wait for that rank.",
        (Fix("Reboot the node. Check power and seating.", ("sudo reboot", "mgpu doctor --only gpu_lost"),
             who="admin"), _VENDOR), CATALOG),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
