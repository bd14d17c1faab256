"""Did a package for graphs (PyTorch Geometric, DGL) or for sound (torchaudio, librosa, CTC) refuse its input?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

_GEOMETRIC = "https://pytorch-geometric.readthedocs.io/en/latest/install/installation.html"

# fmt: off
ROWS = (
    Row("log_graph_index_too_large", "root", "script",
        r"all indices in '(?P<what>\w+)' point to valid indices in the interval \[0, (?P<last>-?\d+)\] \(got interval "
        r"\[(?P<low>-?\d+), (?P<high>-?\d+)\]\)",
        ("IndexError: Encountered an index error. Please ensure that all indices in 'edge_index' point to valid "
         "indices in "
         "the interval [0, 99] (got interval [0, 120])",),
        "{what} names nodes from {low} to {high}, and the graph has the nodes 0 to {last}",
        "The node features x have fewer rows than the edges name nodes: node ids of the raw data were not numbered "
        "from "
        "0, isolated nodes have no row, a subgraph kept the ids of the whole graph, or batches were joined by hand.",
        (Fix("Number the nodes from 0, and compare both.",
             ("print(data.num_nodes, data.edge_index.max())", "data.validate(raise_on_error=True)")),
         Fix("Take subgraphs with the functions that renumber the edges.",
             ("torch_geometric.utils.subgraph(nodes, edge_index, relabel_nodes=True)",))),
        "https://pytorch-geometric.readthedocs.io/en/latest/get_started/introduction.html",
        summary="The edges of a graph name nodes that it does not have."),
    Row("log_graph_package_wanted", "root", "library",
        r"'(?P<function>\w+)' requires (?:either )?'(?P<package>torch-(?:cluster|scatter|sparse|spline-conv)|pyg-lib)'",
        ("ImportError: 'knn' requires 'torch-cluster'", "ImportError: 'NeighborSampler' requires either 'pyg-lib' or "
         "'torch-sparse'"),
        "{function} of PyTorch Geometric needs the package {package}, which is missing or does not load",
        "It has compiled code, built for exactly one torch and CUDA. If it is installed for another torch, PyTorch "
        "Geometric warns at the import (\"Disabling its usage\") and then works without it.",
        Fix("Install the wheel for this torch and CUDA.",
            ("python -c 'import torch; print(torch.__version__, torch.version.cuda)'",
             "pip install --force-reinstall --no-deps {package:package} -f "
             "https://data.pyg.org/whl/torch-2.6.0+cu124.html  # both versions", "pip check")), _GEOMETRIC,
        summary="A function of PyTorch Geometric needs a package that does not load."),
    Row("log_graph_lonely_nodes", "root", "script", r"There are 0-in-degree nodes in the graph",
        ("dgl._ffi.base.DGLError: There are 0-in-degree nodes in the graph, output for those nodes will be invalid.",),
        "some nodes of the graph have no incoming edge, so this layer has nothing to compute for them",
        "DGL stops because their result would always be 0. Citation and social graphs often have such nodes, and a "
        "directed graph has more of them.",
        Fix("Add an edge from each node to itself, or both directions; or accept the zeros.",
            ("g = dgl.add_self_loop(dgl.remove_self_loop(g))", "g = dgl.to_bidirected(g)",
             "GATConv(..., allow_zero_in_degree=True)")),
        "https://www.dgl.ai/dgl_docs/generated/dgl.nn.pytorch.conv.GATConv.html"),
    Row("log_audio_not_finite", "root", "script", r"Audio buffer is not finite everywhere",
        ("librosa.util.exceptions.ParameterError: Audio buffer is not finite everywhere",),
        "a sound has NaN or infinite values",
        "The file is damaged or empty, a division by its largest value met silence, or the model that made it has "
        "diverged.",
        Fix("Find the file, and divide only by what is not 0.",
            ("assert np.isfinite(y).all(), path", "y = y / max(1e-8, np.abs(y).max())")),
        "https://librosa.org/doc/latest/generated/librosa.util.valid_audio.html"),
    Row("log_audio_without_backend", "root", "library",
        r"Couldn't find appropriate backend to handle uri|[Nn]o audio (?:I/O )?backend is available|"
        r"audioread\.exceptions\.NoBackendError|Requested backend (?:sox|soundfile|ffmpeg) is not available|"
        r"sndfile library not found",
        ("audioread.exceptions.NoBackendError", "OSError: sndfile library not found",
         "RuntimeError: Couldn't find appropriate backend to handle uri /data/a.wav and format None.",
         "RuntimeError: No audio backend is available."),
        "torchaudio or librosa has no library that reads sound files",
        "They read them with FFmpeg, sox or soundfile, and found none. A path that does not exist, or a format that "
        "none of them reads, gives the same message. soundfile reads MP3 from release 0.12 on.",
        Fix("Install one, and check what it finds.",
            ("pip install 'soundfile>=0.12'", "conda install -c conda-forge 'ffmpeg<8' libsndfile",
             "python -c 'import torchaudio; print(torchaudio.list_audio_backends())'  # up to 2.8; later releases "
             "need torchcodec",
             "ls -la FILE.wav")),
        "https://docs.pytorch.org/audio/stable/torchaudio.html#backend"),
    Row("log_ctc_lengths_wrong", "root", "script",
        r"Expected input_lengths to have value at most (?P<most>\d+), but got value (?P<got>\d+)",
        ("RuntimeError: Expected input_lengths to have value at most 249, but got value 250 (while checking "
         "arguments for "
         "ctc_loss_gpu)",),
        "the CTC loss gets a length of {got} frames, and the model's output has {most}",
        "The lengths were computed for the sound or the spectrogram, or with another rounding than the layers that "
        "shorten it (strides, padding). Or the output is not in the order frames, batch, classes.",
        Fix("Compute the lengths as the layers do, and limit them to the output.",
            ("print(log_probs.shape, input_lengths.max())  # T, N, C",
             "input_lengths = input_lengths.clamp(max=log_probs.size(0))")),
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.CTCLoss.html",
        summary="The CTC loss gets a length of more frames than the model's output has."),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
