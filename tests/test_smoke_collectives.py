"""Rungs "device", "collectives" and "pairs": right numbers pass, wrong ones name the rank that sends them.

Real gloo ranks, forked from one interpreter (tests/rungs.py); what breaks them stands in tests/scripts/broken_numbers.
"""

from __future__ import annotations

from itertools import combinations
from types import SimpleNamespace
from typing import Any

import pytest

from mgpu import engine
from mgpu.check import Problem
from mgpu.smoke.ranks import collectives, errors, expected_values, identity, memory, pairs
from mgpu.smoke.ranks.journal import Failure
from mgpu.snapshot import Rank, Ranks, Snapshot
from tests.rungs import Case, climb
from tests.verdicts import judged

ALONE = ("start", "device")
TALK = ("start", "device", "group", "collectives", "pairs", "shutdown")
SUMS = ("start", "device", "group", "collectives", "shutdown")


def broken(name: str, world: int, rungs: tuple[str, ...] = SUMS, **orders: Any) -> Case:
    """Ranks of which one is at fault in that way."""
    limit_s = orders.pop("limit_s", 30.0)
    return Case(name, world, rungs, f"tests.scripts.broken_numbers:{name}", limit_s, {"level": "quick", **orders})


CASES = (
    Case("quick of one", 1, TALK, orders={"level": "quick"}),
    Case("quick of two", 2, TALK, orders={"level": "quick", "precision": "bf16"}),
    Case("standard of two", 2, TALK),
    Case("standard of three", 3, TALK, orders={"fill_percent": 50, "precision": "fp8"}),
    Case("quick of four", 4, TALK, orders={"level": "quick", "precision": "fp16"}),
    Case("no gpu", 2, ALONE, orders={"level": "quick", "cpu": False}),
    broken("gathers_wrong", 3),
    broken("adds_wrong", 3),
    broken("sums_wrong", 2),
    broken("receives_wrong", 3),
    broken("pair_is_wrong", 4, TALK),
    broken("pair_hangs", 2, TALK, limit_s=3.0),
    broken("slow", 2, ALONE),
    broken("not_a_number", 2, ALONE),
    broken("other_bits", 3, ALONE),
    broken("unsteady", 2, ALONE, level="standard"),
    broken("forgets", 2, ALONE, level="standard"),
    broken("no_memory", 2, ALONE, level="standard"),
    broken("cuda_error", 2, ALONE),
    broken("fewer_types", 2, level="standard"),
)


@pytest.fixture(scope="module")
def climbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ranks]:
    """Every case, once."""
    return climb(tmp_path_factory.mktemp("rungs"), CASES)


def found(ranks: Ranks) -> dict[str, engine.Outcome]:
    """What the checks say of the ranks, apart from what is well or skipped."""
    outcomes = judged(Snapshot(ranks=ranks))
    assert not [o for o in outcomes if o.status == "crash"]
    return {o.check.id: o for o in outcomes if o.problem}


def only(ranks: Ranks, check: str) -> Problem:
    """The problem of that check, which is the one cause of whatever else fails."""
    outcomes = found(ranks)
    causes = [name for name, o in outcomes.items() if o.status == "fail" and not o.because_of]
    assert causes == [check], (causes, [rank.error for rank in ranks.ranks])
    problem = outcomes[check].problem
    assert problem is not None
    return problem


def test_right_numbers_pass(climbed: dict[str, Ranks]) -> None:
    for name in ("quick of one", "quick of two", "standard of two", "standard of three", "quick of four"):
        ranks = climbed[name]
        assert ranks.ended == "finished", (name, [rank.traceback for rank in ranks.ranks], ranks.launcher_output)
        assert not [o for o in found(ranks).values() if o.status == "fail"]


def test_every_type_that_the_config_uses_is_computed_in(climbed: dict[str, Ranks]) -> None:
    kinds = {name: list(climbed[name].ranks[0].computed) for name in climbed if climbed[name].ranks[0].computed}
    assert kinds["quick of one"] == ["fp32", "int64"]
    assert kinds["quick of two"] == ["fp32", "bf16", "int64"]
    assert kinds["quick of four"] == ["fp32", "fp16", "int64"]
    assert kinds["standard of two"] == ["fp32", "bf16", "fp16", "int64"]
    for rank in climbed["standard of two"].ranks:
        assert {"compute_seconds", "gemm_tflops_fp32", "gemm_tflops_bf16", "memory_checked_mib"} <= set(rank.measured)
        assert rank.cpus and rank.device == "cpu" and rank.gpu_uuid is None


def test_what_cannot_be_tried_is_said(climbed: dict[str, Ranks]) -> None:
    skipped = climbed["standard of three"].ranks[0].skipped
    assert any(words.startswith("host-to-device copy: ") for words in skipped)
    assert any(words.startswith("--fill 50: ") for words in skipped)
    assert any(words.startswith("fp8 kernels: ") for words in skipped)
    assert any("only one rank" in words for words in climbed["quick of one"].ranks[0].skipped)


def test_every_collective_in_every_type(climbed: dict[str, Ranks]) -> None:
    detail = {name: _detail(climbed[name].ranks[0], "collectives") for name in climbed}
    assert detail["quick of two"] == "6 collectives x 3 dtypes: all 18 correct"
    assert "6 collectives x 6 dtypes: all 146 correct" in (detail["standard of two"] or "")


def test_a_type_that_the_backend_lacks_is_left_out(climbed: dict[str, Ranks]) -> None:
    ranks = climbed["fewer_types"]
    assert ranks.ended == "finished"
    assert "bfloat16 over gloo: Invalid scalar type" in ranks.ranks[0].skipped
    assert "6 collectives x 5 dtypes: all 128 correct" in (_detail(ranks.ranks[0], "collectives") or "")


def test_every_pair_is_tried_and_timed(climbed: dict[str, Ranks]) -> None:
    for rank in climbed["quick of four"].ranks:
        assert {pair.other for pair in rank.pairs} == {0, 1, 2, 3} - {rank.rank}
        assert all(pair.ok and pair.gb_per_s and pair.latency_s for pair in rank.pairs)
    assert climbed["quick of one"].ranks[0].pairs == ()
    assert _detail(climbed["standard of three"].ranks[0], "pairs") == "3 of 3 pairs correct, both directions"
    assert _detail(climbed["quick of four"].ranks[3], "pairs") == "6 of 6 pairs correct, both directions"


@pytest.mark.parametrize(
    ("precision", "on_gpu", "dtype", "needed"),
    [
        ("no", False, "float32", True), ("no", True, "bfloat16", False), ("bf16", True, "bfloat16", True),
        ("bf16", False, "bfloat16", False), ("fp16", True, "float16", True), ("bf16", True, "float16", False),
    ],
)  # fmt: skip
def test_the_type_that_the_training_sends_is_never_skipped(
    precision: str, on_gpu: bool, dtype: str, needed: bool
) -> None:
    import torch

    here: Any = SimpleNamespace(torch=torch, on_gpu=on_gpu, orders=SimpleNamespace(precision=precision))
    assert collectives._is_needed(here, getattr(torch, dtype)) is needed


@pytest.mark.parametrize("name", ["gathers_wrong", "adds_wrong"])
def test_the_rank_that_sends_wrong_numbers_is_named(climbed: dict[str, Ranks], name: str) -> None:
    problem = only(climbed[name], "collective_gives_wrong_numbers")
    assert problem.title.startswith("rank 1 (cpu, pid ") and "sends wrong numbers (collectives: " in problem.title
    assert problem.subjects == ("rank 1",) and problem.evidence["host"]


def test_whose_part_of_a_sum_was_wrong_nobody_can_say(climbed: dict[str, Ranks]) -> None:
    problem = only(climbed["sums_wrong"], "collective_gives_wrong_numbers")
    assert "only sums are wrong, which does not show the sender" in problem.title
    assert problem.evidence["rank"] is None


def test_the_rank_that_alone_receives_wrong_numbers_is_named(climbed: dict[str, Ranks]) -> None:
    problem = only(climbed["receives_wrong"], "collective_gives_wrong_numbers")
    assert problem.evidence["rank"] == 1
    assert "receives wrong numbers from 3 ranks, and no other rank does" in problem.title


def test_the_pair_that_alters_numbers_is_named(climbed: dict[str, Ranks]) -> None:
    problem = only(climbed["pair_is_wrong"], "pair_gives_wrong_numbers")
    assert problem.title == "pairs: wrong numbers between ranks 1-3"
    assert problem.subjects == ("rank 1", "rank 3")


def test_a_pair_that_hangs_is_in_the_last_word(climbed: dict[str, Ranks]) -> None:
    ranks = climbed["pair_hangs"]
    assert ranks.ended == "stalled"
    assert {rank.last_word for rank in ranks.ranks} == {"pair 0-1: send 64 KiB"}
    assert [pair.ok for pair in ranks.ranks[0].pairs] == [None]


def test_the_straggler_is_named(climbed: dict[str, Ranks]) -> None:
    problem = found(climbed["slow"])["rank_is_a_straggler"].problem
    assert problem is not None and problem.evidence["rank"] == 1
    assert "is the straggler" in problem.title


@pytest.mark.parametrize(
    ("name", "check", "words"),
    [
        ("not_a_number", "rank_computes_not_finite", "computes NaN or infinity: "),
        ("unsteady", "rank_computes_unsteadily", "gets two results for one computation"),
        ("forgets", "gpu_memory_altered", "1 of 2097152 numbers in memory are altered"),
        ("cuda_error", "gpu_error_in_rank", "device: CUDA error on rank 1"),
        ("no_memory", "rank_out_of_memory", "memory"),
    ],
)
def test_the_rank_whose_device_fails_is_named(climbed: dict[str, Ranks], name: str, check: str, words: str) -> None:
    problem = only(climbed[name], check)
    assert words in problem.title and problem.evidence["rank"] == 1
    assert problem.subjects == ("rank 1",)


def test_a_rank_that_finds_no_gpu_is_named(climbed: dict[str, Ranks]) -> None:
    if pytest.importorskip("torch").cuda.is_available():
        pytest.skip("there is a GPU")
    problem = only(climbed["no gpu"], "rank_without_gpu")
    assert problem.title.startswith(("device: rank 0 ", "device: rank 1 "))  # both have none: whichever reports first
    assert "has no GPU: torch finds no GPU in this process" in problem.title
    assert set(problem.subjects) == {"rank 0", "rank 1"}


def test_the_rank_that_computes_other_bits_is_named(climbed: dict[str, Ranks]) -> None:
    ranks = climbed["other_bits"]
    problem = only(ranks, "ranks_compute_differently")
    assert problem.title == "device: rank 1 computes different results in fp32 than 2 equal ranks"


def _detail(rank: Rank, rung: str) -> str | None:
    return next((step.detail for step in rank.steps if step.rung == rung), None)


# The parts


@pytest.mark.parametrize("world", range(2, 12))
def test_a_tournament_brings_everybody_together_once(world: int) -> None:
    rounds = list(zip(*(pairs._tournament(world, rank) for rank in range(world)), strict=True))
    met = []
    for others in rounds:
        for rank, other in enumerate(others):
            if other is not None:
                assert others[other] == rank != other
                met.append((rank, other))
    assert sorted(met) == sorted((a, b) for a in range(world) for b in range(world) if a != b)
    assert len(rounds) == world - 1 + world % 2


def numbers(world: int, dtype: str = "float32") -> expected_values.Numbers:
    """What that many ranks send."""
    torch = pytest.importorskip("torch")
    return expected_values.Numbers(torch, torch.device("cpu"), getattr(torch, dtype), world)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "uint8", "int64"])
@pytest.mark.parametrize("world", [2, 23, 24, 200])
def test_the_numbers_are_exact_in_every_type(dtype: str, world: int) -> None:
    """Added in any order they give what they give in whole numbers: no partial sum is rounded."""
    ours, whole = numbers(world, dtype), numbers(world, "int64")
    assert whole.of(world - 1, 600).tolist() == ours.of(world - 1, 600).to(whole.dtype).tolist()
    turns = sum(whole.turn(rank, 600) for rank in range(world))
    assert turns.tolist() == whole.turns(600).tolist() == ours.turns(600).to(whole.dtype).tolist()
    assert int(whole.turns(5000).min()) > 0
    assert ours.can_sum or world > 2
    if ours.can_sum:
        assert ours.total(600).to(whole.dtype).tolist() == whole.total(600).tolist()


def test_every_rank_sends_other_numbers_and_never_those_that_wait_to_be_overwritten() -> None:
    ours = numbers(64)
    for a, b in combinations(range(64), 2):
        assert not bool((ours.of(a, 251) == ours.of(b, 251)).any())
    assert expected_values.UNTOUCHED not in ours.of(7, 251).tolist()


@pytest.mark.parametrize("shift", [1, 5, 64, 1000, 65536, 1 << 20])
def test_numbers_that_moved_are_seen(shift: int) -> None:
    ours = numbers(4)
    long = ours.total(shift + 2000)
    assert list(ours.compare("all-reduce", long[shift:], ours.total(2000)))
    long = ours.of(3, shift + 2000)
    assert list(ours.compare("broadcast", long[shift:], ours.of(3, 2000)))


def test_what_is_wrong_is_told_with_its_place_and_value() -> None:
    ours = numbers(2)
    got = ours.of(1, 10)
    got[4:6] = 77
    (wrong,) = ours.compare("all-gather", got, ours.of(1, 10), sender=1)
    assert (wrong.size, wrong.count, wrong.first, wrong.got, wrong.sender) == (10, 2, 4, 77.0, 1)
    assert expected_values.sentence(wrong, more=3) == (
        "all-gather of 10 x float32: 2 of 10 numbers from rank 1 are wrong, the first at 4: 77 instead of 22"
        " (and 3 more)"
    )
    assert expected_values.evidence([wrong, wrong])["suspects"] == [1]


def test_a_turn_accuses_nobody_by_chance() -> None:
    """One wrong element is some rank's in any case; wrong elements of two ranks are neither's."""
    ours = numbers(4)
    wanted = ours.turns(1000)
    mine = ours.whose(1000) == 2
    one, all_of_mine, block = wanted.clone(), wanted.clone(), wanted.clone()
    one[mine.nonzero()[0]] = 0
    all_of_mine[mine] += 1
    block[100:200] = 0
    assert [w.sender for got in (one, all_of_mine, block) for w in ours.compare_turns("all-reduce", got, wanted)] == [
        None, 2, None,
    ]  # fmt: skip
    moved = list(ours.compare_turns("reduce-scatter", all_of_mine[500:], wanted[500:], offset=500))
    assert [w.sender for w in moved] == [2]


@pytest.mark.parametrize(
    ("error", "kind", "evidence"),
    [
        (MemoryError(), "out_of_memory", {"where": "host", "asked": None}),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes."),
            "out_of_memory", {"where": "host", "asked": "99 bytes"},
        ),
        (RuntimeError("CUDA error: unspecified launch failure"), "cuda_error", {"code": None}),
        (RuntimeError("CUDA driver error 802: system not yet initialized"), "cuda_error", {"code": 802}),
        (RuntimeError("CUBLAS_STATUS_NOT_INITIALIZED when calling"), "cuda_error", {"code": None}),
    ],
)  # fmt: skip
def test_errors_of_the_device_have_a_kind(error: Exception, kind: str, evidence: dict[str, Any]) -> None:
    failure = errors.classify(error)
    assert failure is not None and failure.kind == kind and failure.evidence == evidence
    assert str(failure).startswith(type(error).__name__)


def test_out_of_gpu_memory_has_a_kind() -> None:
    torch = pytest.importorskip("torch")
    error = torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has")
    failure = errors.classify(error)
    assert failure is not None and (failure.kind, failure.evidence["asked"]) == ("out_of_memory", "2.00 GiB")
    assert failure.evidence["where"] == "gpu"


def test_other_errors_have_none() -> None:
    assert errors.classify(RuntimeError("Connection closed by peer")) is None
    assert errors.classify(ValueError("CUDA error in a name")) is None


@pytest.mark.parametrize(
    ("name", "uuid"),
    [
        ("NVIDIA H100 80GB HBM3", "GPU-1-2"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "MIG-1-2"),
        ("GeForce MIGHTY", "GPU-1-2"),
    ],
)
def test_uuids_as_nvml_names_them(name: str, uuid: str) -> None:
    class Properties:
        def __init__(self) -> None:
            self.name, self.uuid = name, "1-2"

    assert identity.uuid(Properties()) == uuid


def test_memory_that_is_held_is_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than one block and piece, of which the last are shorter; then one number changes."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(memory, "_BLOCK", 1000)
    monkeypatch.setattr(memory, "_PIECE", 300)
    said: list[str] = []
    here: Any = SimpleNamespace(
        torch=torch, device=torch.device("cpu"), held=["another's"], about_to=said.append, wait=lambda: None
    )
    held = memory._write_pattern(here, 8 * 2500)
    assert [len(block) for block in held.blocks] == [1000, 1000, 500]
    assert len(torch.cat(held.blocks).unique()) == 2500
    here.held.append(held)
    memory.read_back(here)
    assert said == ["read back 0 MiB of GPU memory"]
    held.blocks[1][999] ^= 1
    with pytest.raises(Failure) as caught:
        memory.read_back(here)
    assert caught.value.kind == "memory_altered"
    assert (caught.value.evidence["wrong"], caught.value.evidence["first"]) == (1, 1999)


def test_spans() -> None:
    assert identity.spans({0, 1, 2, 5, 7, 8}) == "0-2,5,7-8"
    assert identity.spans(()) == ""
