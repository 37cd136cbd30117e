"""From Parquet to an artifact: plan, ranges, levels, concatenation."""
