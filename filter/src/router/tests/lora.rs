//! Requests for LoRA adapters.

use prefix_picker_core::ids::ReplicaIndex;
use prefix_picker_core::sync::LoraHead;

use super::*;

fn adapter(name: &str, replicas: &[u16]) -> LoraHead {
    LoraHead {
        name: name.to_owned(),
        replicas: replicas.iter().copied().map(ReplicaIndex).collect(),
    }
}

/// Sends a completion for `model` and gives the reason it was counted with, and what was named.
fn ask(b: &mut Bench, model: Option<&str>, prompt: &str) -> (String, Vec<String>) {
    let body = serde_json::json!({"model": model, "prompt": prompt});
    b.headers("POST", "/v1/completions", Some("application/json"), None);
    let mut r = b.send(&body.to_string());
    let reason = b.state(STATE_REASON).unwrap_or_default();
    let named = b.dest().unwrap_or_default();
    r.on_end(&mut b.vm, &b.host);
    let named = named.split(',').map(|e| e.trim().to_owned());
    (reason, named.filter(|e| !e.is_empty()).collect())
}

fn endpoints(replicas: &[u16]) -> Vec<String> {
    replicas
        .iter()
        .map(|r| format!("10.0.0.{}:8000", r + 1))
        .collect()
}

#[test]
fn an_adapter_has_blocks_of_its_own_and_only_its_replicas_are_named() {
    let mut b = bench();
    let mut fleet = Fleet::new(1, 8, 4);
    fleet.head.pools[0].loras = vec![adapter("sql", &[1, 3]), adapter("nowhere", &[])];
    fleet.holds_text(0, &text(1), None);
    fleet.holds_lora(3, "sql", &text(1));
    // What the table still says of a replica that has unloaded it.
    fleet.holds_lora(2, "sql", &text(2));
    b.publish(&fleet);

    let (reason, named) = ask(&mut b, Some("sql"), &text(1));
    assert_eq!((reason.as_str(), named), ("prefix", endpoints(&[3, 1])));
    let (reason, mut named) = ask(&mut b, Some("sql"), &text(2));
    named.sort();
    assert_eq!((reason.as_str(), named), ("load", endpoints(&[1, 3])));
    // The base model: its own blocks, all replicas.
    for model in [Some(MODEL), None] {
        let (reason, named) = ask(&mut b, model, &text(1));
        assert_eq!(
            (reason.as_str(), &named[..1]),
            ("prefix", &endpoints(&[0])[..])
        );
        assert_eq!(named.len(), 3);
    }
    let (reason, named) = ask(&mut b, Some("nowhere"), &text(1));
    assert_eq!((reason.as_str(), named.len()), ("no_replica", 0));
}

#[test]
fn no_replica_is_named_that_may_lack_the_adapter() {
    let mut b = bench();
    let mut fleet = Fleet::new(1, 8, 3);
    fleet.head.pools[0].loras = vec![adapter("a", &[0, 2]), adapter("b", &[1, 2])];
    b.publish(&fleet);
    // Perhaps an adapter that was loaded a moment ago.
    let (reason, named) = ask(&mut b, Some("new"), "x");
    assert_eq!((reason.as_str(), named.len()), ("unknown_model", 0));
    // The model is not read: a replica that has them all.
    b.headers(
        "POST",
        "/v1/completions",
        Some("application/json"),
        Some(9_000_000),
    );
    let mut r = b.send("");
    assert_eq!(b.state(STATE_REASON).as_deref(), Some("body_too_large"));
    assert_eq!(b.dest(), Some(endpoints(&[2]).join(",")));
    r.on_end(&mut b.vm, &b.host);
    // Without a profile, load decides among those that have it.
    fleet.set_profile(Fleet::predicted_only());
    b.publish(&fleet);
    let (_, mut named) = ask(&mut b, Some("a"), "x");
    named.sort();
    assert_eq!(named, endpoints(&[0, 2]));
}

#[test]
fn a_base_models_name_goes_before_an_adapters_and_the_cluster_decides_between_pools() {
    let mut b = bench();
    let mut fleet = Fleet::new(1, 8, 4);
    let mut other = fleet.head.pools[0].clone();
    other.name = "q".to_owned();
    other.models = vec!["other".to_owned()];
    other.clusters = vec!["elsewhere".to_owned()];
    other.loras = vec![adapter("sql", &[2, 3])];
    fleet.head.pools[0].loras = vec![adapter("sql", &[0]), adapter(MODEL, &[1])];
    fleet.head.pools.push(other);
    for replica in &mut fleet.head.replicas[2..] {
        replica.pool = 1;
    }
    b.publish(&fleet);
    assert_eq!(ask(&mut b, Some("sql"), "x").1, endpoints(&[0]));
    let (_, mut named) = ask(&mut b, Some(MODEL), "x");
    named.sort();
    assert_eq!(named, endpoints(&[0, 1]), "the base model");
    b.property("xds.cluster_name", b"elsewhere");
    let (_, mut named) = ask(&mut b, Some("sql"), "x");
    named.sort();
    assert_eq!(named, endpoints(&[2, 3]));
}
