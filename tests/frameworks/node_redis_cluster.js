// node-redis' cluster client against a cluster of one node: keys of many slots,
// transactions of one slot, errors, messages of shard channels.
//
//     node_redis_cluster.js PORT
'use strict';

const assert = require('node:assert/strict');
const { createCluster } = require('redis');

async function work(RESP) {
  const url = `redis://127.0.0.1:${process.argv[2]}`;
  const cluster = createCluster({ rootNodes: [{ url }], useReplicas: true, defaults: { RESP } });
  await cluster.connect();
  assert.equal(cluster.masters.length, 1);
  await (await cluster.nodeClient(cluster.masters[0])).flushAll();
  const many = Array.from({ length: 500 }, (_, n) => cluster.set(`k:${n}`, `${n}`));
  assert.ok((await Promise.all(many)).every((reply) => reply === 'OK'));
  const read = await Promise.all(Array.from({ length: 500 }, (_, n) => cluster.get(`k:${n}`)));
  assert.deepEqual(read, Array.from({ length: 500 }, (_, n) => `${n}`));
  const replies = await cluster.multi().set('{t}a', '1').incr('{t}a').get('{t}a').exec();
  assert.deepEqual(replies, ['OK', 2, '2']);
  await assert.rejects(cluster.mGet(['a', 'b']), /CROSSSLOT/);
  assert.deepEqual(await cluster.mGet(['{t}a', '{t}b']), ['2', null]);
  const heard = new Promise((resolve) => cluster.sSubscribe('news', resolve));
  const publish = async () => {
    while ((await cluster.sPublish('news', 'x')) === 0);
  };
  await Promise.all([publish(), heard]);
  assert.equal(await heard, 'x');
  await cluster.sUnsubscribe('news');
  cluster.destroy();
}

async function main() {
  for (const RESP of [2, 3]) {
    await work(RESP);
  }
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
