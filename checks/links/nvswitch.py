"""Have the NVSwitches been set up, and are they sound?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.planning.requirements import numbers
from mgpu.snapshot import Driver, Gpu, Leftovers, Pci
from mgpu.text import counted

from .._gpus import names_of
from .._nvlink_models import GRACE, fabric_complaints
from .._wording import gpu_list

_NVML = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html"
_FABRIC = "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/"
# nvmlGpuFabricState_t
_NOT_STARTED, _IN_PROGRESS, _COMPLETED = 1, 2, 3
_RESTARTED = ("sudo systemctl restart nvidia-fabricmanager", "systemctl status nvidia-fabricmanager")


@check(
    Severity.ERROR, source=_FABRIC, because_of=("gpu_lost", "fabric_manager_missing", "fabric_manager_version_differs")
)
def nvlink_fabric_not_ready(gpus: tuple[Gpu, ...]) -> Answer:
    """The NVSwitch fabric of this machine is not up.

    Why: without it CUDA stops with error 802, system not yet initialized.
    More: On NVSwitch machines the fabric manager must join the GPUs first.

    Fix: start the fabric manager; its version must equal the driver's.
    More: In an NVL72 rack it runs in the switch trays.
    """
    known = [gpu for gpu in gpus if gpu.fabric_state]  # 0 = no fabric here, which is no fault
    bad = [
        gpu
        for gpu in known
        if gpu.fabric_state in (_NOT_STARTED, _IN_PROGRESS) or (gpu.fabric_state == _COMPLETED and gpu.fabric_status)
    ]
    if bad:
        state = {_NOT_STARTED: "not started", _IN_PROGRESS: "still starting"}.get(
            bad[0].fabric_state or 0, f"ended with NVML code {bad[0].fabric_status}"
        )
        return Problem(
            f"NVSwitch fabric {state} on {counted(len(bad), 'GPU')}",
            fix=Fix(
                "Ask who runs the rack: the fabric manager is in its switch trays, not on this machine.",
                ("nvidia-smi -q | grep -A 12 Fabric",),
                who="admin",
            )
            if _in_a_rack(bad)
            else Fix(commands=_RESTARTED, who="admin"),
            evidence={f"gpu_{gpu.index}_state": gpu.fabric_state for gpu in bad},
            subjects=names_of(bad),
        )
    return Ok(f"fabric is up on {len(known)} of {len(gpus)} GPUs") if known else Skip("no NVSwitch fabric here")


def _in_a_rack(gpus: list[Gpu]) -> bool:
    """Whether the NVSwitches stand in other trays (NVL72): no fabric manager starts beside these GPUs."""
    return any(GRACE.search(gpu.name or "") for gpu in gpus)


def _fabric_is_up(gpus: tuple[Gpu, ...]) -> bool:
    return bool(gpus) and all(gpu.fabric_state == _COMPLETED and not gpu.fabric_status for gpu in gpus)


@check(Severity.ERROR, source=_FABRIC, because_of=("fabric_manager_version_differs",))
def fabric_manager_missing(gpus: tuple[Gpu, ...], pci: Pci, leftovers: Leftovers) -> Answer:
    """This machine has NVSwitches, and no fabric manager runs.

    Why: nobody sets up the routes between the GPUs: CUDA stops with error 802, system not yet initialized.
    More: It sets up the routes between the GPUs; before that CUDA refuses to start with error 802 "system not yet
    initialized", although nvidia-smi lists every GPU.

    Fix: start it; where it is not installed, install the version of the driver first.
    """
    if not pci.nvswitches:
        return Skip("no NVSwitch on the bus" if pci.nvswitches == 0 else "the bus cannot be read")
    if _fabric_is_up(gpus):
        return Ok(f"{counted(pci.nvswitches, 'NVSwitch', 'NVSwitches')}, and the fabric is up")
    running = [process for process in leftovers.processes if process.kind == "fabric_manager"]
    if running:
        return Ok(f"nv-fabricmanager runs (pid {running[0].pid})")
    if not leftovers.sees_all_processes:
        return Skip("the host's services are not shown here; on the host: systemctl status nvidia-fabricmanager")
    return Problem(
        f"{counted(pci.nvswitches, 'NVSwitch', 'NVSwitches')}, and no nv-fabricmanager runs",
        fix=Fix(
            commands=("sudo systemctl enable --now nvidia-fabricmanager", "systemctl status nvidia-fabricmanager"),
            who="admin",
        ),
        evidence={"nvswitches": pci.nvswitches, "installed": pci.fabric_manager},
    )


@check(Severity.ERROR, source=_FABRIC, because_of=("driver_library_mismatch",))
def fabric_manager_version_differs(gpus: tuple[Gpu, ...], pci: Pci, driver: Driver) -> Answer:
    """The fabric manager installed here is not of the driver's version.

    Why: it refuses to start beside another driver: the GPUs are not joined, and CUDA stops with error 802.
    More: It compares itself with the loaded driver when it starts, and gives up when they differ. An update of only one
    of the two does this.

    Fix: install the version of the driver, then restart it.
    """
    if not pci.nvswitches:
        return Skip("no NVSwitch on the bus" if pci.nvswitches == 0 else "the bus cannot be read")
    loaded = driver.module_version or driver.version
    wanted = numbers(loaded)
    if not wanted or pci.fabric_manager is None:
        return Skip(
            "nv-fabricmanager does not tell its version here" if wanted else "the driver's version is not known"
        )
    if numbers(pci.fabric_manager) == wanted:
        return Ok(f"nv-fabricmanager {pci.fabric_manager}, as the driver")
    if _fabric_is_up(gpus):
        return Ok(f"the fabric is up; at its next start nv-fabricmanager {pci.fabric_manager} wants its own driver")
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
    "Train without multicast until then.",
    ("export NCCL_NVLS_ENABLE=0",),
    kind="stopgap",
    caveat="an all-reduce over 8 GPUs loses about a quarter of its bandwidth",
)


@check(Severity.WARNING, source=_NVML, because_of=("nvlink_inactive", "nvlinks_fewer_than_model"))
def nvlink_fabric_degraded(gpus: tuple[Gpu, ...]) -> Answer:
    """The NVSwitch fabric is up, and reports that it is not sound.

    Why: collectives are slower than they should be, and NVLS (multicast in the switches) may fail when a group forms.
    More: A failed switch, a lost route or a half-configured partition leaves plain NVLink working; traffic is slower,
    and NCCL's NVLS fails with "Failed to bind NVLink SHARP (NVLS) Multicast memory", which torch shows as "unhandled
    cuda error".

    Fix: restart the fabric manager and reset the GPUs; if it stays: the vendor.
    More: NCCL_NVLS_ENABLE=0 gets a run through until it is repaired.
    """
    told = [
        (gpu, complaints)
        for gpu in gpus
        if gpu.fabric_state == _COMPLETED and (complaints := fabric_complaints(gpu.fabric_health_mask)) is not None
    ]
    bad = [gpu for gpu, complaints in told if complaints]
    if not bad:
        if not told:
            return Skip("no GPU here reports the health of its fabric")
        return Ok(f"the fabric reports no fault on {counted(len(told), 'GPU')}")
    first = next(complaints for _, complaints in told if complaints)
    return Problem(
        f"NVSwitch fabric of {gpu_list(gpu.index for gpu in bad)}: {'; '.join(first)}",
        fix=(
            Fix("Ask who runs the rack: its fabric manager is in the switch trays.", (_STATE,), who="admin")
            if _in_a_rack(bad)
            else Fix(commands=(_RESTARTED[0], _STATE), who="admin"),
            _WITHOUT_MULTICAST,
        ),
        evidence={f"gpu_{gpu.index}_health_mask": gpu.fabric_health_mask for gpu in bad},
        subjects=names_of(bad),
    )
