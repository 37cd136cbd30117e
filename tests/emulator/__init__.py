"""The kernels of gpu/kernels on a machine without a GPU.

`cupy` stands in for CuPy with NumPy, `cuda.hpp` for the device with fibers, and `translate` brings
a kernel file to a C++ compiler. Everything of flashtrie.gpu then runs as it is, some thousand times
slower: launches, arguments, and every thread of every kernel.

What it tells: results, barriers that not all come to, lanes in different collectives, reads and
writes past an array on the device (behind each lies a page that cannot be touched). What it does
not: races, the order in which memory is seen, and time.
"""
