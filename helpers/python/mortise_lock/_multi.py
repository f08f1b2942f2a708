"""A lock of several keys: all in one instant or none, by one hold."""
from ._lock import BaseLock


class BaseMultiLock(BaseLock):
    """Several locks, to write: all at once, or none."""

    def __init__(self, redis, names, **options):
        """The locks of 1 to 16 names (a sequence of str or bytes) by the client `redis`. Takes nothing yet. In a cluster the names are
        in one slot, as by a {hash tag}.

        options: those of `Lock`, by their names.
        """
        if isinstance(names, (str, bytes)) or not names:
            raise TypeError(f"names are several names, not {names!r}")
        super().__init__(redis, tuple(names), **options)

    def _names(self):
        return self.name

    def _words(self, owner, lease, _):
        return "LOCK.MACQUIRE", owner, lease, len(self._keys), *self._keys

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
        """Refused: only a lock of one name is passed on."""
        raise TypeError("only a lock of one name is passed on and taken over")

    take_over = pass_to
