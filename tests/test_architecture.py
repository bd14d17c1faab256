"""Do the layers hold, does every name have one place, and does what is too large only get smaller?

import-linter holds the layers and refuses circles (`[tool.importlinter]` in pyproject.toml); here are the rules that it
cannot express. The lists of exceptions are exact: who mends one takes it off its list.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

from mgpu import engine
from mgpu.check import Tag
from mgpu.engine import selections
from tests.conftest import AREAS as AREAS_IN_ORDER
from tests.conftest import ROOT

# What a check may import of mgpu: the leaves, the facts, the arithmetic, and what a check is made with.
OF_CHECKS = {
    "check", "command_line", "hostlist", "known_launchers", "notebook_cells", "one_node", "planning", "quantities",
    "several_ranks", "signature", "snapshot", "text",
}  # fmt: skip

# The same name in several folders: by convention, or still to be named for what it does.
CONVENTIONAL = {"__init__", "request", "run", "report", "result", "read", "walk"}
SAME_NAME = {
    "bandwidth", "errors", "follow", "formats", "job", "load", "machines", "memory", "preflight", "runner", "screen",
    "worker",
}  # fmt: skip
BANNED = {
    "aftermath", "asked", "base", "editing", "ending", "found", "helpers", "here", "manager", "of", "one", "said",
    "saving", "sheet", "tell", "telling", "told", "utils", "whole", "work", "writing", "written",
}  # fmt: skip

# Who may import a package that is slow to load, or that one module is to hide from the others.
OWNERS = {
    "questionary": {"mgpu/prompts"},
    "prompt_toolkit": {"mgpu/prompts"},
    "typer": {"mgpu/cli"},
    "rich": {"mgpu/report"},
    "pynvml": {"mgpu/probes"},
    "libcst": {"mgpu/port"},
    # The other two run in processes of their own, with the interpreter of the training.
    "torch": {"mgpu/smoke", "mgpu/probes", "mgpu/config", "mgpu/wizard"},
}

# Words of other meaning that are ids of checks too: names of loader workers, of tensors, of a port.
NOT_AN_ID = {"mgpu/probes/network.py", "mgpu/smoke/ranks"}
# Tuples of areas outside of the one place for selections: the rows of the screen.
AREAS = {"mgpu/report/findings.py": 8}

MOST_LINES, MOST_OF_A_FUNCTION, MOST_SKIPS = 400, 40, 0
LONG_FILES = {
    "mgpu/probes/nvml.py": 773,
    "mgpu/probes/libraries.py": 521,
    "mgpu/process/supervisor.py": 499,
    "mgpu/probes/network.py": 441,
}
LONG_FUNCTIONS: dict[str, int] = {}


@cache
def trees() -> dict[str, ast.Module]:
    """Every product file's syntax tree, by its path from the root."""
    paths = [path for folder in ("mgpu", "checks") for path in sorted((ROOT / folder).rglob("*.py"))]
    return {str(path.relative_to(ROOT)): ast.parse(path.read_bytes()) for path in paths}


def imports(tree: ast.Module) -> Iterator[str]:
    """The modules that a file imports by their whole names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            module = node.module or ""
            yield from (f"{module}.{alias.name}" for alias in node.names) if module == "mgpu" else (module,)


def strings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Every string that is not a docstring."""
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node


def test_the_layers_hold() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "2 kept, 0 broken" in done.stdout, done.stdout + done.stderr


def test_checks_know_facts_and_nothing_of_the_machine() -> None:
    for path, tree in trees().items():
        known = {name.split(".")[1] for name in imports(tree) if name.startswith("mgpu.")}
        if path.startswith("checks/"):
            assert known <= OF_CHECKS, (path, known - OF_CHECKS)


def test_a_package_has_one_owner() -> None:
    for path, tree in trees().items():
        for name in {name.partition(".")[0] for name in imports(tree)} & set(OWNERS):
            assert any(path.startswith(f"{owner}/") for owner in OWNERS[name]), f"{path} imports {name}"


def test_a_name_says_what_is_in_the_file() -> None:
    places = defaultdict(list)
    for path in trees():
        if path.startswith("mgpu/"):
            places[Path(path).stem].append(path)
    assert not BANNED & set(places)
    assert {name for name, paths in places.items() if len(paths) > 1} - CONVENTIONAL == SAME_NAME


def test_what_is_decided_about_a_check_stands_at_the_check() -> None:
    checks = engine.load()
    ids, areas = {check.id for check in checks}, {check.area for check in checks}
    found, groups = Counter[str](), Counter[str]()
    for path, tree in trees().items():
        if not path.startswith("mgpu/"):
            continue
        if not any(path.startswith(place) for place in NOT_AN_ID):
            found[path] += sum(node.value in ids for node in strings(tree))
        for node in ast.walk(tree):
            if isinstance(node, (ast.Tuple, ast.List, ast.Set)) and len(node.elts) > 1:
                groups[path] += all(isinstance(part, ast.Constant) and part.value in areas for part in node.elts)
    assert not +found
    del groups["mgpu/engine/selections.py"]
    assert dict(+groups) == AREAS


def test_checks_are_asked_through_the_judge() -> None:
    for path, tree in trees().items():
        if path.startswith("mgpu/") and not path.startswith("mgpu/engine/"):
            used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)
                    and isinstance(node.value, ast.Name) and node.value.id == "engine"}  # fmt: skip
            assert not used & {"ask", "run"}, path


def test_every_family_is_in_the_order() -> None:
    families = {path.stem for path in (ROOT / "checks").glob("[!_]*") if path.suffix == ".py" or path.is_dir()}
    assert families == {*AREAS_IN_ORDER} and len(AREAS_IN_ORDER) == len(families)


def test_what_is_declared_at_a_check_names_checks() -> None:
    checks = {check.id: check for check in engine.load()}
    for check in checks.values():
        assert {*check.same_as} <= set(checks), check.id
        assert {*check.tags} <= {*get_args(Tag)}, check.id
    for selection in (one for one in vars(selections).values() if isinstance(one, selections.Selection)):
        assert {*(selection.only or ()), *selection.without} <= {*AREAS_IN_ORDER}
        assert engine.checks_of(selection)


def test_files_and_functions_have_a_readable_size() -> None:
    files, functions, skips = {}, {}, 0
    for path, tree in trees().items():
        text = (ROOT / path).read_text()
        skips += text.count("# fmt: skip")
        if (lines := text.count("\n")) > MOST_LINES:
            files[path] = lines
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                assert node.end_lineno is not None
                if (length := node.end_lineno - node.lineno + 1) > MOST_OF_A_FUNCTION:
                    functions[f"{path}:{node.name}"] = length
    assert not (longer := {p: n for p, n in files.items() if n > LONG_FILES.get(p, MOST_LINES)}), longer
    assert set(files) == set(LONG_FILES), "shorter now: take it off the list"
    assert not (longer := {p: n for p, n in functions.items() if n > LONG_FUNCTIONS.get(p, 0)}), longer
    assert set(functions) == set(LONG_FUNCTIONS), "shorter now: take it off the list"
    assert skips <= MOST_SKIPS


def test_what_runs_in_a_rank_imports_nothing_of_mgpu() -> None:
    """The Python of the training need not have it: mgpu may be installed elsewhere, or on another machine."""
    for path, tree in trees().items():
        if path.startswith("mgpu/smoke/ranks/"):
            found = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level]
            assert not [name for name in found if str(name).partition(".")[0] == "mgpu"], path
