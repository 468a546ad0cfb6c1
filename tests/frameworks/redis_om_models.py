"""redis-om: models as JSON documents and as hashes are saved, read, changed, listed, expired and deleted.

    redis_om_models.py PORT

What needs the query engine (RediSearch) is left out, since the server has none: indexes, `Migrator` and
`find()`.
"""

import datetime
import os
import sys
from typing import List, Optional

import redis

# Read when the package is loaded.
os.environ["REDIS_OM_URL"] = f"redis://127.0.0.1:{int(sys.argv[1])}/0?decode_responses=True"

from redis_om import EmbeddedJsonModel, Field, HashModel, JsonModel, NotFoundError, get_redis_connection  # noqa: E402
from redis_om.checks import has_redis_json  # noqa: E402

database = get_redis_connection()


class Address(EmbeddedJsonModel):
    """A part of a document."""

    street: str
    city: str
    lines: List[str] = []


class Customer(JsonModel, index=True):
    """A document."""

    class Meta:
        """Where it stands."""

        global_key_prefix = "shop"
        model_key_prefix = "customer"

    name: str
    age: int
    balance: float
    joined: datetime.datetime
    email: Optional[str] = None
    picture: bytes = b""
    address: Address
    orders: List[int] = []


class Visit(HashModel, index=True):
    """A hash."""

    class Meta:
        """Where it stands."""

        global_key_prefix = "shop"
        model_key_prefix = "visit"

    page: str
    seconds: int
    known: bool = False
    token: str = Field(default="", expire=300)


def customer(n):
    """One of many."""
    address = Address(street=f"Straße {n}", city="Zürich" if n % 2 else "Łódź", lines=["", '"quoted"', "\\n\n"])
    joined = datetime.datetime(2024, 2, 29, 12, 30, n % 60, tzinfo=datetime.timezone.utc)
    return Customer(name=f"Ana {n} 👋", age=20 + n % 50, balance=n / 8, joined=joined, address=address,
                    picture=bytes(range(256)), orders=list(range(n % 7)))


def documents():
    """JSON."""
    assert has_redis_json(database)
    first = customer(1)
    first.save()
    again = Customer.get(first.pk)
    assert again.model_dump() == first.model_dump()
    assert again.picture == bytes(range(256)) and again.address.lines == ["", '"quoted"', "\\n\n"]
    first.update(age=99, address__city="Kraków")
    again = Customer.get(first.pk)
    assert (again.age, again.address.city, again.address.street) == (99, "Kraków", "Straße 1")
    # What another program sees in the same document, and changes in it.
    key = first.key()
    assert database.json().get(key, "$.address.city", "$.orders") == {"$.address.city": ["Kraków"], "$.orders": [[0]]}
    assert database.json().numincrby(key, "$.age", 1) == [100]
    assert database.json().arrappend(key, "$.orders", 7, 8) == [3]
    again = Customer.get(first.pk)
    assert (again.age, again.orders) == (100, [0, 7, 8])
    assert first.save(nx=True) is None and Customer.get(first.pk).age == 100
    assert customer(2).save(xx=True) is None
    many = Customer.add([customer(n) for n in range(100)])
    assert sorted(Customer.all_pks()) == sorted([first.pk, *(one.pk for one in many)])
    assert Customer.get(many[50].pk).balance == 50 / 8
    assert Customer.delete(first.pk) == 1 and Customer.delete_many(many[:60]) == 60
    assert len(list(Customer.all_pks())) == 40
    try:
        raise AssertionError(Customer.get(first.pk))
    except NotFoundError:
        pass
    many[70].expire(300)
    assert 0 < database.ttl(many[70].key()) <= 300


def hashes():
    """Hashes, with a field that expires."""
    visit = Visit(page="/", seconds=3, known=True, token="secret")
    visit.save()
    again = Visit.get(visit.pk)
    assert (again.page, again.seconds, again.known, again.token) == ("/", 3, True, "secret")
    fields = database.httl(visit.key(), "page", "token")
    assert fields[0] == -1 and 0 < fields[1] <= 300, fields
    visit.update(seconds=4)
    assert Visit.get(visit.pk).seconds == 4
    pipe = database.pipeline()
    many = [Visit(page=f"/{n}", seconds=n) for n in range(50)]
    for one in many:
        one.save(pipeline=pipe)
    pipe.execute()
    assert sorted(Visit.all_pks()) == sorted([visit.pk, *(one.pk for one in many)])
    assert Visit.delete(visit.pk) == 1 and len(list(Visit.all_pks())) == 50


def main():
    """Runs all."""
    documents()
    hashes()
    # So that somebody notices when it can be tested.
    try:
        raise AssertionError(database.execute_command("FT._LIST"))
    except redis.ResponseError as refused:
        assert "unknown command" in str(refused), refused


main()
