"""The artifact: schema, header, reader, writer, checksums, and the succinct vectors in NumPy."""
