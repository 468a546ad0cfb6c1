// Socket.IO's adapters: two servers, and what one sends reaches the clients of the other. The adapter of
// messages, of sharded messages and of streams, each with node-redis and ioredis. With streams, a client that
// has lost its server goes on at the other one where it was.
//
//     socket_io.js PORT
'use strict';

const assert = require('node:assert/strict');
const { once } = require('node:events');
const { createServer } = require('node:http');
const net = require('node:net');
const { createAdapter, createShardedAdapter } = require('@socket.io/redis-adapter');
const streams = require('@socket.io/redis-streams-adapter');
const Redis = require('ioredis');
const { createClient } = require('redis');
const { Server } = require('socket.io');
const { io } = require('socket.io-client');

const PORT = Number(process.argv[2]);
const WAIT_MS = 30000;
const clients = {
  'node-redis': async () => {
    const client = createClient({ url: `redis://127.0.0.1:${PORT}` });
    client.on('error', fail);
    return client.connect();
  },
  ioredis: async () => {
    const client = new Redis(PORT, '127.0.0.1');
    await once(client, 'ready');
    return client;
  },
};
const adapters = {
  messages: async (connect) => createAdapter(await connect(), await connect()),
  'sharded messages': async (connect) => createShardedAdapter(await connect(), await connect()),
  streams: async (connect) => streams.createAdapter(await connect(), { blockTimeInMs: 500 }),
};

function fail(error) {
  console.error(error);
  process.exit(1);
}

function soon(what, action) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`gave up waiting for ${what}`)), WAIT_MS);
  });
  return Promise.race([action, late]).finally(() => clearTimeout(timer));
}

async function until(what, condition) {
  for (const deadline = Date.now() + WAIT_MS; !(await condition()); ) {
    if (Date.now() > deadline) throw new Error(`gave up waiting for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

// What a client gets by a name, from now on: the first value of each.
function inbox(client, name) {
  const got = [];
  client.on(name, (value) => got.push(value));
  return got;
}

async function start(adapter, connect, options = {}) {
  const http = createServer().listen(0, '127.0.0.1');
  await once(http, 'listening');
  const server = new Server(http, { adapter: await adapter(connect), transports: ['websocket'], ...options });
  server.on('connection', (socket) => {
    if (socket.handshake.auth.room) socket.join(socket.handshake.auth.room);
    socket.data.name ??= socket.handshake.auth.name;
    socket.on('whisper', (room, text, done) => {
      socket.to(room).emit('whispered', text);
      done();
    });
  });
  return { server, port: http.address().port };
}

async function join(port, auth) {
  const options = { auth, transports: ['websocket'], forceNew: true, reconnectionDelay: 20, reconnectionDelayMax: 50 };
  const client = io(`http://127.0.0.1:${port}`, options);
  await soon(`the connection of ${auth.name}`, once(client, 'connect'));
  return client;
}

// Both servers know each other, and each hears the other.
async function acquainted(servers, members) {
  for (const [from, to] of [[0, 1], [1, 0]]) {
    await until('two servers', async () => (await servers[from].of('/').adapter.serverCount()) === 2);
    const heard = inbox(members[to], 'probe');
    await until('what the other server sends', () => servers[from].emit('probe') && heard.length > 0);
    // Nothing of that is under way any more when this has arrived.
    const rest = inbox(members[to], 'no more probes');
    servers[from].emit('no more probes');
    await until('the last of it', () => rest.length === 1);
  }
}

async function broadcasts([one, two], [a, b, c]) {
  const news = [a, b, c].map((client) => inbox(client, 'news'));
  const red = [a, b, c].map((client) => inbox(client, 'red'));
  const last = [a, b, c].map((client) => inbox(client, 'last'));
  for (let n = 0; n < 50; n += 1) one.emit('news', [n, Buffer.from([n, 0, 255])]);
  one.to('red').emit('red', 'for a room');
  one.except('red').emit('red', 'for all but a room');
  one.emit('last', 1);
  await until('all broadcasts', () => last.every((got) => got.length === 1));
  for (const got of news) {
    assert.deepEqual(got.map(([n, bytes]) => [n, [...bytes]]), Array.from({ length: 50 }, (_, n) => [n, [n, 0, 255]]));
  }
  assert.deepEqual(red, [['for all but a room'], ['for a room'], ['for a room']]);
  const whispered = [a, b, c].map((client) => inbox(client, 'whispered'));
  await soon('a whisper', b.timeout(WAIT_MS).emitWithAck('whisper', 'red', 'psst'));
  two.emit('last', 2);
  await until('the end of a whisper', () => last.every((got) => got.length === 2));
  assert.deepEqual(whispered, [[], [], ['psst']]);
  for (const client of [a, b, c]) client.on('who', (done) => done(client.auth.name));
  assert.deepEqual((await one.timeout(WAIT_MS).emitWithAck('who')).sort(), ['a', 'b', 'c']);
}

async function between([one, two], [, , c]) {
  two.on('sum', (x, y, done) => done(x + y));
  assert.deepEqual(await soon('the answer of the other server', one.serverSideEmitWithAck('sum', 40, 2)), [42]);
  const told = once(two, 'told');
  one.serverSideEmit('told', { deep: [1] });
  assert.deepEqual(await soon('what the other server is told', told), [{ deep: [1] }]);
  const all = await soon('all sockets', one.fetchSockets());
  assert.deepEqual(all.map((socket) => socket.data.name).sort(), ['a', 'b', 'c']);
  const got = inbox(c, 'later');
  one.in('red').socketsJoin('late');
  await until('a room that was joined from afar', async () => (await two.in('late').fetchSockets()).length === 2);
  one.to('late').emit('later', 1);
  await until('what is for that room', () => got.length === 1);
  one.in('late').socketsLeave('late');
  await until('the end of that room', async () => (await two.in('late').fetchSockets()).length === 0);
  const away = once(c, 'disconnect');
  one.in('red').disconnectSockets(true);
  await soon('a disconnection from afar', away);
}

async function conversation(adapter, connect) {
  const [one, two] = [await start(adapter, connect), await start(adapter, connect)];
  const members = [
    await join(one.port, { name: 'a' }),
    await join(one.port, { name: 'b', room: 'red' }),
    await join(two.port, { name: 'c', room: 'red' }),
  ];
  const servers = [one.server, two.server];
  await acquainted(servers, [members[0], members[2]]);
  await broadcasts(servers, members);
  await between(servers, members);
  for (const client of members) client.disconnect();
  for (const server of servers) await server.close();
}

// Leads clients to one of several servers, or to none.
function balancer() {
  const links = new Set();
  const self = net.createServer((link) => {
    if (!self.target) return link.destroy();
    const onward = net.connect(self.target, '127.0.0.1');
    links.add(link);
    for (const [from, to] of [[link, onward], [onward, link]]) {
      from.pipe(to).on('error', () => {});
      from.on('error', () => to.destroy()).on('close', () => to.destroy());
    }
  });
  self.cut = () => {
    self.target = null;
    for (const link of links) link.destroy();
    links.clear();
  };
  return self.listen(0, '127.0.0.1');
}

async function recovery(connect) {
  const options = { connectionStateRecovery: { maxDisconnectionDuration: 60000 } };
  const [one, two] = [await start(adapters.streams, connect, options), await start(adapters.streams, connect, options)];
  const ways = balancer();
  await once(ways, 'listening');
  ways.target = one.port;
  const client = await join(ways.address().port, { name: 'a', room: 'red' });
  const beside = await join(two.port, { name: 'b' });
  await acquainted([one.server, two.server], [client, beside]);
  const got = inbox(client, 'red');
  one.server.to('red').emit('red', 1);
  await until('a message before', () => got.length === 1);
  const id = client.id;
  const store = await clients.ioredis();
  const sessions = () => store.keys('sio:session:*');
  // Those of servers that were closed before.
  for (const old of await sessions()) await store.del(old);
  const away = once(client, 'disconnect');
  ways.cut();
  await soon('the loss of the connection', away);
  await until('a stored session', async () => (await sessions()).length === 1);
  assert.ok((await store.pttl((await sessions())[0])) > 0);
  for (let n = 2; n <= 300; n += 1) (n % 2 ? one : two).server.to('red').emit('red', n);
  two.server.to('blue').emit('red', 'for another room');
  // Both servers have all of that when these have arrived; otherwise some could come twice.
  const marks = inbox(beside, 'mark');
  for (const { server } of [one, two]) server.emit('mark');
  await until('marks', () => marks.length === 2);
  const connected = once(two.server, 'connection');
  const back = once(client, 'connect');
  ways.target = two.port;
  await soon('the new connection', back);
  const [socket] = await soon('the socket at the other server', connected);
  assert.ok(client.recovered && socket.recovered, 'the session was not recovered');
  assert.deepEqual([client.id, socket.data.name, socket.rooms.has('red')], [id, 'a', true]);
  two.server.to('red').emit('red', 'at last');
  await until('what comes after', () => got.at(-1) === 'at last');
  assert.equal(got.length, 301);
  // Two servers sent them, and each keeps its own order.
  for (const odd of [0, 1]) {
    const part = got.filter((n) => n % 2 === odd);
    assert.deepEqual(part, [...part].sort((x, y) => x - y));
  }
  assert.equal(new Set(got).size, 301);
  assert.deepEqual(await sessions(), []);
  // A client with a session that nobody knows is told that it starts anew.
  ways.cut();
  await until('another stored session', async () => (await sessions()).length === 1);
  await store.del(await sessions());
  const anew = once(client, 'connect');
  ways.target = one.port;
  await soon('a connection without a session', anew);
  assert.equal(client.recovered, false);
  for (const each of [client, beside]) each.disconnect();
  for (const { server } of [one, two]) await server.close();
  ways.close();
}

async function main() {
  for (const [library, connect] of Object.entries(clients)) {
    for (const [name, adapter] of Object.entries(adapters)) {
      try {
        await conversation(adapter, connect);
      } catch (error) {
        throw new Error(`${name}, ${library}`, { cause: error });
      }
    }
    await recovery(connect);
  }
  process.exit(0);
}

main().catch(fail);
