"""Is what a package lacks its compiled part, which is built when it is installed or first used?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Meaning

_ENGINE_WITHOUT_TORCH = Meaning(
    "Transformer Engine is installed without its part for torch",
    "Its extension for torch is compiled when it is installed. The plain package has none, or the build was skipped or "
    "failed.",
    (
        Fix(
            "Install it with the extension, for this torch.",
            (
                "pip install --no-build-isolation 'transformer-engine[pytorch]'",
                "python -c 'import transformer_engine.pytorch'",
            ),
        ),
    ),
)

_HELPERS = ("helpers", "helpers_cpp")  # a C++ extension of megatron.core.datasets, earlier of megatron.data
_HELPERS_NOT_COMPILED = Meaning(
    "Megatron's dataset helpers are not compiled",
    "Rank 0 compiles them when training starts. make or g++ failed or is missing, or the folder cannot be written.",
    (
        Fix(
            "Compile them, and read make's first error.",
            (
                "make -C $(python -c 'import megatron.core.datasets as d; print(d.__path__[0])')",
                "pip install pybind11",
                "make -C megatron/data  # in a repository of an older release",
            ),
        ),
    ),
)


def explain(package: str, name: str) -> Meaning | None:
    """Explain a module or a name that is compiled; None if it is not known as one."""
    if package == "megatron" and name in _HELPERS:
        return _HELPERS_NOT_COMPILED
    return _ENGINE_WITHOUT_TORCH if (package, name) == ("transformer_engine", "pytorch") else None
