"""In which type does the model compute? Read from the outputs of its layers, not from a setting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from .context import Here


@contextmanager
def observe(here: Here, name: str, model: Any) -> Iterator[None]:
    """Report the types that the linear layers of a model return, as `dtypes[name]`: "bfloat16"."""
    found: set[str] = set()

    def note(_: Any, __: Any, output: Any) -> None:
        found.add(str(output.dtype).removeprefix("torch."))

    hooks = [layer.register_forward_hook(note) for layer in model.modules() if isinstance(layer, nn.Linear)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
    if found:
        here.reports(dtypes={**here.journal.report.get("dtypes", {}), name: " and ".join(sorted(found))})
        here.journal.introduce("dtypes")
