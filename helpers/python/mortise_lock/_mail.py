"""How tasks wait: by mail. The server puts the answers to all of them into one box for each node, which one task empties."""
import uuid

from redis.exceptions import MovedError, ResponseError

from . import _rules as rules
from ._values import LATE, Failed, code, fields, judged, now
from ._worker import Worker

MAIL_WAIT = 2_000  # ms for which one LOCK.MAIL waits


class Node(rules.Node):
    """One server, and who waits there."""

    def __init__(self, session, address):
        super().__init__(session, address)
        self.queued, self.doubt = set(), False
        self.listener = Worker(session, self.listen, lambda: bool(self.queued) and not session.closed)
        self.new_box()

    def new_box(self):
        """A box of a name that nobody has had. In a cluster the node that serves the name has the box: it gets a hash tag."""
        mine = (f"{{{n}}}" for n in range(16384 * 16) if self.session.address(str(n)) == self.address)
        self.box, self.since, self.number = f"{uuid.uuid4()}{next(mine, '') if self.address else ''}", None, 0

    def waiting(self, ms):
        return (*words, "MAIL", self.box) if (words := super().waiting(ms)) else ()

    async def answer(self, hold, since, left):
        """The letter to a request that was queued."""
        hold.since, ends = since, now() + left
        self.queued.add(hold)
        self.doubt = self.doubt or since != self.since
        self.listener.wake()
        try:
            answered = hold.answered.awaited()
            while not answered.is_set() and now() < ends:
                await self.session.wait(answered, min(ends - now(), 60_000))
            return hold.answer if await self.session.wait(answered, LATE) else Failed()
        finally:
            self.queued.discard(hold)

    async def listen(self):
        """Collects the letters of those that wait."""
        sent, after = now(), () if self.since is None else ("AFTER", self.since, self.number)
        reply = (await self.session.call(self, [("LOCK.MAIL", self.box, *after, "WAIT", MAIL_WAIT)], MAIL_WAIT))[0]
        if not isinstance(reply, Exception):
            return self.deliver(sent, *reply)
        if code(reply) == "BUSY":  # it runs a script: the box outlives that
            return await self.session.pause(50)
        if not isinstance(judged(reply), Failed):  # the server refuses LOCK.MAIL: whether it grants the requests is unknown
            reply.known = False
            return self.settle_queued(reply, lambda hold: True)
        await self.session.pause(50)
        await self.session.refresh(self)
        moved = isinstance(reply, MovedError)
        self.settle_queued(Failed(), lambda hold: moved or self.session.node(hold.key) is not self)
        if moved:
            self.new_box()

    def deliver(self, sent, since, waited, letters):
        if since != self.since:
            self.since, self.number, self.doubt = since, 0, True
        for letter in map(fields, letters):
            self.number = max(self.number, letter["number"])
            hold, result = self.session.asked.get(letter["owner"]), letter["result"]
            if hold is None:
                continue  # nobody wants it any more: its name was left
            if result == b"granted":
                hold.settle(letter["token"], sent + waited - letter["age"])
            else:
                hold.settle(judged(ResponseError(letter["error"].decode())) if result == b"refused" else None)
        if self.doubt:
            self.doubt = False
            self.settle_queued(Failed(), lambda hold: hold.since != since)  # what was put into another box is gone

    def settle_queued(self, answer, which):
        """Ends waits without a letter: their names are left. A `Failed` makes them ask again."""
        for hold in [hold for hold in self.queued if which(hold)]:
            self.queued.discard(hold)
            hold.settle(answer)
