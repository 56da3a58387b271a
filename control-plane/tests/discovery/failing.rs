//! An API server that answers oddly: what fails is told as long as it fails and no longer, and never asked for
//! without a pause.

use std::time::{Duration, Instant};

use prefix_picker_core::sync::ReplicaState::Ready;
use serde_json::{Value, json};

use super::api::{Api, Refusal, pod};
use super::{ControlPlane, Engines, kubernetes, temp, world};

const FAILING: &str = "prefix_picker_discovery_failing{pool=\"one\"}";
const GROUP: &str = "inference.networking.k8s.io";
const OLD_GROUP: &str = "inference.networking.x-k8s.io";

fn by_labels(api: &Api, engines: &Engines) -> String {
    let which = format!("label_selector: app=vllm, port: {}", engines.ports.http);
    kubernetes(api, engines.ports, &which)
}

/// A pod with a label of its own name beside the usual one.
fn tiered(name: &str, ip: &str) -> Value {
    let mut pod = pod(name, ip);
    pod["metadata"]["labels"]["tier"] = json!(name);
    pod
}

fn selecting(tier: &str, ports: &[u16]) -> Value {
    let ports: Vec<_> = ports.iter().map(|port| json!({"number": port})).collect();
    json!({"selector": {"matchLabels": {"app": "vllm", "tier": tier}}, "targetPorts": ports})
}

fn failures(kind: &str) -> String {
    format!("prefix_picker_discovery_failures_total{{pool=\"one\",kind=\"{kind}\"}}")
}

impl ControlPlane {
    /// Until an alarm says so.
    async fn until_alarm(&self, text: &str) {
        let begin = Instant::now();
        loop {
            let url = format!("{}/v1/status", self.base);
            let status = reqwest::get(url).await.unwrap().text().await.unwrap();
            if status.contains(text) {
                return;
            }
            assert!(begin.elapsed() < super::WAIT_MAX, "{text}: {status}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// What failed was another selector's list.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_is_replaced_takes_its_failure_with_it() {
    let (api, mut engines) = world().await;
    let (_temp, dir) = temp("replaced");
    engines.run("127.13.0.1", 1).await;
    let http = engines.ports.http;
    api.set_pod(&tiered("a", "127.13.0.1"));
    api.refuse_some(vec![Refusal::new("tier%3Db", 403)]);
    api.set_pool(GROUP, "vllm", selecting("b", &[http]));
    let discovery = kubernetes(&api, engines.ports, "inference_pool: vllm");
    let cp = ControlPlane::start(&dir, &discovery).await;
    cp.until_metric(FAILING, |is| is == 1.0).await;
    api.set_pool(GROUP, "vllm", selecting("a", &[http]));
    cp.until_states(&[("a", Ready)]).await;
    cp.until_metric(FAILING, |is| is == 0.0).await;
    cp.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_watch_that_recovers_does_not_speak_for_the_other() {
    let (api, mut engines) = world().await;
    let (_temp, dir) = temp("both");
    engines.run("127.14.0.1", 1).await;
    let http = engines.ports.http;
    api.set_pod(&tiered("a", "127.14.0.1"));
    api.set_pool(GROUP, "vllm", selecting("a", &[http]));
    let discovery = kubernetes(&api, engines.ports, "inference_pool: vllm");
    let cp = ControlPlane::start(&dir, &discovery).await;
    cp.until_states(&[("a", Ready)]).await;
    api.refuse(Some(500));
    api.disconnect();
    cp.until_metric(&failures("server"), |count| count >= 4.0)
        .await;
    // The pool is followed again, and says so; pods are not.
    api.refuse_some(vec![Refusal::new("/pods", 403)]);
    cp.until_metric(&failures("forbidden"), |count| count > 0.0)
        .await;
    api.set_pool(GROUP, "vllm", selecting("a", &[http, 1]));
    let mut seen = None::<Instant>;
    let begin = Instant::now();
    while seen.is_none_or(|seen| seen.elapsed() < Duration::from_secs(1)) {
        assert_eq!(cp.metric(FAILING).await, Some(1.0));
        if cp.states().len() == 2 {
            seen.get_or_insert_with(Instant::now);
        }
        assert!(begin.elapsed() < super::WAIT_MAX, "{:?}", cp.states());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    api.refuse(None);
    cp.until_metric(FAILING, |is| is == 0.0).await;
    cp.stop().await;
}

/// A version that is newer than what the server has, as after a restore of a backup; one that it cannot read; and one
/// with which it fails for ever.
#[tokio::test(flavor = "multi_thread")]
async fn versions_that_are_of_no_use_lead_to_a_new_list() {
    let (api, mut engines) = world().await;
    let (_temp, dir) = temp("versions");
    engines.run("127.15.0.1", 1).await;
    let cp = ControlPlane::start(&dir, &by_labels(&api, &engines)).await;
    // That it goes is told by a watch.
    api.set_pod(&pod("a", "127.15.0.1"));
    cp.until_states(&[("a", Ready)]).await;
    api.delete_pod("a");
    cp.until_states(&[]).await;
    let refused = |message: &str, reason: &str, code: u16, details: Value| {
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code, "details": details})
    };
    let cause = json!({"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]});
    let cases = [
        (
            504,
            refused(
                "Too large resource version: 7, current: 5",
                "Timeout",
                504,
                cause,
            ),
            1,
        ),
        (
            400,
            refused("invalid resource version", "BadRequest", 400, json!({})),
            1,
        ),
        (500, refused("no idea", "InternalError", 500, json!({})), 3),
    ];
    for (code, status, watches) in cases {
        let (lists, before) = (api.asked().0, api.refused().len());
        api.disown_versions(code, status);
        api.disconnect();
        cp.until("a refusal", |_| api.refused().len() > before)
            .await;
        api.set_pod(&pod("a", "127.15.0.1"));
        cp.until_states(&[("a", Ready)]).await;
        let refused = api.refused().len() - before;
        assert!(refused <= watches, "{code}: {refused}");
        assert!(api.asked().0 > lists);
        cp.until_metric(FAILING, |is| is == 0.0).await;
        api.delete_pod("a");
        cp.until_states(&[]).await;
    }
    cp.stop().await;
}

/// From one API group to the other, in both directions.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_moves_to_another_group_is_found() {
    let (api, mut engines) = world().await;
    let (_temp, dir) = temp("moves");
    let http = engines.ports.http;
    for (name, ip, number) in [("a", "127.16.0.1", 1), ("b", "127.16.0.2", 2)] {
        engines.run(ip, number).await;
        api.set_pod(&tiered(name, ip));
    }
    let old = |tier: &str| json!({"selector": {"tier": tier}, "targetPortNumber": http});
    api.set_pool(OLD_GROUP, "vllm", old("a"));
    // A role may name one group alone.
    api.refuse_some(vec![Refusal::new(GROUP, 403)]);
    let discovery = kubernetes(&api, engines.ports, "inference_pool: vllm");
    let cp = ControlPlane::start(&dir, &discovery).await;
    cp.until_states(&[("a", Ready)]).await;
    cp.until_metric(FAILING, |is| is == 0.0).await;
    api.refuse(None);
    api.set_pool(GROUP, "vllm", selecting("b", &[http]));
    cp.until_states(&[("b", Ready)]).await;
    cp.until_metric(FAILING, |is| is == 0.0).await;
    api.set_pool(OLD_GROUP, "vllm", old("a"));
    cp.until_states(&[("a", Ready)]).await;
    cp.until_metric(FAILING, |is| is == 0.0).await;
    cp.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_come_to_an_end() {
    let (api, mut engines) = world().await;
    let (_temp, dir) = temp("pages");
    for (name, ip, number) in [
        ("a", "127.17.0.1", 1),
        ("b", "127.17.0.2", 2),
        ("c", "127.17.0.3", 3),
    ] {
        engines.run(ip, number).await;
        api.set_pod(&pod(name, ip));
    }
    api.page(1, true);
    let cp = ControlPlane::start(&dir, &by_labels(&api, &engines)).await;
    cp.until_alarm("continue").await;
    assert_eq!(cp.metric(FAILING).await, Some(1.0));
    let (before, begin) = (api.asked().0, Instant::now());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let lists = api.asked().0 - before;
    let attempts = begin.elapsed().as_millis() / 500 + 1;
    assert!(u128::from(lists) <= 2 * attempts, "{lists} lists");
    api.page(1, false);
    cp.until_states(&[("a", Ready), ("b", Ready), ("c", Ready)])
        .await;
    cp.until_metric(FAILING, |is| is == 0.0).await;
    cp.stop().await;
}

/// One object that cannot be read is told of by its name. The others are followed, and so is what comes after it.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_hides_nobody_else() {
    let (api, mut engines) = world().await;
    let (_temp, dir) = temp("unread");
    for number in 1..=4 {
        engines.run(&format!("127.18.0.{number}"), number).await;
    }
    let odd = |name: &str, ip: &str| {
        let mut pod = pod(name, ip);
        pod["spec"]["containers"][0]["ports"] = json!([{"name": "http", "containerPort": "http"}]);
        pod
    };
    api.set_pod(&odd("a", "127.18.0.1"));
    api.set_pod(&pod("b", "127.18.0.2"));
    let cp = ControlPlane::start(&dir, &by_labels(&api, &engines)).await;
    cp.until_states(&[("b", Ready)]).await;
    cp.until_alarm("ml/a").await;
    assert_eq!(cp.metric(FAILING).await, Some(1.0));
    api.set_pod(&pod("a", "127.18.0.1"));
    cp.until_states(&[("a", Ready), ("b", Ready)]).await;
    cp.until_metric(FAILING, |is| is == 0.0).await;

    // In a watch: who was there stays as it was.
    let (lists, _) = api.asked();
    api.set_pod(&odd("b", "127.18.0.2"));
    api.set_pod(&odd("c", "127.18.0.3"));
    let mut nulls = pod("d", "127.18.0.4");
    for at in ["/spec/containers/0/ports", "/spec/initContainers"] {
        let (parent, last) = at.rsplit_once('/').unwrap();
        nulls.pointer_mut(parent).unwrap()[last] = Value::Null;
    }
    api.set_pod(&nulls);
    let three = [("a", Ready), ("b", Ready), ("d", Ready)];
    cp.until_states(&three).await;
    cp.until_alarm("ml/b").await;
    assert_eq!(api.asked().0, lists, "the watch went on");
    // And in a list.
    let gone = json!({"kind": "Status", "status": "Failure", "message": "too old", "reason": "Expired", "code": 410});
    api.disown_versions(410, gone);
    api.disconnect();
    cp.until("another list", |_| api.asked().0 > lists).await;
    cp.until_states(&three).await;
    api.delete_pod("c");
    api.delete_pod("b");
    cp.until_states(&[("a", Ready), ("d", Ready)]).await;
    cp.until_metric(FAILING, |is| is == 0.0).await;
    cp.stop().await;
}

/// In the answer's header, or in its status.
#[tokio::test(flavor = "multi_thread")]
async fn who_says_when_to_come_again_is_heard() {
    let (api, engines) = world().await;
    let (_temp, dir) = temp("retry-after");
    let mut in_status = Refusal::new("", 503);
    in_status.status["details"] = json!({"retryAfterSeconds": 2});
    let in_header = Refusal {
        headers: vec![("retry-after", "2".to_owned())],
        ..Refusal::new("", 429)
    };
    api.refuse_some(vec![in_status]);
    let cp = ControlPlane::start(&dir, &by_labels(&api, &engines)).await;
    for refusals in [vec![in_header], vec![]] {
        let before = api.refused().len();
        let begin = Instant::now();
        while api.refused().len() < before + 2 {
            assert!(begin.elapsed() < super::WAIT_MAX);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        api.refuse_some(refusals);
    }
    cp.until_metric(FAILING, |is| is == 0.0).await;
    for pair in api.refused().windows(2) {
        let apart = pair[1] - pair[0];
        assert!(apart >= Duration::from_millis(1_900), "{apart:?}");
    }
    cp.stop().await;
}

/// A sign-in page, and a server that never ends a line.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_answer_is_said() {
    let (api, mut engines) = world().await;
    let (_temp, dir) = temp("no-answer");
    engines.run("127.19.0.1", 1).await;
    api.set_pod(&pod("a", "127.19.0.1"));
    api.refuse_some(vec![Refusal {
        headers: vec![("location", "https://login.test/signin".to_owned())],
        status: json!("sign in"),
        ..Refusal::new("", 302)
    }]);
    let cp = ControlPlane::start(&dir, &by_labels(&api, &engines)).await;
    cp.until_alarm("302").await;
    cp.until_alarm("https://login.test/signin").await;
    api.refuse(None);
    cp.until_states(&[("a", Ready)]).await;
    cp.until_metric(FAILING, |is| is == 0.0).await;
    api.answer_watches(Some(&"x".repeat(12 << 20)));
    api.disconnect();
    cp.until_alarm("one line").await;
    api.answer_watches(None);
    cp.until_metric(FAILING, |is| is == 0.0).await;
    cp.stop().await;
}
