"""Every kernel once or more on small rows, for a memory or race checker to watch.

compute-sanitizer --tool memcheck --error-exitcode 1 python tests/sampling/small_shapes.py
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from flashtrie import sampling


def main() -> None:
    generator = np.random.default_rng(0)
    for dtype in (np.float32, np.float16):
        wide = generator.standard_normal((4, 6007)).astype(dtype)
        wide[1, 5], wide[2, :] = np.nan, np.round(wide[2] * 4) / 4
        logits = cupy.asarray(wide)[:, :6003]
        for k, p in ((9, 1.0), (0, 0.9), (9, 0.9), (3000, 0.99), (0, 1.0)):
            for ties in ("index", "sort"):
                options: dict[str, Any] = {"top_k": k, "top_p": p, "ties": ties, "check": False}
                sampling.mask(logits, **options)
                sampling.sample(logits, 3, **options)
                sampling.candidates(logits, capacity=4500, in_order=True, **options)
                sampling.candidates(logits, capacity=30, **options)
        flat = cupy.zeros((2, 9001), dtype)  # no list holds it: the pivot search
        sampling.mask(flat, top_k=50)
        sampling.sample(flat, 3, top_p=0.5)
    cupy.cuda.Device().synchronize()


if __name__ == "__main__":
    main()
