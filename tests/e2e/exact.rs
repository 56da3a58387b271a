//! Real vLLM: our text against what the engine itself makes of the same body, and predictions
//! against `cached_tokens`, over bodies of every interface.
//!
//! The engine's own word is its `/render` (`POST <path>/render` gives the token ids it would
//! compute). Where an interface has none (embeddings), it is the count of prompt tokens and what its
//! KV events make findable.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use prefix_picker::profiles::{ModelFiles, load_model_dir};
use prefix_picker_core::blocks::HARD_CUT_HOLDBACK_TOKENS;
use prefix_picker_core::prompt::{Api, CompiledProfile, Prompt, Rules, Skip, parse_request};
use prefix_picker_tests::bodies::{self, Body};
use prefix_picker_tests::client::Client;
use prefix_picker_tests::stack::{Options, Places, Stack};
use serde_json::{Value, json};
use tokenizers::Tokenizer;

use crate::accuracy::{most_tokens_in_a_block, real_engines};

/// The version of `tests/vllm/install.sh`.
const VLLM: &str = "0.32.0";
/// The engine's block, `BLOCK` of `tests/vllm/serve.sh`.
const ENGINE_BLOCK: u64 = 32;
/// Tokens that one of our blocks counts less where it had to be cut inside words.
const HARD_CUT_TOKENS: u64 = HARD_CUT_HOLDBACK_TOKENS as u64;
/// What we leave out on purpose though the engine answers, and why that is right.
const LEFT_OUT: [(Skip, &str); 1] = [(
    Skip::Truncated,
    "the engine keeps the prompt's end: there is no prefix",
)];

/// Two engines that generate.
pub(crate) async fn generating(places: &Places) -> Result<()> {
    let each = std::env::var("EACH").ok().and_then(|n| n.parse().ok());
    let bodies = bodies::generate(seed(), "tiny-qwen3", each.unwrap_or(13));
    run("exact", places, "VLLM_PORTS", &bodies).await
}

/// One engine that embeds.
pub(crate) async fn embedding(places: &Places) -> Result<()> {
    let bodies = bodies::embed(seed(), "tiny-qwen3", 6);
    run("exact-embeddings", places, "VLLM_EMBED_PORTS", &bodies).await
}

fn seed() -> u64 {
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    seed.unwrap_or(3)
}

async fn run(name: &str, places: &Places, ports: &str, bodies: &[Body]) -> Result<()> {
    let options = Options {
        external_engines: real_engines(ports)?,
        control_plane_file: Some(places.root.join("tests/vllm/prefix-picker.yaml")),
        ..Options::default()
    };
    let mut stack = Stack::start(name, places, options).await?;
    let oracle = Oracle::open(
        &places.root.join(".tools/vllm/tiny-qwen3"),
        stack.engine_client(0)?,
    )?;
    let mut texts = Texts::default();
    let mut predictions = Predictions::default();
    for body in bodies {
        let accepted = texts.check(&oracle, body).await?;
        if accepted {
            predictions.check(&oracle, &mut stack, body).await?;
        }
    }
    println!("{texts}\n{predictions}");
    texts.judge().and(predictions.judge())
}

/// The engine, and what we need to know its tokens.
struct Oracle {
    engine: Client,
    ours: CompiledProfile,
    files: ModelFiles,
    tokenizer: Tokenizer,
}

/// What the engine makes of a body.
enum Engine {
    Ids(Vec<u32>),
    /// It answers 4xx: status and message.
    Refuses(String),
    /// It has no `/render` for this interface.
    Silent,
}

impl Oracle {
    fn open(model: &Path, engine: Client) -> Result<Self> {
        let mut files = load_model_dir(model)?;
        files.profile.rules = Rules::of_version(VLLM);
        let tokenizer =
            Tokenizer::from_file(model.join("tokenizer.json")).map_err(|e| anyhow!("{e}"))?;
        Ok(Self {
            engine,
            ours: CompiledProfile::compile(&files.profile)?,
            files,
            tokenizer,
        })
    }

    fn render(&self, body: &Body) -> Result<Prompt, Skip> {
        let api = Api::of_path(body.path).ok_or(Skip::Unsupported)?;
        let bytes = body.body.to_string();
        self.ours.render(&parse_request(api, bytes.as_bytes())?, 0)
    }

    /// Whether the engine has neither `/render` nor cached tokens for it.
    fn is_silent(body: &Body) -> bool {
        let api = Api::of_path(body.path);
        api.is_some_and(|api| matches!(api, Api::Embeddings | Api::Pooling))
    }

    /// Tokens that the first engine has found in its cache since its start.
    async fn hit_tokens(&self) -> Result<u64> {
        let (_, text) = self.engine.get("/metrics").await?;
        let name = "vllm:prefix_cache_hits_total{";
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        Ok(value.context("no vllm:prefix_cache_hits")? as u64)
    }

    async fn engine(&self, body: &Body) -> Result<Engine> {
        if Self::is_silent(body) {
            return Ok(Engine::Silent);
        }
        let path = format!("{}/render", body.path);
        let reply = self.engine.post(&path, &body.body, &body.name, &[]).await?;
        if reply.status != 200 {
            let error: Value = serde_json::from_str(&reply.body).unwrap_or_default();
            let message = error.pointer("/error/message").unwrap_or(&Value::Null);
            ensure!(reply.status != 403, "{path}: {message}");
            return Ok(Engine::Refuses(format!("{} {message}", reply.status)));
        }
        let rendered: Value = serde_json::from_str(&reply.body)?;
        // Completions give a list, one for each prompt; the first decides.
        let first = rendered.get(0).unwrap_or(&rendered);
        let ids = first.get("token_ids").context("no token_ids in /render")?;
        Ok(Engine::Ids(serde_json::from_value(ids.clone())?))
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let encoding = self
            .tokenizer
            .encode(text, false)
            .map_err(|e| anyhow!("{e}"))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// `None`: the same.
    fn difference(&self, ours: &Prompt, engine: &[u32]) -> Result<Option<String>> {
        let text = match ours {
            Prompt::TokenIds(ids) if ids == engine => return Ok(None),
            Prompt::TokenIds(ids) => return Ok(Some(format!("ids {ids:?} and {engine:?}"))),
            Prompt::Text(prompt) => &prompt.text,
        };
        let mut bytes = Vec::new();
        self.files.vocab.append_bytes(engine, &mut bytes)?;
        if bytes != text.as_bytes() {
            let theirs = String::from_utf8_lossy(&bytes).into_owned();
            let same = text
                .bytes()
                .zip(theirs.bytes())
                .take_while(|(a, b)| a == b)
                .count();
            let near = |text: &str| -> String {
                text.get(text.floor_char_boundary(same.saturating_sub(40))..)
                    .unwrap_or_default()
                    .chars()
                    .take(120)
                    .collect()
            };
            return Ok(Some(format!(
                "from byte {same}: ours {:?}, engine {:?}",
                near(text),
                near(&theirs)
            )));
        }
        if self.encode(text)? != engine {
            return Ok(Some("equal bytes, other tokens".to_owned()));
        }
        Ok(None)
    }
}

/// Outcomes of comparing texts, by kind of body.
#[derive(Debug, Default)]
struct Texts {
    same: BTreeMap<String, u64>,
    both_refuse: BTreeMap<String, u64>,
    only_engine_refuses: Vec<String>,
    left_out: BTreeMap<String, Vec<String>>,
    differ: Vec<String>,
}

fn kind(body: &Body) -> String {
    body.name
        .rsplit_once(' ')
        .map_or("", |(kind, _)| kind)
        .to_owned()
}

impl Texts {
    /// True: the engine takes it.
    async fn check(&mut self, oracle: &Oracle, body: &Body) -> Result<bool> {
        let ours = oracle.render(body);
        let name = &body.name;
        match (ours, oracle.engine(body).await?) {
            (Err(_), Engine::Refuses(_)) => {
                *self.both_refuse.entry(kind(body)).or_default() += 1;
                return Ok(false);
            }
            (Ok(_), Engine::Refuses(why)) => {
                self.only_engine_refuses.push(format!("{name}: {why}"));
                return Ok(false);
            }
            (Err(skip), Engine::Ids(_) | Engine::Silent) => {
                match LEFT_OUT.iter().find(|(left_out, _)| *left_out == skip) {
                    Some((_, why)) => self
                        .left_out
                        .entry(format!("{skip} ({why})"))
                        .or_default()
                        .push(name.clone()),
                    None => self.differ.push(format!("{name}: skipped, {skip}")),
                }
            }
            (Ok(ours), Engine::Ids(ids)) => match oracle.difference(&ours, &ids)? {
                None => *self.same.entry(kind(body)).or_default() += 1,
                Some(difference) => self.differ.push(format!("{name}: {difference}")),
            },
            (Ok(ours), Engine::Silent) => self.check_count(oracle, body, &ours).await?,
        }
        Ok(true)
    }

    async fn check_count(&mut self, oracle: &Oracle, body: &Body, ours: &Prompt) -> Result<()> {
        let mut alone = body.body.clone();
        // The count is over all prompts of a request.
        if let Some(first) = alone.pointer("/input/0").filter(|first| !first.is_number()) {
            alone["input"] = first.clone();
        }
        let reply = oracle
            .engine
            .post(body.path, &alone, &body.name, &[])
            .await?;
        let tokens = match ours {
            Prompt::TokenIds(ids) => ids.len(),
            Prompt::Text(prompt) => oracle.encode(&prompt.text)?.len(),
        };
        let kept = &body.body["truncate_prompt_tokens"];
        let tokens = kept
            .as_u64()
            .map_or(tokens as u64, |kept| kept.min(tokens as u64));
        if reply.status == 200 && reply.prompt_tokens == tokens {
            *self.same.entry(kind(body)).or_default() += 1;
        } else {
            self.differ.push(format!(
                "{}: {tokens} tokens, engine {} {}",
                body.name, reply.status, reply.prompt_tokens
            ));
        }
        Ok(())
    }

    fn judge(&self) -> Result<()> {
        for line in &self.differ {
            println!("  DIFFERS {line}");
        }
        ensure!(
            self.differ.is_empty(),
            "{} bodies differ",
            self.differ.len()
        );
        Ok(())
    }
}

impl std::fmt::Display for Texts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let same: u64 = self.same.values().sum();
        let refused: u64 = self.both_refuse.values().sum();
        writeln!(f, "  {same} texts equal the engine's: {:?}", self.same)?;
        writeln!(f, "  {refused} refused by both: {:?}", self.both_refuse)?;
        for line in &self.only_engine_refuses {
            writeln!(f, "  only the engine refuses: {line}")?;
        }
        for (why, names) in &self.left_out {
            writeln!(f, "  left out, {why}: {}", names.join(", "))?;
        }
        write!(f, "  {} differ", self.differ.len())
    }
}

/// Each is a request of its own to the engine; the first decides where they go.
fn several_prompts(body: &Value) -> bool {
    ["prompt", "input"].iter().any(|name| {
        let first = body.get(name).and_then(|list| list.get(0));
        first.is_some_and(|first| first.is_string() || first.is_array())
    })
}

/// Outcomes of comparing predictions.
#[derive(Debug, Default)]
struct Predictions {
    compared: u64,
    hits: u64,
    exact: u64,
    without_figure: BTreeMap<String, u64>,
    /// By the engine itself, with and without us.
    refused: Vec<String>,
    failed: Vec<String>,
    outside: Vec<String>,
}

impl Predictions {
    /// Sends the body twice through Envoy: the second time most of it is cached.
    async fn check(&mut self, oracle: &Oracle, stack: &mut Stack, body: &Body) -> Result<()> {
        let client = stack.client()?;
        if several_prompts(&body.body) {
            let why = "several prompts: the figure is for all of them";
            *self.without_figure.entry(why.to_owned()).or_default() += 1;
            return Ok(());
        }
        for round in 0..2 {
            stack.settle().await?;
            let before = oracle.hit_tokens().await?;
            let id = format!("{}-{round}", body.name.replace(' ', "-"));
            let reply = client.post(body.path, &body.body, &id, &[]).await?;
            if reply.status != 200 {
                let direct = oracle.engine.post(body.path, &body.body, &id, &[]).await?;
                let what = format!("{id}: {} {}", reply.status, reply.body);
                if direct.status == reply.status {
                    self.refused.push(what);
                } else {
                    self.failed
                        .push(format!("{what}, the engine itself {}", direct.status));
                }
                return Ok(());
            }
            // Answers of embeddings never have it; the engine's metrics do, one request at a time.
            let counted = oracle.hit_tokens().await?.saturating_sub(before);
            let silent = Oracle::is_silent(body).then_some(counted);
            let Some(cached) = reply.cached_tokens.or(silent) else {
                *self.without_figure.entry(kind(body)).or_default() += 1;
                continue;
            };
            let entry = stack.log.wait(&id).await?;
            let predicted = entry.predicted_tokens.unwrap_or(0);
            self.compared += 1;
            self.hits += u64::from(cached > 0);
            self.exact += u64::from(cached == predicted);
            let tolerance = self.tolerance(oracle, body)?;
            if predicted.abs_diff(cached) > tolerance {
                self.outside.push(format!(
                    "{id}: {}, predicted {predicted}, cached {cached}, tolerance {tolerance}",
                    entry.reason.unwrap_or_default()
                ));
            }
        }
        Ok(())
    }

    fn tolerance(&self, oracle: &Oracle, body: &Body) -> Result<u64> {
        let prompt = match oracle.render(body) {
            Ok(Prompt::Text(prompt)) => prompt.text,
            _ => return Ok(64),
        };
        let ours = most_tokens_in_a_block(&prompt, &oracle.tokenizer) + HARD_CUT_TOKENS;
        // Both figures are whole engine blocks: less than one of ours shows as up to so many.
        Ok(ours.next_multiple_of(ENGINE_BLOCK))
    }

    fn judge(&self) -> Result<()> {
        for line in self.failed.iter().chain(&self.outside) {
            println!("  {line}");
        }
        ensure!(
            self.failed.is_empty(),
            "{} requests failed",
            self.failed.len()
        );
        ensure!(
            self.outside.is_empty(),
            "{} predictions outside",
            self.outside.len()
        );
        Ok(())
    }
}

impl std::fmt::Display for Predictions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for line in &self.refused {
            writeln!(f, "  rendered, but the engine will not generate: {line}")?;
        }
        write!(
            f,
            "  {} predictions compared ({} with cached tokens), {} equal, {} off by more than a block; without a figure: {}",
            self.compared,
            self.hits,
            self.exact,
            self.outside.len(),
            json!(self.without_figure)
        )
    }
}
