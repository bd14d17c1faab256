"""A case as one file, NAME.mgpu.tar.gz: the facts, from which every report is made again, the page, and its document.

Only the facts are read back, in memory: nothing of an archive is ever written to disk. An archive from a stranger may
be a bomb, or contain links and paths that lead elsewhere: its size and its number of members are limited, and only a
regular member with the one name is used.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mgpu import errors, file_reading
from mgpu.errors import MgpuError, reason
from mgpu.snapshot import BadSnapshot, Snapshot, loads, to_json

ENDING: Final = ".mgpu.tar.gz"
FACTS, PAGE, DOCUMENT = "facts.json", "report.html", "case.json"
_LARGEST_FILE = 16 << 20  # bytes; a case of 16 GPUs and 64 ranks takes 0.1 MiB
_LARGEST = 64 << 20  # bytes unpacked
_LARGEST_FACTS = 16 << 20
_MOST_MEMBERS = 64


def is_archive(path: str) -> bool:
    """Whether a name is that of an archive."""
    return path.endswith(ENDING)


def packed(snapshot: Snapshot) -> bytes:
    """Return the archive of a redacted Snapshot. The same facts give the same bytes."""
    from mgpu.report import document
    from mgpu.report.case import case_document
    from mgpu.report.page import html_page

    case = case_document.of_facts(snapshot)
    members = {
        FACTS: document.facts_text(to_json(snapshot)),
        DOCUMENT: document.text(case),
        PAGE: html_page.text(case),
    }
    return _tar_gz({name: text.encode("utf-8", "surrogatepass") for name, text in members.items()})


def _tar_gz(members: Mapping[str, bytes]) -> bytes:
    plain = io.BytesIO()
    with tarfile.TarFile(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in members.items():
            about = tarfile.TarInfo(name)
            about.size, about.mode = len(content), 0o644
            tar.addfile(about, io.BytesIO(content))
    return gzip.compress(plain.getvalue(), mtime=0)


def read_facts(path: Path) -> Snapshot:
    """Return the facts in an archive, with their secrets masked. Raises MgpuError (usage) if it cannot be read."""
    from mgpu.snapshot.redaction import mask_secrets

    try:
        raw = file_reading.read(path, most=_LARGEST_FILE)
    except OSError as error:
        raise MgpuError(f"cannot read {path}: {reason(error)}", errors.USAGE) from None
    try:
        return mask_secrets(loads(_facts_in(_unpacked(raw)).decode("utf-8")))
    except (BadSnapshot, UnicodeDecodeError) as error:
        why = "it is not text" if isinstance(error, UnicodeDecodeError) else str(error)
        raise MgpuError(f"{path} is not a case that mgpu wrote: {FACTS}: {why}", errors.USAGE) from None
    except _Damaged as error:
        raise MgpuError(f"{path} is not a case that mgpu wrote: {error}", errors.USAGE) from None


class _Damaged(Exception):
    """An archive that mgpu did not write. The message is a clause."""


def _unpacked(raw: bytes) -> bytes:
    """Return the tar in a gzip file, of at most `_LARGEST` bytes."""
    stream = zlib.decompressobj(wbits=31)  # with the header of gzip
    try:
        plain = stream.decompress(raw, _LARGEST)
    except zlib.error:
        raise _Damaged("it is not a gzip file, or it is damaged") from None
    if stream.unconsumed_tail:
        raise _Damaged(f"it unpacks to more than {_LARGEST >> 20} MiB")
    if not stream.eof:
        raise _Damaged("it is cut off")
    if stream.unused_data:
        raise _Damaged("there is more in it than one file")
    return plain


def _facts_in(plain: bytes) -> bytes:
    try:
        with tarfile.TarFile(fileobj=io.BytesIO(plain)) as tar:
            for _ in range(_MOST_MEMBERS):
                member = tar.next()
                if member is None:
                    break
                if member.name == FACTS and member.isreg() and not member.issparse():
                    if not 0 <= member.size <= _LARGEST_FACTS:
                        raise _Damaged(f"its {FACTS} is larger than {_LARGEST_FACTS >> 20} MiB")
                    content = tar.extractfile(member)
                    return content.read(_LARGEST_FACTS) if content is not None else b""
    except (tarfile.TarError, OSError, ValueError, KeyError, EOFError, OverflowError, RecursionError):
        raise _Damaged("its tar is damaged") from None
    raise _Damaged(f"there is no {FACTS} in it")
