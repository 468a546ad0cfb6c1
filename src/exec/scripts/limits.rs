//! What bounds a running script, and how a worker's script is registered.

use super::{SLICE, ThreadScripts, killed};
use crate::commands::{Error, ScriptCall};
use crate::exec::{Executor, Stop};
use crate::lua::api::sha1_hex;
use crate::lua::{Failure, Limits, Trip};
use crate::state::Server;
use crate::state::workers::{Begun, Running, Worker};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// The limits of one run of a script: a time slice, or on a worker no time limit.
pub(super) struct RunLimits {
    pub(super) slice: Option<Duration>,
    /// Bytes of the interpreter beyond which the script moves to a worker.
    memory: Option<usize>,
    /// Where the bytes of the interpreter are recorded.
    used: Arc<AtomicUsize>,
    on_worker: Option<OnWorker>,
    /// Set to stop the script.
    kill: Arc<AtomicBool>,
    /// Whether the script is part of a transaction.
    inside: bool,
}

/// An attempt to run a script on a worker, until this is dropped.
struct OnWorker {
    server: Arc<Server>,
    worker: Arc<Worker>,
    running: Arc<Running>,
}

impl RunLimits {
    pub(super) fn start(
        executor: &mut Executor,
        scripts: &ThreadScripts,
        call: ScriptCall,
        command: &[&[u8]],
    ) -> RunLimits {
        let on_worker = OnWorker::start(executor, call, command);
        let kill = on_worker.as_ref().map(|on| on.running.kill.clone());
        RunLimits {
            slice: executor.thread.slices.then_some(SLICE),
            memory: executor.thread.slices.then_some(scripts.bytes / 2),
            used: scripts.counted.interpreter.clone(),
            on_worker,
            kill: kill.unwrap_or_else(|| executor.thread.ended.clone()),
            inside: executor.in_unit(),
        }
    }

    pub(super) fn running(&self) -> Option<&Arc<Running>> {
        self.on_worker.as_ref().map(|on| &on.running)
    }

    /// Whether a worker's script was killed before this attempt.
    pub(super) fn is_killed(&self) -> bool {
        self.on_worker.is_some() && self.kill.load(Ordering::Acquire)
    }

    /// How a run came out: a script that was killed before it ended by itself counts as stopped.
    pub(super) fn unless_killed(&self, done: Result<(), Failure>) -> Result<(), Failure> {
        let has_ended = !matches!(done, Err(Failure::Stopped { .. }));
        match self.running() {
            Some(running) if has_ended && !running.end() => Err(Failure::Stopped {
                why: Trip::Killed,
                place: Vec::new(),
            }),
            _ => done,
        }
    }

    /// `time` limits what has no slice.
    pub(super) fn limits(&self, time: Option<Duration>) -> Limits {
        Limits {
            time: self.slice.or(time),
            kill: Some(self.kill.clone()),
            memory: self.memory,
            used: Some(self.used.clone()),
        }
    }

    /// The outcome of a request whose script does not compile, or whose library does not load.
    pub(super) fn stop(&self, failure: Failure) -> Stop {
        match failure {
            Failure::Error { text, .. } => Error::Bytes(text).into(),
            Failure::Stopped { why, .. } => match why {
                Trip::Killed => self.stop_killed(),
                _ if self.slice.is_some() => Stop::Slow,
                _ => Error::COMPILES_LONG.into(),
            },
        }
    }

    /// The outcome of a request whose script was killed before it ran.
    pub(super) fn stop_killed(&self) -> Stop {
        match &self.on_worker {
            Some(on) if self.inside && on.server.workers.are_stopping() => Stop::Conflict,
            _ => killed(&[]).into(),
        }
    }
}

impl OnWorker {
    /// A script that was taken back goes on as the one that it was.
    fn start(executor: &mut Executor, call: ScriptCall, command: &[&[u8]]) -> Option<OnWorker> {
        let (server, worker) = (executor.server.clone(), executor.thread.worker.clone()?);
        let request = &mut executor.request;
        let nth = request.scripts_begun;
        request.scripts_begun += 1;
        if request.scripts.len() == nth {
            request.scripts.push(None);
        }
        let slot = &mut request.scripts[nth];
        // Another one may stand here if the transaction went another way before.
        let is_same = |begun: &mut Begun| begun.running.command == command;
        let begun = match slot.take_if(|begun| is_same(begun)) {
            Some(begun) => begun,
            None => server.workers.begin(new_running(call, command)),
        };
        let running = slot.insert(begun).running.clone();
        server.workers.start(&worker, running.clone());
        Some(OnWorker {
            server,
            worker,
            running,
        })
    }
}

fn new_running(call: ScriptCall, command: &[&[u8]]) -> Running {
    let name = command.get(1).copied().unwrap_or_default();
    let name = match call {
        ScriptCall::Eval | ScriptCall::EvalRo => sha1_hex(name).into_bytes(),
        _ => name.to_ascii_lowercase(),
    };
    Running::new(name, command, call.is_function())
}

impl Drop for OnWorker {
    fn drop(&mut self) {
        self.server.workers.stop(&self.worker);
    }
}
