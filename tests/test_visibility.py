"""mgpu.probes.environ.resolve_visible: which GPUs a value of CUDA_VISIBLE_DEVICES leaves, by CUDA's rules.

Compared with PyTorch's own parser (torch/cuda/__init__.py: `_parse_visible_devices`, `_transform_uuid_to_ordinals`, and
the cut at the GPU count in `_device_count_nvml`), which needs no GPU.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mgpu.probes.environ import filter_environment, resolve_visible
from mgpu.snapshot import Gpu
from tests.checks.facts import gpus

AA, AB, BB, CC = (f"GPU-{head}000000-1111-2222-3333-444444444444" for head in ("aa", "ab", "bb", "cc"))
FOUR = tuple(replace(gpu, uuid=uuid) for gpu, uuid in zip(gpus(4), (AA, AB, BB, CC), strict=True))
MIG_1, MIG_2 = "MIG-11111111-0000-0000-0000-000000000000", "MIG-22222222-0000-0000-0000-000000000000"
SPLIT = (replace(FOUR[0], mig_mode=True, mig_uuids=(MIG_1, MIG_2)), *FOUR[1:])

# value, what is left, the entry CUDA stops at. CUDA C programming guide, "CUDA Environment Variables".
VECTORS: list[tuple[str | None, tuple[int, ...], str | None]] = [
    (None, (0, 1, 2, 3), None),  # not set …
    ("", (), ""),  # … is not empty
    (" ", (), " "),
    ("0", (0,), None),
    ("2,1", (2, 1), None),
    ("3,2,1,0", (3, 2, 1, 0), None),
    ("0,1,9,2", (0, 1), "9"),
    ("0,4", (0,), "4"),
    ("4", (), "4"),
    ("16", (), "16"),
    ("0,16,1", (0,), "16"),
    ("-1", (), "-1"),
    ("0,2,-1,1", (0, 2), "-1"),
    ("0,0", (), "0"),
    ("0,1,1", (), "1"),
    ("0,9,1,9", (), "9"),  # out of range, and twice: the whole list is read before it is cut
    ("0,9,abc,9", (0,), "9"),
    ("0,abc,0", (0,), "abc"),
    (" 0 , 1 ", (0, 1), None),
    ("0 1", (0,), None),
    ("0;1", (0,), None),
    ("1gpu2", (1,), None),
    ("+1", (1,), None),
    ("-0", (0,), None),
    ("0x1", (0,), None),
    ("01", (1,), None),
    ("1.5", (1,), None),
    ("0,", (0,), ""),
    (",0", (), ""),
    ("abc", (), "abc"),
    ("0,abc,1", (0,), "abc"),
    ("none", (), "none"),
    ("all", (), "all"),
    ("void", (), "void"),
    ("NoDevFiles", (), "NoDevFiles"),
    ('"0,1"', (), '"0'),  # quotes that docker --env-file keeps
    (BB, (2,), None),
    ("GPU-bb", (2,), None),
    (f"GPU-cc,{AA}", (3, 0), None),
    ("GPU-b,GPU-c", (2, 3), None),
    ("GPU-a", (), "GPU-a"),  # two GPUs begin so
    ("GPU-bb,GPU-a,GPU-cc", (2,), "GPU-a"),
    ("GPU-ff", (), "GPU-ff"),
    ("GPU-bb,GPU-ff,GPU-cc", (2,), "GPU-ff"),
    ("GPU-bb,GPU-bb", (), "GPU-bb"),
    ("GPU-b,GPU-bb", (), "GPU-bb"),  # the same GPU under two names
    ("GPU-bb,GPU-ff,GPU-bb", (), "GPU-bb"),
    ("GPU-", (), "GPU-"),
    ("GPU-BB", (), "GPU-BB"),  # case matters
    ("gpu-bb", (), "gpu-bb"),
    ("GPU-bb, GPU-cc", (2,), " GPU-cc"),  # blanks count in UUIDs
    (" GPU-bb", (), " GPU-bb"),
    ("GPU-bb,0", (2,), "0"),  # numbers and UUIDs do not mix
    ("0,GPU-bb", (0,), "GPU-bb"),
    ("GPU-bb,", (2,), ""),
]


@pytest.mark.parametrize(("value", "left", "stopped_by"), VECTORS, ids=[repr(value) for value, _, _ in VECTORS])
def test_what_a_value_leaves_of_four_gpus(value: str | None, left: tuple[int, ...], stopped_by: str | None) -> None:
    found = resolve_visible(value, FOUR)
    assert (found.value, found.gpus, found.stopped_by, found.mig) == (value, left, stopped_by, None)
    assert (found.why is None) == (stopped_by is None)
    if stopped_by is not None:
        assert stopped_by in found.ignored


@pytest.mark.parametrize("value", [value for value, left, _ in VECTORS if value is not None])
def test_an_entry_that_is_ignored_is_told_with_all_after_it(value: str) -> None:
    found = resolve_visible(value, FOUR)
    entries = tuple(value.split(","))
    assert found.ignored == entries[len(entries) - len(found.ignored) :]
    if found.gpus:
        assert len(found.gpus) + len(found.ignored) == len(entries)


@pytest.mark.parametrize(
    ("value", "by_number"), [("0,1", True), ("9", True), (BB, False), (None, False), (MIG_1, False)]
)
def test_only_numbers_depend_on_cuda_device_order(value: str | None, by_number: bool) -> None:
    assert resolve_visible(value, SPLIT).by_number is by_number


# Before driver 570 CUDA enumerates one MIG instance per process, and no whole GPU beside it (MIG user guide, "Device
# Names" and "CUDA Device Enumeration").
@pytest.mark.parametrize(
    ("value", "mig", "stopped_by"),
    [
        (MIG_1, MIG_1, None),
        (MIG_2, MIG_2, None),
        ("MIG-2", "MIG-2", None),
        (f"{MIG_1},{MIG_2}", MIG_1, MIG_2),
        (f"{MIG_1},0", MIG_1, "0"),
        (f"MIG-{AA}/1/0", f"MIG-{AA}/1/0", None),  # the form of drivers before R470
        (f"MIG-{BB.replace('bb', 'ff')}/1/0", None, f"MIG-{BB.replace('bb', 'ff')}/1/0"),
        ("MIG-ffffffff", None, "MIG-ffffffff"),
        ("mig-2", None, "mig-2"),
        (f"0,{MIG_1}", None, MIG_1),
        (f"GPU-bb,{MIG_1}", None, MIG_1),
    ],
)
def test_mig_instances(value: str, mig: str | None, stopped_by: str | None) -> None:
    found = resolve_visible(value, SPLIT, "565.57.01")
    assert (found.mig, found.stopped_by) == (mig, stopped_by)
    assert found.more_mig == ()
    if mig:
        assert found.gpus == ()


# From 570 on it enumerates one compute instance of each GPU instance, and whole GPUs beside them.
@pytest.mark.parametrize("driver", ["570.26", "580.65.06", "1000.1", None, "garbage"])
@pytest.mark.parametrize(
    ("value", "instances", "left", "stopped_by"),
    [
        (MIG_1, (MIG_1,), (), None),
        (f"{MIG_1},{MIG_2}", (MIG_1, MIG_2), (), None),
        (f"{MIG_2},{MIG_2},{MIG_1}", (MIG_2, MIG_1), (), None),  # of one list CUDA takes one
        (f"{MIG_1},GPU-bb", (MIG_1,), (2,), None),
        (f"GPU-bb,{MIG_1}", (MIG_1,), (2,), None),
        (f"{MIG_1},0", (MIG_1,), (), "0"),
        (f"{MIG_1},MIG-ffffffff,{MIG_2}", (MIG_1,), (), "MIG-ffffffff"),
        (f"{MIG_1},GPU-ff", (MIG_1,), (), "GPU-ff"),
        (f"GPU-ff,{MIG_1}", (), (), "GPU-ff"),
        (f"0,{MIG_1}", (), (0,), MIG_1),
    ],
)
def test_mig_instances_of_newer_drivers(
    value: str, instances: tuple[str, ...], left: tuple[int, ...], stopped_by: str | None, driver: str | None
) -> None:
    found = resolve_visible(value, SPLIT, driver)
    assert ((found.mig, *found.more_mig) if found.mig else ()) == instances
    assert (found.gpus, found.stopped_by) == (left, stopped_by)


@pytest.mark.parametrize("driver", ["569.99", "470.42.01"])
def test_older_drivers_show_one_instance(driver: str) -> None:
    assert resolve_visible(f"{MIG_1},{MIG_2}", SPLIT, driver).stopped_by == MIG_2


def test_without_gpus_nothing_is_visible() -> None:
    assert resolve_visible(None, ()).gpus == ()
    assert resolve_visible("0", ()) == replace(resolve_visible("0", ()), gpus=(), stopped_by="0", why="there is no GPU")
    assert resolve_visible("GPU-aa", ()).gpus == ()


def test_cuda_numbers_only_the_gpus_this_process_may_open() -> None:
    # torch counts what NVML counts; the driver numbers what the cgroup lets it open. mgpu follows the driver.
    half = tuple(replace(gpu, permitted=gpu.index >= 2) for gpu in FOUR)
    assert resolve_visible(None, half).gpus == (2, 3)
    assert resolve_visible("1,0", half).gpus == (3, 2)
    assert resolve_visible("0,2", half).stopped_by == "2"
    assert resolve_visible("GPU-aa", half).gpus == ()
    assert resolve_visible("GPU-bb", half).gpus == (2,)


# --- the same as PyTorch -----------------------------------------------------------------------------------------


def by_torch(value: str | None, found: Sequence[Gpu]) -> tuple[int, ...]:
    """What torch.cuda would count, in its order: the steps of `_device_count_nvml`, with these GPUs for NVML's."""
    cuda: Any = pytest.importorskip("torch").cuda
    without = {name: text for name, text in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    changed = without if value is None else {**without, "CUDA_VISIBLE_DEVICES": value}
    with mock.patch.dict(os.environ, changed, clear=True):
        devices: list[Any] = cuda._parse_visible_devices()
    if devices and isinstance(devices[0], str):
        return tuple(cuda._transform_uuid_to_ordinals(devices, [gpu.uuid for gpu in found]))
    for place, number in enumerate(devices):
        if number >= len(found):
            return tuple(devices[:place])
    return tuple(devices)


@pytest.mark.parametrize("value", [value for value, _, _ in VECTORS], ids=repr)
def test_the_vectors_are_torchs_as_well(value: str | None) -> None:
    assert resolve_visible(value, FOUR).gpus == by_torch(value, FOUR)


HEX = st.text("abc0", max_size=4)
ENTRIES = st.one_of(
    st.integers(-2, 12).map(str),
    st.sampled_from([AA, AB, BB, CC, "", " ", "abc", "none", "GPU-", "gpu-aa", "1gpu2", "+1", "0x1", "01"]),
    HEX.map(lambda text: f"GPU-{text}"),
    st.builds(lambda left, number, right: f"{left}{number}{right}", st.sampled_from(["", " ", "\t"]), st.integers(0, 5),
              st.sampled_from(["", " ", "x", ".5", ";1"])),
    st.text(st.characters(codec="ascii", exclude_characters=",\0+-"), max_size=6),
)  # fmt: skip
VALUES = st.lists(ENTRIES, min_size=1, max_size=7).map(",".join)


@st.composite
def machines(draw: st.DrawFn) -> tuple[Gpu, ...]:
    """Up to nine GPUs whose UUIDs share beginnings."""
    heads = draw(st.lists(st.text("abc0", min_size=3, max_size=3), max_size=9, unique=True))
    return tuple(replace(gpu, uuid=f"GPU-{head}00000-1") for gpu, head in zip(gpus(len(heads)), heads, strict=True))


@settings(deadline=None, max_examples=400)
@given(value=st.none() | VALUES, found=machines())
@example("0,9,1,9", FOUR)
@example("0,9,9", FOUR)
@example("GPU-,GPU-", FOUR[:1])
def test_the_same_as_torch(value: str | None, found: tuple[Gpu, ...]) -> None:
    if value is not None and value.startswith("MIG-"):
        return  # torch leaves these to CUDA (`_device_count_nvml` returns -1)
    if value is None and len(found) > 64:
        return  # torch stops at 64
    assert resolve_visible(value, found).gpus == by_torch(value, found)


# Where mgpu differs on purpose: torch's `_strtoul` is Python's str.isdigit() and int(), the driver's is C's strtoul,
# which knows neither digits beyond ASCII nor exceptions. torch raises ValueError on these, or counts a GPU that CUDA
# will not show.
@pytest.mark.parametrize(
    ("value", "left", "torchs"),
    [
        ("+", (), ValueError),
        ("-", (), ValueError),
        ("--1", (), ValueError),
        ("0,+x", (0,), ValueError),
        ("²", (), ValueError),
        ("٣", (), (3,)),
        ("0,٣", (0,), (0, 3)),
    ],
)
def test_no_number_in_c_is_no_number_here(value: str, left: tuple[int, ...], torchs: Any) -> None:
    assert resolve_visible(value, FOUR).gpus == left
    if torchs is ValueError:
        with pytest.raises(ValueError, match="invalid literal"):
            by_torch(value, FOUR)
    else:
        assert by_torch(value, FOUR) == torchs


@settings(deadline=None, max_examples=300)
@given(st.text(max_size=40) | VALUES, st.integers(0, 4))
def test_whatever_is_written_there_it_is_read(value: str, number: int) -> None:
    found = resolve_visible(value, FOUR[:number])
    assert set(found.gpus) <= set(range(number))
    assert len(set(found.gpus)) == len(found.gpus)


def test_a_number_of_any_length_is_read() -> None:
    assert resolve_visible("0," + "9" * 5000, FOUR).gpus == (0,)
    assert resolve_visible("0," + "0" * 5000 + "2", FOUR).gpus == (0, 2)


# --- what is kept of the environment -----------------------------------------------------------------------------


def test_only_names_that_matter_are_kept_and_no_secret() -> None:
    environ = {
        "CUDA_VISIBLE_DEVICES": "0",
        "NCCL_DEBUG": "INFO",
        "PET_NNODES": "1",
        "RANK": "0",
        "HF_TOKEN": "hf_abc",
        "TORCH_API_KEY": "abc",
        "ACCELERATE_PASSWORD": "abc",
        "AWS_SECRET_ACCESS_KEY": "abc",
        "NCCL_IB_PKEY": "1",  # a number of InfiniBand's, no key to anything
        "HF_ENDPOINT": "https://ada:hunter2@mirror.example/",
        "nccl_debug": "INFO",  # accelerate writes it in capitals for its ranks
        "hf_token": "hf_abc",
        "ROCR_VISIBLE_DEVICES": "0",
        "HOME": "/home/ada",
        "PATH": "/bin",
    }
    assert filter_environment(environ) == {
        "ACCELERATE_PASSWORD": "***",
        "CUDA_VISIBLE_DEVICES": "0",
        "HF_ENDPOINT": "https://***@mirror.example/",
        "HF_TOKEN": "***",
        "NCCL_DEBUG": "INFO",
        "NCCL_IB_PKEY": "1",
        "PET_NNODES": "1",
        "RANK": "0",
        "ROCR_VISIBLE_DEVICES": "0",
        "TORCH_API_KEY": "***",
        "hf_token": "***",
        "nccl_debug": "INFO",
    }
