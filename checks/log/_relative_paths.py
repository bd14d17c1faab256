"""Was an absolute path written without its first slash? Cases of the rows of files, adapters and models."""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case

from ._circumstances import line_of

# Folders that are at the top of a file system, each with what distinguishes it from a project's own folder.
_AT_ROOT = (
    r"(?:['\"<]|(?:Error|id): )(?:\./)?"
    r"(?:home/[^/'\"\s]+/|Users/[^/'\"\s]+/|(?:mnt|gpfs\w*|lustre\w*|nfs\w*)/[^/'\"\s]+/|root/autodl-tmp/|"
    r"kaggle/(?:input|working)/|content/drive/)[^'\"\s]"
)
_PYTHON = "https://docs.python.org/3/library/os.path.html#os.path.abspath"
_WHY = (
    "Its first folder is one that is at the top of a file system. Without a slash before it, or with ./, a path is "
    "looked for below the current folder of the process."
)
_FIX = Fix("Begin it with the slash, and check whether that path exists.", ("pwd; ls -ld /{path:path}",))


def without_slash(row: str, sample: str) -> Case:
    """Return the case of a row that names the missing path as `path`."""
    return Case(
        line_of(row, _AT_ROOT),
        "{path} is a relative path, and is probably meant as an absolute one: its first slash is missing",
        _WHY,
        _FIX,
        sample,
        _PYTHON,
    )


NAME_WITHOUT_SLASH = Case(
    line_of("log_hub_name_wrong", _AT_ROOT),
    "a local path is taken for a name of the Hub: it is a relative path, and probably only its first slash is missing",
    f"{_WHY} There is no such folder, so it is tried as a name.",
    Fix("Begin it with the slash, and check whether that path exists.", ("pwd; ls -ld /PATH",)),
    "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': "
    "'./home/ada/models/llama'. Use `repo_type` argument if needed.",
    _PYTHON,
)
