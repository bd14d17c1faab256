"""Does a newcomer come from the README's first line to a launched script, typing what it says?

A bare environment, a new home, no cache: the README's commands are typed into a shell in a terminal. It downloads
torch, so only MGPU_DOOR=1 runs it.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.documentation import DOCS, files
from tests.terminal import ENTER, Terminal

README = (ROOT / "README.md").read_text("utf-8")
_WHOLE_S = 300.0
pytestmark = pytest.mark.skipif(not os.environ.get("MGPU_DOOR"), reason="MGPU_DOOR=1 runs it: it downloads torch")


class Shell:
    """A shell in a terminal, with nothing of this one's environment."""

    def __init__(self, home: Path, folder: Path) -> None:
        env = {"HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "PS1": "$ "}
        python = os.environ.get("MGPU_DOOR_PATH", "")
        env["PATH"] = f"{python}:{env['PATH']}" if python else env["PATH"]
        self.terminal = Terminal(["/bin/bash", "--norc", "--noprofile"], env=env, cwd=folder, lines=400)
        self.terminal.see("$")
        self._typed = 0

    def types(self, line: str, answers: dict[str, str] | None = None, *, enters: bool = False) -> str:
        """Type a line and the answers to its questions; what was printed. It must end with 0, or 4 (no GPU here).

        `enters`: accept what every further question proposes.
        """
        self._typed += 1
        mark = f"ended-{self._typed}-"
        began = time.monotonic()
        self.terminal.press("clear", ENTER)
        self.terminal.press(f"{line}; echo {mark}$?", ENTER)
        for question, answer in (answers or {}).items():
            self.terminal.see(question, 120)
            self.terminal.press(answer)
        end = re.compile(rf"^{mark}(\d+)$", re.MULTILINE)
        while not (found := end.search(self.terminal.text)):
            assert time.monotonic() - began < _WHOLE_S, self.terminal.text
            before = self.terminal.text
            self.terminal._read(1.0)
            if enters and self.terminal.text == before:
                self.terminal.press(ENTER)
        assert int(found[1]) in (0, 4), self.terminal.text
        print(f"{time.monotonic() - began:6.1f} s  {line}")
        return self.terminal.text


def test_from_the_first_line_to_a_launched_script(tmp_path: Path) -> None:
    clone, home, project = tmp_path / "mgpu", tmp_path / "home", tmp_path / "project"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    home.mkdir()
    project.mkdir()
    (project / "train.py").write_text(files(DOCS / "tutorial.md")["train.py"], "utf-8")
    (install,) = re.findall(r"^    (python3 -m venv .*mgpu doctor)$", README, re.MULTILINE)
    assert "`. .venv/bin/activate`" in README and "`mgpu doctor --script train.py --fix`" in README
    steps = [line.split("  ")[0] for line in re.findall(r"^    (mgpu .*  .*)$", README, re.MULTILINE)]
    assert [step.split()[1] for step in steps] == ["doctor", "configure", "smoke-test", "launch"]
    began = time.monotonic()
    shell = Shell(home, clone)
    assert "no GPU" in shell.types(install)
    shell.types(". .venv/bin/activate")
    shell.types("pip install scikit-learn")  # of the tutorial's script
    shell.types(f"cd {project}")
    doctor, configure, smoke, launch = steps
    shell.types(doctor)
    assert "Ported train.py" in shell.types("mgpu doctor --script train.py --fix", {"[y/N]": f"y{ENTER}"})
    shell.types(configure, {"What next?": ENTER}, enters=True)
    assert "Verified: this config works on this machine" in shell.types(smoke)
    assert "finished, exit 0" in shell.types(launch.removesuffix(" ARGS"))
    took = time.monotonic() - began
    print(f"{took:6.1f} s  in all")
    assert took < _WHOLE_S
