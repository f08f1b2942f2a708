"""How tasks wait: by mail. The server puts the answers to all of them into one box for each node, which one task empties."""
import asyncio
import math
import uuid

from redis.exceptions import MovedError, ResponseError, TimeoutError

from . import _rules as rules
from ._values import LATE, PATIENCE, Failed, code, fields, judged, now

MAIL_WAIT = 2_000  # ms for which one LOCK.MAIL waits


async def in_time(work, ms):
    """What it returns within so many ms, or just after that, when a loop that was busy has read what had come."""
    working = asyncio.ensure_future(work)
    try:
        for part in (ms, LATE):
            if (await asyncio.wait({working}, timeout=None if part == math.inf else part / 1000))[0]:
                return working.result()
        raise TimeoutError("no reply in time")
    finally:
        working.cancel()


class Node(rules.Node):
    """One server, and who waits there. `queued` has the keys of the requests in its queues, by the futures of their answers."""

    def __init__(self, session, address):
        super().__init__(session, address)
        self.queued, self.cause = {}, None  # cause: why the newest LOCK.MAIL had no reply, if so
        self.listener = rules.Worker(session, self.listen, lambda: bool(self.queued) and not session.closed)
        self.new_box()

    def new_box(self):
        """A box of a name that nobody has had. A cluster routes it as a key: it gets a hash tag that this node serves."""
        self.box, self.since, self.number = str(uuid.uuid4()), None, 0
        if self.address and any((nodes[0].host, nodes[0].port) == self.address for nodes in self.session.pool().nodes_manager.slots_cache.values()):
            self.box += next((f"{{{n}}}" for n in range(16384 * 16) if self.session.address(str(n)) == self.address), "")

    def waiting(self, ms):
        return (*words, "MAIL", self.box) if (words := super().waiting(ms)) else ()

    async def letter(self, answer, key, since, left):
        """The answer to a request that was queued in the box of that number, within `left` ms, and since when it is held."""
        self.settle_other_boxes(since)
        if not self.queued:
            self.cause, self.answered = None, now()
        self.queued[answer] = key
        self.listener.wake()
        try:
            return await in_time(answer, left)
        except TimeoutError:
            return Failed(self.cause), 0
        finally:
            self.queued.pop(answer, None)

    async def listen(self):
        """Collects the letters of those that wait."""
        sent, after = now(), () if self.since is None else ("AFTER", self.since, self.number)
        reply = (await self.session.wire(self, "mail").submit([("LOCK.MAIL", self.box, *after, "WAIT", MAIL_WAIT)], MAIL_WAIT))[0]
        if not isinstance(reply, Exception):
            self.cause, self.answered = None, now()
            return self.deliver(sent, *reply)
        if code(reply) == "BUSY":  # it runs a script: the box outlives that
            self.answered = now()
            return await self.session.pause(50)
        failed = judged(reply)
        if not isinstance(failed, Failed):  # the server refuses LOCK.MAIL: whether it grants the requests is unknown
            reply.known = False
            return self.settle(reply)
        self.cause = failed.cause
        if now() > self.answered + PATIENCE:
            self.settle(Failed(self.cause))
        await self.session.pause(50)
        await self.session.refresh(self)
        self.settle(Failed(), lambda key: self.session.node(key) is not self)
        if isinstance(reply, MovedError):
            self.settle(Failed())
            self.new_box()

    def deliver(self, sent, since, waited, letters):
        self.settle_other_boxes(since)
        for letter in map(fields, letters):
            self.number = max(self.number, letter["number"])
            result, answer = letter["result"], self.session.awaited.get(letter["owner"])
            if answer is None or answer.done():
                continue  # nobody wants it any more: its name was left
            if result == b"granted":
                answer.set_result((letter["token"], sent + waited - letter["age"]))
            else:
                answer.set_result((judged(ResponseError(letter["error"].decode())) if result == b"refused" else None, 0))

    def settle_other_boxes(self, since):
        """Takes the number of the box. What was queued in one of another number is gone."""
        if since != self.since:
            self.settle(Failed())
            self.since, self.number = since, 0

    def settle(self, reply, which=lambda key: True):
        """Ends waits at keys without a letter: their names are left. A `Failed` makes them ask again."""
        for answer in [answer for answer, key in self.queued.items() if which(key) and not answer.done()]:
            answer.set_result((reply, 0))
