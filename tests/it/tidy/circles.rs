//! Import cycles between the modules of a folder.

use super::source::Graph;
use std::collections::{BTreeMap, BTreeSet};

type Arrows = BTreeMap<String, BTreeSet<String>>;

/// The circles among the modules of each folder, each as `folder: module, module …`.
pub fn circles(graph: &Graph) -> Vec<String> {
    let mut found = Vec::new();
    let folders: BTreeSet<&[String]> = graph
        .modules
        .iter()
        .map(|module| &module[..module.len() - 1])
        .collect();
    for folder in folders {
        for circle in circles_of(&arrows_within(graph, folder)) {
            let names: Vec<String> = circle.into_iter().collect();
            found.push(format!("src/{}: {}", folder.join("/"), names.join(", ")));
        }
    }
    found
}

/// The dependencies between the modules of a folder, submodules included. The folder's own file
/// is left out: it may name its modules, and they may name it.
fn arrows_within(graph: &Graph, folder: &[String]) -> Arrows {
    let child = |module: &[String]| match module.strip_prefix(folder) {
        Some([child, ..]) => Some(child.clone()),
        _ => None,
    };
    let mut arrows = Arrows::new();
    for (from, to) in &graph.arrows {
        let Some(from) = child(from) else {
            continue;
        };
        let to = to.iter().filter_map(|module| child(module));
        let others = to.filter(|to| *to != from);
        arrows.entry(from.clone()).or_default().extend(others);
    }
    arrows
}

/// Strongly connected sets of more than one module.
fn circles_of(arrows: &Arrows) -> Vec<BTreeSet<String>> {
    let reach: Arrows = arrows
        .keys()
        .map(|from| (from.clone(), reached(arrows, from)))
        .collect();
    let mut found: Vec<BTreeSet<String>> = Vec::new();
    for from in arrows.keys() {
        let back = |to: &&String| reach.get(*to).is_some_and(|reach| reach.contains(from));
        let circle: BTreeSet<String> = reach[from].iter().filter(back).cloned().collect();
        if circle.len() > 1 && !found.contains(&circle) {
            found.push(circle);
        }
    }
    found
}

fn reached(arrows: &Arrows, from: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from.to_owned()];
    while let Some(module) = next.pop() {
        for to in arrows.get(&module).into_iter().flatten() {
            if reached.insert(to.clone()) {
                next.push(to.clone());
            }
        }
    }
    reached
}

#[test]
fn a_circle_is_found_however_long() {
    let arrows = |pairs: &[(&str, &str)]| {
        let mut arrows = Arrows::new();
        for (from, to) in pairs {
            arrows.entry((*to).to_owned()).or_default();
            let from = arrows.entry((*from).to_owned()).or_default();
            from.insert((*to).to_owned());
        }
        arrows
    };
    assert!(circles_of(&arrows(&[("a", "b"), ("a", "c"), ("b", "c")])).is_empty());
    let round = circles_of(&arrows(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")]));
    let names: Vec<&str> = round[0].iter().map(String::as_str).collect();
    assert_eq!((round.len(), names), (1, vec!["a", "b", "c"]));
}
