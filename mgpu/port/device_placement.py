"""Devices: `.cuda()`, `.to("cuda")` and `device = ...` become the rank's own device."""

from __future__ import annotations

import re

import libcst as cst

from mgpu.port.porting import Porting
from mgpu.port.source_tree import Key, assigned, dotted, flat, method, nodes, receiver, targets, text_of

_REASON = "Each rank has its own GPU. A fixed device is GPU 0 on every rank."
_LIMITED = "CUDA_VISIBLE_DEVICES and set_device would give every rank the same GPU. The launcher selects the GPUs."
_CUDA = re.compile(r"['\"](?:cuda|gpu|npu|xpu|mps)(?::\d+)?['\"]|torch\.(?:cuda|accelerator|backends\.mps)\b")
_OPTIONS = re.compile(r"(?:args?|opts?|cfg|conf|config|hparams|hps|flags|params|options|parsed)", re.IGNORECASE)
_NUMBERED = re.compile(r"(?:cuda|npu|xpu):\d+")
_WITH_DEVICE = re.compile(r"torch\.cuda\.device")


def plan(porting: Porting) -> None:
    """Collect the changes of device placement."""
    _Devices(porting).collect()


def _is_docstring(node: cst.CSTNode) -> bool:
    return (
        isinstance(node, cst.SimpleStatementLine)
        and isinstance(node.body[0], cst.Expr)
        and (isinstance(node.body[0].value, (cst.SimpleString, cst.ConcatenatedString)))
    )


class _Devices:
    def __init__(self, porting: Porting) -> None:
        self.porting, self.tree, self.changes = porting, porting.tree, porting.changes
        self.done: set[int] = set()
        self.text_keys: set[Key] = set()

    def collect(self) -> None:
        every = list(nodes(self.tree.module))
        self._variables(every)
        for node in every:
            if isinstance(node, cst.Call):
                self._call(node)
            elif isinstance(node, cst.Assign):
                self._environment(node)
            elif isinstance(node, cst.Comparison):
                self._comparison(node)
            elif isinstance(node, cst.FunctionDef):
                self._default(node)
        self._options(every)
        for node in every:
            if isinstance(node, cst.SimpleString) and _NUMBERED.fullmatch(text_of(node) or ""):
                self._numbered(node)

    def _is_done(self, node: cst.CSTNode) -> bool:
        return id(node) in self.done or any(id(above) in self.done for above in self.tree.parents(node))

    def _replace(self, node: cst.CSTNode, code: str) -> None:
        if not self._is_done(node):
            self.done.add(id(node))
            self.changes.replace(node, code, _REASON)

    def _names_gpu(self, node: cst.BaseExpression | None) -> bool:
        """Whether an expression selects the GPU."""
        if node is None:
            return False
        if isinstance(node, cst.Integer):
            return True
        if isinstance(node, cst.Call) and self.tree.name(node.func) != "torch.device":
            return False
        if isinstance(node, cst.Attribute) and node.attr.value.endswith("device"):
            return bool(_OPTIONS.fullmatch(dotted(node.value)))
        if isinstance(node, (cst.Name, cst.Attribute)):
            return False
        return bool(_CUDA.search(self.tree.code(node)))

    def _variables(self, every: list[cst.CSTNode]) -> None:
        """`device = ...` in all its branches, if one of them selects a GPU."""
        found: dict[Key, list[tuple[cst.BaseExpression, bool]]] = {}
        for node in every:
            if (value := assigned(node)) is None:
                continue
            for target in [name for one in targets(node) for name in flat(one)]:
                key = self.tree.key(target)
                if key is None or not key[1].lower().endswith(("device", "dev")):
                    continue
                of_device = isinstance(value, cst.Call) and self.tree.name(value.func) == "torch.device"
                gpu = bool(_CUDA.search(self.tree.code(value))) or (of_device and "cpu" not in self.tree.code(value))
                found.setdefault(key, []).append((value, gpu))
                branch = value.body if isinstance(value, cst.IfExp) else value
                if text_of(branch) is not None:
                    self.text_keys.add(key)
        for key, values in found.items():
            if any(gpu for _, gpu in values):
                code = f"str({self.porting.device})" if key in self.text_keys else self.porting.device
                for value, _ in values:
                    self._replace(value, code)

    def _call(self, call: cst.Call) -> None:
        name = self.tree.name(call.func)
        if name in ("torch.cuda.set_device", "torch.accelerator.set_device_index", "torch.accelerator.set_device_idx"):
            self.changes.remove(call, _LIMITED)
            self.done.add(id(call))
        elif _WITH_DEVICE.fullmatch(name):
            self.changes.decide(call, f"{name} uses the current GPU: create it on {self.porting.device} instead.")
        elif method(call) == "cuda" and receiver(call) is not None and name != "torch.cuda":
            self._cuda(call)
        elif method(call) == "to" and receiver(call) is not None and call.args:
            first = call.args[0]
            if (first.keyword is None or first.keyword.value == "device") and self._names_gpu(first.value):
                self._replace(first.value, self.porting.device)
        elif name in ("torch.device", "torch.set_default_device") and call.args and not self._is_done(call):
            value = call.args[0].value
            if self._names_gpu(value) and not isinstance(value, cst.Integer):
                self._replace(call if name == "torch.device" else value, self.porting.device)
        if method(call) not in ("add_argument", "to"):
            for one in call.args:
                wanted = one.keyword is not None and one.keyword.value in ("device", "map_location")
                if wanted and self._names_gpu(one.value):
                    self._replace(one.value, self.porting.device)

    def _default(self, function: cst.FunctionDef) -> None:
        """`def train(device="cuda:0")`: callers may pass it too, so it is set where the function starts."""
        for one in function.params.params:
            name = one.name.value
            names_gpu = one.default is not None and bool(_CUDA.search(self.tree.code(one.default)))
            if names_gpu and name.endswith("device") and isinstance(function.body, cst.IndentedBlock):
                body = [b for b in function.body.body if not _is_docstring(b)]
                if body:  # else it only has a docstring
                    self.changes.before(body[0], [f"{name} = str({self.porting.device})"], _REASON)
                self.done.add(id(one))

    def _numbered(self, node: cst.SimpleString) -> None:
        """A GPU's number that no other rule has replaced."""
        call = self.tree.inside(node, cst.Call)
        if self._is_done(node) or (call is not None and method(call) == "add_argument"):
            return
        if call is not None and isinstance(self.tree.parent(node), cst.Arg) and self.porting.roles.local_function(call):
            self._replace(node, f"str({self.porting.device})")
        elif not isinstance(self.tree.parent(node), cst.ComparisonTarget):
            self.changes.decide(node, f"{text_of(node)} is the same GPU on every rank: use {self.porting.device}.")

    def _cuda(self, call: cst.Call) -> None:
        kept = [one for one in call.args if one.keyword is not None and one.keyword.value == "non_blocking"]
        device = cst.Arg(cst.parse_expression(self.porting.device))

        def edit(updated: cst.Call) -> cst.Call:
            assert isinstance(updated.func, cst.Attribute)
            return updated.with_changes(
                func=updated.func.with_changes(attr=cst.Name("to")),
                args=[device.with_changes(comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))), *kept]
                if kept
                else [device],
            )

        if not self._is_done(call):
            self.changes.edit(call, edit, _REASON)

    def _environment(self, node: cst.Assign) -> None:
        """`os.environ["CUDA_VISIBLE_DEVICES"] = "0"`."""
        for one in node.targets:
            target = one.target
            if isinstance(target, cst.Subscript) and "CUDA_VISIBLE_DEVICES" in self.tree.code(target):
                self.changes.remove(node, _LIMITED)

    def _comparison(self, node: cst.Comparison) -> None:
        """`device == "cuda"`, where the device has a number now."""
        key = self.tree.key(node.left) if isinstance(node.left, (cst.Name, cst.Attribute)) else None
        if key not in self.text_keys or len(node.comparisons) != 1:
            return
        test = node.comparisons[0]
        kind = text_of(test.comparator)
        if kind in ("cuda", "cpu", "mps") and isinstance(test.operator, (cst.Equal, cst.NotEqual)):
            sign = "==" if isinstance(test.operator, cst.Equal) else "!="
            self._replace(node, f'{self.porting.device}.type {sign} "{kind}"')

    def _options(self, every: list[cst.CSTNode]) -> None:
        """`args.device` of a parsed command line."""
        for node in every:
            value = assigned(node)
            if not isinstance(value, cst.Call):
                continue
            if method(value) not in ("parse_args", "parse_known_args", "get_args"):
                continue
            name = dotted(flat(targets(node)[0])[0])
            wanted = f"{name}.device"
            used = [one for one in every if isinstance(one, cst.Attribute) and dotted(one) == wanted]
            used = [one for one in used if not self._is_done(one)]
            is_set = any(wanted == dotted(t) for one in every for t in targets(one))
            if name and used and not is_set:
                self.changes.after(node, [f"{wanted} = str({self.porting.device})"], _REASON)
