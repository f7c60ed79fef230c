"""New weights on their way from the trainer to the slots."""

from __future__ import annotations

from math import inf

from .settings import Pipeline
from .slots import Slots


class Sync:
    """One transfer at a time; a version that comes into being meanwhile has to wait, and a newer one replaces it."""

    def __init__(self, pipeline: Pipeline, slots: Slots) -> None:
        self.seconds, self.every = pipeline.sync_seconds, pipeline.sync_every
        self.blocking, self.in_flight = pipeline.blocking, pipeline.in_flight
        self.slots = slots
        self.until = inf  # when the transfer under way arrives
        self.draining = False  # rows under way are finishing first
        self._version = 0  # of the transfer under way
        self._newer: int | None = None  # a version that is waiting for it

    @property
    def under_way(self) -> bool:
        return self.draining or self.until < inf

    def publish(self, version: int, now: float) -> None:
        """The trainer has made `version`; it is sent if it is its turn."""
        if version % self.every:
            return
        if self.under_way:
            self._newer = version
            return
        self._version = version
        if self.in_flight == "drain":
            self.draining = True
            self.slots.close(now)
        else:
            self._send(now)

    def drained(self, now: float) -> None:
        """No row is under way any more."""
        self.draining = False
        self._version, self._newer = self._newer or self._version, None
        self._send(now)

    def arrive(self, now: float) -> None:
        """The weights are there; rows go on as the settings say."""
        self.until = inf
        self.slots.version = self._version
        self.slots.resume(now)
        self.slots.open(now)
        if self.in_flight == "switch":
            self.slots.switch(now)
        newer, self._newer = self._newer, None
        if newer is not None:
            self.publish(newer, now)
        self.slots.fill(now)

    def _send(self, now: float) -> None:
        if not self.seconds:
            self.arrive(now)
            return
        if self.blocking:
            self.slots.pause(now)
        self.until = now + self.seconds
