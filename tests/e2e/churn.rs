//! Requests that end in every way there is: whatever happens, what the filter counts as in flight is
//! given back.
//!
//! What it counts is read where other Envoys read it: in the news that the control plane passes on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use prefix_picker_core::sync::news::PlaceWork;
use prefix_picker_tests::client::Client;
use prefix_picker_tests::stack::{Observer, Options, Places, Stack, wait};
use prefix_picker_tests::trap;
use prefix_picker_tests::workload::Random;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::faults::words;
use crate::trailers;

const PATH: &str = "/v1/chat/completions";
const ENGINES: usize = 4;
/// Clients at once, each with one request after the other.
const CLIENTS: u64 = 48;
/// The function of the filter that is made to trap: requests with trailers, which nothing else here has.
const TRAPS: &str = "proxy_on_request_trailers";

/// How a request ends, as far as its client has a say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// With its answer.
    Answer,
    /// With a refusal: the engine answers 400.
    Refused,
    /// The client leaves after a while.
    Leaves,
    /// It leaves once the answer has begun.
    LeavesInAnswer,
    /// It leaves in the middle of the body.
    LeavesInBody,
    /// As the three before, but with a reset of the connection.
    Resets,
    ResetsInAnswer,
    ResetsInBody,
}

impl End {
    fn draw(random: &mut Random) -> Self {
        match random.below(20) {
            0..10 => Self::Answer,
            10 | 11 => Self::Refused,
            12 | 13 => Self::Leaves,
            14 => Self::LeavesInAnswer,
            15 => Self::LeavesInBody,
            16 | 17 => Self::Resets,
            18 => Self::ResetsInAnswer,
            _ => Self::ResetsInBody,
        }
    }
}

/// Shared by many requests each.
fn systems() -> Vec<String> {
    (0..12).map(|n| words(n, 40)).collect()
}

fn body(random: &mut Random, end: End, systems: &[String]) -> Value {
    let system = systems.get(random.below(systems.len()));
    let user = words(random.bits(), 10);
    let max_tokens = match end {
        End::Refused => 0,
        End::Answer => 1 + random.below(8),
        _ => 60,
    };
    json!({"model": "sim", "max_tokens": max_tokens, "ignore_eos": true, "stream": random.one_in(2),
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}]})
}

/// A request whose client does not stay to the end.
async fn leave(port: u16, body: &str, end: End, after: Duration) -> Result<()> {
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nhost: churn\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let whole = [head.as_bytes(), body.as_bytes()].concat();
    let half = head.len() + body.len() / 2;
    let in_body = matches!(end, End::LeavesInBody | End::ResetsInBody);
    let bytes = whole.get(..if in_body { half } else { whole.len() });
    let mut tcp = TcpStream::connect(("127.0.0.1", port)).await?;
    tcp.write_all(bytes.context("half of it")?).await?;
    if matches!(end, End::LeavesInAnswer | End::ResetsInAnswer) {
        // Not for ever: the engine may be dead.
        let _ = tokio::time::timeout(Duration::from_secs(5), tcp.read(&mut [0; 512])).await;
    } else {
        tokio::time::sleep(after).await;
    }
    if matches!(end, End::Resets | End::ResetsInAnswer | End::ResetsInBody) {
        tcp.set_zero_linger()?;
    }
    Ok(())
}

/// What became of requests, by how they were to end and how they did.
type Ends = BTreeMap<(End, String), u64>;

/// Clients that go on until so many requests were sent.
struct Clients {
    sent: Arc<AtomicU64>,
    count: u64,
    tasks: Vec<tokio::task::JoinHandle<Result<Ends>>>,
}

impl Clients {
    fn start(stack: &Stack, count: u64) -> Result<Self> {
        let sent = Arc::new(AtomicU64::new(0));
        let (port, http) = (stack.ports.envoy, stack.client()?);
        let task = |seed| {
            let work = client(http.clone(), port, seed, Arc::clone(&sent), count);
            tokio::spawn(work)
        };
        Ok(Self {
            tasks: (0..CLIENTS).map(task).collect(),
            sent,
            count,
        })
    }

    /// Waits until so many were sent.
    async fn reach(&self, sent: u64) {
        while self.sent.load(Ordering::Relaxed) < sent {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn finish(self) -> Result<Ends> {
        let mut all = Ends::new();
        for task in self.tasks {
            for (end, count) in task.await?? {
                *all.entry(end).or_default() += count;
            }
        }
        Ok(all)
    }
}

async fn client(
    http: Client,
    port: u16,
    seed: u64,
    sent: Arc<AtomicU64>,
    count: u64,
) -> Result<Ends> {
    let mut random = Random::new(seed);
    let systems = systems();
    let mut ends = Ends::new();
    loop {
        let number = sent.fetch_add(1, Ordering::Relaxed);
        if number >= count {
            return Ok(ends);
        }
        let end = End::draw(&mut random);
        let body = body(&mut random, end, &systems);
        let became = if matches!(end, End::Answer | End::Refused) {
            match http
                .post(PATH, &body, &format!("churn-{number}"), &[])
                .await
            {
                Ok(reply) => reply.status.to_string(),
                Err(_) => "broken off".to_owned(),
            }
        } else {
            let after = Duration::from_micros(random.below(30_000) as u64);
            match leave(port, &body.to_string(), end, after).await {
                Ok(()) => "left".to_owned(),
                Err(_) => "broken off".to_owned(),
            }
        };
        *ends.entry((end, became)).or_default() += 1;
    }
}

/// Installs the filter that traps, and says where.
fn with_trap(places: &Places) -> Result<Places> {
    let name = format!("prefix-picker-e2e-{}-churn-wasm", std::process::id());
    let dir = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&dir)?;
    let file = places.wasm.file_name().context("the wasm's name")?;
    let wasm = dir.join(file);
    std::fs::write(&wasm, trap::trapping(&std::fs::read(&places.wasm)?, TRAPS)?)?;
    Ok(Places {
        wasm,
        ..places.clone()
    })
}

/// Requests that are answered, refused, given up and reset at any moment; engines that refuse, fail and
/// are killed; a filter that traps. Afterwards nothing is in flight, by all that says so.
pub(crate) async fn churn(places: &Places, count: u64) -> Result<()> {
    let places = with_trap(places)?;
    let options = Options {
        more_engines: ENGINES - 3,
        engine_args: ["--speed", "8", "--blocks", "20000"]
            .map(str::to_owned)
            .to_vec(),
        ..Options::default()
    };
    let mut stack = Stack::start("churn", &places, options).await?;
    beside_a_trap(&stack).await?;
    let begin = Instant::now();
    let clients = Clients::start(&stack, count)?;
    let seen = Arc::new(AtomicU64::new(0));
    let over = Arc::new(AtomicBool::new(false));
    let watch = watch(stack.observer()?, Arc::clone(&seen), Arc::clone(&over));
    let watch = tokio::spawn(watch);
    let [kills, refusals, traps] = go_wrong(&mut stack, &clients).await?;
    let ends = clients.finish().await?;
    let took = begin.elapsed().as_secs_f64();
    over.store(true, Ordering::Relaxed);
    watch.await?;
    println!(
        "  {count} requests in {took:.0} s, {kills} kills, {refusals} refusals of 40, {traps} traps"
    );
    for ((end, became), count) in &ends {
        println!("    {:<18}{became:<12}{count}", format!("{end:?}"));
    }
    let most = seen.load(Ordering::Relaxed);
    println!("  the filter said to have {most} in flight at most");
    ensure!(most > 0, "what is in flight cannot be seen");
    nothing_left(&stack).await
}

/// Lets something go wrong every few hundred requests: how many engines were killed and made to refuse,
/// and how often the filter trapped. Not in the second half: a trap takes with it what may have leaked.
async fn go_wrong(stack: &mut Stack, clients: &Clients) -> Result<[u32; 3]> {
    let [mut kills, mut refusals, mut traps] = [0; 3];
    let step = 400 + clients.count / 100;
    let rounds = usize::try_from(clients.count / step)?;
    for (round, sent) in (0..rounds).zip((step..).step_by(usize::try_from(step)?)) {
        clients.reach(sent).await;
        let engine = round / 4 % ENGINES;
        match round % 4 {
            0 if 2 * round < rounds => {
                traps += 1;
                let body = body(&mut Random::new(1), End::Answer, &systems()).to_string();
                let _ = trailers::send(stack.ports.envoy, body.as_bytes(), "trap").await;
            }
            1 => {
                kills += 1;
                stack.restart_engine(engine).await?;
            }
            n => {
                refusals += 1;
                let status = if n == 2 { 500 } else { 503 };
                let fault = json!({"kind": "refuse", "requests": 40, "status": status});
                // Not the one that was killed just before.
                let client = stack.engine_client((engine + n) % ENGINES)?;
                client.post("/sim/fault", &fault, "fault", &[]).await?;
            }
        }
    }
    Ok([kills, refusals, traps])
}

/// When the filter traps over one request, Envoy ends all that this worker has under way, and no others.
async fn beside_a_trap(stack: &Stack) -> Result<()> {
    let mut open = Vec::new();
    for n in 0..32 {
        let (client, id) = (stack.client()?, format!("beside-{n}"));
        let body = json!({"model": "sim", "max_tokens": 1_000, "ignore_eos": true, "stream": n % 2 == 0,
            "messages": [{"role": "user", "content": words(n, 40)}]});
        open.push(tokio::spawn(async move {
            match client.post(PATH, &body, &id, &[]).await {
                Ok(reply) => reply.status.to_string(),
                Err(_) => "broken off".to_owned(),
            }
        }));
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let body = body(&mut Random::new(1), End::Answer, &systems()).to_string();
    let _ = trailers::send(stack.ports.envoy, body.as_bytes(), "trap-beside").await;
    let mut ends: BTreeMap<String, u64> = BTreeMap::new();
    for one in open {
        *ends.entry(one.await?).or_default() += 1;
    }
    println!("  of 32 requests under way when the filter trapped over another: {ends:?}");
    ensure!(
        ends.contains_key("200"),
        "other workers' requests failed too"
    );
    Ok(())
}

/// Looks at what is in flight all the while.
async fn watch(mut observer: Observer, seen: Arc<AtomicU64>, over: Arc<AtomicBool>) {
    while !over.load(Ordering::Relaxed) {
        if let Ok(work) = observer.in_flight().await {
            let requests: u64 = work.iter().map(|w| u64::from(w.requests)).sum();
            seen.fetch_max(requests, Ordering::Relaxed);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until engines, Envoy and filter have nothing in flight, and looks whether it stays so.
async fn nothing_left(stack: &Stack) -> Result<()> {
    wait(
        "the engines to be idle",
        Duration::from_secs(20),
        async || {
            for i in 0..ENGINES {
                if stack
                    .engine_state(i)
                    .await
                    .is_ok_and(|s| s["requests"] != 0)
                {
                    return false;
                }
            }
            true
        },
    )
    .await?;
    let admin = Client::new(stack.ports.admin)?;
    wait("Envoy to be idle", Duration::from_secs(20), async || {
        let stats = admin
            .get("/stats?filter=cluster.pool.upstream_rq_active")
            .await;
        stats.is_ok_and(|(_, text)| text.contains("upstream_rq_active: 0"))
    })
    .await?;
    let mut observer = stack.observer()?;
    let begin = Instant::now();
    // What a VM had counted that has trapped is ignored after 5 s.
    let patience = Duration::from_secs(12);
    let (mut left, mut empty) = (Vec::<PlaceWork>::new(), 0);
    while empty < 15 {
        ensure!(
            begin.elapsed() < patience,
            "still in flight by the filter's count, with nothing on its way: {left:?}"
        );
        left = observer.in_flight().await?;
        empty = if left.is_empty() { empty + 1 } else { 0 };
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!(
        "  nothing left {:.1} s after",
        begin.elapsed().as_secs_f64()
    );
    let log = stack.envoy.as_ref().map(|e| e.log_tail(100_000));
    let log = log.unwrap_or_default();
    ensure!(
        !log.contains("panicked"),
        "the filter panicked: {}",
        stack.dir.display()
    );
    let traps = log.matches("unreachable").count();
    println!("  Envoy logged {traps} traps");
    ensure!(traps > 0, "nothing trapped");
    Ok(())
}
