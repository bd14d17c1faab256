"""Installing a package again must not change the torch next to it; which C++ ABI an extension was built with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_log_meanings import explained

ROOT = Path(__file__).parents[1]
AGAIN = re.compile(r"pip install [^\n`'\"]*--force-reinstall[^\n`'\"]*")
INSTALLS_TORCH = re.compile(r"--force-reinstall (?:--no-cache-dir )?torch\b|pytorch\.org/whl")
EXTENSION = "ImportError: /v/lib/python3.11/site-packages/{}.cpython-311-x86_64-linux-gnu.so: undefined symbol: {}\n"
FLASH, MAMBA, AUDIO = "flash_attn_2_cuda", "selective_scan_cuda", "torchaudio/lib/_torchaudio"
ERROR = "_ZN3c105ErrorC2ENS_14SourceLocation"
CHECK = "_ZN3c106detail14torchCheckFailEPKcS2_jRK"
NEW, OLD = "built with the new C++ ABI", "built with the old C++ ABI"


@pytest.mark.quick
def test_only_torch_is_reinstalled_with_its_dependencies() -> None:
    """pip would install the newest torch beside the package that is reinstalled."""
    bad = [
        (path.name, command)
        for path in sorted([*(ROOT / "checks").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"])
        for command in AGAIN.findall(re.sub(r"\" *\n\s*f?\"", "", path.read_text("utf-8")))
        if "--no-deps" not in command and not INSTALLS_TORCH.search(command) and path.name != "_reinstall.py"
    ]
    assert bad == []


@pytest.mark.parametrize(
    ("library", "symbol", "words", "absent"),
    [
        (FLASH, f"{ERROR}ENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE", NEW, OLD),
        (FLASH, f"{ERROR}ESs", OLD, NEW),
        (MAMBA, f"{CHECK}NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE", NEW, OLD),
        (MAMBA, f"{CHECK}Ss", OLD, NEW),
        # The function can have been added or removed, so its text argument shows nothing.
        (FLASH, "_ZN2at4_ops5other4callERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE", "one torch", "ABI,"),
        (FLASH, "_ZN3c104cuda9SetDeviceEi", "one torch version", "C++ ABI"),
        (FLASH, f"{ERROR}E", "one torch version", "C++ ABI"),  # cut
    ],
)
def test_the_direction_of_the_abi(library: str, symbol: str, words: str, absent: str, tmp_path: Path) -> None:
    row, title, text = explained(tmp_path, EXTENSION.format(library, symbol))
    assert row == "log_extension_for_another_torch" and words in text and absent not in text, (title, text)
    assert "FORCE_BUILD=TRUE pip install --force-reinstall --no-deps --no-build-isolation" in text


def test_a_package_that_is_released_for_each_torch(tmp_path: Path) -> None:
    text = explained(tmp_path, EXTENSION.format(AUDIO, "_ZN2at7getE"))[2]
    assert "pip install --force-reinstall --no-deps torchaudio==RELEASE" in text and "Build" not in text
    other = explained(tmp_path, EXTENSION.format("exllamav2_kernels", "_ZN2at7getE"))[2]
    assert "pip install --force-reinstall --no-deps --no-build-isolation" in other and "WHEEL" not in other
