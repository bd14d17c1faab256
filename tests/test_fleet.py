"""Many nodes: what is compared, what is not, who is unlike whom, and what `mgpu doctor --compare-nodes` says."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import random
import re
import shutil
import subprocess
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from mgpu import cli, engine, errors, hostlist
from mgpu.cli import json_schema
from mgpu.errors import MgpuError
from mgpu.fleet import field_kinds, load
from mgpu.fleet.compare import Machine, fleet_of
from mgpu.fleet.flatten import NOT_CHECKED
from mgpu.snapshot import OF_A_RUN, Fleet, Snapshot, from_json, hints_of, to_json
from mgpu.snapshot.redaction import redact
from tests.bench import fleet as bench

RNG = random.Random(11)


def node(number: int = 1, **changes: Any) -> dict[str, Any]:
    """A healthy node as JSON; `gpus__0__lost="GPU_IS_LOST"` changes a field of a fact."""
    facts = bench.node(number, random.Random(number))
    for path, value in changes.items():
        *steps, last = (int(step) if step.isdecimal() else step for step in path.split("__"))
        place: Any = facts
        for step in steps:
            place = place[step]
        place[last] = value
    return facts


def compared(*nodes: Mapping[str, Any], **options: Any) -> Fleet:
    return fleet_of((Machine(f"n{number}", facts) for number, facts in enumerate(nodes, 1)), **options)


def classes(fleet: Fleet) -> dict[str, list[str]]:
    """Nodes -> the keys in which they differ."""
    return {hostlist.fold(one.nodes): [d.key for d in one.differences] for one in fleet.classes}


def healthy(number: int, start: int = 1) -> list[dict[str, Any]]:
    return [node(n) for n in range(start, start + number)]


# --- names of nodes ----------------------------------------------------------------------------------------------

FORMS = {
    "n[1-3,7]": "n1 n2 n3 n7",
    "n[098-101]": "n098 n099 n100 n101",
    "gpu1,n[1-2],login": "gpu1 n1 n2 login",
    "r[1-2]n[1-2]": "r1n1 r1n2 r2n1 r2n2",
    "n[9-11]": "n9 n10 n11",
    "a-b[01-03]": "a-b01 a-b02 a-b03",
    "n[1,01]": "n1 n01",
    "host": "host",
    "": "",
}


@pytest.mark.parametrize(("text", "names"), FORMS.items())
def test_slurms_short_form_is_read_and_written(text: str, names: str) -> None:
    assert hostlist.expand(text) == tuple(names.split())
    assert set(hostlist.expand(hostlist.fold(names.split()))) == set(names.split())


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("n10 n9 n2 n1 n9", "n[1-2,9-10]"), ("n1.site n2.site", "n1.site,n2.site"), ("n1-ib n2-ib", "n1-ib,n2-ib"),
        ("gpu gpu2 gpu1", "gpu,gpu[1-2]"), ("n099 n100 n101", "n[099-101]"), ("n5", "n5"), ("7 8", "[7-8]"),
        (f"n{'9' * 30} n1", f"n1,n{'9' * 12}{'9' * 18}"), ("ä1 ä2", "ä[1-2]"),
    ],
)  # fmt: skip
def test_names_are_folded_in_order(names: str, text: str) -> None:
    assert hostlist.fold(names.split()) == text


def test_what_is_read_in_any_form_is_written_as_slurm_can_read_it() -> None:
    assert hostlist.expand("n[1-2].site, m1\n m2") == ("n1.site", "n2.site", "m1", "m2")
    for _ in range(200):
        names = {
            RNG.choice(("n", "r1n", "x-", "q.a", "7z-b")) + str(RNG.randrange(130)).zfill(RNG.choice((1, 2, 3)))
            for _ in range(RNG.randrange(1, 40))
        }
        assert set(hostlist.expand(hostlist.fold(names))) == names


@pytest.mark.parametrize(
    "text", ["n[1", "n1]", "n[3-1]", "n[a]", "n[]", "n[[1]]", "n[1-3:2]", "n[1-99999999999]", "n[1-999][1-999]"]
)
def test_a_list_that_means_nothing_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match=r"n\[?"):
        hostlist.expand(text)


@pytest.mark.skipif(not shutil.which("scontrol"), reason="no Slurm here")
def test_slurm_itself_reads_what_is_written(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=x\nSlurmctldHost=localhost\nNodeName=a CPUs=1\nPartitionName=p Nodes=a\n")
    names = {
        f"{RNG.choice(('n', 'r1n', 'gpu-'))}{str(RNG.randrange(120)).zfill(RNG.choice((1, 3)))}" for _ in range(90)
    }
    asked = ["scontrol", "show", "hostnames", hostlist.fold(names)]
    said = subprocess.run(asked, env={"SLURM_CONF": str(conf), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
    assert set(said.stdout.split()) == names, said.stderr


# --- what is compared --------------------------------------------------------------------------------------------


def fields(hint: Any, seen: set[str]) -> Iterable[tuple[str, Any]]:
    """Every field of the dataclasses under a type that are compared at all."""
    hint = field_kinds.without_none(hint)
    if typing.get_origin(hint) not in (None, typing.Literal):
        for part in typing.get_args(hint):
            yield from fields(part, seen) if part is not Ellipsis else ()
    elif dataclasses.is_dataclass(hint) and isinstance(hint, type) and hint.__name__ not in seen:
        seen.add(hint.__name__)
        for name, kind in hints_of(hint).items():
            where = f"{hint.__name__}.{name}"
            yield where, kind
            if field_kinds.kind_of(where, kind) not in ("identity", "moment"):
                yield from fields(kind, seen)


EVERY = dict(pair for fact in field_kinds.compared_facts() for pair in fields(hints_of(Snapshot)[fact], set()))


def test_of_every_field_it_is_said_how_it_is_compared() -> None:
    assert [where for where, hint in EVERY.items() if field_kinds.kind_of(where, hint) is None] == []


def test_what_names_a_node_its_hardware_or_a_moment_is_never_a_difference() -> None:
    assert bench.node(1, random.Random(1)) != bench.node(2, random.Random(2))
    fleet = compared(*healthy(6))
    assert (fleet.classes, fleet.outliers, fleet.scattered) == ((), (), ())
    assert fleet.compared > 300


def test_a_redacted_node_is_as_alike_as_it_was() -> None:
    whole = [redact(from_json(facts)) for facts in healthy(4)]
    fleet = fleet_of(Machine(f"n{number}", snapshot) for number, snapshot in enumerate(whole, 1))
    assert fleet.classes == ()


def test_a_node_that_all_name_is_not_each_nodes_own_name() -> None:
    nodes = [node(n, env={"MASTER_ADDR": "n1", "XDG_CACHE_HOME": "/data/n1/cache"}) for n in (1, 2, 3)]
    nodes += [node(4, env={"MASTER_ADDR": "n1", "XDG_CACHE_HOME": "/data/n4/cache"})]
    assert classes(compared(*nodes)) == {"n4": ["env.XDG_CACHE_HOME"]}
    own = [node(n, env={"XDG_CACHE_HOME": f"/data/n{n}/cache"}) for n in (1, 2, 3)]
    assert classes(compared(*own)) == {}


def test_what_differs_on_every_node_is_no_difference_of_any() -> None:
    fleet = compared(*(node(n, env={"CUDA_CACHE_PATH": f"/tmp/{RNG.random()}"}) for n in range(1, 8)))
    assert (fleet.classes, fleet.scattered) == ((), ("env.CUDA_CACHE_PATH",))


def test_memory_that_is_nearly_the_same_is_the_same() -> None:
    total = node()["system"]["memory_total_bytes"]
    nodes = [node(n, system__memory_total_bytes=total + n * (200 << 20)) for n in range(1, 6)]
    assert classes(compared(*nodes)) == {}
    nodes[2]["system"]["memory_total_bytes"] = total * 15 // 16  # a module of sixteen is gone
    assert classes(compared(*nodes)) == {"n3": ["system.memory_total_bytes"]}


def test_a_fact_that_one_node_does_not_know_is_one_difference() -> None:
    nodes = healthy(4)
    nodes[1]["torch_runtime"] = None
    nodes[1]["gaps"] = {"torch_runtime": {"kind": "timed_out", "reason": "import torch did not answer in 60 s"}}
    fleet = compared(*nodes)
    assert classes(fleet) == {"n2": ["torch_runtime"]}
    assert bench.found(fleet) == {"fleet_facts_unread": "n2"}


def changed(key: str, value: Any) -> Any:
    """Another value of the same kind; of a whole fact, that it is not known, or is."""
    if key in field_kinds.compared_facts():
        return None if value else "known"
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value * 3 + 1
    return ("something", "else") if isinstance(value, tuple) else "another"


def test_every_fact_that_is_compared_is_told_when_it_differs() -> None:
    base = Machine("n1", node())
    checks = engine.load(only=("fleet",))
    told: dict[str, set[str]] = {}
    for key, value in base.values.items():
        if field_kinds.measure_of(field_kinds.key_label(key).where):
            continue
        nodes = [copy.copy(base) for _ in range(4)]
        for number, machine in enumerate(nodes, 1):
            object.__setattr__(machine, "node", f"n{number}")
        object.__setattr__(nodes[3], "values", base.values | {key: changed(key, value)})
        outcomes = engine.run(checks, Snapshot(fleet=fleet_of(nodes)))
        told[key] = {o.check.id for o in outcomes if o.problem}
        assert not [o for o in outcomes if o.status == "crash"]
    assert [key for key, ids in told.items() if not ids] == []
    assert len(told) > 300
    assert told["pytorch.version"] == {"fleet_torch_differs"}
    assert told["gpus.count"] == {"fleet_gpu_count_differs"}
    of_the_job = re.compile(r"mgpu|slurm.*|env\.SLURM_.*|network\.master.*")
    rest = {key for key, ids in told.items() if "fleet_rest_differs" in ids and base.values[key] != NOT_CHECKED}
    assert [key for key in rest if not of_the_job.fullmatch(key)] == []


# --- roles -------------------------------------------------------------------------------------------------------

H100 = "4 x NVIDIA H100 80GB HBM3"


def gpus(name: str, number: int) -> list[dict[str, Any]]:
    return [node()["gpus"][index] | {"name": name} for index in range(number)]


def roles(*nodes: Mapping[str, Any]) -> dict[str, str]:
    return {role: hostlist.fold(names) for role, names in compared(*nodes).roles.items()}


def test_a_node_whose_gpu_fell_off_is_with_its_siblings() -> None:
    three = node(3, gpus=gpus("NVIDIA H100 80GB HBM3", 3))
    lost = node(4, gpus__1__lost="GPU_IS_LOST", gpus__1__name=None)
    none = node(5, gpus=[])
    dead = node(6, gpus=None, links=None, driver__nvml_error="DRIVER_NOT_LOADED", driver__version=None)
    fleet = compared(*healthy(2), three, lost, none, dead, *healthy(3, 7))
    assert list(fleet.roles) == [H100]
    found = classes(fleet)
    assert "gpus.count" in found["n3"] and "gpus.count" in found["n4"] and "gpus.count" in found["n5"]
    assert {"gpus", "driver.nvml_error"} <= set(found["n6"])
    said = {o.check.id: hostlist.fold(o.problem.subjects) for o in engine.run(engine.load(only=("fleet",)),
            Snapshot(fleet=fleet)) if o.problem and o.status == "fail"}  # fmt: skip
    assert said["fleet_driver_silent"] in ("n4", "n6")
    assert "fleet_gpu_count_differs" in said


def test_nodes_of_other_gpus_are_a_role_of_their_own_when_there_are_several() -> None:
    a100 = [node(n, gpus=gpus("NVIDIA A100", 4)) for n in range(20, 25)]
    assert roles(*healthy(6), *a100) == {H100: "n[1-6]", "4 x NVIDIA A100": "n[7-11]"}
    assert compared(*healthy(6), *a100).classes == ()
    assert roles(*healthy(6), a100[0]) == {H100: "n[1-7]"}
    assert "gpus.name" in classes(compared(*healthy(6), a100[0]))["n7"]


def test_half_as_many_gpus_are_a_role_but_one_fewer_is_a_fault() -> None:
    model = "NVIDIA H100 80GB HBM3"
    eight = [node(n, gpus=gpus(model, 4) * 2) for n in range(1, 7)]
    four = [node(n, gpus=gpus(model, 4)) for n in range(7, 12)]
    seven = [node(n, gpus=(gpus(model, 4) * 2)[:7]) for n in range(12, 17)]
    assert roles(*eight, *four) == {f"8 x {model}": "n[1-6]", f"4 x {model}": "n[7-11]"}
    assert roles(*eight, *seven) == {f"8 x {model}": "n[1-11]"}


def without_gpu(number: int) -> dict[str, Any]:
    driver = node()["driver"] | {"nvml_error": "LIBRARY_NOT_FOUND", "pci_gpus": 0, "device_nodes": []}
    return node(number, gpus=[], links=[], driver=driver)


def test_machines_without_a_gpu_are_one_kind() -> None:
    assert roles(*(without_gpu(n) for n in (1, 2, 3))) == {"no GPU": "n[1-3]"}
    assert roles(*healthy(4), *(without_gpu(n) for n in range(5, 10))) == {"no GPU": "n[5-9]", H100: "n[1-4]"}
    assert roles(*healthy(4), without_gpu(5)) == {H100: "n[1-5]"}  # the only one of its kind is no kind


# --- classes, populations, outliers ------------------------------------------------------------------------------


def test_nodes_with_the_same_differences_are_one_class() -> None:
    nodes = healthy(9)
    for place in (2, 5):
        nodes[place]["pytorch"]["version"] = "2.1"
        nodes[place]["system"]["limit_open_files"] = 1024
    nodes[7]["pytorch"]["version"] = "2.1"
    assert classes(compared(*nodes)) == {
        "n[3,6]": ["pytorch.version", "system.limit_open_files"],
        "n8": ["pytorch.version"],
    }


def test_of_two_that_differ_nobody_is_wrong() -> None:
    fleet = compared(node(1), node(2, pytorch__version="2.1"))
    (one,) = fleet.classes
    assert one.tied and one.nodes == ("n2",) and not one.second
    (difference,) = one.differences
    assert {difference.value, difference.usual} == {"2.1", node()["pytorch"]["version"]}


def test_a_tie_in_one_fact_leaves_the_others_with_their_majority() -> None:
    nodes = healthy(4)
    for place in (2, 3):
        nodes[place]["pytorch"]["version"] = "2.1"
    nodes[3]["host"]["kernel"] = "5.15"
    by_tie = {
        one.tied: (hostlist.fold(one.nodes), [d.key for d in one.differences]) for one in compared(*nodes).classes
    }
    assert by_tie == {True: ("n[3-4]", ["pytorch.version"]), False: ("n4", ["host.kernel"])}


@pytest.mark.parametrize(("number", "of", "second"), [(3, 20, False), (4, 20, True), (4, 60, False), (16, 200, True)])
def test_many_that_differ_alike_are_a_second_population(number: int, of: int, second: bool) -> None:
    plain = Machine("n1", node())
    machines = []
    for place in range(of):
        machine = copy.copy(plain)
        object.__setattr__(machine, "node", f"n{place}")
        version = "550.1" if place < number else plain.values["driver.version"]
        object.__setattr__(machine, "values", plain.values | {"driver.version": version})
        machines.append(machine)
    (one,) = fleet_of(machines).classes
    assert (one.second, len(one.nodes)) == (second, number)


def test_two_hundred_nodes_four_drifts_a_second_population_and_a_slow_one() -> None:
    machines = [Machine(name, facts, measured=measured) for name, facts, measured in bench.simulated(200)]
    fleet = fleet_of(machines)
    assert bench.found(fleet) == bench.expected(200)
    assert sum(one.second for one in fleet.classes) == 1


def test_two_hundred_healthy_nodes_raise_no_alarm() -> None:
    rng = random.Random(3)
    machines = [Machine(f"n{n}", bench.node(n, rng), measured={"gemm_s": rng.gauss(1, 0.01)}) for n in range(200)]
    fleet = fleet_of(machines)
    assert (bench.found(fleet), fleet.classes, fleet.outliers) == ({}, (), ())


def measured(*values: float, name: str = "all_reduce_gb_per_s") -> list[str]:
    """The nodes that are far from the others."""
    facts = node()
    machines = [Machine(f"n{number}", facts, measured={name: value}) for number, value in enumerate(values, 1)]
    return [one.node for one in fleet_of(machines).outliers]


def test_a_measure_is_told_on_its_bad_side_and_where_it_matters() -> None:
    assert measured(*[400.0] * 9, 300.0) == ["n10"]
    assert measured(*[400.0] * 9, 500.0) == []  # faster
    assert measured(*[400.0] * 9, 385.0) == []  # under five percent
    assert measured(*[400.0] * 6, 300.0) == []  # seven nodes tell nothing
    assert measured(*[1.0] * 9, 1.5, name="first_step_s") == ["n10"]
    assert measured(*[1.0] * 9, 0.5, name="first_step_s") == []
    assert measured(380.0, 390, 400, 410, 420, 370, 430, 395, 405, 340) == []  # noise is that wide


def test_a_second_population_is_measured_by_its_own() -> None:
    slow, fast = node(1, driver__version="550.1"), node()
    machines = [Machine(f"n{n}", slow if n < 10 else fast, measured={"x_gb_per_s": 300.0 if n < 10 else 400.0})
                for n in range(40)]  # fmt: skip
    assert fleet_of(machines).outliers == ()


def test_missing_nodes_faults_and_clocks_are_handed_through_and_a_lone_node_is_no_crash() -> None:
    fleet = compared(node(), missing={"n9": "no answer", "n2": "dead"}, clock_offsets_s={"n1": 0.0}, together=True)
    assert (fleet.nodes, list(fleet.missing), fleet.compared, fleet.together) == (("n1",), ["n2", "n9"], 0, True)
    assert fleet_of([], {"n1": "x"}).nodes == ()
    for empty in (fleet, fleet_of([], {"n1": "x"})):
        assert not [o for o in engine.run(engine.load(only=("fleet",)), Snapshot(fleet=empty)) if o.status == "crash"]


def test_other_versions_of_a_script_and_a_config_are_told() -> None:
    machines = [Machine(f"n{n}", node(n), extra={"files.script": "aa" if n < 3 else "bb"}) for n in range(1, 4)]
    assert bench.found(fleet_of(machines)) == {"fleet_script_differs": "n3"}


def unasked(number: int, kind: str, *facts: str) -> dict[str, Any]:
    """A node of which some facts are not known."""
    gaps = {fact: {"kind": kind, "reason": "why"} for fact in facts}
    return node(number, gaps=gaps, **dict.fromkeys(facts))


def test_a_quick_look_is_no_trouble_and_a_probe_that_timed_out_everywhere_is() -> None:
    quick = compared(*healthy(2), *(unasked(n, "not_asked", "torch_runtime") for n in (3, 4)))
    assert bench.found(quick) == {"fleet_rest_differs": "n[3-4]"}
    most = compared(node(1), *(unasked(n, "timed_out", "torch_runtime") for n in (2, 3, 4)))
    assert bench.found(most) == {"fleet_facts_unread": "n[2-4]"}  # and not n1, of which it is known
    every = compared(*(unasked(n, "timed_out", "torch_runtime") for n in (1, 2, 3)))
    assert every.unread == {"torch_runtime": "timed out"}
    assert bench.found(every) == {"fleet_facts_unread": ""}
    assert compared(*(unasked(n, "not_asked", "torch_runtime") for n in (1, 2))).unread == {}


def test_a_driver_that_hangs_is_no_kind_of_node_on_however_many() -> None:
    hung = [unasked(n, "timed_out", "driver", "gpus", "links") for n in range(5, 10)]
    assert bench.found(compared(*healthy(4), *hung)) == {"fleet_driver_silent": "n[5-9]"}
    assert list(compared(*hung).roles) == ["unknown GPUs"]
    dead = [node(n, driver__nvml_error="DRIVER_NOT_LOADED", driver__version=None) for n in range(31, 39)]
    found = bench.found(compared(*healthy(30), *dead))
    assert found == {"fleet_driver_silent": "n[31-38]"}  # no second population, on which one could keep a job


def test_a_field_that_another_mgpu_does_not_know_is_no_difference() -> None:
    old = node(4, mgpu="0.0.9")
    del old["system"]["tasks_max"], old["kernel"]["smt"], old["torch_runtime"]["mapped"]
    for gpu in old["gpus"]:
        del gpu["vbios"], gpu["recovery_action"]
    assert classes(compared(*healthy(3), old)) == {"n4": ["mgpu"]}
    old["env"]["NCCL_DEBUG"] = "INFO"  # an entry that only one has is one
    assert classes(compared(*healthy(3), old)) == {"n4": ["mgpu", "env.NCCL_DEBUG"]}


def test_versions_that_are_others_on_every_node_are_never_alike() -> None:
    fleet = compared(*(node(n, pytorch__version=f"2.{n}") for n in range(1, 7)))
    assert fleet.scattered == ("pytorch.version",)
    assert bench.found(fleet) == {"fleet_torch_differs": ""}


def test_of_a_tie_only_those_with_the_other_value_are_named_as_having_it() -> None:
    fleet = compared(node(1), node(2, pytorch__version="2.1"), node(3, pytorch__version="2.2"))
    outcomes = engine.run(engine.load(only=("fleet",)), Snapshot(fleet=fleet))
    titles = [outcome.problem.title for outcome in outcomes if outcome.problem]
    assert titles == ["torch 2.1 on n2, 2.9.0+cu130 on n1", "torch 2.2 on n3, 2.9.0+cu130 on n1"]
    assert bench.found(fleet) == {"fleet_torch_differs": ""}  # nobody is called wrong
    assert bench.found(dataclasses.replace(fleet, together=True)) == {"fleet_torch_differs": "n3"}


def test_an_update_that_has_come_half_way_is_no_failure_of_half_of_the_nodes() -> None:
    for done in (9, 10, 11):
        nodes = [node(n, driver__version="550.1" if n <= done else "580.2") for n in range(1, 21)]
        assert list(bench.found(compared(*nodes))) == ["fleet_second_population"]


def test_nodes_of_one_job_are_one_kind() -> None:
    name = "NVIDIA H100 80GB HBM3"
    nodes = [node(n, gpus=gpus(name, 4) * (2 if n < 6 else 1)) for n in range(1, 11)]
    assert "fleet_gpu_count_differs" not in bench.found(compared(*nodes))
    assert bench.found(compared(*nodes, together=True))["fleet_gpu_count_differs"] == "n[6-10]"
    a100 = [node(n, gpus=gpus("NVIDIA A100", 4)) for n in range(20, 25)]
    assert bench.found(compared(*healthy(6), *a100, together=True))["fleet_gpu_model_differs"] == "n[7-11]"


def test_a_few_nodes_of_another_name_and_other_gpus_are_a_kind_of_their_own() -> None:
    dev = [Machine(f"dev{n}", node(n, gpus=gpus("NVIDIA A100", 2))) for n in (1, 2)]
    fleet = fleet_of([*(Machine(f"n{n}", node(n)) for n in range(1, 41)), *dev])
    assert fleet.roles["2 x NVIDIA A100"] == ("dev1", "dev2")
    assert list(bench.found(fleet)) == ["fleet_of_several_kinds"]


def test_of_other_users_load_one_line_is_told_and_nothing_of_warm_gpus() -> None:
    def busy(number: int) -> dict[str, Any]:
        facts = node(number, kernel__load_1min=60.0 + number)
        for gpu in facts["gpus"]:
            gpu |= {"temperature_c": 80, "utilization_percent": 97}
        return facts

    fleet = compared(*healthy(30), *(busy(n) for n in (31, 32, 33)))
    outcomes = engine.run(engine.load(only=("fleet",)), Snapshot(fleet=fleet))
    (problem,) = (outcome.problem for outcome in outcomes if outcome.problem)
    assert problem.title.startswith("load 91 to 93 on n[31-33], median ")


def test_nodes_of_two_jobs_differ_in_nothing_that_matters() -> None:
    def of_a_job(number: int, head: str, nodes: str) -> dict[str, Any]:
        facts = node(number, network__master={"name": head, "origin": "MASTER_ADDR", "addresses": [], "error": None})
        facts["env"] |= {"SLURM_NNODES": nodes, "SLURM_NTASKS": nodes}
        return facts

    fleet = compared(*(of_a_job(n, "n1", "3") for n in (1, 2, 3)), of_a_job(4, "x9", "1"))
    assert bench.found(fleet) == {"fleet_rest_differs": "n4"}


# --- mgpu doctor --compare-nodes ---------------------------------------------------------------------------------

Doctor = Callable[..., tuple[int, str, str]]


@pytest.fixture
def doctor(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Doctor:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "80")

    def call(*options: str) -> tuple[int, str, str]:
        code = cli.run(["doctor", "--compare-nodes", *options])
        told = capsys.readouterr()
        return code, told.out, told.err

    return call


def save(folder: Path, *nodes: Mapping[str, Any]) -> Path:
    """One file a node, redacted as --save leaves it."""
    folder.mkdir(exist_ok=True)
    for number, facts in enumerate(nodes, 1):
        (folder / f"n{number}.json").write_text(json.dumps(to_json(redact(from_json(facts)))))
    return folder


def test_nodes_that_are_alike(doctor: Doctor, tmp_path: Path) -> None:
    save(tmp_path / "nodes", *healthy(3))
    code, out, err = doctor("nodes")
    assert (code, err) == (errors.READY, "")
    assert "n[1-3]" in out and "no differences" in out and "CONSISTENT  3 nodes of one kind, no problems." in out


def test_a_screen_of_nodes_that_differ(doctor: Doctor, tmp_path: Path) -> None:
    nodes = healthy(8)
    for place in (2, 4):
        nodes[place]["pytorch"]["version"] = "2.12.1"
    folder = save(tmp_path / "nodes", *nodes)
    (folder / "n9.json").write_text("{")
    code, out, _ = doctor("nodes")
    assert code == errors.NOT_READY
    assert f"{H100}: 8 nodes" in out
    assert "torch 2.12.1 on n[3,5], 2.9.0+cu130 on the other 6 nodes" in out
    assert "n9 not examined: cannot read n9.json: not JSON (line 1)" in out
    assert "Exclude:  --exclude=n[3,5,9]" in out
    assert out.rstrip().endswith("mgpu doctor --explain fleet_node_missing")
    prose = [line for line in out.splitlines() if not line.startswith(" " * 9)]
    assert max(map(len, prose)) <= 80


def test_the_file_names_the_node_and_files_may_be_named_one_by_one(doctor: Doctor, tmp_path: Path) -> None:
    folder = save(tmp_path / "nodes", *healthy(2), node(3, pytorch__version="2.1"))
    (folder / "n3.json").rename(folder / "gpu-c-7.json")
    code, out, _ = doctor(*map(str, sorted(folder.iterdir())), "--json")
    whole = json.loads(out)
    assert code == whole["exit_code"] == errors.NOT_READY
    assert whole["fleet"]["exclude"] == "gpu-c-7"
    assert whole["fleet"]["classes"][0]["differences"][0] == {
        "key": "pytorch.version", "what": "torch", "value": "2.1", "usual": "2.9.0+cu130",
    }  # fmt: skip


def test_a_nodes_own_fault_is_named(doctor: Doctor, tmp_path: Path) -> None:
    bad = node(2, gpus__0__ecc_uncorrected_volatile=3, gpus__0__recovery_action=1, gpus__0__rows_remap_failed=True)
    save(tmp_path / "nodes", node(1), bad, *healthy(2, 3))
    code, out, _ = doctor("nodes", "--only", "fleet_node_faulty")
    assert code == errors.NOT_READY
    assert "n2: " in out and "--exclude=n2" in out


@pytest.mark.parametrize("form", ["junit", "github", "markdown", "json"])
def test_formats_for_programs(form: str, doctor: Doctor, tmp_path: Path) -> None:
    save(tmp_path / "nodes", node(1), node(2), node(3, pytorch__version="2.1"))
    code, out, _ = doctor("nodes", "--format", form)
    assert code == errors.NOT_READY
    assert "fleet_torch_differs" in out and "2.1 on" in out


def test_names_are_hidden_where_a_report_is_to_be_shown(doctor: Doctor, tmp_path: Path) -> None:
    folder = save(tmp_path / "nodes", node(1), node(2), node(3, pytorch__version="2.1"))
    (folder / "report.json").write_text("[]")
    for path in list(folder.iterdir()):
        path.rename(folder / f"secret-{path.name}")
    for options in (("--format", "markdown"), ("--redact", "--json")):
        code, out, _ = doctor("nodes", *options)
        assert code == errors.NOT_READY and "secret" not in out and "host-" in out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("nowhere",), "nowhere: no such file or folder"),
        (("empty",), "at least 2 nodes, found 0 saved machines in empty"),
        (("one",), "mkdir -p nodes; srun --ntasks-per-node=1 bash -c 'mgpu doctor --quick --save"),
        (("one", "same"), "two files for n1"),
        (("one", "--from", "x.json"), "remove --deep, --fix, --from"),
        (("one", "--script", "train.py"), "remove --script"),
    ],
)
def test_what_cannot_be_compared_is_said(options: tuple[str, ...], words: str, doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("one", "same"):
        save(tmp_path / name, node(1))
    code, out, err = doctor(*options)
    assert (code, out) == (errors.USAGE, "")
    assert words in err


def test_one_machine_under_two_names_is_refused(doctor: Doctor, tmp_path: Path) -> None:
    folder = save(tmp_path / "nodes", *healthy(2))
    shutil.copy(folder / "n1.json", folder / "n1-monday.json")
    code, out, err = doctor("nodes")
    assert (code, out) == (errors.USAGE, "")
    assert "nodes/n1.json and nodes/n1-monday.json describe the same machine, host-" in err
    (folder / "n1-monday.json").rename(folder / ".n1.json.part.json")  # nobody's node
    assert doctor("nodes")[0] == errors.READY


def test_of_two_nodes_none_is_to_be_left_out(doctor: Doctor, tmp_path: Path) -> None:
    save(tmp_path / "nodes", node(1), node(2, pytorch__version="2.1"))
    code, out, _ = doctor("nodes")
    assert code == errors.NOT_READY
    assert "INCONSISTENT  1 failure.\n" in out and "Exclude:" not in out


def test_a_name_that_cannot_be_a_nodes_is_in_no_command(doctor: Doctor, tmp_path: Path) -> None:
    folder = save(tmp_path / "nodes", *healthy(2), node(3, pytorch__version="2.1"))
    assert "Exclude:  --exclude=n3\n" in doctor("nodes")[1]
    (folder / "n3.json").rename(folder / "n 3;x.json")
    said = doctor("nodes")[1]
    assert "n 3;x" in said and "--exclude" not in said


HOSTILE = {
    "empty": "", "list": "[]", "number": "1", "deep": "[" * 100_000, "other": '{"a": 1}', "nan": '{"gpus": NaN}',
    "future": '{"schema": 99, "host": null}', "gpus": '{"gpus": {"a": 1}}', "gpu": '{"gpus": [1]}',
    "driver": '{"driver": [], "host": 7}', "ports": '{"infiniband": {"ports": [{"x": 1}]}}',
    "binary": "\x00\x01", "report": '{"schema": "mgpu.doctor/1.0", "gpus": []}',
    "visible": '{"visible": 3, "gpus": [1]}',
}  # fmt: skip


NO_MACHINES = {"list", "number", "other", "report"}


def test_files_of_any_content_are_named_and_never_a_crash(doctor: Doctor, tmp_path: Path) -> None:
    folder = save(tmp_path / "nodes", *healthy(2))
    for name, text in HOSTILE.items():
        (folder / f"{name}.json").write_text(text)
    (folder / "folder.json").mkdir()
    code, out, err = doctor("nodes", "--json")
    whole = json.loads(out)
    assert (code, err) == (errors.NOT_READY, "")
    assert set(whole["fleet"]["missing"]) == {*HOSTILE, "folder"} - NO_MACHINES
    assert all("cannot read" in why or "is not a machine" in why for why in whole["fleet"]["missing"].values())
    assert whole["counts"]["crash"] == 0
    Draft202012Validator(json_schema.doctor()).validate(whole)


def test_a_file_that_was_never_a_machine_is_told_and_is_no_node(doctor: Doctor, tmp_path: Path) -> None:
    folder = save(tmp_path / "nodes", *healthy(2))
    for name in sorted(NO_MACHINES):
        (folder / f"{name}.json").write_text(HOSTILE[name])
    code, out, _ = doctor("nodes")
    assert code == errors.READY  # a warning
    assert "CONSISTENT WITH WARNINGS" in out and "Exclude:" not in out and "--exclude" not in out
    assert "list.json, number.json, other.json and 1 more: not written by mgpu" in " ".join(out.split())
    whole = json.loads(doctor("nodes", "--json")[1])
    Draft202012Validator(json_schema.doctor()).validate(whole)
    assert (whole["fleet"]["missing"], whole["fleet"]["exclude"]) == ({}, "")
    assert whole["fleet"]["strangers"] == [f"{name}.json" for name in sorted(NO_MACHINES)]
    assert doctor("nodes", "--strict")[0] == errors.NOT_READY
    (folder / "n2.json").unlink()
    code, out, err = doctor("nodes")
    assert (code, out) == (errors.USAGE, "") and "list.json is not a machine saved by mgpu doctor --save" in err


def test_what_no_node_knows_is_in_the_document(doctor: Doctor, tmp_path: Path) -> None:
    save(tmp_path / "nodes", *(unasked(number, "timed_out", "torch_runtime") for number in (1, 2)))
    assert json.loads(doctor("nodes", "--json")[1])["fleet"]["unread"] == {"torch_runtime": "timed out"}


def test_a_lot_of_nodes_is_not_judged_one_by_one_and_that_is_said(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "JUDGED", 2)
    save(tmp_path / "nodes", *healthy(3))
    code, out, _ = doctor("nodes", "-v")
    assert code == errors.READY
    assert "Too many nodes to check each one's own problems" in " ".join(out.split())


def test_the_folder_of_a_pre_flight_tells_who_was_missing(tmp_path: Path) -> None:
    folder = tmp_path / "preflight-7"
    folder.mkdir()
    save(folder / "machines", *healthy(3))
    bad = [{"node": "n4", "stage": "start", "id": "", "reason": "no answer in 90 s"},
           {"node": "n2", "stage": "alone", "id": "rank_failed", "reason": "rank 0 failed"},
           {"node": "n3", "stage": "examine", "id": "fleet_node_faulty", "reason": "n3: no GPU answers"}]  # fmt: skip
    (folder / "preflight.json").write_text(json.dumps({"schema": "mgpu.preflight/1.0", "bad": bad}))
    for named in (folder, folder / "preflight.json"):
        fleet = load.fleet([str(named)])
        assert (fleet.nodes, fleet.missing) == (("n1", "n2", "n3"), {"n4": "no answer in 90 s"})
        assert [(fault.node, fault.text) for fault in fleet.faults or ()] == [
            ("n2", "rank 0 failed"), ("n3", "no GPU answers")
        ]  # fmt: skip


def test_what_a_pre_flight_has_tried_is_not_judged_again(tmp_path: Path) -> None:
    """A name that means this machine is an error to the doctor, who cannot try it from outside; the pre-flight did."""
    folder = tmp_path / "preflight-7"
    folder.mkdir()
    machines = healthy(3)
    machines[0]["network"]["hostname_addresses"] = ["127.0.1.1"]
    save(folder / "machines", *machines)
    assert [fault.id for fault in load.fleet([str(folder / "machines")]).faults or ()] == ["hostname_is_loopback"]
    (folder / "preflight.json").write_text(json.dumps({"schema": "mgpu.preflight/1.0", "bad": []}))
    assert load.fleet([str(folder)]).faults == ()


def test_a_pipe_in_the_folder_is_not_waited_for(tmp_path: Path) -> None:
    save(tmp_path / "nodes", *healthy(2))
    os.mkfifo(tmp_path / "nodes" / "n9.json")
    assert load.fleet([str(tmp_path / "nodes")]).nodes == ("n1", "n2")


def test_a_folder_that_may_not_be_read_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(self: Path) -> Any:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(MgpuError, match="Permission denied"):
        load.fleet([str(tmp_path)])


def test_nothing_of_a_run_is_in_a_simulated_node() -> None:
    facts = node()
    assert not [fact for fact in OF_A_RUN if facts.get(fact) is not None]
