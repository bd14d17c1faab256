"""The machine, the smoke test, the config, the versions and all checks on the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mgpu.quantities import gib
from mgpu.report.page import curve_drawing, machine_drawing, timeline_drawing
from mgpu.report.page.machine_drawing import WIDTHS
from mgpu.report.page.markup import Html, Part, element, joined, table

if TYPE_CHECKING:
    from mgpu.report.case.case_json import CaseDocument

_LINKS = (
    ("NV", "c-nv", "NVLink, with the number of links"),
    ("PI", "c-near", "PIX, PXB: PCIe switches"),
    ("PH", "c-mid", "PHB, NODE: through the CPU's PCIe roots"),
    ("NO", "c-mid", "PHB, NODE: through the CPU's PCIe roots"),
    ("PX", "c-near", "PIX, PXB: PCIe switches"),
    ("SY", "c-far", "SYS: between the CPUs"),
    ("?", "c-none", "unknown"),
)


def machine(case: CaseDocument) -> Html:
    """Return the machine as a picture and its GPUs as a table; empty without a GPU."""
    if case["picture"] is None:
        return Html()
    drawings = (element("div", machine_drawing.drawing(case, width), class_=kind) for kind, width in WIDTHS)
    picture = element("figure", *drawings, class_="card")
    return joined(picture, _matrix(case), _gpus(case))


def _matrix(case: CaseDocument) -> Html | None:
    """Return what the links mean, and the matrix if they differ."""
    table, picture = case["links"]["matrix"], case["picture"]
    if picture is None or not picture["links"]:
        return None
    peer: dict[bool | None, str] = {
        True: " All pairs can access each other's memory.",
        False: " Some pairs cannot access each other's memory.",
    }
    text = f"{picture['links'][:1].upper()}{picture['links'][1:]}{peer.get(case['links']['p2p'], '')}"
    caption = element("figcaption", element("b", "Links between GPUs. "), text)
    names = {name for row in table for name in row if name != "-"}
    drawn = machine_drawing.matrix(case) if len(names) > 1 else None
    used = {text: kind for begin, kind, text in _LINKS if any(name.startswith(begin) for name in names)}
    items = [element("span", timeline_drawing.swatch(kind), text) for text, kind in used.items()]
    legend = element("div", *items, class_="legend") if drawn else None
    return element("figure", caption, legend, drawn, class_="card")


def _gpus(case: CaseDocument) -> Html:
    rows: list[tuple[Part, ...]] = []
    for gpu in case["gpus"]:
        kind, words = machine_drawing.state_of(gpu, case)
        free = f"{gib(gpu['mem_free'])} of {gib(gpu['mem_total'])}" if gpu["mem_total"] and gpu["mem_free"] else None
        near = ", ".join(nic["name"] for nic in gpu["nics"])
        state = element("span", words, class_=f"tag {kind}") if kind in ("fail", "warn") else words or "ok"
        numa = None if gpu["numa"] is None else str(gpu["numa"])
        rows.append((f"GPU {gpu['index']}", gpu["name"], state, free, gpu["pci"], numa, near or None))
    heads = ("GPU", "Model", "State", "Free memory", "PCI address", "NUMA", "Nearest network card")
    return element(
        "details", element("summary", "All GPUs as a table"), element("div", table(heads, rows), class_="card")
    )


def smoke_test(case: CaseDocument) -> Html:
    """Return what the smoke test of this config measured; empty if there is none."""
    test = case["smoke_test"]
    if test is None:
        return Html()
    words = {True: ("passed", "ok"), False: ("failed", "fail"), None: ("unknown", "unknown")}
    word, kind = words[test["passed"]]
    head = element("p", element("span", word, class_=f"tag {kind}"), test["text"])
    plots = [plot for plot in (curve_drawing.bandwidth(test), curve_drawing.scaling(test)) if plot]
    none = None if plots else element("p", "Bandwidth and scaling were not measured.", class_="meta")
    drawn = element("div", *plots, class_="plots") if plots else None
    return joined(element("div", head, none, class_="card"), drawn, _scaling(case))


def _scaling(case: CaseDocument) -> Html | None:
    test = case["smoke_test"]
    if test is None or not test["scaling"]:
        return None
    rows: list[tuple[Part, ...]] = [
        (
            str(one["ranks"]),
            f"{one['samples_per_s']:,.1f}",
            None if one["efficiency"] is None else f"{one['efficiency']:.0%}",
        )
        for one in test["scaling"]
    ]
    return element("div", table(("Ranks", "Samples per second", "Efficiency"), rows), class_="card")


def config(case: CaseDocument) -> Html:
    """Return every value with its source; empty if there is neither a config nor a variable."""
    rows: list[tuple[Part, ...]] = [
        (element("code", one["key"]), element("code", one["value"]) if one["value"] else None, one["source"])
        for one in case["config"]
    ]
    if not rows:
        return Html()
    return element("div", table(("Key", "Value", "Source"), rows), class_="card")


def versions(case: CaseDocument) -> Html:
    """Return the versions of everything that takes part."""
    software, host = case["software"], case["host"]
    nccl = software["nccl"]
    known = (
        ("NVIDIA driver", software["driver"]),
        ("PyTorch", software["torch"]),
        ("CUDA of PyTorch", software["torch_cuda"]),
        ("NCCL", f"{nccl['version']} ({nccl['source']})" if nccl else None),
        ("accelerate", software["accelerate"]),
        ("Python", " ".join(filter(None, [software["python"], software["interpreter"]])) or None),
        ("Operating system", host["os"]),
        ("Kernel", host["kernel"]),
        ("mgpu", case["mgpu"]),
    )
    shown = [joined(element("dt", name), element("dd", value)) for name, value in known if value]
    others = [(name, version) for name, version in case["packages"].items() if name != "accelerate"]
    packages: list[tuple[Part, ...]] = [(name, version) for name, version in others]
    more = element("details", element("summary", "Python packages"), table(("Package", "Version"), packages))
    return element("div", element("dl", *shown, class_="facts"), more if others else None, class_="card")


def checks(case: CaseDocument) -> Html:
    """Return every check with its answer, folded. Signatures that no line of a log matched are only counted."""
    ran = [one for one in case["checks"] if one["status"] != "skip"]
    shown = [one for one in ran if one["area"] != "log" or one["status"] != "ok"]
    if not shown:
        return Html()
    rows: list[tuple[Part, ...]] = [
        (element("code", one["id"]), element("span", one["status"], class_=f"tag {one['status']}"), one["title"])
        for one in shown
    ]
    skipped, unmatched = len(case["checks"]) - len(ran), len(ran) - len(shown)
    text = f"{len(shown)} checks ran, {skipped} did not apply or could not run"
    text += f", {unmatched:,} log signatures matched no line" if unmatched else ""
    grid = element("div", table(("Check", "Status", "Answer"), rows), class_="card")
    return element("details", element("summary", text), grid)
