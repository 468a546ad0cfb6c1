"""The channel layers of Django channels, by themselves and below a Django application: the one of queues
(core) and the one of messages (pubsub). Channels, groups, capacity, expiry, what a cancelled receiver
had taken, and consumers of WebSockets that talk with each other.

    channels_layers.py PORT
"""

import asyncio
import json
import sys
import time

import django
from asgiref.testing import ApplicationCommunicator
from channels.exceptions import ChannelFull
from channels.generic.websocket import AsyncJsonWebsocketConsumer
from channels.layers import get_channel_layer
from channels_redis.core import RedisChannelLayer
from channels_redis.pubsub import RedisPubSubChannelLayer
from django.conf import settings
from redis.asyncio import Redis

PORT = int(sys.argv[1])
WAIT_S = 30
# The core layer waits 5 s for a message, as long as redis-py waits for any reply.
RedisChannelLayer.brpop_timeout = 1
HOSTS = [("127.0.0.1", PORT)]


def soon(action):
    """Waits for something that must happen."""
    return asyncio.wait_for(action, WAIT_S)


async def until(what, condition):
    """Polls until the condition holds."""
    deadline = time.monotonic() + WAIT_S
    while not await condition():
        assert time.monotonic() < deadline, f"gave up waiting for: {what}"
        await asyncio.sleep(0.01)


async def nothing(layer, channel, what):
    """Checks that a channel has no message: one that is sent to it now is the next that it gets."""
    await layer.send(channel, {"type": "marker"})
    assert (await soon(layer.receive(channel)))["type"] == "marker", what


class Chat(AsyncJsonWebsocketConsumer):
    """A room in which each hears what anybody says."""

    async def connect(self):
        """Enters."""
        await self.channel_layer.group_add("room", self.channel_name)
        await self.accept()

    async def disconnect(self, code):
        """Leaves."""
        await self.channel_layer.group_discard("room", self.channel_name)
        self.scope["left"].set()

    async def receive_json(self, content, **_):
        """Says something."""
        await self.channel_layer.group_send("room", {"type": "said", "text": content["text"]})

    async def said(self, event):
        """Hears something."""
        await self.send_json({"text": event["text"]})


class Talker:
    """A WebSocket, as a server of ASGI presents it to the application."""

    def __init__(self, path):
        self.left = asyncio.Event()
        scope = {"type": "websocket", "path": path, "query_string": b"", "headers": [], "subprotocols": [],
                 "left": self.left}
        self.link = ApplicationCommunicator(Chat.as_asgi(), scope)

    async def connect(self):
        """Waits until it is accepted."""
        await self.link.send_input({"type": "websocket.connect"})
        assert (await self.link.receive_output(WAIT_S))["type"] == "websocket.accept"

    async def say(self, text):
        """Sends a text."""
        await self.link.send_input({"type": "websocket.receive", "text": json.dumps({"text": text})})

    async def hear(self):
        """The next text."""
        return json.loads((await self.link.receive_output(WAIT_S))["text"])["text"]

    async def leave(self):
        """Ends it. What waits for messages may go on for a while: channels does not always cancel it."""
        await self.link.send_input({"type": "websocket.disconnect", "code": 1000})
        await soon(self.left.wait())
        self.link.stop(exceptions=False)


async def channels_and_groups(make, listening):
    """What both layers promise, between two processes as it were.

    `listening` waits until a channel or a group has so many subscribers: what is sent before that is lost, if
    nothing keeps it.
    """
    one, two = make(), make()
    here, there = await one.new_channel(), await two.new_channel()
    for channel in (here, there):
        await listening(channel, 1)
    for n in range(50):
        await one.send(there, {"type": "plain", "n": n, "bytes": b"\0\xff"})
    for n in range(50):
        message = await soon(two.receive(there))
        assert (message["type"], message["n"], message["bytes"]) == ("plain", n, b"\0\xff")
    await one.group_add("all", here)
    await two.group_add("all", there)
    await listening("pubsub__group__all", 2)
    await one.group_send("all", {"type": "to all"})
    assert (await soon(one.receive(here)))["type"] == (await soon(two.receive(there)))["type"] == "to all"
    await two.group_discard("all", there)
    await listening("pubsub__group__all", 1)
    await one.group_send("all", {"type": "to one"})
    assert (await soon(one.receive(here)))["type"] == "to one"
    await nothing(two, there, "a message for a group that it has left")
    return one, two


async def sockets(listening):
    """Consumers below the layer of the settings."""
    talkers = [Talker(f"/chat/{n}") for n in range(5)]
    for talker in talkers:
        await talker.connect()
    await listening("asgi__group__room", 1)
    await talkers[0].say("hello")
    assert [await talker.hear() for talker in talkers] == ["hello"] * 5
    await talkers[4].leave()
    await talkers[1].say("again")
    assert [await talker.hear() for talker in talkers[:4]] == ["again"] * 4
    for talker in talkers[:4]:
        await talker.leave()
    await get_channel_layer().flush()


async def core(client):
    """What the layer of queues keeps in the server."""
    def make(**more):
        return RedisChannelLayer(hosts=HOSTS, prefix="core", **more)

    one, two = await channels_and_groups(make, at_once)
    # Several consumers of one channel: each message goes to one of them. All are of one layer, since another one
    # would put back what the first has in work.
    waiting = [asyncio.ensure_future(one.receive("work")) for _ in range(20)]
    for n in range(20):
        await two.send("work", {"type": "job", "n": n})
    done = await soon(asyncio.gather(*waiting))
    assert sorted(message["n"] for message in done) == list(range(20))
    # A full channel refuses; a group goes past it.
    small = make(capacity=3)
    for n in range(3):
        await small.send("small", {"type": "job", "n": n})
    try:
        await small.send("small", {"type": "job", "n": 3})
        raise AssertionError("a full channel has taken a message")
    except ChannelFull:
        pass
    await small.group_add("beside", "small")
    await small.group_send("beside", {"type": "job", "n": 4})
    assert [(await soon(small.receive("small")))["n"] for n in range(3)] == [0, 1, 2]
    # What nobody receives expires, and so do groups that nobody joins again.
    await make(expiry=1).send("nobody", {"type": "late"})
    passing = make(group_expiry=1)
    channel = await passing.new_channel()
    await passing.group_add("passing", channel)
    await until("a queue to expire", lambda: gone(client, "corenobody"))
    await until("a group to expire", lambda: gone(client, "core:group:passing"))
    await passing.group_send("passing", {"type": "late"})
    await nothing(passing, channel, "a message for a group that has expired")
    # What a receiver had taken when it was cancelled goes to the next one.
    await one.send("kept", {"type": "job", "n": 1})
    await client.zadd("corekept$inflight", {(await client.zrange("corekept", 0, 0))[0]: time.time()})
    await client.delete("corekept")
    assert (await soon(two.receive("kept")))["n"] == 1
    await one.flush()
    assert await client.keys("core*") == []
    await sockets(at_once)


async def at_once(*_):
    """Queues keep what is sent."""


async def gone(client, key):
    """Whether there is no such key."""
    return not await client.exists(key)


async def pubsub(client):
    """What the layer of messages leaves in the server."""
    async def listening(name, wanted):
        await until(f"{wanted} subscribers of {name}", lambda: subscribers(client, name, wanted))

    one, two = await channels_and_groups(lambda: RedisPubSubChannelLayer(hosts=HOSTS, prefix="pubsub"), listening)
    # A receiver that is cancelled has its channel taken away.
    channel = await one.new_channel()
    receiver = asyncio.ensure_future(one.receive(channel))
    await listening(channel, 1)
    receiver.cancel()
    await listening(channel, 0)
    for layer in (one, two):
        await layer.flush()
    await until("no subscriptions", lambda: quiet(client))
    assert await client.keys("pubsub*") == []
    await sockets(listening)


async def subscribers(client, channel, wanted):
    """Whether a channel has so many subscribers."""
    return (await client.pubsub_numsub(channel))[0][1] == wanted


async def quiet(client):
    """Whether nobody listens to this layer's channels."""
    return await client.pubsub_channels("pubsub*") == []


async def main(backend):
    """Runs all for one layer."""
    async with Redis(port=PORT) as client:
        await (core if "core" in backend else pubsub)(client)


for layer in ("channels_redis.core.RedisChannelLayer", "channels_redis.pubsub.RedisPubSubChannelLayer"):
    described = {"default": {"BACKEND": layer, "CONFIG": {"hosts": HOSTS}}}
    if not settings.configured:
        settings.configure(CHANNEL_LAYERS=described)
        django.setup()
    else:
        # Tells the registry of layers that the setting has changed.
        from django.test import override_settings

        override_settings(CHANNEL_LAYERS=described).enable()
    asyncio.run(main(layer))
