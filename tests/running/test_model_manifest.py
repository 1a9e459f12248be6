"""The manifest of a saved model is refused if the model could not be used by it."""

from __future__ import annotations

import math

import pytest

from coterie.data.dataset import FeatureColumn
from coterie.data.scaling import Scaling
from coterie.running.model_manifest import Manifest, Part, from_tree, to_tree


def of_dose(label_scaling: Scaling) -> Manifest:
    """Of a model that predicts a dose from an age."""
    return Manifest(
        "local", 0, 0, "", 1, (), "features", (1,), (FeatureColumn("age"),), "dose", Scaling((50.0,), (10.0,)), {}, "",
        (Part("model", "linear"),), "0.1.0", label_scaling=label_scaling, label_unit="mg",
    )  # fmt: skip


def test_it_reads_back() -> None:
    manifest = of_dose(Scaling((20.0,), (5.0,)))
    assert from_tree(to_tree(manifest)) == manifest


@pytest.mark.parametrize(("mean", "deviation"), [(20.0, 0.0), (math.inf, 5.0), (20.0, math.nan)])
def test_a_label_scaled_by_0_or_not_finite(mean: float, deviation: float) -> None:
    with pytest.raises(ValueError, match="a scaling of the label that is not finite, or by 0"):
        from_tree(to_tree(of_dose(Scaling((mean,), (deviation,)))))
