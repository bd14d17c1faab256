"""Did compiling fail: torch.compile, Triton, extensions?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Case, Meaning, Row, signatures
from mgpu.snapshot import Log, UncaughtException

from ._circumstances import either, line_of, shown

_DYNAMO = "https://pytorch.org/docs/stable/torch.compiler_troubleshooting.html"
_EXTENSIONS = "https://github.com/pytorch/pytorch/blob/main/torch/utils/cpp_extension.py"
_INDUCTOR = "https://github.com/pytorch/pytorch/blob/main/torch/_inductor/exc.py"
_TRITON = "https://github.com/triton-lang/triton/blob/main/python/triton/runtime/build.py"
_GRAPHS = "https://pytorch.org/docs/stable/torch.compiler_cudagraph_trees.html"
# fmt: off
_WITHOUT = Fix("Turn off torch.compile.", ("accelerate launch --dynamo_backend no ...", "export TORCHDYNAMO_DISABLE=1"),
               kind="stopgap", caveat="Training is slower.")

_BLOCKS = Fix("Give the kernel smaller blocks (BLOCK_M, BLOCK_N) or fewer stages (num_stages).",
              ("flex_attention(..., kernel_options=dict(BLOCK_M=32, BLOCK_N=32, num_stages=1))",))
_MOST_SHARED = 232448  # bytes per block on Hopper and Blackwell data center GPUs; no NVIDIA GPU has more
_SIZES = {  # what decides how much a package's kernels need
    "mamba_ssm": "headdim, d_state or chunk_size",
    "fla": "the head dimension (head_dim, expand_k, expand_v)",
    "flash_attn": "the head dimension",
}


def _shared_memory(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain a kernel whose sizes no GPU has shared memory for, or only a data center GPU."""
    needed, limit = groups["needed"], groups["limit"]
    if groups["what"] != "shared memory" or not needed.isdigit() or not limit.isdigit():
        return None
    packages = [one for one in (raised.packages if raised else ()) if one not in ("triton", "torch", "")]
    sizes = _SIZES.get(packages[-1] if packages else "")
    change = Fix(f"Lower {sizes} of the model." if sizes else
                 "Lower the sizes that the kernel works on at once: the head dimension, the chunk or state size.")
    if int(needed) > _MOST_SHARED:
        return Meaning(
            f"a Triton kernel needs more shared memory than any GPU has ({int(needed):,} bytes): a size of the model, "
            "probably the head dimension, is too large for it",
            f"This is fast memory inside the GPU, not its main memory and not /dev/shm. This GPU has {int(limit):,} "
            f"bytes per block, the largest have {_MOST_SHARED:,}. The need grows with "
            f"{sizes or 'the head dimension and the block sizes of the kernel'}.",
            (change, _BLOCKS),
        )
    return Meaning(
        f"a Triton kernel needs more shared memory than this GPU has: {int(needed):,} bytes, not {int(limit):,}",
        "It was tuned for data center GPUs (A100: 166,912, H100 and B200: 232,448; GeForce, A10 and L40: 101,376). The "
        f"need grows with {sizes or 'the head dimension and the block sizes of the kernel'}.",
        (change, _BLOCKS, Fix("Use a data center GPU, or another implementation (sdpa, eager) of the layer.")),
    )


_REFUSED_ARCHITECTURE = re.compile(r"nvcc fatal\s+: Unsupported gpu architecture '(?P<code>\w*?(?P<digits>\d+)\w*)'")
_DROPPED, _OLDEST_NEW = 50, 75  # compute capability x 10: CUDA 12 has none below 5.0, CUDA 13 none below 7.5


def _architecture(log: Log, groups: Mapping[str, str], _: UncaughtException | None) -> Meaning | None:
    """Explain an architecture that nvcc does not have: an old one was dropped, a new one is not there yet."""
    texts = [one.text for one in log.seen if one.signature == "log_ptxas_failed"]
    found = next((found for found in map(_REFUSED_ARCHITECTURE.search, texts) if found), None)
    if found is None or int(found["digits"]) >= _OLDEST_NEW:
        return None
    code, digits = found["code"], found["digits"]
    chosen = Fix("Build for the GPUs that you have: in an environment variable, or where setup.py or CMake lists them.",
                 ("nvidia-smi --query-gpu=name,compute_cap --format=csv",
                  "export TORCH_CUDA_ARCH_LIST=8.6  # the compute_cap of your GPU",
                  "grep -rnE 'arch=|gencode|CUDA_ARCH' setup.py CMakeLists.txt"))
    if int(digits) < _DROPPED:
        return Meaning(
            f"the build asks nvcc for an old architecture, {code}, which this CUDA no longer supports",
            "Newer releases of CUDA drop old GPUs: 8.0 is the last with 2.x, 10.2 with 3.0, and 11.8 with 3.5 and 3.7. "
            "A list in the code that is built still names it. The GPU of this machine can be another one.",
            (chosen, Fix("If the GPU is that old, use a CUDA and a torch that still support it.")))
    return Meaning(
        f"the build asks nvcc for {code}, which this CUDA does not support",
        "CUDA 13 drops the GPUs before 7.5 (Maxwell, Pascal, Volta), and a CUDA that is older than an architecture "
        "does not have it yet: 6.x needs CUDA 8, 7.0 needs 9. A list in the code that is built names it.",
        (chosen, Fix("If it is the architecture of your GPU, use a CUDA that supports it.", ("nvcc --version",))))


_OLD_COMPILER = Case(
    line_of("log_host_compiler_refused", r"ABI of your compiler|ABI-incompatible"),
    "torch warns that the C++ compiler may be too old to build extensions for it",
    "The warning does not stop the build by itself: if the build failed, the compiler's first error is in another "
    "line. torch 2 needs C++17, so GCC 9 or newer is safe.",
    (Fix("Use a newer compiler, if the build failed.",
         ("c++ --version", "conda install -c conda-forge gxx=11", "export CC=gcc-11 CXX=g++-11")),),
    "Your compiler (c++ 4.8.5) may be ABI-incompatible with PyTorch!\n", _EXTENSIONS)
_RUNTIME_NOT_LINKED = Case(
    line_of("log_cannot_link_cuda", r"-lcudart"),
    "the linker cannot find the CUDA runtime (libcudart.so), which the CUDA toolkit brings",
    "The toolkit is not installed, or its folder is not on the linker's path. The driver and the wheels of torch do "
    "not bring a libcudart.so to link with.",
    (Fix("Find it, and add its folder to the path.",
         ("ls /usr/local/cuda*/lib64/libcudart.so* $CONDA_PREFIX/lib/libcudart.so*",
          "export CUDA_HOME=/usr/local/cuda LIBRARY_PATH=/usr/local/cuda/lib64:$LIBRARY_PATH")),
     Fix("If there is none, install the toolkit, in the release of torch.cuda.",
         ("python -c 'import torch; print(torch.version.cuda)'", "mgpu doctor --only libraries"))),
    "/usr/bin/ld: cannot find -lcudart: No such file or directory\n", _EXTENSIONS)
_NO_CL = Case(
    either(shown("on_windows"), line_of("log_no_c_compiler", r"cl is not found")),
    "torch.compile or Triton needs a C++ compiler, on Windows Microsoft's cl, and finds none",
    "cl.exe comes with Visual Studio or its Build Tools, and is on the PATH only in their own command prompt.",
    (Fix("Install the Build Tools for Visual Studio with \"Desktop development with C++\", and start the run in its "
         "\"x64 Native Tools Command Prompt\".", ("where cl",)), _WITHOUT),
    "RuntimeError: Compiler: cl is not found.\n",
    "https://docs.pytorch.org/tutorials/unstable/inductor_windows.html")
_OF_LLVM = (
    Case(line_of("log_llvm_error", r"Failed to infer result type"),
         "an operation on Apple's GPU (MPS) was given types or shapes that do not fit each other",
         "Apple's compiler prints this, and ends the process. The line before it usually names the operation (mps_add, "
         "mps_matmul) and the types: often one input is float16 and the other float32, or the shapes do not broadcast.",
         (Fix("Give all inputs one type, and run in fp32 to compare.",
              ("model = model.float()", "x = x.to(model.dtype)")),
          Fix("Run the same step on the CPU: torch then raises an exception that shows the line.",
              ("model.to('cpu')",)),
          Fix("Newer releases of torch check more of this themselves.", ("pip install --upgrade torch",))),
         "LLVM ERROR: Failed to infer result type(s).\n", "https://docs.pytorch.org/docs/stable/notes/mps.html"),
    Case(line_of("log_llvm_error", r"__svml_"),
         "numba cannot load Intel's vector math library (SVML)",
         "numba compiles functions of librosa, umap, pynndescent and other packages. It found SVML when it started, "
         "but not the function that it needs: the library is of another release, or its folder is not on the path.",
         (Fix("Let numba do without it.", ("export NUMBA_DISABLE_INTEL_SVML=1",)),
          Fix("Or install numba and its library from one source.",
              ("pip install --upgrade numba llvmlite", "conda install -c numba icc_rt"))),
         "LLVM ERROR: Symbol not found: __svml_cosf8_ha\n",
         "https://numba.readthedocs.io/en/stable/user/performance-tips.html#intel-svml"),
)


ROWS = (
    Row("log_no_c_compiler", "root", "library",
        r"Failed to find C compiler|C compiler not found|InvalidCxxCompiler|No working C\+\+ compiler found|"
        r"Compiler: cl is not found",
        ("RuntimeError: Failed to find C compiler. Please specify via CC environment variable or set "
         "triton.knobs.build.impl.", "torch._inductor.exc.InvalidCxxCompiler: No working C++ compiler found in "
                                     "('g++',)"),
        "Triton or torch.compile needs a C compiler, but none is installed",
        "gcc links each kernel at run time. Slim images do not include it.",
        (Fix("Install a compiler.", ("sudo apt-get install -y gcc g++", "conda install -c conda-forge gxx",
                                     "mgpu doctor --only compiler_missing_for_dynamo")), _WITHOUT), _TRITON,
        cases=(_NO_CL,)),
    Row("log_triton_build_failed", "root", "library",
        r"CalledProcessError: Command '\[?'?\S*(?:gcc|clang|cc|icx)\S*', '\S+/main\.c'(?!.*(?:torchrun|accelerate))",
        ("subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/tmpb/main.c', '-O3', '-shared', '-fPIC', "
         "'-o', '/tmp/tmpb/cuda_utils.so', '-lcuda', '-I/usr/include/python3.9'",),
        "the C compiler could not build Triton's helper module: probably Python's headers or libcuda.so are missing",
        "Triton compiles a small C file for the driver and for each kernel. The compiler's own message is further "
        "up, or in the output of another rank.",
        (Fix("Install the headers of this Python, and check that the linker finds the driver's library.",
             ("sudo apt-get install -y python3-dev  # or: sudo dnf install python3-devel",
              "ls $(python -c \"import sysconfig; print(sysconfig.get_paths()['include'])\")/Python.h",
              "ldconfig -p | grep libcuda")), _WITHOUT),
        _TRITON, because_of=("log_python_headers_missing", "log_cannot_link_cuda")),
    Row("log_python_headers_missing", "root", "library", r"Python\.h: No such file or directory",
        ("fatal error: Python.h: No such file or directory",),
        "Python's headers (Python.h) are missing, so C code for Python cannot be compiled",
        "Triton (torch.compile) compiles a file when it starts, and pip compiles packages that have no wheel for this "
        "Python. The system's Python was installed without python3-dev, or only with that of another version.",
        (Fix("Install them, for the version of Python that runs.",
             ("python --version", "sudo apt-get install -y python3-dev  # python3.12-dev for 3.12"), who="admin"),
         Fix("Or use a Python that brings them: conda's, or one that uv installs.",
             ("conda create -n train python=3.11",))), _TRITON),
    Row("log_cannot_link_cuda", "root", "library", r"cannot find -lcuda\b|cannot find -lcudart|"
        r"libcuda\.so cannot found|libcuda\.so\S* (?:not found|cannot be found)",
        ("/usr/bin/ld: cannot find -lcuda: No such file or directory", "AssertionError: libcuda.so cannot found!"),
        "the linker cannot find the driver's libcuda.so",
        "Only libcuda.so.1 exists (a container, WSL), or its folder is not on the path.",
        Fix("Add its folder to the path.",
            ("ldconfig -p | grep libcuda", "export LIBRARY_PATH=/usr/local/cuda/lib64/stubs",
             "mgpu doctor --only libcuda_missing")), _TRITON, cases=(_RUNTIME_NOT_LINKED,)),
    Row("log_gpu_too_old_for_triton", "root", "library",
        r"too old to be supported by the triton GPU compiler",
        ("RuntimeError: Found NVIDIA Tesla P100 which is too old to be supported by the triton GPU compiler, which is "
         "used as the backend. Triton only supports devices of CUDA Capability >= 7.0",),
        "torch.compile cannot generate code for this GPU: it is too old for Triton",
        "Triton requires compute capability 7.0 (Volta).",
        (Fix("Use a newer GPU for torch.compile.", ("nvidia-smi --query-gpu=name,compute_cap --format=csv",)),
         _WITHOUT),
        _INDUCTOR),
    Row("log_triton_missing", "root", "library", r"Cannot find a working triton installation",
        ("torch._inductor.exc.TritonMissing: Cannot find a working triton installation.",),
        "torch.compile needs Triton for a GPU, and it is not installed, or too old for this torch",
        "For a GPU, torch.compile writes kernels that Triton compiles. Each torch release requires one Triton release, "
        "and a wheel of torch with CUDA for Linux brings it.",
        (Fix("Install Triton together with torch.", ("pip install --upgrade torch triton", "pip check")), _WITHOUT),
        _INDUCTOR,
        cases=(
            Case(shown("on_windows"),
                 "torch.compile needs Triton for a GPU, and torch brings none on Windows",
                 "For a GPU, torch.compile writes kernels that Triton compiles. The package triton has no wheels for "
                 "Windows: pip finds none. The package triton-windows has, each for one torch release.",
                 (Fix("Install the release of triton-windows that fits this torch: 3.6 for torch 2.10, 3.5 for 2.9, "
                      "3.4 for 2.8.",
                      ("pip show torch", 'pip install -U "triton-windows<3.6"  # for torch 2.9')),
                  _WITHOUT),
                 "Traceback (most recent call last):\n"
                 '  File "C:\\venv\\lib\\site-packages\\torch\\_inductor\\scheduler.py", line 9, in codegen\n'
                 "    raise TritonMissing(inspect.currentframe())\n"
                 "torch._inductor.exc.TritonMissing: Cannot find a working triton installation.\n",
                 "https://github.com/triton-lang/triton-windows"),
        )),
    Row("log_triton_pass_failed", "root", "library", r"PassManager::run failed",
        ("RuntimeError: PassManager::run failed",),
        "Triton could not compile a kernel for this GPU",
        "The GPU is newer than this Triton, the kernel uses a dtype or a size that the GPU does not have, or the "
        "package with the kernel was written for another Triton. The lines before it name the kernel.",
        (Fix("Compare the versions: each torch release requires one Triton release.",
             ("pip show torch triton", "python -c 'import torch; print(torch.cuda.get_device_capability())'",
              "pip install --upgrade torch")), _WITHOUT),
        "https://github.com/triton-lang/triton/pull/8304"),
    Row("log_kernel_wants_newer_gpu", "root", "library",
        r"Assertion .*(?:only supported on|requires?) (?P<wanted>Volta|Turing|Ampere|Hopper|Blackwell)\b",
        ('Allocation.cpp:43: mlir::triton::getCvtOrder(mlir::Attribute, mlir::Attribute): Assertion `!(srcMmaLayout && '
         '!srcMmaLayout.isAmpere()) && "mma -> mma layout conversion is only supported on Ampere"\' failed.',),
        "a Triton kernel does not support this GPU: it is for {wanted} GPUs",
        "Triton's compiler checked the GPU's generation and aborted the process. Usually the GPU is older (V100, T4) "
        "and lacks instructions that the kernel uses. With an old Triton, it can also be a newer GPU.",
        (Fix("Use another implementation of the layer or of attention (sdpa, eager, xformers), or a newer GPU.",
             ("nvidia-smi --query-gpu=name,compute_cap --format=csv",)), _WITHOUT),
        "https://github.com/triton-lang/triton/pull/4492",
        summary="A Triton kernel is for another generation of GPUs."),
    Row("log_llvm_error", "root", "library",
        r"^LLVM ERROR: (?!Cannot select: intrinsic %llvm\.nvvm)(?P<what>.+)",
        ("LLVM ERROR: Failed to compute parent layout for slice layout.", "LLVM ERROR: out of memory"),
        "a compiler that is built on LLVM, usually Triton, aborted the process: {what}",
        "A kernel uses something that this Triton cannot compile for this GPU, or the package with the kernel was "
        "written for another Triton. numba, TensorFlow, JAX and Apple's MPS are built on LLVM, too: if the program "
        "uses one of them, it can be that one.",
        (Fix("Compare the versions: each torch release requires one Triton release.",
             ("pip show torch triton", "python -c 'import torch; print(torch.cuda.get_device_capability())'")),
         Fix("Or use another implementation of the layer (sdpa, eager).")),
        "https://llvm.org/docs/ProgrammersManual.html#fatal-errors",
        summary="LLVM, below Triton or another compiler, aborted the process.", cases=_OF_LLVM),
    Row("log_triton_out_of_shared", "root", "library",
        r"out of resource: (?P<what>shared memory|tensor memory|threads)"
        r"(?:, Required: (?P<needed>\d+), Hardware limit: (?P<limit>\d+))?",
        ("triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072, Hardware limit: "
         "101376. Reducing block sizes or `num_stages` may help.",
         "triton.runtime.autotuner.OutOfResources: out of resource: shared memory, Required: 663808, Hardware limit: "
         "101376. Reducing block sizes or `num_stages` may help."),
        "a Triton kernel needs more {what} than this GPU has: {needed}, limit {limit}",
        "It was written for a larger GPU (data center cards have more shared memory than GeForce), or its sizes (head "
        "dimension, chunk size, state size) are too large.",
        (_BLOCKS, Fix("Use another version of the package that has the kernel, or its other kernels.", ())),
        "https://github.com/triton-lang/triton/blob/main/python/triton/runtime/errors.py",
        summary="A Triton kernel needs more of a resource than this GPU has.", explain=_shared_memory),
    Row("log_ptxas_failed", "root", "library", r"Internal Triton PTX codegen error|ptxas fatal|PTXASError|"
        r"nvcc fatal\s+: Unsupported gpu architecture|is not defined for option 'gpu-name'",
        ("triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error",
         "ptxas fatal   : Value 'sm_120' is not defined for option 'gpu-name'",
         "nvcc fatal   : Unsupported gpu architecture 'compute_90a'"),
        "the installed CUDA compiler does not support the GPU that it is to compile for",
        "Triton's ptxas, or nvcc, is older than that GPU: this one, or one that a list in the build names.",
        Fix("Upgrade, or set the path of a newer one.", ("pip install --upgrade torch triton",
                                                         "export TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas",
                                                         "mgpu doctor --only libraries")), _TRITON,
        explain_in=_architecture),
    Row("log_host_compiler_refused", "root", "library", r"unsupported GNU version! gcc versions later than|"
        r"ABI of your compiler|compiler \(c\+\+ [\d.]+\) may be ABI-incompatible",
        ("error: -- unsupported GNU version! gcc versions later than 12 are not supported!",),
        "nvcc rejects the C++ compiler: it is too new",
        "Each CUDA release supports compilers up to a certain version.",
        Fix("Use an older one.", ("conda install -c conda-forge gxx=12", "export CC=gcc-12 CXX=g++-12")),
        "https://docs.nvidia.com/cuda/cuda-installation-guide-linux/", cases=(_OLD_COMPILER,)),
    Row("log_extension_not_built", "secondary", "library",
        r"Error building extension '\w+'|ninja: build stopped: subcommand failed|"
        r"Command '\['ninja', '-v'\]' returned non-zero exit status",
        ("RuntimeError: Error building extension 'cpu_adam'", "ninja: build stopped: subcommand failed.",
         "subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1."),
        "a torch extension could not be compiled; the compiler's first error is further up, or on another rank",
        "torch and DeepSpeed compile it when it is first used, with ninja and nvcc. A toolkit, header or compiler is "
        "missing or incompatible.",
        (Fix("Look for the first 'error:' from the compiler.", ("mgpu doctor --only libraries", "ds_report")),
         Fix("If the log has none: delete what an earlier try left, and build it in one process.",
             ("rm -rf ~/.cache/torch_extensions", "CUDA_VISIBLE_DEVICES=0 MAX_JOBS=1 python train.py"))),
        _EXTENSIONS, because_of=("log_command_not_found",)),
    Row("log_ninja_missing", "root", "library", r"Ninja is required to load C\+\+ extensions|ninja: (?:command )?not "
                                                r"found",
        ("RuntimeError: Ninja is required to load C++ extensions (pip install ninja to get it)",
         "/bin/sh: 1: ninja: not found"),
        "an extension must be compiled, but ninja is not installed", "torch uses ninja to build extensions.",
        Fix("Install it.", ("pip install ninja",)), _EXTENSIONS),
    Row("log_extension_locked", "secondary", "library", r"Lock file exists in build directory",
        ("Warning: Lock file exists in build directory: '/home/u/.cache/torch_extensions/py39_cu118/x/lock'",),
        "a killed run left the lock of an extension build behind",
        "The ranks wait for a build that no process runs. torch prints nothing while it waits.",
        Fix("Delete the lock.", ("find ~/.cache/torch_extensions -name lock -delete",
                                 "mgpu doctor --only extension_lock_stale")),
        "https://github.com/pytorch/pytorch/issues/189245"),
    Row("log_graph_output_overwritten", "root", "script",
        r"accessing tensor output of CUDAGraphs that has been overwritten",
        ("RuntimeError: Error: accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run.",),
        "the output of a compiled model was used after the next step had overwritten it",
        "mode='reduce-overhead' reuses its memory in every step.",
        Fix("Mark the beginning of each step, or copy the output.", ("torch.compiler.cudagraph_mark_step_begin()",
                                                                     "output = output.clone()")),
        _GRAPHS),
    Row("log_compile_failed", "wrapper", "library",
        r"BackendCompilerFailed|InductorError|LoweringException|InternalTorchDynamoError|CppCompileError",
        ("torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:",
         "torch._inductor.exc.InductorError: RuntimeError: x", "torch._inductor.exc.LoweringException: x",
         "torch._dynamo.exc.InternalTorchDynamoError: x", "torch._inductor.exc.CppCompileError: C++ compile error"),
        "torch.compile failed; the next line has the reason",
        "A compiler is missing, an operation is not supported, or torch.compile has a bug.", (
            Fix("Read the detailed error.",
                ("TORCHDYNAMO_VERBOSE=1 TORCH_LOGS=+dynamo mgpu launch train.py",)), _WITHOUT),
        _DYNAMO),
    Row("log_compile_unsupported", "root", "script",
        r"torch\._dynamo\.exc\.(?:Unsupported|UserError)(?!: .{0,80}Could not guard on data-dependent)",
        ("torch._dynamo.exc.Unsupported: Unsupported method call",),
        "the script requires full graphs, but torch.compile found something it cannot capture",
        "fullgraph=True turns a graph break into an error.",
        Fix("Allow graph breaks.", ("torch.compile(model)",)), _DYNAMO),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
