"""What one lock object has taken. Several threads or tasks may use the object: each acquisition belongs to the one that made it."""
import os
import threading

from ._values import now

FORGET = 60_000  # ms for which a loss shows to others after its thread or task is over


class Acquisition:
    """One acquisition by a lock object. `hold` is None where only the token is known, which another process has taken it by, until the
    server has said more."""

    def __init__(self, token, hold, place):
        self.token, self.hold, self.place, self.pid, self.watch = token, hold, place, os.getpid(), None
        self.is_passed, self.is_taken_over, self.is_found = False, False, hold is None


class Taken:
    """The acquisitions of one lock object that are not released, and those that the `with` blocks give back. Also what redis-py's locks
    have as `local`, with its `token`: the name by which this thread or task holds the lock."""

    def __init__(self, is_common, encode):
        """is_common: whether each thread or task uses what any other has taken."""
        self.is_common, self.encode, self.acquisitions, self.blocks = is_common, encode, [], []

    @property
    def token(self):
        current = self.current()
        return current and current.token

    @token.setter
    def token(self, token):
        token, current = None if token is None else self.encode(token), self.current()
        if current and current.token == token:
            return
        if current:
            if current.hold is not None:
                current.hold.end()  # it is not renewed any more
            self.remove(current)
        if token is not None:
            self.add(token, None)

    @staticmethod
    def place():
        """The thread or task that calls."""
        return threading.current_thread()

    @staticmethod
    def is_over(place):
        return not place.is_alive()

    def is_shared(self, one):
        """Whether that acquisition of another thread or task may be used here."""
        return self.is_common

    def current(self):
        """The acquisition that a call is about: the latest one of this thread or task, or else the latest one that it shares."""
        here, pid = self.place(), os.getpid()
        for may_use in (lambda one: one.place is here), self.is_shared:
            for one in reversed(self.acquisitions):
                if one.pid == pid and may_use(one):
                    return one
        return None

    def add(self, token, hold):
        """Adds an acquisition of this thread or task. Forgets those that were lost and never released: its own, and old ones of others that
        are over."""
        added = Acquisition(token, hold, self.place())
        for one in list(self.acquisitions):
            if one.hold is not None and not one.hold.held() and one not in self.blocks and (
                    one.place is added.place or self.is_over(one.place) and now() > one.hold.until + FORGET):
                self.remove(one)
        self.acquisitions.append(added)
        return added

    def remove(self, one):
        """Whether it was still here: of several threads that end it, one is told so."""
        try:
            self.acquisitions.remove(one)
        except ValueError:
            return False
        return True

    def leave(self):
        """Ends the innermost block of this thread or task: what it has to give back. None for a block of the process that
        forked this one, and where the lock was passed on."""
        here = self.place()
        one = next((one for one in reversed(self.blocks) if one.place is here), self.blocks[-1])
        self.blocks.remove(one)
        if one.is_passed:
            one = self.current()
            return one if one and one.is_taken_over else None
        return one if one.pid == os.getpid() else None
