//! What happens to pods, and to the API server.

use std::time::Duration;

use prefix_picker_core::sync::ReplicaState::{Down, Draining, Ready};
use serde_json::json;

use super::api::{pod, set_ready};
use super::dns_server::{self, Server};
use super::engines::{BLOCKS, Says};
use super::{ControlPlane, Engines, kubernetes, temp, world};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::RecordType;

const FAILING: &str = "prefix_picker_discovery_failing{pool=\"one\"}";
const LABELS: &str = "label_selector: app=vllm, port: PORT";

fn by_labels(api: &super::Api, engines: &super::Engines) -> String {
    let which = LABELS.replace("PORT", &engines.ports.http.to_string());
    kubernetes(api, engines.ports, &which)
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_come_and_go() {
    let (api, mut engines) = world().await;
    let (_temp, dir) = temp("pods");
    engines.run("127.1.0.1", 1).await;
    engines.run("127.1.0.2", 2).await;
    api.set_pod(&pod("a", "127.1.0.1"));
    let mut other = pod("other", "127.1.0.9");
    other["metadata"]["labels"]["app"] = json!("postgres");
    api.set_pod(&other);
    let cp = ControlPlane::start(&dir, &by_labels(&api, &engines)).await;
    cp.until_states(&[("a", Ready)]).await;
    // A gateway that asks at once gets a table with what is in it: the start waited for the list.
    cp.until("blocks of a", |cp| cp.blocks("a") == BLOCKS).await;
    assert_eq!(
        cp.member("a").unwrap().head.endpoint,
        format!("127.1.0.1:{}", engines.ports.http)
    );

    // One that has no address yet, is not ready, is.
    let mut b = pod("b", "127.1.0.2");
    b["status"] = json!({"phase": "Pending"});
    api.set_pod(&b);
    let mut b = pod("b", "127.1.0.2");
    set_ready(&mut b, false);
    api.set_pod(&b);
    cp.until_states(&[("a", Ready), ("b", Down)]).await;
    // Events are followed all the same.
    cp.until("blocks of b", |cp| cp.blocks("b") == BLOCKS).await;
    api.change_pod("b", |pod| set_ready(pod, true));
    cp.until_states(&[("a", Ready), ("b", Ready)]).await;
    engines.store("127.1.0.2", 22).await;
    cp.until("more blocks of b", |cp| cp.blocks("b") == 2 * BLOCKS)
        .await;
    // Not ready for a moment: its cache is known when it is back.
    api.change_pod("b", |pod| set_ready(pod, false));
    cp.until_states(&[("a", Ready), ("b", Down)]).await;
    api.change_pod("b", |pod| set_ready(pod, true));
    cp.until_states(&[("a", Ready), ("b", Ready)]).await;
    assert_eq!(cp.blocks("b"), 2 * BLOCKS);

    // On its way out, and gone.
    api.change_pod("b", |pod| {
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")
    });
    cp.until_states(&[("a", Ready), ("b", Draining)]).await;
    api.delete_pod("b");
    cp.until_states(&[("a", Ready)]).await;
    assert_eq!(cp.engine.pools()[0].stats().held, BLOCKS);
    cp.until_metrics(|text| !text.contains("replica=\"b\""))
        .await;

    // Another address, and another pod of the same name, are other replicas.
    engines.run("127.1.0.3", 3).await;
    let first = cp.member("a").unwrap().key;
    api.change_pod("a", |pod| pod["status"]["podIP"] = json!("127.1.0.3"));
    cp.until("a elsewhere", |cp| {
        cp.member("a").is_some_and(|a| a.key != first)
    })
    .await;
    cp.until("its blocks", |cp| cp.blocks("a") == BLOCKS).await;
    let second = cp.member("a").unwrap().key;
    api.change_pod("a", |pod| pod["metadata"]["uid"] = json!("another"));
    cp.until("a made anew", |cp| {
        cp.member("a").is_some_and(|a| a.key != second)
    })
    .await;
    cp.until_states(&[("a", Ready)]).await;

    // Other labels, and an end.
    api.change_pod("a", |pod| {
        pod["metadata"]["labels"]["app"] = json!("retired")
    });
    cp.until_states(&[]).await;
    api.change_pod("a", |pod| pod["metadata"]["labels"]["app"] = json!("vllm"));
    cp.until_states(&[("a", Ready)]).await;
    api.change_pod("a", |pod| pod["status"]["phase"] = json!("Failed"));
    cp.until_states(&[]).await;
    cp.until("an empty index", |cp| {
        cp.engine.pools()[0].stats().nodes == 0
    })
    .await;
    let none = "prefix_picker_discovery_replicas{pool=\"one\"} 0\n";
    cp.until_metrics(|text| text.contains(none)).await;
    cp.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_fails_takes_nobody_away() {
    let (api, mut engines) = world().await;
    let (_temp, dir) = temp("failures");
    for (name, ip, number) in [
        ("a", "127.2.0.1", 1),
        ("b", "127.2.0.2", 2),
        ("c", "127.2.0.3", 3),
    ] {
        engines.run(ip, number).await;
        if name != "c" {
            api.set_pod(&pod(name, ip));
        }
    }
    let cp = ControlPlane::start(&dir, &by_labels(&api, &engines)).await;
    let both = [("a", Ready), ("b", Ready)];
    cp.until_states(&both).await;
    let (lists, _) = api.asked();
    let until_failure = async |kind: &str| {
        let line =
            format!("prefix_picker_discovery_failures_total{{pool=\"one\",kind=\"{kind}\"}}");
        cp.until_metric(&line, |count| count >= 1.0).await;
    };

    // Watches break off, and go on where they were: bookmarks told how far that is.
    let (_, watches) = api.asked();
    api.disconnect();
    cp.until("another watch", |_| api.asked().1 > watches).await;
    api.set_pod(&pod("c", "127.2.0.3"));
    cp.until_states(&[("a", Ready), ("b", Ready), ("c", Ready)])
        .await;
    assert_eq!(api.asked().0, lists, "nothing was listed again");

    // Forbidden for a while: nobody goes.
    let before = api.refused().len();
    api.refuse(Some(403));
    api.disconnect();
    // Or the watch might tell of what comes now, before it breaks off.
    cp.until("a refusal", |_| api.refused().len() > before)
        .await;
    api.delete_pod("c");
    until_failure("forbidden").await;
    assert_eq!(cp.states().len(), 3);
    // Meanwhile changes are forgotten: 410, and a list from the beginning.
    api.compact();
    api.refuse(None);
    cp.until_states(&both).await;
    assert!(api.asked().0 > lists);
    until_failure("gone").await;

    // The server has a bad day.
    api.refuse(Some(500));
    api.disconnect();
    until_failure("server").await;
    api.refuse(None);
    api.delay(Duration::from_millis(1_500));
    api.set_pod(&pod("c", "127.2.0.3"));
    cp.until_states(&[("a", Ready), ("b", Ready), ("c", Ready)])
        .await;
    cp.stop().await;

    // Nobody to ask at a start: those that were there are there, with their blocks.
    engines.store("127.2.0.1", 11).await;
    api.refuse(Some(403));
    let cp = ControlPlane::start(&dir, &by_labels(&api, &engines)).await;
    cp.until_states(&[("a", Ready), ("b", Ready), ("c", Ready)])
        .await;
    cp.until("blocks", |cp| {
        cp.blocks("a") == 2 * BLOCKS && cp.blocks("b") == BLOCKS
    })
    .await;
    api.delete_pod("b");
    api.delay(Duration::ZERO);
    api.refuse(None);
    cp.until_states(&[("a", Ready), ("c", Ready)]).await;
    cp.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inference_pool_says_which_pods() {
    let (api, mut engines) = world().await;
    let (_temp, dir) = temp("pool");
    for (name, ip, number) in [("a", "127.3.0.1", 1), ("b", "127.3.0.2", 2)] {
        engines.run(ip, number).await;
        let mut pod = pod(name, ip);
        pod["metadata"]["labels"]["tier"] = json!(name);
        api.set_pod(&pod);
    }
    let http = engines.ports.http;
    let spec = |tier: &str| json!({"selector": {"matchLabels": {"app": "vllm", "tier": tier}}, "targetPorts": [{"number": http}]});
    let discovery = kubernetes(&api, engines.ports, "inference_pool: vllm");
    let cp = ControlPlane::start(&dir, &discovery).await;
    // It comes later.
    cp.until("it looked", |_| cp.states().is_empty()).await;
    api.set_pool("inference.networking.k8s.io", "vllm", spec("a"));
    cp.until_states(&[("a", Ready)]).await;
    assert_eq!(
        cp.member("a").unwrap().head.endpoint,
        format!("127.3.0.1:{http}")
    );
    // Another selector.
    api.set_pool("inference.networking.k8s.io", "vllm", spec("b"));
    cp.until_states(&[("b", Ready)]).await;
    // Several ports are several engines; the second one is not there.
    let mut two = spec("b");
    two["targetPorts"] = json!([{"number": http}, {"number": 1}]);
    api.set_pool("inference.networking.k8s.io", "vllm", two);
    cp.until("two ports", |cp| {
        let names: Vec<String> = cp.states().into_iter().map(|(name, _)| name).collect();
        names == ["b:1".to_owned(), format!("b:{http}")]
    })
    .await;
    api.set_pool("inference.networking.k8s.io", "vllm", spec("b"));
    cp.until_states(&[("b", Ready)]).await;
    // A pool that is deleted, or selects everything, changes nothing.
    api.set_pool(
        "inference.networking.k8s.io",
        "vllm",
        json!({"selector": {"matchLabels": {}}, "targetPorts": [{"number": http}]}),
    );
    api.delete_pool("vllm");
    let failures = "prefix_picker_discovery_failures_total{pool=\"one\",kind=\"empty\"}";
    cp.until_metric(failures, |count| count > 0.0).await;
    cp.until_states(&[("b", Ready)]).await;
    cp.stop().await;

    // The forerunner's group.
    let (_temp, dir) = temp("old-pool");
    let old = json!({"selector": {"tier": "a"}, "targetPortNumber": http});
    api.set_pool("inference.networking.x-k8s.io", "vllm", old);
    let cp = ControlPlane::start(&dir, &discovery).await;
    cp.until_states(&[("a", Ready)]).await;
    cp.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_says_where_its_events_are() {
    let (api, mut engines) = world().await;
    let (_temp, dir) = temp("sources");
    let held = held_ports::Held::new(2).unwrap();
    let (events, replay) = (held.at(0), held.at(1));
    let says = Says {
        sources: Some(
            json!({"0": {"enable_kv_cache_events": true, "publisher": "zmq", "topic": "kv@a",
            "endpoint": format!("tcp://*:{events}"), "replay_endpoint": format!("tcp://*:{replay}")}}),
        ),
    };
    engines.run_at("127.4.0.1", 1, events, replay, says).await;
    api.set_pod(&pod("a", "127.4.0.1"));
    let cp = ControlPlane::start(&dir, &by_labels(&api, &engines)).await;
    cp.until_states(&[("a", Ready)]).await;
    cp.until("blocks", |cp| cp.blocks("a") == BLOCKS).await;

    // It is started anew, at its usual ports.
    engines.end("127.4.0.1").await;
    cp.until_states(&[("a", Down)]).await;
    let ports = engines.ports;
    let says = Says {
        sources: Some(
            json!({"0": {"publisher": "zmq", "endpoint": format!("tcp://*:{}", ports.events),
            "replay_endpoint": format!("tcp://0.0.0.0:{}", ports.replay)}}),
        ),
    };
    engines
        .run_at("127.4.0.1", 2, ports.events, ports.replay, says)
        .await;
    engines.store("127.4.0.1", 3).await;
    cp.until_states(&[("a", Ready)]).await;
    cp.until("new blocks", |cp| cp.blocks("a") == 2 * BLOCKS)
        .await;
    cp.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ipv6_from_the_pod_to_the_header() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        eprintln!("skipped: no IPv6 on the loopback");
        return;
    }
    let (api, mut engines) = world().await;
    let (_temp, dir) = temp("ipv6");
    engines.run("::1", 1).await;
    api.set_pod(&pod("a", "::1"));
    let cp = ControlPlane::start(&dir, &by_labels(&api, &engines)).await;
    cp.until_states(&[("a", Ready)]).await;
    cp.until("blocks", |cp| cp.blocks("a") == BLOCKS).await;
    engines.store("::1", 2).await;
    cp.until("live ones", |cp| cp.blocks("a") == 2 * BLOCKS)
        .await;
    // As gateways put it into their header.
    let head = cp.engine.head();
    assert_eq!(
        head.replicas[0].name(),
        format!("[::1]:{}", engines.ports.http)
    );
    let longest = "prefix_picker_replica_max_model_len{pool=\"one\",replica=\"a\"}";
    cp.until_metric(longest, |tokens| tokens == 8192.0).await;
    cp.stop().await;
}

/// An API server may say with the status of its answer that it has forgotten the version to watch from.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_is_refused_with_410_begins_with_a_list() {
    let (api, mut engines) = world().await;
    let (_temp, dir) = temp("gone");
    engines.run("127.8.0.1", 1).await;
    engines.run("127.8.0.2", 2).await;
    api.set_pod(&pod("a", "127.8.0.1"));
    let cp = ControlPlane::start(&dir, &by_labels(&api, &engines)).await;
    cp.until_states(&[("a", Ready)]).await;
    api.gone_as_status();
    api.refuse(Some(500));
    api.disconnect();
    let server = "prefix_picker_discovery_failures_total{pool=\"one\",kind=\"server\"}";
    cp.until_metric(server, |count| count > 0.0).await;
    cp.until_metric(FAILING, |is| is == 1.0).await;
    api.set_pod(&pod("b", "127.8.0.2"));
    api.compact();
    api.refuse(None);
    cp.until_states(&[("a", Ready), ("b", Ready)]).await;
    cp.stop().await;
}

/// A watch that goes on where it was says nothing as long as nothing changes: it works all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_failed_works_again_without_a_change() {
    let (api, mut engines) = world().await;
    let (_temp, dir) = temp("again");
    engines.run("127.10.0.1", 1).await;
    api.set_pod(&pod("a", "127.10.0.1"));
    let cp = ControlPlane::start(&dir, &by_labels(&api, &engines)).await;
    cp.until_states(&[("a", Ready)]).await;
    assert_eq!(cp.metric(FAILING).await, Some(0.0));
    api.refuse(Some(500));
    api.disconnect();
    cp.until_metric(FAILING, |is| is == 1.0).await;
    api.refuse(None);
    cp.until_metric(FAILING, |is| is == 0.0).await;
    cp.until_states(&[("a", Ready)]).await;
    cp.stop().await;
}

/// What stands before the API server answers watches, in one way or another, with what is none. That is asked for at
/// a leisurely pace, and said.
#[tokio::test(flavor = "multi_thread")]
async fn watches_that_end_at_once_are_a_failure() {
    let (api, mut engines) = world().await;
    let (_temp, dir) = temp("at-once");
    engines.run("127.11.0.1", 1).await;
    engines.run("127.11.0.2", 2).await;
    let cp = ControlPlane::start(&dir, &by_labels(&api, &engines)).await;
    let bodies = [
        "",
        "<html><body>Sign in</body></html>\n",
        "{\"type\":\"ADDED\",\"obj",
        "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"items\":null}\n",
        "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"status\":\"Failure\",\"message\":\"old\",\"code\":410}}\n",
    ];
    for (number, body) in bodies.into_iter().enumerate() {
        cp.until_metric(FAILING, |is| is == 0.0).await;
        let (_, before) = api.asked();
        api.answer_watches(Some(body));
        api.disconnect();
        cp.until_metric(FAILING, |is| is == 1.0).await;
        let (_, after) = api.asked();
        assert!(after - before <= 8, "{} watches: {body:?}", after - before);
        // Another one comes: it is seen once watches work, and not before, or with a list.
        let name = format!("p{number}");
        api.set_pod(&pod(&name, &format!("127.11.0.{}", number % 2 + 1)));
        api.answer_watches(None);
        cp.until_metric(FAILING, |is| is == 0.0).await;
        cp.until_states(&[(&name, Ready)]).await;
        api.delete_pod(&name);
        cp.until_states(&[]).await;
    }
    cp.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_went_while_nobody_watched_is_missed() {
    let (api, mut engines) = world().await;
    let (_temp, dir) = temp("unwatched");
    engines.run("127.12.0.1", 1).await;
    let group = "inference.networking.k8s.io";
    let spec = json!({"selector": {"matchLabels": {"app": "vllm"}}, "targetPorts": [{"number": engines.ports.http}]});
    api.set_pool(group, "vllm", spec.clone());
    api.set_pod(&pod("a", "127.12.0.1"));
    let discovery = kubernetes(&api, engines.ports, "inference_pool: vllm");
    let cp = ControlPlane::start(&dir, &discovery).await;
    cp.until_states(&[("a", Ready)]).await;
    let not_found = "prefix_picker_discovery_failures_total{pool=\"one\",kind=\"not_found\"}";
    api.refuse(Some(500));
    api.disconnect();
    cp.until_metric(FAILING, |is| is == 1.0).await;
    api.delete_pool("vllm");
    api.compact();
    api.refuse(None);
    cp.until_metric(not_found, |count| count > 0.0).await;
    // Its pods are served as before, and it still fails though their watch works.
    cp.until_states(&[("a", Ready)]).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(cp.metric(FAILING).await, Some(1.0));
    api.set_pool(group, "vllm", spec);
    cp.until_metric(FAILING, |is| is == 0.0).await;
    cp.stop().await;
}

/// Two pods at once with one address (a rollout with host networking), and a name that is taken.
#[tokio::test(flavor = "multi_thread")]
async fn who_clashes_waits_until_the_other_is_gone() {
    let (api, mut engines) = world().await;
    let (_temp, dir) = temp("clash");
    engines.run("127.5.0.1", 1).await;
    api.set_pod(&pod("a", "127.5.0.1"));
    api.set_pod(&pod("b", "127.5.0.1"));
    let cp = ControlPlane::start(&dir, &by_labels(&api, &engines)).await;
    cp.until_states(&[("a", Ready)]).await;
    api.delete_pod("a");
    cp.until_states(&[("b", Ready)]).await;
    cp.until("blocks", |cp| cp.blocks("b") == BLOCKS).await;
    cp.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_in_the_dns_come_flap_and_stay_when_it_fails() {
    let (server, mut engines) = (Server::start().await, Engines::start().await);
    let (_temp, dir) = temp("dns");
    let v6 = std::net::TcpListener::bind("[::1]:0").is_ok();
    let other = if v6 { "::1" } else { "127.7.0.2" };
    engines.run("127.7.0.1", 1).await;
    engines.run(other, 2).await;
    let ports = engines.ports;
    let name = |ip: &str| std::net::SocketAddr::new(ip.parse().unwrap(), ports.http).to_string();
    let (a, b) = (name("127.7.0.1"), name(other));
    server.set_addresses("vllm.test", &["127.7.0.1"]);
    let discovery = format!(
        "dns: {{name: vllm.test, port: {}, interval_ms: 100, server: '{}'}}, events_port: {}, replay_port: {}",
        ports.http, server.address, ports.events, ports.replay
    );
    let cp = ControlPlane::start(&dir, &discovery).await;
    cp.until_states(&[(&a, Ready)]).await;
    server.set_addresses("vllm.test", &["127.7.0.1", other]);
    cp.until_states(&[(&a, Ready), (&b, Ready)]).await;
    cp.until("blocks", |cp| {
        cp.blocks(&a) == BLOCKS && cp.blocks(&b) == BLOCKS
    })
    .await;

    // Not listed for a moment: no requests, and all that is known stays.
    server.set_addresses("vllm.test", &[other]);
    cp.until_states(&[(&a, Draining), (&b, Ready)]).await;
    server.set_addresses("vllm.test", &["127.7.0.1", other]);
    cp.until_states(&[(&a, Ready), (&b, Ready)]).await;
    assert_eq!((cp.blocks(&a), cp.blocks(&b)), (BLOCKS, BLOCKS));
    assert_eq!(
        cp.metric("prefix_picker_discovery_changes_total{pool=\"one\",change=\"added\"}")
            .await,
        Some(2.0)
    );

    // A server that fails, or has an empty answer, takes nobody away.
    for (kind, says) in [
        ("server", dns_server::Says::Code(ResponseCode::ServFail)),
        ("empty", dns_server::Says::Records(vec![])),
        ("not_found", dns_server::Says::Code(ResponseCode::NXDomain)),
    ] {
        for family in [RecordType::A, RecordType::AAAA] {
            server.set("vllm.test", family, says.clone());
        }
        let line =
            format!("prefix_picker_discovery_failures_total{{pool=\"one\",kind=\"{kind}\"}}");
        cp.until_metric(&line, |count| count >= 2.0).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        cp.until_states(&[(&a, Ready), (&b, Ready)]).await;
    }
    cp.stop().await;
}
