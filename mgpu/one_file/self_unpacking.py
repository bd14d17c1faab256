"""The `__main__.py` of `mgpu.pyz`: unpacks the file once, and starts mgpu.

It is read by every Python 3, so its syntax is that of Python 3.6 and it imports only the standard library. The sources
go into a private folder of the user's cache (XDG_CACHE_HOME, else ~/.cache), or where that cannot be written into one
of the folder for temporary files. A folder of another user, or that others may write to, is not used.
"""

import os
import sys

_OLDEST = (3, 10)
_KNOWN = ("python3.13", "python3.12", "python3.11", "python3.10")


def main() -> None:
    """Start mgpu from this file."""
    if sys.version_info < _OLDEST:
        _continue_in_newer()
    place = _unpacked(sys.argv[0])
    sys.path[0] = place  # instead of the file
    from mgpu.process import training_python

    training_python.carried = training_python.Carried(sys.executable, (place,))
    from mgpu.__main__ import main as run

    run()


def _continue_in_newer() -> None:
    """Continue in a Python on PATH that is new enough, or exit with the reason why there is none."""
    import shutil

    for name in _KNOWN:
        path = shutil.which(name)
        if path:
            os.execv(path, [path, *sys.argv])
    version = ".".join(map(str, sys.version_info[:2]))
    sys.exit(f"mgpu: Python {version} is too old: 3.10 or newer is required, and none is on PATH")


def _unpacked(archive: str) -> str:
    """Return the folder with this file's sources, unpacked if it is not there yet."""
    import json
    import zipfile

    with zipfile.ZipFile(archive) as source:
        about = json.loads(source.read("about.json").decode("utf-8"))
        here = ".".join(map(str, sys.version_info[:2]))
        if about["python"] not in ("", here):
            sys.exit(f"mgpu: this file was built for Python {about['python']}, and this is {here}")
        why = ""
        for parent in _parents():
            try:
                _claim(parent)
                place = os.path.join(parent, about["name"])
                if not os.path.isdir(place):
                    _unpack(source, parent, place)
                return place
            except OSError as error:
                why = why or f"{parent}: {error.strerror or error}"
    sys.exit(f"mgpu: no folder to unpack into: {why}")


def _parents() -> "list[str]":
    import tempfile

    cache = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):
        cache = os.path.join(os.path.expanduser("~"), ".cache")
    found = [os.path.join(cache, "mgpu")] if os.path.isabs(cache) else []
    return [*found, os.path.join(tempfile.gettempdir(), f"mgpu-{os.geteuid()}")]


def _claim(folder: str) -> None:
    """Make a private folder, or raise OSError if this one belongs to another user or others may write to it."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    about = os.lstat(folder)
    if os.path.islink(folder) or about.st_uid != os.geteuid() or about.st_mode & 0o022:
        raise PermissionError(1, "it is not yours alone", folder)


def _unpack(source: "object", parent: str, place: str) -> None:
    """Unpack beside the place, then rename: another process finds all files or none."""
    import shutil
    import tempfile
    import zipfile

    assert isinstance(source, zipfile.ZipFile)
    fresh = tempfile.mkdtemp(dir=parent)
    try:
        source.extractall(fresh, [name for name in source.namelist() if name not in ("__main__.py", "about.json")])
        os.rename(fresh, place)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)
        if not os.path.isdir(place):  # else another process was faster
            raise


if __name__ == "__main__":
    main()
