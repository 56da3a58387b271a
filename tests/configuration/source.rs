//! A struct's documented fields, out of its source.

use anyhow::{Context, Result, ensure};

/// One documented field, or several that are documented together.
#[derive(Debug)]
pub(crate) struct Field {
    /// As the configuration has them.
    pub(crate) names: Vec<String>,
    /// What "Default ..." says, or "required".
    pub(crate) default: String,
    /// The rest.
    pub(crate) meaning: String,
}

/// The fields of a struct. Their documentation begins with their names as the configuration has them, in
/// backquotes, and a colon.
pub(crate) fn fields(source: &str, name: &str) -> Result<Vec<Field>> {
    let file = syn::parse_file(source)?;
    let found = file.items.iter().find_map(|item| match item {
        syn::Item::Struct(item) if item.ident == name => Some(item),
        _ => None,
    });
    let found = found.context("no such struct")?;
    let mut all = Vec::new();
    for field in &found.fields {
        let text = doc(&field.attrs);
        if text.starts_with('`') {
            all.push(read(&text)?);
        } else {
            // A struct of further fields, which have a section of their own.
            let ident = field.ident.as_ref().map(ToString::to_string);
            let further =
                matches!(&field.ty, syn::Type::Path(kind) if kind.path.is_ident("EngineFlags"));
            ensure!(further, "{ident:?} has no documented name: {text:?}");
        }
    }
    Ok(all)
}

fn doc(attributes: &[syn::Attribute]) -> String {
    let lines = attributes
        .iter()
        .filter_map(|attribute| match &attribute.meta {
            syn::Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
                syn::Expr::Lit(syn::ExprLit {
                    lit: syn::Lit::Str(text),
                    ..
                }) => Some(text.value().trim().to_owned()),
                _ => None,
            },
            _ => None,
        });
    lines.collect::<Vec<_>>().join(" ")
}

fn read(text: &str) -> Result<Field> {
    let (names, rest) = text.split_once("`: ").context(text.to_owned())?;
    let names = format!("{names}`");
    let names = names.split('`').skip(1).step_by(2).map(str::to_owned);
    let mut field = Field {
        names: names.collect(),
        default: String::new(),
        meaning: String::new(),
    };
    let mut meaning = Vec::new();
    for sentence in sentences(rest) {
        let default = sentence
            .strip_prefix("Default")
            .map(|rest| rest.trim_start_matches(':').trim());
        match default {
            Some(default) => field.default = default.trim_end_matches('.').to_owned(),
            None => meaning.push(sentence),
        }
    }
    let needed = |sentence: &String| {
        sentence.starts_with("Required") || sentence.eq_ignore_ascii_case("at least one.")
    };
    if field.default.is_empty() && meaning.iter().any(needed) {
        "required".clone_into(&mut field.default);
    }
    meaning.retain(|sentence| sentence != "Required.");
    field.meaning = meaning.join(" ");
    Ok(field)
}

/// Cuts at ". ", but not within backquotes.
fn sentences(text: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut code = false;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        code ^= letter == '`';
        let Some(last) = all.last_mut() else { break };
        last.push(letter);
        if letter == '.' && !code && letters.peek() == Some(&' ') {
            letters.next();
            all.push(String::new());
        }
    }
    all
}
