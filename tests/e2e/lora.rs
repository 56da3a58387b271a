//! LoRA adapters, from the engines' `/v1/models` to the endpoint named.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use prefix_picker_tests::access_log::Entry;
use prefix_picker_tests::client::{Client, Reply};
use prefix_picker_tests::stack::{Options, Places, Stack, wait};
use serde_json::{Value, json};
use tokenizers::Tokenizer;

use crate::accuracy::most_tokens_in_a_block;
use crate::faults::{chat, words};

const PATH: &str = "/v1/chat/completions";
const PATIENCE: Duration = Duration::from_secs(10);
/// Many times what news takes to the filter.
const HEARD: Duration = Duration::from_secs(2);
/// The simulated engine's block.
const ENGINE_BLOCK: u64 = 16;

struct Case {
    stack: Stack,
    client: Client,
    tokenizer: Tokenizer,
    count: usize,
}

/// Requests for an adapter are matched to its own blocks, go to engines that have it, and never to
/// what an adapter of the same name left behind.
pub(crate) async fn lora(places: &Places) -> Result<()> {
    let options = Options {
        control_plane_lines: vec!["models_interval_ms: 100".to_owned()],
        ..Options::default()
    };
    let stack = Stack::start("lora", places, options).await?;
    let client = stack.client()?;
    let model = places.root.join("tests/engine-sim/model/tokenizer.json");
    let mut case = Case {
        stack,
        client,
        tokenizer: Tokenizer::from_file(model).map_err(|e| anyhow!("{e}"))?,
        count: 0,
    };
    for (engine, name) in [(0, "sql"), (1, "sql"), (2, "law")] {
        case.load(engine, name, "/adapters/1").await?;
    }
    case.until_adapters([1, 1, 1]).await?;
    case.namespaces_are_apart().await?;
    case.no_engine_without_the_adapter_is_asked("sql", &[0, 1])
        .await?;
    case.another_path_is_another_adapter().await?;
    case.unload(0, "sql").await?;
    case.until_adapters([0, 1, 1]).await?;
    case.no_engine_without_the_adapter_is_asked("sql", &[1])
        .await
}

impl Case {
    async fn ask(&mut self, model: &str, system: &str) -> Result<(Reply, Entry)> {
        self.count += 1;
        let id = format!("lora-{}", self.count);
        let mut body = chat(system, "Hello.");
        body["model"] = Value::from(model);
        let reply = self.client.post(PATH, &body, &id, &[]).await?;
        ensure!(
            reply.status == 200,
            "{id} for {model}: {} {}",
            reply.status,
            reply.body
        );
        Ok((reply, self.stack.log.wait(&id).await?))
    }

    /// Asks, and wants what was predicted to be what the engine had.
    async fn ask_exactly(&mut self, model: &str, system: &str) -> Result<(u64, Entry)> {
        self.stack.settle().await?;
        let (reply, entry) = self.ask(model, system).await?;
        let cached = reply.cached_tokens.context("no cached_tokens")?;
        let predicted = entry.predicted_tokens.context("nothing predicted")?;
        let tolerance = most_tokens_in_a_block(system, &self.tokenizer);
        let tolerance = tolerance.next_multiple_of(ENGINE_BLOCK);
        ensure!(
            predicted.abs_diff(cached) <= tolerance && (predicted == 0 || cached > 0),
            "{model}: predicted {predicted}, cached {cached}"
        );
        Ok((cached, entry))
    }

    async fn namespaces_are_apart(&mut self) -> Result<()> {
        let system = words(11, 400);
        let mut homes = Vec::new();
        // The same prompt: what one has computed is nothing to the others.
        for model in ["sim", "sql", "law"] {
            let (cached, entry) = self.ask_exactly(model, &system).await?;
            ensure!(cached == 0, "{model}: {cached} tokens of another's blocks");
            homes.push(entry.upstream);
        }
        for (model, home) in ["sim", "sql", "law"].into_iter().zip(homes) {
            let (cached, entry) = self.ask_exactly(model, &system).await?;
            ensure!(cached > 256, "{model}: only {cached} tokens cached");
            ensure!(
                entry.upstream == home,
                "{model}: {:?} after {home:?}",
                entry.upstream
            );
        }
        println!("  base and two adapters: each matched to its own blocks only");
        Ok(())
    }

    async fn no_engine_without_the_adapter_is_asked(
        &mut self,
        name: &str,
        engines: &[usize],
    ) -> Result<()> {
        let allowed: Vec<String> = engines.iter().map(|i| self.stack.endpoint(*i)).collect();
        for i in 0..40 {
            let (_, entry) = self.ask(name, &words(500 + i, 60)).await?;
            let named = entry.endpoint.unwrap_or_default();
            ensure!(!named.is_empty(), "nothing named: {:?}", entry.reason);
            for endpoint in named.split(',').map(str::trim) {
                ensure!(
                    allowed.iter().any(|a| a == endpoint),
                    "{endpoint} does not have {name}"
                );
            }
        }
        println!("  40 requests for {name}: only engines {engines:?} named, none failed");
        Ok(())
    }

    async fn another_path_is_another_adapter(&mut self) -> Result<()> {
        let system = words(12, 400);
        self.ask_exactly("sql", &system).await?;
        let (cached, _) = self.ask_exactly("sql", &system).await?;
        ensure!(cached > 256, "only {cached} tokens cached");
        for engine in [0, 1] {
            self.load(engine, "sql", "/adapters/2").await?;
        }
        let this = &*self;
        wait("the old adapter's blocks to go", PATIENCE, async || {
            this.dropped_blocks().await.is_ok_and(|n| n > 0)
        })
        .await?;
        // Each engine is asked by itself.
        tokio::time::sleep(HEARD).await;
        let (cached, entry) = self.ask_exactly("sql", &system).await?;
        ensure!(
            (cached, entry.predicted_tokens) == (0, Some(0)),
            "of the old adapter: cached {cached}, predicted {:?}",
            entry.predicted_tokens
        );
        // And the new one's are matched.
        let (cached, _) = self.ask_exactly("sql", &system).await?;
        ensure!(cached > 256, "only {cached} tokens cached");
        println!("  another path: nothing of the old adapter's was claimed");
        Ok(())
    }

    async fn load(&self, engine: usize, name: &str, path: &str) -> Result<()> {
        let body = json!({"lora_name": name, "lora_path": path, "load_inplace": true});
        self.tell(engine, "/v1/load_lora_adapter", &body).await
    }

    async fn unload(&self, engine: usize, name: &str) -> Result<()> {
        let body = json!({"lora_name": name});
        self.tell(engine, "/v1/unload_lora_adapter", &body).await
    }

    async fn tell(&self, engine: usize, path: &str, body: &Value) -> Result<()> {
        let client = self.stack.engine_client(engine)?;
        let reply = client.post(path, body, "lora-load", &[]).await?;
        ensure!(reply.status == 200, "{path}: {}", reply.body);
        Ok(())
    }

    /// Waits until the control plane has heard of so many adapters on each engine, and the filter
    /// of that.
    async fn until_adapters(&self, wanted: [u64; 3]) -> Result<()> {
        wait("the adapters to be known", PATIENCE, async || {
            let text = self.stack.control_plane_metrics().await;
            text.is_ok_and(|text| {
                let known = (1..=3).map(|i| {
                    let name = format!("replica=\"engine-{i}\"");
                    let line = text.lines().find(|l| {
                        l.starts_with("prefix_picker_replica_adapters{") && l.contains(&name)
                    });
                    line.and_then(|l| l.rsplit(' ').next()?.parse::<u64>().ok())
                });
                known.eq(wanted.into_iter().map(Some))
            })
        })
        .await?;
        // A poll waits for just this.
        tokio::time::sleep(HEARD).await;
        Ok(())
    }

    async fn dropped_blocks(&self) -> Result<u64> {
        let text = self.stack.control_plane_metrics().await?;
        let lines = text
            .lines()
            .filter(|l| l.starts_with("prefix_picker_adapter_dropped_blocks_total{"));
        Ok(lines
            .filter_map(|l| l.rsplit(' ').next()?.parse::<u64>().ok())
            .sum())
    }
}
