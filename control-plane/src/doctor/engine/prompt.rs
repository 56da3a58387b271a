//! Is our text of a request the engine's? And are our tokenizer's tokens?

use prefix_picker_core::prompt::Api;

use super::Subject;
use crate::doctor::item::{Item, Status};
use crate::doctor::probe::{Failed, Requests, Seen};
use crate::doctor::text::{Match, PoolText};

const TOKENIZER: &str = "engine.tokenizer";
const TEMPLATE: &str = "engine.template";

pub(super) fn judge(subject: &Subject<'_>, seen: &Seen) -> Vec<Item> {
    let name = &subject.replica.name;
    let skipped = |why: &str| {
        vec![
            Item::skipped(TOKENIZER, name, why),
            Item::skipped(TEMPLATE, name, why),
        ]
    };
    let Some(text) = subject.text else {
        return skipped("the pool's model folder cannot be used");
    };
    let Some(requests) = &seen.requests else {
        return skipped("no request was sent");
    };
    let (plain, chats) = (plain(text, requests), chats(text, seen, requests));
    // Text that is right in tokens that are not ours is no fault of a template.
    let by_tokens = |found: &Match| matches!(found, Match::UnknownToken(_) | Match::OtherTokens);
    let of_chat = chats.iter().flatten().find(|found| by_tokens(found));
    let tokenizer = match (of_chat.cloned(), plain) {
        (Some(found), _) | (None, Ok(found)) => tokenizer(name, found),
        (None, Err(why)) => Item::skipped(TOKENIZER, name, why),
    };
    let template = match (tokenizer.status, chats) {
        (Status::Fail, _) => Item::skipped(TEMPLATE, name, "the tokenizer comes first"),
        (_, Err(why)) => Item::skipped(TEMPLATE, name, why),
        (_, Ok(found)) => template(name, found, requests),
    };
    vec![tokenizer, template]
}

/// A plain text's tokens, or why the engine does not tell them.
fn plain(text: &PoolText, requests: &Requests) -> Result<Match, String> {
    match &requests.plain {
        Some((plain, Ok(ids))) => Ok(text.compare_plain(plain, ids)),
        Some((_, Err(Failed::Status(403 | 404 | 405 | 501, _)))) => {
            Err("the engine has no /tokenize".to_owned())
        }
        Some((_, Err(why))) => Err(format!("/tokenize: {why}")),
        None => Err("no request was sent".to_owned()),
    }
}

/// All prompts that the engine told its tokens of.
fn chats(text: &PoolText, seen: &Seen, requests: &Requests) -> Result<Vec<Match>, String> {
    let version = seen.version.as_deref();
    let compare =
        |api, body, ids: &[u32]| text.compare(version, api, body, requests.at_unix_s, ids);
    let mut found = Vec::new();
    if let (Some(api), Some((ids, _)), Some(body)) =
        (requests.api, &requests.prompt, &requests.body)
    {
        found.push(compare(api, body, ids));
    }
    for (body, ids) in &requests.rendered {
        match ids {
            Ok(ids) => found.push(compare(Api::ChatCompletions, body, ids)),
            // The engine refuses it, for others as well.
            Err(Failed::Status(..)) => {}
            Err(why) => return Err(format!("/render and /tokenize: {why}")),
        }
    }
    if found.is_empty() {
        return Err("the engine does not tell what it makes of a request".to_owned());
    }
    Ok(found)
}

fn tokenizer(name: &str, found: Match) -> Item {
    const FIX: &str = "let `model_dir` (or `model`) be the folder that the engines serve, and `tokenizer_mode` their --tokenizer-mode";
    let found = match found {
        Match::Same | Match::NotExact(_) => {
            return Item::ok(TOKENIZER, name, "the engine's tokens of a text are ours");
        }
        Match::UnknownToken(id) => {
            format!("the engine has token {id}, which our vocabulary lacks")
        }
        Match::OtherTokens => {
            "the engine cuts a text into other tokens than our tokenizer.json".to_owned()
        }
        Match::OtherText { at, ours, engine } => {
            format!(
                "the engine's tokens of a text mean another text to us: from byte {at} on {engine:?} in place of {ours:?}"
            )
        }
    };
    Item::fail(TOKENIZER, name, found, FIX)
}

fn template(name: &str, found: Vec<Match>, requests: &Requests) -> Item {
    const FIX: &str = "let the pool's `model_dir` have the template that the engines use, and the pool say their flags: \
        `chat_template`, `default_chat_template_kwargs`, `chat_template_content_format`, `utc_offset` (docs/operations.md)";
    let count = found.len();
    let by = requests.prompt.as_ref().map_or("/render", |(_, by)| by);
    match found.into_iter().find(|one| *one != Match::Same) {
        None => Item::ok(
            TEMPLATE,
            name,
            format!("{count} prompts are the engine's own, by {by}"),
        ),
        Some(Match::NotExact(skip)) => Item::warn(
            TEMPLATE,
            name,
            format!(
                "chats have no exact text here and go by history: {}",
                skip.explain()
            ),
            "docs/prompt-profiles.md says which models and flags are exact; `prefix-picker check` says why this one is not",
        ),
        Some(Match::OtherText { at, ours, engine }) => Item::fail(
            TEMPLATE,
            name,
            format!(
                "from byte {at} of a prompt on, the engine has {engine:?} in place of {ours:?}"
            ),
            FIX,
        ),
        Some(_) => Item::fail(
            TEMPLATE,
            name,
            "the engine cuts a prompt into other tokens",
            FIX,
        ),
    }
}
