"""The wire format: key grammar, codec, manifest and identity of a run."""
