"""Every partition's plan, by name."""

from __future__ import annotations

from collections.abc import Callable

from coterie.data.partitions.by_class import plan_classes, plan_scenario, plan_windows
from coterie.data.partitions.dirichlet import plan_dirichlet
from coterie.data.partitions.plan import Plan, Request
from coterie.data.partitions.stratified import plan_iid, plan_independent, plan_label_swap, plan_quantity, plan_rotation

PLANS: dict[str, Callable[[Request], Plan]] = {
    "iid": plan_iid,
    "dirichlet": plan_dirichlet,
    "classes": plan_classes,
    "windows": plan_windows,
    "scenario1": plan_scenario,
    "scenario2": plan_scenario,
    "scenario3": plan_scenario,
    "scenario4": plan_scenario,
    "rotation": plan_rotation,
    "label-swap": plan_label_swap,
    "independent": plan_independent,
    "quantity": plan_quantity,
}
