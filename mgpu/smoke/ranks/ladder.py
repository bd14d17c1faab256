"""Which stages does this rank run, and how does it exit?"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import os
import signal
import sys
from pathlib import Path

from . import errors
from . import rank_plan as ordering
from .context import Here
from .journal import Journal

_PR_SET_PDEATHSIG = 1


def main(argv: list[str] | None = None) -> None:
    """Run one rank from start to clean exit; exit code 1 if a stage fails."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--orders", type=Path, required=True)
    orders = ordering.read(parser.parse_args(argv).orders)
    # If the launcher is killed with SIGKILL, nothing else would stop its ranks.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    number = {name: int(os.environ.get(name, default)) for name, default in _LAUNCHED.items()}
    journal = Journal(Path(orders.folder), number["RANK"])
    journal.classify = errors.classify
    journal.listen()
    if error_file := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        # As process/leftover_files.error_folder, which is not importable in a Python without mgpu.
        journal.report["wrote"].append(str(Path(error_file).parents[3]))
    journal.introduce()
    here = Here(orders, journal, number["RANK"], number["LOCAL_RANK"], number["WORLD_SIZE"])
    code = 0
    try:
        run_stages(here)
    except BaseException:  # also sys.exit, even with code 0: the rank did not pass all stages
        code = 1
    journal.finish()
    sys.stdout.flush()
    sys.stderr.flush()
    # Interpreter shutdown with a live process group sometimes aborts; everything is written, so exit directly.
    os._exit(code)


_LAUNCHED = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}


def run_stages(here: Here) -> None:
    """Run the stages in order. Each depends on the ones before."""
    for name in here.orders.rungs:
        with here.journal.stage(name) as details:
            details.append(importlib.import_module(f".{name}", __package__).run_stage(here))
