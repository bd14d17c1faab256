"""Was a module that a program generates at run time incomplete when a rank imported it?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case, Row, signatures

from ._circumstances import said

OF_UNSLOTH = r"(?:Unsloth\w+(?:Trainer|Config)|unsloth_compiled_\w+)"
GENERATED = rf"(?:{OF_UNSLOTH}|transformers_modules[\w.<>-]*)"

# fmt: off
_REMOTE_CODE = Case(
    said(r"module 'transformers_modules[^']*' has no attribute"),
    "the checkpoint's own code (trust_remote_code) does not define the class that its config names, or its copy is "
    "incomplete",
    "transformers copies the Python files of a model's repository to transformers_modules, and imports them from "
    "there. The class is missing in these files (another revision, a renamed class, a folder with some of the files), "
    "or several ranks wrote the copy at the same time. No installed package is missing.",
    (Fix("Delete the copy, and load the config in one process: if it fails there too, the model's files are wrong.",
         ("rm -rf ~/.cache/huggingface/modules/transformers_modules",
          "python -c \"from transformers import AutoConfig; AutoConfig.from_pretrained('MODEL', "
          "trust_remote_code=True)\"")),
     Fix("Compare auto_map in the model's config.json with the classes in its Python files.",
         ("grep -A8 auto_map MODEL/config.json",)),
     Fix("If it works in one process, give each rank its own copy.",
         ("export HF_MODULES_CACHE=/tmp/modules_$LOCAL_RANK",))),
    "AttributeError: module 'transformers_modules.nemotron.configuration_nemotron_h' has no attribute "
    "'NemotronHConfig'\n", "https://huggingface.co/docs/transformers/custom_models")
ROWS = (
    Row("log_generated_module_incomplete", "root", "library",
        rf"AttributeError: module '{GENERATED}' has no attribute|cannot import name '\w+' from '{OF_UNSLOTH}'|"
        r"KeyError: '(?:Unsloth\w+Trainer|unsloth_compiled_\w+|transformers_modules\.[^']+)'",
        ("AttributeError: module 'UnslothPPOTrainer' has no attribute 'UnslothPPOTrainer'",
         "ImportError: cannot import name 'UnslothGRPOTrainer' from 'UnslothGRPOTrainer' (unknown location)",
         "KeyError: 'transformers_modules.org.model.configuration_x'"),
        "a module that is generated at run time was incomplete or missing when a rank imported it",
        "Unsloth writes its trainers to unsloth_compiled_cache, and transformers copies a model's own code to "
        "transformers_modules. If several ranks do so at the same time, one can import what another has written only "
        "in part. A file left over from a stopped run or another version has the same effect. No installed package is "
        "missing.",
        (Fix("Delete the generated modules, and let one process write them before all ranks start.",
             ("rm -rf unsloth_compiled_cache ~/.cache/huggingface/modules/transformers_modules",
              "python train.py --max_steps 1", "mgpu launch train.py")),
         Fix("Or give each rank its own folder, and upgrade the package that writes them.",
             ("export HF_MODULES_CACHE=/tmp/modules_$LOCAL_RANK", "pip install --upgrade unsloth unsloth_zoo"))),
        "https://github.com/huggingface/transformers/pull/22537", cases=(_REMOTE_CODE,)),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
