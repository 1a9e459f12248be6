"""Write weather.csv: 600 synthetic days of three kinds, with two numeric columns and one of categories.

python examples/make_weather.py [FILE]
"""

import sys

import numpy as np
import pandas as pd


def weather(days: int = 600, seed: int = 0) -> pd.DataFrame:
    """Three kinds of day that differ in temperature, wind and season, with some noise."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(3, size=days)
    return pd.DataFrame(
        {
            "temperature": np.array([4.0, 14.0, 25.0])[kind] + rng.normal(0, 5, days),
            "wind": np.array([9.0, 4.0, 2.0])[kind] + rng.normal(0, 2, days),
            "season": np.array(["winter", "autumn", "summer"])[(kind + (rng.random(days) < 0.2)) % 3],
            "sky": np.array(["storm", "cloud", "sun"])[kind],
        }
    )


if __name__ == "__main__":
    path = sys.argv[1] if len(sys.argv) > 1 else "weather.csv"
    weather().to_csv(path, index=False)
    print(f"wrote {path}")
