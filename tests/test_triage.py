"""Is a log read right, whatever is in it, and is the first cause chosen among many? No training runs here.

What each signature matches is asked in tests/checks; here the reading, the order of causes and the report.
"""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mgpu import errors
from mgpu.check import Fix
from mgpu.engine import root_cause
from mgpu.errors import MgpuError
from mgpu.launch import report as launch_report
from mgpu.readers.log import opening, prefilter, read, row_matching, tracebacks
from mgpu.readers.log.line import parse_line
from mgpu.report import failure
from mgpu.report import screen as report_screen
from mgpu.signature import Row
from mgpu.snapshot import EndedRank, Log, Run
from tests.conftest import Run as Command
from tests.test_schema import fits

FULL = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 5 has a total capacity of 79.10 GiB"


def row(name: str, pattern: str, role: Any = "root") -> Row:
    return Row(name, role, "cuda", pattern, (), "title", "why", Fix("fix"), "measured here 2026-11")


ROWS = (
    row("full", r"CUDA out of memory(?:\. Tried to allocate (?P<size>[\d.]+ \w+))?"),
    row("port", r"[Aa]ddress already in use|errno: 98\b"),
    row("harmless", r"master_addr is only used for static", "noise"),
    row("word", r"static rdzv_backend"),
)

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A log with this text."""

    def made(text: str | bytes, name: str = "run.log") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return made


def chosen(log: Log, run: Run | None = None) -> tuple[str | None, Any]:
    """The id of the cause, and the document."""
    found = root_cause.find_cause(log, run)
    return (found.first.id if found.first else None), failure.triage_document(found, log, run)


def traceback(error: str, rank: int | None = None, place: str = "/home/u/train.py", line: int = 41) -> str:
    text = f'Traceback (most recent call last):\n  File "{place}", line {line}, in main\n    step(batch)\n{error}\n'
    return text if rank is None else "".join(f"[rank{rank}]: {one}\n" for one in text.splitlines())


def table(*ranks: tuple[int, int], first: int) -> str:
    """torchrun's, of ranks and their exit codes."""

    def entry(number: int, rank: int, code: int) -> str:
        return (
            f"[{number}]:\n  time      : 2026-11-21_10:12:07\n  host      : node7\n  rank      : {rank} (local_rank: "
            f"{rank})\n  exitcode  : {code} (pid: {4000 + rank})\n  error_file: <N/A>\n  traceback : To enable it see\n"
        )

    codes = dict(ranks)
    others = "".join(entry(n, rank, code) for n, (rank, code) in enumerate(ranks, 1) if rank != first)
    return (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n====\ntrain.py FAILED\n----\nFailures:\n"
        f"{others}----\nRoot Cause (first observed failure):\n{entry(0, first, codes[first])}====\n"
    )


# Lines


@pytest.mark.parametrize(
    ("line", "rank", "at", "text"),
    [
        ("[rank3]:[E1121 10:12:01.408123456 ProcessGroupNCCL.cpp:607] [Rank 3] Watchdog", 3, "2026-11-21T10:12:01.408",
         "[Rank 3] Watchdog"),
        ("[rank3]: ValueError: x", 3, None, "ValueError: x"),
        ("[E ProcessGroupNCCL.cpp:475] [Rank 2] Watchdog", 2, None, "[Rank 2] Watchdog"),
        ("E1121 10:12:01.408000 4711 torch/distributed/elastic/multiprocessing/api.py:833] failed (exitcode: 1)", None,
         "2026-11-21T10:12:01.408", "failed (exitcode: 1)"),
        ("[2025-03-01 10:12:01,408] torch.distributed.run: [WARNING] hm", None, "2025-03-01T10:12:01.408", "hm"),
        ("[2025-03-01 10:12:01,408] [INFO] [logging.py:96:log_dist] [Rank 4] step=1", 4, "2025-03-01T10:12:01.408",
         "step=1"),
        ("[default5]:ValueError: x", 5, None, "ValueError: x"),
        ("11/21/2026 10:12:01 - INFO - __main__ - hm", None, "2026-11-21T10:12:01", "hm"),
        ("2026-11-21 10:12:01,408 - ERROR - my.module - hm", None, "2026-11-21T10:12:01.408", "hm"),
        ("node7:4711:4820 [3] NCCL WARN Error", 3, None, "NCCL WARN Error"),
        ("node7:4711:4820 [3] misc/shmutils.cc:72 NCCL WARN Error", 3, None, "NCCL WARN Error"),
        ("[2026-11-21 10:12:01] node7:4711:4820 [3] x.cc:7 NCCL WARN hm", 3, "2026-11-21T10:12:01", "NCCL WARN hm"),
        ("10.0.0.7: [rank9]: ValueError: x", 9, None, "ValueError: x"),
        ("\x1b[31m[rank1]: \x1b[1mValueError\x1b[0m: x", 1, None, "ValueError: x"),
        ("ValueError: [rank1]: is no prefix here", None, None, "ValueError: [rank1]: is no prefix here"),
        ("", None, None, ""),
    ],
)  # fmt: skip
def test_a_line_is_taken_apart(line: str, rank: int | None, at: str | None, text: str) -> None:
    found = parse_line(line, year=2026)
    assert (found.rank, found.at, found.text) == (rank, at, text)


def test_a_pattern_tells_what_must_stand_in_its_lines() -> None:
    assert prefilter.required_texts(r"CUDA out of\s+memory: \d+ bytes") == ("cudaoutofmemory:bytes",)
    several = prefilter.required_texts(r"EADDRINUSE|errno: 98\b|[Aa]ddress already")
    assert several == ("addressalready", "eaddrinuse", "errno:")
    assert prefilter.required_texts(r"(?:Port|Socket)? .*is taken by (\w+)") == ("istakenby",)
    assert prefilter.required_texts(r"\w+ \d+") == ()  # nothing is known: every line is searched


def test_every_row_can_be_left_out_quickly() -> None:
    rows = row_matching.signature_rows()
    assert len(rows) > 150
    for one in rows:
        texts = prefilter.required_texts(one.pattern)
        assert texts, one.id
        for sample in one.samples:
            shape = prefilter.shape(sample.encode()).decode()
            assert any(text in shape for text in texts), (one.id, sample)


def test_samples_amid_lines_that_are_all_different(write: Write) -> None:
    """Where thousands of lines are new, their words are looked at first: no signature may be lost by that."""
    rows = row_matching.signature_rows()
    samples = [one.samples[0] for one in rows]
    alone = read.read_logs([write("".join(f"{sample}\n" for sample in samples), "alone.log")], rows)
    chance = random.Random(3)
    lines = [" ".join("".join(chance.choices("aeinorst", k=6)) for _ in range(8)) for _ in range(4000)]
    for place, sample in enumerate(samples):
        lines.insert(place * 5, sample)
    amid = read.read_logs([write("\n".join(lines) + "\n", "amid.log")], rows)
    assert {seen.signature: seen.times for seen in amid.seen} == {seen.signature: seen.times for seen in alone.seen}


# Files


def test_signatures_with_their_rank_time_and_place(write: Write) -> None:
    log = read.read_logs([write(f"a\n[rank5]:[E1121 10:12:01.408 x.cpp:7] {FULL}\n[rank6]: {FULL}\n")], ROWS)
    (seen,) = log.seen
    assert (seen.signature, seen.line, seen.rank, seen.times, seen.ranks) == ("full", 2, 5, 2, (5, 6))
    assert seen.at is not None and seen.at.endswith("-11-21T10:12:01.408")
    assert seen.groups == {"size": "2.00 GiB"}
    assert (log.lines, log.ranks) == (3, (5, 6))


def test_a_line_of_noise_is_of_no_other_row(write: Write) -> None:
    log = read.read_logs([write("master_addr is only used for static rdzv_backend\n")], ROWS)
    assert [seen.signature for seen in log.seen] == ["harmless"]


def test_carriage_returns_begin_lines_and_do_not_count(write: Write) -> None:
    bars = "".join(f"\r{n}%|{'█' * (n // 9)}| {n}/100" for n in range(100))
    log = read.read_logs([write(f"start\n{bars}\rRuntimeError: {FULL}\nend\r\n")], ROWS)
    assert [(seen.line, seen.text.partition(":")[0]) for seen in log.seen] == [(2, "RuntimeError")]
    assert log.lines == 3


def test_colours_within_words(write: Write) -> None:
    log = read.read_logs([write(f"\x1b[31mCUDA \x1b[1mout of\x1b[0m memory\n{traceback('ValueError: x')}")], ROWS)
    assert [seen.text for seen in log.seen] == ["CUDA out of memory"]
    assert [(one.type, one.place) for one in log.raised] == [("ValueError", "train.py:41 in main")]


def test_a_line_without_an_end(write: Write) -> None:
    log = read.read_logs([write(b"x" * 5_000_000 + f"\n{FULL}\n".encode() + b"y" * 3_000_000)], ROWS)
    assert [(seen.signature, seen.line) for seen in log.seen] == [("full", 2)]
    assert log.size_bytes == 8_000_000 + len(FULL) + 2


def test_what_stands_across_the_pieces_of_a_large_file(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "_PIECE", 64)
    text = "".join(f"step {n} loss 0.{n}\n" for n in range(50)) + traceback("ValueError: bad", 3) + f"{FULL}\n"
    log = read.read_logs([write(text)], ROWS)
    assert [(one.type, one.line, one.rank) for one in log.raised] == [("ValueError", 54, 3)]
    assert [seen.line for seen in log.seen] == [55]


def test_a_file_a_rank(write: Write) -> None:
    paths = [write(traceback("ValueError: x") if n == 2 else "fine\n", f"rank{n}.log") for n in range(4)]
    log = read.read_logs(paths, ROWS)
    assert log.ranks == (0, 1, 2, 3)
    assert [(one.ranks, Path(one.file).name) for one in log.raised] == [((2,), "rank2.log")]


@pytest.mark.parametrize(
    ("name", "rank"),
    [("log_3.txt", 3), ("slurm-123_3.out", 3), ("attempt_0/3/stderr.log", 3), ("worker-12.err", 12), ("run.log", None),
     ("train-2026.log", None)],
)  # fmt: skip
def test_the_rank_in_a_files_name(name: str, rank: int | None) -> None:
    assert opening.rank_in_name(Path("runs", name)) == rank


def test_what_srun_labels(write: Write) -> None:
    lines = [f"{n % 4}: step {n}" for n in range(40)]
    lines += [f"2: {one}" for one in traceback("ValueError: x").splitlines()]
    log = read.read_logs([write("\n".join(lines) + "\n")], ROWS)
    assert [one.ranks for one in log.raised] == [(2,)]


def test_other_encodings_and_packed_files(write: Write, tmp_path: Path) -> None:
    utf16 = write(f"é\n{FULL}\n".encode("utf-16"), "windows.log")
    packed = tmp_path / "run.log.gz"
    packed.write_bytes(gzip.compress(f"{FULL}\n".encode()))
    latin = write(f"\xe9\xe8\n{FULL}\n".encode("latin-1"), "latin.log")
    for path in (utf16, packed, latin):
        assert [seen.signature for seen in read.read_logs([path], ROWS).seen] == ["full"], path


def test_what_cannot_be_read_is_said(write: Write, tmp_path: Path) -> None:
    broken = write(gzip.compress(b"x" * 10_000)[:40], "cut.log.gz")
    binary = write(bytes(range(256)) * 20 + b"\0" * 4096, "core")
    for path, words in (
        (tmp_path / "none.log", "No such file"), (tmp_path, "is a folder"), (binary, "binary"), (broken, "cannot read"),
    ):  # fmt: skip
        with pytest.raises(MgpuError, match=words) as caught:
            read.read_logs([path], ROWS)
        assert caught.value.exit_code == errors.USAGE


def test_secrets_in_a_line_are_masked(write: Write) -> None:
    log = read.read_logs([write(f"{FULL} HF_TOKEN=hf_abcdefghijklmnopqrstuv\n")], ROWS)
    assert "hf_abc" not in log.seen[0].text and "CUDA out of memory" in log.seen[0].text


def test_secrets_of_exceptions_and_tables_are_masked(write: Write) -> None:
    secret = "hf_abcdefghijklmnopqrstuv"
    rows = (row("module", r"cannot load (?P<what>\S+)"),)
    text = traceback(f"ValueError: bad token={secret}", 0) + f"cannot load {secret}\n"
    text += table((0, 1), first=0).replace("To enable it see", f"KeyError: {secret}")
    log = read.read_logs([write(text)], rows)
    assert log.fallen[0].error == "KeyError: ***" and log.raised[0].message == "bad token=***"
    assert secret not in repr(log) and [seen.groups for seen in log.seen] == [{"what": "***"}]
    _, document = chosen(log)
    assert document["first_failure"]["exception"] == "ValueError: bad token=***" and secret not in repr(document)
    run = Run(1, 1, 9.0, ranks=(EndedRank(0, 1, True, error=f"KeyError: {secret}"),))
    first = failure.triage_document(root_cause.find_cause(None, run), None, run)["first_failure"]
    assert first is not None and first["exception"] == "KeyError: ***"


def test_numbers_without_an_end_are_none(write: Write) -> None:
    long = "9" * 5000
    text = f"[rank{long}]: x on rank {long} [Rank {long}]\n{watchdog(1).replace('SeqNum=1580', f'SeqNum={long}')}"
    text += table((0, 1), first=0).replace("(pid: 4000)", f"(pid: {long})").replace("rank      : 0", f"rank  : {long}")
    text += f"failed (exitcode: 1) local_rank: {long} (pid: 1) of binary: x\n"
    text += f"CalledProcessError: Command '['python', 'x']' returned non-zero exit status {long}.\n"
    log = read.read_logs([write(text)], ROWS)
    assert (log.fallen, log.ranks) == ((), (1,))


def test_the_first_of_several_files_is_by_time(write: Write) -> None:
    late = write(f"[rank0]:[E1121 10:12:09.000 x.cpp:7] {FULL}\n", "a.log")
    early = write(f"[rank1]:[E1121 10:12:01.000 x.cpp:7] {FULL}\n", "b.log")
    (seen,) = read.read_logs([late, early], ROWS).seen
    assert (seen.rank, seen.ranks) == (1, (0, 1))


# Exceptions


def test_tracebacks_of_ranks_written_into_one_another(write: Write) -> None:
    first, second = traceback("ValueError: left", 0).splitlines(), traceback("KeyError: 'right'", 1).splitlines()
    text = "\n".join(line for pair in zip(first, second, strict=True) for line in pair) + "\n"
    log = read.read_logs([write(text)], ROWS)
    assert [(one.type, one.message, one.ranks) for one in log.raised] == [
        ("ValueError", "left", (0,)), ("KeyError", "'right'", (1,)),
    ]  # fmt: skip


def test_the_same_on_all_ranks_is_told_once(write: Write) -> None:
    log = read.read_logs([write("".join(traceback("ValueError: x", rank) for rank in range(8)))], ROWS)
    assert [(one.times, one.ranks) for one in log.raised] == [(8, tuple(range(8)))]


def test_a_chain_is_one_exception(write: Write) -> None:
    text = (
        traceback("KeyError: 'x'") + "\nDuring handling of the above exception, another exception occurred:\n\n"
        + traceback("OSError: y") + "\nThe above exception was the direct cause of the following exception:\n\n"
        + traceback("ValueError: z")
    )  # fmt: skip
    log = read.read_logs([write(text)], ROWS)
    assert [(one.type, one.cause) for one in log.raised] == [("ValueError", "KeyError: 'x'")]


def test_the_place_is_in_a_file_of_the_users(write: Write) -> None:
    text = (
        'Traceback (most recent call last):\n  File "/home/u/train.py", line 7, in <module>\n    main()\n'
        '  File "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", line 99, in forward\n    x\n'
        "RuntimeError: shapes\n"
    )
    assert read.read_logs([write(text)], ROWS).raised[0].place == "train.py:7"


def test_other_forms_of_tracebacks(write: Write) -> None:
    syntax = '  File "/home/u/train.py", line 3\n    x = = 1\n        ^\nSyntaxError: invalid syntax\n'
    rich = (
        "╭──────── Traceback (most recent call last) ────────╮\n│ /home/u/train.py:12 in main          │\n"
        "│ ❱ 12     raise ValueError                │\n╰─────────────────────────────╯\nValueError: of rich\n"
    )
    log = read.read_logs([write(syntax + "\nfine\n" + rich)], ROWS)
    assert [(one.type, one.place) for one in log.raised] == [
        ("SyntaxError", "train.py:3"), ("ValueError", "train.py:12 in main"),
    ]  # fmt: skip


def test_signatures_in_the_lines_of_a_message(write: Write) -> None:
    text = traceback("RuntimeError: CUDA error").rstrip() + f"\n{FULL}\n\nand so on\naddress already in use\n"
    (one,) = read.read_logs([write(text)], ROWS).raised
    assert one.signatures == ("full",)


def test_a_caught_exception_is_no_cause(write: Write) -> None:
    text = traceback("requests.ConnectionError: wandb") + "".join(f"step {n}\n" for n in range(2000))
    assert chosen(read.read_logs([write(text)]))[0] is None


def test_what_was_caught_before_is_not_what_ended_a_rank(write: Write) -> None:
    caught, deadly = traceback("OSError: no cache", line=7), traceback("ZeroDivisionError: x", line=9)
    end = table((0, -15), (1, 1), first=1)
    log = read.read_logs([write(caught * 2 + deadly + end)], ROWS)  # three tracebacks, two ranks
    assert [(one.type, one.caught) for one in log.raised if not one.type.endswith("ChildFailedError")] == [
        ("OSError", True), ("ZeroDivisionError", False),
    ]  # fmt: skip
    full = traceback(f"RuntimeError: {FULL}", line=7)
    cause, document = chosen(read.read_logs([write(full * 2 + deadly + end)]))
    assert cause == "log_exception" and document["first_failure"]["exception"] == "ZeroDivisionError: x"
    labelled = traceback("ZeroDivisionError: x", 1, line=9)  # torch names the rank of what nobody caught
    assert chosen(read.read_logs([write(full + labelled + end)]))[0] == "log_exception"
    lost = traceback("RuntimeError: Connection closed by peer [::1]:9", 1)
    assert chosen(read.read_logs([write(full + lost + end)]))[0] == "log_gpu_memory_full"
    assert not any(one.caught for one in read.read_logs([write(full + deadly + end)]).raised)  # may be one a rank


def test_what_python_tells_of_and_goes_on_after_is_no_end(write: Write) -> None:
    for before in ("Exception ignored in atexit callback: <function bye at 0x7f>", "Exception in thread Thread-1 (f):"):
        text = f"{before}\n{traceback('RuntimeError: late')}"
        assert read.read_logs([write(text + "step 8\n" * 5)], ROWS).raised == ()
        alone = read.read_logs([write(text)], ROWS).raised  # with a thread's the program may have stopped
        assert len(alone) == ("thread" in before)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("StopIteration", "log_exception"), ("subprocess.TimeoutExpired: Command 'x' timed out", "log_exception"),
        ("ConnectionResetError: [Errno 104] lost", "log_communication_broke"),
        ("subprocess.CalledProcessError: Command '['ffmpeg', '-i']' returned non-zero exit status 1.",
         "log_command_failed"),
        ("subprocess.CalledProcessError: Command '['/v/bin/python3', 't.py']' returned non-zero exit status 1.",
         "log_child_failed"),
    ],
)  # fmt: skip
def test_what_ends_a_script_is_not_what_its_launcher_says(write: Write, error: str, cause: str) -> None:
    log = read.read_logs([write(traceback(error))])
    assert chosen(log)[0] == cause
    assert [one.of_launcher for one in log.raised] == [cause == "log_child_failed"]
    assert bool(log.fallen) == (cause == "log_child_failed")


@pytest.mark.parametrize("name", ["ChildFailedError", "ProcessRaisedException", "ProcessExitedException"])
def test_an_exception_of_a_launcher_is_its_own(write: Write, name: str) -> None:
    """With a traceback, and as a line without one."""
    whole = f"torch.distributed.elastic.multiprocessing.errors.{name}: a child failed"
    for text in (traceback(whole), f"{whole}\n"):
        log = read.read_logs([write(text)])
        assert [one.of_launcher for one in log.raised] == [True] * len(log.raised), text


def test_a_launchers_own_frames_tell_it(write: Write) -> None:
    text = traceback("CalledProcessError: Command '['./x.sh']' returned non-zero exit status 1.",
                     place="/v/lib/python3.11/site-packages/accelerate/commands/launch.py")  # fmt: skip
    assert read.read_logs([write(text)]).raised[0].of_launcher


def test_a_traceback_that_was_never_ended_is_let_go(write: Write) -> None:
    begun = tracebacks.Tracebacks("run.log", lambda text: ())
    for number, text in enumerate(traceback("ValueError: x", 3).splitlines()[:3], 1):
        begun.take(parse_line(text), number)
    ended = tracebacks.Tracebacks("run.log", lambda text: ())
    for number, text in enumerate(traceback("ValueError: x", 3).splitlines(), 1):
        ended.take(parse_line(text), number)
    for number in range(10, 6000):
        begun.take(parse_line("[rank1]: step"), number)
        ended.take(parse_line("[rank1]: step"), number)
    assert not begun.waiting and not ended.waiting
    assert (begun.found, [one.type for one in ended.found]) == ([], ["ValueError"])


def test_what_another_rank_prints_into_a_traceback_is_no_exception(write: Write) -> None:
    head, *rest = traceback("socket.timeout: timed out").splitlines()
    text = "\n".join([head, rest[0], "loss: 0.53", "train.py: reading", *rest[1:]]) + "\n"
    assert [(one.type, one.message) for one in read.read_logs([write(text)], ROWS).raised] == [
        ("socket.timeout", "timed out")
    ]


def test_torch_names_the_rank_of_what_nobody_caught(write: Write) -> None:
    after = "".join(f"step {n}\n" for n in range(2000))
    assert chosen(read.read_logs([write(traceback("ValueError: x", 2) + after)]))[0] == "log_exception"
    tee = "".join(f"[default2]:{line}\n" for line in traceback("ValueError: x").splitlines())
    assert chosen(read.read_logs([write(tee + after)]))[0] is None


def test_a_warning_of_a_module_that_is_not_there_is_no_cause(write: Write) -> None:
    text = "WARNING: apex is not available: No module named 'apex'\n" + traceback("ValueError: x")
    assert chosen(read.read_logs([write(text)]))[0] == "log_exception"


def test_lines_of_one_file_stand_as_they_came(write: Write) -> None:
    early = "RuntimeError: Expected to mark a variable ready only once."
    late = "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one."
    text = f"[rank0]:[E1121 10:12:01.000 x.cpp:7] {early}\n{late}\n"
    assert chosen(read.read_logs([write(text)]))[0] == "log_parameter_ready_twice"


def test_a_line_is_searched_at_its_beginning(write: Write) -> None:
    log = read.read_logs([write(f"{FULL} {'x' * 9000}\n{'x' * 9000} address already in use\n")], ROWS)
    assert [seen.signature for seen in log.seen] == ["full"]
    slow = f"srun: error: {'a: tasks b' * 6000}\nInput type ({') and weight type (' * 2000}\n"
    assert read.read_logs([write(slow)]).seen == ()


def test_a_group_of_exceptions(write: Write) -> None:
    text = (
        '  + Exception Group Traceback (most recent call last):\n  |   File "/home/u/train.py", line 4, in main\n'
        "  |     raise it\n  | ExceptionGroup: several (2 sub-exceptions)\n  +-+---------------- 1 ----------------\n"
        "    | ValueError: a\n    +------------------------------------\n"
    )
    (one,) = read.read_logs([write(text)], ROWS).raised
    assert (one.type, one.message, one.place) == ("ExceptionGroup", "several (2 sub-exceptions)", "train.py:4 in main")


def test_a_rank_that_a_message_names_is_not_its_writer(write: Write) -> None:
    (one,) = read.read_logs([write(traceback("ValueError: nan on rank 3"))], ROWS).raised
    assert (one.message, one.rank) == ("nan on rank 3", None)


def test_a_wrapped_exception_keeps_the_signature_of_what_began_it(write: Write) -> None:
    text = (
        traceback(f"RuntimeError: {FULL}") + "\nDuring handling of the above exception, another exception occurred:\n\n"
        + traceback("RuntimeError: try a smaller batch")
    )  # fmt: skip
    assert chosen(read.read_logs([write(text)]))[0] == "log_gpu_memory_full"


def test_what_accelerate_test_puts_in_front(write: Write) -> None:
    text = traceback("ValueError: x") + table((0, 1), first=0)
    text = "".join(f"stderr: {line}\n" for line in text.splitlines())
    cause, document = chosen(read.read_logs([write(text)]))
    assert (cause, document["first_failure"]["exception"]) == ("log_exception", "ValueError: x")


def test_what_ray_puts_in_front(write: Write) -> None:
    text = "".join(f"(CommandActor pid=2809) {line}\n" for line in traceback("ValueError: x").splitlines())
    assert chosen(read.read_logs([write(text)]))[0] == "log_exception"


def test_a_messenger_is_not_the_first_to_fail(write: Write) -> None:
    lost = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:35247"
    cause, document = chosen(read.read_logs([write(traceback(lost, 0) + table((0, -15), (1, 3), first=1))]))
    assert cause == "log_peer_gone"
    assert (document["first_failure"]["rank"], document["first_failure"]["exit"]) == (1, 3)


def test_the_last_words_of_a_rank_that_left_without_a_traceback(write: Write) -> None:
    end = "W1121 10:00:00.000 4711 api.py:1010] Sending process 27001 closing signal SIGTERM\n" + table((1, 1), first=1)
    _, document = chosen(read.read_logs([write(f"epoch 1\nconfig.yaml: no key 'data'\n***\n{end}")]))
    assert document["probable_cause"]["evidence"]["last_line"] == "config.yaml: no key 'data'"
    packed = write(gzip.compress(f"epoch 1\n{end}".encode()), "run.log.gz")
    wide = write(f"epoch 1\n{end}".encode("utf-16"), "wide.log")
    several = [write(f"{name}\n{end}", f"rank{name}.log") for name in range(2)]
    assert [read.read_logs(paths).last for paths in ([packed], [wide], several)] == ["epoch 1", "epoch 1", None]
    assert read.read_logs(several, one_stream=True).last == "1"


def test_what_cpp_said_at_the_end_of_a_process_is_not_hidden_by_the_other_ranks(write: Write) -> None:
    end = "W1121 10:00:00.0 4711 api.py:1010] Sending process 27001 closing signal SIGTERM\n" + table((0, -6), first=0)
    aborted = "terminate called without an active exception"
    assert read.read_logs([write(f"step 5\n{aborted}\nstep 6\ndone\n{end}")]).last == aborted
    assert read.read_logs([write(f"{aborted}\n{'step 5' * 20}\n" * 2 + "step 6\n" * 30 + end)]).last == "step 6"


def test_the_launchers_table(write: Write) -> None:
    log = read.read_logs([write(table((0, -15), (1, -9), first=1))], ROWS)
    assert [(one.rank, one.exit_code, one.first, one.host, one.pid, one.at) for one in log.fallen] == [
        (0, -15, False, "node7", 4000, "2026-11-21T10:12:07"), (1, -9, True, "node7", 4001, "2026-11-21T10:12:07"),
    ]  # fmt: skip


# The first cause


def watchdog(rank: int, number: int = 1580, completed: int = 1579) -> str:
    return (
        f"[rank{rank}]:[E1121 10:22:{rank:02}.408 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught collective "
        f"operation timeout: WorkNCCL(SeqNum={number}, OpType=ALLREDUCE, NumelIn=1, Timeout(ms)=600000) ran "
        f"for 600012 milliseconds before timing out. last enqueued work: {number}, last completed work: {completed}\n"
    )


def test_ten_secondary_failures_and_one_root(write: Write) -> None:
    """Six ranks time out, two lose their connection, the launcher complains: rank 7 had no memory, in the middle."""
    text = "".join(watchdog(rank) for rank in range(4))
    text += traceback("torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:268, remote process exited", 4)
    text += traceback(f"torch.OutOfMemoryError: {FULL}", 7)
    text += "".join(watchdog(rank) for rank in (5, 6))
    text += "[rank2]: RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:45485\n"
    text += "[rank3]:[E1121 10:23:00.000 x.cpp:7] To avoid data inconsistency, we are taking the process down.\n"
    text += table(*((rank, -6) for rank in range(7)), (7, 1), first=0)
    log = read.read_logs([write(text)])
    cause, document = chosen(log)
    assert cause == "log_gpu_memory_full"
    assert document["first_failure"]["rank"] == 7
    assert document["first_failure"]["exception"].startswith("torch.OutOfMemoryError: CUDA out of memory")
    assert len(document["secondary"]) >= 3


def test_the_abort_after_a_timeout_is_the_timeouts(write: Write) -> None:
    """NCCL's watchdog ends its own process; torchrun kills the rank that hangs 30 s later."""
    text = watchdog(2) + "terminate called after throwing an instance of 'c10::DistBackendError'\n"
    ended = table((0, -9), (2, -6), first=2).replace("10:12:07\n  host      : node7\n  rank      : 0",
                                                     "10:12:38\n  host      : node7\n  rank      : 0")  # fmt: skip
    cause, document = chosen(read.read_logs([write(text + ended)]))
    assert cause == "log_collective_timed_out"
    assert document["first_failure"]["rank"] == 2
    assert chosen(read.read_logs([write(table((0, -9), (2, -6), first=2))]))[0] != "log_collective_timed_out"


def test_a_job_that_is_cancelled_because_it_hung(write: Write) -> None:
    cancelled = "slurmstepd: error: *** JOB 4711 ON node7 CANCELLED AT 2025-10-01T10:00:00 ***\n"
    assert chosen(read.read_logs([write(cancelled)]))[0] == "log_slurm_cancelled"
    full = traceback(f"torch.OutOfMemoryError: {FULL}", 3)
    assert chosen(read.read_logs([write(full + cancelled)]))[0] == "log_gpu_memory_full"


def test_the_kernel_explains_the_exceptions_of_the_others(write: Write) -> None:
    text = traceback("RuntimeError: [gloo/pair.cc:1] Connection closed by peer [::1]:9", 0)
    text += table((0, 1), (1, -9), first=1)
    ranks = (EndedRank(0, 1), EndedRank(1, -9, True))
    run = Run(137, 1, 60.0, ranks=ranks, oom_kills=1, xids=(), killed=())
    cause, document = chosen(read.read_logs([write(text)]), run)
    assert (cause, document["first_failure"]["rank"], document["first_failure"]["signal"]) == (
        "run_out_of_memory", 1, "SIGKILL",
    )  # fmt: skip


def test_a_rank_that_the_launcher_killed_is_no_cause(write: Write) -> None:
    text = traceback("ValueError: x", 0) + table((0, 1), (1, -9), first=0).replace("10:12:07", "10:12:39", 1)
    assert chosen(read.read_logs([write(text)]))[0] == "log_exception"


def test_watchdogs_in_step_and_out_of_step(write: Write) -> None:
    fine = "".join(f"[rank{rank}]: step\n" for rank in range(4))
    out = write(fine + "".join(watchdog(rank, 1581 if rank == 2 else 1580) for rank in range(4)), "out.log")
    silent = write(fine + "".join(watchdog(rank) for rank in (0, 1, 3)), "silent.log")
    never = write(fine + "".join(watchdog(rank, 1, -1) for rank in range(4)), "never.log")
    stalled = write(fine + "".join(watchdog(rank) for rank in range(4)), "stalled.log")
    assert [chosen(read.read_logs([path]))[0] for path in (out, silent, never, stalled)] == [
        "log_ranks_out_of_step", "log_rank_never_came", "log_exchange_never_worked", "log_exchange_stalled",
    ]  # fmt: skip


def test_a_run_that_was_stopped(write: Write) -> None:
    log = read.read_logs([write(traceback("KeyboardInterrupt", 0) + traceback("KeyboardInterrupt", 1))])
    ranks = (EndedRank(0, -2, state="sleeping"), EndedRank(1, -2, state="stopped", pid=4711))
    held = Run(130, 1, 60.0, signalled="SIGINT", ranks=ranks)
    assert chosen(log, held)[0] == "run_rank_silent"
    assert (
        chosen(log, Run(130, 1, 60.0, signalled="SIGINT", ranks=(EndedRank(0, -2, state="running"),)))[0]
        == "run_stopped"
    )
    before = read.read_logs([write(traceback("ValueError: x", 1) + traceback("KeyboardInterrupt", 0))])
    assert chosen(before, held)[0] == "log_exception"


def test_an_interrupted_run_takes_one_line() -> None:
    stop, early = {"id": "run_stopped"}, {"id": "run_rank_left_early", "role": "secondary"}
    document: Any = {
        "duration_s": 12.0, "exit_code": 130, "signalled": "SIGINT", "timed_out": False, "triage": True, "logs": "logs",
        "first_failure": None, "probable_cause": stop, "secondary": [], "left_over": 0,
    }  # fmt: skip
    screen = report_screen.Screen.of()
    assert [["".join(text for text, _ in line)] for line in launch_report.lines(document, screen)] == [
        ["Interrupted after 12 s (exit 130)."]
    ]
    changes: Any = (
        {"secondary": [early]}, {"probable_cause": {"id": "run_rank_silent"}}, {"exit_code": 3},
        {"signalled": "SIGTERM"}, {"timed_out": True}, {"first_failure": {"rank": 1}},
    )  # fmt: skip
    for change in changes:
        changed: Any = {**document, **change}
        assert not launch_report._is_interruption(changed), change


def test_what_is_not_known_is_said() -> None:
    document: Any = {"first_failure": None, "probable_cause": None, "secondary": []}
    screen = report_screen.Screen.of()
    for log, words in (
        (None, "there is no log"), ({"bytes": 0, "lines": 0}, "exited before printing anything"),
        ({"bytes": 9, "lines": 1200}, "no exception and no known error in 1,200 log lines"),
    ):  # fmt: skip
        said = " ".join(text for line in failure.lines(document | {"log": log}, screen) for text, _ in line)
        assert words in " ".join(said.split())


_REMARKS = {"run_left_processes", "run_ranks_exchanged_nothing", "run_rank_slows_others", "hang_rank_works"}
_REMARKS |= {"run_host_slows_others"}
# None of these is a failure.
_REMARKS |= {"hang_others_unknown", "hang_rank_in_debugger", "hang_stacks_unknown", "run_not_finite"}


def test_every_other_check_has_its_place_in_the_order() -> None:
    from mgpu import engine

    for check in engine.load():
        placed = check.area in ("run", "log", "hang") and check.id not in _REMARKS
        placed |= check.id == "ssh_connection_lost"  # a host is lost during a run
        assert (check.role is not None, check.kind is not None) == (placed, placed), check.id


# mgpu doctor --log


def test_doctor_explains_a_log(mgpu: Command, write: Write) -> None:
    write(traceback("ValueError: bad batch", 2) + traceback("KeyboardInterrupt", 0), "run.log")
    done = mgpu("doctor", "--log", "run.log")
    assert done.returncode == errors.NOT_READY and done.stderr == ""
    said = " ".join(done.stdout.split())
    assert "First to fail rank 2, ValueError: bad batch at train.py:41 in main" in said
    assert "Probable cause train.py:41 in main raised ValueError on rank 2: bad batch [log_exception]" in said
    assert "Evidence run.log:4: ValueError: bad batch" in said
    for columns in ("80", "40"):
        narrow = mgpu("doctor", "--log", "run.log", env={"COLUMNS": columns, "LC_ALL": "C"}).stdout
        prose = [line for line in narrow.splitlines() if "mgpu " not in line]
        assert max(map(len, prose)) <= int(columns) and narrow.isascii()


def test_doctor_on_logs_as_json(mgpu: Command, write: Write) -> None:
    write(table((0, -15), (1, -11), first=1), "a.log")
    done = mgpu("doctor", "--json", "--log", "a.log")
    document = fits(done.stdout)
    assert document["exit_code"] == done.returncode == errors.NOT_READY
    assert (document["first_failure"]["rank"], document["first_failure"]["signal"]) == (1, "SIGSEGV")
    assert document["probable_cause"]["id"] == "log_rank_segfault"


def test_doctor_on_healthy_several_and_stdin(mgpu: Command, write: Write) -> None:
    for name in ("rank0.log", "rank1.log"):
        write("step 1 loss 0.3\nsaved\n", name)
    several = mgpu("doctor", "--log", "rank0.log", "rank1.log")
    assert several.returncode == errors.UNKNOWN and "2 logs: 4 lines, 2 ranks" in several.stdout
    assert re.search(r"Could not determine how the run ended.\nNo known error", several.stdout)
    write("step 1 loss 0.3\nstep 2 loss 0.2\nevaluating\n", "open.log")
    still_open = mgpu("doctor", "--log", "open.log")
    assert still_open.returncode == errors.UNKNOWN and "Last step      open.log:2: step 2 loss 0.2" in still_open.stdout
    write("step 1 loss 0.3\nTraining completed successfully\n", "good.log")
    good = mgpu("doctor", "--log", "good.log")
    assert good.returncode == errors.READY and "The run succeeded." in good.stdout
    write(f"step 1\n{FULL}, retrying\nstep 2\nstep 3\nTraining completed successfully\n", "good.log")
    survived = mgpu("doctor", "--log", "good.log")
    assert survived.returncode == errors.READY and "The run went on after 1 known error; no exc" in survived.stdout
    document = fits(mgpu("doctor", "--json", "--log", "good.log").stdout)
    assert document["ending"] == {"state": "succeeded", "line": "Training completed successfully"}
    write(table((0, -15), (1, 1), first=1), "table.log")
    table_only = mgpu("doctor", "--log", "table.log")
    assert table_only.returncode == errors.UNKNOWN and "The log does not show why" in table_only.stdout
    piped = mgpu("doctor", "--log", "-", stdin=None, input=traceback("ValueError: x"))
    assert piped.returncode == errors.NOT_READY and "raised ValueError" in piped.stdout
    caught = mgpu("doctor", "--log", "-", stdin=None, input=traceback("ValueError: x") + "step\n" * 2000)
    assert caught.returncode == errors.UNKNOWN and "goes on after the exception" in " ".join(caught.stdout.split())
    missing = mgpu("doctor", "--log", "none.log")
    assert missing.returncode == errors.USAGE and "No such file" in missing.stderr
