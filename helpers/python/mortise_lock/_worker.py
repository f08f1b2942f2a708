"""Background work of the rules."""
import functools

from ._values import TICK, log


class Worker:
    """Work in the background, that starts when there is some and ends a while after there is none."""

    def __init__(self, session, work, load):
        self.session, self.work, self.load, self.event, self.running = session, work, load, session.event(), False

    def wake(self, urgent=True):
        with self.session.mutex:
            start, self.running = not self.running, True
            if urgent:
                self.event.set()
        # With the pool, which stays for as long as there is work: with it the connections would go.
        if start and not self.session.spawn(functools.partial(self.run, self.session.pool())):
            self.running = False

    async def run(self, _):
        while self.running:
            self.event.clear()
            busy = self.load()
            try:
                await (self.work() if busy else self.session.wait(self.event, TICK))
            except Exception:
                log.exception("a lock's background work failed; it goes on")
                await self.session.pause(TICK)
            with self.session.mutex:
                self.running = (busy and not self.session.closed) or self.event.is_set() or self.load()
