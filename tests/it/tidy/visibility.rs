//! Which functions, constants and statics are `pub` although only their own folder uses them.

use super::source::Source;
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use std::collections::BTreeSet;
use syn::visit::Visit;

/// The items of `src` that are `pub` without need: no file outside their folder below `src`
/// contains their name. Names are compared as words, so that an item that shares its name with
/// another one is not found. Types are left out: what a `pub` function returns must be `pub`.
pub fn needlessly_public(sources: &[Source]) -> Vec<String> {
    let words: Vec<BTreeSet<String>> = sources.iter().map(words).collect();
    let mut found = Vec::new();
    for source in sources.iter().filter(|source| !source.is_test) {
        let Some(folder) = source.module.first() else {
            continue;
        };
        let is_outside = |other: &Source| {
            !other.path.starts_with("src/") || other.module.first() != Some(folder)
        };
        let mut items = Items::default();
        items.visit_file(&source.product);
        for name in items.0 {
            let mut users = sources.iter().zip(&words);
            if !users.any(|(other, words)| is_outside(other) && words.contains(&name)) {
                found.push(format!("{}: {name}", source.path));
            }
        }
    }
    found
}

/// All words of a file, inside macros as well.
fn words(source: &Source) -> BTreeSet<String> {
    fn collect(tokens: TokenStream, words: &mut BTreeSet<String>) {
        for token in tokens {
            match token {
                TokenTree::Ident(word) => _ = words.insert(word.to_string()),
                TokenTree::Group(group) => collect(group.stream(), words),
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }
    let mut found = BTreeSet::new();
    collect(source.file.to_token_stream(), &mut found);
    found
}

/// The names of `pub` functions, methods, constants and statics outside of inline modules.
#[derive(Default)]
struct Items(Vec<String>);

impl Items {
    fn note(&mut self, visibility: &syn::Visibility, name: &syn::Ident) {
        if matches!(visibility, syn::Visibility::Public(_)) {
            self.0.push(name.to_string());
        }
    }
}

impl<'ast> Visit<'ast> for Items {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.note(&item.vis, &item.sig.ident);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.note(&item.vis, &item.sig.ident);
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.note(&item.vis, &item.ident);
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.note(&item.vis, &item.ident);
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.note(&item.vis, &item.ident);
    }

    fn visit_item_mod(&mut self, _: &'ast syn::ItemMod) {}
}
