"""A fault, as a run makes it: what is done, which alerts it makes fire, and how it is undone."""

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass
class Fault:
    what: str
    alerts: list[str]
    inject: Callable
    heal: Callable
    cluster: str = "faulty"
    # Done again and again until the alerts fire.
    again: Callable | None = None
    # Alerts that must not fire in so many seconds, before `again` begins: (seconds, names).
    silent: tuple | None = None
