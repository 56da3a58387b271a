//! One request with one profile.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use prefix_picker_core::prompt::{Api, Capability, Profile, Prompt, Skip, parse_request};
use serde::de::IgnoredAny;

use super::model::{self, ModelError};
use super::report::{self, Hashing};

/// Arguments that tell the request.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct Args {
    /// The request's path, like /v1/chat/completions
    #[arg(long, value_name = "PATH", requires = "request")]
    pub(super) path: Option<String>,
    /// The request's body; `-` is standard input. Prints exactly the text, no newline added, or token
    /// ids as a JSON list
    #[arg(long, value_name = "BODY.json", requires = "path")]
    pub(super) request: Option<PathBuf>,
    /// Print a JSON object instead: text or token ids, media, profile, block hashes, and why it is not
    /// exact
    #[arg(long, requires = "path")]
    json: bool,
    /// The fleet's secret for the block hashes. Default: a fixed test secret, with which hashes match
    /// no running fleet
    #[arg(long, value_name = "FILE", requires = "json")]
    secret_file: Option<PathBuf>,
    /// The LoRA adapter that the request names, for the block hashes
    #[arg(long, value_name = "NAME", requires = "json")]
    lora: Option<String>,
}

/// A secret that is none, for hashes that are only compared with each other.
const TEST_SECRET: &[u8] = b"prefix-picker render: no secret";

/// Renders and prints.
pub(super) fn run(model: &model::Args, args: &Args, now: Option<i64>) -> anyhow::Result<ExitCode> {
    let (Some(path), Some(request)) = (&args.path, &args.request) else {
        return Ok(super::refuse("give --path and --request with a model"));
    };
    let Some(api) = Api::of_path(path) else {
        let known = Api::PATHS.map(|(path, _)| path).join(", ");
        return Ok(super::refuse(&format!(
            "--path {path}: the gateway does not look into requests of this path; it does into those of {known}"
        )));
    };
    let (pool, compiled) = match model::load(model) {
        Ok(loaded) => loaded,
        Err(ModelError::Arguments(what)) => return Ok(super::refuse(&what)),
        Err(ModelError::Files(error)) => return crate::cli::usable(Err(error)),
    };
    let profile = compiled.profile();
    // Given as local time; the profile's offset is added again when it is shown.
    let now = now.map_or_else(super::time::now, |local| {
        local - i64::from(profile.utc_offset_minutes) * 60
    });
    let body = super::read(request)?;
    let parsed = parse_request(api, &body);
    let rendered = match &parsed {
        Ok(request) => compiled.render(request, now),
        Err(skip) => Err(*skip),
    };
    let rendered = rendered.map_err(|skip| {
        let why = explain(profile, api, skip, request, &body);
        let parsed = parsed.as_ref().ok();
        match parsed.and_then(|request| compiled.template_failure(request, now)) {
            Some(said) => (skip, format!("{why}: {said}")),
            None => (skip, why),
        }
    });
    if !args.json {
        return print_plain(rendered);
    }
    let hashing = Hashing {
        pool,
        secret: crate::cli::usable(secret(args.secret_file.as_deref()))?,
        is_test_secret: args.secret_file.is_none(),
        lora: args.lora.clone(),
        salt: parsed.ok().and_then(|request| request.cache_salt),
    };
    let (prompt, why) = match rendered {
        Ok(prompt) => (Some(prompt), None),
        Err(why) => (None, Some(why)),
    };
    let report = report::of(profile, api, prompt.as_ref(), why, &hashing);
    let mut text = serde_json::to_string_pretty(&report)?;
    text.push('\n');
    crate::cli::print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn print_plain(rendered: Result<Prompt, (Skip, String)>) -> anyhow::Result<ExitCode> {
    match rendered {
        Ok(Prompt::Text(prompt)) => {
            if prompt.exact_bytes < prompt.text.len() {
                eprintln!(
                    "the text is the engine's up to byte {} only, where a media item begins",
                    prompt.exact_bytes
                );
            }
            crate::cli::print(prompt.text.as_bytes())?;
        }
        Ok(Prompt::TokenIds(ids)) => crate::cli::print(serde_json::to_string(&ids)?.as_bytes())?,
        Err((skip, why)) => {
            eprintln!("prefix-picker render: no exact prompt ({skip}): {why}");
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A sentence; for a profile that is not exact, the profile's own, and for a body that is no JSON where
/// it is not.
fn explain(profile: &Profile, api: Api, skip: Skip, file: &Path, body: &[u8]) -> String {
    if skip == Skip::InvalidJson
        && let Err(error) = serde_json::from_slice::<IgnoredAny>(body)
    {
        return format!("{}: {error}", super::name(file));
    }
    let chat_first = [&profile.chat, &profile.completions, &profile.token_ids];
    let text_first = [&profile.completions, &profile.token_ids, &profile.chat];
    let order = match api {
        Api::Completions | Api::Embeddings | Api::Pooling => text_first,
        _ => chat_first,
    };
    let told = order.into_iter().find_map(|capability| match capability {
        Capability::PredictedOnly { why } => Some(why),
        Capability::Exact => None,
    });
    match (skip, told) {
        (Skip::PredictedOnly, Some(why)) => why.clone(),
        _ => skip.explain().to_owned(),
    }
}

fn secret(file: Option<&Path>) -> anyhow::Result<Vec<u8>> {
    match file {
        None => Ok(TEST_SECRET.to_vec()),
        Some(path) => crate::serve::read_secret(path),
    }
}
