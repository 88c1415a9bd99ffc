"""Method -> Method: variations by composition.

`fine_tuned`, `staged` and `pipeline` change what is trained after what; `per_client` gives everybody an option of its
own; `server_optimized` and `discounted` change how the server merges. The others are about clients that fail or lie:

    attacked(guarded(robust(method, rule)), attack, clients=[3, 8])

From the outside in: replies reach `attacked` first, which forges those of the attackers; then `guarded`, which rejects
what no honest client sends; then `robust`, which puts one robust answer in the place of all replies; then the method's
own merge. `robust` and `guarded` act on what any server receives, and can be deployed. `attacked` and `corrupted` are
for simulation only.

`compressed` sends shorter replies. `private` makes one noised mean of all replies, for differential privacy;
`accountant` says what that spends.
"""

from apiece.wrap.attacked import attacked, attackers, attackers_of
from apiece.wrap.attacks import ATTACKS, Attack, Scene, attack
from apiece.wrap.compressed import compressed
from apiece.wrap.corrupted import corrupted
from apiece.wrap.guarded import guard_of, guarded, rejections
from apiece.wrap.per_client import per_client
from apiece.wrap.private import averages_replies, private
from apiece.wrap.robust import robust
from apiece.wrap.served import discounted, server_optimized
from apiece.wrap.staged import pipeline, staged
from apiece.wrap.tuned import fine_tuned

__all__ = [
    "ATTACKS",
    "Attack",
    "Scene",
    "attack",
    "attacked",
    "attackers",
    "attackers_of",
    "averages_replies",
    "compressed",
    "corrupted",
    "discounted",
    "fine_tuned",
    "guard_of",
    "guarded",
    "per_client",
    "pipeline",
    "private",
    "rejections",
    "robust",
    "server_optimized",
    "staged",
]
