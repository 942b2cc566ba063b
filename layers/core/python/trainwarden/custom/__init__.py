"""Rules of your own, as modules in a folder, that run apart from everything else.

They run in a function without permissions (``answering``), are known to the pipeline by a
description (``describing``) and are asked through the port ``CustomRules`` (``asking``).
"""
