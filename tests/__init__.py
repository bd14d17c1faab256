"""The tests of mgpu. `tests/README.md` says what is real in them and how to add to them."""
