//! The language of the templates.
//!
//! Plain words are literal, `$name` is a value from a pool. Brackets are separated by blanks:
//!
//! - `[ a | b ]`: one alternative or nothing; adjacent groups are in random order
//! - `( a | b )`: one alternative
//! - `{ a | b }`: one to four times, drawn anew each time
//! - `{* a }`: the same, but sometimes more often than a packed collection has elements
//! - `!` before the name: the command is never damaged
//!
//! A command is sometimes damaged afterwards (an argument removed, duplicated, replaced by
//! junk, or the rest cut off), so that arity and syntax errors occur too.

use super::pools;

/// One element of a template.
enum Node {
    Word(&'static str),
    Pool(&'static str),
    Optional(Vec<Vec<Node>>),
    OneOf(Vec<Vec<Node>>),
    Some(Vec<Vec<Node>>),
    Many(Vec<Vec<Node>>),
}

/// A parsed template.
pub struct Template {
    nodes: Vec<Node>,
    /// Is the command never damaged?
    whole: bool,
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn parse_alternatives(words: &mut Words<'static>, close: &str) -> Vec<Vec<Node>> {
    let mut alternatives = vec![Vec::new()];
    loop {
        let word = words
            .next()
            .unwrap_or_else(|| panic!("template ends before {close:?}"));
        if word == close {
            return alternatives;
        }
        if word == "|" {
            alternatives.push(Vec::new());
        } else {
            let node = parse_node(word, words);
            alternatives.last_mut().unwrap().push(node);
        }
    }
}

fn parse_node(word: &'static str, words: &mut Words<'static>) -> Node {
    match word {
        "[" => Node::Optional(parse_alternatives(words, "]")),
        "(" => Node::OneOf(parse_alternatives(words, ")")),
        "{" => Node::Some(parse_alternatives(words, "}")),
        "{*" => Node::Many(parse_alternatives(words, "}")),
        "]" | ")" | "}" | "|" => panic!("stray {word:?} in a template"),
        _ => match word.strip_prefix('$') {
            Some(name) => Node::Pool(name),
            None => Node::Word(word),
        },
    }
}

impl Template {
    /// Parses one line.
    pub fn parse(line: &'static str) -> Template {
        let mut words = line.split_whitespace().peekable();
        let whole = words.next_if_eq(&"!").is_some();
        let mut nodes = Vec::new();
        while let Some(word) = words.next() {
            nodes.push(parse_node(word, &mut words));
        }
        Template { nodes, whole }
    }

    /// The full names of the commands that it draws, in lower case, as if its first argument
    /// were a subcommand, and the name alone.
    pub fn commands(&self) -> Vec<String> {
        let mut words = self.nodes.iter();
        let first = |nodes: &[Node]| match nodes.first() {
            Some(Node::Word(word)) => Some(*word),
            _ => None,
        };
        let mut name = words.next().map_or("", |_| self.name());
        if name == "ITERATE" {
            name = first(words.as_slice()).unwrap_or_default();
            words.next();
        }
        let seconds: Vec<&str> = match words.next() {
            Some(Node::Word(word)) => vec![word],
            Some(Node::OneOf(alternatives) | Node::Optional(alternatives)) => alternatives
                .iter()
                .filter_map(|nodes| first(nodes))
                .collect(),
            _ => Vec::new(),
        };
        let full = seconds.into_iter().map(|second| format!("{name}|{second}"));
        let names = std::iter::once(name.to_owned()).chain(full);
        names.map(|name| name.to_lowercase()).collect()
    }

    /// The command's name.
    pub fn name(&self) -> &'static str {
        match self.nodes.first() {
            Some(Node::Word(word)) => word,
            _ => panic!("a template starts with a command's name"),
        }
    }

    /// Draws a command; `letter` is the key prefix of the family.
    pub fn draw(&self, rng: &mut fastrand::Rng, letter: char) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        draw_nodes(&self.nodes, rng, letter, &mut out);
        // Timed and iterated commands must stay intact. PFCOUNT must not lose keys: with a
        // single key the oracle's PFCOUNT writes. The ID of XADD must not become `*`, which
        // takes the clock's time.
        let whole = self.whole
            || self.has_short_ttl()
            || ["ITERATE", "PFCOUNT", "XADD"].contains(&self.name());
        if !whole && rng.u8(..100) < 4 {
            damage(&mut out, rng);
        }
        out
    }

    /// Whether it sets a short expiry, for which the sequence then waits.
    pub fn has_short_ttl(&self) -> bool {
        self.nodes
            .iter()
            .any(|node| matches!(node, Node::Pool("short")))
    }
}

fn draw_nodes(nodes: &[Node], rng: &mut fastrand::Rng, letter: char, out: &mut Vec<Vec<u8>>) {
    let mut at = 0;
    while at < nodes.len() {
        match &nodes[at] {
            Node::Word(word) => out.push(spelled(word, rng)),
            Node::Pool(name) => pools::draw(name, rng, letter, out),
            Node::OneOf(alternatives) => draw_one(alternatives, rng, letter, out),
            Node::Some(alternatives) => {
                for _ in 0..rng.usize(1..=4) {
                    draw_one(alternatives, rng, letter, out);
                }
            }
            Node::Many(alternatives) => {
                let many = rng.u8(..100) < 6;
                let times = rng.usize(if many { 30..=220 } else { 1..=5 });
                for _ in 0..times {
                    draw_one(alternatives, rng, letter, out);
                }
            }
            Node::Optional(_) => {
                let group = nodes[at..]
                    .iter()
                    .take_while(|n| matches!(n, Node::Optional(_)))
                    .count();
                draw_optionals(&nodes[at..at + group], rng, letter, out);
                at += group - 1;
            }
        }
        at += 1;
    }
}

fn draw_optionals(group: &[Node], rng: &mut fastrand::Rng, letter: char, out: &mut Vec<Vec<u8>>) {
    let mut order: Vec<&Node> = group.iter().collect();
    rng.shuffle(&mut order);
    for node in order {
        let Node::Optional(alternatives) = node else {
            continue;
        };
        // Rarely twice, to test repeated options.
        for chance in [40, 4] {
            if rng.u8(..100) >= chance {
                break;
            }
            draw_one(alternatives, rng, letter, out);
        }
    }
}

fn draw_one(
    alternatives: &[Vec<Node>],
    rng: &mut fastrand::Rng,
    letter: char,
    out: &mut Vec<Vec<u8>>,
) {
    draw_nodes(
        &alternatives[rng.usize(..alternatives.len())],
        rng,
        letter,
        out,
    );
}

/// Option words in any case.
fn spelled(word: &str, rng: &mut fastrand::Rng) -> Vec<u8> {
    if rng.u8(..100) < 10 {
        word.to_lowercase().into_bytes()
    } else {
        word.as_bytes().to_vec()
    }
}

fn damage(command: &mut Vec<Vec<u8>>, rng: &mut fastrand::Rng) {
    if command.len() < 2 {
        command.push(pools::junk(rng));
        return;
    }
    let at = rng.usize(1..command.len());
    match rng.u8(..5) {
        0 => drop(command.remove(at)),
        1 => command.insert(at, command[at].clone()),
        2 => command.insert(at, pools::junk(rng)),
        3 => command[at] = pools::junk(rng),
        _ => command.truncate(at),
    }
}

#[test]
fn templates_draw_what_they_say() {
    let mut rng = fastrand::Rng::with_seed(1);
    let template = Template::parse("SET ( a ) [ NX | XX ] [ EX ( 1 | 2 ) ]");
    assert_eq!(template.name(), "SET");
    let mut longest = 0;
    for _ in 0..1000 {
        let mut out = Vec::new();
        draw_nodes(&template.nodes, &mut rng, 's', &mut out);
        assert!(out.len() >= 2);
        longest = longest.max(out.len());
    }
    assert!(longest >= 5);
}
