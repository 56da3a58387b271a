//! The steps of a tokenizer's normaliser, one run of text at a time.

use std::borrow::Cow;

use unicode_categories::UnicodeCategories;
use unicode_normalization::char::is_combining_mark;
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use super::Skip;
use super::profile::{Canonical, CanonicalStep};
use super::work::Work;

/// What stands for a space in SentencePiece-style vocabularies.
pub(super) const SPACE_MARK: char = '\u{2581}';

/// Every character below U+0300 stays as it is in NFC, whatever stands around it. The UTF-8 of the
/// others begins with this byte or a greater one.
const FIRST_SUSPECT_LEAD: u8 = 0xcc;
/// Bytes looked at together for being ASCII.
const STRIDE_BYTES: usize = 128;

impl Canonical {
    /// What the steps make of one run of text.
    #[must_use]
    pub fn normalised(&self, text: &str) -> String {
        let done = run(&self.steps, text, &Work::unlimited());
        done.map_or_else(|_| text.to_owned(), Cow::into_owned)
    }
}

/// All steps on one run.
///
/// # Errors
/// [`Skip::TooComplex`] if they take more than `work` allows.
pub(super) fn run<'a>(
    steps: &[CanonicalStep],
    run: &'a str,
    work: &Work,
) -> Result<Cow<'a, str>, Skip> {
    let mut run = Cow::Borrowed(run);
    for step in steps {
        if let Some(changed) = apply(step, &run, work)? {
            run = Cow::Owned(changed);
        }
    }
    Ok(run)
}

/// It looks at each character, which takes much longer than to look for a text.
fn by_character(step: &CanonicalStep, run: &str) -> bool {
    match step {
        CanonicalStep::Nfd
        | CanonicalStep::Nfkc
        | CanonicalStep::Nfkd
        | CanonicalStep::DropMarks
        | CanonicalStep::DropNonspacing
        | CanonicalStep::BertChinese => !run.is_ascii(),
        CanonicalStep::Lowercase | CanonicalStep::Nmt | CanonicalStep::BertClean => true,
        CanonicalStep::Nfc
        | CanonicalStep::Strip { .. }
        | CanonicalStep::Squeeze(_)
        | CanonicalStep::Prepend(_)
        | CanonicalStep::Replace { .. } => false,
    }
}

/// One step; `None` where it changes nothing.
fn apply(step: &CanonicalStep, run: &str, work: &Work) -> Result<Option<String>, Skip> {
    if by_character(step, run) {
        work.spend_characters(run.len())?;
    }
    Ok(match step {
        CanonicalStep::Nfc => nfc(run, work)?,
        // ASCII is in all forms.
        CanonicalStep::Nfd | CanonicalStep::Nfkc | CanonicalStep::Nfkd if run.is_ascii() => None,
        CanonicalStep::Nfd => Some(run.nfd().collect()),
        CanonicalStep::Nfkc => Some(run.nfkc().collect()),
        CanonicalStep::Nfkd => Some(run.nfkd().collect()),
        CanonicalStep::Lowercase => Some(run.chars().flat_map(char::to_lowercase).collect()),
        CanonicalStep::DropMarks | CanonicalStep::DropNonspacing if run.is_ascii() => None,
        CanonicalStep::DropMarks => Some(run.chars().filter(|c| !is_combining_mark(*c)).collect()),
        CanonicalStep::DropNonspacing => {
            Some(run.chars().filter(|c| !c.is_mark_nonspacing()).collect())
        }
        CanonicalStep::Strip { left, right } => {
            let kept = if *left { run.trim_start() } else { run };
            Some(if *right { kept.trim_end() } else { kept }.to_owned())
        }
        CanonicalStep::Squeeze(to) => run.contains("  ").then(|| squeeze(run, to)),
        CanonicalStep::Nmt => Some(run.chars().filter_map(nmt).collect()),
        CanonicalStep::BertClean => Some(run.chars().filter_map(bert_clean).collect()),
        CanonicalStep::BertChinese if run.is_ascii() => None,
        CanonicalStep::BertChinese => Some(bert_chinese(run)),
        CanonicalStep::Prepend(before) => (!run.is_empty()).then(|| before.clone() + run),
        CanonicalStep::Replace { from, to } => {
            (!from.is_empty() && run.contains(from.as_str())).then(|| run.replace(from, to))
        }
    })
}

/// A run of two spaces or more is one match.
fn squeeze(run: &str, to: &str) -> String {
    let mut out = String::with_capacity(run.len());
    let mut rest = run;
    while let Some((before, after)) = rest.split_once("  ") {
        out.push_str(before);
        out.push_str(to);
        rest = after.trim_start_matches(' ');
    }
    out.push_str(rest);
    out
}

/// tokenizers: `normalizers/unicode.rs`, `do_nmt`.
fn nmt(c: char) -> Option<char> {
    match c {
        '\u{1}'..='\u{8}' | '\u{b}' | '\u{e}'..='\u{1f}' | '\u{7f}' | '\u{8f}' | '\u{9f}' => None,
        '\t'
        | '\n'
        | '\u{c}'
        | '\r'
        | '\u{1680}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'
        | '\u{2029}'
        | SPACE_MARK
        | '\u{feff}'
        | '\u{fffd}' => Some(' '),
        other => Some(other),
    }
}

/// tokenizers: `normalizers/bert.rs`, `do_clean_text`.
fn bert_clean(c: char) -> Option<char> {
    match c {
        '\t' | '\n' | '\r' => Some(' '),
        '\0' | '\u{fffd}' => None,
        c if c.is_other() => None,
        c if c.is_whitespace() => Some(' '),
        c => Some(c),
    }
}

/// tokenizers: `normalizers/bert.rs`, `do_handle_chinese_chars`.
fn bert_chinese(run: &str) -> String {
    let mut out = String::with_capacity(run.len() + run.len() / 2);
    for c in run.chars() {
        let chinese = matches!(c,
            '\u{4e00}'..='\u{9fff}'
            | '\u{3400}'..='\u{4dbf}'
            | '\u{20000}'..='\u{2a6df}'
            | '\u{2a700}'..='\u{2b73f}'
            | '\u{2b740}'..='\u{2b81f}'
            | '\u{2b920}'..='\u{2ceaf}'
            | '\u{f900}'..='\u{faff}'
            | '\u{2f800}'..='\u{2fa1f}'
        );
        if chinese {
            out.extend([' ', c, ' ']);
        } else {
            out.push(c);
        }
    }
    out
}

/// tokenizers: `pre_tokenizers/bert.rs`, `is_bert_punc`.
pub(super) fn is_punctuation(c: char) -> bool {
    c.is_ascii_punctuation() || c.is_punctuation()
}

/// A quick "yes"; otherwise a closer look is needed.
pub(super) fn is_surely_nfc(text: &str) -> bool {
    next_suspect(text, 0).is_none()
}

/// Where the next character stands that might not stay as it is: not below U+0300, and in none of
/// the large blocks without combining characters.
fn next_suspect(text: &str, from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(rest) = text.as_bytes().get(at..) {
        // ASCII in large steps.
        let stride = rest.get(..STRIDE_BYTES).unwrap_or(rest);
        if stride.is_empty() {
            return None;
        }
        if is_ascii(stride) {
            at += stride.len();
            continue;
        }
        let Some(lead) = stride.iter().position(|&byte| byte >= FIRST_SUSPECT_LEAD) else {
            at += stride.len();
            continue;
        };
        at += lead;
        at += inert_run(text.as_bytes().get(at..)?);
        let c = text.get(at..)?.chars().next()?;
        if !is_inert(c) {
            return Some(at);
        }
        at += c.len_utf8();
    }
    None
}

/// Bytes at the beginning that are Cyrillic letters, most Chinese characters or most hangul syllables,
/// all of which are inert: told by their first bytes, without putting characters together.
fn inert_run(bytes: &[u8]) -> usize {
    let mut at = 0;
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        at += match *rest {
            [0xd0..=0xd1, _, ..] => 2,
            [0xe4, 0xb8..=0xbf, _, ..] | [0xe5..=0xe9 | 0xeb..=0xec, _, _, ..] => 3,
            _ => return at,
        };
    }
}

/// In wasm twice as fast as the standard library's, which looks at words of four bytes there.
fn is_ascii(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |all, byte| all | byte) < 0x80
}

/// Never changes in NFC nor combines with what stands before it (a part of those that do not).
fn is_inert(c: char) -> bool {
    matches!(c,
        '\0'..='\u{2ff}'
        | '\u{400}'..='\u{482}' // Cyrillic
        | '\u{5d0}'..='\u{5ea}' // Hebrew letters
        | '\u{620}'..='\u{64a}' // Arabic letters
        | '\u{904}'..='\u{939}' // Devanagari letters
        | '\u{e01}'..='\u{e33}' // Thai
        | '\u{1e00}'..='\u{1eff}' // Latin with marks, Vietnamese
        | '\u{2010}'..='\u{205e}' // dashes, quotes, dots
        | '\u{2500}'..='\u{25ff}' // box drawing
        | '\u{3001}'..='\u{3029}' // CJK punctuation
        | '\u{3041}'..='\u{3096}' // hiragana
        | '\u{30a1}'..='\u{30fe}' // katakana
        | '\u{4e00}'..='\u{9fff}' // Chinese characters
        | '\u{ac00}'..='\u{d7a3}' // hangul syllables
        | '\u{ff01}'..='\u{ffef}' // full-width forms
        | '\u{1f300}'..='\u{1faff}' // emoji
    )
}

/// NFC, `None` where nothing needs a look; piece by piece: nothing composes with an ASCII character before it, so each piece begins
/// with one.
fn nfc(text: &str, work: &Work) -> Result<Option<String>, Skip> {
    let bytes = text.as_bytes();
    let (mut out, mut done) = (String::new(), 0);
    while let Some(at) = next_suspect(text, done) {
        let before = bytes.get(done..at).unwrap_or_default();
        let start = done + before.iter().rposition(u8::is_ascii).unwrap_or(0);
        let after = bytes.get(at..).unwrap_or_default();
        let end = at + after.iter().position(u8::is_ascii).unwrap_or(after.len());
        out.push_str(text.get(done..start).unwrap_or_default());
        let piece = text.get(start..end).unwrap_or_default();
        work.spend_characters(piece.len())?;
        match is_nfc_quick(piece.chars()) {
            IsNormalized::Yes => out.push_str(piece),
            _ => out.extend(piece.nfc()),
        }
        done = end;
    }
    if done == 0 {
        return Ok(None);
    }
    out.push_str(text.get(done..).unwrap_or_default());
    Ok(Some(out))
}

#[cfg(test)]
mod tests {
    use unicode_normalization::char::canonical_combining_class;
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;

    #[test]
    fn inert_characters_never_change() {
        for c in ('\0'..=char::MAX).filter(|&c| is_inert(c)) {
            let quick = is_nfc_quick(core::iter::once(c));
            assert_eq!(quick, IsNormalized::Yes, "{c:?}");
            assert_eq!(canonical_combining_class(c), 0, "{c:?}");
        }
    }

    #[test]
    fn runs_are_of_inert_characters() {
        let mut found = 0;
        for c in '\0'..=char::MAX {
            let text = String::from(c);
            let run = inert_run(text.as_bytes());
            assert!(
                run == 0 || (run == text.len() && is_inert(c)),
                "{c:?}: {run}"
            );
            found += usize::from(run > 0);
        }
        assert!(found > 25_000, "{found}");
        assert_eq!(inert_run("中文бꀀx".as_bytes()), 8);
    }
}
