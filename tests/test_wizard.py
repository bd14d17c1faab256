"""The wizard as a person meets it: in a real terminal, key by key, wide and narrow, with and without a cursor."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from mgpu.prompts import prompts
from mgpu.snapshot import to_json
from tests import machines
from tests.conftest import environment
from tests.terminal import CONTROL_C, CONTROL_D, DOWN, ENTER, ESCAPE, UP, Terminal, same_screen

F1 = "\x1bOP"
TARGET = ("--target", "4xA100-80GB")
Start = Callable[..., Terminal]

# What is typed at each question of a walk, in the order of the questions; "" takes what is there.
QUICK = (
    ("How big is the model?", "8.03B"), ("What will be trained?", ""), ("How should the model be distributed", ""),
    ("Samples per GPU per step", "8"), ("How many samples are in the dataset?", "52,002"),
    ("Accumulate gradients", ""), ("Known-good learning rate (optional)?", "2e-5"),
    ("Effective batch it was tuned for?", "8"),
)  # fmt: skip
GUIDED = (
    ("Which GPUs?", ""), ("Precision?", ""), *QUICK[:2], ("Which optimizer?", ""), QUICK[2],
    ("Offload the optimizer", ""), *QUICK[3:5], ("drop the last partial batch?", ""), *QUICK[5:],
    ("How should the learning rate scale?", ""), ("CPU threads per GPU?", ""),
    ("DataLoader workers", ""), ("Which machines, over ssh?", ""), ("How many nodes?", ""), ("Rendezvous port?", ""),
    ("Compile the model", ""), ("Resume later on a different number", ""),
)  # fmt: skip
REVIEW = "Review: press Enter on a row to change it"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    return path


@pytest.fixture
def start(tmp_path: Path, folder: Path) -> Iterator[Start]:
    """`mgpu configure` in a terminal, for four A100 that are not here unless something else is said."""
    running: list[Terminal] = []

    def begin(*arguments: str, columns: int = 80, lines: int = 120, target: bool = True, **env: str) -> Terminal:
        added = {"LC_ALL": "C.UTF-8", "TERM": "xterm-256color"} | env
        command = [sys.executable, "-m", "mgpu", "configure", *(TARGET if target else ()), *arguments]
        terminal = Terminal(
            command, env=environment(tmp_path / "home", added), cwd=folder, columns=columns, lines=lines
        )
        running.append(terminal)
        return terminal

    yield begin
    for terminal in running:
        terminal.child.close(force=True)


def words_of(text: str) -> str:
    return " ".join(text.split())


def until(terminal: Terminal, what: Callable[[], bool], seconds: float = 30) -> None:
    """Read until something holds; that it never does is told with the screen."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, f"not seen in time:\n{terminal.text}"
        assert terminal._read(), f"it ended:\n{terminal.text}"


def at(terminal: Terminal, words: str) -> str:
    """Wait until a question is drawn to its last line; the lines of its prompt."""

    def drawn() -> bool:
        prompt = words_of(prompt_of(terminal.text))
        return words in prompt and re.search("Ctrl-C (save and )?quit", prompt) is not None

    until(terminal, drawn)
    return settled(terminal)


def settled(terminal: Terminal) -> str:
    """The prompt, once nothing more is written."""
    before = -1
    while len(terminal.raw) != before:
        before = len(terminal.raw)
        terminal._read(0.05)
    return prompt_of(terminal.text)


def prompt_of(text: str) -> str:
    """From the last question on."""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("? ")]
    return "\n".join(lines[starts[-1] :]) if starts else ""


def go(terminal: Terminal, walk: tuple[tuple[str, str], ...]) -> list[str]:
    """Answer every question of a walk; the prompts as they were before Enter."""
    seen = []
    for words, typed in walk:
        prompt = at(terminal, words)
        if typed:
            terminal.press(typed)
            read_until(terminal, typed)
            prompt = settled(terminal)
        seen.append(prompt)
        terminal.press(ENTER)
    return seen


def read_until(terminal: Terminal, words: str) -> None:
    until(terminal, lambda: words in words_of(prompt_of(terminal.text)))


def choose(terminal: Terminal, words: str, line: str) -> None:
    """Point at a line of a menu and take it."""
    prompt = at(terminal, words)
    for _ in range(40):
        if any(row.lstrip().startswith(">") and line in row for row in prompt.splitlines()):
            terminal.press(ENTER)
            return
        terminal.press(DOWN)
        until(terminal, lambda before=prompt: prompt_of(terminal.text) != before)  # type: ignore[misc]
        prompt = settled(terminal)
    raise AssertionError(f"no {line!r} in\n{terminal.text}")


def config(folder: Path, name: str = "accelerate.4xA100-80GB.yaml") -> dict[str, Any]:
    found = yaml.safe_load((folder / name).read_text("utf-8"))
    assert isinstance(found, dict)
    return found


def drafts(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "home" / "state" / "mgpu" / "drafts").glob("*"))


# ---- the screens


@pytest.mark.parametrize("columns", [40, 80, 120])
@pytest.mark.parametrize(("name", "walk"), [("quick", QUICK), ("guided", GUIDED)])
def test_every_screen(name: str, walk: tuple[tuple[str, str], ...], columns: int, start: Start, folder: Path) -> None:
    terminal = start("--guided" if name == "guided" else "--offline", columns=columns)
    at(terminal, "What next?")
    screens = [terminal.text]
    terminal.press(ENTER)
    screens += go(terminal, walk)
    screens.append(at(terminal, REVIEW))
    terminal.press("?")
    read_until(terminal, "the source of a value")
    screens.append(settled(terminal))
    terminal.press(UP)
    read_until(terminal, "> Quit")
    terminal.press(ENTER)
    assert terminal.end() == 0
    screens.append("\n".join(terminal.text.splitlines()[-2:]))
    assert list(folder.iterdir()) == []
    width = min(columns, 100)
    assert max(len(line) for screen in screens for line in screen.splitlines()) <= width
    suffix = "" if columns == 80 else f"_{columns}_columns"
    same_screen("\n\n".join(screens) + "\n", f"configure_{name}{suffix}")


def test_help_is_one_key_away_on_every_screen(start: Start) -> None:
    terminal = start("--guided")
    at(terminal, "What next?")
    helps = []
    for words, typed in (("What next?", ""), *GUIDED, (REVIEW, "")):
        before = at(terminal, words)
        terminal.press(F1)
        until(terminal, lambda before=before: prompt_of(terminal.text) != before)  # type: ignore[misc]
        settled(terminal)
        helps.append(prompt_of(terminal.text))
        terminal.press(F1)  # and away again: nothing is left behind
        until(terminal, lambda before=before: prompt_of(terminal.text) == before)  # type: ignore[misc]
        terminal.press(typed, ENTER) if words != REVIEW else terminal.press(CONTROL_C)
    assert terminal.end() == 130
    same_screen("\n\n".join(helps) + "\n", "configure_help")


@pytest.mark.parametrize(("ranks", "now"), [(2, "2 on the CPU"), (4, "4")])
def test_the_start_shows_the_ranks_of_the_file_without_a_gpu(ranks: int, now: str, start: Start, folder: Path) -> None:
    """Here the number of ranks is not a decision of the file, but it is in it."""
    config = f"distributed_type: MULTI_GPU\nnum_processes: {ranks}\nnum_machines: 1\nmixed_precision: 'no'\n"
    (folder / "accelerate.yaml").write_text(config)
    terminal = start(target=False)
    at(terminal, "What next?")
    assert re.search(rf"^  ranks +{now}  +2 on the CPU$", terminal.text, re.MULTILINE), terminal.text


# ---- going on, back, away and on again


def test_accepting_everything_writes_what_yes_writes(start: Start, folder: Path) -> None:
    flags = ("--params", "8.03B", "--batch-per-gpu", "8", "--dataset-size", "52002", "--lr", "2e-5")
    terminal = start()
    at(terminal, "What next?")
    terminal.press(ENTER)
    go(terminal, QUICK)
    assert list(folder.iterdir()) == []
    at(terminal, REVIEW)
    terminal.press(ENTER)
    assert terminal.end() == 0
    assert sorted(path.name for path in folder.iterdir()) == [
        "accelerate.4xA100-80GB.yaml",
        "mgpu.answers.4xA100-80GB.toml",
    ]
    told = words_of(terminal.text)
    assert "Wrote accelerate.4xA100-80GB.yaml Wrote mgpu.answers.4xA100-80GB.toml" in told
    assert "Not verified yet." in told
    again = told.partition("Same result without questions: ")[2].partition("  ")[0].replace("\\ ", "")
    assert again.startswith("mgpu configure --yes --target 4xA100-80GB --params 8.03B")
    assert terminal.text.splitlines()[-1].startswith("Next:  mgpu smoke-test")
    yes = start("--dry-run", "--no-answers", *flags, "--lr-ref-batch", "8", lines=200, columns=200)
    assert yes.end() == 0
    assert config(folder) == yaml.safe_load(yes.text.partition("mgpu: ")[0])
    # What was written says the same to those who replay it.
    replayed = start("--yes", "--answers", "mgpu.answers.4xA100-80GB.toml")
    assert replayed.end() == 0 and "is already up to date" in replayed.text


def test_back_from_every_question_and_on_again(start: Start, folder: Path) -> None:
    terminal = start("--guided")
    at(terminal, "What next?")
    terminal.press(ENTER)
    before = "What next?"
    for number, (words, typed) in enumerate(GUIDED):
        at(terminal, words)
        terminal.press((ESCAPE, "\x02", "\x1b[Z")[number % 3])  # Esc, Ctrl-B, Shift-Tab
        prompt = at(terminal, before)
        if number:
            assert GUIDED[number - 1][1] in prompt  # what was answered stands there
        terminal.press(ENTER)
        at(terminal, words)
        if typed:
            terminal.press(typed)
        read_until(terminal, typed)
        terminal.press(ENTER)
        before = words
    assert "52,002" in at(terminal, REVIEW) or "1,626" in terminal.text
    terminal.press(ESCAPE)
    at(terminal, before)
    terminal.press(ENTER)
    at(terminal, REVIEW)
    terminal.press(CONTROL_D)
    assert terminal.end() == 130
    assert list(folder.iterdir()) == []


def test_control_c_amid_the_questions_and_resumed(start: Start, folder: Path, tmp_path: Path) -> None:
    """A wizard that is interrupted again and again ends with the file of one that is not."""
    terminal = start("--guided")
    at(terminal, "What next?")
    terminal.press(CONTROL_C)
    assert terminal.end() == 130 and "stopped before writing anything" in terminal.text and drafts(tmp_path) == []
    terminal = start("--guided")
    at(terminal, "What next?")
    terminal.press(ENTER)
    for number, (words, typed) in enumerate(GUIDED):
        stops = number % 4 == 1
        if number % 4 == 2:
            terminal = start("--resume")
        at(terminal, words)
        if number in (2, 4):  # half an answer is no answer: neither typed nor pointed at
            terminal.press("7" if typed else DOWN, CONTROL_C)
            assert terminal.end() == 130
            terminal = start("--resume")
            at(terminal, words)
        if typed:
            terminal.press(typed)
            read_until(terminal, typed)
        terminal.press(ENTER)
        at(terminal, GUIDED[number + 1][0] if number + 1 < len(GUIDED) else REVIEW)
        if not stops:
            continue
        terminal.press(CONTROL_C)
        assert terminal.end() == 130
        assert (
            f"saved {number + 1} answer" in terminal.text
            and "before writing anything" in terminal.text
            and "mgpu configure --resume" in terminal.text
        )
        assert len(drafts(tmp_path)) == 1 and list(folder.iterdir()) == []
    terminal = start("--resume", "-o", "resumed.yaml")
    at(terminal, REVIEW)
    terminal.press(ENTER)
    assert terminal.end() == 0, terminal.text
    assert drafts(tmp_path) == []
    interrupted = config(folder, "resumed.yaml")
    terminal = start("--guided")
    at(terminal, "What next?")
    terminal.press(ENTER)
    go(terminal, GUIDED)
    at(terminal, REVIEW)
    terminal.press(ENTER)
    assert terminal.end() == 0
    assert config(folder) == interrupted


def test_a_draft_is_offered_first_and_can_be_forgotten(start: Start, tmp_path: Path) -> None:
    terminal = start()
    at(terminal, "What next?")
    terminal.press(ENTER)
    go(terminal, QUICK[:3])
    at(terminal, QUICK[3][0])
    terminal.child.kill(9)  # a lost connection
    terminal = start()
    assert "> 1) Resume where you stopped (3 answers given, " in at(terminal, "What next?")
    terminal.press(ENTER)
    at(terminal, QUICK[3][0])
    terminal.press(ESCAPE)
    assert "FSDP2" in at(terminal, QUICK[2][0])
    terminal.press(CONTROL_C)
    assert terminal.end() == 130
    terminal = start("--fresh")
    assert "Resume" not in at(terminal, "What next?") and drafts(tmp_path) == []
    terminal.press(ESCAPE)
    assert terminal.end() == 0 and terminal.text.endswith("Nothing written.")
    terminal = start("--resume")
    assert terminal.end() == 2 and "no draft for this folder" in terminal.text


# ---- the review, and a file that is there


MINE = """\
# by hand, please keep
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU   # plain
num_processes: 2
main_training_function: train   # ours
mixed_precision: fp16
"""


def test_one_row_is_changed_in_a_file_that_is_there(start: Start, folder: Path) -> None:
    (folder / "accelerate.4xA100-80GB.yaml").write_text(MINE, "utf-8")
    terminal = start()
    at(terminal, "What next?")
    same_screen(terminal.text + "\n", "configure_existing")
    terminal.press(ENTER)
    choose(terminal, REVIEW, "precision")
    choose(terminal, "Precision?", "bf16")
    assert "bf16" in at(terminal, REVIEW)
    terminal.press(ENTER)
    at(terminal, "Replace accelerate.4xA100-80GB.yaml?")
    assert "  -mixed_precision: fp16\n  +mixed_precision: bf16" in terminal.text
    terminal.press(ESCAPE)
    at(terminal, REVIEW)
    assert (folder / "accelerate.4xA100-80GB.yaml").read_text("utf-8") == MINE
    terminal.press(ENTER)
    at(terminal, "Replace accelerate.4xA100-80GB.yaml?")
    terminal.press(ENTER)
    assert terminal.end() == 0
    assert (folder / "accelerate.4xA100-80GB.yaml").read_text("utf-8") == MINE.replace("fp16", "bf16")
    assert (folder / "accelerate.4xA100-80GB.yaml.bak").read_text("utf-8") == MINE


def test_a_review_of_our_own_file_forgets_nothing(start: Start, folder: Path) -> None:
    """The model and the rate stand in no key of accelerate, and the answers file belongs to the user."""
    terminal = start()
    at(terminal, "What next?")
    terminal.press(ENTER)
    go(terminal, QUICK)
    choose(terminal, REVIEW, "Write")
    assert terminal.end() == 0
    before = (folder / "mgpu.answers.4xA100-80GB.toml").read_text("utf-8")
    terminal = start()
    choose(terminal, "What next?", "Review and change it")
    assert "8.03B, all weights trained, AdamW" in at(terminal, REVIEW)
    choose(terminal, REVIEW, "precision")
    choose(terminal, "Precision?", "fp16")
    choose(terminal, REVIEW, "Write")
    choose(terminal, "Replace accelerate.4xA100-80GB.yaml?", "Replace")
    assert terminal.end() == 0
    text = (folder / "accelerate.4xA100-80GB.yaml").read_text("utf-8")
    assert "learning rate note: 4e-05 (square root rule from 2e-05 at batch 8)" in text
    after = (folder / "mgpu.answers.4xA100-80GB.toml").read_text("utf-8")
    changed = set(after.splitlines()) ^ set(before.splitlines())
    assert changed == {'precision = "auto"', 'precision = "fp16"', 'accum = "auto"', 'offload = "auto"'} & changed
    assert 'gpus = "auto"' in after and 'precision = "fp16"' in after and "lr = 2e-5" in after


def test_what_cannot_be_written_is_told_before_anything_is_asked(start: Start, folder: Path) -> None:
    (folder / "accelerate.4xA100-80GB.yaml").mkdir()
    terminal = start()
    assert (
        terminal.end() == 2 and "accelerate.4xA100-80GB.yaml is a folder" in terminal.text and "?" not in terminal.text
    )
    terminal = start("-o", "none/there.yaml")
    assert terminal.end() == 2 and "does not exist" in words_of(terminal.text)


def test_a_file_that_does_not_fit_is_said_so_at_once(start: Start, folder: Path) -> None:
    (folder / "accelerate.4xA100-80GB.yaml").write_text(MINE.replace("num_processes: 2", "num_processes: 8"), "utf-8")
    terminal = start()
    at(terminal, "What next?")
    assert "accelerate.4xA100-80GB.yaml does not fit here: --gpus 8: 4 GPUs are usable here" in words_of(terminal.text)


def test_somebody_elses_file_is_edited_again_without_questions(start: Start, folder: Path) -> None:
    (folder / "accelerate.yaml").write_text(MINE, "utf-8")
    terminal = start("--edit", "accelerate.yaml")
    choose(terminal, REVIEW, "precision")
    choose(terminal, "Precision?", "bf16")
    choose(terminal, REVIEW, "Write")
    choose(terminal, "Replace accelerate.yaml?", "Replace")
    assert terminal.end() == 0
    assert "mgpu configure --yes --edit accelerate.yaml --target 4xA100-80GB" in terminal.text


def test_what_a_deepspeed_file_decides_comes_back_to_the_review(start: Start, folder: Path) -> None:
    (folder / "ds.json").write_text('{"zero_optimization": {"stage": 3}}', "utf-8")
    mine = "distributed_type: DEEPSPEED\nnum_processes: 4\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
    (folder / "mine.yaml").write_text(mine, "utf-8")
    terminal = start("--edit", "mine.yaml")
    choose(terminal, REVIEW, "strategy")
    choose(terminal, "How should the model be distributed", "ZeRO-2")
    at(terminal, REVIEW)
    terminal.press(ENTER)
    until(terminal, lambda: "takes zero_optimization.stage from ds.json" in words_of(terminal.text))
    choose(terminal, REVIEW, "Quit")
    assert terminal.end() == 0
    assert (folder / "mine.yaml").read_text("utf-8") == mine


def test_several_machines_are_asked_for_their_address(start: Start) -> None:
    terminal = start("--target", "2x8xH100", target=False)
    assert "FAIL" not in (at(terminal, "What next?") and terminal.text)
    terminal.press(ENTER)
    go(
        terminal,
        (("How big is the model?", ""), ("Samples per GPU", ""), ("How many samples", ""), ("Known-good learning", "")),
    )
    at(terminal, "Address of the first node?")
    terminal.press("node1", ENTER)
    assert "> Write >>" in at(terminal, REVIEW)
    terminal.press(CONTROL_C)
    assert terminal.end() == 130
    assert "mgpu configure --resume --target 2x8xH100" in terminal.text
    terminal = start("--resume", "--target", "2x8xH100", target=False)
    at(terminal, REVIEW)
    assert "? Address of the first node?  node1" in terminal.text and "For --target 2x8xH100:" in terminal.text
    terminal.child.kill(signal.SIGTERM)
    assert terminal.end() == 128 + signal.SIGTERM


def test_a_terminal_is_left_as_it_was(start: Start) -> None:
    terminal = start()
    before = termios.tcgetattr(terminal.child.child_fd)[:4]
    at(terminal, "What next?")
    assert termios.tcgetattr(terminal.child.child_fd)[:4] != before
    terminal.child.kill(signal.SIGTERM)
    while terminal._read():  # to its end
        pass
    assert termios.tcgetattr(terminal.child.child_fd)[:4] == before


@pytest.mark.parametrize("width", range(20, 80))
def test_the_lines_of_a_menu_fit(width: int) -> None:
    text = "1) weights, gradients and optimizer to the CPU (recommended)   1,043 GiB of RAM, much slower"
    drawn = "".join(part for _, part in prompts._hanging_indent([("", " > "), ("", text)], width))
    assert max(map(len, drawn.splitlines())) <= width and " ".join(drawn.split()) == "> " + " ".join(text.split())


def test_nothing_is_written_while_something_fails(start: Start, folder: Path) -> None:
    terminal = start("--params", "8B", "--strategy", "ddp")
    assert "FAIL strategy: DDP" in (at(terminal, "What next?") and terminal.text)
    choose(terminal, "What next?", "Write this config as shown")
    prompt = at(terminal, REVIEW)
    assert "FAIL strategy: DDP" in prompt and "- Write (fix the errors above first)" in words_of(prompt)
    same_screen(prompt + "\n", "configure_fails")
    choose(terminal, REVIEW, "strategy")
    assert "Choose again" in at(terminal, QUICK[2][0])
    terminal.press(ENTER)
    prompt = at(terminal, REVIEW)
    assert "FAIL" not in prompt and "> Write >>" in prompt
    choose(terminal, REVIEW, "file")
    at(terminal, "Name of the file to write?")
    terminal.press("\x15none", ENTER)
    read_until(terminal, "the name must end in .yaml")
    terminal.press("\x15other.yaml", ENTER)
    assert "other.yaml" in at(terminal, REVIEW)
    terminal.press(CONTROL_C)
    assert terminal.end() == 130 and list(folder.iterdir()) == []


def test_several_machines_get_their_commands(start: Start, folder: Path) -> None:
    terminal = start(
        "--target", "2x8xH100", "--params", "1B", "--batch-per-gpu", "4", "--address", "node1", target=False
    )
    choose(terminal, "What next?", "Write this config as shown")
    assert terminal.end() == 0
    written = config(folder, "accelerate.2x8xH100.yaml")
    assert written["num_machines"] == 2 and written["num_processes"] == 16 and "machine_rank" not in written
    for word in ("--machine_rank", "mgpu launch -c accelerate.2x8xH100.yaml --node-rank"):
        assert any(word in line for line in terminal.text.replace("\n", "").split("  ")), terminal.text
    assert "so far" not in terminal.text


def test_a_model_is_read_from_its_folder(start: Start, folder: Path) -> None:
    header = json.dumps({"w": {"dtype": "BF16", "shape": [1000, 1000], "data_offsets": [0, 2_000_000]}}).encode()
    (folder / "model").mkdir()
    (folder / "model" / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(2_000_000))
    (folder / "model" / "config.json").write_text("{}", "utf-8")
    terminal = start("--offline")
    at(terminal, "What next?")
    terminal.press(ENTER)
    at(terminal, QUICK[0][0])
    terminal.press("./missing", ENTER)
    read_until(terminal, "missing")
    prompt = words_of(at(terminal, QUICK[0][0]))
    assert "./missing: no such folder" in prompt and "--model" not in prompt
    terminal.press("\x7f" * 7, "model", ENTER)  # what was typed stands there again
    at(terminal, QUICK[1][0])
    assert "1M parameters" in words_of(terminal.text)
    terminal.press(CONTROL_C)
    assert terminal.end() == 130


# ---- terminals of all kinds


def test_mistakes_are_told_under_the_field(start: Start) -> None:
    terminal = start()
    at(terminal, "What next?")
    terminal.press(ENTER)
    at(terminal, QUICK[0][0])
    terminal.press("8x")
    read_until(terminal, "! '8x' is not a number of parameters")
    lines = settled(terminal).splitlines()
    assert lines[1].startswith("  ! ") and lines[2].strip("- ") == ""
    terminal.press(ENTER)
    assert settled(terminal).splitlines() == lines  # it is still asked
    terminal.press("\x7fB", ENTER)
    at(terminal, QUICK[1][0])
    terminal.press(CONTROL_C)
    assert terminal.end() == 130


def test_a_window_smaller_than_the_menu_and_a_changing_one(start: Start) -> None:
    terminal = start("--guided", lines=9)
    at(terminal, "What next?")
    terminal.press(ENTER)
    at(terminal, "Which GPUs?")
    terminal.press(DOWN, DOWN)
    read_until(terminal, "> [x] 2")
    for columns, lines in ((60, 9), (40, 20), (100, 12), (80, 30)):
        terminal.screen.resize(lines, columns)
        terminal.child.setwinsize(lines, columns)
        assert "[x] 2" in at(terminal, "Which GPUs?")
    terminal.press(" ")
    read_until(terminal, "> [ ] 2")
    read_until(terminal, "3 selected")
    terminal.press(ENTER)
    assert "? Which GPUs?  0, 1, 3" in (at(terminal, "Precision?") and terminal.text)
    terminal.press(CONTROL_C)
    assert terminal.end() == 130


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"TERM": ""}, {"MGPU_ACCESSIBLE": "1"}, {}])
def test_plain_prompts_need_no_cursor(env: dict[str, str], start: Start, folder: Path) -> None:
    terminal = start(*([] if env else ["--accessible"]), "--params", "8.03B", "--save-answers", "none", **env)
    first = terminal.see("q to quit:").splitlines()[0]
    assert first.startswith("Accessible mode: on" if "TERM" not in env else "Plain prompts:")
    terminal.press("1\r")
    until(terminal, lambda: words_of(terminal.text).count("quit:") == 2)
    walk = (
        ("How big is the model?", ""),
        ("What will be trained?", "h"),
        ("", "1"),
        (QUICK[2][0], "x"),
        ("Type a number from 1 to", "b"),
        ("What will be trained?", ""),
        (QUICK[2][0], ""),
        (QUICK[3][0], "many"),
        ("a whole number from 1", "8"),
        (QUICK[4][0], "1k"),
        (QUICK[5][0], "2"),
        (QUICK[6][0], "-"),
        (REVIEW, "q"),
    )
    for number, (words, typed) in enumerate(walk, 3):
        terminal.see(words)
        terminal.press(f"{typed}\r")
        if typed != "q":
            until(terminal, lambda n=number: words_of(terminal.text).count("quit:") == n)  # type: ignore[misc]
    assert terminal.end() == 130
    if not env:
        same_screen(terminal.text.partition("mgpu: stopped")[0], "configure_accessible")
    assert "8 x 4 x 2 = 64" in terminal.text
    if env.get("TERM") is not None:
        assert b"\x1b" not in terminal.raw
    assert list(folder.iterdir()) == []


def test_a_terminal_without_utf_8_colour_or_answers(start: Start, folder: Path) -> None:
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii", "NO_COLOR": "1"}
    terminal = start("--guided", **env)
    at(terminal, "What next?")
    terminal.press(ENTER)
    go(terminal, GUIDED[:6])
    at(terminal, GUIDED[6][0])
    terminal.press(CONTROL_C)
    assert terminal.end() == 130
    assert terminal.raw.isascii()
    assert b"\x1b[6n" not in terminal.raw  # no question to the terminal that it may not answer
    assert not re.search(rb"\x1b\[[0-9;]*(3[0-8]|4[0-8]|9[0-7])[0-9;]*m", terminal.raw)


def test_a_machine_that_is_saved(start: Start, tmp_path: Path) -> None:
    saved = tmp_path / "node.json"
    saved.write_text(json.dumps(to_json(machines.machine("rtx4090_x2"))), "utf-8")
    terminal = start("--from", str(saved), "--guided", target=False)
    at(terminal, "What next?")
    terminal.press(ENTER)
    assert "NVIDIA GeForce RTX 4090" in at(terminal, "Which GPUs?")
    terminal.press(" ", ENTER)
    at(terminal, "Precision?")
    terminal.press(CONTROL_C)
    assert terminal.end() == 130


def test_this_machine_is_looked_at(start: Start, folder: Path) -> None:
    """No GPU need be here: the wizard then plans CPU ranks, and says so."""
    terminal = start(target=False, SLURM_JOB_ID="77", SLURM_NNODES="2")
    at(terminal, "What next?")
    assert "This machine: " in terminal.text
    assert "Inside Slurm job 77" in terminal.text
    terminal.press(CONTROL_C)
    assert terminal.end() == 130 and list(folder.iterdir()) == []


def test_nobody_is_asked_where_asking_is_forbidden(start: Start, folder: Path) -> None:
    for env in ({"CI": "true"}, {"MGPU_NO_INPUT": "1"}):
        terminal = start(**env)
        assert terminal.end() == 2
        assert "--yes" in terminal.text and "--params" in terminal.text
    assert os.listdir(folder) == []
