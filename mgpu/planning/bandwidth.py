"""How fast is a collective, given bytes and seconds, and how fast should it be on these GPUs? Pure arithmetic.

algbw and busbw are defined as in nccl-tests (doc/PERFORMANCE.md); tests compare them with its published outputs. No
single constant decides: the expected bandwidth depends on the GPUs, their number, their links and the message size. If
the model does not apply, `expected` returns the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mgpu.snapshot import Bandwidth, Gpu, Link, Rank, Ranks, Scaling

# busbw = algbw x factor, for n ranks: github.com/NVIDIA/nccl-tests doc/PERFORMANCE.md, and GetBw in src/*.cu. S is the
# tensor of one rank for all_reduce, broadcast, reduce and send_recv; the WHOLE array (n shards) for all_gather and
# reduce_scatter; everything one rank sends, including its own part, for all_to_all.
COLLECTIVES: Final = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv", "reduce")


def bus_factor(collective: str, ranks: int) -> float:
    """Return the share of S that crosses the slowest link, as in nccl-tests; 0 on one rank for most collectives."""
    if ranks < 1:
        raise ValueError(f"{ranks} ranks: must be at least 1")
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if collective in ("all_gather", "reduce_scatter", "all_to_all"):
        return (ranks - 1) / ranks
    if collective in ("broadcast", "reduce", "send_recv"):
        return 1.0
    raise ValueError(f"unknown collective {collective!r}, expected one of {', '.join(COLLECTIVES)}")


def algbw(size_bytes: int, seconds: float) -> float:
    """Return the bandwidth in GB/s (decimal) for S bytes; 0 if no time was measured."""
    return size_bytes / seconds / 1e9 if seconds > 0 else 0.0


def busbw(collective: str, ranks: int, size_bytes: int, seconds: float) -> float:
    """Return the bus bandwidth in GB/s, comparable with the hardware for any number of ranks."""
    return algbw(size_bytes, seconds) * bus_factor(collective, ranks)


def bandwidth_row(collective: str, backend: str, ranks: int, size_bytes: int, p50: float, p99: float) -> Bandwidth:
    """Return one collective at one size, with both bandwidths from its median time. `p50` and `p99` in seconds."""
    return Bandwidth(
        collective,
        backend,
        ranks,
        size_bytes,
        p50,
        p99,
        algbw(size_bytes, p50),
        busbw(collective, ranks, size_bytes, p50),
    )


def merge_ranks(ranks: Iterable[Rank]) -> tuple[Bandwidth, ...]:
    """Merge the timings of all ranks: a collective is as slow as its slowest rank."""
    slowest: dict[tuple[str, str, int, int], Bandwidth] = {}
    for one in (timed for rank in ranks for timed in rank.bandwidth):
        key = (one.collective, one.backend, one.ranks, one.size_bytes)
        worst = slowest.get(key, one)
        p50, p99 = max(worst.seconds_p50, one.seconds_p50), max(worst.seconds_p99, one.seconds_p99)
        slowest[key] = bandwidth_row(*key, p50, p99)
    return tuple(slowest.values())


def merge_scaling(ranks: Iterable[Rank]) -> tuple[Scaling, ...]:
    """Merge training runs on 1, 2 … ranks: the slowest rank's times, and the efficiency relative to one rank."""
    slowest: dict[int, Scaling] = {}
    for one in (run for rank in ranks for run in rank.scaling):
        worst = slowest.get(one.ranks, one)
        slowest[one.ranks] = replace(
            one if one.seconds_per_step >= worst.seconds_per_step else worst,
            compute_seconds=max(worst.compute_seconds, one.compute_seconds),
        )
    alone = slowest.get(1)
    each = alone.samples_per_s if alone else None
    return tuple(
        replace(run, efficiency=run.samples_per_s / count / each if each else None)
        for count, run in sorted(slowest.items())
    )


def speed_up(scaling: Iterable[Scaling]) -> dict[int, float]:
    """Return the speed-up over one rank, by number of ranks."""
    return {run.ranks: run.efficiency * run.ranks for run in scaling if run.efficiency is not None}


def largest(rows: Iterable[Bandwidth], collective: str = "all_reduce") -> Bandwidth | None:
    """Return the largest message of a collective, which decides its bandwidth (small ones measure latency)."""
    return max((one for one in rows if one.collective == collective), key=lambda one: one.size_bytes, default=None)


def smallest(rows: Iterable[Bandwidth], collective: str = "all_reduce") -> Bandwidth | None:
    """Return the smallest message of a collective, whose time is latency."""
    return min((one for one in rows if one.collective == collective), key=lambda one: one.size_bytes, default=None)


# --- expected bandwidth --------------------------------------------------------------------------------------------

# GB/s of one NVLink, one way, as NCCL assumes: NCCL src/graph/topo.h (SM60_NVLINK_BW …), by compute
# capability. 7.5 is measured: two links of an RTX 2080 Ti bridge give 20-22 (github.com/NVIDIA/nccl-tests/issues/44).
_NVLINK: Final = {60: 18.0, 61: 18.0, 70: 20.0, 72: 20.0, 75: 12.0, 80: 20.0, 86: 12.0, 90: 20.6, 100: 40.1, 103: 40.1}
# GB/s of PCIe x16, one way, as NCCL assumes (src/graph/topo.h: PCI_BW 12 for generation 3).
_PCIE: Final = {1: 3.0, 2: 6.0, 3: 12.0, 4: 24.0, 5: 48.0, 6: 96.0}
# NVLink SHARP reduces in the switch: algbw is a share of the links' sum. 8 x H200: busbw 480 of 18 x 20.6; on 5 and 7
# of them 414 and 460; 8 x B200: 846; not on 4 or fewer (github.com/stas00/ml-engineering, network/benchmarks).
_NVLS_SHARE: Final = {90: 0.72, 100: 0.67, 103: 0.67}
_NVLS_LEAST_GPUS: Final = 5
# Duration of the fixed part of a large collective: 8 x B200 reach 400 of 846 GB/s at 64 MiB and 646 at 256 MiB (the
# same source), which is 80-95 us.
_RAMP_S: Final = 1e-4
# Below this share of the ramp, a message measures latency, and no bandwidth is expected.
_LEAST_SHARE: Final = 0.4
# Of one-way PCIe: GPUs that reach each other through switches (RTX PRO 6000, generation 5: 38-41 of 48), and GPUs that
# go through host memory or across root ports (RTX 5090: 28-35 of 48; RTX 4090: 10-24 of 24).
_THROUGH_SWITCH: Final = 0.8
_THROUGH_HOST: Final = 0.5
# Shares of the expected bandwidth for a warning, and for an error if there is further evidence.
# Narrow for NVLink: healthy machines are within 0.8-1.3 of the model (the recorded rows in tests/test_bandwidth.py).
_NVLINK_BAND: Final = (0.75, 0.4)
_PCIE_BAND: Final = (0.5, 0.25)
_JUDGED: Final = ("all_reduce", "all_gather", "reduce_scatter")


@dataclass(frozen=True)
class Expected:
    """The bandwidth a collective should reach on these GPUs; `why` is the calculation as text."""

    gb_per_s: float  # busbw
    warn_below: float
    fail_below: float  # never used alone
    why: str


def expected_bandwidth(
    gpus: Sequence[Gpu], links: Sequence[Link], collective: str, size_bytes: int, *, nvls: bool | None = None
) -> Expected | str:
    """Return the expected busbw of a collective on exactly these GPUs of one machine; a reason if it is unknown.

    `nvls`: whether NCCL reports that it reduces in the NVSwitch; unknown counts as no.
    """
    if len(gpus) < 2:
        return "a single GPU does not communicate"
    if collective not in _JUDGED:
        return f"no model for {collective}"
    if any(gpu.mig_mode for gpu in gpus):
        return "a GPU is split by MIG"
    capabilities = {gpu.compute_capability for gpu in gpus}
    if len(capabilities) != 1 or None in capabilities:
        return "GPUs of different models"
    full = _nvlink_rate(gpus, links)
    band = _NVLINK_BAND
    if isinstance(full, str):
        return full
    if full is None:
        full, band = _pcie_rate(gpus, links), _PCIE_BAND
        if isinstance(full, str):
            return full
    rate, why = full
    share_of_links = _NVLS_SHARE.get(_number(gpus[0]))
    if nvls and collective == "all_reduce" and len(gpus) >= _NVLS_LEAST_GPUS and share_of_links:
        with_switch = rate * share_of_links * bus_factor("all_reduce", len(gpus))
        rate, why = max(rate, with_switch), why + ", reduced in the switch (NVLS)"
    share = size_bytes / (size_bytes + rate * 1e9 * _RAMP_S)
    if share < _LEAST_SHARE:
        return f"{size_text(size_bytes)} measures latency on these links"
    reach = rate * share
    return Expected(reach, reach * band[0], reach * band[1], why)


def _number(gpu: Gpu) -> int:
    major, minor = gpu.compute_capability or (0, 0)
    return major * 10 + minor


def _nvlink_rate(gpus: Sequence[Gpu], links: Sequence[Link]) -> tuple[float, str] | str | None:
    """Return the NVLink bandwidth per GPU of a ring through all of them; None if the ring must leave NVLink."""
    between = _links_between(gpus, links)
    if between is None:
        return "the links between the GPUs are unknown"
    if not all(link.nvlinks for link in between) and not _ring_on_nvlink(gpus, between):
        return None
    each = _NVLINK.get(_number(gpus[0]))
    if each is None:
        return "the NVLink bandwidth of this GPU is unknown"
    switched = any(link.through_switch for link in between)
    counts = []
    for gpu in gpus:
        own = sum(link.nvlinks or 0 for link in between if gpu.index in (link.a, link.b))
        counts.append(gpu.nvlinks_active if switched else own)
    if any(not count for count in counts):
        return "not every GPU reports its NVLinks"
    least = min(count for count in counts if count)
    return least * each, f"{least} NVLinks x {each:g} GB/s"


def _ring_on_nvlink(gpus: Sequence[Gpu], between: Sequence[Link]) -> bool:
    """Return whether NVLink forms a hybrid mesh (DGX-1): connected, each GPU linked to at least two others."""
    near = {
        gpu.index: {
            other
            for link in between
            if link.nvlinks and gpu.index in (link.a, link.b)
            for other in (link.a, link.b)
            if other != gpu.index
        }
        for gpu in gpus
    }
    reached, new = set[int](), {gpus[0].index}
    while new:
        reached |= new
        new = {other for index in new for other in near[index]} - reached
    return len(reached) == len(gpus) and all(len(others) >= 2 for others in near.values())


def _pcie_rate(gpus: Sequence[Gpu], links: Sequence[Link]) -> tuple[float, str] | str:
    """Return the PCIe bandwidth per GPU: that of the slowest slot, through switches or through the host."""
    slots = [(gpu.pcie_generation_max, gpu.pcie_width) for gpu in gpus]
    rates = [_PCIE[generation] * width / 16 for generation, width in slots if generation in _PCIE and width]
    if len(rates) < len(slots):
        return "not every GPU reports its PCIe link"
    between = _links_between(gpus, links) or ()
    direct = all(link.p2p_read == 0 == link.p2p_write and link.topology in ("PIX", "PXB") for link in between)
    generation, width = slots[rates.index(min(rates))]
    way, share = ("through PCIe switches", _THROUGH_SWITCH) if direct else ("through the host", _THROUGH_HOST)
    return min(rates) * share, f"PCIe {generation} x{width} {way}"


def _links_between(gpus: Sequence[Gpu], links: Sequence[Link]) -> list[Link] | None:
    """Return the links among these GPUs; None if one is missing or could not be read."""
    chosen = {gpu.index for gpu in gpus}
    found = [link for link in links if link.a in chosen and link.b in chosen]
    whole = len(found) == len(chosen) * (len(chosen) - 1) // 2
    return found if whole and all(link.nvlinks is not None for link in found) else None


def gpus_of_ranks(ranks: Ranks, gpus: Sequence[Gpu]) -> list[Gpu] | None:
    """Return the GPUs of the ranks, one per rank; None if not all are known, or if they are on several nodes."""
    by_uuid = {gpu.uuid: gpu for gpu in gpus if gpu.uuid}
    found = [by_uuid[rank.gpu_uuid] for rank in ranks.ranks if rank.gpu_uuid in by_uuid]
    one_each = len({gpu.index for gpu in found}) == len(found) == ranks.expected
    return found if one_each and ranks.nodes == 1 else None


# Share of a step's compute that can overlap with communication: the backward pass, which is two thirds of it (an
# estimate; DDP overlaps its buckets with it).
_HIDDEN: Final = 2 / 3


def efficiency(compute_s: float, gradient_bytes: float, busbw_gb_per_s: float, ranks: int) -> float:
    """Return the efficiency of a DDP step (0 to 1) if its gradients are averaged at this bus bandwidth."""
    talk = bus_factor("all_reduce", ranks) * gradient_bytes / (busbw_gb_per_s * 1e9)
    return compute_s / (compute_s + max(0.0, talk - _HIDDEN * compute_s))


def size_text(size_bytes: int) -> str:
    """Return a message size as text: "64 MiB", "1 KiB"."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.3g} {name}"
    return f"{size_bytes} bytes"


def rate_text(gb_per_s: float) -> str:
    """Return a bandwidth as text: "214 GB/s", "0.83 GB/s"."""
    return f"{gb_per_s:.0f} GB/s" if gb_per_s >= 100 else f"{gb_per_s:.3g} GB/s"
