//! Replication: feeding replicas, following a master.
//!
//! | file | what it does |
//! |---|---|
//! | [`wire`] | protocol between master and replica |
//! | [`feeder`] | one thread per replica: sends data set and stream |
//! | `feeder/redis` | the same in the Redis dialect |
//! | `databases` | number of DBs of a Redis replica |
//! | [`turns`] | limits how many data sets are sent at once |
//! | [`failover`] | hands the master role to a replica |
//! | [`link`] | one thread that follows the master, if there is one |
//! | `link/redis` | following a Redis master |
//! | `link/peer` | the connection to the master |
//!
//! The state that other threads and commands read and change is in
//! [`crate::state::replication`].
//!
//! The states of a link:
//!
#![doc = include_str!("../images/replication-state.svg")]

mod databases;
mod failover;
mod feeder;
mod link;
mod turns;
mod wire;

use crate::state::Server;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// The running threads.
pub struct Threads {
    server: Arc<Server>,
    link: JoinHandle<()>,
    feeders: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Threads {
    /// Starts the link thread; starts a feeder for each replica that connects.
    pub fn start(server: &Arc<Server>) -> io::Result<Threads> {
        let feeders = Arc::<Mutex<Vec<JoinHandle<()>>>>::default();
        let (list, shared) = (feeders.clone(), Arc::downgrade(server));
        let turns = Arc::<turns::Turns>::default();
        let refusals = Arc::<databases::Refusals>::default();
        server.replication.on_take(Box::new(move |taken| {
            let Some(server) = shared.upgrade() else {
                return;
            };
            let client = taken.info.id;
            let (feeding, turns, refusals) = (server.clone(), turns.clone(), refusals.clone());
            let thread = Builder::new().name(format!("feeder-{}", client.0));
            let started = thread.spawn(move || feeder::run(&feeding, &turns, &refusals, taken));
            let mut list = list.lock();
            list.retain(|feeder| !feeder.is_finished());
            match started {
                Ok(feeder) => list.push(feeder),
                Err(error) => {
                    log::error!("cannot start a thread for replica {}: {error}", client.0);
                    server.clients.remove(client);
                }
            }
        }));
        let following = server.clone();
        let link = Builder::new()
            .name("link".into())
            .spawn(move || link::run(&following))?;
        Ok(Threads {
            server: server.clone(),
            link,
            feeders,
        })
    }

    /// Stops all threads and waits for their end.
    pub fn stop(self) {
        self.server.replication.stop();
        let feeders = std::mem::take(&mut *self.feeders.lock());
        for thread in feeders.into_iter().chain([self.link]) {
            if thread.join().is_err() {
                log::error!("a replication thread panicked");
            }
        }
    }
}
