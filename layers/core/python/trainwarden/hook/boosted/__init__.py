"""What all boosted models have in common: rounds, losses, predictions of a fixed sample."""
