"""The four tables of the tutorial on hospitals: the real ones where they lie beside the project, else tables like them.

The real ones are not part of the project, and a download needs the network.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas

REAL = {"cleveland": "cleveland", "hungary": "hungarian", "switzerland": "switzerland", "long-beach-va": "va"}
ROWS = {"cleveland": 303, "hungary": 294, "switzerland": 123, "long-beach-va": 200}
ILL = {"cleveland": 0.46, "hungary": 0.36, "switzerland": 0.94, "long-beach-va": 0.75}
LACKING = {"cleveland": (), "hungary": ("ca", "thal"), "switzerland": ("chol", "ca"), "long-beach-va": ("ca", "thal")}
CODES = {
    "sex": [0, 1], "cp": [1, 2, 3, 4], "fbs": [0, 1], "restecg": [0, 1, 2], "exang": [0, 1], "slope": [1, 2, 3],
    "thal": [3, 6, 7],
}  # fmt: skip


def write_hospitals(folder: Path) -> None:
    folder.mkdir()
    beside = [parent / "shared/data/heart-disease" for parent in Path(__file__).parents]
    real = next((place for place in beside if place.exists()), None)
    for seed, name in enumerate(REAL):
        if real:
            shutil.copy(real / f"{REAL[name]}.csv", folder / f"{name}.csv")
        else:
            similar(name, seed).to_csv(folder / f"{name}.csv", index=False)


def similar(name: str, seed: int) -> pandas.DataFrame:
    """A table of the same form: the ill are older, reach a lower pulse, and more often have angina."""
    rng, rows = np.random.default_rng(seed), ROWS[name]
    ill = rng.random(rows) < ILL[name]
    table = pandas.DataFrame({key: rng.choice(codes, rows) for key, codes in CODES.items()})
    table["cp"] = np.where(ill & (rng.random(rows) < 0.7), 4, table["cp"])
    table["age"] = rng.normal(50 + 7 * ill, 8, rows).round()
    table["trestbps"] = rng.normal(132, 17, rows).round()
    table["chol"] = rng.normal(240, 45, rows).round()
    table["thalach"] = rng.normal(150 - 20 * ill, 20, rows).round()
    table["oldpeak"] = rng.gamma(1 + ill, 0.7).round(1)
    table["ca"] = rng.integers(0, 4, rows)
    for column in LACKING[name]:
        table[column] = table[column].astype(object).where(rng.random(rows) < 0.03, "?")
    return table.assign(target=np.where(ill, rng.integers(1, 5, rows), 0))
