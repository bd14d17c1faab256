"""Values and arguments that a line only passes on, and what a data set, an image or Windows has in another form.

The tracebacks are written here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

WRAP = "/home/ada/wrap.py"
HANDS_ON = (WRAP, "__init__", "self.inner = make(self.groups, **kwargs)")
COMPILE = ("torch/_inductor/scheduler.py", "create_backend", "raise TritonMissing(inspect.currentframe())")
IMAGE = ("wandb/sdk/data_types/image.py", "_initialize_from_data", "data = data.permute(1, 2, 0).cpu().numpy()")
PERMUTE = (
    "RuntimeError: permute(sparse_coo): number of dimensions in the tensor input does not match the length of the "
    "desired ordering of dimensions i.e. input.dim() = {} is not equal to len(dims) = 3"
)
SIZES = "RuntimeError: The size of tensor a ({}) must match the size of tensor b ({}) at non-singleton dimension 2"
NO_MOMENTUM = "TypeError: AdamW.__init__() got an unexpected keyword argument 'momentum'"
FULL = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 8.00 GiB total capacity; "
    "7.25 GiB already allocated; 0 bytes free; 7.27 GiB reserved in total by PyTorch)\n"
)
NONE = "TypeError: 'NoneType' object is not callable"
NO_ATTRIBUTE = "AttributeError: '{}' object has no attribute '{}'"


@pytest.mark.parametrize(
    ("calls", "error", "title", "words"),
    [
        # An argument that a call further out passes by its name.
        (
            ((SCRIPT, "train", "opt = Wrap(net.parameters(), torch.optim.AdamW, lr=0.1, momentum=0.9)"), HANDS_ON),
            NO_MOMENTUM,
            "fit.py:7 in train passes momentum, which reaches AdamW.__init__()",
            "an argument of torch.optim.SGD, not of AdamW",
        ),
        (
            ((SCRIPT, "main", "net = build(depth=3, wide=True)"), (WRAP, "build", "return Net(**kwargs)")),
            "TypeError: Net.__init__() got an unexpected keyword argument 'wide'",
            "fit.py:7 in main passes wide, which reaches Net.__init__()",
            "grep -nw wide fit.py",
        ),
        # The caller's line does not show it: the argument can come from anywhere.
        (
            ((SCRIPT, "main", "net = build(options)"), (WRAP, "build", "return Net(**options)")),
            "TypeError: Net.__init__() got an unexpected keyword argument 'wide'",
            "your call at wrap.py:7 in build passes wide to Net.__init__()",
            "grep -rnw --include='*.py' wide .",
        ),
        (
            ((SCRIPT, "main", "net = build(wide=True)"), (WRAP, "build", "return Net(wide=wide)")),
            "TypeError: Net.__init__() got an unexpected keyword argument 'wide'",
            "your call at wrap.py:7 in build passes wide to Net.__init__()",
            "grep -n wide wrap.py",
        ),
        # What a Trainer has only once it trains.
        (
            (
                (SCRIPT, "train", "opt = Wrap(trainer.model.parameters(), trainer.optimizer, lr=1e-3)"),
                (WRAP, "__init__", "self.inner = base_optimizer(self.groups, **kwargs)"),
            ),
            NONE,
            "trainer.optimizer is None, and fit.py:7 in train passes it on as base_optimizer",
            "pass a class, such as torch.optim.AdamW",
        ),
        (
            ((SCRIPT, "main", "for group in trainer.optimizer.param_groups:"),),
            NO_ATTRIBUTE.format("NoneType", "param_groups"),
            "trainer.optimizer is None (fit.py:7 in main)",
            "create_optimizer_and_scheduler",
        ),
        (
            (
                (SCRIPT, "train", "opt = Wrap(net.parameters(), recipe.optimizer)"),
                (WRAP, "__init__", "self.inner = base_optimizer(self.groups)"),
            ),
            NONE,
            "base_optimizer is None (wrap.py:7 in __init__)",
            "grep -nE",
        ),
        # Methods of a data set.
        (
            ((SCRIPT, "prepare", "data = data.remove('prompt')"),),
            NO_ATTRIBUTE.format("Dataset", "remove"),
            "Dataset has no method remove, which fit.py:7 in prepare calls: remove_columns is probably meant",
            "dataset = dataset.remove_columns('NAME')",
        ),
        (
            (
                (SCRIPT, "main", "rows = prepare(load_dataset('imdb', split='train'))"),
                (SCRIPT, "prepare", "rows = data.head(5)"),
            ),
            NO_ATTRIBUTE.format("Dataset", "head"),
            "select is probably meant",
            "select(range(5))",
        ),
        (
            ((SCRIPT, "main", "rows = data.head(5)"),),
            NO_ATTRIBUTE.format("Dataset", "head"),
            "Dataset has no attribute head, which fit.py:7 in main reads",
            "Search where head is defined",
        ),
        # A row of a data set holds lists.
        (
            ((SCRIPT, "main", "print(train_data[3]['input_ids'].type())"),),
            NO_ATTRIBUTE.format("list", "type"),
            "'input_ids' of a row of train_data is a list, and .type belongs to tensors",
            "train_data.set_format('torch')",
        ),
        (
            ((SCRIPT, "main", "n = data['train'][i]['labels'].shape"),),
            NO_ATTRIBUTE.format("list", "shape"),
            "'labels' of a row of data['train'] is a list",
            "set_format('torch')",
        ),
        (
            ((SCRIPT, "main", "n = outputs.shape"),),
            NO_ATTRIBUTE.format("list", "shape"),
            "outputs is a list, and fit.py:7 in main reads its shape",
            "not collated",
        ),
        # A batch of one image is no image.
        (
            ((SCRIPT, "main", "log.append(wandb.Image((img[k:k+1] * 0.5 + 0.5).float()))"), IMAGE),
            PERMUTE.format(4),
            "wandb.Image gets img[k:k+1] with its batch dimension, and takes one image (fit.py:7 in main)",
            "img[k]",
        ),
        (
            ((SCRIPT, "main", "x = images.permute(1, 2, 0)"),),
            PERMUTE.format(4),
            "images has 4 dimensions, and permute() lists 3",
            "print(images.shape)",
        ),
        (
            ((SCRIPT, "main", "log.append(wandb.Image(img[k]))"), IMAGE),
            PERMUTE.format(2),
            "the tensor has 2 dimensions, and permute() lists 3",
            "fewer dimensions",
        ),
        # A check that an image is square.
        (
            ((SCRIPT, "forward", "assert x.shape[2] == x.shape[3] == self.resolution"),),
            "AssertionError",
            "x is not a square image of the size self.resolution (fit.py:7 in forward)",
            "CenterCrop",
        ),
        (
            ((SCRIPT, "forward", "assert attn.size(-1) == attn.size(-2)"),),
            "AssertionError",
            "a check in the script's own code failed at fit.py:7 in forward",
            "Print the values",
        ),
        (
            ((SCRIPT, "forward", "assert x.shape[2] == x.shape[3] == self.resolution, 'bad clip'"),),
            "AssertionError: bad clip",
            "a check in the script's own code failed at fit.py:7 in forward: bad clip",
            "Print the values",
        ),
        # A prediction of another resolution.
        (
            ((SCRIPT, "compute_iou", "pred_mask = pred_mask * (target > 0)"),),
            SIZES.format(112, 224),
            "the prediction is 2 times smaller than the target: pred_mask has the size 112 and target 224",
            "size=target.shape[-2:]",
        ),
        (
            ((SCRIPT, "compute_iou", "inter = labels * outputs"),),
            SIZES.format(256, 64),
            "the prediction is 4 times smaller than the target: outputs has the size 64 and labels 256",
            "size=labels.shape[-2:]",
        ),
        (
            ((SCRIPT, "compute_iou", "pred_mask = pred_mask * (target > 0)"),),
            SIZES.format(150, 224),
            "two tensors have different sizes: 150 and 224",
            "print(",
        ),
        (
            ((SCRIPT, "add_noise", "x = scale * target"),),
            SIZES.format(112, 224),
            "two tensors have different sizes: 112 and 224",
            "print(",
        ),
    ],
)
def test_the_line_that_passes_a_value_is_named(
    tmp_path: Path, calls: tuple[tuple[str, str, str], ...], error: str, title: str, words: str
) -> None:
    _, said, text = explained(tmp_path, f"{frames(*calls)}{error}\n")
    assert title in said
    assert words in text


@pytest.mark.parametrize(
    ("log", "row", "title", "words", "absent"),
    [
        (
            frames(("/home/ada/net.py", "run", "net(x)")).replace("/home/ada/net.py", "<ipython-input-4-0c1f>") + FULL,
            "log_gpu_memory_full",
            "a GPU's memory is full in a notebook",
            "empty_cache",
            "nvidia-smi",
        ),
        (
            frames((SCRIPT, "main", "net(x)")) + FULL,
            "log_gpu_memory_full",
            "a GPU's memory is full",
            "Halve the batch",
            "kernel",
        ),
        (
            frames((SCRIPT, "main", "loss = net(x)"), COMPILE)
            + "torch._inductor.exc.TritonMissing: Cannot find a working triton installation. Either the package is "
            "not installed or it is too old.\n",
            "log_triton_missing",
            "torch.compile needs Triton for a GPU, and it is not installed, or too old",
            "pip install --upgrade torch triton",
            "triton-windows",
        ),
        (
            'Traceback (most recent call last):\n  File "G:\\envs\\a\\lib\\site-packages\\torch\\_inductor\\'
            'scheduler.py", line 9, in create_backend\n    raise TritonMissing(inspect.currentframe())\n'
            "torch._inductor.exc.TritonMissing: Cannot find a working triton installation.\n",
            "log_triton_missing",
            "torch brings none on Windows",
            "triton-windows",
            "upgrade torch triton",
        ),
        (
            "RuntimeError: Found Tesla P100 which is too old to be supported by the triton GPU compiler, which is used "
            "as the backend.\n",
            "log_gpu_too_old_for_triton",
            "it is too old for Triton",
            "compute_cap",
            "pip install",
        ),
        (
            frames((SCRIPT, "main", "import dgl"))
            + r"FileNotFoundError: Could not find module 'd:\conda\a\lib\site-packages\dgl\dgl.dll' (or one of its "
            "dependencies). Try using the full path with constructor syntax.\n",
            "log_windows_dependency_missing",
            "Windows could not load dgl.dll: probably another library that it needs is missing",
            "Visual C++",
            "Go to that line",
        ),
        (
            frames(("/work/verl/verl/workers/megatron_workers.py", "_init", "self.peft_cls = get_peft_cls("))
            + "AssertionError: LoRA/PEFT only supported via Megatron-Bridge\n",
            "log_verl_lora_without_bridge",
            "LoRA only with Megatron-Bridge",
            "vanilla_mbridge=False",
            "Go to that line",
        ),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, log: str, row: str, title: str, words: str, absent: str) -> None:
    found, said, text = explained(tmp_path, log)
    assert found == row
    assert title in said
    assert words in text
    assert absent not in text
