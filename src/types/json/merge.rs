//! JSON Merge Patch (RFC 7396).

use super::edit::{Editor, Step};
use super::read::{Kind, Val};
use super::value::Value;
use crate::encoding::json::{IN_LINE_MAX, ROOT_MAX};
use crate::types::OpResult;

/// A patch for a value that does not exist: members that are null are left out.
fn stripped(patch: &Value) -> Value {
    match patch {
        Value::Object(members) => {
            let kept = members.iter().filter(|(_, value)| *value != Value::Null);
            Value::Object(
                kept.map(|(key, value)| (key.clone(), stripped(value)))
                    .collect(),
            )
        }
        value => value.clone(),
    }
}

impl Editor<'_> {
    /// Merges a patch into a value. Returns what takes its place, or `None`.
    pub fn merge(&mut self, old: &[u8], patch: &Value, is_root: bool) -> OpResult<Option<Vec<u8>>> {
        let is_object = Val::whole(old.into()).kind()? == Kind::Object;
        let members = match patch {
            Value::Object(members) if is_object => members,
            patch => return Ok(Some(super::replace(self, old, &stripped(patch), is_root)?)),
        };
        let max = if is_root { ROOT_MAX } else { IN_LINE_MAX };
        let (mut now, mut is_new) = (old.to_vec(), false);
        for (key, value) in members {
            let key = key.as_bytes();
            let has = Val::whole(now.as_slice().into())
                .member(self, key)?
                .is_some();
            let changed = match value {
                Value::Null if has => self.remove_member(&now, key, max)?,
                Value::Null => None,
                value if has => {
                    let mut merge =
                        |editor: &mut Editor<'_>, old: &[u8]| editor.merge(old, value, false);
                    self.edit_value(&now, &[Step::Key(key.into())], max, &mut merge)?
                }
                value => {
                    let value = self.put(&stripped(value))?;
                    self.set_member(&now, key, &value, max)?
                }
            };
            if let Some(changed) = changed {
                (now, is_new) = (changed, true);
            }
        }
        Ok(is_new.then_some(now))
    }
}
