"""Is an option one record, and does the parser of plain lines read every option as typer does?"""

from __future__ import annotations

import ast
import dataclasses
import itertools
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import typer

from mgpu.cli import option_parser, typer_commands
from mgpu.cli.option import Command, Option, Values
from mgpu.doctor.request import Request as DoctorRequest
from mgpu.exit_status import COMMANDS
from mgpu.launch.request import Request as LaunchRequest
from mgpu.smoke.request import Request as SmokeRequest
from mgpu.wizard.run import Request as ConfigureRequest
from tests.conftest import ROOT, environment

REQUESTS: dict[str, Any] = {
    "doctor": DoctorRequest, "configure": ConfigureRequest, "smoke-test": SmokeRequest, "launch": LaunchRequest,
}  # fmt: skip
TEXTS = ("a.yaml", "-", "", "-y")
NUMBERS = ("0", "1", "007", "96", ".5", "5.", "-1", "1e3", "x", "", "1_0", "²", "9" * 16)
EVERY = [(name, option) for name in COMMANDS for option in option_parser.command_named(name).every_option]


class Refused(Exception):
    """Typer refused the line, or showed its help."""


@cache
def parser(name: str) -> Any:
    """What typer makes of a command whose `run` only keeps its values."""
    app = typer.Typer(rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})
    named = option_parser.command_named(name)
    typer_commands.add(app, _Kept(**{field.name: getattr(named, field.name) for field in dataclasses.fields(named)}))
    return typer.main.get_command(app)


_kept: list[Values] = []


class _Kept(Command):
    """A command that keeps its values instead of running."""

    def start(self, values: Values) -> int:
        _kept.append(values)
        return 0


def by_typer(name: str, words: list[str]) -> Values:
    _kept.clear()
    try:
        parser(name).main(args=list(words), prog_name="mgpu", standalone_mode=False)
    except Exception as error:
        raise Refused from error
    if not _kept:
        raise Refused
    return _kept[0]


def plainly(command: Command, words: list[str]) -> Values | None:
    line = option_parser.read([command.name, *words])
    return line[1] if line else None


def lines(option: Option) -> Iterator[list[str]]:
    """Every way to give an option, and many that are wrong."""
    if option.kind is bool:
        for flags in itertools.chain.from_iterable(
            itertools.product((*option.on, *option.off), repeat=count) for count in (1, 2)
        ):
            yield [*flags]
        yield from ([f"{flag}{more}"] for flag in (*option.on, *option.off) for more in ("=1", "x", "=", "h"))
        return
    for text, flag in itertools.product(TEXTS if option.kind in (str, list) else NUMBERS, option.on):
        yield from ([flag, text], [f"{flag}={text}"])
    yield from ([flag] for flag in option.on)
    yield from ([flag, "1", f"{option.on[0]}=2"] for flag in option.on)


@pytest.mark.parametrize(("name", "option"), EVERY, ids=lambda of: of if isinstance(of, str) else of.on[0])
def test_a_plain_line_means_what_typer_makes_of_it(name: str, option: Option, capsys: Any) -> None:
    command = option_parser.command_named(name)
    read = 0
    for words in lines(option):
        plain = plainly(command, words)
        read += plain is not None
        if plain is not None:
            told = by_typer(name, words)
            assert {key: repr(value) for key, value in plain.items()} == {key: repr(told[key]) for key in plain}, words
            assert all(told[key] is None for key in set(told) - set(plain)), words
    assert read, "the parser of plain lines reads nothing of it"


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("words", ["", "x", "-", "--", "-- -x", "x --help", "-- --help", "x -- y", "-y x -y -- x"])
def test_words_that_are_no_options(name: str, words: str) -> None:
    plain = plainly(option_parser.command_named(name), words.split())
    if plain is not None:
        told = by_typer(name, words.split())
        assert plain == {key: told[key] for key in plain}


@pytest.mark.parametrize(
    "words",
    [
        "train.py", "-y train.py --yes -n", "--yes -n -- -x", "-m train -m", "-c a.yaml --gpus 0,2 --port=auto x.py",
        "--timeout 3 --node-rank 1 x.py", "--detach --log-dir d --json-result=r x.py -c b", "--status", "--attach 12",
        "--slurm --nodes 4 --gpus-per-node=8 --partition p --time 1:00 --spare 2 x.py --nodes 3", "", "- x",
        "--slurm --preflight --detach job.sbatch a --no-preflight -- b",
    ],
)  # fmt: skip
def test_a_script_takes_all_words_behind_it(words: str) -> None:
    assert plainly(option_parser.command_named("launch"), words.split()) == by_typer("launch", words.split())


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("words", ["--help", "-h", "--no-such", "-x", "--no-such=1", "-yh", "--help x", "--qui"])
def test_what_is_not_plain_is_left_to_typer(name: str, words: str) -> None:
    assert plainly(option_parser.command_named(name), words.split()) is None


@pytest.mark.parametrize("name", COMMANDS)
def test_a_default_is_that_of_the_request(name: str) -> None:
    fields = {field.name: field for field in dataclasses.fields(REQUESTS[name])}
    for option in option_parser.command_named(name).options:
        field = fields.get(option.name)
        if field is not None and type(field.default) is option.kind and option.name != "save_answers":
            assert option.initial == field.default, option


def test_options_have_distinct_names_and_flags() -> None:
    for name in COMMANDS:
        options = option_parser.command_named(name).every_option
        flags = [flag for option in options for flag in (*option.on, *option.off)]
        assert len(flags) == len(set(flags)) and len(options) == len({option.name for option in options})
        assert all((option.metavar == "") == (option.kind is bool) for option in options)


def test_typer_is_told_of_options_in_one_place() -> None:
    """Typer's own parameters are made from the records; --version belongs to no command."""
    used = {
        f"{path.name}: {ast.unparse(node.func)}"
        for path in (ROOT / "mgpu" / "cli").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("typer.Option", "typer.Argument")
    }
    assert used == {"app.py: typer.Option", "typer_commands.py: typer.Option", "typer_commands.py: typer.Argument"}


@pytest.mark.parametrize("line", ["doctor --quick", "doctor --quick -v", "smoke-test --show", "configure --validate"])
def test_a_plain_line_does_without_typer(line: str, tmp_path: Any) -> None:
    code = (
        f"import sys; from mgpu import __main__; sys.argv = ['mgpu', *{line.split()}]\ntry: __main__.main()\n"
        "except SystemExit: pass\nprint(*{'typer', 'click', 'pydantic'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(tmp_path / "home"), capture_output=True, text=True,
        check=True, timeout=60,
    )  # fmt: skip
    assert done.stderr.splitlines()[-1] == "", done.stderr
