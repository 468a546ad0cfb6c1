//! Random changes against a model, over commits.

use super::*;
use crate::base::time::UnixMs;
use crate::storage::{Engine, StorageConfig};
use std::rc::Rc;

const DB: DbIndex = DbIndex(0);
const KEY: &[u8] = b"key";

struct Fixture {
    txn: Txn,
    model: Value,
    random: u64,
    _dir: tempfile::TempDir,
}

/// The text of the model.
fn model_text(value: &Value) -> String {
    let val = Val::scalar(value);
    let rows = definition::AllRows::default();
    String::from_utf8(text::of(&rows, &val).unwrap()).unwrap()
}

impl Fixture {
    fn new(model: Value, seed: u64) -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let config = StorageConfig::for_tests(dir.path().join("db"));
        let mut txn = Txn::new(Engine::open(config).unwrap());
        txn.begin(UnixMs(1)).unwrap();
        txn.start_command();
        put(&mut txn, DB, KEY, None, &model).unwrap();
        Fixture {
            txn,
            model,
            random: seed,
            _dir: dir,
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % bound.max(1)
    }

    fn check(&mut self, what: &str) {
        let doc = Doc::load(&mut self.txn, DB, KEY).unwrap().unwrap();
        let rows = doc.rows(&self.txn);
        let text = text::of(&rows, &doc.root()).unwrap();
        let expected = model_text(&self.model);
        assert!(text == expected.as_bytes(), "{what}: {expected:.300}");
        drop(rows);
        self.commit();
        let report = self.txn.engine().check().unwrap();
        assert!(report.faults.is_empty(), "{what}: {:#?}", report.faults);
    }

    fn commit(&mut self) {
        self.txn.commit().unwrap();
        self.txn.begin(UnixMs(1)).unwrap();
        self.txn.start_command();
    }

    /// A random value; now and then a large one.
    fn value(&mut self, depth: usize) -> Value {
        match self.below(if depth > 2 { 6 } else { 9 }) {
            0 => Value::Null,
            1 => Value::Bool(self.below(2) == 0),
            2 => Value::Int(self.below(1 << 30) as i64 - (1 << 29)),
            3 => Value::Float(self.below(1000) as f64 / 8.0),
            4 => Value::Text("x".repeat(self.below(30))),
            5 if self.below(8) == 0 => Value::Text("long ".repeat(self.below(600))),
            5 => Value::Large(u64::MAX - self.below(9) as u64),
            6 | 7 => {
                let len = if self.below(6) == 0 { 300 } else { 4 };
                let len = self.below(len);
                Value::Array((0..len).map(|_| self.value(depth + 1)).collect())
            }
            _ => {
                let len = if self.below(6) == 0 { 300 } else { 4 };
                let len = self.below(len);
                let members = (0..len).map(|_| {
                    let key = format!("k{}", self.below(1000));
                    (key, self.value(depth + 1))
                });
                Value::object(members.collect())
            }
        }
    }

    /// A random path to a container.
    fn container(&mut self) -> Vec<Step> {
        let mut path = Vec::new();
        let mut model = self.model.clone();
        for _ in 0..self.below(4) {
            let (step, inner) = match &model {
                Value::Array(values) if !values.is_empty() => {
                    let at = self.below(values.len());
                    (Step::Index(at as u64), values[at].clone())
                }
                Value::Object(members) if !members.is_empty() => {
                    let (key, value) = &members[self.below(members.len())];
                    (Step::Key(key.as_bytes().into()), value.clone())
                }
                _ => break,
            };
            if !matches!(inner, Value::Array(_) | Value::Object(_)) {
                break;
            }
            path.push(step);
            model = inner;
        }
        path
    }

    fn step(&mut self) {
        let path = self.container();
        let value = self.value(0);
        let (a, b) = (self.below(1 << 20), self.below(6));
        let model = at(&mut self.model, &path);
        let max = in_line_max(&path);
        let mut doc = Doc::load(&mut self.txn, DB, KEY).unwrap().unwrap();
        type Edit = dyn FnMut(&mut Editor<'_>, &[u8]) -> OpResult<Option<Vec<u8>>>;
        let mut change: Box<Edit> = match model {
            Value::Array(values) => {
                let start = a % (values.len() + 1);
                let removed = b.min(values.len() - start);
                let added = vec![value; a % 3];
                values.splice(start..start + removed, added.clone());
                Box::new(move |editor, array| {
                    let added = editor.put_all(&added)?;
                    editor.splice(array, start as u64, removed as u64, &added, max)
                })
            }
            Value::Object(members) if b < 2 && !members.is_empty() => {
                let (key, _) = members.remove(a % members.len());
                Box::new(move |editor, object| editor.remove_member(object, key.as_bytes(), max))
            }
            Value::Object(members) => {
                let key = match members.get(a % (members.len() + 1)) {
                    Some((key, _)) if b == 2 => key.clone(),
                    _ => format!("n{a}"),
                };
                match members.iter_mut().find(|(name, _)| *name == key) {
                    Some((_, old)) => *old = value.clone(),
                    None => members.push((key.clone(), value.clone())),
                }
                Box::new(move |editor, object| {
                    let value = editor.put(&value)?;
                    editor.set_member(object, key.as_bytes(), &value, max)
                })
            }
            _ => unreachable!("a container"),
        };
        doc.change(&mut self.txn, KEY, |editor, root| {
            Ok(((), editor.edit(&root, &path, &mut *change)?))
        })
        .unwrap();
    }
}

fn at<'v>(value: &'v mut Value, path: &[Step]) -> &'v mut Value {
    let mut value = value;
    for step in path {
        value = match (value, step) {
            (Value::Array(values), Step::Index(at)) => &mut values[*at as usize],
            (Value::Object(members), Step::Key(key)) => {
                let found = members
                    .iter_mut()
                    .find(|(name, _)| name.as_bytes() == &**key);
                &mut found.unwrap().1
            }
            _ => panic!("no {step:?}"),
        };
    }
    value
}

#[test]
fn random_changes() {
    for seed in 1..5 {
        let mut fixture = Fixture::new(Value::Array(Vec::new()), seed);
        if seed % 2 == 0 {
            fixture = Fixture::new(Value::Object(Vec::new()), seed);
        }
        for n in 0..600 {
            fixture.step();
            if n % 20 == 0 {
                fixture.check(&format!("seed {seed}, change {n}"));
            }
        }
        fixture.check(&format!("seed {seed}"));
    }
}

/// A document with very many elements and members, of which all are found, and that becomes small
/// again.
#[test]
fn wide_containers_grow_and_shrink() {
    let numbers = (0..6_000).map(Value::Int).collect();
    let members = (0..6_000)
        .map(|n| (format!("key:{n}"), Value::Int(n)))
        .collect();
    let members = vec![
        ("a".to_owned(), Value::Array(numbers)),
        ("o".to_owned(), Value::Object(members)),
    ];
    let mut fixture = Fixture::new(Value::Object(members), 7);
    fixture.check("built");
    let doc = Doc::load(&mut fixture.txn, DB, KEY).unwrap().unwrap();
    assert!(doc.row_count() > 50);
    let rows = doc.rows(&fixture.txn);
    for n in (0..6_000).step_by(37) {
        for text in [format!("$.a[{n}]"), format!("$.o['key:{n}']")] {
            let path = Path::parse(text.as_bytes()).unwrap();
            let found = eval::values(&rows, &doc.root(), &path).unwrap();
            let [value] = &found[..] else {
                panic!("{text}")
            };
            assert_eq!(text::of(&rows, value).unwrap(), n.to_string().into_bytes());
        }
    }
    drop(rows);
    for name in ["a", "o"] {
        for n in 0..6_000 {
            if n % 500 == 0 {
                fixture.commit();
            }
            let mut doc = Doc::load(&mut fixture.txn, DB, KEY).unwrap().unwrap();
            let key: Rc<[u8]> = format!("key:{}", (n * 7919) % 6_000).into_bytes().into();
            doc.change(&mut fixture.txn, KEY, |editor, root| {
                let path = [Step::Key(name.as_bytes().into())];
                let change: Change<'_> = &mut |editor, value| match name {
                    "a" => {
                        let at = (n * 31) % (6_000 - n);
                        editor.splice(value, at, 1, &Pieces::default(), IN_LINE_MAX)
                    }
                    _ => editor.remove_member(value, &key, IN_LINE_MAX),
                };
                Ok(((), editor.edit(&root, &path, change)?))
            })
            .unwrap();
        }
    }
    fixture.model = Value::parse(br#"{"a":[],"o":{}}"#).unwrap();
    fixture.check("emptied");
    let doc = Doc::load(&mut fixture.txn, DB, KEY).unwrap().unwrap();
    assert_eq!(doc.row_count(), 0);
}

/// A document that has become small has not many more rows than one that was written so.
#[test]
fn what_is_left_of_wide_containers_is_joined() {
    const WIDE: usize = 6_000;
    const LEFT: usize = 400;
    let text = |n: usize| Value::Text(format!("text {n}"));
    for name in ["a", "o"] {
        let part = match name {
            "a" => Value::Array((0..WIDE).map(text).collect()),
            _ => Value::Object((0..WIDE).map(|n| (format!("key:{n}"), text(n))).collect()),
        };
        let whole = Value::Object(vec![(name.to_owned(), part)]);
        let mut fixture = Fixture::new(whole, 11);
        fixture.commit();
        let path = [Step::Key(name.as_bytes().into())];
        let remove = |fixture: &mut Fixture, to: usize| {
            loop {
                let at = fixture.below(usize::MAX);
                let (at, key) = match at_path(&mut fixture.model, name) {
                    Value::Array(values) if values.len() > to => {
                        let at = at % values.len();
                        values.remove(at);
                        (at, String::new())
                    }
                    Value::Object(members) if members.len() > to => {
                        let at = at % members.len();
                        (at, members.remove(at).0)
                    }
                    _ => return,
                };
                let mut doc = Doc::load(&mut fixture.txn, DB, KEY).unwrap().unwrap();
                doc.change(&mut fixture.txn, KEY, |editor, root| {
                    let change: Change<'_> = &mut |editor, value| match name {
                        "a" => editor.splice(value, at as u64, 1, &Pieces::default(), IN_LINE_MAX),
                        _ => editor.remove_member(value, key.as_bytes(), IN_LINE_MAX),
                    };
                    Ok(((), editor.edit(&root, &path, change)?))
                })
                .unwrap();
            }
        };
        remove(&mut fixture, LEFT);
        fixture.check(name);
        let rows = Doc::load(&mut fixture.txn, DB, KEY).unwrap().unwrap();
        let dense = Fixture::new(fixture.model.clone(), 1);
        let mut dense = dense.txn;
        let dense = Doc::load(&mut dense, DB, KEY).unwrap().unwrap();
        let (rows, dense) = (rows.row_count(), dense.row_count());
        assert!(
            rows <= 3 * dense,
            "{name}: {rows} rows, {dense} if written at once"
        );
        // As a few elements it is in line, and grows again.
        remove(&mut fixture, 3);
        fixture.check(name);
        let doc = Doc::load(&mut fixture.txn, DB, KEY).unwrap().unwrap();
        assert_eq!(doc.row_count(), 0, "{name}");
    }
}

fn at_path<'v>(model: &'v mut Value, name: &str) -> &'v mut Value {
    at(model, &[Step::Key(name.as_bytes().into())])
}

/// A removal deletes a bounded number of rows, and later changes delete the rest.
#[test]
fn large_parts_are_removed_bit_by_bit() {
    let numbers = |n: i64| Value::Array((0..n).map(Value::Int).collect());
    let texts = (0..2_000).map(|n| Value::Text(format!("{n}{}", "x".repeat(1_100))));
    let members = (0..20_000)
        .map(|n| (format!("key:{n}"), Value::Int(n)))
        .collect();
    let parts = [
        ("n", Value::Int(0)),
        ("a", numbers(400_000)),
        ("t", Value::Array(texts.collect())),
        ("o", Value::Object(members)),
    ];
    let parts = parts.map(|(name, value)| (name.to_owned(), value));
    let mut fixture = Fixture::new(Value::Object(parts.to_vec()), 3);
    let change = |fixture: &mut Fixture, work: Change<'_>| {
        fixture.commit();
        let mut doc = Doc::load(&mut fixture.txn, DB, KEY).unwrap().unwrap();
        let before = doc.row_count();
        doc.change(&mut fixture.txn, KEY, |editor, root| {
            Ok(((), work(editor, &root)?))
        })
        .unwrap();
        before.saturating_sub(doc.row_count())
    };
    for name in ["a", "t", "o"] {
        let deleted = change(&mut fixture, &mut |editor, root| {
            editor.remove_member(root, name.as_bytes(), ROOT_MAX)
        });
        assert!(deleted <= 600, "{name}: {deleted} rows at once");
        if let Value::Object(members) = &mut fixture.model {
            members.retain(|(member, _)| member != name);
        }
        fixture.check(name);
    }
    let mut changes = 0;
    let path = [Step::Key(b"n"[..].into())];
    loop {
        let left = Doc::load(&mut fixture.txn, DB, KEY).unwrap().unwrap();
        if left.row_count() == 0 {
            break;
        }
        let deleted = change(&mut fixture, &mut |editor, root| {
            editor.edit(root, &path, &mut |_, _| {
                let mut out = Vec::new();
                Value::Int(changes).in_line(&mut out);
                Ok(Some(out))
            })
        });
        assert!(deleted <= 70, "{deleted} rows at once");
        changes += 1;
        assert!(changes < 1_000, "{} rows are left", left.row_count());
    }
    assert!(changes > 10);
    fixture.model = Value::parse(format!(r#"{{"n":{}}}"#, changes - 1).as_bytes()).unwrap();
    fixture.check("nothing is left");
}

/// What a change writes does not depend on the size of the document.
#[test]
fn a_change_writes_the_rows_of_its_path() {
    let document = |sections: usize| {
        let section = |n: usize| {
            let text = format!(
                r#"{{"name":"Section {n}","stats":{{"available":100,"sold":0}},"seats":[1,2,3]}}"#
            );
            (format!("A-{n}"), Value::parse(text.as_bytes()).unwrap())
        };
        let sections = (0..sections).map(section).collect();
        Value::Object(vec![("sections".to_owned(), Value::Object(sections))])
    };
    let mut written = Vec::new();
    for sections in [10, 1000, 100_000] {
        let mut fixture = Fixture::new(document(sections), 1);
        fixture.commit();
        let mut doc = Doc::load(&mut fixture.txn, DB, KEY).unwrap().unwrap();
        let path = Path::parse(b"$.sections['A-1'].stats.available").unwrap();
        let found = eval::places(&doc.rows(&fixture.txn), &doc.root(), &path).unwrap();
        let bytes = doc
            .change(&mut fixture.txn, KEY, |editor, root| {
                let root = editor.edit(&root, &found[0].path, &mut |editor, old| {
                    replace(editor, old, &Value::Int(99), false).map(Some)
                })?;
                let rows = editor.changed.values().flatten();
                let rows: usize = rows.map(|row| row.len()).sum();
                Ok((rows + root.as_ref().map_or(0, Vec::len), root))
            })
            .unwrap();
        written.push(bytes);
    }
    assert!(written[2] <= 3 * written[0], "{written:?}");
}
