"""Are the pictures of the README and docs/ what mgpu shows? Each is made from a real run in a terminal."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mgpu.snapshot import to_json
from tests import machines
from tests.conftest import environment
from tests.documentation import PAGES
from tests.pictures import same_picture
from tests.scripts.records_smoke import RECORDED
from tests.terminal import CONTROL_C, ENTER, SCREENS, Terminal
from tests.test_wizard import QUICK, REVIEW, at, go, read_until, settled

README = Path(__file__).parents[1] / "README.md"
Run = Callable[..., Terminal]

SHARED = """\
# our cluster's config
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: fp32       # for now
fsdp_config:
  fsdp_version: 2
  fsdp_backward_prefetch_policy: BACKWARD_PRE
  fsdp_auto_wrap_policy: TRANSFORMER
num_processes: 7
num_machines: 2
main_process_ip: $MASTER_ADDR
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """`mgpu ARGUMENTS` in a terminal of its own, in an empty folder."""
    running: list[Terminal] = []
    folder = tmp_path / "project"
    folder.mkdir()

    def begin(*arguments: str, **files: str) -> Terminal:
        for name, text in files.items():
            (folder / name.replace("_", ".")).write_text(text, "utf-8")
        env = environment(tmp_path / "home", {"LC_ALL": "C.UTF-8", "TERM": "xterm-256color"})
        running.append(Terminal([sys.executable, "-m", "mgpu", *arguments], env=env, cwd=folder, lines=120))
        return running[-1]

    yield begin
    for terminal in running:
        terminal.child.close(force=True)


def test_the_doctor(run: Run) -> None:
    """On a described machine, judged from a file: four A100 in a container."""
    saved = json.dumps(to_json(machines.machine("docker_a100_x4")))
    terminal = run("doctor", "--from", "node7.json", node7_json=saved)
    assert terminal.end() == 0
    same_picture(terminal.screen, "doctor", "mgpu doctor --from node7.json")


def test_a_sick_machine(run: Run) -> None:
    """A described machine with a planted fault, shipped with mgpu."""
    terminal = run("doctor", "--demo", "h100-lost-gpu")
    assert terminal.end() == 1
    same_picture(terminal.screen, "doctor_demo", "mgpu doctor --demo h100-lost-gpu")


def test_the_wizard(run: Run) -> None:
    """For a described machine, read from a file: four A100 in a container."""
    saved = json.dumps(to_json(machines.machine("docker_a100_x4")))
    terminal = run("configure", "--from", "node7.json", node7_json=saved)
    at(terminal, "What next?")
    same_picture(terminal.screen, "configure_proposal", "mgpu configure --from node7.json")
    terminal.press(ENTER)
    go(terminal, QUICK[:2])
    at(terminal, QUICK[2][0])
    same_picture(terminal.screen, "configure_strategy", "mgpu configure", "? ")
    go(terminal, QUICK[2:4])
    at(terminal, QUICK[4][0])
    terminal.press("52,002")
    read_until(terminal, "52,002")
    settled(terminal)
    same_picture(terminal.screen, "configure_batch", "mgpu configure", "? ")
    terminal.press(ENTER)
    go(terminal, QUICK[5:])
    at(terminal, REVIEW)
    same_picture(terminal.screen, "configure_review", "mgpu configure", "? ")
    terminal.press(CONTROL_C)


def test_the_validator(run: Run) -> None:
    terminal = run("configure", "--validate", "shared.yaml", "--target", "2x4xA100-80GB", shared_yaml=SHARED)
    assert terminal.end() == 1
    same_picture(terminal.screen, "validate", "mgpu configure --validate shared.yaml")


@pytest.mark.parametrize(("name", "code"), [("passed", 0), ("stopped", 1)])
def test_the_smoke_test(run: Run, tmp_path: Path, name: str, code: int) -> None:
    """Two CPU ranks, recorded from real runs (tests/scripts/records_smoke.py) and told again."""
    logs = ".mgpu/runs/smoke-20261121-100412"
    shutil.copytree(RECORDED / name, tmp_path / "project" / logs)
    terminal = run("smoke-test", "--show", "--log-dir", logs)
    assert terminal.end() == code
    same_picture(terminal.screen, f"smoke_{name}", "mgpu smoke-test", "  ✓ ok    1")


def test_every_picture_of_the_pages_is_there_and_every_picture_is_shown() -> None:
    pages = "".join(page.read_text("utf-8") for page in (README, *PAGES))
    shown = set(re.findall(r"tests/screens/(\w+)\.svg", pages))
    assert shown == {path.stem for path in SCREENS.glob("*.svg")}
