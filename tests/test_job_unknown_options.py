"""Which options of a launch does the argparse of its training script certainly not accept?"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mgpu.readers.job_script import read as job_script_read

PARSER = "import argparse\np = argparse.ArgumentParser('train')\n"
OPTIONS = "p.add_argument('--do_eval', action='store_true')\np.add_argument('-b', '--batch-size', type=int)\n"
IN_FUNCTION = "import argparse\ndef get():\n    p = argparse.ArgumentParser()\n"
PLAIN = f"{PARSER}{OPTIONS}args = p.parse_args()\n"


@pytest.fixture(autouse=True)
def _in_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)


def refused(line: str, script: str = PLAIN) -> list[tuple[str, str, str]]:
    """Return the word, the option and what it resembles, of each option that is refused."""
    Path("train.py").write_text(script)
    Path("job.sh").write_text(f"#!/bin/bash\n{line}\n")
    commands = job_script_read.read(Path("job.sh")).commands
    return [(one.words[option.word], option.name, option.similar) for one in commands for option in one.refused]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("torchrun --nproc-per-node 2 train.py --do_Eval", [("--do_Eval", "--do_Eval", "--do_eval")]),
        ("srun python train.py --batch_size=4 --do_eval", [("--batch_size=4", "--batch_size", "--batch-size")]),
        ("accelerate launch --num_processes 2 train.py --xyz 1", [("--xyz", "--xyz", "")]),
        ("C='python train.py --lr 1'\n$C", [("--lr", "--lr", "")]),
        ("python train.py --batch 4 --do_eval --help -b 4 -x", []),  # the beginning of an option is enough
        ("python train.py $ARGS --$NAME 1 '--a b' -- --other", []),
        ("python other.py --do_Eval", []),
        ("python -m train --do_Eval", [("--do_Eval", "--do_Eval", "--do_eval")]),
    ],
)
def test_options_on_the_line(line: str, found: list[tuple[str, str, str]]) -> None:
    assert refused(line) == found


LINE = "python train.py --lr 1"
# Scripts that show all of their options.
CERTAIN = (
    PLAIN,
    f"from argparse import ArgumentParser as Parser\np = Parser(description='x')\n{OPTIONS}p.parse_args()\n",
    f"{PARSER}g = p.add_argument_group('a')\ng.add_argument('--x')\np.description = 'a'\nargs = p.parse_args()\n",
    f"{IN_FUNCTION}    p.add_argument('--x')\n    return p.parse_args()\n"
    "def main():\n    args = get()\nif __name__ == '__main__':\n    main()\n",
    f"{IN_FUNCTION}    p.add_argument('--x')\n    return p\nargs = get().parse_args()\n",
    f"def more(parser):\n    parser.add_argument('--x')\n{PARSER}more(p)\nargs = p.parse_args()\n",
    "import argparse\n@record\ndef main():\n    p = argparse.ArgumentParser()\n    args = p.parse_args()\nmain()\n",
    f"{PARSER}if torch.cuda.is_available():\n    p.add_argument('--x')\nargs = vars(p.parse_args())\n",
)


@pytest.mark.parametrize("script", CERTAIN)
def test_a_script_that_shows_all_of_its_options(script: str) -> None:
    assert refused(LINE, script) == [("--lr", "--lr", "")]


# Scripts that may accept other options, or do not parse the command line.
OPEN = (
    f"{PARSER}args, rest = p.parse_known_args()\n",
    f"{PARSER}args = p.parse_args(['--x'])\n",
    f"{PARSER}args = p.parse_args(namespace=given)\n",
    f"import sys\n{PARSER}sys.argv = sys.argv[:1]\nargs = p.parse_args()\n",
    f"{PARSER}import deepspeed\np = deepspeed.add_config_arguments(p)\nargs = p.parse_args()\n",
    f"{PARSER}import kit\nkit.add(p)\nargs = p.parse_args()\n",
    f"def more(q):\n    kit.add(q)\n{PARSER}more(p)\nargs = p.parse_args()\n",
    f"def more(q):\n    again(q)\ndef again(r):\n    kit.add(r)\n{PARSER}more(p)\nargs = p.parse_args()\n",
    f"{PARSER}for n in names:\n    p.add_argument(f'--{{n}}')\nargs = p.parse_args()\n",
    f"{PARSER}add = p.add_argument\nadd('--lr')\nargs = p.parse_args()\n",
    f"{PARSER}q = p\nq.add_argument('--lr')\nargs = p.parse_args()\n",
    f"{PARSER}p.add_argument(*names)\nargs = p.parse_args()\n",
    f"{PARSER}p.add_argument('rest', nargs='...')\nargs = p.parse_args()\n",
    f"{PARSER}p.add_argument('rest', nargs=argparse.REMAINDER)\nargs = p.parse_args()\n",
    f"{PARSER}p.add_argument('--x', **more)\nargs = p.parse_args()\n",
    f"{PARSER}s = p.add_subparsers()\nargs = p.parse_args()\n",
    "import argparse\np = argparse.ArgumentParser(parents=[base])\nargs = p.parse_args()\n",
    "import argparse\np = argparse.ArgumentParser(**kinds)\nargs = p.parse_args()\n",
    "from kit import ArgumentParser\np = ArgumentParser()\nargs = p.parse_args()\n",
    f"{PARSER}class P(argparse.ArgumentParser):\n    pass\nargs = p.parse_args()\n",
    "from kit import p\nargs = p.parse_args()\n",
    f"{PARSER}from kit import p\nargs = p.parse_args()\n",
    f"{IN_FUNCTION}    return p\nq = wrap(get())\nargs = q.parse_args()\n",
    f"{PARSER}def get():\n    return p\nq = get()\nkit.add(q)\nargs = p.parse_args()\n",
    f"{PARSER}if interactive:\n    args = p.parse_args()\n",
    f"{PARSER}try:\n    args = p.parse_args()\nexcept SystemExit:\n    pass\n",
    "import argparse\ndef main():\n    p = argparse.ArgumentParser()\n    p.parse_args()\n",
    "import argparse\n@click.command()\ndef main():\n    p = argparse.ArgumentParser()\n    p.parse_args()\nmain()\n",
    f"{PLAIN}(",
)


@pytest.mark.parametrize("script", OPEN)
def test_a_script_that_may_accept_other_options(script: str) -> None:
    assert refused(LINE, script) == []


def test_an_option_that_can_be_negated() -> None:
    script = f"{PARSER}p.add_argument('--x', action=argparse.BooleanOptionalAction)\nargs = p.parse_args()\n"
    assert refused("python train.py --no-x --x --no-y", script) == [("--no-y", "--no-y", "--no-x")]


@pytest.mark.parametrize(
    "script",
    [
        f"import sys\nsys.exit()\n{PLAIN}",
        f"{PARSER}{OPTIONS}if __name__ != '__main__':\n    p.parse_args()\n",
        f"try:\n    import configargparse as argparse\nexcept ImportError:\n    pass\n{PLAIN}",
        f"{PARSER}argparse.ArgumentParser.parse_args = parse\n{OPTIONS}p.parse_args()\n",
        f"{PARSER}library.change(argparse)\n{OPTIONS}p.parse_args()\n",
        f"from library import *\n{PLAIN}",
        f"exec(open('options.py').read())\n{PLAIN}",
        f"from argparse import BooleanOptionalAction as B\n{PARSER}p.add_argument('--l', action=B)\np.parse_args()\n",
        f"{PARSER}p.add_argument('--x', action=library.Action)\np.parse_args()\n",
    ],
)
def test_more_options_than_the_script_shows(script: str) -> None:
    assert refused("python train.py --lr 1") != []
    assert refused("python train.py --lr 1", script) == []


def test_many_options_and_functions() -> None:
    """With a pass over all calls for each function, or over all options for each word, this takes over 10 s."""
    functions = "".join(f"def f{n}(p{n}):\n    f{n + 1}(p{n})\n" for n in range(1500)) + "def f1500(p): pass\n"
    options = "".join(f"p.add_argument('--x{n}')\n" for n in range(1500))
    words = " ".join(f"--lr{n}" for n in range(2000))
    began = time.process_time()
    script = f"{functions}{PARSER}{options}p.parse_args()\nf0(p)\n"
    assert len(refused(f"python train.py {words}", script)) == 2000
    assert time.process_time() - began < 5
