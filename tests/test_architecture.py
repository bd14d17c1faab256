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

from mgpu import engine
from tests.conftest import ROOT

# What a check may import of mgpu: the leaves, the facts, the arithmetic, and what a check is made with.
OF_CHECKS = {"check", "command_line", "hostlist", "planning", "signature", "snapshot", "text"}

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
    # The other two run in processes of their own, with the interpreter of the training.
    "torch": {"mgpu/smoke", "mgpu/probes", "mgpu/config", "mgpu/wizard"},
}

# Ids of checks outside of checks/: policies that belong to the checks.
CHECK_IDS = {
    "mgpu/engine/root_cause.py": 72, "mgpu/engine/selections.py": 3, "mgpu/fleet/load.py": 1,
    "mgpu/fleet/stages.py": 3, "mgpu/fleet/worker.py": 1, "mgpu/launch/gate.py": 2, "mgpu/launch/gpu_findings.py": 3,
    "mgpu/launch/gpu_watch.py": 7, "mgpu/launch/preflight.py": 9, "mgpu/report/failure.py": 9,
    "mgpu/report/formats.py": 12, "mgpu/slurm/report.py": 6, "mgpu/smoke/run.py": 1,
}  # fmt: skip
# Words of other meaning that are ids too: names of loader workers, of tensors, of a port.
NOT_AN_ID = {"mgpu/probes/network.py", "mgpu/smoke/ranks"}
# Tuples of areas outside of the one place for selections.
AREAS = {
    "mgpu/doctor/report.py": 1, "mgpu/engine/__init__.py": 1, "mgpu/engine/root_cause.py": 1, "mgpu/fleet/load.py": 1,
    "mgpu/fleet/worker.py": 2, "mgpu/report/screen.py": 8, "mgpu/validate/run.py": 2,
}  # fmt: skip

MOST_LINES, MOST_OF_A_FUNCTION, MOST_SKIPS = 400, 40, 629
LONG_FILES = {
    "mgpu/probes/nvml.py": 727,
    "mgpu/readers/job_script/shell.py": 652,
    "mgpu/readers/job_script/walk.py": 629,
    "mgpu/wizard/answers.py": 583,
    "checks/run.py": 572,
    "mgpu/report/screen.py": 554,
    "mgpu/probes/libraries.py": 516,
    "checks/driver.py": 504,
    "mgpu/process/supervisor.py": 500,
    "checks/packages.py": 485,
    "mgpu/readers/log/read.py": 483,
    "checks/pcie.py": 474,
    "mgpu/wizard/write_config.py": 458,
    "checks/cuda.py": 457,
    "checks/xid.py": 440,
    "mgpu/secrets_masking.py": 434,
    "checks/kernel.py": 430,
    "mgpu/cli/json_schema.py": 429,
    "checks/job/meeting.py": 423,
    "mgpu/wizard/job.py": 422,
    "mgpu/probes/network.py": 418,
    "mgpu/readers/training_script/walk.py": 413,
    "checks/job/_reading.py": 412,
    "checks/environ/pytorch.py": 411,
    "checks/environ/nccl_tuning.py": 410,
    "mgpu/wizard/run.py": 408,
    "checks/limits.py": 404,
}
LONG_FUNCTIONS = {
    "mgpu/cli/configure.py:configure": 245,
    "mgpu/cli/launch.py:launch": 216,
    "mgpu/cli/doctor.py:doctor": 155,
    "mgpu/cli/smoke_test.py:smoke_test": 84,
    "mgpu/probes/nvml.py:_gpu": 72,
    "mgpu/wizard/run.py:_ask": 71,
    "mgpu/probes/nvml.py:probe": 68,
    "mgpu/prompts/prompts.py:_with_keys": 65,
    "mgpu/slurm/in_allocation.py:_started": 56,
    "checks/limits.py:locked_memory_limited": 56,
    "mgpu/smoke/runner.py:climb": 55,
    "checks/job/_reading.py:_sum": 55,
    "checks/pcie.py:iommu_translates_peer_traffic": 52,
    "mgpu/wizard/write_config.py:_told": 51,
    "mgpu/slurm/report.py:_document": 49,
    "mgpu/doctor/report.py:show": 49,
    "checks/job/starting.py:job_launcher_outside_srun": 49,
    "checks/environ/nccl_tuning.py:nccl_transport_disabled": 49,
    "checks/environ/nccl_tuning.py:nccl_gdr_level_too_low": 49,
    "checks/fleet/network.py:node_loses_full_packets": 48,
    "checks/fleet/names.py:head_unreachable": 48,
    "checks/config/machine.py:config_model_too_large": 48,
    "mgpu/readers/job_script/walk.py:_record": 47,
    "mgpu/fleet/preflight.py:_compared": 47,
    "mgpu/cli/json_schema.py:run": 47,
    "checks/limits.py:memory_small_for_ranks": 47,
    "mgpu/slurm/prepare.py:_of_script": 46,
    "mgpu/readers/job_script/read.py:read": 46,
    "mgpu/probes/nvml.py:_details": 46,
    "mgpu/fleet/compare.py:fleet_of": 46,
    "checks/pcie.py:pcie_acs_redirects": 46,
    "mgpu/probes/libraries.py:_holds": 45,
    "mgpu/fleet/stages.py:_try": 45,
    "checks/links/nvswitch.py:nvlink_fabric_degraded": 45,
    "checks/environ/pytorch.py:allocator_setting_ignored": 45,
    "mgpu/report/formats.py:junit": 44,
    "mgpu/readers/training_script/read.py:read": 44,
    "checks/work.py:gpu_idle_in_run": 44,
    "mgpu/readers/log/read.py:take": 43,
    "mgpu/doctor/run.py:run": 43,
    "checks/smoke/processes.py:ranks_hang": 43,
    "checks/processes.py:gpu_busy": 43,
    "checks/libraries/compilers.py:deepspeed_refuses_nvcc": 43,
    "checks/job/ending.py:job_signal_misses_the_trap": 43,
    "checks/infiniband/gpus.py:nic_pcie_narrow": 43,
    "checks/cuda.py:peer_copy_fails": 43,
    "mgpu/launch/run.py:_run": 42,
    "mgpu/cli/json_schema.py:_envelope": 42,
    "checks/network/named_interface.py:socket_interface_unusable": 42,
    "checks/links/nvlink.py:nvlink_slow": 42,
    "mgpu/planning/memory.py:need": 41,
    "mgpu/launch/run_outcome.py:run": 41,
    "mgpu/cli/json_schema.py:preflight": 41,
    "mgpu/cli/json_schema.py:_of_ranks": 41,
    "checks/smoke/hosts.py:meeting_point_unreachable": 41,
    "checks/links/nvlink.py:nvlink_inactive": 41,
    "checks/infiniband/ports.py:infiniband_port_down": 41,
    "checks/config/rendezvous.py:config_port_invalid": 41,
}


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
    assert dict(+found) == CHECK_IDS
    del groups["mgpu/engine/selections.py"]
    assert dict(+groups) == AREAS


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
