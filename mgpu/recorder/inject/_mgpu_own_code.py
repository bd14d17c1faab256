"""Which code is the user's own, and which of Python and torch?

Runs with any Python from 3.8 on.
"""

from __future__ import annotations

import functools
import os

_SITES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_PYTHON = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep


@functools.lru_cache(4096)
def is_users(file: str) -> bool:
    """Whether code is the user's own: not of Python, of an installed package, or of mgpu."""
    if file.startswith("<"):
        return False
    path = os.path.abspath(file)
    return not (path.startswith((_OWN, _PYTHON)) or any(site in path for site in _SITES))


def is_of_python(file: str) -> bool:
    """Whether code is of Python's own library, of the recorder, or generated."""
    path = os.path.abspath(file)
    if file.startswith("<") or path.startswith(_OWN):  # mgpu itself can be installed in site-packages
        return True
    return path.startswith(_PYTHON) and not any(site in path for site in _SITES)


def is_of_torch(file: str) -> bool:
    """Whether code is of Python itself, of torch, or generated."""
    path = os.path.abspath(file)
    packages = [place for site in _SITES if (place := path.rpartition(site)[2]) != path]
    return is_of_python(file) or any(one.startswith("torch" + os.sep) for one in packages)
