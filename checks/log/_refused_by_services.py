"""Why did a model's API refuse a request: the key, the credit, the rate, the model's name, the length of the prompt?

The clients of OpenAI, Anthropic and others that are generated in the same way raise "Error code: STATUS - BODY". So do
servers of one's own that these clients call (vLLM, SGLang). Texts for `exceptions.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from mgpu.check import Fix
from mgpu.snapshot import UncaughtException

from .._wording import at_place
from ._messages import short_name
from ._own_objects import Meaning

# LiteLLM puts the names of its own exception and of the provider's before it.
_STATUS = re.compile(
    r"(?:(?:[\w.]{1,80}: ){0,3}(?P<provider>\w{1,40})Exception - )?"
    r"Error code: (?P<status>[45]\d\d)\b(?: - (?P<body>.*))?",
    re.S,
)
_OF_LITELLM = re.compile(r"(?:[\w.]{1,80}: ){1,3}(?P<provider>\w{1,40})Exception - (?P<body>.*)", re.S)
_CLIENT = re.compile(r"/_base_client\.py in ")
# The exceptions of the clients that Stainless generates, and of those that imitate them.
_TYPES = frozenset(
    {"APIStatusError", "AuthenticationError", "BadRequestError", "ConflictError", "InternalServerError"}
    | {"NotFoundError", "PermissionDeniedError", "RateLimitError", "UnprocessableEntityError"}
)
_SERVICES = {"openai": "OpenAI", "anthropic": "Anthropic", "groq": "Groq"}  # the names of their clients
_SAID = re.compile(r"['\"](?:message|error|detail|msg)['\"]: (?P<quote>['\"])(?P<said>.{4,}?)(?P=quote)(?=[,}])", re.S)
_MOST = 160  # characters of what the service said
_NO_CREDIT = re.compile(
    r"exceeded your current quota|"
    r"insufficient[_ ](?:quota|balance|credits?|funds)|(?:credit )?balance is too low|positive balance|"
    r"billing_hard_limit|exceeded your monthly included credits|payment required|out of credits?",
    re.I,
)
_TOO_LONG = re.compile(
    r"maximum context length (?:is|of) (?P<most>\d+)(?:.{0,200}?(?P<got>\d{2,}) tokens)?|context_length_exceeded|"
    r"prompt is too long(?:: (?P<got2>\d+) tokens > (?P<most2>\d+))?|longer than the model's context length",
    re.I | re.S,
)
_MODEL = re.compile(r"[Mm]odel:? [`'\"]?(?P<name>[\w./:-]{2,80}?)[`'\"]?(?:,? (?:does not exist|not found|is not)|$)")


class _Refused(NamedTuple):
    """What a status means. The title is a template."""

    title: str
    why: str
    fixes: tuple[Fix, ...]


# fmt: off
_CONTINUES = Fix("Let the program save what it has, so that it can go on from there.")
_KEY = Fix("Set the key where the job starts, and the address that it belongs to.",
           ("export OPENAI_API_KEY=... OPENAI_BASE_URL=https://...", "sbatch --export=ALL job.sh"))
_CREDIT = _Refused(
    "the account of the model's API has no credit left{at}",
    "The service refuses every request until there is credit or another month begins. Waiting and repeating does "
    "not help.",
    (Fix("Add credit, or use the key of another project."), _CONTINUES))
_LONG = _Refused(
    "the prompt is longer than the context of the API's model{sizes}{at}",
    "The tokens of the answer (max_tokens) count, too.",
    (Fix("Shorten the text before the request: cut it, leave old turns out, or ask for a shorter answer."),
     Fix("If the server is your own, start it with a longer context, if the model has one.",
         ("vllm serve MODEL --max-model-len 32768",))))
_STATUSES = {
    "401": _Refused("the model's API refuses the key{at}",
                    "The key is wrong, was revoked, or belongs to another service than the client's address. In "
                    "a batch job or a container, another variable or an old file can be read than in your shell.",
                    (_KEY,)),
    "403": _Refused("the model's API does not allow this to the key's account{at}",
                    "The model, the region or the project is not open to it.",
                    (Fix("Check what the key's project may use, and use its own key."),)),
    "404": _Refused("the model's API has no such model or address{model}{at}",
                    "The name is misspelled, the model was withdrawn, or the account has no access to it. A "
                    "server of one's own knows the model by the name that it was started with.",
                    (Fix("List the names that it has, and use one of them.",
                         ("print([one.id for one in client.models.list()])",)),)),
    "408": _Refused("the model's API did not answer in time{at}",
                    "The service is busy, or the answer is long.",
                    (Fix("Send fewer requests at the same time, let the client repeat them, and ask for shorter "
                         "answers.", ("OpenAI(max_retries=10)",)),)),
    "413": _Refused("the request is too large for the model's API{at}",
                    "It limits the size of a request.", (Fix("Shorten the text, or send smaller images."),)),
    "429": _Refused("the model's API got too many requests or tokens at a time{at}",
                    "The client has repeated the request a few times before it raised this.",
                    (Fix("Send fewer requests at the same time, and let the client wait longer.",
                         ("OpenAI(max_retries=10)", "semaphore = asyncio.Semaphore(4)")), _CONTINUES)),
}
_BAD_REQUEST = _Refused(
    "the model's API refuses the request{quoted}{at}",
    "The service read the request and does not accept a value in it. Not all models and servers know all parameters "
    "(max_tokens or max_completion_tokens, temperature, system messages, logprobs).",
    (Fix("Change what the message names in the request."),))
_SERVER = _Refused(
    "the server of the model's API failed{quoted}{at}",
    "The error is in the server, not in the request's client. It is overloaded or faulty, or, if it is your own, its "
    "log has the reason.",
    (Fix("If the server is your own, read its log."),
     Fix("Else repeat later, and let the client try again more often.", ("OpenAI(max_retries=10)",)), _CONTINUES))
_UNREACHED = Meaning(
    "",
    "The client could not connect: nothing listens at the address, a server of one's own is not up yet or has crashed, "
    "or this node has no way to the internet (nodes of a cluster often need a proxy).",
    (Fix("Try the address from the same node.", ("curl -sS -m 10 $OPENAI_BASE_URL/models", "env | grep -i proxy")),
     Fix("If the server is your own, read its log, and wait until it is up before the first request.")))
# fmt: on


def refused_by_service(one: UncaughtException) -> Meaning | None:
    """Return why a model's API refused a request; None if the exception is another one."""
    at = at_place(one)
    if short_name(one.type) == "APIConnectionError" and one.message.startswith("Connection error"):
        fixes = _of_service(_UNREACHED.fixes, one, "")
        return _UNREACHED._replace(title=f"the model's API could not be reached{at}", fixes=fixes)
    text = "\n".join(filter(None, (one.message, one.more)))
    found = _STATUS.match(text) if _by_client(one) else None
    if found:
        status, provider = found["status"], found["provider"] or ""
    elif one.type.startswith("litellm.") and (found := _OF_LITELLM.match(text)) and _NO_CREDIT.search(found["body"]):
        status, provider = "402", found["provider"]
    else:
        return None
    body = found["body"] or ""
    return _meaning(status, body, at, lambda fixes: _of_service(fixes, one, provider))


def _by_client(one: UncaughtException) -> bool:
    """Whether the client of a service raised it; a script's own "Error code: 404" is about something else."""
    return short_name(one.type) in _TYPES or any(map(_CLIENT.search, one.frames))


def _of_service(fixes: tuple[Fix, ...], one: UncaughtException, provider: str) -> tuple[Fix, ...]:
    """Return the fixes with the variables and the client of the service that was called."""
    package = provider.lower() or one.type.partition(".")[0]
    client = _SERVICES.get(package)
    variable = f"{client.upper()}_" if client else "THE_SERVICE_"
    retries = "completion(num_retries=" if provider else f"{client or 'Client'}(max_retries="

    def filled(command: str) -> str:
        return command.replace("OpenAI(max_retries=", retries).replace("OPENAI_", variable)

    return tuple(replace(fix, commands=tuple(map(filled, fix.commands))) for fix in fixes)


def _meaning(status: str, body: str, at: str, filled: Callable[[tuple[Fix, ...]], tuple[Fix, ...]]) -> Meaning:
    said = _said(body)
    long = _TOO_LONG.search(body)
    refused = _refused(status, body, long=bool(long))
    model = _MODEL.search(said)
    groups = {
        "at": at,
        "quoted": f': "{said}"' if said else "",
        "model": f": {model['name']}" if model else "",
        "sizes": _sizes(long) if long else "",
    }
    return Meaning(refused.title.format(**groups), refused.why, filled(refused.fixes), of_code=False)


def _refused(status: str, body: str, *, long: bool) -> _Refused:
    if status == "402" or _NO_CREDIT.search(body):
        return _CREDIT
    if long and status in ("400", "413", "422"):
        return _LONG
    return _SERVER if status >= "500" else _STATUSES.get(status, _BAD_REQUEST)


def _said(body: str) -> str:
    found = _SAID.search(body)
    said = " ".join((found["said"] if found else "").split()).rstrip(".")
    return f"{said[:_MOST].rstrip()} ..." if len(said) > _MOST else said


def _sizes(found: re.Match[str]) -> str:
    got, most = found["got"] or found["got2"], found["most"] or found["most2"]
    return f": {got} of {most} tokens" if got and most else f": more than {most} tokens" if most else ""
