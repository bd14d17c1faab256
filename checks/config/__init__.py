"""Will accelerate do with this config what the file says, on this machine?

* keys: can it be read, and does accelerate know its keys?
* ranks: how many ranks does it start, and is there a GPU for each?
* rendezvous: where do its machines meet?
* gpus: are the GPUs it names here, and do they have its precision?
* effect: does every setting do what it says, and does accelerate take the file?
* _file: whether the file can be read, and where in it a key stands.
"""

ORDER = ("keys", "ranks", "rendezvous", "gpus", "effect")
