"""The catalog: one file per method, named as in its paper. A method is in it when the conformance product passes."""

from apiece.methods.al2sgd import al2sgd
from apiece.methods.all_for_all import all_for_all
from apiece.methods.all_for_one import all_for_one
from apiece.methods.apfl import apfl
from apiece.methods.chen_two_stage import chen_two_stage
from apiece.methods.ditto import ditto
from apiece.methods.dynamic_lambda import dynamic_lambda
from apiece.methods.fed_adam import fed_adam
from apiece.methods.fed_ala import fed_ala
from apiece.methods.fed_avg import fed_avg
from apiece.methods.fed_babu import fed_babu
from apiece.methods.fed_clup import fed_clup
from apiece.methods.fed_dyn import fed_dyn
from apiece.methods.fed_em import fed_em
from apiece.methods.fed_proto import fed_proto
from apiece.methods.fed_prox import fed_prox
from apiece.methods.fed_rod import fed_rod
from apiece.methods.ffgg import ffgg
from apiece.methods.ftfa import ftfa
from apiece.methods.ifca import ifca
from apiece.methods.knn_per import knn_per
from apiece.methods.l2gd import l2gd
from apiece.methods.local import local
from apiece.methods.local_ffgg import local_ffgg
from apiece.methods.local_ridge import local_ridge
from apiece.methods.maml_fl import maml_fl
from apiece.methods.partial import fed_bn, fed_per, fed_rep, lg_fed_avg, partial
from apiece.methods.pfedme import pfedme
from apiece.methods.rtfa import rtfa
from apiece.methods.scaffold import scaffold
from apiece.methods.self_fl import self_fl
from apiece.methods.stack import stack
from apiece.methods.stack_tuned import stack_tuned
from apiece.registry import Registry

CATALOG = Registry("method", group="apiece.methods", positional=1, given=("model",)).add(
    local=local,
    fed_avg=fed_avg,
    fed_prox=fed_prox,
    ftfa=ftfa,
    rtfa=rtfa,
    ditto=ditto,
    pfedme=pfedme,
    scaffold=scaffold,
    fed_clup=fed_clup,
    dynamic_lambda=dynamic_lambda,
    l2gd=l2gd,
    al2sgd=al2sgd,
    chen_two_stage=chen_two_stage,
    apfl=apfl,
    self_fl=self_fl,
    all_for_one=all_for_one,
    all_for_all=all_for_all,
    ffgg=ffgg,
    local_ffgg=local_ffgg,
    partial=partial,
    fed_per=fed_per,
    fed_rep=fed_rep,
    lg_fed_avg=lg_fed_avg,
    fed_bn=fed_bn,
    maml_fl=maml_fl,
    fed_adam=fed_adam,
    ifca=ifca,
    knn_per=knn_per,
    fed_em=fed_em,
    fed_dyn=fed_dyn,
    fed_babu=fed_babu,
    fed_proto=fed_proto,
    fed_rod=fed_rod,
    fed_ala=fed_ala,
    local_ridge=local_ridge,
    stack=stack,
    stack_tuned=stack_tuned,
)

# What is compared when nothing else is said: they fit any model, and no two of them are nearly the same.
USUAL = ("local", "fed_avg", "fed_prox", "ftfa", "rtfa", "ditto", "pfedme", "scaffold", "fed_clup")

__all__ = ["CATALOG", "USUAL", *CATALOG.own]
