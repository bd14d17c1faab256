"""Every path of answers, on every machine: a config without an error that the real accelerate takes, or a sentence."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mgpu import errors
from mgpu.config import loader
from mgpu.config.reading import parse_config
from mgpu.errors import MgpuError
from mgpu.planning import gpu_models
from mgpu.report import describe
from mgpu.snapshot import LoaderVerdict, Snapshot
from mgpu.validate.run import judge
from mgpu.wizard.answers import Answers, with_decision
from mgpu.wizard.proposal import Proposal, propose
from mgpu.wizard.render_yaml import render
from tests import machines
from tests.checks import facts
from tests.conftest import Run

TODAY = date(2026, 11, 21)
TARGETS = ("4xA100-80GB", "8xH100", "2xRTX4090", "1xT4", "8xV100-32GB", "cpu")
EXAMPLES = int(os.environ.get("MGPU_PATHS", "300"))
# What a machine for training has installed; the recorded ones tell torch and accelerate only.
PACKAGES = {
    "deepspeed": "0.19.8",
    "transformers": "4.57.1",
    "torchao": "0.15.0",
    "nvidia-ml-py": "13.590.44",
    "peft": "0.18.0",
}


@cache
def place(name: str, equipped: bool) -> Snapshot:
    """A machine, recorded or wanted; equipped with the packages and the torch that every option needs, or as it is."""
    if name in TARGETS:
        return gpu_models.parse(name).snapshot
    snapshot = machines.machine(name)
    if not equipped:
        return snapshot
    torch = facts.pytorch(version="2.13.0+cu130")
    return replace(snapshot, packages={**(snapshot.packages or {}), **PACKAGES}, pytorch=torch)


_VERDICTS: dict[str, LoaderVerdict] = {}


def asked(text: str, values: object, folder: Path) -> LoaderVerdict:
    """The real accelerate's verdict; the same values are asked once."""
    key = repr(values)
    if key not in _VERDICTS:
        path = folder / "accelerate.yaml"
        path.write_text(text, encoding="utf-8")
        verdicts = loader.verdicts([str(path)])
        assert verdicts, "accelerate cannot be imported"
        _VERDICTS[key] = LoaderVerdict(**verdicts[0])
    return _VERDICTS[key]


def hold(proposal: Proposal, snapshot: Snapshot, folder: Path) -> None:
    """What must be true of a proposal that may be written."""
    text = render(proposal, TODAY)
    assert text == render(proposal, TODAY)
    config = parse_config(text.encode(), "accelerate.yaml")
    assert config.written_by_mgpu and not config.faults, text
    assert config.values == {"compute_environment": "LOCAL_MACHINE", **proposal.values}
    assert config.launch_flags == proposal.launch_flags
    assert config.batch_per_gpu == proposal.batch_per_gpu
    assert all(len(line) <= 120 or line.startswith("#") for line in text.splitlines()), text
    assert all(len(setting.text) <= 48 and "\n" not in setting.text + setting.reason for setting in proposal.settings)
    verdict = asked(text, config.values, folder)
    assert verdict.accepted, f"{verdict.error}\n{text}"
    outcomes = judge(replace(config, loader=verdict), snapshot)
    wrong = [outcome for outcome in outcomes if outcome.status in ("fail", "crash")]
    assert not wrong, f"{[(o.check.id, getattr(o.answer, 'title', o.answer)) for o in wrong]}\n{text}"


def options(proposal: Proposal, menu: str) -> list[str]:
    return [option.name for option in proposal.options.get(menu, ()) if not option.disabled]


def overtaken(proposal: Proposal, answers: Answers, question: str) -> list[str]:
    """The other decisions that the last one made impossible: they are asked again. What is trained, and how precisely,
    may make a model of a size that somebody gave too large for the machine."""
    found = [
        menu
        for menu in MENUS
        if menu != question and menu in answers.origins
        and any(o.name == proposal.chosen[menu] and o.disabled for o in proposal.options.get(menu, ()))
    ]  # fmt: skip
    if answers.params is not None and question in ("train", "optimizer", "precision"):
        found.append("params")
    return found


def numbers(draw: Any, name: str) -> Any:
    """Any answer to a question without a menu, as the parsers let it through."""
    one = st.integers(1, 999_999)
    made: dict[str, st.SearchStrategy[Any]] = {
        "params": st.one_of(st.sampled_from([350_000_000, 1_100_000_000, 8_030_000_000, 70_000_000_000]),
                            st.integers(1, 10**12)),
        "batch_per_gpu": st.one_of(st.integers(1, 64), one), "accum": st.one_of(st.integers(1, 8), one),
        "effective_batch": st.one_of(st.sampled_from([32, 64, 256]), one), "dataset_size": st.integers(1, 10**9),
        "drop_last": st.booleans(), "epochs": st.integers(1, 100), "lr": st.floats(1e-8, 10.0),
        "lr_ref_batch": st.integers(1, 4096), "threads": st.integers(1, 256), "workers": st.integers(0, 64),
        "numa": st.booleans(), "port": st.integers(1, 65535), "compile": st.booleans(), "reshard": st.booleans(),
        "seq_len": st.integers(1, 10**6),
    }  # fmt: skip
    return draw(made[name])


MENUS = ("precision", "train", "optimizer", "strategy", "offload", "numa", "compile")
NUMBERS = (
    "params", "batch_per_gpu", "accum", "effective_batch", "dataset_size", "drop_last", "epochs", "lr", "lr_ref_batch",
    "threads", "workers", "numa", "port", "compile", "reshard", "seq_len",
)  # fmt: skip


def test_there_are_machines_for_every_path() -> None:
    assert len(machines.NAMES) >= 20


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_path_of_answers(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Questions in any order, each answered with any option that is offered then, or with any number."""
    name = data.draw(st.sampled_from([*machines.NAMES, *TARGETS]), label="machine")
    snapshot = place(name, data.draw(st.booleans(), label="equipped"))
    machine = describe.machine(snapshot)
    try:
        proposal = propose(snapshot, Answers(), machine)
    except MgpuError as error:
        assert str(error)
        return
    answers = Answers()
    for question in data.draw(st.lists(st.sampled_from(["gpus", "nodes", *MENUS, *NUMBERS]), max_size=8)):
        before = proposal
        if question == "gpus":
            able = [int(index) for index in options(proposal, "gpus")]
            if not able:
                continue
            value: Any = data.draw(
                st.one_of(st.integers(1, len(able)), st.sets(st.sampled_from(able), min_size=1).map(sorted).map(tuple)),
                label="gpus",
            )
        elif question == "nodes":
            answers = with_decision(answers, "address", data.draw(st.sampled_from(["10.0.0.1", "node-0.cluster"])))
            value = data.draw(st.integers(1, 9), label="nodes")
        elif question in proposal.options:
            value = data.draw(st.sampled_from(options(proposal, question) or ["auto"]), label=question)
            if question in ("numa", "compile"):
                value = value == "yes"
        elif question in NUMBERS:
            value = numbers(data.draw, question)
        else:
            continue
        answers = with_decision(answers, question, value)
        proposal = propose(snapshot, answers, machine)
        if question in MENUS and proposal.problems and not before.problems:
            alone = propose(snapshot, with_decision(Answers(), question, value), machine)
            assert not alone.problems, f"{question} {value} was offered: {alone.problems}"
            assert overtaken(proposal, answers, question), f"{question} {value} was offered: {proposal.problems}"
    assert all(problem and "\n" not in problem for problem in proposal.problems)
    if not proposal.problems:
        hold(proposal, snapshot, tmp_path_factory.getbasetemp())


@pytest.mark.parametrize("name", [*machines.NAMES, *TARGETS])
def test_what_is_offered_is_possible(name: str, tmp_path: Path) -> None:
    """Each option of each menu, by itself and with the others that matter to it."""
    snapshot = place(name, True)
    machine = describe.machine(snapshot)
    fresh = propose(snapshot, Answers(), machine)
    assert not fresh.problems
    for params in (None, 350_000_000, 8_030_000_000):
        base = Answers() if params is None else with_decision(Answers(), "params", params)
        for menu in MENUS:
            for option in options(propose(snapshot, base, machine), menu):
                value: Any = option == "yes" if menu in ("numa", "compile") else option
                one = propose(snapshot, with_decision(base, menu, value), machine)
                if one.problems and menu not in ("train", "optimizer", "precision"):
                    assert params == 8_030_000_000 and propose(snapshot, base, machine).problems
                if not one.problems:
                    assert one.chosen[menu] == option or menu == "numa"
                    hold(one, snapshot, tmp_path)


# ---- the rules, one by one


def of(name: str, _equipped: bool = True, /, **given: Any) -> Proposal:
    answers = Answers(**given, origins=dict.fromkeys(given, "you"))
    snapshot = place(name, _equipped)
    return propose(snapshot, answers, describe.machine(snapshot))


def row(proposal: Proposal, label: str) -> tuple[str, str, str]:
    found = proposal.setting(label)
    assert found is not None, [setting.label for setting in proposal.settings]
    return found.text, found.origin, found.reason


def closed(proposal: Proposal, menu: str) -> dict[str, str]:
    """The options that are shown and cannot be taken, with the reasons."""
    return {option.name: option.disabled for option in proposal.options[menu] if option.disabled}


@pytest.mark.parametrize(
    ("name", "best", "why"),
    [("dgx_a100_x8", "bf16", "compute capability 8.0"), ("t4_x4_vm", "fp16", "compute capability 7.5"),
     ("dgx1_v100_x8", "fp16", "compute capability 7.0"), ("mixed_5090_4090", "bf16", "compute capability 8.9"),
     ("cpu", "no", "CPU ranks")],
)  # fmt: skip
def test_the_weakest_gpu_decides_the_precision(name: str, best: str, why: str) -> None:
    proposal = of(name)
    assert (proposal.values["mixed_precision"], row(proposal, "precision")[2]) == (best, why)
    assert [option.name for option in proposal.options["precision"] if option.recommended] == [best]


def test_fp8_needs_the_gpu_and_a_library() -> None:
    assert closed(of("dgx_a100_x8"), "precision") == {"fp8": "needs compute capability 8.9, have 8.0"}
    assert closed(of("hgx_h100_x8", False), "precision") == {
        "fp8": "needs torchao or transformer-engine; neither is installed"
    }
    assert closed(of("8xH100"), "precision")["fp8"].endswith("installed packages are unknown")
    assert closed(of("hgx_h100_x8"), "precision") == {}
    asked_for = of("dgx_a100_x8", precision="fp8")
    assert asked_for.problems == ("precision: fp8 is not possible here: needs compute capability 8.9, have 8.0",)
    assert of("hgx_h100_x8", precision="fp8").values["fp8_config"] == {"fp8_backend": "AO"}


def test_slow_is_not_impossible() -> None:
    proposal = of("t4_x4_vm", precision="bf16")
    assert not proposal.problems and closed(proposal, "precision").keys() == {"fp8"}
    assert "emulated" in next(o.detail for o in proposal.options["precision"] if o.name == "bf16")


def busy(snapshot: Snapshot, *indices: int) -> Snapshot:
    assert snapshot.gpus is not None
    process = facts.process(pid=41822, user="alice", mine=False)
    gpus = tuple(replace(gpu, processes=(process,)) if gpu.index in indices else gpu for gpu in snapshot.gpus)
    return replace(snapshot, gpus=gpus)


def test_gpus_in_use_are_left_out_and_named() -> None:
    snapshot = busy(place("docker_a100_x4", True), 2)
    proposal = propose(snapshot, Answers(), "x")
    assert (proposal.gpus, proposal.values["gpu_ids"], proposal.ranks) == ((0, 1, 3), "0,1,3", 3)
    assert row(proposal, "GPUs")[1:] == (
        "probe", "GPU 0, 1, 3 of 4 visible GPUs, GPU 2 is in use (alice, pid 41822); 1 process per GPU",
    )  # fmt: skip
    taken = propose(snapshot, with_decision(Answers(), "gpus", 4), "x")
    assert "gpu_ids" not in taken.values and taken.notes[0] == "GPU 2 is in use: alice, pid 41822."
    every = propose(busy(snapshot, 0, 1, 2, 3), Answers(), "x")
    assert every.ranks == 4 and "gpu_ids" not in every.values
    two = propose(busy(place("docker_a100_x4", True), 0), with_decision(Answers(), "gpus", 2), "x")
    assert two.values["gpu_ids"] == "1,2"


def test_gpu_ids_are_what_cuda_calls_them() -> None:
    snapshot = place("docker_a100_x4", True)
    assert snapshot.visible is not None
    masked = replace(snapshot, visible=replace(snapshot.visible, value="3,1,2", gpus=(3, 1, 2)))
    proposal = propose(masked, with_decision(Answers(), "gpus", (1, 2)), "x")
    assert (proposal.gpus, proposal.values["gpu_ids"]) == ((1, 2), "1,2")
    first = propose(masked, with_decision(Answers(), "gpus", 2), "x")
    assert first.gpus == (3, 1) and "gpu_ids" not in first.values
    fewer = replace(snapshot, visible=replace(snapshot.visible, value="GPU-c,GPU-b", gpus=(2, 1)))
    assert propose(fewer, with_decision(Answers(), "gpus", (1,)), "x").values["gpu_ids"] == "GPU-b"


@pytest.mark.parametrize(
    ("gpus", "said"),
    [(5, "--gpus 5: 4 GPUs are usable here"), ((4,), "GPU 4 is not visible"), ((), "no GPU is selected"),
     ((1, 1), "a GPU is listed twice"), (0, "smoke-test --cpu 2"), (-1, "--gpus -1")],
)  # fmt: skip
def test_gpus_that_are_not_there(gpus: Any, said: str) -> None:
    proposal = of("docker_a100_x4", gpus=gpus)
    assert len(proposal.problems) == 1 and said in proposal.problems[0]


def test_without_a_gpu_there_are_cpu_ranks_and_nothing_else() -> None:
    proposal = of("cpu")
    assert proposal.cpu and proposal.unit == "rank"
    assert proposal.values == {
        "num_processes": 2,
        "mixed_precision": "no",
        "distributed_type": "MULTI_GPU",
        "num_machines": 1,
    }
    assert set(closed(proposal, "strategy")) == {"zero1", "zero2", "zero3", "fsdp2"}
    assert "plain DDP" in closed(proposal, "strategy")["fsdp2"]
    assert of("cpu", gpus=2).problems == ("--gpus 2: this machine has no NVIDIA GPU (0 means CPU ranks)",)
    assert not of("cpu", gpus=0).problems


def test_a_mig_instance_is_one_device() -> None:
    proposal = of("h100_mig_x1")
    assert (proposal.ranks, proposal.values["distributed_type"]) == (1, "NO")
    assert proposal.free_bytes is not None and proposal.free_bytes < 48 << 30
    assert row(proposal, "GPUs")[0] == "1 x NVIDIA H100 80GB HBM3 (MIG)"


@pytest.mark.parametrize(
    ("params", "strategy", "offload", "kind"),
    [(None, "ddp", "none", "MULTI_GPU"), (350_000_000, "ddp", "none", "MULTI_GPU"),
     (8_030_000_000, "fsdp2", "none", "FSDP"), (24_000_000_000, "fsdp2", "cpu", "FSDP")],
)  # fmt: skip
def test_the_size_of_the_model_decides_the_strategy(params: int | None, strategy: str, offload: str, kind: str) -> None:
    proposal = of("docker_a100_x4") if params is None else of("docker_a100_x4", params=params)
    assert (proposal.chosen["strategy"], proposal.chosen["offload"]) == (strategy, offload)
    assert proposal.values["distributed_type"] == kind and not proposal.problems
    assert row(proposal, "strategy")[1] == "rule"


def test_ddp_with_offload_is_refused_where_the_memory_of_the_machine_is_not_known(tmp_path: Path, mgpu: Run) -> None:
    options = ("--strategy", "ddp", "--offload", "cpu", "--params", "8B", "--batch-per-gpu", "4")
    done = mgpu("configure", "--target", "4xA100-80GB", *options, "--dry-run")
    assert done.returncode == errors.NOT_READY
    assert "DDP is not possible here: keeps everything on the GPU" in done.stderr


def test_a_model_that_fits_nowhere_says_how_many_gpus_would_do() -> None:
    (problem,) = of("docker_a100_x4", params=200_000_000_000).problems
    assert problem == (
        "200B parameters do not fit, split or offloaded: with FSDP2 they need 39 x NVIDIA A100-SXM4-80GB"
    )
    assert set(closed(of("docker_a100_x4", params=200_000_000_000), "strategy")) == {
        "ddp", "zero1", "zero2", "zero3", "fsdp2",
    }  # fmt: skip


def test_an_old_torch_is_the_reason_why_a_model_cannot_be_split() -> None:
    """The model would fit with FSDP2: the problem names torch, and what to do, not the memory."""
    machine_ = place("docker_a100_x4", False)
    assert machine_.pytorch is not None
    old = replace(machine_, pytorch=replace(machine_.pytorch, version="2.4.1+cu121"))
    answers = with_decision(Answers(), "params", 8_030_000_000)
    (problem,) = propose(old, answers, "x").problems
    assert problem == (
        "8.03B parameters fit if the model is split, but the software for that is missing. FSDP2: needs torch 2.6; "
        "2.4.1+cu121 is installed. ZeRO-3: deepspeed is not installed. Update or install one of them (mgpu does not "
        "write FSDP1)"
    )
    huge = propose(old, with_decision(Answers(), "params", 200_000_000_000), "x").problems
    assert huge[0].startswith("200B parameters do not fit, split or offloaded")


def test_what_is_impossible_says_why() -> None:
    assert closed(of("docker_a100_x4", False), "strategy") == dict.fromkeys(
        ("zero1", "zero2", "zero3"), "deepspeed is not installed"
    )
    eight = of("docker_a100_x4", params=8_030_000_000)
    assert closed(eight, "strategy") == {"ddp": "needs 150 GiB (30 GiB of it gradient buckets) per GPU, have 80 GiB"}
    assert of("docker_a100_x4", params=8_030_000_000, strategy="ddp").problems == (
        "strategy: DDP is not possible here: needs 150 GiB (30 GiB of it gradient buckets) per GPU, have 80 GiB",
    )
    assert of("docker_a100_x4", strategy="ddp", offload="cpu").problems
    assert of("docker_a100_x4", offload="cpu").chosen["strategy"] == "fsdp2"
    alone = of("docker_a100_x4", gpus=1, strategy="fsdp2")
    assert alone.chosen["offload"] == "cpu" and not alone.problems
    assert of("docker_a100_x4", gpus=1, strategy="fsdp2", offload="none").problems


def test_an_older_accelerate_has_no_fsdp2() -> None:
    snapshot = place("docker_a100_x4", True)
    old = replace(snapshot, packages={**(snapshot.packages or {}), "accelerate": "1.5.2"})
    proposal = propose(old, with_decision(Answers(), "params", 8_030_000_000), "x")
    assert closed(proposal, "strategy")["fsdp2"] == "needs accelerate 1.6; 1.5.2 is installed and would run FSDP1"
    assert proposal.chosen["strategy"] == "zero2" and not proposal.problems


def test_an_older_accelerate_drops_the_fp8_backend() -> None:
    snapshot = place("hgx_h100_x8", True)
    old = replace(snapshot, packages={**(snapshot.packages or {}), "accelerate": "1.4.0"})
    assert closed(propose(old, Answers(), "x"), "precision")["fp8"].startswith("needs accelerate 1.6; 1.4.0 is")


def test_compiling_does_not_reach_deepspeed() -> None:
    assert of("docker_a100_x4", compile=True).values["dynamo_config"] == {"dynamo_backend": "INDUCTOR"}
    assert "torch.compile" in of("docker_a100_x4", compile=True, strategy="zero2").problems[0]


def test_accumulation_stands_where_it_counts() -> None:
    ddp = of("docker_a100_x4", batch_per_gpu=4, accum=8)
    assert "accum" not in str(ddp.values) and any("gradient_accumulation_steps=8" in note for note in ddp.notes)
    zero = of("docker_a100_x4", strategy="zero2", batch_per_gpu=4, effective_batch=128)
    assert zero.values["deepspeed_config"]["gradient_accumulation_steps"] == zero.accumulate == 8
    assert not any("accumulation_steps" in note for note in zero.notes)
    assert "gradient_accumulation_steps" not in of("docker_a100_x4", strategy="zero2").values["deepspeed_config"]
    (problem,) = of("docker_a100_x4", batch_per_gpu=3, effective_batch=64).problems
    assert problem == "effective batch 64 is not divisible by 3 per GPU x 4; use 2 per GPU with accumulation 8"


def test_cpus_are_shared_and_pinned() -> None:
    proposal = of("docker_a100_x4")
    assert row(proposal, "threads / workers") == ("4 / 6 per GPU", "probe", "64 CPUs for 4 GPUs")
    assert proposal.launch_flags == ("--num_cpu_threads_per_process", "4", "--enable_cpu_affinity")
    assert (proposal.chosen["threads"], proposal.chosen["workers"]) == ("4", "6")
    assert of("docker_a100_x4", threads=1, numa=False).launch_flags == ()
    other = of("docker_a100_x4", gpus=(2, 3), numa=True)
    assert row(other, "CPU pinning")[0] == "off" and any("CPUs of other GPUs" in note for note in other.notes)
    assert of("4xA100-80GB").launch_flags == ()
    assert of("docker_a100_x4", strategy="zero2").launch_flags == ("--enable_cpu_affinity",)
    bare = of("docker_a100_x4", False)
    assert row(bare, "CPU pinning")[2] == "accelerate needs nvidia-ml-py for it; not installed"


@pytest.mark.parametrize(
    "address", ["localhost", "127.0.0.1", "::1", "0.0.0.0", "10.0.0.1:29500", "http://10.0.0.1", "fe80::1", " 10.0.0.1",
                "10.0.0.999", "a b", "", "-x", "2001:db8::1", "169.254.0.1"],
)  # fmt: skip
def test_an_address_that_the_others_cannot_reach(address: str) -> None:
    assert len(of("docker_a100_x4", nodes=2, address=address).problems) == 1


def test_several_machines_need_an_address() -> None:
    assert of("4xA100-80GB", nodes=2).problems == ("several nodes need the address of the first one: --address",)
    assert row(of("docker_a100_x4", nodes=2), "address")[1] == "probe"  # this machine's own
    for address in ("10.0.0.1", "node-0", "gpu1.cluster.example"):
        assert not of("docker_a100_x4", nodes=2, address=address).problems
    (problem,) = of("slurm_step_a100_x2", nodes=4).problems
    assert "this Slurm job has" in problem


def test_a_port_is_written_where_ranks_meet() -> None:
    assert "main_process_port" not in of("docker_a100_x4").values
    assert of("docker_a100_x4", port=29600).values["main_process_port"] == 29600
    assert "main_process_port" not in of("docker_a100_x4", port=29600, gpus=1).values
    alone = of("docker_a100_x4", port=29600, gpus=1, strategy="fsdp2")  # started by torchrun
    assert alone.values["main_process_port"] == 29600
    assert of("docker_a100_x4", nodes=2).values["main_process_port"] == 29500
    assert of("docker_a100_x4", port=70000).problems


def test_the_learning_rate_is_a_note() -> None:
    proposal = of("docker_a100_x4", batch_per_gpu=8, dataset_size=52002, lr=2e-5, lr_ref_batch=8)
    assert row(proposal, "learning rate note") == ("4e-05", "rule", "square root rule from 2e-05 at batch 8")
    assert "rate" not in str(proposal.values)
    kept = of("docker_a100_x4", batch_per_gpu=8, lr=2e-5, lr_ref_batch=8, lr_rule="keep")
    assert row(kept, "learning rate note")[:2] == ("2e-05", "you")


@pytest.mark.parametrize("name", ["batch_per_gpu", "accum", "effective_batch", "dataset_size", "epochs", "threads",
                                  "workers", "params", "nodes", "lr_ref_batch", "port"])  # fmt: skip
def test_numbers_below_what_makes_sense(name: str) -> None:
    proposal = of("docker_a100_x4", **{name: -1})
    assert proposal.problems and all(isinstance(problem, str) for problem in proposal.problems)


@pytest.mark.parametrize("name", ["precision", "train", "optimizer", "strategy", "offload"])
def test_words_that_are_no_option(name: str) -> None:
    assert "choose one of" in of("docker_a100_x4", **{name: "nonsense"}).problems[0]


def test_what_was_told_of_the_model_is_said_again() -> None:
    told = of("docker_a100_x4", batch_per_gpu=8, seq_len=2048)
    assert row(told, "effective batch")[2] == "samples per step; 65,536 tokens"
    read = propose(
        place("docker_a100_x4", True), Answers(params=10**9, model="org/name", source="from its folder"), "x"
    )
    assert row(read, "model")[2] == "org/name, from its folder"


def test_an_fp8_library_that_accelerate_does_not_take_is_none() -> None:
    snapshot = place("hgx_h100_x8", True)
    for torchao, refused in (("0.5.0", True), ("0.6.1", False)):
        packages = {"torch": "2.9.0", "accelerate": "1.15.0", "torchao": torchao}
        assert ("fp8" in closed(propose(replace(snapshot, packages=packages), Answers(), "x"), "precision")) == refused
