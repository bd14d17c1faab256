"""Are the NVSwitches set up and healthy?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.planning.requirements import version_numbers
from mgpu.snapshot import Driver, Gpu, Leftovers, Pci
from mgpu.text import counted

from .._gpus import gpu_subjects
from .._nvlink_models import GRACE, fabric_complaints
from .._wording import gpu_list

_NVML = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html"
_FABRIC = "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/"
# nvmlGpuFabricState_t
_NOT_STARTED, _IN_PROGRESS, _COMPLETED = 1, 2, 3
_RESTART = ("sudo systemctl restart nvidia-fabricmanager", "systemctl status nvidia-fabricmanager")


@check(
    Severity.ERROR, source=_FABRIC, because_of=("gpu_lost", "fabric_manager_missing", "fabric_manager_version_differs")
)
def nvlink_fabric_not_ready(gpus: tuple[Gpu, ...]) -> Answer:
    """The NVSwitch fabric of this node is not up.

    Why: Without it CUDA stops with error 802, system not yet initialized.
    More: On NVSwitch nodes the fabric manager must connect the GPUs first.

    Fix: Start the fabric manager. Its version must equal the driver's.
    More: In an NVL72 rack it runs in the switch trays.
    """
    known = [gpu for gpu in gpus if gpu.fabric_state]  # 0 means that there is no fabric here, which is not a fault
    bad = [
        gpu
        for gpu in known
        if gpu.fabric_state in (_NOT_STARTED, _IN_PROGRESS) or (gpu.fabric_state == _COMPLETED and gpu.fabric_status)
    ]
    if bad:
        state = {_NOT_STARTED: "not started", _IN_PROGRESS: "still starting"}.get(
            bad[0].fabric_state or 0, f"setup failed with NVML code {bad[0].fabric_status}"
        )
        return Problem(
            f"NVSwitch fabric {state} on {counted(len(bad), 'GPU')}",
            fix=Fix(
                "Contact the administrator of the rack. The fabric manager runs in its switch trays, not on this node.",
                ("nvidia-smi -q | grep -A 12 Fabric",),
                who="admin",
            )
            if _in_rack(bad)
            else Fix(commands=_RESTART, who="admin"),
            evidence={f"gpu_{gpu.index}_state": gpu.fabric_state for gpu in bad},
            subjects=gpu_subjects(bad),
        )
    return Ok(f"fabric is up on {len(known)} of {len(gpus)} GPUs") if known else Skip("no NVSwitch fabric here")


def _in_rack(gpus: list[Gpu]) -> bool:
    """Whether the NVSwitches are in other trays (NVL72), so no fabric manager runs on the GPUs' node."""
    return any(GRACE.search(gpu.name or "") for gpu in gpus)


def _fabric_is_up(gpus: tuple[Gpu, ...]) -> bool:
    return bool(gpus) and all(gpu.fabric_state == _COMPLETED and not gpu.fabric_status for gpu in gpus)


@check(Severity.ERROR, source=_FABRIC, because_of=("fabric_manager_version_differs",))
def fabric_manager_missing(gpus: tuple[Gpu, ...], pci: Pci, leftovers: Leftovers) -> Answer:
    """This node has NVSwitches, but no fabric manager is running.

    Why: The routes between the GPUs are not set up. CUDA stops with error 802, system not yet initialized.
    More: The fabric manager sets up the routes between the GPUs. Before that, CUDA stops with error 802, "system not
    yet initialized", although nvidia-smi lists every GPU.

    Fix: Start it. If it is not installed, first install it in the driver's version.
    """
    if not pci.nvswitches:
        return Skip("no NVSwitch on the bus" if pci.nvswitches == 0 else "the bus cannot be read")
    if _fabric_is_up(gpus):
        return Ok(f"{counted(pci.nvswitches, 'NVSwitch', 'NVSwitches')}, and the fabric is up")
    running = [process for process in leftovers.processes if process.kind == "fabric_manager"]
    if running:
        return Ok(f"nv-fabricmanager is running (pid {running[0].pid})")
    if not leftovers.sees_all_processes:
        return Skip("the host's services are not visible here; on the host: systemctl status nvidia-fabricmanager")
    return Problem(
        f"{counted(pci.nvswitches, 'NVSwitch', 'NVSwitches')}, but nv-fabricmanager is not running",
        fix=Fix(
            commands=("sudo systemctl enable --now nvidia-fabricmanager", "systemctl status nvidia-fabricmanager"),
            who="admin",
        ),
        evidence={"nvswitches": pci.nvswitches, "installed": pci.fabric_manager},
    )


@check(Severity.ERROR, source=_FABRIC, because_of=("driver_library_mismatch",))
def fabric_manager_version_differs(gpus: tuple[Gpu, ...], pci: Pci, driver: Driver) -> Answer:
    """The installed fabric manager has a different version than the driver.

    Why: It does not start with another driver version. The GPUs are then not connected, and CUDA stops with error 802.
    More: It compares its version with the loaded driver at start, and stops if they differ. The cause is an update of
    only one of the two.

    Fix: Install the version that matches the driver, then restart it.
    """
    if not pci.nvswitches:
        return Skip("no NVSwitch on the bus" if pci.nvswitches == 0 else "the bus cannot be read")
    loaded = driver.module_version or driver.version
    wanted = version_numbers(loaded)
    if not wanted or pci.fabric_manager is None:
        return Skip(
            "nv-fabricmanager does not report its version here" if wanted else "the driver's version is unknown"
        )
    if version_numbers(pci.fabric_manager) == wanted:
        return Ok(f"nv-fabricmanager {pci.fabric_manager}, same as the driver")
    if _fabric_is_up(gpus):
        return Ok(f"the fabric is up; at its next start nv-fabricmanager {pci.fabric_manager} needs the same driver")
    return Problem(
        f"nv-fabricmanager {pci.fabric_manager} is installed, the driver is {loaded}",
        fix=Fix(
            commands=(
                shell("sudo apt-get install nvidia-fabricmanager-{:number}", wanted[0]),
                "sudo systemctl restart nvidia-fabricmanager",
            ),
            who="admin",
        ),
        evidence={"fabric_manager": pci.fabric_manager, "driver": loaded},
    )


_STATE = "nvidia-smi -q | grep -A 12 Fabric"
_WITHOUT_MULTICAST = Fix(
    "Turn off multicast until then.",
    ("export NCCL_NVLS_ENABLE=0",),
    kind="stopgap",
    caveat="an all-reduce over 8 GPUs loses about a quarter of its bandwidth",
)


@check(Severity.WARNING, source=_NVML, because_of=("nvlink_inactive", "nvlinks_fewer_than_model"))
def nvlink_fabric_degraded(gpus: tuple[Gpu, ...]) -> Answer:
    """The NVSwitch fabric is up, but reports a fault.

    Why: Collectives are slower than they should be, and NVLS (multicast in the switches) can fail when NCCL starts.
    More: With a failed switch, a lost route or a half-configured partition, plain NVLink still works. Traffic is
    slower, and NCCL's NVLS fails with "Failed to bind NVLink SHARP (NVLS) Multicast memory", which torch shows as
    "unhandled cuda error".

    Fix: Restart the fabric manager and reset the GPUs. If the fault stays, contact the vendor.
    More: With NCCL_NVLS_ENABLE=0, runs work until it is repaired.
    """
    known = [
        (gpu, complaints)
        for gpu in gpus
        if gpu.fabric_state == _COMPLETED and (complaints := fabric_complaints(gpu.fabric_health_mask)) is not None
    ]
    bad = [gpu for gpu, complaints in known if complaints]
    if not bad:
        if not known:
            return Skip("no GPU here reports the health of its fabric")
        return Ok(f"the fabric reports no fault on {counted(len(known), 'GPU')}")
    first = next(complaints for _, complaints in known if complaints)
    return Problem(
        f"NVSwitch fabric of {gpu_list(gpu.index for gpu in bad)}: {'; '.join(first)}",
        fix=(
            Fix(
                "Contact the administrator of the rack. Its fabric manager runs in the switch trays.",
                (_STATE,),
                who="admin",
            )
            if _in_rack(bad)
            else Fix(commands=(_RESTART[0], _STATE), who="admin"),
            _WITHOUT_MULTICAST,
        ),
        evidence={f"gpu_{gpu.index}_health_mask": gpu.fabric_health_mask for gpu in bad},
        subjects=gpu_subjects(bad),
    )
