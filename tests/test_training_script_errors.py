"""Which statements of a script certainly raise an error when Python starts it?"""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.readers.training_script import read as training_script_read

KIT = "import torch\nfrom os import path as place\ndef work(step):\n    global made\n    made = step\nclass Net: pass\n"


def faults(folder: Path, text: str, kit: str = KIT, name: str = "train.py") -> list[tuple[int, str, str, str]]:
    (folder / "kit.py").write_text(kit)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    found = training_script_read.read(folder / name)
    return [(one.line, one.kind, one.name, one.of) for one in found.faults]


@pytest.mark.parametrize("names", ["work, Net", "made", "place", "torch", "work as other", "*", "__name__"])
def test_a_name_that_a_module_defines_in_any_way(tmp_path: Path, names: str) -> None:
    assert faults(tmp_path, f"from kit import {names}\n") == []


def test_a_name_that_a_module_does_not_define(tmp_path: Path) -> None:
    assert faults(tmp_path, "import kit\nfrom kit import work, Trainer\n") == [(2, "import", "Trainer", "kit")]


@pytest.mark.parametrize(
    ("text", "kit"),
    [
        ("from kit import Trainer\n", KIT + "globals()['Trainer'] = Net\n"),
        ("from kit import Trainer\n", KIT + "from parts import *\n"),
        ("from kit import Trainer\n", KIT + "def __getattr__(name):\n    return Net\n"),
        ("from kit import Trainer\n", KIT + "def f(:\n"),
        ("from kit import Trainer\n", KIT + "import sys\nsys.modules[__name__].Trainer = Net\n"),
        ("import sys\nsys.path.insert(0, '../own')\nfrom kit import Trainer\n", KIT),
        ("try:\n    from kit import Trainer\nexcept ImportError:\n    Trainer = None\n", KIT),
        ("def main():\n    from kit import Trainer\n", KIT),
        ("from other import Trainer\n", KIT),
    ],
)
def test_a_name_that_a_module_may_get_in_another_way(tmp_path: Path, text: str, kit: str) -> None:
    assert faults(tmp_path, text, kit) == []


def test_a_module_that_another_folder_also_has(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    folder = tmp_path / "tools"
    folder.mkdir()
    assert faults(folder, "from kit import Trainer\n") == [(1, "import", "Trainer", "kit")]
    (tmp_path / "kit.py").touch()
    assert faults(folder, "from kit import Trainer\n") == []


def test_the_folder_of_the_script_can_be_the_source_folder(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "src").mkdir()
    assert faults(tmp_path / "src", "from kit import Trainer\n") == [(1, "import", "Trainer", "kit")]


MAIN = 'def main(args, resume=False, *, seed):\n    pass\n{}if __name__ == "__main__":\n    {}\n'


@pytest.mark.parametrize(
    ("between", "call", "missing"),
    [
        ("", "main()", "args, seed"),
        ("", "main(seed=1)", "args"),
        ("", "result = main({})", "seed"),
        ("", "main({}, seed=1)", ""),
        ("", "main(*given, seed=1)", ""),
        ("", "main(**given)", ""),
        ("from fire import main\n", "main()", ""),
        ("def main(): pass\n", "main()", ""),
        ("main = wrap(main)\n", "main()", ""),
        ("", "if ready:\n        main()", ""),
        ("", "run(main)", ""),
    ],
)
def test_a_call_without_a_required_argument(tmp_path: Path, between: str, call: str, missing: str) -> None:
    found = faults(tmp_path, MAIN.format(between, call))
    found = [one for one in found if one[1] != "undefined"]  # the calls use names that the script does not have
    assert [(kind, name, of) for _, kind, name, of in found] == ([("argument", missing, "main")] if missing else [])


def test_a_decorator_may_give_the_argument(tmp_path: Path) -> None:
    assert faults(tmp_path, "import hydra\n@hydra.main()\ndef main(config):\n    pass\nmain()\n") == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import torch\nfrom . import kit\nfrom .kit import work\n", [(2, "relative", ".", "tools.train")]),
        ("from ..parts.kit import work\n", [(1, "relative", "..parts.kit", "tools.train")]),
        ("try:\n    from . import kit\nexcept ImportError:\n    import kit\n", []),
        ("if __package__:\n    pass\nfrom . import kit\n", []),
        ("def f():\n    from . import kit\n", []),
    ],
)
def test_a_relative_import_of_a_script(tmp_path: Path, text: str, found: list[tuple[int, str, str, str]]) -> None:
    assert faults(tmp_path, text, name="tools/train.py") == found
