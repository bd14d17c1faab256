"""Which environment variables affect a launch, and which GPUs does CUDA_VISIBLE_DEVICES select?

Reads mgpu's own environment, without a child. Keeps only allow-listed variables, and masks secrets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from mgpu.snapshot import Gpu, Visible

# fmt: off
KEPT_PREFIXES = (
    "CUDA_", "NVIDIA_", "NCCL_", "TORCH_", "TORCHELASTIC_", "PYTORCH_", "GLOO_", "OMP_", "MKL_", "KMP_",
    "ACCELERATE_", "FSDP_", "PET_", "HF_", "UCX_", "FI_", "SLURM_JOB_ID", "SLURM_NNODES", "SLURM_NTASKS",
    "SLURM_GPUS", "SLURM_CPUS_PER_TASK", "SLURM_NODEID", "SLURM_PROCID", "OMPI_COMM_WORLD_", "PMI_", "NVTX_",
    "OFI_NCCL_", "PARALLELISM_CONFIG_",
)
KEPT_NAMES = frozenset({
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT", "LD_PRELOAD",
    "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "XDG_CACHE_HOME", "USE_LIBUV", "TMPDIR", "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK",
    "DS_SKIP_CUDA_CHECK", "BNB_CUDA_VERSION",
})
# fmt: on
_SECRET = re.compile(r"token|key|password|passwd|secret|credential|auth", re.IGNORECASE)
_NO_SECRET = frozenset({"NCCL_IB_PKEY"})  # the number of an InfiniBand partition
# Since this driver, CUDA exposes one compute instance of every GPU instance, and whole GPUs in addition:
# docs.nvidia.com/datacenter/tesla/mig-user-guide/mig-device-names.html, CUDA device enumeration.
_SEVERAL_MIG_SINCE = 570
_LOGIN = re.compile(r"(?<=://)[^/@\s]+(?=@)")  # user:password in an address


def filter_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that checks may read, with secrets masked.

    Includes lower-case names, because accelerate sets them in upper case for its ranks.
    """
    return {
        name: "***" if _SECRET.search(name) and name not in _NO_SECRET else _LOGIN.sub("***", value)
        for name, value in sorted(environ.items())
        if name.upper() in KEPT_NAMES or name.upper().startswith(KEPT_PREFIXES)
    }


def resolve_visible(value: str | None, gpus: Sequence[Gpu], driver: str | None = None) -> Visible:
    """Return the GPUs that CUDA exposes for a value of CUDA_VISIBLE_DEVICES; None means unset, which is not empty.

    Follows the driver's rules (CUDA Programming Guide, environment variables; the tests compare with torch's parser):
    read from the left, stop at the first entry that is not a GPU, and keep the entries before it. A GPU listed twice
    leaves none. Numbers end at the first non-digit. UUIDs match by unique prefix, with case and blanks. `driver`: its
    version, which determines the number of MIG instances that a process sees.
    """
    gpus = [gpu for gpu in gpus if gpu.permitted]  # CUDA counts only those this process can open
    if value is None:
        return Visible(None, tuple(gpu.index for gpu in gpus))
    entries = value.split(",")
    several = _shows_several(driver)
    if value.startswith("MIG-") or (
        several and value.startswith("GPU-") and any(entry.startswith("MIG-") for entry in entries)
    ):
        return _mig(value, entries, gpus, several)
    if value.startswith("GPU-"):
        return _by_uuid(value, entries, gpus)
    chosen: list[int] = []
    for place, entry in enumerate(entries):
        number = _leading_integer(entry.strip())
        why = None
        if number is None or number < 0:
            why = "the list is empty" if value.strip() == "" else "it is not a GPU index"
        elif number in chosen:
            return Visible(value, (), None, entry, "it is listed twice", tuple(entries), by_number=True)
        elif number >= len(gpus):
            why = f"only 0-{len(gpus) - 1} exist" if gpus else "there is no GPU"
        if why or number is None:
            rest = _duplicates_later(entries[place:], chosen)
            if rest:
                return Visible(value, (), None, rest, "it is listed twice", tuple(entries), by_number=True)
            shown = tuple(gpus[number].index for number in chosen)
            return Visible(value, shown, None, entry, why, tuple(entries[place:]), by_number=True)
        chosen.append(number)
    return Visible(value, tuple(gpus[number].index for number in chosen), by_number=True)


def _duplicates_later(entries: Sequence[str], before: Iterable[int]) -> str | None:
    """Return an entry that is repeated before the first non-number; None if there is none.

    CUDA then exposes no GPU, even if an out-of-range number comes in between. (torch parses the whole list first and
    applies the GPU count afterwards.)
    """
    seen = set(before)
    for entry in entries:
        number = _leading_integer(entry.strip())
        if number is None or number < 0:
            return None
        if number in seen:
            return entry
        seen.add(number)
    return None


def _leading_integer(text: str) -> int | None:
    """Parse like strtol: "1gpu2" is 1, "+1" is 1, "abc" is None. Numbers longer than a long are cut."""
    found = re.match(r"([+-]?)0*([0-9]*)", text)
    if found is None or not found.group().strip("+-"):
        return None
    return int(found.group(1) + (found.group(2)[:18] or "0"))


def _by_uuid(value: str, entries: Sequence[str], gpus: Sequence[Gpu]) -> Visible:
    listed = [entry for place, entry in enumerate(entries) if all(e.startswith("GPU-") for e in entries[: place + 1])]
    if len(set(listed)) < len(listed):
        return Visible(
            value, (), None, next(e for e in listed if listed.count(e) > 1), "it is listed twice", tuple(entries)
        )
    chosen: list[int] = []
    for place, entry in enumerate(entries):
        named = [gpu.index for gpu in gpus if gpu.uuid and gpu.uuid.startswith(entry)] if entry in listed else []
        if len(named) != 1:
            why = (
                "it is not a GPU UUID (blanks matter; numbers and UUIDs cannot be mixed)"
                if entry not in listed
                else "no GPU here has a UUID with this prefix"
                if not named
                else f"{len(named)} GPUs have UUIDs with this prefix"
            )
            return Visible(value, tuple(chosen), None, entry, why, tuple(entries[place:]))
        if named[0] in chosen:
            return Visible(value, (), None, entry, "it matches the same GPU again", tuple(entries))
        chosen += named
    return Visible(value, tuple(chosen))


def _shows_several(driver: str | None) -> bool:
    """Whether the driver exposes several MIG instances to a process; True if its version is not known."""
    major = re.match(r"\d{1,9}", driver or "")
    return major is None or int(major[0]) >= _SEVERAL_MIG_SINCE


def _mig(value: str, entries: Sequence[str], gpus: Sequence[Gpu], several: bool) -> Visible:
    """Resolve MIG instances: older drivers expose the first one listed, newer ones all of them, and whole GPUs."""
    chosen: list[int] = []
    shown: list[str] = []
    for place, entry in enumerate(entries):
        why = None
        if entry in shown:
            continue
        if (shown or chosen) and not several:
            why = f"drivers before {_SEVERAL_MIG_SINCE} use one MIG instance per process"
        elif entry.startswith("GPU-"):
            named = [gpu.index for gpu in gpus if gpu.uuid and gpu.uuid.startswith(entry)]
            why = None if len(named) == 1 else "no GPU here has a UUID with this prefix"
            chosen += [index for index in named if index not in chosen] if why is None else []
        elif not entry.startswith("MIG-"):
            why = "it is not a UUID (blanks matter; numbers and UUIDs cannot be mixed)"
        elif _is_instance(entry, gpus):
            shown.append(entry)
        else:
            why = "no MIG instance here has this UUID"
        if why:
            rest = tuple(entries[place:]) if shown or chosen else tuple(entries)
            first = shown[0] if shown else None
            return Visible(value, tuple(chosen), first, entry, why, rest, more_mig=tuple(shown[1:]))
    return Visible(value, tuple(chosen), shown[0], more_mig=tuple(shown[1:]))


def _is_instance(entry: str, gpus: Sequence[Gpu]) -> bool:
    """Whether a MIG instance here has this name, in the current notation or that of drivers before 470."""
    if any(uuid.startswith(entry) for gpu in gpus for uuid in gpu.mig_uuids):
        return True
    parent = entry.removeprefix("MIG-")
    return parent.startswith("GPU-") and any(gpu.uuid and parent.startswith(gpu.uuid) for gpu in gpus)
