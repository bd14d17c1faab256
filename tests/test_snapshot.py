"""The Snapshot: JSON both ways, what a damaged file is answered, and what redaction takes out and leaves."""

from __future__ import annotations

import dataclasses
import json
import random
import re
import string
import types
import typing
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mgpu import engine
from mgpu.check import Check
from mgpu.probes import environ
from mgpu.snapshot import FACTS, BadSnapshot, Gap, Gpu, Peer, Snapshot, from_json, loads, redaction, to_json
from mgpu.snapshot.redaction import redact
from tests.checks.facts import (
    config,
    facts,
    folder,
    gpu,
    gpus,
    host,
    nccl,
    nccl_log,
    network,
    process,
    python,
    rank,
    ranks,
    storage,
    torch_runtime,
    uuid,
)
from tests.conftest import CHECKS
from tests.test_every_check import cases, every_check, machines

MIG = "MIG-5a5a5a5a-0000-4000-8000-00000000beef"


def dumped(snapshot: Snapshot) -> str:
    return json.dumps(to_json(snapshot))


def rich() -> Snapshot:
    """A machine in which everything that can be redacted occurs, most of it in several places."""
    return Snapshot(
        **facts(
            gpus=gpus(
                4,
                gpu(
                    1, processes=(process(user="ada", name="python"), process(pid=1, user="root", name="nv-hostengine"))
                ),
                gpu(2, mig_mode=True, mig_uuids=(MIG,)),
            ),
            env={
                "CUDA_VISIBLE_DEVICES": f"{uuid(3)},GPU-0a1",
                "MASTER_ADDR": "10.20.30.7",
                "XDG_CACHE_HOME": "/home/ada/.cache",
            },
            visible=environ.resolve_visible(f"{uuid(3)},GPU-0a1", gpus()),
            python=python(executable="/home/ada/env/bin/python", accelerate_default_config="/home/ada/a/b.yaml"),
            config=config("main_process_ip: 10.20.30.7\n", path="/home/ada/train/mgpu.yaml"),
            ranks=ranks(rank(0), rank(1, stack='File "/home/ada/train.py", line 7', error="node7: no route")),
            network=network(hostname_addresses=("127.0.1.1", "10.20.30.7"), hostname_error="node7: not known"),
            torch_runtime=torch_runtime(cuda_error="error 802 on node7"),
        ),
        gaps={"slurm": Gap("crashed", "ada at node7 (10.20.30.7)")},
        taken="2026-11-21T10:00:00Z",
        mgpu="0.1.0",
    )


# --- JSON both ways ----------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Anything a field of this type can hold."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    plain: dict[Any, st.SearchStrategy[Any]] = {
        Any: JSON,
        str: st.text(max_size=8),
        int: st.integers(-(2**63), 2**63),
        float: st.floats(allow_nan=False, allow_infinity=False),
        bool: st.booleans(),
        types.NoneType: st.none(),
    }
    if hint in plain:
        return plain[hint]
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*(values(arg) for arg in args))
    if origin is typing.Literal:
        return st.sampled_from(args)
    if origin is tuple and args[-1] is Ellipsis:
        return st.lists(values(args[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*(values(arg) for arg in args))
    if origin is not None and issubclass(origin, Mapping):
        return st.dictionaries(values(args[0]), values(args[1]), max_size=2)
    assert dataclasses.is_dataclass(hint), hint
    kind = typing.cast("type[Any]", hint)
    return st.builds(kind, **{name: values(field) for name, field in typing.get_type_hints(kind).items()})


SNAPSHOTS = st.builds(
    Snapshot,
    **{name: values(hint) for name, hint in typing.get_type_hints(Snapshot).items() if name not in ("schema", "gaps")},
    gaps=st.dictionaries(st.sampled_from(FACTS), values(Gap), max_size=3),
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(SNAPSHOTS)
def test_json_there_and_back(snapshot: Snapshot) -> None:
    assert loads(dumped(snapshot)) == snapshot
    assert from_json(to_json(snapshot)) == snapshot


@pytest.mark.parametrize("snapshot", [Snapshot(), rich(), *machines()], ids=range(2 + len(machines())))
def test_a_whole_machine_there_and_back(snapshot: Snapshot) -> None:
    back = loads(dumped(snapshot))
    assert back == snapshot
    assert dumped(back) == dumped(snapshot)


def test_what_is_read_is_as_hashable_as_what_was_written() -> None:
    back = loads(dumped(rich()))
    assert back.gpus is not None
    assert hash(back.gpus) == hash(rich().gpus)


def test_a_whole_number_is_a_float_too() -> None:
    data = to_json(Snapshot(gpus=(gpu(),)))
    data["gpus"][0]["power_w"] = 70
    found = from_json(data).gpus
    assert found is not None and type(found[0].power_w) is float


# --- what does not fit is named ----------------------------------------------------------------------------------


def changed(path: str, value: Any) -> dict[str, Any]:
    """The rich machine as JSON with one value replaced (`...`: taken out)."""
    data: Any = json.loads(dumped(rich()))
    *way, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    place = data
    for part in way:
        place = place[part]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return typing.cast("dict[str, Any]", data)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("colour", "purple", ["colour: unknown key"]),
        ("host/colour", "purple", ["host.colour: unknown key"]),
        ("gpus/2/colour", "purple", ["gpus[2].colour: unknown key"]),
        ("host/name", ..., ["host", "missing", "'name'"]),
        ("links/0/a", ..., ["links[0]", "missing", "'a'"]),
        ("host", "node7", ["host: expected an object, got str"]),
        ("host/name", 7, ["host.name: expected str, got int"]),
        ("host/name", None, ["host.name: expected str, got NoneType"]),
        ("gpus", {"0": 1}, ["gpus: expected a list, got dict"]),
        ("gpus/1/index", "1", ["gpus[1].index: expected int, got str"]),
        ("gpus/1/index", True, ["gpus[1].index: expected int, got bool"]),
        ("gpus/1/index", 1.0, ["gpus[1].index: expected int, got float"]),
        ("gpus/1/power_w", "70", ["gpus[1].power_w: expected float, got str"]),
        ("gpus/1/power_w", True, ["gpus[1].power_w: expected float, got bool"]),
        ("gpus/1/power_w", float("inf"), ["gpus[1].power_w: inf is not a number"]),
        ("gpus/1/power_w", float("nan"), ["gpus[1].power_w: nan is not a number"]),
        ("gpus/1/power_w", 10**30, ["gpus[1].power_w: number too large (31 digits)"]),
        ("gpus/1/index", 2**64, ["gpus[1].index: number too large (20 digits)"]),
        ("gpus/1/mig_mode", 0, ["gpus[1].mig_mode: expected bool, got int"]),
        ("gpus/1/compute_capability", [9], ["gpus[1].compute_capability: expected 2 items, got 1"]),
        ("gpus/1/compute_capability/0", "9", ["gpus[1].compute_capability[0]: expected int"]),
        ("gpus/1/processes/0/kind", "video", ["gpus[1].processes[0].kind: 'video' is not one of 'compute',"]),
        ("gpus/1/processes/0/kind", [], ["gpus[1].processes[0].kind: [] is not one of"]),
        ("container/cgroup_version", True, ["container.cgroup_version: True is not one of 1, 2"]),
        ("env", ["A=1"], ["env: expected an object, got list"]),
        ("env/MASTER_ADDR", 1, ["env.MASTER_ADDR: expected str, got int"]),
        ("gaps/slurm/kind", "tired", ["gaps.slurm.kind: 'tired' is not one of"]),
        ("nccl/wheels/nvidia-nccl-cu13", 2, ["nccl.wheels.nvidia-nccl-cu13: expected str"]),
        ("schema", 2, ["schema 2 is not 1", "another version of mgpu"]),
        ("schema", "1", ["schema '1' is not 1"]),
        ("schema", None, ["schema None is not 1"]),
        ("schema", True, ["schema: expected int, got bool"]),
    ],
)
def test_what_does_not_fit_is_named_by_its_path(path: str, value: Any, words: list[str]) -> None:
    with pytest.raises(BadSnapshot) as raised:
        from_json(changed(path, value))
    for word in words:
        assert word in str(raised.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", "the file: expected an object, got list"),
        ("null", "the file: expected an object, got NoneType"),
        ('"text"', "the file: expected an object, got str"),
        ("[" * 100_000, "it is nested more than 64 levels deep"),
        ('{"schema": ' + "1" * 5000 + "}", "it has a number with 5,000 digits"),
        ('{"verdict": "ready"}', "verdict: unknown key"),
    ],
    ids=range(8),
)
def test_what_is_no_snapshot_at_all(text: str, words: str) -> None:
    with pytest.raises(BadSnapshot, match=words):
        loads(text)


def corrupted(text: str, dice: random.Random) -> str:
    """A saved file after an accident: cut, overwritten, a value replaced by another one."""
    at = dice.randrange(len(text))
    match dice.randrange(6):
        case 0:
            return text[:at]
        case 1:
            return text[:at] + text[at + dice.randrange(1, 40) :]
        case 2:
            return text[:at] + dice.choice(string.printable + "\x00\ud800é²") + text[at + 1 :]
        case 3:
            other = dice.randrange(len(text))
            return text[:at] + text[other : other + 30] + text[at:]
    data = json.loads(text)
    replace_one(data, dice)
    return json.dumps(data)


def replace_one(data: Any, dice: random.Random) -> None:
    """Go down at random, and put something else in the place of one value."""
    strange: tuple[Any, ...] = (
        None,
        True,
        -1,
        10**30,
        1e308,
        float("nan"),
        "",
        "x",
        [],
        [[]],
        {},
        {"a": 1},
        [None] * 3,
    )
    while isinstance(data, dict | list) and data:
        key = dice.choice(list(data)) if isinstance(data, dict) else dice.randrange(len(data))
        inner = data[key]
        if not isinstance(inner, dict | list) or not inner or dice.random() < 0.2:
            data[key] = dice.choice(strange)
            return
        data = inner


@pytest.mark.parametrize("seed", range(10))
def test_a_damaged_file_is_refused_or_read_and_nothing_else(seed: int) -> None:
    dice = random.Random(seed)
    text = dumped(rich())
    refused = 0
    for _ in range(50):
        try:
            loads(corrupted(text, dice))
        except BadSnapshot as error:
            refused += 1
            assert str(error)
    assert refused > 20


# --- redaction ---------------------------------------------------------------------------------------------------


def test_names_addresses_homes_and_uuids_are_gone() -> None:
    text = dumped(redact(rich()))
    for secret in ("node7", "ada", "10.20.30.7", "172.17.0.1", *(uuid(n) for n in range(4)), "GPU-0a1", MIG):
        assert not re.search(rf"(?<!\w){re.escape(secret)}", text), secret


def test_what_the_verdict_needs_is_kept() -> None:
    found = redact(rich())
    assert found.network is not None and found.gpus is not None and found.env is not None and found.ranks is not None
    assert found.network.hostname_addresses[0] == "127.0.1.1"
    assert found.network.interfaces[0].addresses == ("127.0.0.1", "::1")
    assert found.host is not None and found.host.name == found.network.hostname == found.ranks.ranks[0].host
    assert found.env["MASTER_ADDR"] == found.network.hostname_addresses[1] == found.network.interfaces[1].addresses[0]
    assert found.env["XDG_CACHE_HOME"] == "/home/user/.cache"
    assert [p.user for p in found.gpus[1].processes or ()][1] == "root"
    assert found.ranks.ranks[1].gpu_uuid == found.gpus[1].uuid
    assert found.torch_runtime is not None and found.torch_runtime.devices[2].uuid == found.gpus[2].uuid
    assert found.gpus[2].mig_uuids[0].startswith("MIG-") and len(found.gpus[2].mig_uuids[0]) == len(MIG)


def test_the_same_name_is_the_same_substitute_every_time() -> None:
    assert redact(rich()) == redact(rich())
    other = replace(rich(), gpus=gpus(2), links=(), torch_runtime=torch_runtime(2))
    first, second = redact(rich()), redact(other)
    assert first.host == second.host
    assert first.gpus is not None and second.gpus is not None and first.gpus[0].uuid == second.gpus[0].uuid
    assert first.gpus[0].uuid != first.gpus[1].uuid


@pytest.mark.parametrize(
    "value",
    [
        uuid(2),
        f"{uuid(3)},{uuid(0)}",
        "GPU-2a1b",
        "GPU-3a1b,GPU-0a",
        "GPU-1a,GPU-1a",
        f"GPU-1a,{uuid(1)}",
        "GPU-1a,GPU-ffff,GPU-2a",
        "GPU-1a,GPU-ffff,GPU-eeee",
        "GPU-",
        "MIG-GPU-0a1",
        f"GPU-1a, {uuid(2)}",
        f"{uuid(2)}ff",
        "GPU-ffff",
        "GPU-1a,zzz,GPU-2a",
        "GPU-1a,2",
        "0,GPU-1a",
        "0,9,1",
        "",
        "-1",
        "MIG-5a5a",
        f"{MIG},{uuid(0)}",
        "MIG-ffff",
        None,
    ],
)
def test_visible_devices_name_the_same_gpus(value: str | None) -> None:
    machine = rich()
    assert machine.gpus is not None
    before = environ.resolve_visible(value, machine.gpus)
    found = redact(replace(machine, env={} if value is None else {"CUDA_VISIBLE_DEVICES": value}, visible=before))
    assert found.env is not None and found.gpus is not None and found.visible is not None
    after = environ.resolve_visible(found.env.get("CUDA_VISIBLE_DEVICES"), found.gpus)
    assert (after.gpus, after.mig is None, after.stopped_by is None) == (
        before.gpus,
        before.mig is None,
        before.stopped_by is None,
    )
    assert replace(after, why=None) == replace(found.visible, why=None)


def statuses(snapshot: Snapshot) -> list[tuple[str, str]]:
    return [(outcome.check.id, outcome.status) for outcome in engine.run(CHECKS.values(), snapshot)]


@pytest.mark.parametrize("number", range(1 + len(machines())))
def test_a_redacted_machine_gets_the_same_verdict(number: int) -> None:
    machine = (rich(), *machines())[number]
    if not machine.gpus and machine.ranks:
        machine = replace(machine, ranks=None)  # the next test
    assert statuses(redact(machine)) == statuses(machine)


def test_ranks_on_gpus_that_nvml_does_not_show_keep_them_apart() -> None:
    machine = Snapshot(**facts(gpus=(), torch_runtime=torch_runtime(0)))
    assert dict(statuses(machine))["ranks_share_a_gpu"] == "ok"
    assert dict(statuses(redact(machine)))["ranks_share_a_gpu"] == "ok"


@every_check
def test_every_case_is_judged_the_same_after_redaction(check: Check) -> None:
    for case in cases()[check.id]:
        both = before_and_after(case.snapshot, check.facts) if case.changes else of_unchanged_facts(check.facts)
        before, after = (engine.run_check(case.asked, seen) for seen in both)
        assert [o.status for o in after] == [o.status for o in before], case


def before_and_after(snapshot: Snapshot, read: Collection[str]) -> tuple[Snapshot, Snapshot]:
    before = lean(snapshot, read)
    return before, redact(before)


@cache
def of_unchanged_facts(read: tuple[str, ...]) -> tuple[Snapshot, Snapshot]:
    """What half of the cases are asked about: a machine without a fault, a log without a failure."""
    return before_and_after(Snapshot(**facts()), read)


def lean(snapshot: Snapshot, read: Collection[str]) -> Snapshot:
    """What a check reads, whole, and of the other facts only what names a person, a machine or a device."""
    names = redaction._Substitutes.of(snapshot)
    naming = ("fleet", "run", "log", "ranks", "storage", "network", "host", "gpus")
    nothing: dict[str, Any] = dict.fromkeys({*FACTS} - {*read, *naming})
    snapshot = replace(snapshot, **nothing)
    named = [
        Gpu(g.index, g.uuid, *(None,) * 6, mig_uuids=g.mig_uuids, processes=g.processes, permitted=g.permitted)
        for g in snapshot.gpus or ()
    ]
    for fact in (fact for fact in naming if fact not in read):
        changes: dict[str, Any] = {fact: tuple(named) if fact == "gpus" else None}
        leaner = replace(snapshot, **changes)
        snapshot = leaner if redaction._Substitutes.of(leaner) == names else snapshot
    assert redaction._Substitutes.of(snapshot) == names
    return snapshot


def test_a_redacted_snapshot_is_one_that_can_be_read() -> None:
    assert loads(dumped(redact(rich()))) == redact(rich())


def test_what_ranks_tell_of_hosts_names_none() -> None:
    """Evidence is JSON of any shape, and NCCL writes an address behind its interface."""
    told = {"host": "gpubox7", "address": "10.20.30.40", "hosts": ["gpubox8"], "folder": "/home/anna/ckpt"}
    one = rank(0, host="gpubox7", evidence={**told, "ways": [told]}, peers=(Peer(1, "gpubox8", "10.20.30.41"),))
    log = nccl_log(interfaces=("eth0:10.20.30.40", "lo:127.0.0.1"))
    shared = redact(Snapshot(ranks=ranks(one, outlived=(4711,)), nccl_log=log))
    text = json.dumps(to_json(shared))
    assert not re.search(r"gpubox|10\.20|anna|4711", text)
    assert shared.ranks is not None and shared.nccl_log is not None
    (shown,) = shared.ranks.ranks
    assert shown.evidence["host"] == shown.host and shown.evidence["ways"][0]["address"] == shown.evidence["address"]
    assert [text.partition(":")[0] for text in shared.nccl_log.interfaces] == ["eth0", "lo"]
    assert shared.nccl_log.interfaces[1] == "lo:127.0.0.1"


def test_nothing_is_redacted_where_nothing_is_known() -> None:
    assert redact(Snapshot()) == Snapshot(redacted=True)


def test_what_is_redacted_is_not_redacted_again() -> None:
    assert redact(redact(rich())) == redact(rich())
    assert redact(loads(dumped(redact(rich())))) == redact(rich())


LEAKS: dict[str, dict[str, Any]] = {
    "a UUID after a blank": {"env": {"CUDA_VISIBLE_DEVICES": f"GPU-0a1, {uuid(2)}"}},
    "a UUID in a sentence": {"torch_runtime": torch_runtime(cuda_error=f"device {uuid(2)} is lost")},
    "a UUID without its kind": {"torch_runtime": torch_runtime(cuda_error=f"{uuid(2)[4:]}: lost")},
    "a MIG instance's old name": {"env": {"CUDA_VISIBLE_DEVICES": f"MIG-{uuid(2)}/1/0"}},
    "a home folder that is a key": {"nccl": nccl(config_files={"/home/ada/.nccl.conf": ("NCCL_DEBUG=INFO",)})},
    "another machine's address": {"env": {"MASTER_ADDR": "192.168.77.5"}},
    "another machine's address with a port": {"env": {"PET_MASTER_ADDR": "tcp://192.168.77.5:29500"}},
    "another machine's address in the config": {"config": config("main_process_ip: 192.168.77.5\n")},
    "an IPv6 address": {"torch_runtime": torch_runtime(cuda_error="no route to [2001:db8::77], 2001:db8::77: down.")},
    "the host's name in the config": {"config": config("main_process_ip: node7\n")},
    "the host's name in a path": {"env": {"TMPDIR": "/scratch/node7/x"}},
    "a cache that is named after its user": {
        "torch_runtime": torch_runtime(import_error="cannot write /tmp/torchinductor_ada/x.py")
    },
    "a home folder elsewhere": {
        "storage": storage(folder("home", "/fsx/team/ada")),
        "python": python(executable="/scratch/ada/env/bin/python"),
    },
    "the host's short name": {
        "host": host(name="node7.example.org"),
        "torch_runtime": torch_runtime(cuda_error="node7, node7.example.org"),
        "network": network(hostname="node7.example.org"),
        "ranks": ranks(rank(0, host="node7.example.org"), rank(1, host="node7")),
    },
}


@pytest.mark.parametrize("changes", LEAKS.values(), ids=LEAKS)
def test_nothing_leaks(changes: dict[str, Any]) -> None:
    text = dumped(redact(Snapshot(**facts(**changes))))
    for secret in (uuid(2)[4:], "ada", "192.168.77.5", "2001:db8", "node7", "example"):
        assert not re.search(rf"(?<![a-z]){re.escape(secret)}", text), secret  # "readable" names nobody


def test_process_ids_become_numbers_that_no_process_has() -> None:
    machine = Snapshot(
        **facts(
            gpus=gpus(2, gpu(1, processes=(process(pid=4711), process(pid=1)))),
            network=network(port_owner="pid 4711 (python)", port_owner_pid=4711),
            env={"OMP_NUM_THREADS": "4711"},
        )
    )
    found = redact(machine)
    assert found.gpus is not None and found.network is not None and found.env is not None
    substitute, init = (p.pid for p in found.gpus[1].processes or ())
    assert substitute > 1 << 22 and init == 1
    assert (found.network.port_owner_pid, found.network.port_owner) == (substitute, f"pid {substitute} (python)")
    assert found.env["OMP_NUM_THREADS"] == "4711"


def test_what_only_looks_like_an_address_stays() -> None:
    wheels = {"nvidia-nccl-cu12": "2.21.5.1"}
    machine = Snapshot(**facts(packages={"nvidia-cublas-cu12": "12.4.5.8"}, nccl=nccl(wheels=wheels)))
    found = redact(machine)
    assert found.packages == machine.packages
    assert found.nccl is not None and found.nccl.wheels == wheels


def test_a_prefix_that_means_no_gpu_or_several_never_comes_to_mean_one() -> None:
    machine = replace(
        rich(), env={"CUDA_VISIBLE_DEVICES": "GPU-0,GPU-ffff", "CUDA_X": "GPU-ffff", "CUDA_Y": "GPU-eeee"}
    )
    machine = replace(machine, gpus=gpus(2, gpu(1, uuid=uuid(0)[:-1] + "f")))
    found = redact(machine).env
    assert found is not None
    assert all(entry.startswith("GPU-unknown-") for value in found.values() for entry in value.split(","))
    assert found["CUDA_VISIBLE_DEVICES"].split(",")[1] == found["CUDA_X"] != found["CUDA_Y"]


@pytest.mark.parametrize(
    "name", ["gpu7", "h100", "no", "train", "compute", "wheel", "MULTI_GPU", "localhost", "13", "x"]
)
def test_a_host_may_have_any_name(name: str) -> None:
    text = "distributed_type: MULTI_GPU\nnum_machines: 2\nmain_process_ip: localhost\nnum_processes: 4\n"
    machine = Snapshot(
        **facts(
            host=host(name=name),
            network=network(hostname=name),
            gpus=gpus(2, gpu(1, processes=(process(),))),
            config=config(text),
        )
    )
    assert statuses(redact(machine)) == statuses(machine)
