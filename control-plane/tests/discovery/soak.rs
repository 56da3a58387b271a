//! Pods that come and go all the time: nothing is left of those that are gone.
//!
//! Short by default. In real time, with 200 pods and a change a second for five minutes:
//! `make soak-discovery`.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::api::pod;
use super::{common, config, kubernetes, temp, world};

/// How long it takes until all is settled.
const SETTLE_MAX: Duration = Duration::from_secs(120);
/// Metrics of a replica that are there from its first error on.
const ERRORS_PER_REPLICA: usize = 6;
/// What memory may differ by at the end: allocators keep some of what they once had.
const RSS_SLACK_KB: u64 = 48 << 10;
/// What it may still grow by when two thirds of the changes are made (what is live, `heap` counts).
const RSS_STILL_KB: u64 = 8 << 10;

/// Pods and the rhythm of their coming and going.
struct Soak {
    name: &'static str,
    pods: usize,
    changes: usize,
    pause: Duration,
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_those_that_are_gone() {
    let short = Soak {
        name: "short",
        pods: 30,
        changes: 120,
        pause: Duration::from_millis(40),
    };
    short.run().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "five minutes: make soak-discovery"]
async fn two_hundred_pods_at_one_change_a_second() {
    let long = Soak {
        name: "long",
        pods: 200,
        changes: 300,
        pause: Duration::from_secs(1),
    };
    long.run().await;
}

/// The program, ended when dropped.
struct Program {
    child: Child,
    base: String,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What may leak.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    nodes: u64,
    series: usize,
    /// Sockets and all other files that are open.
    files: usize,
    threads: u64,
    rss_kb: u64,
    synced: usize,
}

impl Program {
    async fn figures(&self) -> Figures {
        let text = reqwest::get(format!("{}/metrics", self.base)).await;
        let text = match text {
            Ok(text) => text.text().await.unwrap_or_default(),
            Err(_) => return Figures::default(),
        };
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.trim().parse().ok()).unwrap_or(0)
        };
        let proc = format!("/proc/{}", self.child.id());
        let status = std::fs::read_to_string(format!("{proc}/status")).unwrap();
        let of_status = |name: &str| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap();
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        let synced =
            |line: &&str| line.starts_with("prefix_picker_replica_synced{") && line.ends_with(" 1");
        Figures {
            nodes: value("prefix_picker_index_engine_blocks{pool=\"one\"}"),
            series: text.lines().filter(|line| !line.starts_with('#')).count(),
            files: std::fs::read_dir(format!("{proc}/fd")).unwrap().count(),
            threads: of_status("Threads:"),
            rss_kb: of_status("VmRSS:"),
            synced: text.lines().filter(synced).count(),
        }
    }

    /// Until so many replicas are followed, nothing moves any more, and no more files are open than that:
    /// connections to those that are gone stay open for 10 s.
    async fn settled(&self, pods: usize, files_max: usize) -> Figures {
        let begin = Instant::now();
        let mut last = Figures::default();
        loop {
            let now = self.figures().await;
            let still = (now.nodes, now.series, now.files) == (last.nodes, last.series, last.files);
            if now.synced == pods && still && now.files <= files_max {
                return now;
            }
            assert!(begin.elapsed() < SETTLE_MAX, "{pods} pods: {now:?}");
            last = now;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

/// The address of a pod by its number, which no other pod has before 60,000 others.
pub(crate) fn ip(number: usize) -> String {
    format!(
        "127.{}.{}.{}",
        64 + number / 62_500 % 64,
        number / 250 % 250,
        number % 250 + 1
    )
}

impl Soak {
    async fn run(self) {
        let (api, mut engines) = world().await;
        let (temp, dir) = temp(self.name);
        let which = format!("label_selector: app=vllm, port: {}", engines.ports.http);
        let held = held_ports::Held::new(1).unwrap();
        let listen_at = std::net::SocketAddr::from(([127, 0, 0, 1], held.at(0)));
        let text = config(&dir, &kubernetes(&api, engines.ports, &which));
        let text = text.replace("127.0.0.1:0", &listen_at.to_string());
        let file = temp.file("config.yaml", &text);
        for number in 0..self.pods {
            engines.run(&ip(number), number as u64).await;
            api.set_pod(&pod(&format!("p{number}"), &ip(number)));
        }
        let child = common::program()
            .args(["serve", "--config"])
            .arg(&file)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let program = Program {
            child,
            base: format!("http://{listen_at}"),
        };
        let before = program.settled(self.pods, usize::MAX).await;
        let expected = (self.pods * super::engines::BLOCKS) as u64;
        assert_eq!(before.nodes, expected + 1, "blocks and their root");

        let begin = Instant::now();
        let mut highest = Figures::default();
        let mut rss_kb = Vec::new();
        for change in 0..self.changes {
            // The oldest one goes, and another comes.
            let (old, new) = (change, self.pods + change);
            api.delete_pod(&format!("p{old}"));
            engines.end(&ip(old)).await;
            engines.run(&ip(new), new as u64).await;
            api.set_pod(&pod(&format!("p{new}"), &ip(new)));
            tokio::time::sleep_until((begin + self.pause * (change as u32 + 1)).into()).await;
            if change % 20 == 0 {
                api.disconnect();
                let now = program.figures().await;
                highest.rss_kb = highest.rss_kb.max(now.rss_kb);
                rss_kb.push(now.rss_kb);
                highest.series = highest.series.max(now.series);
                highest.files = highest.files.max(now.files);
            }
            if change % 70 == 50 {
                api.compact();
                api.disconnect();
            }
        }
        let after = program.settled(self.pods, before.files + 8).await;
        println!(
            "{} pods, {} changes in {:.1} s\n  before {before:?}\n  after  {after:?}\n  highest {highest:?}\n  memory every 20 changes, KB: {rss_kb:?}",
            self.pods,
            self.changes,
            begin.elapsed().as_secs_f64()
        );
        assert_eq!((after.nodes, after.synced), (before.nodes, before.synced));
        // Counters of errors begin with the first one: a busy machine has some of each replica.
        let most = before.series + ERRORS_PER_REPLICA * self.pods + 8;
        assert!(after.series <= most, "{after:?}");
        self.only_the_living(&program).await;
        assert!(after.threads <= before.threads + 8, "{after:?}");
        assert!(after.rss_kb <= before.rss_kb + RSS_SLACK_KB, "{after:?}");
        // A minute and more of it, in which connections to those that are gone are forgotten.
        if self.pause >= Duration::from_secs(1) {
            stands_still(&rss_kb);
        }
        self.all_gone(&api, &program).await;
    }

    /// No series is of a pod that is gone.
    async fn only_the_living(&self, program: &Program) {
        let text = reqwest::get(format!("{}/metrics", program.base))
            .await
            .unwrap();
        let text = text.text().await.unwrap();
        let told = text
            .lines()
            .filter_map(|line| line.split_once("replica=\"p"));
        let told = told.map(|(_, rest)| rest.split('"').next().unwrap().parse().unwrap());
        let told: std::collections::BTreeSet<usize> = told.collect();
        let living: std::collections::BTreeSet<usize> =
            (self.changes..self.changes + self.pods).collect();
        assert_eq!(told, living);
    }

    /// Without any pod there is nothing.
    async fn all_gone(&self, api: &super::Api, program: &Program) {
        for number in self.changes..self.changes + self.pods {
            api.delete_pod(&format!("p{number}"));
        }
        let none = program.settled(0, 60).await;
        println!("  none   {none:?}");
        assert_eq!(none.nodes, 0);
        let text = reqwest::get(format!("{}/metrics", program.base))
            .await
            .unwrap();
        let text = text.text().await.unwrap();
        assert!(!text.contains("replica=\"p"), "{text}");
    }
}

/// In the last third memory is what it was in the second one.
fn stands_still(rss_kb: &[u64]) {
    let third = rss_kb.len() / 3;
    let highest = |from: usize, to: usize| rss_kb.get(from..to).and_then(|of| of.iter().max());
    let before = highest(third, 2 * third);
    let after = highest(2 * third, rss_kb.len());
    assert!(
        after <= before.map(|kb| kb + RSS_STILL_KB).as_ref(),
        "{rss_kb:?}"
    );
}
