//! Reads typed fields out of a parsed file and gathers what is wrong with them.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::FieldError;

/// Longest value quoted in an error, in characters.
const QUOTED_MAX: usize = 60;

/// Errors so far.
#[derive(Debug, Default)]
pub(super) struct Errors(pub(super) Vec<FieldError>);

impl Errors {
    pub(super) fn add(&mut self, path: &str, message: impl Into<String>) {
        self.0.push(FieldError {
            path: path.to_owned(),
            message: message.into(),
        });
    }

    /// Is there one about a field, or something in it?
    pub(super) fn is_about(&self, path: &str) -> bool {
        self.0.iter().any(|error| error.path.starts_with(path))
    }

    /// A value that is there but wrong.
    pub(super) fn wrong(&mut self, path: &str, value: &Value, expected: &str) {
        self.add(path, format!("{}: expected {expected}", quoted(value)));
    }
}

fn quoted(value: &Value) -> String {
    let text = shown(&value.to_string());
    if text.chars().count() <= QUOTED_MAX {
        return text;
    }
    let head: String = text.chars().take(QUOTED_MAX).collect();
    format!("{head}…")
}

/// With what could hide or turn text around on a terminal told by its number.
fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '"' | '\'' | '\\' => shown.push(char),
            _ => shown.extend(char.escape_debug()),
        }
    }
    shown
}

/// The fields of one mapping.
pub(super) struct Fields<'a> {
    map: &'a Map<String, Value>,
    path: String,
}

impl<'a> Fields<'a> {
    /// Opens a mapping and refuses fields that are not among `known`.
    pub(super) fn open(
        value: &'a Value,
        path: &str,
        known: &[&str],
        errors: &mut Errors,
    ) -> Option<Self> {
        let Value::Object(map) = value else {
            errors.wrong(path, value, "a mapping");
            return None;
        };
        let fields = Self {
            map,
            path: path.to_owned(),
        };
        for name in map.keys().filter(|name| !known.contains(&name.as_str())) {
            let hint = match nearest(name, known) {
                Some(near) => format!("unknown field; did you mean `{near}`?"),
                None => format!("unknown field; known are {}", known.join(", ")),
            };
            errors.add(&fields.at(&shown(name)), hint);
        }
        Some(fields)
    }

    /// The path of a field.
    pub(super) fn at(&self, name: &str) -> String {
        if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        }
    }

    /// The raw value; `None` where absent or null.
    pub(super) fn raw(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// A field that must be there.
    pub(super) fn required(
        &self,
        name: &str,
        expected: &str,
        errors: &mut Errors,
    ) -> Option<&'a Value> {
        let value = self.raw(name);
        if value.is_none() {
            errors.add(&self.at(name), format!("missing: expected {expected}"));
        }
        value
    }

    /// A string that is not empty.
    pub(super) fn text(&self, name: &str, expected: &str, errors: &mut Errors) -> Option<&'a str> {
        let value = self.raw(name)?;
        as_text(value, &self.at(name), expected, errors)
    }

    /// A string that must be there and is not empty.
    pub(super) fn required_text(
        &self,
        name: &str,
        expected: &str,
        errors: &mut Errors,
    ) -> Option<&'a str> {
        self.required(name, expected, errors)?;
        self.text(name, expected, errors)
    }

    /// A string that `read` understands.
    pub(super) fn parsed<T>(
        &self,
        name: &str,
        expected: &str,
        errors: &mut Errors,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let text = self.text(name, expected, errors)?;
        let parsed = read(text);
        if parsed.is_none() {
            errors.wrong(&self.at(name), &Value::from(text), expected);
        }
        parsed
    }

    /// A string that `check` finds nothing wrong with; it says what.
    pub(super) fn checked(
        &self,
        name: &str,
        expected: &str,
        errors: &mut Errors,
        check: impl FnOnce(&str) -> Result<(), String>,
    ) -> Option<&'a str> {
        let text = self.text(name, expected, errors)?;
        match check(text) {
            Ok(()) => Some(text),
            Err(why) => {
                let value = quoted(&Value::from(text));
                errors.add(&self.at(name), format!("{value}: {why}"));
                None
            }
        }
    }

    /// A whole number within a range.
    pub(super) fn number(
        &self,
        name: &str,
        default: u64,
        range: RangeInclusive<u64>,
        errors: &mut Errors,
    ) -> u64 {
        let Some(value) = self.raw(name) else {
            return default;
        };
        match value.as_u64().filter(|number| range.contains(number)) {
            Some(number) => number,
            None => {
                let expected = format!("a whole number from {} to {}", range.start(), range.end());
                errors.wrong(&self.at(name), value, &expected);
                default
            }
        }
    }

    /// True or false.
    pub(super) fn flag(&self, name: &str, default: bool, errors: &mut Errors) -> bool {
        let Some(value) = self.raw(name) else {
            return default;
        };
        value.as_bool().unwrap_or_else(|| {
            errors.wrong(&self.at(name), value, "true or false");
            default
        })
    }

    /// A mapping whose values are the reader's business; empty where absent.
    pub(super) fn map(&self, name: &str, errors: &mut Errors) -> Map<String, Value> {
        match self.raw(name) {
            None => Map::new(),
            Some(Value::Object(map)) => map.clone(),
            Some(other) => {
                errors.wrong(&self.at(name), other, "a mapping");
                Map::new()
            }
        }
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(
        &self,
        name: &str,
        default: T,
        choices: &[(&str, T)],
        errors: &mut Errors,
    ) -> T {
        let Some(value) = self.raw(name) else {
            return default;
        };
        let found = value
            .as_str()
            .and_then(|text| choices.iter().find(|(word, _)| *word == text));
        match found {
            Some((_, choice)) => *choice,
            None => {
                let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
                errors.wrong(
                    &self.at(name),
                    value,
                    &format!("one of {}", words.join(", ")),
                );
                default
            }
        }
    }

    /// A list; its items with their paths.
    pub(super) fn list(
        &self,
        name: &str,
        expected: &str,
        errors: &mut Errors,
    ) -> Vec<(String, &'a Value)> {
        let path = self.at(name);
        match self.raw(name) {
            None => Vec::new(),
            Some(Value::Array(items)) => items
                .iter()
                .enumerate()
                .map(|(number, item)| (format!("{path}[{number}]"), item))
                .collect(),
            Some(other) => {
                errors.wrong(&path, other, expected);
                Vec::new()
            }
        }
    }

    /// A list of strings, none empty, none twice.
    pub(super) fn texts(&self, name: &str, expected: &str, errors: &mut Errors) -> Vec<String> {
        let texts = self.texts_in_place(name, expected, errors);
        texts.into_iter().flatten().collect()
    }

    /// The same, with nothing where an item is wrong.
    pub(super) fn texts_in_place(
        &self,
        name: &str,
        expected: &str,
        errors: &mut Errors,
    ) -> Vec<Option<String>> {
        let mut texts: Vec<Option<String>> = Vec::new();
        for (path, item) in self.list(name, expected, errors) {
            let text = as_text(item, &path, "a string", errors).map(str::to_owned);
            let is_again = text.is_some() && texts.contains(&text);
            if is_again {
                errors.add(&path, "the same again");
            }
            texts.push(text.filter(|_| !is_again));
        }
        texts
    }
}

/// A list of mappings. Where an item is none, what is read of an empty one stands for it: the others keep
/// their numbers.
pub(super) fn each<T>(
    items: &[(String, &Value)],
    errors: &mut Errors,
    read: impl Fn(&Value, &str, &mut Errors) -> Option<T>,
) -> Vec<T> {
    let nothing = Value::Object(Map::new());
    let read = |(path, item): &(String, &Value)| {
        read(item, path, errors).or_else(|| read(&nothing, path, &mut Errors::default()))
    };
    items.iter().filter_map(read).collect()
}

pub(super) fn as_text<'a>(
    value: &'a Value,
    path: &str,
    expected: &str,
    errors: &mut Errors,
) -> Option<&'a str> {
    match value.as_str() {
        Some(text) if !text.is_empty() => Some(text),
        Some(_) => {
            errors.add(path, format!("empty: expected {expected}"));
            None
        }
        None => {
            errors.wrong(path, value, expected);
            None
        }
    }
}

/// The known name that a misspelt one most likely means: at most two edits away, or one the other's
/// beginning.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let (distance, near) = known
        .iter()
        .map(|candidate| (edits(name, candidate), *candidate))
        .min()?;
    let limit = if near.len() <= 4 { 1 } else { 2 };
    (distance <= limit).then_some(near).or_else(|| {
        let shorter =
            |candidate: &&&str| candidate.starts_with(name) || name.starts_with(**candidate);
        known.iter().find(shorter).copied()
    })
}

/// Levenshtein distance, a swap of neighbours counting one.
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for (i, &x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &y) in b.iter().enumerate() {
            let up = |back: usize, column: usize| {
                rows.get((i + 1) - back)
                    .and_then(|r| r.get(column))
                    .copied()
            };
            let substituted = up(1, j).unwrap_or(usize::MAX - 1) + usize::from(x != y);
            let deleted = up(1, j + 1).unwrap_or(usize::MAX - 1) + 1;
            let inserted = row.last().copied().unwrap_or(0) + 1;
            let swapped = i > 0 && j > 0 && a.get(i - 1) == Some(&y) && b.get(j - 1) == Some(&x);
            let swap = if swapped {
                up(2, j - 1).map_or(usize::MAX, |n| n + 1)
            } else {
                usize::MAX
            };
            row.push(substituted.min(deleted).min(inserted).min(swap));
        }
        rows.push(row);
    }
    rows.last().and_then(|row| row.last()).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_as_they_are_written() {
        for (value, expected) in [
            ("pool-ä", "\"pool-ä\""),
            ("it's", "\"it's\""),
            ("a\u{202e}b\u{1b}[2J", r#""a\u{202e}b\u001b[2J""#),
        ] {
            assert_eq!(quoted(&Value::from(value)), expected);
        }
    }

    #[test]
    fn edit_distances() {
        for (a, b, distance) in [
            ("", "", 0),
            ("a", "", 1),
            ("endpont", "endpoint", 1),
            ("nmae", "name", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(edits(a, b), distance, "{a} {b}");
        }
    }
}
