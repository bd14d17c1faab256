"""How is another Python started without the current folder on its sys.path?

`python -m` and `python -c` put the current folder first, so that a `json.py` or a folder `accelerate` in a project
would be executed by mgpu's own processes. The environment stays as it is: with PYTHONSAFEPATH the ranks would lose the
folder of their script as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_VARIABLE, _FOR_ONE = "PYTHONSAFEPATH", "mgpu"  # any value switches it on; by ours the process knows to remove it
_ON_A_NODE = (
    "import sys; sys.path[:] = [p for p in sys.path if p]; import os; "
    f"os.environ.get({_VARIABLE!r}) == {_FOR_ONE!r} and os.environ.pop({_VARIABLE!r}); "
)
_RUNNER = str(Path(__file__).with_name("run_text.py"))
_SAFE_PATH = (3, 11)  # the first Python that has -P
# For Python 3.10. `sys` is built in, so that it comes from no folder.
_CALL = 'import sys; del sys.path[0]; sys.argv[0] = "{name}"; from {name} import main; main()'


def text(python: str, program: str, *flags: str) -> list[str]:
    """The words that run a program text; what is appended becomes its sys.argv[1:]."""
    return [python, *flags, _RUNNER, program]


def module(python: str, version: str, name: str) -> list[str]:
    """The words that run a module with a function `main`; `version` is the interpreter's.

    They work without mgpu: users copy them.
    """
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) >= _SAFE_PATH:
        return [python, "-P", "-m", name]
    return [python, "-c", _CALL.format(name=name)]


def text_on_nodes(program: str) -> str:
    """A program text for `python -c` on other nodes, whose Python may have another version and other folders; `sys` is
    imported. Its processes inherit nothing of `on_nodes`."""
    return _ON_A_NODE + program


def on_nodes(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment in which that text starts: Python 3.11 reads the variable, 3.10 ignores it and is safe without.
    A PYTHONSAFEPATH of the user's stays."""
    return {_VARIABLE: _FOR_ONE, **environment}
