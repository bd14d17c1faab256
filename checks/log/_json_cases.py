"""Which file is not JSON, by what reads it and where the reader stopped? Cases of `log_json_damaged` and others."""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case

from ._circumstances import either, every, reported, said, within

_JSON = "https://docs.python.org/3/library/json.html#json.JSONDecodeError"
_LINES = "https://huggingface.co/docs/datasets/loading#json"
_READ = (
    'Traceback (most recent call last):\n  File "/home/user/train.py", line 12, in main\n    run(args)\n'
    '  File "{file}", line 7, in {function}\n    value = json.load(f)\n'
    "json.decoder.JSONDecodeError: {what}"
)
_EMPTY = "Expecting value: line 1 column 1 (char 0)"
_BY_LINE = (
    "Several JSON values follow each other where one is expected. At the first column of line 2, the file is "
    "JSON Lines (one object per line). At a later line, each object is spread over several lines: that is "
    "neither JSON nor JSON Lines."
)
# fmt: off
_ONE_PER_LINE = Fix("Write one object per line, without line breaks in it.",
                    ("jq -c . FILE > FIXED.jsonl", "python -m json.tool --json-lines FIXED.jsonl | head"))

BROKEN_JSON = (
    Case(within(r"^(?:accelerate/utils/(?:deepspeed|dataclasses)|transformers/(?:integrations/)?deepspeed|"
                r"deepspeed/runtime/config\w*)\.py in |in (?:_?load_deepspeed\w*|load_ds_config|"
                r"get_deepspeed_config)$"),
         "the DeepSpeed config is not valid JSON: {what}",
         "At line 1 column 1 (char 0) the file is empty, or is not JSON at all: YAML (accelerate's own config), a path "
         "in place of the content, or a file that another rank was writing. At a later place it has a comment, a "
         "trailing comma, a single quote, or True instead of true.",
         (Fix("Check the file that --deepspeed or deepspeed_config_file names.",
              ("python -m json.tool DS_CONFIG.json",)),
          Fix("A config of accelerate (YAML) goes to accelerate, not to --deepspeed.",
              ("accelerate launch --config_file CONFIG.yaml train.py",))),
         _READ.format(file="/x/site-packages/accelerate/utils/deepspeed.py", function="__init__", what=_EMPTY),
         "https://huggingface.co/docs/transformers/deepspeed"),
    Case(within(r"in (?:load_from_json|_load_state|load_state)$|trainer_callback\.py in "),
         "the training state of a checkpoint is damaged (trainer_state.json): {what}",
         "The run before stopped while it wrote the file, or the disk was full. It is then empty or cut off.",
         (Fix("Resume from the checkpoint before it, and move this one away.",
              ("python -m json.tool CHECKPOINT/trainer_state.json > /dev/null", "ls -la CHECKPOINT; df -h .")),),
         _READ.format(file="/x/site-packages/transformers/trainer_callback.py", function="load_from_json",
                      what=_EMPTY), _JSON),
    Case(within(r"^transformers/(?:configuration_utils|tokenization_\w+|modeling_utils|utils/hub|processing_utils|"
                r"image_processing\w*|generation/configuration_utils|feature_extraction_utils)\.py in |"
                r"^(?:diffusers|peft|sentence_transformers)/\S+ in (?:_?dict_from_json_file|load_config|"
                r"from_pretrained|"
                r"from_json_file|_get_peft_type|_get_checkpoint_shard_files)$|get_checkpoint_shard_files"),
         "a JSON file in the model's folder is damaged: {what}",
         "config.json, tokenizer_config.json, adapter_config.json or the weights' index is empty or cut off: a "
         "download that stopped, a Git LFS pointer, a full disk, or several ranks that saved to one folder.",
         (Fix("Find it, and download or copy it again.",
              ("for f in MODEL_FOLDER/*.json; do python -m json.tool \"$f\" > /dev/null || echo \"$f\"; done",
               "hf download ORG/MODEL --force-download")),),
         _READ.format(file="/x/site-packages/transformers/configuration_utils.py", function="_dict_from_json_file",
                      what=_EMPTY), _JSON),
    Case(within(r"^(?:requests|httpx|huggingface_hub|wandb|openai|aiohttp)/\S+ in "),
         "a server answered with something that is not JSON: {what}",
         "The answer is empty or an HTML page: a proxy, a login page, an error of the server, or a wrong address.",
         (Fix("Look at the answer itself.", ("curl -sS -i URL | head -20", "env | grep -i proxy")),),
         _READ.format(file="/x/site-packages/requests/models.py", function="json", what=_EMPTY), _JSON),
    Case(said(r"Extra data: line 2 column 1\b"),
         "the file is JSON Lines (one object per line), and is read as one JSON value: {what}",
         "The first line is a complete value, and a second one follows.",
         (Fix("Read it line by line, or through datasets.",
              ("[json.loads(line) for line in open(path)]", "load_dataset('json', data_files=FILE)")),),
         _READ.format(file="/home/user/data.py", function="load", what="Extra data: line 2 column 1 (char 97)"), _JSON),
    Case(said(r"Extra data: line \d+ column \d+"),
         "the file holds several JSON values after each other, of several lines each: {what}", _BY_LINE,
         (_ONE_PER_LINE, Fix("Or put all objects into one list: [ {{...}}, {{...}} ].", ("jq -s . FILE > "
                                                                                         "FIXED.json",))),
         _READ.format(file="/home/user/data.py", function="load", what="Extra data: line 31 column 2 (char 4711)"),
         _JSON),
    Case(said(r"Expecting property name enclosed in double quotes|Expecting ',' delimiter|Invalid control character|"
              r"Invalid \\escape|Unterminated string|Illegal trailing comma"),
         "a JSON file has a mistake in its text: {what}",
         "The position in the message is where the reader stopped; the mistake is there or just before it: a trailing "
         "comma, a comment, single quotes, a missing comma, a line break or a backslash in a text, or the end of the "
         "file was cut off.",
         (Fix("Look at that line of the file.", ("python -m json.tool FILE",)),),
         _READ.format(file="/home/user/data.py", function="load",
                      what="Expecting property name enclosed in double quotes: line 9 column 3 (char 150)"), _JSON),
)
DATA_FILES = (
    Case(either(reported(r"JSONDecodeError: Extra data: line \d+ column \d+"),
                every(within(r"json/json\.py in _generate_tables"), said(r"JSON parse error: (?!Column)"))),
         "the data file is not JSON Lines: one object per line is expected, and its objects take several lines or are "
         "not separated",
         f"{_BY_LINE} datasets tries both, and reports the failure of the second attempt (a column that changed).",
         (_ONE_PER_LINE, Fix("Or put all objects into one list.", ("jq -s . FILE > FIXED.json",)),
          Fix("After the change, delete the cached copy.",
              ("load_dataset(..., download_mode='force_redownload')",))),
         'Traceback (most recent call last):\n  File "/x/site-packages/datasets/packaged_modules/json/json.py", line '
         '7, '
         "in _generate_tables\n    dataset = json.load(f)\njson.decoder.JSONDecodeError: Extra data: line 12 column 2 "
         "(char 512)\n\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most recent "
         'call last):\n  File "/x/site-packages/datasets/packaged_modules/json/json.py", line 9, in _generate_tables\n'
         "    pa_table = paj.read_json(f)\npyarrow.lib.ArrowInvalid: JSON parse error: Column() changed from object to "
         "string in row 0", _LINES),
)
# fmt: on
