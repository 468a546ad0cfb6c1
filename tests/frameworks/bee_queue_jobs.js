// Bee-Queue: plain, delayed, retried and failing jobs, progress, jobs that are removed, pages of
// jobs, and what a killed worker had begun.
//
//     bee_queue_jobs.js PORT
'use strict';

const assert = require('node:assert/strict');
const { spawn } = require('node:child_process');
const { once } = require('node:events');
const Queue = require('bee-queue');

const redis = { host: '127.0.0.1', port: Number(process.argv[2]) };
const WAIT_MS = 30000;

// What must happen soon; otherwise an error says what did not.
function soon(what, action) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`gave up waiting for ${what}`)), WAIT_MS);
  });
  return Promise.race([action, late]).finally(() => clearTimeout(timer));
}

// The result of a job: [the status, the value or the error].
function end(job) {
  const ends = new Promise((resolve) => {
    job.once('succeeded', (result) => resolve(['succeeded', result]));
    job.once('failed', (error) => resolve(['failed', error.message]));
  });
  return () => soon(`job ${job.id}`, ends);
}

// The job is saved after its listeners are there, so that no event is missed.
async function sent(job) {
  const ended = end(job);
  await job.save();
  return ended;
}

async function plain(queue) {
  const tries = new Map();
  queue.process(4, async (job) => {
    tries.set(job.id, (tries.get(job.id) ?? 0) + 1);
    const { kind, a, b } = job.data;
    if (kind === 'add') return a + b;
    if (kind === 'now') return Date.now();
    if (kind === 'progress') {
      for (const part of [1, 2, 3]) await job.reportProgress({ part });
      return 'done';
    }
    if (kind === 'stubborn' && tries.get(job.id) === 3) return tries.get(job.id);
    throw new Error('as it should');
  });
  const numbers = Array.from({ length: 100 }, (_, n) => n);
  const sums = await Promise.all(numbers.map((n) => sent(queue.createJob({ kind: 'add', a: n, b: 1 }))));
  assert.deepEqual(
    await Promise.all(sums.map((ended) => ended())),
    numbers.map((n) => ['succeeded', n + 1]),
  );
  const bulk = Array.from({ length: 50 }, (_, n) => queue.createJob({ kind: 'add', a: n, b: n }));
  const ends = bulk.map(end);
  assert.equal((await queue.saveAll(bulk)).size, 0);
  assert.deepEqual(await Promise.all(ends.map((ended) => ended())), bulk.map((_, n) => ['succeeded', 2 * n]));
  const due = Date.now() + 300;
  const late = await (await sent(queue.createJob({ kind: 'now' }).delayUntil(due)))();
  assert.ok(late[0] === 'succeeded' && late[1] >= due, `${late} before ${due}`);
  const seen = [];
  const showing = queue.createJob({ kind: 'progress' }).on('progress', (progress) => seen.push(progress.part));
  assert.deepEqual(await (await sent(showing))(), ['succeeded', 'done']);
  assert.deepEqual(seen, [1, 2, 3]);
  for (const strategy of [['immediate'], ['fixed', 20], ['exponential', 10]]) {
    const stubborn = queue.createJob({ kind: 'stubborn' }).retries(4).backoff(...strategy);
    let retried = 0;
    stubborn.on('retrying', () => (retried += 1));
    assert.deepEqual(await (await sent(stubborn))(), ['succeeded', 3]);
    assert.equal(retried, 2);
  }
  assert.deepEqual(await (await sent(queue.createJob({ kind: 'fails' })))(), ['failed', 'as it should']);
  const health = await queue.checkHealth();
  assert.deepEqual([health.waiting, health.active, health.delayed, health.succeeded, health.failed], [0, 0, 0, 155, 1]);
}

async function lists() {
  const queue = new Queue('listed', { redis, isWorker: false, getEvents: false });
  await queue.ready();
  const jobs = await Promise.all(Array.from({ length: 30 }, (_, n) => queue.createJob({ n }).setId(`job-${n}`).save()));
  assert.equal((await queue.createJob({ n: 99 }).setId('job-7').save()).id, null, 'an id was taken twice');
  const page = await queue.getJobs('waiting', { start: 0, end: 9 });
  assert.equal(page.length, 10);
  await queue.createJob({ n: 31 }).delayUntil(Date.now() + 600000).save();
  assert.equal((await queue.getJobs('delayed', { start: 0, end: 9 })).length, 1);
  assert.equal((await queue.getJob('job-7')).data.n, 7);
  await queue.removeJob('job-7');
  await jobs[8].remove();
  assert.equal(await queue.getJob('job-7'), null);
  const health = await queue.checkHealth();
  assert.deepEqual([health.waiting, health.delayed, health.newestJob], [28, 1, 1]);
  await queue.destroy();
  await queue.close();
}

// A process that takes a job and is killed with it.
async function stalled() {
  const settings = { redis, stallInterval: 200, activateDelayedJobs: true };
  const job = await new Queue('stalls', { redis, isWorker: false }).createJob({ n: 42 }).save();
  const stdio = ['ignore', 'pipe', 'inherit'];
  const child = spawn(process.execPath, [__filename, process.argv[2], 'dies'], { stdio });
  await soon('the worker that dies', once(child.stdout, 'data'));
  child.kill('SIGKILL');
  await soon('its end', once(child, 'exit'));
  const queue = new Queue('stalls', settings);
  const again = once(queue, 'stalled');
  const done = once(queue, 'succeeded');
  queue.process(async (taken) => taken.data.n);
  await queue.checkStalledJobs(50);
  assert.deepEqual(await soon('a stalled job', again), [job.id]);
  const [which, result] = await soon('the result of the stalled job', done);
  assert.deepEqual([which.id, result], [job.id, 42]);
  await queue.close();
}

async function dies() {
  const queue = new Queue('stalls', { redis, stallInterval: 200 });
  queue.process(() => {
    process.stdout.write('taken\n');
    return new Promise(() => {});
  });
}

async function main() {
  if (process.argv[3] === 'dies') return dies();
  const queue = new Queue('jobs', { redis, activateDelayedJobs: true, delayedDebounce: 10 });
  await queue.ready();
  await plain(queue);
  await lists();
  await stalled();
  await queue.close();
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
