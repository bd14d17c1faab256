"""Which rungs does this rank climb, and how does it leave?"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import os
import signal
import sys
from pathlib import Path

from mgpu.process.leftover_files import error_folder

from . import errors
from . import rank_plan as ordering
from .context import Here
from .journal import Journal

_PR_SET_PDEATHSIG = 1


def main(argv: list[str] | None = None) -> None:
    """One rank, from start to clean exit; exit code 1 when a rung fails."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--orders", type=Path, required=True)
    orders = ordering.read(parser.parse_args(argv).orders)
    # When the launcher dies by SIGKILL nobody else would end its ranks.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    number = {name: int(os.environ.get(name, default)) for name, default in _LAUNCHED.items()}
    journal = Journal(Path(orders.folder), number["RANK"])
    journal.name = errors.named
    journal.listen()
    if error_file := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        journal.report["wrote"].append(error_folder(error_file))
    journal.introduce()
    here = Here(orders, journal, number["RANK"], number["LOCAL_RANK"], number["WORLD_SIZE"])
    code = 0
    try:
        climb(here)
    except Exception:
        code = 1
    journal.finish()
    sys.stdout.flush()
    sys.stderr.flush()
    # Interpreter shutdown with a live process group sometimes aborts; everything is written, so leave directly.
    os._exit(code)


_LAUNCHED = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}


def climb(here: Here) -> None:
    """The rungs in order. Each needs the ones below."""
    for rung in here.orders.rungs:
        with here.journal.climbing(rung) as told:
            told.append(importlib.import_module(f".{rung}", __package__).climb(here))
