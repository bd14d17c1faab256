"""What does `mgpu configure --plan` show: for every machine, at every width, with and without answers?"""

from __future__ import annotations

import io
import json
import random
from typing import Any

import pytest

from mgpu.errors import MgpuError
from mgpu.planning import memory
from mgpu.report.screen import Screen
from mgpu.snapshot import Gap, Snapshot
from mgpu.wizard import scaling_table
from mgpu.wizard.answers import Answers
from mgpu.wizard.scaling_plan import sheet
from tests import machines
from tests.conftest import Run
from tests.test_schema import PLAN

FINE_TUNING = Answers(params=8_030_000_000, batch_per_gpu=8, dataset_size=52_002, lr=2e-5, lr_ref_batch=8)
NOTHING = Answers()


def shown(answers: Answers, machine: str | Snapshot, width: int = 80, **options: Any) -> str:
    stream = io.StringIO()
    snapshot = machines.machine(machine) if isinstance(machine, str) else machine
    scaling_table.show(answers, snapshot, Screen(width, glyphs=False, colour=False, stream=stream), **options)
    return stream.getvalue()


def test_the_tables_of_a_fine_tuning_run() -> None:
    text = shown(FINE_TUNING, "dgx_a100_x8")
    for line in (
        "  GPUs   per GPU   accumulate   effective   steps/epoch   keep 8   speed-up",
        "     4         8            1          32         1,626    2 x 1   3.5-3.8x",
        "     4   2e-05      4e-05     8e-05   square root       6,504",
        "     4   150 GiB no    52 GiB no      41 GiB no   30 GiB tight   30 GiB tight",
        "ZeRO-1 would need 14 such GPUs.",
        "Speed-up: typical figures from guides, not measured here.",
    ):
        assert line in text.splitlines(), text
    for part in ("Not counted: activations", "repeated to fill", "the config does not store a rate", "needs"):
        assert (part in " ".join(text.split())) == (part != "needs"), part


def test_a_narrow_screen_has_a_line_for_each_number() -> None:
    text = shown(FINE_TUNING, "dgx_a100_x8", width=40)
    block = text.split("\n4 GPUs\n")[1].split("\n\n")[0].splitlines()
    assert block[:8] == [
        "  batch per GPU: 8", "  accumulate: 1", "  effective: 32", "  steps/epoch: 1,626", "  to keep 8: 2 x 1",
        "  speed-up: 3.5-3.8x", "  rate, keep: 2e-05", "  rate, square root: 4e-05",
    ]  # fmt: skip
    assert "  memory, ZeRO-1: 52 GiB, does not fit" in block and "  memory, FSDP2: 30 GiB, fits tightly" in block
    assert all(len(line) <= 40 for line in text.splitlines())
    assert "\n4 GPUs\n" in shown(FINE_TUNING, "dgx_a100_x8", one_by_one=True)


def test_what_is_missing_is_named_and_nothing_is_guessed() -> None:
    text = shown(NOTHING, "recorded_vm_without_gpu")
    assert text.startswith("Planned for 1-8 GPUs; this machine has none.")
    for needs in ("--batch-per-gpu", "--dataset-size", "--lr and --lr-ref-batch", "--params"):
        assert f"needs {needs}." in text
    assert "GiB" not in text.split("\n\n", 1)[1] and "AdamW" not in text
    half = shown(Answers(batch_per_gpu=4, lr=1e-4), "l4_x4_vm")
    assert "learning rate: needs --lr-ref-batch." in half and "steps/epoch" not in half


def test_without_a_gpu_memory_is_told_but_not_judged() -> None:
    text = shown(FINE_TUNING, "recorded_vm_without_gpu")
    assert "   120 GiB   120 GiB" in text and "GiB no" not in text
    notes = " ".join(text.split())
    assert "Set a GPU model with --target 4xA100-80GB." in notes and "bf16 (--precision)" in notes


def test_a_wanted_effective_batch_sets_the_accumulation() -> None:
    answers = Answers(batch_per_gpu=4, effective_batch=32, dataset_size=29_500, drop_last=True, epochs=3, gpus=3)
    whole = sheet(answers, machines.machine("l4_x4_vm"))
    assert [row.ranks for row in whole.rows] == [1, 2, 3, 4, 8]
    assert [row.accumulate for row in whole.rows] == [8, 4, None, 2, 1]
    text = shown(answers, "l4_x4_vm")
    assert "Effective batch 32: no accumulation reaches it with 4 per GPU on 3 GPUs." in " ".join(text.split())
    assert "A script with its own DistributedSampler takes other steps: 922 on 8 GPUs." in text
    assert ["2", "4", "4", "32", "922", "2,766", "4", "x", "4", "1.8-1.9x"] in [
        line.split() for line in text.splitlines()
    ]


def test_the_rule_the_user_chose_is_the_one_shown() -> None:
    text = shown(Answers(batch_per_gpu=8, lr=0.1, lr_ref_batch=8, lr_rule="linear"), "l4_x4_vm")
    assert "chose" in text and "suggested" not in text


def test_gpus_that_cannot_be_asked() -> None:
    nothing = Snapshot(gaps={"gpus": Gap("timed_out", "NVML did not answer"), "driver": Gap("timed_out", "no answer")})
    text = shown(FINE_TUNING, nothing)
    assert (
        "Planned without this machine: cannot read the GPUs of this machine: no answer." in " ".join(text.split())
        and "this machine has none" not in text
    )
    assert sheet(FINE_TUNING, nothing).gpus_here is None


def test_the_network_between_machines_is_nobody_s_guess() -> None:
    text = " ".join(shown(Answers(nodes=2), "l4_x4_vm").split())
    assert "figures are for a single node" in text and "figures are for a single node" not in shown(NOTHING, "l4_x4_vm")


def test_offload_says_what_the_host_needs() -> None:
    text = " ".join(shown(Answers(params=7 * 10**9, offload="cpu"), "l4_x4_vm").split())
    assert "for all ranks together: ZeRO-1 156 GiB, ZeRO-2 156 GiB, ZeRO-3 176 GiB, FSDP2 104 GiB." in text


def test_the_document_says_the_same() -> None:
    snapshot = machines.machine("dgx_a100_x8")
    document = json.loads(json.dumps(scaling_table.document(FINE_TUNING, snapshot), allow_nan=False))
    assert document["schema"] == "mgpu.configure/1.0" and document["exit_code"] == 0
    plan = document["plan"]
    assert plan["missing"] == [] and plan["machine"]["gpus"] == 8 and plan["reference_batch"] == 8
    eight = plan["rows"][-1]
    assert (eight["gpus"], eight["effective_batch"], eight["epoch"]["optimizer_steps"]) == (8, 64, 813)
    assert eight["speed_up"] == {
        "low": 6.5, "high": 7.0, "source": "typical figures from guides, not measured here", "measured": False,
    }  # fmt: skip
    held = {one["strategy"]: one for one in eight["memory"]}
    assert list(held) == list(memory.STRATEGIES)
    assert held["fsdp2"]["total_bytes"] == 16 * 8_030_000_000 // 8 and held["fsdp2"]["fits"] and held["fsdp2"]["roomy"]
    assert held["ddp"]["fits"] is False and held["ddp"]["source"] and held["ddp"]["not_counted"]


def _some(dice: random.Random) -> Answers:
    """Answers as somebody might give them, large ones as well."""

    def maybe(value: Any) -> Any:
        return value if dice.random() < 0.7 else None

    trained = dice.choice(("auto", "full", "lora", "qlora"))
    return Answers(
        params=maybe(dice.choice((1, 10**6, 8 * 10**9, 10**15))), train=trained,
        optimizer=dice.choice(("auto", "adamw", "adam8bit", "sgd", "adafactor")),
        gpus=maybe(dice.choice((0, 1, 3, 16, 500, (0, 1), (2,)))),
        precision=dice.choice(("auto", "no", "fp16", "bf16", "fp8")), offload=dice.choice(("auto", "none", "cpu")),
        batch_per_gpu=maybe(dice.choice((1, 7, 999_999))), accum=maybe(dice.randint(1, 999)),
        effective_batch=maybe(dice.choice((1, 64, 96, 999_999))), dataset_size=maybe(dice.choice((1, 29_500, 10**12))),
        drop_last=maybe(dice.random() < 0.5), epochs=maybe(3), lr=maybe(2e-5), lr_ref_batch=maybe(8),
        lr_rule=dice.choice(("auto", "keep", "sqrt", "linear")), nodes=maybe(dice.choice((1, 2, 100_000))),
    )  # fmt: skip


@pytest.mark.parametrize("name", machines.NAMES)
def test_every_machine_and_any_answers(name: str) -> None:
    dice = random.Random(name)
    snapshot = machines.machine(name)
    for _ in range(6):
        answers = _some(dice)
        width = dice.choice((20, 40, 60, 80, 100))
        text = shown(answers, snapshot, width)
        assert text.isascii() and "None" not in text, (answers, text)
        too_long = [line for line in text.splitlines() if len(line) > width and " " in line.strip()]
        assert not too_long or width == 20, (answers, too_long)
        document = json.loads(json.dumps(scaling_table.document(answers, snapshot), allow_nan=False))
        PLAN.validate(document)


def test_more_trained_than_there_are_is_refused() -> None:
    with pytest.raises(MgpuError, match="200 trained parameters: must be from 1 to the model's 100"):
        shown(Answers(params=100, trainable=200), "l4_x4_vm")


def test_the_command(mgpu: Run) -> None:
    arguments = ("configure", "--plan", "--batch-per-gpu", "4", "--dataset-size", "29500", "--drop-last")
    done = mgpu(*arguments)
    assert done.returncode == 0, done
    assert all(f" {steps} " in done.stdout for steps in ("7,375", "3,687", "1,843", "921")), done.stdout
    document = json.loads(mgpu(*arguments, "--json").stdout)
    assert [row["epoch"]["optimizer_steps"] for row in document["plan"]["rows"]][:2] == [7375, 3687]
