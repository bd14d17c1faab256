"""Which statements of a script certainly raise an error when Python starts it?"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from mgpu.readers.training_script import local_modules
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
        ("from kit import Trainer\n", KIT + "import sys\nsys.modules[__name__].Trainer = Net\n"),
        ("import sys\nsys.path.insert(0, '../own')\nfrom kit import Trainer\n", KIT),
        ("import sys\nsys.path[:0] = ['../own']\nfrom kit import Trainer\n", KIT),
        ("try:\n    from kit import Trainer\nexcept ImportError:\n    Trainer = None\n", KIT),
        ("def main():\n    from kit import Trainer\n", KIT),
        ("from other import Trainer\n", KIT),
    ],
)
def test_a_name_that_a_module_may_get_in_another_way(tmp_path: Path, text: str, kit: str) -> None:
    assert faults(tmp_path, text, kit) == []


def test_a_folder_that_is_searched_last_changes_nothing(tmp_path: Path) -> None:
    text = "import sys\nsys.path.append('../own')\nfrom kit import Trainer\n"
    assert faults(tmp_path, text) == [(3, "import", "Trainer", "kit")]


BROKEN = (7, "syntax", "invalid syntax", "kit")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from kit import Trainer\n", [BROKEN]),
        ("import torch, kit\n", [BROKEN]),
        ("try:\n    import kit\nexcept SyntaxError:\n    pass\n", []),
        ("def main():\n    import kit\n", []),
    ],
)
def test_a_module_that_is_not_valid_python(tmp_path: Path, text: str, found: list[tuple[int, str, str, str]]) -> None:
    """Nothing in it is relevant for the ranks, so it is parsed only for this."""
    assert faults(tmp_path, text, KIT + "def f(:\n") == found
    assert training_script_read.read(tmp_path / "train.py").skipped.keys() == {"kit.py"} & {
        one[3] + ".py" for one in found
    }


@pytest.mark.parametrize(
    ("files", "text", "found"),
    [
        ({"parts/kit.py": "f(:\n"}, "from parts.kit import f\n", ["parts.kit"]),
        ({"parts/kit.py": "f(:\n"}, "from parts import kit\n", ["parts.kit"]),
        ({"parts/__init__.py": "", "parts/kit.py": "f(:\n"}, "from parts import kit\n", ["parts.kit"]),
        ({"parts/__init__.py": "kit = 1\n", "parts/kit.py": "f(:\n"}, "from parts import kit\n", []),
        ({"parts/__init__.py": "f(:\n", "parts/kit.py": ""}, "import parts.kit\n", ["parts"]),
        ({"parts/__init__.py": "from . import kit\n", "parts/kit.py": "f(:\n"}, "import parts\n", ["parts.kit"]),
        ({"one.py": "import two\n", "two.py": "f(:\n"}, "import one\n", ["two"]),
        ({"one.py": "import train\n"}, "import one\n", []),
    ],
)
def test_a_broken_module_of_a_package(tmp_path: Path, files: dict[str, str], text: str, found: list[str]) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert [one[3] for one in faults(tmp_path, text)] == found


def test_modules_are_read_up_to_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, broken = "from kit import Trainer\nimport parts\n", "f(:\n"
    (tmp_path / "parts.py").write_text(broken)
    assert [one[1] for one in faults(tmp_path, text)] == ["import", "syntax"]
    opened: list[str] = []

    def read_bytes(path: Path) -> bytes:
        opened.append(path.name)
        return path.read_bytes()

    monkeypatch.setattr(local_modules, "read_bytes", read_bytes)
    few = training_script_read.read(tmp_path / "train.py", most_bytes=len(broken))
    assert [one.kind for one in few.faults] == ["syntax"] and opened == ["parts.py"]


def test_a_link_out_of_the_project_is_not_followed(tmp_path: Path) -> None:
    project, other = tmp_path / "project", tmp_path / "other"
    project.mkdir()
    other.mkdir()
    (other / "far.py").write_text("f(:\n")
    (project / "far.py").symlink_to(other / "far.py")
    (project / "near.py").symlink_to(project / "kit.py")
    text = "from far import Trainer\nfrom near import Trainer\n"
    assert faults(project, text) == [(2, "import", "Trainer", "near")]


@pytest.mark.parametrize(
    "text",
    [
        "import sys\nsys.exit(0)\n{}",
        "raise SystemExit\n{}",
        "if not __name__ == '__main__':\n    main()\n",
        "if __name__ != '__main__':\n    main()\n",
        "if __name__ == '__main__':\n    raise SystemExit\n    main()\n",
        "while 0:\n    print(absent)\n",
        "import contextlib\nwith contextlib.suppress(NameError):\n    print(absent)\n",
    ],
)
def test_what_is_not_reached_or_caught_is_no_error(tmp_path: Path, text: str) -> None:
    """Each of these lines is an error where it is reached."""
    (tmp_path / "bad.py").write_text("def f(:\n")
    wrong = "def main(a): pass\nfrom . import kit\nfrom kit import absent_name\nimport bad\nmain()\nprint(absent)\n"
    assert {one[1] for one in faults(tmp_path, wrong)} == {"relative", "import", "syntax", "argument", "undefined"}
    assert faults(tmp_path, "def main(a): pass\n" + text.format(wrong)) == []


@pytest.mark.parametrize("text", ["import sys as system\nsystem.path.insert(0, 'x')\n", "from sys import path\n"])
def test_another_name_of_the_path(tmp_path: Path, text: str) -> None:
    assert faults(tmp_path, f"{text}from kit import absent_name\n") == []
    assert faults(tmp_path, "from sys import argv\nfrom kit import absent_name\n") == [
        (2, "import", "absent_name", "kit")
    ]


def test_each_call_does_not_read_the_script_again(tmp_path: Path) -> None:
    calls = "".join(f"def f{n}(a):\n    return a\nf{n}({n})\n" for n in range(2000))
    (tmp_path / "train.py").write_text(calls)
    begin = time.process_time()
    assert training_script_read.read(tmp_path / "train.py").faults == ()
    assert time.process_time() - begin < 10  # about 1 s; with a pass for each call, over a minute


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


@pytest.mark.parametrize(
    ("script", "text", "of"),
    [
        ("src/train.py", "from src.data import x\n", "src.train"),
        ("src/pkg/train.py", "import pkg.data\n", "pkg.train"),  # no __init__.py is needed
        ("src/train.py", "from data import x\n", None),
        ("src/train.py", "import sys\nsys.path.append('.')\nfrom src.data import x\n", None),
        ("src/train.py", "from other.data import x\n", None),  # may be installed
        ("train.py", "from src.data import x\n", None),
    ],
)
def test_a_script_that_imports_the_package_that_contains_it(
    tmp_path: Path, script: str, text: str, of: str | None
) -> None:
    files = {"pyproject.toml": "", "src/data.py": "x = 1\n", "src/pkg/data.py": "x = 1\n", "other/data.py": "x = 1\n"}
    for name, content in {**files, script: text}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    found = [one for one in training_script_read.read(tmp_path / script).faults if one.kind == "package"]
    assert [one.of for one in found] == ([of] if of else [])
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, env={})
    assert (b"ModuleNotFoundError" in done.stderr) is bool(of or "other" in text)
    if of:
        folder = tmp_path / script.removesuffix(f"{of.replace('.', '/')}.py")
        assert not subprocess.run([sys.executable, "-m", of], cwd=folder, capture_output=True, env={}).returncode
