"""What do games of gym, tokenizers, word vectors, a locale and services miss on this machine?

One entry for one message, as in `_refused_inputs.py`. Texts for `exceptions.py`.
"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.snapshot import UncaughtException

from .._wording import at_place
from ._own_objects import Meaning
from ._refusal import Refusal
from ._refused_by_services import refused_by_service

# fmt: off
_OF_GAMES = (
    Refusal("Error", r"[Uu]nable to find the game \"?(?P<name>\w+)|Game not found: \"?(?P<other>\w+)|"
            r"(?:does not provide|no longer distributes) ROMs",
            "the file of the Atari game {name}{other} (its ROM) is not installed{at}",
            "The emulator and the games are separate. Newer releases of ale-py bring the games, older ones need them "
            "installed after the license is accepted.",
            (Fix("Install them.", ("pip install --upgrade ale-py",
                                   'pip install "gymnasium[atari,accept-rom-license]"')),), of_code=True),
    Refusal("DependencyNotInstalled", r"^No module named '?(?P<name>[\w.-]*\w)|"
            r"^(?P<other>[\w.-]+) (?:package )?(?:is )?not installed",
            "an environment of gym needs a package that is not installed: {name}{other}{at}",
            "gym installs only its core. Each family of environments has packages of its own.",
            (Fix("Install the family's packages.",
                 ('pip install "gymnasium[mujoco]"', 'pip install "gymnasium[box2d,classic-control,atari]"')),),
            of_code=True),
    Refusal("ValueError AssertionError", r"Unexpected observation shape (?P<got>\([\d, ]*\)) for (?P<kind>\w+) "
            r"environment, please use (?P<wanted>\([\d, ]*\))",
            "the policy gets an observation of the shape {got}, and was made for {wanted}{at}",
            "It comes from another environment than the one that the model was trained with or saved from: other "
            "wrappers, a flattened or stacked observation, or a state with more entries.",
            (Fix("Compare the spaces, and use the same wrappers in training and evaluation.",
                 ("print(model.observation_space, env.observation_space, env.reset()[0].shape)",)),)),
)
# https://github.com/isaac-sim/IsaacLab/blob/main/source/isaaclab/isaaclab/utils/configclass.py
_OF_SIMULATORS = (
    Refusal("TypeError", r"^Missing values detected in object (?P<config>\w+) for the following fields:"
            r"[\s-]*(?P<first>[\w.\[\]]+)",
            "required values of the config {config} are not set, first {first}{at}",
            "Isaac Lab declares them as MISSING: a derived config, or the script before it makes the environment, has "
            "to set them.",
            (Fix("Set all of them before the environment is made.",
                 ("env_cfg.commands.motion.motion_file = path", "env = gym.make(task, cfg=env_cfg)")),), of_code=True),
)
_PRINTS = r"\b(?:p?print|sys\.std(?:out|err)\.write|stdout\.write|tqdm\.write|console\.print|echo)\("
_LACKS = r"codec can't encode characters? (?P<what>'[^']{1,12}'(?= in position)|in position [\d-]+)"
_OF_WINDOWS = rf"'(?P<codec>charmap|mbcs|cp\d{{3,5}}|gbk|gb2312|big5|shift_jis|euc_kr)' {_LACKS}"
_OF_LOCALES = (
    Refusal("UnicodeEncodeError", _OF_WINDOWS,
            "print() cannot write a character: {what} is not in the code page of Windows ({codec}), in which it "
            "writes the output{at}",
            "In a console, Python prints all of Unicode. To a file or a pipe (> train.log, Tee-Object, a scheduler) it "
            "writes in the code page, which lacks check marks, emoji and most other scripts. The work before that line "
            "is not the reason.",
            (Fix("Set UTF-8 before Python starts.",
                 ('$env:PYTHONUTF8 = "1"', "set PYTHONUTF8=1", "python -X utf8 train.py")),
             Fix("Or set it in the script, or print plain letters.",
                 ("sys.stdout.reconfigure(encoding='utf-8')",))), of_code=True, line=_PRINTS),
    Refusal("UnicodeEncodeError", rf"'(?P<codec>ascii|latin-1)' {_LACKS}",
            "print() cannot write a character: {what} is not in the output's encoding ({codec}){at}",
            "The locale of the job is C or another one without Unicode, as in containers and batch jobs, or "
            "PYTHONIOENCODING is set. The work before that line is not the reason.",
            (Fix("Set UTF-8 before Python starts.",
                 ("export PYTHONUTF8=1 PYTHONIOENCODING=utf-8", "export LANG=C.UTF-8 LC_ALL=C.UTF-8")),
             Fix("Or set it in the script, or print plain letters.",
                 ("sys.stdout.reconfigure(encoding='utf-8')",))), of_code=True, line=_PRINTS),
    Refusal("UnicodeEncodeError", _OF_WINDOWS,
            "a file is written in the code page of Windows ({codec}), which does not have a character: {what}{at}",
            "open() without an encoding takes the code page. It lacks emoji and most other scripts.",
            (Fix("Name the encoding of the file.", ("open(path, 'w', encoding='utf-8')",)),
             Fix("Or make UTF-8 the default of all files.",
                 ('$env:PYTHONUTF8 = "1"', "set PYTHONUTF8=1", "python -X utf8 train.py"))), of_code=True,
            line=r"\.write(?:lines|row|rows|_text)?\(|\.dump\(|\.to_(?:csv|json|string)\(|\.save\w*\("),
    Refusal("UnicodeEncodeError", r"'(?P<codec>ascii|charmap|cp1252|gbk)' codec can't encode",
            "a text has characters that the output's encoding ({codec}) does not have{at}",
            "Before Python 3.7, print() and open() use ASCII if the locale is C. Since then, it is usually an explicit "
            "encode('ascii'), a URL or a header with other letters, or PYTHONIOENCODING. charmap, cp1252 and gbk are "
            "locales of Windows.",
            (Fix("Set UTF-8 before Python starts.", ("export PYTHONUTF8=1", "export LANG=C.UTF-8 LC_ALL=C.UTF-8")),
             Fix("Name the encoding of files.", ("open(path, 'w', encoding='utf-8')",))), of_code=True),
)
_OF_TEXTS = (
    Refusal("KeyError", r"^[\"']?(?:Key '(?P<name>[^'\"]{1,60})' not present(?: in vocabulary)?|"
            r"[Ww]ord '(?P<other>[^'\"]{1,60})' not in vocabulary)[.\"']*(?:\n|$)",
            "the word vectors have no word {name}{other}{at}",
            "It is not in the texts that they were trained with, is too rare (min_count), or is written in another "
            "way: capital letters, other tokens, an id instead of a word.",
            (Fix("Skip such words, or use a vector of zeros for them.",
                 ("v = wv[word] if word in wv else np.zeros(wv.vector_size)",)),)),
    Refusal("Exception", r"^No such file or directory \(os error 2\)",
            "a tokenizer's file does not exist{at}",
            "The tokenizers package (Rust) opened a path that is not there, or whose folder is not: tokenizer.json, "
            "vocab.txt, merges.txt or the texts to train on.",
            (Fix("Print the path, and look from the folder that the run starts in.", ("pwd", "ls -l PATH")),
             Fix("Make the folder before you save.", ("os.makedirs(folder, exist_ok=True)",)))),
    Refusal("OSError RuntimeError", r"Not found: \"?(?P<name>[^\"]{0,200})\"?: No such file or directory Error #2",
            "SentencePiece's model does not exist: {name}{at}",
            "The path is relative to another folder, or the file was not downloaded or trained on this machine.",
            (Fix("Look from the folder that the run starts in.", ("pwd", "ls -l PATH")),)),
    Refusal("ArgumentError", r"Python argument types in\s+rdkit\.[\w.]+\(NoneType\b",
            "RDKit got None instead of a molecule{at}",
            "MolFromSmiles() and the readers of files return None for what they cannot read. They print the reason "
            "above.",
            (Fix("Skip such molecules, and print which they are.",
                 ("mol = Chem.MolFromSmiles(smiles)", "if mol is None: continue")),)),
)
_OF_SERVICES = (
    Refusal("OpenAIError AuthenticationError AnthropicError APIError", r"(?:api_key client option must be set|"
            r"[Nn]o API key provided|Could not resolve authentication method|Did not find \w*api_key)",
            "the program calls a model's API, and no key for it is set{at}",
            "The client reads it from the environment. Batch jobs, containers and sudo do not have the variables of "
            "your shell.",
            (Fix("Set it where the job starts.", ("export OPENAI_API_KEY=...", "sbatch --export=ALL job.sh")),),
            of_code=True),
)
_ALL = (*_OF_GAMES, *_OF_SIMULATORS, *_OF_LOCALES, *_OF_TEXTS, *_OF_SERVICES)
# fmt: on


_VALUES = re.compile(r"(?P<few>not enough|too many) values to unpack \(expected (?P<wanted>\d)(?:, got (?P<got>\d))?")
_CALLS = re.compile(r"\.(?P<call>step|reset)\(")
_RETURNS = {
    "step": ((5, "observation, reward, terminated, truncated, info"), (4, "observation, reward, done, info")),
    "reset": ((2, "observation, info"), (1, "observation")),
}


def _other_api(one: UncaughtException) -> Meaning | None:
    """Explain a wrapper whose environment returns what another release of gym returns."""
    found = _VALUES.match(one.message)
    code = "" if one.raised_in_own_code else one.code or ""
    call = _CALLS.search(code)
    wanted = int(found["wanted"]) if found else 0
    if not found or not call or "=" not in code[: call.start()]:
        return None
    new, old = _RETURNS[call["call"]]
    if wanted not in (new[0], old[0]):
        return None
    expected, returned = (new, old) if wanted == new[0] else (old, new)
    at = at_place(one)
    release = "gym before 0.26" if expected == old else "gymnasium, and gym since 0.26"
    return Meaning(
        f"{call['call']}() of the environment does not return {expected[0]} values, as a wrapper around it expects{at}",
        f"The wrapper is written for {release}: {expected[1]}. The environment below it probably returns what the "
        f"other releases do: {returned[1]}.",
        (
            Fix("Look at which releases are installed.", ("pip list | grep -iE 'gym|stable|ale|mujoco'",)),
            Fix(f"If the environment is your own, return {expected[1]}."),
            Fix(
                "Or wrap an old environment.",
                ('pip install "shimmy[gym-v21]"', "gymnasium.make('GymV21Environment-v0', env_id=NAME)"),
            ),
        ),
    )


def refused_by_program(one: UncaughtException) -> Meaning | None:
    """Return what is missing on this machine; None if no entry has the message."""
    text = "\n".join(filter(None, (one.message, one.more)))
    if meant := _other_api(one) or refused_by_service(one):
        return meant
    return next((meant for known in _ALL if (meant := known.read(one, text))), None)
