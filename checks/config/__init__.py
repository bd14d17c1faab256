"""Will accelerate run this config the way the file says, on this machine?

* text: can the file be read at all?
* keys: are its keys ones that accelerate has?
* yaml_traps: does YAML read the values the way they were meant?
* ranks: how many ranks does it start, and is that the number it sets?
* completion: which values does the file leave to the command line?
* rendezvous: can its nodes reach one rendezvous endpoint?
* gpus, precision: are its GPU ids valid, and do the GPUs support its precision?
* machine: does it fit the GPUs and the Slurm job here?
* sections, values: do the nested sections apply, and are their keys and values valid?
* fsdp, wrapping, zero, parallel, compiling: do the settings of one section fit each other and the machine?
* zero_file, zero_file_values: can the DeepSpeed file that it names be used, and are its own settings valid?
* software: is the software it needs installed, and new enough?
* effect: does every setting have an effect, and does accelerate accept the file?
* _schema, _value_kinds: the keys of every nested section, and how each is read.
* _deepspeed_keys, _deepspeed_values, _learning_rate: what is wrong in a DeepSpeed file.
* _spelling: how a finding shows a value, and which name was meant.
* _config_file: whether the file can be read, and the position of its keys.
"""

from mgpu.check import Family

# fmt: off
ORDER = (
    "text", "keys", "yaml_traps", "ranks", "completion", "rendezvous", "gpus", "precision", "machine", "sections",
    "values", "fsdp", "wrapping", "zero", "zero_file", "zero_file_values", "parallel", "compiling", "software",
    "effect",
)
# fmt: on
FAMILY = Family(stops_start="always", known_at_start=True)
