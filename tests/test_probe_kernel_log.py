"""The probe of the kernel's log, on recorded lines, on logs nobody may read, and on this machine's own."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgpu import engine
from mgpu.check import Problem
from mgpu.probes import KERNEL_LOG, gather, kernel_log
from mgpu.snapshot import KernelEvent, KernelLog, Snapshot
from tests.checks.facts import facts
from tests.conftest import CHECKS

NOW = 10_000.0
HOURS_AGO = 3600.0
# Lines as drivers and kernels write them: gpud's test data, NVIDIA's Xid documents, issue threads (2012 to 2026).
FELL = "NVRM: Xid (PCI:0000:1a:00): 79, pid=4711, name=python, GPU has fallen off the bus."
XIDS = {
    FELL: (79, "0000:1a:00", "python (pid 4711)"),
    "NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.": (
        79, "0000:05:00", None),
    "NVRM: Xid (0000:03:00): 14, Channel 00000001": (14, "0000:03:00", None),
    "NVRM: Xid (PCI:0000:10:1c): 31, pid=1896, name=python, Ch 00000008, intr 00000000. MMU Fault": (
        31, "0000:10:1c", "python (pid 1896)"),
    "NVRM: Xid (PCI:0000:10:1c): 13, pid=1896, Graphics Exception: ESR 0x504648": (
        13, "0000:10:1c", "a process (pid 1896)"),
    "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 31, pid=7, name=a b, MMU Fault": (31, "0000:01:00", "a b (pid 7)"),
    "NVRM: Xid (PCI:0018:01:00): 145, pid=876767, name=ray::WorkerDict, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x04)": (
        145, "0018:01:00", "ray::WorkerDict (pid 876767)"),
    "NVRM: Xid (PCI:0009:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)": (
        154, "0009:01:00", None),
    "NVRM: GPU 0000:29:00.0: GPU has fallen off the bus.": (79, "0000:29:00.0", None),
}  # fmt: skip
OTHERS = {
    "nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Fatal, Link 30 LTSSM Fault Up": ("sxid", 20034, "0000:a9:00.0"),
    "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)": (
        "sxid", 12028, "0000:05:00.0"),
    "Out of memory: Killed process 123 (httpd) total-vm:1kB, anon-rss:1kB": ("oom", None, None),
    "Out of memory: Killed process 123, UID 48, (httpd).": ("oom", None, None),
    "Memory cgroup out of memory: Killed process 4711 (python) total-vm:99000000kB": ("oom", None, None),
    "pci 0000:1a:00.0: 31.504 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x4 link at 0000:00:1c.0 "
    "(capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)": ("pcie", None, "0000:1a:00.0"),
    "mlx5_core 0000:5c:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link at 0000:5b:00.0 "
    "(capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)": ("pcie", None, "0000:5c:00.0"),
    "nvidia 0000:1a:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Requester ID)": (
        "aer", None, "0000:1a:00.0"),
    "pcieport 0000:17:00.0: AER: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Data Link Layer": (
        "aer", None, "0000:17:00.0"),
    "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0": ("mce", None, None),
    "INFO: task jfsmount:136986 blocked for more than 120 seconds.": ("hung_task", None, None),
    "watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [python3:2254956]": ("hung_task", None, None),
    "md/raid0md0: Disk failure on nvme0n1p1 detected, failing array.": ("disk", None, None),
    "EXT4-fs (md0): Remounting filesystem read-only": ("disk", None, None),
    "block nvme0n1: no available path - failing I/O": ("disk", None, None),
    "nvme nvme4: I/O tag 22 (2016) opcode 0x2 (Admin Cmd) QID 0 timeout, reset controller": ("disk", None, None),
    "nvme nvme4: Disabling device after reset failure: -19": ("disk", None, None),
    "kworker/u203:1: attempt to access beyond end of device": ("disk", None, None),
    "Buffer I/O error on dev dm-0, logical block 1308098575, lost async page write": ("disk", None, None),
    "EXT4-fs (dm-0): I/O error while writing superblock": ("disk", None, None),
    "blk_update_request: I/O error, dev sda, sector 2048 op 0x0:(READ)": ("disk", None, None),
    "nfs: server 10.1.2.3 not responding, still trying": ("disk", None, None),
    "mlx5_core 0000:5c:00.0: mlx5_pcie_event:299:(pid 9): Detected insufficient power on the PCIe slot (27W).": (
        "nic", None, "0000:5c:00.0"),
    "mlx5_port_module_event:1131:(pid 0): Port module event[error]: module 0, Cable error, High Temperature": (
        "nic", None, None),
    "mlx5_core 0000:5c:00.0 eth2: Link down": ("nic", None, "0000:5c:00.0"),
    "mlx5_core 0000:5c:00.0: device's health compromised - reached miss count": ("nic", None, "0000:5c:00.0"),
    "NVRM: GPU 0000:1a:00.0: RmInitAdapter failed! (0x26:0xffff:1474)": ("driver", None, "0000:1a:00.0"),
    "NVRM: rm_init_adapter failed, device minor number 0": ("driver", None, None),
    "NVRM: The NVIDIA probe routine failed for 1 device(s).": ("driver", None, None),
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64 570.158.01 Release Build": ("driver", None, None),
    "Loading of unsigned module is rejected": ("driver", None, None),
}  # fmt: skip
NOTHING = (
    "nvidia: module verification failed: signature and/or required key missing - tainting kernel",
    "nvidia 0000:1a:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
    "mce: [Hardware Error]: Machine check events logged",
    "mlx5_cmd_out_err:838:(pid 1441871): ACCESS_REG(0x805) op_mod(0x1) failed, status bad resource(0x5)",
    "Buffer I/O error on dev sr0, logical block 0, async page read",
    "I/O error, dev fd0, sector 0 op 0x0:(READ) flags 0x0",
    "NVRM: Xid (invalid): some error",
    "NVRM: Xid error: xyz, invalid data",
    "NVRM: GPU at PCI:0000:03:00: GPU-b850f46d-d5ea-c752-ddf3-c4453e44d3f7",
    "mlx5_core 0000:5c:00.0 eth2: Link up",
    "oom_reaper: reaped process 345646 (vector), now anon-rss:0kB",
    "Memory: 32650736K/33553908K available",
    "",
)


def record(text: str, seconds: float = NOW - 120.0, priority: int = 4, number: int = 1) -> str:
    return f"{priority},{number},{int(seconds * 1e6)},-;{text}\n"


def read(folder: Path, *lines: str, **arguments: Any) -> KernelLog:
    """What the child makes of a log of these lines, 120 s after each was written."""
    file = folder / "kmsg"
    file.write_text("".join(lines), "utf-8", errors="surrogateescape")
    return known(asked(kmsg=str(file), **arguments))


def asked(deadline_s: float = 30.0, **arguments: Any) -> Snapshot:
    given = {"journalctl": "/nonexistent", "now_s": NOW, "gpus": "/nonexistent", **arguments}
    return gather([replace(KERNEL_LOG, arguments=given, deadline_s=deadline_s)])


def known(snapshot: Snapshot) -> KernelLog:
    assert snapshot.kernel_log is not None, snapshot.gaps
    return snapshot.kernel_log


def firing(log: KernelLog) -> dict[str, Problem]:
    """What the checks find on a healthy machine with this log."""
    checks = [check for check in CHECKS.values() if "kernel_log" in check.facts]
    outcomes = engine.run(checks, Snapshot(**facts(kernel_log=log)))
    return {o.check.id: o.problem for o in outcomes if o.problem}


# ---- recorded lines


def test_every_form_of_an_xid_is_read(tmp_path: Path) -> None:
    log = read(tmp_path, *(record(text) for text in XIDS))
    assert log.origin == "/dev/kmsg"
    found = {event.text: (event.code, event.pci, event.process) for event in log.events}
    assert found == XIDS
    assert {event.kind for event in log.events} == {"xid"}
    assert {event.seconds_ago for event in log.events} == {120.0}


def test_other_events_are_read(tmp_path: Path) -> None:
    log = read(tmp_path, *(record(text) for text in OTHERS))
    assert {event.text: (event.kind, event.code, event.pci) for event in log.events} == OTHERS
    processes = {event.process for event in log.events}
    assert {"httpd (pid 123)", "python (pid 4711)", "jfsmount (pid 136986)", "python3 (pid 2254956)"} <= processes


def test_what_does_not_matter_is_left_out(tmp_path: Path) -> None:
    assert read(tmp_path, *(record(text) for text in NOTHING)).events == ()


def test_a_gpu_is_named_by_its_place_on_the_bus(tmp_path: Path) -> None:
    for address in ("0000:1a:00.0", "0000:03:00.0", "0009:01:00.0", "nonsense"):
        (tmp_path / "gpus" / address).mkdir(parents=True)
    log = read(tmp_path, *(record(text) for text in XIDS), gpus=str(tmp_path / "gpus"))
    places = {event.pci: event.gpu for event in log.events}
    assert places["0000:03:00"] == 0 and places["0000:1a:00"] == 1 and places["0009:01:00"] == 2
    assert places["0000:05:00"] is None


def test_messages_of_several_lines(tmp_path: Path) -> None:
    fell = ("The NVIDIA GPU 0000:b3:00.0", "(PCI ID: 10de:26b5) installed in this system has",
            "fallen off the bus and is not responding to commands.")  # fmt: skip
    apart = [record(f"NVRM: {line}") for line in fell]
    together = record("\\x0a".join(f"NVRM: {line}" for line in fell))
    for lines in (apart, [together]):
        (event,) = read(tmp_path, *lines).events
        assert (event.kind, event.code, event.pci) == ("xid", 79, "0000:b3:00.0")
    client = "NVRM: API mismatch: the client has the version 470.57.02, but"
    module = "NVRM: this kernel module has the version 470.74.  Please"
    for lines in ([record(client), record(module)], [record(f"{client}\\x0a{module}")]):
        (event,) = read(tmp_path, *lines).events
        assert event.kind == "driver" and "470.57.02" in event.text and "470.74" in event.text


def test_lines_that_a_program_wrote_do_not_count(tmp_path: Path) -> None:
    """Root may write anything into /dev/kmsg; the kernel gives it another facility than its own."""
    assert read(tmp_path, record(FELL, priority=12), record("hello")).events == ()
    assert len(read(tmp_path, record(FELL, priority=4), record("hello")).events) == 1


def test_additions_to_a_record_are_no_records(tmp_path: Path) -> None:
    additions = " SUBSYSTEM=pci\n DEVICE=+pci:0000:1a:00.0\n"
    (event,) = read(tmp_path, record(FELL), additions, f" {record(FELL)}").events
    assert event.code == 79


def test_a_log_that_is_cut_and_spoiled(tmp_path: Path) -> None:
    spoiled = "no semicolon\n;\n,,,;NVRM\nx,y,z;NVRM: Xid (PCI:0000:1a:00): 79\n4,1,\udcff2,-;\udcff\n\0\n"
    log = read(tmp_path, spoiled, record("first", 100.0), record(f"NVRM: Xid (PCI:0000:1a:00): {'9' * 5000}, x"),
               record(FELL), "4,1,9880000000,-;NVRM: Xid (PCI:0000:1b:00): 48, pid=1, name=a, cut")  # fmt: skip
    assert [event.code for event in log.events] == [79, 48]
    assert log.since_s == NOW - 100.0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([*XIDS, *OTHERS, *NOTHING]) | st.text(max_size=60), max_size=8), st.data())
def test_any_damage_to_a_log_leaves_a_log(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], data: Any
) -> None:
    whole = "".join(record(text) for text in texts).encode("utf-8", "replace")
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.integers(0, max(0, len(whole) - 1)))
        whole = whole[:place] + data.draw(st.binary(max_size=3)) + whole[place + data.draw(st.integers(0, 40)) :]
    file = tmp_path_factory.getbasetemp() / "damaged"
    file.write_bytes(whole)
    *_, last = kernel_log.probe(kmsg=str(file), journalctl="/nonexistent", gpus="/nonexistent", now_s=NOW)
    assert set(last) in ({"kernel_log"}, {"gap"})


def test_a_storm_does_not_hide_a_rare_event_nor_take_long(tmp_path: Path) -> None:
    storm = "NVRM: Xid (PCI:0000:1b:00): 31, pid=1, name=python, Ch 00000008"
    lines = [record(FELL, 10.0), *(record(storm, 11.0 + n / 100) for n in range(40_000))]
    started = time.monotonic()
    log = read(tmp_path, *lines)
    assert time.monotonic() - started < 20
    codes = [event.code for event in log.events]
    assert codes[0] == 79 and codes.count(31) == 20
    assert log.events[-1].seconds_ago == pytest.approx(NOW - 11.0 - 39_999 / 100, abs=0.1)


def test_texts_are_bounded(tmp_path: Path) -> None:
    (event,) = read(tmp_path, record(FELL + "x" * 5000)).events
    assert len(event.text) == 240


# ---- logs nobody may read


def gap(snapshot: Snapshot) -> str:
    assert snapshot.kernel_log is None
    assert snapshot.gaps["kernel_log"].kind == "no_permission"
    return snapshot.gaps["kernel_log"].reason


def test_unreadable_is_unknown_and_names_the_command(tmp_path: Path) -> None:
    reason = gap(asked(kmsg=str(tmp_path / "missing")))
    assert 'sudo dmesg -T | grep -E "NVRM|Xid"' in reason
    snapshot = Snapshot(**facts(kernel_log=None), gaps=asked(kmsg=str(tmp_path / "missing")).gaps)
    for check in CHECKS.values():
        if "kernel_log" in check.facts:
            (outcome,) = engine.run_check(check, snapshot)
            assert outcome.status == "skip" and not outcome.unsettling and "sudo dmesg" in str(outcome.answer)


@pytest.mark.parametrize("kind", ["empty", "folder", "fifo", "null", "tty"])
def test_what_is_not_the_kernels_log_is_not_taken_for_it(kind: str, tmp_path: Path) -> None:
    """Containers put other things in the place of /dev/kmsg: nothing, /dev/null, a console. None may block, either."""
    path = tmp_path / "kmsg"
    if kind == "empty":
        path.touch()
    elif kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/null" if kind == "null" else "/dev/tty")
    assert "no permission to read" in gap(asked(kmsg=str(path), deadline_s=5.0))


def program(path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_the_journal_is_read_where_kmsg_is_closed(tmp_path: Path) -> None:
    lines = ["[    0.000000] node7 kernel: Linux version 6.8.0", f"[ 9880.000000] node7 kernel: {FELL}",
             "                              continued", "[ 9881.0] node7 systemd[1]: NVRM: Xid (PCI:0000:1b:00): 48, x",
             "-- Boot 0123 --"]  # fmt: skip
    (tmp_path / "lines").write_text("\n".join(lines))
    journal = program(tmp_path / "journalctl", f'echo "$@" > {tmp_path}/asked; cat {tmp_path}/lines')
    log = known(asked(kmsg="/nonexistent", journalctl=journal))
    assert log.origin == "journal" and log.since_s == NOW
    assert [(event.code, event.seconds_ago) for event in log.events] == [(79, 120.0)]
    assert "-k -b" in (tmp_path / "asked").read_text()


@pytest.mark.parametrize("body", ["exit 0", "exit 1", "echo 'No journal files were found.' >&2; exit 1",
                                  "echo '-- No entries --'", "head -c 3000 /dev/urandom"])  # fmt: skip
def test_a_journal_that_shows_nothing_is_unreadable(body: str, tmp_path: Path) -> None:
    journal = program(tmp_path / "journalctl", body)
    assert "no permission to read" in gap(asked(kmsg="/nonexistent", journalctl=journal))


def test_a_journal_that_hangs_costs_its_own_fact_only(tmp_path: Path) -> None:
    journal = program(tmp_path / "journalctl", "sleep 60")
    started = time.monotonic()
    snapshot = asked(kmsg="/nonexistent", journalctl=journal, deadline_s=1.0)
    assert time.monotonic() - started < 10
    assert snapshot.gaps["kernel_log"].kind == "timed_out"
    assert "kernel log in journal" in snapshot.gaps["kernel_log"].reason


# ---- the whole way: line to verdict


def verdict(folder: Path, lines: Sequence[str], seconds_ago: float = 120.0) -> dict[str, Problem]:
    return firing(read(folder, *(record(text, NOW - seconds_ago) for text in lines)))


def test_a_clean_log_finds_nothing(tmp_path: Path) -> None:
    assert verdict(tmp_path, NOTHING) == {}


@pytest.mark.parametrize("code", [13, 31, 43])
def test_the_users_own_crash_is_told_and_no_fault(code: int, tmp_path: Path) -> None:
    found = verdict(tmp_path, [f"NVRM: Xid (PCI:0000:10:1c): {code}, pid=1896, name=python, Ch 00000008",
                               "NVRM: Xid (PCI:0000:10:1c): 45, pid=1896, name=python, Ch 00000010"])  # fmt: skip
    assert set(found) == {"xid_program_crashed"}
    assert "700" in found["xid_program_crashed"].cause
    assert "compute-sanitizer" in " ".join(found["xid_program_crashed"].fixes[0].commands)


def test_what_stands_behind_a_stuck_watchdog(tmp_path: Path) -> None:
    """ "Heartbeat monitor timed out": the watchdog hangs in the driver, which waits for the GPU's firmware."""
    found = verdict(
        tmp_path, ["NVRM: Xid (PCI:0000:1a:00): 119, pid=4711, name=python, Timeout waiting for RPC from GSP!"]
    )
    assert set(found) == {"xid_firmware_crashed"}
    assert "heartbeat monitor" in found["xid_firmware_crashed"].cause


def test_a_killed_rank(tmp_path: Path) -> None:
    line = "Memory cgroup out of memory: Killed process 4711 (python) total-vm:99000000kB, anon-rss:64000000kB"
    found = verdict(tmp_path, [line])
    assert set(found) == {"oom_killer_struck"}
    assert "exits with code -9" in found["oom_killer_struck"].cause
    assert found["oom_killer_struck"].title.startswith("python (pid 4711)")
    assert "sbatch --mem=0 ..." in found["oom_killer_struck"].fixes[0].commands


def test_a_link_with_too_few_lanes(tmp_path: Path) -> None:
    (tmp_path / "gpus" / "0000:1a:00.0").mkdir(parents=True)
    line = next(text for text in OTHERS if text.startswith("pci 0000:1a"))
    found = firing(read(tmp_path, record(line, 1.0), gpus=str(tmp_path / "gpus")))
    assert set(found) == {"pcie_bandwidth_limited"}
    assert "x4 link at 0000:00:1c.0 instead of x16" in found["pcie_bandwidth_limited"].title


def test_every_serious_line_is_told_whatever_else_is_not_known(tmp_path: Path) -> None:
    """NVML hangs on a GPU that fell off the bus: the log alone must be enough to say so."""
    log = read(tmp_path, record(FELL))
    (outcome,) = engine.run_check(CHECKS["xid_gpu_fell_off_bus"], Snapshot(kernel_log=log))
    assert outcome.problem is not None and "GPU has fallen off the bus" in outcome.problem.title


# ---- this machine


def test_on_this_machine() -> None:
    snapshot = gather([KERNEL_LOG])
    log = snapshot.kernel_log
    if log is None:
        assert snapshot.gaps["kernel_log"].kind == "no_permission"
        return
    assert log.since_s is not None and log.since_s > 0
    assert all(isinstance(event, KernelEvent) and re.search(r"\S", event.text) for event in log.events)
    if log.origin == "/dev/kmsg":
        assert stat.S_ISCHR(os.stat("/dev/kmsg").st_mode)
