"""Do bash, zsh and fish offer the options of mgpu and their values? The shells are real."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from mgpu.cli import completion, option_parser
from mgpu.exit_status import COMMANDS
from mgpu.smoke.ranks.rank_plan import Level
from tests.conftest import Run, environment, need

_CONFIG = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: 2\n"


def offered(*words: str, shell: str = "zsh") -> list[str]:
    return [value for value, _ in completion.offers(words, shell)]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two configs and other files."""
    (tmp_path / "accelerate.yaml").write_text(_CONFIG)
    (tmp_path / "big.yaml").write_text(_CONFIG)
    (tmp_path / "values.yaml").write_text("replicas: 3\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_commands_options_and_values_are_offered(project: Path) -> None:
    assert offered("")[:4] == list(COMMANDS)
    assert offered("smoke-test", "--lev") == ["--level"]
    assert offered("smoke-test", "--level", "") == list(get_args(Level))
    assert offered("smoke-test", "--level=l") == ["--level=long"]
    assert offered("configure", "--strategy", "z") == ["zero1", "zero2", "zero3"]
    assert offered("configure", "--target", "2x8xH") == [
        "2x8xH20", "2x8xH100", "2x8xH100-NVL", "2x8xH800", "2x8xH200",
    ]  # fmt: skip
    assert offered("configure", "--set", "batch.lr_rule=s") == ["batch.lr_rule=sqrt"]
    assert offered("doctor", "--only", "links,shm_too") == ["links,shm_too_small"]
    assert offered("launch", "--config", "") == ["accelerate.yaml", "big.yaml"]
    assert offered("launch", "--log-dir", "") == [":folders"]
    assert offered("doctor", "--script", "") == [":files"]
    assert offered("--show-completion", "") == ["bash", "zsh", "fish"]
    assert offered("doctor", "--expect-gpus", "") == []
    assert offered("doctor", "--demo", "h100-l") == ["h100-lost-gpu"] and "list" in offered("doctor", "--demo", "")
    assert offered("configure", "--demo", "no") == ["no-gpu"]


def test_after_the_script_everything_is_the_scripts(project: Path) -> None:
    assert offered("launch", "train.py", "--le") == offered("launch", "--", "torchrun", "") == [":files"]
    assert offered("launch", "--gpus", "2", "--watc") == ["--watch"]


def test_runs_are_offered_where_one_is_named(mgpu: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mgpu.launch import registry

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    entry = registry.Entry("20261123-1200-ab", "m", "h", "b", 1, 2, 3, "/r", "/p", ("t.py",), (), "", "2026-11-23")
    registry.folder().mkdir(parents=True, mode=0o700)
    registry.path_of(entry).write_text(json.dumps(dataclasses.asdict(entry)))
    registry.path_of(entry).chmod(0o600)
    assert offered("launch", "--attach", "2026") == offered("launch", "--stop", "") == [entry.id]
    assert offered("launch", "--attach", "no") == [":files"]


def test_each_offered_value_is_accepted(mgpu: Run) -> None:
    """`among(...)` repeats the values of a request, so that no command is imported for it."""
    from mgpu.doctor import request as doctor
    from mgpu.launch import request as launch
    from mgpu.smoke import request as smoke

    allowed: dict[tuple[str, str], Any] = {
        ("doctor", "--format"): doctor.FORMATS, ("doctor", "--with"): doctor.PORTS,
        ("doctor", "--exit-style"): doctor.STYLES, ("smoke-test", "--level"): get_args(Level),
        ("smoke-test", "--format"): smoke.FORMATS, ("launch", "--launcher"): launch.LAUNCHERS,
        ("launch", "--unverified"): launch.POLICIES, ("launch", "--smoke"): launch.SMOKE,
        ("launch", "--on-hang"): launch.ON_HANG,
    }  # fmt: skip
    for (name, flag), values in allowed.items():
        assert offered(name, flag, "") == list(values), (name, flag)


def test_each_option_says_what_it_means() -> None:
    for name in COMMANDS:
        found = dict(completion.offers((name, "--"), "fish"))
        for option in option_parser.command_named(name).every_option:
            assert all(found[flag] == option.help for flag in option.on if flag.startswith("--"))
            assert all(found[flag] == f"Turn off: {option.help}" for flag in option.off)


@pytest.fixture
def shell_home(project: Path) -> Iterator[dict[str, str]]:
    """The environment of a shell whose PATH has mgpu, with the completions installed as a user does it."""
    programs = project / "bin"
    programs.mkdir()
    (programs / "mgpu").write_text(f'#!/bin/sh\nexec {sys.executable} -m mgpu "$@"\n')
    (programs / "mgpu").chmod(0o755)
    home = project / "home"
    home.mkdir()
    env = environment(home, {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "TERM": "dumb"})
    (home / ".bashrc").write_text("PS1='ready> '\nbind 'set enable-bracketed-paste off'")
    (home / ".zshrc").write_text("PS1='ready> '\nautoload -Uz compinit; compinit -u\n")
    for shell in completion.SHELLS:
        subprocess.run(["mgpu", "--install-completion", shell], env=env, check=True, capture_output=True)
    again = subprocess.run(["mgpu", "--install-completion", "zsh"], env=env, check=True, capture_output=True, text=True)
    assert "already" in again.stdout and (home / ".zshrc").read_text().count("mgpu") == 1
    yield env


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_shell_completes_with_tab(shell: str, shell_home: dict[str, str], project: Path) -> None:
    pexpect = pytest.importorskip("pexpect")
    child = pexpect.spawn(need(shell), ["-i"], env=shell_home, cwd=str(project), encoding="utf-8", timeout=30)
    child.setwinsize(40, 200)
    child.expect("ready> ")
    child.send("mgpu smoke-test --lev\t")
    child.expect("--level ")
    child.send("\t\t" if shell == "bash" else "\t")
    for word in sorted(get_args(Level)) if shell == "bash" else get_args(Level):  # bash sorts them
        child.expect(word)
        assert "--" not in child.before.replace("--level", ""), "a value without a meaning stands alone"
    child.send("sta\t")
    child.expect("standard ")
    child.sendcontrol("u")
    child.send("mgpu configure --strategy=zero\t\t")
    child.expect("zero1")
    child.expect("zero3")
    child.sendcontrol("u")
    child.send("mgpu launch -c big\t")
    child.expect(r"big\.yaml")
    child.close(force=True)


def test_fish_completes(shell_home: dict[str, str], project: Path) -> None:
    fish = need("fish")

    def complete(line: str) -> list[str]:
        done = subprocess.run(
            [fish, "-c", f"complete -C '{line}'"],
            env=shell_home,
            cwd=project,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return [found.partition("\t")[0] for found in done.stdout.splitlines()]

    assert complete("mgpu smoke-test --level ") == list(get_args(Level))
    assert complete("mgpu configure --strategy=zero") == [f"--strategy=zero{number}" for number in (1, 2, 3)]
    assert complete("mgpu launch -c ") == ["accelerate.yaml", "big.yaml"]
    assert "values.yaml" in complete("mgpu doctor --script v")


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_the_script_of_each_shell_is_valid_there(shell: str, mgpu: Run) -> None:
    """`--show-completion zsh` prints zsh's, whatever shell calls it."""
    shown = mgpu("--show-completion", shell, fresh=True)
    assert shown.stdout.startswith("#") and shell in "".join(shown.stdout.splitlines()[:2])
    subprocess.run([need(shell), "-n"], input=shown.stdout, text=True, check=True, timeout=60)
    assert mgpu("--show-completion", "ksh", fresh=True).returncode == 2
