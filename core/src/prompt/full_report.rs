//! Asking an engine, in a client's request, to announce anew all blocks that the request finds cached.
//!
//! vLLM (from 0.26: v1/core/kv_cache_manager.py) does so for a request whose
//! `vllm_xargs.kv_cache_report_mode` is `full`. Only bytes are put in; all of the client's stay as they
//! are and where they are. A body that leaves any doubt about what the engine would read stays
//! untouched: `vllm_xargs` twice, or not an object, a mode of the client's own, keys with escapes
//! (which may spell one of these), anything behind the object.

/// Bytes to put into a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insertion {
    /// Before the byte at this position.
    pub at: usize,
    /// What.
    pub text: &'static str,
}

const XARGS: &[u8] = b"vllm_xargs";
const MODE: &[u8] = b"kv_cache_report_mode";

/// What to put where, so that the engine reports in full. `None`: better not.
#[must_use]
pub fn full_report(body: &[u8]) -> Option<Insertion> {
    let mut scan = Scan { body, at: 0 };
    let mut xargs = None;
    let top = scan.object(&mut |scan, key| {
        if key == XARGS {
            let mut has_mode = false;
            let inner = scan.object(&mut |scan, key| {
                has_mode |= key == MODE;
                scan.value()
            })?;
            if has_mode || xargs.replace(inner).is_some() {
                return None;
            }
            return Some(());
        }
        scan.value()
    })?;
    scan.space();
    if scan.at != body.len() {
        return None;
    }
    let (object, text) = match xargs {
        Some(inner) if inner.empty => (inner, r#""kv_cache_report_mode":"full""#),
        Some(inner) => (inner, r#""kv_cache_report_mode":"full","#),
        None if top.empty => return None,
        None => (top, r#""vllm_xargs":{"kv_cache_report_mode":"full"},"#),
    };
    Some(Insertion {
        at: object.inside,
        text,
    })
}

/// An object of the body.
#[derive(Clone, Copy)]
struct Object {
    /// Position behind its opening brace.
    inside: usize,
    empty: bool,
}

/// Walks over JSON that a parser has taken; on anything else it gives up.
struct Scan<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    fn peek(&self) -> Option<u8> {
        self.body.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        self.space();
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// An object; `each` gets a key and walks over its value.
    fn object(
        &mut self,
        each: &mut dyn FnMut(&mut Self, &'a [u8]) -> Option<()>,
    ) -> Option<Object> {
        self.take(b'{')?;
        let inside = self.at;
        self.space();
        if self.peek()? == b'}' {
            self.at += 1;
            return Some(Object {
                inside,
                empty: true,
            });
        }
        loop {
            self.space();
            let key = self.string()?;
            if key.contains(&b'\\') {
                return None;
            }
            self.take(b':')?;
            each(self, key)?;
            self.space();
            let next = self.peek()?;
            self.at += 1;
            match next {
                b',' => {}
                b'}' => {
                    return Some(Object {
                        inside,
                        empty: false,
                    });
                }
                _ => return None,
            }
        }
    }

    /// A string's bytes as they stand between its quotes.
    fn string(&mut self) -> Option<&'a [u8]> {
        self.take(b'"')?;
        let start = self.at;
        loop {
            match self.peek()? {
                b'"' => break,
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        let text = self.body.get(start..self.at)?;
        self.at += 1;
        Some(text)
    }

    /// Any value, by its brackets alone.
    fn value(&mut self) -> Option<()> {
        self.space();
        let mut depth = 0usize;
        loop {
            match self.peek()? {
                b'"' => {
                    self.string()?;
                    if depth == 0 {
                        return Some(());
                    }
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' if depth == 0 => return Some(()),
                b'}' | b']' => {
                    depth -= 1;
                    if depth == 0 {
                        self.at += 1;
                        return Some(());
                    }
                }
                b',' if depth == 0 => return Some(()),
                _ => {}
            }
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests;
