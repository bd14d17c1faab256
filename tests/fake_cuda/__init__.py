"""How do tests use GPUs that are not there?

`fake_cuda.c` is built into a real libcuda.so.1; what it answers is planned by the variable FAKE_CUDA. `torch_stub.py`
is a synthetic torch: it has the few calls the probe makes, computes nothing, and FAKE_TORCH plans its faults.

    env = environment(build(folder), "cuInit@GPU-3=802", torch="nan@GPU-1")
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.fake_nvml import unavailable

HERE = Path(__file__).parent
LIBRARY = "libcuda.so.1"


def build(folder: Path) -> Path:
    """Compile the library into `folder`, once, and put the synthetic torch beside it; the folder."""
    library = folder / LIBRARY
    if library.exists():
        return folder
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        unavailable("no C compiler (cc, gcc, clang) to build the fake libcuda with")
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f"{LIBRARY}.{os.getpid()}"
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}"]
    subprocess.run([compiler, *flags, "-o", str(unfinished), str(HERE / "fake_cuda.c")], check=True)
    (folder / "python" / "torch").mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "torch_stub.py", folder / "python" / "torch" / "__init__.py")
    unfinished.replace(library)
    return folder


def environment(
    library: Path, plan: str = "", *, torch: str | None = "", base: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The variables, on top of `base`, for this plan; `torch` is the stub's plan, None leaves the stub away."""
    paths = [str(library), *filter(None, [base.get("LD_LIBRARY_PATH")])]
    found = {"LD_LIBRARY_PATH": os.pathsep.join(paths), "FAKE_CUDA": plan}
    if torch is not None:
        stub = [str(library / "python"), *filter(None, [base.get("PYTHONPATH")])]
        found |= {"PYTHONPATH": os.pathsep.join(stub), "FAKE_TORCH": torch}
    return found
