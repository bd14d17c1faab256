"""Which process failed: a worker that reports its own exception, a pool's, all ranks or some of them?"""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.one_node import OneNode
from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained


def test_a_worker_that_reports_its_exception_was_not_lost(tmp_path: Path) -> None:
    worker = frames(
        ("torch/utils/data/_utils/worker.py", "_worker_loop", "data = fetcher.fetch(index)"),
        (SCRIPT, "__getitem__", "return f.read(), 0"),
    )
    outer = frames(
        (SCRIPT, "main", "for x in loader:"), ("torch/utils/data/dataloader.py", "__next__", "data = next()")
    )
    error = "EOFError: Compressed file ended before the end-of-stream marker was reached"
    text = f"{outer}EOFError: Caught EOFError in DataLoader worker process 0.\nOriginal {worker}{error}\n"
    assert explained(tmp_path, text)[0] != "log_loader_broke_off"


@pytest.mark.parametrize("error", ["AssertionError: the tokens of this line do not fit", "TimeoutError", "Stopped"])
def test_the_exception_of_a_pool_is_not_its_own_cause(error: str, tmp_path: Path) -> None:
    text = (
        f'multiprocessing.pool.RemoteTraceback: \n"""\n{frames((SCRIPT, "tok", "assert fits(x)"))}{error}\n"""\n\n'
        "The above exception was the direct cause of the following exception:\n\n"
        f"{frames((SCRIPT, 'main', 'pool.map(tok, lines)'))}{error}\n"
    )
    title = explained(tmp_path, text)[1]
    assert "direct cause" not in title and '"""' not in title


@pytest.mark.parametrize(
    "pool",
    ["multiprocessing.pool.RemoteTraceback: ", "concurrent.futures.process._RemoteTraceback: ",
     "joblib.externals.loky.process_executor._RemoteTraceback: "],
)  # fmt: skip
def test_the_line_of_a_worker_is_the_place(pool: str, tmp_path: Path) -> None:
    error = "ZeroDivisionError: division by zero"
    inner = frames((SCRIPT, "ratio", "return row.kept / row.total"))
    text = (
        f'{pool}\n"""\n{inner}{error}\n"""\n\nThe above exception was the direct cause of the following exception:\n\n'
        f"{frames((SCRIPT, 'main', 'rates = list(pool.map(ratio, rows))'))}{error}\n"
    )
    assert "in ratio" in explained(tmp_path, text)[1]


def test_a_worker_within_a_package_leaves_the_place_of_the_call(tmp_path: Path) -> None:
    error = "ValueError: Couldn't cast this table"
    inner = frames(
        ("multiprocess/pool.py", "worker", "result = f()"), ("datasets/table.py", "cast", "raise ValueError(")
    )
    called = frames((SCRIPT, "main", "ds = prepare(files)"), ("multiprocess/pool.py", "get", "raise self._value"))
    text = (
        f'multiprocess.pool.RemoteTraceback: \n"""\n{inner}{error}\n"""\n\n'
        f"The above exception was the direct cause of the following exception:\n\n{called}{error}\n"
    )
    assert "fit.py:7 in main" in " ".join(explained(tmp_path, text))


def test_another_exception_keeps_its_own_place(tmp_path: Path) -> None:
    text = (
        f"{frames((SCRIPT, 'ratio', 'return a / b'))}ZeroDivisionError: division by zero\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        f"{frames((SCRIPT, 'main', 'raise Failed(name) from error'))}Failed: rates\n"
    )
    assert "in main" in explained(tmp_path, text)[1]


SPLIT = "Generating validation split: 100%|##########| 120/120 [00:00<00:00, 1349.12 examples/s]\n"
NO_INDEX = "TypeError: string indices must be integers, not 'str'\n"


@pytest.mark.parametrize(
    ("before", "line", "of_splits"),
    [
        (SPLIT, "ids = tok(row['question'])['input_ids']", True),
        ("Generating train split: 5200 examples [00:01, 4000.1 examples/s]\n", 'texts.append(sample["text"])', True),
        ("", "ids = tok(row['question'])['input_ids']", False),
        (SPLIT, "parts.append(turn['value'])", False),  # of a conversation that is a text
        (SPLIT, "roles = [m['role'] for m in messages]", False),
    ],
)
def test_a_loop_over_splits(before: str, line: str, of_splits: bool, tmp_path: Path) -> None:
    shown = " ".join(explained(tmp_path, f"{before}{frames((SCRIPT, 'main', line))}{NO_INDEX}"))
    assert ("DatasetDict" in shown) == of_splits


def test_a_line_of_a_heredoc_is_found_by_its_number(tmp_path: Path) -> None:
    text = 'Traceback (most recent call last):\n  File "<stdin>", line 12, in <module>\nValueError: no seed\n'
    assert "Line 12 is counted from the first line" in " ".join(explained(tmp_path, text))
    assert "is counted from" not in " ".join(explained(tmp_path, text.replace("<stdin>", "/w/make_splits.py")))


def _of_ranks(*ranks: int) -> str:
    """A log in which these ranks raised one exception, and the others printed nothing."""
    error = "AttributeError: 'NoneType' object has no attribute 'write'"
    return "".join(
        f"{frames((SCRIPT, 'main', 'logger.write(x)'), prefix=f'[rank{rank}]: ')}[rank{rank}]: {error}\n"
        for rank in ranks
    )


def test_ranks_that_printed_nothing_are_not_taken_for_failed(tmp_path: Path) -> None:
    _, title, why = explained(tmp_path, _of_ranks(1, 2, 3))
    assert title == "logger is None (fit.py:7 in main), on ranks 1, 2 and 3"
    assert "does not have it from rank 0" in why
    assert "All ranks raised it" not in why
    _, title, why = explained(tmp_path, _of_ranks(0, 2))
    assert "on ranks 0 and 2" in title
    assert "from rank 1," in why


@pytest.mark.parametrize("ranks", [(0, 1), (0, 1, 2, 3), (8, 9, 10, 11)])
def test_all_ranks_of_a_node_are_all(ranks: tuple[int, ...], tmp_path: Path) -> None:
    _, title, why = explained(tmp_path, _of_ranks(*ranks))
    assert f"on all {len(ranks)} ranks" in title
    assert "All ranks raised it" in why


_RANKS_OF = {"gpu-a": (0, 1), "gpu-b": (2, 3), "gpu-c": (4, 5)}
_PLUGIN = "Last error:\n[rank{rank}]: Failed to initialize any NET plugin\n"
_LIBRARY = "ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory\n"


def _of_nodes(message: str, reporting: tuple[int, ...], exits: dict[str, str]) -> str:
    """A log of three nodes: these ranks report the message, and srun how each node's tasks ended."""
    said = "".join(f"[rank{rank}]: {message.format(rank=rank)}" for rank in reporting)
    ends = (f"srun: error: {host}: tasks {low}-{high}: {exits[host]}\n" for host, (low, high) in _RANKS_OF.items())
    return said + "".join(ends)


_EXITED, _KILLED = "Exited with exit code 1", "Killed"
_ONE_FAILED = {"gpu-a": _KILLED, "gpu-b": _EXITED, "gpu-c": _KILLED}


@pytest.mark.parametrize("message", [_PLUGIN, _LIBRARY])
def test_a_failure_of_one_node_is_reported_as_that(message: str, tmp_path: Path) -> None:
    _, _, words = explained(tmp_path, _of_nodes(message, (2, 3), _ONE_FAILED))
    assert "Both ranks on gpu-b report it, and none on the 2 other nodes" in words
    assert "sbatch --exclude=gpu-b job.sh" in words


def test_how_the_only_other_node_is_called() -> None:
    assert OneNode("gpu-b", 8, 1).sentence.startswith(" All 8 ranks on gpu-b report it, and none on the other node:")


@pytest.mark.parametrize(
    ("message", "reporting", "exits"),
    [
        (_PLUGIN, (2, 3, 4), _ONE_FAILED),  # another node, too
        (_PLUGIN, (2,), _ONE_FAILED),  # a rank beside it on the same node does not
        (_PLUGIN, (2, 3), dict.fromkeys(_RANKS_OF, _EXITED)),  # the others ended by themselves
        ("KeyError: 'tokens'\n", (2, 3), _ONE_FAILED),  # the script's own
    ],
)
def test_other_failures_are_not_blamed_on_one_node(
    message: str, reporting: tuple[int, ...], exits: dict[str, str], tmp_path: Path
) -> None:
    _, title, words = explained(tmp_path, _of_nodes(message, reporting, exits))
    assert "ranks on gpu" not in words and "--exclude" not in words and "on one of the nodes" not in title
