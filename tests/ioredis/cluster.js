// ioredis' cluster client against a cluster of one node. Exits with 1 and the reason when something is wrong.
//
//     node cluster.js HOST PORT    (ioredis is found through NODE_PATH)
'use strict';

const assert = require('node:assert/strict');
const Redis = require('ioredis');

async function main() {
  const [host, port] = process.argv.slice(2);
  const options = { scaleReads: 'all', shardedSubscribers: true };
  const cluster = new Redis.Cluster([{ host, port: Number(port) }], options);
  await new Promise((resolve, reject) => {
    cluster.once('ready', resolve);
    cluster.once('error', reject);
  });
  assert.equal(cluster.nodes('master').length, 1);
  const keys = Array.from({ length: 500 }, (_, n) => `k:${n}`);
  const set = await Promise.all(keys.map((key, n) => cluster.set(key, n)));
  assert.ok(set.every((reply) => reply === 'OK'));
  const read = await Promise.all(keys.map((key) => cluster.get(key)));
  assert.deepEqual(read, keys.map((_, n) => String(n)));
  const pipeline = cluster.pipeline();
  for (let n = 0; n < 200; n += 1) {
    pipeline.hset('{t}h', `f${n}`, n).incr('{t}n');
  }
  const replies = await pipeline.exec();
  assert.ok(replies.every(([error]) => error === null));
  assert.equal(replies.at(-1)[1], 200);
  const multi = await cluster.multi().set('{t}a', 1).incr('{t}a').exec();
  assert.deepEqual(multi, [[null, 'OK'], [null, 2]]);
  await assert.rejects(cluster.mget('a', 'b'), /CROSSSLOT/);
  cluster.defineCommand('both', { numberOfKeys: 2, lua: "return redis.call('MGET', KEYS[1], KEYS[2])" });
  assert.deepEqual(await cluster.both('{t}a', '{t}n'), ['2', '200']);
  const found = [];
  for await (const names of cluster.nodes('master')[0].scanStream({ match: 'k:*' })) {
    found.push(...names);
  }
  assert.equal(new Set(found).size, 500);
  await cluster.subscribe('news');
  const heard = new Promise((resolve) => cluster.once('message', (_, text) => resolve(text)));
  await cluster.publish('news', 'x');
  assert.equal(await heard, 'x');
  cluster.disconnect();
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
