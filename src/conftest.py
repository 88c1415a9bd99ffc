"""Examples of modules that need a framework which is not installed are left out."""

import importlib.util

collect_ignore = [] if importlib.util.find_spec("torch") else ["apiece/models/torch_passes.py"]
