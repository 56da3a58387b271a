//! Sums with escaped text: `"a"|safe + b`.
//!
//! In Jinja2 `|safe` gives markup, and markup plus a plain string escapes the string, even where
//! nothing else is escaped. minijinja's `+` does not, so the plain operands of such a sum are given
//! the `e` filter, which leaves markup alone, in the source.

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;

/// Words that end an operand.
const KEYWORDS: [&str; 9] = [
    "if",
    "else",
    "elif",
    "and",
    "or",
    "not",
    "in",
    "is",
    "recursive",
];

/// The source with such operands escaped. Source that is no valid template comes back as it is.
pub(super) fn escape_sums(source: &str, syntax: SyntaxConfig) -> String {
    let mut scan = Scan {
        levels: vec![Level::default()],
        inserts: Vec::new(),
    };
    for token in tokenize(source, false, syntax) {
        let Ok((token, span)) = token else {
            return source.to_owned();
        };
        let place = |offset: u32| usize::try_from(offset).unwrap_or(usize::MAX);
        scan.token(&token, place(span.start_offset), place(span.end_offset));
    }
    if scan.inserts.is_empty() {
        return source.to_owned();
    }
    scan.inserts.sort_by_key(|&(at, _)| at);
    let mut out = String::with_capacity(source.len() + 4 * scan.inserts.len());
    let mut done = 0;
    for (at, text) in scan.inserts {
        out.push_str(source.get(done..at).unwrap_or_default());
        out.push_str(text);
        done = at;
    }
    out.push_str(source.get(done..).unwrap_or_default());
    out
}

struct Scan {
    /// Open brackets, innermost last.
    levels: Vec<Level>,
    inserts: Vec<(usize, &'static str)>,
}

/// A sum being read.
#[derive(Default)]
struct Level {
    operands: Vec<Operand>,
    current: Option<Operand>,
    after_pipe: bool,
}

struct Operand {
    start: usize,
    end: usize,
    safe: bool,
    /// It has an operator of its own, so that it is no markup whatever its parts are.
    compound: bool,
}

impl Scan {
    fn token(&mut self, token: &Token, start: usize, end: usize) {
        match token {
            Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => {
                self.extend(start, end);
                self.levels.push(Level::default());
            }
            Token::ParenClose | Token::BracketClose | Token::BraceClose => {
                self.finish();
                if self.levels.len() > 1 {
                    self.levels.pop();
                }
                self.extend(start, end);
            }
            Token::Plus => {
                if let Some(level) = self.levels.last_mut() {
                    level.operands.extend(level.current.take());
                }
            }
            Token::Tilde | Token::Mul | Token::Div | Token::FloorDiv | Token::Pow | Token::Mod => {
                self.extend(start, end);
                if let Some(operand) = self.current() {
                    operand.compound = true;
                }
            }
            Token::Pipe => {
                self.extend(start, end);
                if let Some(level) = self.levels.last_mut() {
                    level.after_pipe = true;
                }
            }
            Token::Ident(name) if !KEYWORDS.contains(name) => {
                let is_filter = self
                    .levels
                    .last_mut()
                    .is_some_and(|l| core::mem::take(&mut l.after_pipe));
                self.extend(start, end);
                if let Some(operand) = self.current().filter(|_| is_filter) {
                    operand.safe = matches!(*name, "safe" | "e" | "escape");
                }
            }
            Token::Dot
            | Token::Str(_)
            | Token::String(_)
            | Token::Int(_)
            | Token::Int128(_)
            | Token::Float(_) => self.extend(start, end),
            _ => self.finish(),
        }
    }

    fn current(&mut self) -> Option<&mut Operand> {
        self.levels.last_mut()?.current.as_mut()
    }

    fn extend(&mut self, start: usize, end: usize) {
        if let Some(level) = self.levels.last_mut() {
            let new = Operand {
                start,
                end,
                safe: false,
                compound: false,
            };
            level.current.get_or_insert(new).end = end;
        }
    }

    /// The sum at this level is over.
    fn finish(&mut self) {
        let Some(level) = self.levels.last_mut().map(core::mem::take) else {
            return;
        };
        let operands: Vec<Operand> = level.operands.into_iter().chain(level.current).collect();
        if operands.len() > 1 && operands.iter().any(|o| o.safe && !o.compound) {
            for operand in operands.iter().filter(|o| !o.safe || o.compound) {
                self.inserts.push((operand.start, "("));
                self.inserts.push((operand.end, ")|e"));
            }
        }
    }
}
