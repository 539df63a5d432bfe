"""The one door: `Hub.call`, what a handler gets, and what a hub does by itself."""

from crewhall.app.hub import NOWHERE, Call, Hub, Origin, Progress, Tick, refuse_unfit

__all__ = ["NOWHERE", "Call", "Hub", "Origin", "Progress", "Tick", "refuse_unfit"]
