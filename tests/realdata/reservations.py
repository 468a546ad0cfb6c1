"""Reservations of seats through redis-py: documents with sections and counters, seat maps as bitmaps.

An event is a JSON document with sections; each section counts its available and
sold seats. The seats of a section are bits of a map, which is read with GETRANGE
to find a free one. A seat is taken in one transaction that watches the map: bit,
counters of the document, a counter of BITFIELD, the booking in a hash (HSETNX) and
in a sorted set. Whatever happens, all of them must tell the same.
"""

import asyncio
import itertools
import random
import threading

import redis
import redis.asyncio

# More seats than a fast machine sells in all rounds.
EVENTS, SECTIONS, SEATS = 30, 24, 400
SUMMARY_EVERY = 16
LOST = (redis.ConnectionError, redis.TimeoutError, ConnectionError, redis.WatchError)


def section_names():
    """A-1, A-2, … C-4."""
    return [f"{letter}-{number}" for letter in "ABC" for number in range(1, SECTIONS // 3 + 1)]


def document(event):
    """An event of some 10 KB."""
    sections = {
        name: {
            "price": 40 + at,
            "rows": [{"row": row, "first": 20 * row, "seats": 20} for row in range(SEATS // 20)],
            "stats": {"available": SEATS, "sold": 0},
        }
        for at, name in enumerate(section_names())
    }
    return {"name": f"event {event}", "venue": {"city": "Ulm", "gates": list(range(9))}, "sections": sections}


def prepare(client):
    """Creates the events."""
    for event in range(EVENTS):
        client.json().set(f"event:{event}", "$", document(event))
        client.hset(f"event_state:{event}", mapping={"phase": "sale", "round": 1})
        for name in section_names():
            client.setbit(f"seats:{event}:{name}", SEATS - 1, 0)


class Taken(Exception):
    """The section is sold out."""


def free_seat(seat_map, near):
    """A seat that is not taken, the first one from `near` on."""
    bits = [byte >> (7 - bit) & 1 for byte in seat_map.ljust(SEATS // 8, b"\0") for bit in range(8)]
    for seat in itertools.chain(range(near, SEATS), range(near)):
        if not bits[seat]:
            return seat
    raise Taken


def queue_booking(pipe, place, buyer, now):
    """The commands of a booking."""
    event, name, seat = place
    stats = f"$.sections['{name}'].stats"
    pipe.execute_command("SETBIT", f"seats:{event}:{name}", seat, 1)
    pipe.execute_command("JSON.NUMINCRBY", f"event:{event}", f"{stats}.available", -1)
    pipe.execute_command("JSON.NUMINCRBY", f"event:{event}", f"{stats}.sold", 1)
    pipe.execute_command("BITFIELD", f"sold:{event}", "INCRBY", "u32", f"#{section_names().index(name)}", 1)
    pipe.execute_command("HSETNX", f"bookings:{event}", f"{name}:{seat}", buyer)
    pipe.execute_command("ZADD", f"sales:{event}", now, f"{name}:{seat}")


def check_replies(replies, place):
    """What a booking replies."""
    was, available, sold, count, is_new, added = replies
    assert was == 0 and is_new == 1 and added == 1, (place, replies)
    numbers = [int(number) if isinstance(number, int) else int(number[0] if isinstance(number, list) else number.strip(b"[]"))
               for number in (available, sold)]
    assert sum(numbers) == SEATS and count == [numbers[1]], (place, replies)


def is_conflict(error):
    """Whether another client changed the watched key; redis-py raises the same for a lost connection."""
    return "changed" in str(error)


def random_place(chance):
    """An event, a section, and where in it to look for a seat."""
    return chance.randrange(EVENTS), chance.choice(section_names()), chance.randrange(SEATS)


class Buyer:
    """Books until it is told to stop; keeps what was acknowledged and what is unknown."""

    def __init__(self, name, port, seed):
        self.name, self.port, self.chance = name, port, random.Random(seed)
        self.booked, self.unknown, self.conflicts, self.failure = [], None, 0, None

    def run(self, is_over):
        """Books through the blocking client."""
        client = redis.Redis(port=self.port)
        try:
            while not is_over():
                self.book(client)
                if len(self.booked) % SUMMARY_EVERY == 0:
                    self.look(client)
        except LOST as lost:
            self.failure = lost
        finally:
            client.close()

    def book(self, client):
        """Takes one seat, if nobody else takes it first."""
        event, name, near = random_place(self.chance)
        with client.pipeline() as pipe:
            seats = f"seats:{event}:{name}"
            pipe.watch(seats)
            try:
                place = event, name, free_seat(pipe.getrange(seats, 0, -1), near)
            except Taken:
                return
            pipe.multi()
            queue_booking(pipe, place, self.name, len(self.booked))
            self.unknown = place
            try:
                replies = pipe.execute()
            except redis.WatchError as error:
                if not is_conflict(error):
                    raise
                self.unknown = None
                self.conflicts += 1
                return
            self.done(replies)

    def done(self, replies):
        """Notes an acknowledged booking."""
        check_replies(replies, self.unknown)
        self.booked.append(self.unknown)
        self.unknown = None

    def look(self, client):
        """Reads what a page with the state of an event shows."""
        event, name, _ = random_place(self.chance)
        states = client.keys("event_state:*")
        assert len(states) == EVENTS, states
        latest = client.zrange(f"sales:{event}", 0, 9, desc=True)
        stats = client.json().get(f"event:{event}", f"$.sections['{name}'].stats")[0]
        assert len(latest) <= 10 and stats["available"] + stats["sold"] == SEATS, (latest, stats)

    async def run_async(self, is_over):
        """Books through the client for asyncio."""
        client = redis.asyncio.Redis(port=self.port)
        try:
            while not is_over():
                await self.book_async(client)
                if len(self.booked) % SUMMARY_EVERY == 0:
                    stats = await client.json().get(f"event:{self.chance.randrange(EVENTS)}", "$..stats")
                    assert all(one["available"] + one["sold"] == SEATS for one in stats), stats
        except LOST as lost:
            self.failure = lost
        finally:
            await client.aclose()

    async def book_async(self, client):
        """Takes one seat, if nobody else takes it first."""
        event, name, near = random_place(self.chance)
        async with client.pipeline() as pipe:
            seats = f"seats:{event}:{name}"
            await pipe.watch(seats)
            try:
                place = event, name, free_seat(await pipe.getrange(seats, 0, -1), near)
            except Taken:
                return
            pipe.multi()
            queue_booking(pipe, place, self.name, len(self.booked))
            self.unknown = place
            try:
                replies = await pipe.execute()
            except redis.WatchError as error:
                if not is_conflict(error):
                    raise
                self.unknown = None
                self.conflicts += 1
                return
            self.done(replies)


def buy(port, kind, count, is_over, seed):
    """Lets `count` buyers book, in threads or as tasks of asyncio, until it is over; returns them."""
    buyers = [Buyer(f"{kind}-{seed}-{n}", port, seed * 1000 + n) for n in range(count)]
    failures = []
    if kind == "asyncio":
        async def all_of_them():
            await asyncio.gather(*(buyer.run_async(is_over) for buyer in buyers))

        asyncio.run(all_of_them())
        return buyers

    def guarded(buyer):
        try:
            buyer.run(is_over)
        except Exception as failure:  # The main thread raises it.
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(buyer,)) for buyer in buyers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return buyers


def check(client, buyers):
    """Compares all that counts seats; returns what is wrong, and how many seats are sold."""
    wrong, sold = [], 0
    acknowledged = {place: buyer.name for buyer in buyers for place in buyer.booked}
    possible = acknowledged | {buyer.unknown: buyer.name for buyer in buyers if buyer.unknown}
    found = {}
    for event in range(EVENTS):
        bookings = client.hgetall(f"bookings:{event}")
        for field, buyer in bookings.items():
            name, seat = field.decode().split(":")
            found[event, name, int(seat)] = buyer.decode()
        sales = set(client.zrange(f"sales:{event}", 0, -1))
        if sales != set(bookings):
            wrong.append(f"event {event}: {len(sales)} in the sorted set, {len(bookings)} in the hash")
        sections = client.json().get(f"event:{event}", "$.sections")[0]
        if list(sections) != section_names():
            wrong.append(f"event {event}: sections {list(sections)}")
        for at, name in enumerate(section_names()):
            taken = {seat for other, section, seat in found if (other, section) == (event, name)}
            seat_map = client.getrange(f"seats:{event}:{name}", 0, -1)
            bits = {seat for seat in range(SEATS) if seat_map[seat // 8] >> (7 - seat % 8) & 1}
            counted = client.bitfield(f"sold:{event}").get("u32", f"#{at}").execute()[0]
            stats = sections[name]["stats"]
            expected = {"available": SEATS - len(taken), "sold": len(taken)}
            if bits != taken or counted != len(taken) or stats != expected:
                wrong.append(f"event {event} {name}: {len(taken)} booked, {len(bits)} bits, {counted} counted, {stats}")
        sold += len(bookings)
    for place, buyer in acknowledged.items():
        if found.get(place) != buyer:
            wrong.append(f"{place} was acknowledged to {buyer}, and is of {found.get(place)}")
    for place, buyer in found.items():
        if possible.get(place) != buyer:
            wrong.append(f"{place} is of {buyer}, who never asked for it")
    return wrong, sold
