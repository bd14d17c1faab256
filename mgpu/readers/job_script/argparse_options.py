"""Which options does the argparse of a training script accept, if the script itself shows all of them?

Only if its one source of options is visible: every option is a literal, the command line is certainly parsed, and no
other code gets the parser.
"""

from __future__ import annotations

import ast
import bisect
import difflib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from mgpu.readers.job_script.python_files import content, parsed
from mgpu.readers.training_script.bound_names import names_bound
from mgpu.readers.training_script.branches import main_guard, until_exit

_PARSES = re.compile(r"\.parse_args\(\s*\)")
# Other ways to add options, or to accept unknown ones.
_OPEN = re.compile(
    r"parse_known|intermixed|add_subparsers|REMAINDER|\bargv\b|prefix_chars|conflict_handler|parents\s*="
    r"|\bexec\(|\bglobals\(|^\s*from\s+\S+\s+import\s+\*",
    re.MULTILINE,
)
_METHODS = frozenset(
    {
        "add_argument",
        "add_argument_group",
        "add_mutually_exclusive_group",
        "parse_args",
        "set_defaults",
        "get_default",
        "error",
        "exit",
        "print_help",
        "print_usage",
        "format_help",
        "format_usage",
    }
)
_GROUPS = ("add_argument_group", "add_mutually_exclusive_group")
_TEXTS = ("description", "epilog", "usage", "prog", "formatter_class")
_OPTION = re.compile(r"(--[A-Za-z][\w-]*)(?:=\S*)?")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_NEAR = 0.6
_MOST_SIMILAR = 20  # unknown options for which a similar one is looked for


def refused_options(path: Path, arguments: Sequence[str]) -> dict[int, str]:
    """Return the index of each argument that is an unknown option, with the option that it resembles, or "".

    Empty if the script's options are not certainly known. argparse also accepts the beginning of an option.
    """
    words = [found[1] if (found := _OPTION.fullmatch(word)) else "" for word in arguments]
    words = words[: arguments.index("--")] if "--" in arguments else words
    if not any(words) or (known := _options_of(path)) is None:
        return {}
    ordered = sorted(known)
    unknown = {at: word for at, word in enumerate(words) if word and not _begins_one(word, ordered)}
    return {
        at: _nearest(word, known) if place < _MOST_SIMILAR else "" for place, (at, word) in enumerate(unknown.items())
    }


def _begins_one(word: str, ordered: Sequence[str]) -> bool:
    place = bisect.bisect_left(ordered, word)
    return place < len(ordered) and ordered[place].startswith(word)


def _nearest(word: str, known: frozenset[str]) -> str:
    by_letters = {_plain(one): one for one in sorted(known) if one != "--help"}
    near = difflib.get_close_matches(_plain(word), by_letters, n=1, cutoff=_NEAR)
    return by_letters[near[0]] if near else ""


def _plain(option: str) -> str:
    return option.lower().replace("_", "-").lstrip("-")


def _options_of(path: Path) -> frozenset[str] | None:
    """Return all options that a script accepts; None if they are not certainly known."""
    text = content(path)
    if not _PARSES.search(text) or _OPEN.search(text) or (tree := parsed(text)) is None:
        return None
    try:
        return _Options(tree).known()
    except RecursionError:  # of an expression that is nested too deeply
        return None


class _Options:
    """The parsers of a script, by the names of its variables in any function."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree, self._nodes = tree, list(ast.walk(tree))
        self._calls = [node for node in self._nodes if isinstance(node, ast.Call)]
        self._functions = {node.name: node for node in tree.body if isinstance(node, _FUNCTIONS)}
        self._classes = _classes(self._nodes)
        self._makers = {name for name in self._functions if self._makes(name)}
        made = [(node.targets[0], node.value) for node in self._nodes if isinstance(node, ast.Assign)]
        self._made = [(one, value) for one, value in made if isinstance(one, ast.Name) and self._is_parser(value)]
        self._names = {one.id for one, _ in self._made}
        self._add_parameters()

    def _add_parameters(self) -> None:
        """Add the parameters of functions to which the script passes its parsers on."""
        getting: dict[str, list[ast.Call]] = {}  # the calls that pass a variable
        for call in self._calls:
            for value in (*call.args, *(one.value for one in call.keywords)):
                if isinstance(value, ast.Name):
                    getting.setdefault(value.id, []).append(call)
        new = list(self._names)
        for name in new:  # grows during the loop
            more = {one for call in getting.get(name, ()) for one in self._parameters_for(call)} - self._names
            self._names |= more
            new += more

    def known(self) -> frozenset[str] | None:
        """Return all options; None if the parsers may get others, or the command line may not be parsed."""
        if not self._is_all_visible() or not self._is_parsed(self._tree.body, set()):
            return None
        found = {"--help"}
        for call in self._methods("add_argument"):
            names = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            settings = {one.arg: ast.unparse(one.value) for one in call.keywords}
            action = settings.get("action", "'store'")
            own = action[:1] not in "'\"" and not action.endswith("BooleanOptionalAction")  # it may have other options
            if len(names) < len(call.args) or None in settings or "..." in settings.get("nargs", "") or own:
                return None
            found.update(names)
            if action.endswith("BooleanOptionalAction"):
                found.update(f"--no-{name[2:]}" for name in names if name.startswith("--"))
        return frozenset(name for name in found if name.startswith("--"))

    def _methods(self, *names: str) -> list[ast.Call]:
        return [one for one in self._calls if isinstance(one.func, ast.Attribute) and one.func.attr in names]

    def _is_new(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and ast.unparse(node.func) in self._classes

    def _is_parser(self, node: ast.AST) -> bool:
        """Whether a value is a parser, or a group of its options."""
        if not isinstance(node, ast.Call):
            return False
        group = isinstance(node.func, ast.Attribute) and node.func.attr in _GROUPS
        return group or self._is_new(node) or (isinstance(node.func, ast.Name) and node.func.id in self._makers)

    def _makes(self, function: str) -> bool:
        """Whether a function of the script makes a parser and returns it."""
        nodes = list(ast.walk(self._functions[function]))
        made = {ast.unparse(one.targets[0]) for one in nodes if isinstance(one, ast.Assign) and self._is_new(one.value)}
        returned = [one.value for one in nodes if isinstance(one, ast.Return)]
        return bool(returned) and all(isinstance(one, ast.Name) and one.id in made for one in returned)

    def _passed(self, call: ast.Call) -> list[tuple[int | str | None, ast.Name]]:
        """Return the parsers that a call passes to a function of the script, each by its position or name."""
        starred = any(isinstance(one, ast.Starred) for one in call.args)
        if not isinstance(call.func, ast.Name) or call.func.id not in self._functions or starred:
            return []
        values = [*enumerate(call.args), *((one.arg, one.value) for one in call.keywords)]
        return [(at, one) for at, one in values if isinstance(one, ast.Name) and one.id in self._names]

    def _parameters_for(self, call: ast.Call) -> Iterator[str]:
        """Return the parameters of a function of the script that get a parser in a call."""
        for at, _ in self._passed(call):
            arguments = self._functions[call.func.id].args  # type: ignore[attr-defined]
            names = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
            if isinstance(at, str):
                yield at
            elif at is not None and at < len(names):
                yield names[at]

    def _is_all_visible(self) -> bool:
        """Whether nothing but the visible calls of their methods can change the parsers."""
        classes = [base for node in self._nodes if isinstance(node, ast.ClassDef) for base in node.bases]
        if not self._names or any(ast.unparse(base).endswith("ArgumentParser") for base in classes):
            return False
        if not self._is_own_argparse():
            return False
        if not all(_is_plain(call) for call in self._calls if self._is_new(call)):
            return False
        seen = {id(one) for one in self._visible_uses()}
        parsers = [one for one in self._calls if self._is_parser(one)]
        names = [one for one in self._nodes if isinstance(one, ast.Name) and one.id in self._names]
        imported = {one.asname or one.name for one in self._nodes if isinstance(one, ast.alias)}
        owners = [call.func.value for call in self._methods("add_argument", "parse_args")]  # type: ignore[attr-defined]
        return not imported & self._names and all(id(one) in seen for one in (*names, *parsers, *owners))

    def _is_own_argparse(self) -> bool:
        """Whether the names of argparse and its parser are bound once, and nothing can change what is in them."""
        bound = Counter(name for node in self._nodes for name in names_bound(node))
        roots = {name.partition(".")[0] for name in self._classes}
        attributes = [one for one in self._nodes if isinstance(one, ast.Attribute)]
        if any(not isinstance(one.ctx, ast.Load) and _root(one) in roots for one in attributes):
            return False
        read = {id(one.value) for one in attributes} | {id(call.func) for call in self._calls}
        uses = [one for one in self._nodes if isinstance(one, ast.Name) and one.id in roots]
        return all(bound[name] == 1 for name in roots) and all(id(one) in read for one in uses)

    def _visible_uses(self) -> Iterator[ast.expr]:
        """Return the uses of a parser that add no option but those of add_argument."""
        for target, value in self._made:
            yield from (target, value)
        for call in self._calls:
            yield from (one for _, one in self._passed(call))
            if isinstance(call.func, ast.Attribute) and call.func.attr in _METHODS:
                owner = call.func.value
                if self._is_parser(owner) or (isinstance(owner, ast.Name) and owner.id in self._names):
                    yield owner
        for maker in self._makers:
            returns = (one for one in ast.walk(self._functions[maker]) if isinstance(one, ast.Return))
            yield from (one.value for one in returns if one.value is not None)
        for node in self._nodes:
            if isinstance(node, ast.Assign) and isinstance(text := node.targets[0], ast.Attribute):
                yield from (text.value,) if text.attr in _TEXTS else ()

    def _is_parsed(self, body: Sequence[ast.stmt], seen: set[str]) -> bool:
        """Whether statements certainly parse the command line, themselves or in the functions that they call."""
        for statement in until_exit(body):
            if isinstance(statement, ast.If) and main_guard(statement.test):
                if self._is_parsed(statement.body, seen):
                    return True
            elif isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign | ast.Return):
                calls = (node for node in ast.walk(statement) if isinstance(node, ast.Call))
                if any(self._parses(call, seen) for call in calls):
                    return True
        return False

    def _parses(self, call: ast.Call, seen: set[str]) -> bool:
        if isinstance(call.func, ast.Attribute):
            return call.func.attr == "parse_args" and not call.args and not call.keywords
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        if name not in self._functions or name in seen:
            return False
        seen.add(name)
        function = self._functions[name]
        decorators = [ast.unparse(one) for one in function.decorator_list]
        return all(one.endswith("record") for one in decorators) and self._is_parsed(function.body, seen)


def _classes(nodes: Sequence[ast.AST]) -> set[str]:
    """Return the names under which a script has argparse's own parser."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {f"{one.asname or one.name}.ArgumentParser" for one in node.names if one.name == "argparse"}
        elif isinstance(node, ast.ImportFrom) and node.module == "argparse":
            found |= {one.asname or one.name for one in node.names if one.name == "ArgumentParser"}
    return found


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_plain(call: ast.Call) -> bool:
    return all(one.arg in (*_TEXTS, "add_help", "allow_abbrev", "argument_default") for one in call.keywords)
