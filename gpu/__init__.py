"""Tries and exact top-k and top-p on the GPU. No command uses the tries yet: they are unproven."""
