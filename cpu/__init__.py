"""Lookup, search and checks on the CPU: the default without a GPU, and the GPU's reference."""
