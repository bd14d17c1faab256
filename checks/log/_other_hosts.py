"""Which server did not answer or refused, if it is not the Hub? Texts for the rows of `hub.py`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import Command, shell
from mgpu.signature import Case, Meaning
from mgpu.snapshot import UncaughtException

from .._wording import at_place
from ._circumstances import line_of

_HUB = r"(?:[\w.-]*\.)?(?:huggingface\.co|hf\.co|hf-mirror\.com|xethub\.hf\.co|wandb\.ai|amazonaws\.com|github\w*\.com)"
_HOST = re.compile(
    rf"(?:host='|Failed to resolve '|(?:url: |://))(?!(?:{_HUB})\b)(?P<host>[A-Za-z][\w-]*(?:\.[\w-]+)+)"
)
_PORT = re.compile(r"host='[^']+', port=(\d{1,5})\b")
# They talk to a server of the run itself, which a case explains.
_WITH_SERVERS = frozenset(
    {"trl", "swift", "verl", "openrlhf", "slime", "open_instruct", "nemo_rl", "axolotl", "prime_rl"}
)
_REASONS = (
    (
        r"Name or service not known|NameResolution|Failed to resolve|getaddrinfo|Errno -[235]\b",
        "its name could not be resolved",
        "This node has no name server that knows it: no internet access, or a name that is misspelled or internal.",
    ),
    (
        r"Connection refused|Errno 111|WinError 10061",
        "it refused the connection",
        "The host answers, but nothing listens at the port: the service is not running, or has another port.",
    ),
    (
        r"[Tt]imed out|ConnectTimeout|ReadTimeout",
        "it did not answer in time",
        "A firewall drops the packets, this node has no way to the internet, or the service is busy.",
    ),
    (
        r"RemoteDisconnected|Connection reset|Errno 104|IncompleteRead",
        "it closed the connection",
        "The service or a proxy between ended it: too much load, a limit of time or size, or a restart.",
    ),
)


def of_host(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Name a server that is not the Hub's or a tracker's; None if the exception does not name it, or it is."""
    text = f"{raised.message} {raised.more or ''}" if raised is not None else ""
    hosts = {found["host"] for found in _HOST.finditer(text)}
    if raised is None or len(hosts) != 1 or _WITH_SERVERS & {*raised.packages}:
        return None
    host = hosts.pop()
    known = next(((what, why) for pattern, what, why in _REASONS if re.search(pattern, text)), None)
    what, why = known or (
        "the connection failed",
        "This node has no internet access or needs a proxy, or the service failed for a while.",
    )
    at = at_place(raised)
    return Meaning(
        f"{host} could not be reached: {what}{at}",
        why,
        (
            Fix("Try it from the same node.", (_try(host, text), "env | grep -i proxy")),
            Fix("If it worked before, repeat later, and let the program try again."),
        ),
    )


def _try(host: str, text: str) -> Command:
    port = _PORT.search(text)
    if port and port[1] != "443":
        return shell("nc -vz -w 10 {:host} {:number}", host, port[1])
    return shell("curl -sS -m 10 -o /dev/null -w '%{{http_code}}\\n' https://{:host}", host)


# fmt: off
OTHER_SERVER_BUSY = Case(
    line_of("log_hub_too_many_requests", rf"for url:? ['\"]?https?://(?!(?:{_HUB})\b)"),
    "a server rejected the request: too many requests",
    "The program sends more requests than the server allows for an address or a key at a time: in a loop, from several "
    "workers or ranks, or from other users of the same network.",
    (Fix("Wait between requests as long as the server says, and send fewer at a time.",
         ("time.sleep(int(response.headers.get('Retry-After', 60)))",)),
     Fix("Keep what was fetched in a file, and fetch it once.")),
    "requests.exceptions.HTTPError: 429 Client Error: Too Many Requests for url: https://api.example.org/v1/data",
    "https://developer.mozilla.org/docs/Web/HTTP/Status/429")
NAME_OF_TOKENIZER = Case(
    line_of("log_tokenizer_not_built", r"Can't load tokenizer for '(?![./~]|[A-Za-z]:)[\w-][\w.-]*(?:/[\w.-]+)?'"),
    "transformers found no tokenizer under the name in the message, neither in a folder nor on the Hub",
    "The name is misspelled, the Hub was not reached (the message does not say so), a local folder of the same name "
    "below the current folder hides it, or the repository has weights without a tokenizer.",
    (Fix("See whether a folder has that name, and whether the Hub answers.",
         ("pwd; ls -d NAME", "curl -sI https://huggingface.co | head -1")),
     Fix("If the repository has no tokenizer, load that of the base model.",
         ("AutoTokenizer.from_pretrained(BASE_MODEL)",))),
    "OSError: Can't load tokenizer for 'x/y'. If you were trying to load it from 'https://huggingface.co/models', make "
    "sure you don't have a local directory with the same name.",
    "https://huggingface.co/docs/transformers/main_classes/tokenizer")
# fmt: on
