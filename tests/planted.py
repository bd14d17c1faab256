"""Which secrets do the tests plant? Made at run time, so that no scanner finds one in this repository."""

from __future__ import annotations

import re

from mgpu.secret_patterns import FORMS

_MIXED = "Q7xK2mVb9RtLw4Zs8NfHc3YpJd6Gg5TaUe1"
_OF: dict[str | None, str] = {
    None: _MIXED, "A": "K7QWZ2MBR5TXLVH3CDFGJN4P", "9": "7302815946", "f": "3fa9c04be17d8265",
}  # fmt: skip


def made(recipe: str) -> str:
    """The token of a recipe: {34} letters and digits, {16:A} capital letters, {12:9} digits, {40:f} hexadecimal."""

    def part(found: re.Match[str]) -> str:
        count, letters = int(found[1]), _OF[found[2]]
        return (letters * (count // len(letters) + 1))[:count]

    return re.sub(r"\{(\d+)(?::(\w))?\}", part, recipe)


def by_form() -> dict[str, str]:
    """Name -> a token of each form."""
    return {form.name: made(form.sample) for form in FORMS}


def by_name() -> dict[str, str]:
    """Name of a variable, key or option -> a value that only its name makes a secret; each a different one."""
    names = (
        "wandb_api_key", "hub_token", "db_password", "client_secret", "AWS_SECRET_ACCESS_KEY", "smtp_pass", "apitoken",
        "signing_key", "auth_token", "bearer", "sas_token", "mlflow_tracking_password", "NEPTUNE_API_TOKEN",
        "kaggle_key", "ssh_passphrase", "session_token", "connection_string", "webhook_url", "github_pat",
        "refresh_token",
    )  # fmt: skip
    return {name: f"zq{number:02}Vk{name[::-1].replace('_', '')}7w" for number, name in enumerate(names)}


def in_urls() -> dict[str, tuple[str, str]]:
    """Address -> (the whole address, the part of it that is a secret)."""
    found = {}
    for number, shape in enumerate((
        "https://ada:{}@host.example/x", "postgresql://ml:{}@db:5432/runs", "https://{}@git.example/a.git",
        "https://h.example/f?token={}&a=1", "https://h.example/f?a=1&sig={}", "s3://b/k?X-Amz-Signature={}",
        "https://h.example/?access_token={}#x", "redis://:{}@cache:6379/0",
    )):  # fmt: skip
        secret = f"uR{number}lSecret{number * 37 + 11}pW"
        found[shape] = (shape.format(secret), secret)
    return found


def private_key() -> tuple[str, str]:
    """A PEM block, and a line of it that must not be seen."""
    line = made("MIIE{60}")
    kind = "RSA PRIVATE " + "KEY-----"
    return f"-----BEGIN {kind}\n{line}\n{line[::-1]}\n-----END {kind}", line
