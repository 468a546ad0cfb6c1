// node-redis: pipelines by themselves, transactions, WATCH, scripts, functions,
// messages, blocking commands, iterators.
//
//     node_redis.js PORT
'use strict';

const assert = require('node:assert/strict');
const { createClient, createClientPool, defineScript, WatchError } = require('redis');

const url = `redis://127.0.0.1:${process.argv[2]}`;
const scripts = {
  addAndGet: defineScript({
    NUMBER_OF_KEYS: 1,
    SCRIPT: "redis.call('INCRBY', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])",
    parseCommand: (parser, key, by) => {
      parser.pushKey(key);
      parser.push(String(by));
    },
    transformReply: Number,
  }),
};

async function countUp(pool, rounds) {
  for (let done = 0; done < rounds; ) {
    try {
      await pool.execute(async (own) => {
        await own.watch('counter');
        const value = Number((await own.get('counter')) ?? 0);
        await own.multi().set('counter', value + 1).exec();
      });
      done += 1;
    } catch (error) {
      if (!(error instanceof WatchError)) throw error;
    }
  }
}

async function main() {
  const client = createClient({ url, scripts });
  await client.connect();
  const pool = createClientPool({ url }, { minimum: 1, maximum: 8 });
  await pool.connect();
  await client.flushAll();
  const many = Array.from({ length: 2000 }, (_, n) => client.set(`k:${n}`, `${n}`));
  assert.ok((await Promise.all(many)).every((reply) => reply === 'OK'));
  const replies = await client.multi().hSet('h', { a: '1', b: '2' }).hGetAll('h').incr('n').exec();
  assert.deepEqual([replies[0], { ...replies[1] }, replies[2]], [2, { a: '1', b: '2' }, 1]);
  await Promise.all(Array.from({ length: 6 }, () => countUp(pool, 20)));
  assert.equal(await client.get('counter'), '120');
  assert.equal(await client.addAndGet('n', 41), 42);
  await client.sendCommand(['SCRIPT', 'FLUSH']);
  assert.equal(await client.addAndGet('n', -2), 40);
  const library = "#!lua name=js\nredis.register_function('js_add', function(k, a) return a[1] + a[2] end)";
  await client.functionLoad(library, { REPLACE: true });
  assert.equal(await client.sendCommand(['FCALL', 'js_add', '0', '1', '2']), 3);
  const subscriber = client.duplicate();
  await subscriber.connect();
  const got = [];
  const all = new Promise((resolve) => {
    subscriber.subscribe('news', (message) => got.push(message) === 100 && resolve());
  });
  while ((await client.pubSubNumSub('news')).news !== 1) await new Promise(setImmediate);
  for (let n = 0; n < 100; n += 1) await client.publish('news', `${n}`);
  await all;
  assert.deepEqual(got, Array.from({ length: 100 }, (_, n) => `${n}`));
  const waiting = pool.execute((own) => own.blPop('queue', 10));
  await client.rPush('queue', 'x');
  assert.deepEqual({ ...(await waiting) }, { key: 'queue', element: 'x' });
  let keys = 0;
  for await (const key of client.scanIterator({ MATCH: 'k:*', COUNT: 100 })) keys += [key].flat().length;
  assert.equal(keys, 2000);
  subscriber.destroy();
  await pool.close();
  await client.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
