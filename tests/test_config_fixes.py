"""Does an edit of a config change what it is about, and nothing else?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mgpu.check import Edit
from mgpu.config.fixes import CannotFix, apply, comments, diff

TEXT = """\
# by hand, for the lab's machine
compute_environment: LOCAL_MACHINE
distributed_type: FSDP    # not DDP
mixed_precision: no       # for now
gpu_ids: [0, 1]  # both

debug: "false"  # why
rdzv_backend:   static
fsdp_config:   # from the guide
    # version 2 since May
    fsdp_version: 2
    offload: 'a # b'  # no
use_cpu:
num_processes: 2
# end
"""


def changed(old: str, new: str) -> list[str]:
    """The lines that differ, as a diff shows them."""
    return [line for line in diff(old, new, "")[2:] if line[:1] in "+-"]


@pytest.mark.parametrize(
    ("edits", "lines"),
    [
        ([Edit("set", "mixed_precision", "no")],
         ["-mixed_precision: no       # for now", "+mixed_precision: 'no'     # for now"]),
        ([Edit("set", "gpu_ids", "0,1")], ["-gpu_ids: [0, 1]  # both", "+gpu_ids: '0,1'  # both"]),
        ([Edit("set", "debug", False)], ['-debug: "false"  # why', "+debug: false  # why"]),
        ([Edit("set", "debug", "x")], ['-debug: "false"  # why', '+debug: "x"  # why']),
        ([Edit("delete", "rdzv_backend")], ["-rdzv_backend:   static"]),
        ([Edit("rename", "rdzv_backend", to="backend")], ["-rdzv_backend:   static", "+backend:   static"]),
        ([Edit("set", "use_cpu", True)], ["-use_cpu:", "+use_cpu: true"]),
        ([Edit("set", "num_machines", 1)], ["+num_machines: 1"]),
        ([Edit("set", "fsdp_config.wrap", "NO_WRAP")], ["+    wrap: NO_WRAP"]),
        ([Edit("set", "dynamo_config.a.b", 1e-5)], ["+dynamo_config:", "+    a:", "+        b: 1.0e-05"]),
        ([Edit("rename", "fsdp_config.offload", to="offload")],
         ["-    offload: 'a # b'  # no", "+offload: 'a # b'  # no"]),
        ([Edit("rename", "debug", to="fsdp_config.debug")], ['-debug: "false"  # why', '+    debug: "false"  # why']),
        ([Edit("rename", "debug", to="new.debug")],
         ['-debug: "false"  # why', "+new:", "+    debug: 'false'  # why"]),
        ([Edit("delete", "fsdp_config.fsdp_version"), Edit("delete", "fsdp_config.offload")],
         ["-fsdp_config:   # from the guide", "+fsdp_config: {}   # from the guide", "-    fsdp_version: 2",
          "-    offload: 'a # b'  # no"]),
        ([Edit("set", "use_cpu.x", 1)], ["+  x: 1"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_only_the_lines_it_is_about_change(edits: Sequence[Edit], lines: list[str], newline: str, bom: str) -> None:
    old = bom + TEXT.replace("\n", newline)
    new = apply(old, edits)
    assert changed(old, new) == [line.replace("+  x", "+    x") for line in lines]
    assert new.startswith(bom) and new.count(newline) == new.count("\n")


@pytest.mark.parametrize(
    ("text", "edit", "result"),
    [
        ("a: 1\na: 2 # c\nb: 3\n", Edit("drop_line", "a", line=1), "a: 2 # c\nb: 3\n"),
        ("s:\n  a: 1\n  a: 1\nb: 3", Edit("drop_line", "s.a", line=2), "s:\n  a: 1\nb: 3"),
        ("{a: 1, b: 2}\n", Edit("delete", "a"), "{b: 2}\n"),
        ("{a: 1, b: 2}\n", Edit("delete", "b"), "{a: 1}\n"),
        ("s: {a: 1}\n", Edit("delete", "s.a"), "s: {}\n"),
        ("s: {}\n", Edit("set", "s.a", "no"), "s: {a: 'no'}\n"),
        ("a: |\n  one # no\n\n# c\nb: 1", Edit("delete", "a"), "\n# c\nb: 1"),
        ("a: 1\nb: 1", Edit("set", "c", 1), "a: 1\nb: 1\nc: 1"),
        ("a: 1  # c", Edit("set", "c", 1), "a: 1  # c\nc: 1"),
        ("c:\n- 1\n- 2\nd: 1\n", Edit("set", "c", "1,2"), "c: '1,2'\nd: 1\n"),
        ("c: null  # why\nd: 1\n", Edit("set", "c", {"x": {"y": 1}}), "c:  # why\n  x:\n    y: 1\nd: 1\n"),
        ("", Edit("set", "a", 1), "a: 1\n"),
        ("# c\n", Edit("set", "a", "yes"), "# c\na: 'yes'\n"),
        ("a: 1\n", Edit("set", "a", "it's"), "a: 'it''s'\n"),
        ("a: 1\n", Edit("set", "a", "two\nlines"), 'a: "two\\nlines"\n'),
        ("a: 1\n", Edit("set", "a", [0, "1"]), "a: [0, '1']\n"),
        ("a: 1\n", Edit("set", "a", None), "a: null\n"),
        ("? a\n: 1\n", Edit("set", "a", 2), "? a\n: 2\n"),
        ("a: !!str 1\n", Edit("set", "a", 1), "a: 1\n"),
        ("a: two\n  lines\nb: 1\n", Edit("set", "a", 1), "a: 1\nb: 1\n"),
    ],
)  # fmt: skip
def test_yaml_of_any_style(text: str, edit: Edit, result: str) -> None:
    assert apply(text, [edit]) == result


def test_json_stays_json() -> None:
    text = '{\n\t"a": "x",\n\t"b": {"c": false},\n\t"d": 1\n}\n'
    edits = [
        Edit("set", "a", "no"),
        Edit("delete", "d"),
        Edit("set", "e", {"f": None}),
        Edit("rename", "b.c", to="b.x"),
    ]
    assert apply(text, edits, json_only=True) == '{\n\t"a": "no",\n\t"b": {"x": false},\n\t"e": {"f": null}\n}\n'


@pytest.mark.parametrize(
    ("text", "edit", "why"),
    [
        ("a: 1\na: 2\n", Edit("drop_line", "a", line=2), "other values"),  # the last one counts
        ("a: 1\n", Edit("drop_line", "a", line=7), "no key begins on line 7"),
        ("a: 1\n", Edit("delete", "b"), "b does not exist"),
        ("a: 1\n", Edit("delete", "a"), "would be empty"),
        ("a: 1\nb: 2\n", Edit("rename", "a", to="b"), "b already exists"),
        ("a: 1\n", Edit("set", "a.b", 1), "a is not a section"),
        ("- a\n", Edit("set", "a", 1), "not a mapping"),
        ("a: [\n", Edit("set", "a", 1), "cannot be read"),
        ("a: &x 1\nb: *x\n", Edit("set", "b", 2), "alias"),
        ("a: &x 1\nb: *x\n", Edit("set", "a", 2), "cannot be read"),
        ("a:\n- 1 # one\n- 2\n", Edit("set", "a", 2), "a comment would be lost"),
        ("a:\n  x: 1 # one\nb: 2\n", Edit("rename", "a", to="c.a"), "manually"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_safely_is_not_done(text: str, edit: Edit, why: str) -> None:
    with pytest.raises(CannotFix, match=why):
        apply(text, [edit])


# ---- any file, any edits

NAMES = ("alpha", "beta", "gamma", "no", "num_processes", "x1")
SCALARS: dict[str, Any] = {
    "1": 1, "2.5": 2.5, "true": True, "no": False, "'no'": "no", '"a # b"': "a # b", "plain text": "plain text",
    "010": 8, "null": None, "[1, 'b']": [1, "b"], "{k: v}": {"k": "v"}, "''": "", "1:30": 90,
}  # fmt: skip
values = st.sampled_from(["no", "0,1", True, False, 3, 0.001, None, "it's: x # y", "é", ["a"], {"k": {"l": 1}}])


@st.composite
def files(draw: st.DrawFn) -> str:
    """A config with sections, blank lines, and comments that no two are alike."""
    number = 0

    def comment(gap: str) -> str:
        nonlocal number
        number += 1
        return f"{gap}# c{number} {draw(st.sampled_from(['', 'it: x', 'é', '# more']))}".rstrip()

    def lines(indent: str, depth: int) -> list[str]:
        found = []
        for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True)):
            if draw(st.booleans()):
                found.append(draw(st.sampled_from(["", comment(indent)])))
            behind = comment(draw(st.sampled_from([" ", "  ", "      "]))) if draw(st.booleans()) else ""
            if depth and draw(st.integers(0, 3)) == 0:
                step = draw(st.sampled_from(["  ", "    "]))
                found += [f"{indent}{name}:{behind}", *lines(indent + step, depth - 1)]
            else:
                gap = draw(st.sampled_from([" ", "   "]))
                found.append(f"{indent}{name}:{gap}{draw(st.sampled_from(list(SCALARS)))}{behind}")
        return found

    text = "\n".join([*lines("", 2), *([comment("")] if draw(st.booleans()) else [])])
    text += draw(st.sampled_from(["", "\n", "\n\n"]))
    return draw(st.sampled_from(["", "\ufeff"])) + text.replace("\n", draw(st.sampled_from(["\n", "\r\n"])))


paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=2).map(".".join)
edits = st.one_of(
    st.builds(lambda key, value: Edit("set", key, value), paths, values),
    st.builds(lambda key: Edit("delete", key), paths),
    st.builds(lambda key, to: Edit("rename", key, to=to), paths, paths),
)


def flat(data: Any, prefix: str = "") -> dict[str, str]:
    """Every value by its path, with its type."""
    if isinstance(data, dict) and data:
        return {k: v for key, value in data.items() for k, v in flat(value, f"{prefix}{_text(key)}.").items()}
    return {prefix: repr(data)}


def _text(key: Any) -> str:
    return "no" if key is False else str(key)


@settings(max_examples=150, deadline=None)
@given(files(), st.lists(edits, min_size=1, max_size=4))
def test_everything_that_was_not_edited_stays(text: str, wanted: list[Edit]) -> None:
    before, old = flat(yaml.safe_load(text)), text
    touched: list[str] = []
    for edit in wanted:
        try:
            text = apply(text, [edit])
        except CannotFix:
            continue
        touched += [f"{key}." for key in (edit.key, edit.to) if key]
    after = flat(yaml.safe_load(text))

    def concerns(path: str) -> bool:
        return any(path.startswith(key) or key.startswith(path) for key in touched)

    assert {k: v for k, v in before.items() if not concerns(k)} == {k: v for k, v in after.items() if not concerns(k)}
    assert [k for k in before if not concerns(k)] == [k for k in after if not concerns(k)], "their order"
    if not touched:
        assert text == old
    lines = text.lstrip("\ufeff").splitlines()
    for line in old.lstrip("\ufeff").splitlines():
        assert not line.startswith("#") or line in lines, "a comment of its own line at the left stays"
    assert ("\r\n" in old) == ("\r\n" in text) or "\n" not in old or "\n" not in text
    assert text.startswith("\ufeff") == old.startswith("\ufeff")


@settings(max_examples=150, deadline=None)
@given(files(), paths, values)
def test_no_comment_is_lost_unless_its_key_is(text: str, key: str, value: Any) -> None:
    try:
        new = apply(text, [Edit("set", key, value)])
    except CannotFix:
        return
    assert sorted(comments(new)) == sorted(comments(text))
    found: Any = yaml.safe_load(new)
    for word in key.split("."):
        found = found[word]
    assert json.dumps(found) == json.dumps(value)


def test_comments_are_told_from_text() -> None:
    assert comments("# a\nb: 'x # y'  # c\nd: x#y\ne: |\n  # no\nf: \"# no\" # g\n") == ["# a", "# c", "# g"]
