"""Where a rank of the smoke test begins: `accelerate launch ... /path/of/mgpu/smoke/worker.py --orders FILE`.

A file, not a module: `-m` would put the current folder first on sys.path, and a `json.py` or another `mgpu` in it would
be imported. The package of the stages is loaded from beside this file, under a name of its own.
"""

import sys

if __name__ == "__main__" and not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
    del sys.path[0]  # the folder of this file: none of its modules is to be imported by its bare name

import importlib.util
from pathlib import Path
from types import ModuleType

_NAME = "mgpu_smoke_ranks"


def _ladder() -> ModuleType:
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
    _ladder().main()
