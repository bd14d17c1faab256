"""Which tensors does an operation of torch refuse: by their dimensions, sizes, indices, types or number of items?

As in `_refused_by_layers.py`: one reason for a class of messages. Texts for `exceptions.py`.
"""

from __future__ import annotations

from mgpu.check import Fix

from ._refused_by_layers import alike

# fmt: off
_TWO = Fix("Print both shapes just before that line.", ("print(a.shape, b.shape)",))
_ONE = Fix("Print the shape just before that line.", ("print(x.shape)",))
_PRODUCTS = alike(
    "bmm takes two batches of matrices (3D), mm two matrices (2D), mv a matrix and a vector, dot two vectors. A batch "
    "dimension is missing or too many, or a vector has another length than the rows of the matrix.",
    (_TWO, Fix("Use @, which multiplies tensors of any number of dimensions, or bring them to the form.",
               ("a @ b", "x = x.unsqueeze(-1)", "(a * b).sum(-1)  # dot product per row"))),
    (r"(?P<which>batch[12]) must be a 3D tensor", "bmm() takes 3D tensors, and {which} has other dimensions{at}"),
    (r"^(?P<which>self|mat1|mat2|tensor) must be a matrix(?!, got 1-D)",
     "mm() takes matrices (2D), and {which} is not one{at}"),
    (r"1D tensors expected, but got (?P<one>\d)D and (?P<other>\d)D tensors",
     "dot() takes two vectors, and gets tensors of {one} and {other} dimensions{at}"),
    (r"inconsistent tensor size, expected tensor \[(?P<one>\d+)\] and src \[(?P<other>\d+)\]",
     "dot() gets vectors of {one} and {other} elements{at}"),
    (r"both arguments to (?:matmul|linear) need to be at least 1D, but they are (?P<one>\d)D and (?P<other>\d)D",
     "a @ b gets tensors of {one} and {other} dimensions, and a single number is multiplied with *{at}"),
    (r"size mismatch, got input \((?P<rows>\d+)\), mat \((?P<mat>\d+x\d+)\), vec \((?P<got>[1-9]\d*)\)",
     "a matrix of {mat} is multiplied with a vector of {got} elements{at}"),
    (r"^a and b must have same reduction dim, but got \[(?P<one>[\d, ]+)\] X \[(?P<other>[\d, ]+)\]",
     "two matrices cannot be multiplied: [{one}] and [{other}]{at}"),
    (r"linalg\.solve: Incompatible shapes of A and B for the equation AX = B \((?P<one>\d+x\d+) and "
     r"(?P<other>\d+x\d+)\)",
     "linalg.solve gets A of {one} and B of {other}: their rows must be equal{at}"),
    (r"input\.size\(-2\) should match other\.size\(-2\)",
     "lstsq gets matrices with different numbers of rows{at}"),
)
_FORMS = alike(
    "The tensor has more or fewer dimensions than the line was written for: a batch dimension too many or missing, "
    "squeeze() on a batch of one, or one number instead of a tensor.",
    (_ONE, Fix("Name dimensions from the end, and keep the ones of size 1 where the code relies on them.",
               ("x.transpose(-1, -2)", "x.sum(dim=1, keepdim=True)", "x.squeeze(-1)  # not squeeze()"))),
    (r"t\(\) expects a tensor with <= 2 dimensions, but self is (?P<got>\d)D",
     "t() transposes matrices, and the tensor has {got} dimensions{at}"),
    (r"permute\(\w*\): duplicate dims are not allowed|repeated dim in permute",
     "permute() lists a dimension twice{at}"),
    (r"expand\([^{]*\{\[(?P<got>[\d, ]*)\]\}, size=\[(?P<wanted>[-\d, ]*)\]\): the number of sizes provided",
     "expand() to [{wanted}] has fewer dimensions than the tensor [{got}]{at}"),
    (r"Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor",
     "repeat() gets fewer numbers than the tensor has dimensions{at}"),
    (r"zero-dimensional tensor \(at position (?P<item>\d+)\) cannot be concatenated",
     "item {item} of the list is a single number, which cat() cannot join: use stack(){at}"),
    (r"^len\(\) of a 0-d tensor", "len() of a tensor with a single number, which has no dimensions{at}"),
    (r"invalid index of a 0-dim tensor", "a single number is indexed: a tensor without dimensions{at}"),
    (r"\b(?P<call>\w+): input tensor must have at least (?P<wanted>\d) dimensions",
     "{call}() takes at least {wanted} dimensions, and gets fewer{at}"),
    (r"torch\.meshgrid: Expected 0D or 1D tensor", "meshgrid() takes vectors, and gets a tensor of more "
                                                   "dimensions{at}"),
    (r"linalg\.cross: inputs dimension (?P<dim>-?\d+) must have length 3\. Got (?P<one>\d+) and (?P<other>\d+)",
     "cross() needs 3 elements in dimension {dim}, and gets {one} and {other}{at}"),
    (r"^index_select\(\): Index is supposed to be a vector", "index_select() takes a 1D index, and gets another{at}"),
    (r"Index tensor must have the same number of dimensions as (?:input|self|src) tensor",
     "the index of gather() or scatter() has another number of dimensions than the tensor{at}"),
    (r"input and indices should have the same number of dimensions, but got (?P<got>\d+) dimensions for input, and "
     r"(?P<other>\d+) dimension", "the index has {other} dimensions, and the tensor {got}{at}"),
)
_LETTERS = alike(
    "In 'bi,oi->bo', each part before the arrow is one tensor, each letter one of its dimensions, and the output has "
    "letters of the inputs only.",
    (Fix("Correct the equation or the tensors.", ("torch.einsum('bi,oi->bo', x, weight)",)),),
    (r"einsum\(\): output subscript (?P<got>\w) does not appear in the equation",
     "einsum's output has the letter {got}, which no input has{at}"),
    (r"einsum\(\): (?P<got>fewer|more) operands were provided than specified",
     "einsum gets {got} tensors than its equation has parts{at}"),
)
_RESHAPES = alike(
    "The new shape must have exactly as many elements as the tensor. -1 stands for one size, which torch computes.",
    (_ONE, Fix("Write the sizes that are known, and leave one open.", ("x.reshape(x.shape[0], -1)",))),
    (r"^only one dimension can be inferred", "a new shape has -1 twice, and only one size can be computed{at}"),
    (r"cannot reshape tensor of 0 elements into shape \[(?P<shape>[-\d, ]+)\]",
     "an empty tensor is reshaped to [{shape}], and -1 can be any number then{at}"),
)
_INDICES = alike(
    "gather() and scatter() read or write x[i][index[i][j]] (dim=1): the index has as many dimensions as the tensor, "
    "int64 numbers, and is not larger than the tensor in the other dimensions.",
    (_TWO, Fix("Give the index the form of the tensor.",
               ("x.gather(1, index.long().unsqueeze(1))", "x[torch.arange(len(x)), index]  # one value per row"))),
    (r"\b(?P<call>\w+)\(\): Expected dtype int(?:32/int)?64 for index",
     "the index of {call}() does not hold integers of the type that it takes{at}"),
    (r"Size does not match at dimension (?P<dim>\d+) expected index \[(?P<got>[\d, ]+)\] to be (?:no "
     r"larger|smaller) than "
     r"self \[(?P<wanted>[\d, ]+)\]", "an index of the shape [{got}] is larger than the tensor [{wanted}] in dimension "
                                      "{dim}{at}"),
    (r"Expected index \[(?P<got>[\d, ]+)\] to be (?:no larger|smaller) than self \[(?P<wanted>[\d, ]+)\] apart\s+from "
     r"dimension (?P<dim>\d+)", "an index of the shape [{got}] does not fit the tensor [{wanted}] or the values{at}"),
) + alike(
    "gather() and scatter() do not convert the values that they write.",
    (Fix("Convert them.", ("x.scatter_(1, index, src.to(x.dtype))",)),),
    (r"\b(?P<call>\w+)\(\): Expected self\.dtype to be equal to src\.dtype",
     "{call}() writes values of one type into a tensor of another{at}"),
) + alike(
    "What is written, or what is used together as indices, must have the shape of the part that is selected, or "
    "broadcast to it.",
    (Fix("Print the shape of the part and of the values, and write values of that shape.",
         ("print(x[mask].shape, values.shape)", "x[mask] = values.to(x.dtype)")),),
    (r"\b(?P<call>\w+)\(\): Number of indices \((?P<got>\d+)\) should be equal to source\.size\(dim\): "
     r"\((?P<wanted>\d+)\)",
     "{call}() gets {got} indices for {wanted} rows of values{at}"),
    (r"\b(?P<call>\w+)\(\): Source/destination tensor must have same slice shapes\. Destination slice shape: "
     r"(?P<one>\d+) "
     r"at dimension \d+ and source slice shape: (?P<other>\d+)",
     "{call}() writes rows of {other} elements into rows of {one}{at}"),
    (r"shape mismatch: indexing tensors could not be broadcast together with shapes (?P<shapes>\[[\d, ]*\](?:, "
     r"\[[\d, ]*\])*)", "two indices of the shapes {shapes} are used together, one entry with one{at}"),
    (r"shape mismatch: value tensor of shape \[(?P<got>[\d, ]*)\] cannot be broadcast to indexing result of shape "
     r"\[(?P<wanted>[\d, ]*)\]", "values of the shape [{got}] are written to a part of the shape [{wanted}]{at}"),
    (r"Number of elements of source < number of ones in mask", "the mask has more places than there are values{at}"),
) + alike(
    "The part ends behind the last element: a shorter sample, or an offset from other data.",
    (Fix("Print where it begins and how long it is.", ("print(x.shape, start, length)",)),),
    (r"start \((?P<start>-?\d+)\) \+ length \((?P<length>\d+)\) exceeds dimension size \((?P<got>\d+)\)",
     "{length} elements from {start} on are cut from a dimension of {got}{at}"),
)
_OTHER_NUMBERS = (Fix("Convert it before.", ("x = x.float()", "2.0 ** -x")),)
_TYPES = alike(
    "Arithmetic with - is not defined for bools: comparisons, masks and logical operations make them.",
    (Fix("Say what is meant: the opposite, the difference, or numbers.",
         ("inverse = ~mask", "differs = a ^ b", "a.float() - b.float()")),),
    (r"(?:Subtraction|Negation), the `-` operator, (?:with|on) (?P<what>a bool tensor|two bool tensors)",
     "{what} in a subtraction: bools have no -{at}"),
) + alike(
    "Masks are bool, and torch does not take numbers for them.",
    (Fix("Make the mask bool.", ("mask = mask.bool()", "mask = values > 0")),),
    (r"masked_fill_? only supports boolean masks, but got mask with dtype (?P<got>[\w ]+)",
     "the mask of masked_fill() has the type {got}, not bool{at}"),
    (r"where expected condition to be a boolean tensor, but got a tensor with dtype (?P<got>\w+)",
     "the condition of torch.where() has the type {got}, not bool{at}"),
    (r"~ \(operator\.invert\) is only implemented on integer and Boolean-type tensors",
     "~ is used on floating point numbers, and takes bools{at}"),
) + alike(
    "Powers, means, transforms and random draws need numbers of another type, and do not convert them.",
    _OTHER_NUMBERS,
    (r"std and var only support floating point and complex dtypes", "std() or var() gets integers or bools{at}"),
    (r"Integers to negative integer powers are not allowed", "integers get a negative power, which is no integer{at}"),
    (r"multinomial only supports floating-point dtypes for input, got: (?P<got>\w+)",
     "multinomial() gets weights of the type {got}{at}"),
    (r"^(?P<one>(?:Float|Double|Half|BFloat16|Long|Int|Short|Byte|Bool)) did not match "
     r"(?P<other>(?:Float|Double|Half|BFloat16|Long|Int|Short|Byte|Bool))$",
     "two tensors of the types {one} and {other} are compared{at}"),
) + alike(
    "The operation is not made for every type of numbers, and does not convert them.",
    _OTHER_NUMBERS,
    (r"^Unsupported dtype (?P<got>BFloat16|Half|Byte|Char|Short|Int|Long|Bool|ComplexHalf|Float8_\w+)(?:$|\n)",
     "an operation does not take the type {got}{at}"),
    types="RuntimeError",
) + alike(
    "torch does not convert Python lists, texts or None by itself in arithmetic and assignments. A list of losses, or "
    "what a model returns, holds tensors: torch.tensor() would cut them off from their gradients.",
    (Fix("Take the tensor out of it, or make one of plain numbers.",
         ("out = out[0]  # a model that returns a tuple", "loss = torch.stack(losses).sum()  # keeps the gradients",
          "torch.tensor(values)  # numbers only", "print(type(values))")),),
    (r"unsupported operand type\(s\) for (?P<op>\S+): 'Tensor' and '(?P<got>str|list|tuple|dict)'",
     "a tensor and a {got} are combined with {op}{at}"),
    (r"unsupported operand type\(s\) for (?P<op>\S+): '(?P<got>str|list|tuple|dict|numpy\.ndarray)' and 'Tensor'",
     "a {got} and a tensor are combined with {op}{at}"),
    (r"can only concatenate (?P<got>tuple|list|str) \(not \"Tensor\"\) to",
     "a {got} and a tensor are combined with +{at}"),
    (r"can't assign an? (?P<got>[\w.]+) to a torch\.(?P<kind>\w+)", "a {got} is written into a tensor{at}"),
) + alike(
    "A torch that was built for NumPy 1 cannot use NumPy 2.",
    (Fix("Compare the two releases, and install ones that fit.",
         ('python -c "import numpy, torch; print(numpy.__version__, torch.__version__)"',
          "pip install 'numpy<2'  # or a newer torch")),),
    (r"^[Cc]ould not infer dtype of (?P<got>numpy\.(?:float|int|uint|bool|complex)\w*)",
     "torch does not recognize a number of numpy ({got}): probably the two releases do not fit{at}"),
) + alike(
    "Whole numbers of torch have 64 bits at most, with a sign: up to 9223372036854775807.",
    (Fix("An id that does not fit needs a table of its own (text to number).",
         ("value % 2**63  # a hash or a seed",)),),
    (r"^Overflow when unpacking long", "a number is too large for int64{at}"),
)
_IN_PLACE = alike(
    "+=, /=, out= and functions in place keep the type of the tensor that they write to. It holds integers or "
    "bools: counts, ids, or a tensor that was made of Python integers or with dtype=torch.long.",
    (Fix("Make it of floating point numbers, or compute out of place.",
         ("x = x / 2  # not x /= 2", "count = torch.zeros(n)  # not dtype=torch.long", "x = x.float()")),),
    (r"result type (?P<got>\w+) can't be cast to the desired output type "
     r"(?P<wanted>Long|Int|Short|Byte|Char|Bool)\b",
     "a result of the type {got} cannot be written into a tensor of the type {wanted}{at}"),
)
_NUMBERS = alike(
    ".item(), float(), int(), range() and formats such as {{:.4f}} take one number. The tensor has one per sample or "
    "class, or none because nothing was computed. A list of tensors becomes one tensor by stack() or pad_sequence(), "
    "not by torch.LongTensor().",
    (Fix("Reduce it, or take one.", ("x.mean().item()", "torch.stack(list_of_tensors)", "for i in range(int(n)): "
                                                                                        "...")),),
    (r"only integer tensors of a single element can be converted to an index",
     "a tensor that is not one whole number is used as a count or an index{at}"),
    (r"unsupported format string passed to Tensor\.__format__",
     "a tensor with several values is formatted as one number{at}"),
) + alike(
    "The tensor has no elements: a filter, a mask or a batch left nothing.",
    (Fix("Ask first whether there is anything in it.", ("if x.numel() > 0 and x.all(): ...",)),),
    (r"Boolean value of Tensor with no values is ambiguous", "an empty tensor is used as yes or no{at}"),
)
_EMPTY = alike(
    "max, argmax, quantile and others have no result without elements. A filter, a mask or a split left nothing, or a "
    "batch has no such sample (no object in an image, no positive label).",
    (_ONE, Fix("Leave out the term, not the batch: with several ranks, all must call backward().",
               ("loss = crit(pred, y) if y.numel() else pred.sum() * 0",))),
    (r"\b(?P<call>\w+)\(\): Expected reduction dim (?:-?\d+ )?to (?:have non-zero size|be specified for "
     r"input\.numel\(\) == "
     r"0)", "{call}() of a tensor without elements{at}"),
    (r"quantile\(\) input tensor must be non-empty", "quantile() of a tensor without elements{at}"),
    (r"cannot perform reduction function (?P<call>\w+) on a? ?tensor with no elements",
     "{call}() of a tensor without elements{at}"),
)
_LIMITS = alike(
    "quantile() takes up to 16 million elements (2**24) at once.",
    (Fix("Estimate it from a sample, or let numpy compute it.",
         ("x[torch.randint(len(x), (1_000_000,))].quantile(q)  # an estimate of a long vector",
          "np.quantile(x.cpu().numpy(), q)")),),
    (r"quantile\(\) input tensor is too large", "quantile() gets more elements than it can sort (16 million){at}"),
) + alike(
    "The number comes from an option or a config, and does not fit the tensor at hand: fewer classes, a shorter list.",
    (_ONE, Fix("Limit it to what there is.", ("x.topk(min(k, x.shape[-1]))",))),
    (r"selected index k out of range", "topk() asks for more elements than the dimension has{at}"),
    (r"\b(?P<call>kthvalue)\(\): selected number k out of range for dimension (?P<dim>-?\d+)",
     "kthvalue() asks for an element that dimension {dim} does not have{at}"),
) + alike(
    "q is a part of 1: 0.5 is the median. A percentage (50) has to be divided by 100.",
    (Fix("Give it a number from 0 to 1.", ("torch.quantile(x, 0.5)",)),),
    (r"quantile\(\) q (?:must be in the range|values must be in the range) \[0, 1\](?: but got (?P<got>\S+))?",
     "quantile() takes a q from 0 to 1{at}"),
) + alike(
    "The number comes from an option or a config, or is computed from sizes, and does not fit here.",
    (Fix("Print the numbers that it is computed from.", ("print(start, end, step)",)),),
    (r"chunk expects `chunks` to be greater than 0, got: (?P<got>-?\d+)", "chunk() is asked for {got} parts{at}"),
    (r"cannot sample n_sample > prob_dist\.size\(-1\) samples without replacement",
     "more samples are drawn than there are entries, and none may be drawn twice{at}"),
    (r"upper bound and (?:larger bound|lower bound) inconsistent with step sign",
     "arange() counts in the wrong direction: the step has another sign than end - start{at}"),
    (r"number of steps must be non-negative", "linspace() is asked for a negative number of steps{at}"),
    (r"Dimension size must be non-negative", "a tensor with a negative size is made{at}"),
    (r"shifts and dimensions must align\. shifts: (?P<one>\d+), dims: ?(?P<other>\d+)",
     "roll() gets {one} shifts for {other} dimensions{at}"),
)
_SAMPLES = alike(
    "The number of samples is mostly the length of a data set or of a list of weights, which has no entries here: a "
    "filter removed all of them, or a folder or a split is empty.",
    (Fix("Look above in the log for what was removed or not found (such as warnings of the program itself), and print "
         "the length.", ("print(len(dataset))",)),),
    (r"cannot sample n_sample <= 0 samples", "multinomial() is asked for no samples{at}"),
    of_code=False,
)
_SLICES = alike(
    "Slices of a tensor go forward only, other than those of a list or of numpy.",
    (Fix("Flip it.", ("x.flip(0)  # not x[::-1]",)),),
    (r"^step must be greater than zero", "a tensor is sliced with a step that is not positive{at}"),
) + alike(
    "It counts how often each whole number from 0 on occurs in a vector.",
    (Fix("Print the range and the shape, and flatten or shift the numbers.",
         ("print(x.min(), x.max(), x.shape)",
          "torch.bincount(x[x != -100])  # if the only negative number is the ignore label")),),
    (r"bincount only supports 1-d non-negative integral inputs",
     "bincount() gets negative numbers, or more than one dimension{at}"),
)
_CHANCES = alike(
    "Values must be finite, and weights for a random draw also not negative and not all 0. NaN comes from a model that "
    "diverged or from a division by 0, a sum of 0 from a mask that leaves nothing.",
    (Fix("Print what is wrong with them, and where it begins.",
         ("print(p.isnan().any(), p.min(), p.sum(-1).min())", "torch.autograd.set_detect_anomaly(True)")),),
    (r"invalid multinomial distribution \(sum of probabilities <= 0\)", "multinomial() gets weights that are all "
                                                                        "0{at}"),
    (r"Expected p_in >= 0 && p_in <= 1 to be true", "bernoulli() gets a probability below 0, above 1, or NaN{at}"),
    (r"range of \[(?P<got>[^\]]*)\] is not finite", "a histogram is made of values that are NaN or infinite{at}"),
    of_code=False,
)
_ARRAYS = alike(
    "numpy and torch share memory, and numpy has no such arrays.",
    (Fix("Copy it to the other form first.",
         ("x.to_dense().numpy()", "x.resolve_conj().numpy()")),),
    (r"can't convert Sparse layout tensor to numpy", "a sparse tensor is converted to numpy{at}"),
    (r"Can't call numpy\(\) on Tensor that has conjugate bit set", "a conjugated tensor goes to numpy{at}"),
) + alike(
    "torch notes only that its sign is turned, and numpy has no such arrays.",
    (Fix("Compute it first.", ("x.resolve_neg().numpy()",)),),
    (r"Can't call numpy\(\) on Tensor that has negative bit set",
     "a view of a conjugated tensor (imag) goes to numpy{at}"),
) + alike(
    "Short-time Fourier transforms work on complex numbers: return_complex=True for stft, a complex input for istft. "
    "The window has win_length values.",
    (Fix("Use complex spectra, and a window of that length.",
         ("torch.stft(x, n_fft, window=torch.hann_window(n_fft), "
          "return_complex=True)", "torch.view_as_complex(spec)")),),
    (r"stft requires the return_complex parameter", "stft() needs return_complex=True{at}"),
    (r"istft requires a complex-valued input", "istft() gets a spectrum of real numbers{at}"),
    (r"stft\(.*expected a 1D window tensor of size equal to win_length=(?P<wanted>\d+), but got window with size "
     r"\[(?P<got>\d+)\]", "stft() takes a window of {wanted} values, and gets {got}{at}"),
)
_ARGUMENTS = alike(
    "The call has an argument of another type than torch takes there: a number with a point instead of a whole one, a "
    "list or an array instead of a tensor, one tensor instead of several, or a name that the function does not have.",
    (Fix("Print the types of the arguments, and look at what the function takes.",
         ("print(type(x))", "help(torch.NAME)", "torch.as_tensor(values)")),),
    (r"^(?P<call>[\w.]+)\(\) received an invalid combination of arguments - got "
     r"\((?P<got>(?!(?:tuple|list|torch\.Size|Size|NoneType)\b)[^()]{0,120})\)",
     "{call}() does not take arguments of the types ({got}){at}"),
    (r"^(?P<call>\w+)\(\): argument '(?P<name>(?!size'|dtype')\w+)' (?:\(position \d+\) )?must be "
     r"(?P<wanted>(?!Tensor,)"
     r"[\w. ]+?), (?:not|but found element of type) (?P<got>\w[\w.]*)",
     "{call}() gets a {got} as {name}, and takes {wanted}{at}"),
) + alike(
    "clamp() takes a lower bound, an upper bound or both. Both are None here, such as options that are not set.",
    (Fix("Set one of them, or leave it out.", ("x.clamp(min=0.0)",)),),
    (r"^torch\.clamp: At least one of 'min' or 'max' must not be None", "clamp() has neither min nor max{at}"),
) + alike(
    "len() asks the class for __len__. Generators and streams (IterableDataset) have none, and a Dataset needs it for "
    "a DataLoader that shuffles or samples.",
    (Fix("Write it for a dataset, make a list of a generator, or do not ask a stream for its length.",
         ("def __len__(self): return len(self.files)", "items = list(items)", "DataLoader(stream, batch_size=8)")),),
    (r"^object of type '(?P<got>generator|(?!NoneType)[A-Z]\w*)' has no len\(\)",
     "the length of a {got} is needed, and it has none (an iterable, or a class without __len__){at}"),
) + alike(
    "The name is looked up in the model, part by part between its dots. The model was built by other code, is wrapped "
    "(module., _orig_mod.), or the name is misspelled.",
    (Fix("Print the names.", ("print([name for name, _ in model.named_modules()])",
                              "print([name for name, _ in model.named_parameters()])")),),
    (r"^(?P<owner>[A-Z]\w*) has no attribute `(?P<got>\w+)`", "{owner} has no layer or parameter {got}{at}"),
)
OF_OPERATIONS = (*_PRODUCTS, *_FORMS, *_LETTERS, *_RESHAPES, *_INDICES, *_TYPES, *_IN_PLACE, *_NUMBERS, *_EMPTY,
                 *_LIMITS, *_SAMPLES, *_SLICES, *_CHANCES, *_ARRAYS, *_ARGUMENTS)
# fmt: on
