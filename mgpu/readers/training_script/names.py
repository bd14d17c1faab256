"""Which value does an expression of a script have, as far as names show?"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from mgpu.readers.training_script.aliases import canonical
from mgpu.readers.training_script.held_conditions import held_condition, known_condition
from mgpu.readers.training_script.known_libraries import defined_option
from mgpu.readers.training_script.own_scopes import OWN_SCOPES, OwnScope, inner_scope, parts_of
from mgpu.readers.training_script.rank_conditions import NOTHING, Guards, Split, classify, is_rank, merge_guards
from mgpu.readers.training_script.scopes import LONGEST, Around, Scope, Source, Spot, Walk, under
from mgpu.readers.training_script.unique_texts import (
    USES_PATH,
    dotted_names,
    given,
    is_text_or_path,
    is_timed_text,
    is_unique_text,
    last_name,
)

_LONGEST_NAME = 160
MOST = 5000  # entries of each kind; a script of 2,000 lines has about 800 calls

# Methods that return their object, and functions that return their argument.
_SAME = frozenset(
    {"to", "cuda", "cpu", "train", "eval", "half", "float", "bfloat16", "double", "requires_grad_", "apply"}
)
_WRAPS = frozenset({"torch.compile", "int", "str", "bool", "float"})
# Functions that run a function passed to them on every rank. Any other may run it on one rank only, as a hook.
_STARTS = re.compile(r"(?:spawn|start_processes|launcher|launch|Process|Fire|run|app|partial|set_defaults)$")
_TEXTS = re.compile(r"cuda(?::\d+)?$|(?:tcp|file|env)://|.*\b(?:localhost|127\.0\.0\.1)\b")


@dataclass
class Frame:
    """The body of a function or class, or a module's top level, while it is read."""

    walk: Walk
    source: Source
    scope: Scope
    number: int  # of the function; -1: the top level
    inside: str  # prefix of the names of functions in it
    owner: str = ""  # the class whose body this is
    constants: Mapping[str, object] = field(default_factory=dict)  # parameters with one value in every run

    def spot(self, node: ast.AST, around: Around) -> Spot:
        """Return the position of a node."""
        return self.source.file, node.lineno, self.source.column(node), self.number, around  # type: ignore[attr-defined]

    def look(self, tree: ast.expr, around: Around, targets: Sequence[ast.expr] = ()) -> None:
        """Record the calls in an expression; `targets` are the names its value is assigned to."""
        found: list[tuple[ast.AST, Around]] = []
        stack: list[tuple[ast.AST, Around]] = [(tree, around)]
        while stack:
            node, here = stack.pop()
            kind = type(node)
            if kind is ast.Constant:
                if type(node.value) is str and _TEXTS.match(node.value):  # type: ignore[attr-defined]
                    self._text(node, here)
                continue
            found.append((node, here))
            if kind is ast.Attribute:
                stack.append((node.value, here))  # type: ignore[attr-defined]
            elif kind is ast.IfExp or kind is ast.BoolOp:
                stack.extend(self._branches(node, here))  # type: ignore[arg-type]
            elif kind in OWN_SCOPES:
                stack.extend([(outside, here) for outside in self._look_inside(node, here)])  # type: ignore[arg-type]
            elif kind is not ast.Name:
                stack.extend([(child, here) for child in ast.iter_child_nodes(node)])
        calls = [node for node, _ in found if isinstance(node, ast.Call)]
        heads = {id(node.func) for node in calls}
        passed = {id(one) for node in calls if not _STARTS.search(last_name(node.func)) for one in given(node)}
        for node, here in reversed(found):
            if isinstance(node, ast.Call):
                self._call(node, here, targets if node is tree else ())
            elif isinstance(node, ast.Name | ast.Attribute):
                unsure = (merge_guards(here[0], ("some",)), *here[1:]) if id(node) in passed else here
                self._use(node, unsure, called=id(node) in heads)
            elif isinstance(node, ast.NamedExpr):
                self.bind(node.target, node.value)

    def _look_inside(self, node: OwnScope, around: Around) -> list[ast.expr]:
        """Record the calls in a comprehension or a lambda, whose variables are its own; return what is outside."""
        inner = replace(self, scope=inner_scope(node, self.scope, self.is_unique_part))
        inside, outside, tests = parts_of(node)
        guards = (guard for test in tests for guard in inner.split(test)[0])
        unsure: Guards = ("some",) if isinstance(node, ast.Lambda) else tuple(guards)
        for part in inside:
            inner.look(part, (merge_guards(around[0], unsure), *around[1:]))
        return outside

    def _use(self, node: ast.Name | ast.Attribute, around: Around, *, called: bool) -> None:
        """Record that a function or class is referenced, or a method by its name."""
        walk = self.walk
        self.note_read(node.id if isinstance(node, ast.Name) else node.attr)
        name = self.scope.find(node.id) if isinstance(node, ast.Name) else self.resolve(node)
        if isinstance(node, ast.Attribute) and not self._is_library(node.value):  # torch.save is no method save
            walk.used.setdefault(self.number, set()).add(node.attr)
        if name is None:
            return
        if isinstance(node, ast.Name) and self.scope.is_unknown(node.id):
            return
        if name in walk.bases:
            walk.used.setdefault(self.number, set()).add(name)
            if not called:
                walk.passed.add(name)
        elif not called and (name in walk.by_name or getattr(walk.own_function(name), "is_property", False)):
            walk.record_call(name, node, self, around)  # passed as a value: its caller is not known

    def condition(self, test: ast.expr, *, negated: bool = False) -> str:
        """Return a condition as it is written, or the opposite: "args.ddp", "not (args.ddp)"."""
        if negated and isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self.condition(test.operand)
        text = self.walk.mask("", self.source.words(test))
        return f"not ({text})" if negated else text

    def note_read(self, name: str) -> None:
        """Record that this code reads a variable, or an attribute of this name."""
        self.walk.reads.setdefault(self.number, set()).add(name)

    def note_variables(self, node: ast.stmt, targets: Sequence[ast.expr]) -> None:
        """Record the lines of an assignment to variables of a top level."""
        names = {one.id for one in targets if isinstance(one, ast.Name)}
        if self.number < 0 and not self.owner and len(names) == len(targets):
            lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            self.walk.variables.append((self.source.file, lines, names))

    def _is_library(self, node: ast.expr) -> bool:
        """Whether an expression is an imported module that is not one of the project."""
        module = self.resolve(node)
        return module in self.walk.imports and module not in self.walk.modules

    def _branches(self, node: ast.IfExp | ast.BoolOp, around: Around) -> list[tuple[ast.AST, Around]]:
        """Return the parts of `a if test else b` and `test and a`, guarded by the test as in an `if`."""

        def behind(guards: Guards, test: ast.expr, *, negated: bool) -> Around:
            words = self.condition(test, negated=negated)
            return under(around, guards, () if guards else (words,), words)

        test = node.test if isinstance(node, ast.IfExp) else node.values[0]
        yes, no = self.split(test)
        if isinstance(node, ast.IfExp):
            body, other = behind(yes, test, negated=False), behind(no, test, negated=True)
            return [(test, around), (node.body, body), (node.orelse, other)]
        both = isinstance(node.op, ast.And)
        after = behind(yes if both else no, test, negated=not both)
        return [(test, around), *((value, after) for value in node.values[1:])]

    def _text(self, node: ast.AST, around: Around) -> None:
        if len(self.walk.texts) >= MOST:
            self.walk.cut = True
            return
        self.walk.texts.append((self.spot(node, around), {"text": self.walk.mask("", node.value[:LONGEST])}))  # type: ignore[attr-defined]

    def _call(self, node: ast.Call, around: Around, targets: Sequence[ast.expr]) -> None:
        walk, words = self.walk, self.source.words
        name = self.resolve(node.func) or words(node.func, _LONGEST_NAME)
        unknown = isinstance(node.func, ast.Name) and self.scope.is_unknown(node.func.id)
        own = None if unknown else walk.record_call(name, node, self, around)
        if own is None and isinstance(node.func, ast.Attribute) and not self._is_library(node.func.value):
            walk.maybe.setdefault(node.func.attr, []).append(self.spot(node, around))
        if len(walk.calls) >= MOST:
            walk.cut = True
            return
        keywords = {
            (keyword.arg or "**"): walk.mask(keyword.arg or "", self.value(keyword.value)) for keyword in node.keywords
        }
        unique = [one for one in given(node) if self.is_unique(one)] if USES_PATH.search(name) else []
        if isinstance(node.func, ast.Attribute) and node.func.attr == "mkdir" and self.is_unique_part(node.func.value):
            unique.append(node.func.value)
        what = {
            "name": name,
            "arguments": tuple(walk.mask("", self.value(argument)) for argument in node.args),
            "keywords": keywords,
            "targets": tuple(words(one) for target in targets for one in parts(target)),
            "written": (
                *(walk.mask("", words(argument)) for argument in node.args),
                *(walk.mask(keyword.arg or "", words(keyword.value)) for keyword in node.keywords),
            ),
            "on": words(node.func.value)
            if isinstance(node.func, ast.Attribute) and node.func.attr == "backward"
            else "",
            "unique": bool(unique),
            "timed": bool(unique) and all(map(self.is_timed, unique)),
        }
        walk.calls.append((self.spot(node, around), what))
        if (option := defined_option(name, node, keywords, self.value)) is not None:
            walk.options.append((self.spot(node, around), option))

    # --- values ------------------------------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> str:
        """Return a value as text."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = repr(node.value[:LONGEST])
            return text if len(text) <= LONGEST else text[: LONGEST - 4] + "...'"
        if isinstance(node, ast.Starred):
            return "*" + self.value(node.value)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            return self.source.words(node)  # data[rank::world_size]
        if isinstance(node, ast.Name) and self.scope.is_looped(node.id) and is_rank(node.id):
            return f"{node.id}[]"  # not the number of this process
        if isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
            return (self.resolve(node) or self.source.words(node))[:LONGEST]
        return self.source.words(node)

    def resolve(self, node: ast.expr) -> str | None:
        """Return the dotted name of an expression's value if it can be resolved; else as written, or None."""
        if isinstance(node, ast.Name):
            return self.scope.find(node.id) or node.id
        if isinstance(node, ast.Attribute):
            return self._attribute(self.resolve(node.value), node.attr)
        if isinstance(node, ast.Call):
            return self._call_result(node)
        if isinstance(node, ast.Subscript):
            above = self.resolve(node.value)
            key = node.slice
            if isinstance(key, ast.Constant) and above is not None:
                name = f"{above}[{key.value!r}]"[:_LONGEST_NAME]
                return self.walk.attributes.get(name, name)
            return None if above is None else f"{above}[]"
        if isinstance(node, ast.Await | ast.Starred | ast.NamedExpr):
            return self.resolve(node.value)
        if isinstance(node, ast.IfExp):
            return self.resolve(node.body)
        return None

    def _attribute(self, above: str | None, name: str) -> str | None:
        """Return the name of an attribute of the object named `above`."""
        if above is None or len(above) > _LONGEST_NAME:
            return None
        module = self.walk.modules.get(above)
        if module is not None and module.names.get(name, name) != name:  # defined there, or imported from elsewhere
            return module.names[name]
        whole = canonical(f"{above}.{name}")
        found = self.walk.attributes.get(whole)
        if found is None and above.endswith("()"):  # set by the __init__ of a base class
            objects = (f"{base}().{name}" for base in self.walk.all_bases(above.removesuffix("()")))
            found = next((self.walk.attributes[one] for one in objects if one in self.walk.attributes), None)
        return found or whole

    def _call_result(self, node: ast.Call) -> str | None:
        """Return the name of a call's result."""
        function = node.func
        if isinstance(function, ast.Name) and function.id == "super" and self.number >= 0:
            bases = self.walk.bases.get(self.walk.functions[self.number].owner, [])
            return f"{bases[0]}()" if bases and bases[0] else "super()"
        if isinstance(function, ast.Attribute) and function.attr in _SAME:
            above = self.resolve(function.value)  # once: a chain of these would double the work at each link
            name = self._attribute(above, function.attr)
            is_object = above is not None and above != "torch" and above not in self.walk.modules
            if is_object and self.walk.own_function(name or "") is None:
                return above
        else:
            name = self.resolve(function)
        if name is None:
            return None
        if name in _WRAPS and node.args:
            return self.resolve(node.args[0]) or f"{name}()"
        if name in ("os.environ.get", "os.getenv") and node.args and isinstance(key := node.args[0], ast.Constant):
            return f"os.environ[{key.value!r}]"
        own = self.walk.own_function(name)
        if own is not None and own.node.name != "__init__" and isinstance(own.returns, str) and "." in own.returns:
            return own.returns
        return f"{name}()"[:_LONGEST_NAME]

    def split(self, test: ast.expr) -> Split:
        """Return the ranks for which a condition is true, and those for which it is false."""
        return classify(test, self.both, self.known_split)

    def both(self, node: ast.expr) -> str:
        """Return an expression as it is written, and its resolved name on another line; "" for a loop's variable."""
        if isinstance(node, ast.Name) and self.scope.is_looped(node.id):
            return ""
        return f"{self.source.words(node)}\n{self.resolve(node) or ''}"

    def known_split(self, node: ast.expr) -> Split | None:
        """Return the rank condition that a variable, attribute or the script's own function holds."""
        return known_condition(node, self.scope, self.walk, self.resolve)

    def is_unique(self, node: ast.expr) -> bool:
        """Whether a text or path contains the rank, a process id, a time or a random name, also through variables."""
        return is_text_or_path(node) and self.is_unique_part(node)

    def is_unique_part(self, node: ast.expr) -> bool:
        """Whether any part of an expression contains the rank, a process id, a time or a random name."""
        text = self.source.words(node, 4 * LONGEST)
        return is_unique_text(text) or any(self._is_unique_name(name) for name in dotted_names(text))

    def is_timed(self, node: ast.expr) -> bool:
        """Whether nothing but a time makes a text different in each process."""
        text = self.source.words(node, 4 * LONGEST)
        found = [one for one in dotted_names(text) if self._is_unique_name(one)]
        return is_timed_text(text) and all(one in self.walk.timed for one in map(self._place_of_name, found))

    def _place_of_name(self, dotted: str) -> str:
        """Return the key of a variable or attribute in `Walk.timed`."""
        first, _, rest = dotted.partition(".")
        if self.scope.is_unique(first):
            return f"{self.number}:{first}"
        return f"{self.scope.find(first) or first}.{rest.partition('.')[0]}"

    def _is_unique_name(self, dotted: str) -> bool:
        first, dot, rest = dotted.partition(".")
        place = f"{self.scope.find(first) or first}.{rest.partition('.')[0]}"
        return self.scope.is_unique(first) or (bool(dot) and place in self.walk.unique)

    def bind(self, target: ast.expr, value: ast.expr) -> None:
        """Bind a name to a value."""
        unique = self.is_unique(value)
        timed = unique and self.is_timed(value)
        self._bind_unique(target, unique)
        for one in parts(target) if unique else ():
            place = self._place_of_name(self.source.words(one))
            (self.walk.timed.add if timed else self.walk.timed.discard)(place)
        if isinstance(target, ast.Tuple | ast.List):
            values = self._several(value, len(target.elts))
            for one, (given, split) in zip(target.elts, values, strict=True):
                self._bind(one, given, split)
            return
        self._bind(target, self.resolve(value), self._held_split(value))

    def _held_split(self, value: ast.expr) -> Split:
        return held_condition(value, self.split, self.known_split, self.source.words)

    def bind_flag(self, target: ast.expr, around: Around, *, was_plain: bool) -> None:
        """Bind a name to True or False. If every rank does so, its name does not mean a condition on the rank.

        `was_plain`: so far it does not either. Only in a function: another function may change a global variable.
        """
        if not isinstance(target, ast.Name) or target.id in self.scope.elsewhere:
            return
        if self.number >= 0 and not around[0] and (was_plain or not around[1]):
            self.scope.splits[target.id] = NOTHING

    def is_plain(self, target: ast.expr) -> bool:
        """Whether a variable of this function is certainly not a condition on the rank."""
        return isinstance(target, ast.Name) and self.scope.splits.get(target.id) == NOTHING

    def _bind_unique(self, target: ast.expr, unique: bool) -> None:
        for one in parts(target):
            if isinstance(one, ast.Name):
                scope = self.scope.home(one.id)
                (scope.unique.add if unique else scope.unique.discard)(one.id)
            elif isinstance(one, ast.Attribute) and unique:
                self.walk.unique.add(f"{self.resolve(one.value)}.{one.attr}")

    def _several(self, value: ast.expr, number: int) -> list[tuple[str | None, Split]]:
        if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == number:
            return [(self.resolve(item), self._held_split(item)) for item in value.elts]
        if isinstance(value, ast.Call):
            own = self.walk.own_function(self.resolve(value.func) or "")
            if own is not None and isinstance(own.returns, list) and len(own.returns) == number:
                return [(one, NOTHING) for one in own.returns]
            return [(self.resolve(value), NOTHING)] * number
        return [(None, NOTHING)] * number

    def _bind(self, target: ast.expr, given: str | None, split: Split = NOTHING) -> None:
        if isinstance(target, ast.Starred):
            target = target.value
        if isinstance(target, ast.Name):
            scope = self.scope.home(target.id)
            scope.names[target.id] = given if given is not None else target.id
            scope.looped.discard(target.id)
            (scope.unknown.add if given is None and self.number >= 0 else scope.unknown.discard)(target.id)
            scope.splits.pop(target.id, None)
            if split != NOTHING:
                scope.splits[target.id] = split
        elif isinstance(target, ast.Attribute):
            above = self.resolve(target.value)
            name = f"{above}.{target.attr}"
            self.walk.splits.pop(name, None)
            if split != NOTHING:
                self.walk.splits[name] = split
                for base in self.walk.all_bases((above or "").removesuffix("()")):  # whose methods read it too
                    self.walk.splits.setdefault(f"{base}().{target.attr}", split)
            self.walk.attributes.pop(name, None)
            of_rank = split == NOTHING or is_rank(given or "")  # `self.number = get_rank()` is both
            if of_rank and given is not None and given != name and name not in given:
                self.walk.attributes[name] = given

    def forget(self, name: str, *, unique: bool) -> None:
        """Bind a loop variable, which resolves to itself; `unique`: it depends on the rank."""
        scope = self.scope.home(name)
        (scope.unique.add if unique else scope.unique.discard)(name)
        scope.names[name] = name
        scope.looped.add(name)
        (scope.unknown.add if self.number >= 0 else scope.unknown.discard)(name)
        scope.splits.pop(name, None)


def parts(target: ast.expr) -> Sequence[ast.expr]:
    """Return the targets that a value is unpacked to; the target itself if it is not unpacked."""
    return target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
