"""Statistics: the catalogue of columns, the numpy kernel, merging and derived statistics."""
