"""report.html of one run."""
from pathlib import Path
from collections.abc import Sequence
from typing import Any
from coterie.events import Event
def write_report(events: Sequence[Event], summary: dict[str, Any], path: Path) -> None:
    path.write_text("<!doctype html>")
