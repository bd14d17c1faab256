"""A saved machine after an accident: it is refused in one line, or judged without a check that crashes."""

from __future__ import annotations

import io
import json
import os
import random
import string
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from mgpu.cli import json_schema
from mgpu.doctor import report as doctor_report
from mgpu.doctor import result, run
from mgpu.doctor.request import Request
from mgpu.errors import MgpuError
from mgpu.report import document, formats, screen
from mgpu.signature import Signature
from mgpu.snapshot import BadSnapshot, Snapshot, loads, to_json
from tests.checks.facts import facts
from tests.conftest import CHECKS
from tests.test_every_check import machines
from tests.test_snapshot import rich

CASES = int(os.environ.get("MGPU_FUZZ_MACHINES", "400"))
_PARTS = 8  # tests, so that workers share them
VALIDATOR = Draft202012Validator(json_schema.doctor())

STRANGE: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**63, 2**64 - 1, 2**64, 10**30, 10**400, 0.5, -0.0, 1e308, -1e308, 1e-308,
    float("nan"), float("inf"), float("-inf"), "", " ", "x", "0", "-1", "None", "nan", "\ud800", "\x00\x1b[31m",
    "é²" * 50, "a" * 100_000, "::error::x", "../../etc/passwd", "${HOME}", "%s%n", "4-2,,7-", "GPU-", "MIG-",
    "1.2.3.4.5", "::1::", [], [[]], [None] * 3, ["x", 1], {}, {"a": 1}, {"": None}, {"\ud800": "\udfff"},
)  # fmt: skip


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value."""
    if isinstance(data, dict | list):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield (*path, key)
            yield from places(value, (*path, key))


def parent(data: Any, path: tuple[Any, ...]) -> Any:
    for key in path[:-1]:
        data = data[key]
    return data


def alike(value: Any, dice: random.Random) -> Any:
    """Another value of the same type: what the reader cannot refuse, and the checks must bear."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return dice.choice((0, 1, -1, value + 1, -value, 7, 255, 2**31, 2**63, 2**64 - 1))
    if isinstance(value, float):
        return dice.choice((0.0, -1.0, 1e-300, 1e300, value * 1000))
    if isinstance(value, str):
        return dice.choice([one for one in STRANGE if isinstance(one, str)])
    if isinstance(value, list):
        return dice.choice(([], value * 2, value[:1], value[::-1]))
    return {} if isinstance(value, dict) else dice.choice(STRANGE)


def accident(data: Any, dice: random.Random) -> str:
    """A saved file after one to three accidents."""
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        paths = list(places(data))
        path = dice.choice(paths)
        place, key = parent(data, path), path[-1]
        match dice.randrange(7):
            case 0:
                del place[key]
            case 1:
                place[key] = dice.choice(STRANGE)
            case 2:  # something of another place
                other = dice.choice(paths)
                place[key] = json.loads(json.dumps(parent(data, other)[other[-1]]))
            case 3:
                place[key] = None
            case _:  # the likeliest to get past the reader
                place[key] = alike(place[key], dice)
    text = json.dumps(data)
    match dice.randrange(24):
        case 0:
            return text[: dice.randrange(len(text))]
        case 1:
            at = dice.randrange(len(text))
            return text[:at] + dice.choice(string.printable + "\x00\ud800é²") + text[at + 1 :]
        case 2:
            return "[" * 50_000 + text
        case 3:
            return text[:-1] + ', "gpus": [], "gpus": null}'
        case _:
            return text


def sources() -> list[Snapshot]:
    return [rich(), Snapshot(**facts(config=None, ranks=None, stamp=None)), *machines()]


# Signatures are one function with other words in it: a few of them are enough here.
_FEW = {check.id for check in [check for check in CHECKS.values() if isinstance(check, Signature)][:10]}
ASKED = tuple(check for check in CHECKS.values() if not isinstance(check, Signature) or check.id in _FEW)


def judged(text: str) -> result.Examined | None:
    """What `mgpu doctor --from` makes of a file: None when it is refused."""
    try:
        machine = loads(text)
    except BadSnapshot as error:
        assert str(error)
        return None
    return run._judge(Request(from_="m.json"), ASKED, machine, None, 0.0)


def drawn(part: int) -> Iterator[str]:
    """The saved files of a part, each after its accidents."""
    dice = random.Random(f"corruption {part}")
    saved = [json.dumps(to_json(machine)) for machine in sources()]
    for _ in range(CASES // _PARTS):
        yield accident(json.loads(dice.choice(saved)), dice)


def is_read(text: str) -> bool:
    try:
        loads(text)
    except BadSnapshot:
        return False
    return True


def test_enough_accidents_get_past_the_reader() -> None:
    """Or the next test would test the reader alone. All parts together: one is too small to have the same share."""
    assert sum(is_read(text) for part in range(_PARTS) for text in drawn(part)) > CASES // 4


@pytest.mark.parametrize("part", range(_PARTS))
def test_no_accident_takes_the_doctor_down(part: int) -> None:
    crashes = Counter[str]()
    seen: set[str] = set()
    for number, text in enumerate(drawn(part)):
        try:
            found = judged(text)
        except MgpuError:
            continue
        if found is None:
            continue
        for outcome in found.outcomes:
            if outcome.status == "crash":
                crashes[f"{outcome.check.id}: {document.outcome_text(outcome)}"] += 1
        whole = json.loads(document.text(doctor_report.json_document(Request(), found)))
        fresh = [c for c in whole["checks"] if json.dumps(c | {"duration_s": 0}) not in seen]
        seen |= {json.dumps(c | {"duration_s": 0}) for c in fresh}
        VALIDATOR.validate(whole | {"checks": fresh})
        if number % 10 == 0:
            shown(found)
    assert not crashes, "\n".join(f"{count} x {words}" for words, count in crashes.most_common())


def shown(found: result.Examined) -> None:
    """Every other way of telling it."""
    for width in (40, 80):
        buffer = io.StringIO()
        doctor_report.show(screen.Screen(width, False, False, buffer), Request(verbose=True), found)
        assert "\x1b" not in buffer.getvalue() and "\x00" not in buffer.getvalue()
        buffer.getvalue().encode()
    told = formats.doctor_report(found.outcomes, found.snapshot, found.verdict, 1.0)
    for text in (
        formats.junit(found.outcomes, found.snapshot, found.verdict, 1.0),
        formats.github(found.outcomes, told),
        formats.markdown(found.outcomes, found.snapshot, told, "x"),
        formats.nagios(found.outcomes, found.snapshot, found.verdict, 1.0, strict=True),
    ):
        text.encode()


def test_redacting_and_comparing_bear_it_too() -> None:
    from mgpu.snapshot.changes import find_changes
    from mgpu.snapshot.redaction import redact

    dice = random.Random("compared")
    saved = json.dumps(to_json(rich()))
    before, accepted = rich(), 0
    for _ in range(90):
        try:
            machine = loads(accident(json.loads(saved), dice))
        except BadSnapshot:
            continue
        accepted += 1
        for one in find_changes(before, machine):
            assert one.text
        assert redact(machine).redacted
    assert accepted > 15
