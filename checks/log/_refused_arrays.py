"""What does numpy refuse: shapes, axes, types, values, files? Texts for `_refused_by_python.py`."""

from __future__ import annotations

from mgpu.check import Fix

from ._refusal import Refusal

_SHAPES = ("print(a.shape, b.shape)",)
_BYTES = ("print(os.path.getsize(path))", "ls -la FILE")

# fmt: off
_AGAIN = Fix("Compare its size with another copy, then copy, download or write it again. Write to a temporary name, "
             "and "
             "rename when it is complete.", _BYTES)
_OF_SHAPES = (
    Refusal("ValueError", r"operands could not be broadcast together with shapes (?P<shapes>(?:\([\d,]*\) ?){3,})",
            "arrays of these shapes cannot be combined: {shapes}{at}",
            "From the last dimension on, the sizes of all of them must be equal or 1. np.where and np.clip combine "
            "three arrays, and the last one can be the array that gets the result (+=, out=).",
            (Fix("Print the shapes before that line.", ("print(cond.shape, a.shape, b.shape)",)),)),
    Refusal("ValueError", r"operands could not be broadcast together with shape \((?P<given>[\d,]+)\) "
            r"\((?P<wanted>[\d,]+)"
            r"\)", "an array of the shape ({given}) and a list of counts of the shape ({wanted}) do not fit{at}",
            "np.repeat needs one count, or one for each item.", (Fix("Print both.", ("print(len(a), len(repeats))",)),
            )),
    Refusal("ValueError", r"operands could not be broadcast together with remapped shapes \[original->remapped\]: "
            r"(?P<shapes>\(.*\)->\(.*newaxis.*)", "the sizes of one letter of einsum differ between the arrays: "
            "{shapes}{at}", "A letter stands for one size, in all arrays that have it.",
            (Fix("Write down which letter has which size, next to the shapes.", _SHAPES),)),
    Refusal("ValueError", r"operands could not be broadcast together with remapped shapes \[original->remapped\]: "
            r"\((?P<given>\d+),2\) {1,2}and requested shape \((?P<dims>\d+),2\)",
            "np.pad got widths for {given} dimensions, and the array has {dims}{at}",
            "It needs one pair (before, after) for each dimension. An image without a channel dimension has one less.",
            (Fix("Print the shape, and give one pair per dimension.", ("print(x.shape)",)),)),
    Refusal("ValueError", r"^einstein sum subscripts string (?P<said>.*)|^operand has (?P<few>more dimensions than "
            r"subscripts.*)", "the letters of einsum do not fit the dimensions of the arrays: {said}{few}{at}",
            "Each dimension of an array needs one letter.", (Fix("Print the shapes.", _SHAPES),)),
    Refusal("AxisError ValueError", r"axis (?P<axis>-?\d+) is out of bounds for array of dimension (?P<dims>\d+)",
            "axis {axis} does not exist: the array has {dims} dimension(s){at}",
            "Axes are counted from 0. A dimension is missing: the batch or the channels, or an array that was "
            "squeezed, "
            "flattened or is empty.",
            (Fix("Print the shape before that line, and count from the end if the front varies.",
                 ("print(x.shape)", "x.mean(axis=-1)")),)),
    Refusal("ValueError", r"^axes don't match array", "transpose() names another number of axes than the array has{at}",
            "(2, 0, 1) is for an image with channels: a grayscale image has two dimensions only, a batch four.",
            (Fix("Print the shape, and add the missing dimension.", ("print(x.shape)", "x = x[..., None]",
                                                                     "image.convert('RGB')")),)),
    Refusal("ValueError", r"cannot select an axis to squeeze out which has size not equal to one",
            "squeeze() names an axis whose size is not 1{at}",
            "Only axes of size 1 can be removed. The batch or the number of channels is larger than expected.",
            (Fix("Print the shape, and take or reduce that axis instead.", ("print(x.shape)", "x[:, 0]")),)),
    Refusal("ValueError", r"all the input arrays must have same number of dimensions, but the array at index "
            r"(?P<i>\d+) has (?P<a>\d+) dimension\(s\) and the array at index (?P<j>\d+) has (?P<b>\d+)",
            "arrays that are joined have different numbers of dimensions: number {i} has {a}, number {j} has {b}{at}",
            "One has lost or not got a dimension: one sample in place of a batch, a squeeze(), one value per row.",
            (Fix("Print the shapes, and add the dimension.", ("print([a.shape for a in arrays])", "x[None]")),)),
    Refusal("ValueError", r"^zero-dimensional arrays cannot be concatenated", "single numbers are joined as if they "
            "were "
            "arrays{at}", "np.concatenate joins arrays of at least one dimension. A loss or a mean is one number.",
            (Fix("Make one array of them.", ("np.array(values)", "np.stack(values)")),), of_code=True),
    Refusal("ValueError", r"^setting an array element with a sequence\.$", "several values are written into the "
            "place of "
            "one{at}", "The left side is a single item of an array of numbers, and the right side a list.",
            (Fix("Write them into a slice of that length, or one value.", ("x[0:2] = values", "x[0] = values[0]")),),
            of_code=True, line=r"\w\[[^\]]*\] {0,2}= "),
    Refusal("ValueError", r"^array split does not result in an equal division", "an array cannot be split into that "
            "many "
            "equal parts{at}", "np.split needs a length that is a multiple of their number.",
            (Fix("Allow parts that differ by one.", ("np.array_split(x, n)",)),)),
    Refusal("ValueError", r"^could not assign tuple of length (?P<got>\d+) to structure with (?P<has>\d+) fields?",
            "a record of {got} values is written into a structure of {has} fields{at}",
            "The dtype lists one field for each value.", (Fix("Compare both.", ("print(dtype.names)",)),),
            of_code=True),
    Refusal("TypeError ValueError", r"^expected x and y to have same length|^fp and xp are not of the same length|"
            r"^'a' and 'p' must have (?:the )?same size|^x and y must have same first dimension",
            "two arrays that belong together have different lengths{at}",
            "One was filtered, cut or recorded less often than the other.",
            (Fix("Print both lengths, and where each is made.", ("print(len(x), len(y))",)),)),
    Refusal("ValueError", r"^a must be 1-dimensional", "np.random.choice got an array of several dimensions{at}",
            "It draws from a list of single values.", (Fix("Draw indices.", ("x[np.random.choice(len(x), k)]",)),),
            of_code=True),
    Refusal("LinAlgError", r"[Ll]ast 2 dimensions of the array must be square", "a matrix that is not square is "
            "inverted "
            "or solved{at}", "inv, solve, det and eig need as many rows as columns.",
            (Fix("Print the shape. For other matrices use least squares.", ("print(a.shape)", "np.linalg.pinv(a)")),)),
    Refusal("TypeError", r"^len\(\) of unsized object|^iteration over a 0-d array|^invalid index to scalar variable",
            "a single number is used as if it were an array{at}",
            "np.array(3.0), a mean and x[i] of a one-dimensional array have no items: the batch dimension or a list "
            "around the value is missing.",
            (Fix("Print it, and keep a dimension.", ("print(repr(x))", "np.atleast_1d(x)")),), of_code=True),
    Refusal("IndexError", r"^invalid index to scalar variable|^too many indices for array: array is 0-dimensional",
            "an item is taken of a single number{at}",
            "The value has no dimensions: a mean or an item of an array, or a function that gives one number where the "
            "code takes the first of several.",
            (Fix("Print it, and leave out the index.", ("print(repr(x))", "np.atleast_1d(x)")),), of_code=True),
)
_OF_TYPES = (
    Refusal("_UFuncOutputCastingError UFuncTypeError TypeError", r"Cannot cast ufunc '?(?P<name>\w+)'? output from "
            r"dtype\('(?P<given>[^']+)'\) to dtype\('(?P<kept>[^']+)'\)",
            "the result of {name} is {given}, and is written into an array of {kept}, which cannot hold all such "
            "values{at}", "x += y keeps the type of x. Images are uint8, and counts int64.",
            (Fix("Make a new array.", ("x = x + y",)),), of_code=True),
    Refusal("TypeError", r"Cannot cast array data from dtype\('(?P<given>[^']+)'\) to dtype\('(?P<kept>[^']+)'\)",
            "an array of {given} is used where {kept} is needed{at}",
            "{kept} cannot hold every {given}: decimals, texts, objects, or uint64 in int64.",
            (Fix("Print it, then convert it if nothing is lost.", ("print(x.dtype, x[:3])", "x.astype(np.int64)")),),
            of_code=True),
    Refusal("TypeError", r"loop of ufunc does not support argument \d+ of type (?P<got>\w+) which has no callable "
            r"(?P<name>\w+) method", "np.{name} is computed of an array of Python objects ({got}), not of numbers{at}",
            "Rows of different lengths, missing values or texts make the dtype object.",
            (Fix("Look at the type, and convert.", ("print(x.dtype, x[:3])", "x = x.astype(np.float64)")),)),
    Refusal("_UFuncNoLoopError UFuncTypeError TypeError", r"ufunc '(?P<name>\w+)' (?:not supported for the input "
            r"types|did "
            r"not contain a loop with signature matching types)",
            "np.{name} got values that it cannot compute with: texts, dates or objects{at}",
            "Numbers that were read as text (a CSV, a config), or a column of another kind.",
            (Fix("Look at the types, and convert.", ("print(np.asarray(x).dtype)", "x = np.asarray(x, dtype=np.float64)"
                                                     )),)),
    Refusal("TypeError", r"numpy boolean (?P<name>\w+), the `(?P<op>.)` operator, is not supported",
            "two masks (arrays of True and False) are combined with {op}{at}",
            "numpy has no subtraction or sign for them.",
            (Fix("Use the operators of logic, or numbers.", ("a ^ b", "~mask", "a.astype(int) - b.astype(int)")),),
            of_code=True),
    Refusal("TypeError", r"Cannot interpret '(?P<what>torch\.\w+)' as a data type", "a type of torch, {what}, is "
            "passed "
            "to numpy{at}", "numpy has types of its own, and none for bfloat16.",
            (Fix("Pass numpy's.", ("np.zeros(n, dtype=np.float32)",)),), of_code=True),
    Refusal("TypeError", r"Cannot interpret '(?P<what>\w*Dtype)\(.* as a data type",
            "numpy does not know pandas' type {what}{at}",
            "Columns with missing values, categories or texts have types that only pandas has.",
            (Fix("Convert the column to a type of numpy; missing values become NaN.",
                 ("df['x'].to_numpy(dtype=np.float64, na_value=np.nan)",)),), of_code=True),
    Refusal("TypeError", r"data type '(?P<what>[^']+)' not understood", "numpy has no type {what}{at}",
            "The name is misspelled or is torch's: numpy has no bfloat16 and no fp16 (float16).",
            (Fix("Use a type that numpy has.", ("np.float32",)),), of_code=True),
    Refusal("TypeError", r"Cannot interpret '(?P<what>-?\d+)' as a data type", "{what} is passed as the type of an "
            "array{at}", "The second argument of np.zeros, np.ones and np.empty is the type. A shape of several "
                         "numbers "
            "needs brackets of its own.", (Fix("Write the shape as a tuple.", ("np.zeros((3, 4))",)),), of_code=True),
    Refusal("TypeError", r"^'(?P<got>float|str)' object cannot be interpreted as an integer",
            "a {got} is used as a count or a size{at}",
            "/ gives a number with a decimal point, also if the result is whole, and options can be read as text.",
            (Fix("Use // or int().", ("np.linspace(0, 1, int(n))", "n // batch_size")),), of_code=True),
    Refusal("TypeError", r"^expected a sequence of integers or a single integer, got (?P<got>.+)",
            "a size of an array is {got}, which is no whole number{at}",
            "/ gives a number with a decimal point, also if the result is whole, and options can be read as text.",
            (Fix("Use // or int().", ("np.zeros(int(n))",)),), of_code=True),
    Refusal("ValueError", r"negative dimensions are not allowed", "an array is made with a negative size{at}",
            "It was computed: a length minus a window or a padding, for a sample that is shorter.",
            (Fix("Print the size, and skip or pad such samples.", ("print(len(x), window)",)),)),
    Refusal("ValueError", r"^no field of name (?P<name>\w+)", "the structured array has no field {name}{at}",
            "The file was written with other columns.", (Fix("Print its fields.", ("print(x.dtype.names)",)),)),
    Refusal("OverflowError", r"^Python integer (?P<value>-?\d+) out of bounds for (?P<kind>\w+)",
            "{value} does not fit into the type {kind}{at}",
            "Since numpy 2 a value that does not fit is an error; numpy 1 wrapped it around. uint8 is 0 to 255.",
            (Fix("Use a larger type.", ("x.astype(np.int64) + value",)),), of_code=True),
    Refusal("ValueError", r"^Unable to avoid copy while creating an array as requested",
            "np.array(..., copy=False) needs a copy, which numpy 2 refuses{at}",
            "In numpy 1 copy=False meant \"only if needed\". The line was written for it.",
            (Fix("Use asarray, or numpy 1 if a package does it.", ("np.asarray(x)", "pip install 'numpy<2'")),),
            of_code=True),
    Refusal("ValueError", r"^(?:assignment|output array) destination is read-only|^output array is read-only",
            "an array that can only be read is changed{at}",
            "np.frombuffer, maps of mode 'r', arrays of pandas, JAX and broadcasting share memory that must not "
            "change.",
            (Fix("Change a copy.", ("x = x.copy()",)),), of_code=True),
    Refusal("ValueError", r"^Integers to negative integer powers are not allowed", "an array of whole numbers is "
            "raised to "
            "a negative power{at}", "The result has decimals, and the type has none.",
            (Fix("Use floating point numbers.", ("x.astype(np.float64) ** -1",)),), of_code=True),
    Refusal("AttributeError", r"'numpy\.random\._generator\.Generator' object has no attribute '(?P<name>\w+)'",
            "numpy's new random generator has no {name}{at}",
            "np.random.default_rng() has other names than np.random: integers for randint, random for rand, "
            "standard_normal for randn.", (Fix("Use its names.", ("rng.integers(0, 10)", "rng.random(3)")),),
            of_code=True),
    Refusal("AttributeError", r"'numpy\.ndarray' object has no attribute '(?P<name>\w+)'",
            "an array of numpy has no {name}{at}",
            "Tensors have other methods (to, cpu, view of a shape, unsqueeze, permute), and numpy 2 removed some "
            "(tostring, ptp, newbyteorder, itemset).",
            (Fix("Use numpy's name, or make a tensor of it first.",
                 ("torch.from_numpy(x)", "x.tobytes()", "x[None]", "x.transpose(2, 0, 1)")),), of_code=True),
)
_OF_VALUES = (
    Refusal("FloatingPointError", r"^(?P<what>divide by zero|overflow|underflow|invalid value) encountered in "
            r"(?P<name>\w+)", "np.{name} met a value with no finite result ({what}), and np.seterr makes that an "
                              "error{at}",
            "The array has a zero, an infinite or NaN value, or one that is too large.",
            (Fix("Look for such values before that line.", ("print(x.min(), x.max(), np.isnan(x).sum())",)),
             Fix("If they are allowed there, limit it to that line.", ("with np.errstate(all='ignore'): ...",)))),
    Refusal("ValueError", r"^attempt to get arg(?P<name>max|min) of an empty sequence", "the arg{name} of an empty "
            "array "
            "is taken{at}", "A filter, a mask or a split left nothing.",
            (Fix("Print its length, and skip empty ones.", ("print(len(x))", "if len(x): ...")),)),
    Refusal("ValueError", r"^The truth value of an empty array is ambiguous", "an empty array is used as a yes or "
            "no{at}",
            "numpy 2.2 and later refuse it.", (Fix("Ask for its length.", ("if x.size > 0: ...",)),), of_code=True),
    Refusal("ValueError", r"^'list' argument must have no negative elements", "np.bincount got a negative number{at}",
            "Labels of -1 or -100 mark what is ignored.",
            (Fix("Print them first; leave out only the value that means \"ignore\".",
                 ("print(np.unique(y[y < 0]))", "np.bincount(y[y != -100])")),)),
    Refusal("ValueError", r"autodetected range of \[(?P<range>[^\]]+)\] is not finite", "a histogram is made of values "
            "that are NaN or infinite: from {range}{at}", "The model or the data has such values.",
            (Fix("Find them, or leave them out.", ("print(np.isnan(x).sum())", "np.histogram(x[np.isfinite(x)])")),)),
    Refusal("ValueError", r"^Percentiles must be in the range|^Quantiles must be in the range", "a percentile is "
            "outside "
            "of its range{at}", "np.percentile takes 0 to 100, np.quantile 0 to 1.",
            (Fix("Use a value in that range.", ("np.percentile(x, 95)",)),), of_code=True),
    Refusal("ValueError", r"^bins must be monotonically increasing or decreasing", "the borders of the bins are not in "
            "order{at}", "np.digitize and np.histogram need sorted ones.", (Fix("Sort them.", ("np.sort(bins)",)),),
            of_code=True),
    Refusal("ValueError", r"^index can't contain negative values", "np.pad got a negative width{at}",
            "The target size minus the length of this sample: the sample is longer than the target.",
            (Fix("Cut long samples first.", ("x = x[:size]", "max(size - len(x), 0)")),)),
    Refusal("ValueError", r"^Error parsing datetime string \"(?P<text>[^\"]*)\"", "numpy cannot read the date "
            "{text}{at}",
            "It reads ISO dates only: 2026-02-01T10:00.",
            (Fix("Let pandas read other forms.", ("pd.to_datetime(text, format='%d/%m/%Y')",)),)),
    Refusal("ValueError", r"^Seed must be between 0 and 2\*\*32 - 1", "the seed is outside of 0 to 2**32 - 1{at}",
            "It was computed (seed + rank, a hash, a time) or is -1 for \"none\".",
            (Fix("Bring it into the range.", ("np.random.seed(seed % 2**32)",)),), of_code=True),
    Refusal("ValueError", r"^cannot call `vectorize` on size 0 inputs", "np.vectorize got an empty array{at}",
            "Without an item it cannot find the type of the result.", (Fix("Name it.", ("np.vectorize(f, "
             "otypes=[float])",
                                                                                        )),)),
)
_OF_INTERFACES = (
    Refusal("RuntimeError ImportError", r"module compiled against (?:API|ABI) version (?P<built>0x1\w{6}) but this "
            r"version of numpy is (?P<has>0x2\w{6})",
            "a package was compiled for NumPy 1, and NumPy 2 is installed: interface {built}, installed is {has}{at}",
            "A package that was compiled with NumPy 1 does not run with NumPy 2.",
            (Fix("Install a release of the package for NumPy 2, or NumPy 1.",
                 ("pip install --upgrade PACKAGE", "pip install 'numpy<2'")),), of_code=True),
    Refusal("RuntimeError ImportError", r"module compiled against (?:API|ABI) version (?P<built>0x\w+) but this "
            r"version of "
            r"numpy is (?P<has>0x\w+)", "a package was compiled for another NumPy: interface {built}, installed is "
             "{has}{at}",
            "A package that was compiled with a newer NumPy does not run with an older one, and one for NumPy 1 not "
            "with "
            "NumPy 2. Several environments or folders with packages (PYTHONPATH, ~/.local) can be mixed.",
            (Fix("Upgrade NumPy, or install a release of the package that fits it.",
                 ("pip install --upgrade numpy", "pip check", "python -m pip list --user")),), of_code=True),
)
_OF_NUMPY_FILES = (
    Refusal("ValueError UnpicklingError", r"This file contains pickled \(object\) data|^Cannot load file containing "
            r"pickled data|^Failed to interpret file (?P<path>\S+) as a pickle",
            "the file is not an array of numpy: it has a pickled object, or is damaged{at}",
            "np.load takes a file that does not begin like .npy or .npz for a pickle. Besides real pickles these are "
            "texts: a Git LFS pointer, an error page in place of the download, a CSV file.",
            (Fix("Look at its first bytes: .npy begins with \\x93NUMPY, .npz with PK.", ("head -c 100 FILE",
             "ls -la FILE")),
             Fix("A pointer of Git LFS: download the file itself.", ("git lfs pull",)),
             Fix("If it is a pickle, and you trust who made it, load it as one.",
                 ("np.load(path, allow_pickle=True)",)))),
    Refusal("EOFError", r"^No data left in file", "the file of numpy is empty{at}",
            "A save was interrupted, the disk was full, or another process still writes it.", (_AGAIN,)),
    Refusal("ValueError", r"^EOF: reading array (?:header|data), expected (?P<all>\d+) bytes got (?P<has>\d+)",
            "the .npy file is cut off: {has} of {all} bytes are there{at}",
            "A save or a copy was interrupted, the disk was full, or another process still writes it.", (_AGAIN,)),
    Refusal("ValueError", r"^Failed to read all data for array\. Expected \([\d, ]*\) = (?P<all>\d+) elements, could "
            r"only "
            r"read (?P<has>\d+)", "the .npy file is cut off: {has} of {all} values are there{at}",
            "A save or a copy was interrupted, the disk was full, or another process still writes it.", (_AGAIN,)),
    Refusal("KeyError", r"^['\"](?P<name>\S+) is not a file in the archive", "the .npz file has no array {name}{at}",
            "It was saved under another name, or without names (arr_0, arr_1).",
            (Fix("Print the names.", ("print(np.load(path).files)",)),)),
    Refusal("ValueError", r"^Array can't be memory-mapped: Python objects in dtype", "an array of Python objects "
            "cannot be "
            "mapped into memory{at}", "Rows of different lengths or texts were saved as objects.",
            (Fix("Save the rows as one long array and their offsets. Loading objects runs code of the file: only if "
                 "you trust who made it."),), of_code=True),
    Refusal("ValueError", r"could not convert string '(?P<text>[^']*)' to (?P<kind>\w+) at row (?P<row>\d+), column "
            r"(?P<column>\d+)", "np.loadtxt cannot read '{text}' in row {row}, column {column} as a number{at}",
            "Rows are counted from 0. A header, a name, an empty cell or another separator is usual.",
            (Fix("Skip the header, or read the file with pandas.",
                 ("np.loadtxt(path, delimiter=',', skiprows=1)", "head -n 3 FILE")),)),
    Refusal("ValueError", r"the number of columns changed from (?P<a>\d+) to (?P<b>\d+) at row (?P<row>\d+)",
            "row {row} of the text file has {b} columns, the rows before have {a}{at}",
            "The row is cut off, has a separator in a text, or the file is still being written.",
            (Fix("Look at that row.", ("sed -n '1,3p' FILE", "awk -F, '{print NF}' FILE | sort | uniq -c")),)),
    Refusal("ValueError", r"^Some errors were detected !", "rows of the text file have different numbers of "
            "columns{at}",
            "np.genfromtxt lists them below this line.",
            (Fix("Count the columns of the rows.", ("awk -F, '{print NF}' FILE | sort | uniq -c",)),)),
)
ARRAYS = (*_OF_SHAPES, *_OF_TYPES, *_OF_VALUES, *_OF_INTERFACES, *_OF_NUMPY_FILES)
# fmt: on
