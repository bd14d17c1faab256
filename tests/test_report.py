"""Does a screen claim only what is known, in the characters and the width it has? And a stamp?"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mgpu import engine
from mgpu.check import Answer, Check, Crash, Fix, Ok, Place, Problem, Severity
from mgpu.launchers import stamp
from mgpu.report import describe, findings
from mgpu.report.screen import Screen
from mgpu.snapshot import Gap, HcaPort, Snapshot, topology
from mgpu.text import counted, listed, plural
from tests.checks import facts as known
from tests.conftest import AREAS, CHECKS


class Terminal(io.TextIOWrapper):
    """A UTF-8 stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environ", "glyphs"),
    [
        ({"LANG": "en_US.UTF-8"}, True),
        ({"LC_ALL": "C.utf8", "LANG": "C"}, True),
        ({"LC_ALL": "C", "LANG": "en_US.UTF-8"}, False),
        ({"LC_CTYPE": "POSIX"}, False),
        ({"LANG": "de_DE.ISO-8859-1"}, False),
        ({}, False),
        ({"LANG": "en_US.UTF-8", "MGPU_ASCII": "1"}, False),
        ({"LANG": "en_US.UTF-8", "TERM": "dumb"}, False),
    ],
)
def test_glyphs_follow_the_locale(environ: dict[str, str], glyphs: bool) -> None:
    stream = Terminal(io.BytesIO(), encoding="utf-8")  # as Python opens stdout even under LC_ALL=C
    assert Screen.of(stream, {"TERM": "xterm", **environ}).glyphs is glyphs


@pytest.mark.parametrize(
    "changes",
    [
        {"nccl": None, "gaps": {"nccl": Gap("crashed", "the packages probe was killed by SIGSEGV")}},
        {"driver": known.driver(version=None)},
        {"pytorch": known.pytorch(version=None)},
        {"gpus": None, "visible": None},
    ],
    ids=["nccl", "driver", "torch", "gpus"],
)
def test_what_is_not_known_is_not_stamped(changes: dict[str, Any]) -> None:
    whole = Snapshot(**known.facts(config=replace(known.config(), sha256="0" * 64)))
    assert stamp.fingerprint(whole) is not None
    assert stamp.fingerprint(replace(whole, **changes)) is None


# ---- the rows


def test_every_area_has_its_place_and_its_row() -> None:
    areas = {check.area for check in CHECKS.values()}
    assert areas <= set(AREAS)
    assert areas <= {area for _, row in findings.ROWS for area in row}


def rows(snapshot: Snapshot) -> dict[str, str]:
    return describe.rows(snapshot)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "4 x NVIDIA H100 80GB HBM3, idle, no ECC or Xid errors"),
        ({"kernel_log": None}, "4 x NVIDIA H100 80GB HBM3, idle, no ECC errors"),
        ({"kernel_log": known.kernel_log(known.event())}, "4 x NVIDIA H100 80GB HBM3, idle, no ECC errors"),
        ({"kernel_log": known.kernel_log(known.event("oom", None))},
         "4 x NVIDIA H100 80GB HBM3, idle, no ECC or Xid errors"),
        ({"gpus": known.gpus(4, ecc_uncorrected_volatile=None)}, "4 x NVIDIA H100 80GB HBM3, idle, no Xid errors"),
        ({"gpus": known.gpus(4, known.gpu(1, ecc_uncorrected_volatile=None)), "kernel_log": None},
         "4 x NVIDIA H100 80GB HBM3, idle"),
        ({"gpus": known.gpus(4, known.gpu(1, processes=None))}, "4 x NVIDIA H100 80GB HBM3, no ECC or Xid errors"),
        ({"gpus": known.gpus(2, known.gpu(1, processes=(known.process(),)))},
         "2 x NVIDIA H100 80GB HBM3, no ECC or Xid errors"),
    ],
)  # fmt: skip
def test_the_gpus_row_claims_only_what_is_known(changes: dict[str, Any], text: str) -> None:
    assert rows(Snapshot(**known.facts(**changes)))["GPUs"] == text


@pytest.mark.parametrize(
    ("ports", "text"),
    [
        ([known.hca(n) for n in range(8)], "8 x 400 Gb/s InfiniBand active"),
        ([known.hca(0), known.hca(1, state="DOWN")], "1 of 2 InfiniBand ports active"),
        ([known.hca(0), known.hca(1, rate_gbit_per_s=200.0)], "2 InfiniBand ports active"),
        ([known.hca(0), known.hca(1, link_layer="Ethernet", rate_gbit_per_s=100.0)],
         "1 x 400 Gb/s InfiniBand active, 1 x 100 Gb/s RoCE active"),
        ([known.hca(0, rate_gbit_per_s=None)], "1 InfiniBand port active"),
    ],
)  # fmt: skip
def test_the_network_row_tells_the_fast_network(ports: list[HcaPort], text: str) -> None:
    snapshot = Snapshot(**known.facts(infiniband=known.infiniband(*ports)))
    assert rows(snapshot)["Network"] == f"port 29500 free, host name resolves, {text}"
    assert "," not in rows(Snapshot(**known.facts(infiniband=known.NO_INFINIBAND)))["Network"].partition("resolves")[2]


@pytest.mark.parametrize(
    ("capability", "arches", "said"),
    [
        ((9, 0), ("sm_80", "sm_90"), "has sm_90 kernels"),
        ((8, 6), ("sm_80", "sm_90"), "has sm_80 kernels"),  # runs on later minors of its major
        ((8, 0), ("sm_86", "compute_80"), None),
        ((9, 0), ("sm_80",), None),
        ((9, 0), None, None),
        ((12, 0), ("sm_120",), "has sm_120 kernels"),
        (None, ("sm_90",), None),
    ],
)
def test_the_pytorch_row_names_the_kernels_that_would_run(
    capability: Any, arches: tuple[str, ...] | None, said: str | None
) -> None:
    machine = known.facts(gpus=known.gpus(2, compute_capability=capability), pytorch=known.pytorch(arch_list=arches))
    text = rows(Snapshot(**machine))["PyTorch"]
    assert (said in text) if said else "kernels" not in text


def test_the_host_row_has_the_disk() -> None:
    assert rows(Snapshot(**known.facts()))["Host"].endswith("/dev/shm 512 GiB, disk 500 GiB free")
    assert "disk" not in rows(Snapshot(**known.facts(storage=None)))["Host"]


def test_a_reason_is_told_once_and_counted_then() -> None:
    gaps = dict.fromkeys(("gpus", "links", "visible"), Gap("timed_out", "NVML did not answer"))
    machine = Snapshot(**known.facts(gpus=None, links=None, visible=None), gaps=gaps)
    found = findings.row_texts(engine.run(CHECKS.values(), machine), rows(machine))
    known_rows = rows(machine)
    told = [label for _, label, text, _ in found if "NVML did not answer" in text and label in known_rows]
    counted = [(status, text) for status, _, text, _ in found if "could not run" in text]
    assert len(told) == 1 and counted
    assert {status for status, _ in counted} == {"skip"}  # never ok


# ---- the topology


def machine(number: int, kind: Callable[[int, int], dict[str, Any]]) -> Snapshot:
    pairs = tuple(known.link(a, b, **kind(a, b)) for a in range(number) for b in range(a + 1, number))
    bus = known.pci(*(known.pci_device(n) for n in range(number)), *(known.nic(n) for n in range(number)))
    return Snapshot(**known.facts(gpus=known.gpus(number), links=pairs, pci=bus))


def pcie(a: int, b: int) -> dict[str, Any]:
    """Two sockets, each with two switches of two GPUs."""
    return {"nvlinks": 0, "topology": "PIX" if a // 2 == b // 2 else "NODE" if a // 4 == b // 4 else "SYS"}


def cube(a: int, b: int) -> dict[str, Any]:
    """The hybrid cube mesh of a DGX-1: a ring of rings, not every pair has NVLink."""
    inside = {1: 2, 2: 1, 3: 2}.get(b - a, 0) if a // 4 == b // 4 else 0
    return {"nvlinks": 2 if b - a == 4 else inside, "topology": "SYS"}


BRIDGED: Callable[[int, int], dict[str, Any]] = lambda a, b: {"nvlinks": 4 * (a // 2 == b // 2), "topology": "SYS"}  # noqa: E731
MACHINES: dict[str, Snapshot] = {
    "nvswitch": machine(16, lambda a, b: {}),
    "pcie": machine(8, pcie),
    "bridged": machine(4, BRIDGED),
    "cube": machine(8, cube),
    "odd": machine(3, lambda a, b: {"nvlinks": 0, "topology": "PIX" if b == 1 else "SYS"}),
    "many": machine(10, lambda a, b: {"nvlinks": 0, "topology": "PIX" if a // 2 == b // 2 else "PHB"}),
    "unread": machine(2, lambda a, b: {"nvlinks": None}),
}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nvswitch", "every pair is connected by NV18, so any subset of these GPUs is equally fast."),
        ("pcie", "GPUs 0-3 and GPUs 4-7 form close groups (PIX, NODE). All other traffic crosses the CPUs (SYS). A run "
                 "on fewer GPUs is fastest within one group."),
        ("bridged", "GPUs 0-1 and GPUs 2-3 form close groups (NV4). All other traffic crosses the CPUs (SYS). A run on "
                    "fewer GPUs is fastest within one group."),
        ("cube", "links differ (NV2, NV1, SYS). To use two GPUs, choose one of the closest pairs (NV2): 0+1, 0+3, 0+4, "
                 "1+2, 1+5, 2+3, 2+6, 3+7 and more."),
        ("odd", "GPUs 0-1 form a close group (PIX). GPU 2 is in no group. All other traffic crosses the CPUs (SYS). A "
                "run on fewer GPUs is fastest within one group."),
        ("many", "GPUs 0-1, 2-3, 4-5, 6-7, 8-9 form close groups (PIX). All other traffic crosses the CPU's PCIe root "
                 "(PHB). A run on fewer GPUs is fastest within one group."),
        ("unread", "some links could not be read, so it is not known which GPUs are close."),
    ],
)  # fmt: skip
def test_the_matrix_is_read_aloud(name: str, sentence: str) -> None:
    found = MACHINES[name]
    assert topology.explain_matrix(found.gpus or (), topology.matrix(found)) == sentence


def drawn(snapshot: Snapshot, width: int) -> list[str]:
    stream = io.StringIO()
    screen = Screen(width, False, False, stream)
    screen.show(findings.topology(snapshot, screen))
    return stream.getvalue().splitlines()


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100])
@pytest.mark.parametrize("name", MACHINES)
def test_the_topology_fits_every_width(name: str, width: int) -> None:
    lines = drawn(MACHINES[name], width)
    assert [line for line in lines if len(line) > max(width, 32)] == []


@pytest.mark.parametrize("width", [40, 80, 100])
@pytest.mark.parametrize("name", ["nvswitch", "pcie", "cube"])
def test_every_pair_is_in_the_matrix_once(name: str, width: int) -> None:
    table = topology.matrix(MACHINES[name])
    cells: dict[str, list[str]] = {}
    for line in topology.matrix_lines(MACHINES[name].gpus or (), table, width):
        label, *rest = line.split() or [""]
        if label.startswith("GPU") and rest and not rest[0].startswith("GPU"):
            cells.setdefault(label, []).extend(
                cell for cell in rest if cell == "-" or cell.startswith("NV") or cell.isupper()
            )
    assert [found[: len(table)] for found in cells.values()] == table


def test_which_gpu_is_which() -> None:
    first, second, *_ = topology.address_lines(MACHINES["pcie"], 80)
    assert first.split() == ["GPU", "UUID", "PCI", "NUMA", "near"]
    assert second.split() == ["0", known.uuid(0), "0000:1a:00.0", "0", "PIX", "mlx5_0"]
    assert topology.address_lines(MACHINES["pcie"], 40)[:3] == [
        "GPU0  0000:1a:00.0  NUMA 0", known.uuid(0), "near PIX mlx5_0",
    ]  # fmt: skip
    nothing = Snapshot(gpus=(known.lost(0),), links=())
    assert topology.address_lines(nothing, 80)[1].split() == ["0", "?", "?", "-"]
    assert topology.nics(Snapshot(gpus=known.gpus(1)), known.gpu(0)) == []


def test_a_report_of_thousands_of_findings() -> None:
    found = [
        Problem(
            f"key {number} is unknown", "DeepSpeed stops", Fix("Delete it."), place=Place("a.json", 1, 1, f"k{number}")
        )
        for number in range(6000)
    ]
    outcomes = [engine.Outcome(CHECKS["deepspeed_zero_key_unknown"], one, 0.0) for one in found]
    begin = time.process_time()
    lines = findings.problems(outcomes, Screen(80, False, False, io.StringIO()), command="", show_all=True)
    assert time.process_time() - begin < 20  # under a second; if each is compared with all others, minutes
    assert sum("is unknown" in "".join(text for text, _ in line) for line in lines) == 6000


def test_the_trace_and_the_evidence_are_for_verbose_screens() -> None:
    def broken() -> Answer:
        return Ok("")

    crashed = engine.Outcome(Check(broken, Severity.ERROR, "x"), Crash("ValueError: y", "Traceback\n  line"), 0.0)
    found = Problem("x", "y", Fix("z"), {"path": "/dev/shm"})
    wrong = engine.Outcome(Check(broken, Severity.ERROR, "x"), found, 0.0)
    for verbose in (True, False):
        stream = io.StringIO()
        screen = Screen(80, False, False, stream)
        screen.show(findings.problems([crashed, wrong], screen, command="mgpu doctor", show_all=True, verbose=verbose))
        assert ("Traceback" in stream.getvalue()) is verbose
        assert ("path = /dev/shm" in stream.getvalue()) is verbose


@pytest.mark.parametrize(("items", "said"), [((), ""), ((0,), "0"), ((0, 2), "0 and 2"), ((0, 1, 3), "0, 1 and 3")])
def test_a_list_in_words(items: tuple[int, ...], said: str) -> None:
    assert listed(items) == said
    assert listed(items, "or") == said.replace("and", "or")


def test_numbers_with_their_noun() -> None:
    assert [counted(number, "GPU") for number in (0, 1, 2)] == ["0 GPUs", "1 GPU", "2 GPUs"]
    assert counted(2, "process", "processes") == "2 processes" and plural(1, "tells", "tell") == "tells"
