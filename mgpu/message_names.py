"""Which model, path, host or port does an error message name? Commands of fixes name it instead of a placeholder."""

from __future__ import annotations

import re

from mgpu.command_line import Command, python, shell

_NAME = r"[\w.-]{0,95}\w"
_HUB = r"//(?:huggingface\.co|hf\.co)"
# Old repositories have no organization: in "api/datasets/glue/paths-info/main", the name is "glue".
_REPOSITORY = rf"{_NAME}(?:/(?!(?:paths-info|resolve|revision|tree|raw|blob|parquet|refs|commits)\b){_NAME})?"
_NOT_FOUND = re.compile(r"(?P<name>\S+) is not a local folder and is not a valid model identifier")  # path or model
_MODELS = (
    re.compile(rf"{_HUB}/api/models/(?P<name>{_REPOSITORY})"),
    # A file of a repository; old repositories have no organization: "gpt2".
    re.compile(rf"{_HUB}/(?!datasets/|spaces/)(?P<name>{_NAME}(?:/{_NAME})?)/(?:resolve|raw|blob|tree)/"),
    _NOT_FOUND,
    re.compile(r"Access to model (?P<name>\S+) is restricted"),
)
_DATASETS = (
    re.compile(rf"{_HUB}/(?:api/)?datasets/(?P<name>{_REPOSITORY})"),
    re.compile(r"Access to dataset (?P<name>\S+) is restricted"),
    re.compile(r"Dataset '(?P<name>[^']+)' doesn't exist on the Hub"),
    re.compile(r"Couldn't reach '(?P<name>[^']+)' on the Hub"),
    re.compile(r"Loading (?P<name>\S+) requires you to execute"),
)
_PATHS = (
    re.compile(r"Incorrect path_or_model_id: '(?P<name>[^']+)'"),
    re.compile(r"'namespace/repo_name': '(?P<name>[^']+)'"),
    re.compile(r"(?:\[Errno \d+\]|Error:) [^:']+: '(?P<name>[^']+)'"),
    _NOT_FOUND,
)
_ENDPOINTS = (
    re.compile(r"(?:connect to|addresses of) \((?P<name>[\w.:-]+), (?P<port>\d{1,5})\)"),
    re.compile(r"(?:connect to|to host) \[?(?P<name>[\w.-]+)\]?:(?P<port>\d{1,5})\b"),
)
_TAKEN = (
    re.compile(r"local network address\. port: (?P<port>\d{1,5})\b"),
    re.compile(r"(?:bind to|listen on) (?:\[[\w.:%-]*\]|[\w.-]+):(?P<port>\d{1,5})\b"),
    re.compile(r"(?:bind to|listen on) \(?'?[\w.:-]+'?, (?P<port>\d{1,5})\b"),
    re.compile(r"bind on address \('[\w.:-]*', (?P<port>\d{1,5})\)"),
)
# The folder of the file that could not be written.
# A copy names its source first: the full disk is the other's.
_FULL = (re.compile(r"\[Errno (?:28|122)\] [^:']+: (?:'[^']+' -> )?'(?P<name>[^']+)/[^/']*'(?! ->)"),)
_HOSTS = (
    *_ENDPOINTS,
    re.compile(r"[Cc]ould not resolve hostname (?P<name>[\w.-]+)"),
    re.compile(r"hostname (?P<name>[\w.-]+) not (?:known|found)"),
)
# A file that a line of code names, also below a folder that it computes.
_IN_CODE = re.compile(
    r"(?P<call>(?:\b|_)(?:load|open|read|imread|from_file|File)\w*)\(\s*"
    r"(?:[\w.]{1,60} ?/ ?|(?:os\.path\.|\b)join\([\w.]{1,60}, ?)?"
    r"r?(?P<quote>['\"])(?P<name>(?![a-z]{1,10}://)[^'\"{}]{1,195}\.[A-Za-z]\w{0,11})(?P=quote)"
)
# Every call that can be the one that reads, if the line has several.
_READS = re.compile(r"(?:\b|_)(?:safe_load|load|imread|from_file|File|safe_open)\w*\(")
_NO_READS = re.compile(r"load_state_dict\(")
# These get the name of a model, a repository or a config, too: "base.en", "ada/nets.main".
_OF_OTHERS = re.compile(
    r"(?<!\btorch\.)(?<!\bnp\.)(?<!\bnumpy\.)(?<!\bjson\.)(?<!\bpickle\.)(?<!\bjoblib\.)\bload(?!_file\b)"
)
_WEIGHTS_OR_DATA = re.compile(
    r"\.(?:pth?|ckpt|bin|safetensors|h5|hdf5|keras|onnx|np[yz]|pkl|pickle|joblib|mat|wav|flac|mp3|nii|gz|zip|tar|model)$"
)
_OF_CODE = (("ls -la FILE", "ls -la {name:path}"), ("head -c 100 FILE", "head -c 100 {name:path}"))
_SCRIPT = re.compile(r"(?<![\w./-])train\.py(?![\w.])")
# What a command of a fix contains: what replaces it, and the messages that have the name.
_FILLED = (
    ("hf download ORG/MODEL", "hf download {name:id}", _MODELS),
    ("hf download ORG/MODEL", "hf download --repo-type dataset {name:id}", _DATASETS),
    ("--force-download ORG/MODEL", "--force-download {name:id}", _MODELS),
    ("--force-download ORG/MODEL", "--force-download --repo-type dataset {name:id}", _DATASETS),
    ("ls -ld PATH", "ls -ld {name:path}", _PATHS),
    ("findmnt -T PATH", "findmnt -T {name:path}", _PATHS),
    ("df -h .; df -i .", "df -h {name:path}; df -i {name:path}", _FULL),
    ("nc -vz HOST 29500", "nc -vz {name:host} {port:number}", _ENDPOINTS),
    ("ss -ltnp 'sport = :29500'", "ss -ltnp 'sport = :{port:number}'", _TAKEN),
    ("getent hosts HOST", "getent hosts {name:host}", _HOSTS),
)


def fill_names(command: str, message: str) -> str:
    """Return the command of a fix with its placeholders replaced by what the message names."""
    for placeholder, template, patterns in _FILLED:
        found = next((found for pattern in patterns if (found := pattern.search(message))), None)
        if placeholder in command and found and (known := shell(template, **found.groupdict())):
            command = Command(command.replace(placeholder, known))
    found = next((found for pattern in _DATASETS if (found := pattern.search(message))), None)
    if found and (named := python("load_dataset('{:id}',", found["name"])):
        command = command.replace("load_dataset(NAME,", named)
    return command


def path_in_code(code: str | None) -> str | None:
    """Return the only file that a line of code reads, if the line has its name."""
    found = [*_IN_CODE.finditer(code or "")]
    if not code or len({one["name"] for one in found}) != 1:
        return None
    name = found[0]["name"]
    reads = len(_READS.findall(_NO_READS.sub("(", code)))
    of_other = _OF_OTHERS.match(code, found[0].start("call")) and not _WEIGHTS_OR_DATA.search(name)
    # In load(load(open("a.json"))["b"]), the outer call reads another file.
    return None if of_other or code[: found[0].start()].endswith("hub.") or reads > 1 else name


def fill_file(command: str, path: str | None) -> str:
    """Return the command of a fix with the file that the script's line reads in place of FILE."""
    for placeholder, template in _OF_CODE if path else ():
        if placeholder in command and (known := shell(template, name=path)):
            command = Command(command.replace(placeholder, known))
    return command


def name_script(command: str, target: str) -> str:
    """Return the command of a fix for another script than train.py. `target`: shell words that start it."""
    return _SCRIPT.sub(lambda _: target, command)
