// Everyday use of the server through ioredis: replies, pipelines, scans,
// errors, RESP types. Exits with 1 and the reason when something is wrong.
//
//     node smoke.js HOST PORT [CERTIFICATES]    (ioredis is found through NODE_PATH)
//
// With a folder of certificates it speaks TLS, and is logged in by its certificate.
'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const Redis = require('ioredis');

async function simpleCommands(redis) {
  assert.equal(await redis.set('greeting', 'hello'), 'OK');
  assert.equal(await redis.get('greeting'), 'hello');
  assert.equal(await redis.get('missing'), null);
  assert.equal(await redis.set('greeting', 'x', 'EX', 100, 'NX'), null);
  assert.equal(await redis.incrby('n', 41), 41);
  assert.equal(await redis.incrbyfloat('f', 0.5), '0.5');
  assert.ok((await redis.pttl('greeting')) === -1);
  const bytes = Buffer.from([0, 255, 13, 10]);
  await redis.set(bytes, bytes);
  assert.deepEqual(await redis.getBuffer(bytes), bytes);
}

async function collections(redis) {
  assert.equal(await redis.hset('h', { a: 1, b: 'two' }), 2);
  assert.deepEqual(await redis.hgetall('h'), { a: '1', b: 'two' });
  assert.equal(await redis.rpush('l', 'x', 'y', 'z'), 3);
  assert.deepEqual(await redis.lrange('l', 0, -1), ['x', 'y', 'z']);
  assert.equal(await redis.sadd('e', 'x', 'x', 'y'), 2);
  assert.deepEqual((await redis.smembers('e')).sort(), ['x', 'y']);
  assert.equal(await redis.zadd('z', 1.5, 'a', '-inf', 'b'), 2);
  assert.deepEqual(await redis.zrange('z', 0, -1, 'WITHSCORES'), ['b', '-inf', 'a', '1.5']);
}

async function errors(redis) {
  await assert.rejects(redis.lpush('h', 'x'), /^ReplyError: WRONGTYPE Operation/);
  await assert.rejects(redis.incr('greeting'), /not an integer or out of range/);
  await assert.rejects(redis.call('NOSUCH', 'x'), /unknown command 'NOSUCH'/);
}

async function pipelines(redis) {
  const pipeline = redis.pipeline();
  for (let n = 0; n < 2000; n += 1) {
    pipeline.set(`key:${n}`, n).hset('big', `f${n}`, n);
  }
  pipeline.lpush('h', 'wrong');
  const replies = await pipeline.exec();
  assert.equal(replies.length, 4001);
  assert.ok(replies.slice(0, -1).every(([error]) => error === null));
  assert.match(replies.at(-1)[0].message, /^WRONGTYPE/);
  const many = await Promise.all(Array.from({ length: 500 }, (_, n) => redis.get(`key:${n}`)));
  assert.deepEqual(many, Array.from({ length: 500 }, (_, n) => String(n)));
}

async function scans(redis) {
  const keys = new Set();
  for await (const page of redis.scanStream({ match: 'key:*', count: 100 })) {
    page.forEach((key) => keys.add(key));
  }
  assert.equal(keys.size, 2000);
  const fields = new Map();
  for await (const page of redis.hscanStream('big', { count: 100 })) {
    for (let at = 0; at < page.length; at += 2) fields.set(page[at], page[at + 1]);
  }
  assert.equal(fields.size, 2000);
  assert.equal(fields.get('f1234'), '1234');
}

function secure(folder) {
  const read = (name) => fs.readFileSync(path.join(folder, name));
  return { tls: { ca: read('ca.crt'), cert: read('client.crt'), key: read('client.key') } };
}

async function main([host, port, folder]) {
  const to = { host, port: Number(port), db: 2, ...(folder ? secure(folder) : {}) };
  const redis = new Redis({ ...to, connectionName: 'smoke' });
  const automatic = new Redis({ ...to, enableAutoPipelining: true });
  try {
    assert.equal(await redis.acl('WHOAMI'), folder ? 'Client-only' : 'default');
    await redis.flushdb();
    for (const step of [simpleCommands, collections, errors, pipelines, scans]) {
      await step(redis);
      console.log(`ok ${step.name}`);
    }
    const values = await Promise.all([1, 2, 3].map((n) => automatic.get(`key:${n}`)));
    assert.deepEqual(values, ['1', '2', '3']);
    assert.equal(await redis.client('GETNAME'), 'smoke');
    assert.equal(await redis.dbsize(), 2000 + 9);
  } finally {
    redis.disconnect();
    automatic.disconnect();
  }
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
