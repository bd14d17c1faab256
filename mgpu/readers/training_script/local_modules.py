"""Which of the modules that a script imports belong to its project, and what do they define?"""

from __future__ import annotations

import ast
import os
import re
import sys
from pathlib import Path

from mgpu.file_reading import current_folder
from mgpu.readers.training_script.import_lines import imported_modules
from mgpu.readers.training_script.known_libraries import FRAMEWORKS, HARMLESS
from mgpu.readers.training_script.python_source import PYTHON, newer_python, parse, read_bytes, syntax_error
from mgpu.readers.training_script.scopes import Scope, Source
from mgpu.readers.training_script.walk import Walk

MOST_FILES = 200
# Of all modules together. A script in which parameters decide conditions is walked twice, in nearly twice the time.
MOST_BYTES = 512 << 10  # read in about 0.5 s (measured on one core, 2026-11)
MOST_BYTES_AT_LAUNCH = 64 << 10  # delays the start of a run by about 0.06 s
_MOST_LEVELS = 6  # folders above the script in which its project may start
_PROJECT = (".git", "pyproject.toml", "setup.py", "setup.cfg")  # in the top folder of a project
# A module without any of these words defines layers, constants or texts: nothing in it depends on the number of ranks.
# It is only read if it imports, itself or through others, a module of the project that has one of them.
_RELEVANT = re.compile(
    rb"distributed|DataParallel|\brank|_rank\b|\.backward\(|\.step\(|optim\.|accelerat|deepspeed|lightning|Trainer|wandb|SummaryWriter"
    rb"|torch\.(?:save|load|device\()|safetensors|save_pretrained|\.cuda\(|cuda:|set_device|multiprocessing|environ\["
    rb"|subprocess|Dataset\b|DataLoader|Sampler|load_dataset|_split\(|urlretrieve|download=|add_argument|import_module"
    rb"|device_map|open\(|(?:import|from) [^\n]*\b(?:train\w*|run\w*|main|engine\w*|launch\w*)\b"
)
# In folders of models, which can be large, only these words are relevant.
MODEL_FOLDERS = frozenset(
    {"models", "model", "modeling", "layers", "backbones", "nets", "networks", "modules", "ops", "kernels"}
)
_RELEVANT_IN_MODEL = re.compile(
    rb"init_process_group|DataParallel|DataLoader|\.backward\(|Accelerator\(|deepspeed\.|Trainer\b"
    rb"|\brank\b"
)


def project_folder(folder: str) -> str:
    """Return the top folder of the project that contains a folder; the folder itself if nothing marks one."""
    top = package = folder
    while os.path.isfile(os.path.join(package, "__init__.py")) and os.path.dirname(package) != package:
        top = package = os.path.dirname(package)
    here, current, outside = folder, current_folder(), (os.path.abspath(os.sep), os.path.expanduser("~"))
    for _ in range(_MOST_LEVELS):
        if here in outside:
            break
        if here == current or any(os.path.exists(os.path.join(here, name)) for name in _PROJECT):
            return here if len(here) < len(top) else top
        here = os.path.dirname(here)
    return top


class LocalModules:
    """The modules of the script's project. Each is read once, when it is imported, up to a limit.

    They are searched in the script's folder, which comes first in its sys.path, then in the folders above it, up to the
    top of the project: a script in `tools/` usually runs with the project installed, or with PYTHONPATH.
    """

    def __init__(self, script: Path, follow: bool, most_bytes: int) -> None:
        """Find the folders to search in."""
        self.script = os.path.realpath(script)
        self.folder = os.path.realpath(script.parent)
        self.top = project_folder(self.folder)
        self.roots = [self.folder]
        while self.roots[-1] != self.top:
            self.roots.append(os.path.dirname(self.roots[-1]))
        if self.top != self.folder or os.path.exists(os.path.join(self.top, "pyproject.toml")):
            self.roots.append(os.path.join(self.top, "src"))
        self.follow, self.most_bytes = follow, most_bytes
        self._contents: dict[str, bytes | str] = {}  # or the reason not to read it
        self._parsed: dict[tuple[str, str], tuple[ast.Module, Source]] = {}  # by path and module
        self._imported: dict[tuple[str, str], list[tuple[str, str]]] = {}  # by path and module: files and their modules
        self._located: dict[str, str | None] = {}
        self.start_again()

    def start_again(self) -> None:
        """Forget which modules were imported. No file is read or parsed again."""
        self.files: list[str] = []
        self.skipped: dict[str, str] = {}  # file -> reason
        self.broken: dict[str, tuple[int, str]] = {}  # file -> line and text of its syntax error
        self._bytes: dict[str, int] = {}  # of the files that were parsed
        self._by_name: dict[str, Scope | None] = {}
        self._by_path: dict[str, Scope | None] = {}

    def package(self) -> str:
        """Return the package that contains the script, dotted; empty if it is not in a package."""
        parts: list[str] = []
        folder = self.folder
        while os.path.isfile(os.path.join(folder, "__init__.py")) and os.path.basename(folder).isidentifier():
            parts.insert(0, os.path.basename(folder))
            folder = os.path.dirname(folder)
        return ".".join(parts)

    def parsed(self) -> list[tuple[ast.Module, Source]]:
        """Return the syntax trees of the modules that were read, in the order of files."""
        trees = {source.file: (tree, source) for tree, source in self._parsed.values()}
        return [trees[name] for name in self.files if name in trees]

    def add_script(self, scope: Scope) -> None:
        """Define the names of the script itself, for modules that import it."""
        self._by_path[self.script] = scope

    def locate(self, module: str) -> str | None:
        """Return the file of a module of the project, "" for a folder without __init__.py; None if it has neither."""
        parts = module.split(".")
        if not all(part.isidentifier() for part in parts):
            return None
        for root in self.roots:
            if root != self.folder and (parts[0] in FRAMEWORKS or parts[0] in sys.stdlib_module_names):
                return None
            place = os.path.join(root, *parts)
            for path in (os.path.join(place, "__init__.py"), f"{place}.py"):  # in Python's order
                if os.path.isfile(path):
                    return path
            if os.path.isdir(place) and parts[0] not in sys.stdlib_module_names | HARMLESS | FRAMEWORKS:
                return ""
        return None

    def is_ambiguous(self, module: str) -> bool:
        """Whether several folders have a module of this name: which of them comes first depends on the start."""
        tops = [os.path.join(root, module.partition(".")[0]) for root in dict.fromkeys(self.roots)]
        return sum(os.path.exists(top) or os.path.exists(f"{top}.py") for top in tops) > 1

    def tree(self, module: str) -> tuple[ast.Module, Source] | None:
        """Return the syntax tree of a module of the project, up to the limit; None if it is not known.

        Also of a module in which nothing is relevant. `broken` then has the syntax error, if there is one.
        """
        if not (path := self.locate(module)) or not self._is_inside(real := os.path.realpath(path)):
            return None
        name = self.name_of(path)
        if real == self.script or name in self.skipped or not self._fits(path, name):
            return None
        raw = self._content(path)
        return None if isinstance(raw, str) else self._parse(path, name, module, raw)

    def name_of(self, path: str) -> str:
        """Return a file's name in the facts, relative to the script's folder."""
        return os.path.relpath(path, self.folder)

    def find(self, walk: Walk, module: str) -> Scope | None:
        """Return the names of a module; None if it is not one of the project, or was not read."""
        if module in self._by_name:
            return self._by_name[module]
        package = module.rpartition(".")[0]
        if self.follow and package and all(part.isidentifier() for part in module.split(".")):
            self.find(walk, package)  # its __init__.py comes first, and may import the module
            if module in self._by_name:
                return self._by_name[module]
        self._by_name[module] = None
        path = self.locate(module) if self.follow else None
        if path:
            self._by_name[module] = self._of_path(walk, path, module)
            if (scope := self._by_name[module]) is not None:
                walk.modules[module] = scope
        elif path is not None:
            self._by_name[module] = Scope({})
        return self._by_name[module]

    def _of_path(self, walk: Walk, path: str, module: str) -> Scope | None:
        real = os.path.realpath(path)
        if real not in self._by_path:
            self._by_path[real] = None
            self._by_path[real] = self._read(walk, path, real, module)
        return self._by_path[real]

    def _read(self, walk: Walk, path: str, real: str, module: str) -> Scope | None:
        if not self._is_inside(real):
            return None
        name = self.name_of(path)
        if len(self.files) >= MOST_FILES or not self._fits(path, name):
            self.skipped[name] = "limit"
            return Scope({})
        if isinstance(raw := self._content(path), str):
            self.skipped[name] = raw
            return Scope({})
        if not self._is_relevant(path, raw) and not path.endswith("__init__.py"):
            if not self._leads_on(path, module):
                self.files.append(name)
                return Scope({})
            if not self._fits(path, name, self.most_bytes // 2):  # the rest is for those that have the words themselves
                self.skipped[name] = "limit"
                return Scope({})
        if (parsed := self._parse(path, name, module, raw)) is None:
            return Scope({})
        self.files.append(name)
        scope = self._by_path[real] = self._by_name[module] = Scope({"__name__": "__name__"})  # for circular imports
        walk.modules[module] = scope
        return walk.module(*parsed, scope)

    def _parse(self, path: str, name: str, module: str, raw: bytes) -> tuple[ast.Module, Source] | None:
        """Return the syntax tree of a file's content; None if it is not valid, with the reason in `skipped`."""
        package = module if path.endswith("__init__.py") else module.rpartition(".")[0]
        self._bytes[name] = len(raw)
        try:
            if (path, module) not in self._parsed:
                self._parsed[path, module] = parse(raw, name, module, package)
            return self._parsed[path, module]
        except SyntaxError as error:
            if newer_python(error) is None and error.lineno:
                self.broken[name] = (error.lineno, syntax_error(error))
        except (ValueError, LookupError, RecursionError, MemoryError):
            pass
        self.skipped[name] = f"not valid in Python {PYTHON}"
        self.files = [one for one in self.files if one != name]
        return None

    def _is_relevant(self, path: str, raw: bytes) -> bool:
        """Whether something in a module can depend on the number of ranks."""
        in_model = MODEL_FOLDERS.intersection(Path(self.name_of(path)).parts[:-1])
        return (_RELEVANT_IN_MODEL if in_model else _RELEVANT).search(raw) is not None

    def _leads_on(self, path: str, module: str) -> bool:
        """Whether a module imports, itself or through others, a module of the project in which something is relevant.

        True if a file on the way is too large to be read, or there are too many.
        """
        waiting, seen = [(path, module)], {path}
        in_model = MODEL_FOLDERS.intersection(Path(self.name_of(path)).parts[:-1])
        while waiting:
            for found, its_module in self._imported_files(*waiting.pop()):
                if found in seen or not self._is_inside(real := os.path.realpath(found)):
                    continue
                seen.add(found)
                if real == self.script:
                    continue
                if len(seen) > MOST_FILES or os.path.getsize(found) > self.most_bytes:
                    return True
                raw = self._content(found)
                if isinstance(raw, str):
                    return True
                if _RELEVANT_IN_MODEL.search(raw) if in_model else self._is_relevant(found, raw):
                    return True
                waiting.append((found, its_module))
        return False

    def _imported_files(self, path: str, module: str) -> list[tuple[str, str]]:
        """Return the files of the project that a file imports, with the name of each module."""
        if (path, module) not in self._imported:
            raw = self._content(path)
            package = module if path.endswith("__init__.py") else module.rpartition(".")[0]
            names = [] if isinstance(raw, str) else imported_modules(raw, package)
            names = [
                ".".join(parts[:end])
                for name in names
                for parts in [name.split(".")]
                for end in range(1, len(parts) + 1)
            ]
            files = [(found, name) for name in dict.fromkeys(names) if (found := self._locate_once(name))]
            self._imported[path, module] = files
        return self._imported[path, module]

    def _locate_once(self, module: str) -> str | None:
        """Like `locate`, but each name is looked up in the folders once, and none in a package that is not there."""
        if module not in self._located:
            above = module.rpartition(".")[0]
            self._located[module] = None if above and self._locate_once(above) is None else self.locate(module)
        return self._located[module]

    def _is_inside(self, real: str) -> bool:
        """Whether a file is in the project, and not only a link in it."""
        return os.path.commonpath([real, self.top]) == self.top

    def _fits(self, path: str, name: str, most_bytes: int = 0) -> bool:
        """Whether a file can still be parsed. One that is too large is not even read."""
        if name in self._bytes:
            return True
        try:
            return sum(self._bytes.values()) + os.path.getsize(path) <= (most_bytes or self.most_bytes)
        except OSError:
            return True  # reading it has the reason

    def _content(self, path: str) -> bytes | str:
        """Return the content of a file, or the reason not to read it."""
        if path not in self._contents:
            try:
                self._contents[path] = read_bytes(Path(path))
            except OSError as error:
                self._contents[path] = error.strerror or "it cannot be read"
        return self._contents[path]
