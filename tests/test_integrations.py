"""SARIF, the pre-commit hooks and the GitHub action, run on a repository made for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.conftest import ROOT, Run
from tests.demo_machines import FOLDER

BAD = "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_version: 2\n  fsdp_bogus: 1\n"
GOOD = "distributed_type: MULTI_GPU\nnum_processes: 8\nmixed_precision: bf16\n"
SCRIPT = """import torch
from accelerate import Accelerator

accelerator = Accelerator()
device = torch.device("cuda:0")
model = torch.nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.DataLoader(torch.zeros(64, 4), batch_size=8, shuffle=True)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
for batch in data:
    loss = model(batch).sum()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
"""


def _some(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": properties}


_TEXT = _some("text", text={"type": "string", "minLength": 1})
_LEVEL = {"enum": ["none", "note", "warning", "error"]}
_PHYSICAL = _some(
    "artifactLocation",
    artifactLocation=_some("uri", uri={"type": "string", "format": "uri-reference"}),
    region=_some(startLine={"type": "integer", "minimum": 1}, startColumn={"type": "integer", "minimum": 1}),
)  # fmt: skip
_RESULT = _some(
    "ruleId", "message",
    level=_LEVEL, message=_TEXT, ruleIndex={"type": "integer", "minimum": 0},
    locations={"type": "array", "items": _some(physicalLocation=_PHYSICAL)},
    suppressions={"type": "array", "items": _some("kind", kind={"enum": ["inSource", "external"]})},
)  # fmt: skip
_NOTE = _some("message", message=_TEXT, level=_LEVEL)
_CALL = _some(
    "executionSuccessful",
    executionSuccessful={"type": "boolean"}, toolExecutionNotifications={"type": "array", "items": _NOTE},
)  # fmt: skip
_RULE = _some(
    "id", shortDescription=_TEXT, fullDescription=_TEXT, help=_TEXT,
    defaultConfiguration=_some(level=_LEVEL),
)  # fmt: skip
_DRIVER = _some("name", rules={"type": "array", "items": _RULE, "uniqueItems": True})
_RUN = _some(
    "tool", tool=_some("driver", driver=_DRIVER), results={"type": "array", "items": _RESULT},
    invocations={"type": "array", "items": _CALL}, columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
)  # fmt: skip
# What https://json.schemastore.org/sarif-2.1.0.json requires of the parts that mgpu writes.
SARIF = _some("version", "runs", version={"const": "2.1.0"}, runs={"type": "array", "items": _RUN})


def sarif(text: str) -> dict[str, Any]:
    """The one run of a valid SARIF log."""
    log = json.loads(text)
    jsonschema.validate(log, SARIF)
    (run,) = log["runs"]
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    found: dict[str, Any] = run
    return found


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a bad config, a good one and a bad script, in `repo`."""
    root = tmp_path / "repo"
    root.mkdir()
    for name, text in {"accelerate.yaml": BAD, "conf/accelerate_8.yaml": GOOD, "train.py": SCRIPT}.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    git(root, "init", "-q", "-b", "main", ".")
    git(root, "add", "-A")
    return root


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def test_sarif_of_configs_scripts_and_machines(mgpu: Run, repository: Path) -> None:
    configs = ("accelerate.yaml", "conf/accelerate_8.yaml")
    done = mgpu("configure", "--validate", "--no-loader", "--format", "sarif", *configs, cwd=repository)
    run = sarif(done.stdout)
    result = next(one for one in run["results"] if one["ruleId"] == "config_section_key_unknown")
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "accelerate.yaml", "uriBaseId": "%SRCROOT%"}
    assert (result["level"], place["region"]) == ("warning", {"startLine": 5, "startColumn": 3})
    run = sarif(mgpu("doctor", "--script", "train.py", "--format", "sarif", cwd=repository).stdout)
    result = next(one for one in run["results"] if one["ruleId"] == "script_device_fixed")
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 5
    done = mgpu("doctor", "--demo", "h100-lost-gpu", "--format", "sarif")
    run = sarif(done.stdout)
    assert run["invocations"][0]["exitCode"] == done.returncode == 1
    assert {"gpu_lost", "xid_gpu_fell_off_bus"} <= {one["ruleId"] for one in run["results"]}


def test_sarif_says_what_could_not_be_examined_and_what_is_waived(mgpu: Run, tmp_path: Path) -> None:
    machine = json.loads((FOLDER / "h100-ecc.json").read_text())
    machine |= {"gpus": None, "gaps": {"gpus": {"kind": "timed_out", "reason": "NVML did not answer in 10 s"}}}
    (tmp_path / "m.json").write_text(json.dumps(machine))
    invocation = sarif(mgpu("doctor", "--from", "m.json", "--format", "sarif").stdout)["invocations"][0]
    assert invocation["executionSuccessful"] is False
    assert "NVML did not answer" in invocation["toolExecutionNotifications"][0]["message"]["text"]
    (tmp_path / "mgpu.toml").write_text('[[waive]]\ncheck = "gpu_ecc_uncorrected"\nreason = "ticket 7"\n')
    run = sarif(mgpu("doctor", "--from", str(FOLDER / "h100-ecc.json"), "--format", "sarif").stdout)
    result = next(one for one in run["results"] if one["ruleId"] == "gpu_ecc_uncorrected")
    assert result["suppressions"] == [{"kind": "external", "justification": "ticket 7"}]


def test_several_scripts_have_the_worst_exit_code(mgpu: Run, repository: Path) -> None:
    (repository / "fine.py").write_text(SCRIPT.replace('torch.device("cuda:0")', "accelerator.device"))
    done = mgpu("doctor", "--strict", "--script", "fine.py", "train.py", "fine.py", cwd=repository)
    assert done.returncode == 1
    assert done.stdout.count("on fine.py") == 2 and "script_device_fixed" in done.stdout
    assert mgpu("doctor", "--script", "fine.py", "train.py", "--json", cwd=repository).returncode == 2


def environment_of(repository: Path, **more: str) -> dict[str, str]:
    """The variables of a job in that repository, with this interpreter's `mgpu` first on PATH."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    home = repository.parent / "home"
    return {"PATH": path, "HOME": str(home), "GITHUB_WORKSPACE": str(repository), **more}


def test_the_pre_commit_hooks_run_on_a_repository(repository: Path, tmp_path: Path) -> None:
    command = shutil.which("pre-commit")
    if command is None:
        pytest.skip("pre-commit is not installed")
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    shutil.copy(ROOT / ".pre-commit-hooks.yaml", hooks)
    git(hooks, "init", "-q", ".")
    git(hooks, "add", "-A")
    git(hooks, "commit", "-qm", "hooks")
    revision = subprocess.run(["git", "rev-parse", "HEAD"], cwd=hooks, capture_output=True, text=True, check=True)
    options = {"mgpu-validate": ["--target", "8xH100-80GB"], "mgpu-script": ["--strict", "--script"]}
    ours = [{"id": name, "language": "system", "args": args} for name, args in options.items()]
    settings = {"repos": [{"repo": str(hooks), "rev": revision.stdout.strip(), "hooks": ours}]}
    (repository / "accelerate.yaml").write_text(BAD.replace("FSDP", "FSPD"))
    (repository / ".pre-commit-config.yaml").write_text(yaml.safe_dump(settings))
    git(repository, "add", "-A")
    env = environment_of(repository, PRE_COMMIT_HOME=str(tmp_path / "cache"))
    done = subprocess.run([command, "run", "--all-files"], cwd=repository, env=env, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "accelerate.yaml:1:1: FAIL" in done.stdout and "script_device_fixed" in done.stdout
    assert "conf/accelerate_8.yaml: 0 errors" in done.stdout


def test_the_hooks_name_their_files() -> None:
    hooks = {one["id"]: one for one in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))}
    assert set(hooks) == {"mgpu-validate", "mgpu-script"}
    for one in hooks.values():
        assert {"id", "name", "description", "entry", "language", "files"} == set(one) - {"args"}


def test_the_action_runs_on_a_repository(repository: Path) -> None:
    """Its shell steps, with the inputs as GitHub passes them. Names with spaces, quotes and $ are only names."""
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    assert action["runs"]["using"] == "composite"
    step = action["runs"]["steps"][1]
    odd = repository / "a $(touch pwned) 'b'.yaml"
    odd.write_text(GOOD)
    given = {
        "configs": f"accelerate.yaml\n\n{odd.name}\n", "scripts": "train.py\n", "target": "8xH100-80GB",
        "strict": "true", "sarif": "found.sarif", "install": "false",
    }  # fmt: skip
    assert set(given) == set(action["inputs"])
    env = {name: given[value.removeprefix("${{ inputs.").removesuffix(" }}")] for name, value in step["env"].items()}
    assert "${{" not in step["run"]
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=repository, env=environment_of(repository, **env), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "file=accelerate.yaml,line=5,col=3" in done.stdout and "file=train.py,line=5" in done.stdout
    assert odd.name in done.stdout and not (repository / "pwned").exists()
    assert sarif((repository / "found.sarif").read_text())["results"]
