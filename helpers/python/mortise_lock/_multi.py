"""Several locks that are taken in one instant: each is a hold of its own, renewed, left and given back like any other."""
from ._lock import BaseLock
from ._values import Hold


class Holds:
    """What one grant gave: to its lock it is one hold, which ends when the first of them does."""

    def __init__(self, holds):
        self.holds, first = holds, holds[0]
        self.owner, self.token, self.pid, self.deadline = first.owner, first.token, first.pid, first.deadline

    def held(self):
        return all(hold.held() for hold in self.holds)

    def lasts(self):
        return all(hold.lasts() for hold in self.holds)

    @property
    def soonest(self):
        return min(self.holds, key=lambda hold: hold.until if hold.held() else 0)

    @property
    def until(self):
        return self.soonest.until

    @property
    def ended(self):
        return self.soonest.ended


class BaseMultiLock(BaseLock):
    """Several locks, to write: all at once, or none."""

    def __init__(self, redis, names, **options):
        """The locks of 1 to 16 names (a sequence of str or bytes) by the client `redis`. Takes nothing yet. In a cluster the names are
        in one slot, as by a {hash tag}.

        options: those of `Lock`, by their names.
        """
        if isinstance(names, (str, bytes)) or not names:
            raise TypeError(f"names are several names, not {names!r}")
        super().__init__(redis, names[0], **options)
        self.name = tuple(names)
        self._keys = [self._bytes(name) for name in names]

    def _words(self, owner, lease, _):
        return "LOCK.MACQUIRE", owner, lease, len(self._keys), *self._keys

    def _others(self, hold):
        _, longest, at_least = self._request()
        return [Hold(key, hold.owner, hold.lease, hold.ended.event, longest, at_least) for key in self._keys[1:]]

    def _held(self, holds):
        return Holds(holds)

    async def _mine(self, *_):
        """Those that another process took are its own."""

    async def _with_hold(self, what, work, one):
        async def each(session, several):
            left, done = list(several.holds), []
            try:
                while left:
                    done.append(await work(session, left.pop()))
            finally:
                if what == "release":  # and cut short: none of them stays
                    for hold in left:
                        session.node(hold.key).give_up(hold)
            return next((one for one in done if isinstance(one, Exception) or not one), True)

        return await super()._with_hold(what, each, one)

    async def locked(self) -> bool:
        """Whether anybody holds one of them now."""
        session = await self._session()
        for key in self._keys:
            if await self._holds(session, key) != []:
                return True
        return False

    async def owned(self) -> bool:
        """Whether the server says that all of them are held by what was taken here."""
        hold, session = self._hold, await self._session()
        for key in self._keys:
            if hold is None or hold.owner not in [held["owner"] for held in await self._holds(session, key) or []]:
                return False
        return True

    async def pass_to(self, *_):
        raise TypeError("only a lock that was taken by itself is passed on, taken over, or guards a command")

    take_over = guard = pass_to
