"""What did the program print last, before its launcher reported that a rank had failed?"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from mgpu import file_reading
from mgpu.readers.log.line import parse_line, shown_text
from mgpu.readers.log.opening import UTF_16
from mgpu.readers.log.row_matching import LONGEST_LINE
from mgpu.readers.log.torchrun_table import FAILURE_REPORT
from mgpu.snapshot import FailedRank

_WORDS = re.compile(r"^(?!.*Setting OMP_NUM_THREADS).*\w")


def last_words(path: Path, fallen: Iterable[FailedRank]) -> str | None:
    """Return the program's last line before its launcher reported a failed rank.

    Lines with the prefix of another rank are not the last words of the one that failed first.
    """
    first = {one.rank for one in fallen if one.first}
    try:
        if path.suffix == ".gz" or file_reading.read_start(path, most=2) in UTF_16:
            return None
        with open(file_reading.open_checked(path), "rb") as file:
            file.seek(max(0, path.stat().st_size - LONGEST_LINE))
            text = file.read(LONGEST_LINE).decode("utf-8", "replace").replace("\r", "\n")
    except OSError:  # stdin or a pipe, which cannot be read twice
        return None
    of_launcher = FAILURE_REPORT.search(text)
    lines = [line for line in text[: of_launcher.start() if of_launcher else 0].split("\n") if _WORDS.search(line)]
    parsed = (parse_line(line) for line in reversed(lines))
    last = next((one for one in parsed if one.rank is None or not first or one.rank in first), None)
    return shown_text(last.text) or None if last else None
