"""checks/packages.py"""

from __future__ import annotations

import pytest

from tests.checks.facts import Case, fails, informs, python, skips, table, warns, well

CASES = (
    fails("accelerate_missing", "no accelerate in /opt/env/bin/python", "/opt/env/bin/python -m pip install accelerate",
        packages={}),
    well("accelerate_missing", "accelerate 1.15.0"),
    # accelerate_too_old: 1.0
    warns("accelerate_too_old", "accelerate 0.34.2, 1.0 or newer wanted", "pip install --upgrade accelerate",
        packages={"accelerate": "0.34.2"}),
    well("accelerate_too_old", "accelerate 1.0", packages={"accelerate": "1.0"}),
    well("accelerate_too_old", "accelerate 1.0.0", packages={"accelerate": "1.0.0"}),
    well("accelerate_too_old", "accelerate 1.0.0rc1", packages={"accelerate": "1.0.0rc1"}),
    well("accelerate_too_old", "accelerate 1.16.0.dev0", packages={"accelerate": "1.16.0.dev0"}),
    skips("accelerate_too_old", "not installed", packages={}),
    # accelerate_of_another_python
    informs("accelerate_of_another_python",
        "accelerate on PATH runs /usr/bin/python3", "/opt/env/bin/python -m accelerate.commands.launch",
        python=python(accelerate_on_path="/usr/bin/python3")),
    well("accelerate_of_another_python", "this interpreter's"),
    well("accelerate_of_another_python", "this interpreter's",
        python=python(accelerate_on_path="/opt/env/bin/python3.11")),
    skips("accelerate_of_another_python", "no accelerate command on PATH", python=python(accelerate_on_path=None)),
    skips("accelerate_of_another_python", "not installed here",
        python=python(accelerate_on_path="/usr/bin/python3"), packages={}),
    # accelerate_default_config_left
    informs("accelerate_default_config_left",
        "a default_config.yaml is in the cache", "cat /home/ada/.cache/huggingface/accelerate/default_config.yaml",
        python=python(accelerate_default_config="/home/ada/.cache/huggingface/accelerate/default_config.yaml")),
    well("accelerate_default_config_left", "no leftover"),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()
