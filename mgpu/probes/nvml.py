"""What does NVML say about the driver, the GPUs and the links between them?

Runs in a child process of its own (see `probes/__init__.py`): NVML may hang or abort. The only file that imports
pynvml. Standard library and pynvml only, so that it can be handed to any interpreter as a file. A call that one GPU
refuses is that GPU's gap, never the node's.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterable, Iterator
from typing import Any

# nvmlReturn_t, nvml.h v13
_INVALID_ARGUMENT, _NOT_SUPPORTED, _NO_PERMISSION, _FUNCTION_NOT_FOUND = 2, 3, 4, 13
_NOT_FOUND = 6
_GPU_GONE = {15: "GPU_IS_LOST", 16: "RESET_REQUIRED", 8: "INSUFFICIENT_POWER"}
_FIELD_RECOVERY_ACTION = 230  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, pynvml 13
_SLOWDOWN, _UNCORRECTED, _VOLATILE, _AGGREGATE = 1, 1, 0, 1
_P2P_READ, _P2P_WRITE = 0, 1  # pynvml's NVML_P2P_CAPS_INDEX_READ is a tuple by mistake (13.615.71)
_TOPOLOGY = {0: "LOC", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_END = object()  # past the last NVLink
_REMOTE = {0: "gpu", 1: "other", 2: "switch"}


def probe(sys_root: str = "/sys", dev_root: str = "/dev") -> Iterator[dict[str, Any]]:
    """Yield the facts driver, then gpus and links, with gaps for what single calls refused."""
    driver: dict[str, Any] = {
        "nvml_error": None,
        "nvml_detail": None,
        "version": None,
        "cuda_version": None,
        "nvml_version": None,
        "module_version": _read(f"{sys_root}/module/nvidia/version"),
        "pci_gpus": _pci_gpus(sys_root),
        "device_nodes": _device_nodes(dev_root),
        "uvm_loaded": os.path.isdir(f"{sys_root}/module/nvidia_uvm") if os.path.isdir(f"{sys_root}/module") else None,
    }
    try:
        import pynvml
    except Exception as error:
        # A shadowed or broken pynvml: NVML was never asked, which is not the same as "no driver".
        yield {
            "gap": {fact: ["crashed", f"pynvml cannot be imported: {error}"] for fact in ("driver", "gpus", "links")}
        }
        return
    yield {"asking": "nvmlInit"}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        driver |= {"nvml_error": _name(pynvml, error), "nvml_detail": _why(pynvml, error)}
        yield {"driver": driver, "gpus": [], "links": []} if _nothing_here(driver) else {"driver": driver}
        return
    pynvml = _Tolerant(pynvml)
    call = _Caller(pynvml)
    driver["version"] = call.text("driver.version", pynvml.nvmlSystemGetDriverVersion)
    driver["nvml_version"] = call.text("driver.nvml_version", pynvml.nvmlSystemGetNVMLVersion)
    cuda = call("driver.cuda_version", pynvml.nvmlSystemGetCudaDriverVersion_v2)
    driver["cuda_version"] = [cuda // 1000, cuda % 1000 // 10] if cuda else None
    if cuda == 0:
        call.gaps["driver.cuda_version"] = ["not_supported", "libcuda does not tell its version"]
    yield {"driver": driver, "gap": call.gaps}

    count = call("gpus", pynvml.nvmlDeviceGetCount)
    if count is None:
        yield {"gap": call.gaps | {"links": call.gaps.get("gpus", ["crashed", "the GPUs could not be counted"])}}
        return
    gpus: list[dict[str, Any]] = []
    handles: dict[int, Any] = {}
    for index in range(count):
        yield {"asking": f"GPU {index}"}
        gpu, handle = _gpu(pynvml, call, index, sys_root)
        gpus.append(gpu)
        if handle is not None:
            handles[index] = handle
    yield {"asking": "the links between GPUs"}
    links = _links(pynvml, call, gpus, handles)
    yield {"gpus": gpus, "links": links, "gap": call.gaps}


class _Tolerant:
    """pynvml, where a call this version of it does not have fails like one the driver does not have."""

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
    """Makes NVML calls: an answer, or None with the reason in `gaps` under the fact's name."""

    def __init__(self, pynvml: Any) -> None:
        self.pynvml = pynvml
        self.gaps: dict[str, list[str]] = {}
        self.gone: str | None = None  # why the GPU that is being read does not answer at all

    def __call__(self, fact: str, function: Callable[..., Any], *args: Any) -> Any:
        pynvml = self.pynvml
        try:
            value = function(*args)
        except UnicodeDecodeError as error:  # pynvml decodes text strictly
            self.gaps[fact] = ["crashed", f"NVML answered bytes that are no text: {error.object[:40]!r}"]
        except (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError) as error:
            code = getattr(error, "value", _FUNCTION_NOT_FOUND)
            if code in (_NOT_SUPPORTED, _FUNCTION_NOT_FOUND):
                self.gaps[fact] = ["not_supported", "NVML does not support this here"]
            elif code == _NO_PERMISSION:
                self.gaps[fact] = ["no_permission", "NVML: insufficient permissions"]
            else:
                self.gone = self.gone or _GPU_GONE.get(code)
                self.gaps[fact] = ["crashed", _name(pynvml, error)]
        else:
            self.gaps.pop(fact, None)  # an older name of the call may have failed before
            return value
        return None

    def text(self, fact: str, function: Callable[..., Any], *args: Any) -> Any:
        value = self(fact, function, *args)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _gpu(pynvml: Any, call: _Caller, index: int, sys_root: str) -> tuple[dict[str, Any], Any]:
    """One GPU's facts and its handle (None when NVML gives none)."""
    call.gone = None
    at = f"gpus[{index}]"
    handle = call(at, pynvml.nvmlDeviceGetHandleByIndex, index)
    gpu: dict[str, Any] = dict.fromkeys((
        "uuid", "name", "pci", "compute_capability", "memory_total_bytes", "memory_used_bytes", "memory_free_bytes",
    ))  # fmt: skip
    gpu["index"] = index
    gpu["nvlinks"] = None
    if handle is None:
        kind, reason = call.gaps[at]
        return gpu | {"lost": reason if kind == "crashed" else None, "permitted": kind != "no_permission"}, None

    def ask(field: str, function: Callable[..., Any], *args: Any) -> Any:
        return call(f"{at}.{field}", function, *args)

    gpu["uuid"] = call.text(f"{at}.uuid", pynvml.nvmlDeviceGetUUID, handle)
    gpu["name"] = call.text(f"{at}.name", pynvml.nvmlDeviceGetName, handle)
    gpu["pci"] = ask("pci", lambda: _pci_id(pynvml.nvmlDeviceGetPciInfo(handle)))
    gpu["compute_capability"] = ask("compute_capability", pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    memory = ask("memory_total_bytes", pynvml.nvmlDeviceGetMemoryInfo, handle)
    if memory:
        gpu |= {"memory_total_bytes": memory.total, "memory_used_bytes": memory.used, "memory_free_bytes": memory.free}
    gpu["numa_node"] = _numa_node(sys_root, gpu["pci"])
    words = os.sysconf("SC_NPROCESSORS_CONF") // 64 + 1
    cpus = ask("cpus_near", pynvml.nvmlDeviceGetCpuAffinity, handle, words)
    gpu["cpus_near"] = _cpu_list(cpus) if cpus is not None else None
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
    utilization = ask("utilization_percent", pynvml.nvmlDeviceGetUtilizationRates, handle)
    gpu["utilization_percent"] = utilization.gpu if utilization else None
    gpu["clock_event_reasons"] = _clock_reasons(pynvml, ask, handle)
    persistence = ask("persistence_mode", pynvml.nvmlDeviceGetPersistenceMode, handle)
    gpu["persistence_mode"] = None if persistence is None else bool(persistence)
    gpu["compute_mode"] = ask("compute_mode", pynvml.nvmlDeviceGetComputeMode, handle)
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
    gpu["lost"] = call.gone
    if all(call.gaps.get(f"{at}.{field}", [""])[0] == "crashed" for field in ("uuid", "name", "memory_total_bytes")):
        gpu["lost"] = call.gone or call.gaps[f"{at}.uuid"][1]  # it has a handle, and answers nothing
    errors = {fact.removeprefix(f"{at}."): reason for fact, (kind, reason) in call.gaps.items() if kind == "crashed"}
    gpu["trouble"] = [f"{field}: {reason}" for field, reason in errors.items() if not field.startswith("gpus[")]
    return gpu, handle


def _clock_reasons(pynvml: Any, ask: Callable[..., Any], handle: Any) -> Any:
    """The mask of reasons the clocks are held down. The call was renamed in driver 535."""
    new = getattr(pynvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    value = ask("clock_event_reasons", new, handle) if new else None
    if value is None:
        value = ask("clock_event_reasons", pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    return value


def _mig(pynvml: Any, call: _Caller, ask: Callable[..., Any], at: str, handle: Any) -> dict[str, Any]:
    mode = ask("mig_mode", pynvml.nvmlDeviceGetMigMode, handle)
    if mode is None:
        return {}
    uuids = []
    if mode[0]:
        for index in range(ask("mig_uuids", pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
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
    """State of the NVSwitch fabric (Hopper and newer)."""
    make = getattr(pynvml, "c_nvmlGpuFabricInfo_v2_t", None)
    if make is None:
        return {}
    info = make()
    info.version = pynvml.nvmlGpuFabricInfo_v2

    def read() -> Any:
        pynvml.nvmlDeviceGetGpuFabricInfoV(handle, pynvml.byref(info))
        return info

    return {} if ask("fabric_state", read) is None else {"fabric_state": info.state, "fabric_status": info.status}


def _field(pynvml: Any, handle: Any, number: int) -> Any:
    """One field value; it carries a return code of its own."""
    value = pynvml.nvmlDeviceGetFieldValues(handle, [number])[0]
    if value.nvmlReturn:
        raise pynvml.NVMLError(value.nvmlReturn)
    return value.value.uiVal


def _nvlinks(pynvml: Any, ask: Callable[..., Any], handle: Any) -> list[dict[str, Any]] | None:
    """Every NVLink the GPU has. The list ends at the first number NVML calls invalid; any other error leaves the links
    of this GPU unknown (None), with a gap: fewer links than there are would be a wrong fact."""
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
    """Name and owner as far as this pid namespace shows them; never the argv."""
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
    """The path between every pair of GPUs that have a handle."""
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
                call.gaps[f"{at}.nvlinks"] = ["crashed", "the NVLinks of one of the two could not be read"]
            level = call(f"{at}.topology", pynvml.nvmlDeviceGetTopologyCommonAncestor, handles[a], handles[b])
            links.append({
                "a": a,
                "b": b,
                "topology": _TOPOLOGY.get(level),
                "nvlinks": (direct or min(switch[a], switch[b])) if known else None,
                "through_switch": not direct and bool(switch[a] and switch[b]),
                "p2p_read": call(f"{at}.p2p_read", pynvml.nvmlDeviceGetP2PStatus, handles[a], handles[b], _P2P_READ),
                "p2p_write": call(f"{at}.p2p_write", pynvml.nvmlDeviceGetP2PStatus, handles[a], handles[b], _P2P_WRITE),
            })  # fmt: skip
    return links


def _name(pynvml: Any, error: Any) -> str:
    """NVML's own name of a return code: LIBRARY_NOT_FOUND, GPU_IS_LOST …"""
    code = getattr(error, "value", None)
    for name in dir(pynvml):
        if name.startswith("NVML_ERROR_") and getattr(pynvml, name) == code:
            return name.removeprefix("NVML_ERROR_")
    return f"ERROR_{code}"


def _why(pynvml: Any, error: Any) -> str:
    """NVML's text; for a library that does not load, the loader's own words, which pynvml swallows."""
    if getattr(error, "value", None) == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        import ctypes

        try:
            ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as real:
            return str(real)
    return str(error)


def _nothing_here(driver: dict[str, Any]) -> bool:
    """No library, no module, no device node and nothing on the bus: a machine without NVIDIA GPUs."""
    return (
        driver["nvml_error"] == "LIBRARY_NOT_FOUND"
        and "cannot open shared object file: No such file" in (driver["nvml_detail"] or "")
        and not driver["pci_gpus"]
        and not driver["device_nodes"]
        and not driver["module_version"]
    )


def _pci_gpus(sys_root: str) -> int | None:
    """NVIDIA display (0x0300) and 3D (0x0302) controllers on the PCI bus; None when the bus cannot be read."""
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


def _device_nodes(dev_root: str) -> list[str]:
    try:
        names = os.listdir(dev_root)
    except OSError:
        return []
    return sorted(f"/dev/{name}" for name in names if name.startswith("nvidia") or name == "dxg")


def _pci_id(info: Any) -> str:
    bus_id: bytes | str = info.busId
    text = (bus_id.decode("ascii", "replace") if isinstance(bus_id, bytes) else bus_id).lower()
    return text[4:] if len(text) == 16 else text  # NVML writes the domain with 8 digits, the kernel with 4


def _numa_node(sys_root: str, pci: str | None) -> int | None:
    value = _read(f"{sys_root}/bus/pci/devices/{pci}/numa_node") if pci else None
    return int(value) if value and value.lstrip("-").isdigit() and int(value) >= 0 else None


def _cpu_list(words: Iterable[int]) -> str | None:
    """64-bit masks as the kernel writes CPU lists: 0-31,64-95."""
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
