"""Did Hydra, OmegaConf or pydantic reject a config file or an override on the command line?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import python, shell
from mgpu.signature import Case, Meaning, Row, signatures
from mgpu.snapshot import Log, UncaughtException

from .._wording import at_place
from ._circumstances import called, every, line_of, reported, within

_OVERRIDES = "https://hydra.cc/docs/advanced/override_grammar/basic/"
_DEFAULTS = "https://hydra.cc/docs/advanced/defaults_list/"
_STRUCT = "https://omegaconf.readthedocs.io/en/latest/usage.html#struct-flag"
_MISSING = "https://omegaconf.readthedocs.io/en/latest/usage.html#mandatory-values"
_TYPES = "https://omegaconf.readthedocs.io/en/latest/structured_config.html"
_INTERPOLATION = "https://omegaconf.readthedocs.io/en/latest/usage.html#variable-interpolation"
_PARTIAL = "https://hydra.cc/docs/advanced/instantiate_objects/overview/#partial-instantiation"
_INSTANTIATE = "https://hydra.cc/docs/advanced/instantiate_objects/overview/"
_SWEEP = "https://hydra.cc/docs/tutorials/basic/running_your_app/multi-run/"
_PYDANTIC = "https://docs.pydantic.dev/latest/errors/validation_errors/"
_FIELD = re.compile(
    r"\d+ validation errors? for (?P<config>\w+) (?P<field>[\w.\[\]-]+) (?P<what>[A-Z].*?)(?: \[type=|$)"
)
_OF_CONFIG = re.compile(r"(?i)config|conf$|cfg|args|settings|options|params")
_AMBIGUOUS = re.compile(r"^Ambiguous value for argument '(?P<key>[^'=\s]+)=(?P<value>.*)'$")
_HYDRAS = ("log_target_not_created", "log_override_not_parsed", "log_config_key_missing", "log_override_unknown")
_WRONG_TYPE = re.compile(
    r"Input should be a valid (?P<wanted>string|integer|number|boolean|list|dictionary|tuple|set)\b[^\[]*"
    r"\[type=\w+, input_value=(?P<value>[^\s,]{1,80}), input_type=(?P<got>\w+)"
)


def _of_type(found: re.Match[str], raised: UncaughtException | None) -> Meaning | None:
    """Explain a value of another type than the field's, as the message shows both."""
    text = " ".join(filter(None, (raised.message, raised.more))) if raised else ""
    wrong = _WRONG_TYPE.search(text)
    if wrong is None:
        return None
    wanted, value, got = wrong["wanted"], wrong["value"], wrong["got"]
    why = "The config, the command line or the code gives it a value of the wrong type."
    fixes: tuple[Fix, ...] = (Fix(f"Set {found['field']} to a {wanted}, where the run sets it."),)
    if wanted == "string" and got in ("int", "float", "bool", "date"):
        why = (
            "YAML and Hydra read a value that looks like a number as a number (2025_01, 1e5, 007), yes and no as "
            "booleans, and dates as dates. Only quotes keep it a text, and the shell removes one pair of them."
        )
        fixes = (
            Fix(
                "Quote the value where it is set: in Hydra twice, once for the shell and once for Hydra.",
                (
                    shell("python train.py \"key='{:id}'\"", value),
                    shell('{:dotted}: "{:id}"  # in YAML', found["field"], value),
                ),
            ),
            Fix("Or convert it in the code that passes it.", (python("{:dotted}=str(value)", found["field"]),)),
        )
    elif got == "NoneType":
        why = "The option is not set: it is None. The config has no value for it, or has it under another name."
    return Meaning(
        f"{found['config']} wants a {wanted} in the field {found['field']}, and got the {got} {value}", why, fixes
    )


def _field(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Name the field that pydantic rejects, which is in the line before its reason."""
    found = _FIELD.search(raised.message) if raised else None
    if not found:
        return None
    if typed := _of_type(found, raised):
        return typed
    if raised and "albumentations" in raised.packages:
        return _of_transform(found, raised)
    of = "config's field" if _OF_CONFIG.search(found["config"]) else "field"
    return Meaning(
        f"{found['config']} rejects the {of} {found['field']}: {found['what']}",
        "The field is misspelled, belongs to another version of the program, or has the wrong type.",
        (Fix("Correct the field, or compare with those that the installed version has.", ()),),
    )


def _of_transform(found: re.Match[str], raised: UncaughtException) -> Meaning:
    at = at_place(raised)
    return Meaning(
        f"albumentations refuses the argument {found['field']} of a transform: {found['what']}{at}",
        "Arguments of transforms change between its releases: RandomResizedCrop, for example, takes "
        "size=(height, width) since 1.4.4 or 2.0, and took height and width before.",
        (
            Fix(
                "Look up the arguments of the installed release, and change the line.",
                ("pip show albumentations", "A.RandomResizedCrop(size=(224, 224))  # for example"),
            ),
            Fix("Or install the release that the code was written for."),
        ),
    )


_NO_SWEEP_OF_RANKS = "--multirun is for runs of one process: with a launcher, each rank runs the whole sweep by itself."


def _ambiguous(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain an override whose commas Hydra could read in several ways."""
    found = _AMBIGUOUS.search(groups["what"])
    if found is None:
        return None
    key, value = found["key"], found["value"]
    return Meaning(
        f"Hydra cannot decide what the comma in a value on the command line means: {key}={value}",
        "A value with a comma can be a list, a text, or several values to run one after the other (a sweep). Hydra "
        "refuses it before the script starts, on every rank, and the launchers then end.",
        (
            Fix(
                "If it is one text, quote it for the shell and for Hydra.",
                (shell("python train.py \"{:dotted}='a,b'\"", key),),
            ),
            Fix("If it is a list, write it in brackets.", (shell("python train.py '{:dotted}=[a,b]'", key),)),
            Fix(
                f"If each value is for a run of its own, start one run after the other. {_NO_SWEEP_OF_RANKS}",
                (shell("python train.py {:dotted}=a", key), shell("python train.py {:dotted}=b", key)),
            ),
        ),
    )


def _by_hydra(log: Log, raised: UncaughtException | None) -> bool:
    """Whether the log shows Hydra: any other program can print a caught exception in the same form."""
    frames = [frame for one in log.raised for frame in one.frames]
    shown = any(one.name == "hydra" for one in log.shows) or any("hydra/" in frame for frame in frames)
    return shown or any(one.signature in _HYDRAS for one in log.seen)


# fmt: off
WITHOUT_PARAMETERS = Case(
    line_of("log_target_rejected", r"__init__\(\) missing \d+ required positional arguments?: '(?:params|optimizer)'"),
    "an optimizer or scheduler of the config is created before what it needs exists: {what}",
    "hydra.utils.instantiate() creates an object together with all nodes below it that have a _target_. The node that "
    "full_key names in the next line is such a node, or it is created alone: an optimizer needs the parameters of a "
    "model, and a scheduler an optimizer, which only the code can pass. The installed versions do not matter.",
    (Fix("Make the node partial, and let the code pass the rest when it has it.",
         ("_partial_: true  # in the node, next to its _target_",
          "optimizer = cfg_optimizer(params=model.parameters())")),
     Fix("Or do not create what is below the outer object, or pass the parameters.",
         ("hydra.utils.instantiate(cfg.model, _recursive_=False)",
          "hydra.utils.instantiate(cfg.optimizer, params=model.parameters())"))),
    "TypeError(\"AdamW.__init__() missing 1 required positional argument: 'params'\")\nfull_key: model.net.optim\n",
    _PARTIAL)
# vLLM reports these through pydantic too.
_VLLMS_OWN = (
    "log_vllm_heads_do_not_divide", "log_vllm_wants_more_gpus", "log_sizes_do_not_divide", "log_gpu_lacks_bf16",
    "log_architecture_not_supported", "log_model_not_known", "log_vllm_batched_tokens_too_few",
    "log_vllm_length_beyond_model", "log_vllm_lora_rank", "log_vllm_memory_full", "log_vllm_context_too_long",
)
_SHOW = "python train.py --cfg job  # prints the composed config"
_OF_CHECKPOINT = Case(
    every(within(r" in (?:load_\w*(?:checkpoint|model_ensemble)\w*|load_from_checkpoint|restore_from|"
                 r"from_pretrained)$"),
          called(r"\bOmegaConf\.\w*merge\(")),
    "the config that is stored in a checkpoint does not fit the installed package: {key}",
    "The key comes from the checkpoint that is loaded, not from a config file or the command line of this run. The "
    "release that wrote the checkpoint has other keys than the installed one, so options of the command line (--cfg, "
    "+key=value) do not change it.",
    (Fix("Install the release of the package that wrote the checkpoint. Its model card or its README names it; for "
         "fairseq it is often the main branch, not the release on PyPI.",
         ("pip install git+https://github.com/facebookresearch/fairseq.git  # fairseq",)),
     Fix("Compare the stored config with the installed package.",
         ("python -c \"import torch; c = torch.load('CHECKPOINT', map_location='cpu', weights_only=False); "
          "print(c.get('cfg') or c.get('args') or c.keys())\"",)),
     Fix("Or remove the key from a copy of the checkpoint.",
         ("state['cfg']['task'].pop('KEY', None); torch.save(state, 'COPY.pt')",), kind="stopgap",
         caveat="What the key controls is lost: compare the results with known ones.")),
    'Traceback (most recent call last):\n  File "/x/train.py", line 60, in build\n    models = load(path)\n'
    '  File "/x/site-packages/fairseq/checkpoint_utils.py", line 436, in load_model_ensemble_and_task\n'
    "    task = tasks.setup_task(cfg.task)\n"
    '  File "/x/site-packages/fairseq/dataclass/utils.py", line 500, in merge_with_parent\n'
    "    merged_cfg = OmegaConf.merge(dc, cfg)\n"
    '  File "/x/site-packages/omegaconf/_utils.py", line 610, in _raise\n    raise ex\n'
    "omegaconf.errors.ConfigKeyError: Key 'several_files' not in 'SpeechConfig'\n",
    "https://github.com/facebookresearch/fairseq/blob/main/fairseq/checkpoint_utils.py")

_OF_HYDRA = Case(
    _by_hydra,
    "an object of the config could not be created: {what}",
    "Hydra prints the exception of the class that _target_ names, without its traceback. full_key in the next line "
    "names the object.",
    (Fix("Correct its arguments in the config, or install the version that it was written for.",
         ("HYDRA_FULL_ERROR=1 python train.py", _SHOW)),),
    "ModuleNotFoundError(\"No module named 'my_models'\")\nfull_key: model.net\n", _INSTANTIATE)
_REFUSED_OVERRIDES = (
    Case(reported(r"Could not append to config\. "),
         "the command line adds a key with +, but the config already has it",
         "+ only adds a key that does not exist yet. The next words of the message name the key.",
         (Fix("Write the key without +, or with ++, which adds or replaces it.",
              ("python train.py group.key=value", "python train.py ++group.key=value")),),
         "Could not append to config. An item is already at 'trainer.seed'.\n", _OVERRIDES),
    Case(reported(r"Could not delete from config\. "),
         "the command line removes a key with ~ that the config does not have, or that has another value",
         "The message names the key.", (Fix("Compare with the config.", (_SHOW,)),),
         "Could not delete from config. 'trainer.seed' does not exist.\n", _OVERRIDES),
    Case(reported(r"^missing EQUAL at '|Error parsing override '[^'=~]+'$"),
         "Hydra found a word without = on the command line",
         "Hydra accepts only overrides (key=value) and its own options. A word without =, an option of argparse "
         "(--lr 0.1), a value with a space, or an empty variable of the shell is none.",
         (Fix("Write it as key=value, and look for spaces without quotes.", ("python train.py group.key=value",)),),
         "Error parsing override 'fast'\nmissing EQUAL at '<EOF>'\n", _OVERRIDES),
    Case(reported(r"Sweep parameters '[^']+' requires --multirun"),
         "the command line gives Hydra several values for one key (a sweep), without --multirun",
         f"choice(), range(), interval() and glob() are sweeps: Hydra starts one run for each value, and only with "
         f"--multirun. {_NO_SWEEP_OF_RANKS}",
         (Fix("In one process, add --multirun.", ("python train.py --multirun 'lr=choice(0.1,0.01)'",)),
          Fix("With a launcher, start one run for each value.",
              ("for lr in 0.1 0.01; do mgpu launch train.py lr=$lr; done",))),
         "Sweep parameters 'lr=range(1,4)' requires --multirun\n", _SWEEP),
    Case(reported(r"Sweeping over Hydra's configuration is not supported"),
         "the command line gives several values for a setting of Hydra itself",
         "Hydra sweeps over keys of the program's config only. A value of a hydra. key with a comma, or with choice(), "
         "range(), interval() or tag(), counts as a sweep.",
         (Fix("Give it one value. If it is one text with such signs, quote it for Hydra and for the shell.",
              ("python train.py --multirun \"hydra.KEY='a,b'\"",)),),
         "Sweeping over Hydra's configuration is not supported : 'hydra.verbose=true,false'\n", _SWEEP),
)
ROWS = (
    Row("log_yaml_damaged", "root", "script",
        r"yaml\.(?:scanner|parser|composer|constructor|reader)\.(?:\w+Error): (?P<what>.+)",
        ("yaml.scanner.ScannerError: mapping values are not allowed here",
         "yaml.parser.ParserError: while parsing a block mapping",
         "yaml.constructor.ConstructorError: could not determine a constructor for the tag '!!python/object'"),
        "a YAML file has a mistake in its text: {what}",
        "The lines after the message name the file, the line and the column where the reader stopped; the mistake is "
        "there or just before it. A tab, a missing space after a colon, a colon or a % in a text without quotes, other "
        "indentation than its neighbors, or a tag that this loader does not accept.",
        Fix("Look at that line of the file.",
            ("python -c \"import yaml; yaml.safe_load(open('CONFIG.yaml'))\"", "grep -nP '\\t' CONFIG.yaml")),
        "https://pyyaml.org/wiki/PyYAMLDocumentation", summary="A YAML file has a mistake in its text."),
    Row("log_override_unknown", "root", "script",
        r"Could not override '(?P<key>[^']+)'",
        ("Could not override 'trainer.foo'.",
         "hydra.errors.ConfigCompositionException: Could not override 'data.filter_prompts'."),
        "the config has no key {key}, which the command line sets",
        "The name is misspelled, belongs to another version of the program (its configs change between releases), or "
        "is new.",
        (Fix("Compare with the config of the installed version.", (_SHOW,)),
         Fix("To add a key that the config does not have, write + before it.", ("python train.py +group.key=value",))),
        _OVERRIDES, summary="The config has no key that the command line sets."),
    Row("log_config_key_missing", "root", "script",
        r"(?:Config(?:Attribute|Key)Error: (?:Key '(?=[^']+' (?:is not in struct|not in '))|Missing key )|"
        r"^Key '(?=[^']+' is not in struct\s*$))(?P<key>[^\s']+)",
        ("omegaconf.errors.ConfigAttributeError: Key 'ray_init' is not in struct",
         "omegaconf.errors.ConfigKeyError: Key 'foo' not in 'FSDPConfig'",
         "omegaconf.errors.ConfigAttributeError: Missing key train", "Key 'lrr' is not in struct"),
        "the program reads or sets a config key that the config does not have: {key}",
        "The config file was written for another version of the program: keys are added, renamed and removed between "
        "releases. Or a default config was not included. The next line of the log (full_key) has its full name.",
        (Fix("Start from the config files of the installed version, and apply your changes again.", (_SHOW,)),
         Fix("Or add the key, with a +.", ("python train.py +group.key=value",))), _STRUCT,
        because_of=("log_override_unknown",), cases=(_OF_CHECKPOINT,),
        summary="The program uses a config key that the config does not have."),
    Row("log_config_value_missing", "root", "script",
        r"(?:Missing mandatory value: |You must specify '(?=[^']+', e\.g))(?P<key>[^\s']+)",
        ("omegaconf.errors.MissingMandatoryValue: Missing mandatory value: data.train_files",
         "You must specify 'db', e.g, db=<OPTION>"),
        "a required config value is not set: {key}",
        "The config has ??? there: each run must set it.",
        Fix("Set it on the command line.", ("python train.py group.key=value", _SHOW)), _MISSING,
        summary="A required config value is not set."),
    Row("log_config_value_of_other_type", "root", "script",
        r"(?P<what>Value '[^']*' of type '\w+' (?:could not be converted to|is not a) \w+.*|Invalid type assigned: .+|"
        r"Cannot convert '\w+' to \w+: .+)",
        ("omegaconf.errors.ValidationError: Value 'abc' of type 'str' could not be converted to Integer",
         "omegaconf.errors.ValidationError: Invalid type assigned: str is not a subclass of FSDPConfig. value: x"),
        "a config value has the wrong type: {what}",
        "The program declares the type of each value. Quotes, an empty variable of the shell, or a list in place of "
        "one value are the usual causes.",
        Fix("Correct it; full_key in the next line names it.", (_SHOW,)), _TYPES,
        summary="A config value has the wrong type."),
    Row("log_config_reference_missing", "root", "script",
        r"(?P<what>Interpolation key '[^']+' not found|Environment variable '\w+' not found|"
        r"Unsupported interpolation type \w+)",
        ("omegaconf.errors.InterpolationKeyError: Interpolation key 'actor_rollout_ref.x' not found",
         "omegaconf.errors.InterpolationResolutionError: KeyError raised while resolving interpolation: \"Environment "
         "variable 'DATA' not found\"",
         "omegaconf.errors.UnsupportedInterpolationType: Unsupported interpolation type eval"),
        "the config refers to something that does not exist: {what}",
        "${{...}} in the file names it. It was removed, renamed, is in a config that was not included, or is not "
        "exported in this shell or on this node.",
        Fix("Set it, or correct the reference.", ("export NAME=value", _SHOW)), _INTERPOLATION,
        summary="The config refers to a key or an environment variable that does not exist."),
    Row("log_override_not_parsed", "root", "script",
        r"(?P<what>Error parsing override|Error when parsing index|OverrideParseException|LexerNoViableAltException|"
        r"^missing EQUAL at '|Could not (?:append to|delete from) config\. |"
        r"Ambiguous value for argument '[^'=\s]+=.*'$|Sweep parameters '[^']+' requires --multirun|"
        r"Sweeping over Hydra's configuration is not supported)",
        ("Error parsing override 'data.path=/x=1'", "LexerNoViableAltException: a=[x", "missing EQUAL at '<EOF>'",
         "Ambiguous value for argument 'data.split=8,1,1'",
         "hydra.errors.OverrideParseException: mismatched input '=' expecting <EOF>"),
        "Hydra cannot read an override on the command line",
        "Values with =, commas, spaces, $ or brackets need quotes of Hydra inside quotes of the shell.",
        Fix("Quote the value twice.", ("python train.py 'data.path=\"/data/a=1,b\"'",)), _OVERRIDES,
        cases=_REFUSED_OVERRIDES, explain=_ambiguous),
    Row("log_config_value_unsupported", "root", "script",
        r"UnsupportedValueType: Value '(?P<type>[\w.]+)' is not a supported primitive type",
        ("omegaconf.errors.UnsupportedValueType: Value 'ndarray' is not a supported primitive type",),
        "the script puts a {type} into an OmegaConf config, which holds only plain values",
        "Configs hold numbers, strings, lists and dicts. Arrays, tensors, paths of other libraries and objects do not "
        "fit.",
        Fix("Convert it first, or allow objects.",
            ("float(value)", "value.tolist()", "OmegaConf.create({{...}}, flags={{'allow_objects': True}})")),
        "https://omegaconf.readthedocs.io/en/latest/usage.html",
        summary="The script puts a value into an OmegaConf config that it cannot hold."),
    Row("log_config_read_only", "root", "script", r"ReadonlyConfigError: |Cannot change read-only config container",
        ("omegaconf.errors.ReadonlyConfigError: Cannot change read-only config container",),
        "the script changes a config that was made read-only",
        "A framework locked it (OmegaConf.set_readonly) after it was checked, so that all ranks use the same values.",
        Fix("Change it before that, work on a copy, or unlock it.",
            ("cfg = OmegaConf.to_container(cfg, resolve=True)", "with omegaconf.read_write(cfg): cfg.x = 1")),
        "https://omegaconf.readthedocs.io/en/latest/usage.html"),
    Row("log_config_not_found", "root", "script",
        r"\bIn '[^']+': Could not find '[^']+'$|MissingConfigException: (?!Parent dir|Cannot read|Yaml file)|Primary "
        r"config (?:module|directory) (?:'?\S+'? )?not found|Cannot find primary config",
        ("hydra.errors.MissingConfigException: In 'ppo_trainer': Could not find 'actor/dp_actor'",
         "Cannot find primary config 'config'. Check that it's in your config search path.",
         "Primary config module 'pkg.config' not found.", "Primary config directory not found."),
        "Hydra does not find a config file",
        "--config-path is relative to the script, the file is not in the installed package (installed without its "
        "YAML files), or a group in the defaults list does not exist.",
        Fix("Check the search path.", ("python train.py --info searchpath", "python train.py --config-path "
                                                                            "$PWD/config")),
        _DEFAULTS),
    Row("log_target_not_created", "wrapper", "script",
        r"(?:Error (?:in call to target|locating target) '|Error in creating partial\(|"
        r"Error instantiating '(?=[^']+' : ))(?P<target>[^',]+)",
        ("hydra.errors.InstantiationException: Error in call to target 'torch.optim.adamw.AdamW':",
         "hydra.errors.InstantiationException: Error locating target 'foo.Bar', set env var HYDRA_FULL_ERROR=1 to see "
         "chained exception.",
         "Error in creating partial(torch.optim.adam.Adam, ...) object:",
         "TypeError: Error instantiating 'torch.optim.Adam' : __init__() missing 1 required positional argument"),
        "Hydra could not create the object that _target_ names: {target}",
        "The class does not exist there (another version, not installed), it does not accept these arguments, or its "
        "own code failed. The message of that exception follows, in the same line or in the next one.",
        Fix("Let Hydra print the whole traceback.", ("HYDRA_FULL_ERROR=1 python train.py",)), _INSTANTIATE,
        summary="Hydra could not create the object that _target_ names."),
    Row("log_target_rejected", "secondary", "script",
        r"^(?:[A-Za-z_]\w*(?:Error|Exception))\([\"'](?P<what>.{8,}?)[\"'],?\)$",
        ("TypeError(\"AdamW.__init__() got an unexpected keyword argument 'foo'\")",
         "ModuleNotFoundError(\"No module named 'my_models'\")"),
        "the program printed an exception without its traceback: {what}",
        "It caught the exception, or got it from another process, and printed only this line. If the run went on after "
        "it, it may not be the reason why it ended.",
        Fix("Let the code that catches the exception print all of it, to see the line that raised it.",
            ("traceback.print_exc()  # in the except block",)), _INSTANTIATE,
        summary="The program, or Hydra, printed an exception without its traceback.",
        cases=(WITHOUT_PARAMETERS, _OF_HYDRA)),
    Row("log_config_rejected", "root", "script",
        r"^\s*(?:Value|Assertion) error, (?!Total number of attention heads|bf16 requested)(?P<what>.+?)(?: \[type=|$)",
        ("  Value error, deepspeed and fsdp cannot be used together [type=value_error, input_value={'a': 1}, "
         "input_type=dict]",
         "  Assertion error, lora_r must be set [type=assertion_error, input_value={}, input_type=dict]"),
        "the program rejects its config, or the arguments of a call: {what}",
        "It checks the values together before it uses them (pydantic). The message is the program's own.",
        Fix("Change what the message names.", ()), _PYDANTIC, because_of=_VLLMS_OWN, summary="A program rejects "
                                                                                             "its config."),
    Row("log_config_field_rejected", "secondary", "script",
        r"^\s*(?P<what>Extra inputs are not permitted|Field required|Input should be .+?|Unexpected keyword argument) "
        r"\[type=\w+, input_value=(?P<value>.*), input_type=",
        ("  Extra inputs are not permitted [type=extra_forbidden, input_value=True, input_type=bool]",
         "  Field required [type=missing, input_value={'a': 1}, input_type=dict]",
         "  Input should be a valid integer, unable to parse string as an integer [type=int_parsing, "
         "input_value='auto', input_type=str]"),
        "a field of a config, or an argument of a call, is rejected: {what} (value: {value})",
        "The line before names the field, and the one above them its class (pydantic). It is misspelled, belongs to "
        "another version of the program, or has the wrong type.",
        Fix("Correct the field that the line before names, or compare with those of the installed version.", ()),
        _PYDANTIC, summary="A field of a config is rejected.", explain=_field),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
