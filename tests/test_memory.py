"""Is the estimate what real models hold under DDP and FSDP2, and what the papers say of the rest?"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mgpu.planning import memory
from mgpu.planning.memory import GIB, need

ROOT = Path(__file__).resolve().parents[1]
WITHIN = 0.10

# model, strategy, optimizer, precision, what is trained. Adafactor is left out under FSDP2: torch 2.13's does not run
# there (its in-place norm has no rule for sharded tensors).
ALONE = [
    (model, "ddp", optimizer, precision, "full")
    for model, optimizer, precision in (
        ("mlp", "adamw", "no"), ("mlp", "adamw", "bf16"), ("transformer", "adamw", "bf16"), ("uneven", "sgd", "no"),
        ("transformer", "sgd", "bf16"), ("transformer", "adafactor", "no"), ("mlp", "adafactor", "bf16"),
    )
] + [("transformer", "ddp", "adamw", "bf16", "half"), ("mlp", "ddp", "adamw", "bf16", "lora")]  # fmt: skip
SHARDED = [
    (model, "fsdp2", optimizer, precision, trained)
    for model, _, optimizer, precision, trained in ALONE
    if optimizer != "adafactor"
]


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with what really was held: everything from one process that imports torch once."""
    folder = tmp_path_factory.mktemp("held")
    (folder / "cases").write_text(json.dumps([*ALONE, *SHARDED]))
    command = [sys.executable, "-m", "tests.scripts.holds_memory", str(folder / "cases"), str(folder / "out")]
    done = subprocess.run([*command, "1", "2", "4"], cwd=ROOT, timeout=240, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_estimate_is_what_real_models_hold(ranks: int, held: Path) -> None:
    cases = ALONE + (SHARDED if ranks > 1 else [])
    worst = 0.0
    for rank in range(ranks):
        for case, real in zip(cases, json.loads((held / f"out.{ranks}.{rank}").read_text()), strict=True):
            _, strategy, optimizer, precision, trained = case
            guess = need(
                real["params"], strategy=strategy, ranks=ranks, optimizer=optimizer, precision=precision,
                train="lora" if trained == "lora" else "full", trainable=real["trainable"],
            )  # fmt: skip
            whole = real["weights"] + real["gradients"] + real["optimizer"]
            worst = max(worst, abs(guess.total_bytes / whole - 1))
            assert guess.total_bytes == pytest.approx(whole, rel=WITHIN), (rank, case, real, guess)
            for part in ("weights", "gradients", "optimizer"):
                assert getattr(guess, f"{part}_bytes") == pytest.approx(real[part], abs=WITHIN * whole), (
                    rank,
                    case,
                    part,
                )
    print(f"{ranks} ranks, {len(cases)} models: at most {worst:.2%} off")


def test_ddp_really_has_a_second_copy_of_the_gradients(held: Path) -> None:
    whole = {how: json.loads((held / f"out.{how}").read_text()) for how in ("buckets", "views")}
    assert 2.5 < whole["buckets"] - whole["views"] < 5.5, whole  # 4 bytes each; the rest is the allocator's
    assert need(10**6, strategy="ddp", ranks=2).buckets_bytes == 4 * 10**6
    assert (
        need(10**6, strategy="ddp", ranks=1).buckets_bytes == 0 == need(10**6, strategy="fsdp2", ranks=2).buckets_bytes
    )


# ZeRO, arXiv 1910.02054, figure 1 and the rows people compute from it; 1 GB = 10^9 bytes.
@pytest.mark.parametrize(
    ("params", "ranks", "strategy", "gigabytes"),
    [
        (7e9, 8, "ddp", 112), (7e9, 8, "zero1", 38.5), (7e9, 8, "zero2", 26.25), (7e9, 8, "zero3", 14),
        (7e9, 8, "fsdp2", 14), (7.5e9, 64, "ddp", 120), (7.5e9, 64, "zero1", 31.4), (7.5e9, 64, "zero2", 16.6),
        (7.5e9, 64, "zero3", 1.88),
    ],
)  # fmt: skip
def test_worked_examples(params: float, ranks: int, strategy: str, gigabytes: float) -> None:
    assert need(int(params), strategy=strategy, ranks=ranks).total_bytes / 1e9 == pytest.approx(gigabytes, abs=0.05)


def test_adapters() -> None:
    lora = need(7 * 10**9, strategy="ddp", ranks=1, train="lora", trainable=40 * 10**6)
    assert lora.total_bytes == 14 * 10**9 + 640 * 10**6
    assert need(7 * 10**9, strategy="ddp", ranks=1, train="lora", trainable=1, precision="no").weights_bytes > 27.9e9
    qlora = need(7 * 10**9, strategy="ddp", ranks=1, train="qlora", trainable=40 * 10**6)
    assert qlora.total_bytes == 7 * 10**9 * 0.5625 + 640 * 10**6
    untold = need(7 * 10**9, strategy="ddp", ranks=1, train="lora")
    assert untold.total_bytes == 14 * 10**9 + 70 * 10**6 * 16 and "assumed to be 1%" in untold.not_counted[-1]
    assert need(7 * 10**9, strategy="zero3", ranks=4, train="lora", trainable=40 * 10**6).weights_bytes == 3.52e9


@pytest.mark.parametrize(
    ("optimizer", "precision", "strategy", "each"),
    [
        ("adamw", "bf16", "ddp", 16), ("adamw", "no", "ddp", 16), ("adamw", "fp8", "ddp", 16),
        ("sgd", "fp16", "ddp", 12),
        ("adam8bit", "bf16", "ddp", 10), ("adafactor", "bf16", "ddp", 8.02), ("adamw", "bf16", "zero2", 16),
        ("adamw", "fp8", "zero2", 16), ("adamw", "no", "zero2", 20), ("adam8bit", "fp16", "zero1", 10),
    ],
)  # fmt: skip
def test_bytes_for_each_parameter(optimizer: str, precision: str, strategy: str, each: float) -> None:
    one = need(10**9, strategy=strategy, ranks=1, optimizer=optimizer, precision=precision)
    assert one.total_bytes == pytest.approx(each * 10**9)
    assert f"= {each:.3g} bytes" in one.formula


def test_offload_moves_to_the_host() -> None:
    whole = need(10**9, strategy="fsdp2", ranks=4, offload=True)
    assert (whole.total_bytes, whole.host_bytes) == (0, 16 * 10**9)
    zero2 = need(10**9, strategy="zero2", ranks=4, offload=True)
    assert (zero2.weights_bytes, zero2.total_bytes) == (2 * 10**9, 2 * 10**9)  # as DeepSpeed's own estimate
    assert zero2.host_bytes == 16 * 10**9 * 1.5
    assert need(10**9, strategy="zero3", ranks=4, offload=True).host_bytes == 18 * 10**9 * 1.5
    with pytest.raises(ValueError, match="only FSDP2 and ZeRO can offload"):
        need(10**9, strategy="ddp", ranks=4, offload=True)


def test_what_fits() -> None:
    one = need(10**9, strategy="ddp", ranks=1)  # 16 GB
    edge = 16 * 10**9 + memory.RESERVE_BYTES
    assert memory.fits(one, edge) and not memory.fits(one, edge - 1)
    assert not memory.roomy(one, edge) and memory.roomy(one, round(edge / memory.STATE_SHARE) + 1)
    two = need(10**9, strategy="ddp", ranks=2)
    assert not memory.fits(two, edge), "buckets take room as well"


def test_how_many_gpus_would_do() -> None:
    of_80 = 80 * GIB
    count = memory.gpus_needed(70 * 10**9, of_80, strategy="fsdp2")
    assert count == 14  # 1,120 GB over 77 GiB each
    for ranks, enough in ((count, True), (count - 1, False)):
        assert memory.fits(need(70 * 10**9, strategy="fsdp2", ranks=ranks), of_80) is enough
    assert memory.gpus_needed(70 * 10**9, of_80, strategy="zero1") is None  # 280 GB stay whole
    assert memory.gpus_needed(70 * 10**9, of_80, strategy="ddp") is None
    assert memory.gpus_needed(10**9, of_80, strategy="ddp") == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"params": 0}, "0 parameters: must be at least 1"), ({"ranks": 0}, "0 ranks: must be at least 1"),
        ({"strategy": "fsdp"}, "strategy fsdp: choose one of ddp"), ({"optimizer": "lion"}, "optimizer lion: choose"),
        ({"precision": "fp32"}, "precision fp32: choose one of no"), ({"train": "some"}, "train some: choose one of"),
        ({"trainable": 11}, "11 trained parameters: must be from 1 to the model's 10"),
        ({"trainable": 0}, "0 trained parameters: must be from 1 to the model's 10"),
    ],
)  # fmt: skip
def test_no_estimate_from_nonsense(change: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"params": 10, "strategy": "ddp", "ranks": 1} | change
    with pytest.raises(ValueError, match=said):
        need(given.pop("params"), **given)


def test_every_estimate_says_what_it_leaves_out() -> None:
    for strategy in memory.STRATEGIES:
        one = need(10**9, strategy=strategy, ranks=2)
        assert one.not_counted[0].startswith("activations") and one.source and "bytes per" in one.formula
    assert [memory.gib(n) for n in (0, 3 * 2**20, 1.5 * GIB, 134.6 * GIB, 2000 * GIB)] == [
        "0 MiB", "3 MiB", "1.5 GiB", "135 GiB", "2,000 GiB",
    ]  # fmt: skip
