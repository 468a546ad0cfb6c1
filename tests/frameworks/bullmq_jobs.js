// BullMQ, whose every step is a Lua script: plain, delayed, prioritized, repeated
// and failing jobs, and a tree of jobs, by two workers.
//
//     bullmq_jobs.js PORT
'use strict';

const assert = require('node:assert/strict');
const { FlowProducer, Queue, QueueEvents, Worker } = require('bullmq');

const connection = { host: '127.0.0.1', port: Number(process.argv[2]), maxRetriesPerRequest: null };

async function main() {
  const queue = new Queue('jobs', { connection });
  const events = new QueueEvents('jobs', { connection });
  await events.waitUntilReady();
  const tries = new Map();
  const work = async (job) => {
    if (job.name === 'add') return job.data.a + job.data.b;
    if (job.name === 'sum') return Object.values(await job.getChildrenValues()).reduce((a, b) => a + b, 0);
    tries.set(job.id, (tries.get(job.id) ?? 0) + 1);
    if (job.name === 'fails' || tries.get(job.id) < 3) throw new Error('as it should');
    return tries.get(job.id);
  };
  const workers = [1, 2].map(() => new Worker('jobs', work, { connection, concurrency: 4 }));
  const options = [{}, { delay: 50 }, { priority: 3 }, { lifo: true }];
  const jobs = await Promise.all(
    Array.from({ length: 60 }, (_, n) => queue.add('add', { a: n, b: 1 }, options[n % options.length])),
  );
  const sums = await Promise.all(jobs.map((job) => job.waitUntilFinished(events, 30000)));
  assert.deepEqual(sums, Array.from({ length: 60 }, (_, n) => n + 1));
  const bulk = await queue.addBulk(Array.from({ length: 40 }, (_, n) => ({ name: 'add', data: { a: n, b: n } })));
  const doubled = await Promise.all(bulk.map((job) => job.waitUntilFinished(events, 30000)));
  assert.deepEqual(doubled, Array.from({ length: 40 }, (_, n) => 2 * n));
  const stubborn = await queue.add('stubborn', {}, { attempts: 5, backoff: { type: 'fixed', delay: 20 } });
  assert.equal(await stubborn.waitUntilFinished(events, 30000), 3);
  const broken = await queue.add('fails', {});
  await assert.rejects(broken.waitUntilFinished(events, 30000), /as it should/);
  const flow = new FlowProducer({ connection });
  const child = (a) => ({ name: 'add', queueName: 'jobs', data: { a, b: 1 } });
  const tree = await flow.add({ name: 'sum', queueName: 'jobs', children: [child(1), child(2), child(3)] });
  assert.equal(await tree.job.waitUntilFinished(events, 30000), 9);
  const counts = await queue.getJobCounts('completed', 'failed', 'wait', 'active', 'delayed');
  assert.deepEqual(counts, { completed: 105, failed: 1, wait: 0, active: 0, delayed: 0 });
  await Promise.all([...workers, flow, events, queue].map((part) => part.close()));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
