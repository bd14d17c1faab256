"""What does the user's own launch line start? Read from its words, its environment and its files; nothing is run.

The words are facts only: the line itself is started unchanged.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mgpu.errors import USAGE, MgpuError
from mgpu.known_launchers import Launcher
from mgpu.launchers import accelerate_line, deepspeed_hosts, framework_yaml, option_words
from mgpu.launchers.foreign_programs import FRAMEWORKS, LAUNCHERS, OTHER, PYTHON, Framework, Program
from mgpu.launchers.framework_yaml import Settings
from mgpu.readers.job_script import programs
from mgpu.snapshot import Config

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_STATIC_PORT = 29500  # torchrun's and deepspeed's default
_FAR = programs.SPREADS | programs.CONTAINERS
_ON = ("true", "y", "1")  # LLaMA-Factory's is_env_enabled


@dataclass(frozen=True)
class Line:
    """A launch line, and what it is known to start before it runs."""

    words: tuple[str, ...]
    program: Program
    launcher: Launcher = "command"  # how its processes and its exit code are recognized
    config: Config = Config("", None, {}, {})  # the ranks as checks read them; its path is "" without a file
    ranks: int | None = None  # on this node; None: not known before it runs
    nodes: int = 1
    node_rank: int | None = None
    port: int | None = None  # a fixed rendezvous port
    script: tuple[str, ...] = ()  # and its arguments, or -m, a module and its arguments
    settings: Settings | None = None  # of a framework's YAML
    notes: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the words that may name output folders."""
        output = self.settings.output if self.settings else ""
        return (*self.words[1:], *(["--output_dir", output] if output else []))


@dataclass(frozen=True)
class _Input:
    """What a line is read from."""

    words: tuple[str, ...]  # after the program's name
    environ: Mapping[str, str]
    gpus: int | None  # visible ones; None: not known yet


def read(words: Sequence[str], gpus: int | None = None, environ: Mapping[str, str] = os.environ) -> Line:
    """Return the facts of a line. `gpus`: how many the line's programs will see. Raises MgpuError."""
    line = tuple(words)
    start, through = _program_at(line)
    set_before = dict(word.split("=", 1) for word in line[:start] if _ASSIGNMENT.match(word))
    one = _Input(line[start:], {**environ, **set_before}, gpus)
    found = _read(one)
    if far := next((programs.base(word) for word in through if programs.base(word) in _FAR), ""):
        note = f"mgpu watches the processes that {far} starts on this machine as its children, no others"
        found = Line((), found.program, config=_config("", 1, 1), settings=found.settings, notes=(note,))
    return replace(found, words=line)


def _program_at(words: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
    """Return the index of the program behind wrappers (env, numactl, srun ...), and these wrappers."""
    place, through = 0, []
    while not programs.launcher_of(words[place:]) and not _framework(words[place:]):
        inner = programs.after_wrapper(words[place:])
        named = [n for n, word in enumerate(words[place + 1 :], 1) if _is_framework(word)] if inner is None else []
        if inner is None and not (named and programs.base(words[place]) in _WRAPPERS):
            break
        through.append(words[place])
        place += named[0] if inner is None else inner
    return place, tuple(through)


# Those that are followed to a framework's command, which is no launcher to the reader of job scripts.
_WRAPPERS = _FAR | {"env", "nohup", "time", "numactl", "nice", "stdbuf", "uv", "conda", "poetry", "nsys", "taskset"}


def _is_framework(word: str) -> bool:
    return any(one.framework and programs.base(word) in one.framework.commands for one in FRAMEWORKS)


def _read(one: _Input) -> Line:
    if found := _framework(one.words):
        program, arguments = found
        return _READ_FRAMEWORK[program.name](program, replace(one, words=arguments))
    launcher = programs.launcher_of(one.words)
    if launcher and launcher[0] == "mgpu":
        raise MgpuError("the command is mgpu launch itself. Leave out one of the two", USAGE)
    if launcher and launcher[0] in LAUNCHERS:
        after = replace(one, words=one.words[launcher[1] + 1 :])
        return _with_framework(_READ[launcher[0]](LAUNCHERS[launcher[0]], after))
    if programs.is_python(one.words[0]) or (launcher and launcher[0] == "python"):
        return _python(one, launcher[1] if launcher else 0)
    return Line((), OTHER, config=_config("", 1, 1))


def _framework(words: Sequence[str]) -> tuple[Program, tuple[str, ...]] | None:
    """Return the framework that a command starts, and its arguments."""
    rest = tuple(words)
    python = bool(rest) and programs.is_python(rest[0])
    while len(rest) > 1 and python and rest[1].startswith("-") and rest[1] != "-m":
        rest = (rest[0], *rest[2:])
    for one in FRAMEWORKS:
        assert one.framework is not None
        if python and rest[1:2] == ("-m",) and rest[2:3] and rest[2] in one.framework.modules:
            return one, rest[3:]
        named = rest[1:] if python else rest
        if named and programs.base(named[0]) in one.framework.commands:
            return one, named[1:]
    return None


def _config(option: str, ranks: int | None, nodes: int, address: str = "") -> Config:
    """Return the ranks of a line without a file as a config, for the checks. What is not known is `given`."""
    world = (ranks or 1) * nodes
    values = {"distributed_type": "MULTI_GPU" if world > 1 else "NO", "num_processes": world, "num_machines": nodes}
    values |= {"main_process_ip": address} if address and nodes > 1 else {}
    given = ("main_process_ip", "main_process_port", "machine_rank")
    return Config("", None, values, {}, given=given, line=option)


# torchrun


def _torchrun(program: Program, one: _Input) -> Line:
    given = option_words.read(one.words, program.options)
    options = {**_defaults(program, one.environ), **given.values}
    ranks = _local_ranks(options.get("nproc_per_node", "1"), one.gpus)
    nodes = option_words.whole_number(options.get("nnodes", "1").rpartition(":")[2]) or 1
    alone = "standalone" in options
    static = options.get("rdzv_backend", "static") == "static" and not options.get("rdzv_endpoint")
    host, _, text = options.get("rdzv_endpoint", "").rpartition(":")
    port = option_words.whole_number(options.get("master_port", "") if static else text)
    if static and nodes > 1 and port is None:
        port = _STATIC_PORT
    address = options.get("master_addr", "") if static else host
    node = option_words.whole_number(options.get("node_rank", ""))
    return Line(
        (),
        program,
        "torchrun",
        _config("--nproc-per-node", ranks, nodes, address),
        ranks,
        nodes,
        (node or 0 if static else node) if nodes > 1 else None,
        None if alone else port or None,
        _script(given, "module" in options),
    )


def _defaults(program: Program, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the options that are set by variables: PET_NNODES=2. A switch counts if it is 1."""
    named = {name: environ.get(program.options.variables + name.upper(), "") for name in program.options.values}
    switches = (name for name in program.options.switches if environ.get(f"PET_{name.upper()}") == "1")
    return {name: value for name, value in named.items() if value} | dict.fromkeys(switches, "")


def _local_ranks(text: str, gpus: int | None) -> int | None:
    """Return how many ranks torchrun starts on this node: a number, gpu, cpu or auto."""
    if text == "cpu" or (text == "auto" and gpus == 0):
        return os.cpu_count()
    return (gpus or None) if text in ("gpu", "auto") else option_words.whole_number(text) or None


def _script(given: option_words.Given, module: bool) -> tuple[str, ...]:
    return ("-m", *given.rest) if module and given.rest else given.rest


# accelerate


def _accelerate(program: Program, one: _Input) -> Line:
    given = option_words.read(one.words, program.options)
    path = accelerate_line.config_file(given, one.environ)
    config = accelerate_line.config_of(path, given)
    nodes = config.num_machines
    world = config.num_processes if "num_processes" in config.values or not path else None
    ranks: int | None = world // nodes if world else None
    if accelerate_line.counts_gpus(path, given):
        ranks = one.gpus
    several = accelerate_line.starts_several(config, given) or (
        ranks is not None and accelerate_line.is_multi_gpu_by_itself(path, given, ranks, one.gpus or 0)
    )
    ranks = ranks if several else 1
    port = given.number("main_process_port")
    node = given.number("machine_rank")
    node = config.values.get("machine_rank") if node is None else node
    address = given.values.get("main_process_ip", "")
    return Line(
        (),
        program,
        "accelerate",
        config if path else _without_file(config, ranks, nodes, address),
        ranks or None,
        nodes,
        (node if type(node) is int else 0) if nodes > 1 else None,
        (config.port if port is None else port) or (_STATIC_PORT if nodes > 1 else None),
        _script(given, "module" in given.values),
        notes=_notes_of_accelerate(config, ranks, one),
    )


def _without_file(config: Config, ranks: int | None, nodes: int, address: str) -> Config:
    """Return the ranks of a line without a file; the options that choose GPUs, CPU and precision are values too."""
    shape = _config("--num_processes", ranks, nodes, address)
    kept = {key: config.values[key] for key in ("gpu_ids", "use_cpu") if key in config.values}
    return replace(shape, values={**shape.values, **kept})


def _notes_of_accelerate(config: Config, ranks: int | None, one: _Input) -> tuple[str, ...]:
    if one.gpus == 0 and (ranks or 0) > 1 and "ACCELERATE_USE_CPU" not in one.environ:
        # measured with accelerate 1.15 and torch 2.13, as in argv.on_cpu
        return ("no GPU: with an Accelerator each process trains alone, unless ACCELERATE_USE_CPU=true is set",)
    wanted = config.values.get("num_processes")
    if ranks != 1 or type(wanted) is not int or wanted // config.num_machines < 2:
        return ()
    return (f"accelerate starts one process, not {wanted}: without --multi_gpu and several GPUs it ignores the number",)


# deepspeed


def _deepspeed(program: Program, one: _Input) -> Line:
    given = option_words.read(one.words, program.options)
    hosts = deepspeed_hosts.chosen(given, one.environ)
    port = given.number("master_port")
    script = _script(given, "module" in given.values)
    line = Line((), program, "deepspeed", port=_STATIC_PORT if port is None else port or None, script=script)
    if hosts.unread:
        return replace(line, config=_config("--num_gpus", None, 1), notes=(hosts.unread,))
    nodes = len(hosts.slots) or 1
    alone = "no_ssh" in given.values
    if not alone and (nodes > 1 or "force_multi" in given.values):
        note = f"deepspeed starts the ranks on {', '.join(hosts.slots)} over ssh: mgpu watches only its launcher here"
        return replace(line, launcher="command", config=_config("", 1, 1), port=None, notes=(note,))
    number = given.number("num_gpus") or given.number("num_accelerators")
    ranks = number or hosts.here(given.number("node_rank") if alone else None) or one.gpus or None
    node = given.number("node_rank") if nodes > 1 else None
    config = _config("--num_gpus", ranks, nodes, given.values.get("master_addr", ""))
    return replace(line, config=config, ranks=ranks, nodes=nodes, node_rank=node)


# Python, and the frameworks


def _python(one: _Input, last: int) -> Line:
    index = programs.script_of("python", one.words, last)
    script = one.words[index:] if index is not None and not one.words[index].startswith("-") else ()
    if index is not None and one.words[index - 1] == "-m":
        script = ("-m", *script)
    of_a_job = one.environ.get("RANK", "").isdigit()  # a rank that is started by hand: its children are none
    return Line((), PYTHON, "python" if of_a_job else "command", _config("", 1, 1), 1, script=script)


def _with_framework(line: Line) -> Line:
    """Return a launcher's line with the settings of the framework that it starts: -m axolotl.cli.train x.yaml."""
    target = line.script[1:] if line.script[:1] == ("-m",) else line.script
    for one in FRAMEWORKS:
        of = one.framework
        if of and target and _is_one_of(target[0], of.runs):
            return replace(line, settings=_yaml(of, target[1:]))
        if of and target and _is_one_of(target[0], of.may_run):
            settings = _yaml(of, target[1:], defaults=False)
            return replace(line, settings=settings if settings and settings.batch else None)
    return line


def _is_one_of(target: str, names: tuple[str, ...]) -> bool:
    return any(target == name or target.endswith(f"/{name}") for name in names)


def _yaml(framework: Framework, arguments: tuple[str, ...], *, defaults: bool = True) -> Settings | None:
    """Return the settings of the YAML among a framework's arguments, with the options that replace its values."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    path = next((word for word in own if word.endswith(framework.keys.suffixes)), "")
    if not path:
        return None
    plain = framework.keys.interpolates
    overrides = dict(framework_yaml.key_values(own) if plain else framework_yaml.option_values(own))
    return framework_yaml.read(path, framework.keys, overrides, defaults)


def _llamafactory(program: Program, one: _Input) -> Line:
    of = program.framework
    assert of is not None
    settings = _yaml(of, one.words[1:])
    on = {name for name in (*of.forces, *of.prevents) if one.environ.get(name, "0").lower() in _ON}
    several = bool(on & set(of.forces)) or ((one.gpus or 0) > 1 and not on & set(of.prevents))
    if one.words[:1] != ("train",) or not several:
        notes: tuple[str, ...] = ()
        if settings and settings.strategy.startswith("DeepSpeed") and one.gpus is not None:
            notes = ("llamafactory-cli starts one process here, and refuses DeepSpeed in it: set FORCE_TORCHRUN=1",)
        return Line((), program, "command", _config("", 1, 1), 1, settings=settings, notes=notes)
    variables = program.variables
    value = one.environ.get
    elastic = value("RDZV_ID") is not None and value("MIN_NNODES") is not None
    words = [
        *("--nnodes", value("MAX_NNODES" if elastic else variables.nodes) or value(variables.nodes, "1")),
        *("--node_rank", value(variables.node_rank, "0"), "--nproc_per_node", value(variables.ranks, "gpu")),
        *("--master_addr", value(variables.address, "127.0.0.1"), "--master_port", value(variables.port, "0")),
    ]
    found = _torchrun(LAUNCHERS["torchrun"], replace(one, words=(*words, *of.runs[:1], *one.words[1:])))
    config = replace(found.config, line=variables.ranks)
    return replace(found, program=program, config=config, settings=settings, script=())


def _axolotl(program: Program, one: _Input) -> Line:
    of = program.framework
    assert of is not None
    settings = _yaml(of, one.words[1:])
    split = one.words.index("--") if "--" in one.words else len(one.words)
    own = dict(framework_yaml.option_values(one.words[:split]))
    name = own.get("launcher", "accelerate")
    if "cloud" in own:
        note = "--cloud: the training run is on another machine, which mgpu does not watch"
        return Line((), program, config=_config("", 1, 1), ranks=1, settings=settings, notes=(note,))
    by_launcher = one.words[:1] and one.words[0] in of.trains and own.get("use_ray") != "true"
    if name not in ("accelerate", "torchrun") or not by_launcher:
        return Line((), program, config=_config("", 1, 1), ranks=1, settings=settings)
    launcher = LAUNCHERS[name]
    known = {*vars(launcher.meaning).values(), "config_file", "mixed_precision"} - {""}
    passed = [f"--{key}={value}" for key, value in own.items() if key in known]
    words = (*passed, *one.words[split + 1 :], "-m", *of.runs[:1], settings.path if settings else "x.yaml")
    found = _READ[name](launcher, replace(one, words=words))
    return replace(found, program=program, settings=settings, script=())


_READ: Final[Mapping[str, Callable[[Program, _Input], Line]]] = {
    "torchrun": _torchrun,
    "accelerate": _accelerate,
    "deepspeed": _deepspeed,
}
_READ_FRAMEWORK: Final[Mapping[str, Callable[[Program, _Input], Line]]] = {
    "llamafactory-cli": _llamafactory,
    "axolotl": _axolotl,
}
