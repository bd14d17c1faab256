"""Which setting has a value that a package does not accept, and which of the accepted ones was probably meant?

Libraries name the value and, mostly, the values that they accept. The script's own line names the setting.
"""

from __future__ import annotations

import difflib
import re

from mgpu.check import Fix
from mgpu.command_line import Code, python, shell
from mgpu.snapshot import UncaughtException
from mgpu.text import listed

from .. import _version_skew as skew
from .._wording import at_place
from ._messages import short_name
from ._own_objects import Meaning

_VALUE = r"[`'\"(]?(?P<value>[\w./+|-]{1,60}?)[`'\")]?"
# The groups: the value, what it is a value of, and the values that are accepted.
_SAID = (
    re.compile(
        rf"^{_VALUE} is not a valid (?P<what>[A-Za-z ]\w+(?: \w+)?)[,.]? (?:please select|[Vv]alid keys|Choose|Must be)"
        rf"(?P<accepted>.+)"
    ),
    re.compile(r"^'(?P<value>[^']{1,60})' is not a valid (?P<what>[A-Z]\w+)$"),
    re.compile(r"^Key (?P<value>\w{1,60}) is not a valid (?P<what>special token)\. Valid keys are: (?P<accepted>.+)"),
    re.compile(rf"^{_VALUE} is not supported, only (?P<accepted>.+?) are supported"),
    re.compile(r"^(?P<value>\w{1,40}) is not supported\. Please enter a valid (?P<what>\w+)"),
    re.compile(r"invalid (?P<what>\w+) name: `\w+='(?P<value>[^']{1,60})'`\.(?P<accepted>.*)"),
    re.compile(r"^[`']?(?P<what>\w+)[`']? (?P<value>[\w.-]{1,60}) is invalid\. Allowed \w+: (?P<accepted>.+)"),
    re.compile(
        r"^(?P<what>Precision|framework) '?(?P<value>[\w.-]{1,60}?)'? is invalid"
        r"(?:\. Allowed[\w ]+: (?P<accepted>.+))?$"
    ),
    re.compile(
        r"^(?P<what>Invalid `dtype` passed to the config)\. Expected either 'auto' or a string representing a valid "
        rf"`torch\.dtype`.{{0,40}}, but got {_VALUE}\.?$"
    ),
    re.compile(r"^`(?P<what>\w+)` can be (?P<accepted>[\w, -]{3,200}?) but got (?P<value>\S{1,60})$"),
    re.compile(
        r"^(?P<what>[\w ]{3,40}?) (?:should|must) be (?:one of|in) (?P<accepted>[\[({].+[\])}]),? (?:but )?got:? "
        rf"{_VALUE}$"
    ),
    re.compile(rf"^(?P<what>When passing device_map as a string).+? or (?P<accepted>'.+?) but found {_VALUE}\.?$"),
    re.compile(
        r"^['\"]?(?:Invalid|Unknown|Unsupported|Unrecognized|Unexpected) (?:value for )?(?P<what>[`']?[A-Za-z]\w*[`']?"
        rf"(?: [a-z]\w*){{0,2}}?)(?:[:=]|,? got)? {{0,2}}{_VALUE}(?: passed)?(?:[.,;:]| -) "
        r"(?P<accepted>(?i:must|should|it must|choose|supported|available|valid|allowed|expected|"
        r"please (?:select|choose|use)).+)"
    ),
    re.compile(
        r"^(?:Unknown|Invalid|Unsupported) (?P<what>loss type|[a-z]+_[a-z_]+|initialization|schedule|scheduler|"
        rf"optimizer|activation|backend|precision|mode|strategy|policy):? (?:\w+=)?{_VALUE}$"
    ),
)
# What transformers' and accelerate's enumerations are values of.
_OF_ENUM = {
    "IntervalStrategy": "eval_strategy or logging_strategy",
    "SaveStrategy": "save_strategy",
    "SchedulerType": "lr_scheduler_type",
    "OptimizerNames": "optim",
    "HubStrategy": "hub_strategy",
    "DebugOption": "debug",
    "FSDPOption": "fsdp",
    "PaddingStrategy": "padding",
    "TruncationStrategy": "truncation",
    "TensorType": "return_tensors",
    "DynamoBackend": "dynamo_backend",
    "DistributedType": "distributed_type",
    "RNGType": "rng_types",
    "LoggerType": "log_with",
    "PrecisionType": "mixed_precision",
    "ComputeEnvironment": "compute_environment",
    "framework": "framework",
    "Precision": "precision",
    "When passing device_map as a string": "device_map",
    "Format type": "the format type",
    "Invalid `dtype` passed to the config": "dtype",
}
# Short and long names of precisions: alike in letters, so that only these may be suggested for each other.
_PRECISIONS = {
    "fp16": ("float16", "16-mixed"),
    "bf16": ("bfloat16", "bf16-mixed"),
    "fp32": ("float32", "32-true"),
    "float16": ("fp16", "16-mixed"),
    "bfloat16": ("bf16", "bf16-mixed"),
    "float32": ("fp32", "32-true", "no"),
}
# What other libraries and people call a value. Others that are like it in letters are other settings.
_MEANT = {
    "linear_with_warmup": "linear",
    "linear_warmup": "linear",
    "cosine_with_warmup": "cosine",
    "cosine_warmup": "cosine",
    "cosine_annealing": "cosine",
    "wsd": "warmup_stable_decay",
    "plateau": "reduce_lr_on_plateau",
    "adam": "adamw_torch",
    "adamw": "adamw_torch",
    "adamw_hf": "adamw_torch",
    "causal": "causal_lm",
}
# Enumerations that do not print their values.
_VALUES = {
    "Invalid `dtype` passed to the config": "auto float32 float16 bfloat16",
    "DynamoBackend": "no eager aot_eager inductor aot_ts_nvfuser cudagraphs ofi fx2trt onnxrt tensorrt ipex tvm",
    "DistributedType": "NO MULTI_CPU MULTI_GPU DEEPSPEED FSDP XLA MEGATRON_LM",
    "RNGType": "torch cuda generator",
    "PrecisionType": "no fp8 fp16 bf16",
    "ComputeEnvironment": "LOCAL_MACHINE AMAZON_SAGEMAKER",
    "framework": "pt np tf flax mlx",
}
_TRAINER = frozenset({"SchedulerType", "OptimizerNames", "IntervalStrategy", "SaveStrategy"})
_WORDS = re.compile(
    r"'([^']{1,60})'|\"([^\"]{1,60})\"|`([^`]{1,60})`|(?<![\w'\"`])([A-Za-z0-9_][\w.:|+-]*)(?![\w'\"`])"
)
_NO_VALUES = re.compile(
    r"(?:and|or|one|of|the|an?|please|select|must|should|be|choose|from|between|supported|values?|are|allowed|available|"
    r"valid|names|in|types?|expected|following|either|string|example|choices|tasks?|keys|only|it|is)[.:]?$",
    re.IGNORECASE,
)
_LISTED = re.compile(r"['\"`\[({]|: |, | (?:and|or) ")
# Names of data, and packages of tables: what they lack is a column, not a value that they do not accept.
_OF_DATA = re.compile(r"col|key|field|name|label|feature|path|file|split|text", re.IGNORECASE)
_TABLES = re.compile(
    "pandas|datasets|numpy|polars|pyarrow|torch|seaborn|plotly|xarray|geopandas|dask|scanpy|anndata|sklearn|h5py"
)
_MOST = 8  # accepted values that are shown
_LIKE = 0.85  # of difflib: misspelled, not another word
_NUMBER = re.compile(r"-?[\d.]+(?:e-?\d+)?")  # has a range, not a spelling
_CLOSE_BY = r"(?P<setting>[A-Za-z_]\w*)['\"]? ?[=:] ?\[?['\"]{}['\"]"


def value_not_accepted(one: UncaughtException) -> Meaning | None:
    """Return which value of which setting a package does not accept; None if its message does not say so."""
    text = one.message or " ".join((one.more or "").split())
    if short_name(one.type) == "KeyError":
        return _key_of_table(one) or _in_words(text.strip("\"'"), one)
    return _in_words(text, one)


def _in_words(text: str, one: UncaughtException) -> Meaning | None:
    package = one.packages[-1] if one.packages else ""
    if not package:  # the script's own words can mean anything
        return None
    for pattern in _SAID:
        if (found := pattern.search(text)) and not _NUMBER.fullmatch(found["value"]):
            groups = found.groupdict()
            what = (groups.get("what") or "").strip("`' ")
            said = groups.get("accepted")
            if said and not _LISTED.search(said):  # advice, not a list: "Please log in again."
                continue
            accepted = _accepted(said or _VALUES.get(what, ""))
            return _meaning(found["value"], _setting(what, found["value"], one), accepted, what, one)
    return None


def _key_of_table(one: UncaughtException) -> Meaning | None:
    """Explain a KeyError in a package's table of names, if the script's own call passes that name as an option."""
    key = one.message.strip("'\"")
    package = one.packages[-1] if one.packages else ""
    if not package or _TABLES.fullmatch(package) or not re.fullmatch(r"[\w-]{2,40}", key):
        return None
    found = re.search(_CLOSE_BY.format(re.escape(key)), one.own_code or "", re.IGNORECASE)
    return _meaning(key, found["setting"], [], "", one) if found and not _OF_DATA.search(found["setting"]) else None


def _setting(what: str, value: str, one: UncaughtException) -> str:
    """Return the name of the setting: as the script writes it, or as the message calls it."""
    for line in (one.own_code or "", one.code or "", *one.own_lines):
        if found := re.search(_CLOSE_BY.format(re.escape(value)), line, re.IGNORECASE):
            return found["setting"]
    if not what:
        return "a setting"
    return _OF_ENUM.get(what, what if "_" in what else f"the {what}")


def _accepted(text: str) -> list[str]:
    quoted = re.search(r"['\"`]", text) is not None
    found = []
    for groups in _WORDS.findall(text[:2000]):
        plain = groups[3]
        word = next(filter(None, groups)).rstrip(".")
        if (plain and (quoted or plain.endswith(":") or _NO_VALUES.match(plain))) or "=" in word or " " in word:
            continue
        found.append(word)
    return list(dict.fromkeys(found))


def _nearest(value: str, accepted: dict[str, str]) -> str:
    """Return the accepted value that was probably meant; "" if none is like it. Keys are in lower case."""
    if re.fullmatch(r"(?:fp|bf|float|bfloat|int|f)\d+", value):
        return next((accepted[one] for one in _PRECISIONS.get(value, ()) if one in accepted), "")
    if value in _MEANT:
        return accepted.get(_MEANT[value], "")
    near = difflib.get_close_matches(value, accepted, 1, _LIKE)
    return accepted[near[0]] if near else ""


def _meaning(value: str, setting: str, accepted: list[str], what: str, one: UncaughtException) -> Meaning:
    package = skew.distribution(one.packages[-1])
    lower = {word.lower(): word for word in accepted}
    like = _nearest(value.lower(), lower)
    at = at_place(one)
    guess = f": probably {like} is meant" if like else ""
    shown = [like, *(word for word in accepted if word != like)] if like else accepted
    # A long message is cut: the number of the others is not known.
    some = f"{', '.join(shown[:_MOST])} and others" if len(shown) > _MOST + 1 else listed(shown)
    accepts = f"It accepts {some}. " if shown else ""
    other = " Names change between releases: an older one is a reason, too." if what in _TRAINER else ""
    single = " " not in setting and re.fullmatch(r"\w+", setting) is not None
    use: Code | str = python("{:name}='{:id}'", setting, like) if like and single else ""
    return Meaning(
        f"{setting} is '{value}', which {package} does not accept{guess}{at}",
        f"{accepts}The value is misspelled, or is one of another setting or of another release.{other}",
        (
            Fix(f"Use {like}." if like else f"Use a value that {package} accepts.", (use,) if use else ()),
            Fix(
                "If the script does not set it, look for it in config files and options.",
                (shell("grep -rnwF --include='*.py' --include='*.y*ml' --include='*.json' -e {} .", value),),
            ),
        ),
    )
