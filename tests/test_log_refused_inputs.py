"""What torch's layers, tables, gym and other programs refuse: each message has a meaning and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

_LOSS = (("torch/nn/functional.py", "cross_entropy", "return torch._C._nn.cross_entropy_loss("),)
_RNN = (("torch/nn/modules/rnn.py", "check_input", "raise RuntimeError("),)
_SCORES = (("sklearn/metrics/_ranking.py", "roc_auc_score", "raise ValueError("),)
_GYM = (("gym/envs/registration.py", "make", "raise error"),)


def words(code: str, below: tuple[tuple[str, str, str], ...], error: str, folder: Path) -> str:
    return " | ".join(explained(folder, f"{frames((SCRIPT, 'main', code), *below)}{error}\n"))


# fmt: off
@pytest.mark.parametrize(
    ("code", "below", "error", "title", "fix"),
    [
        ("loss = ce(out, y)", _LOSS, "RuntimeError: 0D or 1D target tensor expected, multi-target not supported",
         "labels with more than one dimension (fit.py:7 in main)", "squeeze(1)"),
        ("loss = ce(out, y)", _LOSS, "RuntimeError: 1D target tensor expected, multi-target not supported",
         "labels with more than one dimension", "argmax"),
        ("loss = bce(out, y)", (), "RuntimeError: all elements of input should be between 0 and 1",
         "the input of binary cross-entropy has values that are no probabilities", "BCEWithLogitsLoss"),
        ("x = F.one_hot(y, 10)", (), "RuntimeError: Class values must be non-negative.",
         "class numbers that are not non-negative", "all_labels"),
        ("p = pack_padded_sequence(x, l)", (), "RuntimeError: 'lengths' argument should be a 1D CPU int64 tensor, but "
         "got 1D cuda:0 Long tensor", "lengths as a 1D cuda:0 Long tensor", "lengths.cpu()"),
        ("p = pack_padded_sequence(x, l)", (), "RuntimeError: Length of all samples has to be greater than 0, but "
         "found an element in 'lengths' that is <= 0", "its length is 0", "len(x) > 0"),
        ("y = rnn(x)", _RNN, "RuntimeError: input must have 3 dimensions, got 2",
         "a tensor of 2 dimensions, and takes 3", "unsqueeze"),
        ("y = rnn(x)", _RNN, "ValueError: LSTM: Expected input to be 2D or 3D, got 4D instead",
         "a tensor of 4 dimensions, and takes 2D or 3D", "flatten"),
        ("x = a[mask]", (), "IndexError: The shape of the mask [32] at index 0 does not match the shape of the indexed "
         "tensor [16, 8] at index 0", "mask of the shape [32] selects from a tensor of the shape [16, 8]",
         "print(mask.shape, x.shape)"),
        ("kept = weight[valid]", (), "IndexError: The shape of the mask [2, 90] at index 1 does not match the shape of "
         "the indexed tensor [2, 64] at index 1", "valid, the mask, has the shape [2, 90], and weight, from which it "
         "selects, [2, 64]", "padded, cut, shifted or extended alone"),
        ("trainer.train()", (("swift/trainers/loss.py", "loss_scale_func", "scale = scale[masks]"),),
         "IndexError: The shape of the mask [1, 77] at index 1 does not match the shape of the indexed tensor [1, 60] "
         "at index 1", "the weights of the loss (loss_scale) have the shape [1, 60], and the labels [1, 77]",
         "--use_loss_scale"),
        ("x = a[i]", (), "IndexError: tensors used as indices must be long, int, byte or bool tensors",
         "used as an index", "idx.long()"),
        ("y = conv(x, e)", (("torch_geometric/nn/conv/message_passing.py", "_index", "raise e"),),
         "IndexError: Found indices in 'edge_index' that are larger than 264 (got 300). Please ensure",
         "edge_index has the node 300", "data.validate()"),
        ("x = torch.tensor(rows)", (), "TypeError: can't convert np.ndarray of type numpy.object_. The only supported "
         "types are: float64", "does not have numbers (type object_)", "print(df.dtypes)"),
        ("x = torch.from_numpy(obs)", (), "TypeError: expected np.ndarray (got tuple)",
         "from_numpy() got a tuple", "env.reset()"),
        ("df = pd.concat(t)", (("pandas/core/reshape/concat.py", "_clean", "raise ValueError("),),
         "ValueError: No objects to concatenate", "the list is empty", "print(len(items))"),
        ("df['a'] = x", (("pandas/core/common.py", "require_length_match", "raise ValueError("),),
         "ValueError: Length of values (10) does not match length of index (12)",
         "a column gets 10 values, and the table has 12 rows", "len(values)"),
        ("df = df.append(r)", (("pandas/core/generic.py", "__getattr__", "return object.__getattribute__(self, n)"),),
         "AttributeError: 'DataFrame' object has no attribute 'append'. Did you mean: '_append'?",
         "pandas is probably too new for this line: it has no DataFrame.append", "pd.concat"),
        ("n = G.node[0]", (), "AttributeError: 'DiGraph' object has no attribute 'node'",
         "networkx is too new", "G.nodes"),
        ("if x:", (), "ValueError: The truth value of an array with more than one element is ambiguous. Use a.any()",
         "a whole array are used as a single yes or no", "len(x) > 0"),
        ("if df:", (), "ValueError: The truth value of a Series is ambiguous. Use a.empty, a.bool()",
         "a whole Series are used", "df[(df.a > 0)"),
        ("a = roc_auc_score(y, p)", _SCORES, "ValueError: Only one class present in y_true. ROC AUC score is not "
         "defined in that case.", "the labels have only one class", "stratify=y"),
        ("m.fit(x, y)", (("sklearn/linear_model/_logistic.py", "fit", "raise ValueError("),),
         "ValueError: This solver needs samples of at least 2 classes in the data, but the data contains only one "
         "class: 0", "the labels have only one class", "value_counts"),
        ("a = roc_auc_score(y, p)", _SCORES, "ValueError: multi_class must be in ('ovo', 'ovr')",
         "labels or scores of more than two classes", "multi_class='ovr'"),
        ("s.split(x, y)", (("sklearn/model_selection/_split.py", "_iter_indices", "raise ValueError("),),
         "ValueError: The least populated class in y has only 1 member, which is too few.",
         "too few samples to be in both parts of the split: 1", "value_counts"),
        ("f1_score(y, p)", (("sklearn/metrics/_classification.py", "_check", "raise ValueError("),),
         "ValueError: Target is multiclass but average='binary'. Please choose another average setting, one of [None].",
         "made for two classes, and the labels are multiclass", "average='macro'"),
        ("accuracy_score(y, p)", (("sklearn/metrics/_classification.py", "_check", "raise ValueError("),),
         "ValueError: Classification metrics can't handle a mix of binary and continuous targets",
         "labels that are binary with predictions that are continuous", "scores > 0.5"),
        ("m.fit(x, y)", (("sklearn/utils/validation.py", "_assert_all_finite", "raise ValueError(msg)"),),
         "ValueError: Input X contains NaN.\nLogisticRegression does not accept missing values encoded as NaN.",
         "has missing or infinite values (NaN)", "isna"),
        ("m.fit(x, y)", (("sklearn/utils/validation.py", "_assert_all_finite", "raise ValueError(msg)"),),
         "ValueError: Input contains NaN, infinity or a value too large for dtype('float64').",
         "missing or infinite values (NaN)", "isfinite"),
        ("i = np.random.choice(a, 5, p=p)", (), "ValueError: probabilities contain NaN",
         "probabilities for a random choice contain NaN", "float64"),
        ("b = random.sample(buf, 32)", (("/opt/env/lib/python3.11/random.py", "sample", "raise ValueError("),),
         "ValueError: Sample larger than population or is negative", "more items are to be drawn", "min(k, len"),
        ("i = random.choice(a)", (("/opt/env/lib/python3.11/random.py", "choice", "raise IndexError("),),
         "IndexError: Cannot choose from an empty sequence", "from an empty list", "print(len(items))"),
        ("t = strptime(s, f)", (("/opt/env/lib/python3.11/_strptime.py", "_strptime", "raise ValueError("),),
         "ValueError: time data '2020-01-01 00:00' does not match format '%Y-%m-%d'",
         "2020-01-01 00:00 instead of %Y-%m-%d", "to_datetime"),
        ("d[a] = 1", (), "TypeError: unhashable type: 'numpy.ndarray'", "a numpy.ndarray is used as a key", "tuple"),
        ("seen.add(row)", (), "TypeError: unhashable type: 'list'", "a list is used as a key", "tuple(items)"),
        ("for x in tqdm(xs):", (), "TypeError: 'module' object is not callable", "a module is called", "import tqdm"),
        ("m = Model()", (), "TypeError: Can't instantiate abstract class Model without an implementation for abstract "
         "method 'generate_until'", "the class Model lacks what its base class demands: 'generate_until'",
         "__abstractmethods__"),
        ("x = np.concatenate(l)", (),
         "ValueError: all the input array dimensions except for the concatenation axis must "
         "match exactly, but along dimension 1, the array at index 0 has size 10", "arrays of different shapes",
         "axis=0"),
        ("x = a @ b", (), "ValueError: matmul: Input operand 1 has a mismatch in its core dimension 0, with gufunc "
         "signature (n?,k),(k,m?)->(n?,m?) (size 3 is different from 4)", "the inner sizes differ (4 and 3)",
         "a.shape"),
        ("x = np.dot(a, b)", (), "ValueError: shapes (3,4) and (3,4) not aligned: 4 (dim 1) != 3 (dim 0)",
         "the inner sizes differ (4 and 3)", "a.shape"),
        ("x[i] = v", (), "ValueError: could not broadcast input array from shape (10,) into shape (12,)",
         "values of the shape 10 are written into a place of the shape 12 (fit", "a.shape"),
        ("x = a[m]", (),
         "IndexError: boolean index did not match indexed array along axis 0; size of axis is 10 but size "
         "of corresponding boolean axis is 12", "a mask of 12 items selects from an array of 10", "a[a > 0]"),
        ("x = a[b]", (), "IndexError: arrays used as indices must be of integer (or boolean) type",
         "an index is neither an integer nor a slice", "astype(int)"),
        ("i = np.random.randint(0, n)", (), "ValueError: high <= 0", "drawn from an empty range", "print(len(items))"),
        ("i = np.random.randint(0, n)", (), "ValueError: high is out of bounds for int32",
         "a bound of a random number does not fit its type, int32 (fit.py:7 in main)", "dtype=np.int64"),
        ("y = relu(x)", (), "TypeError: relu(): argument 'input' (position 1) must be Tensor, not numpy.ndarray",
         "relu() got a numpy.ndarray as input", "as_tensor"),
        ("x = np.load(p)", (("numpy/lib/npyio.py", "load", "raise ValueError()"),),
         "ValueError: Object arrays cannot be "
         "loaded when allow_pickle=False", "has Python objects", "allow_pickle=True"),
        ("m.fit(x)", (("sklearn/utils/validation.py", "check_array", "raise ValueError(msg)"),),
         "ValueError: Expected 2D array, got 1D array instead:\narray=[1 2].", "gets one row or one column (1D)",
         "-1, 1"),
        ("e.transform(y)", (("sklearn/utils/_encode.py", "_encode", "raise ValueError("),),
         "ValueError: y contains previously unseen labels: ['cat']", "not there when the encoder was fitted: ['cat']",
         "all_labels"),
        ("loss = ce(out, y)", _LOSS,
         "TypeError: cross_entropy_loss(): argument 'input' (position 1) must be Tensor, not "
         "tuple", "cross_entropy_loss() got a tuple as input", "out[0]"),
        ("loss = ce(out, y)", _LOSS, "RuntimeError: expected scalar type Long but found Float",
         "labels or ids are no integers of 64 bits", "y.long()"),
        ("x = torch.cat([a, b])", (), "RuntimeError: Tensors must have same number of dimensions: got 2 and 3",
         "tensors with 2 and 3 dimensions are joined", "unsqueeze"),
        ("for i in n:", (), "TypeError: 'int' object is not iterable", "a single number (int) is used as a list",
         "range"),
        ("for i in range(n / 2):", (), "TypeError: 'float' object cannot be interpreted as an integer",
         "a number with a decimal point", "//"),
        ("t = re.sub(a, b, text)", (), "TypeError: expected string or bytes-like object, got 'float'",
         "a value that is no text", "fillna"),
        ("task.load_dataset(s)", (("fairseq/tasks/translation.py", "load", "raise FileNotFoundError("),),
         "FileNotFoundError: Dataset not found: train (data-bin/iwslt14)", "fairseq does not find the split train",
         "ls"),
        ("b = sacrebleu.corpus_bleu(h, r)", (("sacrebleu/compat.py", "corpus_bleu", "raise EOFError("),),
         "EOFError: Source and reference streams have different lengths!", "do not belong together", "wc -l"),
        ("x = eval(s)", (), '  File "<string>", line 1\n    foo bar\n        ^\nSyntaxError: invalid syntax',
         'a text that the program reads as Python code is not valid Python: "foo bar" (fit.py:7 in main)',
         "print(repr(text))"),
        ("x = load(s)", (("ast.py", "parse", "return compile(source, filename)"),),
         '  File "<unknown>", line 1\n    foo bar\n        ^\nSyntaxError: invalid syntax',
         "a text that the program reads as Python code is not valid Python", "json.loads"),
        ("a = a.reshape(3, 4)", (), "ValueError: cannot reshape array of size 10 into shape (3,4)",
         "an array of 10 values cannot take the shape (3,4)", "-1"),
    ],
)
def test_what_layers_tables_and_python_refuse(
    code: str, below: tuple[tuple[str, str, str], ...], error: str, title: str, fix: str, tmp_path: Path
) -> None:
    said = words(code, below, error, tmp_path)
    assert title in said and fix in said, said


@pytest.mark.parametrize(
    ("code", "below", "error", "title", "fix"),
    [
        ("env = gym.make('Ant-v2')", _GYM, "gym.error.DependencyNotInstalled: No module named 'mujoco_py'. (HINT: you "
         "need to install mujoco_py)", "needs a package that is not installed: mujoco_py", "gymnasium[mujoco]"),
        ("env = gym.make('Hopper-v4')", _GYM, "gymnasium.error.DependencyNotInstalled: mujoco is not installed, run "
         "`pip install \"gymnasium[mujoco]\"`", "needs a package that is not installed: mujoco", "gymnasium[mujoco]"),
        ("env = gym.make('Pong')", (("ale_py/env.py", "__init__", "raise"),), "gymnasium.error.Error: We're Unable to "
         'find the game "Pong". Note: Gymnasium no longer distributes ROMs.', "Atari game Pong", "accept-rom-license"),
        ("a = model.predict(obs)", (("stable_baselines3/common/utils.py", "is_vectorized", "raise ValueError("),),
         "ValueError: Error: Unexpected observation shape (4,) for Box environment, please use (3,) or (n_env, 3) for "
         "the observation shape.", "of the shape (4,), and was made for (3,)", "same wrappers"),
        ("obs = env.step(action)", (("gym/wrappers/time_limit.py", "step",
                                     "observation, reward, terminated, truncated, info = self.env.step(action)"),),
         "ValueError: not enough values to unpack (expected 5, got 4)", "step() of the environment does not return 5",
         "shimmy"),
        ("print(text)", (), "UnicodeEncodeError: 'ascii' codec can't encode characters in position 0-3: ordinal not in "
         "range(128)", "not in the output's encoding (ascii)", "PYTHONUTF8=1"),
        ("nlp = spacy.load('en')", (("spacy/util.py", "load_model", "raise IOError()"),),
         "OSError: [E050] Can't find model 'en_core_web_sm'. It doesn't seem to be a Python package.",
         "a model of spaCy is not installed here: en_core_web_sm", "spacy download"),
        ("nltk.word_tokenize(t)", (("nltk/data.py", "find", "raise LookupError(resource_not_found)"),),
         "LookupError: \n****\n  Resource \x1b[93mpunkt_tab\x1b[0m not found.\n  Please use the NLTK Downloader",
         "NLTK's data punkt_tab is not on this machine", "NLTK_DATA"),
        ("v = wv['foo']", (("gensim/models/keyedvectors.py", "get_index", "raise KeyError()"),),
         "KeyError: \"Key 'foo' not present in vocabulary\"", "the word vectors have no word foo", "vector_size"),
        ("v = wv['bar']", (("gensim/models/keyedvectors.py", "get_index", "raise KeyError()"),),
         "KeyError: \"Key 'bar' not present\"", "the word vectors have no word bar", "vector_size"),
        ("t = Tokenizer.from_file(p)", (), "Exception: No such file or directory (os error 2)",
         "a tokenizer's file does not exist", "ls -l PATH"),
        ("sp.load(p)", (), 'OSError: Not found: "spm.model": No such file or directory Error #2',
         "SentencePiece's model does not exist: spm.model", "pwd"),
        ("mol = f(smi)", (), "Boost.Python.ArgumentError: Python argument types in\n    rdkit.Chem.rdmolops.AddHs("
         "NoneType)\ndid not match C++ signature:", "RDKit got None", "if mol is None"),
        ("c = OpenAI()", (("openai/_client.py", "__init__", "raise OpenAIError("),), "openai.OpenAIError: The "
         "api_key client option must be set either by passing api_key", "no key for it", "OPENAI_API_KEY"),
        ("r = c.create()", (("openai/_base_client.py", "request", "raise"),), "openai.RateLimitError: Error code: 429 "
         "- {'error': {'message': 'You exceeded your current quota', 'type': 'insufficient_quota'}}",
         "no credit left", "Add credit"),
        ("import gensim", (("gensim/matutils.py", "<module>", "from scipy.linalg import triu"),),
         "ImportError: cannot import name 'triu' from 'scipy.linalg' (/opt/x/scipy/linalg/__init__.py)",
         "scipy 1.13 (2024-04) removed", "pip install"),
        ("m = Word2Vec(s, size=100)", (), "TypeError: Word2Vec.__init__() got an unexpected keyword argument 'size'",
         "gensim 4.0 (2021-03) removed the argument size", "vector_size"),
        ("s = tf.Session()", (), "AttributeError: module 'tensorflow' has no attribute 'Session'",
         "tensorflow 2.0 (2019-09) removed", "tensorflow.compat.v1"),
    ],
)
def test_what_environments_and_programs_miss(
    code: str, below: tuple[tuple[str, str, str], ...], error: str, title: str, fix: str, tmp_path: Path
) -> None:
    said = words(code, below, error, tmp_path)
    assert title in said and fix in said, said
# fmt: on


@pytest.mark.parametrize(
    ("code", "below", "error", "never"),
    [
        ("a, b = batch", (), "ValueError: too many values to unpack (expected 2)", "environment"),
        # two tables in one line, or another length of the batch: which name is the mask is not sure
        (
            "y = a[m] + b[n]",
            (),
            "IndexError: The shape of the mask [2, 9] at index 1 does not match the shape of the "
            "indexed tensor [2, 6] at index 1",
            "the mask, has",
        ),
        (
            "y = a[m]",
            (),
            "IndexError: The shape of the mask [4] at index 0 does not match the shape of the indexed "
            "tensor [6] at index 0",
            "begin with the same size",
        ),
        (
            "y = a[m]",
            (),
            "IndexError: The shape of the mask [2, 9] at index 1 does not match the shape of the indexed "
            "tensor [2, 6] at index 1",
            "loss_scale",
        ),
        ("a, b, c = opt.step()", (), "ValueError: too many values to unpack (expected 3)", "gym"),
        ("x = f(d)", (("transformers/utils/hub.py", "f", "d[x]"),), "TypeError: unhashable type: 'dict'", "is used as"),
        ("x = wv['a']", (), "KeyError: 'a'", "word vectors"),
        ("x = cfg['lr']", (), "KeyError: \"Key 'lr' not present in the config\"", "word vectors"),
        ("import conf", (), '  File "conf.py", line 3\n    foo bar\n       ^\nSyntaxError: invalid syntax', "eval"),
        ("x = f(n)", (("transformers/a.py", "f", "for i in n:"),), "TypeError: 'int' object is not iterable", "range"),
        ("raise LookupError(n)", (), "LookupError: no such model", "NLTK"),
        ("q.append(x)", (), "AttributeError: 'Queue' object has no attribute 'append'", "pandas"),
    ],
)
def test_other_messages_keep_their_meaning(
    code: str, below: tuple[tuple[str, str, str], ...], error: str, never: str, tmp_path: Path
) -> None:
    assert never not in words(code, below, error, tmp_path)


def test_a_cell_of_a_notebook_is_not_a_text_for_eval(tmp_path: Path) -> None:
    cell = '  File "<ipython-input-5-abc>", line 1\n    foo bar\n        ^\nSyntaxError: invalid syntax\n'
    _, title, text = explained(tmp_path, cell)
    assert "eval()" not in title + text, title
