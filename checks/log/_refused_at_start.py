"""What ends a run at its start: a download, a run to resume, a policy's batch, a dataclass, a name made of values?

One entry for one message, as in `_refused_inputs.py`.
"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.snapshot import UncaughtException

from ._own_objects import Meaning
from ._refusal import Look, Refusal

_IN_DOWNLOAD = r"^torchvision/datasets/\S+ in (?:_?download\w*|_urlretrieve|__init__)$"
# fmt: off
_DOWNLOADS = (
    Refusal("HTTPError URLError", r"HTTP Error (?P<code>429|5\d\d)\b",
            "the server of a torchvision data set does not give the file at the moment (HTTP error {code})",
            "It is overloaded, under maintenance, or limits how often one address may ask. A later try can work.",
            (Fix("Try again later, and download once, before the run.",),
             Fix("Or get the files by hand, put them where torchvision looks (ROOT/NAME/raw), and turn the download "
                 "off.", ("find ROOT | head -20", "torchvision.datasets.MNIST(ROOT, download=False)"))),
            of_code=True, within=_IN_DOWNLOAD),
    Refusal("RuntimeError", r"^Error downloading (?P<file>[\w.-]*\w)",
            "torchvision could not download {file} from any of its addresses",
            "It tries one after the other, and prints for each why it failed (\"Failed to download\", or below "
            "the message). Usual reasons: this machine has no internet access or needs a proxy, or the servers have "
            "moved or refuse programs, so that only a newer torchvision has the right address.",
            (Fix("Look at the reason above, and try an address from this machine.",
                 ("curl -sSIL URL | head -1", "env | grep -i proxy")),
             Fix("Download where there is internet access, copy the files (ROOT/NAME/raw), and turn the download off.",
                 ("torchvision.datasets.MNIST(ROOT, download=False)",)),
             Fix("If a server refuses, upgrade torchvision together with torch.", ("pip show torch torchvision",))),
            of_code=True, within=_IN_DOWNLOAD),
    Refusal("HTTPError URLError RuntimeError", r"HTTP Error (?P<code>30[1278]|40[134]|410)\b",
            "the server of a torchvision data set refused the download",
            "download=True fetches the files from an address in torchvision's own code. That server has moved or "
            "closed, or refuses programs, so that a new try gives the same. The address of MNIST in releases up to "
            "0.9.0 is one server that no longer gives the files; later ones also try a mirror.",
            (Fix("Upgrade torchvision together with torch: newer releases have other addresses.",
                 ("pip show torch torchvision",)),
             Fix("Or get the files by hand, put them where torchvision looks (ROOT/NAME/raw), and turn the download "
                 "off.", ("find ROOT | head -20", "torchvision.datasets.MNIST(ROOT, download=False)")),
             Fix("For MNIST in an old torchvision, set PyTorch's mirror before the data set is made.",
                 ("torchvision.datasets.MNIST.resources = [(url.replace('http://yann.lecun.com/exdb/mnist', "
                  "'https://ossci-datasets.s3.amazonaws.com/mnist'), md5) for url, md5 in "
                  "torchvision.datasets.MNIST.resources]",))),
            of_code=True, within=_IN_DOWNLOAD),
)
_TO_RESUME = (
    Refusal("ValueError", r"^No runs present in the directory: '(?P<path>[^']+)' match: '(?P<run>[^']*)'",
            "the run is to resume, and {path} has no run whose folder matches '{run}'",
            "Isaac Lab looks there for the checkpoint: the folder is logs/LIBRARY/EXPERIMENT_NAME below the folder in "
            "which the run was started, and load_run is a regular expression of the run's folder ('.' and '.*' match "
            "every folder, so that none is there). Nothing was trained under this experiment name, the earlier run "
            "has another one, or it was started in another folder.",
            (Fix("If this run starts from the beginning, turn resume off.", ("python train.py agent.resume=false",)),
             Fix("If it continues or uses an earlier one, train that one first, or give its names.",
                 ("python train.py --resume --experiment_name NAME --load_run RUN --checkpoint model_1000.pt",))),
            of_code=True, look=Look("See which experiments and runs there are.", "ls -d {path:path}/../*/*")),
    Refusal("ValueError", r"^No checkpoints in the directory: '(?P<path>[^']+)' match '(?P<name>[^']*)'",
            "the run to resume from has no checkpoint that matches '{name}': {path}",
            "Isaac Lab takes the last run that matches load_run, and in it the last file that matches load_checkpoint. "
            "That run ended before its first checkpoint, its checkpoints are in a subfolder, or the name is another.",
            (Fix("Name a run that has one, or turn resume off.",
                 ("python train.py --resume --load_run RUN --checkpoint model_1000.pt",)),),
            of_code=True, look=Look("See what it has.", "ls -la {path:path}")),
)
_OF_POLICIES = (
    Refusal("KeyError", r"^'(?P<key>observation\.language\.(?:tokens|attention_mask))'",
            "the batch has no {key}: LeRobot's preprocessor did not make it of the task's text{at}",
            "The data set has the task as text. The policy's preprocessor tokenizes it (and normalizes, renames and "
            "moves the rest); since LeRobot has processors, the policy does not do that itself. This batch did not go "
            "through it, or through that of another policy which reads no text.",
            (Fix("Make the preprocessor of this policy, and call it on every batch before forward().",
                 ("preprocessor, postprocessor = make_pre_post_processors(policy.config, "
                  "dataset_stats=dataset.meta.stats)", "batch = preprocessor(batch)")),
             Fix("If it is called, check that the batch has the text.", ("print(batch.keys(), batch.get('task'))",))),
            of_code=True),
)
_OF_PYTHON = (
    Refusal("AttributeError", r"^'NoneType' object has no attribute '__dict__'",
            "a dataclass is in a file that was loaded without an entry in sys.modules: its module is None there{at}",
            "@dataclass looks its class's module up in sys.modules, and finds nothing. importlib's module_from_spec() "
            "and exec_module() do not enter it there; Python's own import does. With annotations as text (from "
            "__future__ import annotations), every dataclass of such a file fails.",
            (Fix("Enter the module before it is executed.",
                 ("mod = importlib.util.module_from_spec(spec)", "sys.modules[spec.name] = mod",
                  "spec.loader.exec_module(mod)")),
             Fix("Or import the file the usual way, with its folder on PYTHONPATH.")),
            of_code=True, raised=r"sys\.modules\.get\(cls\.__module__\)"),
    Refusal("AttributeError", r"^'?(?P<owner>\w+)'? (?:object )?has no attribute '?(?P<name>\w+)",
            "{owner} has no attribute {name}, a name that the line makes of values{at}",
            "The name is not written in the code: it comes from {made}. A value in it is larger than, or other than, "
            "what {of} was set up for: more layers, columns, parts or classes than were registered. A similar name "
            "that Python suggests is another one of the same kind and no repair. A tokenizer has such attributes "
            "only for the special tokens that were given to it by name.",
            (Fix("Print the values that the name is made of, and the names that exist.",
                 ("print([name for name in dir(obj) if not name.startswith('_')])",)),
             Fix("Register as many as the data or the config needs, or limit the value that is too large.")),
            of_code=True,
            line=r"getattr\((?P<of>[\w.\[\]]+), *(?P<made>f\"[^\"]*\{[^\"]*\"|f'[^']*\{[^']*'|"
                 r"(?:'\w*'|\"\w*\") *[+%] *[^,]+?)\)"),
)
# fmt: on
_ALL = (*_DOWNLOADS, *_TO_RESUME, *_OF_POLICIES, *_OF_PYTHON)


def refused_at_start(one: UncaughtException) -> Meaning | None:
    """Return what such a message means; None if no entry has it."""
    text = "\n".join(filter(None, (one.message, one.more)))
    return next((meant for known in _ALL if (meant := known.read(one, text))), None)
