"""The one door: `Hub.call`, what a handler gets, and what a hub does by itself."""

from crewhall.app.call import NOWHERE, Call, Origin, Progress, party_of
from crewhall.app.checks import refuse_unstorable
from crewhall.app.chores import Tick
from crewhall.app.hub import Hub

__all__ = ["NOWHERE", "Call", "Hub", "Origin", "Progress", "Tick", "party_of", "refuse_unstorable"]
