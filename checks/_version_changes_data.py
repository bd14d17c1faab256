"""Which release of pandas, scikit-learn, SciPy, gensim and other packages for data removed what?

Facts only, in the form of `_version_changes.py`, from the release notes of the packages (`PAGES`). Attributes with
common names (DataFrame.append) are in `log/_refused_inputs.py`: other classes lack them for other reasons.
"""

from __future__ import annotations

CHANGES = """
pandas 2.0 - read_csv(error_bad_lines)=on_bad_lines read_csv(warn_bad_lines)=on_bad_lines read_csv(squeeze,prefix)
pandas 2.0 - read_csv(mangle_dupe_cols) Int64Index=pandas.Index Float64Index=pandas.Index UInt64Index=pandas.Index
gensim 4.0 - Word2Vec(size)=vector_size Word2Vec(iter)=epochs FastText(size)=vector_size FastText(iter)=epochs
gensim 4.0 - Doc2Vec(size)=vector_size Doc2Vec(iter)=epochs /summarization /models.wrappers
sklearn 0.20 - /cross_validation=sklearn.model_selection /grid_search=sklearn.model_selection
sklearn 0.20 - /learning_curve=sklearn.model_selection
sklearn 0.22 - Imputer@preprocessing=sklearn.impute.SimpleImputer
sklearn 0.23 - /externals.six=six /externals.joblib=joblib joblib@externals=joblib
sklearn 0.23 - jaccard_similarity_score@metrics=sklearn.metrics.jaccard_score
sklearn 1.2 - plot_confusion_matrix@metrics=ConfusionMatrixDisplay.from_estimator
sklearn 1.2 - plot_roc_curve@metrics=RocCurveDisplay.from_estimator load_boston@datasets
sklearn 1.2 - CountVectorizer.get_feature_names=get_feature_names_out LinearRegression(normalize)
sklearn 1.2 - TfidfVectorizer.get_feature_names=get_feature_names_out
sklearn 1.2 - OneHotEncoder.get_feature_names=get_feature_names_out
sklearn 1.4 - OneHotEncoder(sparse)=sparse_output AgglomerativeClustering(affinity)=metric
sklearn 1.6 - mean_squared_error(squared)=root_mean_squared_error
sklearn 1.8 - check_array(force_all_finite)=ensure_all_finite check_X_y(force_all_finite)=ensure_all_finite
scipy 1.3 - imread@misc=imageio.imread imresize@misc=PIL.Image.resize imsave@misc=imageio.imwrite
scipy 1.13 - triu@linalg=numpy.triu tril@linalg=numpy.tril hann@signal=scipy.signal.windows.hann
scipy 1.13 - hamming@signal=scipy.signal.windows.hamming gaussian@signal=scipy.signal.windows.gaussian
scipy 1.14 - simps@integrate=simpson cumtrapz@integrate=cumulative_trapezoid trapz@integrate=trapezoid
networkx 3.0 - from_numpy_matrix=from_numpy_array to_numpy_matrix=to_numpy_array read_gpickle=pickle.load
networkx 3.0 - from_scipy_sparse_matrix=from_scipy_sparse_array to_scipy_sparse_matrix=to_scipy_sparse_array
networkx 3.0 - write_gpickle=pickle.dump info
torchtext 0.9 - Field@data LabelField@data BucketIterator@data TabularDataset@data Iterator@data RawField@data
torchtext 0.9 - ReversibleField@data NestedField@data
torchtext 0.12 - /legacy legacy
tensorflow 2.0 - Session=tensorflow.compat.v1 placeholder=tensorflow.compat.v1 ConfigProto=tensorflow.compat.v1
tensorflow 2.0 - GPUOptions=tensorflow.compat.v1 app=tensorflow.compat.v1 flags=tensorflow.compat.v1 /contrib contrib
tensorflow 2.0 - get_variable=tensorflow.compat.v1 variable_scope=tensorflow.compat.v1 gfile=tensorflow.io.gfile
tensorflow 2.0 - reset_default_graph=tensorflow.compat.v1 set_random_seed=tensorflow.random.set_seed
tensorflow 2.0 - global_variables_initializer=tensorflow.compat.v1 get_default_graph=tensorflow.compat.v1
gym 0.22 - rendering@classic_control
librosa 0.8 - /output=soundfile output=soundfile
"""

RELEASED = {
    "pandas": "2.0 2023-04",
    "gensim": "4.0 2021-03",
    "sklearn": "0.20 2018-09 0.22 2019-12 0.23 2020-05 1.2 2022-12 1.4 2024-01 1.6 2024-12 1.8 2025-12",
    "scipy": "1.3 2019-05 1.13 2024-04 1.14 2024-06",
    "networkx": "3.0 2023-01",
    "torchtext": "0.9 2021-03 0.12 2022-03",
    "tensorflow": "2.0 2019-09",
    "librosa": "0.8 2020-07",
}

PAGES = {
    "pandas": "https://pandas.pydata.org/docs/whatsnew/v{release}.0.html",
    "gensim": "https://github.com/piskvorky/gensim/wiki/Migrating-from-Gensim-3.x-to-4",
    "sklearn": "https://scikit-learn.org/stable/whats_new/v{release}.html",
    "scipy": "https://docs.scipy.org/doc/scipy/release/{release}.0-notes.html",
    "networkx": "https://networkx.org/documentation/stable/release/release_{release}.html",
    "torchtext": "https://github.com/pytorch/text/releases",
    "tensorflow": "https://www.tensorflow.org/guide/migrate",
    "gym": "https://github.com/openai/gym/releases/tag/{release}.0",
    "librosa": "https://librosa.org/doc/latest/changelog.html",
}
