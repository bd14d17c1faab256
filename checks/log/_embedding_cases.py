"""Which index of an embedding was out of range: a padding value, a position, or what an encoder got besides its labels?

A GPU reports a failed assertion at a later call. The place of that call limits what can have failed before it.
"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.command_line import python
from mgpu.signature import Case

from ._circumstances import called, either, every, message, never, printed, reported, shown, within
from ._image_cases import NO_TEXT

LOSS = (
    r"^torch/nn/(?:functional\.py in (?:cross_entropy|nll_loss)|modules/loss\.py)|"
    r"^transformers/loss/|in \w*(?:cross_entropy|nll_loss)\w*$"
)
OF_EMBEDDING = either(
    within(r"^torch/nn/functional\.py in embedding$|^torch/nn/modules/sparse\.py"),
    reported(r"srcIndex < srcSelectDimSize|ind >= 0 && ind < ind_dim_size"),
)
BARE_ASSERT = every(message(r"device-side assert triggered"), never(reported(r"Assertion [`']")))
# Models of texts with a table of positions. Others with such names encode images and sound.
_ENCODER = within(
    r"^transformers/models/(?:(?!hubert|visual_|wav2vec)\w*bert\w*|electra|mpnet|ernie\w*|nezha|longformer|big_bird|luke|"
    r"esm|xlm|data2vec|nystromformer|layoutlm\w*|markuplm)/"
)
_IN_ENCODER = every(
    BARE_ASSERT,
    _ENCODER,
    called(r"\bself\.(?:encoder|transformer)\(|\b(?:layer_module|encoder_layer)\("),
    never(within(LOSS)),
    never(within(r"torch/autograd/|torch/_tensor\.py in backward$")),
)

# fmt: off
_CUT = Fix("Cut the texts where they are tokenized.",
           ("tokenizer(texts, padding=True, truncation=True, max_length=512)",))
_BATCH = Fix("Print the largest values of a batch before the model is called, and compare them with the tables.",
             ("print({{key: (value.shape, value.max()) for key, value in batch.items()}})",
              "print(config.vocab_size, config.max_position_embeddings, config.type_vocab_size)  # model.config"))
_ENCODING = (
    'Traceback (most recent call last):\n  File "/x/train.py", line 31, in compute_loss\n    out = model(**batch)\n'
    '  File "/x/site-packages/transformers/models/bert/modeling_bert.py", line 990, in forward\n'
    "    encoder_outputs = self.encoder(\n"
    '  File "/x/site-packages/transformers/models/bert/modeling_bert.py", line 300, in forward\n'
    "    scores = scores / math.sqrt(self.attention_head_size)\n"
    "RuntimeError: CUDA error: device-side assert triggered"
)
_PADDING = "https://huggingface.co/docs/transformers/pad_truncation"


def _padded_with(value: str) -> Case:
    """Return the case of a padding value among the ids, which is for labels."""
    by_torch = "torch's losses leave out labels of -100." if value == "-100" else ""
    ignored = by_torch or f"Some scripts mark labels that a loss leaves out with {value} (ignore_index)."
    return Case(
        every(either(OF_EMBEDDING, _IN_ENCODER), printed(rf"(?<![\d-]){value}(?![\d.])")),
        f"probably the padding value {value} is passed as a token id: a tensor that the program printed near it has "
        f"{value} ({{the_place}})",
        'The line is "{the_line}". An embedding has rows for ids from 0 on. '
        f"{ignored} Probably the dataset or the collate function pads ids and labels in the same way, or the labels "
        "are passed as ids.",
        (Fix("Pad ids with a token of the model, and only labels with a negative value.",
             ("torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=tokenizer.pad_token_id)",
              python("torch.nn.CrossEntropyLoss(ignore_index=-{:number})", value.removeprefix("-")))),
         Fix("Replace it before the call, after the labels are made.",
             ("ids = ids.masked_fill(ids < 0, tokenizer.pad_token_id)", "assert ids.min() >= 0"))),
        f"tensor([[  311,   27, 1904,    {value},    {value}],\n"
        "        [   12, 2044,   98,   31,    7]])\n"
        'Traceback (most recent call last):\n  File "/x/net.py", line 40, in forward\n    h = self.tokens(ids)\n'
        '  File "/x/site-packages/torch/nn/functional.py", line 2546, in embedding\n'
        "    return torch.embedding(weight, input, padding_idx, scale_grad_by_freq, sparse)\n"
        "IndexError: index out of range in self",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html")


PADDING_IDS = (_padded_with("-100"), _padded_with("-1"))
TEXTS_NOT_CUT = Case(
    every(shown("texts_not_cut"), _ENCODER, either(OF_EMBEDDING, _IN_ENCODER),
          never(called(r"\b(?:word|token|token_type)_embeddings?\("))),
    "probably a text is longer than the model's positions: the tokenizer does not cut it (`max_length` is ignored)",
    "The tokenizer warned that it ignores `max_length`: with padding=True and without truncation=True, texts keep "
    "their length. A position after the last row of the position embedding is an index out of range (RoBERTa and XLM-R "
    "have 514 rows for 512 tokens). It failed in the encoder, before the loss.",
    (_CUT, _BATCH),
    "UserWarning: `max_length` is ignored when `padding`=`True` and there is no truncation strategy. To pad to max "
    "length, use `padding='max_length'`.\n" + _ENCODING, _PADDING)
BEFORE_LOSS = Case(
    _IN_ENCODER,
    "an assertion on the GPU failed in the encoder, before the loss: probably a token id, a position or a token type "
    "has no row in its embedding",
    "Kernels run asynchronously, and a later call reports the failure. That call is in the encoder, right after its "
    "embeddings, and class labels come only in the loss: unless a step before failed there, they are not the reason. "
    "A text that is not cut has positions beyond the table (RoBERTa and XLM-R have 514 rows for 512 tokens), another "
    "model's tokenizer or added tokens have larger ids, and a tokenizer's token type 1 has no row if type_vocab_size "
    "is 1.",
    (_BATCH, _CUT,
     Fix("If they fit, find the embedding.", ("CUDA_LAUNCH_BLOCKING=1 python train.py",))),
    _ENCODING, "https://docs.pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution")
_IN_16_BITS = message(r"'indices' .*; but got \S*(?:BFloat16|Half)")
VALUES_IN_16_BITS = Case(
    every(_IN_16_BITS, NO_TEXT, never(shown("hugging_face"))),
    "an embedding got fp16 or bf16 values as its indices, and needs integers ({the_place})",
    'The line is "{the_line}". Indices (ids, categories, positions) were cast with everything else by .half(), '
    ".bfloat16() or .to(device, dtype), or stand as columns in an array of floats; or features, or the output of a "
    "layer under autocast, were passed in their place. Large ids are already rounded in 16 bits: bfloat16 holds "
    "integers exactly only up to 256, float16 up to 2,048.",
    (Fix("Keep the indices in a tensor of integers of their own.",
         ("ids = table[:, 0].long()  # before .half()", "print(x.dtype, x.min(), x.max())")),),
    'Traceback (most recent call last):\n  File "/w/tab.py", line 30, in forward\n    e = self.emb(x[:, 0])\n'
    '  File "/x/site-packages/torch/nn/functional.py", line 2551, in embedding\n'
    "    return torch.embedding(weight, input, padding_idx, scale_grad_by_freq, sparse)\n"
    "RuntimeError: Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but "
    "got torch.cuda.HalfTensor instead (while checking arguments for embedding)",
    "https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html")
IDS_IN_16_BITS = Case(
    _IN_16_BITS,
    "token ids were cast to bfloat16 or float16, and an embedding needs integers ({the_place})",
    'The line is "{the_line}". Tokenizers and data sets give integers. Only a cast in the code makes 16-bit numbers of '
    "them: .to(device, dtype), .half() or .bfloat16() on everything in a batch, or on the whole output of a tokenizer "
    "or processor. A cast back is no repair: bfloat16 holds integers exactly only up to 256, float16 up to 2,048, so "
    "that the ids are others by then.",
    (Fix("Cast only what has fractions (pixel values, features), and move the ids as they are.",
         ("batch = {{k: v.to(device, dtype) if v.is_floating_point() else v.to(device) for k, v in batch.items()}}",)),
     Fix("Or convert the model alone, and leave its inputs.",
         ("inputs = tokenizer(text, return_tensors='pt').to(device)",))),
    'Traceback (most recent call last):\n  File "/w/talk.py", line 30, in answer\n    out = model.generate(**inputs)\n'
    '  File "/x/site-packages/transformers/generation/utils.py", line 9, in generate\n    return f(x)\n'
    '  File "/x/site-packages/torch/nn/functional.py", line 2551, in embedding\n'
    "    return torch.embedding(weight, input, padding_idx, scale_grad_by_freq, sparse)\n"
    "RuntimeError: Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but "
    "got CUDABFloat16Type instead (while checking arguments for embedding)",
    "https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html")
# fmt: on
