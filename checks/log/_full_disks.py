"""Which folder filled its disk? The path in the message, or the frames, show whose files they were."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.signature import Case, Meaning
from mgpu.snapshot import UncaughtException

from ._circumstances import shown, within

_ERRNO = "https://man7.org/linux/man-pages/man3/errno.3.html"
_WRITTEN = re.compile(r"No space left on device[^:']{0,20}: '(?P<path>[^']+)'(?: -> '(?P<to>[^']+)')?")
_TEMPORARY = re.compile(r"^(?P<folder>(?:/var)?/tmp)/")
_OF_RAY = re.compile(r"^/tmp/ray/")
_STAGED = re.compile(r"^(?P<folder>.*/wandb/artifacts/staging)/")  # a copy of each file of an artifact
_WANDB_CACHE = re.compile(r"^(?P<folder>.*/\.cache/wandb)/")
_HUB = re.compile(r"^(?P<folder>.*/huggingface)/(?:hub|datasets|xet)/")
_NAME_OF_TEMPFILE = re.compile(r"/tmp/(?:pymp-|listener-|tmp)[a-z0-9_]{8}(?:/|$)")  # of Python's tempfile


def _full(folder: str) -> Fix:
    return Fix(
        "See what fills it.",
        (shell("df -h {:path}", folder), shell("df -i {:path}", folder), shell("du -sh {:path}", folder), "quota -s"),
    )


def explain_full(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Name the folder whose disk is full, if a variable moves it; None if it is another one, or not known."""
    written = _WRITTEN.search(groups["what"])
    path = (written["to"] or written["path"]) if written else ""
    if found := _STAGED.search(path):
        return _of_wandb(found["folder"], "WANDB_DATA_DIR", "wandb copies each file of an artifact into it before")
    if found := _WANDB_CACHE.search(path):
        return _of_wandb(found["folder"], "WANDB_CACHE_DIR", "wandb keeps files of artifacts in it after")
    if found := _HUB.search(path):
        return Meaning(
            f"the disk with Hugging Face's cache is full: {found['folder']}",
            "Models and data sets that were downloaded or prepared stay there. It is in the home folder by default.",
            (
                _full(found["folder"]),
                Fix("Move the cache to a disk with space.", ("export HF_HOME=/scratch/$USER/hf",)),
            ),
        )
    if _OF_RAY.search(path):
        return Meaning(
            "the disk with Ray's folder is full: /tmp/ray",
            "Ray keeps logs, packages and objects that do not fit into memory in it, of earlier sessions, too.",
            (_full("/tmp/ray"), Fix("Move it to another disk.", ("ray start --head --temp-dir=/scratch/$USER/ray",))),
        )
    return _of_temporary(path, raised)


def _of_temporary(path: str, raised: UncaughtException | None) -> Meaning | None:
    found = _TEMPORARY.search(path)
    if found is None:
        return None
    by_python = bool(_NAME_OF_TEMPFILE.search(path)) or any(
        frame.startswith("tempfile.py ") for frame in (raised.frames if raised else ())
    )
    return Meaning(
        f"the disk with {found['folder']} is full",
        "Every program of this machine can fill it."
        + (" Python and the workers of a DataLoader make temporary files there." if by_python else ""),
        (
            _full(found["folder"]),
            Fix("Delete old files there, or let programs use another folder.", ("export TMPDIR=/scratch/$USER/tmp",))
            if by_python
            else Fix("Delete old files there, or write to a disk with space."),
        ),
    )


def _of_wandb(folder: str, variable: str, why: str) -> Meaning:
    return Meaning(
        f"the disk with wandb's files is full: {folder}",
        f"{why} the upload. The folder is in the home folder by default, whatever disk the run itself writes to.",
        (
            _full(folder),
            Fix(
                "Move it to a disk with space.",
                (shell("export {:name}=/scratch/wandb", variable),),
            ),
            Fix("Or do not upload checkpoints as artifacts, or fewer of them."),
        ),
    )


# fmt: off
FULL = Fix("Check what is full: space, inodes or your quota.",
           ("df -h .; df -i .", "quota -s", "du -sh .mgpu/runs/* | sort -h | tail",
            "mgpu doctor --only output_folder_full,storage"))
_FEWER_OF_TRAINER = Fix("Keep fewer checkpoints.", ("TrainingArguments(save_total_limit=2)",))
OF_TRAINERS = Case(
    shown("trainer_of_transformers"),
    "the disk is full",
    "Checkpoints with optimizer states need 12 to 16 bytes per parameter. A full /tmp or cache folder causes the same "
    "error.",
    (FULL, _FEWER_OF_TRAINER),
    'Traceback (most recent call last):\n  File "/x/site-packages/transformers/trainer.py", line 7, in _save\n'
    "    save(x)\nOSError: [Errno 28] No space left on device\n", _ERRNO)
WRITE_REFUSED = "the storage refused a part of a checkpoint while it was written: full, over quota, or a disk failure"
INCOMPLETE = (
    "torch.save reports no more than a failed write. Usually the disk or your quota is full; on a shared file system "
    "(NFS, Lustre) it can be a failure that has passed. This file is incomplete. An earlier checkpoint is intact only "
    "if it has another name, such as one with the step or the epoch: a file of the same name was overwritten.")
_DELETE_IT = Fix("Delete the incomplete file. If there is an earlier checkpoint with another name, resume from that.",
                 ("ls -lat CHECKPOINTS | head",))
_FILE_SYSTEM = Fix("If there is space, look for errors of the file system.",
                   ("sudo dmesg -T | tail -50", "mgpu doctor --only disk_error_logged,lustre_unhealthy"), who="admin")
WRITE_FAILED = (FULL, _DELETE_IT, _FILE_SYSTEM, Fix("Keep fewer checkpoints."))
WRITE_FAILED_IN_TRAINER = Case(
    within(r"transformers/trainer\.py in _save_checkpoint$"), WRITE_REFUSED,
    "torch.save reports no more than a failed write. Usually the disk or your quota is full; on a shared file system "
    "(NFS, Lustre) it can be a failure that has passed. The checkpoint of this step is incomplete. Those of earlier "
    "steps are in folders of their own (checkpoint-500).",
    (FULL, Fix("Delete the incomplete checkpoint, and resume from the one before it.",
               ("ls -lat OUTPUT_DIR | head",)), _FILE_SYSTEM, _FEWER_OF_TRAINER),
    'Traceback (most recent call last):\n  File "/x/site-packages/transformers/trainer.py", line 7, in '
    "_save_checkpoint\n    save(x)\nRuntimeError: basic_ios::clear: iostream error\n",
    "https://huggingface.co/docs/transformers/main_classes/trainer")
# fmt: on
