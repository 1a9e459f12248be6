"""A projector for contrastive losses, and a prototype of each class in its space: the parts that MAPL adds."""

from __future__ import annotations

from torch import Tensor, nn

from coterie.models.custom import check_projector
from coterie.models.parts import Part, Site


class NormOfBatch(nn.BatchNorm1d):
    """Batch norm without running statistics, written out as a formula.

    Torch's kernel rounds elements that do not fill a register differently, so a model's result would depend on how
    many models are stacked.
    """

    def __init__(self, features: int) -> None:
        super().__init__(features, track_running_stats=False)

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(0)
        return centred * (centred.square().mean(0) + self.eps).rsqrt() * self.weight + self.bias


def _projector(site: Site) -> nn.Module:
    """MAPL's projection network: two layers, batch norm and ReLU on the hidden one only.

    Only losses use it, so it needs no statistics beyond the current batch.
    """
    hidden = site.settings.projector_hidden
    first = nn.Linear(site.net.d_z, hidden, bias=False)  # the norm would cancel a bias
    return nn.Sequential(first, NormOfBatch(hidden), nn.ReLU(), nn.Linear(hidden, site.d_p))


def _check(site: Site) -> None:
    check_projector(site.name, site.net, site.settings.d_p)


def _prototypes(site: Site) -> nn.Parameter:
    """One learnable point in projection space per class."""
    return nn.Parameter(nn.Linear(site.d_p, site.classes, bias=False).weight)


# No join: every net calls the projector that it has, as a user's net may bring one.
PROJECTOR = Part("projector", _projector, check=_check)
PROTOTYPES = Part("prototypes", _prototypes)
