//! Small changes to a template's source where minijinja's syntax differs from Hugging Face's Jinja2.
//!
//! - `{% generation %}`...`{% endgeneration %}` (which only records positions) becomes `{% with %}`:
//!   a scope of its own, as in Jinja2, with the same white-space control around it.
//! - Jinja2 reads any line end as `\n`.
//! - Jinja2 keeps a newline that follows `{% raw %}`, although it trims it after any other block;
//!   minijinja trims it, so there a second one is added.

/// The source that minijinja should compile.
pub(super) fn adapt(source: &str) -> String {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut out = String::with_capacity(source.len());
    let mut rest = source.as_str();
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        let Some((open, name, close)) = simple_tag(tag) else {
            // A comment or a string could hold a tag's look-alike, but then it is of no effect here.
            out.push_str("{%");
            rest = tag.get(2..).unwrap_or_default();
            continue;
        };
        let length = open.len() + name.len() + close.len();
        let (whole, after) = tag.split_at(length);
        match name.trim() {
            "generation" => out.extend([open, " with ", close]),
            "endgeneration" => out.extend([open, " endwith ", close]),
            name => {
                out.push_str(whole);
                if name == "raw" && !close.starts_with('-') && after.starts_with('\n') {
                    out.push('\n');
                }
            }
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// A tag that is only a word: its opening with sign, the word with white space, its close with sign.
fn simple_tag(tag: &str) -> Option<(&str, &str, &str)> {
    let inner = tag.strip_prefix("{%")?;
    let signed = inner.starts_with(['-', '+']);
    let (open, inner) = tag.split_at_checked(if signed { 3 } else { 2 })?;
    let end = inner.find(|c: char| !c.is_ascii_alphabetic() && !c.is_ascii_whitespace())?;
    let (name, close) = inner.split_at(end);
    let close = ["-%}", "+%}", "%}"]
        .into_iter()
        .find(|sign| close.starts_with(sign))?;
    (!name.trim().is_empty()).then_some((open, name, close))
}
