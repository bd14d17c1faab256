"""Which column, row or group does a table of pandas not have?

df['x'] reads a column, df.loc[7] and series[7] the row with the label 7, which is not the one at position 7.
"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.snapshot import UncaughtException

from .._wording import at_place
from ._messages import short_name
from ._own_objects import Meaning

_TEXT = re.compile(r"(['\"]).*\1$")
_LISTED = re.compile(
    r"(?P<names>\[.*?\])\"? not (?:found in axis|in index)|None of .*? (?:is|are) in the \[?(?P<of>\w+)"
)
_OF_FRAME = re.compile(r"^pandas/core/frame\.py in (?:__getitem__|pop|__delitem__|set_index)$")
_OF_ROWS = re.compile(r"^pandas/core/(?:series\.py in (?:__getitem__|_get_value|pop)|indexing\.py in )")
_OF_GROUPS = re.compile(r"^pandas/core/groupby/\w+\.py in get_group$")
_READS_ROWS = re.compile(r"\.(?:loc|at|xs)\b")
_DROPS_COLUMNS = re.compile(r"columns ?=|axis ?= ?(?:1|['\"]columns)")
_COLUMNS = Fix("Print the columns before that line.", ("print(df.columns.tolist())", "head -n 2 FILE"))
_LABELS = Fix("Print the labels before that line.", ("print(df.index[:20], len(df))",))
_POSITIONS = (
    Fix("Read the row at a position.", ("df.iloc[i]",)),
    Fix("Or number the rows from 0 again, after they were filtered or split.", ("df = df.reset_index(drop=True)",)),
)


def missing_label(one: UncaughtException) -> Meaning | None:
    """Explain a name or number that pandas did not find; None if it is another exception."""
    if short_name(one.type) != "KeyError" or not (one.raised_in or "").startswith("pandas/") or not one.message:
        return None
    at = at_place(one)
    code = one.own_code or ""
    if listed := _LISTED.search(one.message):
        return _of_several(listed, code, at)
    if any(map(_OF_GROUPS.match, one.frames)):
        return _meaning(
            f"the table has no group {one.message}{at}",
            "No row has this value in the column that the table is grouped by: it was filtered out, or is written or "
            "typed otherwise (1 and '1').",
            Fix("Print the groups before that line.", ("print(list(grouped.groups))",)),
        )
    of_frame = any(map(_OF_FRAME.match, one.frames))
    of_rows = any(map(_OF_ROWS.match, one.frames)) or bool(_READS_ROWS.search(code))
    if not _TEXT.match(one.message):
        return _of_number(one.message, at, of_frame=of_frame and not of_rows)
    if of_rows and not of_frame:
        return _meaning(
            f"the table has no row (or column) with the label {one.message}{at}",
            "A series, .loc and .at look up the label of a row. The rows have other labels: numbers, because the "
            "column of names was not made the index, other spelling, or the row was filtered out.",
            _LABELS,
        )
    return _meaning(
        f"the table has no column {one.message}{at}",
        "The table has other columns than the script reads: another version of the data, a space or capital letters "
        "in the header, another separator, or a column that an earlier line removed or renamed.",
        _COLUMNS,
    )


def _of_number(key: str, at: str, *, of_frame: bool) -> Meaning:
    if of_frame:
        return _meaning(
            f"the table has no column {key}{at}",
            "df[7] reads the column of that name, not a row. The columns have names, or fewer numbers than the code "
            "expects.",
            _COLUMNS,
            _POSITIONS[0],
        )
    return _meaning(
        f"the table has no row with the label {key}{at}",
        "series[i] and df.loc[i] look up the label of a row, not its position. After filtering, splitting, shuffling "
        "or dropping rows, each row keeps the label that it had, and others are missing.",
        *_POSITIONS,
        _LABELS,
    )


def _of_several(found: re.Match[str], code: str, at: str) -> Meaning:
    """Explain a list of names, of which pandas reports those that are missing."""
    names = f": {found['names']}" if found["names"] else ""
    drops = re.search(r"\.drop\(", code)
    if drops and not _DROPS_COLUMNS.search(code):
        return _meaning(
            f"drop() did not find what it should remove{names}{at}",
            "Without columns= or axis=1, it looks for rows with these labels. Otherwise, they were removed before, or "
            "have other names.",
            Fix("If columns are meant, say so.", ("df.drop(columns=['NAME'])",)),
            _COLUMNS,
        )
    rows = found["of"] == "index" or (not drops and bool(_READS_ROWS.search(code)))
    what = "rows (or columns)" if rows else "columns"
    return _meaning(
        f"the table lacks {what} that the line names{names}{at}",
        "The table has other labels than the script reads: another version of the data, a space or capital letters in "
        "the header, another separator, or an earlier line removed or renamed them.",
        _LABELS if rows else _COLUMNS,
    )


def _meaning(title: str, why: str, *fixes: Fix) -> Meaning:
    return Meaning(title, why, fixes, of_code=False)
