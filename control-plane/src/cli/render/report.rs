//! `--json`: all that is known of a request's prompt, as one object of a versioned form.

use prefix_picker_core::blocks::{
    Family, IDS_PER_BLOCK, Namespace, PoolKey, Seed, TextChain, hash_ids, seed,
};
use prefix_picker_core::prompt::{Api, Capability, Profile, Prompt, PromptText, Skip};
use serde::Serialize;
use serde_json::Value;

/// The form's name. A field that is added keeps it; one that changes or goes does not.
const SCHEMA: &str = "prefix-picker.render/1";

/// What block hashes depend on beside the text.
pub(super) struct Hashing {
    pub(super) pool: String,
    pub(super) secret: Vec<u8>,
    pub(super) is_test_secret: bool,
    pub(super) lora: Option<String>,
    pub(super) salt: Option<String>,
}

/// The object.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    schema: &'static str,
    api: &'static str,
    /// The prompt's text; null where it is token ids or not known.
    text: Option<String>,
    /// Token ids that the client sent.
    token_ids: Option<Vec<u32>>,
    /// The text is the engine's up to this byte.
    exact_bytes: Option<usize>,
    media: Vec<Media>,
    profile: ProfileReport,
    blocks: Option<Blocks>,
    /// Why there is no exact prompt.
    why: Option<Why>,
}

#[derive(Debug, Serialize)]
struct Media {
    at: usize,
    bytes: usize,
    identifier: String,
}

#[derive(Debug, Serialize)]
struct ProfileReport {
    hash: String,
    version: u32,
    model: String,
    renderer: Value,
    chat: Ability,
    completions: Ability,
    token_ids: Ability,
}

/// What a profile can do for one kind of request.
#[derive(Debug, Serialize)]
struct Ability {
    exact: bool,
    why: Option<String>,
}

#[derive(Debug, Serialize)]
struct Blocks {
    pool: String,
    /// `test` or `file`.
    secret: &'static str,
    family: &'static str,
    lora: Option<String>,
    cache_salt: Option<String>,
    /// 16 hex digits each.
    hashes: Vec<String>,
    /// Where each block ends, in bytes of the text or in token ids.
    ends: Vec<usize>,
}

#[derive(Debug, Serialize)]
struct Why {
    /// As in metrics and the access log.
    reason: &'static str,
    text: String,
}

/// Puts it together.
pub(super) fn of(
    profile: &Profile,
    api: Api,
    prompt: Option<&Prompt>,
    why: Option<(Skip, String)>,
    hashing: &Hashing,
) -> Report {
    let text = match prompt {
        Some(Prompt::Text(text)) => Some(text),
        _ => None,
    };
    let media = text.map(|text| text.media.iter()).into_iter().flatten();
    Report {
        schema: SCHEMA,
        api: api.as_str(),
        text: text.map(|text| text.text.clone()),
        token_ids: match prompt {
            Some(Prompt::TokenIds(ids)) => Some(ids.clone()),
            _ => None,
        },
        exact_bytes: text.map(|text| text.exact_bytes),
        media: media
            .map(|item| Media {
                at: item.at,
                bytes: item.len,
                identifier: item.identifier.clone(),
            })
            .collect(),
        profile: ProfileReport {
            hash: format!("{:016x}", profile.hash()),
            version: profile.version,
            model: profile.model.clone(),
            renderer: serde_json::to_value(&profile.renderer).unwrap_or_default(),
            chat: ability(&profile.chat),
            completions: ability(&profile.completions),
            token_ids: ability(&profile.token_ids),
        },
        blocks: prompt.map(|prompt| blocks(profile, prompt, hashing)),
        why: why.map(|(skip, text)| Why {
            reason: skip.as_str(),
            text,
        }),
    }
}

fn ability(capability: &Capability) -> Ability {
    match capability {
        Capability::Exact => Ability {
            exact: true,
            why: None,
        },
        Capability::PredictedOnly { why } => Ability {
            exact: false,
            why: Some(why.clone()),
        },
    }
}

fn blocks(profile: &Profile, prompt: &Prompt, hashing: &Hashing) -> Blocks {
    let key = PoolKey::derive(&hashing.secret, &hashing.pool);
    let start = |family| -> Seed {
        let namespace = Namespace {
            family,
            profile_hash: profile.seed_hash(),
            lora: hashing.lora.as_deref(),
            salt: hashing.salt.as_deref(),
        };
        seed(&key, &namespace)
    };
    let (family, hashes, ends) = match prompt {
        Prompt::Text(text) => {
            let (hashes, ends) = text_blocks(start(Family::Text), text);
            ("text", hashes, ends)
        }
        Prompt::TokenIds(ids) => {
            let hashes = hash_ids(start(Family::TokenIds), ids, usize::MAX);
            let ends = (1..=hashes.len()).map(|n| n * IDS_PER_BLOCK).collect();
            let hashes = hashes.iter().map(|hash| format!("{:016x}", hash.0));
            ("token_ids", hashes.collect(), ends)
        }
    };
    Blocks {
        pool: hashing.pool.clone(),
        secret: if hashing.is_test_secret {
            "test"
        } else {
            "file"
        },
        family,
        lora: hashing.lora.clone(),
        cache_salt: hashing.salt.clone(),
        hashes,
        ends,
    }
}

/// The blocks before the first media item.
fn text_blocks(start: Seed, text: &PromptText) -> (Vec<String>, Vec<usize>) {
    let end = text.media.first().map_or(text.exact_bytes, |item| item.at);
    let exact = text.text.as_bytes().get(..end).unwrap_or_default();
    let (mut hashes, mut ends) = (Vec::new(), Vec::new());
    TextChain::new(start).feed(exact, |block| {
        hashes.push(format!("{:016x}", block.hash.0));
        ends.push(block.end);
    });
    (hashes, ends)
}
