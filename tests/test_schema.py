"""Does every JSON document of `mgpu doctor` fit the published schema, whatever happened?

Those of the other commands are held against theirs where they are made: test_smoke_screens.py, test_launch_ends.py,
test_runs.py, test_configure.py, test_validate.py.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from mgpu import cli, engine
from mgpu.check import Check, Crash, Severity
from mgpu.cli import json_schema
from mgpu.engine import Outcome
from mgpu.snapshot import FACTS, Gap, GapKind, Snapshot, to_json
from mgpu.snapshot.redaction import redact
from tests.checks.facts import facts, gpus, links, lost
from tests.conftest import Run
from tests.fake_nvml import FAULTS
from tests.test_every_check import machines

SCHEMA = json_schema.doctor()


def strict(part: Any) -> Any:
    """The same schema, in which a field that it does not describe is an error."""
    if isinstance(part, dict):
        part = {key: strict(value) for key, value in part.items()}
        if "properties" in part:
            part.setdefault("additionalProperties", False)
        return part
    return [strict(item) for item in part] if isinstance(part, list) else part


def strictly(schema: dict[str, Any]) -> Draft202012Validator:
    return Draft202012Validator(strict(copy.deepcopy(schema)))


RUN = strictly(json_schema.run())
WHY = strictly(json_schema.why())
STATUS = strictly(json_schema.status())
SMOKE = strictly(json_schema.smoke())
WRITTEN = strictly(json_schema.configure())
VALIDATION = strictly(json_schema.validation())
PLAN = strictly(json_schema.plan())
ORIGINS = strictly(json_schema.origins())
STRICT = strictly(SCHEMA)


def fits(text: str) -> dict[str, Any]:
    """One document, as the schema has it, every field of it described."""
    document = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    STRICT.validate(document)  # which permits nothing that the published one forbids
    assert isinstance(document, dict)
    return document


@pytest.fixture
def judge(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def run(machine: Snapshot, *options: str) -> dict[str, Any]:
        (tmp_path / "m.json").write_text(json.dumps(to_json(machine)), encoding="utf-8")
        code = cli.run(["doctor", "--from", "m.json", "--json", *options])
        document = fits(capsys.readouterr().out)
        assert document["exit_code"] == code
        return document

    return run


def test_it_is_a_schema_and_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    for words, schema in (
        (["doctor"], SCHEMA), (["smoke-test"], json_schema.smoke()),
        (["launch"], json_schema.run()), (["launch", "--why"], json_schema.why()),
        (["launch", "--report"], json_schema.case()), (["launch", "--status"], json_schema.status()),
        (["configure"], json_schema.configure()), (["configure", "--validate"], json_schema.validation()),
        (["configure", "--plan"], json_schema.plan()), (["configure", "--show-origin"], json_schema.origins()),
    ):  # fmt: skip
        Draft202012Validator.check_schema(schema)
        assert cli.run([*words, "--json-schema"]) == 0
        assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(schema))


@pytest.mark.parametrize("number", range(len(machines())))
@pytest.mark.parametrize("options", [(), ("--redact",), ("--compare", "m.json"), ("--exit-style", "nagios")])
def test_whole_machines_fit(number: int, options: tuple[str, ...], judge: Any) -> None:
    document = judge(machines()[number], *options)
    assert document["host"]["redacted"] is ("--redact" in options)
    assert ("changes" in document) is ("--compare" in options)


@pytest.mark.parametrize("kind", ["timed_out", "crashed", "no_permission", "no_driver", "not_supported", "not_asked"])
def test_a_machine_of_which_nothing_is_known_fits(kind: GapKind, judge: Any) -> None:
    document = judge(Snapshot(gaps={fact: Gap(kind, "no answer") for fact in FACTS}))
    assert document["verdict"] == "unknown" and document["exit_code"] == 3
    judge(Snapshot())


def test_a_machine_where_all_fails_fits(judge: Any) -> None:
    sick = Snapshot(**facts(gpus=gpus(4, lost(0), lost(1), lost(2), lost(3)), links=links(p2p_read=5), network=None))
    assert judge(sick)["verdict"] == "not_ready"


def test_every_check_crashing_fits(judge: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def all_crash(checks: Any, snapshot: Snapshot) -> tuple[Outcome, ...]:
        return tuple(Outcome(check, Crash("ValueError: x", "Traceback: x"), 0.0) for check in checks)

    monkeypatch.setattr(engine, "run", all_crash)
    document = judge(Snapshot(**facts()))
    assert document["verdict"] == "unknown" and document["counts"]["crash"] == len(document["checks"])


def test_checks_that_raise_for_real_fit(judge: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def gpus_explode(gpus: Any) -> Any:
        raise RuntimeError("boom")

    gpus_explode.__module__ = "mgpu.checks.gpu"
    monkeypatch.setattr(engine, "load", lambda: (Check(gpus_explode, Severity.ERROR, "https://example.org"),))
    (check,) = judge(Snapshot(**facts()))["checks"]
    assert check["status"] == "crash" and "RuntimeError: boom" in check["trace"]


@pytest.mark.parametrize(
    ("error", "code"), [(ZeroDivisionError("x"), 3), (KeyboardInterrupt(), 130), (MemoryError(), 3)]
)
def test_a_bug_of_ours_is_a_document_too(
    error: BaseException, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise error

    (tmp_path / "m.json").write_text("{}")
    monkeypatch.setattr(engine, "selected", broken)
    assert cli.run(["doctor", "--from", str(tmp_path / "m.json"), "--json"]) == code
    out, err = capsys.readouterr()
    assert fits(out)["exit_code"] == code and fits(out)["error"]
    assert len(err.splitlines()) == 1
    assert cli.run(["doctor", "--from", str(tmp_path / "m.json")]) == code
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)


def test_a_redacted_file_says_so(judge: Any) -> None:
    document = judge(redact(Snapshot(**facts())))
    assert document["host"]["redacted"] is True and document["host"]["name"].startswith("host-")


def test_numbers_that_are_no_json_are_refused_or_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = to_json(Snapshot(**facts()))
    data["gpus"][0]["power_w"] = float("nan")
    data["system"]["cpus_quota"] = float("inf")
    (tmp_path / "m.json").write_text(json.dumps(data))
    code = cli.run(["doctor", "--from", str(tmp_path / "m.json"), "--json"])
    out, _ = capsys.readouterr()
    assert code == 2 or fits(out)


# ---- this machine, for real


@pytest.mark.parametrize("options", [["--quick"], ["--quick", "--redact"], ["--quick", "--only", "links"]])
def test_this_machine_fits(options: list[str], mgpu: Run) -> None:
    done = mgpu("doctor", "--json", *options)
    assert fits(done.stdout)["exit_code"] == done.returncode


def test_a_run_out_of_time_fits(on: Run) -> None:
    done = on("h100_sxm_x8", [FAULTS["nvml_hangs"]], "doctor", "--quick", "--json", "--timeout", "0.5")
    document = fits(done.stdout)
    assert (document["exit_code"], done.returncode, document["verdict"]) == (124, 124, "unknown")
    assert "stopped after --timeout 0.5 s" in document["error"] and document["checks"] == []


@pytest.mark.parametrize("fault", ["nvml_aborts", "nvml_aborts_later", "gpu_lost", "library_mismatch", "mig_on"])
def test_a_faulty_machine_fits(fault: str, on: Run) -> None:
    done = on("h100_sxm_x8", [FAULTS[fault]], "doctor", "--quick", "--json")
    assert fits(done.stdout)["exit_code"] == done.returncode


def test_a_save_that_fails_fits(mgpu: Run, tmp_path: Path) -> None:
    done = mgpu("doctor", "--quick", "--json", "--save", "no/such/folder/m.json")
    assert fits(done.stdout)["exit_code"] == done.returncode == 1
    assert "cannot write" in fits(done.stdout)["error"]


def test_an_interpreter_without_anything_fits(mgpu: Run) -> None:
    base = getattr(sys, "_base_executable", sys.executable)
    document = fits(mgpu("doctor", "--json", "--python", base, env={"PYTHONNOUSERSITE": "1"}).stdout)
    assert document["software"]["interpreter"] is not None


def test_options_change_a_saved_plan_only_where_they_speak(judge: Any) -> None:
    machine = Snapshot(**facts(config=None, ranks=None, stamp=None))
    assert machine.plan is not None
    document = judge(replace(machine, plan=replace(machine.plan, nodes=3)), "--expect-gpus", "4")
    assert document["plan"] == {"nodes": 3, "expect_gpus": 4, "expect_free": None}
    assert judge(replace(machine, plan=replace(machine.plan, nodes=3)), "--nodes", "2")["plan"]["nodes"] == 2
