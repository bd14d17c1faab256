"""Logs of programs on Windows: lines of stderr that PowerShell broke at the width of its window, and code pages.

`broken` breaks them as Windows PowerShell 5.1 does in logs that people published.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from mgpu.readers.log import read
from mgpu.readers.log.powershell import PowerShell
from tests.test_log_meanings import explained

LONG = r"C:\Users\Someone\Documents\projects\denoising"
TRACEBACK = [
    "Traceback (most recent call last):",
    rf'  File "{LONG}\scripts\start_training.py", line 88, in <module>',
    "    fit(model, loaders, epochs=options.epochs, device=options.device)",
    rf'  File "{LONG}\denoiser\loop.py", line 31, in fit',
    "    print(progress_line(epoch, step, loss, learning_rate))",
    "    ~~~~~^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
    r'  File "C:\Users\Someone\AppData\Local\Programs\Python\Python312\Lib\encodings\cp1252.py", line 19, in encode',
    "    return codecs.charmap_encode(input,self.errors,encoding_table)[0]",
    "           ~~~~~~~~~~~~~~~~~~~~~^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
    "UnicodeEncodeError: 'charmap' codec can't encode character '\\u2192' in position 7: character maps to <undefined>",
]
KERNEL = (
    r"C:\actions-runner\_work\pytorch\pytorch\builder\windows\pytorch\aten\src\ATen\native\cuda\Loss.cu:95: block: "
    "[0,0,0], thread: [4,0,0] Assertion `target_val >= zero && target_val <= one` failed."
)


def broken(text: str, width: int, indent: str = "") -> list[str]:
    """Break at spaces, which stay at the ends of the lines; a word that is longer than a line is cut."""
    lines, line = [], ""
    for word in text.split(" "):
        if line.strip() and len(line) + len(word) >= width > len(word):
            lines.append(line)
            line = indent
        line += word + " "
        while len(line) - 1 > width:
            lines.append(line[:width])
            line = indent + line[width:]
    return [*lines, line[:-1]]


def padded(text: str, width: int) -> list[str]:
    """Break a line of an error record, whose parts are as wide as the window."""
    *parts, last = broken(text, width - 1, "   ")
    return [*(part.ljust(width) for part in parts), last]


def redirected(stderr: Sequence[str], width: int, *, before: Sequence[str] = (), command: str = "python") -> str:
    """Return a log as `python train.py *> run.log` makes it."""
    record = "NotSpecified: (Traceback (most recent call last)::String) [], RemoteException"
    lines = [
        *before,
        *broken(f"{command} : {stderr[0]}", width),
        "At line:1 char:1",
        "+ python train.py *> run.log",
        "+ ~~~~~~~~~~~~~~~~~~~~~~~~~~",
        *padded(f"    + CategoryInfo          : {record}", width),
        *padded("    + FullyQualifiedErrorId : NativeCommandError", width),
        " ",
        *(part for line in stderr[1:] for part in broken(line, width)),
    ]
    return "\r\n".join([*lines, ""])


@pytest.mark.parametrize("width", [44, 61, 80, 119, 160])
def test_lines_that_powershell_broke(width: int, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(redirected(TRACEBACK, width, before=["Epoch 1", "=" * width, "device: cuda "]).encode("utf-16"))
    (one,) = read.read_logs([path]).raised
    assert one.message == TRACEBACK[-1].partition(": ")[2]
    assert one.place == "loop.py:31 in fit"
    assert one.own_code == TRACEBACK[4].strip()
    _, title, texts = explained(tmp_path, redirected(TRACEBACK, width))
    assert title.startswith("print() cannot write a character: '\\u")
    assert "PYTHONUTF8" in texts


def test_the_exception_is_not_a_part_of_the_underline_above_it(tmp_path: Path) -> None:
    width = 61
    underline = " " * 11 + "~" * 21 + "^" * (2 * width - 32)  # ends at the edge of the window
    path = tmp_path / "run.log"
    path.write_bytes(redirected([*TRACEBACK[:8], underline, TRACEBACK[-1]], width).encode("utf-16"))
    (one,) = read.read_logs([path]).raised
    assert one.type == "UnicodeEncodeError"
    assert one.message == TRACEBACK[-1].partition(": ")[2]


@pytest.mark.parametrize("width", [48, 90])
def test_a_kernels_assertion_in_the_error_record(width: int, tmp_path: Path) -> None:
    stderr = [KERNEL, KERNEL, "RuntimeError: CUDA error: device-side assert triggered"]
    _, title, texts = explained(tmp_path, redirected(stderr, width))
    assert title == "a target of binary cross entropy is not between 0 and 1, or is NaN"
    assert "target.min()" in texts


def test_the_lines_keep_their_numbers(tmp_path: Path) -> None:
    text = redirected(TRACEBACK, 50)
    joined = PowerShell().joined(text.replace("\r\n", "\n").encode()).decode()
    assert joined.count("\n") == text.count("\n")
    number = next(n for n, line in enumerate(text.split("\n"), 1) if line.startswith("UnicodeEncodeError"))
    assert joined.split("\n")[number - 1] == TRACEBACK[-1]


def test_a_window_that_cuts_words_too() -> None:
    said = "C:/tools/python.exe : the option of the model is not compatible with the labels"
    error = "ValueError: wrong value of the option threshold: 3"
    width = 42
    record = [*padded("    + CategoryInfo : NotSpecified: (the option:String) [], RemoteException", width), " "]
    lines = [said[:width], said[width:], "At line:1 char:1", "+ python", *record, error[:width], error[width:]]
    joined = PowerShell().joined("\n".join(lines).encode()).decode()
    assert [line for line in joined.split("\n") if line] == [
        said.partition(" : ")[2], error,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "lines",
    [
        ["a word and ", "another line", "    + CategoryInfo is a name"],  # no record
        ["epoch 1 of 3: a line that ends with ", "a space", "  + CategoryInf"],
    ],
)
def test_other_lines_stay(lines: list[str]) -> None:
    text = "\n".join(lines).encode()
    assert PowerShell().joined(text) == text


def test_lines_of_stdout_stay() -> None:
    stdout = ["loss 0.5 ", "=" * 60, "next line of the program", "0123456789 " * 5 + "01234", "short", "loss ", "1"]
    text = redirected(TRACEBACK, 60).replace("\r\n", "\n")
    reader = PowerShell()
    reader.joined(text.encode())
    assert reader.joined("\n".join(stdout).encode()).decode().split("\n") == stdout
