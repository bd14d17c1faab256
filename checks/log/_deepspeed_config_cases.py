"""DeepSpeed decodes the name of a config file that does not exist as base64. What does the failure look like?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case

from ._circumstances import every, never, within

_SOURCE = "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/config.py"
_IN_CONFIG = r"deepspeed/runtime/config\.py in "
_SAMPLE = (
    'Traceback (most recent call last):\n  File "/e/lib/python3.11/site-packages/deepspeed/runtime/config.py", line 7, '
    "in __init__\n    config_decoded = base64.urlsafe_b64decode(config).decode('utf-8')\n"
)
_TITLE = "DeepSpeed's config file does not exist on this node, or at this path"
_WHY = (
    "DeepSpeed reads the config from the path if a file is there. If not, it decodes the text of the path as base64, "
    "which fails with this message. With several nodes, the file can be missing on some of them; a relative path "
    "depends on the folder in which each node starts."
)
_FIXES = (
    Fix(
        "Pass the full path of a file that all nodes share, and check it on each node.",
        ("pwd; ls -l ds_config.json", "pdsh -w HOSTS ls -l /shared/ds_config.json"),
    ),
)
CONFIG_AS_BASE64 = Case(
    within(_IN_CONFIG), _TITLE, _WHY, _FIXES, f"{_SAMPLE}binascii.Error: Incorrect padding\n", _SOURCE
)
CONFIG_AS_TEXT = Case(
    # Not a file that exists, in another encoding, which is read as JSON.
    every(within(_IN_CONFIG), never(within(r"hjson/|^json/|codecs\.py|encodings/"))),
    _TITLE,
    _WHY,
    _FIXES,
    f"{_SAMPLE}UnicodeDecodeError: 'utf-8' codec can't decode byte 0x9e in position 0: invalid start byte\n",
    _SOURCE,
)
