"""What do datasets, PyArrow and safetensors refuse: a column, a row, a type, a list that is no table?"""

from __future__ import annotations

from mgpu.check import Fix

from ._refusal import Refusal

# fmt: off
_COLUMNS = Fix("Print the columns of the dataset.", ("print(dataset.column_names, dataset.features)",))
_OF_COLUMNS = (
    Refusal("ValueError KeyError", r"Column '?(?P<name>[^']{1,60}?)'? (?:doesn't exist|not found in the "
            r"dataset)\.?(?: Please "
            r"provide a column selected in: (?P<columns>\[[^\]]{1,200}\]))?|"
            r"Column \((?P<other>[^)]{1,60})\) not in table columns \((?P<others>\[[^\]]{1,200}\])\)|"
            r"Original column name (?P<third>\S+) not in the dataset\. Current columns in the dataset: "
            r"(?P<thirds>\[[^\]]{1,200}\])",
            "the dataset has no column '{name}{other}{third}'{at}",
            "The data is another set or split, or a step before renamed or removed the column. "
            "{columns}{others}{thirds}",
            (_COLUMNS, Fix("Use a name that it has, or rename one.",
                           ("dataset = dataset.rename_column('sentence', 'text')",))), of_code=True),
    Refusal("ValueError", r"New column name (?P<name>\S+) already in the dataset.*Current columns in the dataset: "
            r"(?P<columns>"
            r"\[[^\]]{1,200}\])|can't have duplicated columns but columns (?P<other>\[[^\]]{1,200}\]) are duplicated",
            "the dataset has a column {name}{other} already{at}",
            "A column is renamed to, or added under, a name that is in use.",
            (Fix("Remove the old one first, or use another name.",
                 ("dataset = dataset.remove_columns('labels').rename_column('label', 'labels')",)), _COLUMNS),
            of_code=True),
    Refusal("ValueError", r"columns in features \((?P<given>\[[^\]]{0,200}\])\) must be identical as the columns in "
            r"the "
            r"dataset: (?P<columns>\[[^\]]{1,200}\])",
            "cast() got features for {given}, and the dataset has {columns}{at}",
            "Features describe all columns, with the same names.",
            (Fix("Change one column only, or complete the features.",
                 ("dataset = dataset.cast_column('label', ClassLabel(names=names))",
                  "features = dataset.features.copy(); features['label'] = Value('int64'); dataset.cast(features)")),),
            of_code=True),
    Refusal("ValueError", r"concatenate on axis=1 because tables don't have the same number of rows|"
            r"^Number of rows must match for all datasets",
            "columns of different lengths are joined{at}",
            "A column or a second dataset needs one entry per row of the first. One of them was filtered, is another "
            "split, or lacks its last batch.",
            (Fix("Print both lengths.", ("print(len(dataset), len(values))",)),)),
    Refusal("ValueError", r"Stratifying by column is only supported for ClassLabel column, and column (?P<name>\S+) is "
            r"(?P<kind>\w+)",
            "the split should keep the shares of the classes, but the column {name} has no classes (it is a "
            "{kind}){at}",
            "stratify_by_column needs a column of the type ClassLabel.",
            (Fix("Convert it first. Labels that are whole numbers keep them this way.",
                 ("dataset = dataset.cast_column('label', ClassLabel(num_classes=N))",
                  "dataset.train_test_split(0.1, stratify_by_column='label')")),
             Fix("Labels that are text: encode all splits with one list of names. class_encode_column() numbers them "
                 "again, in the order of their spelling.",
                 ("dataset = dataset.cast_column('label', ClassLabel(names=NAMES))",))), of_code=True),
    Refusal("ValueError", r"^Invalid string class label (?P<name>.{1,80})",
            "a row has the label '{name}', which is not among the names of the ClassLabel{at}",
            "The list of names was made for another part of the data, or the spelling differs.",
            (Fix("Correct the spelling, or add the name at the end of the list, so that the numbers of the others "
                 "stay. Use one list for all splits.",
                 ("print(dataset.filter(lambda x: x['label'] not in NAMES)['label'][:20])",
                  "dataset.cast_column('label', ClassLabel(names=NAMES))")),)),
    Refusal("ValueError", r"Class label (?P<got>-?\d+) (?:greater than|less than) configured num_classes "
            r"(?P<classes>-?\d+)",
            "a row has the label {got}, and the ClassLabel has {classes} classes{at}",
            "Labels count from 0, and -1 stands for no label. The list of names is too short, or labels begin at 1.",
            (Fix("Look at the labels.", ("print(sorted(set(dataset['label'])))",)),)),
    Refusal("ValueError", r"^Neither (?P<name>\w+) nor \w+ seems to be a pyarrow data type",
            "'{name}' is not a type of a column{at}", "The names are those of PyArrow.",
            (Fix("Use one of: int32, int64, float32, string, bool.", ("Value('int64')",)),), of_code=True),
)
_OF_ROWS = (
    Refusal("IndexError", r"^Index (?P<got>-?\d+) out of range for dataset of size (?P<size>\d+)",
            "row {got} is asked for, and the dataset has {size} rows{at}",
            "The number was made for another split, for the data before a filter, or is a fixed limit of a test.",
            (Fix("Limit it to the rows that there are.", ("dataset.select(range(min(1000, len(dataset))))",)),)),
    Refusal("ValueError", r"^index should be in \[0, num_shards-1\]",
            "the number of a part is not below the number of parts{at}",
            "Parts count from 0, so that a rank of world_size, or a rank that counts from 1, has none.",
            (Fix("Use the rank of the launcher.",
                 ("split_dataset_by_node(dataset, rank=int(os.environ['RANK']), "
                  "world_size=int(os.environ['WORLD_SIZE']))",
                  )),), of_code=True,
            within=r"^datasets/"),
    Refusal("ValueError", r"Unable to shard a dataset of size (?P<size>\d+) into (?P<parts>\d+) shards",
            "{size} rows cannot be cut into {parts} parts{at}", "Each part needs at least one row.",
            (Fix("Use fewer parts: a multiple of ranks x loader workers is best.",
                 ("dataset.to_iterable_dataset(num_shards=min(64, len(dataset)))",)),)),
    Refusal("ValueError", r"Unable to (?P<what>interleave|concatenate) an? (?P<one>\w+) \(at position \d+\) with an? "
            r"(?P<other>\w+)",
            "a {one} and a {other} cannot be joined ({what}){at}", "All must be streams, or none.",
            (Fix("Convert the other ones.", ("dataset = dataset.to_iterable_dataset(num_shards=64)",)),), of_code=True),
    Refusal("ValueError", r"Unable to (?P<what>interleave|concatenate) an empty list of datasets",
            "there are no datasets to join: the list is empty{at}",
            "The loop that collects them found no file, or all were skipped.",
            (Fix("Print how many there are.", ("print(len(parts))", "ls DATA | head")),)),
    Refusal("AssertionError", r"ConcatDataset (?:does not|should not) support IterableDataset",
            "streams are given to ConcatDataset, which needs datasets with a length{at}", "",
            (Fix("Chain streams instead.", ("torch.utils.data.ChainDataset([a, b])",
                                            "datasets.interleave_datasets([a, b], "
                                            "stopping_strategy='all_exhausted')")),),
            of_code=True),
    Refusal("AttributeError", r"'(?P<owner>IterableDataset|DatasetDict|IterableDatasetDict)' object has no attribute "
            r"'(?P<name>select|train_test_split|sort|unique|to_pandas|num_rows|features|"
            r"select_columns|add_item|save_to_disk|train)'",
            "a {owner} has no {name}{at}",
            "A DatasetDict holds the splits, each of which is a dataset. A stream (streaming=True, "
            "to_iterable_dataset) can only be read in order.",
            (Fix("Of a dictionary, take a split.", ("dataset['train'].train_test_split(test_size=0.05)",)),
             Fix("Of a stream, use what reads in order.", ("dataset.take(1000)", "dataset.skip(1000)"))), of_code=True),
    Refusal("TypeError", r"^Wrong key type: '(?P<got>.{1,40}?)' of type '<class '(?P<kind>\w+)'>'",
            "a row is asked for by {got}, a {kind}{at}",
            "Rows have whole numbers, and columns have names. Divisions give floating point numbers.",
            (Fix("Convert it.", ("dataset[int(i)]",)),), of_code=True),
    Refusal("FileNotFoundError", r"^Directory (?P<path>.{1,200}) not found$",
            "the folder {path} does not exist{at}",
            "load_from_disk() takes the folder that save_to_disk() wrote. A relative path starts at the folder in "
            "which the ranks run, and other nodes may not have it.",
            (Fix("Check it on every node.", ("pwd; ls -la FOLDER",)),), of_code=True, within=r"^datasets/"),
    Refusal("AttributeError", r"'list' object has no attribute "
            r"'(?P<name>lower|upper|split|strip|replace|startswith|endswith|"
            r"encode|format|find|title|casefold)'",
            "a list is used as one text, in the function that map() calls{at}",
            "With batched=True, each column of the batch is a list with one entry per row (1000 by default). Without "
            "it, the rows of this column hold lists.",
            (Fix("Work on each entry.", ("return {'n': [text.lower() for text in batch['text']]}",)),
             Fix("If batched=True is set and not needed, give the function one row at a time.",
                 ("dataset.map(function, batched=False)",))), of_code=True,
            within=r"^datasets/\w+\.py in (?:apply_function|iter_outputs|_map_single|map|process)"),
    Refusal("TypeError", r"^(?P<name>[\w<>.]+)\(\) missing 1 required positional argument: '(?P<what>\w+)'",
            "{name}() needs a second argument ({what}), and map() gives one{at}",
            "map() and filter() pass the row or batch. The number of the row comes second if with_indices=True, the "
            "rank if with_rank=True.",
            (Fix("Ask for it, or leave it out of the function.", ("dataset.map(function, with_indices=True)",
                                                                  "dataset.map(function, fn_kwargs={'limit': 10})")),),
            of_code=True, raised_in=r"^datasets/\w+\.py in (?:apply_function|iter_outputs|_map_single|map|process)"),
    Refusal("TypeError", r"^'bool' object is not iterable",
            "one yes or no is given where a list of them is expected{at}",
            "A function for filter() with batched=True returns one bool per row.",
            (Fix("Return a list, or leave out batched.",
                 ("dataset.filter(lambda batch: [len(t) > 0 for t in batch['text']], batched=True)",)),), of_code=True,
            raised_in=r"^datasets/"),
)
_OF_TYPES = (
    Refusal("ArrowInvalid", r"Failed to parse string: '(?P<got>.{0,80}?)' as a scalar of type (?P<kind>\w+)",
            "a column of the type {kind} gets the text '{got}'{at}",
            "The type was derived from the first rows or stated in features, and a later row has a text there.",
            (Fix("Give every row the same type, or state the type as text.",
                 ("dataset.map(function, features=features)", "Features({'label': Value('string')})")),)),
    Refusal("ArrowInvalid ArrowTypeError", r"Could not convert (?P<got>.{1,80}?) with type (?P<given>[\w.]+): "
            r"(?:tried to convert to|was not a sequence|was expecting a)",
            "a column has values of different types: {got} is a {given}{at}",
            "All rows of a column have one type, which the first ones decide.",
            (Fix("Find the rows with another type, and correct them or convert the column.",
                 ("print(df[df['label'].map(type) != int])",
                  "df['label'] = pd.to_numeric(df['label'])  # fails at a value that is no number")),)),
    Refusal("ArrowInvalid ArrowTypeError", r"Could not convert (?P<got>.{1,80}?) with type (?P<given>[\w.]+): "
            r"did not recognize",
            "a column has an object of the class {given}, for which PyArrow has no type{at}",
            "PyArrow stores numbers, texts, bytes, lists and dictionaries. Images need the feature Image.",
            (Fix("Convert the objects.", ("dataset.cast_column('image', Image())", "array.tolist()")),), of_code=True),
    Refusal("ArrowInvalid", r"cannot mix (?P<one>list) and (?P<other>[\w-]+)[\w, -]*values",
            "a column mixes {one} and {other} values{at}",
            "A field is a list in some rows and a single value in others.",
            (Fix("Make a list of each.", ("value if isinstance(value, list) else [value]",)),)),
    Refusal("ArrowInvalid", r"cannot mix struct and (?P<other>[\w-]+)[\w, -]*values",
            "a column mixes dictionaries and other values{at}",
            "A field is a dictionary in some rows and a single value in others.",
            (Fix("Give every row a dictionary with the same keys.",
                 ("value if isinstance(value, dict) else {'text': value}",)),)),
    Refusal("RuntimeError", r"^[Cc]ould not infer dtype of NoneType",
            "a tensor is made of None, or of a list with None in it: a sample of the data has no value there{at}",
            "A row has nothing in that column (null, an empty cell), or the code that reads it returned nothing.",
            (Fix("Find the rows, and fill them, or drop them if they are not needed.",
                 ("dataset = dataset.filter(lambda x: x['label'] is not None)",)),),
            within=r"^datasets/|collat|^torch/utils/data/| in __getitem__$|^transformers/(?:tokenization|data/)"),
    Refusal("RuntimeError", r"^[Cc]ould not infer dtype of NoneType",
            "a tensor is made of None, or of a list with None in it{at}",
            "A value that should be a number is missing: a function that returned nothing, an entry that get() did not "
            "find, an option that is not set, an empty cell of a table.",
            (Fix("Print what the tensor is made of, before that line.", ("print(repr(values))",)),), of_code=True),
    Refusal("RuntimeError", r"^[Cc]ould not infer dtype of (?P<kind>[\w.]+)",
            "a tensor is made of a {kind}, or of a list that contains one, and not of numbers{at}",
            "torch.tensor() and as_tensor() take numbers, booleans, arrays, and lists of these.",
            (Fix("Print what it is, and take or compute the numbers first.",
                 ("print(type(value), value)", "torch.tensor(list(values.values()))  # of a dictionary",
                  "transforms.ToTensor()(image)  # of a picture")),), of_code=True),
)
_OF_SAFETENSORS = (
    Refusal("ValueError TypeError", r"^Key `(?P<name>[^`]{1,80})` is invalid, expected torch\.Tensor but received "
            r"<class "
            r"'(?P<kind>[\w.]+)'>",
            "safetensors saves tensors only, and '{name}' is a {kind}{at}",
            "A checkpoint with optimizer, epoch or nested dictionaries does not fit into one file of that format.",
            (Fix("Save the weights with safetensors, and the rest with torch.save().",
                 ("save_file(model.state_dict(), 'model.safetensors')",
                  "torch.save({'optimizer': optimizer.state_dict(), 'step': step}, 'state.pt')")),), of_code=True),
    Refusal("ValueError", r"^Expected a dict of \[str, torch\.Tensor\] but received <class '(?P<kind>[\w.]+)'>",
            "save_file() got a {kind}, and takes a dictionary of tensors{at}", "",
            (Fix("Pass the state of the model.", ("save_file(model.state_dict(), "
                                                  "'model.safetensors')",)),), of_code=True),
    Refusal("TypeError", r"^argument 'metadata': '(?P<kind>\w+)' object is not an instance of 'str'|"
            r"argument 'metadata': '(?P<other>\w+)' object cannot be converted to 'PyString'",
            "the metadata of a safetensors file contains a {kind}{other}{at}", "Its values are texts.",
            (Fix("Convert them.", ("metadata={key: str(value) for key, value in metadata.items()}",)),), of_code=True),
    Refusal("OSError", r"^No such device \(os error 19\)",
            "a folder, or a file on a file system that cannot be mapped, is read as a safetensors file{at}",
            "safetensors maps the file into memory. A folder cannot be mapped, and some network and FUSE mounts do not "
            "support it.",
            (Fix("Name the file, and check the file system.", ("ls -la FOLDER/*.safetensors", "df -T FOLDER")),
             Fix("Or copy it to a local disk first.")), of_code=True),
)
OF_DATASETS = (*_OF_COLUMNS, *_OF_ROWS, *_OF_TYPES, *_OF_SAFETENSORS)
# fmt: on
