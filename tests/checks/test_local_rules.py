"""checks/local_rules.py"""

from __future__ import annotations

import pytest

from mgpu.snapshot import BrokenPlugin, WaivedCheck
from tests.checks.facts import Case, local_rules, table, warns, well

OLD = WaivedCheck("gpu_busy", "ticket 7", "2026-11-20", 4, True)
TYPO = WaivedCheck("gpu_busi", "ticket 7", None, 9, False, "gpu_busy")
CASES = (
    warns("waiver_expired", "the waiver of gpu_busy expired on 2026-11-20 (ticket 7)", "renew the waiver",
        local_rules=local_rules(waivers=(OLD,))),
    well("waiver_expired", "1 waiver, none expired"),
    warns("waiver_unknown", "the waiver of gpu_busi names no check", "mgpu doctor --list-checks",
        local_rules=local_rules(waivers=(TYPO,))),
    well("waiver_unknown", "1 waiver, all of existing checks"),
    warns("plugin_broken", "plug-in site_disks cannot be loaded: SyntaxError", "uninstall the plug-in",
        local_rules=local_rules(broken=(BrokenPlugin("site_disks", "SyntaxError"),))),
    well("plugin_broken", "1 plug-in loaded"),
    warns("plugin_writable", "/etc/x.py was not loaded: others can write to it", "Make root its owner",
        local_rules=local_rules(broken=(BrokenPlugin("/etc/x.py", "others can write to it", True),))),
    well("plugin_writable", "1 plug-in loaded"),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()
