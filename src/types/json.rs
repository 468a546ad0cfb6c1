//! JSON documents: the operations on a transaction.
//!
//! A [`Doc`] is a document that was looked up. [`Doc::rows`] gives access to its values
//! ([`Val`]), of which a [`Path`] selects some; an [`Editor`] changes it at the places that were
//! selected. Only the rows on the way to a place are read and written; see
//! [`crate::encoding::json`] for the rows.
//!
//! Containers are nested at most 127 deep, over a whole document: so its text can be parsed
//! again, and functions here may call themselves for each level.

pub mod ast;
pub mod cbor;
pub(super) mod definition;
mod edit;
pub mod eval;
mod filter;
mod functions;
mod merge;
pub mod narrow;
pub mod path;
mod read;
#[cfg(test)]
mod tests;
pub mod text;
mod value;

pub use ast::Path;
pub use edit::{Change, Editor, Pieces, Step};
pub use eval::Place;
pub use read::{Kind, Rows, Val};
pub use value::{MAX_DEPTH, Value};

use super::{OpError, OpResult, lookup};
use crate::encoding::json::{GONE, IN_LINE_MAX, JsonBody, NodeId, ROOT_MAX, row_key};
use crate::encoding::{CollectionId, Meta, ValueType};
use crate::storage::{DbIndex, KeyMeta, Txn, View};
use read::CORRUPT;
use std::rc::Rc;

/// The row of a node, from a transaction.
fn stored_node(view: &View, db: DbIndex, id: CollectionId, node: NodeId) -> OpResult<Rc<[u8]>> {
    let row = view.row(db, &row_key(id, node))?.ok_or(CORRUPT)?;
    Ok(Rc::from(&*row))
}

/// The rows of a document, read one by one.
struct StoredRows<'v> {
    view: &'v View,
    db: DbIndex,
    id: Option<CollectionId>,
}

impl Rows for StoredRows<'_> {
    fn node(&self, node: NodeId) -> OpResult<Rc<[u8]>> {
        stored_node(self.view, self.db, self.id.ok_or(CORRUPT)?, node)
    }

    fn hash(&self, key: &[u8]) -> u64 {
        self.view.engine().hash.hash(key)
    }

    fn visit(&self, values: u64) -> OpResult<()> {
        Ok(self.view.work(values)?)
    }

    fn hold(&self, bytes: u64) -> OpResult<()> {
        Ok(self.view.will_hold(bytes)?)
    }
}

/// A document.
#[derive(Debug, Clone)]
pub struct Doc {
    db: DbIndex,
    found: KeyMeta,
    id: Option<CollectionId>,
    rows: u64,
    next: NodeId,
    has_gone: bool,
    root: Rc<[u8]>,
}

impl Doc {
    /// Looks a document up.
    ///
    /// # Errors
    /// `WrongType` if the key holds another type.
    pub fn load(view: &mut View, db: DbIndex, key: &[u8]) -> OpResult<Option<Doc>> {
        match lookup(view, db, key, ValueType::Json)? {
            Some(found) => Ok(Some(Doc::of(db, found)?)),
            None => Ok(None),
        }
    }

    fn of(db: DbIndex, found: KeyMeta) -> OpResult<Doc> {
        if !found.meta.rows {
            let root = Rc::from(&found.body[..]);
            let (id, rows, next) = (None, 0, 1);
            return Ok(Doc {
                db,
                found,
                id,
                rows,
                next,
                has_gone: false,
                root,
            });
        }
        let body = JsonBody::decode(&found.body)?;
        let (id, rows, next) = (Some(body.id), body.rows, body.next);
        let (has_gone, root) = (body.has_gone, Rc::from(body.root));
        Ok(Doc {
            db,
            found,
            id,
            rows,
            next,
            has_gone,
            root,
        })
    }

    /// The root.
    pub fn root(&self) -> Val {
        Val::whole(self.root.clone())
    }

    /// How many rows the document has besides its meta row.
    #[cfg(test)]
    fn row_count(&self) -> u64 {
        self.rows
    }

    /// The document's rows.
    pub fn rows<'v>(&self, view: &'v View) -> impl Rows + 'v {
        StoredRows {
            view,
            db: self.db,
            id: self.id,
        }
    }

    /// Changes the document with `work`, which gets an editor and the root and returns its result
    /// and a new root, if there is one.
    pub fn change<T>(
        &mut self,
        txn: &mut Txn,
        key: &[u8],
        work: impl FnOnce(&mut Editor<'_>, Rc<[u8]>) -> OpResult<(T, Option<Vec<u8>>)>,
    ) -> OpResult<T> {
        let mut editor = Editor::new(txn, self.db, self.id, self.rows, self.next);
        let (done, root) = work(&mut editor, self.root.clone())?;
        if let Some(root) = root {
            self.root = root.into();
        }
        editor.end_gone(self.has_gone)?;
        let written = Written::of(editor, self.next);
        let body = self.put_rows(txn, written)?;
        let meta = Meta {
            rows: self.id.is_some(),
            ..self.found.meta
        };
        txn.put_key(self.db, key, Some(&self.found.meta), meta, &body)?;
        self.found.meta = meta;
        Ok(done)
    }

    /// Writes the rows; returns the body of the meta row.
    fn put_rows(&mut self, txn: &mut Txn, written: Written) -> OpResult<Vec<u8>> {
        (self.rows, self.next) = (written.count, written.next);
        let gone = written.rows.iter().find(|(node, _)| *node == GONE);
        self.has_gone = gone.map_or(self.has_gone, |(_, row)| row.is_some());
        let id = match self.id {
            Some(id) => id,
            None if self.rows == 0 => return Ok(self.root.to_vec()),
            None => txn.new_id(),
        };
        for (node, row) in written.rows {
            let row_key = row_key(id, node);
            match row {
                Some(row) => txn.put_row(self.db, &row_key, &row)?,
                None => txn.delete_row(self.db, &row_key)?,
            }
        }
        self.id = (self.rows > 0).then_some(id);
        if self.rows == 0 {
            self.next = 1;
            return Ok(self.root.to_vec());
        }
        let (rows, next, has_gone) = (self.rows, self.next, self.has_gone);
        let root = &self.root;
        Ok(JsonBody {
            id,
            rows,
            next,
            has_gone,
            root,
        }
        .encode())
    }
}

/// What an editor leaves behind, in the order of the nodes.
struct Written {
    count: u64,
    next: NodeId,
    rows: Vec<(NodeId, Option<Rc<[u8]>>)>,
}

impl Written {
    /// Without rows that came and went.
    fn of(editor: Editor<'_>, first_new: NodeId) -> Written {
        let (count, next) = (editor.count, editor.next);
        let mut rows: Vec<_> = editor.changed.into_iter().collect();
        rows.retain(|(node, row)| row.is_some() || *node < first_new);
        rows.sort_unstable_by_key(|(node, _)| *node);
        Written { count, next, rows }
    }
}

/// Writes a document under a key, over whatever is there; the expiry of `old` stays.
pub fn put(
    txn: &mut Txn,
    db: DbIndex,
    key: &[u8],
    old: Option<&KeyMeta>,
    value: &Value,
) -> OpResult<()> {
    let mut editor = Editor::new(txn, db, None, 0, 1);
    let root = editor.put_root(value)?;
    let written = Written::of(editor, 1);
    let expire_ms = old.map(|old| old.meta.expire_ms).unwrap_or_default();
    let mut doc = Doc {
        db,
        found: KeyMeta {
            meta: Meta::new(ValueType::Json),
            body: Default::default(),
        },
        id: None,
        rows: 0,
        next: 1,
        has_gone: false,
        root: root.into(),
    };
    let body = doc.put_rows(txn, written)?;
    let meta = Meta {
        rows: doc.id.is_some(),
        expire_ms,
        ..doc.found.meta
    };
    Ok(txn.replace_key(db, key, old, meta, &body)?)
}

/// The JSONPath of a value.
pub fn text_of_path(path: &[Step]) -> Vec<u8> {
    let mut text = b"$".to_vec();
    for step in path {
        text.push(b'[');
        match step {
            Step::Index(index) => text.extend_from_slice(index.to_string().as_bytes()),
            Step::Key(key) => {
                text.push(b'"');
                for byte in key.iter() {
                    if matches!(byte, b'"' | b'\\') {
                        text.push(b'\\');
                    }
                    text.push(*byte);
                }
                text.push(b'"');
            }
        }
        text.push(b']');
    }
    text
}

/// How large the value at a path may be in line.
pub fn in_line_max(path: &[Step]) -> usize {
    match path.is_empty() {
        true => ROOT_MAX,
        false => IN_LINE_MAX,
    }
}

/// Puts a value in the place of another.
pub fn replace(
    editor: &mut Editor<'_>,
    old: &[u8],
    value: &Value,
    is_root: bool,
) -> OpResult<Vec<u8>> {
    editor.free(old)?;
    match is_root {
        true => editor.put_root(value),
        false => editor.put(value),
    }
}

/// Whether an edit failed because an earlier one of the same command removed its place.
pub fn is_gone(error: &OpError) -> bool {
    matches!(error, OpError::NoSuchPath)
}
