//! Slow requests: how an IO thread hands one over, and how a worker runs it (see
//! [`crate::state::workers`]). A worker also serves waiting clients for which that takes long.

use super::{Executor, Outcome, Retry};
use crate::commands::Error;
use crate::commands::scripts::busy;
use crate::resp::Reply;
use crate::state::workers::{Done, Job, ReadyKeys, Worker};
use crate::state::{Server, Session};
use crate::storage::engine::cold_reads::ColdRead;
use std::time::Instant;

/// How long a request waits at most for the memory of its reply.
const MAX_ROOM_WAIT_MS: u64 = 60_000;

/// A request whose attempt has made more bytes of its reply than this is not taken back for want of
/// rows again.
const LONG_REPLY: usize = 1 << 20;

impl Executor {
    /// Hands a request over to a worker after it was taken back as slow, unless slow scripts
    /// occupy all workers. Earlier commands of the tick are committed first.
    pub(super) fn leave_to_worker(
        &mut self,
        session: &mut Session,
        args: &[&[u8]],
        reply: &mut Reply,
        start: usize,
    ) -> Outcome {
        let refused = match self.commit_pending() {
            Ok(()) => self.no_worker(),
            Err(error) => Some(error),
        };
        match refused {
            None => Outcome::Slow,
            Some(error) => {
                let error = self.refuse_in_multi(session, args, error);
                self.fail(&error, reply);
                self.suppress(session, reply, start);
                Outcome::Done
            }
        }
    }

    /// The error for requests while slow scripts occupy all workers.
    fn no_worker(&self) -> Option<Error> {
        let workers = &self.server.workers;
        let script = workers.longest()?;
        let all_slow = workers.are_all_slow(self.busy_threshold());
        all_slow.then(|| busy(script.is_function))
    }

    /// Refuses the requests that wait for a worker while slow scripts occupy all of them:
    /// scripts may have become slow after the requests were handed over.
    pub fn refuse_waiting_jobs(&self) {
        while let Some(error) = self.no_worker()
            && let Some(mut job) = self.server.workers.take_waiting()
        {
            let mut reply = Reply::new(job.session.resp3);
            let args = job.request.args();
            let error = self.refuse_in_multi(&mut job.session, &args, error);
            self.fail(&error, &mut reply);
            self.suppress(&mut job.session, &mut reply, 0);
            drop(args);
            answer(&self.server, job.session, reply, &Ok(()), &mut || {});
        }
    }

    /// Runs one request to its end, on a worker. Returns the job if it cannot run now. Messages to
    /// other clients are sent before the reply, messages to the client itself after it.
    ///
    /// As long as that makes sense, the request is taken back when it lacks rows, which are read
    /// while no key is locked.
    pub fn run_job(&mut self, mut job: Job) -> Option<Job> {
        loop {
            let began = Instant::now();
            let (mut again, reads) = self.try_job(job)?;
            let Some(reads) = reads else {
                return Some(again);
            };
            let attempts = again.attempts.as_mut();
            if !attempts.is_some_and(|attempts| attempts.are_worth(began.elapsed(), &reads)) {
                again.attempts = None;
            }
            let began = Instant::now();
            self.server.engine.wait_for_reads(reads);
            if let Some(attempts) = &mut again.attempts {
                attempts.note_reads(began.elapsed());
            }
            job = again;
        }
    }

    /// Tries to run a request in a tick of its own. Returns the job if it has not ended, and what
    /// must be read first, if anything must.
    fn try_job(&mut self, mut job: Job) -> Option<(Job, Option<Vec<ColdRead>>)> {
        let worker = self.thread.worker.clone()?;
        let mut reply = Reply::new(job.session.resp3);
        if self.server.clients.get(job.session.info.id).is_none() {
            // The client has disconnected or was killed.
            answer(&self.server, job.session, reply, &Ok(()), &mut || {});
            return None;
        }
        worker.begin(Some(job.session.info.id));
        self.start_tick();
        let waited_ms = self.tick.now_ms.since(job.wanted_since_ms);
        let waits = job.wanted > 0 && waited_ms < MAX_ROOM_WAIT_MS;
        if waits && !self.server.lend_reply(self.config(), job.wanted, waited_ms) {
            worker.end();
            return Some((job, None));
        }
        // The reply counts as the client's memory once the client's thread has it.
        reply.bound_with(&self.server, if waits { job.wanted as usize } else { 0 });
        let may_wait_for_room = job.wanted == 0 || waits;
        self.request.waited_for_room = !may_wait_for_room;
        let (outcome, reads) = self.run_request(&mut job, &mut reply);
        worker.request_done();
        // Otherwise a worker has no read budget.
        let is_slow = outcome == Outcome::Slow;
        let lacked_tables = is_slow && !job.waited && self.txn.lacked_tables();
        let is_over = is_slow && !lacked_tables && self.thread.turns;
        debug_assert!(!is_slow || lacked_tables || is_over);
        job.waited |= lacked_tables;
        job.is_long |= is_over;
        let wanted = match reply.overflowed && may_wait_for_room {
            true => {
                let (args, bytes) = (job.request.args(), reply.len());
                self.room_for_retry(&job.session, &args, bytes, reply.left_out)
            }
            false => None,
        };
        if job.wanted == 0 {
            // The attempt may have taken long.
            self.read_clock();
            job.wanted_since_ms = self.tick.now_ms;
        }
        job.wanted = wanted.unwrap_or(0);
        let (again, mut done) = match outcome {
            _ if wanted.is_some() => (Some(job), None),
            Outcome::Paused | Outcome::Cold => (Some(job), None),
            Outcome::Slow if lacked_tables || is_over => (Some(job), None),
            Outcome::Slow => {
                reply.error("ERR this takes too long here");
                (None, Some(job.session))
            }
            Outcome::Done | Outcome::Blocked => (None, Some(job.session)),
        };
        let server = self.server.clone();
        server.stats.worker_requests.add(u64::from(again.is_none()));
        let changes_session = !self.was_plain();
        let finished = self.finish_tick_with(|finished, send| match done.take() {
            Some(mut session) => {
                // What it changed of the session stands, as on an IO thread, and its client would
                // not know that.
                session.close_after_reply |= finished.is_err() && changes_session;
                answer(&server, session, reply, finished, send);
            }
            None => send(),
        });
        if let Err(error) = finished {
            log::debug!("a worker's tick: {error}");
        }
        let postponed = worker.end();
        self.serve_all(&worker, postponed);
        if let Err(error) = self.txn.wait_for_lacked_tables() {
            log::debug!("a worker cannot wait for tables: {error}");
        }
        again.map(|job| (job, reads))
    }

    /// Runs the request of a job; also returns what must be read first, if it lacked rows.
    fn run_request(
        &mut self,
        job: &mut Job,
        reply: &mut Reply,
    ) -> (Outcome, Option<Vec<ColdRead>>) {
        self.request.accesses_noted = job.noted;
        self.request.waited = job.waited;
        let retry = Retry {
            shown: job.shown,
            seed: job.seed,
            ..Retry::default()
        };
        self.begin_request(job.lent, job.request.len(), retry);
        self.request.scripts = std::mem::take(&mut job.scripts);
        self.request.in_memory = job.attempts.is_some();
        let outcome = self.run(&mut job.session, &job.request.args(), reply);
        self.request.in_memory = false;
        let reads = (outcome == Outcome::Cold).then(|| self.take_cold_reads());
        // Each further attempt would make the reply again.
        if reply.buf.capacity() > LONG_REPLY {
            job.attempts = None;
        }
        job.shown = self.request.retry.shown;
        job.seed = self.request.retry.seed;
        job.noted = self.request.accesses_noted;
        job.scripts = std::mem::take(&mut self.request.scripts);
        (outcome, reads)
    }

    /// Serves the clients that wait for these keys, on a worker.
    pub fn serve_keys(&mut self, keys: ReadyKeys) {
        if let Some(worker) = self.thread.worker.clone() {
            worker.begin(None);
            self.serve_all(&worker, keys);
        }
    }

    /// Serves the clients that wait for these keys, and for those that are left to this worker
    /// meanwhile. Its work is over then.
    fn serve_all(&mut self, worker: &Worker, mut keys: ReadyKeys) {
        while !keys.is_empty() {
            self.start_tick();
            let served = self.serve_postponed(keys);
            // The served clients get the error of a failed tick.
            let finished = self.finish_tick();
            if let Err(error) = served.and(finished) {
                log::error!("cannot serve clients on a worker: {error}");
            }
            keys = worker.end();
        }
        self.server.workers.ended();
        self.server.resume_clients();
    }
}

/// Sends the session and the reply of a finished request to the client's thread, around a call
/// of `send`, which sends the messages of the tick.
fn answer(
    server: &Server,
    mut session: Session,
    mut reply: Reply,
    finished: &Result<(), Error>,
    send: &mut dyn FnMut(),
) {
    if let Err(error) = finished {
        if let Some(waiter) = session.waiting.take() {
            server.waiters.abandon(&waiter);
        }
        reply.truncate(0);
        reply.error(&error.to_string());
    }
    // A long reply is sent as it is: its thread would have to copy it to free what it does not need.
    reply.buf.shrink_to_fit();
    let thread = session.info.thread;
    let done = Done { session, reply };
    server.workers.finish(done, send);
    server.wake_threads([thread]);
}

#[cfg(test)]
mod ends;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::testing::Client;
    use crate::resp::Value;
    use crate::state::commandlog::LogKind;
    use crate::state::request::Request;

    /// Runs one request as an IO thread does.
    fn on_io_thread(client: &mut Client, line: &str, reply: &mut Reply) -> Outcome {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        args_on_io_thread(client, &args, reply)
    }

    fn args_on_io_thread(client: &mut Client, args: &[&[u8]], reply: &mut Reply) -> Outcome {
        let mut executor = Executor::of_thread(client.server(), 0);
        executor.start_tick();
        let outcome = executor.run(client.parts().1, args, reply);
        executor.finish_tick().unwrap();
        outcome
    }

    /// The items of a reply.
    fn items(reply: Value) -> Vec<Value> {
        match reply {
            Value::Array(items) => items,
            other => panic!("{other:?} is no array"),
        }
    }

    #[test]
    fn walks_over_large_collections_are_left_to_workers_and_leave_nothing() {
        let mut client = Client::new();
        client.run("CONFIG SET notify-keyspace-events KEAm");
        let members: Vec<String> = (0..300).map(|n| format!("m{n}")).collect();
        client.run(&format!("SADD large {}", members.join(" ")));
        client.run("SADD small m1 other");
        let stats = |client: &Client| {
            let stats = &client.server().stats;
            (stats.keyspace_hits.get(), stats.keyspace_misses.get())
        };
        let before = (stats(&client), client.logged());
        let long = [
            "SMEMBERS large",
            "SORT large ALPHA",
            "SDIFF missing large",
            "SUNIONSTORE to small large",
            "SDIFFSTORE small large small",
            "COPY large to",
            "DUMP large",
        ];
        for line in long {
            let mut reply = Reply::new(false);
            let outcome = on_io_thread(&mut client, line, &mut reply);
            // A missing first set makes the result empty without a walk.
            let expected = match line.starts_with("SDIFF ") {
                true => Outcome::Done,
                false => Outcome::Slow,
            };
            assert_eq!(outcome, expected, "{line}");
            assert_eq!(reply.is_empty(), outcome == Outcome::Slow, "{line}");
        }
        assert_eq!(before.1, client.logged());
        assert_eq!(client.run("EXISTS to"), Value::Int(0));
        assert_eq!(client.run("SCARD small"), Value::Int(2));
        for line in [
            "SISMEMBER large m1",
            "SSCAN large 0",
            "SCARD large",
            "DEL large",
        ] {
            let mut reply = Reply::new(false);
            let outcome = on_io_thread(&mut client, line, &mut reply);
            assert_eq!(outcome, Outcome::Done, "{line}");
        }
        client.check();
    }

    #[test]
    fn commands_that_may_wait_are_left_to_workers_and_take_nothing() {
        let mut client = Client::new();
        for n in 0..300 {
            client.run(&format!("XADD s {}-1 f v", n + 1));
            client.run(&format!("RPUSH list {n}"));
        }
        client.run("XGROUP CREATE s g 0");
        let before = client.logged();
        let long = [
            "XREAD BLOCK 0 STREAMS s 0",
            "XREADGROUP GROUP g c COUNT 200 STREAMS s >",
            "BLMPOP 0 1 list LEFT COUNT 200",
        ];
        for line in long {
            let mut reply = Reply::new(false);
            assert_eq!(
                on_io_thread(&mut client, line, &mut reply),
                Outcome::Slow,
                "{line}"
            );
            assert!(reply.is_empty(), "{line}");
        }
        assert_eq!(client.logged(), before);
        assert_eq!(client.run("LLEN list"), Value::Int(300));
        for line in [
            "XREAD COUNT 50 STREAMS s 0",
            "BLMPOP 0 1 list LEFT COUNT 50",
        ] {
            let mut reply = Reply::new(false);
            assert_eq!(
                on_io_thread(&mut client, line, &mut reply),
                Outcome::Done,
                "{line}"
            );
        }
        let mut worker = client.another().on_worker();
        for (line, count) in [(long[0], 300), (long[1], 200)] {
            let stream = items(items(worker.run(line)).remove(0));
            assert!(matches!(&stream[1], Value::Array(entries) if entries.len() == count));
        }
        client.check();
    }

    #[test]
    fn transactions_and_scripts_that_read_long_are_left_to_workers_as_a_whole() {
        let mut client = Client::new();
        for n in 0..80 {
            client.run(&format!("RPUSH list {n}"));
        }
        let queue = |client: &mut Client| {
            for line in ["MULTI", "SET a 1", "LRANGE list 0 -1", "LRANGE list 0 -1"] {
                client.run(line);
            }
        };
        queue(&mut client);
        let before = client.logged();
        let mut reply = Reply::new(false);
        let outcome = on_io_thread(&mut client, "EXEC", &mut reply);
        assert_eq!((outcome, reply.is_empty()), (Outcome::Slow, true));
        assert_eq!(client.logged(), before);
        // The queue is still there and can run as a whole.
        assert_eq!(items(client.run("EXEC")).len(), 3);
        assert_eq!(client.run("GET a"), Value::Bulk(b"1".to_vec()));
        // A transaction that could not be taken back is not begun there.
        queue(&mut client);
        client.run("CONFIG SET slowlog-max-len 7");
        let outcome = on_io_thread(&mut client, "EXEC", &mut reply);
        assert_eq!((outcome, reply.is_empty()), (Outcome::Slow, true));
        assert_eq!(client.server().config.load().slowlog_max_len, 128);
        assert_eq!(items(client.run("EXEC")).len(), 4);
        assert_eq!(client.server().config.load().slowlog_max_len, 7);

        let script = "redis.call('INCR', KEYS[2]) for i = 1, 3 do \
                      redis.pcall('LRANGE', KEYS[1], 0, -1) end return 7";
        let request: [&[u8]; 5] = [b"EVAL", script.as_bytes(), b"2", b"list", b"b"];
        let mut reply = Reply::new(false);
        let outcome = args_on_io_thread(&mut client, &request, &mut reply);
        assert_eq!((outcome, reply.is_empty()), (Outcome::Slow, true));
        assert_eq!(client.run("EXISTS b"), Value::Int(0));
        assert_eq!(client.args(&request), Value::Int(7));
        assert_eq!(client.run("GET b"), Value::Bulk(b"1".to_vec()));
        // Separate requests do not share a read budget.
        for _ in 0..3 {
            let outcome = on_io_thread(&mut client, "LRANGE list 0 -1", &mut reply);
            assert_eq!(outcome, Outcome::Done);
        }
        client.check();
    }

    /// The second attempt would find fieldsets that the first has removed or replaced.
    #[test]
    fn a_transaction_that_is_taken_back_leaves_the_client_as_it_was() {
        let mut client = Client::new();
        for n in 0..160 {
            client.run(&format!("RPUSH list {n}"));
        }
        client.run("HIMPORT PREPARE a f g");
        for line in [
            "MULTI",
            "HIMPORT SET k a 1 2",
            "HIMPORT DISCARD a",
            "HIMPORT PREPARE b h",
            "HIMPORT DISCARDALL",
            "LRANGE list 0 0",
            "SELECT 1",
        ] {
            client.run(line);
        }
        // The read comes last in the queue, when everything else is done.
        client.run("SELECT 0");
        client.run("LRANGE list 0 -1");
        let memory = client.parts().1.info.memory_bytes();
        let outcome = on_io_thread(&mut client, "EXEC", &mut Reply::new(false));
        assert_eq!(outcome, Outcome::Slow);
        let (_, session) = client.parts();
        assert_eq!((session.db().0, session.fieldsets().len()), (0, 1));
        assert_eq!(session.info.memory_bytes(), memory);
        let replies = items(client.run("EXEC"));
        assert_eq!(replies[0], Value::Simple("OK".into()));
        assert_eq!((&replies[1], &replies[3]), (&Value::Int(1), &Value::Int(1)));
        assert!(client.parts().1.fieldsets().is_empty());
        assert_eq!(client.run("HGET k g"), Value::Bulk(b"2".to_vec()));
        client.check();
    }

    #[test]
    fn what_is_taken_back_is_counted_once_and_still_watched() {
        let mut client = Client::new();
        client.run("CONFIG SET slowlog-log-slower-than 0 maxmemory-policy allkeys-lfu");
        client.run("CONFIG SET lfu-log-factor 0");
        for n in 0..200 {
            client.run(&format!("RPUSH list {n}"));
        }
        client.run("SET k 1");
        let mut other = client.another();
        let mut exec = |client: &mut Client, meanwhile: &str| {
            for line in ["WATCH k", "MULTI", "GET k", "UNWATCH", "LRANGE list 0 -1"] {
                client.run(line);
            }
            let outcome = on_io_thread(client, "EXEC", &mut Reply::new(false));
            assert_eq!(outcome, Outcome::Slow);
            other.run(meanwhile);
            client.run("EXEC")
        };
        assert_eq!(exec(&mut client, "SET k 2"), Value::Null);
        client.run("SLOWLOG RESET");
        let freq = |client: &mut Client| match client.run("OBJECT FREQ k") {
            Value::Int(freq) => freq,
            other => panic!("{other:?}"),
        };
        let before = freq(&mut client);
        assert_eq!(items(exec(&mut client, "PING")).len(), 3);
        assert_eq!(freq(&mut client), before + 1);
        let slow = client.server().commandlog.of(LogKind::Slow).newest(None);
        let gets = slow.iter().filter(|entry| entry.args[0] == b"GET");
        assert_eq!(gets.count(), 1);
        client.check();
    }

    #[test]
    fn no_job_runs_for_a_client_that_is_gone() {
        let mut client = Client::new();
        client.run("RPUSH list a b");
        let server = client.server();
        for gone in [true, false] {
            let mut another = client.another();
            let id = another.parts().1.info.id;
            let session = another.parts().1.detach();
            if gone {
                server.clients.remove(id);
            }
            let request = Request::new(&[b"LPOP".as_slice(), b"list"]);
            let job = Job::new(session, request, false);
            let mut worker = client.another().on_worker();
            assert!(worker.parts().0.run_job(job).is_none());
            let left = if gone { 2 } else { 1 };
            assert_eq!(client.run("LLEN list"), Value::Int(left));
        }
        client.check();
    }

    #[test]
    fn workers_read_without_the_keys_that_they_read() {
        let mut client = Client::new();
        for n in 0..300 {
            client.run(&format!("RPUSH list {n}"));
            client.run(&format!("ZADD z {n} {n}"));
        }
        client.run("MSET a 1 b 1");
        // The tick has not ended, so its thread holds the keys.
        let mut writer = client.another();
        let (executor, session) = writer.parts();
        executor.start_tick();
        for line in ["MSET a 2 b 2", "LTRIM list 0 0", "ZREMRANGEBYRANK z 1 -1"] {
            let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let outcome = executor.run(session, &args, &mut Reply::new(false));
            assert_eq!(outcome, Outcome::Done, "{line}");
        }
        let mut worker = client.another().on_worker();
        let ones = Value::Array(vec![Value::Bulk(b"1".to_vec()), Value::Bulk(b"1".to_vec())]);
        assert_eq!(worker.run("MGET a b"), ones);
        assert_eq!(worker.run("LLEN list"), Value::Int(300));
        for line in ["LRANGE list 0 -1", "ZRANGE z 0 -1"] {
            assert_eq!(items(worker.run(line)).len(), 300, "{line}");
        }
        executor.finish_tick().unwrap();
        assert_eq!(worker.run("LLEN list"), Value::Int(1));
        assert_eq!(worker.run("GET a"), Value::Bulk(b"2".to_vec()));
        client.check();
    }

    #[test]
    fn the_first_rank_in_a_large_set_is_not_asked_on_an_io_thread() {
        let mut client = Client::new();
        for n in 0..300 {
            client.run(&format!("ZADD z {n} {n}"));
        }
        let hits = |client: &Client| client.server().stats.keyspace_hits.get();
        let before = hits(&client);
        let mut reply = Reply::new(false);
        for line in ["ZRANK z 299", "ZREMRANGEBYRANK z 150 150"] {
            let outcome = on_io_thread(&mut client, line, &mut reply);
            assert_eq!(outcome, Outcome::Slow);
            assert!(reply.is_empty());
        }
        assert_eq!(hits(&client), before);
        // A transaction runs it on this thread.
        client.run("MULTI");
        client.run("ZCARD z");
        client.run("ZRANK z 299");
        assert_eq!(
            client.run("EXEC"),
            Value::Array(vec![Value::Int(300), Value::Int(299)])
        );
        assert_eq!(client.run("ZRANK z 298"), Value::Int(298));
        client.run("COPY z other");
        let mut worker = client.another().on_worker();
        assert_eq!(worker.run("ZRANK other 299"), Value::Int(299));
        assert_eq!(client.run("ZRANK other 298"), Value::Int(298));
        client.check();
    }

    /// Their few rows fit the read budget, but the reply blocked the thread for long.
    #[test]
    fn long_strings_without_rows_are_not_made_on_an_io_thread() {
        let mut client = Client::new();
        client.run("SETRANGE sparse 1000000 end");
        let mut reply = Reply::new(false);
        for line in [
            "GET sparse",
            "MGET sparse",
            "GETRANGE sparse 0 -2",
            "GETSET sparse x",
            "DUMP sparse",
            "BITOP NOT other sparse",
        ] {
            let outcome = on_io_thread(&mut client, line, &mut reply);
            assert_eq!((outcome, reply.is_empty()), (Outcome::Slow, true), "{line}");
        }
        for line in ["GETRANGE sparse 0 1000", "STRLEN sparse", "GETBIT sparse 9"] {
            let outcome = on_io_thread(&mut client, line, &mut reply);
            assert_eq!(outcome, Outcome::Done, "{line}");
        }
        let mut worker = client.another().on_worker();
        let whole = worker.run("GET sparse");
        assert_eq!(whole.as_bytes().map(<[u8]>::len), Some(1_000_003));
        client.check();
    }

    /// Values of a small document can be visited very often without reading a row, and a long text
    /// is parsed before any row is read.
    #[test]
    fn long_walks_over_small_documents_are_left_to_workers_and_leave_nothing() {
        let mut client = Client::new();
        let nested = format!("{}1{}", "[".repeat(60), "]".repeat(60));
        client.run(&format!("JSON.SET nested $ {nested}"));
        let numbers: Vec<String> = (0..300).map(|n| n.to_string()).collect();
        let numbers = numbers.join(",");
        client.run(&format!("JSON.SET wide $ [{numbers}]"));
        client.run(r#"JSON.SET text $ ["abcabc"]"#);
        client.run("JSON.SET other $ 1");
        let payload = match client.run("DUMP wide") {
            Value::Bulk(payload) => payload,
            other => panic!("{other:?}"),
        };
        let before = client.logged();
        let long_text = "7".repeat(8_000);
        let long_path = format!("$.{}", "a".repeat(8_000));
        let set_long = format!("JSON.SET other $ \"{long_text}\"");
        let merge_long = format!("JSON.MERGE other $ \"{long_text}\"");
        let get_long = format!("JSON.GET other {long_path}");
        for line in [
            "JSON.GET nested $..*..*",
            "JSON.GET wide $[?(@in$)]",
            "JSON.GET wide $..[?(@.a==1)]",
            "JSON.GET wide $[*] $[0:]",
            "JSON.RESP nested $..*",
            "JSON.DEBUG MEMORY nested $..*",
            "JSON.MGET wide wide wide $",
            "JSON.GET text $[?(@=~'(a{9}){9}')]",
            "JSON.NUMINCRBY wide $[*] 1",
            "JSON.SET wide $[*] 1",
            "JSON.DEL wide $[*]",
            "JSON.ARRAPPEND nested $..* 1",
            "JSON.ARRINSERT nested $..* 0 1",
            "JSON.ARRPOP nested $..*",
            "JSON.CLEAR wide $[*]",
            "JSON.MSET wide $[*] 1 nested $..* 1",
            &set_long,
            &merge_long,
            &get_long,
        ] {
            let mut reply = Reply::new(false);
            let outcome = on_io_thread(&mut client, line, &mut reply);
            let line = &line[..line.len().min(60)];
            assert_eq!((outcome, reply.is_empty()), (Outcome::Slow, true), "{line}");
        }
        let long_payload = [&payload[..], &[0; 8_000]].concat();
        let restore: [&[u8]; 4] = [b"RESTORE", b"restored", b"0", &long_payload];
        let mut reply = Reply::new(false);
        let outcome = args_on_io_thread(&mut client, &restore, &mut reply);
        assert_eq!((outcome, reply.is_empty()), (Outcome::Slow, true));
        assert_eq!(client.logged(), before);
        for line in [
            "JSON.GET wide $[299]",
            "JSON.GET wide",
            "JSON.NUMINCRBY wide $[299] 1",
            "JSON.ARRAPPEND wide $ 1",
            "JSON.TYPE nested $..[1]",
            "JSON.SET other $ 2",
        ] {
            let outcome = on_io_thread(&mut client, line, &mut reply);
            assert_eq!(outcome, Outcome::Done, "{line}");
        }
        let mut worker = client.another().on_worker();
        let found = worker.run("JSON.GET wide $[?(@in$)]");
        assert!(found.as_bytes().is_some_and(|text| text.len() > 1_000));
        client.check();
    }

    #[test]
    fn requests_of_thousands_of_words_are_not_run_on_an_io_thread() {
        let client = Client::new();
        let server = client.server();
        let mut on_io = Executor::of_thread(server, 0);
        let mut reply = Reply::new(false);
        let words: Vec<String> = (0..3000).map(|n| format!("word{n}")).collect();
        let mut run = |line: &str, count: usize| {
            let first = line.split(' ').map(str::as_bytes);
            let rest = words.iter().take(count).map(String::as_bytes);
            let args: Vec<&[u8]> = first.chain(rest).collect();
            let mut another = client.another();
            let session = another.parts().1;
            on_io.start_tick();
            let outcome = on_io.run(session, &args, &mut reply);
            on_io.finish_tick().unwrap();
            outcome
        };
        assert_eq!(run("SADD set", 100), Outcome::Done);
        assert_eq!(run("SADD set", 3000), Outcome::Slow);
        assert_eq!(run("HMGET hash", 3000), Outcome::Slow);
        assert_eq!(run("MGET", 3000), Outcome::Slow);
        assert_eq!(run("MSET x", 2999), Outcome::Slow);
        assert_eq!(run("DEL", 3000), Outcome::Slow);
        assert_eq!(run("WATCH", 3000), Outcome::Slow);
        assert_eq!(run("BLPOP", 2999), Outcome::Slow);
        assert_eq!(run("EVAL return(1) 0", 3000), Outcome::Slow);
        for line in [
            "SUBSCRIBE",
            "PSUBSCRIBE",
            "SSUBSCRIBE",
            "UNSUBSCRIBE",
            "PUBSUB NUMSUB",
            "CLIENT LIST ID",
            "COMMAND DOCS",
            "COMMAND INFO",
            "COMMAND GETKEYS MGET",
            "CONFIG GET",
            "SCRIPT EXISTS",
            "LATENCY HISTOGRAM",
            "INFO",
            "ACL SETUSER user",
            "HELLO 3",
        ] {
            assert_eq!(run(line, 3000), Outcome::Slow, "{line}");
        }
        assert_eq!(run("SUBSCRIBE", 100), Outcome::Done);
        assert_eq!(run("NO_COMMAND", 3000), Outcome::Done);
        assert_eq!(run("MULTI", 0), Outcome::Done);
    }

    /// A value of 200 MB once held its IO thread for a second, JSON of 40 MB for eight.
    #[test]
    fn requests_with_long_arguments_are_not_run_on_an_io_thread() {
        let mut client = Client::new();
        let run = |client: &mut Client, args: &[&[u8]]| {
            let mut on_io = Executor::of_thread(client.server(), 0);
            let bytes = args.iter().map(|arg| arg.len()).sum();
            on_io.start_tick();
            on_io.begin_request(0, bytes, Retry::default());
            let outcome = on_io.run(client.parts().1, args, &mut Reply::new(false));
            on_io.finish_tick().unwrap();
            outcome
        };
        let long = vec![b'1'; 2 << 20];
        for args in [
            &[&b"SET"[..], b"k", &long][..],
            &[b"GET", &long],
            &[b"APPEND", b"k", &long],
            &[b"ECHO", &long],
            &[b"PUBLISH", b"c", &long],
            &[b"AUTH", b"default", &long],
            &[b"EVAL", b"return 1", b"0", &long],
            &[b"JSON.SET", b"j", b"$", &long[..20 << 10]],
        ] {
            let name = String::from_utf8_lossy(args[0]);
            assert_eq!(run(&mut client, args), Outcome::Slow, "{name}");
            let short: Vec<&[u8]> = args.iter().map(|arg| &arg[..arg.len().min(9)]).collect();
            assert_eq!(run(&mut client, &short), Outcome::Done, "{name}");
        }
        run(&mut client, &[b"MULTI"]);
        run(&mut client, &[b"SET", b"k", &long]);
        assert_eq!(run(&mut client, &[b"EXEC"]), Outcome::Slow);
        client.check();
    }

    #[test]
    fn very_many_subscriptions_are_not_ended_on_an_io_thread() {
        let mut client = Client::new();
        let names: Vec<String> = (0..3000).map(|n| format!("name{n:05}")).collect();
        let prefixes = names.iter().flat_map(|name| ["PREFIX", name]);
        let tracking = ["CLIENT", "TRACKING", "ON", "BCAST"].into_iter();
        let subscribe = ["SUBSCRIBE"].into_iter();
        let many: [Vec<&[u8]>; 2] = [
            tracking.chain(prefixes).map(str::as_bytes).collect(),
            subscribe
                .chain(names.iter().map(String::as_str))
                .map(str::as_bytes)
                .collect(),
        ];
        let ends = [
            ["CLIENT TRACKING OFF", "CLIENT TRACKINGINFO", "RESET"],
            ["UNSUBSCRIBE", "SUNSUBSCRIBE", "RESET"],
        ];
        for (begin, lines) in many.iter().zip(ends) {
            client.args(&[b"HELLO", b"3"]);
            let (executor, session) = client.parts();
            executor.start_tick();
            executor.run(session, begin, &mut Reply::new(true));
            executor.finish_tick().unwrap();
            for line in lines {
                let mut reply = Reply::new(false);
                let outcome = on_io_thread(&mut client, line, &mut reply);
                assert_eq!((outcome, reply.is_empty()), (Outcome::Slow, true), "{line}");
            }
            client.run("RESET");
            let outcome = on_io_thread(&mut client, "RESET", &mut Reply::new(false));
            assert_eq!(outcome, Outcome::Done);
        }
        client.check();
    }
}
