"""Is something installed incompatible: a package, a library, an extension, a version?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.signature import Case, Meaning, Row, signatures
from mgpu.snapshot import UncaughtException

from .. import _calls as calls
from .. import _version_skew as skew
from .._apex import BUILD_APEX
from .._reinstall import OFFERS_WHEELS, WHEELS_FOR_ONE_TORCH, rebuild
from ._abi_of_symbols import ASK, abi_of
from ._circumstances import said, shown
from ._module_cases import BNB_CUDA_CHOSEN, BNB_NOT_INSTALLED, BNB_SOURCE_TREE, NO_BITSANDBYTES
from ._numpy_sizes import built_for_numpy
from ._start_cases import NCCL_NOT_ON_PATH
from ._syntax import where_syntax_fails
from ._system_cases import LIBRARY_OF_SYSTEM

_EXTENSIONS = "https://pytorch.org/docs/stable/cpp_extension.html"
_SYS_PATH = "https://docs.python.org/3/library/sys_path_init.html"
_MATRIX = "https://github.com/pytorch/vision#installation"
# What a line may require; "requires x > 0" is a script's own check.
_PACKAGES = (
    r"(?i:torch\w*|triton|transformers|accelerate|peft|trl|datasets|tokenizers|sentencepiece|protobuf|numpy|scipy|"
    r"pandas|pyarrow|diffusers|bitsandbytes|safetensors|huggingface[-_]hub|flash[-_]attn|xformers|vllm|sglang|ray|"
    r"kernels|liger[-_]kernel|optimum|gptqmodel|auto[-_]\w+|timm|sentence[-_]transformers|unsloth\w*|lightning|"
    r"python|cuda)"
)

_BUILT = "a compiled extension was built for another torch (undefined symbol)"
_BUILT_FOR_ONE = "An extension is built for exactly one torch version. After torch was changed, it no longer loads."
_CHECK_BUILT = "mgpu doctor --only extension_does_not_load,extension_built_for_another_torch"


def _of_apex(file: str) -> Meaning:
    """Return the meaning for NVIDIA's apex, which is not on PyPI."""
    return Meaning(
        f"apex: {_BUILT}",
        f"{file} is its file. {_BUILT_FOR_ONE}",
        (
            Fix(
                "Build NVIDIA's apex again from its source, with the installed torch. (The apex on PyPI is another "
                "project.)",
                ("pip uninstall -y apex", BUILD_APEX, _CHECK_BUILT),
            ),
        ),
    )


def _of_package(package: str) -> tuple[Fix, ...]:
    """Return how to get a compiled part of this package for the installed torch, which stays as it is."""
    if package in WHEELS_FOR_ONE_TORCH:
        return (
            Fix(
                f"Install the release of {package} that was made for this torch.",
                (ASK, shell("pip install --force-reinstall --no-deps {:package}==RELEASE", package), _CHECK_BUILT),
            ),
        )
    wheel = (
        "Install a wheel from its releases on GitHub whose name has this torch, its CUDA, this Python and the same ABI "
        "(cxx11abiTRUE or FALSE)."
    )
    return (
        Fix(f"Build {package} for this torch, which stays installed.", (*rebuild(package), _CHECK_BUILT)),
        *((Fix(wheel, (ASK, "pip install --force-reinstall --no-deps WHEEL")),) if package in OFFERS_WHEELS else ()),
    )


def _extension(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Name the package of the extension that does not load; None if its file does not show it."""
    *folders, file = groups["library"].replace("\\", "/").split("/")
    stem = file.partition(".")[0]
    installed = re.search(r"(?:site|dist)-packages/([\w-]+)/", groups["library"])
    package = skew.compiled_by(stem) or (installed and skew.distribution(installed[1]))
    package = package or next((skew.distribution(one) for one in reversed(folders) if skew.is_known(one)), None)
    if package in ("torch", "nvidia"):
        return None
    if package == "apex":
        return _of_apex(file)
    if package:
        return Meaning(
            f"{package}: {_BUILT}",
            f"{file} is its file. {_BUILT_FOR_ONE}{abi_of(groups['symbol'])}",
            _of_package(package),
        )
    if not folders or groups["library"].startswith("/"):
        return None
    return Meaning(
        f"{_BUILT}: {file}",
        f"It was compiled in a source folder ({folders[0]}). {_BUILT_FOR_ONE}{abi_of(groups['symbol'])}",
        (
            Fix(
                "Delete the old build, and compile it again in that folder, with the installed torch.",
                (
                    shell("find . -name {}", f"{stem}*.so"),
                    "pip install --no-build-isolation --force-reinstall --no-deps -v -e .",
                ),
            ),
        ),
    )


# fmt: off
_NO_NCCL_ON_WINDOWS = Case(
    shown("on_windows"),
    "PyTorch for Windows has no NCCL: another backend is needed",
    "No build of torch for Windows contains NCCL, so another build does not help. gloo works on Windows, and is "
    "slower. Warnings of the socket (error 10049) before this line are not the cause.",
    (Fix("Use gloo.", ("torch.distributed.init_process_group('gloo')",
                       "Trainer(strategy=DDPStrategy(process_group_backend='gloo'))")),
     Fix("Or train in WSL2 or on Linux, where NCCL works.", ("wsl --install",))),
    "[W C:\\actions-runner\\_work\\pytorch\\torch\\csrc\\distributed\\c10d\\socket.cpp:601] [c10d] The client socket "
    "has failed to connect to [t2]:58152 (system error: 10049 - The requested address is not valid in its context.).\n"
    "RuntimeError: Distributed package doesn't have NCCL built in\n",
    "https://docs.pytorch.org/docs/stable/distributed.html")

_CIRCLE_OF_PACKAGES = Case(
    said(r"partially initialized module '[\w.]+' .{0,60}\(/\S*/(?:site|dist)-packages/"),
    "parts of installed packages import each other: {module} is imported before it is ready",
    "The module is an installed one, not a file of the script's folder. Usually two packages that belong together are "
    "of releases that do not fit, or an import of one runs before the one that prepares it.",
    (Fix("Install releases that belong together, of this package and of those that import it.",
         ("pip list | grep -iE 'unsloth|transformers|torch|vllm'", "pip check")),
     Fix("If it begins with an import of the script, follow the order that the package documents.")),
    "ImportError: cannot import name 'SUPPORTED' from partially initialized module 'unsloth.models.vision' (most "
    "likely due to a circular import) (/venv/lib/python3.12/site-packages/unsloth/models/vision.py)",
    _SYS_PATH)
ROWS = (
    Row("log_libnvjitlink_old", "root", "library", r"undefined symbol: _?_?nvJitLink|"
        r"__nvJitLink\w+, version libnvJitLink",
        ("libcusparse.so.12: undefined symbol: __nvJitLinkComplete_12_4, version libnvJitLink.so.12",
         "ImportError: /x/libcusparse.so.12: undefined symbol: __nvJitLinkAddData_12_1, version libnvJitLink.so.12"),
        "an older libnvJitLink is found before the one torch needs",
        "A CUDA toolkit on LD_LIBRARY_PATH (a module file, conda) comes first, and `import torch` fails.",
        Fix("Remove it from the path.", ("unset LD_LIBRARY_PATH", "mgpu doctor --only library_path_shadows_wheels")),
        "https://github.com/pytorch/pytorch/issues/140797"),
    Row("log_nccl_of_another_version", "root", "library", r"undefined symbol: nccl",
        ("ImportError: libtorch_cuda.so: undefined symbol: ncclCommRegister",
         "ImportError: /x/libtorch_cuda.so: undefined symbol: ncclMemFree"),
        "an NCCL other than torch's is loaded, and lacks symbols that torch needs",
        "Two nvidia-nccl wheels write the same file, or an older libnccl comes first on the library path.",
        Fix("Keep only one NCCL.", ("pip list | grep -i nvidia-nccl",
                               "mgpu doctor --only nccl_wheels_mixed,nccl_not_the_wheels", "unset LD_LIBRARY_PATH")),
        "https://github.com/pytorch/pytorch/issues/119072"),
    Row("log_extension_for_another_torch", "root", "library",
        r"^(?!.*(?:\blibtorch(?:_\w+)?|libcudnn\w*)\.so)(?:.*[\s'\"(])?(?P<library>[^\s'\"(]+\.so(?:\.\d+)*): "
        r"undefined symbol:"
        r"(?P<symbol> (?!_?_?nvJitLink|nccl)\w+|\s*$)",
        ("ImportError: my_ops.cpython-310-x86_64-linux-gnu.so: undefined symbol: _ZN3c105ErrorC2E",
         "ImportError: flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol: _ZN3c105ErrorC2E",
         "OSError: /x/torchaudio/lib/libtorchaudio.so: undefined symbol: _ZNK5torch8autograd4Node4nameEv",
         "ImportError: /x/site-packages/flash_attn_2_cuda.cpython-38-x86_64-linux-gnu.so: undefined symbol:"),
        "a compiled extension was built for another torch (undefined symbol)",
        "flash-attn, torchaudio, apex and similar packages are built for exactly one torch version. After a torch "
        "upgrade they no longer load.",
        Fix("Reinstall the extension for this torch.",
            ("pip install --force-reinstall --no-deps --no-build-isolation --no-cache-dir PACKAGE",
             "mgpu doctor --only extension_does_not_load,extension_built_for_another_torch")), _EXTENSIONS,
        explain=_extension),
    Row("log_bitsandbytes_without_cuda", "root", "library",
        r"CUDA Setup failed despite (?:GPU|CUDA) being available|Configured CUDA binary not found at|"
        r"has no attribute 'cget_col_row_stats'|requires the latest version of "
        r"bitsandbytes|libbitsandbytes_cuda\w+\.so|name 'str2optimizer\w+' is not defined"
        r"|not available in CPU-only version of bitsandbytes|Native code method attempted to call: lib\.|"
        r"No compatible \w+ binary found at \S*bitsandbytes",
        ("CUDA Setup failed despite GPU being available. Please run the following command",
         "AttributeError: 'NoneType' object has no attribute 'cget_col_row_stats'",
         "ImportError: Using `bitsandbytes` 4-bit quantization requires the latest version of bitsandbytes",
         "RuntimeError: Configured CUDA binary not found at /x/bitsandbytes/libbitsandbytes_cuda130.so",
         "NameError: name 'str2optimizer8bit_blockwise' is not defined",
         "RuntimeError: Method 'cgemm_4bit_inference_naive_bf16' not available in CPU-only version of bitsandbytes.",
         "Native code method attempted to call: lib.cquantize_blockwise_fp16_nf4()",
         "RuntimeError: No compatible CUDA binary found at /x/bitsandbytes/libbitsandbytes_cuda129.so"),
        "bitsandbytes has no library for this torch's CUDA",
        "Its wheel contains libraries for some CUDA versions only; without one, its CPU part is loaded, which has no "
        "8-bit optimizers. Old releases find CUDA through LD_LIBRARY_PATH.",
        Fix("Upgrade it, and check what it finds.",
            ("pip install --upgrade bitsandbytes", "python -m bitsandbytes",
             "mgpu doctor --only bitsandbytes_lacks_cuda")),
        "https://huggingface.co/docs/bitsandbytes/main/en/installation",
        cases=(BNB_NOT_INSTALLED, NO_BITSANDBYTES, BNB_SOURCE_TREE, BNB_CUDA_CHOSEN)),
    Row("log_bitsandbytes_loaded_for_cpu", "root", "library", r"bitsandbytes was compiled without GPU support",
        ("The installed version of bitsandbytes was compiled without GPU support. 8-bit optimizers are unavailable.",),
        "bitsandbytes loaded its library for the CPU: 8-bit optimizers and quantization on a GPU do not work",
        "It warns so when it is imported, also in runs that do not need it: torch sees no GPU, or the package has no "
        "library for torch's CUDA. Only what uses it fails.",
        Fix("If the run uses it, upgrade it, and check what it finds.",
            ("pip install --upgrade bitsandbytes", "python -m bitsandbytes", "mgpu doctor --only pytorch,driver")),
        "https://huggingface.co/docs/bitsandbytes/main/en/installation", tags=("hint",)),
    Row("log_mpi_wanted", "root", "launcher", r"^\s*ModuleNotFoundError: No module named 'mpi4py'",
        ("ModuleNotFoundError: No module named 'mpi4py'",),
        "DeepSpeed was started without a launcher, so it looks for MPI",
        "RANK and WORLD_SIZE are not set (plain python), so DeepSpeed tries mpi4py.",
        Fix("Start the script with a launcher.", ("mgpu launch train.py",)),
        "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/comm/comm.py"),
    Row("log_module_shadowed", "root", "script",
        r"partially initialized module '(?P<module>[\w.]+)'",
        ("AttributeError: partially initialized module 'torch' has no attribute 'nn' (most likely due to a circular "
         "import)", "ImportError: cannot import name 'Dataset' from partially initialized module 'datasets' (most "
         "likely due to a circular import) (/home/u/datasets.py)"),
        "one of your files or folders has the name of the module {module}, or there is a circular import",
        "The script's folder comes first on the path, so ./datasets.py hides the package of that name.",
        Fix("Rename it.", ("ls {module:dotted}.py {module:dotted}", "mgpu doctor --only module_shadowed_here")),
        _SYS_PATH,
        summary="One of your files has the name of an imported module.", cases=(_CIRCLE_OF_PACKAGES,)),
    Row("log_torch_initialized_twice", "root", "script",
        r'generic_type: cannot initialize type "\w+": an object with that name is already defined',
        ('RuntimeError: generic_type: cannot initialize type "GradBucket": an object with that name is already defined',
         'ImportError: generic_type: cannot initialize type "GradBucket": an object with that name is already defined'),
        "torch, or another C++ extension, was initialized twice in one process",
        "Often a file in the script's folder has the name of an optional module that torch tries to import, such as "
        "cuda.py, and itself imports torch. Or two copies of the extension are installed.",
        Fix("Rename that file.", ("ls -d cuda.py cuda", "python -c 'import torch; print(torch.__file__)'")),
        "https://github.com/pytorch/pytorch/blob/main/torch/cuda/_utils.py"),
    Row("log_glibc_too_old", "root", "library", r"version `(?P<wanted>GLIBC_[\d.]+)' not found",
        ("ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found (required by /x/lib.so)",),
        "the system's C library (glibc) is too old: {wanted} is required",
        "A wheel or program was built on a newer system. glibc belongs to the system and cannot be replaced in an "
        "environment.",
        (Fix("Use a container or a node with a newer system.", ("ldd --version | head -n 1",)),
         Fix("Or install an older release of the package, or build it here.",
             ("pip install --no-binary :all: --no-build-isolation PACKAGE",))),
        "https://sourceware.org/glibc/wiki/FAQ",
        summary="The system's C library is too old for an installed package."),
    Row("log_libstdcxx_too_old", "root", "library", r"version `(?P<wanted>(?:GLIBCXX|CXXABI)_[\d.]+)' not found",
        ("ImportError: /lib64/libstdc++.so.6: version `GLIBCXX_3.4.30' not found (required by /x/_sqlite3.so)",),
        "the C++ library (libstdc++) that is found first is too old: {wanted} is required",
        "A wheel or a conda package was built on a newer system, or the old libstdc++ comes before conda's.",
        Fix("Put the environment's own libstdc++ first, or use a container with a newer system.",
            ("conda install -c conda-forge libstdcxx-ng", "export LD_LIBRARY_PATH=$CONDA_PREFIX/lib:$LD_LIBRARY_PATH")),
        "https://gcc.gnu.org/onlinedocs/libstdc++/manual/abi.html",
        summary="The C++ library that is found first is too old for an installed package."),
    Row("log_nccl_not_found", "root", "library",
        r"libnccl\.so[\d.]*: cannot open shared object|Failed to load NCCL library from|"
        r"NCCL library (?:cannot|could not) be (?:loaded|found)|Cannot find (?:nccl|NCCL) in the system",
        ("OSError: libnccl.so.2: cannot open shared object file: No such file or directory",
         "ERROR pynccl_wrapper.py:196] Failed to load NCCL library from libnccl.so.2 ."),
        "the NCCL library (libnccl.so.2) was not found or cannot be loaded",
        "It comes with the package nvidia-nccl-cu12 (or -cu13) that torch requires. The package is missing, belongs to "
        "another CUDA version, or VLLM_NCCL_SO_PATH names a wrong file.",
        (Fix("Reinstall the package that this torch requires.",
             ("pip list | grep -i nccl", "pip show torch | grep -i requires", "mgpu doctor --only libraries")),
         Fix("For vLLM, unset the path, or set it to the file that exists.",
             ("unset VLLM_NCCL_SO_PATH", "find $(python -c 'import site; print(site.getsitepackages()[0])')/nvidia "
              "-name 'libnccl.so*'"))),
        "https://docs.vllm.ai/en/latest/usage/troubleshooting.html", cases=(NCCL_NOT_ON_PATH,)),
    Row("log_library_missing", "root", "library",
        r"(?:ImportError|OSError|loading shared libraries): "
        r"(?P<library>lib(?!nccl\.so|(?:atb|ascendcl|hccl|opapi|runtime|torch_npu)\w*\.so)[\w+.-]+): "
        r"cannot open shared object file",
        ("ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory",
         "OSError: libcublas.so.12: cannot open shared object file: No such file or directory",
         "python: error while loading shared libraries: libpython3.11.so.1.0: cannot open shared object file: No such "
         "file or directory"),
        "the library {library} was not found",
        "A package needs a CUDA version other than the installed one (libcudart.so.11.0 with a CUDA 12 torch), or its "
        "folder is not on the path.",
        Fix("Install the package for torch's CUDA version.",
            ("python -c 'import torch; print(torch.version.cuda)'", "ldconfig -p | grep {library:id}",
             "mgpu doctor --only libraries")),
        "https://man7.org/linux/man-pages/man8/ld.so.8.html", summary="A shared library was not found.",
        cases=(LIBRARY_OF_SYSTEM,)),
    Row("log_relative_import_in_script", "root", "script",
        r"attempted relative import (?:with no known parent package|beyond top-level package)",
        ("ImportError: attempted relative import with no known parent package",
         "ImportError: attempted relative import beyond top-level package"),
        "a file of a package was started as a script, so its relative imports have no package",
        "`from . import x` works only if Python knows the package: started by its path, the file has none.",
        Fix("Start it as a module, from the folder above the package.",
            ("python -m PACKAGE.MODULE", "mgpu launch -m PACKAGE.MODULE", "torchrun ... -m PACKAGE.MODULE")),
        "https://docs.python.org/3/tutorial/modules.html#intra-package-references"),
    Row("log_numpy_mismatch", "root", "library",
        r"(?P<said>A module that was compiled using NumPy 1\.x cannot be run|"
        r"Unable to configure default ndarray\.__repr__|numpy\.(?:dtype|ndarray|ufunc) size changed.{0,120}|"
        r"_ARRAY_API not found|RuntimeError: Numpy is not available|numpy\.core\.multiarray failed to import)",
        ("A module that was compiled using NumPy 1.x cannot be run in",
         "RuntimeError: Unable to configure default ndarray.__repr__", "AttributeError: _ARRAY_API not found",
         "RuntimeError: Numpy is not available",
         "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, got "
         "88"),
        "a package was built for a different major version of NumPy",
        "NumPy 2 changed interfaces that compiled packages use. Files of two releases of NumPy in one folder have the "
        "same effect.",
        Fix("Upgrade the package that fails, or stay below NumPy 2.",
            ("pip install 'numpy<2'", "pip install --upgrade PACKAGE")),
        "https://numpy.org/devdocs/user/troubleshooting-importerror.html", explain=built_for_numpy),
    Row("log_numpy_name_dropped", "root", "library",
        r"module 'numpy' has no attribute '\w+'|`np\.\w+` was removed in the NumPy 2\.0 release",
        ("AttributeError: module 'numpy' has no attribute 'bool'.",
         "AttributeError: `np.float_` was removed in the NumPy 2.0 release. Use `np.float64` instead."),
        "a package uses a name that this NumPy version removed",
        "1.24 removed np.bool, np.int, np.float and np.object. 2.0 removed np.float_, np.Inf, np.NaN and others.",
        Fix("Upgrade the package that uses it ({the_traceback} names it), or install a NumPy that has the name.",
            ("pip install --upgrade PACKAGE", "pip install 'numpy<1.24'  # np.bool, np.int, np.float, np.object",
             "pip install 'numpy<2'  # the others")),
        "https://numpy.org/doc/stable/release/1.24.0-notes.html#expired-deprecations"),
    Row("log_torchvision_mismatch", "root", "library",
        r"operator torchvision::nms does not exist|PyTorch and torchvision (?:were|was|have) .*different CUDA|"
        r"Couldn't load custom C\+\+ ops",
        ("RuntimeError: operator torchvision::nms does not exist",
         "RuntimeError: Couldn't load custom C++ ops. This can happen if your PyTorch and torchvision versions are "
         "incompatible"),
        "torchvision and torch are from different releases",
        "Each torchvision release requires one torch release. pip upgraded only one of them.",
        Fix("Install both together.",
            ("pip install --upgrade torch torchvision torchaudio", "mgpu doctor --only requirement_not_met")), _MATRIX),
    Row("log_protobuf_too_new", "root", "library", r"Descriptors cannot (?:not )?be created directly",
        ("TypeError: Descriptors cannot be created directly.", "TypeError: Descriptors cannot not be created "
                                                               "directly."),
        "the installed protobuf is too new for a package generated with an older one",
        "TensorBoard, sentencepiece or wandb include files generated for protobuf 3.",
        Fix("Upgrade that package, or install an older protobuf.", ("pip install 'protobuf<4'",)),
        "https://protobuf.dev/news/2022-05-06/"),
    Row("log_requirement_not_met", "root", "library",
        r"\w>=?[\d.]+ is required to (?:use|run)|device_map`? requires Accelerate|"
        rf"(?:Error|Exception): .*\brequires? (?:{_PACKAGES}) ?[<>=]=? ?v?\d|"
        r"requires the \S+ library but it was not found|"
        r"Using the `Trainer` with `PyTorch` requires `accelerate|(?<!quantized model )requires `?accelerate`?[ >]"
        r"|torch\.device` context manager .{0,60}requires `accelerate`|quantization requires [Aa]ccelerate\b",
        ("ImportError: Using `low_cpu_mem_usage=True` or a `device_map` requires Accelerate: `pip install accelerate`",
         "RuntimeError: vLLM requires transformers>=4.45.0", "ImportError: accelerate>=1.1.0 is required to use "
                                                             "parallelism",
         "ImportError: Using the `Trainer` with `PyTorch` requires `accelerate>=0.26.0`: Please run `pip install "
         "transformers[torch]`", "ImportError: LlamaTokenizer requires the SentencePiece library but it was not found "
                                 "in "
         "your environment.",
         "ImportError: Using `bitsandbytes` 4-bit quantization requires accelerate: `pip install 'accelerate>=1.1.0'`"),
        "an installed package requires another package, or another version of it",
        "Only one of them was upgraded.",
        Fix("Install what the line requires.",
            ("pip check",
             "mgpu doctor --only requirement_not_met,versions_known_bad_together")),
        "https://github.com/huggingface/transformers/blob/main/src/transformers/utils/versions.py",
        explain=calls.explain_wanted),
    Row("log_feature_wants_newer", "root", "library",
        r"FSDP2 requires PyTorch|DeepSpeed version must be >=|nossh launcher requires DeepSpeed|"
        r"Deepspeed ALST/Ulysses requires|torch FSDP requires PyTorch"
        r"|PyTorch >= 2\.6 requires DeepSpeed|FSDP requires PyTorch >=|Deepspeed TP requires deepspeed|"
        r"is only supported for transformers v\d|DeepSpeed (?:MLU|MUSA) version must",
        ("ValueError: FSDP2 requires PyTorch >= 2.6.0", "ImportError: DeepSpeed version must be >= 0.9.3. Please "
                                                        "update "
         "DeepSpeed.", "ValueError: nossh launcher requires DeepSpeed >= 0.14.5",
         "ValueError: torch FSDP requires PyTorch >= 2.1.0",
         "ImportError: PyTorch >= 2.6 requires DeepSpeed >= 0.16.0. Detected DeepSpeed version: 0.15.4. Please "
         "upgrade",
         "RuntimeError: Tensor Parallel with LoRA is only supported for transformers v5.4.0 and above."),
        "the installed torch or DeepSpeed is too old for a feature that the config uses",
        "Only accelerate was upgraded.",
        Fix("Upgrade them together.", ("pip install --upgrade torch accelerate deepspeed",
                                       "mgpu doctor --only config_software_too_old")),
        "https://github.com/huggingface/accelerate/blob/main/src/accelerate/accelerator.py"),
    Row("log_torch_without_nccl", "root", "library", r"Distributed package doesn't have NCCL built in|"
        r"Distributed package doesn't have NCCL",
        ("RuntimeError: Distributed package doesn't have NCCL built in",),
        "this torch has no NCCL",
        "It is the CPU build, or a build for macOS, Windows or arm64. GPUs cannot communicate with it.",
        Fix("Install the CUDA build, or use gloo on CPUs.",
            ("mgpu doctor --only torch_without_nccl,torch_is_cpu_build", "accelerate launch --cpu ...")),
        "https://pytorch.org/docs/stable/distributed.html", cases=(_NO_NCCL_ON_WINDOWS,)),
    Row("log_syntax_error", "root", "script", r"^(?:SyntaxError|IndentationError|TabError): (?P<message>.+)",
        ("SyntaxError: invalid syntax", "IndentationError: unexpected indent",
         "SyntaxError: f-string: expecting '}'"),
        "the script, or one of its modules, has a syntax error: {message}",
        "Python stops before the first line runs. The lines above name the file. A syntax newer than this Python "
        "version causes the same error.",
        Fix("Fix it. You can check without a GPU.", ("python -m py_compile train.py", "python --version")),
        "https://docs.python.org/3/tutorial/errors.html",
        summary="The script, or one of its modules, has a syntax error.", explain=where_syntax_fails,
        tags=("before_ranks",)),  # with steps after it, it was in code that the program only tried out
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
