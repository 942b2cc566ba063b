"""The functions; Lambda imports this before anything of theirs."""

import gc

# Imports make 100,000 objects, which stay: to look for garbage among them takes a tenth of a cold
# start. Later on this only means looking less often.
gc.set_threshold(200_000)
