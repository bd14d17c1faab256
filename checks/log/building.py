"""Did a compiler, a linker, make, CMake or pip fail to build a part of a package?

Torch, Triton, Megatron and DeepSpeed compile code when a run starts. These tools are not Python: they leave no
exception, or one that only reports that a command failed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Case, Meaning, Row, signatures
from mgpu.snapshot import UncaughtException

from ._circumstances import shown
from ._missing_includes import explain_include

_GCC = "https://gcc.gnu.org/onlinedocs/cpp/Search-Path.html"
_MAKE = "https://www.gnu.org/software/make/manual/html_node/Error-Messages.html"
_LINKER = "https://sourceware.org/binutils/docs/ld/Options.html"
_CMAKE = "https://cmake.org/cmake/help/latest/command/message.html"
_PIP = "https://pip.pypa.io/en/stable/reference/build-system/"
# fmt: off
_BUILD = "or use an image that has it (-devel)."
# Headers as a pattern of `re`: what has them, why they are missing, the fix.
_HEADERS: tuple[tuple[str, str, str, Fix], ...] = (
    (r"(?:cuda\w*|cublas\w*|cusparse\w*|cusolver\w*|curand\w*|cufft\w*|nvrtc|nvml|cupti|driver_types|"
     r"device_launch_parameters|crt/\w+|nvtx3/\w+|thrust/\S+|cub/\S+)\.\w+$",
     "the CUDA toolkit", "Runtime images and torch's wheels have the libraries, but not these headers.",
     Fix(f"Install the CUDA toolkit, {_BUILD}",
         ("ls /usr/local/cuda/include/cuda.h; nvcc --version", "conda install -c nvidia cuda-toolkit",
          "export CUDA_HOME=/usr/local/cuda CPATH=/usr/local/cuda/include"))),
    (r"cudnn\w*\.h$", "cuDNN", "torch's wheel has its library, but the build does not look there.",
     Fix(f"Install it, {_BUILD}", ("pip install nvidia-cudnn-cu12",
                                  "find / -name 'cudnn*.h' 2>/dev/null | head -3"))),
    (r"nccl\w*\.h$", "NCCL", "torch's wheel has its library, but the build does not look there.",
     Fix(f"Install its development files, {_BUILD}", ("sudo apt-get install -y libnccl-dev",
                                                     "find / -name nccl.h 2>/dev/null | head -3"))),
    (r"(?:hip|rocm\w*|hipblas\w*|rccl)(?:/\S+)?\.h(?:pp)?$", "ROCm", "The image has ROCm's libraries only.",
     Fix(f"Install its development files, {_BUILD}", ("ls /opt/rocm/include",))),
    (r"mpi\.h$", "MPI", "Only its libraries are installed, or its module is not loaded.",
     Fix("Install its development files, or load its module.", ("sudo apt-get install -y libopenmpi-dev",
                                                                "mpicc --showme:incdirs"))),
    (r"(?:infiniband|rdma)/\S+\.h$", "rdma-core or libfabric", "Only the libraries are installed.",
     Fix("Install the development files.", ("sudo apt-get install -y libibverbs-dev librdmacm-dev",))),
    (r"libaio\.h$", "libaio", "DeepSpeed's async_io needs its development files.",
     Fix("Install them.", ("sudo apt-get install -y libaio-dev",))),
    (r"numa(?:if)?\.h$", "libnuma", "Only the library is installed, without its development files.",
     Fix("Install them.", ("sudo apt-get install -y libnuma-dev",))),
    (r"pybind11/\S+\.h$", "pybind11", "The build takes its headers from the Python package.",
     Fix("Install it where the build runs.", ("pip install pybind11",))),
    (r"(?:torch|ATen|c10)/\S+\.h$", "torch",
     "The build does not use the environment's torch, or another release of torch moved the header.",
     Fix("Build in the environment, with the torch that the package supports.",
         ("pip install --no-build-isolation PACKAGE", "python -c 'import torch; print(torch.__version__)'"))),
)
_COMPILE_NOT = Fix("Or turn off torch.compile.", ("export TORCHDYNAMO_DISABLE=1",), kind="stopgap",
                   caveat="Training is slower.")


def _header(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain a header by what has it."""
    header = groups["header"]
    known = next((one for one in _HEADERS if re.match(one[0], header)), None)
    if known is None:
        return None
    _, owner, why, fix = known
    if not re.search(r"/tmp\w*/\w+/(?:main|cuda_utils|__triton_launcher)\.c$", groups["file"]):
        return Meaning(f"{header} of {owner} is missing, so compiling failed", why, (fix,))
    return Meaning(f"{header} of {owner} is missing, so Triton or torch.compile cannot build its code",
                   f"{why} Triton and torch.compile compile a small C file for each kernel at run time.",
                   (fix, _COMPILE_NOT))


_WHEEL_WITHOUT_IT = Case(
    shown("make_in_package"),
    "the installed package does not contain the Makefile of its C++ helpers, so they cannot be compiled",
    "make was started in the folder of an installed package (Megatron's dataset helpers are compiled this way when a "
    "run starts). Some releases left the Makefile out of the wheel.",
    (Fix("Install a release that has the Makefile, or install the package from a clone of its repository.",
         ("pip install --upgrade PACKAGE", "pip install git+https://github.com/OWNER/PACKAGE")),
     Fix("Or copy the Makefile, and the C++ files next to it, from the repository into that folder.")),
    "make: Entering directory '/opt/venv/lib/python3.12/site-packages/nemo_automodel/components/datasets/llm/"
    "megatron'\nmake: *** No targets specified and no makefile found.  Stop.\n",
    "https://github.com/NVIDIA-NeMo/Automodel/pull/798")

ROWS = (
    Row("log_header_missing", "root", "library",
        r"(?:(?<![^\s:()])(?P<file>[^\s:()]{1,300})[:(]\d+\)?(?::\d+)?: )?fatal error(?: C1083)?: "
        r"(?:Cannot open include file: )?"
        r"'?(?P<header>(?!Python\.h)[\w./+-]+\.(?:h|hpp|hh|hxx|cuh|inc))'?"
        r"(?:: No such file or directory| file not found)",
        ("my_ops.cu:7:10: fatal error: my_ops.h: No such file or directory",
         "/tmp/tmpv1qfkl_e/main.c:2:10: fatal error: cuda.h: No such file or directory",
         "csrc/ops.cpp:3:10: fatal error: 'nccl.h' file not found",
         "C:\\x\\ops.cpp(3): fatal error C1083: Cannot open include file: 'cuda_runtime.h': No such file or directory"),
        "compiling failed: the header {header} was not found",
        "The package that has it is not installed with its development files, or its folder is not searched.",
        Fix("Install the development files that contain it, or add their folder.",
            ("find / -name '*.h*' 2>/dev/null | grep -F -e {header} | head -3", "export CPATH=FOLDER:$CPATH")), _GCC,
        summary="Compiling failed: a header was not found.", explain=_header),
    Row("log_library_not_linked", "root", "library",
        r"\bld(?:\.\w+)?: cannot find -l(?P<library>(?!cuda\b|cudart\b)[\w.+-]+)",
        ("/usr/bin/ld: cannot find -laio: No such file or directory", "/usr/bin/ld: cannot find -lcublas"),
        "linking failed: the library lib{library} was not found",
        "Its development files are not installed (the linker needs a file without a number after .so), or its folder "
        "is not searched.",
        Fix("Install its development files, or add the folder that has it.",
            ("ldconfig -p | grep -F -e {library}", "export LIBRARY_PATH=FOLDER:$LIBRARY_PATH")), _LINKER,
        summary="Linking failed: a library was not found."),
    Row("log_symbol_not_defined", "root", "library", r"undefined reference to [`'](?P<symbol>[^`']+)'",
        ("/usr/bin/ld: /tmp/ccX.o: undefined reference to `cuLaunchKernelEx'",
         "ops.o:(.text+0x1f): undefined reference to `ncclCommInitRankConfig'"),
        "linking failed: no library defines {symbol}",
        "The library that defines it is older than the header, is of another release, or is not named to the linker.",
        Fix("Compare the versions of the headers and the libraries, and remove an older one from the path.",
            ("echo $LIBRARY_PATH $LD_LIBRARY_PATH $CPATH",)), _LINKER,
        summary="Linking failed: no library defines a symbol."),
    Row("log_compiler_error", "root", "library",
        r"(?<![^\s:()])(?P<file>[^\s:()]{1,300}\.(?:c|cc|cpp|cxx|cu|cuh|h|hh|hpp|inl))(?::\d+(?::\d+)?|\(\d+\)): "
        r"(?:fatal )?error: "
        r"(?!\(-\d+[:)])"  # OpenCV: error: (-215:Assertion failed)
        r"(?!.*(?:No such file or directory|file not found|unsupported GNU version))(?P<what>[^\r]+)",
        ('csrc/kernel.cu(41): error: identifier "__nv_bfloat162" is undefined',
         "/x/include/ATen/cuda/CUDAContext.h:9:2: error: #error C++17 or later compatible compiler is required",
         "ops.cpp:12:5: error: 'class at::Tensor' has no member named 'type'"),
        "a compiler rejected {file}: {what}",
        "The code was written for another compiler, CUDA or torch release than the installed one.",
        (Fix("Compare the versions with those that the package supports.",
             ("nvcc --version; c++ --version", "pip show torch")),
         Fix("Or install a release of the package that is built already (a wheel).")),
        "https://gcc.gnu.org/onlinedocs/gcc/Diagnostic-Message-Formatting-Options.html",
        summary="A compiler rejected the code of a package.", explain=explain_include),
    Row("log_makefile_missing", "root", "library",
        r"make(?:\[\d+\])?: \*\*\* No (?:targets specified and no makefile found|"
        r"rule to make target '?[^'.]+)",
        ("make: *** No targets specified and no makefile found.  Stop.",
         "make[1]: *** No rule to make target 'helpers'.  Stop."),
        "make found no Makefile, or no rule for what it should build",
        "It was started in another folder than the code's, or the installed package does not contain the file.",
        Fix("Check the folder that make entered, and start it where the Makefile is.", ("ls", "make -C FOLDER")), _MAKE,
        cases=(_WHEEL_WITHOUT_IT,)),
    Row("log_make_failed", "wrapper", "library",
        r"^\s*(?:g?make)(?:\[\d+\])?: \*\*\* \[(?P<target>[^\]]+)\] (?P<how>Error \d+|[A-Z][a-z ]+)",
        ("make: *** [Makefile:12: helpers_cpp.so] Error 1", "make: *** [train] Killed"),
        "make reports that a command of the target {target} failed ({how}); the command's own output has the reason",
        "make only repeats the exit code of the command.",
        Fix("Look for the first error of that command.", ("mgpu doctor --log LOG",)), _MAKE,
        summary="A command that make started failed."),
    Row("log_cmake_failed", "wrapper", "library", r"^\s*CMake Error(?: at [\w./-]+:\d+|:| \()",
        ("CMake Error at CMakeLists.txt:12 (find_package):",
         "CMake Error: CMake was unable to find a build program corresponding to \"Ninja\"."),
        "CMake could not prepare a build; its message has the reason",
        "A compiler, the CUDA toolkit or a package that it looks for was not found, or has another version.",
        Fix("Read the message that belongs to the first CMake Error.",
            ("cmake --version; c++ --version; nvcc --version",)), _CMAKE),
    Row("log_package_not_built", "wrapper", "library",
        r"error: subprocess-exited-with-error|Failed (?:building wheel for|to build)(?! '?[\w.-]+'? when getting)|"
        r"Could not build wheels for|error: command '[^']+' failed with exit (?:code|status) \d+",
        ("error: subprocess-exited-with-error", "ERROR: Failed building wheel for flash-attn",
         "error: command '/usr/bin/x86_64-linux-gnu-gcc' failed with exit code 1"),
        "a package could not be built; the first error of its build has the reason",
        "pip only reports that the build failed. A compiler, a header or the CUDA toolkit is missing, or does not fit "
        "the package.",
        (Fix("Build it alone, and read the first error.", ("pip install -v --no-build-isolation PACKAGE",
                                                           "nvcc --version; c++ --version")),
         Fix("Or install a wheel that was built for your torch, CUDA and Python.")), _PIP),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
