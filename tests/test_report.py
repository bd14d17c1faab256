"""Does a screen use the characters the user's locale can show, and a stamp only what is known?"""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest

from mgpu import stamp
from mgpu.report import Screen
from mgpu.snapshot import Gap, Snapshot
from tests.checks import facts as known


class Terminal(io.TextIOWrapper):
    """A UTF-8 stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environ", "glyphs"),
    [
        ({"LANG": "en_US.UTF-8"}, True),
        ({"LC_ALL": "C.utf8", "LANG": "C"}, True),
        ({"LC_ALL": "C", "LANG": "en_US.UTF-8"}, False),
        ({"LC_CTYPE": "POSIX"}, False),
        ({"LANG": "de_DE.ISO-8859-1"}, False),
        ({}, False),
        ({"LANG": "en_US.UTF-8", "MGPU_ASCII": "1"}, False),
        ({"LANG": "en_US.UTF-8", "TERM": "dumb"}, False),
    ],
)
def test_glyphs_follow_the_locale(environ: dict[str, str], glyphs: bool) -> None:
    stream = Terminal(io.BytesIO(), encoding="utf-8")  # as Python opens stdout even under LC_ALL=C
    assert Screen.of(stream, {"TERM": "xterm", **environ}).glyphs is glyphs


@pytest.mark.parametrize(
    "changes",
    [
        {"nccl": None, "gaps": {"nccl": Gap("crashed", "the packages probe was killed by SIGSEGV")}},
        {"driver": known.driver(version=None)},
        {"pytorch": known.pytorch(version=None)},
        {"gpus": None, "visible": None},
    ],
    ids=["nccl", "driver", "torch", "gpus"],
)
def test_what_is_not_known_is_not_stamped(changes: dict[str, Any]) -> None:
    whole = Snapshot(**known.facts(config=replace(known.config(), sha256="0" * 64)))
    assert stamp.fingerprint(whole) is not None
    assert stamp.fingerprint(replace(whole, **changes)) is None
