"""The functions; Lambda imports this before anything of theirs."""

import gc

# What imports make stays. Looking for garbage among it takes a tenth of a cold start.
gc.set_threshold(50_000)
