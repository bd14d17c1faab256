"""Messages that tables, generation, schedules and one process on one machine print, not only fine-tuning on ranks.

The tracebacks are written here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import MODULE, SCRIPT, frames
from tests.test_log_meanings import explained

PANDAS = ("pandas/core/nanops.py", "nansum", "the_sum = values.sum(axis, dtype=dtype_sum)")
SAVE = ("torch/serialization.py", "__init__", "super().__init__(torch._C.PyTorchFileWriter(self.name))")
PIL = ("PIL/Image.py", "open", 'fp = builtins.open(filename, "rb")')
SCHEDULE = ("torch/optim/lr_scheduler.py", "__init__", "raise ValueError(")
AUTOCAST = ("torch/amp/autocast_mode.py", "__init__", "raise RuntimeError(")
STATE = ("torch/optim/optimizer.py", "load_state_dict", "raise ValueError(")
PEFT = ("peft/peft_model.py", "load", "optimizer.load_state_dict(state)")
GROUPS = "ValueError: loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
MISSING = "FileNotFoundError: [Errno 2] No such file or directory: '{}'"
TEXTS = "TypeError: '{}' not supported between instances of 'str' and '{}'"
ADDED = "TypeError: unsupported operand type(s) for {}: 'float' and 'str'"


@pytest.mark.parametrize(
    ("code", "below", "error", "title", "words"),
    [
        # A text among numbers: a column, a literal, an answer, or a setting.
        ("total = df['a'].sum()", (PANDAS,), ADDED.format("+"), "a column or an array has texts", "pd.to_numeric"),
        ("print(acc + ' %')", (), ADDED.format("+"), "a number and a text are joined with +", "f'accuracy"),
        ("names = sorted(set(df.label))", (), TEXTS.format("<", "float"), "values of different types are", "NaN"),
        ("n = input('n? ') * 2 - 1", (), "TypeError: unsupported operand type(s) for -: 'str' and 'int'",
         "what input() and sys.argv return", "int(input("),
        ("if args.lr > args.low:", (), TEXTS.format(">", "float"), "args.lr is a text", "argparse"),
        ("n = min(args.n, 5)", (), TEXTS.format("<", "int"), "probably a setting was read as text", "YAML"),
        ("n = os.getenv('N') * k + rest", (), ADDED.format("*"), "a number is computed with text", "environ"),
        # Numbers to draw from, steps, devices, classes.
        ("nxt = torch.multinomial(probs, 1)", (),
         "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0",
         "torch.multinomial() got probabilities that are NaN, infinite or below 0 (fit.py:7", "a temperature of 0"),
        ("s = OneCycleLR(opt, total_steps=n / 32)", (SCHEDULE,),
         "ValueError: Expected positive integer total_steps, but got 312.5", "takes a whole number", "math.ceil"),
        ("s = OneCycleLR(opt, total_steps=n)", (SCHEDULE,),
         "ValueError: Expected positive integer total_steps, but got 0", "got total_steps = 0", "has no batch"),
        ("with torch.autocast('mps'):", (AUTOCAST,),
         "RuntimeError: User specified an unsupported autocast device_type 'mps'", "does not support that device",
         "torch 2.5"),
        ("with torch.autocast('cuda:1'):", (AUTOCAST,),
         "RuntimeError: User specified an unsupported autocast device_type 'cuda:1'", "a device with a number",
         "device.type"),
        ("y = net(x)", (MODULE,), 'NotImplementedError: Module [Net] is missing the required "forward" function',
         "Net was called, and its class has no forward()", "'class Net"),
        ("y = net(x)", (MODULE,), 'NotImplementedError: Module [ModuleList] is missing the required "forward" function',
         "it is a container", "for layer in layers"),
        # A file of one process.
        ("torch.save(net.state_dict(), 'out/net.pth')", (SAVE,), MISSING.format("out/net.pth"),
         "the folder of a file that the script writes does not exist", "os.makedirs"),
        ("img = Image.open(path)", (PIL,), MISSING.format("/data/img/1.jpg"),
         "a file that the script reads does not exist: /data/img/1.jpg", "capital letters"),
        # An optimizer's state in a script of its own, and with adapters.
        ("opt.load_state_dict(ck['opt'])", (STATE,), GROUPS, "or other groups", "of a second network"),
        ("resume(ck)", (PEFT, STATE), GROUPS, "more or fewer are trained now", "is_trainable=True"),
    ],
)  # fmt: skip
def test_what_it_means(
    code: str, below: tuple[tuple[str, str, str], ...], error: str, title: str, words: str, tmp_path: Path
) -> None:
    _, found, why = explained(tmp_path, frames((SCRIPT, "main", code), *below) + f"{error}\n")
    assert title in found and words in f"{found} {why}", (found, why)


def test_a_file_of_ranks_is_looked_for_on_every_node(tmp_path: Path) -> None:
    own = (SCRIPT, "main", "img = Image.open(path)")
    text = "".join(
        f"{frames(own, PIL, prefix=f'[rank{n}]: ')}[rank{n}]: {MISSING.format('/data/1.jpg')}\n" for n in (0, 1)
    )
    _, _, why = explained(tmp_path, text)
    assert "srun --ntasks-per-node=1 ls" in why, why


EMBEDDING = ("torch/nn/functional.py", "embedding", "return torch.embedding(weight, input)")
SELF = "IndexError: index out of range in self"
EINOPS = 'einops.EinopsError:  Error while processing rearrange-reduction pattern "b c (h p) w -> b h w".\n'
SHAPE = " Input tensor shape: torch.Size([3, 225, 225]). Additional info: {'p': 16}.\n"
START = ("torch/utils/data/dataloader.py", "__init__", "w.start()")
SEND = ("torch/utils/data/dataloader.py", "_try_get_data", "data = self._data_queue.get(timeout=timeout)")


@pytest.mark.parametrize(
    ("code", "below", "error", "title", "words"),
    [
        ("u = self.items(ids)", (EMBEDDING,), SELF, "an id has no row in the embedding", "num_embeddings"),
        ("h = x.index_select(0, src)", (), SELF, "an index has no row in the table", "count from 1"),
        ("h = self.tok_emb(idx)", (EMBEDDING,), SELF, "a token id or position has no row", "tokenizer"),
        ("y = model(x)", (("transformers/models/bert/modeling_bert.py", "forward", "x"), EMBEDDING), SELF,
         "a token id or position has no row", "resize_token_embeddings"),
        ("x = rearrange(x, p)", (), f"{EINOPS}{SHAPE} Wrong shape: expected 4 dims. Received 3-dim tensor.",
         "[3, 225, 225]: it names 4 dimensions, and the tensor has 3", "x.unsqueeze(0)"),
        ("x = rearrange(x, p)", (), f"{EINOPS}{SHAPE} Shape mismatch, can't divide axis of length 225 in chunks of 16",
         "an axis of 225 cannot be divided into parts of 16", "multiple of 16"),
        ("x = rearrange(x, p)", (), f"{EINOPS} Something else", "does not fit the shape of a tensor", "batch"),
        ("for x in loader:", (START,), "BrokenPipeError: [Errno 32] Broken pipe", "BrokenPipeError",
         "ended while it was being started"),
        ("for x in loader:", (SEND,), "ConnectionResetError: [Errno 104] Connection reset by peer",
         "ConnectionResetError", "died while it sent a batch"),
    ],
)  # fmt: skip
def test_what_ids_patterns_and_workers_mean(
    code: str, below: tuple[tuple[str, str, str], ...], error: str, title: str, words: str, tmp_path: Path
) -> None:
    _, found, why = explained(tmp_path, frames((SCRIPT, "forward", code), *below) + f"{error}\n")
    assert title in found and words in f"{found} {why}", (found, why)
