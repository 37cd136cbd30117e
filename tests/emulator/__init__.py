"""The kernels of gpu/kernels on a machine without a GPU.

`cupy` stands in for CuPy with NumPy, `cuda.hpp` and `fibers.hpp` for the device, and `translate`
brings a kernel file to a C++ compiler. Everything of flashtrie.gpu then runs as it is, some
thousand times slower: launches, arguments, and every thread of every kernel.

What it tells: results, barriers that not all come to, lanes in different collectives, accesses
past an array on the device (behind each lies a page that cannot be touched) or of a block that
has left, and what blocks that come late see. What it does not: the order in which the memory of a
GPU is seen, races within a step of a warp, and time.
"""
