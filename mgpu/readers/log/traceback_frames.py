"""Whose frame is a line of a traceback: the user's, an installed package's, Python's own?"""

from __future__ import annotations

import re

FRAME = re.compile(r'\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?$')
RICH_FRAME = re.compile(r"(?P<file>/\S+|\S+\.py):(?P<line>\d+) in (?P<function>\S+)$")
IPYTHON_FRAME = re.compile(
    r"(?:File )?(?P<file>/?[\w./~+-]+\.py|[A-Za-z]:[\\/][^:*?\"<>|\n]{1,200}\.py|<ipython-input[^>]*>|"
    # VS Code translates "Cell".
    r"Cell In ?\[\d+\]|(?:[A-Za-z]:)?[^\s:][^:\n]{0,200}\.ipynb [^\W\d_]+ \d+)"
    r"(?:(?::|,? line )(?P<line>\d+))?"
    r"(?:,? in (?:[\w<>]+\.)*(?P<function>\w+|<[^>]*>)|(?<=\d)$)"  # without a function: in a cell, or an import
)
# The line of a frame that IPython marks among its neighbors.
IPYTHON_CODE = re.compile(r"-+> ?(?P<number>\d+) (?P<code>.*)")
IPYTHON_NEIGHBOR = re.compile(r"\s+(?:\d+(?: |$)|\(\.\.\.\))|\s*$")
# Threads of Python's own library that print an exception and go on: one request of a server, one tensor that a worker
# of a DataLoader did not fetch.
GOES_ON = re.compile(
    r"(?:^|[/\\])(?:socketserver\.py (?:process_request_thread|_handle_request_noblock)|"
    r"multiprocessing[/\\]resource_sharer\.py _serve)$"
)
# Also mgpu's recorder, which a rank loads from a clone of mgpu.
# Folders and files of torch. Outside of site-packages it is an archive that was unpacked, or a clone.
_OF_TORCH = (
    r"(?:distributed[/\\](?:_\w+|fsdp|tensor|checkpoint|elastic|pipelining|rpc|optim|algorithms|device_mesh|launch"
    r"|c10d_logger|distributed_c10d)|nn[/\\](?:modules|parallel|functional|utils|attention)|optim[/\\](?:_\w+|optimizer"
    r"|lr_scheduler|adamw?|sgd)|utils[/\\](?:data|checkpoint|_\w+|cpp_extension)|autograd[/\\](?:__init__|function|graph)"
    r"|_(?:dynamo|inductor|functorch|library)|testing[/\\]_internal)\b"
)
FOREIGN = re.compile(
    r"site-packages|dist-packages|/lib/python\d|/lib64/python\d|<(?:frozen|__array_function__) |<string>"
    # Windows: ...\Python311\Lib\json, ...\pythoncore-3.14-64\Lib, ...\miniconda3\envs\one\lib
    r"|[/\\](?i:python(?:core|softwarefoundation\.python)?[-.]?\d[^/\\]*|(?:ana|mini)conda\d*|miniforge\d*|"
    r"envs[/\\][^/\\]+)\\(?i:lib)\\"
    r"|[/\\]_mgpu_\w+\.py|__autograph_generated_file\w*\.py"
    rf"|[/\\]torch[/\\]{_OF_TORCH}"
)
QUOTED_FILE = re.compile(r"<(?:string|stdin|unknown|input|ast|exec|eval)>$|/tmp/(?!.*(?:torchinductor|site-packages))")
INSTALLED = re.compile(r"(?:site|dist)-packages[/\\](?P<path>(?P<package>\w+)\S*)")
# The same packages, and frameworks that people run from a clone of their repository.
CHECKED_OUT = re.compile(
    r"[/\\](?P<path>(?P<package>megatron(?=.(?:core|training|legacy|bridge)\b)|mbridge(?=.(?:core|models)\b)"
    r"|deepspeed(?=.(?:runtime|launcher|comm|ops|sequence|pipe|moe|checkpoint)\b)"
    r"|transformer_engine(?=.(?:pytorch|common)\b)|torchtitan(?=.(?:models|distributed|components|config|experiments)\b)"
    rf"|torch(?=.{_OF_TORCH})"
    r"|torchrec(?=.(?:distributed|modules|optim|sparse|inference|metrics|models|datasets)\b)"
    r"|torchtune(?=.(?:modules|training|config|models|recipes)\b)"
    # A clone has the package's name too: examples, documents and other repositories in it are not the package.
    r"|(?:llamafactory|llmtuner)(?=.(?:api|chat|cli|data|dsets|eval|extras|hparams|launcher|model|train|tuner|v1|webui)\b)"
    r"|verl(?=.(?:trainer|workers|utils|models|single_controller|third_party|experimental|interactions|protocol"
    r"|checkpoint_engine|model_merger|tools.(?:\w+_tools?\.py|schemas|utils))\b)"
    r"|openrlhf(?=.(?:cli|trainer|models|datasets|utils|launcher)\b)"
    r"|axolotl(?=.(?:cli|common|core|integrations|kernels|loaders|models|monkeypatch|processing_strategies"
    r"|prompt_\w+|utils|train|datasets|evaluate|telemetry)\b)"
    r"|open_instruct|skyrl_train|nemo_rl|nemo_automodel|lighteval"
    r"|unsloth_compiled_cache"
    r"|trl(?=.(?:trainer|scripts|generation|extras|models)\b)|swift(?=.(?:llm|trainers|rlhf_trainers|megatron|cli)\b)"
    r"|slime(?=.(?:ray|utils|backends|rollout)\b))[/\\]\S*)"
)
# Frames that pass on the arguments of their own caller: decorators, and the parsers that build an object of a config.
PASSES_ON = re.compile(
    r"(?:^|[/\\])(?:_?deprecation|hf_argparser|_contextlib|import_utils)\.py$"
    r"|packages[/\\](?:hydra|jsonargparse|fire|click|typer|tyro|draccus|dacite|omegaconf)[/\\]"
    r"|[/\\]mgpu[/\\]recorder[/\\]inject[/\\]"  # mgpu's recorder measures how long a call takes
)
# It only raises what its caller hands it.
RAISES_AGAIN = re.compile(r"[/\\]six\.py (?:raise_from|reraise)$")
ENVIRONMENT = re.compile(r"(?:[/\\]|<frozen )os(?:\.py|>)$")
DECORATORS = frozenset({"wrapped_func", "wrapped", "wrapper", "inner_f", "inner", "_inner", "_inner_fn", "new_init"})


def place_of(frame: re.Match[str]) -> str:
    """Return where a frame is, as a finding shows it: "train.py:41 in main"."""
    name = frame["file"].replace("\\", "/").rpartition("/")[2]
    function = frame["function"]
    where = f"{name}:{frame['line']}" if frame["line"] else name
    return where if not function or function.startswith(("<module", "<cell")) else f"{where} in {function}"
