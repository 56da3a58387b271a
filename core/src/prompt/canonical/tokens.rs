//! Added tokens, found in text as `tokenizers` finds them: leftmost, the longest first.
//!
//! A model can have thousands of them (Gemma 3: 6,415), and a text can consist of what they begin with.
//! So they are in a tree, byte by byte: one look at a place in the text costs no more than the longest
//! token has bytes, however many there are.
//!
//! Source: tokenizers 0.22, `tokenizer/added_vocabulary.rs`, `find_matches`.

use std::collections::VecDeque;

use crate::prompt::profile::AddedToken;

/// A part of a text.
pub(super) enum Piece<'a> {
    Token(&'a str),
    Text(&'a str),
}

/// Added tokens, none of them empty.
#[derive(Debug)]
pub(super) struct Tokens {
    tokens: Vec<AddedToken>,
    tree: Tree,
}

impl Tokens {
    pub(super) fn new(mut tokens: Vec<AddedToken>) -> Self {
        // Of two that are the same text the first counts, so the order of equals stays.
        tokens.sort_by(|a, b| a.content.as_bytes().cmp(b.content.as_bytes()));
        tokens.dedup_by(|b, a| a.content == b.content);
        let tree = Tree::new(&tokens);
        Self { tokens, tree }
    }

    /// Some take the white space next to them along.
    pub(super) fn strips(&self) -> bool {
        self.tokens.iter().any(|token| token.lstrip || token.rstrip)
    }

    /// The tokens in a text and what is between them, without the white space that tokens take along.
    pub(super) fn split<'a>(&'a self, text: &'a str) -> impl Iterator<Item = Piece<'a>> {
        let mut at = 0;
        let mut token = None;
        core::iter::from_fn(move || {
            if let Some(token) = token.take() {
                return Some(Piece::Token(token));
            }
            if at >= text.len() {
                return None;
            }
            let rest = text.get(at..)?;
            let Some((start, found)) = self.find(text, at) else {
                at = text.len();
                return Some(Piece::Text(rest));
            };
            let run = text.get(at..start)?;
            let after = text.get(start + found.content.len()..)?;
            let kept = if found.rstrip {
                after.trim_start()
            } else {
                after
            };
            at = text.len() - kept.len();
            token = Some(found.content.as_str());
            Some(Piece::Text(if found.lstrip { run.trim_end() } else { run }))
        })
    }

    fn find(&self, text: &str, from: usize) -> Option<(usize, &AddedToken)> {
        if self.tokens.is_empty() {
            return None;
        }
        let bytes = text.as_bytes();
        let mut at = from;
        while let Some(next) = bytes.get(at..)?.iter().position(|&b| self.tree.starts(b)) {
            at += next;
            let longest = self.tree.longest(bytes.get(at..).unwrap_or_default());
            let found = longest.and_then(|index| self.tokens.get(index));
            if let Some(token) = found.filter(|token| is_whole(text, at, token)) {
                return Some((at, token));
            }
            at += found.map_or(1, |token| token.content.len());
        }
        None
    }
}

/// A token that must be a word of its own has no letter or digit next to it.
fn is_whole(text: &str, at: usize, token: &AddedToken) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let before = text.get(..at).and_then(|t| t.chars().next_back());
    let after = text
        .get(at + token.content.len()..)
        .and_then(|t| t.chars().next());
    !token.single_word || !(before.is_some_and(is_word) || after.is_some_and(is_word))
}

/// A node's children stand next to each other, ordered by their byte.
#[derive(Debug, Default)]
struct Node {
    /// The byte that leads here.
    byte: u8,
    /// The first child.
    first: u32,
    children: u16,
    /// The token that ends here, plus one; 0: none does.
    token: u32,
}

#[derive(Debug)]
struct Tree {
    nodes: Vec<Node>,
    /// The node for each first byte; 0: no token begins with it.
    roots: Box<[u32; 256]>,
}

impl Tree {
    /// Of tokens in ascending order, none empty, all different.
    fn new(tokens: &[AddedToken]) -> Self {
        let mut tree = Self {
            nodes: vec![Node::default()],
            roots: Box::new([0; 256]),
        };
        // Nodes without children yet: which tokens pass through, and how many bytes are behind them.
        let mut open = VecDeque::from([(0, tokens, 0_usize, 0_usize)]);
        while let Some((node, tokens, first_token, depth)) = open.pop_front() {
            let first = tree.nodes.len();
            let byte = |token: &AddedToken| token.content.as_bytes().get(depth).copied();
            let mut index = first_token;
            for group in tokens.chunk_by(|a, b| byte(a) == byte(b)) {
                // The one that ends here comes first.
                if let Some(byte) = group.first().and_then(byte) {
                    open.push_back((tree.nodes.len(), group, index, depth + 1));
                    tree.nodes.push(Node {
                        byte,
                        ..Node::default()
                    });
                } else if let Some(node) = tree.nodes.get_mut(node) {
                    node.token = u32::try_from(index + 1).unwrap_or(0);
                }
                index += group.len();
            }
            let children = tree.nodes.len() - first;
            if let Some(node) = tree.nodes.get_mut(node) {
                node.first = u32::try_from(first).unwrap_or(0);
                node.children = u16::try_from(children).unwrap_or(0);
            }
        }
        // Those behind no byte, the first node's children, come first.
        let roots = tree.nodes.first().map_or(0, |node| node.children);
        let roots = tree.nodes.iter().enumerate().skip(1).take(roots.into());
        for (child, node) in roots {
            if let Some(root) = tree.roots.get_mut(usize::from(node.byte)) {
                *root = u32::try_from(child).unwrap_or(0);
            }
        }
        tree
    }

    fn root(&self, byte: u8) -> u32 {
        self.roots.get(usize::from(byte)).copied().unwrap_or(0)
    }

    fn starts(&self, byte: u8) -> bool {
        self.root(byte) != 0
    }

    /// The longest token that the text begins with.
    fn longest(&self, text: &[u8]) -> Option<usize> {
        let (first, rest) = text.split_first()?;
        let mut node = self.node(self.root(*first))?;
        let mut found = node.token;
        for &byte in rest {
            let first = usize::try_from(node.first).ok()?;
            let children = first..first + usize::from(node.children);
            let children = self.nodes.get(children)?;
            let Ok(child) = children.binary_search_by_key(&byte, |child| child.byte) else {
                break;
            };
            node = children.get(child)?;
            if node.token != 0 {
                found = node.token;
            }
        }
        usize::try_from(found.checked_sub(1)?).ok()
    }

    fn node(&self, index: u32) -> Option<&Node> {
        self.nodes
            .get(usize::try_from(index).ok().filter(|&index| index != 0)?)
    }
}

#[cfg(test)]
mod tests;
