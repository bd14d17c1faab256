"""Which table has no row for an id, in a program that has nothing of text: users, items, nodes, classes, positions?

Cases of `log_index_out_of_range`.
"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case

from ._circumstances import every, never, own_line, reported, within
from ._embedding_cases import OF_EMBEDDING
from ._image_cases import NO_TEXT

_OF_OTHERS = every(NO_TEXT, within(r"."), never(own_line(r"(?i)tok|vocab|text|word|wte|wpe|ids?\b.*mask")))
_EMBEDDING = "https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html"
# fmt: off
_SCRIPT = ('Traceback (most recent call last):\n  File "/x/fit.py", line 7, in forward\n    {line}\n'
           '  File "/x/site-packages/torch/{file}", line 9, in {function}\n    return torch.f(weight, input)\n'
           "IndexError: index out of range in self")
_WHY = (
    "A table of n rows has the indices 0 to n - 1. The ids count from 1, some are only in the test data or in a new "
    "version of the data, -1 marks a missing one, or a column was mixed up with another one. If they are tokens or "
    "positions: another tokenizer, or a sequence that is too long.")
_NUMBER_AGAIN = Fix(
    "If the ids have gaps or do not begin with 0, number them again; else make the table for all of them.",
    ("ids = torch.unique(ids, return_inverse=True)[1]", "nn.Embedding(int(ids.max()) + 1, dim)"))
ID_WITHOUT_ROW = (
    Case(every(OF_EMBEDDING, _OF_OTHERS),
         "an id has no row in the embedding: too large or negative ({the_place})",
         _WHY,
         (Fix("Compare the ids with the number of rows, on the CPU.",
              ("print(ids.min(), ids.max(), embedding.num_embeddings)",)), _NUMBER_AGAIN),
         _SCRIPT.format(line="u = self.items(ids)", file="nn/functional.py", function="embedding"), _EMBEDDING),
    Case(every(reported(r"index out of range in self"), _OF_OTHERS),
         "an index has no row in the table that it is looked up in: too large or negative ({the_place})",
         f"The message is of the CPU's embedding and index_select. {_WHY}",
         (Fix("Compare the indices with the number of rows.", ("print(index.min(), index.max(), x.shape)",)),
          _NUMBER_AGAIN),
         _SCRIPT.format(line="h = x.index_select(0, src)", file="functional.py", function="f"), _EMBEDDING),
)
# fmt: on
