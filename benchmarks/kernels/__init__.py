"""The workbench of the search kernel: its variants, naive first, and their figures."""
