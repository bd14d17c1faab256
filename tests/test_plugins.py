"""Checks of installed packages and of the site: an installed package in a folder on PYTHONPATH, files of root."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mgpu.doctor import notebook
from mgpu.engine import plugins
from tests.conftest import ROOT, Run
from tests.demo_machines import FOLDER

HEALTHY = str(FOLDER / "h100-healthy.json")


def example() -> str:
    """The check in the documentation."""
    page = (ROOT / "docs" / "integrations.md").read_text("utf-8")
    return page.partition('```python title="site_disks.py"\n')[2].partition("```")[0]


def install(folder: Path, source: str, module: str = "site_disks") -> None:
    """Build and install a package with one entry point into a folder, as pip does."""
    project = folder.parent / f"{module}-source"
    project.mkdir()
    (project / f"{module}.py").write_text(source)
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        f'[project]\nname = "{module}"\nversion = "1"\n[project.entry-points."mgpu.checks"]\ndisks = "{module}"\n'
        f'[tool.setuptools]\npy-modules = ["{module}"]\n'
    )
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*command, "--target", str(folder), "."], cwd=project, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"pip cannot build a package here: {done.stderr[-200:]}")


def test_an_installed_package_adds_a_check_and_a_broken_one_is_a_finding(mgpu: Run, tmp_path: Path) -> None:
    folder = tmp_path / "packages"
    install(folder, example())
    env = {"PYTHONPATH": str(folder)}
    found = json.loads(mgpu("doctor", "--from", HEALTHY, "--json", env=env, fresh=True).stdout)
    entries = {one["id"]: one for one in found["checks"]}
    assert entries["scratch_too_small"]["status"] == "warn"
    assert entries["plugin_broken"]["title"] == "1 plug-in loaded"
    (folder / "site_disks.py").write_text("print('loading')\nraise SystemExit('no license')\n")
    done = mgpu("doctor", "--from", HEALTHY, "--json", env=env, fresh=True)
    entries = {one["id"]: one for one in json.loads(done.stdout)["checks"]}
    assert "disks (site_disks) cannot be loaded: SystemExit: no license" in entries["plugin_broken"]["title"]


def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **sources: str) -> Path:
    folder = tmp_path / "mgpu" / "checks"
    folder.mkdir(parents=True)
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source)
    for path in (folder.parent, folder, *folder.iterdir()):
        path.chmod(0o755)
    monkeypatch.setattr(plugins, "SITE", folder)
    monkeypatch.setattr(plugins, "_ROOT", os.getuid())
    return folder


def load() -> Any:
    plugins.load.cache_clear()
    try:
        return plugins.load()
    finally:
        plugins.load.cache_clear()


def test_files_of_the_site_that_others_can_change_are_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = site(tmp_path, monkeypatch, disks=example())
    loaded = load()
    assert [(one.id, one.area) for one in loaded.checks] == [("scratch_too_small", "disks")]
    (folder / "disks.py").chmod(0o775)
    (folder / "link.py").symlink_to(folder / "disks.py")
    found = {Path(one.name).name: one for one in load().broken}
    assert found["disks.py"].unsafe and found["disks.py"].error == "other users can write to it"
    assert found["link.py"].unsafe
    (folder / "disks.py").chmod(0o755)
    (folder / "link.py").unlink()
    folder.chmod(0o777)
    assert [one.error for one in load().broken] == [f"other users can write to {folder}"]
    folder.chmod(0o755)
    monkeypatch.setattr(plugins, "_ROOT", os.getuid() + 1)
    assert [one.error for one in load().broken] == [f"{folder.parent} does not belong to root"]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("def scratch_too_small", "def gpu_lost"), "its check gpu_lost has the id of another check"),
        (("storage: Storage", "disk: Storage"), "its check scratch_too_small reads 'disk', which is not a fact"),
        (("    Why:", "    Because:"), "the docstring of its check scratch_too_small has no Why or no Fix"),
        (("@check", "@chek"), "NameError: name 'chek' is not defined"),
        (("def scratch", "def scratch("), "SyntaxError: invalid syntax"),
        (("@check", "1/0\n@check"), "ZeroDivisionError: division by zero"),
    ],
)
def test_a_broken_plug_in_is_named(
    change: tuple[str, str], error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = example().replace("storage.", f"{change[1].partition(':')[0]}.") if "disk:" in change[1] else example()
    site(tmp_path, monkeypatch, disks=source.replace(*change))
    loaded = load()
    assert not loaded.checks and [one.unsafe for one in loaded.broken] == [False]
    assert loaded.broken[0].error.startswith(error)


def test_without_a_plug_in_importlib_metadata_is_not_imported() -> None:
    code = (
        "import sys; before = 'importlib.metadata' in sys.modules\n"
        "from mgpu.engine import plugins; plugins.load()\n"
        "assert before or 'importlib.metadata' not in sys.modules, 'it takes longer than a quick doctor'"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_notebook_gets_a_document_with_a_plain_and_a_rich_form(capsys: pytest.CaptureFixture[str]) -> None:
    report = notebook.doctor(quick=True)
    assert report.document["verdict"] == report.verdict and str(report) == report.text
    assert report._repr_html_().startswith("<pre>") and capsys.readouterr().out == ""
