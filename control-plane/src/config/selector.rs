//! A label selector of Kubernetes, as kubectl has it: does it parse? Pure.
//!
//! Requirements with commas between them, all of which must hold: `app`, `!app`, `app=vllm` (or `==`),
//! `app!=vllm`, `gpus>1`, `gpus<9`, `app in (a, b)`, `app notin (a, b)`. As in
//! `k8s.io/apimachinery/pkg/labels/selector.go`.

use super::names::{Checked, label_key, label_value};

/// Says what is wrong.
pub(super) fn check(text: &str) -> Checked {
    requirements(text)?.into_iter().try_for_each(requirement)
}

/// At commas that are in no parentheses.
fn requirements(text: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut begin, mut open) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            '(' if open => return Err("has ( within ( )".to_owned()),
            ')' if !open => return Err("has ) without (".to_owned()),
            '(' | ')' => open = c == '(',
            ',' if !open => {
                parts.push(text.get(begin..at).unwrap_or_default());
                begin = at + 1;
            }
            _ => {}
        }
    }
    if open {
        return Err("has ( without )".to_owned());
    }
    parts.push(text.get(begin..).unwrap_or_default());
    Ok(parts)
}

fn requirement(text: &str) -> Checked {
    let text = text.trim();
    if text.is_empty() {
        return Err("has nothing before, between or behind its commas".to_owned());
    }
    if let Some(key) = text.strip_prefix('!') {
        return label_key(key.trim());
    }
    if let Some((head, values)) = text.split_once('(') {
        return set(text, head.trim(), values);
    }
    let Some(at) = text.find(['=', '!', '<', '>']) else {
        return label_key(text).map_err(|error| operator(text).unwrap_or(error));
    };
    let (key, rest) = text.split_at(at);
    let operators = ["==", "!=", "=", ">", "<"];
    let found = operators
        .iter()
        .find_map(|o| Some((*o, rest.strip_prefix(o)?)));
    let Some((operator, value)) = found else {
        return Err(format!(
            "{text:?}: expected =, ==, != or `in (...)` behind {key:?}"
        ));
    };
    label_key(key.trim())?;
    let value = value.trim();
    if matches!(operator, ">" | "<") {
        let is_number = value.parse::<i64>().is_ok();
        return if is_number {
            Ok(())
        } else {
            Err(format!(
                "{value:?}: expected a whole number behind {operator}"
            ))
        };
    }
    label_value(value)
}

/// Words that stand beside each other without an operator between them.
fn operator(text: &str) -> Option<String> {
    text.contains(char::is_whitespace)
        .then(|| format!("{text:?}: expected =, !=, `in (...)` or `notin (...)` behind the label's name, and commas between requirements"))
}

/// `key in (a, b)`, from `key in` and `a, b)`.
fn set(text: &str, head: &str, values: &str) -> Checked {
    let words: Vec<&str> = head.split_whitespace().collect();
    let [key, "in" | "notin"] = words.as_slice() else {
        return Err(format!(
            "{text:?}: expected `in` or `notin` between a label's name and ("
        ));
    };
    label_key(key)?;
    let Some((values, "")) = values.rsplit_once(')') else {
        return Err(format!("{text:?}: expected a comma behind )"));
    };
    // As there: `in ()` asks for an empty value.
    values.split(',').map(str::trim).try_for_each(label_value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kubectl_takes_is_fine() {
        for text in [
            "app=vllm",
            "app==vllm",
            "app = vllm",
            "app!=vllm",
            "app",
            "!app",
            "app=",
            "app=vllm,tier!=test",
            "app.kubernetes.io/name=vllm, model in (llama, qwen) ,!canary",
            "app notin (a)",
            "app in ()",
            "gpus>1",
            "gpus < 9",
            "a_b.c-D=E_f.g-H",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn what_it_does_not_is_told() {
        let long = format!("app={}", "a".repeat(64));
        for (text, part) in [
            ("app=vllm,", "behind its commas"),
            (",app", "before"),
            ("a,,b", "between"),
            ("=vllm", "no label's name"),
            ("app=vllm tier=test", "no label's value"),
            ("app=a=b", "no label's value"),
            ("app in (a", "( without )"),
            ("app in a)", ") without ("),
            ("app in ((a))", "( within ( )"),
            ("app on (a)", "expected `in` or `notin`"),
            ("in (a)", "expected `in` or `notin`"),
            ("app in (a) b", "a comma behind )"),
            ("app vllm", "commas between requirements"),
            ("app: vllm", "commas between requirements"),
            ("-app=vllm", "no label's name"),
            ("a/b/c=d", "no label's name"),
            ("App.io/x=1", "no label's name"),
            ("app!vllm", "expected =, ==, !="),
            ("gpus>many", "a whole number"),
            ("app=-x", "at both ends"),
            (&long, "at most 63"),
        ] {
            let said = check(text).expect_err(text);
            assert!(said.contains(part), "{text}: {said}");
        }
    }
}
