"""Which key of a config is not an argument of the class that the config creates?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.command_line import shell
from mgpu.snapshot import Log

_REFUSED = re.compile(r"(?P<owner>[A-Za-z_]\w*)(?:\.__init__)?\(\) got an unexpected keyword argument '(?P<name>\w+)'")
_KEY = re.compile(r"full_key: (?P<key>[\w.\[\]-]+)")
_LINES_TO_KEY = 3  # Hydra prints it in the line after the exception


@check(
    Severity.ERROR,
    source="https://hydra.cc/docs/advanced/instantiate_objects/overview/",
    role="root",
    kind="library",
    same_as=("log_argument_not_accepted", "log_target_rejected"),
    tags=("precise",),
)
def log_config_key_not_accepted(log: Log) -> Answer:
    """A key of the config is not an argument of the class that this part of the config creates.

    Why: Hydra passes the keys of a section to the class that its _target_ names. A key that the class does not have
    stops the run, whether it is misspelled, from another version, or of another engine or class.

    Fix: Remove or rename the key in that section of the config, or in the overrides of the command line.
    """
    seen = next((one for one in log.seen if one.signature == "log_target_rejected" and not one.survived), None)
    refused = _REFUSED.search(seen.text) if seen else None
    of_key = next((one for one in log.shows if one.name == "config_object_key"), None)
    section = _KEY.search(of_key.text) if of_key else None
    if seen is None or refused is None or of_key is None or section is None:
        return Ok("no key that a class of the config does not accept")
    if of_key.file != seen.file or not 0 < of_key.line - seen.line <= _LINES_TO_KEY:
        return Ok("the key in the log belongs to another failure")
    key, owner = f"{section['key']}.{refused['name']}", refused["owner"]
    return Problem(
        f"the config has the key {key}, which {owner} does not accept",
        f"Hydra creates {owner} from the section {section['key']}, and passes its keys as arguments. {refused['name']} "
        "is not one of them: it is misspelled, or belongs to another class or version.",
        (
            Fix(
                "Remove it, or use the name that this class has. If the command line added it (+KEY=VALUE), remove it "
                "there.",
                (
                    shell("grep -rn {} --include='*.yaml' --include='*.sh' .", refused["name"]),
                    shell("python train.py '~{:dotted}'", key),
                ),
            ),
            Fix(f"See which keys {owner} has: the fields of its class, or its section in the default config."),
        ),
        {"line": seen.text, "key": of_key.text},
        tuple(f"rank {rank}" for rank in seen.ranks),
        Place(seen.file, seen.line),
    )
