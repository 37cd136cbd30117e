"""Exact top-k and top-p on the GPU: CUDA kernels, and thin fronts that launch them."""
