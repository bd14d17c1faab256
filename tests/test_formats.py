"""Are JUnit, GitHub annotations, Markdown, Nagios and prolog lines right, whatever stands in the words they carry?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

import pytest

from mgpu.check import Check, Crash, Fix, Ok, Place, Problem, Severity, Skip
from mgpu.engine import Outcome
from mgpu.engine import verdict as verdicts
from mgpu.report import findings, formats
from mgpu.snapshot import Snapshot
from tests.checks.facts import facts, gpus, lost, no_driver, seen

NASTY = "50%, a:b\r\n::error::x | <b>&\x1b[31m\x00\ufffe ``` @user #1 `$(x)`"


def problem(title: str = "/dev/shm is 64 MiB", **changes: Any) -> Problem:
    usual: dict[str, Any] = {
        "cause": "NCCL needs it.",
        "fix": (
            Fix("Give it more.", ("docker run --shm-size=8g ...",)),
            Fix("Slower.", ("export NCCL_SHM_DISABLE=1",), kind="stopgap"),
        ),
        "evidence": {"path": "/dev/shm", "size": 67108864},
    }
    return Problem(title, **usual | changes)


def outcome(id: str, answer: Any, severity: Severity = Severity.ERROR, area: str = "limits", **more: Any) -> Outcome:
    def function() -> Ok:
        return Ok("")

    function.__name__ = id
    function.__module__ = f"mgpu.checks.{area}"
    check = Check(function, severity, "https://example.org", condemns_node=id == "gpu_lost")
    return Outcome(check, answer, 0.25, **more)


MIXED: tuple[Outcome, ...] = (
    outcome("driver_lost", Skip("no answer in 10 s"), area="driver", unknown=True, unsettling=True),
    outcome("shm_too_small", problem()),
    outcome("shm_wrong", problem("also wrong"), because_of=("shm_too_small",)),
    outcome("port_busy", problem("port 29500 is busy"), Severity.WARNING, "network"),
    outcome("noted", problem("worth knowing"), Severity.INFO, "network"),
    outcome("broken", Crash("ValueError: x", "Traceback: …"), area="network"),
    outcome("fine", Ok("looked at 4 of 4"), area="network"),
    outcome("not_here", Skip("no InfiniBand here"), area="network"),
    outcome("bad_key", problem("first key", place=Place("a,b:c.yaml", 3, 5, "k")), area="config"),
    outcome("bad_key", problem("second key", place=Place("a,b:c.yaml", 4, 5, "l")), area="config"),
)
MACHINE = Snapshot(**facts())


def junit(outcomes: Sequence[Outcome] = MIXED) -> ElementTree.Element:
    return ElementTree.fromstring(formats.junit(outcomes, MACHINE, "not_ready", 2.5))


def test_junit_has_a_suite_per_area_and_a_case_per_check() -> None:
    root = junit()
    assert [suite.get("name") for suite in root] == ["driver", "limits", "network", "config"]
    assert [case.get("name") for suite in root for case in suite.iter("testcase")] == [
        "driver_lost", "shm_too_small", "shm_wrong", "port_busy", "noted", "broken", "fine", "not_here", "bad_key",
    ]  # fmt: skip
    assert {k: root.get(k) for k in ("tests", "failures", "errors", "skipped")} == {
        "tests": "9", "failures": "3", "errors": "2", "skipped": "1",
    }  # fmt: skip
    for name in ("tests", "failures", "errors", "skipped"):
        assert sum(int(suite.get(name) or 0) for suite in root) == int(root.get(name) or 0)
    assert all(
        case.get("classname") == f"mgpu.{suite.get('name')}" for suite in root for case in suite.iter("testcase")
    )


def test_junit_knows_failures_warnings_skips_and_what_is_unknown() -> None:
    cases = {case.get("name"): [part.tag for part in case] for case in junit().iter("testcase")}
    assert cases == {
        "driver_lost": ["error"],  # unknown is not green
        "shm_too_small": ["failure"],
        "shm_wrong": ["failure"],
        "port_busy": ["system-out"],  # a warning passed
        "noted": ["system-out"],
        "broken": ["error"],
        "fine": [],
        "not_here": ["skipped"],
        "bad_key": ["failure"],
    }
    (failure,) = (f for f in junit().iter("failure") if f.get("type") == "bad_key")
    assert failure.get("message") == "first key (+1 more)"
    assert failure.text is not None and "second key" in failure.text
    (whole,) = (f for f in junit().iter("failure") if f.get("type") == "shm_too_small")
    assert whole.text is not None
    for words in ("NCCL needs it.", "docker run --shm-size=8g ...", "Stopgap", "size = 67108864"):
        assert words in whole.text


@pytest.mark.parametrize(
    "answer", [problem(NASTY, cause=NASTY), Skip(NASTY), Crash(NASTY, NASTY), problem("\udcff\ud800")]
)
def test_junit_is_xml_whatever_a_machine_says(answer: Any) -> None:
    text = formats.junit([outcome("one", answer)], MACHINE, "unknown", 1.0)
    text.encode()
    assert ElementTree.fromstring(text.encode()).find(".//testcase") is not None


def test_junit_of_nothing() -> None:
    assert len(ElementTree.fromstring(formats.junit((), Snapshot(), "unknown", 0.0))) == 0


def told(outcomes: Sequence[Outcome]) -> formats.Report:
    """What the doctor says of them."""
    return formats.doctor_report(outcomes, MACHINE, "not_ready", 2.0)


def test_github_annotates_the_gravest_first_and_ends_with_the_verdict() -> None:
    lines = formats.github(MIXED, told(MIXED)).splitlines()
    kinds = [line.split(" ")[0] for line in lines[:-1]]
    assert kinds == ["::error"] * 5 + ["::warning", "::notice"] or sorted(kinds) == sorted(
        ["::error"] * 5 + ["::warning", "::notice"]
    )
    assert not any(line.startswith("::") and "shm_wrong" in line.split("::")[1] for line in lines)  # with its cause
    (cause,) = (line for line in lines if "title=shm_too_small" in line)
    assert cause.startswith("::error title=shm_too_small::/dev/shm is 64 MiB%0AWhy: NCCL needs it.%0A")
    assert "%0AAlso shm_wrong: also wrong" in cause
    assert any(line == "::error title=unknown::no answer in 10 s" for line in lines)
    assert lines[-1].startswith("NOT READY  4 failures, 1 warning, 1 check crashed.")


def test_github_escapes_messages_and_properties() -> None:
    found = [outcome("one", problem(NASTY, place=Place("a,b:c%.yaml", 3, 5)))]
    (line, _) = formats.github(found, told(found)).splitlines()
    head, _, message = line.removeprefix("::").partition("::")
    assert head == "error file=a%2Cb%3Ac%25.yaml,line=3,col=5,title=one"
    assert message.startswith("50%25, a:b ")
    assert "\x1b" not in line and "\x00" not in line


def test_nothing_foreign_becomes_a_workflow_command() -> None:
    bad = problem("x", cause="\n::set-env name=A::b\r::stop-commands::z")
    text = formats.github([outcome("one", bad)], told([outcome("one", bad)]))
    assert [line for line in re.split(r"[\r\n]", text) if line.startswith("::")] == [text.splitlines()[0]]


def test_markdown_has_verdict_rows_problems_and_details() -> None:
    text = formats.markdown(MIXED, MACHINE, told(MIXED), "the whole\nscreen", ["driver: 575 -> 580"])
    assert text.startswith("### mgpu doctor: NOT READY\n")
    assert "| **FAIL** | Host | /dev/shm is 64 MiB |" in text
    assert "```sh\ndocker run --shm-size=8g ...\n```" in text
    assert "shm_wrong" not in text.partition("<details>")[0]
    assert "- driver: 575 -&gt; 580" in text
    assert text.rstrip().endswith("the whole\nscreen\n```\n\n</details>")


def test_markdown_cannot_be_broken_out_of() -> None:
    details = "a\n```\n</details>\n````\nb"
    bad = problem(NASTY, cause=NASTY, fix=Fix("do", ("echo ```\n# not a heading",)))
    text = formats.markdown([outcome("one", bad)], MACHINE, told([outcome("one", bad)]), details)
    row = next(line for line in text.splitlines() if line.startswith("| **FAIL**"))
    assert len(re.findall(r"(?<!\\)\|", row)) == 4  # the cells of the table, and no more
    assert "<b>" not in text and "@user" not in text.partition("<details>")[0]
    assert "`````text\n" in text and "\n`````\n" in text
    assert "\x1b" not in text and "\x00" not in text


@pytest.mark.parametrize(
    ("outcomes", "verdict", "strict", "code", "first"),
    [
        ((), "ready", False, 0, "MGPU OK - 4 of 4 GPUs usable, 0 checks | gpus=4 usable=4 failures=0 warnings=0 "),
        (MIXED[3:4], "ready_with_warnings", False, 1, "MGPU WARNING - port 29500 is busy | "),
        (MIXED[3:4], "ready_with_warnings", True, 2, "MGPU CRITICAL - port 29500 is busy | "),
        (MIXED, "not_ready", False, 2, "MGPU CRITICAL - /dev/shm is 64 MiB (+4 more) | "),
        (MIXED[:1], "unknown", False, 3, "MGPU UNKNOWN - no answer in 10 s | "),
        ((), "no_gpu", False, 3, "MGPU UNKNOWN - no NVIDIA GPU here | "),
    ],
)
def test_nagios_has_one_status_line(outcomes: Any, verdict: Any, strict: bool, code: int, first: str) -> None:
    text = formats.nagios(outcomes, MACHINE, verdict, 1.5, strict=strict)
    line, *others = text.splitlines()
    assert line.startswith(first) and line.endswith("time=1.5s")
    assert verdicts.nagios_code(verdict, strict=strict) == code
    assert line.count("|") == 1
    assert len(others) == len(findings.in_order(outcomes))


def test_a_bar_in_a_title_is_no_performance_data() -> None:
    text = formats.nagios([outcome("one", problem("a | b=1"))], MACHINE, "not_ready", 1.0, strict=False)
    assert text.splitlines()[0].startswith("MGPU CRITICAL - a / b=1 | ")


HARDWARE = problem("7 uncorrected errors on GPU 2", fix=Fix("Replace it.", who="hardware"))


@pytest.mark.parametrize(
    ("outcomes", "reason"),
    [
        ((), ""),
        (MIXED, ""),  # nothing of this is the node's fault
        ([outcome("gpu_ecc", HARDWARE)], "mgpu: 7 uncorrected errors on GPU 2 [gpu_ecc]\n"),
        ([outcome("gpu_slow", HARDWARE, Severity.WARNING)], ""),
        ([outcome("gpu_lost", problem("GPU 3 is lost"))], "mgpu: GPU 3 is lost [gpu_lost]\n"),
        (
            [outcome("gpu_lost", problem("GPU 3 is lost")), outcome("gpu_ecc", HARDWARE)],
            "mgpu: GPU 3 is lost [gpu_lost] (+1 more)\n",
        ),
        ([outcome("gpu_lost", Skip("no answer"), unknown=True, unsettling=True)], ""),
        ([outcome("gpu_lost", Crash("x", "y"))], ""),
    ],
)
def test_a_prolog_takes_a_node_out_only_for_what_is_certain(outcomes: Any, reason: str) -> None:
    assert formats.prolog(outcomes) == reason


def test_only_errors_condemn_a_node() -> None:
    from tests.conftest import CHECKS

    assert {check.severity for check in CHECKS.values() if check.condemns_node} == {Severity.ERROR}


def test_a_lost_gpu_and_a_missing_driver_condemn_for_real() -> None:
    from mgpu import engine
    from tests.conftest import CHECKS

    sick = Snapshot(**facts(gpus=gpus(4, lost(2))))
    assert "GPU 2" in formats.prolog(engine.run(CHECKS.values(), sick))
    nothing: dict[str, Any] = {"gpus": (), "links": (), "visible": seen()}
    dead = Snapshot(**facts(**nothing, driver=no_driver("DRIVER_NOT_LOADED", pci_gpus=8)))
    assert "[driver_not_loaded]" in formats.prolog(engine.run(CHECKS.values(), dead))
    assert formats.prolog(engine.run(CHECKS.values(), Snapshot(**facts()))) == ""
