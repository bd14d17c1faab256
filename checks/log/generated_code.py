"""Was a module that a program generates at run time incomplete when a rank imported it?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

OF_UNSLOTH = r"(?:Unsloth\w+(?:Trainer|Config)|unsloth_compiled_\w+)"
GENERATED = rf"(?:{OF_UNSLOTH}|transformers_modules[\w.-]*)"

# fmt: off
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
        "https://github.com/huggingface/transformers/pull/22537"),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
