"""Which value of a line was wrong, by its names, by what the program printed near it, and by the place in the model.

The tracebacks are written here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .test_log_callers import MODULE, SCRIPT, frames
from .test_log_frames_decide import LINEAR
from .test_log_meanings import explained

RUN = "/home/ada/run.py"
METERS = "/home/ada/meters.py"
NET = "/home/ada/net.py"
ZERO = "ZeroDivisionError: division by zero\n"


@pytest.mark.parametrize(
    ("calls", "title", "words"),
    [
        ([(RUN, "main", "bar.set_postfix(acc=acc.get())"),
          (METERS, "get", "mean = self.total / self.cnt * 100 if scaled else self.total / self.cnt")],
         "the average self.total / self.cnt is read while nothing was counted: self.cnt is 0 (meters.py:7 in get)",
         "run.py:7 in main reads the average of a meter that has no value yet"),
        ([(RUN, "main", "print(m)"), (METERS, "__str__", "return f'{self.avg:.3f}'"),
          (METERS, "avg", "return self.sum / self.count")],
         "the average self.sum / self.count is read while", "run.py:7 in main reads"),
        ([(RUN, "main", "m.update(loss, n=len(kept))"), (METERS, "update", "self.avg = self.sum / self.count")],
         "an average meter was given nothing to count: self.count is still 0 at meters.py:7 in update",
         "run.py:7 in main calls it"),
        # No average of a meter.
        ([(RUN, "main", "net = Net(cfg)"), (NET, "__init__", "self.size = self.width / self.num_heads")],
         "self.num_heads is 0, and net.py:7 in __init__ divides by it", "rounded down to 0"),
        ([(RUN, "main", "rate = done / seconds if per_second else done / seconds")],
         "seconds is 0, and run.py:7 in main divides by it", "print(seconds)"),
        ([(RUN, "main", "rate = done / seconds + left / steps")], "run.py:7 in main raised ZeroDivisionError", ""),
    ],
)  # fmt: skip
def test_an_average_of_nothing(calls: list[tuple[str, str, str]], title: str, words: str, tmp_path: Path) -> None:
    _, found, rest = explained(tmp_path, f"{frames(*calls)}{ZERO}")
    assert found.startswith(title), found
    assert words in rest


FAILED_CHECK = frames((RUN, "main", "y = net(x)"), MODULE, (NET, "forward", "{code}")) + "AssertionError\n"
SQUARE = "assert x.shape[2] == x.shape[3] == self.side"
SIZE = "torch.Size([8, 3, 32, 48]) 48\n"
BAR = "\x1b[2Ktorch.Size([8, 3, 32, 48]) 48━━━━━━━━━━━━━━━━━━━━ 0/10 0:00:01 • -:--:--\n"


@pytest.mark.parametrize(
    ("code", "before", "after", "words"),
    [
        (SQUARE, SIZE, "", '"torch.Size([8, 3, 32, 48]) 48". If that is x, x.shape[2] is 32 and x.shape[3] is 48.'),
        (SQUARE, BAR, "", '"torch.Size([8, 3, 32, 48]) 48". If that is x'),
        (SQUARE, "", SIZE, '"torch.Size([8, 3, 32, 48]) 48". If that is x'),  # the output goes to a file
        ("assert q.size(1) == k.size(1)", "q shape: (2, 9)\nk shape: (2, 7)\n", "", '"q shape: (2, 9)", "k shape: (2'),
        ("assert len(a) == len(b)", "(4, 5)\n", "", 'the program printed "(4, 5)".'),
    ],
)  # fmt: skip
def test_a_check_of_sizes_has_the_sizes_that_were_printed(
    code: str, before: str, after: str, words: str, tmp_path: Path
) -> None:
    _, title, rest = explained(tmp_path, f"step 1\n{before}{FAILED_CHECK.format(code=code)}{after}")
    assert "a check in the script's own code failed at net.py:7 in forward" in title
    assert words in rest and "Compare these values" in rest and "Print the values" not in rest


@pytest.mark.parametrize(
    ("code", "before"),
    [
        (SQUARE, "step 1\n"),
        (SQUARE, SIZE + "".join(f"shard {number} is read\n" for number in range(9))),
        (SQUARE, "/opt/env/lib/python3.11/site-packages/x.py:3: UserWarning: shape (3, 4) is odd\n"),
        ("assert args.mode in MODES", SIZE),
    ],
)
def test_other_checks_ask_for_their_values(code: str, before: str, tmp_path: Path) -> None:
    rest = explained(tmp_path, before + FAILED_CHECK.format(code=code))[2]
    assert "Print the values in the condition" in rest and "the program printed" not in rest


EINSUM = "RuntimeError: einsum(): "
DIMENSIONS = (
    f"{EINSUM}the number of subscripts in the equation ({{}}) does not match the number of dimensions ({{}}) for "
    "operand {} and no ellipsis was given\n"
)
FUNCTIONAL = ("torch/functional.py", "einsum", "return _VF.einsum(equation, operands)")


@pytest.mark.parametrize(
    ("code", "error", "title", "words"),
    [
        ("y = torch.einsum('bhqk,bkhd->bqhd', probs, v)  # [b, q, h, d]", DIMENSIONS.format(4, 6, 0),
         "probs has 6 dimensions, and the equation of einsum names 4 (bhqk) for it (net.py:7 in forward)",
         "operand 0, the first tensor after the equation 'bhqk,bkhd->bqhd'. Each letter is one dimension. More"),
        ("y = einsum('bhqk,bkhd->bqhd', probs, self.v[0])", DIMENSIONS.format(4, 3, 1),
         "self.v[0] has 3 dimensions, and the equation of einsum names 4 (bkhd)", "Fewer dimensions"),
        ("y = torch.einsum(pattern, [q, k])", DIMENSIONS.format(3, 4, 1),
         "k has 4 dimensions, and the equation of einsum names 3 for it", "the second tensor after the equation."),
        ("y = torch.einsum(", DIMENSIONS.format(3, 4, 1), "operand 1 of einsum has 4 dimensions", "print(x.shape)"),
        ("y = torch.einsum('...ab,bc', q, k)", f"{EINSUM}the number of subscripts in the equation (3) is more than the "
         "number of dimensions (2) for operand 0\n", "q has 2 dimensions, and the equation of einsum names 3 (...ab)",
         "print(q.shape)"),
        ("y = torch.einsum('bh,hd->bd', q, k)",
         f"{EINSUM}subscript h has size 4 for operand 1 which does not broadcast with previously seen size 3\n",
         "the letter h of einsum's equation is 4 in k and 3 in a tensor before it (net.py:7 in forward)", "One letter"),
        # Another message of einsum, and of einops.
        ("y = torch.einsum('bh,hd->bd', q, k)", f"{EINSUM}operands do not broadcast with remapped shapes\n",
         "the pattern of einsum or einops does not fit", "compare them with the pattern"),
        ("y = rearrange(x, 'b (h w) c -> b h w c')",
         'einops.EinopsError:  Error while processing rearrange-reduction pattern "b (h w) c -> b h w c".\n',
         "the pattern of einsum or einops does not fit", "compare them with the pattern"),
    ],
)  # fmt: skip
def test_the_tensor_that_einsum_refused(code: str, error: str, title: str, words: str, tmp_path: Path) -> None:
    called = (FUNCTIONAL,) if "einsum" in code else ()
    _, found, rest = explained(
        tmp_path, f"{frames((RUN, 'main', 'y = net(x)'), MODULE, (NET, 'forward', code), *called)}{error}"
    )
    assert found.startswith(title), found
    assert words in rest


EMBEDDING = ("torch/nn/functional.py", "embedding", "return torch.embedding(weight, input, padding_idx, s, sparse)")
OUT_OF_RANGE = frames((RUN, "main", "y = net(x)"), MODULE, (NET, "forward", "h = self.tokens(ids)"), MODULE, EMBEDDING)
OUT_OF_RANGE += "IndexError: index out of range in self\n"
NO_ROW = "a token id or position has no row in the embedding"
ROWS = "[[  311,   27, 1904,  {}],\n        [   12, 2044,   98,   31]]"


@pytest.mark.parametrize(
    ("before", "after", "title"),
    [
        ("", f"tensor({ROWS.format(-1)})\n", "probably the padding value -1 is passed as a token id"),
        (f"batch: tensor({ROWS.format(-100)}, device='cuda:0')\n", "",
         "probably the padding value -100 is passed as a token id"),
        ("", "tensor([[  311,   27],\n        [   12,   -1]])\n", "probably the padding value -1 is passed"),
        # Labels, values that are no ids, no such value, and a tensor that was printed long before.
        (f"labels: tensor({ROWS.format(-100)})\n", "", NO_ROW),
        (f"{{'ids': tensor({ROWS.format(5)}), 'labels': tensor({ROWS.format(-100)})}}\n", "", NO_ROW),
        ("tensor([[ 311.,   27., -1.],\n        [  12.,   98.,  3.]])\n", "", NO_ROW),
        (f"tensor({ROWS.format(-10)})\n", "", NO_ROW),
        (f"tensor({ROWS.format(-1)})\n" + "a line of the program\n" * 70, "", NO_ROW),
    ],
)  # fmt: skip
def test_a_padding_value_among_the_ids(before: str, after: str, title: str, tmp_path: Path) -> None:
    _, found, rest = explained(tmp_path, f"step 1\n{before}{OUT_OF_RANGE}{after}")
    assert found.startswith(title), found
    assert (title == NO_ROW) or ('The line is "h = self.tokens(ids)"' in rest and "net.py:7 in forward" in found)


XLMR = "transformers/models/xlm_roberta/modeling_xlm_roberta.py"
ASSERT = "RuntimeError: CUDA error: device-side assert triggered\n"
NOT_CUT = "UserWarning: `max_length` is ignored when `padding`=`True` and there is no truncation strategy. To pad x\n"
CALL = (RUN, "compute_loss", "out = model(**batch)")
ENCODER = (XLMR, "forward", "encoder_outputs = self.encoder(")
SCORES = (XLMR, "forward", "scores = scores / math.sqrt(self.attention_head_size)")
OF_LOSS = ("torch/nn/functional.py", "cross_entropy", "return torch._C._nn.cross_entropy_loss(")
VIT = "transformers/models/vit/modeling_vit.py"


@pytest.mark.parametrize(
    ("text", "title", "words"),
    [
        (frames(CALL, MODULE, ENCODER, MODULE, SCORES) + ASSERT,
         "an assertion on the GPU failed in the encoder, before the loss: probably a token id, a position or a token "
         "type", "class labels come only in the loss"),
        (NOT_CUT + frames(CALL, MODULE, ENCODER, MODULE, SCORES) + ASSERT,
         "probably a text is longer than the model's positions", "truncation=True"),
        (NOT_CUT + frames(CALL, MODULE, (XLMR, "forward", "p = self.position_embeddings(ids)"), MODULE, EMBEDDING)
         + "IndexError: index out of range in self\n", "probably a text is longer than the model's positions", ""),
        # The loss, an encoder of images, the call that waits for the whole step, and the embedding of the tokens.
        (frames(CALL, MODULE, (XLMR, "forward", "loss = loss_fct(x, labels)"), MODULE, OF_LOSS) + ASSERT,
         "a label is out of range", ""),
        (frames(CALL, MODULE, (VIT, "forward", "x = self.encoder("), MODULE, (VIT, "forward", "y = a / b")) + ASSERT,
         "an assertion on the GPU failed, usually an index out of range", "labels.min()"),
        (frames((RUN, "main", "total += loss.item()")) + ASSERT, "an assertion on the GPU failed, usually", ""),
        (NOT_CUT + frames(CALL, MODULE, (XLMR, "forward", "e = self.word_embeddings(ids)"), MODULE, EMBEDDING)
         + "IndexError: index out of range in self\n", NO_ROW, "len(tokenizer)"),
    ],
)  # fmt: skip
def test_what_an_encoder_got_besides_its_labels(text: str, title: str, words: str, tmp_path: Path) -> None:
    _, found, rest = explained(tmp_path, text)
    assert found.startswith(title), found
    assert words in rest


LANGUAGE = "Namespace(seq_len=1024, vocab_size=50257, tokenizer='gpt2')\n"
FULL = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {}. GPU 0 has a total capacity of 79.15 GiB of "
    "which 0.61 GiB is free. Including non-PyTorch memory, this process has 78.25 GiB memory in use. Of the allocated "
    "memory 76.01 GiB is allocated by PyTorch, and 0.61 GiB is reserved by PyTorch but unallocated.\n"
)
TRAIN = (RUN, "main", "_, loss = net(ids)")
OUTER = (NET, "forward", "h = block(h)")
LARGE = "a GPU's memory is full at net.py:7 in features, where the model's own code makes one large tensor"
LOGITS = "probably the full logits"
ONE_TENSOR = "one very large tensor of a batch"


@pytest.mark.parametrize(
    ("calls", "tried", "title", "words"),
    [
        ([(NET, "features", "z = torch.cat(parts, dim=-1)")], "4.50 GiB", LARGE, "batch x length (or pixels) x feat"),
        ([(NET, "features", "z = torch.stack(parts)")], "1.50 GiB", LARGE, 'The line is "z = torch.stack(parts)"'),
        ([(NET, "features", "z = einsum('bni,bnj->bnij', x, x)"), FUNCTIONAL], "6.00 GiB", LARGE, "einsum('bni"),
        # Not in one of the model's own lines, too small to matter, or what the line makes are scores of all tokens.
        ([(NET, "features", "z = torch.cat(parts)")], "0.02 GiB", "in the forward pass: the activations", ""),
        ([(NET, "forward", "z = self.up(x)"), MODULE, LINEAR], "4.50 GiB", ONE_TENSOR, ""),
        ([(NET, "forward", "logits = self.head(x)"), MODULE, LINEAR], "4.60 GiB", LOGITS, "liger"),
        ([(NET, "forward", "logits = torch.cat(parts)")], "4.50 GiB", "the full logits (tokens x vocabulary)", "liger"),
        ([("transformers/models/llama/modeling_llama.py", "forward", "k = torch.cat([past, k])")], "4.50 GiB",
         ONE_TENSOR, ""),
        ([("torch/_tensor.py", "backward", "torch.autograd.backward(")], "4.60 GiB", LOGITS, "liger"),
    ],
)  # fmt: skip
def test_a_large_tensor_of_the_models_own_code(
    calls: list[tuple[str, str, str]], tried: str, title: str, words: str, tmp_path: Path
) -> None:
    called = [TRAIN] if calls[0][1] == "backward" else [TRAIN, MODULE, OUTER, MODULE]
    _, found, rest = explained(tmp_path, f"{LANGUAGE}{frames(*called, *calls)}{FULL.format(tried)}")
    assert title in found, found
    assert words in rest
    assert title != LARGE or "logits" not in found + rest


_UNUSED = (
    "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. This error "
    "indicates that your module has parameters that were not used in producing loss.\n{}\n In addition, you can set "
    "the environment variable TORCH_DISTRIBUTED_DEBUG to either INFO or DETAIL to print out information\n"
)


@pytest.mark.parametrize(
    ("listed", "title", "words"),
    [
        ("Parameter indices which did not receive grad for rank 1: 4 5 6 11", ": 4 parameters (positions 4 to 6, 11)",
         "[4:7])"),
        ("Parameter indices which did not receive grad for rank 0: 2 4 6 8 ...",
         ": at least 4 parameters (positions 2, 4, 6, ...)", "[2:3])"),
        ("Parameters which did not receive grad for rank 3: head.proj.bias, head.proj.weight, scale",
         ": those of head.proj, scale", "Rank 3 reports it"),
        ("", "and DDP waits for them", "find_unused_parameters=True"),
    ],
)  # fmt: skip
def test_parameters_without_a_gradient_are_named(listed: str, title: str, words: str, tmp_path: Path) -> None:
    found = explained(tmp_path, frames((SCRIPT, "main", "out = model(x)")) + _UNUSED.format(listed))
    assert found[0] == "log_parameters_unused" and found[1].endswith(title) and words in found[2]
