"""What one lock object has taken. Several threads or tasks may use the object: each acquisition belongs to the one that made it."""
import os
import threading


class Acquisition:
    """One acquisition by a lock object. `hold` is None where only the token is known, which another process has taken it by."""

    def __init__(self, token, hold, place):
        self.token, self.hold, self.place, self.pid = token, hold, place, os.getpid()
        self.passed, self.taken_over, self.here = False, False, True

    def over(self):
        """Whether its lease has ended, or somebody has ended it."""
        return self.hold is not None and not self.hold.held()


class Taken:
    """The acquisitions of one lock object, and which of them the `with` blocks give back."""

    def __init__(self, is_common):
        """is_common: whether each thread or task uses what any other has taken."""
        self.is_common, self.acquisitions, self.blocks = is_common, [], []

    @staticmethod
    def place():
        """The thread or task that calls."""
        return threading.current_thread()

    def is_shared(self, one):
        """Whether that acquisition of another thread or task may be used here."""
        return self.is_common

    def current(self):
        """The acquisition that a call is about: the latest one of this thread or task, or else the latest one that it shares."""
        here, pid = self.place(), os.getpid()
        for one in reversed(self.acquisitions):
            if one.place is here and one.pid == pid:
                return one
        for one in reversed(self.acquisitions):
            if one.pid == pid and self.is_shared(one):
                return one
        return None

    def add(self, token, hold, taken_over=False):
        """Adds an acquisition of this thread or task. Forgets those of its own that were lost and never released."""
        added = Acquisition(token, hold, self.place())
        added.taken_over = taken_over
        for one in list(self.acquisitions):
            if one.place is added.place and one.over() and one not in self.blocks:
                self.remove(one)
        self.acquisitions.append(added)
        return added

    def remove(self, one):
        """Whether it was still here."""
        try:
            self.acquisitions.remove(one)
        except ValueError:
            return False
        one.here = False
        return True

    def enter(self, one):
        self.blocks.append(one)

    def leave(self):
        """Ends the innermost block of this thread or task: what it has to give back. None for a block of the process that
        forked this one, and where the lock was passed on."""
        here = self.place()
        one = next((one for one in reversed(self.blocks) if one.place is here), self.blocks[-1])
        self.blocks.remove(one)
        if one.pid != os.getpid():
            return None
        if one.passed and one not in self.acquisitions:
            current = self.current()
            return current if current and current.taken_over else None
        return one


class Local:
    """The attribute `local` of redis-py's locks, with its `token`: the name by which this thread or task holds the lock."""

    def __init__(self, taken, encode):
        self._taken, self._encode = taken, encode

    @property
    def token(self):
        current = self._taken.current()
        return current and current.token

    @token.setter
    def token(self, token):
        current = self._taken.current()
        if current:
            self._taken.remove(current)
        if token is not None:
            self._taken.add(self._encode(token), None)
