"""What does NVML report about the driver, the GPUs and the links between them?

Runs in its own child process (see `probes/runner.py`), because NVML can hang or abort. Only this file and `gauges.py`
import pynvml. Imports only the standard library and pynvml, so any interpreter can run it as a file. A call that fails
for one GPU is a gap of that GPU, never of the node.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

# nvmlReturn_t, nvml.h v13
_INVALID_ARGUMENT, _NOT_SUPPORTED, _NO_PERMISSION, _NOT_FOUND, _FUNCTION_NOT_FOUND = 2, 3, 4, 6, 13
_CORRUPTED_INFOROM, _NO_DATA, _ARGUMENT_VERSION_MISMATCH, _DEPRECATED = 14, 21, 25, 26
_ABSENT = (_NOT_SUPPORTED, _FUNCTION_NOT_FOUND, _NO_DATA, _ARGUMENT_VERSION_MISMATCH, _DEPRECATED)
_GPU_GONE = {15: "GPU_IS_LOST", 16: "RESET_REQUIRED", 8: "INSUFFICIENT_POWER"}
_NOT_AVAILABLE = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)  # NVML_VALUE_NOT_AVAILABLE in the widths it comes in
# More than any machine has: a larger count is invalid, and a loop over it would not finish.
_MOST_GPUS, _MOST_INSTANCES = 1024, 64
_SLOWDOWN, _MEMORY_MAX, _GPU_MAX = 1, 2, 3  # nvmlTemperatureThresholds_t
_CORRECTED, _UNCORRECTED, _VOLATILE, _AGGREGATE = 0, 1, 0, 1
_GRAPHICS_CLOCK, _SM_CLOCK = 0, 1
_UNKNOWN_STATE = 32  # NVML_PSTATE_UNKNOWN
_MEMORY_V2 = 0x02000028  # nvmlMemory_v2: includes the memory reserved by driver and firmware
_UNREPAIRABLE_V1 = 0x01000008  # nvmlUnrepairableMemory_v1, as in pynvml 13
# Field values, NVML_FI_DEV_…
_FIELD_RECOVERY_ACTION = 230
_FIELDS = {"memory_temperature_c": 82, "pcie_replays": 94}
_FIELDS_RETIRED = (29, 30)  # pages retired for several single-bit errors, for a double-bit error
_FIELD_NVLINK_SPEED = 164
# Replays, recoveries, CRC errors; since NVLink 5 (Blackwell) packets received with errors, recovery events.
_FIELDS_NVLINK_ERRORS = (161, 162, 163, 208, 215)
_VALUE = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}  # nvmlValueType_t
# Reasons that can appear briefly while the clocks change; they count only if a second reading has them too.
_TRANSIENT_REASONS = 0x08 | 0x20 | 0x40 | 0x80
_SECOND_READING_S = 0.05
# Once the driver has taken this long, optional details of the remaining GPUs are not queried.
_PATIENCE_S = 2.0
# pynvml's NVML_P2P_CAPS_INDEX_READ is a tuple by mistake (13.615.71)
_P2P_READ, _P2P_WRITE, _P2P_NVLINK, _P2P_ATOMICS = 0, 1, 2, 3
# fmt: off
_WITHOUT_A_HANDLE = (
    "uuid", "name", "pci", "compute_capability", "memory_total_bytes", "memory_used_bytes", "memory_free_bytes",
)
# fmt: on
_TOPOLOGY = {0: "LOC", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_END = object()  # past the last NVLink
_REMOTE = {0: "gpu", 1: "other", 2: "switch"}


def probe(
    sys_root: str = "/sys", dev_root: str = "/dev", modprobe: str = "/usr/bin/nvidia-modprobe"
) -> Iterator[dict[str, Any]]:
    """Yield the facts driver, then gpus and links, with gaps for calls that failed."""
    driver = _from_kernel(sys_root, modprobe)
    yield {"asking": "loading libnvidia-ml.so.1"}
    if missing := _library_missing():  # before pynvml, whose import would take longest on a machine without GPUs
        driver |= {"nvml_error": "LIBRARY_NOT_FOUND", "nvml_detail": missing, **_device_nodes(dev_root, try_them=True)}
        yield {"driver": driver, "gpus": [], "links": []} if _no_nvidia_gpu(driver) else {"driver": driver}
        return
    try:
        import pynvml
    except Exception as error:
        # A shadowed or broken pynvml: NVML was not queried, which does not mean "no driver".
        yield {
            "gap": {fact: ["crashed", f"pynvml cannot be imported: {error}"] for fact in ("driver", "gpus", "links")}
        }
        return
    yield {"asking": "nvmlInit"}
    began = time.monotonic()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        driver |= {"nvml_error": _name(pynvml, error), "nvml_detail": str(error)}
        driver |= _device_nodes(dev_root, try_them=True)
        yield {"driver": driver}
        return
    driver["init_s"] = round(time.monotonic() - began, 4)
    driver |= _device_nodes(dev_root)  # only now, because nvmlInit creates missing nodes
    yield from _query(_Tolerant(pynvml), driver, sys_root)


def _from_kernel(sys_root: str, modprobe: str) -> dict[str, Any]:
    """Return the fact driver as the kernel reports it; the values that NVML reports are still None."""
    return {
        "nvml_error": None,
        "nvml_detail": None,
        "version": None,
        "cuda_version": None,
        "nvml_version": None,
        "module_version": _read(f"{sys_root}/module/nvidia/version"),
        "pci_gpus": _pci_gpus(sys_root),
        "uvm_loaded": os.path.isdir(f"{sys_root}/module/nvidia_uvm") if os.path.isdir(f"{sys_root}/module") else None,
        "modprobe": _is_setuid(modprobe),
    }


def _query(pynvml: Any, driver: dict[str, Any], sys_root: str) -> Iterator[dict[str, Any]]:
    """Yield what NVML reports once it is initialized."""
    call = _Caller(pynvml)
    driver["version"] = call.text("driver.version", pynvml.nvmlSystemGetDriverVersion)
    driver["nvml_version"] = call.text("driver.nvml_version", pynvml.nvmlSystemGetNVMLVersion)
    cuda = call("driver.cuda_version", pynvml.nvmlSystemGetCudaDriverVersion_v2)
    driver["cuda_version"] = [cuda // 1000, cuda % 1000 // 10] if cuda else None
    if cuda == 0:
        call.gaps["driver.cuda_version"] = ["not_supported", "libcuda does not report its version"]
    yield {"driver": driver, "gap": call.gaps}

    (count,) = call("gpus", lambda: (pynvml.nvmlDeviceGetCount(),)) or (None,)
    if count is not None and not 0 <= count <= _MOST_GPUS:
        call.gaps["gpus"] = ["crashed", f"NVML reports {count} GPUs"]
        count = None
    if count is None:
        yield {"gap": call.gaps | {"links": call.gaps.get("gpus", ["crashed", "the GPUs could not be counted"])}}
        return
    gpus: list[dict[str, Any]] = []
    handles: dict[int, Any] = {}
    call.hurry_at = time.monotonic() + _PATIENCE_S
    for index in range(count):
        yield {"asking": f"GPU {index}"}
        gpu, handle = _gpu(pynvml, call, index, sys_root)
        gpus.append(gpu)
        if handle is not None:
            handles[index] = handle
    yield {"asking": "links between GPUs"}
    links = _links(pynvml, call, gpus, handles)
    yield {"gpus": gpus, "links": links, "gap": call.gaps}


class _Tolerant:
    """Wraps pynvml: a call that this version does not have fails like one the driver does not have."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(self._module, name)
        except AttributeError:
            if not name.startswith("nvmlDevice"):
                raise
        error = self._module.NVMLError(_FUNCTION_NOT_FOUND)

        def refuse(*args: Any) -> Any:
            raise error

        return refuse

    def __dir__(self) -> list[str]:
        return dir(self._module)


class _Caller:
    """Makes NVML calls. Returns the result, or None with the reason in `gaps` under the fact's name."""

    def __init__(self, pynvml: Any) -> None:
        self.pynvml = pynvml
        self.gaps: dict[str, list[str]] = {}
        self.gone: str | None = None  # why the current GPU does not respond at all
        self.hurry_at = float("inf")

    @property
    def hurried(self) -> bool:
        """Whether NVML was so slow that only essential values are still queried."""
        return time.monotonic() > self.hurry_at

    def __call__(self, fact: str, function: Callable[..., Any], *args: Any) -> Any:
        pynvml = self.pynvml
        try:
            value = function(*args)
        except UnicodeDecodeError as error:  # pynvml decodes text strictly
            self.gaps[fact] = ["crashed", f"NVML returned bytes that are not text: {error.object[:40]!r}"]
        except (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError) as error:
            self.record_failure(fact, getattr(error, "value", _FUNCTION_NOT_FOUND))
        except (ValueError, TypeError, ArithmeticError, MemoryError, LookupError) as error:
            # Impossible lengths and counts, from which pynvml creates buffers.
            self.gaps[fact] = ["crashed", f"NVML returned invalid data: {type(error).__name__}: {error}"]
        else:
            if type(value) is int and value in _NOT_AVAILABLE:
                self.gaps[fact] = ["not_supported", "NVML: not available"]
                return None
            self.gaps.pop(fact, None)  # a call by an older name may have failed before
            return value
        return None

    def record_failure(self, fact: str, code: int) -> None:
        """Record why a call failed."""
        if code in _ABSENT:
            self.gaps[fact] = ["not_supported", "NVML does not support this here"]
        elif code == _NO_PERMISSION:
            self.gaps[fact] = ["no_permission", "NVML: insufficient permissions"]
        else:
            self.gone = self.gone or _GPU_GONE.get(code)
            self.gaps[fact] = ["crashed", _name(self.pynvml, self.pynvml.NVMLError(code))]

    def text(self, fact: str, function: Callable[..., Any], *args: Any) -> Any:
        """Make a call that returns text; older versions of pynvml return bytes."""
        value = self(fact, function, *args)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _gpu(pynvml: Any, call: _Caller, index: int, sys_root: str) -> tuple[dict[str, Any], Any]:
    """Return one GPU's facts and its handle (None if NVML returns none)."""
    call.gone = None
    at = f"gpus[{index}]"
    handle = call(at, pynvml.nvmlDeviceGetHandleByIndex, index)
    gpu: dict[str, Any] = {**dict.fromkeys(_WITHOUT_A_HANDLE), "index": index, "nvlinks": None}
    if handle is None:
        kind, reason = call.gaps[at]
        return gpu | {"lost": reason if kind == "crashed" else None, "permitted": kind != "no_permission"}, None

    def ask(field: str, function: Callable[..., Any], *args: Any) -> Any:
        return call(f"{at}.{field}", function, *args)

    gpu["uuid"] = call.text(f"{at}.uuid", pynvml.nvmlDeviceGetUUID, handle)
    gpu["name"] = call.text(f"{at}.name", pynvml.nvmlDeviceGetName, handle)
    gpu |= _place(pynvml, ask, handle, sys_root)
    gpu |= _heat_and_power(pynvml, ask, handle)
    gpu |= _modes(pynvml, ask, handle)
    gpu |= _mig(pynvml, call, ask, at, handle)
    gpu |= _memory_health(pynvml, ask, handle)
    for field, function in (
        ("pcie_width", pynvml.nvmlDeviceGetCurrPcieLinkWidth),
        ("pcie_width_max", pynvml.nvmlDeviceGetMaxPcieLinkWidth),
        ("pcie_generation_max", pynvml.nvmlDeviceGetMaxPcieLinkGeneration),
        ("pcie_generation_max_gpu", pynvml.nvmlDeviceGetGpuMaxPcieLinkGeneration),
    ):
        gpu[field] = ask(field, function, handle)
    gpu["recovery_action"] = ask("recovery_action", _field, pynvml, handle, _FIELD_RECOVERY_ACTION)
    gpu |= _fabric(pynvml, ask, handle)
    gpu["nvlinks"] = _nvlinks(pynvml, ask, handle)
    gpu["processes"] = _processes(pynvml, ask, handle)
    essential = set(call.gaps)
    if call.hurried:
        call.gaps[f"{at}.details"] = ["not_asked", f"NVML took more than {_PATIENCE_S:g} s for the essential values"]
    elif call.gone is None:
        gpu |= _details(pynvml, call, at, handle, gpu["nvlinks"] or [])
    return gpu | _errors(call, at, essential), handle


def _place(pynvml: Any, ask: Callable[..., Any], handle: Any, sys_root: str) -> dict[str, Any]:
    """Return a GPU's compute capability, memory and location in the machine."""
    gpu: dict[str, Any] = {}
    gpu["pci"] = ask("pci", lambda: _pci_id(pynvml.nvmlDeviceGetPciInfo(handle)))
    gpu["compute_capability"] = ask("compute_capability", pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    gpu["minor"] = ask("minor", pynvml.nvmlDeviceGetMinorNumber, handle)
    gpu |= ask("memory_total_bytes", _memory, pynvml, handle) or {}
    gpu["numa_node"] = _numa_node(sys_root, gpu["pci"])
    words = os.sysconf("SC_NPROCESSORS_CONF") // 64 + 1
    cpus = ask("cpus_near", pynvml.nvmlDeviceGetCpuAffinity, handle, words)
    gpu["cpus_near"] = _cpu_list(cpus) if cpus is not None else None
    return gpu


def _heat_and_power(pynvml: Any, ask: Callable[..., Any], handle: Any) -> dict[str, Any]:
    gpu: dict[str, Any] = {}
    gpu["temperature_c"] = ask("temperature_c", pynvml.nvmlDeviceGetTemperature, handle, 0)
    gpu["temperature_slowdown_c"] = ask(
        "temperature_slowdown_c", pynvml.nvmlDeviceGetTemperatureThreshold, handle, _SLOWDOWN
    )
    for field, function in (
        ("power_w", pynvml.nvmlDeviceGetPowerUsage),
        ("power_limit_w", pynvml.nvmlDeviceGetPowerManagementLimit),
        ("power_limit_default_w", pynvml.nvmlDeviceGetPowerManagementDefaultLimit),
    ):
        milliwatt = ask(field, function, handle)
        gpu[field] = None if milliwatt is None else milliwatt / 1000
    return gpu


def _modes(pynvml: Any, ask: Callable[..., Any], handle: Any) -> dict[str, Any]:
    """Return a GPU's load and modes."""
    gpu: dict[str, Any] = {}
    utilization = ask("utilization_percent", pynvml.nvmlDeviceGetUtilizationRates, handle)
    gpu["utilization_percent"] = utilization.gpu if utilization else None
    gpu["clock_event_reasons"] = _clock_reasons(pynvml, ask, handle)
    persistence = ask("persistence_mode", pynvml.nvmlDeviceGetPersistenceMode, handle)
    gpu["persistence_mode"] = None if persistence is None else bool(persistence)
    gpu["compute_mode"] = ask("compute_mode", pynvml.nvmlDeviceGetComputeMode, handle)
    return gpu


def _errors(call: _Caller, at: str, essential: set[str]) -> dict[str, Any]:
    """Return whether a GPU is lost, and which of the essential calls failed."""
    gpu: dict[str, Any] = {}
    gpu["lost"] = call.gone
    if all(call.gaps.get(f"{at}.{field}", [""])[0] == "crashed" for field in ("uuid", "name", "memory_total_bytes")):
        gpu["lost"] = call.gone or call.gaps[f"{at}.uuid"][1]  # it has a handle, but all calls fail
    # Failed detail calls are gaps, not trouble: some healthy boards return odd codes for unsupported calls.
    gpu["trouble"] = [
        f"{fact.removeprefix(f'{at}.')}: {reason}"
        for fact, (kind, reason) in call.gaps.items()
        if kind == "crashed" and fact in essential and fact.startswith(f"{at}.")
    ]
    return gpu


def _memory(pynvml: Any, handle: Any) -> dict[str, int]:
    """Return a GPU's memory. "Used" includes reserved memory, as in the older call."""
    try:
        info = pynvml.nvmlDeviceGetMemoryInfo(handle, _MEMORY_V2)
    except pynvml.NVMLError:
        info = pynvml.nvmlDeviceGetMemoryInfo(handle)  # drivers before 510
        reserved = {}
    else:
        reserved = {"memory_reserved_bytes": info.reserved}
    return {
        "memory_total_bytes": info.total,
        "memory_used_bytes": info.used + reserved.get("memory_reserved_bytes", 0),
        "memory_free_bytes": info.free,
        **reserved,
    }


def _details(pynvml: Any, call: _Caller, at: str, handle: Any, nvlinks: list[dict[str, Any]]) -> dict[str, Any]:
    """Return optional details of a GPU, which are skipped if NVML is slow."""

    def ask(field: str, function: Callable[..., Any], *args: Any) -> Any:
        return None if call.gone else call(f"{at}.{field}", function, *args)

    found: dict[str, Any] = {}
    for field, function in (
        ("serial", pynvml.nvmlDeviceGetSerial),
        ("vbios", pynvml.nvmlDeviceGetVbiosVersion),
        ("gsp_firmware", pynvml.nvmlDeviceGetGspFirmwareVersion),
    ):
        found[field] = None if call.gone else call.text(f"{at}.{field}", function, handle)
    for field, function, arguments in (
        ("virtualization", pynvml.nvmlDeviceGetVirtualizationMode, ()),
        ("ecc_corrected_volatile", pynvml.nvmlDeviceGetTotalEccErrors, (_CORRECTED, _VOLATILE)),
        ("memory_temperature_max_c", pynvml.nvmlDeviceGetTemperatureThreshold, (_MEMORY_MAX,)),
        ("temperature_max_c", pynvml.nvmlDeviceGetTemperatureThreshold, (_GPU_MAX,)),
        ("temperature_margin_c", pynvml.nvmlDeviceGetMarginTemperature, ()),
        ("sm_clock_mhz", pynvml.nvmlDeviceGetClockInfo, (_SM_CLOCK,)),
        ("sm_clock_max_mhz", pynvml.nvmlDeviceGetMaxClockInfo, (_SM_CLOCK,)),
        ("application_clock_mhz", pynvml.nvmlDeviceGetApplicationsClock, (_GRAPHICS_CLOCK,)),
        ("application_clock_default_mhz", pynvml.nvmlDeviceGetDefaultApplicationsClock, (_GRAPHICS_CLOCK,)),
        ("performance_state", pynvml.nvmlDeviceGetPerformanceState, ()),
        ("pcie_generation", pynvml.nvmlDeviceGetCurrPcieLinkGeneration, ()),
    ):
        found[field] = ask(field, function, handle, *arguments)
    if found["performance_state"] == _UNKNOWN_STATE:
        found["performance_state"] = None
    found |= _more_details(pynvml, ask, handle)
    return found | _field_values(pynvml, call, at, handle, nvlinks)


def _more_details(pynvml: Any, ask: Callable[..., Any], handle: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    display = ask("display_active", pynvml.nvmlDeviceGetDisplayActive, handle)
    found["display_active"] = None if display is None else bool(display)
    bar1 = ask("bar1_total_bytes", pynvml.nvmlDeviceGetBAR1MemoryInfo, handle)
    if bar1 is not None:
        found |= {"bar1_total_bytes": bar1.bar1Total, "bar1_used_bytes": bar1.bar1Used}
    found["rows_banks_without_spare"] = ask(
        "rows_banks_without_spare", lambda: pynvml.nvmlDeviceGetRowRemapperHistogram(handle).none
    )
    for field, function in (
        ("ecc_sram_threshold_exceeded", _sram_exceeded),
        ("repair_pending", lambda pynvml, handle: any(pynvml.nvmlDeviceGetRepairStatus(handle))),
        ("memory_unrepairable", _unrepairable),
        ("inforom_valid", _inforom_valid),
        ("c2c_enabled", lambda pynvml, handle: bool(pynvml.nvmlDeviceGetC2cModeInfoV1(handle).isC2cEnabled)),
    ):
        found[field] = ask(field, function, pynvml, handle)
    return found


def _sram_exceeded(pynvml: Any, handle: Any) -> bool:
    """Whether SRAM errors exceed NVIDIA's threshold; needs root."""
    make = getattr(pynvml, "c_nvmlEccSramErrorStatus_v1_t", None)
    if make is None:
        raise pynvml.NVMLError(_FUNCTION_NOT_FOUND)
    status = make()
    pynvml.nvmlDeviceGetSramEccErrorStatus(handle, pynvml.byref(status))
    return bool(status.bThresholdExceeded)


def _unrepairable(pynvml: Any, handle: Any) -> bool:
    """Whether memory is damaged beyond repair."""
    # NVML writes the struct's only member; pynvml 13 has a version member first, so its own function always gets False.
    make = getattr(pynvml, "c_nvmlUnrepairableMemory_v1_t", None)
    find = getattr(pynvml, "_nvmlGetFunctionPointer", None)
    if make is None or find is None:
        raise pynvml.NVMLError(_FUNCTION_NOT_FOUND)
    status = make()
    if code := find("nvmlDeviceGetUnrepairableMemoryFlag_v1")(handle, pynvml.byref(status)):
        raise pynvml.NVMLError(code)
    return bool(status.unrepairableMemory if status.version == _UNREPAIRABLE_V1 else status.version)


def _inforom_valid(pynvml: Any, handle: Any) -> bool:
    """Whether the checksums of the board's InfoROM are valid."""
    try:
        pynvml.nvmlDeviceValidateInforom(handle)
    except pynvml.NVMLError as error:
        if error.value != _CORRUPTED_INFOROM:
            raise
        return False
    return True


def _field_values(pynvml: Any, call: _Caller, at: str, handle: Any, nvlinks: list[dict[str, Any]]) -> dict[str, Any]:
    """Return counters in one call; also sets speed and errors of each active NVLink in `nvlinks`."""
    active = [link for link in nvlinks if link["active"]]
    wanted = [(number, 0) for number in (*_FIELDS.values(), *_FIELDS_RETIRED)]
    wanted += [(number, link["link"]) for link in active for number in (_FIELD_NVLINK_SPEED, *_FIELDS_NVLINK_ERRORS)]
    answered = None if call.gone else call(f"{at}.fields", pynvml.nvmlDeviceGetFieldValues, handle, wanted)
    if answered is None:
        return {}
    call.gone = next((_GPU_GONE[field.nvmlReturn] for field in answered if field.nvmlReturn in _GPU_GONE), None)
    values = dict(zip(wanted, map(_value, answered), strict=True))
    found: dict[str, Any] = {field: values[number, 0] for field, number in _FIELDS.items()}
    retired = [values[number, 0] for number in _FIELDS_RETIRED]
    found["retired_pages"] = None if None in retired else sum(retired)
    for link in active:
        errors = [values[number, link["link"]] for number in _FIELDS_NVLINK_ERRORS]
        known = [number for number in errors if number is not None]
        link["speed_mb_per_s"] = values[_FIELD_NVLINK_SPEED, link["link"]] or None
        link["errors"] = sum(known) if known else None
    return found


def _value(field: Any) -> int | None:
    """Return one field value; None if it failed, as some do on most boards."""
    if field.nvmlReturn:
        return None
    value = int(getattr(field.value, _VALUE.get(field.valueType, "ullVal")))
    return None if value in _NOT_AVAILABLE else value


def _clock_reasons(pynvml: Any, ask: Callable[..., Any], handle: Any) -> Any:
    """Return the mask of reasons for reduced clocks. The call was renamed in driver 535."""

    def read() -> Any:
        new = getattr(pynvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
        value = ask("clock_event_reasons", new, handle) if new else None
        if value is None:
            value = ask("clock_event_reasons", pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
        return value

    first = read()
    if not first or not first & _TRANSIENT_REASONS:
        return first
    time.sleep(_SECOND_READING_S)
    second = read()
    return None if second is None else second & (first | ~_TRANSIENT_REASONS)


def _mig(pynvml: Any, call: _Caller, ask: Callable[..., Any], at: str, handle: Any) -> dict[str, Any]:
    if (mode := ask("mig_mode", pynvml.nvmlDeviceGetMigMode, handle)) is None:
        return {}
    uuids = []
    if mode[0]:
        slots = ask("mig_uuids", pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0
        for index in range(min(slots, _MOST_INSTANCES)):
            try:
                instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            except pynvml.NVMLError as error:
                if error.value not in (_NOT_FOUND, _INVALID_ARGUMENT):  # slots are sparse
                    call.gaps[f"{at}.mig_uuids"] = ["crashed", _name(pynvml, error)]
                continue
            uuid = call.text(f"{at}.mig_uuids", pynvml.nvmlDeviceGetUUID, instance)
            uuids += [uuid] if uuid else []
    return {"mig_mode": bool(mode[0]), "mig_mode_pending": bool(mode[1]), "mig_uuids": uuids}


def _memory_health(pynvml: Any, ask: Callable[..., Any], handle: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    ecc = ask("ecc_enabled", pynvml.nvmlDeviceGetEccMode, handle)
    if ecc is not None:
        found |= {"ecc_enabled": bool(ecc[0]), "ecc_pending": bool(ecc[1])}
    for field, counter in (("ecc_uncorrected_volatile", _VOLATILE), ("ecc_uncorrected_aggregate", _AGGREGATE)):
        found[field] = ask(field, pynvml.nvmlDeviceGetTotalEccErrors, handle, _UNCORRECTED, counter)
    rows = ask("rows_remapped_uncorrectable", pynvml.nvmlDeviceGetRemappedRows, handle)
    if rows is not None:
        found |= {
            "rows_remapped_uncorrectable": rows[1],
            "rows_remap_pending": bool(rows[2]),
            "rows_remap_failed": bool(rows[3]),
        }
    pending = ask("retired_pages_pending", pynvml.nvmlDeviceGetRetiredPagesPendingStatus, handle)
    found["retired_pages_pending"] = None if pending is None else bool(pending)
    return found


def _fabric(pynvml: Any, ask: Callable[..., Any], handle: Any) -> dict[str, Any]:
    """Return the state of the NVSwitch fabric (Hopper and newer)."""
    make = getattr(pynvml, "c_nvmlGpuFabricInfo_v2_t", None)
    if make is None:
        return {}
    info = make()
    info.version = pynvml.nvmlGpuFabricInfo_v2

    def read() -> Any:
        pynvml.nvmlDeviceGetGpuFabricInfoV(handle, pynvml.byref(info))
        return info

    if ask("fabric_state", read) is None:
        return {}
    cluster = bytes(info.clusterUuid).hex()
    return {
        "fabric_state": info.state,
        "fabric_status": info.status,
        "fabric_health_mask": info.healthMask,
        "fabric_clique": info.cliqueId,
        "fabric_cluster": "-".join((cluster[:8], cluster[8:12], cluster[12:16], cluster[16:20], cluster[20:]))
        if cluster.strip("0")
        else None,
    }


def _field(pynvml: Any, handle: Any, number: int) -> Any:
    """Return one field value. It has its own return code."""
    value = pynvml.nvmlDeviceGetFieldValues(handle, [number])[0]
    if value.nvmlReturn:
        raise pynvml.NVMLError(value.nvmlReturn)
    return value.value.uiVal


def _nvlinks(pynvml: Any, ask: Callable[..., Any], handle: Any) -> list[dict[str, Any]] | None:
    """Return all NVLinks of a GPU, up to the first invalid number; None, with a gap, if one cannot be read."""
    links = []
    ended = (_INVALID_ARGUMENT, _NOT_SUPPORTED, _FUNCTION_NOT_FOUND)

    def read(link: int) -> dict[str, Any] | None:
        try:
            active = bool(pynvml.nvmlDeviceGetNvLinkState(handle, link))
        except pynvml.NVMLError as error:
            if error.value in ended:
                return None
            raise
        if not active:
            return {"link": link, "active": False, "remote": "unknown", "remote_pci": None}
        remote = _REMOTE.get(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link), "unknown")
        return {
            "link": link,
            "active": True,
            "remote": remote,
            "remote_pci": _pci_id(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link)),
        }

    for number in range(getattr(pynvml, "NVML_NVLINK_MAX_LINKS", 36)):
        link = ask("nvlinks", lambda number=number: read(number) or _END)
        if link is None:
            return None
        if link is _END:
            break
        links.append(link)
    return links


def _processes(pynvml: Any, ask: Callable[..., Any], handle: Any) -> list[dict[str, Any]] | None:
    found = {}
    for kind, function in (
        ("graphics", pynvml.nvmlDeviceGetGraphicsRunningProcesses),
        ("compute", pynvml.nvmlDeviceGetComputeRunningProcesses),
    ):
        listed = ask("processes" if kind == "compute" else "graphics_processes", function, handle)
        if listed is None:
            if kind == "compute":
                return None
            continue
        for process in listed:
            found[process.pid] = _process(process.pid, kind, process.usedGpuMemory)
    return list(found.values())


def _process(pid: int, kind: str, memory: int | None) -> dict[str, Any]:
    """Return a process's name and owner, if visible in this PID namespace; never its argv."""
    name = _read(f"/proc/{pid}/comm")
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        uid = None
    try:
        user = None if uid is None else pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    return {
        "pid": pid,
        "kind": kind,
        "memory_bytes": memory,
        "name": name,
        "user": user,
        "mine": None if uid is None else uid == os.getuid(),
    }


def _links(pynvml: Any, call: _Caller, gpus: list[dict[str, Any]], handles: dict[int, Any]) -> list[dict[str, Any]]:
    """Return the path between every pair of GPUs that have a handle."""
    links = []
    by_pci = {gpu["pci"]: gpu["index"] for gpu in gpus if gpu["pci"]}
    switch = {gpu["index"]: sum(n["remote"] == "switch" for n in gpu.get("nvlinks") or []) for gpu in gpus}
    for a in sorted(handles):
        for b in sorted(handles):
            if a >= b:
                continue
            at = f"links[{a}-{b}]"
            direct = sum(n["active"] and by_pci.get(n["remote_pci"]) == b for n in gpus[a].get("nvlinks") or [])
            known = all(gpus[g].get("nvlinks") is not None and gpus[g]["pci"] for g in (a, b))
            if not known:
                call.gaps[f"{at}.nvlinks"] = ["crashed", "the NVLinks of one of the GPUs could not be read"]
            level = call(f"{at}.topology", pynvml.nvmlDeviceGetTopologyCommonAncestor, handles[a], handles[b])
            links.append(
                {
                    "a": a,
                    "b": b,
                    "topology": _TOPOLOGY.get(level),
                    "nvlinks": (direct or min(switch[a], switch[b])) if known else None,
                    "through_switch": not direct and bool(switch[a] and switch[b]),
                    "p2p_read": call(
                        f"{at}.p2p_read", pynvml.nvmlDeviceGetP2PStatus, handles[a], handles[b], _P2P_READ
                    ),
                    "p2p_write": call(
                        f"{at}.p2p_write", pynvml.nvmlDeviceGetP2PStatus, handles[a], handles[b], _P2P_WRITE
                    ),
                }
            )
            if not call.hurried:
                links[-1] |= {
                    name: call(f"{at}.{name}", pynvml.nvmlDeviceGetP2PStatus, handles[a], handles[b], number)
                    for name, number in (("p2p_atomics", _P2P_ATOMICS), ("p2p_nvlink", _P2P_NVLINK))
                }
    return links


def _name(pynvml: Any, error: Any) -> str:
    """Return NVML's name for a return code: LIBRARY_NOT_FOUND, GPU_IS_LOST and so on."""
    code = getattr(error, "value", None)
    for name in dir(pynvml):
        if name.startswith("NVML_ERROR_") and getattr(pynvml, name) == code:
            return name.removeprefix("NVML_ERROR_")
    return f"ERROR_{code}"


def _library_missing() -> str | None:
    """Return the loader's error if the library does not load; None if it loads."""
    import ctypes

    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        return str(error)
    return None


def _no_nvidia_gpu(driver: dict[str, Any]) -> bool:
    """Whether the machine has no NVIDIA GPU: no library, no module, no device node, nothing on the bus."""
    return (
        driver["nvml_error"] == "LIBRARY_NOT_FOUND"
        and "cannot open shared object file: No such file" in (driver["nvml_detail"] or "")
        and not driver["pci_gpus"]
        and not driver["device_nodes"]
        and not driver["module_version"]
    )


def _pci_gpus(sys_root: str) -> int | None:
    """Count NVIDIA display (0x0300) and 3D (0x0302) controllers on the PCI bus; None if it cannot be read."""
    found = 0
    try:
        devices = os.listdir(f"{sys_root}/bus/pci/devices")
    except OSError:
        return None
    for device in devices:
        folder = f"{sys_root}/bus/pci/devices/{device}"
        if _read(f"{folder}/vendor") == "0x10de" and (_read(f"{folder}/class") or "")[:6] in ("0x0300", "0x0302"):
            found += 1
    return found


def _device_nodes(dev_root: str, *, try_them: bool = False) -> dict[str, Any]:
    """Return the driver's device nodes, and which of the nodes that CUDA opens this user cannot open.

    `try_them`: open them, as NVML did before. A cgroup that blocks a device does not show in file permissions.
    """
    try:
        names = sorted(name for name in os.listdir(dev_root) if name.startswith("nvidia") or name == "dxg")
    except OSError:
        return {"device_nodes": [], "nodes_denied": None}
    opened = [
        name for name in names if name in ("nvidiactl", "nvidia-uvm", "dxg") or name.removeprefix("nvidia").isdecimal()
    ]
    denied = [name for name in opened if not _usable(f"{dev_root}/{name}", try_it=try_them)]
    return {
        "device_nodes": [f"/dev/{name}" for name in names],
        "nodes_denied": [f"/dev/{name}" for name in denied],
        "nodes_group": _group(f"{dev_root}/{denied[0]}") if denied else None,
        **_imex(f"{dev_root}/nvidia-caps-imex-channels"),
    }


def _usable(path: str, *, try_it: bool) -> bool:
    """Whether this user can read and write the node."""
    if not os.access(path, os.R_OK | os.W_OK):
        return False
    if not try_it:
        return True
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError as error:
        return error.errno not in (errno.EPERM, errno.EACCES)
    return True


def _group(path: str) -> str | None:
    """Return the group whose members can read and write the node; None if membership would not help."""
    import grp

    try:
        found = os.stat(path)
        if found.st_gid == 0 or found.st_mode & 0o060 != 0o060 or found.st_gid in (os.getgid(), *os.getgroups()):
            return None
        return grp.getgrgid(found.st_gid).gr_name
    except (OSError, KeyError):
        return None


def _imex(folder: str) -> dict[str, Any]:
    """Return the number of IMEX channels (thousands on some machines), and whether one is usable."""
    try:
        channels = [name for name in os.listdir(folder) if name.startswith("channel")]
    except OSError:
        return {"imex_channels": None if os.path.lexists(folder) else 0, "imex_usable": None}
    usable = any(os.access(f"{folder}/{name}", os.R_OK | os.W_OK) for name in sorted(channels))
    return {"imex_channels": len(channels), "imex_usable": usable if channels else None}


def _is_setuid(path: str) -> bool:
    try:
        return bool(os.stat(path).st_mode & stat.S_ISUID)
    except OSError:
        return False


def _pci_id(info: Any) -> str:
    bus_id: bytes | str = info.busId
    text = (bus_id.decode("ascii", "replace") if isinstance(bus_id, bytes) else bus_id).lower()
    return text[4:] if len(text) == 16 else text  # NVML writes the domain with 8 digits, the kernel with 4


def _numa_node(sys_root: str, pci: str | None) -> int | None:
    value = _read(f"{sys_root}/bus/pci/devices/{pci}/numa_node") if pci else None
    return int(value) if value and value.lstrip("-").isdigit() and int(value) >= 0 else None


def _cpu_list(words: Iterable[int]) -> str | None:
    """Return 64-bit masks as a CPU list in the kernel's format: 0-31,64-95."""
    cpus = [64 * i + bit for i, word in enumerate(words) for bit in range(64) if word >> bit & 1]
    ranges: list[str] = []
    start: int | None = None
    for i, cpu in enumerate(cpus):
        start = cpu if start is None else start
        if i + 1 == len(cpus) or cpus[i + 1] != cpu + 1:
            ranges.append(f"{start}-{cpu}" if cpu > start else f"{cpu}")
            start = None
    return ",".join(ranges) or None


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None
