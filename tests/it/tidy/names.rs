//! Code that finds out about a command by its name: the command's row is the place for
//! that.

use std::collections::BTreeSet;
use syn::spanned::Spanned;
use syn::visit::Visit;

/// The commands that clients know.
const COMMANDS: &str = include_str!("../../fixtures/commands.tsv");

/// So many names of commands are not in a `match` by chance: options and types of values have
/// such names too (`GET`, `SET`).
const SEVERAL: usize = 3;

/// Lines that look at the name of a command.
pub struct ByName {
    names: BTreeSet<String>,
    pub lines: Vec<usize>,
}

impl ByName {
    pub fn new() -> ByName {
        let lines = COMMANDS.lines().filter(|line| !line.starts_with('#'));
        let names = lines.filter_map(|line| line.split('\t').next());
        ByName {
            names: names.map(str::to_owned).collect(),
            lines: Vec::new(),
        }
    }
}

impl<'ast> Visit<'ast> for ByName {
    fn visit_expr_match(&mut self, found: &'ast syn::ExprMatch) {
        let mut literals = Literals::default();
        found
            .arms
            .iter()
            .for_each(|arm| literals.visit_pat(&arm.pat));
        let said = literals.0.iter().map(|text| text.to_lowercase());
        let said: BTreeSet<String> = said.filter(|text| self.names.contains(text)).collect();
        if said.len() >= SEVERAL || !said.is_empty() && is_name_of_command(&found.expr) {
            self.lines.push(found.span().start().line);
        }
        syn::visit::visit_expr_match(self, found);
    }

    fn visit_expr_binary(&mut self, found: &'ast syn::ExprBinary) {
        let sides = [&*found.left, &*found.right];
        let compares = matches!(found.op, syn::BinOp::Eq(_) | syn::BinOp::Ne(_));
        let is_literal = |side: &&syn::Expr| matches!(side, syn::Expr::Lit(_));
        if compares
            && sides.iter().any(is_literal)
            && sides.iter().any(|side| is_name_of_command(side))
        {
            self.lines.push(found.span().start().line);
        }
        syn::visit::visit_expr_binary(self, found);
    }

    fn visit_expr_method_call(&mut self, found: &'ast syn::ExprMethodCall) {
        let compares = [
            "starts_with",
            "ends_with",
            "contains",
            "eq_ignore_ascii_case",
        ]
        .iter()
        .any(|name| found.method == name);
        let arguments = || found.args.iter();
        let of_name = is_name_of_command(&found.receiver)
            && arguments().any(|arg| matches!(arg, syn::Expr::Lit(literal) if matches!(literal.lit, syn::Lit::Str(_) | syn::Lit::ByteStr(_))));
        if compares && (of_name || arguments().any(is_name_of_command)) {
            self.lines.push(found.span().start().line);
        }
        syn::visit::visit_expr_method_call(self, found);
    }
}

/// Whether an expression is made of the `full_name` or `command.name` of a registered
/// command.
fn is_name_of_command(expression: &syn::Expr) -> bool {
    let mut words = Words::default();
    words.visit_expr(expression);
    let mut pairs = words.0.windows(2);
    words.0.iter().any(|word| word == "full_name") || pairs.any(|pair| pair == ["command", "name"])
}

/// The identifiers of an expression, in their order.
#[derive(Default)]
struct Words(Vec<String>);

impl<'ast> Visit<'ast> for Words {
    fn visit_ident(&mut self, word: &'ast proc_macro2::Ident) {
        self.0.push(word.to_string());
    }
}

/// The texts of a pattern.
#[derive(Default)]
struct Literals(Vec<String>);

impl<'ast> Visit<'ast> for Literals {
    fn visit_lit_str(&mut self, literal: &'ast syn::LitStr) {
        self.0.push(literal.value());
    }

    fn visit_lit_byte_str(&mut self, literal: &'ast syn::LitByteStr) {
        self.0
            .push(String::from_utf8_lossy(&literal.value()).into_owned());
    }
}

#[test]
fn a_look_at_a_name_is_found_in_each_form() {
    let found = |text: &str| {
        let file = syn::parse_file(&format!("fn f() {{ {text} }}")).unwrap();
        let mut names = ByName::new();
        names.visit_file(&file);
        !names.lines.is_empty()
    };
    for text in [
        "match name.as_slice() { b\"ping\" | b\"move\" => 1, b\"copy\" => 3, _ => 2 };",
        "match command.name { \"set\" if has => 1, _ => 2 };",
        "if found.command.name == \"select\" {}",
        "if found.full_name.starts_with(\"client|\") {}",
        "if scripts.contains(&found.full_name.as_str()) {}",
    ] {
        assert!(found(text), "{text}");
    }
    for text in [
        "match word { b\"set\" => 1, b\"type\" | b\"string\" => 2, _ => 3 };",
        "if found.command.flags == Flags::FAST {}",
        "if name.eq_ignore_ascii_case(b\"select\") {}",
        "patterns.contains(pattern);",
    ] {
        assert!(!found(text), "{text}");
    }
}
