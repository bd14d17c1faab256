"""A case as a page and as an archive: does the page show everything and nothing else, and is the verdict the same?"""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from jsonschema import Draft202012Validator

from mgpu import cli
from mgpu.cli import json_schema
from mgpu.engine import judge, selections
from mgpu.errors import REFUSED, MgpuError
from mgpu.report import case_archive, document, load
from mgpu.report.case.case_document import of_facts
from mgpu.report.case.case_json import CaseDocument
from mgpu.report.page import html_page
from mgpu.report.page.markup import Html, element, escaped
from mgpu.smoke import formats
from mgpu.smoke.report import Result
from mgpu.smoke.request import Request
from mgpu.snapshot import (
    Collective,
    EndedRank,
    GpuProcess,
    Hang,
    HangRank,
    Log,
    Pace,
    RankPace,
    RankTimeline,
    Run,
    Scaling,
    SignatureMatch,
    Snapshot,
    StackFrame,
    Timed,
    TimedStep,
    Timeline,
    UncaughtException,
    gpu_in_use,
)
from mgpu.snapshot.redaction import redact
from tests import browser, machines, planted
from tests.checks import facts
from tests.conftest import ROOT, missing
from tests.conftest import Run as RunMgpu
from tests.test_schema import strict

SCHEMA = Draft202012Validator(strict(json_schema.case()))
WIDTHS = (400, 800, 1400)
HOSTILE = (
    "<script>alert(1)</script></style></title>--><img src=x onerror=alert(1)>\x1b[31m\u202egpj.exe\u200f\x00\ud800&\"'"
)


def sick() -> Snapshot:
    """A machine with a lost GPU, memory errors, a slow slot, a GPU in use and a variable that disables P2P."""
    healthy = machines.machine("hgx_h100_x8")
    gpus = list(healthy.gpus or ())
    gpus[1] = replace(gpus[1], ecc_uncorrected_volatile=12, rows_remap_failed=True)
    gpus[3] = replace(gpus[3], lost="GPU_IS_LOST")
    gpus[5] = replace(gpus[5], pcie_width=8)
    gpus[6] = replace(gpus[6], processes=(GpuProcess(4711, "compute", 40 << 30, "python", "ada", False),))
    return replace(healthy, gpus=tuple(gpus), env={"NCCL_P2P_DISABLE": "1"}, taken="2026-11-23T23:00:00Z")


def hung(ranks: int = 8) -> Snapshot:
    """The machine of a run in which rank 3 slept while the others waited for it in a collective."""
    step = [tuple(TimedStep(n, 20 + n / 2, 0.05, 0.02, 0.0, 0.1) for n in range(1, 42)) for _ in range(ranks)]
    frame = StackFrame("/home/ada/train.py", 31, "main", "time.sleep(300)")
    done = (Collective("all_reduce", "0", 41, "1000 x Float"),)
    opened = (*done, Collective("all_reduce", "0", 42, "1000 x Float", True, caller=replace(frame, line=17)))
    waits = HangRank(
        0, 4000, "sleeping", False, kernel_wait="futex_do_wait", frames=(replace(frame, line=17, text="backward()"),),
        moved=False, steps=41, step_s=30.0, collectives=opened,
    )  # fmt: skip
    sleeps = replace(waits, kernel_wait="hrtimer_nanosleep", frames=(frame,), collectives=done)
    quiet = tuple(replace(sleeps if rank == 3 else waits, rank=rank, pid=4000 + rank) for rank in range(ranks))
    pace = Pace(
        40, 0.5, 0.1, tuple(RankPace(rank, 0.05, 0.1, 1.0 if rank == 3 else 0.0, 0.02) for rank in range(ranks))
    )
    ended = tuple(EndedRank(rank, -15, pid=4000 + rank, gpu=rank, peak_bytes=3 << 30) for rank in range(ranks))
    return replace(
        machines.machine("hgx_h100_x8"),
        run=Run(124, -15, 90.0, timed_out=True, ranks=ended, expected=ranks, pace=pace),
        hang=Hang(45.0, 1.0, quiet, ranks, ranks),
        timeline=Timeline(
            "20261123-1", "2026-11-23T23:00:00Z", 90.0, ("accelerate", "launch", "train.py"),
            tuple(RankTimeline(rank, steps) for rank, steps in enumerate(step)), ("step 40 loss 0.25",),
        ),
        config=facts.facts()["config"],
    )  # fmt: skip


def measured() -> Snapshot:
    """A machine with a smoke test that has measured bandwidth and scaling."""
    ranks = facts.facts()["ranks"]
    timed = tuple(
        Timed(name, "nccl", 8, 1 << power, (1 << power) / 2e11, (1 << power) / 1e11)
        for name in ("all_reduce", "all_gather", "broadcast")
        for power in range(20, 31)
    )
    scaling = tuple(Scaling(n, 1000.0 * n, 0.1, 0.09) for n in (1, 2, 4, 8))
    found = tuple(replace(rank, bandwidth=timed, scaling=scaling) for rank in ranks.ranks)
    return replace(machines.machine("dgx1_v100_x8"), ranks=replace(ranks, ranks=found))


def hostile() -> Snapshot:
    """A run whose log, config, host, variables, packages and stacks hold markup and control characters."""
    base = hung(2)
    frame = StackFrame(f"/x/{HOSTILE}.py", 3, HOSTILE, HOSTILE)
    log = Log(
        (HOSTILE,), 10, 3,
        seen=(SignatureMatch("log_oom_killed", HOSTILE, HOSTILE, 2, 0),),
        raised=(UncaughtException(HOSTILE, HOSTILE, HOSTILE, 3, 1, place=HOSTILE),),
    )  # fmt: skip
    assert base.host and base.config and base.timeline and base.run and base.gpus
    return replace(
        base,
        host=replace(base.host, name=HOSTILE, os=HOSTILE, kernel=HOSTILE),
        gpus=tuple(replace(gpu, name=HOSTILE) for gpu in base.gpus),
        config=replace(base.config, path=HOSTILE, values={HOSTILE: HOSTILE}),
        env={"NCCL_DEBUG": HOSTILE},
        packages={HOSTILE: HOSTILE},
        log=log,
        hang=Hang(45.0, 1.0, (HangRank(0, 1, HOSTILE, frames=(frame,), waits_for=HOSTILE, silent=HOSTILE),), 2, 2),
        run=replace(base.run, timed_out=False, signalled=None, exit_code=1),
        timeline=replace(base.timeline, id=HOSTILE, command=(HOSTILE,), tail=(HOSTILE,)),
    )


CASES: dict[str, Callable[[], Snapshot]] = {
    "sick": sick,
    "hung": hung,
    "measured": measured,
    "hostile": hostile,
    "healthy": lambda: machines.machine("dgx2_v100_x16"),
    "nothing": Snapshot,
}


@pytest.fixture(scope="module")
def pages() -> dict[str, tuple[CaseDocument, str]]:
    """Every case: its document and its page."""
    found = {}
    for name, make in CASES.items():
        case = of_facts(redact(make()))
        found[name] = (case, html_page.text(case))
    return found


@pytest.fixture(scope="module")
def texts(pages: dict[str, tuple[CaseDocument, str]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Every page, with those of a recorded smoke test whose rank 1 was stopped, and of one that passed."""
    page = tmp_path_factory.mktemp("smoke") / "page.html"
    folder = str(ROOT / "tests" / "smoke_runs" / "stopped")
    assert cli.run(["smoke-test", "--show", "--log-dir", folder, "--format", "html", "-o", str(page)]) == 1
    passed = Result(measured(), judge(measured(), selections.SMOKE), "passed", 0, 14.6)
    tests = {"stopped": page.read_text("utf-8"), "passed": formats.text_of(passed, Request(format="html"))}
    return {**{name: page for name, (_, page) in pages.items()}, **tests}


# ---- the page


class _Reader(HTMLParser):
    """The elements and the text of a page, as a browser reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def read(page: str) -> _Reader:
    reader = _Reader()
    reader.feed(page)
    return reader


@pytest.mark.quick
@pytest.mark.parametrize("name", [*CASES, "stopped", "passed"])
def test_a_page_is_well_formed_and_needs_nothing_else(name: str, texts: dict[str, str]) -> None:
    page = texts[name]
    ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>\n"))
    reader = read(page)
    allowed = {"article", "section", "header", "main", "nav", "footer", "figure", "figcaption", "details", "summary"}
    of_text = {"html", "head", "body", "title", "meta", "style", "script", "h2", "h3", "p", "b", "a", "div", "span"}
    of_lists = {"ul", "li", "dl", "dt", "dd", "table", "thead", "tbody", "tr", "th", "td", "pre", "code"}
    drawn = {"svg", "g", "rect", "line", "path", "text", "circle", "polyline"}
    assert {tag for tag, _ in reader.tags} <= allowed | of_text | of_lists | drawn
    names = {key for _, attributes in reader.tags for key in attributes}
    assert not {key for key in names if key.startswith("on")} and not names & {"src", "srcset", "style", "action"}
    links = [value for _, attributes in reader.tags for key, value in attributes.items() if key == "href"]
    assert all(link and link.startswith("#") for link in links)
    assert not re.search(r"url\(|@import|https?://", re.sub(r"<pre.*?</pre>|<code.*?</code>", "", page, flags=re.S))
    anchors = {attributes["id"] for _, attributes in reader.tags if "id" in attributes}
    assert {link[1:] for link in links if link} <= anchors
    assert [tag for tag, _ in reader.tags].count("script") == 1  # its own, by its hash


@pytest.mark.quick
def test_a_page_shows_what_its_document_holds(pages: dict[str, tuple[CaseDocument, str]]) -> None:
    case, page = pages["sick"]
    text = read(page).text
    assert case["headline"]["word"] == "NOT READY" and case["verdict"] == "not_ready"
    ids = [one["id"] for one in case["findings"]]
    assert {"gpu_lost", "gpu_ecc_uncorrected", "gpu_busy", "nccl_transport_disabled"} <= set(ids)
    for one in case["findings"]:
        assert one["title"] in text and one["id"] in text
        assert all(command in text for fix in one["fix"] for command in fix["commands"])
    for shown in ("NVSwitch", "GPU 7", "mlx5_0:1", "NUMA node 1", "NCCL_P2P_DISABLE", "550.54.15", "no response"):
        assert shown in text, shown
    first = page.index("sudo reboot")
    assert first < page.index('<section id="findings"'), "the first fix is beside the verdict"
    run, page = pages["hung"]
    text = read(page).text
    assert run["headline"]["word"] == "TIMED OUT" and "rank 3" in run["headline"]["text"]
    for shown in ("all_reduce #42", "train.py:31", "time.sleep(300)", "step 40 loss 0.25", "no progress", "step 41"):
        assert shown in text, shown
    test, page = pages["measured"]
    assert test["smoke_test"] and len(test["smoke_test"]["scaling"]) == 4
    assert all(shown in read(page).text for shown in ("all_gather, 8 ranks", "GB/s", "samples/s", "100%"))
    assert pages["nothing"][0]["headline"]["word"] == "UNKNOWN", "unknown is never healthy"


@pytest.mark.quick
def test_the_page_of_a_smoke_test_has_its_stages_and_plots(texts: dict[str, str]) -> None:
    page = texts["stopped"]
    shown = read(page).text
    assert page.index("FAILED") < page.index("rank_frozen") < page.index('<section id="findings"')
    for text in ("Smoke test report", "start processes2 of 2 running", "training steps", "not reached", "failed"):
        assert text in shown, text
    shown = read(texts["passed"]).text
    for text in ("PASSED", "trained together correctly", "GB/s", "samples/s", "all_reduce, 8 ranks", "GPU 3"):
        assert text in shown, text


@pytest.mark.quick
@pytest.mark.parametrize("format", ["html", "markdown"])
def test_a_test_that_did_not_start_has_no_names(format: str, tmp_path: Path) -> None:
    machine = Snapshot(**facts.facts(ranks=None, rehearsal=None))
    assert machine.gpus and machine.config
    used = GpuProcess(4711, "compute", 40 << 30, "python", "ada", False)
    machine = replace(machine, gpus=(replace(machine.gpus[0], processes=(used,)), *machine.gpus[1:]))
    assert machine.config
    busy = gpu_in_use.find_busy_gpus(machine.config, machine)
    assert "ada" in busy[0]
    request = Request(format=format, output=str(tmp_path / "out"))
    code = formats.report_refusal(judge(machine, selections.BUSY), machine, request, 0.5, busy)
    assert code == REFUSED
    said = (tmp_path / "out").read_text("utf-8")
    assert "NOT STARTED" in said and "GPU 0" in said and "--allow-busy" in said
    assert "ada" not in re.sub(r"<style>.*?</style>|<script>.*?</script>", "", said, flags=re.DOTALL)


@pytest.mark.quick
def test_hostile_text_is_only_text(pages: dict[str, tuple[CaseDocument, str]]) -> None:
    page = pages["hostile"][1]
    reader = read(page)
    assert "<script>alert(1)</script>" in reader.text and "<img" in reader.text
    assert not [tag for tag, _ in reader.tags if tag == "img"]
    for sign in ("\x1b", "\u202e", "\u200f", "\x00", "\ud800"):
        assert sign not in page
    assert "\\u202e" in page and "\\x00" in page
    page.encode("utf-8")


@pytest.mark.quick
def test_secrets_and_names_are_not_on_the_page() -> None:
    base = hung(2)
    assert base.timeline and base.host and base.config
    secrets = [*planted.by_form().values()][:12]
    named = planted.by_name()
    lines = (*(f"using {secret} now" for secret in secrets), *(f"{name}={value}" for name, value in named.items()))
    known = replace(
        base,
        host=replace(base.host, name="node17.lab.example"),
        env={"HF_TOKEN": secrets[0], "MASTER_ADDR": "10.11.12.13"},
        config=replace(base.config, values={"hub_token": secrets[1], "main_process_ip": "node17.lab.example"}),
        timeline=replace(base.timeline, tail=(*lines, "at node17 (10.11.12.13) in /home/ada/x")),
    )
    facts_of_case = redact(known)
    raw = gzip.decompress(case_archive.packed(facts_of_case)).decode("utf-8", "replace")
    for text in (html_page.text(of_facts(facts_of_case)), raw):
        assert not [secret for secret in (*secrets, *named.values()) if secret in text]
        assert not [name for name in ("node17", "10.11.12.13", "/home/ada") if name in text]


@pytest.mark.quick
def test_markup_escapes_everything_but_markup() -> None:
    assert element("p", "<b>", Html("<i>x</i>"), class_='a"b') == '<p class="a&quot;b">&lt;b&gt;<i>x</i></p>'
    assert element("rect", x=1.5, hidden=None, open=True) == '<rect x="1.5" open="open"/>'
    assert escaped("\ufffe\x07") == "?\\x07"


@pytest.mark.quick
@pytest.mark.parametrize("name", CASES)
def test_a_document_fits_its_schema(name: str, pages: dict[str, tuple[CaseDocument, str]]) -> None:
    SCHEMA.validate(json.loads(document.text(pages[name][0])))


# ---- in a browser


def test_pages_in_a_browser(tmp_path: Path, texts: dict[str, str]) -> None:
    """Three widths, light and dark, with and without scripts, and printed: nothing overflows, nothing is loaded."""
    if not browser.program():
        missing("Chromium")
    shown = ("sick", "hung", "measured", "hostile", "passed")
    for name in shown:
        (tmp_path / f"{name}.html").write_text(texts[name], encoding="utf-8")
    wide = "[...document.querySelectorAll('main *, header *, footer *')].filter(e => e.getClientRects().length"
    wide += " && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 120))"
    with browser.started(tmp_path) as chrome:
        for name in shown:
            for width in WIDTHS:
                chrome.show(tmp_path / f"{name}.html", width, dark=width == 800)
                chrome.value("document.querySelectorAll('details').forEach(e => { e.open = true })")
                assert chrome.value("document.documentElement.scrollWidth") <= width, (name, width)
                assert chrome.value(wide) == [], (name, width)
                drawings = "[...document.querySelectorAll('figure svg')].filter(e => e.getClientRects().length).length"
                assert chrome.value(drawings) > 0
                assert chrome.requested() == [(tmp_path / f"{name}.html").as_uri()] and not chrome.complaints()
        assert chrome.value("document.querySelectorAll('script').length") == 1
        first = "document.querySelector('.verdict').getBoundingClientRect().bottom"
        chrome.show(tmp_path / "sick.html", 400)
        assert chrome.value(first) < 900, "the verdict and the first fix are in the first screenful"
        light = chrome.picture()
        chrome.show(tmp_path / "sick.html", 400, dark=True, script=False)
        dark = chrome.picture()
        assert light[:4] == dark[:4] == b"\x89PNG" and light != dark and min(len(light), len(dark)) > 10_000
        printed = chrome.printed()
        assert printed.startswith(b"%PDF") and 1 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 6


# ---- the archive


@pytest.mark.parametrize("name", CASES)
def test_an_archive_gives_the_identical_verdict(name: str, tmp_path: Path) -> None:
    known = redact(CASES[name]())
    path = tmp_path / "x.mgpu.tar.gz"
    path.write_bytes(case_archive.packed(known))
    again = load.read_snapshot(path)
    here, there = of_facts(known), of_facts(again)
    assert json.dumps(here, sort_keys=True) == json.dumps(there, sort_keys=True)
    assert html_page.text(here) == html_page.text(there)
    assert case_archive.packed(again) == path.read_bytes()
    with tarfile.open(path) as tar:
        assert [(one.name, one.isreg(), one.uid, one.mtime) for one in tar] == [
            (member, True, 0, 0) for member in (case_archive.FACTS, case_archive.DOCUMENT, case_archive.PAGE)
        ]


def test_the_doctor_writes_and_reads_a_case(mgpu: RunMgpu, tmp_path: Path) -> None:
    known = redact(sick())
    (tmp_path / "x.mgpu.tar.gz").write_bytes(case_archive.packed(known))
    case = of_facts(known)
    done = mgpu("doctor", "--from", "x.mgpu.tar.gz", "--json")
    assert (done.returncode, json.loads(done.stdout)["verdict"]) == (case["exit_code"], case["verdict"])
    page = mgpu("doctor", "--from", "x.mgpu.tar.gz", "--format", "html", "-o", "page.html")
    assert page.returncode == case["exit_code"] and not page.stdout
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == html_page.text(case)
    (tmp_path / "run.mgpu.tar.gz").write_bytes(case_archive.packed(redact(hung())))
    said = mgpu("doctor", "--from", "run.mgpu.tar.gz")
    assert said.returncode == 1 and "TIMED OUT" in said.stdout and "hang_rank_sleeps" in said.stdout
    triage = json.loads(mgpu("doctor", "--from", "run.mgpu.tar.gz", "--json").stdout)
    assert triage["probable_cause"]["id"] == "hang_rank_sleeps"
    (tmp_path / "m.json").write_bytes(member(tmp_path / "x.mgpu.tar.gz", case_archive.FACTS))
    again = mgpu("doctor", "--from", "m.json", "--save", "y.mgpu.tar.gz", "-o", "out.txt")
    assert again.returncode == case["exit_code"]
    assert (tmp_path / "y.mgpu.tar.gz").read_bytes() == (tmp_path / "x.mgpu.tar.gz").read_bytes()


def member(path: Path, name: str) -> bytes:
    with tarfile.open(path) as tar:
        found = tar.extractfile(name)
        assert found is not None
        return found.read()


def tar_of(*members: tarfile.TarInfo, content: bytes = b"{}") -> bytes:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for one in members:
            one.size = len(content) if one.isreg() else 0
            tar.addfile(one, io.BytesIO(content))
    return gzip.compress(plain.getvalue())


def info(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname = kind, target
    return found


def long_names() -> bytes:
    """A chain of headers that each announce the name of the next one, which tarfile follows with recursion."""
    names = b"".join(tarfile.TarInfo("x" * 300).tobuf(tarfile.GNU_FORMAT)[:1024] for _ in range(3000))
    return gzip.compress(names + bytes(1024))


# What an archive from a stranger may be, and what mgpu says to it.
BAD: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "cut off"),
    "text": (lambda: b"hello", "not a gzip file"),
    "cut": (lambda: tar_of(info("facts.json"))[:60], "cut off"),
    "two": (lambda: 2 * tar_of(info("facts.json")), "more in it than one file"),
    "a bomb": (lambda: gzip.compress(bytes(65 << 20), 1), "more than 64 MiB"),
    "no tar": (lambda: gzip.compress(b"a" * 2000), "damaged"),
    "no facts": (lambda: tar_of(info("other.json")), "there is no facts.json"),
    "a link": (lambda: tar_of(info("facts.json", tarfile.SYMTYPE, "/etc/passwd")), "there is no facts.json"),
    "a hard link": (lambda: tar_of(info("facts.json", tarfile.LNKTYPE, "/etc/passwd")), "there is no facts.json"),
    "a path": (lambda: tar_of(info("../facts.json"), info("/facts.json")), "there is no facts.json"),
    "a device": (lambda: tar_of(info("facts.json", tarfile.CHRTYPE)), "there is no facts.json"),
    "many": (lambda: tar_of(*(info(f"{n}") for n in range(200)), info("facts.json")), "there is no facts.json"),
    "other facts": (lambda: tar_of(info("facts.json"), content=b'{"gpus": 1}'), "gpus: expected a list"),
    "binary": (lambda: tar_of(info("facts.json"), content=b"\xff\xfe"), "it is not text"),
    "deep": (lambda: tar_of(info("facts.json"), content=b"[" * 100_000), "facts.json"),
    "long names": (long_names, "is not a case"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_strange_archive_is_refused_with_a_sentence(name: str, tmp_path: Path) -> None:
    make, said = BAD[name]
    path = tmp_path / "x.mgpu.tar.gz"
    path.write_bytes(make())
    with pytest.raises(MgpuError, match=re.escape(said)) as caught:
        load.read_snapshot(path)
    assert caught.value.exit_code == 2 and len(caught.value.message) < 500
    assert [one.name for one in tmp_path.iterdir()] == ["x.mgpu.tar.gz"], "nothing is unpacked"
