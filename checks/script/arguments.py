"""Does the script contradict the config?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Severity, check, commands
from mgpu.command_line import python
from mgpu.snapshot import Config, InScript, Script, ScriptCall
from mgpu.text import counted

from ._calls import argument, calls, finding, reached_calls, text_of, unpacks
from ._rank_paths import dotted_names

_TRAINER = "https://huggingface.co/docs/transformers/en/main_classes/trainer"
_ACCELERATOR = "https://huggingface.co/docs/accelerate/en/package_reference/accelerator"
_PRECISIONS = ("no", "fp16", "bf16", "fp8")
_ARGUMENTS = r"(?:transformers|trl)\.(?:[\w.]+\.)?\w*(?:TrainingArguments|Config)"
_STEPS = "gradient_accumulation_steps"
_OFF = frozenset({"false", "0", "no", "f", "n", "off", "none"})


def _option(script: Script, *names: str) -> tuple[str, str | None] | None:
    """Return the last of these options in the script's arguments with its value, which is None if it has none."""
    found = None
    for place, word in enumerate(script.arguments):
        name, equals, value = word.partition("=")
        if name in names:
            following = script.arguments[place + 1 : place + 2]
            found = (name, value if equals else following[0] if following and following[0][:1] != "-" else None)
    return found


def _is_enabled(found: tuple[str, str | None] | None) -> bool:
    return found is not None and (found[1] or "true").lower() not in _OFF


def _report_position(call: ScriptCall | None) -> InScript:
    """Return the position to report: the call, or the first line for a command-line argument."""
    return call or InScript()


def _may_be_skipped(call: ScriptCall) -> bool:
    """Whether a run of several ranks may not execute this call."""
    return bool(call.conditions or set(call.guards) - {"distributed"})


def _precision(script: Script) -> tuple[str, str, ScriptCall | None] | None:
    """Return the precision that a script sets, the text that sets it, and its call (None for an argument)."""
    named = _option(script, "--mixed_precision", "--mixed-precision")
    if named and named[1] in _PRECISIONS:
        return named[1], f"{named[0]} {named[1]}", None
    for kind in ("fp16", "bf16"):
        if _is_enabled(_option(script, f"--{kind}")):
            return kind, f"--{kind}", None
    for call in calls(script, r"accelerate\.Accelerator"):
        if _may_be_skipped(call) or call.keywords.get("cpu") == "True":
            continue
        if (kind := text_of(call.keywords.get("mixed_precision")) or "") in _PRECISIONS:
            return kind, f"mixed_precision={kind!r}", call
    for call in calls(script, _ARGUMENTS):
        if _may_be_skipped(call):
            continue
        for kind in ("fp16", "bf16"):
            if call.keywords.get(kind) == "True":
                return kind, f"{kind}=True", call
    return None


@check(Severity.WARNING, source=_ACCELERATOR)
def script_precision_contradicts_config(script: Script, config: Config) -> Answer:
    """The script sets a different precision than the config.

    Why: The script's setting wins, so the run differs from the one that was planned and verified. fp16 can overflow
    where bf16 does not, and another precision needs a different amount of memory.

    Fix: Set the same value in both, or omit it in the script.
    """
    setting = _precision(script)
    if setting is None:
        return Ok("the script does not set the precision")
    kind, words, call = setting
    if "mixed_precision" not in config.values or kind == config.precision:
        return Ok(f"{words}, same as the config")
    return finding(
        script,
        _report_position(call),
        f"{words}, but the config sets {config.precision}",
        (
            Fix(f"Remove {words} from {'the script' if call else 'its arguments'} to use the config's value."),
            Fix(f"Or write mixed_precision: {kind} in {config.path} and test again.", ("mgpu smoke-test",)),
        ),
        asked=kind,
        config=config.precision,
    )


@check(Severity.WARNING, source=_TRAINER)
def script_engine_contradicts_config(script: Script, config: Config) -> Answer:
    """The script enables DeepSpeed or FSDP, but the config does not.

    Why: The Trainer enables what its arguments set, on top of the launcher's setup. The run differs from the one that
    was verified, or stops because both are enabled.

    Fix: Set it in one place: the config.
    """
    wanted = {"--deepspeed": "DEEPSPEED", "--fsdp": "FSDP"}
    kind = config.distributed_type
    for option, type_ in wanted.items():
        found = _option(script, option)
        named = next((c for c in calls(script, _ARGUMENTS) if text_of(c.keywords.get(option[2:]))), None)
        if script.speaks != "trainer" or (not _is_enabled(found) and named is None):
            continue
        if kind is None or kind == type_:
            continue
        words = option if _is_enabled(found) else f"{option[2:]}={named.keywords[option[2:]]}" if named else option
        return finding(
            script,
            _report_position(None if _is_enabled(found) else named),
            f"{words}, but the config sets distributed_type: {kind}",
            Fix(f"Remove it, and set distributed_type: {type_} in {config.path}.", ("mgpu configure",)),
            config=kind,
        )
    return Ok("the script does not set how the model is sharded")


@check(Severity.WARNING, source=_ACCELERATOR)
def script_accumulation_contradicts_config(script: Script, config: Config) -> Answer:
    """The script and the config set different numbers of gradient accumulation steps.

    Why: The effective batch size differs from what one of them expects, so learning rate, schedule and logs do not
    match it, or DeepSpeed stops because the numbers differ.
    More: accelerate uses the config's number, which it gets from the environment, not the script's.

    Fix: Set the same number in both, or omit it in the script.
    """
    section = config.values.get("deepspeed_config")
    own = section.get(_STEPS) if isinstance(section, dict) else None
    if type(own) is not int:
        return Ok("the config does not set gradient accumulation")
    found = _option(script, f"--{_STEPS}", "--gradient-accumulation-steps")
    places: list[tuple[str, str, ScriptCall | None]] = []
    if found and found[1]:
        places.append((found[1], f"{found[0]} {found[1]}", None))
    keywords = [(call.keywords.get(_STEPS), call) for call in calls(script, rf"accelerate\.Accelerator|{_ARGUMENTS}")]
    places += [(value, f"{_STEPS}={value}", call) for value, call in keywords if value]
    for value, words, where in places:
        if re.fullmatch(r"\d+", value) and int(value) != own:
            return finding(
                script,
                _report_position(where),
                f"{words}, but the config sets {own}",
                Fix(f"Write the same number in both: {own}, or {_STEPS}: {value} in {config.path}."),
                config=own,
            )
    return Ok(f"gradient accumulation over {own} steps, in the config")


@check(Severity.WARNING, source="https://huggingface.co/docs/accelerate/main/en/concept_guides/fsdp1_vs_fsdp2")
def script_fsdp2_prepared_apart(script: Script, config: Config) -> Answer:
    """The model and its optimizer are prepared in two calls, but the config enables FSDP 2.

    Why: FSDP 2 replaces the model's parameters, and accelerate must give the new ones to the optimizer. It stops with
    ValueError: "When using FSDP2, a model and optimizer must be passed together to `Accelerator.prepare()`".

    Fix: Pass both to one call of accelerator.prepare.
    """
    section = config.values.get("fsdp_config")
    if config.distributed_type != "FSDP" or not isinstance(section, dict) or str(section.get("fsdp_version")) != "2":
        return Ok("the config does not enable FSDP 2")
    return _prepared_apart(script, config.path)


@check(Severity.WARNING, source="https://huggingface.co/docs/accelerate/main/en/concept_guides/fsdp1_vs_fsdp2")
def script_fsdp2_plugin_prepared_apart(script: Script) -> Answer:
    """The model and its optimizer are prepared in two calls, but the script's own plugin enables FSDP 2.

    Why: FSDP 2 replaces the model's parameters, and accelerate must give the new ones to the optimizer. It stops with
    ValueError: "When using FSDP2, a model and optimizer must be passed together to `Accelerator.prepare()`".

    Fix: Pass both to one call of accelerator.prepare.
    """
    plugins = reached_calls(script, r"accelerate\.(?:\w+\.)*FullyShardedDataParallelPlugin")
    if not any(plugin.keywords.get("fsdp_version") == "2" for plugin in plugins):
        return Ok("the script does not enable FSDP 2 itself")
    return _prepared_apart(script, None)


def _prepared_apart(script: Script, config: str | None) -> Answer:
    """Answer for a script that trains with FSDP 2."""
    preparing = reached_calls(script, r"accelerate\.Accelerator\(\)\.prepare")
    if any(unpacks(call) for call in preparing):
        return Ok("what is prepared is not visible")
    made = {c.targets[0]: c for c in reached_calls(script, r"torch\.optim\.(?!lr_scheduler).+") if len(c.targets) == 1}
    alone = [
        (call, name)
        for call in preparing
        for name in made.keys() & set(call.written)
        if (model := _model_of(made[name])) and model not in call.written
        if any(model in other.written for other in preparing)
    ]
    if not alone:
        return Ok(f"{counted(len(preparing), 'call')} of accelerator.prepare, none of an optimizer without its model")
    call, name = alone[0]
    model = _model_of(made[name])
    return finding(
        script,
        call,
        f"{name} is prepared without {model}, which FSDP 2 does not allow",
        commands(python("{:dotted}, {:dotted} = accelerator.prepare({:dotted}, {:dotted})", model, name, model, name)),
        config=config,
    )


def _model_of(optimizer: ScriptCall) -> str | None:
    """Return the name of the model whose parameters an optimizer gets."""
    found = re.fullmatch(r"(\w+)\.parameters\(\)", optimizer.written[0]) if optimizer.written else None
    return found[1] if found else None


@check(Severity.WARNING, source=_ACCELERATOR)
def script_batch_not_divisible(script: Script, config: Config) -> Answer:
    """With split_batches, the batch size is not a multiple of the number of ranks.

    Why: split_batches divides each batch of the DataLoader between the ranks. accelerate stops with ValueError: "needs
    to be a round multiple of the number of processes".

    Fix: Use a multiple of the number of ranks.
    """
    ranks = config.num_processes
    places = reached_calls(script, r"accelerate\.(?:Accelerator|utils\.DataLoaderConfiguration)")
    if not ranks or not any(call.keywords.get("split_batches") == "True" for call in places):
        return Ok("each rank reads whole batches of its own")
    given = dotted_names(t for c in calls(script, r".*\.prepare(?:_data_loader)?") for t in c.written)
    loaders = [c for c in reached_calls(script, r"torch\.utils\.data\.DataLoader") if given.intersection(c.targets)]
    for call in loaders:
        size = argument(call, 1, "batch_size") or ""
        if size.isdecimal() and int(size) % ranks:
            return finding(
                script,
                call,
                f"batch_size={size} is not a multiple of {ranks} ranks, and split_batches divides it between them",
                Fix(f"Use a multiple of {ranks}, such as {(int(size) // ranks + 1) * ranks}."),
                config=config.path,
            )
    return Ok(f"{counted(len(loaders), 'prepared DataLoader')}, none with a batch size that {ranks} does not divide")
