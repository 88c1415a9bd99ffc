"""What a robust mean costs: the constants c of bucketing with Krum, the median and the geometric median.

A rule is (delta, c)-robust if E|rule - mean of the honest|^2 <= c delta P, where delta is the share of liars and P the
mean squared distance of two honest inputs. The literature has c as O(1), and as O(d) for the median. Here are numbers,
from short proofs. Of n inputs, put into N = ceil(n/s) buckets by chance, at most f buckets have a liar; a clean one is
the mean of s honest inputs drawn without replacement, so that E|y - z|^2 <= P/(2s) for the honest mean z, and
E|y - y'|^2 = P/s for two of them. Whatever the liars send:

- median, coordinate by coordinate: if it is t away, at least N/2 - f clean buckets are as far on that side, so that
  t^2 <= (sum over clean ones of |y - z|^2)/(N/2 - f);
- geometric median: N - 2f times its distance is at most twice the sum of |y - z| over the clean;
- Krum: the chosen bucket's m = N - f - 2 nearest have at least m - f clean ones among them, and its score is at most a
  clean one's mean score, m times P/s; so |krum - z|^2 <= 2/(m - f) (m P/s + sum over clean ones of |y - z|^2).

All three grow with the number of spoiled buckets: f of them, no two liars in one, is the case that counts. The buckets
must be of one size. That the median's constant has no d in it is because squares add up over coordinates.
"""

from apiece.errors import UserError, suggest

LIMITS = {"krum": 1 / 4, "median": 1 / 2, "geometric_median": 1 / 2}  # of the share of buckets that have a liar


def bucket_size(rule: str, clients: int, liars: int) -> int:
    """The published size of a bucket, floor(limit / delta): as large as the rule's limit for spoiled buckets allows.

    >>> bucket_size("krum", 80, 4), bucket_size("median", 80, 4)
    (5, 10)
    """
    return max(int(_limit(rule) * clients / liars + 1e-9), 1) if liars else clients


def robust_constant(rule: str, clients: int, liars: int, size: int) -> float:
    """c of a rule over buckets of that size, for so many liars among so many clients.

    An error where nothing is proved: Krum with more than a quarter of the buckets spoiled, others with half or more.

    >>> [round(robust_constant(rule, 80, 4, 5), 2) for rule in ("krum", "median", "geometric_median")]
    [21.33, 6.0, 18.0]
    """
    limit = _limit(rule)
    if not 0 < liars < clients or size < 1 or clients % size:
        raise UserError(f"{liars} liars among {clients} clients in buckets of {size}: there must be some liars, fewer "
                        "than clients, and the size must divide the clients")  # fmt: skip
    buckets = clients // size
    share = liars / buckets
    if share > limit or (limit == 1 / 2 and share == limit):
        raise UserError(
            f"'{rule}' is proved for up to {limit:g} of the buckets spoiled: {liars} liars in {buckets} are {share:.3g}"
        )
    clean, near = buckets - liars, buckets - liars - 2
    if rule == "krum" and near <= liars:
        raise UserError(f"'krum' needs more than {2 * liars + 2} buckets for {liars} liars, and has {buckets}")
    factor = {  # of P/s
        "krum": (2 * near + clean) / max(near - liars, 1),
        "median": clean / 2 / (buckets / 2 - liars),
        "geometric_median": 2 * (clean / (buckets - 2 * liars)) ** 2,
    }[rule]
    return factor / (size * liars / clients)


def _limit(rule: str) -> float:
    if rule not in LIMITS:
        raise UserError(f"no constant is known for the rule '{rule}': {suggest(rule, LIMITS)}")
    return LIMITS[rule]
