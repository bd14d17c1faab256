"""Which signal stopped the launcher first? SIGHUP alone is a closed terminal, with SIGTERM it is more than that."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import frames
from tests.test_log_meanings import explained

API = "torch/distributed/elastic/multiprocessing/api.py"
AGENT = "torch/distributed/elastic/agent/server/api.py"
STEPS = "step 1/9 loss 0.52\nstep 2/9 loss 0.41\n"
SAVES = f"{STEPS}INFO Saving the model state...\nINFO Saving optimizer state...\n"
POLLS = ("_invoke_run", "time.sleep(monitor_interval)")
AGAIN = "\nDuring handling of the above exception, another exception occurred:\n\n"


def raised(signal: int, *within: tuple[str, str]) -> str:
    """torchrun's exception for a signal that it got in these calls."""
    calls = [(AGENT, *one) for one in within]
    handler = (API, "_terminate_process_handler", 'raise SignalException(f"got signal: {sigval}", sigval=sigval)')
    message = f"torch.distributed.elastic.multiprocessing.api.SignalException: Process 77 got signal: {signal}\n"
    return f"{frames(*calls, handler)}{message}"


def received(signal: int | str, second: str) -> str:
    return f"W0321 04:20:{second} 77 {AGENT}:725] Received {signal} death signal, shutting down workers\n"


def closing(signal: str, second: str) -> str:
    return f"W0321 04:20:{second} 77 {API}:908] Sending process 81 closing signal {signal}\n"


NESTED = raised(1, POLLS) + AGAIN + raised(15, ("run", "logger.warning(message, e.sigval)"))
STILL_WAITS = raised(1, POLLS) + AGAIN + raised(15, ("_close", "handler.proc.wait(time_to_wait)"))


@pytest.mark.parametrize(
    "text",
    [
        received(15, "11.605")
        + closing("SIGTERM", "11.611")
        + raised(15, POLLS)
        + AGAIN
        + raised(1, ("_close", "x()")),
        received("Signals.SIGTERM", "11.605") + raised(15, POLLS) + AGAIN + raised(1, ("_close", "x()")),
        NESTED + closing("SIGHUP", "08.227") + raised(1, POLLS),
        received(1, "11.605") + received(15, "11.911"),
        received(15, "11.605") + closing("SIGTERM", "11.611") + received(1, "39.100"),
    ],
)
def test_sigterm_first_or_with_sighup_is_more_than_a_closed_terminal(text: str, tmp_path: Path) -> None:
    row, title, words = explained(tmp_path, STEPS + text)
    assert row == "log_terminal_closed" and "SIGTERM and SIGHUP" in title and "terminal or ssh" not in title
    for word in ("shutdown", "spot", "KillUserProcesses", "last -x | head", "journalctl -b -1 -n 50", "console",
                 "loginctl enable-linger"):  # fmt: skip
        assert word in words, word
    assert "checkpoint was being saved" not in title + words


@pytest.mark.parametrize(
    "text",
    [
        closing("SIGHUP", "11.611") + raised(1, POLLS),
        received(1, "11.605") + closing("SIGHUP", "11.611") + raised(1, POLLS),
        # A user who kills what is left of it, seconds later.
        received(1, "11.605") + closing("SIGHUP", "11.611") + received(15, "29.100"),
        closing("SIGHUP", "11.611") + STILL_WAITS,
        # The job script ends its own helper.
        "run.sh: line 9: 4711 Terminated              nvidia-smi dmon\n" + closing("SIGHUP", "11.6") + raised(1, POLLS),
    ],
)
def test_sighup_first_is_a_closed_terminal(text: str, tmp_path: Path) -> None:
    row, title, words = explained(tmp_path, STEPS + text)
    assert row == "log_terminal_closed" and title.startswith("the terminal or ssh session closed")
    assert "KillUserProcesses" not in words and "mgpu launch --detach train.py" in words


def test_a_checkpoint_that_was_being_saved_may_be_incomplete(tmp_path: Path) -> None:
    both = NESTED + closing("SIGHUP", "08.227") + raised(1, POLLS)
    _, title, words = explained(tmp_path, SAVES + both)
    assert "SIGTERM and SIGHUP" in title and "while a checkpoint was being saved" in title
    assert "may be incomplete" in words and "KillUserProcesses" in words
    alone = received(15, "11.605") + closing("SIGTERM", "11.611") + raised(15, POLLS)
    row, title, words = explained(tmp_path, SAVES + alone)
    assert row == "log_asked_to_end" and "may be incomplete" in words
    assert "incomplete" not in explained(tmp_path, STEPS + alone)[2]
    assert "incomplete" not in explained(tmp_path, f"{SAVES}Saved the checkpoint to out/step-2\n{STEPS}{both}")[2]
