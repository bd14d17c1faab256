"""Does a training script accept the --local-rank that torch.distributed.launch passes?"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from mgpu.readers.job_script.log_folders import root_of
from mgpu.readers.job_script.python_files import content

_COMMENT = re.compile(r"#.*$", re.MULTILINE)
_OLD_SPELLING = re.compile(r"""add_argument\(\s*["']--local_rank["']""")
_OTHER_SPELLING = re.compile(r"""["']--local-rank["']|prefix_chars|sys\.argv\b""")
_STRICT = re.compile(r"\bparse_args\(")
_LENIENT = re.compile(r"\bparse_known_args\(|\bparse_known_intermixed_args\(")
# torch 1, which passes --local_rank: in requirements, an environment, a module that is loaded
_OLD_TORCH = re.compile(r"""\b(?:py)?torch["']?(?:\[\w+\])?\s*(?:={1,3}|~=|<=?|[/:-])\s*v?1\.\d""", re.IGNORECASE)
_TORCH_BELOW_2 = re.compile(r"""\b(?:py)?torch["']?\s*(?:[<>=!~]=?\s*[\d.]+\s*,\s*)?<\s*2(?:\.0)*\b""", re.IGNORECASE)
_NAMES = re.compile(
    r"(?:requirements?|environment|env|conda)[\w.-]*\.(?:txt|ya?ml|in)|setup\.(?:py|cfg)|pyproject\.toml"
    r"|(?:README|INSTALL)(?:\.\w+)?|Dockerfile[\w.]*",
    re.IGNORECASE,
)
_MOST_FILES = 20  # in a folder


def only_old_spelling(path: Path) -> bool:
    """Whether argparse of a Python script accepts --local_rank, and certainly not --local-rank."""
    text = _COMMENT.sub("", content(path))
    return bool(
        _OLD_SPELLING.search(text)
        and _STRICT.search(text)
        and not _OTHER_SPELLING.search(text)
        and not _LENIENT.search(text)
    )


def names_old_torch(texts: Sequence[str], path: Path) -> bool:
    """Whether one of these texts, or a file of the repository beside a script or above it, names torch 1."""
    return any(_is_old(text) for text in (*texts, *_of_repository(path)))


def _is_old(text: str) -> bool:
    return bool(_OLD_TORCH.search(text) or _TORCH_BELOW_2.search(text))


def _of_repository(path: Path) -> list[str]:
    root, found = root_of(path), []
    for folder in path.absolute().parents:
        try:
            names = [name for name in sorted(os.listdir(folder)) if _NAMES.fullmatch(name)]
        except OSError:
            break
        found += [content(folder / name) for name in names[:_MOST_FILES]]
        if folder == root:
            break
    return found
