"""Models of the literature as graphs: `ops.models.gpt.build(batch=8)` gives a training step, `training=False` without.

Each module has `build`, whose arguments are the sizes of the published model, and says whose it is. They use the public
names of `ops` and `taskflow`, as any user's model does; `taskflow search ops.models.gpt:build` takes them by name.
"""

from ops.models import alexnet as alexnet
from ops.models import bert as bert
from ops.models import digits as digits
from ops.models import dlrm as dlrm
from ops.models import gpt as gpt
from ops.models import inception_v3 as inception_v3
from ops.models import lenet as lenet
from ops.models import mlp as mlp
from ops.models import moe as moe
from ops.models import nmt as nmt
from ops.models import resnet101 as resnet101
from ops.models import rnnlm as rnnlm
from ops.models import rnntc as rnntc
