"""Where does a text come from that the code computes with, sorts or compares: a table, a literal, an answer?

Explanations for the row of settings that were read as text, where no name of a setting shows.
"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

from .._wording import at_place

_TABLES = frozenset({"pandas", "numpy", "scipy", "sklearn", "polars", "seaborn", "matplotlib", "statsmodels"})
_SORTS = re.compile(
    r"\b(?:sorted|np\.unique|np\.sort)\(|\b(?:min|max)\([^,()]*\)|\.sort\(|sort_values\(|unique\(|groupby\("
)
_COMPARED = re.compile(r"not supported between instances of")
_WITH_FLOAT = re.compile(r"'(?:str' and 'float|float' and 'str)'")
_ADDED = re.compile(r"operand type\(s\) for \+=?:")
_LITERAL = re.compile(r"['\"] ?\+(?!=)|\+=? ?[frFR]?['\"]")
_ASKED = re.compile(r"\b(?:input|raw_input)\(|sys\.argv\[")


def text_among_numbers(raised: UncaughtException) -> Meaning | None:
    """Return what the line and the frames show of such a text; None for a framework's own line."""
    own, code = raised.raised_in_own_code, raised.own_code or raised.code or ""
    at = at_place(raised)
    line = f' The line is "{code}".' if code else ""
    if own and _COMPARED.search(raised.message) and _SORTS.search(code):
        return _sorted(raised, at, line)
    if raised.packages[-1:] and raised.packages[-1] in _TABLES:
        return _column(at, line)
    if own and _ADDED.search(raised.message) and _LITERAL.search(code):
        return Meaning(
            f"a number and a text are joined with +{at}",
            f"+ joins texts, or adds numbers, and does not convert one to the other.{line}",
            (Fix("Put the number into the text.", ("f'accuracy {value:.2f} %'", "str(value) + ' %'")),),
        )
    if own and _ASKED.search(code):
        return Meaning(
            f"the code computes with a text: what input() and sys.argv return{at}",
            f"They return texts, also for digits.{line}",
            (Fix("Convert it first.", ("n = int(input('number: '))", "n = int(sys.argv[1])")),),
        )
    return None


def _sorted(raised: UncaughtException, at: str, line: str) -> Meaning:
    missing = (
        "Probably a value is missing: pandas reads an empty cell as NaN, which is a float, among texts."
        if _WITH_FLOAT.search(raised.message)
        else "A list or a column has both numbers and texts."
    )
    return Meaning(
        f"values of different types are sorted or compared, texts and numbers{at}",
        f"Python does not order a text and a number. {missing}{line}",
        (
            Fix("Look for the values of the other type.", ("print(set(map(type, values)))",)),
            Fix(
                "Leave out what is missing, or make all of them texts.",
                ("df['label'].dropna()", "df['label'].astype(str)"),
            ),
        ),
    )


def _column(at: str, line: str) -> Meaning:
    return Meaning(
        f"a column or an array has texts, and the code computes with it as with numbers{at}",
        'One cell that is no number (a header line within the file, a unit, a thousands separator, "-" for a missing '
        f"value) makes a whole column texts (object).{line}",
        (
            Fix(
                "Look at the types, and at the cells that are not numbers.",
                ("print(df.dtypes)", "print(df[pd.to_numeric(df['x'], errors='coerce').isna()])"),
            ),
            Fix(
                "Convert the column, or say how the file writes numbers.",
                (
                    "df['x'] = pd.to_numeric(df['x'], errors='coerce')",
                    "pd.read_csv(path, thousands=',', na_values=['-'])",
                ),
            ),
        ),
    )
