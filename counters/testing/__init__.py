"""Tests against a real Firestore server: an emulator, what a call costs, and what can go wrong.

::

    with Emulator() as emulator, Gateway(emulator.host) as gateway:
        with open_client(gateway.host, "my-project") as db, gateway.measure() as bill:
            gateway.script(LostAnswer("Commit"))
            ...  # use db, then look at the bill and at what is stored

With pytest all of it is there as fixtures (``plugin.py``): ``counters_client`` and its kind.
Imports nothing until a name is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from counters.testing.billing import Bill
    from counters.testing.clients import open_async_client, open_client
    from counters.testing.discovery import (
        EmulatorNotFound,
        InstallFailed,
        find_emulator,
        install_hidane,
    )
    from counters.testing.emulator import Emulator, EmulatorFailed
    from counters.testing.exchange import Answer, Exchange, Held
    from counters.testing.faults import (
        ConnectionCut,
        Delayed,
        DeliveredTwice,
        Fault,
        HeldBack,
        LostAnswer,
        LostRequest,
        Refused,
    )
    from counters.testing.gateway import Gateway

__all__ = [
    "Answer",
    "Bill",
    "ConnectionCut",
    "Delayed",
    "DeliveredTwice",
    "Emulator",
    "EmulatorFailed",
    "EmulatorNotFound",
    "Exchange",
    "Fault",
    "Gateway",
    "Held",
    "HeldBack",
    "InstallFailed",
    "LostAnswer",
    "LostRequest",
    "Refused",
    "find_emulator",
    "install_hidane",
    "open_async_client",
    "open_client",
]

_HOMES = {
    "billing": ["Bill"],
    "clients": ["open_async_client", "open_client"],
    "discovery": ["EmulatorNotFound", "InstallFailed", "find_emulator", "install_hidane"],
    "emulator": ["Emulator", "EmulatorFailed"],
    "exchange": ["Answer", "Exchange", "Held"],
    "faults": [
        "ConnectionCut",
        "Delayed",
        "DeliveredTwice",
        "Fault",
        "HeldBack",
        "LostAnswer",
        "LostRequest",
        "Refused",
    ],
    "gateway": ["Gateway"],
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
