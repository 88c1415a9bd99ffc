"""What a run says about its clients: NumPy arrays in, numbers with their doubt out.

`per_client` turns per-example outcomes into one number for each client, `summarize` turns those into the table's
columns, `interval` and `paired_interval` speak over seeds, `hurt` says who is worse off than alone.
"""

from apiece.evaluate.clients import per_client, sizes_of
from apiece.evaluate.hurt import Hurt, hurt
from apiece.evaluate.metrics import Interval, interval, paired_interval, r2, summarize

__all__ = ["Hurt", "Interval", "hurt", "interval", "paired_interval", "per_client", "r2", "sizes_of", "summarize"]
