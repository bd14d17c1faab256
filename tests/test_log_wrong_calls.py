"""Calls and settings that are wrong in a way which the message does not explain: torch's, Python's, config files.

The tracebacks are written here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import MODULE, SCRIPT, frames
from tests.test_log_meanings import explained

READ_LINE = ("/opt/env/lib/python3.11/codecs.py", "decode", "(result, consumed) = self._buffer_decode(data)")
MEGATRON = ("/w/Megatron-LM/megatron/training/training.py", "pretrain", "if args.sequence_parallell:")


@pytest.mark.parametrize(
    ("code", "below", "error", "title", "words"),
    [
        ("plateau.step()", (), "TypeError: ReduceLROnPlateau.step() missing 1 required positional argument: 'metrics'",
         "ReduceLROnPlateau needs the value that it watches: plateau.step() has none", "plateau.step(val_loss)"),
        ("self.sched.step()", (), "TypeError: step() missing 1 required positional argument: 'metrics'",
         "self.sched.step() has none", "after the validation"),
        ("at = torch.randint(0, len(windows), (1,))", (),
         "RuntimeError: random_ expects 'from' to be less than 'to', but got from=0 >= to=0",
         "a random whole number is drawn from 0 up to 0", "an empty list"),
        ("noise.random_(to=spread)", (),
         "RuntimeError: random_ expects 'from' to be less than 'to', but got from=0 >= to=-3",
         "from 0 up to -3", "print(spread)"),
        ("start = random.randrange(room)", (), "ValueError: empty range for randrange()", "that range is empty",
         "print(room)"),
        ("at = np.random.randint(0, room)", (), "ValueError: low >= high", "that range is empty", "print(room)"),
        ("h = loss.size(-1)", (), "IndexError: Dimension specified as -1 but tensor has no dimensions",
         "a tensor is a single number, without dimensions", "before it was reduced"),
        ("x = clip.permute(0, 3, 1, 2)", (),
         "RuntimeError: permute(sparse_coo): number of dimensions in the tensor input does not match the length of the "
         "desired ordering of dimensions i.e. input.dim() = 3 is not equal to len(dims) = 4",
         "clip has 3 dimensions, and permute() lists 4", "fewer dimensions"),
        ("names.append(row['name'])", (), "TypeError: string indices must be integers, not 'str'",
         "row is a text, not a dict, and fit.py:7 in main reads its key 'name'", "json.loads(row)"),
        ("obs, reward, terminated, truncated, info = env.step(a)", (),
         "ValueError: not enough values to unpack (expected 5, got 4)",
         "step() of the environment does not return 5 values, as fit.py:7 in main expects", "obs, reward, done, info"),
        ("y = inner(x)", (), "TypeError: main.<locals>.inner() takes 1 positional argument but 2 were given",
         "passes 2 positional arguments to inner(), which takes 1", "'def inner"),
        ("at = random.randint(start, stop)", (), "ValueError: empty range for randrange() (5, 3, -2)",
         "that range is empty", "print(stop)"),
        ("at = np.random.randint(room, size=5)", (), "ValueError: low >= high", "that range is empty", "print(room)"),
        ("note = input('Notes: ')", (), "EOFError: EOF when reading a line",
         "the program asks a question, and no terminal is there to answer it (fit.py:7 in main)", "isatty"),
        ("log.dump(input('Notes: '))", (), "OSError: [Errno 9] Bad file descriptor", "the program asks a question",
         "nohup"),
        ("note = input()", (READ_LINE,), "OSError: [Errno 9] Bad file descriptor", "the program asks a question",
         "nohup"),
        ("n = cfg.MODEL.HEADS", (), "AttributeError: 'EasyDict' object has no attribute 'HEADS'",
         "the config has no key HEADS, which fit.py:7 in main reads (cfg.MODEL.HEADS)", "print(cfg.MODEL.keys())"),
        ("lr = self.config.lr", (), "AttributeError: 'ConfigDict' object has no attribute 'lr'. Did you mean: 'lrs'?",
         "the config has no key lr", "has a key lrs"),
        ("build(cfg.neck)", (("mmengine/config/config.py", "__getattr__", "raise ex"),),
         "AttributeError: 'ConfigDict' object has no attribute 'neck'", "the config has no key neck", "base file"),
        ("rows = load(args.image_column)", (),
         "AttributeError: 'Namespace' object has no attribute 'image_column'. Did you mean: 'target_column'?",
         "the code reads the option image_column, which the command line does not have; it has target_column",
         "parser.add_argument('--image_column')"),
        ("rows = load(args.pool)", (), "AttributeError: 'Namespace' object has no attribute 'pool'",
         "the code reads the option pool, which the parser of the command line does not define", "-e --pool"),
        ("pretrain(args)", (MEGATRON,), "AttributeError: 'Namespace' object has no attribute 'sequence_parallell'",
         "which Megatron's parser of the command line does not define", "git -C Megatron-LM"),
        ("y = net(x)", (MODULE,), "TypeError: forward() missing 1 required positional argument: 't'",
         "your call at fit.py:7 in main does not pass 't' to forward()", "'def forward\\(' ."),
    ],
)  # fmt: skip
def test_a_wrong_call_is_explained(
    code: str, below: tuple[tuple[str, str, str], ...], error: str, title: str, words: str, tmp_path: Path
) -> None:
    _, found, text = explained(tmp_path, f"{frames((SCRIPT, 'main', code), *below)}{error}\n")
    assert title in found and words in text, (found, text)
    assert 'indices must be integers"' not in text and ("Megatron" in text) is (MEGATRON in below)


@pytest.mark.parametrize(
    ("code", "error", "not_said"),
    [
        ("os.write(pipe, b'x')", "OSError: [Errno 9] Bad file descriptor", "asks a question"),
        ("read_all(stream)", "EOFError: Ran out of input", "asks a question"),
        ("y = decoder.step()", "TypeError: Decoder.step() missing 1 required positional argument: 'metrics_of_x'",
         "ReduceLROnPlateau"),
        ("y = net.head(x)", "AttributeError: 'TinyNet' object has no attribute 'head'", "config has no key"),
        ("n = env.action_space.n", "AttributeError: 'Box' object has no attribute 'n'", "config has no key"),
        ("y = row[name]", "TypeError: string indices must be integers", "is a text, not a dict"),
    ],
)  # fmt: skip
def test_other_failures_of_the_same_words_are_not(code: str, error: str, not_said: str, tmp_path: Path) -> None:
    _, title, words = explained(tmp_path, f"{frames((SCRIPT, 'main', code))}{error}\n")
    assert not_said not in title + words
