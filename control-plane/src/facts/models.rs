//! What `/v1/models` lists (vLLM 0.32: `entrypoints/openai/models/serving.py`; SGLang's is alike).
//!
//! A card with a parent is a LoRA adapter; its `root` is the path it was loaded from. One that was
//! loaded in place, from the same path, cannot be told from the one before.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Adapters of one replica that are heeded, by name.
pub const ADAPTERS_MAX: usize = 512;
/// Longest name of an adapter that is heeded, in bytes: it goes to every gateway.
pub const NAME_BYTES_MAX: usize = 256;
/// Longest path that is kept.
const PATH_CHARS_MAX: usize = 1024;
/// Base models looked at: names of one and the same.
const BASES_MAX: usize = 64;
/// Base models that are told of.
const SERVED_MAX: usize = 4;

#[derive(Deserialize)]
struct List {
    data: Vec<Card>,
}

#[derive(Deserialize)]
struct Card {
    id: String,
    #[serde(default)]
    root: Option<String>,
    #[serde(default)]
    parent: Option<String>,
    #[serde(default)]
    max_model_len: Option<u64>,
}

/// A replica's models.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Models {
    /// Names of the base model, each with its longest context in tokens.
    pub bases: Vec<(String, Option<u64>)>,
    /// Adapters: name and path.
    pub adapters: BTreeMap<String, String>,
    /// Adapters left out: too many, or a name too long.
    pub left_out: usize,
}

impl Models {
    /// Reads an answer. `None` if it is not one.
    #[must_use]
    pub fn parse(json: &[u8]) -> Option<Self> {
        let list: List = serde_json::from_slice(json).ok()?;
        let mut models = Self::default();
        for card in list.data {
            if card.parent.is_none() {
                if models.bases.len() < BASES_MAX {
                    models.bases.push((card.id, card.max_model_len));
                }
                continue;
            }
            let fits = !card.id.is_empty() && card.id.len() <= NAME_BYTES_MAX;
            if fits && models.adapters.len() < ADAPTERS_MAX {
                let path = card.root.unwrap_or_default();
                let path = path.chars().take(PATH_CHARS_MAX).collect();
                models.adapters.insert(card.id, path);
            } else {
                models.left_out += 1;
            }
        }
        Some(models)
    }

    /// The longest context that all of the base's names have.
    #[must_use]
    pub fn max_model_len(&self) -> Option<u64> {
        self.bases.iter().filter_map(|(_, length)| *length).min()
    }

    /// What an operator should know, `configured` being the pool's model names.
    #[must_use]
    pub fn complaints(&self, configured: &[String]) -> Vec<String> {
        let mut lines = Vec::new();
        for (name, _) in &self.bases {
            if !configured.contains(name) {
                lines.push(format!(
                    "the engine serves {name:?}, which is not among the pool's models: requests for it would be unknown"
                ));
            }
        }
        for name in self.lacking(configured) {
            lines.push(format!(
                "the engine does not serve {name:?}, which is among the pool's models: it answers 404"
            ));
        }
        if self.left_out > 0 {
            lines.push(format!(
                "{} of the engine's adapters are left out: more than {ADAPTERS_MAX}, or names longer than {NAME_BYTES_MAX} bytes",
                self.left_out
            ));
        }
        lines
    }

    /// Its names for the base model, a few of them.
    #[must_use]
    pub fn served(&self) -> String {
        let names = self.bases.iter().take(SERVED_MAX);
        let names: Vec<String> = names
            .map(|(name, _)| name.chars().take(NAME_BYTES_MAX).collect())
            .collect();
        names.join(", ")
    }

    /// Which of the pool's models it does not serve. None where it tells no models at all.
    fn lacking<'a>(&self, configured: &'a [String]) -> impl Iterator<Item = &'a String> {
        let served = |name: &String| {
            self.bases.is_empty()
                || self.adapters.contains_key(name)
                || self.bases.iter().any(|(id, _)| id == name)
        };
        configured.iter().filter(move |name| !served(name))
    }

    /// Would it answer 404 to a request for one of the pool's models?
    #[must_use]
    pub fn lacks_any_of(&self, configured: &[String]) -> bool {
        self.lacking(configured).next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As vLLM 0.32 answers (permissions cut).
    const ANSWER: &str = r#"{"object":"list","data":[
        {"id":"m","object":"model","created":1,"owned_by":"vllm","root":"/models/m","parent":null,"max_model_len":8192,"permission":[]},
        {"id":"alias","object":"model","created":1,"owned_by":"vllm","root":"/models/m","parent":null,"max_model_len":8192,"permission":[]},
        {"id":"sql","object":"model","created":1,"owned_by":"vllm","root":"/adapters/sql","parent":"m","max_model_len":null,"permission":[]}]}"#;

    #[test]
    fn cards_with_a_parent_are_adapters() {
        let models = Models::parse(ANSWER.as_bytes()).unwrap();
        assert_eq!(models.max_model_len(), Some(8192));
        assert_eq!(models.bases.len(), 2);
        let adapters = BTreeMap::from([("sql".to_owned(), "/adapters/sql".to_owned())]);
        assert_eq!(models.adapters, adapters);
        let complaints = models.complaints(&["m".into(), "x".into()]);
        assert_eq!(complaints.len(), 2, "{complaints:?}");
        assert!(complaints[0].contains("\"alias\"") && complaints[1].contains("\"x\""));
        assert!(models.complaints(&["m".into(), "alias".into()]).is_empty());
    }

    #[test]
    fn numbers_and_names_are_bounded() {
        let card = |id: String| serde_json::json!({"id": id, "root": "p", "parent": "m"});
        let mut data: Vec<_> = (0..ADAPTERS_MAX + 3).map(|n| card(n.to_string())).collect();
        data.insert(0, card("x".repeat(NAME_BYTES_MAX + 1)));
        let models = Models::parse(serde_json::json!({"data": data}).to_string().as_bytes());
        let models = models.unwrap();
        assert_eq!((models.adapters.len(), models.left_out), (ADAPTERS_MAX, 4));
        for bad in ["", "[]", "{}", r#"{"data":[{"id":1}]}"#, r#"{"data":null}"#] {
            assert_eq!(Models::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
