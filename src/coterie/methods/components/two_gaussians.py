"""Hard-assignment EM of two Gaussians over similarities: which peers are of the own cluster (PANM)."""

from collections.abc import Sequence

import numpy as np

Similarities = dict[int, float]


def same_cluster(similar: Similarities, trusted: Sequence[int], steps: int = 100) -> list[int]:
    """The peers of the own cluster, by hard-assignment EM of two Gaussians over the similarities.

    Component 0 (the own cluster) starts as the trusted peers, component 1 as the others. EM ends when no assignment
    changes or a component is empty.
    """
    peers = sorted(similar)
    if not peers:
        return []
    y = np.array([similar[j] for j in peers])
    own = np.isin(peers, list(trusted))
    # The trusted peers were picked as the most similar, so they spread less than their cluster does: a component
    # is at least a tenth as wide as all similarities together.
    floor = 0.1 * float(y.std()) + 1e-12
    for _ in range(steps):
        if own.all() or not own.any():
            break
        centre, other = y[own].mean(), y[~own].mean()
        if centre <= other:  # contradicts the assumption that the own cluster is the more similar
            break
        after = _log_density(y, y[own], floor) > _log_density(y, y[~own], floor)
        # Between the centres the densities decide. Beyond them the wider Gaussian would win on both sides, and
        # assign the least similar peers of all to the own cluster.
        after = (after | (y >= centre)) & (y > other)
        if (after == own).all():
            break
        own = after
    return [j for j, is_own in zip(peers, own, strict=True) if is_own]


def _log_density(y: np.ndarray, members: np.ndarray, floor: float) -> np.ndarray:
    """log(beta * phi(y)), up to a constant of both components. A component without width is a point."""
    centre, width = members.mean(), max(float(members.std()), floor)
    if width == 0:
        return np.where(y == centre, np.inf, -np.inf)
    density: np.ndarray = np.log(len(members) / len(y)) - np.log(width) - (y - centre) ** 2 / (2 * width**2)
    return density


def same_cluster_as_printed(similar: Similarities, trusted: Sequence[int], steps: int = 100) -> list[int]:
    """The same EM as the paper prints it: no least width, and the densities alone decide.

    The paper's initialisation names the components the other way round than its result does. Its text says that the
    component with the higher centre is the own cluster, so this one is returned.
    """
    peers = sorted(similar)
    y = np.array([similar[j] for j in peers])
    first = np.isin(peers, list(trusted))
    for _ in range(steps):
        if first.all() or not first.any():
            break
        of_first, of_second = _log_density(y, y[first], 0.0), _log_density(y, y[~first], 0.0)
        after = np.where(of_first == of_second, first, of_first > of_second)
        if (after == first).all():
            break
        first = after
    if first.any() and not first.all() and y[first].mean() < y[~first].mean():
        first = ~first
    return [j for j, is_own in zip(peers, first, strict=True) if is_own]


EM = {"guarded": same_cluster, "printed": same_cluster_as_printed}
