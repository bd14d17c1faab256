"""Is the training's own exit code found in what the launcher prints?

The texts were printed by accelerate 1.15.0 with torch 2.13.0 (Python 3.11): two ranks, or one process, whose script
exits with 3, raises, or kills itself. Cut to the lines that matter; names of machines and paths are changed.
"""

from __future__ import annotations

import signal

import pytest

from mgpu.process import exit_code
from mgpu.process.exit_code import FirstFailure, first_failure, training_exit_code

_HEAD = b"""\
W1121 10:06:55.317000 15374 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 15389 closing signal SIGTERM
E1121 10:06:55.319000 15374 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 3) local_rank: 1 (pid: 15390) of binary: /opt/venv/bin/python3
Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 383, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError: 
============================================================
s.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-21_10:06:55
  host      : node7
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 15389)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 15389
------------------------------------------------------------
Root Cause (first observed failure):
"""  # noqa: E501, W291 - as it was printed
_ROOT_3 = b"""\
[0]:
  time      : 2026-11-21_10:06:55
  host      : node7
  rank      : 1 (local_rank: 1)
  exitcode  : 3 (pid: 15390) 
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""  # noqa: W291 - as it was printed
EXIT_3 = _HEAD + _ROOT_3
RAISED = EXIT_3.replace(b"exitcode  : 3 ", b"exitcode  : 1 ")
_ROOT_KILLED = b"""\
[0]:
  time      : 2026-11-21_10:07:18
  host      : node7
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 15477)  (SIGKILL)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 15477
=======================================================
"""
KILLED = _HEAD + _ROOT_KILLED
SEGFAULT = KILLED.replace(b"-9 (pid: 15477)  (SIGKILL)", b"-11 (pid: 15477)  (SIGSEGV)")
# One failure only: torch's errors/__init__.py has these words in place of the list, with nothing else changed.
ALONE = b"""\
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_10:07:39
  host      : localhost
  rank      : 12 (local_rank: 4)
  exitcode  : 7 (pid: 15592)
  error_file: <N/A>
"""
_SIMPLE = b"""\
Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/accelerate/commands/launch.py", line 999, in simple_launcher
    raise subprocess.CalledProcessError(returncode=process.returncode, cmd=cmd)
subprocess.CalledProcessError: Command '['/opt/venv/bin/python3', 's.py', 'exit']' """
SIMPLE_3 = _SIMPLE + b"returned non-zero exit status 3.\n"
SIMPLE_KILLED = _SIMPLE + b"died with <Signals.SIGKILL: 9>.\n"
SIMPLE_SEGFAULT = _SIMPLE + b"died with <Signals.SIGSEGV: 11>.\n"


@pytest.mark.parametrize(
    ("printed", "rank", "code", "name"),
    [
        (EXIT_3, 1, 3, None),
        (RAISED, 1, 1, None),
        (KILLED, 1, 137, "SIGKILL"),
        (SEGFAULT, 1, 139, "SIGSEGV"),
        (ALONE, 12, 7, None),
        (SIMPLE_3, 0, 3, None),
        (SIMPLE_KILLED, 0, 137, "SIGKILL"),
        (SIMPLE_SEGFAULT, 0, 139, "SIGSEGV"),
    ],
)
def test_launchers_table(printed: bytes, rank: int, code: int, name: str | None) -> None:
    failure = first_failure(printed)
    assert failure is not None
    assert (failure.rank, failure.exit_code, failure.signal) == (rank, code, name)
    assert training_exit_code(1, printed, None) == code


def test_host_of_the_first_failure() -> None:
    assert first_failure(EXIT_3) == FirstFailure(1, "node7", 3)
    assert first_failure(SIMPLE_3) == FirstFailure(0, None, 3)


def test_table_behind_other_output() -> None:
    """The training's own words stand before it, colours and bytes that are no text among them."""
    coloured = EXIT_3.replace(b"Root Cause", b"\x1b[31mRoot Cause").replace(b"exitcode", b"\x1b[1mexitcode\x1b[0m")
    for printed in (b"\xff\xfe\x00 99 %\r" * 1000 + EXIT_3, EXIT_3 + b"\nepilogue of a wrapper\n", coloured):
        assert training_exit_code(1, printed, None) == 3
    windows = EXIT_3.replace(b"\n", b"\r\n")  # a terminal's line ends
    assert training_exit_code(1, windows, None) == 3


def test_last_table_counts() -> None:
    """A restart, or a training that starts trainings: the last word is the launcher's own."""
    assert training_exit_code(1, EXIT_3 + KILLED, None) == 137
    assert training_exit_code(1, SIMPLE_KILLED + SIMPLE_3, None) == 3


@pytest.mark.parametrize(
    "printed",
    [
        b"",
        b"\x00\xff" * 5000,
        b"Root Cause (first observed failure):\n",
        b"Root Cause (first observed failure):\n[0]:\n  host : x\n  rank : one\n  exitcode : nine\n",
        EXIT_3[: len(_HEAD) + 60],  # cut in the middle of the table
        b"CalledProcessError",
        b"returned non-zero exit status many.",
    ],
)
def test_no_table(printed: bytes) -> None:
    """Then the launcher's own code is all there is."""
    assert first_failure(printed) is None
    assert training_exit_code(1, printed, None) == 1
    assert training_exit_code(42, printed, None) == 42
    assert training_exit_code(-signal.SIGKILL, printed, None) == 137
    assert training_exit_code(-signal.SIGTERM, printed, signal.SIGTERM) == 143


def test_success_is_success() -> None:
    """Even when the training printed something that looks like a failure, or was asked to stop and ended well."""
    for signalled in (None, signal.SIGINT):
        assert training_exit_code(0, EXIT_3, signalled) == 0


def test_stopped_by_a_signal() -> None:
    """The launcher turns a signal into exit code 1; mgpu ends with 128 + N."""
    assert training_exit_code(1, b"SignalException: Process 15593 got signal: 15", signal.SIGTERM) == 143
    assert training_exit_code(1, b"", signal.SIGINT) == 130
    ended = KILLED.replace(b"-9 (pid: 15477)  (SIGKILL)", b"-15 (pid: 15477)  (SIGTERM)")
    assert training_exit_code(1, ended, signal.SIGINT) == 130  # the launcher ended its ranks by SIGTERM
    assert training_exit_code(1, ended, None) == 143
    assert training_exit_code(1, EXIT_3, signal.SIGINT) == 3  # a rank that had its own reason


def test_own_code_after_a_signal() -> None:
    """A training that saves its state when it is asked to end, and ends by itself, has said how."""
    for asked in (signal.SIGTERM, signal.SIGINT):
        assert training_exit_code(3, b"", asked, flattened=False) == 3
        assert training_exit_code(1, b"", asked, flattened=False) == 1
        assert training_exit_code(3, b"", asked) == 3  # no launcher ends with 3 by itself
        for flattened in (True, False):
            assert training_exit_code(-signal.SIGKILL, b"", asked, flattened=flattened) == 128 + asked


@pytest.mark.parametrize("code", [0, 256, 1000, -99])
def test_impossible_codes(code: int) -> None:
    """A number no process ends with is not passed on as it stands."""
    printed = EXIT_3.replace(b"exitcode  : 3 ", b"exitcode  : %d " % code)
    assert 1 <= training_exit_code(1, printed, None) <= 255
    failure = first_failure(printed)
    assert failure is None or failure.signal is None


def test_real_time_signals_have_a_number_only() -> None:
    assert exit_code.FirstFailure(0, None, 128 + 63).signal is None
