"""What changed between two saved machines: named by identity, silent on what always moves, honest on the unknown."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mgpu import cli
from mgpu.snapshot import Gap, Interface, Python, Snapshot, loads, to_json
from mgpu.snapshot.changes import find_changes, time_saved
from mgpu.snapshot.redaction import redact
from tests.checks import facts as known
from tests.checks.facts import (
    ETH,
    GIB,
    LO,
    config,
    driver,
    event,
    facts,
    gpu,
    gpus,
    hca,
    infiniband,
    kernel,
    kernel_log,
    link,
    links,
    lost,
    nccl,
    network,
    pci,
    pci_device,
    process,
    python,
    pytorch,
    slurm,
    system,
    uuid,
)
from tests.conftest import Run
from tests.test_every_check import machines


def told(before: dict[str, Any], after: dict[str, Any], **more: Any) -> dict[str, str]:
    found = find_changes(Snapshot(**facts(**before)), Snapshot(**facts(**after), **more))
    assert len({change.what for change in found}) == len(found)
    return {change.what: change.text for change in found}


def test_a_machine_is_as_it_was() -> None:
    for machine in machines():
        assert find_changes(machine, machine) == ()
        assert find_changes(machine, loads(json.dumps(to_json(machine)))) == ()


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, {"driver": driver(version="580.99.01")}, {"driver": "580.65.06 -> 580.99.01"}),
        ({}, {"driver": driver(cuda_version=(13, 1))}, {"driver CUDA": "13.0 -> 13.1"}),
        ({}, {"env": {"NCCL_DEBUG": "INFO"}}, {"NCCL_DEBUG": "new: INFO"}),
        ({"env": {"NCCL_DEBUG": "INFO"}}, {"env": {}}, {"NCCL_DEBUG": "gone (was INFO)"}),
        ({}, {"pytorch": pytorch(version="2.10.0+cu130")}, {"torch": "2.9.0+cu130 -> 2.10.0+cu130"}),
        ({}, {"pytorch": pytorch(cuda=None)}, {"torch CUDA": "13.0 -> a CPU build"}),
        ({"packages": {"a": "1"}}, {"packages": {"a": "2", "b": "1"}}, {"a": "1 -> 2", "b": "new: 1"}),
        ({}, {"nccl": nccl(wheels={"nvidia-nccl-cu13": "2.30.1"})}, {"nvidia-nccl-cu13": "2.29.7 -> 2.30.1"}),
        ({}, {"system": system(limit_locked_memory_bytes=65536)}, {"locked memory limit": "unlimited -> 64 KiB"}),
        ({}, {"system": system(shm_total_bytes=64 << 20)}, {"/dev/shm": "512 GiB -> 64 MiB"}),
        (
            {"python": python(accelerate_default_config=None)},
            {"python": python(accelerate_default_config="/x/default_config.yaml")},
            {"default config": "none -> /x/default_config.yaml"},
        ),
        (
            {},
            {"infiniband": infiniband(hca(0, state="DOWN"), *(hca(n) for n in range(1, 4)))},
            {"port mlx5_0:1 state": "ACTIVE -> DOWN"},
        ),
        ({}, {"network": network(interfaces=(LO, ETH))}, {}),  # a bridge of containers comes and goes
        (
            {},
            {"network": network(interfaces=(LO, replace(ETH, mtu=9000)))},
            {"interface eno1 mtu": "1500 -> 9000"},
        ),
        (
            {},
            {"network": network(interfaces=(LO, Interface("eno2", True, False, (), False)))},
            {"interface eno1": "gone", "interface eno2": "new"},
        ),
        (
            {"config": config("num_processes: 4\nfsdp_config: {a: 1}\n")},
            {"config": config("num_processes: 8\nfsdp_config: {a: 2}\n")},
            {"config num_processes": "4 -> 8", "config fsdp_config.a": "1 -> 2"},
        ),
        (
            {"pci": pci(pci_device(0), pci_device(1))},
            {"pci": pci(pci_device(0, driver=None))},
            {"GPU at 0000:1a:00.0 driver": "nvidia -> none", "GPU at 0000:1b:00.0": "gone"},
        ),
        (
            {},
            {"links": links(4, nvlinks=0, topology="SYS")},
            {"link of GPU 0-1, 0-2, 0-3, 1-2 and 2 more": "NV18 -> SYS"},
        ),
        (
            {},
            {"links": (link(0, 1, p2p_read=4), *links()[1:])},
            {"peer reads of GPU 0-1": "on -> off"},
        ),
    ],
)
def test_a_change_is_named(before: dict[str, Any], after: dict[str, Any], expected: dict[str, str]) -> None:
    found = told(before, after)
    assert {what: found.get(what) for what in expected} == expected
    assert set(found) == set(expected)


MODEL = "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (gpus(3), {"GPU 3": f"gone (was {MODEL})"}),
        (gpus(5), {"GPU 4": f"new: {MODEL}"}),
        (gpus(4, gpu(2, power_limit_w=500.0)), {"GPU 2 power limit": "700 W -> 500 W"}),
        (gpus(4, gpu(2, ecc_uncorrected_aggregate=7)), {"GPU 2 uncorrected ECC errors (lifetime)": "0 -> 7"}),
        (gpus(4, gpu(1, nvlinks=known.nvlinks(17, 1))), {"GPU 1 active NVLinks": "18 -> 17"}),
        (gpus(4, lost(2)), {"GPU 2": "responding -> GPU_IS_LOST"}),
        # another board in the same place; 1 of the old ones has moved up into the gap of the first
        (gpus(4, gpu(2, uuid=uuid(9))), {"GPU 2": f"gone (was {MODEL})", "GPU 2 ": f"new: {MODEL}"}),
        (gpus(4, gpu(0, mig_mode=True)), {"GPU 0 MIG": "no -> yes"}),
        # known before, not any more: that is not "gone"
        (gpus(4, gpu(0, ecc_uncorrected_aggregate=None)),
         {"GPU 0 uncorrected ECC errors (lifetime)": "now unknown: it could not be read"}),
    ],
)  # fmt: skip
def test_gpus_are_known_by_their_uuids(after: Any, expected: dict[str, str]) -> None:
    found = find_changes(Snapshot(**facts(links=())), Snapshot(**facts(gpus=after, links=())))
    assert sorted((c.what, c.text) for c in found) == sorted((what.strip(), text) for what, text in expected.items())


def test_a_gpu_that_only_changed_its_number_is_the_same_gpu() -> None:
    swapped = gpus(4, gpu(0, uuid=uuid(1), pci=gpu(1).pci), gpu(1, uuid=uuid(0), pci=gpu(0).pci))
    assert told({}, {"gpus": swapped}) == {"GPU 0 number": "0 -> 1", "GPU 1 number": "1 -> 0"}
    # with the first one gone, all others have new numbers, and their links are the same
    moved = tuple(
        gpu(index, uuid=uuid(index + 1), numa_node=(index + 1) // 2, pci=gpu(index + 1).pci) for index in range(3)
    )
    assert told({}, {"gpus": moved, "links": links(3)}) == {"GPU 0": f"gone (was {MODEL})"}  # fmt: skip


def test_what_always_moves_is_left_out() -> None:
    busy = gpus(
        4, gpu(0, memory_used_bytes=70 * GIB, memory_free_bytes=10 * GIB, temperature_c=80, power_w=650.0,
               utilization_percent=99, clock_event_reasons=4, processes=(process(),)),
    )  # fmt: skip
    moved = {
        "gpus": busy,
        "system": system(memory_available_bytes=GIB, shm_free_bytes=GIB, tmp_free_bytes=1, cwd_free_bytes=1),
        "network": network(port_busy=True, port_owner="pid 7 (python)"),
        "slurm": slurm(job_id="4243"),
        "kernel": kernel(load_1min=90.0, files_used=9, swap_used_bytes=9, stuck=("x (pid 1)",)),
        "kernel_log": kernel_log(event()),
    }  # fmt: skip
    assert told({}, moved) == {}


def test_what_is_not_known_now_is_not_called_gone() -> None:
    gaps = {"gpus": Gap("timed_out", "NVML did not answer in 10 s")}
    assert told({}, {"gpus": None}, gaps=gaps)["gpus"] == "now unknown: NVML did not answer in 10 s"
    assert told({}, {"torch_runtime": None}, gaps={"torch_runtime": Gap("not_asked", "--quick")}) == {}
    assert find_changes(Snapshot(), Snapshot(**facts())) == ()  # nothing to compare with


def test_redaction_changes_nothing() -> None:
    machine = Snapshot(**facts())
    other = Snapshot(**facts(gpus=gpus(3), env={"MASTER_ADDR": "10.20.30.7"}))
    assert find_changes(redact(machine), redact(machine)) == ()
    plain, hidden = find_changes(machine, other), find_changes(redact(machine), redact(other))
    assert [(c.what, c.kind) for c in plain] == [(c.what, c.kind) for c in hidden]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("2026-11-12T10:02:11Z", "2026-11-21T10:02:11Z", "12 Nov 10:02 UTC"),
        ("2025-01-02T10:02:11Z", "2026-11-21T10:02:11Z", "2 Jan 2025 10:02 UTC"),
        (None, "2026-11-21T10:02:11Z", "it was saved"),
        ("nonsense", None, "it was saved"),
        ("2026-99-12T", None, "it was saved"),
    ],
)
def test_when_it_was_saved(before: str | None, after: str | None, said: str) -> None:
    assert time_saved(Snapshot(taken=before), Snapshot(taken=after)) == said


# ---- the command


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def save(name: str, machine: Snapshot) -> None:
        (tmp_path / name).write_text(json.dumps(to_json(machine)), encoding="utf-8")

    def doctor(before: Snapshot, after: Snapshot, *options: str) -> tuple[int, str, str]:
        save("before.json", before)
        save("after.json", after)
        code = cli.run(["doctor", "--from", "after.json", *options, "--compare", "before.json"])
        return (code, *capsys.readouterr())

    return doctor


MACHINE = Snapshot(**facts(config=None, ranks=None, stamp=None), taken="2026-11-12T10:02:11Z")
LATER = replace(MACHINE, gpus=gpus(3), links=links(3), taken="2026-11-21T08:00:00Z", env={"NCCL_DEBUG": "INFO"})


def test_the_screen_tells_the_changes(run: Any) -> None:
    _, out, _ = run(MACHINE, LATER)
    assert "Since 12 Nov 10:02 UTC: 2 changes\n" in out
    assert re_line(out, "GPU 3", f"gone (was {MODEL})") and re_line(out, "NCCL_DEBUG", "new: INFO")
    assert "Since 12 Nov 10:02 UTC: nothing changed." in run(MACHINE, MACHINE)[1]


def re_line(out: str, *words: str) -> bool:
    return any(all(word in line for word in words) for line in out.splitlines())


def test_the_exit_code_is_of_the_machine_alone(run: Any) -> None:
    sick = replace(MACHINE, gpus=gpus(4, lost(3)))
    assert run(sick, MACHINE)[0] == run(MACHINE, MACHINE)[0]
    assert run(MACHINE, sick)[0] == run(sick, sick)[0] == 1


@pytest.mark.parametrize("hidden", [(True, False), (False, True), (True, True)])
def test_one_redacted_file_is_enough(hidden: tuple[bool, bool], run: Any) -> None:
    before, after = (redact(m) if h else m for m, h in zip((MACHINE, LATER), hidden, strict=True))
    document = json.loads(run(before, after, "--json")[1])
    assert {c["what"] for c in document["changes"]} == {"GPU 3", "NCCL_DEBUG"}


def test_the_json_has_the_changes_only_where_they_were_asked_for(run: Any) -> None:
    (change, other) = json.loads(run(MACHINE, LATER, "--json")[1])["changes"]
    assert change == {
        "fact": "gpus", "what": "GPU 3", "kind": "removed", "before": MODEL, "after": None,
        "text": f"gone (was {MODEL})",
    }  # fmt: skip
    assert other["kind"] == "added"
    assert json.loads(run(MACHINE, MACHINE, "--json")[1])["changes"] == []


@pytest.mark.parametrize("text", ["", "{", '{"gpus": 8}'])
def test_what_is_no_saved_machine_is_a_usage_error(text: str, tmp_path: Path, run: Any) -> None:
    run(MACHINE, MACHINE)
    (tmp_path / "bad.json").write_text(text)
    assert cli.run(["doctor", "--from", "after.json", "--compare", "bad.json"]) == 2


def test_this_machine_has_not_changed_since_a_moment_ago(mgpu: Run) -> None:
    """The marks of what moves are complete for what can be seen here."""
    mgpu("doctor", "--quick", "--save", "m.json")
    found = json.loads(mgpu("doctor", "--quick", "--json", "--compare", "m.json").stdout)
    assert found["changes"] == []


def test_another_interpreter_is_named() -> None:
    other = Python("/b/bin/python", "3.12.1", None, None)
    found = told({"python": python()}, {"python": other})
    assert found["interpreter"] == "/opt/env/bin/python -> /b/bin/python"
    assert found["Python"] == "3.11.9 -> 3.12.1"
