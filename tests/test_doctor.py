"""`mgpu doctor` as its users run it: on healthy, sick and dead machines, with every option, on every screen."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import pytest

from mgpu import cli, documentation
from mgpu.doctor import run as doctor_run
from mgpu.probes import NVML, gather
from mgpu.probes.environ import resolve_visible
from mgpu.report import findings
from mgpu.report.screen import Screen
from mgpu.snapshot import (
    OF_A_RUN,
    Gap,
    Gpu,
    Host,
    Interface,
    Nccl,
    NcclLibrary,
    Network,
    NvmlWait,
    Pci,
    PciDevice,
    Plan,
    Python,
    Pytorch,
    Slurm,
    Snapshot,
    System,
    TorchDevice,
    TorchRuntime,
    bus_address,
    to_json,
)
from tests.checks import facts as known
from tests.conftest import CHECKS, ROOT, Run, environment
from tests.fake_nvml import FAULTS, MACHINES, machine
from tests.fake_nvml import environment as with_nvml
from tests.terminal import Terminal, same_screen
from tests.test_probe_nvml import NAMED, UNNAMED

# What NVML alone decides: torch and the host are this computer's.
AREAS = "driver,gpu,ecc,memory,mig,clocks,processes,links,pcie_width_reduced,visibility"
GIB = 1 << 30

pytestmark = pytest.mark.skipif(
    Path("/sys/module/nvidia").exists(), reason="the driver of this machine would show through the fake one"
)


@pytest.fixture
def saved(
    tmp_path: Path, library: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """A saved machine in the current folder: GPUs as NVML describes them, everything else literal; the file's name."""
    monkeypatch.chdir(tmp_path)
    for name in ("COLUMNS", "FORCE_COLOR", "CLICOLOR_FORCE", "MGPU_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def save(name: str, *lines: str, **facts: Any) -> str:
        snapshot = replace(literal(name, library, tmp_path_factory.getbasetemp() / "literal", lines), **facts)
        path = tmp_path / "machine.json"
        path.write_text(json.dumps(to_json(snapshot)), encoding="utf-8")
        return path.name

    return save


@cache
def literal(name: str, library: Path, folder: Path, lines: tuple[str, ...] = ()) -> Snapshot:
    """A machine of which only the GPUs come from a probe; "" is one without any."""
    snapshot = Snapshot()
    if name:
        roots = {"sys_root": str(folder / "no-sys"), "dev_root": str(folder / "no-dev")}
        with mock.patch.dict(os.environ, with_nvml(library, machine(folder / "described", name, *lines))):
            read = gather([replace(NVML, deadline_s=60, arguments=roots)])
        assert read.gpus is not None and read.driver is not None
        number = len(read.gpus)
        gpus = tuple(
            replace(g, numa_node=g.index * 2 // number, cpus_near=_CPUS[g.index * 2 // number]) for g in read.gpus
        )
        nodes = ("/dev/nvidia-uvm", "/dev/nvidiactl", *(f"/dev/nvidia{index}" for index in range(number)))
        driver = replace(
            read.driver, module_version=read.driver.version, pci_gpus=number, uvm_loaded=True, device_nodes=nodes,
            nodes_denied=(), init_s=0.05,
        )  # fmt: skip
        gaps = {fact: gap for fact, gap in read.gaps.items() if fact.partition("[")[0] in ("driver", "gpus", "links")}
        snapshot = replace(
            snapshot,
            driver=driver,
            gpus=gpus,
            links=read.links,
            visible=resolve_visible(None, gpus),
            gaps=gaps,
            nvml_wait=read.nvml_wait,
        )
    else:
        from mgpu.snapshot import Driver

        nothing = Driver("LIBRARY_NOT_FOUND", "cannot open shared object file", None, None, None, None, 0)
        snapshot = replace(
            snapshot,
            driver=nothing,
            gpus=(),
            links=(),
            visible=resolve_visible(None, ()),
            nvml_wait=NvmlWait(None, called=False),
        )
    site = "/home/user/venv/lib/python3.12/site-packages"
    devices = tuple(
        TorchDevice(g.index, g.name or "", g.compute_capability or (0, 0), g.memory_total_bytes or 0, g.uuid)
        for g in snapshot.gpus or ()
        if g.name
    )
    interfaces = (
        Interface("lo", True, True, ("127.0.0.1",), True),
        Interface("eno1", True, False, ("10.0.0.7",), False, 1500, 25000),
    )
    return replace(
        snapshot,
        host=Host("node7", "Ubuntu 22.04.5 LTS", "5.15.0-140-generic", "x86_64", False),
        python=Python(*_PYTHON),
        env={},
        pytorch=Pytorch(
            True, "2.9.1+cu130", "13.0", None, f"{site}/torch",
            ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"), "nvidia-nccl-cu13==2.27.7",
        ),
        torch_runtime=TorchRuntime(None, bool(devices), None, len(devices), devices, True, "2.27.7", True, 2.1),
        nccl=Nccl(
            (NcclLibrary(f"{site}/nvidia/nccl/lib/libnccl.so.2", "2.27.7", "wheel"),), {"nvidia-nccl-cu13": "2.27.7"}
        ),
        packages={"accelerate": "1.12.0", "torch": "2.9.1", "nvidia-ml-py": "13.580.82"},
        system=System(
            128, 128, None, 2, 1031 * GIB, 980 * GIB, None, 512 * GIB, 512 * GIB, True, 65536, None, 100000, 8 << 20,
            200 * GIB, 900 * GIB, True,
        ),
        container=known.BARE,
        network=Network("node7", ("10.0.0.7",), None, True, interfaces, 29500, False, None),
        slurm=Slurm(None, None, None, None, None, False),
        pci=Pci(tuple(_on_the_bus(gpu) for gpu in snapshot.gpus or ()), True, 0, "intel"),
        infiniband=known.NO_INFINIBAND,
        kernel=known.kernel(driver_flavour="open" if name else None),
        kernel_log=known.kernel_log(),
        storage=known.storage(),
        leftovers=known.leftovers(),
        libraries=known.libraries(replace(known.LIBCUDA, version=snapshot.driver.version if snapshot.driver else None)),
        plan=Plan(),
        taken="2026-11-21T10:02:11Z",
        mgpu="0.1.0",
    )  # fmt: skip


def _on_the_bus(gpu: Gpu) -> PciDevice:
    """The GPU as sysfs shows it, with a network card of its socket beside it."""
    address = bus_address(gpu.pci or "")
    path = (f"pci0000:{gpu.numa_node}0", f"0000:{gpu.numa_node}0:0{gpu.index}.0")
    return replace(known.pci_device(), address=address, numa_node=gpu.numa_node, cpus_near=gpu.cpus_near, path=path)


_CPUS = ("0-63", "64-127")
_PYTHON = ("/home/user/venv/bin/python", "3.12.4", "/home/user/venv/bin/python", "/home/user/venv/bin/python")


@pytest.fixture
def ask_here(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command line in this process: exit code, stdout, stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.run(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return run


def report(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The one JSON document on stdout."""
    assert "Traceback" not in result.stderr, result.stderr
    document = json.loads(result.stdout)
    assert isinstance(document, dict)
    assert document["exit_code"] == result.returncode
    return document


def firing(document: dict[str, Any], *statuses: str) -> set[str]:
    return {c["id"] for c in document["checks"] if c["status"] in (statuses or ("fail", "warn", "crash"))}


# ---- healthy machines


@pytest.mark.parametrize(
    ("name", "number", "model", "matrix"),
    [
        ("a100_sxm_x4", 4, "NVIDIA A100-SXM4-80GB", {"-", "NV4"}),
        ("h100_sxm_x8", 8, "NVIDIA H100 80GB HBM3", {"-", "NV18"}),
        ("rtx4090_x2", 2, "NVIDIA GeForce RTX 4090", {"-", "PHB"}),
        ("t4_x1", 1, "Tesla T4", {"-"}),
    ],
)
def test_a_healthy_machine_shows_its_gpus_and_no_problem(
    name: str, number: int, model: str, matrix: set[str], on: Run
) -> None:
    document = report(on(name, [], "doctor", "--quick", "--json"))
    areas = AREAS.split(",")
    assert [
        c["id"] for c in document["checks"] if c["area"] in areas and c["status"] in ("fail", "warn", "crash")
    ] == []
    assert [gpu["index"] for gpu in document["gpus"]] == list(range(number))
    assert {gpu["name"] for gpu in document["gpus"]} == {model}
    assert all(gpu["visible"] and gpu["lost"] is None for gpu in document["gpus"])
    assert len(document["links"]["matrix"]) == number
    assert {cell for row in document["links"]["matrix"] for cell in row} == matrix
    screen = on(name, [], "doctor", "--quick", "--only", AREAS)
    assert screen.returncode == 0
    assert f"{number} x {model}" in screen.stdout
    assert screen.stdout.splitlines()[-1].startswith("Next:  mgpu configure")
    assert f"READY  {number} of {number} GPU{'s' * (number > 1)} usable." in screen.stdout
    assert screen.stderr == ""


def test_every_described_machine_is_looked_at() -> None:
    assert set(MACHINES) == {"a100_sxm_x4", "h100_sxm_x8", "rtx4090_x2", "t4_x1"}


# ---- sick machines: the planted fault, and nothing else

PLANTED: dict[str, tuple[str, str]] = {  # fault -> the check that names it, its status
    "library_mismatch": ("driver_library_mismatch", "fail"),
    "gpu_lost": ("gpu_lost", "fail"),
    "gpu_lost_at_handle": ("gpu_lost", "fail"),
    "ecc": ("gpu_ecc_uncorrected", "fail"),
    "remap_pending": ("gpu_row_remap_pending", "warn"),
    "remap_failed": ("gpu_row_remap_failed", "fail"),
    "pcie_width_reduced": ("pcie_width_reduced", "warn"),
    "compute_prohibited": ("gpu_compute_prohibited", "fail"),
    "busy": ("gpu_busy", "warn"),
    "thermal": ("gpu_too_hot", "warn"),
    "power_brake": ("gpu_power_braked", "warn"),
    "mig_on": ("gpu_split_by_mig", "warn"),
    "mig_pending": ("gpu_mode_change_pending", "info"),
    "ecc_pending": ("gpu_mode_change_pending", "info"),
    "recovery_reset": ("gpu_wants_recovery", "fail"),
    "nvlink_down": ("nvlink_inactive", "fail"),
    "fabric_not_started": ("nvlink_fabric_not_ready", "fail"),
}
UNREADABLE = {"nvml_hangs", "nvml_hangs_later", "nvml_aborts", "nvml_aborts_later", "gpu_forbidden"}


def test_every_fault_is_planted_somewhere() -> None:
    """Those that are not planted here are in tests/test_probe_nvml.py, which has no need of a whole doctor for each."""
    assert set(FAULTS) == set(PLANTED) | UNREADABLE | {"driver_not_loaded"} | set(NAMED) | UNNAMED


def test_a_driver_package_without_a_gpu_is_no_fault(on: Run) -> None:
    """A login node: the driver is installed, no module is loaded, and nothing is on the PCI bus."""
    if any(Path("/sys/bus/pci/drivers").glob("nvidia*")):
        pytest.skip("this machine has an NVIDIA GPU")
    document = report(on("h100_sxm_x8", [FAULTS["driver_not_loaded"]], "doctor", "--quick", "--json"))
    assert (document["verdict"], document["exit_code"]) == ("no_gpu", 4)


# Every fault once, and on every machine some; links are switched on one and direct on another. In this process, whose
# probes are processes all the same.
ELSEWHERE = {
    "ecc": "a100_sxm_x4", "pcie_width_reduced": "rtx4090_x2", "thermal": "rtx4090_x2", "busy": "t4_x1",
    "compute_prohibited": "t4_x1",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "fault"),
    [*((ELSEWHERE.get(fault, "h100_sxm_x8"), fault) for fault in PLANTED), ("a100_sxm_x4", "nvlink_down")],
)
def test_a_sick_machine_names_exactly_the_planted_fault(
    name: str, fault: str, library: Path, ask_here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id, status = PLANTED[fault]
    monkeypatch.chdir(tmp_path)
    env = environment(tmp_path / "home", with_nvml(library, machine(tmp_path / "described", name, FAULTS[fault])))
    with mock.patch.dict(os.environ, env, clear=True):
        told = ask_here("doctor", "--quick", "--json", "--only", AREAS)
    document = report(subprocess.CompletedProcess((), *told))
    assert id in firing(document, status)
    explained = {c["id"] for c in document["checks"] if c["because_of"]}
    assert firing(document) - explained == ({id} if status != "info" else set())
    assert document["verdict"] == {"fail": "not_ready", "warn": "ready_with_warnings", "info": "ready"}[status]
    assert document["exit_code"] == (1 if status == "fail" else 0)
    (check,) = (c for c in document["checks"] if c["id"] == id and c["status"] == status)
    assert check["evidence"] and check["cause"] and check["fix"]


@pytest.mark.parametrize("line", [FAULTS["gpu_forbidden"], *(f"2.every = !{code}" for code in (10, 999))])
def test_a_gpu_that_cannot_be_read_is_not_called_healthy(line: str, on: Run) -> None:
    result = on("a100_sxm_x4", [line], "doctor", "--quick", "--only", AREAS)
    assert "4 of 4 GPUs usable" not in result.stdout
    assert "GPU 2" in result.stdout


def test_links_that_cannot_be_read_are_not_called_slow(on: Run) -> None:
    result = on("a100_sxm_x4", ["0.nvlink.5.state = !999"], "doctor", "--quick", "-v", "--only", AREAS)
    assert "NVLink on 3 of 6 pairs" not in result.stdout
    assert "choose close ones" not in result.stdout


# ---- NVML that hangs for ever or takes its process down


@pytest.fixture(scope="module")
def dead(
    library: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[subprocess.CompletedProcess[str], float]]:
    """The plain `mgpu doctor`, `import torch` included, on four machines whose NVML hangs or aborts: side by side."""
    folder = tmp_path_factory.mktemp("dead")

    def run(fault: str) -> tuple[subprocess.CompletedProcess[str], float]:
        home = folder / fault
        home.mkdir()
        env = environment(home, with_nvml(library, machine(home, "h100_sxm_x8", FAULTS[fault])))
        began = time.monotonic()
        result = subprocess.run(
            [sys.executable, "-m", "mgpu", "doctor"], cwd=home, env=env, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        return result, time.monotonic() - began

    names = sorted(UNREADABLE - {"gpu_forbidden"})
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(names, pool.map(run, names), strict=True))


@pytest.mark.parametrize(
    ("fault", "told", "code"),
    [
        ("nvml_hangs", "NVML did not answer in 10 s (last step: nvmlInit)", 3),
        ("nvml_hangs_later", "NVML did not answer in 10 s (last step: GPU 2)", None),
        ("nvml_aborts", "the nvml probe was killed by SIGABRT (last step: nvmlInit)", 3),
        ("nvml_aborts_later", "the nvml probe was killed by SIGABRT (last step: GPU 1)", None),
    ],
)
def test_an_nvml_that_hangs_or_aborts_is_told_in_time(fault: str, told: str, code: int | None, dead: Any) -> None:
    result, seconds = dead[fault]
    assert seconds < 30
    # A CPU build of torch is a failure of its own, once the driver is known to be there.
    assert result.returncode == code if code else result.returncode in (1, 3)
    assert "Traceback" not in result.stdout + result.stderr
    assert told in result.stdout
    assert "READY  " not in result.stdout.replace("NOT READY  ", "") and "READY WITH" not in result.stdout


def test_the_timeout_of_the_command_ends_it(on: Run) -> None:
    began = time.monotonic()
    result = on("h100_sxm_x8", [FAULTS["nvml_hangs"]], "doctor", "--quick", "--timeout", "1")
    assert time.monotonic() - began < 9  # less than NVML alone is given
    assert (result.returncode, result.stdout) == (124, "")
    assert result.stderr == "mgpu: stopped after --timeout 1 s\n"


def test_a_gap_is_a_fact_of_the_json(on: Run) -> None:
    document = report(on("h100_sxm_x8", [FAULTS["nvml_aborts"]], "doctor", "--quick", "--json"))
    assert (document["verdict"], document["exit_code"]) == ("unknown", 3)
    assert document["gaps"]["gpus"]["kind"] == "crashed"
    assert document["gpus"] == [] and document["software"]["driver"] is None


# ---- which checks


def test_only_and_skip_take_ids_and_areas(saved: Any, ask_here: Any) -> None:
    file = saved("a100_sxm_x4")

    def ids(*options: str) -> list[str]:
        code, out, _ = ask_here("doctor", "--from", file, "--json", *options)
        assert code == 0
        return [c["id"] for c in json.loads(out)["checks"]]

    assert ids("--only", "gpu_too_hot") == ids("--only", "gpu-too-hot") == ["gpu_too_hot"]
    links = [check.id for check in CHECKS.values() if check.area == "links"]
    assert ids("--only", "links") == links
    assert (
        ids("--only", "gpu_too_hot,links") == ids("--only", "links", "--only", "gpu_too_hot") == ["gpu_too_hot", *links]
    )
    assert ids("--only", "links", "--skip", links[0]) == links[1:]
    assert set(ids()) - set(ids("--skip", "links")) == set(links)


@pytest.mark.parametrize("option", ["--only", "--skip", "--explain"])
@pytest.mark.parametrize(("given", "near"), [("shm_to_small", "shm_too_small"), ("gpu-buzy", "gpu_busy")])
def test_an_unknown_check_is_a_usage_error_with_the_nearest_name(
    option: str, given: str, near: str, saved: Any, ask_here: Any
) -> None:
    code, out, err = ask_here("doctor", "--from", saved(""), option, given)
    assert (code, out) == (2, "")
    assert f"Did you mean {near}?" in err and "--list-checks" in err
    assert len(err.splitlines()) == 1


def test_list_checks_lists_every_check(ask_here: Any) -> None:
    code, out, _ = ask_here("doctor", "--list-checks", "--json")
    listed = json.loads(out)
    assert (code, listed["schema"]) == (0, "mgpu.checks/1.0")
    assert [row["id"] for row in listed["checks"]] == list(CHECKS)
    assert len(CHECKS) > 90
    code, out, _ = ask_here("doctor", "--list-checks")
    assert code == 0
    assert f"{len(CHECKS)} checks." in out.splitlines()[-1]
    assert all(f"  {id} " in out for id in CHECKS)
    wide = findings.listing(tuple(CHECKS.values()), Screen(80, False, False, io.StringIO(), live=True))
    assert max(len("".join(text for text, _ in line)) for line in wide) == 80, "a terminal gets one line per check"
    code, out, _ = ask_here("doctor", "--list-checks", "nvml", "error")
    assert code == 0 and "nvml_library_missing" in out and "nvml_hangs" not in out, "every word has to match"
    code, _, err = ask_here("doctor", "--list-checks", "nosuchword")
    assert code == 2 and "no check matches 'nosuchword'" in err
    code, out, _ = ask_here("doctor", "--list-checks", "--only", "links", "--json")
    assert {row["area"] for row in json.loads(out)["checks"]} == {"links"}


def test_explain_tells_the_whole_text(ask_here: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for id in CHECKS:
        code, out = doctor_run.explain(id), capsys.readouterr().out
        assert code == 0 and out.startswith(f"{id}   ")
        assert "Why: " in out and "Fix: " in out and f"Source: {CHECKS[id].source}" in " ".join(out.split())
    assert ask_here("doctor", "--explain", "shm-too-small")[1] == ask_here("doctor", "--explain", "shm_too_small")[1]


def test_explain_shows_the_page_once_the_site_is_published(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for published in (False, True):
        monkeypatch.setattr(documentation, "PUBLISHED", published)
        doctor_run.explain("shm_too_small")
        assert (documentation.check_url("shm_too_small") in capsys.readouterr().out) is published


# ---- what is expected of the machine


@pytest.mark.parametrize(
    ("options", "code", "verdict"),
    [
        (["--expect-gpus", "4"], 0, "ready"),
        (["--expect-gpus", "3"], 1, "not_ready"),
        (["--expect-gpus", "8"], 1, "not_ready"),
        (["--expect-gpus", "0"], 1, "not_ready"),
        (["--expect-free", "70"], 0, "ready"),
        (["--expect-free", "80"], 1, "not_ready"),
        (["--nodes", "1"], 0, "ready"),
    ],
)
def test_what_is_expected_decides(options: list[str], code: int, verdict: str, saved: Any, ask_here: Any) -> None:
    found, out, _ = ask_here("doctor", "--from", saved("a100_sxm_x4"), "--json", *options)
    assert (found, json.loads(out)["verdict"]) == (code, verdict)


def test_expecting_gpus_where_there_are_none(saved: Any, ask_here: Any) -> None:
    file = saved("")
    assert ask_here("doctor", "--from", file)[0] == 4
    assert ask_here("doctor", "--from", file, "--expect-gpus", "0")[0] == 0
    code, out, _ = ask_here("doctor", "--from", file, "--expect-gpus", "4")
    assert code == 1 and "NOT READY" in out


@pytest.mark.skipif(any(Path("/dev").glob("nvidia*")), reason="this machine has NVIDIA GPUs")
def test_this_machine_without_gpus_is_as_expected(mgpu: Run) -> None:
    document = report(mgpu("doctor", "--quick", "--expect-gpus", "0", "--json", "--only", "driver,gpu,visibility"))
    assert (document["verdict"], document["exit_code"], document["gpus"]) == ("ready", 0, [])
    document = report(mgpu("doctor", "--quick", "--json", "--only", "driver,gpu,visibility"))
    assert (document["verdict"], document["exit_code"]) == ("no_gpu", 4)


def test_strict_makes_warnings_fail(saved: Any, ask_here: Any) -> None:
    file = saved("a100_sxm_x4", FAULTS["busy"])
    code, out, _ = ask_here("doctor", "--from", file)
    assert code == 0 and "READY WITH WARNINGS" in out
    assert ask_here("doctor", "--from", file, "--strict")[0] == 1
    assert ask_here("doctor", "--from", saved("a100_sxm_x4"), "--strict")[0] == 0


# ---- saving and replaying


@pytest.mark.parametrize("faults", [[], ["ecc", "busy"], ["nvml_aborts"], ["library_mismatch"], ["mig_on"]])
def test_a_saved_machine_gives_the_identical_verdict(
    faults: list[str], on: Run, ask_here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [FAULTS[fault] for fault in faults]
    live = report(on("h100_sxm_x8", lines, "doctor", "--quick", "--json", "--save", "m.json"))
    replayed = report(subprocess.CompletedProcess((), *ask_here("doctor", "--from", "m.json", "--json")))
    assert (live["verdict"], live["exit_code"], live["counts"]) == (
        replayed["verdict"], replayed["exit_code"], replayed["counts"],
    )  # fmt: skip

    def told(document: dict[str, Any]) -> list[Any]:
        return [(c["id"], c["status"], c["because_of"]) for c in document["checks"]]

    assert told(live) == told(replayed)
    text = (tmp_path / "m.json").read_text(encoding="utf-8")
    assert "GPU-6c1e57a9" not in text  # a UUID of the described machine: redacted
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".m.json")) == []


GARBAGE = {
    "empty": b"",
    "words": b"not json at all",
    "list": b"[]",
    "number": b"7",
    "other version": b'{"schema": 99}',
    "unknown key": b'{"gpu": []}',
    "wrong type": b'{"gpus": 8}',
    "wrong type inside": b'{"gpus": [{"index": "0"}]}',
    "missing field": b'{"gpus": [{"index": 0}]}',
    "cut short": b'{"gpus": [{"ind',
    "not utf-8": b"\xff\xfe\x00",
    "deep": b"[" * 100_000,
    "not a number": b'{"schema": NaN}',
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_refused_in_one_line(name: str, tmp_path: Path, ask_here: Any) -> None:
    path = tmp_path / "garbage.json"
    path.write_bytes(GARBAGE[name])
    for command in (["doctor"], ["configure", "--dry-run"]):
        code, out, err = ask_here(*command, "--from", str(path))
        assert (code, out) == (2, ""), err
        assert len(err.splitlines()) == 1 and err.startswith("mgpu: ") and str(path) in err


@pytest.mark.parametrize("path", ["missing.json", "folder", ""])
def test_a_machine_that_is_not_there_is_refused(path: str, tmp_path: Path, ask_here: Any) -> None:
    (tmp_path / "folder").mkdir()
    if not path:
        path = "\udcff.json"  # a name that is no text
    code, out, err = ask_here("doctor", "--from", str(tmp_path / path))
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1


# ---- where the report goes


def test_json_is_one_document_and_nothing_else(on: Run) -> None:
    result = on("a100_sxm_x4", [FAULTS["ecc"]], "doctor", "--quick", "--json")
    document = report(result)
    assert result.stderr == ""
    assert result.stdout == json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    assert document["schema"] == "mgpu.doctor/1.0"
    assert document["counts"] == {
        status: sum(c["status"] == status for c in document["checks"])
        for status in ("ok", "info", "warn", "fail", "skip", "crash", "waived")
    }
    assert {"id", "area", "status", "title", "cause", "evidence", "fix", "because_of", "source"} <= set(
        document["checks"][0]
    )
    assert on("a100_sxm_x4", [], "doctor", "--quick", "--format", "json").stdout.startswith("{")


@pytest.mark.parametrize("command", [["doctor"], ["configure", "--dry-run"], ["smoke-test"]])
def test_a_format_that_is_not_there_is_a_usage_error(command: list[str], tmp_path: Path, ask_here: Any) -> None:
    code, out, err = ask_here(*command, "--format", "yaml")
    assert (code, out) == (2, "")
    assert "human" in err and "json" in err


def test_a_report_into_a_file(saved: Any, ask_here: Any, tmp_path: Path) -> None:
    file = saved("a100_sxm_x4")
    _, screen, _ = ask_here("doctor", "--from", file)
    (tmp_path / "report.txt").write_text("an older and longer report\n" * 1000)
    (tmp_path / "report.txt").chmod(0o640)
    before = sorted(path.name for path in tmp_path.iterdir())
    code, out, err = ask_here("doctor", "--from", file, "-o", "report.txt")
    assert (code, out, err) == (0, "", "")
    assert (tmp_path / "report.txt").read_text(encoding="utf-8") == screen
    assert (tmp_path / "report.txt").stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert ask_here("doctor", "--from", file, "-o", "-")[1] == screen
    ask_here("doctor", "--from", file, "--json", "-o", "report.json")
    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["verdict"] == "ready"
    code, out, err = ask_here("doctor", "--from", file, "-o", "no/such/folder.txt")
    assert code == 1 and len(err.splitlines()) == 1


@pytest.mark.parametrize("option", ["-o", "--save"])
def test_what_is_no_regular_file_is_written_into_and_never_replaced(
    option: str, saved: Any, ask_here: Any, tmp_path: Path
) -> None:
    file = saved("a100_sxm_x4")
    os.mkfifo(tmp_path / "pipe")
    read: list[str] = []

    def reader() -> None:
        handle = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
        end = time.monotonic() + 10
        while time.monotonic() < end and not stop.is_set():
            with contextlib.suppress(BlockingIOError):
                read.append(os.read(handle, 1 << 20).decode())
            time.sleep(0.01)
        os.close(handle)

    stop = threading.Event()
    thread = threading.Thread(target=reader)
    thread.start()
    time.sleep(0.1)
    try:
        ask_here("doctor", "--from", file, option, "pipe")
        time.sleep(0.1)
    finally:
        stop.set()
        thread.join()
    assert (tmp_path / "pipe").is_fifo()
    assert "".join(read)


# ---- golden screens

SICK = (FAULTS["ecc"], FAULTS["busy"], FAULTS["thermal"], "3.nvlink.4..5.state = 0")
SICK_FACTS: dict[str, Any] = {
    "host": Host("c81f", "Ubuntu 24.04.1 LTS", "6.8.0-45-generic", "x86_64", True),
    "container": known.DOCKER,
    "system": System(
        64, 64, None, 2, 503 * GIB, 480 * GIB, None, 64 << 20, 64 << 20, True, 1024, None, 100000, 8 << 20, 20 * GIB,
        20 * GIB, True,
    ),
}  # fmt: skip


def machines(saved: Any) -> dict[str, Callable[[], tuple[str, list[str]]]]:
    """Every golden screen: the saved machine and the options."""
    unknown = {fact: Gap("timed_out", "NVML did not answer in 10 s (last step: nvmlInit)") for fact in _NVML_FACTS}
    empty = dict.fromkeys(_NVML_FACTS) | {"nvml_wait": NvmlWait("nvmlInit", True, 10.0, "D", "os_acquire_mutex")}
    runtime = TorchRuntime(None, True, None, 2, (), True, "2.27.7", True, 2.1)
    return {
        "healthy_a100_x4": lambda: (saved("a100_sxm_x4"), []),
        "sick_a100_x4": lambda: (saved("a100_sxm_x4", *SICK, **SICK_FACTS), []),
        "no_gpu": lambda: (saved(""), []),
        "login_node": lambda: (saved("", slurm=Slurm(None, None, None, None, None, True)), []),
        "verbose_h100_x8": lambda: (saved("h100_sxm_x8"), ["-v", "--only", "links,visibility,slurm"]),
        "rtx4090_x2": lambda: (saved("rtx4090_x2", torch_runtime=runtime), []),
        "driver_mismatch": lambda: (saved_without_driver(saved), []),
        "nvml_hangs": lambda: (saved("a100_sxm_x4", **empty, gaps=unknown), []),
        "t4_x1": lambda: (saved("t4_x1"), []),
    }


_NVML_FACTS = ("driver", "gpus", "links", "visible")


def saved_without_driver(saved: Any) -> str:
    """A machine whose NVML library is of another version than its module."""
    from mgpu.snapshot import Driver

    words = "Failed to initialize NVML: Driver/library version mismatch"
    driver = Driver("LIB_RM_VERSION_MISMATCH", words, None, None, None, "580.82.07", 4, ("/dev/nvidia0",), True)
    gap = Gap("no_driver", "NVML does not respond: LIB_RM_VERSION_MISMATCH")
    runtime = TorchRuntime(None, False, "Unexpected error from cudaGetDeviceCount()", 0, (), True, "2.27.7", True, 2.1)
    name: str = saved(
        "", driver=driver, gpus=None, links=None, visible=None, torch_runtime=runtime,
        gaps=dict.fromkeys(("gpus", "links", "visible"), gap),
    )  # fmt: skip
    return name


NAMES = (
    "healthy_a100_x4", "sick_a100_x4", "no_gpu", "login_node", "verbose_h100_x8", "rtx4090_x2", "driver_mismatch",
    "nvml_hangs", "t4_x1",
)  # fmt: skip


@pytest.mark.parametrize("columns", [80, 40])
@pytest.mark.parametrize("name", NAMES)
def test_screens(name: str, columns: int, saved: Any, ask_here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if columns != 80:
        monkeypatch.setenv("COLUMNS", str(columns))
    file, options = machines(saved)[name]()
    _, out, err = ask_here("doctor", "--from", file, *options)
    assert err == ""
    assert out.isascii()
    steady = re.sub(r"\b\d+(?=\s+(checks|not\s+possible|left\s+out))", "NN", out)  # it grows with the project
    same_screen(steady, f"doctor_{name}" + ("" if columns == 80 else f"_{columns}_columns"))


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        *((name, columns) for name in NAMES for columns in (40, 60, 80, 120)),
    ],
)
def test_no_line_is_wider_than_the_screen(
    name: str, columns: int, saved: Any, ask_here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    file, options = machines(saved)[name]()
    _, out, _ = ask_here("doctor", "--from", file, *options)
    wide = [line for line in out.splitlines() if len(line) > columns and not _pastes(line)]
    assert wide == []


def _pastes(line: str) -> bool:
    """One command, or one word: it is kept whole, so that it can be pasted."""
    words = line.split()
    bare = words[1:] if words[0] in ("Next:", "then", "Check", "Fix", "Where", "Source:") else words
    return (
        bare[0] in ("mgpu", "sudo", "export", "unset", "docker", "pip", "srun", "nvidia-smi", "ps") or len(words) <= 2
    )


def test_the_topology_of_eight_gpus(saved: Any, ask_here: Any) -> None:
    code, out, _ = ask_here("doctor", "--from", saved("h100_sxm_x8"), "-v")
    assert code == 0
    rows = [line.split() for line in out.splitlines() if line.strip().startswith("GPU") and "NV18" in line]
    assert [row[0] for row in rows] == [f"GPU{index}" for index in range(8)]
    assert rows[5] == ["GPU5", *["NV18"] * 5, "-", "NV18", "NV18", "1", "64-127"]
    assert "any subset of these GPUs is equally fast" in " ".join(out.split())


def test_in_a_terminal_there_is_colour_and_no_line_is_cut(saved: Any, tmp_path: Path) -> None:
    file = saved("a100_sxm_x4", *SICK, **SICK_FACTS)
    env = environment(tmp_path / "home", {"LC_ALL": "C.UTF-8"})
    terminal = Terminal([sys.executable, "-m", "mgpu", "doctor", "--from", file], env=env, cwd=tmp_path, columns=60)
    assert terminal.end() == 1
    assert b"\x1b[1;91m" in terminal.raw  # FAIL, in the theme's bright red
    assert "FAIL" in terminal.text and "NOT READY" in terminal.text
    assert "\N{CHECK MARK} ok" in terminal.text


def test_the_advice_starts_with_the_first_problem_shown(saved: Any, ask_here: Any) -> None:
    _, out, _ = ask_here("doctor", "--from", saved("a100_sxm_x4", *SICK, **SICK_FACTS))
    (first,) = re.findall(r"^--- 1 of \d+  (\w+)", out, re.MULTILINE)
    assert f"Start with {first}." in out


def test_commands_for_a_saved_machine_judge_that_machine(saved: Any, ask_here: Any) -> None:
    _, out, _ = ask_here("doctor", "--from", saved("a100_sxm_x4", FAULTS["ecc"]))
    assert "mgpu doctor --from machine.json --only gpu_ecc_uncorrected" in out


def test_commands_are_about_the_same_interpreter_and_config(mgpu: Run, bare_python: Path, tmp_path: Path) -> None:
    (tmp_path / "my config.yaml").write_text("num_processes: 2\ndistributed_type: MULTI_GPU\n")
    options = ["doctor", "--quick", "--python", str(bare_python), "-c", "my config.yaml"]
    out = mgpu(*options).stdout
    assert f"mgpu doctor --python {bare_python} -c 'my config.yaml' --only " in out


def test_no_gpu_tells_what_can_be_done_here(saved: Any, ask_here: Any) -> None:
    _, out, _ = ask_here("doctor", "--from", saved(""))
    for command in ("mgpu configure --yes", "mgpu smoke-test --cpu 2", "--save FILE", "--from FILE"):
        assert command in out


def test_unknown_facts_are_counted_in_the_last_block(saved: Any, ask_here: Any) -> None:
    gap = Gap("timed_out", "NVML did not answer in 10 s (last step: nvmlInit)")
    file = saved("a100_sxm_x4", **dict.fromkeys(_NVML_FACTS), gaps=dict.fromkeys(_NVML_FACTS, gap))
    code, out, _ = ask_here("doctor", "--from", file)
    assert code == 3
    assert "UNKNOWN  " in out and "could not run" in out
    assert "Unknown: NVML did not answer in 10 s" in out


# ---- formats for other programs


def test_every_format_tells_the_same_verdict(saved: Any, ask_here: Any, tmp_path: Path) -> None:
    file = saved("a100_sxm_x4", FAULTS["ecc"])
    for name in ("human", "json", "junit", "github", "markdown", "html"):
        code, out, err = ask_here("doctor", "--from", file, "--format", name)
        assert (code, err) == (1, "")
        assert "gpu_ecc_uncorrected" in out
        code, silent, _ = ask_here("doctor", "--from", file, "--format", name, "-o", f"report.{name}")
        written = (tmp_path / f"report.{name}").read_text(encoding="utf-8")
        assert (code, silent) == (1, "")
        if name not in ("github", "markdown"):  # they end with the seconds it took
            assert steady(written) == steady(out)


def steady(text: str) -> str:
    """A report without the seconds that things took."""
    return re.sub(r'("?duration_s"?|time)(: |=")[0-9.e-]+', "", text)


def test_a_wrong_format_names_the_nearest(saved: Any, ask_here: Any) -> None:
    code, out, err = ask_here("doctor", "--from", saved(""), "--format", "markdwon")
    assert (code, out) == (2, "")
    assert err.startswith("mgpu: --format markdwon: choose human, json, junit, github, markdown, sarif or html.")
    assert err.endswith(" Did you mean markdown?\n")
    assert "Did you mean nagios?" in ask_here("doctor", "--from", saved(""), "--exit-style", "nagio")[2]


def test_github_appends_a_table_to_the_summary_of_the_job(
    saved: Any, ask_here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = saved("a100_sxm_x4", FAULTS["ecc"])
    summary = tmp_path / "summary.md"
    summary.write_text("an earlier step\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    for _ in range(2):
        assert ask_here("doctor", "--from", file, "--format", "github")[2] == ""
    text = summary.read_text()
    assert text.startswith("an earlier step\n") and text.count("### mgpu doctor: NOT READY") == 2
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "no" / "such.md"))
    code, out, err = ask_here("doctor", "--from", file, "--format", "github")
    assert code == 1 and out.startswith("::error ") and err.startswith("mgpu: cannot write the job summary: ")
    ask_here("doctor", "--from", file, "--json")
    assert summary.read_text() == text


SECRETS = ("node7", "10.0.0.7", "/home/ada", "GPU-6c1e57a9", "ada(?![a-z])")


@pytest.mark.parametrize("name", ["human", "json", "junit", "github", "markdown", "html"])
def test_redaction_works_for_every_format(name: str, saved: Any, ask_here: Any) -> None:
    python = Python("/home/ada/venv/bin/python", "3.12.4", None, None, None)
    file = saved("h100_sxm_x8", FAULTS["ecc"], FAULTS["busy"], python=python)
    shown = ["-v"] if name == "human" else []
    _, plain, _ = ask_here("doctor", "--from", file, "--format", name, "--no-redact", *shown)
    _, hidden, _ = ask_here("doctor", "--from", file, "--format", name, "--redact", *shown)
    _, usual, _ = ask_here("doctor", "--from", file, "--format", name, *shown)
    assert not [secret for secret in SECRETS if re.search(rf"(?<![a-z]){secret}", hidden)]
    if name != "github":  # its annotations name no machine
        assert "node7" in plain
        assert ("node7" in usual) is (name not in ("markdown", "html"))
    if name == "json":
        assert json.loads(hidden)["host"]["redacted"] is True
        assert json.loads(usual)["host"]["redacted"] is False


# ---- monitors and schedulers


@pytest.mark.parametrize(
    ("machine", "options", "code", "line"),
    [
        (("a100_sxm_x4",), [], 0, "MGPU OK - 4 of 4 GPUs usable, "),
        (("a100_sxm_x4", FAULTS["busy"]), [], 1, "MGPU WARNING - GPU 0 in use "),
        (("a100_sxm_x4", FAULTS["busy"]), ["--strict"], 2, "MGPU CRITICAL - GPU 0 in use "),
        (("a100_sxm_x4", FAULTS["ecc"]), [], 2, "MGPU CRITICAL - 7 uncorrected ECC errors "),
        (("",), [], 3, "MGPU UNKNOWN - no NVIDIA GPU here | "),
        (("",), ["--expect-gpus", "0"], 0, "MGPU OK - 0 of 0 GPUs usable, "),
    ],
)
def test_nagios(machine: Any, options: list[str], code: int, line: str, saved: Any, ask_here: Any) -> None:
    found, out, err = ask_here("doctor", "--from", saved(*machine), "--exit-style", "nagios", *options)
    assert (found, err) == (code, "")
    assert out.startswith(line) and out.splitlines()[0].count(" | gpus=") == 1
    found, out, _ = ask_here("doctor", "--from", saved(*machine), "--exit-style", "nagios", "--json", *options)
    assert (found, json.loads(out)["exit_code"]) == (code, code)


def test_a_monitor_gets_its_line_even_when_time_runs_out(on: Run) -> None:
    options = ["doctor", "--quick", "--timeout", "0.5", "--exit-style", "nagios"]
    result = on("h100_sxm_x8", [FAULTS["nvml_hangs"]], *options)
    assert (result.returncode, result.stdout) == (3, "MGPU UNKNOWN - stopped after --timeout 0.5 s\n")


def test_a_wrong_command_line_is_unknown_to_a_monitor_never_critical(saved: Any, ask_here: Any) -> None:
    for options in (["-c", "missing.yaml"], ["--only", "no_such_check"], ["--compare", "missing.json"]):
        code, out, _ = ask_here("doctor", "--from", saved("a100_sxm_x4"), "--exit-style", "nagios", *options)
        assert code == 3 and out.startswith("MGPU UNKNOWN - ") and len(out.splitlines()) == 1


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        (None, 0, ""),
        ("busy", 0, ""),
        ("compute_prohibited", 0, ""),  # an error, but a setting
        ("gpu_lost", 1, "[gpu_lost]"),
        ("remap_failed", 1, "[gpu_row_remap_failed]"),
        ("library_mismatch", 1, "[driver_library_mismatch]"),
        ("nvml_aborts", 0, ""),  # nothing certain
    ],
)
def test_a_prolog_drains_only_for_certain_faults(fault: str | None, code: int, words: str, on: Run) -> None:
    result = on("h100_sxm_x8", [FAULTS[fault]] if fault else [], "doctor", "--exit-style", "prolog")
    assert (result.returncode, len(result.stdout.splitlines())) == (code, code)
    assert words in result.stdout
    if fault == "nvml_aborts":
        assert "mgpu: unknown" in result.stderr


def test_a_prolog_does_not_import_torch(mgpu: Run) -> None:
    result = mgpu("doctor", "--exit-style", "prolog", "--json")
    document = json.loads(result.stdout)
    assert document["exit_code"] == result.returncode == 0
    assert document["gaps"]["torch_runtime"]["kind"] == "not_asked"


# ---- another interpreter


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has nothing installed, mgpu least of all."""
    folder = tmp_path_factory.mktemp("bare") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder / "bin" / "python"


def test_another_interpreter_is_examined_and_named(mgpu: Run, bare_python: Path) -> None:
    result = mgpu("doctor", "--json", "--python", str(bare_python), without=["PYTHONPATH"], cwd=ROOT)
    document = json.loads(result.stdout)
    assert document["software"]["interpreter"] == str(bare_python)
    assert document["software"]["torch"] is None
    assert {c["status"] for c in document["checks"] if c["id"] == "torch_missing"} <= {"fail", "warn", "info", "skip"}
    assert not [gap for gap in document["gaps"].values() if gap["kind"] in ("crashed", "timed_out")]
    screen = mgpu("doctor", "--quick", "--python", str(bare_python), without=["PYTHONPATH"], cwd=ROOT)
    assert f"Python {sys.version.split()[0]}, {bare_python}" in screen.stdout.replace("\n", " ")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("/no/such/python", "no such file"),
        ("no-such-python-anywhere", "no such file, here or on PATH"),
        ("./plain.txt", "not an executable program"),
        ("/bin/ls", "not a Python interpreter"),
        ("./script", "not a Python interpreter"),
        ("./broken", "it does not start"),
        ("./env", "a folder. Did you mean"),
        ("./empty", "not an executable program"),
    ],
)
def test_what_is_no_interpreter_is_one_clear_message(given: str, words: str, mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "plain.txt").write_text("x")
    for name, text in (("script", "#!/bin/sh\necho 7\n"), ("broken", "no program at all")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "empty").mkdir()
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").symlink_to(sys.executable)
    result = mgpu("doctor", "--python", given)
    assert (result.returncode, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith(f"mgpu: --python {given}: ") and words in result.stderr


# ---- the plan


def plan_of(ask_here: Any, *options: str) -> Any:
    return json.loads(ask_here("doctor", "--json", *options)[1])["plan"]["nodes"]


def test_how_many_machines_is_said_by_option_config_or_slurm(
    mgpu: Run, saved: Any, ask_here: Any, tmp_path: Path
) -> None:
    (tmp_path / "two.yaml").write_text("compute_environment: LOCAL_MACHINE\nnum_machines: 2\nnum_processes: 8\n")
    file = saved("a100_sxm_x4", plan=Plan(nodes=3))
    assert plan_of(ask_here, "--from", file) == 3
    assert plan_of(ask_here, "--from", file, "-c", "two.yaml", "--quick") == 2
    assert plan_of(ask_here, "--from", file, "-c", "two.yaml", "--quick", "--nodes", "4") == 4
    job = {"SLURM_JOB_ID": "7", "SLURM_NNODES": "5", "SLURM_NODEID": "0"}

    def live(*options: str, **env: str) -> Any:
        return json.loads(mgpu("doctor", "--quick", "--json", *options, env=env).stdout)["plan"]["nodes"]

    assert live() == 1
    assert live(**job) == 5
    assert live("-c", "two.yaml", **job) == 2
    assert live("--nodes", "1", **job) == 1


def test_folders_of_the_run_are_looked_at(mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    mgpu("doctor", "--quick", "--path", "data", "--path", "/dev/shm", "--save", "m.json", "--no-redact")
    folders = json.loads((tmp_path / "m.json").read_text())["storage"]["folders"]
    named = [folder["path"] for folder in folders if folder["role"] == "named"]
    assert named == [str(tmp_path / "data"), "/dev/shm"]


# ---- what was not asked for, and what could not be had


def test_what_was_left_out_is_not_called_impossible(mgpu: Run) -> None:
    document = json.loads(mgpu("doctor", "--quick", "--json").stdout)
    assert {name for name, gap in document["gaps"].items() if gap["kind"] == "not_asked"} == {
        "torch_runtime", "kernel_log",
    }  # fmt: skip
    asked = {c["id"] for c in document["checks"]}
    of_a_run = {c.id for c in CHECKS.values() if OF_A_RUN & set(c.facts)}
    assert asked == set(CHECKS) - of_a_run
    screen = mgpu("doctor", "--quick").stdout
    assert re.search(r"\d+ checks(, \d+ could not run)?, \d+ left out, ", screen.replace("\n", " "))


def test_a_kernel_log_that_may_not_be_read_is_not_called_clean(saved: Any, ask_here: Any) -> None:
    gap = {"kernel_log": Gap("no_permission", "the kernel's log is for root: sudo dmesg")}
    _, clean, _ = ask_here("doctor", "--from", saved("a100_sxm_x4"))
    code, out, _ = ask_here("doctor", "--from", saved("a100_sxm_x4", kernel_log=None, gaps=gap))
    assert "no ECC or Xid errors" in clean and "could not run" not in clean
    assert code == 0
    assert "no ECC errors" in out and "Xid" not in out
    assert re.search(r"READY  4 of 4 GPUs usable\. \d+ checks, \d+ could not run\.", out)


def test_a_deep_look_is_asked_for_or_nothing_is_said_of_it(saved: Any, ask_here: Any) -> None:
    deep = {c.id for c in CHECKS.values() if "gpu_runs" in c.facts}

    def asked(file: str) -> set[str]:
        return {c["id"] for c in json.loads(ask_here("doctor", "--from", file, "--json")[1])["checks"]} & deep

    assert asked(saved("a100_sxm_x4")) == set()
    assert asked(saved("a100_sxm_x4", gpu_runs=known.gpu_runs())) == deep - {
        c.id for c in CHECKS.values() if (OF_A_RUN - {"gpu_runs"}) & set(c.facts)
    }
    failed = {"gpu_runs": Gap("crashed", "no process came back")}
    assert asked(saved("a100_sxm_x4", gaps=failed)) != set()


def test_nothing_new_is_loaded_on_the_plain_path(tmp_path: Path) -> None:
    code = (
        "import sys; from mgpu import cli; code = cli.run(['doctor', '--quick']); "
        "print(*sorted(m for m in sys.modules if m.startswith('mgpu.')), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(tmp_path / "home"), capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    loaded = set(done.stderr.split())
    assert "mgpu.doctor.run" in loaded
    assert not loaded & {
        "mgpu.report.formats", "mgpu.cli.json_schema", "mgpu.snapshot.changes", "mgpu.doctor.repair",
        "mgpu.engine.catalogue", "mgpu.probes.gpu_stress", "mgpu.snapshot.redaction",
        "mgpu.config", "mgpu.smoke", "mgpu.wizard",
    }  # fmt: skip


# ---- a config that runs on the CPU


def test_a_config_for_the_cpu_needs_no_gpu(saved: Any, ask_here: Any, tmp_path: Path) -> None:
    text = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_machines: 1\nnum_processes: 2\n"
    (tmp_path / "gpu.yaml").write_text(text)
    (tmp_path / "cpu.yaml").write_text(f"{text}use_cpu: true\n")
    file = saved("")
    assert ask_here("doctor", "--from", file, "-c", "gpu.yaml", "--quick")[0] == 4
    code, out, _ = ask_here("doctor", "--from", file, "-c", "cpu.yaml", "--quick", "--json")
    document = json.loads(out)
    assert (code, document["verdict"]) == (0, "ready")
    assert not {"driver", "gpu", "links", "nccl"} & {c["area"] for c in document["checks"]}
    sick = saved("a100_sxm_x4", FAULTS["ecc"])
    assert ask_here("doctor", "--from", sick, "-c", "cpu.yaml", "--quick")[0] == 0
    assert ask_here("doctor", "--from", sick, "-c", "gpu.yaml", "--quick")[0] == 1
    (tmp_path / "nothing.json").write_text("{}")
    assert ask_here("doctor", "--from", "nothing.json", "-c", "cpu.yaml", "--quick")[0] == 3


# ---- from a notebook


def test_a_notebook_gets_a_report_and_no_cuda(tmp_path: Path) -> None:
    code = (
        "import sys, json, mgpu; r = mgpu.doctor(quick=True); assert 'torch' not in sys.modules; "
        "assert 'pynvml' not in sys.modules; print(json.dumps([r.verdict, r.exit_code, r.document, repr(r), "
        "r._repr_html_()]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(tmp_path / "home"), capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    verdict, exit_code, document, text, page = json.loads(done.stdout)
    assert (document["verdict"], document["exit_code"]) == (verdict, exit_code)
    assert text.startswith("mgpu doctor 0.1.0 on ") and page.startswith("<pre>mgpu doctor")
    assert "<" not in page.removeprefix("<pre>").removesuffix("</pre>")
    assert done.stderr == ""


# ---- completion


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("shm_too", ["shm_too_small"]), ("link", ["links"]), ("links,shm_too", ["links,shm_too_small"])],
)
def test_the_shell_completes_ids(typed: str, offered: list[str]) -> None:
    from mgpu.cli.known_values import checks

    assert checks(typed) == offered


# --- what a stranger tried ------------------------------------------------------------------------------------------


def test_a_choice_that_leaves_nothing_to_check_is_no_pass(mgpu: Run) -> None:
    for chosen in (("--only", "cuda_does_not_start"), ("--only", "gpu_lost", "--skip", "gpu_lost")):
        result = mgpu("doctor", "--quick", *chosen)
        assert result.returncode == 2 and "none of the selected checks" in result.stderr, result


@pytest.mark.parametrize("wrong", [("--timeout", "inf"), ("--timeout", "1e10"), ("--expect-free", "1e400")])
def test_numbers_beyond_reason_are_refused(wrong: tuple[str, str], mgpu: Run) -> None:
    result = mgpu("doctor", "--quick", *wrong)
    assert result.returncode == 2 and "choose 0 to" in result.stderr, result


def test_a_file_without_end_is_refused(mgpu: Run) -> None:
    result = mgpu("doctor", "--from", "/dev/zero")
    assert result.returncode == 2 and "it is a device" in result.stderr


def test_a_python_too_old_is_told_so(mgpu: Run, tmp_path: Path) -> None:
    old = tmp_path / "python3.8"
    old.write_text("#!/bin/sh\necho 3.8\n")
    old.chmod(0o755)
    result = mgpu("doctor", "--quick", "--python", str(old))
    assert result.returncode == 2 and "Python 3.8 is too old" in result.stderr, result


def test_the_check_line_keeps_the_plan(on: Run) -> None:
    result = on("a100_sxm_x4", [], "doctor", "--quick", "--expect-gpus", "3", "--only", "gpu_count_unexpected")
    command = "mgpu doctor --expect-gpus 3 --only gpu_count_unexpected"
    assert command in result.stdout, result.stdout
    asked = ("doctor", "--quick", "--json", "--expect-gpus", "3", "--only", "gpu_count_unexpected")
    (entry,) = json.loads(on("a100_sxm_x4", [], *asked).stdout)["checks"]
    assert entry["verify"] == command


def test_an_ended_doctor_leaves_no_probe_behind(library: Path, tmp_path: Path) -> None:
    described = machine(tmp_path / "described", "a100_sxm_x4", FAULTS["nvml_hangs"])
    home = tmp_path / "home"
    home.mkdir()
    env = environment(home, with_nvml(library, described))
    command = [sys.executable, "-m", "mgpu", "doctor", "--quick"]
    with subprocess.Popen(
        command, env=env, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as doctor:
        children: list[psutil.Process] = []
        deadline = time.monotonic() + 20
        while not children and time.monotonic() < deadline:
            time.sleep(0.05)
            children = [c for c in psutil.Process(doctor.pid).children() if "nvml.py" in " ".join(c.cmdline())]
        time.sleep(1)  # the others have answered; NVML hangs
        doctor.terminate()
        assert doctor.wait(20) == 128 + signal.SIGTERM
    assert children and not any(child.is_running() for child in children)
