"""What does an error between two packages mean: which of them is too old, and which one to move?

The functions explain the rows of `log/versions.py` and `log/models.py`, from the tables and from the packages in the
exception's traceback.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.signature import Meaning, the_traceback
from mgpu.snapshot import UncaughtException
from mgpu.text import listed

from . import _calls as calls
from . import _missing_parts as missing_parts
from . import _misspelled_names as misspelled
from . import _mixed_pythons as mixed_pythons
from . import _not_compiled as not_compiled
from . import _other_argument_names as other_names
from . import _package_mistakes as mistakes
from . import _shadowed_modules as shadowed
from . import _version_skew as skew
from ._apex import BUILD_APEX, NO_APEX
from ._reinstall import rebuild

_CLONE_MEGATRON = (
    Fix(
        "Clone the release that fits the installed megatron-core, and put it on the path of all ranks.",
        (
            "git clone -b core_v0.15.0 https://github.com/NVIDIA/Megatron-LM",
            "export PYTHONPATH=$PWD/Megatron-LM:$PYTHONPATH MEGATRON_LM_PATH=$PWD/Megatron-LM",
            "pip show megatron-core",
        ),
    ),
)


def _caller(raised: UncaughtException | None, callee: str | None) -> str | None:
    """Return the package whose code made the call; "" for the user's own code, None if no traceback shows it."""
    # transformers wraps import errors
    if raised is None or not raised.packages or raised.type.endswith("RuntimeError"):
        return None
    if callee is None:
        return raised.packages[-1]
    # A class of the callee may look the attribute up itself (torch.nn.Module.__getattr__).
    same = other_names.with_the_same_classes(callee)
    return next((one for one in reversed(raised.packages) if one not in (*same, "torch")), callee)


def _about(raised: UncaughtException | None, name: str) -> UncaughtException | None:
    """Return the exception if its own message has the name: another one of its chain has another caller."""
    return raised if raised is not None and name in raised.message else None


def _of_repository(module: str) -> Meaning | None:
    """Explain a module of Megatron that is not in the wheel, or that is compiled when it is first used."""
    package, _, rest = module.partition(".")
    if part := skew.part_of(module):
        return Meaning(
            f"{part} is not installed: there is no module {module}",
            f"{part} is a package of its own. It shares the name {package} with others.",
            (Fix("Install it.", (shell("pip install {:package}", part), _show(package))),),
        )
    if package != "megatron" or not rest:
        return None
    if compiled := not_compiled.explain(package, rest.rpartition(".")[2]):
        return compiled
    if rest.startswith("core"):
        return None
    return Meaning(
        f"{module} is not part of the package megatron-core: it comes with the Megatron-LM repository",
        "The wheel has megatron.core only. Frameworks that use Megatron's training loop need the repository too.",
        _CLONE_MEGATRON,
    )


_USE_MEGATRON = frozenset({"megatron", "mbridge", "verl", "swift", "nemo", "nemo_rl", "mindspeed", "slime"})


def _is_anothers(package: str | None, raised: UncaughtException | None) -> bool:
    """Whether a class with a name of Megatron's is another package's, because the traceback shows no Megatron."""
    return package == "megatron" and not (raised is not None and _USE_MEGATRON.intersection(raised.packages))


def _named(caller: str | None) -> str:
    return skew.distribution(caller) if caller else "the script" if caller == "" else "the calling code"


def _show(*packages: str | None) -> str:
    names = list(dict.fromkeys(skew.distribution(one) for one in packages if one and one not in skew.PYTHONS_OWN))
    return shell("pip show {:package}", names) if names else "pip check"


def _in_table(known: skew.Known, what: str, caller: str | None) -> Meaning:
    """Explain something that a release added or removed."""
    package = skew.distribution(known.package)
    pin = shell("pip install {:package}", known.requirement)
    other = None if caller == known.package else caller
    if known.package == "triton":
        return Meaning(
            f"torch and triton do not fit: this triton has no {what}",
            "Each torch release requires one triton release. pip upgraded only one of them.",
            (Fix("Install both together: torch selects its triton.", ("pip install --force-reinstall torch",)),),
        )
    if known.removed is not None:
        return _removed(known, what, other)
    other = other or known.user or other
    return Meaning(
        f"the installed {package} is too old: {skew.month(known.package, known.added or '?')} added {what}",
        f"{'The code' if other is None else _named(other).capitalize() if not other else _named(other)} expects a "
        f"newer {package}.",
        (Fix(f"Upgrade {package}.", (pin, _show(known.package, other), "pip check")),),
    )


def _removed(known: skew.Known, what: str, other: str | None) -> Meaning:
    """Explain something that a release removed; `other` uses it: a package, "" for the script, None if not known."""
    package, removed = skew.distribution(known.package), skew.month(known.package, known.removed or "?")
    pin = shell("pip install {:package}", known.requirement)
    since = f" It exists since {known.added}: if yours is older, upgrade {package} instead." if known.added else ""
    notes = skew.page(known.package, known.removed or "?")
    older = Fix(f"Or install an older {package}. What changed: {notes}", (pin,))
    other = other or known.user or other
    if not other:
        instead = f" Use {known.instead} instead." if known.instead else ""
        whose = "The code" if other is None else "The call comes from the script, which"
        change = Fix(f"Change the {'script' if other == '' else 'code'}.{instead}", (_show(known.package), "pip check"))
        if other is None:
            change = replace(change, text=f"{change.text} If a package's code uses it, upgrade that package.")
        return Meaning(
            f"{removed} removed {what}", f"{whose} was written for an older {package}.{since}", (change, older)
        )
    caller = skew.distribution(other)
    upgrade = shell("pip install --upgrade {:package}", skew.requirement_for(other))
    return Meaning(
        f"{caller} is too old for the installed {package}: {removed} removed {what}",
        f"{caller} uses it, and was written for an older {package}.{since}",
        (
            Fix(
                f"Upgrade {caller} to a release for this {package}.",
                (upgrade, _show(other, known.package), "pip check"),
            ),
            older,
        ),
    )


def _not_of_a_package(what: str, whose: str, caller: str | None, raised: UncaughtException | None) -> Meaning:
    """Explain a call that no package is known to make; `caller` is "" for the script, None if not known."""
    if caller == "":
        return Meaning(
            f"the script does not fit the installed {whose}: {what}",
            f"The call comes from the script. It was written for an older or newer {whose}, or the name is misspelled.",
            (
                Fix(
                    f"Compare the call with the documentation of the installed {whose}.",
                    (_show(whose), "pip check"),
                ),
                Fix(f"Or install the {whose} that the script was tested with (its requirements.txt or setup.py)."),
            ),
        )
    return Meaning(
        f"the installed {whose} does not fit the code that uses it: {what}",
        f"The code was written for an older or newer {whose}, or the name is misspelled.",
        (
            Fix(
                f"If a package uses it, upgrade that package: the last frame of {the_traceback(raised)} names it.",
                (_show(whose), "pip check"),
            ),
            Fix(f"If it is your own code, install the {whose} that it was tested with."),
        ),
    )


def _unknown(what: str, callee: str | None, caller: str | None, raised: UncaughtException | None) -> Meaning | None:
    """Explain something that is not in the table, as far as the traceback shows whose code calls whose."""
    if not caller and not (callee and skew.is_known(callee)):
        return None
    if caller and callee and caller != callee:
        both = [skew.distribution(one) for one in (caller, callee)]
        # Packages are released for a torch; another torch would break more than it repairs.
        moved = [skew.requirement_for(one) for one in (caller, callee)]
        first, text = (moved[:1], f"Upgrade {both[0]}") if callee == "torch" else (moved, "Upgrade both")
        return Meaning(
            f"the installed {listed(both)} do not fit: {what}",
            f"{both[0]} was written for an older or newer {both[1]} than this one.",
            (
                Fix(
                    f"{text}, or install the versions that one requires.",
                    (shell("pip install --upgrade {:package}", first), _show(caller, callee), "pip check"),
                ),
            ),
        )
    whose = skew.distribution(callee or caller or "")
    if not caller:
        return _not_of_a_package(what, whose, caller, raised)
    if raised is not None and raised.cloned:
        return calls.within_clone(what, whose, raised)
    used = [one for one in (raised.packages if raised else ()) if one]
    return Meaning(
        f"the installed {whose} does not fit the code that uses it: {what}",
        f"The code was written for an older or newer {whose}, or for an older or newer package that {whose} uses.",
        (
            Fix(
                f"If the code is new, upgrade {whose}.",
                (
                    shell("pip install --upgrade {:package}", skew.requirement_for(callee or caller)),
                    _show(whose, *used),
                    "pip check",
                ),
            ),
            Fix("If it is old, install the versions that it was tested with (its requirements.txt or setup.py)."),
        ),
    )


def explain_argument(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain an argument that a call does not accept."""
    call, name = groups["call"], groups["name"]
    raised = _about(raised, name)
    if (release := skew.find_passed(call, name)) and _caller(raised, "torch") != "":
        return Meaning(
            f"{call}() does not accept {name}, which transformers passes since {release}",
            f"The method overrides one of transformers, with the arguments of a release before {release}.",
            (
                Fix(f"Add **kwargs, or {name}=None, to its arguments.", (_show("transformers"),)),
                Fix("Or install an older transformers.", (shell("pip install {:package}", f"transformers<{release}"),)),
            ),
        )
    if of_config := mistakes.explain_config_argument(call, name, raised):
        return of_config
    if call == "__init__":  # Python before 3.10 does not name the class
        call = skew.class_with(name) or calls.owner_in_code(raised) or call
    owner = call.removesuffix(".__init__")
    what = f"the argument {name} of {owner}()"
    if known := skew.find_argument(call, name):
        return _in_table(known, what, _caller(raised, known.package))
    if meant := other_names.explain(call, name, raised) or calls.explain(call, name, raised):
        return meant
    callee = skew.package_of(call)
    caller = _caller(raised, callee or "torch")  # torch passes a module's arguments on (Module.__call__)
    if callee is None and caller == "torch":
        return None
    return _unknown(f"no argument {name} in {call}()", callee, caller, raised)


def explain_attribute(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain an attribute that an object does not have."""
    owner, name = groups["owner"], groups["name"]
    raised = _about(raised, name)
    what = f"the attribute {name} of {owner}"
    if other := other_names.explain_attribute(owner, name, raised):
        return other
    if (known := skew.find_attribute(owner, name)) and not _is_anothers(known.package, raised):
        return _in_table(known, what, _caller(raised, known.package))
    callee = skew.package_of(owner)
    if callee is None or _is_anothers(callee, raised):  # possibly the script's own class
        return mistakes.explain_own_attribute(owner, name, raised)
    return _unknown(f"{owner} has no {name}", callee, _caller(raised, callee), raised)


def explain_name(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain a name that a module does not have."""
    module, name = groups["module"], groups["name"]
    if mixed := mixed_pythons.explain(f"{module} has no {name}", raised):
        return mixed
    raised = _about(raised, name)
    if module.partition(".")[0] in skew.PYTHONS_OWN or shadowed.is_removed(module, name):
        return Meaning(
            f"this Python version has no {module}.{name}",
            f"{_named(_caller(raised, None)).capitalize()} was written for an older or newer Python.",
            (
                Fix(
                    "Upgrade the package that imports it, or use another Python.",
                    ("python --version", _show(*(raised.packages if raised else ()))),
                ),
            ),
        )
    package = module.partition(".")[0]
    if compiled := not_compiled.explain(package, name):
        return compiled
    if dtype := other_names.explain_dtype(module, name):
        return dtype
    if hidden := shadowed.explain_shadowed(module, name, raised):
        return hidden
    if lazy := mistakes.explain_lazy_import(module, name):
        return lazy
    if known := skew.find_name(module, name):
        return _in_table(known, f"{module}.{name}", _caller(raised, known.package))
    if typed := misspelled.explain(module, name, raised):
        return typed
    own = calls.explain_own_module(f"{module} has no {name}", package, raised)
    own = own or missing_parts.lacks_in_project(module, name, raised)
    return own or _unknown(f"{module} has no {name}", package, _caller(raised, package), raised)


def explain_module(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain a module that a package does not have."""
    module = groups["module"]
    if mixed := mixed_pythons.explain(f"there is no module {module}", raised):
        return mixed
    raised = _about(raised, module)
    package = module.partition(".")[0]
    if meaning := missing_parts.read_from_a_file(module, raised) or _of_repository(module):
        return meaning
    by_itself = raised is not None and raised.packages[-1:] == (package,)  # its own files then do not fit each other
    if (known := skew.find_module(module)) and not by_itself:
        return _in_table(known, f"the module {module}", _caller(raised, package))
    own = missing_parts.listed_from_another_folder(module, raised) or calls.explain_project_module(module, raised)
    own = own or calls.explain_own_module(f"there is no module {module}", package, raised)
    own = own or missing_parts.while_importing(module, raised)
    return own or _unknown(f"there is no module {module}", package, _caller(raised, package), raised)


def explain_installable(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain a module that is not installed at all."""
    module = groups["module"]
    if calls.is_of_checkpoint(module, raised):
        return None  # a case
    if mixed := mixed_pythons.explain(f"there is no module {module}", raised):
        return mixed
    if project := calls.explain_project_module(module, raised):
        return project
    if owner := skew.compiled_by(module):
        return Meaning(
            f"{owner} is installed without its compiled part {module}",
            "Its extensions were not built, or were built for another Python, torch or CUDA version.",
            (Fix(f"Build {owner} for this torch.", (BUILD_APEX,) if owner == "apex" else rebuild(owner)),),
        )
    if needed := missing_parts.needed_by_package(module, _about(raised, module)):
        return needed
    if module == "apex":
        return NO_APEX
    return Meaning(
        f"a Python module is not installed in this environment: {module}",
        "The ranks run a different Python interpreter than the one you installed it for (environment not activated, "
        "sudo, Slurm), or it is missing.",
        (
            Fix(
                "Check which Python runs, and install the module there.",
                (
                    "which python accelerate torchrun",
                    shell("python -m pip install {:package}", skew.requirement_for(module)),
                    "mgpu doctor --only python_on_path_is_another",
                ),
            ),
        ),
    )


def explain_model(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain a model that the installed transformers cannot build."""
    if meant := missing_parts.registered(groups["model"]):
        return meant
    release = skew.find_model(groups["model"])
    if release is None:
        known = skew.find_name("transformers", groups["model"])
        return _in_table(known, groups["model"], None) if known else None
    return Meaning(
        f"the installed transformers is too old for {groups['model']} models: "
        f"{skew.month('transformers', release)} is the first release with them",
        "Each release of transformers has a list of the models that it can build.",
        (Fix("Upgrade it.", (shell("pip install {:package}", f"transformers>={release}"), "pip show transformers")),),
    )


def explain_requirement(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain a requirement that a package checks when it is imported."""
    wanted = groups["wanted"].replace(" ", "")
    command = shell("pip install {:package}", wanted)
    if not command:
        return None
    return Meaning(
        f"an installed package requires {wanted}, but {groups['installed']} is installed",
        "Only one of them was upgraded.",
        (Fix("Install what it requires, or upgrade the package that requires it.", (command, "pip check")),),
    )


def explain_parser(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain options that HfArgumentParser does not know: arguments of TrainingArguments in another release."""
    for name in re.findall(r"--(\w+)", groups["names"].replace("-", "_").replace("__", "--")):
        if known := skew.find_argument("TrainingArguments", name):
            return _in_table(known, f"the option --{name} (TrainingArguments)", None)
    return None
