"""A server of `rightreasons serve` that runs while a test asks it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rightreasons.serve import Server


@contextmanager
def serving(place: Path) -> Iterator[Server]:
    with Server(place, port=0) as made:
        thread = threading.Thread(target=made.run, daemon=True)
        thread.start()
        yield made
        made.stop()
        thread.join()
