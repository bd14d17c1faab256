"""Did pip or a build of a package fail?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

_PIP = "https://pip.pypa.io/en/stable/topics/dependency-resolution/"
# fmt: off
ROWS = (
    Row("log_build_isolated", "root", "library",
        r"Failed to build '?(?P<package>[\w.-]+)'? when getting requirements to build wheel",
        ("ERROR: Failed to build 'flash-attn' when getting requirements to build wheel",),
        "pip could not prepare the build of {package}",
        "pip builds in an empty environment, so a setup.py that imports torch does not find it, although torch is "
        "installed. Less often nvcc or a compiler is missing.",
        (Fix("Build in the environment, after torch is installed.",
             ("pip install torch ninja packaging wheel setuptools",
              "pip install --no-build-isolation {package:package}")),
         Fix("Or install a wheel that was built for your torch, CUDA and Python.",
             ("python -c 'import torch, sys; print(torch.__version__, torch.version.cuda, sys.version)'",))),
        "https://pip.pypa.io/en/stable/reference/build-system/#build-isolation",
        summary="pip could not prepare the build of a package."),
    Row("log_package_version_not_offered", "secondary", "library",
        r"(?:No matching distribution found for|Could not find a version that satisfies the requirement) "
        r"(?P<package>\S+)",
        ("ERROR: No matching distribution found for torch==2.9.0",
         "ERROR: Could not find a version that satisfies the requirement flash-attn-4 (from versions: none)"),
        "pip finds no version of {package} for this Python and system",
        "The release has no wheel for this Python version or processor, the version does not exist, or the index "
        "(--index-url) has only some packages, or is not reachable.",
        Fix("Compare Python and system with the files that the index offers.",
            ("python --version; uname -m; pip --version", "pip index versions PACKAGE")), _PIP,
        summary="pip finds no version of a package for this Python and system."),
    Row("log_packages_contradict", "secondary", "library",
        r"ResolutionImpossible|these package versions have conflicting dependencies",
        ("ERROR: ResolutionImpossible: for help visit https://pip.pypa.io/en/latest/topics/dependency-resolution/",
         "ERROR: Cannot install a==1 and b==2 because these package versions have conflicting dependencies."),
        "pip cannot install the requested versions together",
        "Two packages require different versions of a third one. The lines above name them.",
        Fix("Loosen one of the pins, and let pip choose.", ("pip install --dry-run -r requirements.txt",)), _PIP),
    Row("log_system_python", "secondary", "library", r"externally-managed-environment",
        ("error: externally-managed-environment",),
        "pip refuses to install into the system's Python", "The distribution manages it itself (PEP 668).",
        Fix("Use a virtual environment.", ("python3 -m venv ~/venv && . ~/venv/bin/activate",)),
        "https://peps.python.org/pep-0668/"),
    Row("log_torch_incomplete", "root", "library",
        r"Failed to load PyTorch C extensions|"
        r"\blibtorch(?:_(?!npu\b)\w+)?\.so: undefined symbol: (?!nccl)\w+",
        ("ImportError: Failed to load PyTorch C extensions:",
         "ImportError: /x/torch/lib/libtorch_cuda.so: undefined symbol: cublasLtGetVersion"),
        "the installation of torch is incomplete, or mixed from two versions",
        "An upgrade was interrupted, two installers (conda and pip) wrote the same folder, the source folder `torch` "
        "of a checkout comes first, or its CUDA packages (nvidia-...) have other versions than it requires.",
        (Fix("Reinstall it with the packages that it requires, or create a new environment.",
             ("pip uninstall -y torch; pip install --force-reinstall --no-cache-dir torch", "pip check",
              "mgpu doctor --only requirement_not_met")),
         Fix("Remove other CUDA libraries from the path.",
             ("unset LD_LIBRARY_PATH", "mgpu doctor --only library_path_shadows_wheels"))),
        "https://github.com/pytorch/pytorch/issues/51080"),
    Row("log_libraries_mixed", "root", "library",
        r"symbol (?P<symbol>\S+), version \S+ not defined in file (?P<library>\S+) with link time reference",
        ("OSError: /x/nvidia/cublas/lib/libcublas.so.11: symbol cublasLtHSHMatmulAlgoInit, version libcublasLt.so.11 "
         "not defined in file libcublasLt.so.11 with link time reference",),
        "the library {library} that was found first is from another release: it lacks {symbol}",
        "A CUDA toolkit or a module on LD_LIBRARY_PATH comes before the libraries that torch brings, or two packages "
        "(-cu11, -cu12, -cu13) wrote into one folder.",
        (Fix("Remove the other folder from the path.",
             ("unset LD_LIBRARY_PATH", "mgpu doctor --only library_path_shadows_wheels")),
         Fix("Or reinstall torch in a new environment.", ("pip list | grep -i nvidia",))),
        "https://man7.org/linux/man-pages/man8/ld.so.8.html",
        summary="A library that was found first is from another release."),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
