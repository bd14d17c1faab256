"""Does each file have one writer, and can a checkpoint be read?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Ok, Problem, Severity, Skip, check
from mgpu.quantities import gib
from mgpu.snapshot import KeptFile, Rehearsal, WrittenFile
from mgpu.text import counted

from ._rehearsed import at, place, several_ranks

_SAVING = "https://pytorch.org/tutorials/intermediate/ddp_tutorial.html"
_LOAD = "https://pytorch.org/docs/stable/generated/torch.load.html"
_HOOK = "https://docs.python.org/3/library/sys.html"
_WRITES = ("write", "save", "rename")
_CACHES = (".cache", "__pycache__", ".triton", ".nv", ".config", ".local", ".mgpu")
_TEMPORARY = ("/tmp/", "/var/tmp/", "/dev/shm/")
_SHOWN = 5


def _is_cache(path: str) -> bool:
    parts = path.split("/")
    return path.endswith((".lock", ".pyc", "/CACHEDIR.TAG")) or any(
        part in _CACHES or part.startswith("torchinductor_") for part in parts
    )


def _takes_turns(one: WrittenFile, other: WrittenFile) -> bool:
    """Whether the file cannot have parts of both: they held one lock, or each put a whole file in its place."""
    return (one.lock is not None and one.lock == other.lock) or one.how == other.how == "rename"


def _kept(files: tuple[WrittenFile, ...]) -> dict[str, WrittenFile]:
    """Return the files that a rank wrote and did not remove or rename again, by path. Writes without a lock first."""
    removed = {one.path for one in files if one.how == "remove"}
    by_lock = sorted(files, key=lambda one: one.lock is None)
    return {one.path: one for one in by_lock if one.how in _WRITES and one.path not in removed}


@check(
    Severity.WARNING,
    source=_SAVING,
    because_of=("separate_trainings",),
    same_as=("script_saves_on_every_rank", "script_writes_on_every_rank"),
    given=several_ranks,
)
def same_file_written(rehearsal: Rehearsal) -> Answer:
    """Two ranks write the same file.

    Why: They write at the same time, so the file may contain parts of both, or be read while the other one writes it.

    Fix: Write it on rank 0 only (if accelerator.is_main_process), or put the rank into its name.
    """
    first: dict[str, tuple[int, WrittenFile]] = {}
    turns = False
    for rank in rehearsal.ranks:
        for path, one in _kept(rank.files).items():
            if one.cache or _is_cache(path):
                continue
            other, before = first.setdefault(path, (rank.rank, one))
            if other == rank.rank:
                continue
            if not _takes_turns(one, before):
                return Problem(
                    f"ranks {other} and {rank.rank} both write {path}{at(one.line)}",
                    evidence={"rank": rank.rank, "other": other, "how": one.how},
                    subjects=(f"rank {other}", f"rank {rank.rank}"),
                    place=place(one.line),
                )
            turns = True
    how = "no two ranks wrote one at the same time" if turns else "each written by one rank"
    return Ok(f"{counted(len(first), 'file')}, {how}") if first else Ok("no files written")


@check(
    Severity.INFO,
    source=_SAVING,
    because_of=("separate_trainings", "same_file_written"),
    same_as=("script_writes_on_every_rank", "script_logs_on_every_rank"),
    given=several_ranks,
)
def same_file_appended(rehearsal: Rehearsal) -> Answer:
    """Two ranks append to the same file.

    Why: It contains the lines of all ranks, in any order: a log has each line N times, and a table each row.

    Fix: Write it on rank 0 only (if accelerator.is_main_process), or put the rank into its name.
    """
    first: dict[str, tuple[int, WrittenFile]] = {}
    for rank in rehearsal.ranks:
        for one in rank.files:
            if one.how != "append" or one.cache or _is_cache(one.path):
                continue
            other, before = first.setdefault(one.path, (rank.rank, one))
            if other != rank.rank and not _takes_turns(one, before):
                return Problem(
                    f"ranks {other} and {rank.rank} both append to {one.path}{at(one.line)}",
                    evidence={"rank": rank.rank, "other": other},
                    subjects=(f"rank {other}", f"rank {rank.rank}"),
                    place=place(one.line),
                )
    return Ok(f"{counted(len(first), 'file')}, each appended to by one rank") if first else Ok("no file appended to")


@check(Severity.ERROR, source=_LOAD, because_of=("script_failed",))
def checkpoint_unreadable(rehearsal: Rehearsal) -> Answer:
    """A checkpoint that the script wrote cannot be read again.

    Why: The training could not be resumed, and its result could not be used.

    Fix: Let one rank write it, and wait for the end of the write before anything else uses the file.
    """
    found = [(rank, one) for rank in rehearsal.ranks for one in rank.checkpoints]
    for rank, one in found:
        if one.ok is False:
            line = next((file.line for file in rank.files if file.path == one.path), None)
            return Problem(
                f"{one.path} cannot be read on rank {rank.rank}: {one.error}{at(line)}",
                evidence={"rank": rank.rank, "size_bytes": one.size_bytes},
                subjects=(f"rank {rank.rank}",),
                place=place(line),
            )
    read = sum(one.ok is True for _, one in found)
    return Ok(f"{counted(read, 'checkpoint')} read again") if read else Skip("no checkpoint was written and read again")


@check(Severity.ERROR, source=_HOOK, tags=("your_files",))
def file_not_kept(rehearsal: Rehearsal) -> Answer:
    """The rehearsal was stopped before the script changed a file that mgpu could not keep a copy of.

    Why: A rehearsal must not destroy a file of yours. Before the script overwrites, moves or deletes a file, mgpu
    copies it (8 GiB per run at most, and half of the free space), and puts it back afterwards. The file is unchanged.

    Fix: Move the file to another folder, or rehearse with arguments with which the script writes to another one.
    """
    found = [one for one in rehearsal.kept if one.refused]
    if not found:
        return Ok("no file could not be kept")
    one = found[0]
    size = f" ({gib(one.size_bytes, tenths=True)})" if one.size_bytes else ""
    name = _relative(one.path, rehearsal.folder)
    return Problem(
        f"stopped before the script changed {name}{size}, which was there: {one.why}{at(one.line)}",
        evidence={"rank": None, "size_bytes": one.size_bytes},
        place=place(one.line),
    )


@check(Severity.ERROR, source=_HOOK, tags=("your_files",))
def file_not_put_back(rehearsal: Rehearsal) -> Answer:
    """A file that the script changed could not be put back.

    Why: The script overwrote, moved or deleted it in the rehearsal. mgpu has its content from before.

    Fix: Copy it back.
    """
    found = [one for one in rehearsal.kept if one.why and not one.refused]
    if not found:
        return Ok("no changed file remains")
    one = found[0]
    more = f" ({counted(len(found) - 1, 'more file')})" if len(found) > 1 else ""
    name = _relative(one.path, rehearsal.folder)
    return Problem(
        f"{name} was changed and could not be put back: {one.why}{more}{at(one.line)}",
        f"Its content from before: {one.copy}",
        evidence={"rank": None, "files": len(found)},
        place=place(one.line),
    )


@check(Severity.INFO, source=_HOOK, tags=("your_files",))
def files_put_back(rehearsal: Rehearsal) -> Answer:
    """The script changed files that were there before, and mgpu has put them back.

    Why: The script overwrote, moved or deleted them, as a launch would do. Not covered: files that C or C++ code
    changes by itself (HDF5, Parquet, a program that the script starts), in folders of caches, and lock files. Covered:
    what Python does, torch.save, torch.jit.save and safetensors.

    Fix: Move what you want to keep before you launch the script.
    """
    found = [one for one in rehearsal.kept if one.why is None]
    if not found:
        return Ok("no file changed that was there before")
    late = [one for one in found if one.late]
    names = [_relative(one.path, rehearsal.folder) for one in found]
    if len(late) == len(found):
        title = f"put back as at the first change that mgpu saw: {_some(names)}"
    elif len(found) == 1:
        title = f"{names[0]} was there: it has its content from before again"
    else:
        title = f"{len(found)} files were there, and have their content from before again: {_some(names)}"
    return Problem(title, _late(late, rehearsal.folder), evidence={"rank": None, "files": len(found)})


def _late(late: list[KeptFile], folder: str | None) -> str:
    """Say which files may have been changed before mgpu saw a change."""
    if not late:
        return ""
    names = _some([_relative(one.path, folder) for one in late])
    return f"Changed since the start before mgpu saw a change of the script, and put back as they were then: {names}"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


@check(Severity.INFO, source=_HOOK)
def files_outside(rehearsal: Rehearsal) -> Answer:
    """The script wrote new files outside the folder of the run.

    Why: The rehearsal stops the script after a few steps, but the files that it made until then remain.

    Fix: Remove or ignore them.
    """
    own = f"{rehearsal.own_folder}/" if rehearsal.own_folder else None
    put_back = {one.path for one in rehearsal.kept if one.why is None}
    outside: Mapping[str, int] = {
        path: rank.rank
        for rank in rehearsal.ranks
        for path, one in _kept(rank.files).items()
        if not one.cache
        and path not in put_back
        and not (own and path.startswith(own))
        and not path.startswith(_TEMPORARY)
        and not _is_cache(path)
    }
    if not outside:
        return Ok("nothing written outside the run's folder")
    shown = _some([_relative(path, rehearsal.folder) for path in outside])
    return Problem(f"the script wrote {counted(len(outside), 'file')}: {shown}", evidence={"rank": None})


def _relative(path: str, folder: str | None) -> str:
    return path[len(folder) + 1 :] if folder and path.startswith(f"{folder}/") else path
