"""What do torch's layers, pandas, scikit-learn and Python refuse to take, and what did the script probably give them?

One entry for one message. Each is the same in every script, and the line of code has no more to say about it.
Texts for `exceptions.py`, and for `_refused_values.py`.
"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.snapshot import UncaughtException

from ._accepted_values import value_not_accepted
from ._own_objects import Meaning
from ._refusal import Refusal
from ._refused_by_configs import OF_CONFIGS
from ._refused_by_engines import OF_ENGINES
from ._refused_by_frameworks import OF_FRAMEWORKS
from ._refused_dataset_calls import OF_DATASETS
from ._refused_downloads import DOWNLOADS
from ._refused_lightning_calls import OF_LIGHTNING
from ._refused_model_calls import OF_MODELS
from ._refused_training_settings import OF_TRAINING

# fmt: off
_LABELS_OF_SET = Fix("Count the classes of each part of the data, and split it so that each part has all of them.",
                     ("print(pd.Series(y).value_counts())", "train_test_split(x, y, stratify=y)"))
_EMPTY_LIST = Fix("Print how many there are, and why: a path, a pattern or a filter that matches nothing.",
                  ("print(len(items))", "ls DIR | head"))
_OF_LAYERS = (
    Refusal("RuntimeError ValueError", r"(?:0D or )?1D target tensor expected, multi-target not supported|"
            r"multi-target not supported at",
            "the cross-entropy loss got labels with more than one dimension{at}",
            "It expects one class number per sample, of shape (batch). The labels have another dimension: a column "
            "from a table, (batch, 1), or one-hot vectors. Old releases of torch do not accept probabilities.",
            (Fix("Remove that dimension.", ("y = y.squeeze(1).long()", "y = y.argmax(dim=1)  # one-hot")),
             Fix("If one sample can have several classes, use another loss.", ("nn.BCEWithLogitsLoss()",))),
            of_code=True),
    Refusal("RuntimeError", r"all elements of (?P<which>input|target) should be between 0 and 1",
            "the {which} of binary cross-entropy has values that are no probabilities: below 0, above 1 or NaN{at}",
            "nn.BCELoss expects probabilities. Without a sigmoid at the end of the model, or if the training diverged "
            "to NaN, its input is none. A target is none if the labels are class numbers, such as 1 and 2.",
            (Fix("Give the loss raw outputs, and let it compute the sigmoid.", ("nn.BCEWithLogitsLoss()",)),
             Fix("Print the range, and look for NaN.",
                 ("print(p.min(), p.max(), p.isnan().any(), y.min(), y.max())",)))),
    Refusal("RuntimeError", r"Class values must be (?P<how>smaller than num_classes|non-negative)",
            "one_hot got class numbers that are not {how}{at}",
            "Valid numbers are 0 to num_classes - 1. Labels that start at 1, a padding or ignored label such as -100, "
            "and a num_classes of another data set do not fit.",
            (Fix("Print their range.", ("print(y.min(), y.max(), num_classes)",)),
             Fix("Renumber the classes from 0, once, for the whole data set.",
                 ("classes = sorted(set(all_labels) - {-100})",
                  "number = {name: i for i, name in enumerate(classes)}")))),
    Refusal("RuntimeError", r"one_hot is only applicable to index tensor",
            "one_hot got a tensor that does not have 64 bit integers{at}", "It takes class numbers, of type int64.",
            (Fix("Convert it.", ("F.one_hot(y.long(), num_classes)",)),), of_code=True),
    Refusal("RuntimeError", r"'lengths' argument should be a 1D CPU int64 tensor, but got (?P<got>.{1,40}) tensor",
            "pack_padded_sequence got the lengths as a {got} tensor{at}",
            "It takes them as int64 numbers in the memory of the CPU, also if the sequences are on a GPU.",
            (Fix("Move the lengths.", ("pack_padded_sequence(x, lengths.cpu().long(), batch_first=True)",)),),
            of_code=True),
    Refusal("RuntimeError", r"Length of all samples has to be greater than 0",
            "a sequence of the batch has no elements: its length is 0{at}",
            "pack_padded_sequence needs at least one element of each. An empty text, or one whose words are all "
            "unknown or removed, has none.",
            (Fix("Remove empty samples when the data is read.", ("data = [x for x in data if len(x) > 0]",)),
             Fix("Or give them a length of 1.", ("lengths.clamp(min=1)",)))),
    Refusal("RuntimeError ValueError AssertionError",
            r"input must have (?P<wanted>\d) dimensions, got (?P<got>\d)|"
            r"Expected input to be (?P<either>[12]-?D or [23]-?D),? (?:but received|got) (?P<other>\d)-?D",
            "a recurrent layer got a tensor of {got}{other} dimensions, and takes {wanted}{either}{at}",
            "Its input is (length, batch, features), or (batch, length, features) with batch_first=True. Something "
            "before it removed a dimension (squeeze, an index, mean), or kept too many (images, windows of windows).",
            (Fix("Print the shape before the layer, and add or remove the dimension.",
                 ("print(x.shape)", "x = x.unsqueeze(-1)  # one feature", "x = x.flatten(2)")),), of_code=True),
    Refusal("IndexError", r"The shape of the mask \[(?P<mask>[\d, ]+)\] at index \d+ does not match the shape of the "
            r"indexed tensor \[(?P<tensor>[\d, ]+)\]",
            "the weights of the loss (loss_scale) have the shape [{tensor}], and the labels [{mask}]{at}",
            "Each label has a weight. The two were made for sequences of different lengths: one was extended (by the "
            "tokens of images), padded or cut after the other was made.",
            (Fix("Update ms-swift, or train without weights of its tokens until then: leave out --use_loss_scale.",
                 ("pip install --upgrade ms-swift", "swift sft --loss_scale default ...")),
             Fix("In a template of your own, change both in the same place.",
                 ("print(len(labels), len(loss_scale))",))), of_code=True, within=r" in loss_scale_func$"),
    Refusal("IndexError RuntimeError", r"The shape of the mask \[(?P<mask>[\d, ]+)\] at index [1-9]\d* does not match "
            r"the shape of the indexed tensor \[(?P<tensor>[\d, ]+)\]",
            "{chosen}, the mask, has the shape [{mask}], and {of}, from which it selects, [{tensor}]{at}",
            "They begin with the same size, and differ after it, mostly in the length of the sequences. {of} and "
            "{chosen} were made from different ones, or one of them was padded, cut, shifted or extended alone.",
            (Fix("Print both shapes where each is made, and change both in the same way."),), of_code=True,
            line=r"^[^\[\]]*?(?<![\w.])(?P<of>[A-Za-z_][\w.]*)\[(?P<chosen>[A-Za-z_][\w.]*)\][^\[\]]*$"),
    Refusal("IndexError RuntimeError", r"The shape of the mask \[(?P<mask>[\d, ]+)\] at index \d+ does not match the "
            r"shape of the indexed tensor \[(?P<tensor>[\d, ]+)\]",
            "a mask of the shape [{mask}] selects from a tensor of the shape [{tensor}]{at}",
            "A mask of bools needs the shape of the first dimensions of what it selects from. It was made from another "
            "batch or another split, or one of them was padded, cut or filtered.",
            (Fix("Print both shapes. Make the mask from the tensor itself, or change both in the same way.",
                 ("print(mask.shape, x.shape)",)),), of_code=True),
    Refusal("IndexError", r"tensors used as indices must be long",
            "a tensor of a type that indices cannot have is used as an index{at}",
            "Indices are int64 numbers (or a mask of bools); other integers are not accepted by all releases. "
            "Divisions, float labels and a tensor made from an empty list have another type.",
            (Fix("Convert it, and use // for divisions.", ("x[idx.long()]",)),), of_code=True),
    Refusal("IndexError", r"Found indices in 'edge_index' that are (?:larger than (?P<last>\d+) \(got (?P<got>\d+)\)|"
            r"negative \(got (?P<below>-\d+)\))",
            "the graph's edge_index has the node {got}{below}, and x has no such row{at}",
            "Nodes are numbered from 0 to the number of rows of x, minus 1. Ids of a file that start at 1 or have "
            "gaps, and edges of a part of the graph (or of a batch without its offsets), do not fit.",
            (Fix("Print both, and renumber the nodes of the whole graph, with their rows of x.",
                 ("print(edge_index.max(), x.size(0))", "data.validate()",
                  "nodes, edges = torch.unique(edge_index, return_inverse=True)  # row i of x: that of nodes[i]")),)),
    Refusal("TypeError", r"can't convert np\.ndarray of type numpy\.(?P<kind>object_|str_|bytes_)",
            "the array does not have numbers (type {kind}), and torch cannot convert it{at}",
            "numpy makes such an array of rows of different lengths, of a table with a column of texts, and of missing "
            "values (None).",
            (Fix("Look at what it has.", ("print(a.dtype, a.shape, type(a.flat[0]))", "print(df.dtypes)")),
             Fix("Convert the columns to numbers, or pad the rows to one length.",
                 ("df[columns].astype('float32').to_numpy()", "np.stack(rows).astype('float32')")))),
    Refusal("TypeError", r"^expected np\.ndarray \(got (?P<kind>[\w.]+)\)",
            "from_numpy() got a {kind} instead of an array of numpy{at}",
            "It takes arrays only. Lists, numbers and columns of pandas are none, and since gym 0.26 reset() returns "
            "a tuple: observation and info.",
            (Fix("Take the array, or let torch convert it.",
                 ("torch.as_tensor(x)", "torch.from_numpy(df['c'].to_numpy())", "observation, info = env.reset()")),),
            of_code=True),
)
_OF_TABLES = (
    Refusal("AttributeError", r"'(?P<owner>DataFrame|Series)' object has no attribute '(?P<name>append|iteritems|mad|"
            r"lookup|ix|as_matrix|get_value|set_value|tshift)'",
            "the installed pandas is probably too new for this line: it has no {owner}.{name} any more{at}",
            "pandas 2.0 removed append, iteritems, mad, lookup and tshift. pandas 1.0 removed ix, as_matrix, get_value "
            "and set_value.",
            (Fix("Use what replaced it.", ("pd.concat([df, pd.DataFrame([row])], ignore_index=True)  # append",
                                           "df.items()  # iteritems", "df.to_numpy()  # as_matrix",
                                           "df.loc[...]  # ix, by position: df.iloc[...]")),
             Fix("Or install an older pandas, if the line is a package's.",
                 ("pip install 'pandas<2'", "pip install 'pandas<1'  # ix, as_matrix, get_value, set_value"))),
            of_code=True),
    Refusal("AttributeError", r"'(?:Multi)?(?:Di)?Graph' object has no attribute 'node'",
            "the installed networkx is too new for this line: a graph has no node any more{at}",
            "networkx 2.4 removed it. nodes has been the same since 2.0.",
            (Fix("Change the line.", ("G.nodes[n]",)),
             Fix("Or install an older one, only with Python 3.8 or older.", ("pip install 'networkx<2.4'",))),
            of_code=True),
    Refusal("ValueError", r"^No objects to concatenate", "pandas has no table to join: the list is empty{at}",
            "pd.concat got no tables: the loop that collects them found no file, or all were skipped.", (_EMPTY_LIST,)),
    Refusal("ValueError", r"Length of (?:passed values is (?P<values>\d+), index implies (?P<rows>\d+)|"
            r"values \((?P<count>\d+)\) does not match length of index \((?P<labels>\d+)\))",
            "a Series gets {values}{count} values and an index of {rows}{labels} labels{at}",
            "Both need one entry per value. A list that was extended in a loop (+=, extend) has the values of all "
            "turns; one turn has as many as the index has labels. Or the index is of another table.",
            (Fix("Print both lengths.", ("print(len(data), len(index))",)),
             Fix("Collect one list per turn, and make a table of them.",
                 ("rows.append(result); df = pd.DataFrame(rows, columns=index)",))), line=r"\bSeries\("),
    Refusal("ValueError", r"Length of passed values is (?P<values>\d+), index implies (?P<rows>\d+)",
            "pandas gets {values} values for an index of {rows} labels{at}",
            "Both need one entry per value. The values are of another or a filtered table, or of all turns of a loop.",
            (Fix("Print both lengths.", ("print(len(data), len(index))",)),)),
    Refusal("ValueError", r"Length of values \((?P<values>\d+)\) does not match length of index \((?P<rows>\d+)\)",
            "a column gets {values} values, and the table has {rows} rows{at}",
            "The values are of another or a filtered table, or some rows were skipped when they were computed, such as "
            "the last batch (drop_last=True), or come twice (one per rank, or padding of the last batch).",
            (Fix("Print both numbers, and make one value per row.",
                 ("print(len(df), len(values))", "df = df.iloc[:len(values)]  # only if the order is the same")),)),
    Refusal("ValueError", r"The truth value of an? (?P<what>array|\w+)(?: with more than one element)? is ambiguous",
            "the values of a whole {what} are used as a single yes or no{at}",
            "A comparison of it has one answer per element. `if x`, `if x == y`, `not x`, `x in list`, and `and` or "
            "`or` between two of them need a single one.",
            (Fix("Say what is meant.", ("if x is not None and len(x) > 0: ...", "if (a == b).all(): ...")),
             Fix("Between conditions per element, use & and | with brackets.", ("df[(df.a > 0) & (df.b < 1)]",))),
            of_code=True),
    Refusal("ValueError UndefinedMetricWarning", r"Only one class (?:is )?present in y_true|only one class: |"
            r"The number of classes has to be greater than one",
            "the labels have only one class{at}",
            "What is computed needs at least two. The part of the data is too small, sorted by class instead of "
            "shuffled, or its labels were read wrongly.",
            (_LABELS_OF_SET, Fix("In a loop over batches or tasks, compute it once over all, or skip such parts."))),
    Refusal("ValueError", r"multi_class must be in \('ovo', 'ovr'\)",
            "roc_auc_score got labels or scores of more than two classes{at}",
            "It then needs the probabilities of all classes, and multi_class. If there should be two classes, a third "
            "value is among the labels, such as -1 or a missing one.",
            (Fix("Look at the labels.", ("print(np.unique(y_true, return_counts=True))",)),
             Fix("Give it all probabilities.", ("roc_auc_score(y_true, probabilities, multi_class='ovr')",)))),
    Refusal("ValueError", r"The least populated class(?:es)? in y (?:has|have) only (?P<number>\d+) members?",
            "a class has too few samples to be in both parts of the split: {number}{at}",
            "A split with stratify (or StratifiedKFold) puts samples of each class in each part.",
            (Fix("Remove or join rare classes, or split without stratify.", ("print(pd.Series(y).value_counts())",)),)),
    Refusal("ValueError", r"Target is (?P<kind>[\w-]+) but average='binary'",
            "the metric is made for two classes, and the labels are {kind}{at}",
            "f1_score, precision_score and recall_score take two classes unless average= says how to combine more.",
            (Fix("Choose how to average.", ("f1_score(y_true, y_pred, average='macro')",)),
             Fix("If there should be two classes, look for another value among the labels.",
                 ("print(np.unique(y_true), np.unique(y_pred))",)))),
    Refusal("ValueError", r"can't handle a mix of (?P<one>[\w-]+) and (?P<other>[\w-]+) targets",
            "the metric compares labels that are {one} with predictions that are {other}{at}",
            "It compares class numbers. Probabilities or scores (continuous) are predictions before the decision, and "
            "labels of type float or text can be the other kind.",
            (Fix("Make classes of the predictions.", ("y_pred = scores.argmax(axis=1)", "y_pred = scores > 0.5")),
             Fix("Compare the types.", ("print(y_true[:5], y_pred[:5])",)))),
    Refusal("ValueError", r"Found input variables with inconsistent numbers of samples: \[(?P<numbers>[\d, ]+)\]",
            "the inputs have different numbers of samples: {numbers}{at}",
            "They are of different parts of the data, or one of them was filtered, flattened or lacks its last batch.",
            (Fix("Print the shapes where they are made.", ("print(x.shape, y.shape)",)),)),
)
_OF_PYTHON = (
    Refusal("ValueError", r"[Pp]robabilities (?P<how>do not sum to 1|contain NaN|are not non-negative)",
            "the probabilities for a random choice {how}{at}",
            "They are computed from counts, weights or a model. A sum of 0, NaN, and float32 (the check is made in "
            "float64) give such values.",
            (Fix("Normalize them in float64, and look for NaN.",
                 ("p = np.asarray(p, dtype=np.float64); p /= p.sum()", "print(p.sum(), np.isnan(p).any())")),)),
    Refusal("ValueError", r"Sample larger than population|Cannot take a larger sample than population",
            "more items are to be drawn than there are{at}",
            "The number is larger than the list: a small or filtered data set, a replay buffer that has too few "
            "entries yet, or fewer clients or classes than the option says.",
            (Fix("Draw at most what there is.", ("random.sample(items, min(k, len(items)))",)),
             Fix("Or allow repeats, or wait until there are enough.",
                 ("np.random.choice(a, k, replace=True)", "if len(buffer) >= batch_size: ...")))),
    Refusal("ValueError IndexError", r"^(?:'?a'? must be non-empty|'a' cannot be empty unless no samples are taken|"
            r"Cannot choose from an empty sequence|a must be greater than 0 unless no samples)",
            "a random choice is made from an empty list{at}", "Nothing was found or kept before.", (_EMPTY_LIST,)),
    Refusal("ValueError", r"time data '?(?P<text>[^']{1,60})'? does(?: not|n't) match format '?(?P<format>[^',]{1,60})",
            "a date has another form than the code expects: {text} instead of {format}{at}",
            "A file has dates of another form, perhaps only in some rows, or other columns than expected.",
            (Fix("Change the format, or let pandas find it.",
                 ("pd.to_datetime(df['time'], format='mixed')  # pandas 2", "dateutil.parser.parse(text)")),)),
    Refusal("TypeError", r"^unhashable type: '(?P<kind>[\w.]+)'|"
            r"cannot use '(?P<other>[\w.]+)' as a (?:dict key|set element)",
            "a {kind}{other} is used as a key of a dict or an item of a set{at}",
            "Keys must not change: texts, numbers and tuples. A column with lists, nested settings, brackets too many "
            "(d[[a, b]]) and a part of a dict (d[:10]) give others.",
            (Fix("Make a tuple or a text of it.", ("key = tuple(items)", "df['c'] = df['c'].map(str)")),),
            of_code=True, own=True),
    Refusal("TypeError", r"^'module' object is not callable",
            "a module is called as if it were a function{at}",
            "`import tqdm` gives the module; the function of the same name is in it. A file of the project that has "
            "the name of a function or class does the same.",
            (Fix("Import the function itself.", ("from tqdm import tqdm", "from datetime import datetime")),),
            of_code=True, own=True),
    Refusal("TypeError", r"Can't instantiate abstract class (?P<name>\w+) (?:with|without an implementation for) "
            r"abstract methods? (?P<methods>[\w', ]+)",
            "the class {name} lacks what its base class demands: {methods}{at}",
            "The base class declares these methods as abstract, and the class does not have them under that name. If "
            "the base class is of a package, its other versions can have other methods.",
            (Fix("Write these methods, or compare their names with the installed base class.",
                 ("python -c 'import PACKAGE; print(PACKAGE.CLASS.__abstractmethods__)'", "pip show PACKAGE")),),
            of_code=True),
    Refusal("ValueError", r"cannot reshape array of size (?P<size>\d+) into shape (?P<shape>\(?[\d, -]*\d,?\)?)",
            "an array of {size} values cannot take the shape {shape}{at}",
            "The product of the sizes must be the number of values. The data has other dimensions than the code "
            "expects (channels, length, classes), a file is cut, or the last batch is smaller.",
            (Fix("Print the shape, and leave one size open.", ("print(a.shape)", "a.reshape(-1, 4)")),)),
)
_SHAPES = Fix("Print the shapes before that line.", ("print(a.shape, b.shape)",))
_OF_ARRAYS = (
    Refusal("ValueError", r"all input arrays must have the same shape|all the input array dimensions except for the "
            r"concatenation axis must match exactly",
            "arrays of different shapes are joined{at}",
            "Samples of different length, another number of columns in one file, or the last, smaller batch have "
            "another shape. numpy joins only arrays that are equal in all other dimensions.",
            (Fix("Print the shapes, and find the one that differs.", ("print({a.shape for a in arrays})",)),
             Fix("Pad or cut them to one length, or join them along the dimension that differs.",
                 ("np.concatenate(arrays, axis=0)",)))),
    Refusal("ValueError", r"matmul: Input operand 1 has a mismatch in its core dimension \d.*\(size (?P<right>\d+) is "
            r"different from (?P<left>\d+)\)|shapes \([\d,]+\) and \([\d,]+\) not aligned: "
            r"(?P<first>\d+) \(dim \d+\) != (?P<second>\d+)",
            "two matrices cannot be multiplied: the inner sizes differ ({left}{first} and {right}{second}){at}",
            "For a @ b, the last dimension of a must equal the last but one of b. One of them has to be transposed, or "
            "comes from a model or a table with another number of features.", (_SHAPES,), of_code=True),
    Refusal("ValueError", r"could not broadcast input array from shape \(?(?P<given>\d[\d, ]*?),?\)? into "
            r"shape \(?(?P<place>\d[\d, ]*?),?(?:\)|$)",
            "values of the shape {given} are written into a place of the shape {place}{at}",
            "The array was made for another number of samples, steps or columns than what is written into it. Or "
            "np.array() got a list of arrays of different sizes: pad or resize them.",
            (_SHAPES,)),
    Refusal("IndexError", r"boolean index did not match (?:indexed array )?along (?:dimension|axis) \d+; (?:dimension|"
            r"size of axis) is (?P<size>\d+) but (?:corresponding boolean dimension|size of corresponding boolean "
            r"axis) is (?P<mask>\d+)",
            "a mask of {mask} items selects from an array of {size}{at}",
            "It was made from another array or split, or one of them was filtered in between.",
            (Fix("Make the mask from the array itself.", ("a[a > 0]", "print(mask.shape, a.shape)")),)),
    Refusal("IndexError", r"arrays used as indices must be of integer|only integers, slices \(`:`\), ellipsis|"
            r"only integer (?:scalar )?arrays can be (?:used|converted)",
            "an index is neither an integer nor a slice{at}",
            "Divisions give floating point numbers, an empty list becomes an array of them, and a text is not an "
            "index of an array.",
            (Fix("Use // for divisions, and convert arrays of indices.", ("a[idx.astype(int)]", "print(repr(i))")),),
            of_code=True),
    Refusal("TypeError", r"^only integer scalar arrays can be converted to a scalar index",
            "arrays are passed to {call}() one by one, and it takes a list of them{at}",
            "The second argument of these functions is the axis, a whole number.",
            (Fix("Put them into a list.", ("np.concatenate([a, b])",)),), of_code=True,
            line=r"\b(?P<call>concatenate|stack|(?:np|numpy)\.append)\([\w.]+, ?(?!axis\b)"),
    Refusal("TypeError", r"^only integer scalar arrays can be converted to a scalar index",
            "an array with several values is used as one index or count{at}",
            "Lists take one whole number as an index, and range() and shapes take whole numbers. Only arrays of numpy "
            "take an array of indices.",
            (Fix("Make an array of the list, or take the items one by one.",
                 ("np.asarray(items)[idx]", "[items[i] for i in idx]")),), of_code=True),
    Refusal("ValueError", r"^(?P<end>high|low) is out of bounds for (?P<kind>\w+)",
            "a bound of a random number does not fit its type, {kind}{at}",
            "The bound is too large or too small for that type. numpy's default is 32 bit on Windows before numpy 2.",
            (Fix("Draw with a larger type.", ("np.random.randint(0, 2**32, dtype=np.int64)",)),), of_code=True),
    Refusal("ValueError", r"^high <= 0",
            "a random number is drawn from an empty range{at}",
            "Its upper bound is not above the lower one, mostly because the list, the data set or the replay buffer "
            "that gives it is empty, or shorter than a window or a batch.", (_EMPTY_LIST,)),
    Refusal("ValueError", r"can only convert an array of size 1 to a Python scalar",
            "an array with several values, or none, is used as one number{at}", "item() needs exactly one value.",
            (Fix("Print its shape, and choose one value or an average.", ("print(a.shape)", "a.mean()", "a[0]")),)),
    Refusal("ValueError", r"Object arrays cannot be loaded when allow_pickle=False",
            "the .npy or .npz file has Python objects, which np.load does not read unless allow_pickle says so{at}",
            "It was saved from a dict, a list of arrays of different sizes or a table with texts. Reading it runs "
            "code that the file can contain.",
            (Fix("If you trust the file, allow it.", ("np.load(path, allow_pickle=True)",)),
             Fix("Save plain arrays instead.", ("np.savez(path, **arrays)",))), of_code=True),
    Refusal("ValueError", r"Expected 2D array, got (?P<got>1D|scalar) array instead",
            "scikit-learn expects a table, and gets one row or one column ({got}){at}",
            "Its first dimension is the samples and its second the features.",
            (Fix("Add the dimension.", ("x.reshape(-1, 1)  # one feature", "x.reshape(1, -1)  # one sample")),),
            of_code=True),
    Refusal("ValueError", r"y contains previously unseen labels: (?P<labels>.{1,100})|"
            r"Found unknown categories (?P<categories>.{1,80}?) in column",
            "the data has classes that were not there when the encoder was fitted: {labels}{categories}{at}",
            "It was fitted on another part of the data (training only), or the spelling or the type differs (1 and "
            "'1').", (Fix("Fit it on all classes, or map unknown ones to one of their own.",
                          ("LabelEncoder().fit(all_labels)", "OneHotEncoder(handle_unknown='ignore')")),)),
)
_OF_CALLS = (
    Refusal("TypeError", r"^(?P<call>\w+)\(\): argument '(?P<name>\w+)'(?: \(position \d+\))? must be Tensor, not "
            r"(?P<kind>[\w.]*\w)",
            "{call}() got a {kind} as {name}, and takes a tensor{at}",
            "A list was not made a tensor (a data set or a collate function that returns lists), or a model returned "
            "several values or None.",
            (Fix("Print its type, and convert it or take its part.",
                 ("print(type(x))", "x = torch.as_tensor(x, device=device)", "x = out[0]")),), of_code=True),
    Refusal("RuntimeError", r"Tensors must have same number of dimensions: got (?P<one>\d+) and (?P<other>\d+)",
            "tensors with {one} and {other} dimensions are joined{at}",
            "One of them lacks a dimension (one sample, squeeze, an index) or has one more.",
            (Fix("Add it before.", ("print(a.shape, b.shape)", "b = b.unsqueeze(0)")),), of_code=True),
    Refusal("TypeError", r"'(?P<kind>int|float)' object is not iterable|"
            r"object of type '(?P<other>int|float)' has no len",
            "a single number ({kind}{other}) is used as a list{at}",
            "An option has one value where the code expects several, a function returns one number, an empty cell of a "
            "table is NaN (a float), or range() is missing in `for i in n`.",
            (Fix("Make a list of it, or write range().", ("for i in range(n): ...", "values = [value]")),),
            of_code=True, own=True),
    Refusal("TypeError", r"^expected string or bytes-like object|sequence item \d+: expected str instance",
            "a value that is no text is used as one{at}",
            "Tables have NaN for empty cells and numbers for numeric columns, and a missing field of a JSON file is "
            "None.",
            (Fix("Convert the texts where they are read.",
                 ("df['text'] = df['text'].fillna('').astype(str)", "' '.join(map(str, items))")),), own=True),
    Refusal("TypeError", r"^'float' object cannot be interpreted as an integer",
            "a number with a decimal point is used as a count{at}",
            "/ gives such a number, also if the result is whole. 1e3 in a config file is one, too.",
            (Fix("Use // or int().", ("range(n // batch_size)", "int(value)")),), of_code=True, own=True),
    Refusal("FileNotFoundError", r"^Dataset not found: (?P<split>\S+) \((?P<folder>[^)]+)\)",
            "fairseq does not find the split {split} in the folder {folder}{at}",
            "It looks for SPLIT.SOURCE-TARGET.SOURCE.bin, made by fairseq-preprocess. The folder, the languages or "
            "their order are others, or the data was not prepared.",
            (Fix("Compare the names.", ("ls DATA_BIN", "fairseq-train DATA_BIN --source-lang de --target-lang en")),),
            of_code=True),
    Refusal("DGLError", r"Device API (?P<name>\w+) is not enabled",
            "the installed DGL has no support for {name}{at}", "It is the build for CPUs.",
            (Fix("Remove it, then install the build for torch's CUDA version, as on "
                 "https://www.dgl.ai/pages/start.html. DGL's last wheels are for torch 2.4.",
                 ("python -c 'import torch; print(torch.__version__, torch.version.cuda)'", "pip uninstall dgl")),),
            of_code=True),
    Refusal("EOFError ValueError", r"Source and reference streams have different lengths|^Hypothesis is empty|"
            r"The number of hypotheses and their reference\(s\) should be the same",
            "the texts that are compared do not belong together: other numbers of lines, or an empty one{at}",
            "The model wrote no text for a sample, lines were lost or split (a line break in a text), or the reference "
            "is of another part of the data.",
            (Fix("Count the lines, and look for empty ones.", ("wc -l HYPOTHESES REFERENCES",
                                                               "grep -nc '^ *$' HYPOTHESES")),)),
)
_ALL = (
    *OF_FRAMEWORKS, *OF_CONFIGS,  # before the entries for these messages in general
    *_OF_LAYERS, *_OF_TABLES, *_OF_PYTHON, *_OF_ARRAYS, *_OF_CALLS,
    *DOWNLOADS, *OF_TRAINING, *OF_LIGHTNING, *OF_MODELS, *OF_DATASETS, *OF_ENGINES,
)
# fmt: on


def refused_input(one: UncaughtException) -> Meaning | None:
    """Return what an exception says of what the script gave; None if no entry has its message."""
    found = next((meant for known in _ALL if (meant := known.read(one, one.message))), None)
    return found or value_not_accepted(one)
