//! No control plane: replicas from the filter's own configuration.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use prefix_picker_tests::client::Client;
use prefix_picker_tests::stack::{Options, Places, Stack};
use serde_json::{Value, json};

use crate::faults::words;

const PATH: &str = "/v1/chat/completions";

/// One client's conversation.
struct Talk {
    number: u64,
    messages: Vec<Value>,
    /// Who served the last turn, and how many tokens its prompt had.
    last: Option<(String, u64)>,
}

impl Talk {
    fn new(number: u64) -> Self {
        // One in three shares its system prompt with others.
        let shared = number.is_multiple_of(3);
        let seed = if shared { 1 } else { 1 + number };
        let system = json!({"role": "system", "content": words(seed, 600)});
        Self {
            number,
            messages: vec![system],
            last: None,
        }
    }

    /// Asks the next question; whether the same engine answered as before, and the tokens it found
    /// cached of those that it had.
    async fn turn(mut self, client: Client, turn: u64) -> Result<(Self, String, u64, u64)> {
        let question = words(1_000 * self.number + turn, 150);
        self.messages
            .push(json!({"role": "user", "content": question}));
        let id = format!("talk-{}-{turn}", self.number);
        let body = json!({"model": "sim", "max_tokens": 16, "messages": self.messages});
        let reply = client.post(PATH, &body, &id, &[]).await?;
        ensure!(reply.status == 200, "{id}: {} {}", reply.status, reply.body);
        self.messages
            .push(json!({"role": "assistant", "content": reply.text}));
        let known = self.last.as_ref().map_or(0, |last| last.1);
        let cached = reply.cached_tokens.unwrap_or(0);
        let prompt = reply.prompt_tokens;
        self.last = Some((String::new(), prompt));
        Ok((self, id, cached, known))
    }
}

/// All conversations' next turns, at once. Where each was served before and now, and tokens found and
/// known.
async fn round(
    stack: &mut Stack,
    talks: Vec<Talk>,
    turn: u64,
) -> Result<(Vec<Talk>, Vec<(Option<String>, String)>, u64, u64)> {
    let client = stack.client()?;
    let before: Vec<Option<String>> = talks
        .iter()
        .map(|t| t.last.as_ref().map(|l| l.0.clone()))
        .collect();
    let sent = talks.into_iter().map(|talk| {
        let client = client.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(15 * talk.number)).await;
            talk.turn(client, turn).await
        })
    });
    let (mut talks, mut moves, mut found, mut all) = (Vec::new(), Vec::new(), 0, 0);
    for (request, before) in sent.collect::<Vec<_>>().into_iter().zip(before) {
        let (mut talk, id, cached, known) = request.await??;
        let entry = stack.log.wait(&id).await?;
        let upstream = entry.upstream.context("no upstream")?;
        if let Some(last) = &mut talk.last {
            last.0.clone_from(&upstream);
        }
        moves.push((before, upstream));
        found += cached.min(known);
        all += known;
        talks.push(talk);
    }
    Ok((talks, moves, found, all))
}

/// Conversations go on where they began, over both workers, all engines share them, and an engine that
/// dies costs no request.
pub(crate) async fn standalone(places: &Places, short: bool) -> Result<()> {
    let options = Options {
        no_control_plane: true,
        // As fast as a real engine, so that there is load to balance.
        engine_args: vec!["--speed".to_owned(), "1".to_owned()],
        envoy_file: Some("envoy/standalone.yaml".into()),
        ..Options::default()
    };
    let mut stack = Stack::start("standalone", places, options).await?;
    let mut talks: Vec<Talk> = (0..if short { 18 } else { 48 }).map(Talk::new).collect();
    let (mut stayed, mut turns, mut found, mut all) = (0, 0, 0, 0);
    let mut used = BTreeSet::new();
    for turn in 0..if short { 5 } else { 10 } {
        let (next, moves, cached, known) = round(&mut stack, talks, turn).await?;
        talks = next;
        for (before, now) in moves {
            let Some(before) = before else {
                used.insert(now);
                continue;
            };
            turns += 1;
            stayed += u64::from(before == now);
        }
        (found, all) = (found + cached, all + known);
    }
    println!(
        "  {stayed} of {turns} follow-ups where the last turn was; {found} of {all} tokens of it cached; {} engines",
        used.len()
    );
    ensure!(used.len() == 3, "{used:?}");
    ensure!(stayed * 100 >= turns * 95, "{stayed} of {turns}");
    ensure!(found * 100 >= all * 90, "{found} of {all}");
    // One dies; nobody says so but its closed port.
    if let Some(engine) = stack.engines.first_mut() {
        engine.kill();
    }
    let gone = stack.endpoint(0);
    let mut there = 0;
    for turn in 100..103 {
        let (next, moves, ..) = round(&mut stack, talks, turn).await?;
        talks = next;
        there = moves.iter().filter(|(_, now)| *now == gone).count();
    }
    ensure!(there == 0, "served by a dead engine");
    let ejections = stack.filter_metric("ejections_total").await?;
    let retried = stack.filter_metric("retried_total").await?;
    println!("  an engine died: {retried} requests tried again, {ejections} ejections, 0 failed");
    ensure!(ejections >= 1, "nobody was ejected");
    Ok(())
}
