"""Do the caches of models and compiled kernels work for many ranks?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Folder, Storage
from mgpu.text import counted, listed

from .._wording import gib
from ._folders import NETWORK, OBJECT_STORES, evidence_of, full_reason, paths_of

_HF_CACHE = "https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables"

# The environment variable that sets the folder of each cache.
_VARIABLES = {
    "hf_cache": "HF_HOME",
    "torch_cache": "TORCH_HOME",
    "triton_cache": "TRITON_CACHE_DIR",
    "inductor_cache": "TORCHINDUCTOR_CACHE_DIR",
    "extensions": "TORCH_EXTENSIONS_DIR",
}
_COMPILED = ("triton_cache", "inductor_cache", "extensions")
# Values that huggingface_hub reads as true (constants.py, ENV_VARS_TRUE_VALUES).
_TRUE = frozenset({"1", "ON", "YES", "TRUE"})


def _move_commands(folders: Iterable[Folder]) -> tuple[str, ...]:
    """Return the commands that move these caches to a local disk."""
    names = dict.fromkeys(_VARIABLES[folder.role] for folder in folders if folder.role in _VARIABLES)
    return tuple(shell("export {:name}=/tmp/$USER/{:name}", name, name.lower().removesuffix("_dir")) for name in names)


def _is_used(folder: Folder | None, env: Mapping[str, str]) -> bool:
    """Whether the cache exists, or its variable is set."""
    return folder is not None and bool(folder.exists or _VARIABLES[folder.role] in env)


@check(Severity.WARNING, source="https://github.com/deepspeedai/DeepSpeed/issues/5205")
def compile_cache_on_network(storage: Storage, env: Mapping[str, str]) -> Answer:
    """A cache of compiled kernels is on a file server.

    Why: All ranks of all nodes lock, rename and load compiled kernels in one place on a server.
    More: Triton, torch.compile and DeepSpeed's extensions lock, rename and load shared objects there. Every rank of
    every node uses the same files, which causes "Stale file handle", FileNotFoundError, "Device or resource busy", or a
    hang.

    Fix: Move the caches to a local disk of the node.
    """
    folders = [folder for role in _COMPILED if (folder := storage.role(role))]
    known = [folder for folder in folders if folder.filesystem]
    bad = [f for f in known if _is_used(f, env) and f.filesystem in NETWORK | OBJECT_STORES]
    if bad:
        return Problem(
            f"{listed(paths_of(bad))} on {bad[0].filesystem}: compiled kernels on a file server",
            fix=Fix(commands=_move_commands(bad)),
            evidence={folder.role: f"{folder.path} ({folder.filesystem})" for folder in bad},
            subjects=paths_of(bad),
        )
    if not known:
        return Skip("the file systems of the compile caches are unknown")
    unknown = len(folders) - len(known)
    return Ok(
        f"{counted(len(known), 'compile cache')} on {listed(dict.fromkeys(str(f.filesystem) for f in known))}"
        + (f", {unknown} unknown" if unknown else "")
        + (", none in use yet" if not any(_is_used(f, env) for f in known) else "")
    )


@check(Severity.WARNING, source=_HF_CACHE, because_of=("folder_does_not_answer",))
def cache_not_writable(storage: Storage, env: Mapping[str, str]) -> Answer:
    """A cache folder is not writable.

    Why: A rank that writes to this cache raises PermissionError.
    More: The Hugging Face hub, torch.hub, Triton and torch.compile write there automatically. A rank that cannot write
    raises PermissionError in from_pretrained, or at its first compiled kernel.

    Fix: Use folders you own.
    """
    folders = [folder for role in _VARIABLES if (folder := storage.role(role))]
    known = [folder for folder in folders if folder.writable is not None]
    unwritable = [folder for folder in known if not folder.writable]
    offline = _is_offline(env)
    unwritable = [f for f in unwritable if not (offline and f.role == "hf_cache")]  # offline, it is only read
    if unwritable:
        first = unwritable[0]
        why = "read-only" if first.read_only else "not yours" if first.exists else "cannot be created"
        return Problem(
            f"{listed(paths_of(unwritable)[:3])} not writable ({why})",
            fix=Fix(commands=_move_commands(unwritable)),
            evidence={folder.role: folder.path for folder in unwritable},
            subjects=paths_of(unwritable),
        )
    return Ok(f"{counted(len(known), 'writable cache folder')}") if known else Skip("no cache folder responded")


def _is_offline(env: Mapping[str, str]) -> bool:
    return env.get("HF_HUB_OFFLINE", "").upper() in _TRUE


@check(Severity.WARNING, source=_HF_CACHE, because_of=("output_folder_full",))
def hf_cache_full(storage: Storage, env: Mapping[str, str]) -> Answer:
    """The disk of the Hugging Face cache is full.

    Why: A new model does not fit. The download fails with No space left on device.
    More: Models and datasets are downloaded to this cache first. from_pretrained stops with "No space left on device",
    or leaves a truncated file that the next run loads as the model.

    Fix: Remove unused models.
    """
    folder = storage.role("hf_cache")
    if folder is None or folder.free_bytes is None:
        return Skip("the free space for the Hugging Face cache is unknown")
    if _is_offline(env):
        return Skip("HF_HUB_OFFLINE is set: nothing will be downloaded")
    full = full_reason(folder)
    if not full:
        return Ok(f"{gib(folder.free_bytes)} free for models in {folder.path}")
    return Problem(
        f"the disk of the Hugging Face cache is full: {full}",
        fix=(Fix(commands=("hf cache rm --help",)), Fix("Or move it.", _move_commands([folder]))),
        evidence=evidence_of(folder),
        subjects=(folder.path,),
    )


@check(Severity.WARNING, source=_HF_CACHE)
def hf_cache_empty_offline(storage: Storage, env: Mapping[str, str]) -> Answer:
    """The Hugging Face hub is offline, and its cache here is empty.

    Why: Loading a model by its id raises LocalEntryNotFoundError in every rank.
    More: HF_HUB_OFFLINE forbids downloads, so every model loaded by its id must be in the cache of this node.
    Otherwise from_pretrained raises LocalEntryNotFoundError in all ranks.

    Fix: Fill the cache first, or set HF_HOME to a filled one.
    More: Download once on a node with internet access, to the folder in HF_HOME here.
    """
    if not _is_offline(env):
        return Skip("HF_HUB_OFFLINE is not set")
    folder, models = storage.role("hf_cache"), storage.hf_cache_models
    if folder is None or models is None:
        return Skip("the Hugging Face cache could not be read")
    if models:
        return Ok(f"{counted(models, 'model or dataset', 'models and datasets')} in {folder.path}")
    return Problem(
        f"HF_HUB_OFFLINE is set, but {folder.path} contains no model",
        fix=Fix(commands=("HF_HUB_OFFLINE=0 hf download ORG/MODEL",)),
        evidence={"HF_HUB_OFFLINE": env.get("HF_HUB_OFFLINE"), "path": folder.path, "HF_HOME": env.get("HF_HOME")},
        subjects=(folder.path,),
    )


@check(Severity.INFO, source="https://github.com/huggingface/huggingface_hub/issues/4228")
def hf_cache_on_network(storage: Storage, env: Mapping[str, str]) -> Answer:
    """The Hugging Face cache is on a file server.

    Why: Locks may not work there. Ranks of one launch then write the same files at the same time.
    More: On Lustre, GPFS and many NFS mounts a lock is granted to every process. Ranks that download the same model at
    the same time write the same files, which causes truncated blobs, ".incomplete" and ".lock" errors, and
    "Unrecognized model".

    Fix: Download once, before the launch.
    More: Or load under main_process_first().
    """
    folder = storage.role("hf_cache")
    if folder is None or folder.filesystem is None:
        return Skip("the file system of the Hugging Face cache is unknown")
    if folder.filesystem not in NETWORK | OBJECT_STORES:
        return Ok(f"{folder.path} is on {folder.filesystem}")
    if _is_offline(env):
        return Ok(f"{folder.path} is on {folder.filesystem}, and HF_HUB_OFFLINE forbids downloads")
    return Problem(
        f"the Hugging Face cache is on {folder.filesystem}: parallel downloads by several ranks can corrupt it",
        fix=Fix(commands=("hf download ORG/MODEL", "export HF_HUB_OFFLINE=1")),
        evidence=evidence_of(folder),
        subjects=(folder.path,),
    )
