"""Where a rank of the smoke test begins: `accelerate launch … -m mgpu.smoke.worker --orders FILE`.

Handed to the launcher as a file where another `mgpu` would be found first, or none: then the package of the rungs is
loaded from beside this file, under a name of its own, and no folder of ours comes onto sys.path.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

_NAME = "mgpu_smoke_ranks"


def _ladder() -> ModuleType:
    if __package__:
        return importlib.import_module(".ranks.ladder", __package__)
    folder = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != folder]
    spec = importlib.util.spec_from_file_location(
        _NAME, folder / "ranks" / "__init__.py", submodule_search_locations=[str(folder / "ranks")]
    )
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[_NAME] = package
    spec.loader.exec_module(package)
    return importlib.import_module(f"{_NAME}.ladder")


if __name__ == "__main__":
    _ladder().main()
