"""Training jobs as processes of this machine; knows SageMaker's contract, not the emulator."""
