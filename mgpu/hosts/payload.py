"""What travels to a host: mgpu itself, so that it need not be installed there.

An archive of mgpu's and its checks' source goes over ssh's stdin into a private folder, which the far side removes at
its end. The packages that mgpu's probes need besides the standard library (pynvml, one file) travel too, but are only
used where the host's Python does not have them.
"""

from __future__ import annotations

import base64
import importlib.util
import io
import json
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
# In a clone, the checks are beside mgpu; installed, they are in it.
_PACKAGES = {"mgpu": "mgpu", "checks": "mgpu/checks"}
_ALSO = ("pynvml",)  # single files of the standard library's kind
OWN, OTHERS = "own", "others"  # folders of the archive

# Runs on the host, possibly in another version of Python. Its name there is `sys.argv`-free: all values are in stdin.
_BOOT = """\
import base64, errno, io, json, os, shutil, sys, tempfile, zipfile
sys.path[:] = [p for p in sys.path if p]
said = json.loads(sys.stdin.readline())
if sys.version_info < (3, 10):
    sys.stderr.write("mgpu: Python %d.%d is too old\\n" % sys.version_info[:2]); sys.exit(78)
data, place, why = zipfile.ZipFile(io.BytesIO(base64.b64decode(said.pop("archive")))), "", ""
for parent in dict.fromkeys([tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"]):
    try:
        if not os.path.isabs(parent) or parent == os.getcwd(): continue
        place = tempfile.mkdtemp(prefix="mgpu-", dir=parent)
        data.extractall(place)
        break
    except OSError as error:
        why, made, place = "%s: %s" % (parent, error.strerror), place, ""
        if made: shutil.rmtree(made, ignore_errors=True)
if not place:
    sys.stderr.write("mgpu: no folder for temporary files: %s\\n" % why); sys.exit(73)
try:
    sys.path.insert(0, os.path.join(place, "own")); sys.path.append(os.path.join(place, "others"))
    from mgpu.fleet.far_side import main
except BaseException:
    shutil.rmtree(place, ignore_errors=True); raise
main(place, **said)
"""


@cache
def archive() -> str:
    """Return the archive in base64. About 3 MB; it is made once for all hosts."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as target:
        for package, there in _PACKAGES.items():
            for path in sorted((_ROOT / package).rglob("*.py")):
                target.write(path, f"{OWN}/{there}/{path.relative_to(_ROOT / package)}")
        for name in _ALSO:
            found = importlib.util.find_spec(name)
            if found is not None and found.origin and found.origin.endswith(f"{name}.py"):
                target.write(found.origin, f"{OTHERS}/{name}.py")
    return base64.b64encode(stream.getvalue()).decode("ascii")


def program() -> str:
    """Return the program that unpacks the archive and starts the far side."""
    return _BOOT


def message(**values: Any) -> str:
    """Return what the program reads: the archive and the arguments of `far_side.main`, as one line."""
    return json.dumps({"archive": archive(), **values})
