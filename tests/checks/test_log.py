"""checks/log: each signature fires on its samples, and on nothing else.

The cases are made of the tables: the real reader reads all samples, one a line, and each check is asked of what it saw.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from mgpu import engine
from mgpu.engine import root_cause
from mgpu.readers.log import prefilter, read, row_matching
from mgpu.signature import Case as RowCase
from mgpu.signature import Row, Signature
from mgpu.snapshot import Log
from tests.checks.facts import Case, fails, log, problem, well
from tests.conftest import AREAS, CHECKS, ROOT

ROWS = tuple(row_matching.signature_rows())
CAUSES = tuple(row for row in ROWS if row.makes_check)
READER = row_matching.Signatures(ROWS)
LEAST = 150  # signatures besides noise
LOGS = ROOT / "tests" / "logs" / "healthy"
RECORDED = ROOT / "tests" / "logs" / "recorded.txt"
HEALTHY = (
    *sorted(LOGS.glob("*.log")),
    *sorted(path for path in (ROOT / "tests" / "nccl_logs").iterdir() if not path.name.startswith("warn_")),
)


def seen_in(*lines: str) -> Log:
    """What the reader makes of a log of these lines."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.log"
        path.write_text("\n".join(lines) + "\n", "utf-8")
        return read.read_logs([path])


def _log_of(row: Row) -> Log:
    return _seen_alone().get(row.id, log())


def _meaning(row: Row) -> Row | RowCase:
    """What a row means in the log of its first sample alone."""
    found = _log_of(row)
    return next((one for one in row.cases if one.when(found, None)), row)


def _first_words(row: Row | RowCase) -> str:
    """What the title says before its first group."""
    return row.title.partition("{")[0]


def _a_fix(row: Row | RowCase) -> str:
    fix = row.fix[0] if isinstance(row.fix, tuple) else row.fix
    return re.split(r"\{|ORG/MODEL|PATH|HOST", fix.commands[0] if fix.commands else fix.text)[0]  # filled from the line


@cache
def _seen_alone() -> dict[str, Log]:
    """The log of the first sample of each row, without anything of the other rows' samples, as a case of a row (`Case`)
    must not apply."""
    found = seen_in(*(row.samples[0] for row in CAUSES))
    alone = log(size_bytes=found.size_bytes, lines=found.lines)
    return {seen.signature: replace(alone, seen=(replace(seen, survived=False),)) for seen in found.seen}


@cache
def _cases() -> tuple[Case, ...]:
    return tuple(
        case
        for row in CAUSES
        for case in (
            fails(row.id, _first_words(_meaning(row)), _a_fix(_meaning(row)), log=_log_of(row)),
            well(row.id, "not in 60 lines of 1 log"),
        )
    )


def __getattr__(name: str) -> tuple[Case, ...]:
    """CASES, as in the other files: not made where tests are only collected."""
    if name == "CASES":
        return _cases()
    raise AttributeError(name)


@pytest.mark.parametrize("row", CAUSES, ids=lambda row: row.id)
def test_each_sample_is_read_as_this_and_as_nothing_else(row: Row) -> None:
    for sample in row.samples:
        assert READER.match_text(sample) == (row.id,), sample


def test_texts_that_were_recorded_here_are_known() -> None:
    """Lines that torch, accelerate and the launchers really wrote, each with its signature."""
    recorded = [line.split("\t", 1) for line in RECORDED.read_text("utf-8").splitlines() if not line.startswith("#")]
    assert len(recorded) > 50
    assert [line for name, line in recorded if READER.match_text(line) != (name,)] == []


def test_each_kind_of_failure_that_people_report_has_its_cause() -> None:
    lines = (ROOT / "tests" / "logs" / "patterns.txt").read_text("utf-8").splitlines()
    known = [line.split("\t", 1) for line in lines if not line.startswith("#")]
    assert len(known) == 163
    for wanted, line in known:
        first = root_cause.find_cause(seen_in(line), None).first
        assert (first.id if first else "-") == wanted, line


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.name)
def test_nothing_fires_on_the_log_of_a_healthy_run(path: Path) -> None:
    found = read.read_logs([path])
    assert found.lines > 1
    causes = {row.id for row in CAUSES}
    assert [(one.signature, one.line, one.text) for one in found.seen if one.signature in causes] == []
    assert root_cause.find_cause(found, None).first is None


@pytest.mark.parametrize(
    "name, causes",
    [
        ("warn_shm_full.txt", ["log_shm_full_for_nccl", "log_nccl_peer_gone"]),
        ("warn_ib_completion.txt", ["log_ib_flushed"]),
    ],
)
def test_published_logs_of_nccl_that_failed(name: str, causes: list[str]) -> None:
    found = read.read_logs([ROOT / "tests" / "nccl_logs" / name])
    assert [one.signature for one in found.seen if one.signature not in READER.noise] == causes


def test_the_problem_tells_the_line_the_rank_and_the_groups() -> None:
    found = problem(
        "log_main_port_taken",
        log=seen_in(
            "starting",
            "[rank3]: ConnectionError: Tried to launch distributed communication on port `29512`, but another "
            "process is utilizing it.",
        ),
    )
    assert found.title == "port 29512 of the main node is already in use"
    assert found.place is not None and (Path(found.place.file).name, found.place.line) == ("run.log", 2)
    assert found.evidence["rank"] == 3 and "29512" in str(found.evidence["line"])
    assert any("sport = :29512" in command for fix in found.fixes for command in fix.commands)


@pytest.mark.parametrize("role", ["root", "secondary", "wrapper", "noise", "context"])
def test_every_role_has_rows(role: str) -> None:
    assert [row.id for row in ROWS if row.role == role]


def test_there_are_many_and_each_stands_once() -> None:
    ids = [row.id for row in ROWS]
    assert len(ids) == len(set(ids))
    assert len(CAUSES) >= LEAST
    assert {row.id for row in CAUSES} == {check.id for check in engine.load() if isinstance(check, Signature)}


def test_noise_is_known_by_each_of_its_samples() -> None:
    for row in ROWS:
        if row.role == "noise":
            assert [sample for sample in row.samples if READER.match_text(sample) != (row.id,)] == [], row.id


def test_a_pattern_names_what_must_stand_in_its_lines() -> None:
    """Else every line of a gigabyte would be searched with it."""
    assert [row.id for row in ROWS if not prefilter.required_texts(row.pattern)] == []


def test_every_named_group_is_told_and_every_told_one_is_there() -> None:
    for row in CAUSES:
        fixes = row.fix if isinstance(row.fix, tuple) else (row.fix,)
        told = " ".join((row.title, row.why, *(text for fix in fixes for text in (fix.text, *fix.commands))))
        groups = set(re.compile(row.pattern).groupindex)
        named = set(re.findall(r"(?<!\{)\{(\w+)(?::\w+)?\}", told)) - {"the_traceback"}
        by_function = row.explain or row.explain_in  # which can use more of them
        assert named <= groups if by_function else named == groups, row.id
        for sample in row.samples:
            matched = re.search(row.pattern, sample)
            assert matched and None not in matched.groupdict().values(), (row.id, sample)


def test_no_text_points_to_a_traceback_that_the_log_may_not_have() -> None:
    """Only `{the_traceback}` does, which says whether the log has it. Other texts are about what a run prints later."""
    points = re.compile(r"\b(?:the|its|first) (?:original |whole |first )?traceback\b|\b(?:last|innermost) frames?\b")
    other_run = re.compile(
        r"[Ww]ithout workers|without its traceback|traceback (?:on|unless|then)\b|no Python|print the|{the_traceback}"
    )
    for row in CAUSES:
        meanings: tuple[Row | RowCase, ...] = (row, *row.cases)
        for one in meanings:
            fixes = one.fix if isinstance(one.fix, tuple) else (one.fix,)
            told = [one.title, one.why, *(fix.text for fix in fixes)]
            assert [text for text in told if points.search(text) and not other_run.search(text)] == [], row.id


def test_a_traceback_is_said_to_be_missing_if_it_is() -> None:
    line = "AttributeError: `np.float_` was removed in the NumPy 2.0 release."
    frames = ("Traceback (most recent call last):", '  File "/home/ada/train.py", line 3, in main', "    np.float_(1)")
    for shown, said in (
        ((line,), "the traceback (not in this log) names it"),
        ((*frames, line), "(the traceback names it)"),
    ):
        assert any(said in fix.text for fix in problem("log_numpy_name_dropped", log=seen_in(*shown)).fixes)


def test_a_fix_that_names_a_check_names_one_that_there_is() -> None:
    for row in CAUSES:
        fixes = row.fix if isinstance(row.fix, tuple) else (row.fix,)
        for command in (command for fix in fixes for command in fix.commands):
            for names in re.findall(r"--only ([\w,]+)", command):
                assert set(names.split(",")) <= {*CHECKS, *AREAS}, (row.id, command)


@pytest.mark.parametrize(
    "old, new",
    [
        ("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000",
         "NCCL WARN Multiple Ranks are using the same GPU/Partition."),
        ("RuntimeError: CUDA out of memory. Tried to allocate 2 MiB", "torch.OutOfMemoryError: CUDA out of memory."),
        ("The client socket has timed out after 60s while trying to connect to (10.0.0.1, 29500).",
         "The client socket has timed out after 60000ms while trying to connect to (10.0.0.1, 29500)."),
        ("NET/IB : Got completion from peer 10.0.0.2<1> with error 12, opcode 0, len 0, vendor err 129",
         "NET/IB: Got completion from peer 10.0.0.2<1> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=x"),
        ("DistributedDataParallel is not needed when a module doesn't have any parameters that require a gradient.",
         "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient."),
        ("error: argument --num_processes: invalid int value: 'auto'",
         "error: argument --num_processes/--num-processes: invalid int value: 'auto'"),
        ("RuntimeError: Address already in use", "DistNetworkError: port: 29500, useIpv6: 0, code: -98, name: "
                                                 "EADDRINUSE"),
        ("slurmstepd: error: Exceeded job memory limit at some point.",
         "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0."),
    ],
)  # fmt: skip
def test_a_text_that_changed_between_versions_is_known_in_both_forms(old: str, new: str) -> None:
    assert len(READER.match_text(old)) == 1
    assert READER.match_text(old) == READER.match_text(new)


@pytest.mark.parametrize(
    ("processes", "found"),
    [
        ("Process 2112997 has 78.1 GiB memory in use. ", "log_gpu_memory_full"),  # in a container: itself
        ("Including non-PyTorch memory, this process has 78.1 GiB memory in use. ", "log_gpu_memory_full"),
        ("Process 7 has 60.0 GiB memory in use. Process 8 has 18.1 GiB memory in use. ", "log_gpu_memory_taken"),
        ("Process 7 has 60.0 GiB memory in use. Including non-PyTorch memory, this process has 18.1 GiB memory in "
         "use. ", "log_gpu_memory_taken"),
        ("Including non-PyTorch memory, this process has 18.1 GiB memory in use. Process 7 has 60.0 GiB memory in "
         "use. ", "log_gpu_memory_taken"),
    ],
)  # fmt: skip
def test_a_gpu_is_somebody_elses_only_where_there_are_two(processes: str, found: str) -> None:
    line = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 "
        f"GiB of which 1.00 GiB is free. {processes}Of the allocated memory 75.00 GiB is allocated by PyTorch"
    )
    assert READER.match_text(line) == (found,)


@pytest.mark.parametrize(
    "line",
    [
        "OSError: [Errno 28] No space left on device: '/data/out/model.bin'",
        "NCCL WARN Error: failed to extend /dev/shm/nccl-WU88OE to 9 bytes, error: No space left on device (28)",
        "RuntimeError: unable to write to file </torch_4711_2_3>: No space left on device (28)",
    ],
)
def test_a_full_disk_a_full_shm_and_full_loaders_are_told_apart(line: str) -> None:
    (found,) = READER.match_text(line)
    assert (
        found
        == {"/data": "log_disk_full", "nccl-": "log_shm_full_for_nccl", "torch_": "log_loader_out_of_shm"}[
            next(word for word in ("nccl-", "torch_", "/data") if word in line)
        ]
    )


@pytest.mark.parametrize("row", [row for row in ROWS if row.cases], ids=lambda row: row.id)
def test_a_case_is_the_first_cause_of_its_own_sample(row: Row) -> None:
    for case in row.cases:
        log = seen_in(*case.sample.splitlines())
        found = problem(row.id, log=log)
        told = re.escape(case.why).replace("\\{", "{").replace("\\}", "}")
        remark = "(?: .*)?" if row.remark else r"(?: (?:Both|All \d+) ranks on \w+ report it.*)?"
        assert re.fullmatch(re.sub(r"{\w+}", ".+", told) + remark, found.cause, re.DOTALL), (case.title, found.cause)
        first = root_cause.find_cause(log, None).first
        assert first is not None and first.outcome.check.id == row.id, case.title
