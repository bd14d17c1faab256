"""Do the caches of models and compiled kernels work for many ranks?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Folder, Storage
from mgpu.text import counted, listed

from .._wording import gib
from ._folders import NETWORK, OBJECT_STORES, evidence_of, paths_of, why_full

_HF_CACHE = "https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables"

# The variable that moves each cache.
_VARIABLES = {
    "hf_cache": "HF_HOME",
    "torch_cache": "TORCH_HOME",
    "triton_cache": "TRITON_CACHE_DIR",
    "inductor_cache": "TORCHINDUCTOR_CACHE_DIR",
    "extensions": "TORCH_EXTENSIONS_DIR",
}
_COMPILED = ("triton_cache", "inductor_cache", "extensions")
# What huggingface_hub takes for yes (constants.py, ENV_VARS_TRUE_VALUES).
_TRUE = frozenset({"1", "ON", "YES", "TRUE"})


def _move(folders: Iterable[Folder]) -> tuple[str, ...]:
    """Commands that put these caches on the disk of this machine."""
    names = dict.fromkeys(_VARIABLES[folder.role] for folder in folders if folder.role in _VARIABLES)
    return tuple(shell("export {:name}=/tmp/$USER/{:name}", name, name.lower().removesuffix("_dir")) for name in names)


def _used(folder: Folder | None, env: Mapping[str, str]) -> bool:
    """Whether something is there already, or a variable says that it will be."""
    return folder is not None and bool(folder.exists or _VARIABLES[folder.role] in env)


@check(Severity.WARNING, source="https://github.com/deepspeedai/DeepSpeed/issues/5205")
def compile_cache_on_network(storage: Storage, env: Mapping[str, str]) -> Answer:
    """A cache of compiled kernels is on a file server.

    Why: all ranks of all nodes lock, rename and load compiled kernels in one place on a server.
    More: Triton, torch.compile and DeepSpeed's extensions lock, rename and load shared objects there, every rank of
    every node in the same files: "Stale file handle", FileNotFoundError, "Device or resource busy", or a hang.

    Fix: move them to a disk of this machine.
    """
    folders = [folder for role in _COMPILED if (folder := storage.role(role))]
    known = [folder for folder in folders if folder.filesystem]
    bad = [f for f in known if _used(f, env) and f.filesystem in NETWORK | OBJECT_STORES]
    if bad:
        return Problem(
            f"{listed(paths_of(bad))} on {bad[0].filesystem}: compiled kernels on a file server",
            fix=Fix(commands=_move(bad)),
            evidence={folder.role: f"{folder.path} ({folder.filesystem})" for folder in bad},
            subjects=paths_of(bad),
        )
    if not known:
        return Skip("the file systems of the compile caches are not known")
    unknown = len(folders) - len(known)
    return Ok(
        f"{counted(len(known), 'compile cache')} on {listed(dict.fromkeys(str(f.filesystem) for f in known))}"
        + (f", {unknown} not known" if unknown else "")
        + (", none in use yet" if not any(_used(f, env) for f in known) else "")
    )


@check(Severity.WARNING, source=_HF_CACHE, because_of=("folder_does_not_answer",))
def cache_not_writable(storage: Storage, env: Mapping[str, str]) -> Answer:
    """A cache folder cannot be written.

    Why: a rank that fills this cache raises PermissionError.
    More: The Hugging Face hub, torch.hub, Triton and torch.compile write there without asking. A rank that cannot
    raises PermissionError in from_pretrained, or at its first compiled kernel.

    Fix: use folders of yours.
    """
    folders = [folder for role in _VARIABLES if (folder := storage.role(role))]
    known = [folder for folder in folders if folder.writable is not None]
    shut = [folder for folder in known if not folder.writable]
    offline = _offline(env)
    shut = [folder for folder in shut if not (offline and folder.role == "hf_cache")]  # reading is enough then
    if shut:
        first = shut[0]
        why = "read-only" if first.read_only else "not yours" if first.exists else "cannot be made"
        return Problem(
            f"{listed(paths_of(shut)[:3])} cannot be written ({why})",
            fix=Fix(commands=_move(shut)),
            evidence={folder.role: folder.path for folder in shut},
            subjects=paths_of(shut),
        )
    return Ok(f"{counted(len(known), 'cache folder')} can be written") if known else Skip("no cache folder answered")


def _offline(env: Mapping[str, str]) -> bool:
    return env.get("HF_HUB_OFFLINE", "").upper() in _TRUE


@check(Severity.WARNING, source=_HF_CACHE, because_of=("output_folder_full",))
def hf_cache_full(storage: Storage, env: Mapping[str, str]) -> Answer:
    """The disk of the Hugging Face cache is full.

    Why: a model that is not there yet does not fit; the download ends with No space left on device.
    More: Models and data sets are downloaded there first. from_pretrained stops with "No space left on device", or
    leaves a truncated file that the next run takes for the model.

    Fix: remove what is not used any more.
    """
    folder = storage.role("hf_cache")
    if folder is None or folder.free_bytes is None:
        return Skip("the disk of the Hugging Face cache tells no free space")
    if _offline(env):
        return Skip("HF_HUB_OFFLINE is set: nothing will be downloaded")
    full = why_full(folder)
    if not full:
        return Ok(f"{gib(folder.free_bytes)} free for models in {folder.path}")
    return Problem(
        f"the disk of the Hugging Face cache is full: {full}",
        fix=(Fix(commands=("hf cache rm --help",)), Fix("Or move it.", _move([folder]))),
        evidence=evidence_of(folder),
        subjects=(folder.path,),
    )


@check(Severity.WARNING, source=_HF_CACHE)
def hf_cache_empty_offline(storage: Storage, env: Mapping[str, str]) -> Answer:
    """The Hugging Face hub is switched off, and its cache here is empty.

    Why: a model named by its id cannot be had: LocalEntryNotFoundError in every rank.
    More: HF_HUB_OFFLINE forbids downloads, so every model named by its id must be in the cache of this very machine:
    from_pretrained raises LocalEntryNotFoundError in all ranks.

    Fix: fill the cache first, or point HF_HOME to one that is filled.
    More: Download once where there is a network, into the folder HF_HOME names here.
    """
    if not _offline(env):
        return Skip("HF_HUB_OFFLINE is not set")
    folder, models = storage.role("hf_cache"), storage.hf_cache_models
    if folder is None or models is None:
        return Skip("the Hugging Face cache could not be read")
    if models:
        return Ok(f"{counted(models, 'model or data set', 'models and data sets')} in {folder.path}")
    return Problem(
        f"HF_HUB_OFFLINE is set, and {folder.path} holds no model",
        fix=Fix(commands=("HF_HUB_OFFLINE=0 hf download ORG/MODEL",)),
        evidence={"HF_HUB_OFFLINE": env.get("HF_HUB_OFFLINE"), "path": folder.path, "HF_HOME": env.get("HF_HOME")},
        subjects=(folder.path,),
    )


@check(Severity.INFO, source="https://github.com/huggingface/huggingface_hub/issues/4228")
def hf_cache_on_network(storage: Storage, env: Mapping[str, str]) -> Answer:
    """The Hugging Face cache is on a file server.

    Why: locks may not hold there: ranks of one launch then write the same files at the same time.
    More: On Lustre, GPFS and many NFS mounts a lock is granted to everybody, so ranks that download the same model at
    the same time write the same files: truncated blobs, ".incomplete" and ".lock" errors, "Unrecognized model".

    Fix: download once, before the launch.
    More: Or load under main_process_first().
    """
    folder = storage.role("hf_cache")
    if folder is None or folder.filesystem is None:
        return Skip("the file system of the Hugging Face cache is not known")
    if folder.filesystem not in NETWORK | OBJECT_STORES:
        return Ok(f"{folder.path} is on {folder.filesystem}")
    if _offline(env):
        return Ok(f"{folder.path} is on {folder.filesystem}, and HF_HUB_OFFLINE forbids downloads")
    return Problem(
        f"the Hugging Face cache is on {folder.filesystem}: ranks that download at once may spoil it",
        fix=Fix(commands=("hf download ORG/MODEL", "export HF_HUB_OFFLINE=1")),
        evidence=evidence_of(folder),
        subjects=(folder.path,),
    )
