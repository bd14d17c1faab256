"""Does every rank get its own samples, each once, and do its loader's workers hand them over?"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from . import reference_model
from .context import Here
from .journal import Failure

_PER_RANK = 4  # … and one more in all, so that the last round has to be padded
# What a worker hands over at a time: eight images of 224 x 224 in fp32.
_SAMPLE_NUMBERS, _BATCH = 3 * 224 * 224, 8
_BATCHES_PER_WORKER = 4  # two lie ready in shared memory for each worker (torch's prefetch_factor)
_OUT_OF_SHM = re.compile(r"Bus error|No space left on device|shared memory")
_SHM = "/dev/shm"
_LEAST_PATIENCE_S = 10.0
# A worker hands over from a socket in the temporary folder, …/pymp-12345678/listener-12345678; its path may have 107.
_LONGEST_TEMPORARY = 107 - 32


def count(here: Here) -> int:
    """Samples of the data set that the loaders are tried with."""
    return here.world * _PER_RANK + 1


def climb(here: Here) -> None:
    """DistributedSampler in order and shuffled: what this rank gets is reported; the runner compares all ranks."""
    here.about_to("DistributedSampler")
    numbers = range(count(here))
    plain = DistributedSampler(numbers, here.world, here.rank, shuffle=False)
    samples = {"in order": list(plain)}
    shuffled = DistributedSampler(numbers, here.world, here.rank, shuffle=True, seed=reference_model.SEED)
    for epoch in (0, 1):
        shuffled.set_epoch(epoch)
        samples[f"epoch {epoch}"] = list(shuffled)
    here.measured(dataset_samples=count(here))
    here.reports(samples=samples)


class Images(Dataset):  # type: ignore[misc]
    """Large samples that say which one they are."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, number: int) -> Any:
        return torch.full((_SAMPLE_NUMBERS,), float(number))


def workers(here: Here) -> None:
    """Loader processes hand over batches in shared memory, as large as those of a training on images.

    They are forked, as torch does it on Linux, and touch no GPU.
    """
    processes = here.orders.workers
    if not processes:
        here.skips("loader workers: none asked for")
        return
    try:
        _all_batches(here, processes)
    except _Silent:
        # A process that is forked among threads may inherit a lock that nobody will open: once in some thousand starts
        # (seen with torch 2.13 on a loaded machine). What is wrong with a machine shows again.
        here.measured(loader_restarts=1)
        try:
            _all_batches(here, processes)
        except _Silent as error:
            raise Failure(
                f"a loader worker failed: {error}", "loader_failed", error=str(error), suspects=[here.rank]
            ) from error


class _Silent(Exception):
    """A loader worker did not answer in time."""


def _all_batches(here: Here, processes: int) -> None:
    batches = processes * _BATCHES_PER_WORKER
    patience = max(_LEAST_PATIENCE_S, here.orders.stall_s)
    loader = DataLoader(
        Images(batches * _BATCH),
        batch_size=_BATCH,
        num_workers=processes,
        multiprocessing_context="fork",
        timeout=patience,
        pin_memory=here.on_gpu,
    )
    # The loader itself says which worker does not answer: it gets the time for it.
    here.about_to(f"start {processes} loader workers", limit_s=patience + here.orders.stall_s)
    seen = 0
    for number, batch in enumerate(_handed_over(here, loader)):
        if not torch.equal(batch[:, ::4096], _expected(number)):
            raise Failure(
                f"loader batch {number + 1} arrived altered in shared memory",
                "loader_failed",
                error="other numbers than the worker wrote",
                suspects=[here.rank],
            )
        seen += 1
        here.about_to(f"loader batch {seen} of {batches}", limit_s=patience + here.orders.stall_s)
    if seen != batches:
        raise Failure(
            f"the loader gave {seen} batches of {batches}",
            "loader_failed",
            error="batches are missing",
            suspects=[here.rank],
        )


def _expected(number: int) -> Any:
    wide = len(range(0, _SAMPLE_NUMBERS, 4096))
    return torch.arange(number * _BATCH, (number + 1) * _BATCH, dtype=torch.float32)[:, None].expand(_BATCH, wide)


def _handed_over(here: Here, loader: Any) -> Iterator[Any]:
    """The loader's batches; what its workers die of has a name."""
    try:
        yield from loader
    except Exception as error:  # a worker's own error is raised again here, whatever it is
        said = " ".join(str(error).split())
        total, free = _shared_memory()
        if not _OUT_OF_SHM.search(said):
            if "timed out" in said and len(folder := tempfile.gettempdir()) > _LONGEST_TEMPORARY:
                said = f"the path of the temporary folder is too long for their sockets: {len(folder)} characters"
                raise Failure(
                    f"the loader workers do not answer: {said}", "loader_failed", error=said, suspects=[here.rank]
                ) from error
            if "timed out" in said:
                raise _Silent(said[:200]) from error
            last = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
            raise Failure(
                f"a loader worker failed: {last[:200]}", "loader_failed", error=said[:500], suspects=[here.rank]
            ) from error
        raise Failure(
            f"{_SHM} is full: a loader worker could not hand over a batch ({free >> 20} of {total >> 20} MiB free)",
            "shm_too_small",
            path=_SHM,
            total_bytes=total,
            free_bytes=free,
            workers=here.orders.workers,
            batch_bytes=4 * _SAMPLE_NUMBERS * _BATCH,
            error=said[:500],
        ) from error


def _shared_memory() -> tuple[int, int]:
    try:
        found = os.statvfs(_SHM)
    except OSError:
        return 0, 0
    return found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail
