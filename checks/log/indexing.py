"""Does the code take an item of something that has none of this kind: a slice of a dict, one value of an array?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case, Row, signatures

from ._circumstances import either, said, through

_DICT = "https://docs.python.org/3/library/stdtypes.html#mapping-types-dict"
_ITEM = "https://numpy.org/doc/stable/reference/generated/numpy.ndarray.item.html"

# fmt: off
_TABLE = Case(
    either(said(r"Invalid ?Index|is an invalid key"), through("pandas")),
    "a table of pandas is sliced with [ ] as if it were an array",
    "[ ] of a DataFrame takes names of columns or a range of rows. Rows and columns by their position are taken with "
    ".iloc, by their names with .loc.",
    Fix("Use .iloc, or make an array of the table.", ("df.iloc[:, 1]", "df.to_numpy()[:, 1]")),
    "pandas.errors.InvalidIndexError: (slice(None, None, None), 0)\n",
    "https://pandas.pydata.org/docs/user_guide/indexing.html")
ROWS = (
    Row("log_dict_sliced", "root", "script",
        r"(?:KeyError|InvalidIndexError|InvalidIndexer): \(?slice\(|unhashable type: '?slice\b|"
        r"TypeError: ['\"]?\(slice\(.*is an invalid key",
        ("KeyError: slice(0, 30, None)", "TypeError: unhashable type: 'slice'", "TypeError: unhashable type: slice",
         "pandas.errors.InvalidIndexError: (slice(None, None, None), 0)"),
        "a dict or a table is sliced as if it were a tensor or a list",
        "x[0:30] and x[:, 1] are for tensors, arrays and lists. A dict looks the slice up as a key: what a model, a "
        "tokenizer, a collator or generate() returned has a tensor in it, or a function now returns a dict where it "
        "returned a tensor. A table of pandas needs .iloc.",
        (Fix("Print what it is, before that line.", ("print(type(x), x.keys() if hasattr(x, 'keys') else '')",)),
         Fix("Slice the tensor in it, each entry, or the rows of the table.",
             ("x['input_ids'][0:30]", "{{key: value[0:30] for key, value in x.items()}}", "df.iloc[:, 1]"))), _DICT,
        cases=(_TABLE,)),
    Row("log_array_not_one_value", "root", "script",
        r"only (?:length-1|size-1|0-dimensional) arrays can be converted to Python scalars",
        ("TypeError: only length-1 arrays can be converted to Python scalars",
         "TypeError: only size-1 arrays can be converted to Python scalars",
         "TypeError: only 0-dimensional arrays can be converted to Python scalars"),
        "an array with several values, or none, is used as one number",
        ".item(), float() and int() need exactly one value. The array has one per sample, class or channel, or it is "
        "empty because nothing was computed.",
        Fix("Print its shape before that line, and take one value or reduce it.",
            ("print(x.shape)", "x.mean().item()", "x[0].item()")), _ITEM),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
