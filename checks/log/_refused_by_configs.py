"""Which key of a config file does the project not define, and which folder that a data file names does not exist?

One entry for one message, as in `_refused_inputs.py`.
"""

from __future__ import annotations

from mgpu.check import Fix

from ._refusal import Look, Refusal

# fmt: off
_SAME_VERSION = Fix("Or use the config file that belongs to this version of the code: check out both from the same "
                    "commit.")
OF_CONFIGS = (
    Refusal("KeyError AssertionError", r"^'?Non-existent (?:config )?key: (?P<key>(?:\w+\.)*(?P<last>\w+))",
            "the config file or the command line sets {key}, a key that the project's defaults do not define{at}",
            "yacs accepts only keys that the defaults in the code have (config.py, defaults.py, get_cfg()). The key is "
            "misspelled or in the wrong section, or the file is of another version or model, whose code adds its own "
            "keys first (add_..._config).",
            (Fix("Remove or rename it in the config file, or add it to the defaults with a value of its type.",
                 ("_C.SECTION.KEY = None",)), _SAME_VERSION),
            of_code=True,
            look=Look("See where the code and the config files have it.",
                      "grep -rnw --include='*.py' --include='*.y*ml' {last:name} .")),
    Refusal("ValueError", r"^Type mismatch \((?P<was>.{1,60}?) vs\. (?P<got>.{1,60}?)\) with values \(.{0,200}?\) "
            r"(?:\([^)]*\) )?for config key: (?P<key>[\w.-]+)",
            "the config sets {key} to a value of another type ({got}) than the default has ({was}){at}",
            "yacs takes the type of a key from its default, and converts only lists and tuples. In YAML, 1e-4 is a "
            "string (1.0e-4 is a float), 1 is an int, and None is written null.",
            (Fix("Write the value in the default's type.", ("LR: 1.0e-4", "DEVICE: 'cuda:0'", "IDS: [0, 1]")),),
            of_code=True),
    Refusal("Exception FileNotFoundError AssertionError", r"^Dataset not found\b",
            "a folder of images that YOLO's data file names does not exist{at}",
            "YOLO checks val and train of the data file before it trains, and prints the paths that it did not find "
            "(\"nonexistent paths\"). Relative ones begin at the folder in which the run was started, or at the file's "
            "path: key. Exports of data sets often name ../train/images and ../valid/images, which are right for "
            "another folder.",
            (Fix("Write absolute paths into the data file, and check that they exist.",
                 ("path: /data/my_dataset", "ls /data/my_dataset")),
             Fix("Or start the run in the folder at which the paths begin.")),
            of_code=True, raised_in=r" in check_dataset$"),
)
# fmt: on
