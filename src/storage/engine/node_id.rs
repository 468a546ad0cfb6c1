//! The id of this server as a node of a cluster. It belongs to the server and not to the data: a
//! full sync leaves it as it is.

use super::open::system_row_or_insert;
use super::{ColumnFamily, Db, Engine, hex, random_bytes};
use crate::encoding::system;
use crate::storage::Result;
use parking_lot::RwLock;

/// 40 hexadecimal digits; empty if the server is no node.
pub(super) struct NodeId(RwLock<String>);

fn new_id() -> Result<String> {
    Ok(hex(&random_bytes::<20>()?))
}

impl NodeId {
    /// The stored id; a new one if there is none yet.
    pub(super) fn load(db: &Db, system_cf: &ColumnFamily, is_node: bool) -> Result<NodeId> {
        if !is_node {
            return Ok(NodeId(RwLock::default()));
        }
        let id = system_row_or_insert(db, system_cf, system::NODE_ID, new_id)?;
        let id = String::from_utf8_lossy(&id).into_owned();
        Ok(NodeId(RwLock::new(id)))
    }
}

impl Engine {
    /// The id of this server as a node of a cluster, 40 hexadecimal digits; empty without
    /// `cluster-enabled`.
    pub fn node_id(&self) -> String {
        self.node_id.0.read().clone()
    }

    /// Gives this server another id.
    pub fn renew_node_id(&self) -> Result<()> {
        let id = new_id()?;
        self.db.put_cf(&self.system_cf, system::NODE_ID, &id)?;
        self.db.flush_wal(true)?;
        *self.node_id.0.write() = id;
        Ok(())
    }
}
