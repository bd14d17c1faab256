"""Which CUDA libraries, wheels and tools would the training run use, and are they compatible?

Runs after the packages probe, in the same child and so in the training run's interpreter. Reads files first; libraries
are loaded last, one by one, because loading a foreign library can hang or crash.
"""

from __future__ import annotations

import ctypes
import json
import operator
import os
import re
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# fmt: off
# Packages whose requirements are read; only requirements on these packages are recorded.
_STACK = frozenset({
    "accelerate", "torch", "transformers", "datasets", "deepspeed", "peft", "trl", "flash-attn", "bitsandbytes",
    "triton", "numpy", "torchvision", "torchaudio", "transformer-engine", "torchao", "xformers", "huggingface-hub",
    "tokenizers", "safetensors", "diffusers", "lightning", "pytorch-lightning", "vllm", "liger-kernel",
})
# Packages that should exist once; with two copies, the order of sys.path decides.
_ONCE = (
    "torch", "accelerate", "transformers", "deepspeed", "peft", "trl", "datasets", "triton", "flash-attn",
)
# Packages compiled for one torch version, which their wheel's name contains.
_COMPILED = frozenset({
    "flash-attn", "flash-attn-3", "mamba-ssm", "causal-conv1d", "xformers", "torch-scatter", "torch-sparse",
    "torch-cluster", "pyg-lib", "natten", "gsplat",
})
# Modules that torch 2.13, accelerate 1.15 and its launcher import on Python 3.11, and others common in training.
_IMPORTED = (
    "argparse", "array", "ast", "asyncio", "base64", "binascii", "bisect", "bz2", "calendar", "cmath",
    "collections", "colorsys", "concurrent", "contextlib", "contextvars", "copy", "copyreg", "csv", "ctypes",
    "dataclasses", "datetime", "decimal", "difflib", "dis", "email", "enum", "fcntl", "fnmatch", "fractions",
    "functools", "gettext", "glob", "grp", "gzip", "hashlib", "heapq", "http", "importlib", "inspect", "ipaddress",
    "json", "keyword", "linecache", "locale", "logging",
    "lzma", "math", "mmap", "multiprocessing", "numbers", "opcode", "operator", "pathlib", "pickle", "pickletools",
    "pkgutil", "platform", "pprint", "queue", "quopri", "random", "re", "reprlib", "runpy", "select", "selectors",
    "shutil", "signal", "socket", "ssl", "string", "struct", "subprocess", "tarfile", "tempfile", "textwrap",
    "threading", "timeit", "token", "tokenize", "traceback", "types", "typing", "unicodedata", "unittest", "urllib",
    "uuid", "warnings", "weakref", "zipfile", "zlib", "torch", "torchgen", "torchvision", "torchaudio", "numpy",
    "accelerate", "transformers", "datasets", "deepspeed", "peft", "trl", "evaluate", "diffusers", "bitsandbytes",
    "flash_attn", "xformers", "triton", "tokenizers", "safetensors", "huggingface_hub", "packaging", "yaml", "tqdm",
    "psutil", "pynvml", "typing_extensions", "sympy", "mpmath", "networkx", "jinja2", "filelock", "fsspec", "requests",
    "regex", "einops", "pandas", "pyarrow", "scipy", "sklearn", "wandb", "tensorboard", "lightning",
)
_COMPARE = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}
# fmt: on
_LIBRARY = re.compile(r"lib(cudart|cublas|cublasLt|cudnn|nvJitLink|nvrtc|cusparse|nccl)\.so\.(\d+(?:\.\d+)?)")
_PLUGINS = {"NCCL_NET_PLUGIN": "nccl-net", "NCCL_TUNER_PLUGIN": "nccl-tuner", "NCCL_PROFILER_PLUGIN": "nccl-profiler"}
_MOST_ENTRIES = 20_000  # of a folder on LD_LIBRARY_PATH
_HEADER = 64 * 1024  # bytes of a METADATA file; only its header is needed
_NVCC_S = 2.0


def probe(
    path: Sequence[str] | None = None, cwd: str = ".", preload_file: str = "/etc/ld.so.preload"
) -> Iterator[dict[str, Any]]:
    """Yield the fact libraries several times with more entries, so a crash keeps the earlier ones."""
    yield {"asking": "installed wheels and CUDA libraries"}
    folders = _folders(sys.path if path is None else path)
    cuda_home = _cuda_home()
    facts: dict[str, Any] = {
        "found": [*_preloaded_libraries(preload_file), *_on_library_path(), *_in_wheels(folders)],
        "wheels": _wheels(folders),
        "requires": _requires(folders),
        "built_with": _built_with(folders),
        "twice": _duplicates(folders),
        "shadowed": find_shadowed(cwd),
        "cuda_home": cuda_home,
        "nvcc_path": _nvcc(cuda_home),
        "compiler": _compiler(os.environ.get("CXX"), "c++", "g++", "clang++"),
        "c_compiler": _compiler(os.environ.get("CC"), "gcc", "clang", "cc"),
        "ninja": _ninja(folders),
    }
    yield {"libraries": facts}
    yield {"asking": "version of nvcc"}
    facts["nvcc"] = _nvcc_version(cuda_home, facts["nvcc_path"])
    for name, names in {"cuda": ["libcuda.so.1"], "nvidia-ml": ["libnvidia-ml.so.1"], **_plugins()}.items():
        yield {"asking": f"loading {names[0]}"}
        entry = {
            "name": name.partition(":")[0],
            "path": names[0],
            "origin": "system",
            "loads": False,
            "error": "the process died while loading it",
        }
        facts["found"].append(entry)
        yield {"libraries": facts}
        if name.startswith("nccl-"):
            _load_cudart(facts["found"])
        entry.update(_load(names))
    yield {"libraries": facts}


# ---- distributions


class _Folder:
    """A folder of sys.path: its entries, and its distributions by normalized name."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self.names = frozenset(os.listdir(path))
        except OSError:
            self.names = frozenset()
        self.distributions: dict[str, list[tuple[str, str]]] = {}  # name -> [(version, dist-info folder)]
        for name in sorted(self.names):
            if name.endswith(".dist-info"):
                project, _, version = name[: -len(".dist-info")].rpartition("-")
            elif name.endswith(".egg-info"):
                project, _, version = re.sub(r"-py\d[\d.]*$", "", name[: -len(".egg-info")]).rpartition("-")
            else:
                continue
            key = re.sub(r"[-_.]+", "-", project).lower()
            if key:
                self.distributions.setdefault(key, []).append((version, name))


def _folders(path: Sequence[str]) -> list[_Folder]:
    return [_Folder(folder or ".") for folder in dict.fromkeys(path) if not folder.endswith((".zip", "lib-dynload"))]


def _first_copies(folders: Sequence[_Folder]) -> dict[str, tuple[str, str]]:
    """Return the first copy of every distribution on sys.path: name -> (version, dist-info folder)."""
    found: dict[str, tuple[str, str]] = {}
    for folder in folders:
        for name, copies in folder.distributions.items():
            version, info = copies[-1]
            found.setdefault(name, (version, os.path.join(folder.path, info)))
    return found


def _is_cuda(name: str) -> bool:
    return (name.startswith("nvidia-") and name != "nvidia-ml-py") or name in ("cuda-toolkit", "cuda-bindings")


def _wheels(folders: Sequence[_Folder]) -> dict[str, str]:
    return {name: version for name, (version, _) in sorted(_first_copies(folders).items()) if _is_cuda(name)}


def _requires(folders: Sequence[_Folder]) -> dict[str, list[str]]:
    """Return the stack's requirements on each other, Python and NVIDIA's wheels: "torch" -> ["triton==3.5.1"].

    Skips requirements of extras, and those whose marker is false here or cannot be parsed.
    """
    found: dict[str, list[str]] = {}
    installed = _first_copies(folders)
    for name in sorted(_STACK & installed.keys()):
        if required := _requirements(installed[name][1], frozenset()):
            found[name] = required
    for line in found.get("torch", ()):  # since 2.11 the libraries are extras of one package
        extras = re.match(r"cuda-toolkit\[([^\]]*)\]", line)
        if extras and "cuda-toolkit" in installed:
            wanted = frozenset(word.strip() for word in extras.group(1).split(","))
            if required := _requirements(installed["cuda-toolkit"][1], wanted):
                found["cuda-toolkit"] = required
    return found


def _requirements(info: str, extras: frozenset[str]) -> list[str]:
    """Return the requirements of one METADATA file on known packages, without extras other than `extras`."""
    header = (_read(os.path.join(info, "METADATA"), _HEADER) or "").partition("\n\n")[0]
    found = [f"python{version.strip()}" for version in re.findall(r"^Requires-Python:(.*)$", header, re.MULTILINE)]
    for line in re.findall(r"^Requires-Dist:(.*)$", header, re.MULTILINE):
        requirement, _, marker = line.partition(";")
        name = re.match(r"\s*([A-Za-z0-9][\w.-]*)", requirement)
        key = re.sub(r"[-_.]+", "-", name.group(1)).lower() if name else ""
        if name is None or not (key in _STACK or _is_cuda(key)) or not _holds(marker.strip(), extras):
            continue
        rest = re.sub(r"[\s()]", "", requirement[name.end() :])
        if key == "cuda-toolkit" or not rest.startswith(("@", "[")):
            found.append(key + rest)
    return found


def _holds(marker: str, extras: frozenset[str]) -> bool:
    """Evaluate a PEP 508 marker for this interpreter: comparisons with `and`, `or` and parentheses."""
    if not marker or ("extra" in marker and not extras):
        return not marker
    values = _marker_values()
    comparison = r"(?P<name>[a-z_]+)\s*(?P<operator>[<>=!~]=?=?)\s*(?P<wanted>'[^']*'|\"[^\"]*\")"
    text = re.sub(comparison, lambda found: _compare(found, values, extras), marker)
    while True:  # innermost first; `and` binds more tightly than `or`
        shorter = re.sub(r"\(\s*(True|False)\s*\)", r"\1", text)
        shorter = re.sub(r"\b(True|False) and (True|False)\b", lambda f: str("False" not in f.group()), shorter)
        if shorter == text:
            shorter = re.sub(
                r"(?<!and )\b(True|False) or (True|False)\b(?! and)", lambda f: str("True" in f.group()), text
            )
        if shorter == text:
            return text.strip() == "True"
        text = shorter


def _compare(found: re.Match[str], values: Mapping[str, str], extras: frozenset[str]) -> str:
    """Evaluate one comparison of a marker: "True", "False" or "unknown"."""
    name, sign, wanted = found["name"], found["operator"], found["wanted"][1:-1]
    if name == "extra":
        return str(wanted in extras and sign == "==")
    value = values.get(name)
    if value is None:
        return "unknown"
    if name.startswith("python_"):
        ours, theirs = [[int(n) for n in re.findall(r"\d+", text)] for text in (value, wanted)]
    else:
        ours, theirs = value, wanted  # type: ignore[assignment]
    compare = _COMPARE.get(sign)
    return "unknown" if compare is None else str(compare(ours, theirs))


def _marker_values() -> dict[str, str]:
    """Return the variables of PEP 508 markers and their values for this interpreter."""
    return {
        "python_version": ".".join(map(str, sys.version_info[:2])),
        "python_full_version": ".".join(map(str, sys.version_info[:3])),
        "sys_platform": sys.platform,
        "platform_system": os.uname().sysname,
        "platform_machine": os.uname().machine,
        "os_name": os.name,
        "implementation_name": sys.implementation.name,
        "platform_python_implementation": "CPython" if sys.implementation.name == "cpython" else "",
    }


def _built_with(folders: Sequence[_Folder]) -> dict[str, str]:
    """Return the local version of compiled extensions' wheels: flash-attn -> cu12torch2.4cxx11abiFALSE."""
    found = {}
    for name, (version, info) in _first_copies(folders).items():
        if name not in _COMPILED:
            continue
        tag = version.partition("+")[2]
        if not tag:
            try:
                url = json.loads(_read(os.path.join(info, "direct_url.json"), _HEADER) or "{}").get("url", "")
            except (ValueError, AttributeError):
                continue
            wheel = re.search(r"(?:\+|%2B)([A-Za-z0-9._]+)-[^/]*\.whl$", url if isinstance(url, str) else "")
            tag = wheel.group(1) if wheel else ""
        if tag:
            found[name] = tag
    return found


def _duplicates(folders: Sequence[_Folder]) -> dict[str, list[str]]:
    """Return packages with several copies, or metadata of several versions, on sys.path; the used one first."""
    found = {}
    for name in _ONCE:
        copies: list[str] = []
        module = name.replace("-", "_")
        for folder in folders:
            infos = [info for _, info in folder.distributions.get(name, ())]
            if not infos and module in folder.names:
                infos = [module] if os.path.isfile(os.path.join(folder.path, module, "__init__.py")) else []
            copies += [os.path.join(folder.path, info) for info in infos]
        if len(copies) > 1:
            found[name] = copies
    return found


def find_shadowed(folder: str) -> dict[str, str]:
    """Return files and packages in a folder that hide a module needed for training: name -> path.

    Ignores a folder on sys.path, a checkout of the package itself, and folders without `__init__.py`.
    """
    if (here := os.path.realpath(folder)) in {os.path.realpath(folder) for folder in sys.path if folder}:
        return {}
    names = {name.partition(".")[0] for name in _list_folder(here)}
    candidates = (name for name in _IMPORTED if name in names and name not in sys.builtin_module_names)
    found = {name: path for name in candidates if (path := _module_in(here, name)) and _is_installed(name)}
    if found:
        project = "\n".join(_read(os.path.join(here, name), _HEADER) or "" for name in ("pyproject.toml", "setup.py"))
        own = set(re.findall(r"^\s*name\s*=\s*[\"']([\w.-]+)[\"']", project, re.MULTILINE))
        found = {name: path for name, path in found.items() if name not in {word.replace("-", "_") for word in own}}
    return found


def _module_in(folder: str, name: str) -> str | None:
    """Return the file or package that Python would import by this name from a folder, without executing it."""
    import importlib.machinery

    spec = importlib.machinery.PathFinder.find_spec(name, [folder])
    if spec is None or not spec.origin or not spec.has_location:  # a folder without __init__.py has no location
        return None
    return os.path.dirname(spec.origin) if spec.submodule_search_locations else spec.origin


def _is_installed(name: str) -> bool:
    """Whether there is a module to hide: a project may have a folder `datasets` without that library installed."""
    import importlib.util

    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return True  # already imported, without a __spec__


# ---- libraries


def _preloaded_libraries(preload_file: str) -> list[dict[str, Any]]:
    """Return the libraries preloaded into every process; the fact nccl covers NCCL."""
    named = re.split(r"[ :]", os.environ.get("LD_PRELOAD", ""))
    named += re.split(r"[\s:]", re.sub(r"#.*", "", _read(preload_file, _HEADER) or ""))
    return [
        {
            "name": os.path.basename(path),
            "path": path,
            "origin": "preload",
            "loads": os.path.isfile(path) if "/" in path and "$" not in path else None,
        }
        for path in dict.fromkeys(filter(None, named))
    ]


def _on_library_path() -> list[dict[str, Any]]:
    """Return CUDA libraries in the folders of LD_LIBRARY_PATH, in the loader's order."""
    found = []
    for folder in dict.fromkeys(filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))):
        found += [_library(path, "library_path") for path in _libraries_in(folder)]
    return found


def _in_wheels(folders: Sequence[_Folder]) -> list[dict[str, Any]]:
    """Return the libraries in NVIDIA's wheels (nvidia/cublas/lib, since CUDA 13 nvidia/cu13/lib) and bitsandbytes."""
    found = []
    for folder in folders:
        if "nvidia" in folder.names:
            root = os.path.join(folder.path, "nvidia")
            for part in _list_folder(root):
                found += [_library(path, "wheel") for path in _libraries_in(os.path.join(root, part, "lib"))]
        if "bitsandbytes" in folder.names:
            root = os.path.join(folder.path, "bitsandbytes")
            for name in _list_folder(root):
                cuda = re.fullmatch(r"libbitsandbytes_cuda(\d\d)(\d+)\w*\.so", name)
                if cuda:
                    path = os.path.join(root, name)
                    version = f"{cuda.group(1)}.{cuda.group(2)}"
                    found.append({"name": "bitsandbytes", "path": path, "origin": "wheel", "version": version})
    return found


def _libraries_in(folder: str) -> list[str]:
    return [os.path.join(folder, name) for name in _list_folder(folder) if _LIBRARY.fullmatch(name)]


def _list_folder(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry, _ in zip(entries, range(_MOST_ENTRIES), strict=False))
    except OSError:
        return []


def _library(path: str, origin: str) -> dict[str, Any]:
    """Return one library, with the version in the name of the file it links to: libcudart.so.12.1.105."""
    name = _LIBRARY.fullmatch(os.path.basename(path))
    version = re.search(r"\.so\.(\d+(?:\.\d+)+)$", os.path.realpath(path))
    return {
        "name": name.group(1) if name else os.path.basename(path),
        "path": path,
        "origin": origin,
        "version": version.group(1) if version else None,
    }


def _plugins() -> dict[str, list[str]]:
    """Return the NCCL plugins set in the environment, with the file names NCCL tries (plugin_open.cc)."""
    found = {}
    for variable, prefix in _PLUGINS.items():
        value = os.environ.get(variable, "").strip()
        words = value.split(",") if variable == "NCCL_NET_PLUGIN" else [value]  # a list since 2.27
        for word in filter(None, (word.strip() for word in words)):
            if word.lower() in ("none", "static_plugin"):
                continue
            names = [word] if "/" in word else [word, f"lib{prefix}-{word}.so"]
            found[f"{prefix}:{word}"] = names
    return found


def _load(names: Sequence[str]) -> dict[str, Any]:
    """Load a library by the first name that works, as the training run would; return its origin, or the error."""
    error = ""
    for name in names:
        try:
            ctypes.CDLL(name)
        except OSError as reason:
            # The error for an existing file is more useful than the one for a missing file.
            if not error or f"{names[0]}: cannot open" in error:
                error = str(reason)
            continue
        path = _mapped_path(name) or name
        version = re.search(r"\.so\.(\d+(?:\.\d+)+)$", path)
        return {
            "path": path,
            "origin": _origin(path),
            "version": version.group(1) if version else None,
            "loads": True,
            "error": None,
        }
    return {"error": error}


def _load_cudart(found: Sequence[Mapping[str, Any]]) -> None:
    """Load torch's CUDA runtime, because NCCL loads plugins into a process that already has it."""
    for library in found:
        if library["name"] == "cudart" and library["origin"] == "wheel":
            try:
                ctypes.CDLL(library["path"])
            except OSError:
                continue


def _mapped_path(name: str) -> str | None:
    """Return the file of a library that this process has loaded."""
    stem = os.path.basename(name).partition(".so")[0] + ".so"
    for line in (_read("/proc/self/maps", 1 << 22) or "").splitlines():
        path = line.partition("/")[2]
        if path and os.path.basename(path).startswith(stem):
            return f"/{path.removesuffix(' (deleted)')}"
    return None


def _origin(path: str) -> str:
    parts = path.split("/")
    if "stubs" in parts:
        return "stub"
    if any(re.fullmatch(r"(cuda-)?compat([-_].*)?", part) for part in parts[:-1]):
        return "compat"
    if path.startswith(os.path.join(sys.prefix, "")) and os.path.isdir(os.path.join(sys.prefix, "conda-meta")):
        return "conda"
    named = {os.path.realpath(f) for f in os.environ.get("LD_LIBRARY_PATH", "").split(":") if f}
    return "library_path" if os.path.realpath(os.path.dirname(path)) in named else "system"


# ---- tools that compile


def _cuda_home() -> str | None:
    """Return the toolkit torch would compile with (torch/utils/cpp_extension.py, _find_cuda_home)."""
    named = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if named:
        return named
    nvcc = shutil.which("nvcc")
    if nvcc:
        return os.path.dirname(os.path.dirname(nvcc))
    return "/usr/local/cuda" if os.path.exists("/usr/local/cuda") else None


def _nvcc(cuda_home: str | None) -> str | None:
    path = os.path.join(cuda_home, "bin", "nvcc") if cuda_home else None
    return path if path and os.access(path, os.X_OK) else None


def _nvcc_version(cuda_home: str | None, nvcc: str | None) -> str | None:
    """Return nvcc's version from the toolkit's version.json, else from `nvcc -V`."""
    if cuda_home is None or nvcc is None:
        return None
    try:
        version = json.loads(_read(os.path.join(cuda_home, "version.json"), _HEADER) or "{}")["cuda_nvcc"]["version"]
    except (ValueError, KeyError, TypeError):
        version = _nvcc_output(nvcc, "-V")
    found = re.search(r"(?:release )?(\d+\.\d+)", version if isinstance(version, str) else "")
    return found.group(1) if found else None


def _nvcc_output(*command: str) -> str:
    import subprocess

    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_NVCC_S, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.SubprocessError, ValueError):
        return ""
    return done.stdout.partition("release ")[2]


def _compiler(named: str | None, *usual: str) -> str | None:
    """Return the compiler's version if its file name has one (gcc-12), else "unknown"; None if there is no compiler."""
    path = next(filter(None, map(shutil.which, [named.split()[0]] if named and named.split() else usual)), None)
    if path is None:
        return None
    version = re.search(r"-(\d[\d.]*)$", os.path.realpath(path))
    return version.group(1) if version else "unknown"


def _ninja(folders: Sequence[_Folder]) -> str | None:
    """Return ninja's version; None if it is not on PATH, because torch and DeepSpeed run `ninja --version`."""
    if shutil.which("ninja") is None:
        return None
    version: Mapping[str, tuple[str, str]] = _first_copies(folders)
    return version["ninja"][0] if "ninja" in version else "unknown"


def _read(path: str, most: int) -> str | None:
    """Return at most `most` bytes of a regular file as text; None if there is none."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError):
        return None
    try:
        data = b""
        regular = stat.S_ISREG(os.fstat(file).st_mode)
        while regular and len(data) < most and (piece := os.read(file, most - len(data))):
            data += piece
    except OSError:
        return None
    finally:
        os.close(file)
    return data.decode("utf-8", "replace").replace("\r\n", "\n") if regular else None
