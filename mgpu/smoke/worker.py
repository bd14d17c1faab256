"""The entry point of a smoke test rank: `accelerate launch ... /path/of/mgpu/smoke/worker.py --orders FILE`.

A file, not a module: `-m` would put the current folder first on sys.path, and a `json.py` or another `mgpu` in it would
be imported. The package with the stages is loaded from the folder `ranks`, under another name.
"""

import sys

if __name__ == "__main__" and not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
    del sys.path[0]  # the folder of this file: its modules must not be importable by their bare names

import importlib.util
from pathlib import Path
from types import ModuleType

_NAME = "mgpu_smoke_ranks"


def _stages() -> ModuleType:
    folder = Path(__file__).resolve().parent / "ranks"
    spec = importlib.util.spec_from_file_location(
        _NAME, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[_NAME] = package
    spec.loader.exec_module(package)
    return importlib.import_module(f"{_NAME}.ladder")


if __name__ == "__main__":
    _stages().main()
