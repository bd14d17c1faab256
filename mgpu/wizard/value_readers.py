"""How is each kind of value read, from text or from a parsed TOML, JSON or YAML value, and how is it typed?

A reader raises ValueError with what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from mgpu import quantities
from mgpu.errors import MgpuError
from mgpu.hosts.named_hosts import read_hosts, read_python

MOST: Final = 999_999  # samples, steps, epochs: anything larger is a typing error
MOST_SAMPLES: Final = 1_000_000_000
_YEAR_S: Final = 365 * 24 * 3600  # the longest job


def whole_number(least: int, most: int) -> Callable[[object], int]:
    """Return a reader of whole numbers from `least` to `most`."""

    def read(raw: object) -> int:
        text = str(raw).strip().replace("_", "").replace(",", "")
        if isinstance(raw, bool) or not re.fullmatch(r"[0-9]{1,12}", text) or not least <= int(text) <= most:
            raise ValueError(f"expected a whole number from {least} to {most}")
        return int(text)

    return read


class one_of:
    """A reader of one of the names; `also` are other spellings."""

    def __init__(self, *names: str, **also: str) -> None:
        self.names, self._also = names, also

    def __call__(self, raw: object) -> str:
        """Return the name. Raises ValueError with the allowed ones."""
        text = ("no" if raw is False else str(raw)).strip().lower()  # YAML reads a bare no as False
        text = self._also.get(text, text)
        if text not in (*self._also.values(), *self.names):
            allowed = [*self.names, "auto"]
            import difflib

            near = difflib.get_close_matches(text, allowed, n=1, cutoff=0.5)
            hint = f". Did you mean {near[0]}?" if near else ""
            raise ValueError(f"choose {', '.join(allowed[:-1])} or {allowed[-1]}{hint}")
        return text


def yes_no(raw: object) -> bool:
    """Read yes or no."""
    text = str(raw).strip().lower()
    if text in ("1", "true", "yes", "on"):
        return True
    if text in ("0", "false", "no", "off"):
        return False
    raise ValueError("expected yes or no")


def name_of(raw: object) -> str:
    """Read a name on one line."""
    text = raw.strip() if isinstance(raw, str) else ""
    if not text or not text.isprintable() or len(text) > 500:
        raise ValueError("expected a name on one line")
    return text


def host_of(raw: object) -> str:
    """Read a host name or an IP address."""
    text = raw.strip() if isinstance(raw, str) else ""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*|\[?[0-9A-Fa-f:.%]*:[0-9A-Za-z:.%]*\]?", text):
        raise ValueError("expected a host name or an address, without a port")
    return text


def python_of(raw: object) -> str:
    """Read where the Python of hosts is: PATH, or HOST=PATH,HOST=PATH."""
    text = str(raw).strip()
    try:
        known = read_python(text)
    except MgpuError as error:
        raise ValueError(error.message.removeprefix("--python ").removeprefix(f"{text}: ")) from None
    if not known:
        raise ValueError("expected an absolute path, or HOST=PATH")
    return text


def hosts_of(raw: object) -> str:
    """Read the machines of --hosts: a list, or the name of a file."""
    text = raw.strip() if isinstance(raw, str) else ""
    try:
        read_hosts(text)
    except MgpuError as error:
        raise ValueError(error.message) from None
    return text


def rate_of(raw: object) -> float:
    """Read a learning rate."""
    value = quantities.parse_rate("" if isinstance(raw, bool | list | dict) else str(raw))
    if value > 1_000:
        raise ValueError(f"a learning rate of {value:g} is too large; expected a number such as 2e-5")
    return value


def params_of(raw: object) -> int:
    """Read a number of parameters: 8.03B, 350M, 8.03e9."""
    return quantities.parse_params(_digits(raw))


def count_of(raw: object) -> int:
    """Read a count: 52002, 52k, 1.2M."""
    return quantities.parse_count(_digits(raw))


def _digits(raw: object) -> str:
    """Return a parsed number (8.03e9) as text again, so one parser reads both."""
    if isinstance(raw, float) and raw.is_integer():
        return str(int(raw))
    return "" if isinstance(raw, bool | list | dict) else str(raw)


def gpus_of(raw: object) -> int | tuple[int, ...]:
    """Read how many GPUs (2), or which (0,1,3; 0-3; [2]; "3," is GPU 3 alone)."""
    if isinstance(raw, list | tuple):
        raw = ",".join(map(str, raw)) + ","
    text = str(raw).strip().replace(" ", "")
    if not isinstance(raw, bool):
        if re.fullmatch(r"[0-9]{1,4}", text):
            return int(text)
        if text.startswith("[") and text.endswith("]"):
            text = text[1:-1].rstrip(",") + ","
        if re.fullmatch(r"[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*,?", text):
            which: list[int] = []
            for part in filter(None, text.split(",")):
                first, _, last = part.partition("-")
                if int(last or first) < int(first):
                    raise ValueError(f"the range {part} is reversed")
                which += range(int(first), int(last or first) + 1)
            twice = next((index for index in which if which.count(index) > 1), None)
            if twice is not None:
                raise ValueError(f"GPU {twice} is listed twice")
            return tuple(sorted(which))
    raise ValueError('expected how many GPUs (2), which (0,1,3; "3," is GPU 3 alone), or auto')


def slurm_name(what: str, also: str = "") -> Callable[[object], str]:
    """Return a reader of a Slurm name, which is safe to put into a line of the job script as is."""

    def read(raw: object) -> str:
        text = raw.strip() if isinstance(raw, str) else ""
        if not re.fullmatch(rf"[A-Za-z0-9_][A-Za-z0-9_.@+{also}-]{{0,199}}", text):
            raise ValueError(f"expected {what}, spelled as in Slurm")
        return text

    return read


def time_of(raw: object) -> str:
    """Read a time limit of at most a year in Slurm's format."""
    from mgpu.probes import cluster

    text = str(raw).strip()
    try:
        length = cluster.parse_time(text)
    except ValueError:
        length = None
    if isinstance(raw, bool) or not length or length > _YEAR_S:
        raise ValueError("expected a time in Slurm's format: 90 (minutes), 12:00:00, 2-00:00:00")
    return text


def image_of(raw: object) -> str:
    """Read a container image: a file or a name."""
    text = raw.strip() if isinstance(raw, str) else ""
    if not text or not text.isprintable() or len(text) > 500 or text.startswith("-"):
        raise ValueError("expected a .sif or .sqsh file, or an image such as nvcr.io/nvidia/pytorch:25.10-py3")
    return text


def gpu_model_of(raw: object) -> str:
    """Read the name of a known GPU model."""
    from mgpu.planning import gpu_models

    found = gpu_models.models_named(raw) if isinstance(raw, str) else ()
    if len(found) != 1:
        near = found or gpu_models.MODELS
        raise ValueError(f"choose {', '.join(model.name for model in near[:-1])} or {near[-1].name}")
    return found[0].name


def command_of(raw: object) -> tuple[str, ...]:
    """Read a script and its arguments (train.py --lr 1e-4, or -m package.train), as one text or as a list."""
    import shlex

    try:
        words = tuple(map(str, raw)) if isinstance(raw, list | tuple) else tuple(shlex.split(str(raw)))
    except ValueError:
        words = ()
    script = bool(words) and (words[0].endswith(".py") or (words[0] == "-m" and len(words) > 1))
    if not script or any(not word.isprintable() for word in words):
        raise ValueError("expected the training script and its arguments: train.py --lr 1e-4, or -m package.train")
    return words


def port_of(raw: object) -> int | None:
    """Read a port; 0 means any free one, as None does."""
    return None if raw in (0, "0") else whole_number(1024, 65535)(raw)


def short_count(number: int) -> str:
    """Return a count as 8.03B if four digits are exact, else the number."""
    for unit, size in (("B", 10**9), ("M", 10**6)):
        if number >= size:
            short = f"{number / size:.4g}"
            if "e" not in short and round(float(short) * size) == number:
                return short + unit
    return str(number)


def gpus_text(value: int | tuple[int, ...]) -> str:
    """Return how many GPUs, or which as a list; a single one with a trailing comma."""
    if isinstance(value, int):
        return str(value)
    return ",".join(map(str, value)) + ("," if len(value) == 1 else "")


def decimal(value: float) -> str:
    """Return a rate as people write it: 2e-5."""
    return re.sub(r"e([+-])0*(\d)", lambda e: f"e{e[1].strip('+')}{e[2]}", repr(value))
