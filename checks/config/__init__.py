"""Will accelerate do with this config what the file says, on this machine?

* text: can the file be read at all?
* keys: does accelerate know its keys?
* yaml_traps: does YAML read what was written?
* ranks: how many ranks does it start, and are they what it says?
* rendezvous: where do its machines meet?
* gpus, precision: are its GPUs well named, and do they have its precision?
* machine: does it fit the GPUs and the Slurm job here?
* sections, values: do the nested sections count, is every key of theirs read, and can its value be?
* fsdp, wrapping, zero, zero_file, parallel, compiling: do the settings of one section fit each other and the machine?
* software: is what it asks for installed, and new enough?
* effect: does every setting do what it says, and does accelerate take the file?
* _schema, _value_kinds: the keys of every nested section, and how each is read.
* _spelling: how a finding writes a value, and which name was meant.
* _config_file: whether the file can be read, and where in it a key stands.
"""

from mgpu.check import Family

# fmt: off
ORDER = (
    "text", "keys", "yaml_traps", "ranks", "rendezvous", "gpus", "precision", "machine", "sections", "values", "fsdp",
    "wrapping", "zero", "zero_file", "parallel", "compiling", "software", "effect",
)
# fmt: on
FAMILY = Family(stops_start="always", known_at_start=True)
