"""Does every rank get its own samples, each once, and do the DataLoader workers deliver them?"""

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

_PER_RANK = 4  # … plus one sample in total, so that the sampler has to pad
# What a worker sends at a time: eight images of 224 x 224 in fp32.
_SAMPLE_NUMBERS, _BATCH = 3 * 224 * 224, 8
_BATCHES_PER_WORKER = 4  # two of them wait in shared memory for each worker (torch's prefetch_factor)
_OUT_OF_SHM = re.compile(r"Bus error|No space left on device|shared memory")
_SHM = "/dev/shm"
_LEAST_PATIENCE_S = 10.0
# A worker sends through a socket in the temporary folder, …/pymp-12345678/listener-12345678, limited to 107 characters.
_LONGEST_TEMPORARY = 107 - 32


def count(here: Here) -> int:
    """Return the number of samples in the test data set."""
    return here.world * _PER_RANK + 1


def run(here: Here) -> None:
    """Report the samples that DistributedSampler assigns to this rank, in order and shuffled.

    The runner compares all ranks.
    """
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
    """Large samples that contain their own number."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, number: int) -> Any:
        return torch.full((_SAMPLE_NUMBERS,), float(number))


def workers(here: Here) -> None:
    """Load batches through worker processes and shared memory, as large as when training on images.

    The workers are forked, torch's default on Linux, and do not use the GPU.
    """
    processes = here.orders.workers
    if not processes:
        here.skips("DataLoader workers: none configured")
        return
    try:
        _all_batches(here, processes)
    except _Silent:
        # A process forked from a multi-threaded one may inherit a lock that is never released: about once in a thousand
        # starts (seen with torch 2.13 on a loaded machine). A real fault of the machine shows again.
        here.measured(loader_restarts=1)
        try:
            _all_batches(here, processes)
        except _Silent as error:
            raise Failure(
                f"a DataLoader worker failed: {error}", "loader_failed", error=str(error), suspects=[here.rank]
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
    # The DataLoader itself reports which worker does not answer, so it gets enough time for that.
    here.about_to(f"start {processes} DataLoader workers", limit_s=patience + here.orders.stall_s)
    seen = 0
    for number, batch in enumerate(_handed_over(here, loader)):
        if not number:  # the runner attributes files in shared memory to them
            here.reports(workers=[child.pid for child in torch.multiprocessing.active_children()])
            here.journal.introduce("workers")
        if not torch.equal(batch[:, ::4096], _expected_batch(number)):
            raise Failure(
                f"DataLoader batch {number + 1} was altered in shared memory",
                "loader_failed",
                error="the numbers differ from those the worker wrote",
                suspects=[here.rank],
            )
        seen += 1
        here.about_to(f"DataLoader batch {seen} of {batches}", limit_s=patience + here.orders.stall_s)
    if seen != batches:
        raise Failure(
            f"the DataLoader returned {seen} of {batches} batches",
            "loader_failed",
            error="batches are missing",
            suspects=[here.rank],
        )


def _expected_batch(number: int) -> Any:
    wide = len(range(0, _SAMPLE_NUMBERS, 4096))
    return torch.arange(number * _BATCH, (number + 1) * _BATCH, dtype=torch.float32)[:, None].expand(_BATCH, wide)


def _handed_over(here: Here, loader: Any) -> Iterator[Any]:
    """Yield the loader's batches. Raises Failure with the reason if a worker fails."""
    try:
        yield from loader
    except Exception as error:  # torch raises a worker's own error again here, of any type
        message = " ".join(str(error).split())
        total, free = _shared_memory()
        if not _OUT_OF_SHM.search(message):
            if "timed out" in message and len(folder := tempfile.gettempdir()) > _LONGEST_TEMPORARY:
                message = f"the path of the temporary folder is too long for their sockets: {len(folder)} characters"
                raise Failure(
                    f"the DataLoader workers do not answer: {message}",
                    "loader_failed",
                    error=message,
                    suspects=[here.rank],
                ) from error
            if "timed out" in message:
                raise _Silent(message[:200]) from error
            last = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
            raise Failure(
                f"a DataLoader worker failed: {last[:200]}",
                "loader_failed",
                error=message[:500],
                suspects=[here.rank],
            ) from error
        raise Failure(
            f"{_SHM} is full: a DataLoader worker could not send a batch ({free >> 20} of {total >> 20} MiB free)",
            "shm_too_small",
            path=_SHM,
            total_bytes=total,
            free_bytes=free,
            workers=here.orders.workers,
            batch_bytes=4 * _SAMPLE_NUMBERS * _BATCH,
            error=message[:500],
        ) from error


def _shared_memory() -> tuple[int, int]:
    try:
        found = os.statvfs(_SHM)
    except OSError:
        return 0, 0
    return found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail
