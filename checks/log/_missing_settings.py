"""Which setting does the script read that its config file or its command line does not have?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import python, shell
from mgpu.signature import Meaning as RowMeaning
from mgpu.snapshot import UncaughtException

from ._keys_as_attributes import key_as_attribute
from ._own_objects import NAME, Meaning

# Classes whose attributes are the keys of a config file: easydict, ml_collections, mmengine, yacs, fvcore, munch,
# dotmap, and those that projects write for themselves. Box and Dict are also spaces of gymnasium.
_OF_CONFIGS = re.compile(
    r"(?:Easy|Config|Attribute|Dot|Named)Dict|configDict|CfgNode|CN|Cfg|AttrDict\w*|Munch|DotMap|[Bb]unch|[Dd]otdict|"
    r"DefaultMunch|ConfigNode|ConfigNamespace|SimpleNamespace"
)
_LACKS = re.compile(r"'(?P<owner>\w+)' object has no attribute '(?P<name>\w+)'(?:\. Did you mean: '(?P<like>\w+)')?")


def missing_in_config(one: UncaughtException) -> Meaning | None:
    """Explain a key that the object made from a config file does not have."""
    if looked_up := key_as_attribute(one):
        return looked_up
    found = _LACKS.match(one.message)
    if not found or not one.place or not _OF_CONFIGS.fullmatch(found["owner"]):
        return None
    name = found["name"]
    read = re.search(rf"(?P<of>{NAME})\.{re.escape(name)}\b(?! ?\()", one.own_code or "")
    key = f"{read['of']}.{name}" if read else name
    where, _, _ = key.rpartition(".")
    like = f" {where or 'It'} has a key {found['like']}, which is close." if found["like"] else ""
    return Meaning(
        f"the config has no key {name}, which {one.place} reads ({key})",
        f"{found['owner']} has the keys of a config file as its attributes. This file, or the section of it, lacks the "
        f"key: it was written for another version or another model of the project, a base file was not included, or "
        f"the name is misspelled.{like}",
        (
            Fix(
                "See how other config files of the project set it, and add it to yours.",
                (shell("grep -rn --include='*.y*ml' --include='*.json' --include='*.py' {:name} .", name),),
            ),
            *((Fix("Or print what the section has.", (python("print({:dotted}.keys())", where),)),) if where else ()),
        ),
    )


def other_option(groups: Mapping[str, str], raised: UncaughtException | None) -> RowMeaning | None:
    """Explain an option for which Python found one with a similar name; None: it found none."""
    found = _LACKS.search(raised.message) if raised else None
    if raised is None or found is None or not found["like"]:
        return None
    name, like = groups["name"], found["like"]
    return RowMeaning(
        f"the code reads the option {name}, which the command line does not have; it has {like}",
        f"{raised.place or 'The script'} reads args.{name}. The parser defines an option with a similar name: one of "
        "the two was renamed and the other was not, or the code was copied from a script with other options.",
        (
            Fix(
                f"If {like} is meant, read that one. If not, add the option.",
                (shell("grep -rn --include='*.py' {:name} .", name), python("parser.add_argument('--{:name}')", name)),
            ),
        ),
    )
