"""Which input does a layer of torch refuse: by its features, channels, dimensions, batch, mask or length?

Messages of one class share their reason and what to do. Each has its own title, with the sizes of the message.
Texts for `exceptions.py`.
"""

from __future__ import annotations

from mgpu.check import Fix

from ._refusal import Refusal

_TYPES = "RuntimeError ValueError IndexError AssertionError TypeError NotImplementedError AttributeError KeyError"


def alike(
    why: str,
    fixes: tuple[Fix, ...],
    *forms: tuple[str, str],
    types: str = _TYPES,
    of_code: bool = True,
    within: str = "",
) -> tuple[Refusal, ...]:
    """Return the refusals of one class: pairs of a pattern and a title, with one reason."""
    return tuple(Refusal(types, pattern, title, why, fixes, of_code, within=within) for pattern, title in forms)


# fmt: off
_PRINT = Fix("Print the shape just before that line, and the layer.", ("print(x.shape)", "print(model)"))
_FEATURES = alike(
    "The layer's size comes from the code or a config, and that of its input from the data and the layers before. One "
    "of the two was changed: a column or a concatenation more or fewer, another hidden size, or dimensions in another "
    "order (the features must be the last one).",
    (_PRINT, Fix("Make the layer for the size that its input has, or bring the features to the last dimension.",
                 ("nn.LayerNorm(x.shape[-1])", "x = x.transpose(1, 2)"))),
    (r"Given normalized_shape=\[(?P<wanted>[\d, ]+)\], expected input with shape \[\*[\d, ]+\], but got input of "
     r"size ?\[(?P<got>[\d, ]*)\]",
     "{layer} normalizes over the last sizes [{wanted}], and its input has the shape [{got}]{at}"),
    (r"was expecting embedding dimension of (?P<wanted>\d+), but got (?P<got>\d+)",
     "{layer} is made for {wanted} features per token (embed_dim), and the query has {got}{at}"),
    (r"(?P<what>input|hidden)\d? has inconsistent (?P<name>\w+_size):? got (?P<got>\d+),? expected (?P<wanted>\d+)",
     "{layer} is made for {name} {wanted}, and its {what} has {got}{at}"),
    (r"bilinear\(\): input(?P<number>\d) size does not match weight size: got (?P<got>\d+) but expected "
     r"(?P<wanted>\d+)",
     "{layer} is made for {wanted} features in input {number}, and gets {got}{at}"),
    (r"the feature number of src and tgt must be equal to d_model",
     "src or tgt of {layer} does not have d_model features{at}"),
    (r"X1 and X2 must have the same number of columns\. X1: (?P<one>\d+) X2: (?P<other>\d+)",
     "cdist compares rows of {one} values with rows of {other} values{at}"),
)
_CHANNELS = alike(
    "The layer was made for another number of channels than its input has. The channels are dimension 1: (batch, "
    "channels, ...). A layer before it has another number of outputs, or the channels are in the last dimension.",
    (_PRINT, Fix("Make the layer for the channels of its input, or bring them to dimension 1.",
                 ("nn.BatchNorm2d(x.shape[1])", "x = x.movedim(-1, 1)"))),
    (r"(?:running_mean|running_var|weight|bias) should contain (?P<got>\d+) elements not (?P<wanted>\d+)",
     "{layer} is made for {wanted} channels, and its input has {got}{at}"),
    (r"Expected (?:weight|bias) to be a vector of size equal to the number of channels in input, but got (?:weight|"
     r"bias) of shape \[(?P<wanted>[\d, ]+)\] and input of shape \[(?P<got>[\d, ]+)\]",
     "{layer} is made for {wanted} channels, and its input has the shape [{got}]{at}"),
    (r"Mismatch of parameter numbers and input channel size\. Found parameter numbers ?= ?(?P<wanted>\d+),? and "
     r"channel size ?= ?(?P<got>\d+)",
     "{layer} has {wanted} parameters, and its input {got} channels{at}"),
)
_DIMENSIONS = alike(
    "The name of the layer counts the dimensions of one sample (1d, 2d, 3d); the batch and the channels come in "
    "addition. The batch dimension is missing (one sample, squeeze, an index), the tensor was flattened before, or the "
    "layer is for other data (BatchNorm1d after a Conv2d).",
    (_PRINT, Fix("Add or remove the dimension, or use the layer for these dimensions.",
                 ("x = x.unsqueeze(0)  # one sample", "x = x.flatten(1)  # (batch, features)"))),
    (r"^expected (?P<wanted>\dD(?: or \dD)?|\dD \(or \dD\)) input \(got (?P<got>\d)D input\)",
     "{layer} takes {wanted} input, and gets {got}D{at}"),
    (r"non-empty (?P<wanted>\dD or \dD)(?: \(batch mode\))? tensor expected for input",
     "{layer} takes {wanted} input, and gets a tensor of other dimensions or without elements{at}"),
    (r"Expected (?P<wanted>\d(?: to \d)?)(?:-dimensional tensor| dimensions), but got (?P<got>\d)-dimensional tensor "
     r"for argument", "{layer} takes {wanted} dimensions, and gets {got}{at}"),
    (r"^Input dimension should be at least (?P<wanted>\d)",
     "{layer} takes at least {wanted} dimensions, and gets fewer{at}"),
    (r"query should be unbatched 2D or batched 3D tensor but received (?P<got>\d)-D query",
     "{layer} takes 2D or 3D tensors (length, batch, features), and the query has {got} dimensions{at}"),
    (r"For (?:un)?batched \((?P<query>\d)-D\) `query`, expected (?P<which>`[^,]+`) to be (?P<wanted>\d)-D,? but found "
     r"(?P<got>\d-D(?: and \d-D)?)",
     "the query of {layer} has {query} dimensions, and {which} must have {wanted}, not {got}{at}"),
    (r"^Got (?P<got>\d)D input, but (?P<mode>\w+) mode needs (?P<wanted>[\dD or]+) input",
     "interpolate(mode='{mode}') takes {wanted} input, and gets {got}D{at}"),
    (r"Input and output must have the same number of spatial dimensions, but got input with spatial dimensions of "
     r"\[(?P<got>[\d, ]*)\] and output size of (?P<size>[^.]{1,40}?)\. ",
     "interpolate() is given the size {size}, and the input [{got}] after batch and channels{at}"),
    (r"Padding size (?P<size>\d+) is not supported for (?P<got>\d)D input",
     "pad() with {size} numbers and this mode does not take {got}D input{at}"),
)
_BATCHES = alike(
    "One of the two has another batch size, or its dimensions are in another order: nn.MultiheadAttention, "
    "nn.Transformer and recurrent layers take (length, batch, features), and (batch, length, features) only with "
    "batch_first=True. A state or a mask that is kept from an earlier batch does not fit the last, smaller one.",
    (Fix("Print both shapes just before that line.", ("print(x.shape, other.shape)",)),
     Fix("Set batch_first, or leave out the smaller batch in training (not in an evaluation).",
         ("nn.Transformer(..., batch_first=True)", "DataLoader(..., drop_last=True)"))),
    (r"Input batch size (?P<one>\d+) doesn't match hidden\d? batch size (?P<other>\d+)",
     "the input of {layer} has {one} samples, and the hidden state {other}{at}"),
    (r"the batch number of src and tgt must be equal", "src and tgt of {layer} have different batch sizes{at}"),
    (r"Expected key_padd(?:ed|ing)_mask\.shape\[0\] to be (?P<one>\d+), but got (?P<other>\d+)",
     "key_padding_mask begins with the size {other}, and the batch has {one} samples{at}"),
    (r"Expected key_padd(?:ed|ing)_mask\.shape\[1\] to be (?P<one>\d+), but got (?P<other>\d+)",
     "key_padding_mask has {other} positions, and the keys {one}{at}"),
    (r"key shape torch\.Size\((?P<one>\[[\d, ]+\])\) does not match value shape torch\.Size\((?P<other>\[[\d, ]+\])\)",
     "key and value of {layer} have the shapes {one} and {other}, and must have the same length and batch{at}"),
    (r"key's sequence and batch dims torch\.Size\((?P<one>\[[\d, ]+\])\) do not match value's torch\.Size\("
     r"(?P<other>\[[\d, ]+\])\)", "key and value of {layer} differ in length or batch: {one} and {other}{at}"),
    (r"Expected `?len\(lengths\)`? to be equal to batch_size, but got (?P<other>\d+) \(batch_size=(?P<one>\d+)\)",
     "pack_padded_sequence gets {other} lengths for a batch of {one} samples{at}"),
    (r"expected grid and input to have same batch size, but got input with sizes \[(?P<one>[\d, ]+)\] and grid with "
     r"sizes \[(?P<other>[\d, ]+)\]", "grid_sample gets input [{one}] and a grid [{other}] of another batch size{at}"),
    (r"bilinear\(\): input batch dimensions do not match at dim \d: got (?P<one>\d+) and (?P<other>\d+)",
     "the two inputs of {layer} have {one} and {other} samples{at}"),
)
_STATES = alike(
    "A recurrent layer keeps (layers x directions, batch, hidden size), or without the batch for one unbatched sample. "
    "nn.LSTM keeps two of them: (h, c).",
    (Fix("Make the state from the layer's own sizes.",
         ("h = torch.zeros(layers * directions, batch, hidden, device=x.device)", "out, (h, c) = lstm(x, (h, c))")),),
    (r"For (?:un)?batched (?P<input>\d)-D input, (?P<which>hx(?: and cx)?) should (?:also )?be (?P<wanted>\d)-D "
     r"but got (?P<got>\(\d-D[^.)]{0,20}\)|\d-D) tensors?",
     "the input of {layer} is {input}-D, and {which} must be {wanted}-D, not {got}{at}"),
)
_MASKS = alike(
    "A mask of floating point numbers is added to the scores: 0 keeps a position, -inf drops it. It needs the type of "
    "the query. bool() would turn its meaning around.",
    (Fix("Convert it to the type of the query.", ("attn_mask = attn_mask.to(query.dtype)",)),),
    (r"Expected attn_mask dtype to be bool or (?:to match|float or to match) query dtype, but got attn_mask\.dtype: "
     r"(?P<got>float|double|c10::\w+) and +query\.dtype: (?P<query>\w[\w: ]*?) instead",
     "the attention mask has the type {got}, and the query {query}{at}"),
) + alike(
    "A mask for torch's attention is bool, or floating point numbers that are added to the scores. Tokenizers return "
    "integers (1 for a token, 0 for padding). True means a token takes part in scaled_dot_product_attention, and is "
    "left out in key_padding_mask and attn_mask of nn.MultiheadAttention.",
    (Fix("Convert it, in the sense that the function expects.",
         ("attn_mask = mask[:, None, None, :].bool()  # (batch, length), for scaled_dot_product_attention",
          "key_padding_mask = mask == 0  # nn layers")),),
    (r"only bool and floating types of (?P<which>\w+) are supported",
     "{which} of {layer} has neither bools nor floating point numbers{at}"),
    (r"Expected attn_mask dtype to be bool or (?:to match|float or to match) query dtype, but got attn_mask\.dtype: "
     r"(?P<got>[\w: ]+?) and +query\.dtype: (?P<query>\w[\w: ]*?) instead",
     "the attention mask has the type {got}, and the query {query}{at}"),
    (r"Only bool, byte,? and floating types are supported for attn_mask, not (?P<got>\S+)",
     "the attention mask has the type {got}, which attention does not take{at}"),
)
_HEADS = alike(
    "With enable_gqa=True each head of keys and values serves the same number of query heads. Dimension -3 of the "
    "tensors is the heads: (batch, heads, length, features).",
    (Fix("Print the shapes, and compare the config's numbers of heads.",
         ("print(q.shape, k.shape, v.shape)", "assert q.size(-3) % k.size(-3) == 0")),),
    (r"Number of heads in key and value must divide the number of heads in",
     "the query heads are not a multiple of the heads of keys and values{at}"),
)
_LENGTHS = alike(
    "The size after padding, stride and kernel does not fit. The input is smaller or larger than the code was written "
    "for (a short clip, a small image, one more pooling step), or two settings of the layer exclude each other.",
    (Fix("Print the shape just before that line, and compute the size from it.",
         ("print(x.shape)", "F.interpolate(x, size=skip.shape[-2:])  # as large as another tensor")),),
    (r"Padding size should be less than the corresponding input dimension, but got: padding \((?P<padding>[\d, "
     r"]+)\) at "
     r"dimension (?P<dim>\d+) of input \[(?P<got>[\d, ]+)\]",
     "padding of ({padding}) by reflection is not smaller than dimension {dim} of the input [{got}]{at}"),
    (r"requested an output size of \(?(?P<wanted>[\d, ]+)\)?, but valid sizes range from \[(?P<low>[\d, ]+)\] to "
     r"\[(?P<high>[\d, ]+)\]", "{layer} cannot make the size ({wanted}): from [{low}] to [{high}] is possible{at}"),
    (r"Input and output sizes should be greater than 0, but got input \((?P<got>[^)]+)\) output \((?P<wanted>[^)]+)\)",
     "interpolate() has an image without pixels: input ({got}), output ({wanted}){at}"),
    (r"maximum size for tensor at dimension (?P<dim>\d+) is (?P<got>\d+) but size is (?P<wanted>\d+)",
     "windows of {wanted} are cut from dimension {dim}, which has {got} elements{at}"),
    (r"pad should be at most half of (?:effective )?kernel size, but got pad=(?P<got>\d+)[, "
     r"and]+kernel_size=(?P<size>\d+)",
     "{layer} has padding {got} and kernel {size}: the padding may be half of the kernel at most{at}"),
    (r"expected size of input's dimension 2 to match the calculated number of sliding blocks (?P<blocks>[\d *]+) = "
     r"(?P<wanted>\d+), but got input\.size\(2\)=(?P<got>\d+)",
     "{layer} needs {wanted} blocks ({blocks}) in dimension 2, and gets {got}{at}"),
    (r"(?:expected|Expected) size of input's dimension 1 to be divisible by the product of kernel_size, but got "
     r"input\.size\(1\)=(?P<got>\d+) and kernel_size=\((?P<size>[\d, ]+)\)",
     "{layer} gets {got} channels, which the kernel ({size}) does not divide{at}"),
    (r"Expected shape of indices to be same as that of the input tensor \(\[(?P<got>[\d, ]+)\]\) but got indices "
     r"tensor "
     r"with shape: \[(?P<other>[\d, ]+)\]",
     "the indices for {layer} have the shape [{other}], and its input [{got}]{at}"),
    (r"unflatten: Provided sizes \[(?P<wanted>[-\d, ]+)\] don't multiply up to the size of dim (?P<dim>-?\d+) "
     r"\((?P<got>\d+)\)", "dimension {dim} has {got} elements, and cannot become [{wanted}]{at}"),
    (r"Halving dimension must be even, but dimension (?P<dim>\d+) is size (?P<got>\d+)",
     "GLU halves dimension {dim}, which has {got} elements: an odd number{at}"),
    (r"Padding length should be less than or equal to two times the input dimension but got padding length "
     r"(?P<size>\d+) and input of dimension (?P<got>\d+)",
     "pad() gets {size} numbers, two per dimension, and the input has {got} dimensions{at}"),
    (r"^narrow\(\): length must be non-negative", "a negative number of elements would be left after cutting{at}"),
)
_GRIDS = alike(
    "grid_sample takes a grid of (batch, height, width, 2): x and y from -1 to 1 for each pixel of the output, and 3 "
    "coordinates for volumes. affine_grid takes matrices of (batch, 2, 3), or (batch, 3, 4) for volumes.",
    (Fix("Bring it to that form.", ("theta.view(-1, 2, 3)", "grid = grid.permute(0, 2, 3, 1)  # coordinates last")),),
    (r"expected grid to have size (?P<wanted>\d) in last dimension, but got grid with sizes \[(?P<got>[\d, ]+)\]",
     "the last dimension of the grid must be {wanted} (one coordinate per axis), and the grid is [{got}]{at}"),
    (r"Expected a batch of (?P<dim>\dD) affine matrices of shape (?P<wanted>Nx\dx\d) for size "
     r"torch\.Size\(\[[\d, ]+\]\)"
     r"\. Got torch\.Size\(\[(?P<got>[\d, ]+)\]\)",
     "affine_grid takes matrices of the shape {wanted}, and gets [{got}]{at}"),
)
_CALLS = alike(
    "The two ways of calling it exclude each other.",
    (Fix("Give exactly one of the two.", ("F.interpolate(x, size=(224, 224))", "F.interpolate(x, scale_factor=2)")),),
    (r"either size or scale_factor should be defined", "interpolate() gets neither a size nor a scale_factor{at}"),
    (r"only one of size or scale_factor should be defined", "interpolate() gets a size and a scale_factor{at}"),
) + alike(
    "EmbeddingBag takes 1D ids of all bags in a row, with the offsets at which each bag begins, or 2D ids, (bags, ids "
    "per bag), without offsets.",
    (Fix("Give it one of the two forms.", ("bag(ids, offsets)  # 1D", "bag(ids)  # 2D")),),
    (r"offsets has to be a 1D Tensor but got", "{layer} gets 1D ids without a 1D tensor of offsets{at}"),
    (r"if input is 2D, then offsets has to be None", "{layer} gets 2D ids and offsets{at}"),
) + alike(
    "Normalization layers on the CPU take weights in the type of the input, or in float32. Only a part of the model "
    "was converted to bf16 or fp16, or its input is in float32.",
    (Fix("Convert both, or use autocast and leave the weights in float32.",
         ("x = x.to(next(model.parameters()).dtype)", "with torch.autocast('cpu', dtype=torch.bfloat16): ...")),),
    (r"mixed dtype \(CPU\): (?:all the parameters must|expect (?:parameter|input) to) ",
     "{layer} has weights of another type than its input, and the CPU does not mix these{at}"),
) + alike(
    "Recurrent layers do not convert their input. numpy and pandas make float64, and a model in half precision needs "
    "half precision input.",
    (Fix("Convert the input where it is made.", ("x = x.float()", "array.astype('float32')")),),
    (r"RNN input dtype \((?P<got>[\w.]+)\) does not match weight dtype \((?P<wanted>[\w.]+)\)",
     "the input of {layer} has the type {got}, and its weights {wanted}{at}"),
) + alike(
    "pack_padded_sequence expects the longest sequence first, unless enforce_sorted=False lets it sort them.",
    (Fix("Let it sort.", ("pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)",)),),
    (r"`?lengths`? array (?:must|has to) be sorted in decreasing order",
     "the sequences of the batch are not sorted by length{at}"),
) + alike(
    "InstanceNorm computes mean and variance of each channel of each sample. With one value there is no variance: the "
    "input is too small for the number of strides and poolings before it.",
    (Fix("Use larger images, fewer strides, or another normalization "
         "there.", ("print(x.shape)", "nn.GroupNorm(8, c)")),),
    (r"Expected more than 1 spatial element when training, got input size torch\.Size\(\[(?P<got>[\d, ]+)\]\)",
     "{layer} gets one value per channel and sample: [{got}]{at}"),
)
_KERAS_WINDOWS = alike(
    "A pooling or convolution without padding needs an input that is at least as long as its window. Each such layer "
    "before it shortens the input: the input is too short for so many of them, or its dimensions are in another order.",
    (Fix("See what is left after each layer.", ("model.summary()",)),
     Fix("Keep the length, use smaller windows or fewer layers, or a longer input.",
         ("layers.Conv1D(64, 3, padding='same')", "layers.MaxPooling1D(2, padding='same')"))),
    (r"(?:calling layer \"(?P<name>[\w/]+)\"[\s\S]{0,200}?)Negative dimension size caused by subtracting "
     r"(?P<window>\d+) from (?P<got>\d+)",
     "the input of the layer {name} has the length {got}, and its window has {window}{at}"),
    (r"Negative dimension size caused by subtracting (?P<window>\d+) from (?P<got>\d+)(?: for '\{\{node "
     r"(?P<name>[\w/]+)\}\}')",
     "the input of the layer {name} has the length {got}, and its window has {window}{at}"),
    (r"Negative dimension size caused by subtracting (?P<window>\d+) from (?P<got>\d+)",
     "the input of a layer has the length {got}, and its window has {window}{at}"),
)
OF_LAYERS = (*_FEATURES, *_CHANNELS, *_DIMENSIONS, *_BATCHES, *_STATES, *_MASKS, *_HEADS, *_LENGTHS, *_GRIDS,
             *_CALLS, *_KERAS_WINDOWS)
# fmt: on
