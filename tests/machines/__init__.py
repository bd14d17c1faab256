"""Which machines does mgpu have to find healthy?

One JSON file a machine. `from` names what it was described from: recordings that people published, vendors' documents;
`nominal` says what no source tells. They are described by those sources, not by what our checks expect, and none is a
recording of ours unless it holds a whole Snapshot under `snapshot` (written by `mgpu doctor --save`).

    matrix    as `nvidia-smi topo -m` prints it, a row a GPU; mesh "8 NV18": the same word between all of them
    nics      a network card's row of the same table: how far it is from each GPU
    peer      what `nvidia-smi topo -p2p` prints for pairs without NVLink: OK (default), GNS (GPU not supported)
    switch    NVLinks end in NVSwitches; fabric: the fabric manager has done its work
    gpu/gpus  fields of every GPU, or of each; memory_mib and the rest are fields of Gpu
    places    [NUMA node, CPUs near, how many GPUs], in the order of the GPUs
    pci       a GPU's address each; nic_pci a network card's, by name; paths the bridges above an address
    flat      a virtual machine's bus: everything hangs on the host bridge itself
    others    addresses of GPUs on the bus that NVML does not list here
    driver, host, container, system, kernel, network, storage, slurm, env, torch, infiniband, leftovers, libraries
              what differs from a plain bare-metal box; gaps: facts that cannot be had there, and why
    dcgm      NVIDIA's monitoring runs
    true      ids of errors and warnings that are true of this machine; true_on_two: those a run on two machines adds

`python -m tests.machines NAME > FILE` writes one in full, for `mgpu doctor --from FILE`.

What a file does not name is a plain healthy box: the values of `tests/checks/facts.py`. Bridges that no source names
are made up so that the bus says what the table says.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mgpu.probes import environ
from mgpu.snapshot import (
    OF_A_RUN,
    Driver,
    Gap,
    Gpu,
    GpuProcess,
    HcaPort,
    InfiniBand,
    Interface,
    LeftProcess,
    Library,
    Link,
    NcclLibrary,
    Network,
    NvLink,
    Pci,
    PciDevice,
    Plan,
    Slurm,
    Snapshot,
    Storage,
    TorchDevice,
    TorchRuntime,
    from_json,
    path_between,
)
from tests.checks import facts

HERE = Path(__file__).parent
NAMES = tuple(sorted(path.stem for path in HERE.glob("*.json")))
MIB, GIB = 1 << 20, 1 << 30
_PEER = {"OK": 0, "GNS": 2}

# Kernels in the wheels, and the NCCL they ask for: torch.cuda.get_arch_list() and the wheels' metadata.
_VOLTA = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")
_BLACKWELL = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
_WHEELS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "2.4.1+cu121": ("12.1", _VOLTA, "nvidia-nccl-cu12==2.20.5"),
    "2.5.1+cu121": ("12.1", _VOLTA, "nvidia-nccl-cu12==2.21.5"),
    "2.5.1+cu124": ("12.4", _VOLTA, "nvidia-nccl-cu12==2.21.5"),
    "2.6.0+cu124": ("12.4", _VOLTA, "nvidia-nccl-cu12==2.21.5"),
    "2.8.0+cu129": ("12.9", ("sm_70", *_BLACKWELL, "compute_120"), "nvidia-nccl-cu12==2.27.3"),
    "2.9.0+cu130": ("13.0", (*_BLACKWELL, "compute_120"), "nvidia-nccl-cu13==2.27.7"),
}


def read(name: str) -> dict[str, Any]:
    """The file of a machine."""
    found: dict[str, Any] = json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))
    return found


def table(told: Mapping[str, Any]) -> list[list[str]]:
    """Words between GPUs, as `nvidia-smi topo -m` prints them."""
    if "mesh" in told:
        number, word = told["mesh"].split()
        return [["X" if a == b else word for b in range(int(number))] for a in range(int(number))]
    return [row.split() for row in told["matrix"]]


def machine(name: str, **other: Any) -> Snapshot:
    """The machine as a Snapshot. `other`: keys of its file, for another machine of this kind."""
    told = read(name) | other
    if "snapshot" in told:
        return from_json(told["snapshot"])
    matrix = table(told)
    told["numa"], told["cpus"] = _places(told["places"])
    gpus = tuple(_gpu(index, told, matrix) for index in range(len(matrix)))
    bus = _pci(told, gpus, matrix)
    env = told.get("env", {})
    visible = environ.resolve_visible(env.get("CUDA_VISIBLE_DEVICES"), gpus, told.get("driver", {}).get("version"))
    host = replace(facts.host(), **told.get("host", {}))
    torch, runtime, nccl, packages, libraries = _software(told, gpus, visible.gpus, bool(visible.mig), host.machine)
    system = _system(told["system"])
    container = replace(facts.BARE, **_tuples(told.get("container", {})))
    changes: dict[str, Any] = {
        "gpus": gpus,
        "links": _links(told, matrix, gpus, bus),
        "driver": _driver(told, gpus),
        "env": env,
        "visible": visible,
        "pytorch": torch,
        "torch_runtime": runtime,
        "nccl": nccl,
        "packages": packages,
        "libraries": libraries,
        "system": system,
        "kernel": _kernel(told, system.cpus_logical, gpus, host.virtual),
        "container": container,
        "host": host,
        "infiniband": _infiniband(told, bus),
        "pci": bus,
        "slurm": _slurm(told.get("slurm")),
        "network": _network(told),
        "storage": _storage(told.get("storage", {})),
        "leftovers": _leftovers(told),
        "plan": Plan(),
    }
    gaps = {fact: Gap(kind, reason) for fact, (kind, reason) in told.get("gaps", {}).items()}
    whole = facts.facts(**changes) | dict.fromkeys((*OF_A_RUN, *gaps))
    return Snapshot(**whole, gaps=gaps)


def _places(given: Iterable[tuple[int | None, str | None, int]]) -> tuple[list[int | None], list[str | None]]:
    numa: list[int | None] = []
    cpus: list[str | None] = []
    for node, near, number in given:
        numa += [node] * number
        cpus += [near] * number
    return numa, cpus


def _tuples(given: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no tuples."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}


# ---- the GPUs


def _gpu(index: int, told: dict[str, Any], matrix: list[list[str]]) -> Gpu:
    """One idle GPU."""
    given = dict(told["gpus"][index] if "gpus" in told else told["gpu"])
    total = given.pop("memory_mib") * MIB
    ecc, limit = given.pop("ecc", None), given.pop("power_limit_w")
    given.pop("device", None)
    major, minor = given["compute_capability"]
    remaps = ecc and major >= 8
    width, used = given.pop("pcie_width", 16), 0
    processes: tuple[GpuProcess, ...] | None = ()
    if told.get("desktop_on") == index:
        used = 600 * MIB
        processes = (GpuProcess(2211, "graphics", used, "Xorg", "root", False),)
    used += told.get("desktop_memory_mib", 0) * MIB
    reserved = given.pop("reserved_mib", 500 if major >= 9 else 400) * MIB
    usual: dict[str, Any] = {
        "index": index,
        "uuid": f"GPU-{index:02x}a1b2c3-0000-4000-8000-0123456789ab",
        "pci": f"0000{_address(told, index).upper()}",
        "minor": index,
        "memory_total_bytes": total,
        "memory_used_bytes": used + reserved,
        "memory_free_bytes": total - used - reserved,
        "memory_reserved_bytes": reserved,
        "numa_node": told["numa"][index],
        "cpus_near": told["cpus"][index],
        "temperature_c": 34,
        "temperature_slowdown_c": 87,
        "power_w": None if limit is None else limit / 10,
        "power_limit_w": None if limit is None else float(limit),
        "power_limit_default_w": None if limit is None else float(limit),
        "utilization_percent": 0,
        "clock_event_reasons": 1,  # idle
        "persistence_mode": True,
        "compute_mode": 0,
        "virtualization": 1 if told.get("host", {}).get("virtual") else 0,
        "mig_mode": False if ecc and (major, minor) in ((8, 0), (9, 0), (10, 0)) else None,
        "mig_mode_pending": False if ecc and (major, minor) in ((8, 0), (9, 0), (10, 0)) else None,
        "ecc_enabled": ecc,
        "ecc_pending": ecc,
        "ecc_uncorrected_volatile": 0 if ecc else None,
        "ecc_uncorrected_aggregate": 0 if ecc else None,
        "rows_remapped_uncorrectable": 0 if remaps else None,
        "rows_remap_pending": False if remaps else None,
        "rows_remap_failed": False if remaps else None,
        "retired_pages_pending": False if ecc and major < 8 else None,
        "gsp_firmware": told["driver"]["version"] if (major, minor) >= (7, 5) else None,
        "display_active": told.get("desktop_on") == index,
        "pcie_width": width,
        "pcie_width_max": 16 if width is not None else None,
        "pcie_generation": 1,  # an idle link rests at the lowest
        "pcie_generation_max_gpu": given.get("pcie_generation_max"),
        "pcie_replays": 0 if width is not None else None,
        "recovery_action": 0 if ecc and major >= 8 else None,
        "fabric_state": 3 if told.get("fabric") else 0 if major >= 9 else None,
        "fabric_status": 0 if told.get("fabric") else None,
        "nvlinks": _nvlinks(index, told, matrix, given),
        "processes": processes,
    }
    given = _tuples(given)
    if "processes" in given:
        given["processes"] = None
    return Gpu(**usual | given)


def _nvlinks(index: int, told: Mapping[str, Any], matrix: list[list[str]], given: dict[str, Any]) -> tuple[NvLink, ...]:
    """Its links, and where each ends. Taken out of `given`: nvlinks, how many it has; nvlinks_active, link_mb_per_s."""
    switched = bool(told.get("switch"))
    counts = [int(word[2:]) if word.startswith("NV") else 0 for word in matrix[index]]
    ends: list[str | None] = [None] * max(counts, default=0)
    if not switched:
        ends = [_address(told, peer) for peer, count in enumerate(counts) for _ in range(count)]
    links = given.pop("nvlinks", len(ends))
    active = given.pop("nvlinks_active", links if ends else 0)
    speed = given.pop("link_mb_per_s", None)
    ends += [None] * (links - len(ends))  # of those that are up, these end in GPUs that are not shown here
    return tuple(
        NvLink(n, True, "switch" if switched else "gpu", ends[n], speed, 0)
        if n < active
        else NvLink(n, False, "unknown", None)
        for n in range(links)
    )


def _address(told: Mapping[str, Any], index: int) -> str:
    address: str = told["pci"][index] if "pci" in told else f"0000:{0x11 + 9 * index:02x}:00.0"
    return address


def _links(told: Mapping[str, Any], matrix: list[list[str]], gpus: tuple[Gpu, ...], bus: Pci) -> tuple[Link, ...]:
    """The pairs of the matrix. Beside NVLink it does not say how far two GPUs are on PCIe: the bus does."""
    peer = _PEER[told.get("peer", "OK")]
    found = []
    for a, row in enumerate(matrix):
        for b in range(a + 1, len(row)):
            word = row[b]
            count = int(word[2:]) if word.startswith("NV") else 0
            one, other = bus.at(gpus[a].pci), bus.at(gpus[b].pci)
            topology: Any = (path_between(one, other) if one and other else None) if count else word
            may = 0 if count else peer
            found.append(Link(a, b, topology, count, bool(count and told.get("switch")), may, may))
    return tuple(found)


def _driver(told: Mapping[str, Any], gpus: tuple[Gpu, ...]) -> Driver:
    given = dict(told["driver"])
    version = given.pop("version")
    cuda = tuple(given.pop("cuda"))
    shown = len(gpus) + len(told.get("others", ()))
    nodes = ("/dev/nvidiactl", "/dev/nvidia-uvm", *(f"/dev/nvidia{number}" for number in range(shown)))
    usual = facts.driver(
        version=version, cuda_version=cuda, nvml_version=f"{cuda[0]}.{version}", module_version=version,
        pci_gpus=shown, device_nodes=nodes,
    )  # fmt: skip
    return replace(usual, **_tuples(given))


# ---- the bus


def _grouped(pairs: Mapping[tuple[str, str], str], names: Iterable[str], near: Collection[str]) -> dict[str, int]:
    """Which devices belong together when those whose distance is one of `near` do: a number for each group."""
    group = {name: [name] for name in names}
    for (a, b), word in pairs.items():
        if word in near and group[a] is not group[b]:
            merged = group[a] + group[b]
            for name in merged:
                group[name] = merged
    numbers = {id(members): number for number, members in enumerate({id(m): m for m in group.values()}.values())}
    return {name: numbers[id(members)] for name, members in group.items()}


def bridges(matrix: list[list[str]], nics: Mapping[str, str], *, flat: bool) -> dict[str, tuple[str, ...]]:
    """Host bridge, root port and switches' ports above each GPU ("0", "1" …) and card, such that the distances are
    those of the table. Where it tells none between two, they share nothing."""
    names = [*(str(index) for index in range(len(matrix))), *nics]
    pairs = {(str(a), str(b)): row[b] for a, row in enumerate(matrix) for b in range(a)}
    pairs |= {(name, str(gpu)): word for name, row in nics.items() for gpu, word in enumerate(row.split())}
    hosts = _grouped(pairs, names, ("PIX", "PXB", "PHB"))
    trees = _grouped(pairs, names, ("PIX", "PXB"))
    switches = _grouped(pairs, names, ("PIX",))
    found: dict[str, tuple[str, ...]] = {}
    for place, name in enumerate(names):
        domain, bus = divmod(8 * hosts[name], 256)
        host = f"{domain:04x}:{bus:02x}"
        root = f"pci{host}"
        tree = [other for other in names if trees[other] == trees[name]]
        levels = {switches[other] for other in tree}
        if flat:
            found[name] = (root,)
        elif len(tree) == 1:
            found[name] = (root, f"{host}:{place + 1:02x}.0")
        else:
            top: tuple[str, ...] = (root, f"{host}:{trees[name] + 1:02x}.0", f"ffff:{trees[name]:02x}:00.0")
            if len(levels) > 1:
                top += (f"ffff:{trees[name]:02x}:{switches[name] % 32:02x}.1", f"fffe:{switches[name]:02x}:00.0")
            found[name] = (*top, f"fffd:{place:02x}:00.0")
    return found


def _pci(told: Mapping[str, Any], gpus: tuple[Gpu, ...], matrix: list[list[str]]) -> Pci:
    if not told.get("pci_readable", True):
        return Pci((), False)
    nics = told.get("nics", {})
    made_up = bridges(matrix, nics, flat=told.get("flat", False))
    described = [told["gpus"][gpu.index] if "gpus" in told else told["gpu"] for gpu in gpus]
    devices = []
    for gpu, fields in zip(gpus, described, strict=True):
        if gpu.pcie_width is None:  # no such device here: the hypervisor shows something else
            continue
        kind = "030000" if "GeForce" in (gpu.name or "") or "RTX" in (gpu.name or "") else "030200"
        devices.append(
            _device(
                told, _address(told, gpu.index), made_up[str(gpu.index)], numa_node=gpu.numa_node,
                cpus_near=gpu.cpus_near, device=fields.get("device", "0000"), pci_class=kind, width=gpu.pcie_width,
                width_max=gpu.pcie_width_max,
            )
        )  # fmt: skip
    for place, address in enumerate(told.get("others", ())):
        devices.append(
            _device(told, address, (f"pci0000:f{place:x}", f"0000:f{place:x}:01.0"), device=described[0].get("device"))
        )
    common = {"width": 16, "width_max": 16, "speed_gt_per_s": 32.0, "speed_max_gt_per_s": 32.0} | told.get("nic", {})
    adapters = told.get("infiniband", {})
    layer, other = adapters.get("layer", "InfiniBand"), adapters.get("ethernet", ())
    for place, (name, row) in enumerate(nics.items()):
        words = row.split()
        near = next((gpu for gpu, word in zip(gpus, words, strict=True) if word != "SYS"), None)
        address = told.get("nic_pci", {}).get(name, f"0000:{0xC0 + 2 * place:02x}:00.0")
        usual = {
            "kind": "nic", "vendor": "15b3", "device": "1021", "driver": "mlx5_core",
            "names": (name, *_interfaces_of(told, name)), "numa_node": near.numa_node if near else None,
            "cpus_near": near.cpus_near if near else None,
            "pci_class": "020000" if layer != "InfiniBand" or name in other else "020700",
        }  # fmt: skip
        devices.append(_device(told, address, made_up[name], **usual | common))
    switches = told.get("nvswitches", 0)  # on this machine's own bus
    return facts.pci(
        *devices, nvswitches=switches, fabric_manager=told["driver"]["version"] if switches else None,
        cpu_vendor=told.get("cpu_vendor", "intel"), **_tuples(told.get("topology", {})),
    ) if devices else Pci((), True, 0, told.get("cpu_vendor"))  # fmt: skip


def _device(told: Mapping[str, Any], address: str, path: tuple[str, ...], **fields: Any) -> PciDevice:
    """A device as this user sees it: the registers of switches only root may read."""
    path = tuple(told.get("paths", {}).get(address, "/".join(path)).split("/"))
    root = told.get("host", {}).get("user_is_root", False)
    uplink = told.get("uplink", [16, 16]) if len(path) > 2 else (None, None)
    near = fields.get("cpus_near")
    return facts.pci_device(0, **{
        "address": address, "numa_node": None, "cpus_near": None, "path": path, "uplink_width": uplink[0],
        "uplink_width_max": uplink[1], "acs_redirect": False if root or len(path) <= 2 else None,
        "aer_fatal": None if told.get("host", {}).get("virtual") else 0,
        "cpus_near_usable": None if near is None else len(_cpus(near) & _cpus(told["system"].get("allowed", "0-4095"))),
    } | fields)  # fmt: skip


def _cpus(text: str) -> set[int]:
    """The CPUs that a list such as 0-3,8 names."""
    ends = [part.partition("-")[::2] for part in text.split(",") if part]
    return {number for first, last in ends for number in range(int(first), int(last or first) + 1)}


# ---- networks


def _interfaces_of(told: Mapping[str, Any], adapter: str) -> tuple[str, ...]:
    named = told.get("interfaces", {}).get(adapter)
    return (named,) if named else ()


def _infiniband(told: Mapping[str, Any], bus: Pci) -> InfiniBand:
    """One port a card. `ethernet`: cards unlike the others; `rates`: of some; `down`: without a cable."""
    given = dict(told.get("infiniband", {}))
    if not given:
        return facts.NO_INFINIBAND
    usual, other, down = given.pop("layer", "InfiniBand"), given.pop("ethernet", ()), given.pop("down", ())
    rate, rates = given.pop("rate"), given.pop("rates", {})
    ports: list[HcaPort] = []
    for place, card in enumerate(bus.of("nic")):
        name = card.names[0]
        layer = "Ethernet" if name in other else usual
        fields: dict[str, Any] = {
            "device": name, "pci": card.address, "numa_node": card.numa_node, "interfaces": card.names[1:],
            "link_layer": layer, "rate_gbit_per_s": float(rates.get(name, rate)), **_tuples(given),
        }  # fmt: skip
        if name in other:
            fields["board"] = "MT_0000000437"
        if layer == "EFA":
            fields |= {"lanes": None, "link_downed": None, "board": None, "firmware": None}
        if name in down:
            fields |= {"state": "DOWN", "phys_state": "Polling", "rate_gbit_per_s": 10.0}
            if layer == "InfiniBand":
                fields |= {"lid": 65535, "sm_lid": 0}
        elif layer == "Ethernet":
            fields |= {"gid_types": ("IB/RoCE v1", "RoCE v2"), "gid_ipv4": True}
        ports.append(facts.hca(place, **fields))
    return facts.infiniband(*ports)


def _network(told: Mapping[str, Any]) -> Network:
    """`interfaces` of `network`: name, kind, address, Mbit/s, MTU. Those of RDMA cards come by themselves."""
    given = dict(told.get("network", {}))
    listed = given.pop("interfaces", None)
    found = [facts.LO, *([facts.ETH, facts.BRIDGE] if listed is None else [_interface(*one) for one in listed])]
    layer = told.get("infiniband", {}).get("layer", "InfiniBand")
    rate = int(told.get("infiniband", {}).get("rate", 0)) * 1000
    for place, (card, name) in enumerate(told.get("interfaces", {}).items()):
        if layer == "InfiniBand" and card not in told["infiniband"].get("ethernet", ()):
            found.append(replace(_interface(name, "infiniband", None, rate, 2044), ipv4=False, routable=False))
        elif card in told["infiniband"].get("down", ()):
            found.append(replace(_interface(name, "physical", None, None, 1500), running=False))
        else:
            found.append(_interface(name, "physical", f"10.{64 + place}.0.7", rate, 9000))
    address = next((one.addresses for one in found if not one.loopback and one.addresses), ("127.0.1.1",))
    usual = facts.network(
        interfaces=tuple(found), hostname_addresses=tuple(given.pop("resolves", address)),
        default_routes=tuple(one.name for one in found if not one.loopback)[:1],
    )  # fmt: skip
    return replace(usual, **_tuples(given))


def _interface(name: str, kind: Any, address: str | None, speed: int | None, mtu: int) -> Interface:
    return replace(
        facts.ETH, name=name, kind=kind, addresses=(address,) if address else (), speed_mbit_per_s=speed, mtu=mtu,
        virtual=kind == "bridge", full_duplex=True if speed else None,
    )  # fmt: skip


# ---- the rest


def _software(
    told: Mapping[str, Any], gpus: tuple[Gpu, ...], shown: tuple[int, ...], mig: bool, arch: str
) -> tuple[Any, ...]:
    """torch of this version from PyTorch's own wheels, and what it sees of the GPUs."""
    version, driver = told["torch"], told["driver"]["version"]
    cuda, arches, pin = _WHEELS[version]
    torch = facts.pytorch(version=version, cuda=cuda, arch_list=arches, nccl_required=pin)
    name, _, nccl_version = pin.partition("==")
    devices = tuple(
        TorchDevice(place, gpu.name or "", gpu.compute_capability or (0, 0), gpu.memory_total_bytes or 0, gpu.uuid)
        for place, gpu in enumerate(gpus[index] for index in shown)
    )
    if mig:
        gpu = gpus[0]
        capability = gpu.compute_capability or (0, 0)
        devices = (TorchDevice(0, gpu.name or "", capability, told["mig_memory_mib"] * MIB, None),)
    runtime: TorchRuntime = facts.torch_runtime(
        len(devices), devices=devices, nccl_version=nccl_version, nccl_loaded_version=nccl_version
    )
    library = NcclLibrary(facts.WHEEL.path, nccl_version, "wheel")
    nccl = facts.nccl(library, wheels={name: nccl_version})
    packages = {"torch": version.partition("+")[0], "accelerate": "1.15.0"}
    major = cuda.partition(".")[0]
    wheels = {name: nccl_version, f"nvidia-cudnn-cu{major}": "9.10.2.21"}
    requires = {"torch": ("python>=3.9", *(f"{wheel}=={wanted}" for wheel, wanted in wheels.items()))}
    libcuda = Library("cuda", f"/usr/lib/{arch}-linux-gnu/libcuda.so.{driver}", "system", driver, True)
    extra = [Library(*one) for one in told.get("libraries", ())]
    if any(one.name == "cuda" for one in extra):
        libcuda, *extra = extra
    libraries = facts.libraries(
        libcuda, *extra, wheels=wheels, requires=requires, nvcc=None, nvcc_path=None, cuda_home=None
    )
    return torch, runtime, nccl, packages, libraries


def _system(given: Mapping[str, Any]) -> Any:
    given = dict(given)
    total, cpus = int(given.pop("memory_gib") * GIB), given.pop("cpus")
    limit = int(given.pop("memory_limit_gib") * GIB) if "memory_limit_gib" in given else None
    shm = int(given.pop("shm_gib", total / GIB / 2) * GIB)
    usable = len(_cpus(given.pop("allowed"))) if "allowed" in given else cpus
    return facts.system(**{
        "cpus_logical": cpus, "cpus_allowed": usable, "cpus_quota": None, "memory_total_bytes": total,
        "memory_available_bytes": int(total * 0.9), "memory_limit_bytes": limit,
        "memory_limit_used_bytes": None if limit is None else limit // 20, "shm_total_bytes": shm,
        "shm_free_bytes": shm,
    } | given)  # fmt: skip


def _kernel(told: Mapping[str, Any], cpus: int, gpus: tuple[Gpu, ...], virtual: str | None) -> Any:
    """Volta only runs the proprietary modules, Grace and Blackwell only the open ones; others: as packages do."""
    capability = min((gpu.compute_capability or (0, 0) for gpu in gpus), default=(0, 0))
    branch = int(told["driver"]["version"].partition(".")[0])
    flavour = "open" if capability >= (10, 0) or (branch >= 560 and capability >= (7, 5)) else "proprietary"
    modules = ["nvidia", "nvidia_uvm", "nvidia_modeset"]
    layer = told.get("infiniband", {}).get("layer", "InfiniBand")
    if told.get("infiniband"):
        modules += ["ib_core", "ib_uverbs", *(("efa",) if layer == "EFA" else ("mlx5_core", "nvidia_peermem"))]
    usual: dict[str, Any] = {
        "cpus_online": cpus, "cpus_present": cpus, "driver_flavour": flavour, "modules": tuple(modules),
        "dmesg_restricted": True,  # as Ubuntu and Debian ship it
    }  # fmt: skip
    if virtual:
        usual |= {"cpu_governor": None, "cpu_driver": None}
    return facts.kernel(**usual | _tuples(told.get("kernel", {})))


def _storage(given: Mapping[str, Any]) -> Storage:
    """A file system for some roles."""
    folders: dict[str, Any] = {one.role: one for one in facts.storage().folders}
    return facts.storage(
        *(replace(folders[role], filesystem=kind, mount="/" if kind == "overlay" else folders[role].path)
          for role, kind in given.items())
    )  # fmt: skip


def _leftovers(told: Mapping[str, Any]) -> Any:
    services = []
    if told.get("nvswitches") and not told.get("container"):
        services.append(LeftProcess(1811, "nv-fabricmanager", "fabric_manager", False, 864000.0))
    if told.get("dcgm"):
        services.append(LeftProcess(1902, "nv-hostengine", "dcgm", False, 864000.0))
    return facts.leftovers(**{"processes": tuple(services)} | _tuples(told.get("leftovers", {})))


def _slurm(given: dict[str, Any] | None) -> Slurm:
    if given is None:
        return Slurm(None, None, None, None, None, False)
    return facts.slurm(**{"job_gpus": None, "cpus_per_task": None, "cpus_on_node": None} | given)
