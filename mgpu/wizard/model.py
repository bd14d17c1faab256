"""How large is the user's model? Read from a folder, the local Hub cache, or the Hub; nothing is guessed."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mgpu import errors, file_reading
from mgpu.errors import MgpuError, reason
from mgpu.planning import plan
from mgpu.structured_text import Malformed, json_of
from mgpu.version import __version__
from mgpu.wizard import weights
from mgpu.wizard.answers import Answers
from mgpu.wizard.weights import Count, Uncountable

if TYPE_CHECKING:
    import urllib.request

_HUB: Final = "https://huggingface.co"
_DEADLINE_S = 8.0  # for the whole request, which includes DNS and possibly a slow proxy
_MOST_BYTES = 20_000_000
_MOST_REF: Final = 200  # bytes; a commit has 40
_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9_][\w.-]{0,95})?")
SET_PARAMS: Final = "Set the number:  --params 8.03B"


@dataclass(frozen=True)
class Found:
    """The size of a model, and its source."""

    params: int
    dtype: str  # as stored: BF16
    name: str
    where: str  # "from the local cache"
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The size and its source as text."""
        return f"{plan.params_text(self.params)} ({self.name}, {self.where})"


def is_model_name(text: str) -> bool:
    """Return whether a text is a model (an ID, a folder, a Hub URL) rather than a number."""
    text = text.strip()
    number = re.match(r"\.?[0-9]", text) and "/" not in text
    return bool(text) and text != "auto" and not number


def resolve_size(
    answers: Answers,
    *,
    offline: bool = False,
    script: Sequence[str] = (),
    python: str | None = None,
    say: Callable[[str], None] | None = None,
) -> Answers:
    """Return the answers with the size from a model (--model) or a script (--params-from), with origin "probe".

    The user's decisions stay. Raises MgpuError.
    """
    if script:
        from mgpu.wizard import parameter_probe

        measured = parameter_probe.measure(script, python=python, say=say)
        if say:
            say(measured.text)
        return parameter_probe.fill(answers, measured)
    if answers.model is None or answers.params is not None:
        return answers
    found = look_up(answers.model, offline=offline, say=say)
    return replace(
        answers,
        model=found.name,
        params=found.params,
        source=found.where,
        origins={**answers.origins, "params": "probe"},
    )


def look_up(
    name: str,
    *,
    offline: bool = False,
    environ: Mapping[str, str] = os.environ,
    say: Callable[[str], None] | None = None,
) -> Found:
    """Look up a model's size: in a folder, the local cache, or (unless offline) the Hub. Raises MgpuError."""
    name = name.strip()
    folder = Path(name).expanduser()
    if name and folder.is_dir():
        return _count_folder(name, folder, "from its folder")
    if folder.is_file():
        raise MgpuError(f"--model {name}: is a file; use the folder of the model, or an ID like org/name", errors.USAGE)
    name = re.sub(r"^(https?://)?(www\.)?(huggingface\.co|hf\.co)/", "", name).split("/tree/")[0].rstrip("/")
    if not _ID.fullmatch(name) or ".." in name:
        path = name.startswith(("/", ".", "~"))
        what = "no such folder" if path else "neither a folder nor an ID like meta-llama/Llama-3.1-8B"
        raise MgpuError(f"--model {name}: {what}", errors.USAGE)
    why_not = "is not in the local cache"
    for cached in _snapshots(name, environ):
        try:
            return _make_found(name, weights.count(cached), "from the local cache")
        except Uncountable as error:
            why_not = f"is in the local cache, but {error}"
    if offline or _offline(environ):
        how = "--offline" if offline else "HF_HUB_OFFLINE"
        raise MgpuError(f"--model {name}: it {why_not}, and {how} disables network access.\n{SET_PARAMS}", errors.USAGE)
    return _query_hub(name, environ, say)


def _count_folder(name: str, folder: Path, where: str) -> Found:
    try:
        return _make_found(name, weights.count(folder), where)
    except Uncountable as error:
        raise MgpuError(f"--model {name}: {error}.\n{SET_PARAMS}", errors.USAGE) from None


def _make_found(name: str, count: Count, where: str) -> Found:
    return Found(count.params, count.dtype, name, where, count.notes)


# -- the local cache ------------------------------------------------------------------------------------------------


def _snapshots(name: str, environ: Mapping[str, str]) -> list[Path]:
    """Return the snapshots of a model in the Hub's cache: main first, then the newest."""
    home = Path(environ.get("HOME") or "~").expanduser()
    hub = environ.get("HF_HUB_CACHE") or environ.get("HUGGINGFACE_HUB_CACHE")
    hf_home = environ.get("HF_HOME") or Path(environ.get("XDG_CACHE_HOME") or home / ".cache") / "huggingface"
    folder = Path(hub or Path(hf_home) / "hub").expanduser() / f"models--{name.replace('/', '--')}"
    try:
        found = sorted((folder / "snapshots").iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:
        return []
    try:
        main = file_reading.read(folder / "refs" / "main", most=_MOST_REF).decode("ascii", "replace").strip()
    except OSError:
        main = ""
    return sorted(filter(Path.is_dir, found), key=lambda path: path.name != main)


def _offline(environ: Mapping[str, str]) -> bool:
    """Return whether the environment sets the Hub's libraries to offline mode."""
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    return any(environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE") for name in names)


# -- the Hub --------------------------------------------------------------------------------------------------------


def _query_hub(name: str, environ: Mapping[str, str], say: Callable[[str], None] | None) -> Found:
    endpoint = (environ.get("HF_ENDPOINT") or _HUB).rstrip("/")
    host = re.sub(r"^https?://", "", endpoint).split("/")[0].rpartition("@")[2]
    if say:
        say(f"looking up the size of {name} on {host}")
    answer = _get(f"{endpoint}/api/models/{name}", name, host, environ)
    sizes = answer.get("safetensors")
    sizes = sizes.get("parameters") if isinstance(sizes, dict) else None
    if not isinstance(sizes, dict) or not all(isinstance(size, int) and size >= 0 for size in sizes.values()):
        raise MgpuError(f"--model {name}: {host} reports no size (no safetensors).\n{SET_PARAMS}", errors.USAGE)
    try:
        return _make_found(name, weights.by_dtype(sizes), f"from {host}")
    except Uncountable as error:
        raise MgpuError(f"--model {name}: {error}.\n{SET_PARAMS}", errors.USAGE) from None


def _get(url: str, name: str, host: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """Fetch the JSON document at a URL within the deadline. Raises MgpuError."""
    import urllib.error
    import urllib.request

    if not url.startswith(("https://", "http://")):
        raise MgpuError("HF_ENDPOINT: must start with https://", errors.USAGE)
    try:
        request = urllib.request.Request(url, headers={"User-Agent": f"mgpu/{__version__}"})
    except ValueError as error:
        raise MgpuError(f"HF_ENDPOINT: {reason(error)}", errors.USAGE) from None
    token = environ.get("HF_TOKEN", "").strip()
    if token.isascii() and token.isprintable() and token and url.startswith(f"{_HUB}/"):
        # Not sent to hosts that an answer redirects to.
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    result: list[Any] = []
    thread = threading.Thread(target=_fetch, args=(request, result), daemon=True)
    thread.start()  # a DNS look-up has no timeout of its own
    thread.join(_DEADLINE_S)
    got = result[0] if result else TimeoutError(f"no answer in {_DEADLINE_S:g} s")
    if isinstance(got, urllib.error.HTTPError):
        raise MgpuError(f"--model {name}: {_http_failure(got.code, host, bool(token))}.\n{SET_PARAMS}", errors.USAGE)
    if isinstance(got, BaseException):
        inner = getattr(got, "reason", got)
        why = reason(inner) if isinstance(inner, BaseException) else str(inner)
        raise MgpuError(
            f"--model {name}: it is not in the local cache, and {host} cannot be reached ({why}).\n{SET_PARAMS}",
            errors.USAGE,
        )
    try:
        answer = json_of(got)
    except Malformed:
        answer = None
    if not isinstance(answer, dict):
        raise MgpuError(f"--model {name}: {host} does not answer like the Hub.\n{SET_PARAMS}", errors.USAGE)
    return answer


def _fetch(request: urllib.request.Request, result: list[Any]) -> None:
    import urllib.request

    try:
        with urllib.request.urlopen(request, timeout=_DEADLINE_S) as response:
            result.append(response.read(_MOST_BYTES))
    except Exception as error:  # reported by the thread that waits
        result.append(error)


def _http_failure(code: int, host: str, token: bool) -> str:
    if code in (401, 403, 404):
        hint = "also not with HF_TOKEN" if token else "private models need HF_TOKEN"
        return f"{host} has no public model with that name (HTTP {code}; {hint})"
    if code == 429:
        return f"{host} limits the request rate (HTTP 429): wait a few minutes"
    return f"{host} returned HTTP {code}"
