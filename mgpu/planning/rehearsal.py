"""How much time and memory does a smoke test on the CPU need?"""

from __future__ import annotations

# CPU seconds of a test with n ranks, as (constant, per n, per n x n): every rank imports torch (2 s), and computes the
# contributions of all ranks for the comparison. Measured with 2, 8 and 16 ranks on two cores, torch 2.13, 2026-11:
# quick 6.7, 20.8 and 38.9 s; standard 8.7, 32.2 and 72.3 s. The long level does more, so its time is a lower bound.
_SECONDS = {"quick": (2.0, 2.3, 0.0), "standard": (1.5, 3.6, 0.05), "long": (1.5, 3.6, 0.05)}
# Proportional memory of 4 ranks and the launcher, at most, on the same machine: 1284 MiB.
_BYTES_PER_PROCESS = 256 << 20


def seconds(ranks: int, level: str, cores: int) -> float:
    """Return the seconds that the ranks need if they have that many cores for themselves."""
    constant, linear, quadratic = _SECONDS[level]
    return (constant + linear * ranks + quadratic * ranks * ranks) / min(cores, ranks)


def memory_bytes(ranks: int) -> int:
    """Return the memory of the ranks and their launcher, without DataLoader workers."""
    return (ranks + 1) * _BYTES_PER_PROCESS


def most_ranks(level: str, cores: int, limit_s: float, free_bytes: int) -> int:
    """Return the most ranks that fit into the memory, and into half of the time limit; 0 if not even one does."""
    fits = 0
    while memory_bytes(fits + 1) <= free_bytes and seconds(fits + 1, level, cores) <= limit_s / 2:
        fits += 1
    return fits
