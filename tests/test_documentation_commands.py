"""Do the commands in docs/ work? Those in blocks are run here, or marked as examples; the options of all exist.

A block of `console` has the output too, with "..." for lines that are left out. `test_guide.py` runs the tutorial.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from mgpu.cli import option_parser
from mgpu.errors import USAGE
from mgpu.exit_status import COMMANDS
from tests.conftest import Run
from tests.documentation import PAGES, Block, blocks, files

ALL = [block for page in PAGES for block in blocks(page)]
RUN = [block for block in ALL if block.is_run and block.page != "tutorial.md"]
LOG = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has 79 GiB in total.\n"
# Options of other programs in the pages: launchers, containers, Slurm, pip.
OTHERS = {
    "--kill-on-bad-exit", "--test-only", "--overlap", "--shm-size", "--ipc", "--network", "--num_processes",
    "--mixed_precision",
    "--main_process_ip", "--machine_rank", "--output_dir", "--epochs", "--loader", "--version", "--gpu-reset",
    "--this-python", "--deepspeed", "--deepspeed_config", "--deepspeed_config_file",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files that the pages name."""
    here = tmp_path / "project"
    here.mkdir()
    for name, text in {**dict(chain.from_iterable(files(page).items() for page in PAGES)), "run.log": LOG}.items():
        (here / name).write_text(text, "utf-8")
    return here


@pytest.mark.parametrize("page", sorted({block.page for block in RUN}))
def test_the_commands_of_a_page_run(page: str, folder: Path, mgpu: Run) -> None:
    for block in (block for block in RUN if block.page == page):
        for command in block.commands:
            done = mgpu(*command[1:], cwd=folder)
            assert done.returncode != USAGE and "Traceback" not in done.stdout + done.stderr, (command, done)
            if block.language == "console":
                assert matches(_output(block), done.stdout), (command, done.stdout)


def _output(block: Block) -> list[str]:
    return block.text.splitlines()[1:]


def matches(shown: list[str], real: str) -> bool:
    """Whether the lines are those of the output; "..." is any number of others."""
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else re.escape(line) + r"\n" for line in shown)
    return re.fullmatch(pattern, real) is not None


def test_a_block_of_commands_is_run_or_marked() -> None:
    for block in ALL:
        assert block.language, f"{block.page}: an indented block can be neither: {block.text[:60]}"
        if block.language in ("bash", "console") and block.commands:
            assert block.is_run or block.title.startswith("Example"), block
        if block.is_run:
            assert block.commands, f"{block.page}: nothing of this block would be run: mark it as an example"


def test_every_line_is_one_that_mgpu_accepts() -> None:
    for block in ALL:
        for words in block.commands:
            if len(words) > 1 and words[1] in COMMANDS:
                assert option_parser.read(words[1:]) is not None, (block.page, words)


def _spans() -> Iterator[tuple[str, str]]:
    """The inline code of the pages."""
    for page in PAGES:
        for text in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", page.read_text("utf-8")):
            yield page.name, text


def test_every_option_that_a_page_names_is_there() -> None:
    real = {
        flag
        for name in COMMANDS
        for option in option_parser.command_named(name).every_option
        for flag in (*option.on, *option.off)
    }
    named = {(page, flag) for page, text in _spans() for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", text)}
    assert {(page, flag) for page, flag in named if flag not in real | OTHERS} == set()
