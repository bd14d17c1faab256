"""Did a download of a model or dataset fail, or was a service unreachable?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from mgpu.check import Fix
from mgpu.signature import Case, Meaning, Row, signatures
from mgpu.snapshot import UncaughtException

from .._wording import at_place
from ._circumstances import every, message, never, reported, said, several_ranks, within
from ._file_call_cases import OTHER_SERVER
from ._library_cases import UPLOAD, not_made
from ._local_servers import LOCAL_HOST
from ._other_hosts import NAME_OF_TOKENIZER, OTHER_SERVER_BUSY, of_host
from ._relative_paths import NAME_WITHOUT_SLASH

_ERRORS = "https://huggingface.co/docs/huggingface_hub/package_reference/utilities"
_GATED = "https://huggingface.co/docs/hub/models-gated"
_OFFLINE = "https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables"
_DEFER = "https://github.com/huggingface/accelerate/blob/main/docs/source/concept_guides/deferring_execution.md"
_WANDB = "https://docs.wandb.ai/guides/track/environment-variables"
_DATASETS = "https://huggingface.co/docs/datasets/loading"


def _where_called(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Name the line of a program in one process, as far as its traceback shows that it is one."""
    if raised is None or not raised.place or raised.by_torch or raised.ranks:
        return None
    return Meaning(
        f"{raised.place} calls {groups['call']}() without a run: wandb.init() was not called in this process",
        "The script reports to Weights & Biases without having started a run, or it starts one on another path (an "
        "option, another script). With several processes, only the one that called wandb.init() can do it.",
        (
            Fix(
                "Call wandb.init() before that line, or turn off the option that makes the script report.",
                ("wandb.init(project='PROJECT')", "if wandb.run is not None: wandb.log({'loss': loss})"),
            ),
        ),
    )


_ONE_LETTER = re.compile(
    r"(?:^|[\s:'\"])(?P<of>[A-Za-z])['\"]? is not a local folder|path_or_model_id: '(?P<path>[A-Za-z])'|"
    r"Dataset '(?P<data>[A-Za-z])' doesn't exist|"
    r"https://[\w.-]+/(?:api/)?(?:(?:datasets|models|spaces)/)?(?P<url>[A-Za-z])/(?:resolve|tree|revision)/"
)


def _one_letter(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain a name of one letter: a string was indexed, or a loop went over it, where a list was meant."""
    found = _ONE_LETTER.search(f"{raised.message}\n{raised.more or ''}") if raised is not None else None
    if raised is None or found is None:
        return None
    letter = found["of"] or found["path"] or found["data"] or found["url"]
    where = at_place(raised)
    return Meaning(
        f"the Hub was asked for the name '{letter}', a single letter: probably the first one of the real name{where}",
        "Models and datasets have longer names, and no folder of this name is here. The code indexes a string as if it "
        "were a list (names[0]), or loops over it: a setting that is a list in other configs is one name here.",
        (
            Fix(
                "Pass the whole name there, or make the setting a list with one name.",
                ("print(repr(name))", "names = [names] if isinstance(names, str) else names"),
            ),
        ),
    )


# fmt: off
# `hf` exists since huggingface_hub 0.34; 1.0 removed huggingface-cli (huggingface.co/blog/hf-cli).
_FIRST = Fix("Download it once, on one rank or in advance, and then read it from the cache.",
             ("hf download ORG/MODEL", "HF_HUB_OFFLINE=1 mgpu launch train.py",
              "with accelerator.main_process_first():"))
_NAME_UNSET = Case(
    said(r"(?:huggingface\.co|hf-mirror\.com)/(?:api/)?(?:(?:datasets|models|spaces)/)?(?:None|null|undefined)"
         r"(?=[/?]|$)|"
         r"\b(?:None|null) is not a local folder|path_or_model_id: '(?:None|null)'|Dataset '(?:None|null)' doesn't"),
    "the name of the model or dataset is None: the option that holds it is not set",
    "None became text, and the Hub was asked for a repository of that name, which does not exist (it answers 401 or "
    "404 for it). A login does not help.",
    (Fix("Set the option with the name, or with the folder of a local copy.",
         ("python train.py --help | grep -iE 'model|dataset|repo|root'",)),),
    "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: "
    "https://huggingface.co/api/datasets/None/refs",
    _ERRORS)
_SERVER_OF_RUN = Case(
    within(r"(?:^|/)(?:trl|swift|verl|openrlhf|slime|open_instruct|nemo_rl|axolotl|prime_rl)/\S*"
           r"(?:vllm|sglang|http|server|remote_rm)\w*\.py"),
    "the server that generates for this run (vLLM or SGLang) dropped the connection, or does not answer",
    "The trainer sends it prompts and weights over HTTP. It exited, restarted, ran out of memory, or closed an idle "
    "connection; the client of this version does not retry. The internet and the Hub are not involved.",
    (Fix("Check whether the server still runs, and read the end of its own log.",
         ("curl -s http://HOST:8000/health/", "mgpu doctor --log server.log")),
     Fix("If it runs, the drop was temporary: upgrade the trainer, whose newer clients retry, and resume from the last "
         "checkpoint.", ("pip install --upgrade trl",))),
    "Traceback (most recent call last):\n"
    '  File "/w/grpo.py", line 131, in <module>\n'
    "    trainer.train()\n"
    '  File "/env/lib/python3.11/site-packages/trl/extras/vllm_client.py", line 262, in update_named_param\n'
    "    response = self.session.post(url, json=data)\n"
    '  File "/env/lib/python3.11/site-packages/requests/adapters.py", line 682, in send\n'
    "    raise ConnectionError(err, request=request)\n"
    "requests.exceptions.ConnectionError: ('Connection aborted.', RemoteDisconnected('Remote end closed connection "
    "without response'))\n",
    "https://github.com/huggingface/trl/issues/3622")
_UNNAMED_SERVER = Case(
    every(never(within(r"^(?:huggingface_hub|datasets|transformers|diffusers|wandb|gdown|modelscope|timm)/")),
          message("Remote|Read timed out|IncompleteRead|Protocol"),
          never(message(r"https://|HTTPSConnectionPool"))),
    "a server did not answer, or closed the connection",
    "The message does not name it: {the_traceback} shows which client called it. It can be a service of this run (a "
    "reward model, an inference server, a proxy), which exited or was overloaded.",
    Fix("Check that the server still runs, and read the end of its own log.", ("env | grep -i proxy",)),
    "Traceback (most recent call last):\n"
    '  File "/w/reward.py", line 31, in score\n'
    "    response = session.post(URL, json=data)\n"
    '  File "/env/lib/python3.11/site-packages/requests/adapters.py", line 682, in send\n'
    "    raise ConnectionError(err, request=request)\n"
    "requests.exceptions.ConnectionError: ('Connection aborted.', RemoteDisconnected('Remote end closed connection "
    "without response'))\n",
    "https://requests.readthedocs.io/en/latest/api/#requests.ConnectionError")

_VALUE_HEAD = Case(
    every(message(r"Repo id must be|HFValidation|Entry Not Found|EntryNotFound"),
          within(r"^trl/models/modeling_base\.py in from_pretrained")),
    "the model was loaded, but trl does not find the weights of its value head in that folder, and asks the Hub for "
    "them",
    "AutoModelForCausalLMWithValueHead first loads the base model, and then looks for a file with v_head: "
    "pytorch_model.bin or its index (newer releases also model.safetensors). The folder was saved as several "
    "safetensors files, or without the head, and trl takes its path as the name of a repository.",
    (Fix("Check which files the folder has.", ("ls -ld PATH/*",)),
     Fix("Save the model with its head in a form that this trl reads, or upgrade trl.",
         ("model.save_pretrained(FOLDER, safe_serialization=False)", "pip show trl transformers")),
     Fix("Without a trained head: load the base model, and give it a new one.",
         ("base = AutoModelForCausalLM.from_pretrained(FOLDER)",
          "model = AutoModelForCausalLMWithValueHead.from_pretrained(base)"))),
    "Traceback (most recent call last):\n"
    '  File "/w/ppo.py", line 27, in <module>\n'
    "    model = AutoModelForCausalLMWithValueHead.from_pretrained(path)\n"
    '  File "/env/lib/python3.10/site-packages/trl/models/modeling_base.py", line 321, in from_pretrained\n'
    "    filename = hf_hub_download(\n"
    '  File "/env/lib/python3.10/site-packages/huggingface_hub/utils/_validators.py", line 158, in validate_repo_id\n'
    "    raise HFValidationError(\n"
    "huggingface_hub.utils._validators.HFValidationError: Repo id must be in the form 'repo_name' or "
    "'namespace/repo_name': '/data/ppo_model'. Use `repo_type` argument if needed.\n",
    "https://github.com/huggingface/trl/blob/v0.7.4/trl/models/modeling_base.py")
_BY_URL = Case(
    message("urlopen error"),
    "this node could not download a file: it has no internet access, or needs a proxy",
    "The code fetches a file with Python's urllib (weights of a model, as torch.hub, CLIP and timm do, or data). "
    "Compute nodes often reach no server outside. Files that are in the cache already are not fetched.",
    (Fix("Run that line once on a node with internet access, such as the login node, with the same home or cache "
         "folder.",
         ("curl -sI https://huggingface.co | head -1",
          "ls ~/.cache/torch/hub/checkpoints ~/.cache/clip ~/.cache/huggingface/hub")),
     Fix("Or set the proxy, or pass the path of a file that you copied.", ("env | grep -i proxy",))),
    "Traceback (most recent call last):\n"
    '  File "/home/ada/CLIP/clip/clip.py", line 56, in _download\n'
    "    with urllib.request.urlopen(url) as source:\n"
    "urllib.error.URLError: <urlopen error [Errno 101] Network is unreachable>\n",
    "https://docs.python.org/3/library/urllib.error.html#urllib.error.URLError")

_SERVICE_SILENT = Case(
    reported(r"Error communicating with wandb process"),
    "wandb.init() failed: the process that Weights & Biases starts on this node did not answer in time",
    "wandb.init() starts a process of its own, which contacts the server. It did not start in time (many ranks start "
    "one at once, a slow shared disk), or it reaches no server: no internet access, or a proxy.",
    (Fix("Train without it, and upload the run later.",
         ("export WANDB_MODE=offline", "wandb sync wandb/offline-run-*")),
     Fix("Start it on the main process only, in a thread instead of a process, and upgrade it.",
         ("WANDB_START_METHOD=thread mgpu launch train.py", "pip install --upgrade wandb",
          "env | grep -i proxy"))),
    "wandb: ERROR Error communicating with wandb process", "https://github.com/wandb/wandb/issues/3134")
_CALLED_BY_RANK = Case(
    several_ranks,
    "{call}() was called in a process in which wandb.init() was not",
    "On several ranks usually only the main process calls wandb.init().",
    Fix("Call it on the main process only: the one that called wandb.init().",
        ("if accelerator.is_main_process: wandb.log({{'loss': loss}})", "mgpu doctor --script train.py")),
    "[rank1]: wandb.errors.Error: You must call wandb.init() before wandb.log()",
    "https://docs.wandb.ai/guides/track/log/distributed-training")
ROWS = (
    Row("log_hub_too_many_requests", "root", "library", r"429 Client Error|Error\b.*Too Many Requests",
        ("requests.exceptions.HTTPError: 429 Client Error: Too Many Requests for url: https://huggingface.co/...",
         "huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for url: https://hf.co/x",
         "HTTPStatusError: Client error '429 Too Many Requests' for url 'https://huggingface.co/x'"),
        "the server rejected the request: too many requests",
        "Every rank on every node requests the same files from the Hub.", _FIRST, _DEFER, cases=(OTHER_SERVER_BUSY,)),
    Row("log_hub_access_denied", "root", "library",
        r"Cannot access gated repo|GatedRepoError|401 Client Error|403 Client Error|"
        r"You are trying to access a gated repo|[Cc]lient error '40[13]|HfHubHTTPError: 40[13]\b|"
        r"Access to (?:model|dataset) \S+ is restricted|Invalid (?:user token|credentials in Authorization header)"
        r"|is a gated (?:dataset|repository)\b|Token is required (?:\(|to call).{0,60}no token found",
        ("huggingface_hub.errors.GatedRepoError: 403 Client Error.",
         "Cannot access gated repo for url https://huggingface.co/meta-llama/x/resolve/main/config.json.",
         "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://huggingface.co/api/models/x",
         "OSError: You are trying to access a gated repo.",
         "huggingface_hub.errors.HfHubHTTPError: 403 Forbidden: You don't have the rights to create a model",
         "httpx.HTTPStatusError: Client error '401 Unauthorized' for url 'https://huggingface.co/api/whoami-v2'",
         "Access to model meta-llama/x is restricted. You must have access to it and be authenticated to access it.",
         "datasets.exceptions.DatasetNotFoundError: Dataset 'x/y' is a gated dataset on the Hub. You must be "
         "authenticated to access it.",
         "huggingface_hub.errors.LocalTokenNotFoundError: Token is required (`token=True`), but no token found. You "
         "need to provide a token"),
        "the Hub denied access to this model or dataset",
        "It is gated or private, and the token is missing on this node, has expired, or has no access.",
        Fix("Request access on its page, and log in where the ranks run.",
            ("hf auth login", "hf auth whoami", "export HF_TOKEN=...")), _GATED, cases=(OTHER_SERVER, _NAME_UNSET)),
    Row("log_hub_name_wrong", "root", "library",
        r"is not a local folder and is not a valid model identifier|RepositoryNotFoundError|"
        r"Incorrect path_or_model_id|"
        r"Repository Not Found for url|HFValidationError|doesn't exist on the Hub or cannot be accessed|"
        r"(?<!Local)EntryNotFoundError",
        ("OSError: metallama/x is not a local folder and is not a valid model identifier listed on "
         "'https://huggingface.co/models'", "huggingface_hub.errors.RepositoryNotFoundError: 404 Client Error.",
         "OSError: Incorrect path_or_model_id: '/data/model'. Please provide either the path to a local folder or the "
         "repo_id of a model on the Hub.",
         "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': "
         "'/data/llama'.", "datasets.exceptions.DatasetNotFoundError: Dataset 'x/y' doesn't exist on the Hub or cannot "
         "be accessed."),
        "no model, dataset or folder has this name",
        "It is a typo, or a local path that is not mounted on this node (a path that does not exist is interpreted as "
        "a name).",
        Fix("Check whether the folder exists on every node.", ("ls -ld PATH",)), _ERRORS,
        cases=(replace(_NAME_UNSET, sample="OSError: None is not a local folder and is not a valid model identifier "
                       "listed on 'https://huggingface.co/models'"), NAME_WITHOUT_SLASH, _VALUE_HEAD),
        explain=_one_letter),
    Row("log_hub_unreachable", "root", "library",
        r"outgoing traffic has been disabled|OfflineModeIsEnabled|LocalEntryNotFoundError|"
        r"couldn't connect to '?https://huggingface\.co|Couldn't reach .* on the Hub|Couldn't reach "
        r"https://raw\.github|"
        r"Cannot send a request to the .* offline|Couldn't find .* on the Hugging Face Hub"
        r"|Couldn't reach the Hugging Face Hub for|Dataset \S+ is not cached in",
        ("huggingface_hub.errors.OfflineModeIsEnabled: Cannot reach https://huggingface.co/x: offline mode is enabled.",
         "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the "
         "cached files.", "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate cached snapshot "
         "folder for the specified revision on the local disk and outgoing traffic has been disabled.",
         "ConnectionError: Couldn't reach 'imdb' on the Hub (ConnectionError)",
         "ConnectionError: Couldn't reach https://raw.githubusercontent.com/x/accuracy.py (ReadError)",
         "ConnectionError: Couldn't reach the Hugging Face Hub for dataset 'x/y': [Errno -3] Temporary failure",
         "FileNotFoundError: Dataset imdb is not cached in None"),
        "files are not in the cache, and the Hub is unreachable from here",
        "Compute nodes often have no internet access. Or HF_HUB_OFFLINE is set, or HF_HOME is not the folder that the "
        "files were downloaded to.",
        Fix("Download them on a node with internet access, into a cache that the ranks can read.",
            ("HF_HOME=/scratch/hf hf download ORG/MODEL",
             "mgpu doctor --only hf_cache_empty_offline,storage")), _OFFLINE, cases=(UPLOAD,)),
    Row("log_download_damaged", "root", "library",
        r"Consistency check failed: file should be of size|NonMatching(?:Splits|Checksum)\w*Error|"
        r"ChecksumMismatch|ArrowInvalid: (?:Not an Arrow file|Unexpected end of stream|Expected to read)",
        ("OSError: Consistency check failed: file should be of size 4976698672 but has size 1043 "
         "(model-1.safetensors).",
         "datasets.exceptions.NonMatchingSplitsSizesError: [{'expected': x}]",
         "pyarrow.lib.ArrowInvalid: Not an Arrow file"),
        "a downloaded or cached file is incomplete",
        "The download was cut short, the disk is full, or several ranks wrote to the same cache.",
        (Fix("Download it again.", ("hf download --force-download ORG/MODEL", "df -h ~/.cache")), _FIRST),
        _ERRORS),
    Row("log_dataset_script_refused", "root", "library",
        r"Dataset scripts are no longer supported|contains custom code which must be executed|"
        r"loading this dataset requires you to execute|Please pass the argument `trust_remote_code=True`"
        r"|Loading (?:this (?:dataset|model)|\S+) requires you to execute",
        ("RuntimeError: Dataset scripts are no longer supported, but found pg19.py",
         "ValueError: Loading x/y requires you to execute the configuration file in that repo on your local machine. "
         "Please pass the argument `trust_remote_code=True` to allow custom code to be run.",
         "ValueError: The repository for x/y contains custom code which must be executed to correctly load the model.",
         "ValueError: Loading this model requires you to execute custom code contained in the model repository on "
         "your local machine. Please set the option `trust_remote_code=True` to permit loading of this model."),
        "the model or dataset contains its own code, which does not run without permission, or no longer runs",
        "datasets 4 does not run loading scripts. Models require trust_remote_code, and prompt on a terminal that "
        "ranks lack.",
        Fix("If you trust the code, allow it. For a dataset, use its Parquet version.",
            ("from_pretrained(..., trust_remote_code=True)",
             "load_dataset(NAME, revision='refs/convert/parquet')")), _DATASETS),
    Row("log_dataset_not_made", "wrapper", "library",
        r"DatasetGenerationError|An error occurred while generating the dataset",
        ("datasets.exceptions.DatasetGenerationError: An error occurred while generating the dataset",),
        "a dataset could not be prepared; the cause is the exception before it",
        "One of its files is damaged or has different columns, or the disk is full.",
        Fix("Prepare it in one process, and read the first exception.", ("python train.py",)), _DATASETS,
        explain=not_made),
    Row("log_certificate_refused", "root", "library", r"CERTIFICATE_VERIFY_FAILED|SSLCertVerificationError|"
        r"Tunnel connection failed: \d+",
        ("requests.exceptions.SSLError: HTTPSConnectionPool(host='huggingface.co', port=443): (Caused by "
         "SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed')))",
         "OSError: Tunnel connection failed: 407 Proxy Authentication Required"),
        "a secure connection was rejected: a proxy intercepts it, or certificates are missing",
        "Company proxies sign with their own certificate, which Python does not trust.",
        Fix("Set the certificate and the proxy.",
            ("export SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt REQUESTS_CA_BUNDLE=$SSL_CERT_FILE",
             "env | grep -i proxy")), "https://docs.python.org/3/library/ssl.html"),
    Row("log_network_failed", "secondary", "network",
        r"^(?!.*(?:host='|://)(?:localhost|127\.|0\.0\.0\.0|10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.))"
        rf"(?!.*\bHTTPConnectionPool\(host='(?:{LOCAL_HOST})', port=).*"
        r"(?:Max retries exceeded with url|NameResolutionError|"
        r"ReadTimeoutError|Read timed out|ConnectTimeout|RemoteDisconnected|IncompleteRead|ProtocolError\(|"
        r"<urlopen error (?:timed out|\[Errno (?:-[235]|10[14]|11[03])\]))",
        ("requests.exceptions.ConnectionError: HTTPSConnectionPool(host='huggingface.co', port=443): Max retries "
         "exceeded with url: /x (Caused by NameResolutionError(': Failed to resolve'))",
         "requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='x', port=443): Read timed out. (read timeout=10)",
         "urllib3.exceptions.ProtocolError: ('Connection aborted.', RemoteDisconnected('closed'))",
         "urllib.error.URLError: <urlopen error [Errno 101] Network is unreachable>",
         "urllib.error.URLError: <urlopen error [Errno -2] Name or service not known>"),
        "a server on the internet could not be reached",
        "This node has no internet access, needs a proxy, or had a temporary failure. Tracking services retry, "
        "downloads fail.",
        (Fix("Check for internet access.", ("curl -sI https://huggingface.co | head -1", "env | grep -i proxy")),
         _FIRST), _OFFLINE, cases=(_SERVER_OF_RUN, _BY_URL, _UNNAMED_SERVER), explain=of_host),
    Row("log_wandb_without_key", "root", "library",
        r"api_key not configured \(no-tty\)|wandb\.errors\S*\.(?:UsageError(?!: Error communicating)|"
        r"AuthenticationError)|"
        r"wandb: ERROR (?:api_key|Unable to (?:verify|authenticate)|It appears that you do not have permission)|"
        r"CommError: .*(?:[Pp]ermission (?:denied|to access)|\b40[134]\b|not logged in|entity \S+ not found)",
        ("wandb.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])",
         "wandb: ERROR It appears that you do not have permission to access the requested resource.",
         "wandb.errors.errors.CommError: failed to upsert bucket: returned error 403 Forbidden: permission denied",
         "wandb.errors.errors.AuthenticationError: The API key you provided is either invalid or missing."),
        "Weights & Biases has no API key here, or no access, and cannot prompt for one",
        "The ranks have no terminal.",
        Fix("Log in beforehand, or use offline mode.", ("wandb login", "export WANDB_MODE=offline")), _WANDB),
    Row("log_wandb_not_started", "root", "library",
        r"You must call [`']?wandb\.init\(\)[`']? before [`']?(?P<call>[\w.]+)",
        ("wandb.errors.Error: You must call wandb.init() before wandb.log()",
         "wandb.errors.errors.Error: You must call wandb.init() before wandb.plot_table()"),
        "{call}() was called in a process in which wandb.init() was not",
        "The script reports to Weights & Biases without having started a run in this process, or it starts one on "
        "another path (an option, another script).",
        Fix("Call wandb.init() before, or turn off the option that makes the script report.",
            ("wandb.init(project='PROJECT')", "if wandb.run is not None: wandb.log({{'loss': loss}})")), _WANDB,
        summary="Weights & Biases was used in a process that had not called wandb.init().",
        explain=_where_called, cases=(_CALLED_BY_RANK,)),
    Row("log_wandb_timed_out", "root", "library",
        r"wandb\.errors\S*\.(?:CommError(?!: .*(?:[Pp]ermission|\b40[134]\b|not logged in|entity \S+ not found))|"
        r"UsageError: Error communicating)|"
        r"wandb: ERROR Error communicating with wandb process|Run initialization has timed out|wandb: Network error \(",
        ("wandb.errors.errors.CommError: Run initialization has timed out after 90.0 sec.",
         "wandb.errors.CommError: It appears that there was an issue communicating with W&B.",
         "wandb: ERROR Error communicating with wandb process"),
        "Weights & Biases could not be reached",
        "The node has no internet access, or every rank opens a run of its own.",
        Fix("Start it on the main process only, or use offline mode.",
            ("export WANDB_MODE=offline", "wandb sync wandb/offline-run-*", "mgpu doctor --script train.py")), _WANDB,
        cases=(_SERVICE_SILENT,)),
    Row("log_lock_not_had", "root", "library", r"filelock\.\S*Timeout: |The file lock '.*' could not be acquired|"
        r"\[Errno 37\] No locks available|OSError: \[Errno 9\] .*flock",
        ("filelock._error.Timeout: The file lock '/home/u/.cache/x.lock' could not be acquired.",
         "OSError: [Errno 37] No locks available"),
        "a lock file in a cache could not be acquired",
        "Another rank, or a killed one, holds it. Or the cache is on a disk without locking (NFS without its lock "
        "service).",
        Fix("Put the cache on a local disk, and delete locks left by dead processes.",
            ("export HF_HOME=/local/hf", "find ~/.cache/huggingface -name '*.lock' -delete",
             "mgpu doctor --only hf_cache_on_network")), _OFFLINE),
    Row("log_tokenizer_not_built", "root", "library",
        r"Couldn't instantiate the backend tokenizer|"
        r"Can't load tokenizer for '"
        r"|Cannot instantiate this tokenizer from a slow version|Unable to load vocabulary from file\.",
        ("ValueError: Couldn't instantiate the backend tokenizer from one of:",
         "OSError: Can't load tokenizer for 'x/y'. If you were trying to load it from 'https://huggingface.co/models', "
         "make sure you don't have a local directory with the same name.",
         "ValueError: Cannot instantiate this tokenizer from a slow version. If it's based on sentencepiece, make "
         "sure you have sentencepiece installed.",
         "OSError: Unable to load vocabulary from file. Please check that the provided vocabulary is accessible and "
         "not corrupted."),
        "the tokenizer cannot be created: one of its files or packages is missing",
        "Its files were not saved with the model, or sentencepiece, tiktoken or protobuf is not installed.",
        Fix("Install them, and check which files exist.", ("pip install sentencepiece tiktoken protobuf",
                                                           "ls MODEL")),
        "https://huggingface.co/docs/transformers/main_classes/tokenizer", cases=(NAME_OF_TOKENIZER,)),
    Row("log_nltk_data_missing", "root", "library",
        r"^\s*Resource '?(?:[a-z_]+/)?(?P<name>[a-z_\d]+(?:-\d+\.\d+)?)(?:[./][\w./-]*)?'? not found\."
        r"(?=\s*$|\s+Please use the NLTK)",
        ("  Resource punkt not found.", "  Resource 'tokenizers/punkt/english.pickle' not found.  Please use the NLTK"),
        "NLTK's data {name} is not on this machine",
        "NLTK downloads its data once, into nltk_data of the home folder. A compute node without internet cannot, and "
        "another home folder or container does not have it. punkt_tab is the form of punkt that newer releases need.",
        Fix("Download it on a machine with internet, and show NLTK the folder.",
            ("python -m nltk.downloader -d ~/nltk_data {name:id}",
             "export NLTK_DATA=$HOME/nltk_data")),
        "https://www.nltk.org/data.html"),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
