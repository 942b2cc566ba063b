"""Runs code written for SageMaker Debugger: replace ``smdebug`` by ``trainwarden.smdebug``."""
