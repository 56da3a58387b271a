//! Engines with several data-parallel ranks behind one endpoint.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use held_ports::Held;
use prefix_picker_tests::client::{Client, Reply};
use prefix_picker_tests::process::Process;
use prefix_picker_tests::stack::{Options, Places, Stack, wait};
use serde_json::{Value, json};

use crate::faults::words;

const PATH: &str = "/v1/chat/completions";
const RANK: &str = "x-data-parallel-rank";
/// A line of Envoy's access log, and one more: the rank asked for.
const UPSTREAM_LOGGED: &str = "                  upstream: \"%UPSTREAM_HOST%\"\n";
const RANK_LOGGED: &str = "                  asked_rank: \"%REQ(X-DATA-PARALLEL-RANK)%\"\n";
const ENGINES: usize = 2;
const RANKS: u16 = 2;

/// One conversation, and where it is: endpoint and rank.
struct Talk {
    number: u64,
    messages: Vec<Value>,
    home: Option<(String, u16)>,
    /// Tokens of its last prompt.
    known: u64,
}

impl Talk {
    fn new(number: u64) -> Self {
        let system = json!({"role": "system", "content": words(number + 1, 600)});
        Self {
            number,
            messages: vec![system],
            home: None,
            known: 0,
        }
    }

    fn body(&mut self, turn: u64) -> Value {
        let question = words(1_000 * (self.number + 1) + turn, 60);
        self.messages
            .push(json!({"role": "user", "content": question}));
        json!({"model": "sim", "max_tokens": 16, "messages": self.messages})
    }

    /// Notes the answer; whether the same rank of the same endpoint gave it as before.
    fn note(&mut self, reply: &Reply, upstream: String) -> Result<bool> {
        self.messages
            .push(json!({"role": "assistant", "content": reply.text}));
        self.known = reply.prompt_tokens;
        let rank = reply.engine_rank.context("the engine told no rank")?;
        let home = (upstream, rank);
        let stayed = self.home.as_ref() == Some(&home);
        self.home = Some(home);
        Ok(stayed)
    }
}

/// Engines with ranks, their ports `(HTTP, events, replay)`, and a configuration that lists each rank.
struct Engines {
    processes: Vec<Process>,
    ports: Vec<(u16, u16, u16)>,
    config: PathBuf,
    held: Vec<Held>,
}

impl Engines {
    fn start(places: &Places) -> Result<Self> {
        let name = format!("prefix-picker-e2e-{}-ranks-engines", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir)?;
        let mut engines = Self {
            processes: Vec::new(),
            ports: Vec::new(),
            config: dir.join("ranks.yaml"),
            held: Vec::new(),
        };
        for number in 0..ENGINES {
            let (first, row) = (Held::new(1)?, Held::in_a_row(2 * RANKS)?);
            let (http, events) = (first.at(0), row.at(0));
            engines.held.extend([first, row]);
            let ports = (http, events, events + RANKS);
            let process = spawn(places, &format!("engine-{number}"), ports, &dir)?;
            engines.processes.push(process);
            engines.ports.push(ports);
        }
        std::fs::write(&engines.config, engines.yaml())?;
        Ok(engines)
    }

    fn yaml(&self) -> String {
        let mut text = "listen: 127.0.0.1:9400\ntokens: [change-me-gateway-token]\ndata_dir: unused\n\
            pools:\n- name: demo\n  model_dir: tests/engine-sim/model\n  models: [sim]\n  clusters: [pool]\n  \
            replicas:\n"
            .to_owned();
        for (http, events, replay) in &self.ports {
            for rank in 0..RANKS {
                let (events, replay) = (events + rank, replay + rank);
                text.push_str(&format!(
                    "  - {{endpoint: 127.0.0.1:{http}, data_parallel_rank: {rank}, \
                     events: tcp://127.0.0.1:{events}, replay: tcp://127.0.0.1:{replay}}}\n"
                ));
            }
        }
        text
    }
}

fn spawn(
    places: &Places,
    name: &str,
    (http, events, replay): (u16, u16, u16),
    dir: &Path,
) -> Result<Process> {
    let mut command = Command::new(places.bin.join("engine-sim"));
    command.current_dir(&places.root);
    command.args(["--listen", &format!("127.0.0.1:{http}")]);
    command.args(["--events", &format!("tcp://*:{events}")]);
    command.args(["--replay", &format!("tcp://*:{replay}")]);
    command.args(["--data-parallel-size", &RANKS.to_string(), "--speed", "20"]);
    // Room for all conversations, wherever they are.
    command.args(["--blocks", "16384"]);
    Process::start(name, command, dir)
}

/// Each rank is a replica: conversations stay at their endpoint and rank, whatever rank the client names;
/// of an engine that is gone the other one is asked for the same rank.
pub(crate) async fn ranks(places: &Places, short: bool) -> Result<()> {
    let mut engines = Engines::start(places)?;
    let options = Options {
        external_engines: engines.ports.clone(),
        envoy_edits: vec![(
            UPSTREAM_LOGGED.to_owned(),
            format!("{UPSTREAM_LOGGED}{RANK_LOGGED}"),
        )],
        control_plane_file: Some(engines.config.clone()),
        ..Options::default()
    };
    let mut stack = Stack::start("ranks", places, options).await?;
    let client = stack.client()?;
    all_ranks_followed(&stack).await?;
    let mut talks: Vec<Talk> = (0..if short { 24 } else { 48 }).map(Talk::new).collect();
    let (mut stayed, mut turns, mut found, mut all) = (0, 0, 0, 0);
    for turn in 0..3 {
        for talk in &mut talks {
            let id = format!("ranks-{}-{turn}", talk.number);
            // From the second turn on by the wrong rank, or one that is not there, if it were obeyed.
            let home = talk.home.as_ref().map_or(0, |home| home.1);
            let forged = if talk.number.is_multiple_of(2) {
                1 - home
            } else {
                7
            };
            let body = talk.body(turn);
            let forged = forged.to_string();
            let reply = client.post(PATH, &body, &id, &[(RANK, &forged)]).await?;
            ensure!(reply.status == 200, "{id}: {} {}", reply.status, reply.body);
            let entry = stack.log.wait(&id).await?;
            ensure!(
                reply.engine_rank.map(u64::from) == entry.asked_rank,
                "{id}: not the rank asked for"
            );
            let known = talk.known;
            let same = talk.note(&reply, entry.upstream.unwrap_or_default())?;
            if turn > 0 {
                (turns, stayed) = (turns + 1, stayed + u64::from(same));
                found += reply.cached_tokens.unwrap_or(0).min(known);
                all += known;
                ensure!(
                    entry.predicted_tokens > Some(0),
                    "{id}: {:?}, not by its events",
                    entry.reason
                );
            }
        }
        // What was sent a moment ago is forgotten: from here on events tell.
        tokio::time::sleep(Duration::from_millis(2_000)).await;
    }
    let used: BTreeSet<_> = talks.iter().filter_map(|t| t.home.clone()).collect();
    println!(
        "  {stayed} of {turns} follow-ups at the same endpoint and rank; {found} of {all} tokens cached; {} ranks",
        used.len()
    );
    ensure!(used.len() == ENGINES * usize::from(RANKS), "{used:?}");
    ensure!(stayed * 100 >= turns * 95, "{stayed} of {turns}");
    ensure!(found * 100 >= all * 90, "{found} of {all}");
    // Not for a prompt either: an engine would refuse a rank that it does not have.
    let (status, body) = client.get_with("/v1/models", &[(RANK, "7")]).await?;
    ensure!(status == 200, "/v1/models: {status} {body}");
    no_rank_hides(&stack).await?;
    one_engine_gone(&mut stack, &mut engines, &client, &mut talks).await
}

/// A value that is empty or no text does not hide another of the same name.
async fn no_rank_hides(stack: &Stack) -> Result<()> {
    for (n, first) in [&b":  \xff"[..], b";"].into_iter().enumerate() {
        let id = format!("ranks-hidden-{n}");
        let mut odd = OsString::from(RANK);
        odd.push(OsStr::from_bytes(first));
        let mut curl = Command::new("curl");
        curl.args(["-s", "--noproxy", "*", "--max-time", "20", "-H"]);
        curl.arg(odd).args(["-H", &format!("{RANK}: 1")]);
        curl.args(["-H", &format!("x-request-id: {id}")]);
        curl.arg(format!("http://127.0.0.1:{}/v1/models", stack.ports.envoy));
        ensure!(curl.output().context("curl")?.status.success(), "{id}");
        let file = stack.dir.join("envoy.log");
        let logged = || {
            let text = std::fs::read(&file).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let line = text.lines().find(|line| line.contains(&id));
            line.map(str::to_owned)
        };
        let patience = Duration::from_secs(5);
        wait("the log", patience, async || logged().is_some()).await?;
        let logged = logged().context("no line")?;
        let line: Value = serde_json::from_str(&logged)?;
        ensure!(line["asked_rank"].is_null(), "{id}: {logged}");
    }
    Ok(())
}

/// The control plane has all ranks' events.
async fn all_ranks_followed(stack: &Stack) -> Result<()> {
    let start = Instant::now();
    loop {
        let text = stack.control_plane_metrics().await?;
        let synced = text.lines().filter(|l| {
            l.starts_with("prefix_picker_replica_synced{") && l.contains("#") && l.ends_with(" 1")
        });
        if synced.count() == ENGINES * usize::from(RANKS) {
            return Ok(());
        }
        ensure!(
            start.elapsed() < Duration::from_secs(15),
            "not all ranks are followed:\n{text}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The first engine dies while nothing runs; until that is known requests are tried there first.
async fn one_engine_gone(
    stack: &mut Stack,
    engines: &mut Engines,
    client: &Client,
    talks: &mut [Talk],
) -> Result<()> {
    let (gone, other) = (stack.endpoint(0), stack.endpoint(1));
    engines.processes.first_mut().context("no engine")?.kill();
    let mut retried = 0;
    // Its own first: it is soon known to be down.
    talks.sort_by_key(|talk| talk.home.as_ref().is_none_or(|(at, _)| *at != gone));
    for talk in talks {
        let id = format!("ranks-gone-{}", talk.number);
        let body = talk.body(9);
        let reply = client.post(PATH, &body, &id, &[]).await?;
        ensure!(reply.status == 200, "{id}: {} {}", reply.status, reply.body);
        let entry = stack.log.wait(&id).await?;
        ensure!(
            entry.upstream.as_deref() == Some(other.as_str()),
            "{id}: served by {:?}",
            entry.upstream
        );
        let named = entry.endpoint.unwrap_or_default();
        if named.starts_with(&gone) {
            ensure!(named == format!("{gone},{other}"), "{id}: {named}");
            ensure!(
                entry.asked_rank.is_some() && reply.engine_rank.map(u64::from) == entry.asked_rank,
                "{id}: rank {:?} and not {:?}",
                reply.engine_rank,
                entry.asked_rank
            );
            retried += 1;
        }
    }
    println!(
        "  an engine died: {} tried again at the same rank, 0 failed",
        retried
    );
    ensure!(retried > 0, "nothing was tried at the dead engine");
    Ok(())
}
