"""Did something fail that only Windows and WSL have?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.signature import Meaning, Row, signatures
from mgpu.snapshot import UncaughtException

from .. import _version_skew as skew
from .._reinstall import reinstall

_WSL = "https://docs.nvidia.com/cuda/wsl-user-guide/index.html"
_IMPORTED = re.compile(r"DLL load failed while importing (?P<module>[\w.]+):")
_OF_TORCH = re.compile(r"_?C\b|_?torch|fbgemm|caffe2")


def _of_other_package(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain a compiled module of a package that is not torch; None if it is torch's, or the log has only its name."""
    found = _IMPORTED.search(raised.message) if raised is not None else None
    if raised is None or found is None or _OF_TORCH.match(found["module"]) or "torch" in raised.packages:
        return None
    module = found["module"]
    package = next((one for one in reversed(raised.packages) if one), None) or module.partition(".")[0]
    dist = skew.distribution(package)
    return Meaning(
        f"Windows could not load the compiled module {module}, or a library that it needs",
        "The Visual C++ runtime is missing or old, a library that the package expects (of CUDA, of a codec, of Qt) is "
        "not on PATH or of another version, or the installation is damaged or for another Python.",
        (
            Fix("Install the Visual C++ redistributable.", ("winget install Microsoft.VCRedist.2015+.x64",)),
            Fix(
                "Install the package again, or another release of it.",
                (reinstall(dist), shell("pip show {:package}", dist)),
            ),
        ),
    )


# fmt: off
_USE_WSL = Fix("Or train in WSL2, where NCCL works.", ("wsl --install",))

ROWS = (
    Row("log_windows_paging_file", "root", "kernel", r"\[WinError 1455\]|paging file is too small",
        ('OSError: [WinError 1455] The paging file is too small for this operation to complete. Error loading '
         '"C:\\x\\torch\\lib\\cudnn_cnn.dll" or one of its dependencies.',),
        "Windows has no memory left to reserve: the paging file is too small",
        "Every rank and every loader worker loads torch's libraries, and Windows reserves some GB for each.",
        (Fix("Use fewer loader workers.", ("DataLoader(..., num_workers=0)",)),
         Fix("Enlarge the paging file: System Properties, Advanced, Performance, Virtual memory.", (), who="admin"),
         _USE_WSL), "https://learn.microsoft.com/windows/win32/debug/system-error-codes--1300-1699-"),
    Row("log_windows_library_missing", "root", "library",
        r"\[WinError (?:126|127|182|1114|193)\].*Error loading \"[^\"]+\"|"
        r"DLL load failed while importing \S+:",
        ('OSError: [WinError 126] The specified module could not be found. Error loading '
         '"C:\\Python\\lib\\site-packages\\torch\\lib\\fbgemm.dll" or one of its dependencies.',
         "ImportError: DLL load failed while importing flash_attn_2_cuda: The specified module could not be found."),
        "Windows could not load a library of torch or of an extension, or one that it needs",
        "The Visual C++ runtime is missing or old, the installation is incomplete, or the extension was built for "
        "another torch, Python or CUDA.",
        (Fix("Install the Visual C++ redistributable.", ("winget install Microsoft.VCRedist.2015+.x64",)),
         Fix("Reinstall torch, and the extension for this torch.",
             ("pip install --force-reinstall --no-cache-dir torch", "pip list")), _USE_WSL),
        "https://docs.pytorch.org/docs/stable/notes/windows.html", explain=_of_other_package),
    Row("log_windows_dependency_missing", "root", "library",
        r"Could not find module '(?:[^']{0,300}[\\/])?(?P<file>[^'\\/]+\.(?:dll|pyd))' \(or one of its dependencies\)",
        (r"FileNotFoundError: Could not find module 'C:\env\Lib\site-packages\dgl\dgl.dll' (or one of its "
         "dependencies). Try using the full path with constructor syntax.",),
        "Windows could not load {file}: probably another library that it needs is missing",
        "The message is the same if {file} itself is missing. If it is there, one that it loads is not: the CUDA "
        "runtime of the version that it was built for, torch's libraries of another release, or the Visual C++ "
        "runtime. The hint about a full path does not help.",
        (Fix("Install the build of that package for this torch and CUDA, or its build for CPUs. First see whether the "
             "file is there, and which torch is.", ("python -m torch.utils.collect_env", "pip list")),
         Fix("If the builds fit, install the Visual C++ redistributable.",
             ("winget install Microsoft.VCRedist.2015+.x64",))),
        "https://docs.python.org/3/library/ctypes.html#ctypes.CDLL",
        summary="Windows could not load a library, or one that it needs."),
    Row("log_windows_console_closed", "root", "kernel",
        r"^forrtl: error \(200\): program aborting due to window-CLOSE event",
        ("forrtl: error (200): program aborting due to window-CLOSE event",),
        "the console window of the run was closed, which stopped it",
        "All programs of a console end when its window is closed. Intel's Fortran runtime, which numpy, scipy and "
        "torch load with MKL, prints the message and aborts. The program itself had not failed.",
        Fix("Start it again in a window that stays open, or without a window.",
            ("Start-Process python train.py -WindowStyle Hidden -RedirectStandardOutput train.log",)),
        "https://filetransfer.itc.nl/pub/sardon/Fortran/CVF_STD_66A%20%28D%29/INFO/DF/DOC/CVF_HTML/VISUALFORTRAN/PG/"
        "PG2ADEFC.HTM", effect_of="stop"),
    Row("log_windows_host_name", "secondary", "network", r"system error: 10049\b|kubernetes\.docker\.internal",
        ("[W socket.cpp:663] [c10d] The client socket has failed to connect to [kubernetes.docker.internal]:29500 "
         "(system error: 10049 - The requested address is not valid in its context.).",
         "[W socket.cpp:601] [c10d] The client socket has failed to connect to []:39507 (system error: 10049)."),
        "the host's name leads to an address that this machine does not have (Windows error 10049)",
        "Docker Desktop writes kubernetes.docker.internal for 127.0.0.1 into the hosts file. The warning is harmless "
        "if the run goes on. If it hangs or fails, torch's store was built without libuv, or no address is left.",
        (Fix("Use the address of this machine, and turn libuv off.",
             ("set MASTER_ADDR=127.0.0.1", "set USE_LIBUV=0", "accelerate launch --main_process_ip 127.0.0.1 ...")),
         Fix("Remove Docker's line from C:\\Windows\\System32\\drivers\\etc\\hosts.", (), who="admin"), _USE_WSL),
        "https://github.com/pytorch/pytorch/issues/80638"),
    Row("log_wsl_without_gpus", "root", "cuda",
        r"WSL environment detected but no adapters were found|/usr/lib/wsl/lib/\S+: (?:cannot open|No such)",
        ("nvidia-container-cli: initialization error: WSL environment detected but no adapters were found: unknown.",),
        "WSL passes no GPU to Linux",
        "The driver of Windows is too old, WSL is version 1, or a Linux driver was installed inside WSL.",
        Fix("Update the driver in Windows and WSL. Do not install a driver inside WSL.",
            ("wsl --update", "wsl --shutdown", "wsl -l -v  # VERSION must be 2")), _WSL),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
