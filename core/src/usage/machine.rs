//! The state machine over JSON bytes.
//!
//! An object on a path of interest is on the stack, and its keys are read; any other value is
//! skipped by counting brackets. At most four objects are on the stack, so that the state has a
//! fixed size.

use super::find;
use super::name::Name;
use super::{Cached, Usage};

/// An object whose keys are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    /// The value as a whole.
    Root,
    /// What an event wraps: `response` or `message`.
    Wrapper,
    /// `usage`.
    Usage,
    /// `prompt_tokens_details`, `input_tokens_details`.
    Details,
}

/// A figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaf {
    PromptTokens,
    InputTokens,
    CacheRead,
    CacheCreation,
    CachedTokens,
    /// Not a figure: the answer's name.
    Id,
}

/// What a key's value is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Child {
    Node(Node),
    Leaf(Leaf),
    Other,
}

impl Node {
    fn child(self, key: &[u8]) -> Child {
        match (self, key) {
            (Self::Root, b"message" | b"response") => Child::Node(Self::Wrapper),
            (Self::Root | Self::Wrapper, b"usage") => Child::Node(Self::Usage),
            (Self::Root | Self::Wrapper, b"id") => Child::Leaf(Leaf::Id),
            (Self::Usage, b"prompt_tokens_details" | b"input_tokens_details") => {
                Child::Node(Self::Details)
            }
            (Self::Usage, b"prompt_tokens") => Child::Leaf(Leaf::PromptTokens),
            (Self::Usage, b"input_tokens") => Child::Leaf(Leaf::InputTokens),
            (Self::Usage, b"cache_read_input_tokens") => Child::Leaf(Leaf::CacheRead),
            (Self::Usage, b"cache_creation_input_tokens") => Child::Leaf(Leaf::CacheCreation),
            (Self::Details, b"cached_tokens") => Child::Leaf(Leaf::CachedTokens),
            _ => Child::Other,
        }
    }
}

/// Objects on the stack at most: the longest path through [`Node`].
const DEPTH_MAX: usize = 4;
/// Longer keys are none of ours.
const KEY_MAX: usize = 32;

/// Where in the JSON we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Before a value, which is `child`.
    Value,
    /// Before a key, or the end of the object on top of the stack.
    Key,
    InKey,
    /// Between a key and its value.
    Colon,
    /// In a string that is a value.
    Text,
    /// In a number, `true`, `false` or `null`.
    Scalar,
    /// Behind a value of the object on top of the stack.
    Next,
    /// `skipped` brackets deep in something of no interest.
    Skip,
    /// In a string there.
    SkipText,
    /// Behind the value as a whole.
    Done,
}

/// A key as far as it has been read.
#[derive(Clone, Copy, Debug)]
struct Key {
    bytes: [u8; KEY_MAX],
    len: usize,
}

impl Key {
    /// A key that is too long to be one of ours stays so.
    fn push(&mut self, text: &[u8]) {
        let end = self.len.saturating_add(text.len());
        if let Some(place) = self.bytes.get_mut(self.len..end) {
            place.copy_from_slice(text);
        }
        self.len = end;
    }

    fn get(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// A scalar as far as it has been read: a count, unless it turns out to be something else.
#[derive(Clone, Copy, Debug, Default)]
struct Scalar {
    count: Option<u64>,
}

impl Scalar {
    fn begin(byte: u8) -> Self {
        let mut scalar = Self { count: Some(0) };
        scalar.push(byte);
        scalar
    }

    fn push(&mut self, byte: u8) {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte & 0xf));
        self.count = self.count.and_then(|count| {
            let tens = count.checked_mul(10)?;
            tens.checked_add(digit?)
        });
    }
}

/// Figures as given. Of the cached ones: `Some(None)` is there but no count.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    usage_seen: bool,
    prompt_tokens: Option<u64>,
    input_tokens: Option<u64>,
    cache_creation: Option<u64>,
    cache_read: Option<Option<u64>>,
    cached_tokens: Option<Option<u64>>,
}

impl Figures {
    /// A count takes the place of an earlier one; what is no count takes no count's place.
    fn set(&mut self, leaf: Leaf, count: Option<u64>) {
        let plain = |figure: &mut Option<u64>| *figure = count.or(*figure);
        let cached = |figure: &mut Option<Option<u64>>| *figure = Some(count.or(figure.flatten()));
        match leaf {
            Leaf::PromptTokens => plain(&mut self.prompt_tokens),
            Leaf::InputTokens => plain(&mut self.input_tokens),
            Leaf::CacheCreation => plain(&mut self.cache_creation),
            Leaf::CacheRead => cached(&mut self.cache_read),
            Leaf::CachedTokens => cached(&mut self.cached_tokens),
            Leaf::Id => {}
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    at: At,
    /// The last byte of a string was a backslash.
    escaped: bool,
    stack: [Node; DEPTH_MAX],
    depth: usize,
    skipped: usize,
    key: Key,
    child: Child,
    scalar: Scalar,
    figures: Figures,
    id: Name,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            at: At::Value,
            escaped: false,
            stack: [Node::Root; DEPTH_MAX],
            depth: 0,
            skipped: 0,
            key: Key {
                bytes: [0; KEY_MAX],
                len: 0,
            },
            child: Child::Node(Node::Root),
            scalar: Scalar::default(),
            figures: Figures::default(),
            id: Name::default(),
        }
    }
}

impl Machine {
    /// Another value begins; figures and name stay.
    pub(super) fn begin(&mut self) {
        *self = Self {
            figures: self.figures,
            id: self.id,
            ..Self::default()
        };
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some((&byte, after)) = rest.split_first() {
            rest = match self.at {
                At::Done => return,
                At::Text | At::SkipText => self.text(rest),
                At::Skip => self.skip(rest),
                At::InKey if !self.escaped => self.key_text(rest),
                _ => {
                    self.step(byte);
                    after
                }
            };
        }
    }

    /// Goes to the end of a string that does not matter; returns what is behind it.
    fn text<'a>(&mut self, rest: &'a [u8]) -> &'a [u8] {
        if std::mem::take(&mut self.escaped) {
            return rest.get(1..).unwrap_or_default();
        }
        let end = find::string_end(rest);
        if self.at == At::Text && self.child == Child::Leaf(Leaf::Id) {
            self.id.push(rest.get(..end.unwrap_or(rest.len())));
        }
        let Some(end) = end else {
            return &[];
        };
        if rest.get(end) == Some(&b'\\') {
            self.escaped = true;
            self.id.escape();
        } else if self.at == At::SkipText {
            self.at = At::Skip;
        } else {
            self.id.end();
            self.at = At::Next;
        }
        rest.get(end + 1..).unwrap_or_default()
    }

    /// Takes a key up to its end, or to a backslash.
    fn key_text<'a>(&mut self, rest: &'a [u8]) -> &'a [u8] {
        let end = find::string_end(rest).unwrap_or(rest.len());
        let (text, after) = rest.split_at_checked(end).unwrap_or((rest, &[]));
        self.key.push(text);
        let Some((&byte, after)) = after.split_first() else {
            return &[];
        };
        if byte == b'\\' {
            self.escaped = true;
        } else {
            let node = self.stack.get(self.depth.wrapping_sub(1));
            self.child = node.map_or(Child::Other, |node| node.child(self.key.get()));
            self.at = At::Colon;
        }
        after
    }

    /// Goes on to where something begins or ends within what does not matter.
    fn skip<'a>(&mut self, rest: &'a [u8]) -> &'a [u8] {
        let Some(at) = find::structure(rest) else {
            return &[];
        };
        match rest.get(at) {
            Some(b'"') => self.at = At::SkipText,
            Some(b'{' | b'[') => self.skipped = self.skipped.saturating_add(1),
            _ => {
                self.skipped = self.skipped.saturating_sub(1);
                if self.skipped == 0 {
                    self.after_value();
                }
            }
        }
        rest.get(at + 1..).unwrap_or_default()
    }

    fn step(&mut self, byte: u8) {
        match self.at {
            At::Value => self.value(byte),
            At::Key => match byte {
                b'"' => {
                    self.key.len = 0;
                    self.at = At::InKey;
                }
                b'}' => self.close(),
                _ => {}
            },
            // A key with escapes is none of ours.
            At::InKey => {
                self.escaped = false;
                self.key.len = KEY_MAX + 1;
            }
            At::Colon => {
                if byte == b':' {
                    self.at = At::Value;
                }
            }
            At::Scalar => match byte {
                b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r' => {
                    self.leaf(self.scalar.count);
                    self.after_value();
                    self.step_next(byte);
                }
                _ => self.scalar.push(byte),
            },
            At::Next => self.step_next(byte),
            At::Text | At::Skip | At::SkipText | At::Done => {}
        }
    }

    fn value(&mut self, byte: u8) {
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => {}
            b'{' if matches!(self.child, Child::Node(_)) => self.open(),
            b'{' | b'[' => {
                self.leaf(None);
                self.skipped = 1;
                self.at = At::Skip;
            }
            b'"' => {
                self.leaf(None);
                self.id.begin(self.child == Child::Leaf(Leaf::Id));
                self.at = At::Text;
            }
            _ => {
                self.scalar = Scalar::begin(byte);
                self.at = At::Scalar;
            }
        }
    }

    fn open(&mut self) {
        let Child::Node(node) = self.child else {
            return;
        };
        self.figures.usage_seen |= node == Node::Usage;
        if let Some(place) = self.stack.get_mut(self.depth) {
            *place = node;
            self.depth += 1;
        }
        self.at = At::Key;
    }

    fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        self.after_value();
    }

    fn after_value(&mut self) {
        self.at = if self.depth == 0 { At::Done } else { At::Next };
    }

    fn step_next(&mut self, byte: u8) {
        match (self.at, byte) {
            (At::Next, b',') => self.at = At::Key,
            (At::Next, b'}') => self.close(),
            _ => {}
        }
    }

    fn leaf(&mut self, count: Option<u64>) {
        if let Child::Leaf(leaf) = self.child {
            self.figures.set(leaf, count);
        }
    }

    pub(super) fn id(&self) -> Option<&[u8]> {
        self.id.get()
    }

    pub(super) fn usage(&self) -> Usage {
        let figures = &self.figures;
        // Anthropic's input tokens are those that were neither read from nor written to the cache.
        let apart = figures.cache_read.flatten().unwrap_or(0);
        let apart = apart.saturating_add(figures.cache_creation.unwrap_or(0));
        let input = figures.input_tokens.map(|n| n.saturating_add(apart));
        Usage {
            prompt_tokens: figures.prompt_tokens.or(input),
            cached: match figures.cached_tokens.or(figures.cache_read) {
                Some(Some(tokens)) => Cached::Tokens(tokens),
                Some(None) => Cached::Null,
                None if figures.usage_seen => Cached::NoFigure,
                None => Cached::NoUsage,
            },
        }
    }
}
