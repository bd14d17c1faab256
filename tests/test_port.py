"""Is a single-GPU script turned into one that trains the same on any number of ranks?"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mgpu.port import offer
from mgpu.port.port_script import port
from mgpu.readers.training_script import read
from tests.conftest import PYTHONPATH, ROOT

SCRIPTS = sorted((ROOT / "tests/port_scripts").glob("*.py"))
NUMBER = re.compile(r"-?\d+\.\d+")


# Scripts of several files: the folder, the script in it, and its name if it is run with `python -m`.
FOLDERS = (("project", "train.py", ""), ("package", "pixels/train.py", "pixels.train"))


def ported(text: str, *, ddp: bool = False) -> str:
    result = port(text, "nothing", ddp=ddp)
    assert not result.refused
    return result.text


# ---- really run: on CPU, as the original, and on one and two ranks


def _runs(folder: Path, *, ddp: bool) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for script in SCRIPTS:
        text = script.read_text()
        result = port(text, read.read(script).speaks, ddp=ddp)
        assert not result.refused and not result.decisions, (script.name, result.refused, result.decisions)
        for kind, ranks in (("original", 0), ("one", 0), ("two", 2), ("four", 4)):
            if ddp and ranks and (script.stem == "iterable" or ranks == 4):
                continue
            code = text if kind == "original" else result.text
            work = folder / script.stem / kind
            work.mkdir(parents=True)
            (work / script.name).write_text(code)
            trace = str(folder / f"{script.stem}.{kind}")
            found.append({"script": str(work / script.name), "ranks": ranks, "folder": str(work), "trace": trace})
    for name, start_file, module in FOLDERS:
        for kind, ranks in (("original", 0), ("one", 0), ("two", 2), ("four", 4)):
            if ddp and ranks == 4:
                continue
            work = folder / name / kind
            shutil.copytree(ROOT / "tests/port_scripts" / name, work)
            if kind != "original":
                said: list[str] = []
                library = "ddp" if ddp else "accelerate"
                assert offer.offer(work / start_file, library, said.append, yes=True, dry_run=False, can_ask=False)
                assert "decide" not in "\n".join(said)
            start = {"script": str(work / start_file), "folder": str(work), "module": module}
            found.append({**start, "ranks": ranks, "trace": str(folder / f"{name}.{kind}")})
    return found


def _trajectory(trace: str) -> list[tuple[float, ...]]:
    lines = Path(f"{trace}.0").read_text().splitlines()
    return [tuple(float(word) for word in line.split()) for line in lines]


def _printed(trace: str) -> list[float]:
    text = Path(f"{trace}.0.out").read_text()
    lines = [line for line in text.splitlines() if "Warning" not in line and "it/s" not in line and "[W" not in line]
    return [float(number) for number in NUMBER.findall("\n".join(lines))]


@pytest.mark.parametrize("ddp", [False, True])
def test_a_ported_script_trains_as_the_original(tmp_path: Path, ddp: bool) -> None:
    runs = _runs(tmp_path, ddp=ddp)
    (tmp_path / "runs.json").write_text(json.dumps(runs))
    command = [sys.executable, str(ROOT / "tests/port_runs.py"), str(tmp_path / "runs.json")]
    subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": PYTHONPATH}, timeout=400)
    for run in runs:
        trace = str(run["trace"])
        name, kind = Path(trace).name.split(".")
        output = Path(f"{trace}.0.out").read_text()
        assert not any(json.loads(Path(f"{trace}.codes").read_text())), (trace, output[-2000:])
        before, after = _trajectory(str(tmp_path / f"{name}.original")), _trajectory(trace)
        assert len(before) > 3
        if kind == "one":
            assert after == before, name  # bit for bit
            assert _printed(trace) == _printed(str(tmp_path / f"{name}.original")), name
        elif kind in ("two", "four"):
            assert len(after) == len(before), name
            for old, new in zip(before, after, strict=True):
                assert new == pytest.approx(old, rel=1e-4, abs=1e-4), name
            old_numbers = _printed(str(tmp_path / f"{name}.original"))
            assert _printed(trace) == pytest.approx(old_numbers, rel=2e-3, abs=2e-4), name


def test_by_the_launcher_of_accelerate(tmp_path: Path) -> None:
    script = tmp_path / "classifier.py"
    text = (ROOT / "tests/port_scripts/classifier.py").read_text()
    outputs: list[list[tuple[float, ...]]] = []
    for code, launch in ((text, []), (ported(text), ["-m", "accelerate.commands.launch", "--config_file", "two.yaml"])):
        script.write_text(code)
        (tmp_path / "two.yaml").write_text(
            "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_CPU\nuse_cpu: true\n"
            "num_processes: 2\nnum_machines: 1\nmachine_rank: 0\nmixed_precision: 'no'\n"
        )
        trace = str(tmp_path / f"trace{len(outputs)}")
        command = [sys.executable, *launch, str(ROOT / "tests/port_runs.py"), "--one", trace, str(script)]
        env = {**os.environ, "PYTHONPATH": PYTHONPATH}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr[-2000:]
        outputs.append(_trajectory(trace))
    assert len(outputs[0]) == len(outputs[1]) > 3
    for old, new in zip(*outputs, strict=True):
        assert new == pytest.approx(old, rel=1e-4)
