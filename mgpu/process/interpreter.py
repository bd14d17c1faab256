"""How is another Python started without the current folder on its sys.path?

`python -m` and `python -c` put the current folder first, so mgpu's own processes would execute a `json.py` or a folder
`accelerate` in a project. The environment is not changed: with PYTHONSAFEPATH the ranks would also lose the folder of
their script.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_VARIABLE, _FOR_ONE = "PYTHONSAFEPATH", "mgpu"  # any value enables it; the process removes it if it has mgpu's value
_ON_A_NODE = (
    "import sys; sys.path[:] = [p for p in sys.path if p]; import os; "
    f"os.environ.get({_VARIABLE!r}) == {_FOR_ONE!r} and os.environ.pop({_VARIABLE!r}); "
)
_RUNNER = str(Path(__file__).with_name("run_text.py"))
_SAFE_PATH = (3, 11)  # the first Python that has -P
# For Python 3.10. `sys` is built in, so it is not imported from a folder.
_CALL = 'import sys; del sys.path[0]; sys.argv[0] = "{name}"; from {name} import main; main()'


def text(python: str, program: str, *flags: str) -> list[str]:
    """Return the arguments that run a program text; appended arguments become its sys.argv[1:]."""
    return [python, *flags, _RUNNER, program]


def module(python: str, version: str, name: str) -> list[str]:
    """Return the arguments that run a module with a function `main`; `version` is the interpreter's.

    They work without mgpu, because users copy them.
    """
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) >= _SAFE_PATH:
        return [python, "-P", "-m", name]
    return [python, "-c", _CALL.format(name=name)]


def text_on_nodes(program: str) -> str:
    """Return a program text for `python -c` on other nodes, with another Python version or other folders.

    `sys` is imported. Its child processes do not inherit the variable of `on_nodes`.
    """
    return _ON_A_NODE + program


def on_nodes(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for `text_on_nodes`: Python 3.11 reads the variable, 3.10 is safe without it.

    The user's own PYTHONSAFEPATH is kept.
    """
    return {_VARIABLE: _FOR_ONE, **environment}
