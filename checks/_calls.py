"""Whose call is it that a function, a class or a module does not accept, as the frames of a traceback show?

Texts and facts for `_skew_meanings.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import python, shell
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

from . import _version_skew as skew
from ._own_package import explain_own_package
from ._passed_on import explain_passed_on, hands_on
from ._reinstall import reinstall

# Frames that pass on the arguments of a call that the script made: wrappers of a model's forward pass.
_FORWARDS = re.compile(
    r"^(?:torch/nn/(?:modules/module|parallel/\w+)|torch/distributed/fsdp/\S+|torch/(?:amp|utils|_dynamo|_compile)\S*"
    r"|torch/distributed/algorithms/\S+|accelerate/(?:utils/operations|hooks|optimizer|scheduler)"
    r"|deepspeed/(?:utils/nvtx|runtime/engine)|(?:lightning|pytorch_lightning)/(?:fabric/wrappers|pytorch/overrides/\S+)"
    r"|lightning_fabric/wrappers)\.py in |^torch/\S+ in (?:forward|__call__|_call_impl|decorate_\w+|inner|_fn)$"
)
_OF_PEFT = re.compile(r"^peft/(?:peft_model|mixed_model|tuners/tuners_utils)\.py in forward$")
# Models without a head: "BertModel.forward()"; with one: "BertForSequenceClassification.forward()".
_HEADLESS = re.compile(r"^(?P<model>\w+Model)\.forward$")
_BASES = re.compile(
    r"(?:Albert|Bart|Bert|BigBird|Bloom|CLIP\w*|Camembert|ConvNext\w*|Data2Vec\w*|Deberta(?:V2)?|Deit|Dinov2|DistilBert|Electra"
    r"|Ernie|Esm|Funnel|GPT2|GPTNeoX|Gemma\d?|Hubert|Llama|Longformer|MPNet|Mistral|ModernBert|OPT|Phi\d?|Qwen\d\w*|RoFormer"
    r"|Roberta|SEW|Siglip\w*|Swin\w*|T5|T5Encoder|ViT|WavLM|Wav2Vec2\w*|Whisper|XLM|XLMRoberta|XLNet)Model$"
)
_OF_HEADS = frozenset({"labels", "start_positions", "end_positions", "next_sentence_label"})
_CALLED = re.compile(r"(?P<call>[A-Za-z_][\w.]*)\(\) ")
_CREATES = re.compile(r"(?:^|[=( ])(?P<owner>(?:\w+\.)*[A-Z]\w*)\($")
# What Trainer's arguments compute from the launcher's variables. They are properties, not arguments.
_FROM_LAUNCHER = frozenset(
    {"world_size", "rank", "process_index", "local_process_index", "n_gpu", "device", "parallel_mode", "num_gpus"}
)
_SETTINGS = re.compile(r"(?:Arguments|Config)$")


# Arguments of classes that are derived from TrainingArguments: the class, its trainer, and both's package.
# fmt: off
_OF_DERIVED = {
    name: owner
    for owner, names in {
        ("Seq2SeqTrainingArguments", "Seq2SeqTrainer", "transformers"):
            "predict_with_generate generation_max_length generation_num_beams generation_config sortish_sampler",
        ("SFTConfig", "SFTTrainer", "trl"):
            "max_seq_length packing dataset_text_field dataset_num_proc dataset_kwargs completion_only_loss "
            "assistant_only_loss eval_packing neftune_alpha",
        ("DPOConfig", "DPOTrainer", "trl"):
            "beta loss_type max_prompt_length precompute_ref_log_probs ref_model_init_kwargs rpo_alpha",
        ("GRPOConfig", "GRPOTrainer", "trl"):
            "num_generations max_completion_length use_vllm vllm_mode vllm_gpu_memory_utilization reward_weights "
            "num_iterations scale_rewards",
    }.items()
    for name in names.split()
}
# fmt: on


def asked_by_script(one: UncaughtException | None) -> bool:
    """Whether the script itself made the call that failed: only wrappers that pass on arguments are between."""
    if one is None or not one.place:
        return False
    rest = [frame for frame in one.frames if not _FORWARDS.search(frame)]
    return bool(rest) and rest[-1].partition(" in ")[0] == one.place.partition(":")[0]


def owner_in_code(one: UncaughtException | None) -> str | None:
    """Return the class that the line of the call names, for Python before 3.10: "TrainingArguments"."""
    for code in (one.code, one.own_code) if one else ():
        if found := _CREATES.search((code or "").strip()):
            return found["owner"].rpartition(".")[2]
    return None


def explain(call: str, name: str, one: UncaughtException | None) -> Meaning | None:
    """Explain an argument that does not fit by what is called and by whom, not by a release; None: it may be one."""
    if (found := _HEADLESS.match(call)) and name in _OF_HEADS:
        known = _BASES.match(found["model"]) or (
            skew.package_of(call) == "transformers" and "Head" not in found["model"]
        )
        return _without_head(found["model"], name, one) if known else _takes_no_labels(call, name)
    owner = call.removesuffix(".__init__")
    if name == "closure" and call.endswith(".step"):
        return _without_closure(call)
    if name in _FROM_LAUNCHER and _SETTINGS.search(owner) and skew.package_of(call) != "peft":
        return _of_launcher(owner, name)
    if owner == "TrainingArguments" and name in _OF_DERIVED:
        return _of_derived(owner, name)
    if skew.package_of(call):
        return None
    return explain_passed_on(call, name, one) or (_of_script(call, name, one) if asked_by_script(one) else None)


def _without_closure(call: str) -> Meaning:
    return Meaning(
        f"{call}() of the optimizer has no argument closure, which its caller passes",
        "step(closure=None) is the form of torch's optimizers. Lightning calls it with a function that "
        "computes the loss again, and other wrappers pass the argument on. An optimizer with another step() works only "
        "if it is called directly.",
        (
            Fix(
                "Accept it in the optimizer's class.",
                ("def step(self, closure=None): loss = closure() if closure is not None else None",),
            ),
            Fix("Or call the optimizer itself, with manual optimization.", ("self.optimizers().optimizer.step()",)),
        ),
    )


def _of_derived(owner: str, name: str) -> Meaning:
    settings, trainer, package = _OF_DERIVED[name]
    return Meaning(
        f"{name} is no argument of {owner}(): {settings} of {package} has it",
        f"{settings} extends {owner} with what {trainer} needs. Another release of {package} does not change that.",
        (
            Fix(
                f"Use {settings}, together with {trainer}.",
                (
                    python("from {:dotted} import {:name}, {:name}", package, settings, trainer),
                    python("args = {:name}({:name}=..., ...)", settings, name),
                ),
            ),
            Fix(f"Or remove {name}, if the script uses the plain Trainer."),
        ),
    )


def _without_head(model: str, name: str, one: UncaughtException | None) -> Meaning:
    peft = one is not None and any(_OF_PEFT.search(frame) for frame in one.frames[-12:])
    passes = (
        "PEFT passes the labels on: a PeftModel made for a task (task_type SEQ_CLS, CAUSAL_LM, TOKEN_CLS) gives them "
        "to "
        "its base model, whatever the outer model left out."
        if peft
        else "The Trainer, or your own call, passes what the batch has, and the batch has labels."
    )
    base = model.removesuffix("Model")
    own_head = (
        Fix(
            "To keep your own head on the bare model, let PEFT make no model for a task, and wrap it only once.",
            ("LoraConfig(task_type=TaskType.FEATURE_EXTRACTION, ...)",),
        )
        if peft
        else Fix(
            "To keep the bare model with your own head and loss, take the labels out of the batch before the call.",
            ('labels = batch.pop("labels")',),
        )
    )
    return Meaning(
        f"{model} is a model without a head: its forward() takes no {name}",
        f"{passes} {model} returns hidden states only, and computes no loss.",
        (
            Fix(
                f"Load the class with a head for the task: this one, or another {base}For... class.",
                ("AutoModelForSequenceClassification.from_pretrained(...)",),
            ),
            own_head,
        ),
    )


def _takes_no_labels(call: str, name: str) -> Meaning:
    """Explain labels for a model that is the script's own, or one that the names of base models do not include."""
    return Meaning(
        f"{call}() takes no {name}, and the batch has them",
        "Trainer passes every column that it keeps, and wrappers of a model pass on what they get. If forward() "
        "computes "
        "the loss, it needs this argument. If it does not, something has to take the labels out of the batch before.",
        (
            Fix(
                f"Add {name} to the arguments of forward(), and return the loss, or accept what is left over.",
                (python("def forward(self, input_ids, attention_mask=None, {:name}=None, **kwargs):", name),),
            ),
            Fix(
                "Or take them out where the loss is computed.",
                (python('{:name} = inputs.pop("{:name}"); outputs = model(**inputs)', name, name),),
            ),
        ),
    )


def _of_launcher(owner: str, name: str) -> Meaning:
    return Meaning(
        f"{name} is no argument of {owner}(): the launcher sets it",
        f"The number of ranks, the rank and the device come from the launcher's environment (WORLD_SIZE, RANK, "
        f"LOCAL_RANK). {owner} reads them by itself.",
        (
            Fix(f"Remove {name} from the call.", (shell("grep -n {:name}= *.py", name),)),
            Fix("Start as many processes as the run should have.", ("torchrun --nproc-per-node=8 train.py",)),
        ),
    )


def _of_script(call: str, name: str, one: UncaughtException | None) -> Meaning:
    place = one.place if one and one.place else "the script"
    owner = call.removesuffix(".__init__").partition(".")[0]
    file = place.partition(":")[0]
    searched = shell("grep -n {:dotted} {:path}", name, file)
    if one and hands_on(one.code or "", name):
        searched = shell("grep -rnw --include='*.py' {:dotted} .", name)
    return Meaning(
        f"your call at {place} passes {name} to {call}(), which does not have this argument",
        f"Either the argument is misspelled or obsolete, or another {owner} is used than the script was written for: a "
        f"package's own class in place of a changed copy, or another release of it.",
        (
            Fix(
                f"Check which {owner} the script imports, and which arguments that one has.",
                (shell("grep -n {:dotted} {:path}", owner, file), searched),
            ),
            Fix(f"If the project has its own {owner}, import that one. If not, remove {name} or use the name it has."),
        ),
    )


def within_clone(what: str, whose: str, raised: UncaughtException) -> Meaning:
    """Explain a call that a clone of a framework makes of something that is probably its own too."""
    called = _CALLED.search(raised.message)
    owner, _, last = called["call"].removesuffix(".__init__").partition(".") if called else ("", "", "")
    defined = rf"(class|def) ({owner}|{last or owner})\b" if owner else ""
    return Meaning(
        f"two files of the {whose} source tree probably do not fit: {what}",
        f"The call is at {raised.library or raised.place}, in a clone of the repository (or a copy of it, as Ray makes "
        "of a working directory), not in an installed package. If what it calls is in the same tree, the files are of "
        "different commits, one was changed by hand, or that commit has a mistake.",
        (
            Fix(
                "See whether the tree defines it and what differs from the repository. Then update the whole tree, or "
                "take a release.",
                (
                    *((shell("grep -rnE --include='*.py' {} .", defined),) if defined else ()),
                    "git status",
                    "git log -1",
                    "git pull",
                ),
            ),
            Fix(
                f"If it is in an installed package, or {whose} is installed too, compare the versions with those that "
                "the tree requires.",
                (shell("pip show {:package}", whose), "pip check"),
            ),
        ),
    )


# Names that projects give their own folders. PyPI has packages of these names too, which are something else.
# fmt: off
_OF_PROJECTS = frozenset({
    "src", "utils", "util", "models", "model", "data", "dataset", "datasets", "lib", "libs", "common", "core", "config",
    "configs", "modules", "tools", "scripts", "helpers", "train", "trainer", "trainers", "eval", "evaluation", "losses",
    "layers", "networks", "engine", "dataloader", "dataloaders", "preprocessing", "options", "misc", "nets",
})
# Packages that scripts import at their top, and of which the tables of versions have nothing.
_OF_OTHERS = frozenset({
    "click", "cv2", "einops", "flax", "h5py", "hydra", "jax", "joblib", "matplotlib", "mpi4py", "networkx", "numba",
    "omegaconf", "optax", "psutil", "requests", "rich", "seaborn", "skimage", "tabulate", "tensorboard", "tqdm",
    "wandb", "xgboost", "yaml",
})
# fmt: on


def _next_to_job_script(module: str, top: str) -> Meaning:
    """Explain an import in a Python script that was itself given to sbatch."""
    return Meaning(
        f"Python does not find {module}: Slurm runs a copy of the script, and {top} is probably next to the original",
        "The Python script itself was given to sbatch. Slurm copies it into its spool folder on the node and runs it "
        "there as slurm_script. Python searches the folder of that copy, not the folder that the job was submitted "
        "from.",
        (
            Fix(
                "Submit a shell script that starts the Python script by its path.",
                ("sbatch --wrap 'cd \"$SLURM_SUBMIT_DIR\" && python SCRIPT.py'",),
            ),
            Fix(
                "Or put the folder on Python's path when the job is submitted.",
                ("PYTHONPATH=$PWD sbatch SCRIPT.py",),
            ),
            Fix(
                f"If {top} is a package, not a file of yours, install it in the Python that the script's first line "
                "names.",
            ),
        ),
    )


def is_of_checkpoint(module: str, one: UncaughtException | None) -> bool:
    """Whether a module with a name as projects have was looked for because a saved object is of a class in it."""
    loads = one is not None and any(re.search(r"^torch/serialization\.py in |^pickle\.py in ", f) for f in one.frames)
    return loads and module.partition(".")[0] in _OF_PROJECTS


def explain_project_module(module: str, one: UncaughtException | None) -> Meaning | None:
    """Explain a module that is probably a folder of the project, from its name and the script that imports it."""
    top = module.partition(".")[0]
    if one is None or not one.raised_in_own_code:
        return None
    if (one.place or "").startswith("slurm_script:") and not skew.is_known(top) and top not in _OF_OTHERS:
        return _next_to_job_script(module, top)
    if not skew.is_known(top) and top not in _OF_OTHERS and (inside := explain_own_package(module, one)):
        return inside
    if top not in _OF_PROJECTS:
        return None
    installed = ""
    if module != top:
        installed = (
            f" An installed package named {top} can also come first, and hide the project's folder (datasets and utils "
            "are also on PyPI)."
        )
    return Meaning(
        f"Python does not find {module}, probably a module of the project itself",
        f"{one.place} imports it. Python searches the folder of the script that is started, not the current folder: a "
        f"script in a subfolder does not see the folders next to it. Launchers and srun do not change that.{installed}",
        (
            Fix(
                "Put the project's main folder on the path of all ranks, or install the project.",
                ("export PYTHONPATH=$PWD:$PYTHONPATH", "pip install -e ."),
            ),
            Fix(
                f"Check where {top} is, and which one Python finds.",
                (
                    shell("find . -name {} -not -path './.git/*'", f"{top}*"),
                    shell("python -c {}", f"import {top}; print({top}.__file__)"),
                ),
            ),
        ),
    )


def explain_own_module(what: str, package: str, one: UncaughtException | None) -> Meaning | None:
    """Explain a part of a package that the package itself imports and does not find; None if another imports it."""
    if one is None or one.packages[-1:] != (package,) or one.type.endswith("AttributeError"):
        return None
    if (one.raised_in or "").endswith((" in __getattr__", " in _get_module", " in _import_module")):
        return None
    dist = skew.distribution(package)
    return Meaning(
        f"the installed {dist} is probably incomplete or mixed with another release: its own files import what it does "
        f"not have ({what})",
        f"A file of {dist} imports it from {dist}, so no other package is the cause. The installation is incomplete or "
        f"mixed: files of two releases in one folder or on one path (an upgrade over an old one, ~/.local next to the "
        f"environment, pip next to conda), or a folder named {package} in front of it on the path.",
        (
            Fix(
                f"Remove {dist} until pip finds no more of it, delete what is left of its folder, and install it "
                f"again.",
                (
                    shell("python -c {}", f"import importlib.util as u; print(u.find_spec('{package}').origin)"),
                    shell("pip uninstall -y {:package}", dist),
                    reinstall(dist),
                    "pip check",
                ),
            ),
            Fix("Or make a new environment: it has no files of older releases.", ("python -m venv NEW_ENV",)),
        ),
    )


def explain_wanted(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain a requirement that is not met, in the words of the package that requires it."""
    if raised is None or not raised.message:
        return None
    return Meaning(
        f"a requirement of an installed package is not met: {raised.message}",
        "The message names what is missing or too old. Only one of two packages was upgraded, or an optional package "
        "is not installed in the Python that the ranks use.",
        (
            Fix(
                "Install what the message names.",
                ("which python", "pip check", "mgpu doctor --only requirement_not_met,versions_known_bad_together"),
            ),
        ),
    )
