"""Which ranks of a rehearsed script can be compared, and how are their places named?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mgpu.check import Ok, Place, Skip
from mgpu.snapshot import Checksum, Rehearsal, RehearsedLoader, RehearsedOptimizer, RehearsedRank
from mgpu.text import listed, plural

# Errors of an exchange in which the other rank did something else, or had gone (torch 2.13, gloo and NCCL).
_EXCHANGE = re.compile(r"gloo/|\bgloo\b|DistBackendError|NCCL error|Connection (?:closed|reset) by peer")
_SHARDING = ("FSDP", "FSDP2", "DeepSpeed")


def several_ranks(rehearsal: Rehearsal) -> Ok | Skip | None:
    """Return why ranks cannot be compared; None if they can."""
    if rehearsal.expected < 2:
        return Skip("the script ran on one rank")
    if len(rehearsal.ranks) < 2:
        return Skip("fewer than two ranks recorded anything")
    return None


def stepping_ranks(rehearsal: Rehearsal) -> Ok | Skip | None:
    """Return why the steps of ranks cannot be compared; None if they can."""
    if (unmet := several_ranks(rehearsal)) is not None:
        return unmet
    if sum(bool(rank.optimizers) for rank in rehearsal.ranks) < 2:
        return Skip("fewer than two ranks made an optimizer step")
    return None


def trained(rehearsal: Rehearsal) -> Ok | Skip | None:
    """Return why it is not known whether optimizers have gradients; None if it is."""
    if any(one.kind == "DeepSpeed" for rank in rehearsal.ranks for one in rank.wrappers):
        return Skip("DeepSpeed keeps the gradients itself")
    if not any(rank.losses for rank in rehearsal.ranks):
        return Skip("no backward pass was seen")
    return None


def replicated(rehearsal: Rehearsal) -> Ok | Skip | None:
    """Return why parameters cannot be compared between ranks; None if each rank has all of them."""
    if (unmet := stepping_ranks(rehearsal)) is not None:
        return unmet
    for rank in rehearsal.ranks:
        kind = next((one.kind for one in rank.wrappers if one.kind in _SHARDING), None)
        if kind is not None or any(one.sharded for one in rank.optimizers):
            return Skip(f"{kind or 'the strategy'} shards parameters and gradients: each rank has its own part")
        if has_subgroups(rank):
            return Skip("the script divides its ranks into groups")
    return None


def exchanged(rehearsal: Rehearsal) -> Ok | Skip | None:
    """Return why gradients cannot be compared between ranks; None if they must be equal in each step."""
    if (unmet := replicated(rehearsal)) is not None:
        return unmet
    why = exchanges_otherwise(rehearsal.ranks)
    return Skip(why) if why else None


def exchanges_otherwise(ranks: Sequence[RehearsedRank]) -> str:
    """Return in which way ranks exchange something else than gradients before each step; "" if they do not."""
    if any(rank.optimizer_exchanges for rank in ranks):
        return "the optimizer exchanges data itself, inside its step"
    by = next((rank.averages_parameters for rank in ranks if rank.averages_parameters), None)
    return f"the ranks average parameters from time to time, not gradients ({by})" if by else ""


def has_subgroups(rank: RehearsedRank) -> bool:
    """Whether the script made process groups of some of the ranks, so that ranks may have different parts."""
    world = rank.world or 1
    of_wrappers = any(one.ranks is not None and one.ranks != world for one in rank.wrappers)
    return of_wrappers or any(1 < size < world for size in rank.subgroups)


def failed_in_exchange(rank: RehearsedRank) -> bool:
    """Whether the error that ended a rank's script is that of a collective, and so may be the fault of another rank."""
    return rank.raised is not None and _EXCHANGE.search(rank.raised) is not None


def training_loaders(rank: RehearsedRank) -> list[RehearsedLoader]:
    """Return the loaders whose batches were followed by a backward pass."""
    return [loader for loader in rank.loaders if loader.trains]


def pairs_of_loaders(rehearsal: Rehearsal) -> Iterator[tuple[list[RehearsedRank], list[RehearsedLoader]]]:
    """Yield each training loader as all ranks have it, with the ranks."""
    ranks = [rank for rank in rehearsal.ranks if training_loaders(rank)]
    number = min((len(training_loaders(rank)) for rank in ranks), default=0)
    for index in range(number if len(ranks) > 1 else 0):
        yield ranks, [training_loaders(rank)[index] for rank in ranks]


def data_loaders(rehearsal: Rehearsal) -> Ok | Skip | None:
    """Return why the data of ranks cannot be compared; None if it can."""
    if (unmet := several_ranks(rehearsal)) is not None:
        return unmet
    if any(has_subgroups(rank) for rank in rehearsal.ranks):
        return Skip("the script divides its ranks into groups, whose ranks may share data")
    if any(one.sharded and not rank.wrappers for rank in rehearsal.ranks for one in rank.optimizers):
        return Skip("the parameters are sharded, but not by FSDP: with tensor parallelism, ranks share data")
    if not any(True for _ in pairs_of_loaders(rehearsal)):
        return Skip("no DataLoader delivered training batches on two ranks")
    return None


def pairs_of_optimizers(rehearsal: Rehearsal) -> Iterator[tuple[list[RehearsedRank], list[RehearsedOptimizer]]]:
    """Yield each optimizer as all ranks have it, with the ranks."""
    ranks = [rank for rank in rehearsal.ranks if rank.optimizers]
    for index in range(min((len(rank.optimizers) for rank in ranks), default=0)):
        yield ranks, [rank.optimizers[index] for rank in ranks]


def parameter_name(optimizer: RehearsedOptimizer, index: int) -> str:
    """Return a name for one of an optimizer's parameters."""
    if index >= len(optimizer.names):
        return f"the parameters after the first {len(optimizer.names)}"
    shape = f" ({optimizer.shapes[index]})" if index < len(optimizer.shapes) and optimizer.shapes[index] else ""
    return f"{optimizer.names[index] or f'parameter {index}'}{shape}"


def differ(one: Checksum | None, other: Checksum | None, tolerance: float) -> bool:
    """Whether two descriptions are those of different values. Values that are not finite are not compared."""
    if one is None or other is None:
        return (one is None) != (other is None)
    if one.norm is None or other.norm is None or one.total is None or other.total is None:
        return False
    size = max(one.norm, other.norm)
    return abs(one.norm - other.norm) > tolerance * size or abs(one.total - other.total) > 500 * tolerance * size


def place(line: str | None) -> Place | None:
    """Return a recorded line as a place."""
    file, colon, number = (line or "").rpartition(":")
    return Place(file, int(number)) if colon and number.isdigit() else None


def short(line: str | None) -> str:
    """Return a recorded line as "train.py:31"; "an unknown line" if there is none."""
    file, colon, number = (line or "").rpartition(":")
    return f"{file.rpartition('/')[2]}:{number}" if colon else "an unknown line"


def at(line: str | None) -> str:
    """Return " (train.py:31)", or nothing."""
    return f" ({short(line)})" if line else ""


def names(ranks: Sequence[RehearsedRank]) -> str:
    """Return "rank 1" or "ranks 1 and 3"."""
    return f"{plural(len(ranks), 'rank')} {listed([rank.rank for rank in ranks])}"
